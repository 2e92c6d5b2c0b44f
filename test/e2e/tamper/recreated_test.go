package tamper

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
)

// recreate deletes the namespace with everything in it and makes one of the same name, with the same policy.
func (s *scene) recreate() {
	GinkgoHelper()
	Expect(env.RecreateNamespace(ctx, s.ns, func() {
		for _, list := range []kube.ObjectList{
			&v1alpha1.ActionList{}, &v1alpha1.OutcomeList{}, &v1alpha1.ApprovalList{}, &v1alpha1.EffectList{}, &v1alpha1.ReceiptList{}, &v1alpha1.ActionPolicyList{},
		} {
			Expect(env.Admin().List(ctx, list, kube.InNamespace(s.ns))).To(Succeed())
			Expect(meta.EachListItem(list, func(o runtime.Object) error {
				s.erase(o.(kube.Object))
				return nil
			})).To(Succeed())
		}
	})).To(Succeed())
	Expect(env.Policy(ctx, s.ns, payments)).To(Succeed())
}

var _ = Describe("a namespace that is deleted and made again with the same name", func() {
	It("holds, for the operator that was there and for the next, until a person accepts that its chain begins anew", func() {
		s := newScene()
		id := payment()
		s.committed(id)
		was, before := s.noted(), s.uid()
		s.recreate()
		Expect(s.uid()).NotTo(Equal(before))

		retry := s.proposed(id, 100)
		s.holds(retry, "it was deleted and created again, or restored")
		Expect(s.receipts()).To(BeEmpty())
		replaced(func() {})
		later := s.proposed(payment(), 100)
		s.holds(later, "it was deleted and created again, or restored")

		By("which is neither the chain of before nor the namespace of before")
		r := s.accepts(governor, was)
		Expect(r.code).To(Equal(1), "%s", r)
		Expect(r.stderr).To(ContainSubstring("There is no receipt " + was.String()))
		r = s.accepts(governor, receipt.Start(), "--namespace-uid", before)
		Expect(r.code).To(Equal(1), "%s", r)
		Expect(r.stderr).To(ContainSubstring("It names namespace uid " + before))
		r = s.accepts(clerk, receipt.Start())
		Expect(r.code).To(Equal(9), "%s", r)
		Expect(s.receipts()).To(BeEmpty())

		r = s.accepts(governor, receipt.Start())
		Expect(r.code).To(Equal(0), "%s", r)
		s.continues(receipt.Start(), 1)
		s.reaches(retry, v1alpha1.ActionClaimable)
		s.denied()
		s.intact()
		inCluster, _ := s.verifies()
		Expect(inCluster.code).To(Equal(0), "%s", inCluster)

		for s.head().Seq < was.Seq {
			s.denied()
		}
		By("while whoever kept the head of before knows that it is not the same")
		inCluster, offline := s.verifies("--head", was.String())
		for _, r := range []result{inCluster, offline} {
			Expect(r.code).To(Equal(1), "%s", r)
			Expect(r.breaks()).To(Equal([]string{fmt.Sprint("head_mismatch ", was.Seq)}))
		}
	})
})
