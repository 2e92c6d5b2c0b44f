package operator

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("two operators that take turns", func() {
	It("are both ready, and when the leader is asked to end the other takes over", func(ctx SpecContext) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.SystemNamespace, Name: "operator.ctrlrun.dev"}}
		holder := func() string {
			o := &coordinationv1.Lease{}
			if err := env.Admin().Get(ctx, kube.ObjectKeyFromObject(lease), o); err != nil {
				Expect(kube.IgnoreNotFound(err)).To(Succeed())
				return ""
			}
			if o.Spec.HolderIdentity == nil {
				return ""
			}
			return *o.Spec.HolderIdentity
		}
		leader := start(ctx)
		Eventually(ctx, holder).ShouldNot(BeEmpty())
		led := holder()
		follower := start(ctx)
		Expect(holder()).To(Equal(led), "the second one waits for its turn")
		for _, p := range []*testenv.OperatorProcess{leader, follower} {
			for _, url := range []string{healthz(p), p.Ready, p.Metrics} {
				Expect(answer(ctx, url)).To(Equal(200), url)
			}
		}

		s := newScene(ctx)
		running := s.admitted(ctx, refund(payment(1), 100))

		By("ending the leader, as a rollout does")
		list := &coordinationv1.LeaseList{}
		Expect(env.Admin().List(ctx, list, kube.InNamespace(lease.Namespace))).To(Succeed())
		watch, err := env.Admin().Watch(ctx, list, kube.InNamespace(lease.Namespace), &kube.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watch.Stop)
		Expect(leader.Stop()).To(Succeed())
		code, err := leader.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(0))
		Eventually(ctx, func(g Gomega) string {
			event := <-watch.ResultChan()
			o, ok := event.Object.(*coordinationv1.Lease)
			g.Expect(ok).To(BeTrue(), "%v", event.Object)
			g.Expect(o.Name).To(Equal(lease.Name))
			return *o.Spec.HolderIdentity
		}).Should(BeEmpty(), "the lease is given back; nobody waits for it to run out")

		By("reporting to the other, and proposing to it")
		Expect(running.Report(ctx, nil, nil)).To(Succeed())
		s.reaches(ctx, running, v1alpha1.ActionCommitted)
		next := s.admitted(ctx, refund(payment(2), 100))
		Expect(holder()).NotTo(BeElementOf(led, ""))
		Expect(next.Report(ctx, nil, nil)).To(Succeed())
		s.reaches(ctx, next, v1alpha1.ActionCommitted)
		s.chainHolds(ctx, 2)
		alive(follower)
		Expect(follower.Stop()).To(Succeed())
		code, err = follower.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(0))
	}, SpecTimeout(3*time.Minute))
})
