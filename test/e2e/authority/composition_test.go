package authority

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("Authority and policy", Serial, func() {
	refunds := map[string]string{"grant": "refunds"}

	It("allow together, ask together, and the stricter of the two denies", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))

		By("granted and allowed")
		a := s.passes(s.agent, byGrant("refunds"), refunds)
		Expect(a.Status.DecisionReason).To(Equal("rule[0]"))

		By("granted and asked: a person says yes")
		a = s.reaches(s.refund(s.agent, asked), v1alpha1.ActionAwaitingApproval)
		Expect(a.Status.Authority).To(HaveValue(Equal(byGrant("refunds"))))
		Expect(eventsTold(a)).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.AuthorityResolved, timeline.PolicyEvaluated, timeline.ApprovalRequested}))
		s.answer(s.approver, a, v1alpha1.Approved)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.claim(s.agent, a)
		a, d := s.executed(s.agent, a)
		s.passedBy(a, d, byGrant("refunds"), refunds)
		Expect(d.ApprovalsRequired).To(Equal(int64(1)))
		Expect(d.DecisionReason).To(Equal("rule[1]"))
		Expect(eventsTold(a)).To(Equal([]timeline.Type{
			timeline.ActionProposed, timeline.AuthorityResolved, timeline.PolicyEvaluated, timeline.ApprovalRequested, timeline.ApprovalGranted, timeline.ActionClaimable,
			timeline.ApprovalConsumed, timeline.EffectReserved, timeline.ExecutionStarted, timeline.ExecutionCommitted,
		}), "told once, however often it was decided")

		By("granted and denied by policy")
		a = s.reaches(s.refund(s.agent, denied), v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal("rule[2]"))
		d = s.receiptOf(a)
		s.passedBy(a, d, byGrant("refunds"), refunds)
		Expect(d.DecisionReason).To(Equal("rule[2]"))
		Expect(d.Policy.Name).To(Equal("payments"))
		Expect(eventsTold(a)).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.AuthorityResolved, timeline.PolicyEvaluated, timeline.ActionDenied}))

		By("not granted, whatever policy would say: nobody can tell which")
		for _, amount := range []int{allowed, asked, denied} {
			s.refused(s.refund(s.night, amount), refusal{decision.NoAuthority, []string{"No grant names this agent."}, nil})
		}
		s.chainHolds()
	})

	It("are asked in this order of an action that no policy knows", func() {
		s := newScene()
		s.grant("refunds", s.refunds(fields{"actions": []string{"stripe.*", "unknown.thing"}, "resources": nil, "constraints": nil}))
		a := s.reaches(s.proposed(s.agent, "unknown.thing", fields{}), v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal(string(decision.UnknownAction)))
		s.passedBy(a, s.receiptOf(a), byGrant("refunds"), refunds)
		Expect(eventsTold(a)).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.AuthorityResolved, timeline.PolicyEvaluated, timeline.ActionDenied}))
		s.refused(s.proposed(s.agent, "unknown.other", fields{}), refusal{decision.NoAuthority, []string{`It is not about "unknown.other".`}, nil})
		s.refused(s.proposed(s.night, "unknown.thing", fields{}), refusal{decision.NoAuthority, []string{"No grant names this agent."}, nil})
	})

	It("are not asked of what cannot be computed", func() {
		s := newScene()
		a := s.reaches(s.proposed(s.agent, "stripe.refund", fields{"amount": allowed}), v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal(string(decision.ResourceError)))
		Expect(eventsTold(a)).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.ActionDenied}))
	})

	It("a Grant for an agent and its user lets it act for that user only", func() {
		s := newScene()
		s.grant("refunds", s.refunds(fields{"subject": fields{"agent": s.agent.Name, "user": "carla"}}))
		s.mayRepresent(s.agent, "carla", "bob")
		on := func(user string) func(*v1alpha1.ActionSpec) {
			return func(spec *v1alpha1.ActionSpec) { spec.Principal.User = &user }
		}
		a, d := s.executed(s.agent, s.refund(s.agent, allowed, on("carla")))
		s.passedBy(a, d, byGrant("refunds"), refunds)
		s.refused(s.refund(s.agent, allowed, on("bob")), refusal{decision.NoAuthority, []string{"No grant is for this agent and its user."}, nil})
	})

	It("are separate: a Grant counts only where it is required, and to require it no longer takes the verb govern", func() {
		s := newScene()
		no := refusal{decision.NoAuthority, nil, nil}
		s.refused(s.refund(s.agent, asked), no)

		By("an editor of the settings who may not govern")
		Expect(s.settingsAs(s.editor, fields{"authority": "NotRequired"})).To(MatchError(ContainSubstring("govern")))
		Expect(s.settingsAs(s.editor, fields{})).To(MatchError(ContainSubstring("govern")), "left out counts as its default")
		o := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}}
		Expect(env.Client(s.editor).Delete(ctx, o)).To(MatchError(ContainSubstring("govern")))
		s.refused(s.refund(s.agent, asked), no)

		By("somebody who may")
		s.settings(fields{"authority": "NotRequired"})
		a, d := s.executed(s.agent, s.refund(s.agent, allowed))
		Expect(a.Status.Authority).To(BeNil())
		Expect(d.Authority).To(BeNil())
		Expect(eventsTold(a)).NotTo(ContainElement(timeline.AuthorityResolved))
		s.grant("refunds", s.refunds(nil))
		a, d = s.executed(s.night, s.refund(s.night, allowed))
		Expect(a.Status.Authority).To(BeNil())
		Expect(d.Authority).To(BeNil())

		By("and back, which anybody may who edits them")
		rules := a.Status.RulesHash
		Expect(s.settingsAs(s.editor, fields{"authority": "Required"})).To(Succeed())
		Eventually(func() []receipt.Document { return s.events(timeline.SettingsInForce) }).Should(HaveLen(3))
		a = s.passes(s.agent, byGrant("refunds"), refunds)
		Expect(a.Status.RulesHash).NotTo(Equal(rules), "the grants decide by now")
		s.refused(s.refund(s.night, asked), no)

		By("deleting them")
		Expect(env.Client(s.owner).Delete(ctx, o)).To(Succeed())
		Eventually(func() []receipt.Document { return s.events(timeline.SettingsRemoved) }).Should(HaveLen(1))
		s.executed(s.night, s.refund(s.night, allowed))
		s.chainHolds()
	})

	It("deny everybody once the last Grant is deleted", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		s.grant("more", s.refunds(fields{"subject": fields{"agent": s.night.Name}}))
		s.passes(s.agent, byGrant("refunds"), refunds)
		s.removeGrant("refunds")
		s.refused(s.refund(s.agent, allowed), refusal{decision.NoAuthority, []string{"No grant names this agent."}, nil})
		s.passes(s.night, byGrant("more"), map[string]string{"grant": "more"})
		s.removeGrant("more")
		for _, u := range []testenv.User{s.agent, s.night} {
			s.refused(s.refund(u, allowed), refusal{decision.NoAuthority, []string{"There is no valid grant in this namespace, and authority is required."}, nil})
		}
	})

	It("a Delegation lets its agent propose, three below its Grant, and four where that is allowed", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		all := s.chainOf(3)
		for i, d := range all {
			Expect(d.Status.Depth).To(Equal(int64(i + 1)))
		}
		s.passes(s.noon, byDelegation("to-noon", "refunds"), map[string]string{"delegation": "to-noon", "grant": "refunds", "depth": "3"})
		fourth := s.part(delegationRef("to-noon"), s.dusk, nil)
		s.rejected(s.delegate(s.noon, "too-deep", fourth), authority.MaxDepth, "")

		Expect(s.settingsAs(s.editor, fields{"authority": "Required", "maxDelegationDepth": 4})).To(MatchError(ContainSubstring("govern")))
		s.settings(fields{"authority": "Required", "maxDelegationDepth": 4})
		d := s.handed(s.noon, "to-dusk", fourth)
		Expect(d.Status.Depth).To(Equal(int64(4)))
		s.passes(s.dusk, byDelegation("to-dusk", "refunds"), map[string]string{"delegation": "to-dusk", "grant": "refunds", "depth": "4"})
		Expect(s.events(timeline.DelegationRejected)).To(HaveLen(1), "a refusal is final")
		s.rejected(s.delegate(s.dusk, "deeper", s.part(delegationRef("to-dusk"), s.agent, nil)), authority.MaxDepth, "", "5 steps")

		By("each link being on record, with what it hangs below")
		parents := map[string]string{"to-night": "Grant/refunds", "to-dawn": "Delegation/to-night", "to-noon": "Delegation/to-dawn", "to-dusk": "Delegation/to-noon"}
		for _, d := range append(all, d) {
			e := s.onRecord(d, timeline.DelegationCreated)[0]
			s.quotes(d.Status.ReceiptRef, e)
			Expect(e.Data).To(HaveKeyWithValue("parent", parents[d.Name]))
			Expect(e.Data).To(HaveKeyWithValue("parent_uid", string(d.Status.ParentUID)))
			Expect(e.Data).To(HaveKeyWithValue("delegator", d.Spec.Delegator.Agent))
			Expect(e.Data).To(HaveKeyWithValue("expires", d.Spec.ExpirationTime.UTC().Format(receipt.TimeLayout)))
			Expect(e.Data).NotTo(HaveKey("break_glass"))
		}
		s.chainHolds()
	})
})

var _ = Describe("A Grant of type BreakGlass", Serial, func() {
	It("grants nothing by itself, is opened by who may, with a reason, until soon, on record, and can be closed early", func() {
		s := newScene()
		s.grant("emergency", s.envelope(nil))
		nobody := refusal{decision.NoAuthority, nil, nil}
		s.refused(s.refund(s.agent, asked), nobody)
		s.refused(s.refund(s.night, asked), nobody)

		By("not by its subject, nor by whoever writes grants")
		Expect(env.Grant(ctx, s.ns, "ctrlrun-agent", s.owner)).To(Succeed())
		for _, u := range []testenv.User{s.agent, s.owner} {
			_, err := s.delegates(u, "open", s.opening("emergency", s.night, nil))
			Expect(err).To(MatchError(ContainSubstring(`you need the verb "breakglass"`)))
		}
		By("not without a reason and an end")
		for _, key := range []string{"reason", "expirationTime"} {
			_, err := s.delegates(s.oncall, "open", s.opening("emergency", s.night, fields{key: nil}))
			Expect(err).To(MatchError(ContainSubstring("takes a reason and an expirationTime")))
		}
		By("not for longer than it says, nor for more than it says")
		s.rejected(s.delegate(s.oncall, "long", s.opening("emergency", s.night, fields{"expirationTime": at(65 * time.Minute)})), authority.BreakGlassTooLong, "")
		s.rejected(s.delegate(s.oncall, "wide", s.opening("emergency", s.night, fields{"constraints": nil})), authority.Containment, "constraints")
		s.refused(s.refund(s.night, asked), nobody)

		By("opened")
		d := s.handed(s.oncall, "open", s.opening("emergency", s.night, nil))
		e := s.onRecord(d, timeline.DelegationCreated)[0]
		Expect(e.Data).To(HaveKeyWithValue("break_glass", "true"))
		Expect(e.Data).To(HaveKeyWithValue("reason", "the payment provider is down"))
		Expect(e.Data).To(HaveKeyWithValue("delegator", "oncall"))
		Expect(e.Data).To(HaveKey("expires"))
		by := byDelegation("open", "emergency")
		by.BreakGlass = true
		opened := map[string]string{"delegation": "open", "grant": "emergency", "depth": "1", "break_glass": "true"}
		s.passes(s.night, by, opened)
		s.refused(s.refund(s.agent, asked), nobody)
		a := s.reaches(s.refund(s.night, asked), v1alpha1.ActionAwaitingApproval)
		Expect(a.Status.Authority).To(HaveValue(Equal(by)), "policy asks people all the same")

		By("what is opened not being handed on")
		s.rejected(s.delegate(s.night, "further", s.part(delegationRef("open"), s.dawn, fields{"expirationTime": at(10 * time.Minute)})), authority.ParentNotDelegable, "")

		By("closed, by whoever revokes")
		s.revoke(d)
		s.refusedSince(a, refusal{decision.AuthorityRevoked, []string{"Revocation/open.rosa"}, opened})
		s.refused(s.refund(s.night, asked), refusal{decision.AuthorityRevoked, nil, opened})
		s.onRecord(d, timeline.DelegationCreated, timeline.DelegationRevoked)

		By("ending by itself")
		s.handed(s.oncall, "again", s.opening("emergency", s.dawn, nil))
		a = s.reaches(s.refund(s.dawn, asked), v1alpha1.ActionAwaitingApproval)
		clock.Advance(GinkgoT(), 31*time.Minute)
		again := map[string]string{"delegation": "again", "grant": "emergency", "depth": "1", "break_glass": "true"}
		s.refusedSince(a, refusal{decision.AuthorityExpired, nil, again})
		s.refused(s.refund(s.dawn, asked), refusal{decision.AuthorityExpired, nil, again})
		s.chainHolds()
	})
})

var _ = Describe("The status of a Grant", Serial, func() {
	// reads is what tools that wait for objects conclude from: the generation it speaks of, Ready, Stalled and Expired.
	reads := func(o *v1alpha1.Grant, ready, stalled, expired string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			all, err := conditionsOf(o)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
			for kind, want := range map[string]string{v1alpha1.ReadyCondition: ready, v1alpha1.StalledCondition: stalled, v1alpha1.ExpiredCondition: expired} {
				c := meta.FindStatusCondition(all, kind)
				g.Expect(c).NotTo(BeNil(), kind)
				g.Expect(string(c.Status)).To(Equal(want), "%s: %s", kind, c.Message)
				g.Expect(c.ObservedGeneration).To(Equal(o.Generation))
				g.Expect(c.Reason).NotTo(BeEmpty())
				g.Expect(c.Message).NotTo(BeEmpty())
			}
		}).Should(Succeed())
	}

	It("stays Ready when it expires, and is Stalled while it is invalid", func() {
		s := newScene()
		reads(s.grant("endless", s.refunds(fields{"expirationTime": nil, "delegable": nil})), "True", "False", "False")
		o := s.grant("refunds", s.refunds(fields{"expirationTime": at(2 * time.Second)}))
		reads(o, "True", "False", "True") // it says so without anybody touching it
		Expect(condition(o, v1alpha1.ExpiredCondition).Message).To(ContainSubstring("Set a later expirationTime, or delete it."))
		reads(s.grant("refunds", s.refunds(invalid)), "False", "True", "False")
		Expect(condition(o, v1alpha1.StalledCondition).Message).To(ContainSubstring("spec: at /constraints/terms_eq/ratio: "))
		reads(s.grant("refunds", s.refunds(fields{"expirationTime": at(-time.Hour)})), "True", "False", "True")
		reads(s.grant("refunds", s.refunds(nil)), "True", "False", "False")
		s.passes(s.agent, byGrant("endless"), map[string]string{"grant": "endless"})
	})
})
