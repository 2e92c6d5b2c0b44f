package protocol

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/flow"
)

// giveUp reports, as the process of a claim, that it will not execute.
func (s *scene) giveUp(a *v1alpha1.Action, c *v1alpha1.Claim, result v1alpha1.OutcomeResult) *v1alpha1.Outcome {
	GinkgoHelper()
	o := s.outcome(a, result)
	o.Spec.ClaimID = c.Spec.ClaimID
	o.Name = flow.LockName(string(a.UID), c.Spec.ClaimID, s.agent.Name)
	Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	return o
}

var _ = Describe("a claim whose process gave up before it was admitted", Serial, func() {
	DescribeTable("is passed over, and the next one is admitted with the approvals",
		func(result v1alpha1.OutcomeResult) {
			s := newScene()
			payment := unique("txn")
			key := "refund:" + payment
			a, yes := s.approved(payment)
			expectAccepted(yes)
			withoutOperator()
			gone := s.claim(s.agent, a)
			report := s.giveUp(a, gone, result)

			operator = startOperator(controllers.Options{})
			expectRefused(gone, v1alpha1.ReasonWithdrawn)
			a = s.get(a)
			Expect(a.Status.State).To(Equal(v1alpha1.ActionClaimable), a.Status.Message)
			Expect(a.Status.Execution).To(BeNil())
			Expect(a.Status.Approval.Counted).To(BeEquivalentTo(1))
			s.noEffect(key)
			Expect(s.receipts()).To(BeEmpty())

			next := again(s.claimFor(s.agent, a), "2")
			Expect(env.Client(s.agent).Create(ctx, next)).To(Succeed())
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			expectAccepted(next)
			Expect(a.Status.Execution.ClaimRef.UID).To(Equal(next.UID))
			Expect(a.Status.Execution.ClaimID).To(Equal(next.Spec.ClaimID))
			Expect(a.Status.Execution.Approvals).To(HaveLen(1))
			Expect(a.Status.Execution.Approvals[0].UID).To(Equal(yes.UID))
			expectRefused(report, v1alpha1.ReasonNotAdmitted)
			Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectExecuting))
			Expect(s.effect(key).Status.Attempt).To(Equal(int64(1)))

			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			a = s.reaches(a, v1alpha1.ActionCommitted)
			d := s.receiptOf(a)
			Expect(d.ClaimID).To(Equal(next.Spec.ClaimID))
			Expect(d.Approvals).To(HaveLen(1))
			s.chainHolds()
		},
		Entry("by saying that it will not execute", v1alpha1.OutcomeNotExecuted),
		Entry("by saying that it did, which it was never allowed to", v1alpha1.OutcomeCommitted),
	)

	It("is passed over for a younger one that is there already", func() {
		s := newScene()
		a, _ := s.approved(unique("txn"))
		withoutOperator()
		gone := s.claim(s.agent, a)
		next := again(s.claimFor(s.agent, s.get(a)), "2")
		Expect(env.Client(s.agent).Create(ctx, next)).To(Succeed())
		s.giveUp(a, gone, v1alpha1.OutcomeNotExecuted)
		operator = startOperator(controllers.Options{})
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		Expect(a.Status.Execution.ClaimRef.UID).To(Equal(next.UID))
		Expect(verdict(gone).Reason).To(BeElementOf(v1alpha1.ReasonWithdrawn, v1alpha1.ReasonAnotherWasFirst))
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		s.reaches(a, v1alpha1.ActionFailed)
		s.chainHolds()
	})
})
