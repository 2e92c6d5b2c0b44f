package operator

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

var _ = Describe("an apiserver that is away for a while", func() {
	It("is no gap of admission: what waits for people goes on waiting, and their answers count", func(ctx SpecContext) {
		p := start(ctx, alone)
		s := newScene(ctx)
		since, err := env.AdmissionSince(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(since).NotTo(BeZero())
		running := s.admitted(ctx, refund(payment(1), 100))
		call := s.propose(ctx, refund(payment(2), 2000))
		asked := s.reaches(ctx, call, v1alpha1.ActionAwaitingApproval)

		resume, err := env.SuspendAPIServer()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(resume)
		// Long enough for the operator to notice: it cannot prove any more what it knows.
		Eventually(ctx, func() (int, error) { return answer(ctx, p.Ready) }).WithPolling(500 * time.Millisecond).Should(Equal(500))
		Expect(answer(ctx, healthz(p))).To(Equal(200), "restarting would not help")
		Expect(resume()).To(Succeed())
		Expect(p.WaitReady(ctx)).To(Succeed())
		alive(p)

		By("going on with what was admitted before")
		Expect(running.Report(ctx, nil, nil)).To(Succeed())
		s.reaches(ctx, running, v1alpha1.ActionCommitted)

		By("and with what people were asked before")
		Expect(s.reaches(ctx, call, v1alpha1.ActionAwaitingApproval).Status.Approval.ExpirationTime).To(Equal(asked.Status.Approval.ExpirationTime))
		yes := &v1alpha1.Approval{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: asked.Name + "." + action.Speaker(s.approver.Name)},
			Spec: v1alpha1.ApprovalSpec{
				ActionRef: v1alpha1.ObjectReference{Name: asked.Name, UID: asked.UID}, ActionType: asked.Spec.ActionType,
				ActionHash: asked.Status.ActionHash, EffectKey: &asked.Status.Effect.Key, Decision: v1alpha1.Approved,
			},
		}
		Expect(env.Client(s.approver).Create(ctx, yes)).To(Succeed())
		accepted(ctx, yes, func(o *v1alpha1.Approval) []metav1.Condition { return o.Status.Conditions })
		Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
		Expect(call.Report(ctx, nil, nil)).To(Succeed())
		s.reaches(ctx, call, v1alpha1.ActionCommitted)
		Expect(env.AdmissionSince(ctx)).To(Equal(since))
		s.chainHolds(ctx, 2)
	}, SpecTimeout(3*time.Minute))
})
