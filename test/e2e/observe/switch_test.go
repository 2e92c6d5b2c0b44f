package observe

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/timeline"
)

var _ = Describe("Switching", func() {
	It("from observing to enforcing is one line, and what was committed meanwhile blocks duplicates", func() {
		s := observing()
		c := condition(s.theSettings(), v1alpha1.EnforcingCondition)
		Expect(c.Status).To(BeEquivalentTo("False"))
		Expect(c.Message).To(ContainSubstring("nothing is enforced"))
		committed, failed, unknown := unique("txn"), unique("txn"), unique("txn")
		s.ran(refund(committed, denied), v1alpha1.OutcomeCommitted)
		s.ran(refund(failed, allowed), v1alpha1.OutcomeNotExecuted)
		s.ran(refund(unknown, allowed), v1alpha1.OutcomeUnknown)

		By("somebody who may only edit Settings")
		Expect(s.settingsAs(s.editor, `{"mode":"Enforce"}`)).To(Succeed())
		s.settingsInForce()
		Expect(condition(s.theSettings(), v1alpha1.EnforcingCondition).Status).To(BeEquivalentTo("True"))
		for payment, reason := range map[string]decision.Reason{committed: decision.Duplicate, unknown: decision.AmbiguousEffect} {
			a := s.reaches(s.propose(refund(payment, allowed)), v1alpha1.ActionBlocked)
			Expect(a.Status.Reason).To(Equal(string(reason)))
			Expect(a.Status.WouldHave).To(BeNil())
		}
		s.reaches(s.propose(refund(unique("txn"), denied)), v1alpha1.ActionDenied)
		again := s.ends(refund(failed, allowed), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
		Expect(again.Status.Effect.Attempt).To(Equal(int64(2)))
		Expect(s.receiptOf(again).WouldHave).To(BeNil())
		s.chainHolds()
	})

	It("from enforcing to observing takes the verb govern, also by creating Settings", func() {
		s := setScene()
		refused := func(err error) {
			GinkgoHelper()
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err.Error()).To(ContainSubstring("govern"))
		}
		refused(s.settingsAs(s.editor, `{"mode":"Observe"}`))
		Expect(s.settingsAs(s.editor, `{"mode":"Enforce"}`)).To(Succeed())
		refused(s.settingsAs(s.editor, `{"mode":"Observe"}`))
		s.settingsInForce()
		s.reaches(s.propose(refund(unique("txn"), denied)), v1alpha1.ActionDenied)

		s.observe()
		Expect(s.settingsAs(s.editor, `{"approvalTTLSeconds":600}`)).To(Succeed(), "the mode stays as it is")
		s.ran(refund(unique("txn"), denied), v1alpha1.OutcomeCommitted)
	})

	It("leaves an Action as it was admitted: the mark stays, and so does its absence", func() {
		s := observing()
		marked := s.reaches(s.propose(refund(unique("txn"), denied)), v1alpha1.ActionAdmitted)
		s.enforce()
		plain := s.reaches(s.propose(refund(unique("txn"), allowed)), v1alpha1.ActionAdmitted)
		s.observe()
		s.report(marked, v1alpha1.OutcomeCommitted)
		s.report(plain, v1alpha1.OutcomeCommitted)
		marked = s.reaches(marked, v1alpha1.ActionObserved)
		Expect(marked.Status.Outcome).To(Equal(v1alpha1.ActionCommitted))
		plain = s.reaches(plain, v1alpha1.ActionCommitted)
		Expect(plain.Status.WouldHave).To(BeNil())
		s.chainHolds()
	})

	DescribeTable("while people are asked lets it wait for its process only; what they said is heard, and not spent",
		func(said v1alpha1.ApprovalDecision, blocked decision.Reason) {
			s := enforcing()
			a := s.reaches(s.propose(refund(unique("txn"), asked)), v1alpha1.ActionAwaitingApproval)
			s.observe()
			a = s.reaches(a, v1alpha1.ActionClaimable)
			if said != "" {
				s.answer(a, said)
			}
			s.claim(a)
			a = s.observes(a, would{decision.Approve, "rule[1]", blocked, "", 1}, v1alpha1.OutcomeCommitted)
			Expect(a.Status.Approval).NotTo(BeNil())
			Expect(told(a)).NotTo(ContainElement(timeline.ApprovalConsumed))
			s.chainHolds()
		},
		Entry("nothing", v1alpha1.ApprovalDecision(""), decision.ApprovalRequired),
		Entry("yes", v1alpha1.Approved, decision.Reason("")),
		Entry("no", v1alpha1.Denied, decision.ApprovalDenied),
	)

	It("back while it waits for its process asks people, as before", func() {
		s := enforcing()
		waited := s.reaches(s.propose(refund(unique("txn"), asked)), v1alpha1.ActionAwaitingApproval)
		s.observe()
		waited = s.reaches(waited, v1alpha1.ActionClaimable)
		never := s.reaches(s.propose(refund(unique("txn"), asked).unclaimed()), v1alpha1.ActionClaimable)
		lost := s.reaches(s.propose(refund(unique("txn"), denied).unclaimed()), v1alpha1.ActionClaimable)

		s.enforce()
		for _, a := range []*v1alpha1.Action{waited, never} {
			a = s.reaches(a, v1alpha1.ActionAwaitingApproval)
			s.answer(a, v1alpha1.Approved)
			s.claim(a)
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			Expect(a.Status.WouldHave).To(BeNil())
			Expect(a.Status.Execution.Approvals).To(HaveLen(1))
			s.report(a, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
		}
		lost = s.reaches(lost, v1alpha1.ActionDenied)
		Expect(lost.Status.WouldHave).To(BeNil())
		s.chainHolds()
	})
})
