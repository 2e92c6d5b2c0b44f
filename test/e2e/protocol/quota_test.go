package protocol

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
)

var _ = Describe("a ResourceQuota that leaves no room for an Effect", func() {
	It("holds the Action and says so, and is over when there is room", func() {
		s := newScene()
		s.committed(unique("txn")) // the chain is open; what the quota refuses is the reservation
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "records"}}
		none := corev1.ResourceList{"count/effects.ctrlrun.dev": resource.MustParse("1")}
		quota.Spec.Hard = none
		Expect(env.Admin().Create(ctx, quota)).To(Succeed())
		// In a cluster the quota controller counts; here it is done by hand.
		quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
		Expect(env.Admin().Status().Update(ctx, quota)).To(Succeed())

		var a *v1alpha1.Action
		Eventually(func(g Gomega) { // the apiserver takes the quota up by a watch
			a = s.propose(refund(unique("txn"), 100).unclaimed())
			a = s.reaches(a, v1alpha1.ActionClaimable)
			s.claim(s.agent, a)
			g.Eventually(func() string { return s.get(a).Status.Reason }).WithTimeout(3 * time.Second).Should(Equal("quota"))
		}).Should(Succeed())
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionClaimable))
		Expect(s.get(a).Status.Message).To(ContainSubstring("count/effects.ctrlrun.dev"))

		Expect(env.Admin().Delete(ctx, quota)).To(Succeed())
		Eventually(func() v1alpha1.ActionState { return s.get(a).Status.State }).WithTimeout(30 * time.Second).Should(Equal(v1alpha1.ActionAdmitted))
	})
})
