package proposals

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

func stalled(o *v1alpha1.PolicyProposal) (reason, message string) {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.StalledCondition)
	return c.Reason, c.Message
}

var _ = Describe("a proposal", func() {
	It("that is denied is not applied, says so, and asks again when it is edited", func() {
		s := newScene(asksOne)
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		a := s.asked("refunds")
		s.answers(s.alice, a, v1alpha1.Denied)
		a = s.ends(a, v1alpha1.ActionDenied)
		o := s.reaches("refunds", v1alpha1.ProposalRefused)
		reason, message := stalled(o)
		Expect(reason).To(Equal("ApprovalDenied"))
		Expect(message).To(ContainSubstring("Edit the proposal to ask again"))
		Expect(o.Status.ReceiptRef.Name).To(Equal(a.Status.ReceiptRef.Name))
		Expect(s.spec("ActionPolicy", "refunds")).To(BeNil())

		s.proposes("refunds", of("refunds", aPolicy(1000)))
		s.approves(s.alice, s.asked("refunds"))
		s.reaches("refunds", v1alpha1.ProposalApplied)
		Expect(s.spec("ActionPolicy", "refunds")).To(Equal(aPolicy(1000)))
	})

	It("that is edited while people are asked withdraws that question", func() {
		s := newScene(asksOne)
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		first := s.asked("refunds")
		s.proposes("refunds", of("refunds", aPolicy(3000)))
		first = s.ends(first, v1alpha1.ActionBlocked)
		Expect(first.Status.Reason).To(Equal("withdrawn"))
		second := s.asked("refunds")
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(change(second).To).NotTo(Equal(change(first).To))
		s.approves(s.alice, second)
		s.reaches("refunds", v1alpha1.ProposalApplied)
		Expect(s.spec("ActionPolicy", "refunds")).To(Equal(aPolicy(3000)))
	})

	It("whose target changes while people are asked asks about what it is now", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "ActionPolicy", "refunds", aPolicy(10))).To(Succeed())
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		first := s.asked("refunds")
		Expect(s.write(s.paula, "ActionPolicy", "refunds", aPolicy(20))).To(Succeed())
		s.ends(first, v1alpha1.ActionBlocked)
		second := s.asked("refunds")
		Expect(change(second).From).NotTo(Equal(change(first).From))
		Expect(change(second).To).To(Equal(change(first).To))

		By("also when it changed and changed back")
		Expect(s.write(s.paula, "ActionPolicy", "refunds", aPolicy(30))).To(Succeed())
		Expect(s.write(s.paula, "ActionPolicy", "refunds", aPolicy(20))).To(Succeed())
		s.ends(second, v1alpha1.ActionBlocked)
		third := s.asked("refunds")
		Expect(change(third).From).To(Equal(change(second).From))
		s.approves(s.alice, third)
		s.reaches("refunds", v1alpha1.ProposalApplied)

		By("and asking nobody where it is so already")
		Expect(s.write(s.paula, "ActionPolicy", "refunds", aPolicy(40))).To(Succeed())
		o := s.reaches("refunds", v1alpha1.ProposalReplaced)
		reason, _ := stalled(o)
		Expect(reason).To(Equal("TargetReplaced"))
		Expect(s.write(s.paula, "ActionPolicy", "refunds", aPolicy(2000))).To(Succeed())
		s.reaches("refunds", v1alpha1.ProposalApplied)
	})

	It("to delete asks as any other, and deletes", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "Grant", "bot", aGrant())).To(Succeed())
		s.proposes("bot", fields{"targetRef": fields{"kind": "Grant", "name": "bot"}, "delete": true})
		a := s.asked("bot")
		Expect(change(a).Operation()).To(Equal("delete"))
		Expect(s.spec("Grant", "bot")).NotTo(BeNil())
		s.approves(s.alice, a)
		s.ends(a, v1alpha1.ActionCommitted)
		Expect(s.spec("Grant", "bot")).To(BeNil())
		s.reaches("bot", v1alpha1.ProposalApplied)
	})

	It("to delete what somebody's finalizer keeps is applied at once, and one to make it again waits until it is gone", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "Grant", "bot", aGrant())).To(Succeed())
		o := object("Grant", s.ns, "bot", nil)
		finalizers := func(text string) {
			Expect(env.Client(s.paula).Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+text+`}}`)))).To(Succeed())
		}
		finalizers(`["example.com/keep"]`)
		s.proposes("bot", fields{"targetRef": fields{"kind": "Grant", "name": "bot"}, "delete": true})
		s.approves(s.alice, s.asked("bot"))
		s.reaches("bot", v1alpha1.ProposalApplied)
		Expect(s.spec("Grant", "bot")).NotTo(BeNil())

		s.proposes("bot", fields{"targetRef": fields{"kind": "Grant", "name": "bot"}, "content": aGrant()})
		reason, _ := ready(s.reaches("bot", v1alpha1.ProposalPending))
		Expect(reason).To(Equal("TargetTerminating"))
		finalizers("null")
		s.approves(s.alice, s.asked("bot"))
		s.reaches("bot", v1alpha1.ProposalApplied)
		Expect(s.spec("Grant", "bot")).NotTo(BeNil())
	})

	It("whose target is deleted while people are asked waits until it is gone, and asks about what is left", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "Grant", "bot", aGrant())).To(Succeed())
		o := object("Grant", s.ns, "bot", nil)
		patch := func(text string) {
			Expect(env.Client(s.paula).Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(text)))).To(Succeed())
		}
		patch(`{"metadata":{"finalizers":["example.com/keep"]}}`)
		wider := aGrant()
		wider["actions"] = []any{"stripe.**"}
		s.proposes("bot", fields{"targetRef": fields{"kind": "Grant", "name": "bot"}, "content": wider})
		first := s.asked("bot")
		Expect(env.Client(s.paula).Delete(ctx, o)).To(Succeed())
		s.ends(first, v1alpha1.ActionBlocked)
		s.reaches("bot", v1alpha1.ProposalPending)
		patch(`{"metadata":{"finalizers":null}}`)
		second := s.asked("bot")
		Expect(second.Name).NotTo(Equal(first.Name))
		Expect(change(second).Operation()).To(Equal("create"))
		s.approves(s.alice, second)
		s.reaches("bot", v1alpha1.ProposalApplied)
		Expect(s.spec("Grant", "bot")).To(HaveKeyWithValue("actions", []any{"stripe.**"}))
	})

	It("of what is there already is applied without asking", func() {
		s := newScene(asksOne)
		s.proposes("changes", of("changes", fields{"actions": values(asksOne)}))
		o := s.reaches("changes", v1alpha1.ProposalApplied)
		Expect(o.Status.Question).To(BeNil())
		Expect(s.questions()).To(BeEmpty())
		Expect(s.generation("ActionPolicy", "changes")).To(Equal(int64(1)))
	})

	It("waits where the operator may not write policies, and asks when it may", func() {
		ns := env.Namespace(GinkgoT(), nil)
		s := &scene{ns: ns, flux: testenv.User{Name: "flux"}, alice: testenv.User{Name: "alice"}, paula: testenv.User{Name: "paula"}}
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-proposer", s.flux)).To(Succeed())
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", s.paula)).To(Succeed())
		Expect(env.Grant(ctx, ns, "ctrlrun-approver", s.alice)).To(Succeed())
		Expect(s.write(s.paula, "ActionPolicy", "changes", fields{"actions": values(asksOne)})).To(Succeed())
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		reason, message := stalled(s.reaches("refunds", v1alpha1.ProposalPending))
		Expect(reason).To(Equal("OperatorForbidden"))
		Expect(message).To(ContainSubstring("ctrlrun-operator-proposals"))
		Expect(s.questions()).To(BeEmpty())
		Expect(env.Grant(ctx, ns, "ctrlrun-operator-proposals", testenv.OperatorUser())).To(Succeed())
		s.approves(s.alice, s.asked("refunds"))
		s.reaches("refunds", v1alpha1.ProposalApplied)
	})

	It("of a grant hashes what the apiserver fills in", func() {
		s := newScene(asksOne)
		s.proposes("bot", fields{"targetRef": fields{"kind": "Grant", "name": "bot"}, "content": aGrant()})
		s.approves(s.alice, s.asked("bot"))
		s.reaches("bot", v1alpha1.ProposalApplied)
		Expect(s.spec("Grant", "bot")).To(HaveKeyWithValue("grantType", "Standard"))
	})

	It("that is invalid asks nobody and says what is wrong", func() {
		s := newScene(asksOne)
		for name, content := range map[string]fields{
			"unknown":  {"actions": fields{"x": fields{"decision": "allow", "bogus": int64(1)}}},
			"operator": {"actions": fields{"x": fields{"rules": []any{fields{"when": fields{"amount_like": int64(1)}, "decision": "allow"}}}}},
			"neither":  {"actions": fields{"x": fields{"effect": "x:{y}"}}},
			"blank":    {"actions": fields{"x": fields{"decision": "allow", "effect": nil}}},
			"none":     {},
		} {
			s.proposes(name, of(name, content))
			o := s.reaches(name, v1alpha1.ProposalRefused)
			reason, message := stalled(o)
			Expect(reason).To(Or(Equal("ContentInvalid"), Equal("ContentRefused")), name)
			Expect(message).To(ContainSubstring("Nobody is asked"), name)
			Expect(o.Status.Question).To(BeNil(), name)
		}
		bad := aGrant()
		bad["actions"] = []any{"a?b"}
		s.proposes("grant", fields{"targetRef": fields{"kind": "Grant", "name": "bad"}, "content": bad})
		s.reaches("grant", v1alpha1.ProposalRefused)

		c := env.Client(s.flux)
		for _, spec := range []fields{
			{"targetRef": fields{"kind": "ActionPolicy", "name": "x"}},
			{"targetRef": fields{"kind": "ActionPolicy", "name": "x"}, "content": aPolicy(1), "delete": true},
			{"targetRef": fields{"kind": "Settings", "name": "default"}, "content": fields{}},
		} {
			Expect(c.Create(ctx, object("PolicyProposal", s.ns, unique("bad"), spec))).To(MatchError(ContainSubstring("is invalid")))
		}
	})

	It("waits where no policy says who is asked, and asks when one does", func() {
		s := newScene("")
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		o := s.reaches("refunds", v1alpha1.ProposalPending)
		reason, message := stalled(o)
		Expect(reason).To(Equal("UnknownAction"))
		Expect(message).To(ContainSubstring("ctrlrun.policy.change"))

		By("not taking a policy that asks nobody")
		Expect(s.write(s.paula, "ActionPolicy", "changes", fields{"actions": values(`{"ctrlrun.policy.change": {"effect": "policy:{proposal_uid}:{generation}", "decision": "allow"}}`)})).To(Succeed())
		Eventually(func() string { r, _ := stalled(s.proposal("refunds")); return r }).Should(Equal("PolicyChangeUnapproved"))
		Expect(s.spec("ActionPolicy", "refunds")).To(BeNil())

		Expect(s.write(s.paula, "ActionPolicy", "changes", fields{"actions": values(asksOne)})).To(Succeed())
		s.approves(s.alice, s.asked("refunds"))
		s.reaches("refunds", v1alpha1.ProposalApplied)
	})

	It("asks nobody in observe mode, and a question that is open ends there", func() {
		s := newScene(asksOne)
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		a := s.asked("refunds")
		Expect(s.write(s.paula, "Settings", "default", fields{"policyChanges": "Proposed", "mode": "Observe"})).To(Succeed())
		a = s.ends(a, v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal("policy_change_unapproved"))
		s.reaches("refunds", v1alpha1.ProposalRefused)
		s.proposes("other", of("other", aPolicy(1)))
		reason, _ := stalled(s.reaches("other", v1alpha1.ProposalPending))
		Expect(reason).To(Equal("PolicyChangeUnapproved"))
		Expect(s.spec("ActionPolicy", "refunds")).To(BeNil())
	})

	It("that is deleted withdraws its question", func() {
		s := newScene(asksOne)
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		a := s.asked("refunds")
		Expect(env.Client(s.flux).Delete(ctx, object("PolicyProposal", s.ns, "refunds", nil))).To(Succeed())
		Expect(s.ends(a, v1alpha1.ActionBlocked).Status.Reason).To(Equal("withdrawn"))

		By("and one of the same name asks anew")
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		b := s.asked("refunds")
		Expect(b.UID).NotTo(Equal(a.UID))
		Expect(b.Name).NotTo(Equal(a.Name))
	})

	It("does not take another's Action for its question, whatever its name", func() {
		s := newScene(asksOne)
		s.proposes("refunds", of("refunds", aPolicy(1)))
		first := s.asked("refunds")
		squatted := first.Name[:len(first.Name)-len("1-1")] + "2-1"
		Expect(env.Admin().Create(ctx, object("Action", s.ns, squatted, fields{"actionType": "stripe.refund"}))).To(Succeed())
		s.proposes("refunds", of("refunds", aPolicy(2)))
		a := s.asked("refunds")
		Expect(a.Name).NotTo(Equal(squatted))
		s.approves(s.alice, a)
		s.reaches("refunds", v1alpha1.ProposalApplied)
	})

	It("is refused by the rules of the policy as any action, and by who may not propose it", func() {
		s := newScene(`{"ctrlrun.policy.change": {"effect": "policy:{proposal_uid}:{generation}", "rules": [{"when": {"operation_eq": "delete"}, "decision": "deny"}, {"decision": "approve"}]}}`)
		s.proposes("changes", fields{"targetRef": fields{"kind": "ActionPolicy", "name": "changes"}, "delete": true})
		o := s.reaches("changes", v1alpha1.ProposalRefused)
		reason, _ := stalled(o)
		Expect(reason).To(Equal("Rule0"))
		Expect(o.Status.ReceiptRef).NotTo(BeNil())

		Expect(s.write(s.paula, "Settings", "default", fields{"policyChanges": "Proposed", "authority": "Required"})).To(Succeed())
		s.proposes("refunds", of("refunds", aPolicy(1)))
		reason, _ = stalled(s.reaches("refunds", v1alpha1.ProposalRefused))
		Expect(reason).To(Equal("NoAuthority"))
		Expect(s.write(s.paula, "Grant", "flux", fields{
			"subject": fields{"agent": "system:serviceaccount:ctrlrun-system:ctrlrun-operator", "user": s.flux.Name},
			"actions": []any{"ctrlrun.policy.change"}, "resources": []any{"policy:ActionPolicy/refunds"},
		})).To(Succeed())
		Eventually(func(g Gomega) {
			o := object("Grant", s.ns, "flux", nil)
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			g.Expect(o.Object["status"]).To(HaveKeyWithValue("observedGeneration", int64(1)))
		}).Should(Succeed())
		s.proposes("refunds", of("refunds", aPolicy(2)))
		s.approves(s.alice, s.asked("refunds"))
		s.reaches("refunds", v1alpha1.ProposalApplied)
	})
})
