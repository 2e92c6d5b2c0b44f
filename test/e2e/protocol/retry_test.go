package protocol

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
)

var _ = Describe("a proposal for an effect", func() {
	It("is admitted, settled by its executor's report, and receipted", func() {
		s := newScene()
		payment := unique("txn")
		p := refund(payment, 100)
		a := s.reaches(s.propose(p), v1alpha1.ActionAdmitted)

		Expect(a.Status.Execution.ClaimID).To(Equal(p.claimID))
		Expect(a.Status.Execution.Mode).To(Equal(v1alpha1.ExecutionModeAgent))
		Expect(a.Status.Decision).To(Equal(v1alpha1.DecisionAllow))
		Expect(a.Status.DecisionReason).To(Equal("rule[0]"))
		Expect(a.Status.Effect.Attempt).To(Equal(int64(1)))
		e := s.effect("refund:" + payment)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectExecuting))
		Expect(e.Status.Holder.UID).To(Equal(a.UID))
		Expect(a.Status.Execution.Token).To(Equal(e.Status.Token))

		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		a = s.reaches(a, v1alpha1.ActionCommitted)
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectCommitted))
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Committed))
		Expect(d.ActionHash).To(Equal(a.Status.ActionHash))
		Expect(d.Reporter).To(Equal(s.agent.Name))
		Expect(d.ClaimID).To(Equal(p.claimID))
		s.chainHolds()
	})

	It("is blocked as a duplicate once the effect is committed", func() {
		s := newScene()
		payment := unique("txn")
		s.committed(payment)
		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, "duplicate")
		s.chainHolds()
	})

	It("is blocked while nobody knows whether the effect happened", func() {
		s := newScene()
		payment := unique("txn")
		s.ambiguous(payment)
		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, "ambiguous")
		s.chainHolds()
	})

	It("is blocked while another is executing, and another agent is too", func() {
		s := newScene()
		payment := unique("txn")
		first := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, "in_progress")
		s.reaches(s.proposeAs(s.rival, refund(payment, 100)), v1alpha1.ActionBlocked, "in_progress")
		Expect(s.get(first).Status.State).To(Equal(v1alpha1.ActionAdmitted))
		s.chainHolds()
	})

	It("is the next attempt, with another token, after a failed one", func() {
		s := newScene()
		payment := unique("txn")
		first := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
		s.report(s.agent, first, v1alpha1.OutcomeNotExecuted)
		s.reaches(first, v1alpha1.ActionFailed)

		second := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
		Expect(second.Status.Effect.Attempt).To(Equal(int64(2)))
		Expect(second.Status.Execution.Token).NotTo(Equal(first.Status.Execution.Token))
		s.report(s.agent, second, v1alpha1.OutcomeCommitted)
		s.reaches(second, v1alpha1.ActionCommitted)

		e := s.effect("refund:" + payment)
		Expect(e.Status.History).To(HaveLen(2))
		Expect(e.Status.History[0].Result).To(Equal("not_executed"))
		Expect(e.Status.StartedAttempts).To(Equal(int64(2)))
		Expect(s.receiptOf(first).Attempt).To(Equal(int64(1)))
		Expect(s.receiptOf(second).Attempt).To(Equal(int64(2)))
		s.chainHolds()
	})

	It("is blocked when the attempts are used up", func() {
		s := newScene()
		id := unique("m")
		for range 2 {
			a := s.reaches(s.propose(act("mail.send", `{"id":"`+id+`"}`)), v1alpha1.ActionAdmitted)
			s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
			s.reaches(a, v1alpha1.ActionFailed)
		}
		s.reaches(s.propose(act("mail.send", `{"id":"`+id+`"}`)), v1alpha1.ActionBlocked, "attempt_ceiling")
		Expect(s.effect("mail:" + id).Status.Attempt).To(Equal(int64(2)))
		s.chainHolds()
	})

	It("has no protection against duplicates without an effect key", func() {
		s := newScene()
		for range 2 {
			a := s.reaches(s.propose(act("note.write", `{"text":"hello"}`)), v1alpha1.ActionAdmitted)
			Expect(a.Status.Effect).To(BeNil())
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
		}
		s.chainHolds()
	})
})
