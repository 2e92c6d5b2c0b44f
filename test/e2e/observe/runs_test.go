package observe

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

// would is what enforcing would have done with an Action.
type would struct {
	decision decision.Decision
	reason   string
	blocked  decision.Reason
	// unreserved is why its effect is not reserved for it; empty where it is, or where it has none.
	unreserved decision.Reason
	attempt    int64
}

var decisions = map[decision.Decision]v1alpha1.ActionDecision{
	decision.Allow: "Allow", decision.Approve: "RequireApproval", decision.Deny: "Deny",
}

var ends = map[v1alpha1.OutcomeResult]struct {
	outcome   v1alpha1.ActionState
	execution decision.Result
	told      timeline.Type
}{
	v1alpha1.OutcomeCommitted:   {v1alpha1.ActionCommitted, decision.Committed, timeline.ExecutionCommitted},
	v1alpha1.OutcomeNotExecuted: {v1alpha1.ActionFailed, decision.Failed, timeline.ExecutionFailed},
	v1alpha1.OutcomeUnknown:     {v1alpha1.ActionAmbiguous, decision.Ambiguous, timeline.ExecutionAmbiguous},
}

// observes takes an Action that was proposed to its end, and expects what its status, its receipt and its timeline say of it.
func (s *scene) observes(a *v1alpha1.Action, w would, result v1alpha1.OutcomeResult) *v1alpha1.Action {
	GinkgoHelper()
	a = s.reaches(a, v1alpha1.ActionAdmitted)
	Expect(a.Status.WouldHave).To(HaveValue(Equal(v1alpha1.ActionWouldHave{Decision: decisions[w.decision], Reason: w.reason, BlockedReason: string(w.blocked)})))
	Expect(a.Status.Outcome).To(BeEmpty())
	Expect(a.Status.Execution.Token != "").To(Equal(w.attempt > 0), "token %q", a.Status.Execution.Token)
	Expect(a.Status.Execution.Approvals).To(BeEmpty())
	s.report(a, result)
	a = s.reaches(a, v1alpha1.ActionObserved)
	end := ends[result]

	Expect(a.Status.Outcome).To(Equal(end.outcome))
	Expect(a.Status.Decision).To(Equal(decisions[w.decision]))
	Expect(a.Status.DecisionReason).To(Equal(w.reason))
	attempt := int64(0)
	if a.Status.Effect != nil {
		attempt = a.Status.Effect.Attempt
	}
	Expect(attempt).To(Equal(w.attempt))

	d := s.receiptOf(a)
	Expect(d.Result).To(Equal(decision.Observed))
	Expect(d.Execution).To(Equal(end.execution))
	Expect(d.WouldHave).To(HaveValue(Equal(receipt.WouldHave{Decision: w.decision, Reason: w.reason, BlockedReason: string(w.blocked)})))
	Expect(d.Decision).To(Equal(w.decision))
	Expect(d.DecisionReason).To(Equal(w.reason))
	Expect(d.Attempt).To(Equal(w.attempt))
	Expect(d.Token != "").To(Equal(w.attempt > 0))
	Expect(d.Approvals).To(BeEmpty())

	Expect(toldReason(a, timeline.EffectReservationRefused)).To(Equal(map[bool]string{true: "-", false: string(w.unreserved)}[w.unreserved == ""]))
	events := told(a)
	Expect(events[0]).To(Equal(timeline.ActionProposed))
	Expect(events[len(events)-1]).To(Equal(end.told))
	Expect(events).To(ContainElement(timeline.ExecutionStarted))
	Expect(slices.Contains(events, timeline.EffectReserved)).To(Equal(w.attempt > 0))
	Expect(events).NotTo(ContainElement(timeline.ActionDenied))
	Expect(events).NotTo(ContainElement(timeline.ActionBlocked))
	return a
}

var _ = Describe("What enforcing would have stopped", func() {
	type entry struct {
		settings string
		// before makes what is there already, under the name of the spec, and gives the key of the effect that must stay as it is.
		before func(s *scene, name string) string
		with   func(name string) proposal
		would  would
		result v1alpha1.OutcomeResult
	}
	const observe = `{"mode":"Observe"}`
	small := func(name string) proposal { return refund(name, allowed) }
	DescribeTable("runs, and is on record with what would have stopped it", func(e entry) {
		s := newScene(e.settings)
		name := unique("txn")
		kept, version := "", ""
		if e.before != nil {
			if kept = e.before(s, name); kept != "" {
				version = s.effect(kept).ResourceVersion
			}
		}
		a := s.observes(s.propose(e.with(name)), e.would, e.result)
		Expect(a.Status.Approval).To(BeNil(), "people were asked")
		Expect(told(a)).NotTo(ContainElement(timeline.ApprovalRequested))
		if kept != "" {
			Expect(s.effect(kept).ResourceVersion).To(Equal(version), "the effect that was not reserved for it was written")
		}
		s.chainHolds()
	},
		Entry("nothing", entry{observe, nil, small, would{decision.Allow, "rule[0]", "", "", 1}, v1alpha1.OutcomeCommitted}),
		Entry("nothing, without an effect", entry{observe, nil, func(string) proposal { return act("note.write", `{"text":"hello"}`) },
			would{decision.Allow, "decision", "", "", 0}, v1alpha1.OutcomeCommitted}),
		Entry("policy", entry{observe, nil, func(name string) proposal { return refund(name, denied) },
			would{decision.Deny, "rule[2]", decision.PolicyDenied, "", 1}, v1alpha1.OutcomeCommitted}),
		Entry("policy, and it did not happen", entry{observe, nil, func(name string) proposal { return refund(name, denied) },
			would{decision.Deny, "rule[2]", decision.PolicyDenied, "", 1}, v1alpha1.OutcomeNotExecuted}),
		Entry("no policy that knows it", entry{observe, nil, func(string) proposal { return act("unknown.thing", `{}`) },
			would{decision.Deny, "unknown_action", decision.UnknownAction, "", 0}, v1alpha1.OutcomeUnknown}),
		Entry("no grant", entry{`{"mode":"Observe","authority":"Required"}`, nil, small,
			would{decision.Deny, "no_authority", decision.NoAuthority, "", 1}, v1alpha1.OutcomeCommitted}),
		Entry("people who have to be asked", entry{observe, nil, func(name string) proposal { return refund(name, asked) },
			would{decision.Approve, "rule[1]", decision.ApprovalRequired, "", 1}, v1alpha1.OutcomeCommitted}),
		Entry("a committed effect", entry{observe, func(s *scene, name string) string {
			s.ran(refund(name, allowed), v1alpha1.OutcomeCommitted)
			return "refund:" + name
		}, small, would{decision.Allow, "rule[0]", decision.Duplicate, decision.Duplicate, 0}, v1alpha1.OutcomeNotExecuted}),
		Entry("a committed effect, before people are asked", entry{observe, func(s *scene, name string) string {
			s.ran(refund(name, allowed), v1alpha1.OutcomeCommitted)
			return "refund:" + name
		}, func(name string) proposal { return refund(name, asked) },
			would{decision.Approve, "rule[1]", decision.Duplicate, decision.Duplicate, 0}, v1alpha1.OutcomeCommitted}),
		Entry("policy, of a committed effect", entry{observe, func(s *scene, name string) string {
			s.ran(refund(name, allowed), v1alpha1.OutcomeCommitted)
			return "refund:" + name
		}, func(name string) proposal { return refund(name, denied) },
			would{decision.Deny, "rule[2]", decision.PolicyDenied, decision.Duplicate, 0}, v1alpha1.OutcomeUnknown}),
		Entry("an ambiguous effect", entry{observe, func(s *scene, name string) string {
			s.ran(refund(name, allowed), v1alpha1.OutcomeUnknown)
			return "refund:" + name
		}, small, would{decision.Allow, "rule[0]", decision.AmbiguousEffect, decision.AmbiguousEffect, 0}, v1alpha1.OutcomeCommitted}),
		Entry("an effect in progress", entry{observe, func(s *scene, name string) string {
			s.reaches(s.propose(refund(name, allowed)), v1alpha1.ActionAdmitted)
			return "refund:" + name
		}, small, would{decision.Allow, "rule[0]", decision.InProgress, decision.InProgress, 0}, v1alpha1.OutcomeCommitted}),
		Entry("people, before an effect in progress", entry{observe, func(s *scene, name string) string {
			s.reaches(s.propose(refund(name, allowed)), v1alpha1.ActionAdmitted)
			return "refund:" + name
		}, func(name string) proposal { return refund(name, asked) },
			would{decision.Approve, "rule[1]", decision.ApprovalRequired, decision.InProgress, 0}, v1alpha1.OutcomeCommitted}),
		Entry("attempts that are used up", entry{observe, func(s *scene, name string) string {
			s.ran(mail(name), v1alpha1.OutcomeNotExecuted)
			return "mail:" + name
		}, mail, would{decision.Allow, "decision", decision.AttemptCeiling, decision.AttemptCeiling, 0}, v1alpha1.OutcomeCommitted}),
	)

	It("settles the effect it has like any other, and frees it if it did not happen", func() {
		s := observing()
		name := unique("txn")
		w := would{decision.Deny, "rule[2]", decision.PolicyDenied, "", 1}
		s.observes(s.propose(refund(name, denied)), w, v1alpha1.OutcomeNotExecuted)
		Expect(s.effect("refund:" + name).Status.State).To(Equal(v1alpha1.EffectFailed))
		w.attempt = 2
		second := s.observes(s.propose(refund(name, denied)), w, v1alpha1.OutcomeCommitted)
		e := s.effect("refund:" + name)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
		Expect(e.Status.Holder.UID).To(Equal(second.UID))
		Expect(e.Status.Attempt).To(Equal(int64(2)))
		s.chainHolds()
	})

	It("is Ambiguous if nobody reports, and is resolved by a person as ever", Serial, func() {
		s := observing()
		name := unique("txn")
		key := "refund:" + name
		a := s.reaches(s.propose(refund(name, denied)), v1alpha1.ActionAdmitted)
		clock.Advance(GinkgoT(), lapsed)
		a = s.reaches(a, v1alpha1.ActionObserved)
		Expect(a.Status.Outcome).To(Equal(v1alpha1.ActionAmbiguous))
		Expect(a.Status.Reason).To(Equal(string(decision.LeaseLapsed)))
		Expect(a.Status.Message).To(ContainSubstring("kubectl ctrlrun resolve " + a.Status.Effect.Name))
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Observed))
		Expect(d.Ended()).To(Equal(decision.Ambiguous))
		Expect(d.Reason).To(Equal(decision.LeaseLapsed))
		e := s.effect(key)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseLeaseLapsed))

		r := s.resolution(a, v1alpha1.ResolutionCommitted)
		Expect(env.Client(s.resolver).Create(ctx, r)).To(Succeed())
		c := condition(r, v1alpha1.AcceptedCondition)
		Expect(c.Status).To(BeEquivalentTo("True"), c.Message)
		Eventually(func() v1alpha1.EffectState { return s.effect(key).Status.State }).Should(Equal(v1alpha1.EffectCommitted))
		Eventually(func() []timeline.Type { return told(s.get(a)) }).Should(ContainElement(timeline.EffectResolved))
		Expect(condition(a, v1alpha1.ResolvedCondition).Status).To(BeEquivalentTo("True"))
		a = s.get(a)
		Expect(a.Status.State).To(Equal(v1alpha1.ActionObserved))
		Expect(a.Status.Outcome).To(Equal(v1alpha1.ActionAmbiguous), "what was known when it ended stays")
		s.chainHolds()
	})

	It("leaves nothing to resolve if the effect was not reserved for it", Serial, func() {
		s := observing()
		name := unique("txn")
		s.ran(refund(name, allowed), v1alpha1.OutcomeCommitted)
		version := s.effect("refund:" + name).ResourceVersion
		a := s.reaches(s.propose(refund(name, allowed)), v1alpha1.ActionAdmitted)
		clock.Advance(GinkgoT(), lapsed)
		a = s.reaches(a, v1alpha1.ActionObserved)
		Expect(a.Status.Outcome).To(Equal(v1alpha1.ActionAmbiguous))
		Expect(a.Status.Message).To(ContainSubstring("there is nothing to resolve"))
		Expect(s.effect("refund:" + name).ResourceVersion).To(Equal(version))
		s.chainHolds()
	})

	It("releases a lease that lapsed in the way of another, which then is blocked by what nobody knows", Serial, func() {
		s := observing()
		name := unique("txn")
		first := s.reaches(s.propose(refund(name, allowed)), v1alpha1.ActionAdmitted)
		clock.Advance(GinkgoT(), lapsed)
		first = s.reaches(first, v1alpha1.ActionObserved)
		Expect(first.Status.Outcome).To(Equal(v1alpha1.ActionAmbiguous))
		second := s.propose(refund(name, allowed).unclaimed()) // the clock is ahead: its process has to say that it is there
		s.claim(second)
		s.observes(second, would{decision.Allow, "rule[0]", decision.AmbiguousEffect, decision.AmbiguousEffect, 0}, v1alpha1.OutcomeCommitted)
		Expect(s.effect("refund:" + name).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	})
})

// resolution is what a person would say who read the receipt of an Action.
func (s *scene) resolution(a *v1alpha1.Action, result v1alpha1.ResolutionResult) *v1alpha1.Resolution {
	GinkgoHelper()
	e := s.effect(a.Status.Effect.Key)
	ref := a.Status.ReceiptRef
	o := &v1alpha1.Resolution{Spec: v1alpha1.ResolutionSpec{
		EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType, Result: result,
		ReceiptRef: v1alpha1.ReceiptReference{Name: ref.Name, Hash: ref.Hash}, Reason: "the provider's dashboard says so",
	}}
	o.Namespace, o.Name = s.ns, fmt.Sprintf("%s.%d.%s", e.Name, e.Status.Attempt, action.Speaker(s.resolver.Name))
	return o
}

// into writes a spec as the API's type.
func into(text string, spec any) {
	GinkgoHelper()
	Expect(json.Unmarshal([]byte(text), spec)).To(Succeed())
}

// after is so long from now, as specs say it.
func after(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

var _ = Describe("Observe mode still refuses", func() {
	const observe = `{"mode":"Observe"}`
	DescribeTable("what has nothing to be recorded under, or asks for too much", func(settings string, p proposal, reason decision.Reason) {
		s := newScene(settings)
		a := s.reaches(s.propose(p), v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal(string(reason)))
		Expect(a.Status.WouldHave).To(BeNil())
		Expect(a.Status.Execution).To(BeNil())
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Denied))
		Expect(d.WouldHave).To(BeNil())
		Expect(d.Execution).To(BeEmpty())
		Expect(s.effects()).To(BeEmpty())
		s.chainHolds()
	},
		Entry("an effect without its key", observe, act("mail.send", `{"to":"somebody"}`), decision.EffectKeyError),
		Entry("an argument that cannot be hashed", observe, act("note.write", `{"rate":0.5}`), decision.UnrepresentableArgument),
		Entry("too long a lease", `{"mode":"Observe","maxLeaseSeconds":60}`, proposal{kind: "note.write", arguments: `{}`, lease: 61}, decision.LeaseTooLong),
	)

	It("what nobody vouched for", Serial, func() {
		s := observing()
		closeGap := env.AdmissionGap(GinkgoT(), "ctrlrun-approvals")
		a := s.propose(act("note.write", `{}`))
		clock.Advance(GinkgoT(), 10*time.Second)
		Eventually(func() string { return s.get(a).Status.Reason }).Should(Equal(string(decision.AdmissionMissing)))
		closeGap()
		a = s.reaches(a, v1alpha1.ActionBlocked)
		Expect(a.Status.Reason).To(Equal(string(decision.MadeWithoutAdmission)))
		Expect(a.Status.Execution).To(BeNil())
		Expect(s.receiptOf(a).WouldHave).To(BeNil())
	})

	It("to hand on more than was granted, or what was not", func() {
		s := newScene(`{"mode":"Observe","authority":"Required"}`)
		g := &v1alpha1.Grant{}
		g.Namespace, g.Name = s.ns, "refunds"
		into(`{"subject":{"agent":"`+s.agent.Name+`"},"actions":["stripe.refund"],"constraints":{"amount_lte":500},"expirationTime":"`+after(time.Hour)+`","delegable":true}`, &g.Spec)
		Expect(env.Client(s.owner).Create(ctx, g)).To(Succeed())
		Eventually(func(gg Gomega) {
			gg.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			gg.Expect(g.Status.ObservedGeneration).To(Equal(g.Generation))
		}).Should(Succeed())
		hand := func(u testenv.User, name, limit string) *v1alpha1.Delegation {
			o := &v1alpha1.Delegation{}
			o.Namespace, o.Name = s.ns, name
			into(`{"parentRef":{"kind":"Grant","name":"refunds"},"subject":{"agent":"`+s.night.Name+`"},"actions":["stripe.refund"],"constraints":{"amount_lte":`+limit+`},"expirationTime":"`+after(30*time.Minute)+`"}`, &o.Spec)
			Expect(env.Client(u).Create(ctx, o)).To(Succeed())
			return o
		}
		c := condition(hand(s.agent, "wider", "5000"), v1alpha1.AcceptedCondition)
		Expect(c.Status).To(BeEquivalentTo("False"), c.Message)
		Expect(c.Reason).To(Equal(authority.Containment.Condition()))
		c = condition(hand(s.night, "not-its-own", "100"), v1alpha1.AcceptedCondition)
		Expect(c.Status).To(BeEquivalentTo("False"), c.Message)
		Expect(s.events(timeline.DelegationRejected)).To(HaveLen(2))

		By("and what was refused lets nobody pass when it enforces")
		c = condition(hand(s.agent, "narrower", "100"), v1alpha1.AcceptedCondition)
		Expect(c.Status).To(BeEquivalentTo("True"), c.Message)
		s.enforce()
		a := s.reaches(s.proposeAs(s.night, refund(unique("txn"), 101)), v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal(string(decision.AuthorityConstraint)))
		s.reaches(s.proposeAs(s.night, refund(unique("txn"), 100)), v1alpha1.ActionAdmitted)
	})
})
