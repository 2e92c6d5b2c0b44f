package proposals

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
)

var _ = Describe("a change that is proposed", func() {
	It("is written when somebody else approved it, and never before", func() {
		s := newScene(asksOne)
		o := s.proposes("refunds", of("refunds", aPolicy(2000)))
		Expect(o.Spec.Proposer).To(Equal(s.flux.Name), "the apiserver says who wrote it")
		a := s.asked("refunds")
		Expect(a.Spec.ActionType).To(Equal("ctrlrun.policy.change"))
		Expect(a.Spec.Principal.Agent).To(Equal("system:serviceaccount:ctrlrun-system:ctrlrun-operator"))
		Expect(*a.Spec.Principal.User).To(Equal(s.flux.Name))
		Expect(*a.Spec.Resource).To(Equal("policy:ActionPolicy/refunds"))
		c := change(a)
		Expect(c.Operation()).To(Equal("create"))
		Expect(c.To).To(HavePrefix("sha256:"))
		Expect(s.spec("ActionPolicy", "refunds")).To(BeNil())

		By("not counting who proposed it, whatever right to approve that one has")
		Expect(verdict(s.approves(s.flux, a)).Reason).To(Equal(v1alpha1.ReasonSelfApproval))
		Expect(s.spec("ActionPolicy", "refunds")).To(BeNil())

		Expect(verdict(s.approves(s.alice, a)).Reason).To(Equal(v1alpha1.ReasonAccepted))
		a = s.ends(a, v1alpha1.ActionCommitted)
		Expect(a.Status.Execution.Approvals).To(HaveLen(1))
		Expect(a.Status.Execution.Approvals[0].Approver).To(Equal("alice"))
		Expect(s.spec("ActionPolicy", "refunds")).To(Equal(aPolicy(2000)))
		s.inForce("refunds")
		o = s.reaches("refunds", v1alpha1.ProposalApplied)
		Expect(o.Status.ReceiptRef.Name).To(Equal(a.Status.ReceiptRef.Name))
		Expect(o.Status.AppliedHash).To(Equal(c.To))

		By("changing nothing and asking nobody when the same is applied again")
		s.applies(s.flux, "refunds", of("refunds", aPolicy(2000)))
		Expect(s.proposal("refunds").Generation).To(Equal(o.Generation))

		By("asking anew about the next revision")
		s.proposes("refunds", of("refunds", aPolicy(5000)))
		b := s.asked("refunds")
		Expect(b.UID).NotTo(Equal(a.UID))
		Expect(change(b).From).To(Equal(c.To))
		Expect(change(b).Operation()).To(Equal("update"))
		Expect(s.spec("ActionPolicy", "refunds")).To(Equal(aPolicy(2000)))
		s.approves(s.alice, b)
		s.ends(b, v1alpha1.ActionCommitted)
		Expect(s.spec("ActionPolicy", "refunds")).To(Equal(aPolicy(5000)))
		s.reaches("refunds", v1alpha1.ProposalApplied)
	})
})
