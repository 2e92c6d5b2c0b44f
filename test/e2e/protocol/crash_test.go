package protocol

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// startDoomed starts an operator that ends at one point of the protocol, once, as a killed process does. The channel is closed then.
func startDoomed(point string) (died <-chan struct{}) {
	GinkgoHelper()
	return env.StartDoomed(GinkgoT(), point, func(cfg *rest.Config, crash func(string)) (testenv.Runnable, error) {
		cfg.QPS, cfg.Burst = 500, 1000
		return controllers.New(cfg, controllers.Options{
			Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock, Crash: crash,
		})
	})
}

// withoutOperator stops the operator of the suite for one spec.
func withoutOperator() {
	GinkgoHelper()
	Expect(operator.Stop()).To(Succeed())
	DeferCleanup(func() {
		_ = operator.Stop()
		operator = startOperator(controllers.Options{})
	})
}

var _ = Describe("an operator that dies at any point", Serial, func() {
	BeforeEach(withoutOperator)

	DescribeTable("leaves an allowed action that the next operator takes to its one end",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			payment := unique("txn")
			a := s.propose(refund(payment, 100))
			early := map[string]bool{"before reserve": true, "after reserve": true, "before admit": true, "after admit": true}[point]
			if !early {
				a = s.reaches(a, v1alpha1.ActionAdmitted)
				s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			}
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			if early {
				a = s.reaches(a, v1alpha1.ActionAdmitted)
				s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			}
			s.reaches(a, v1alpha1.ActionCommitted)
			e := s.effect("refund:" + payment)
			Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
			Expect(e.Status.Attempt).To(Equal(int64(1)))
			Expect(s.receipts()).To(HaveLen(1))
			s.chainHolds()
		},
		Entry(nil, "before reserve"), Entry(nil, "after reserve"),
		Entry(nil, "before admit"), Entry(nil, "after admit"),
		Entry(nil, "before settle"), Entry(nil, "after settle"),
		Entry(nil, "before receipt"), Entry(nil, "after receipt"),
		Entry(nil, "before finish"), Entry(nil, "after finish"),
	)

	DescribeTable("leaves an action that asks people, and their answers, to the next operator",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			payment := unique("txn")
			a := s.propose(refund(payment, 2000))
			// What the first operator does not live to be asked for is said to the next.
			_, write, _ := strings.Cut(point, " ")
			answered, claimed := write != "pin", write != "pin" && write != "claimable"
			answer := func() *v1alpha1.Approval {
				a = s.reaches(a, v1alpha1.ActionAwaitingApproval)
				return s.approve(s.approver, a)
			}
			claim := func() *v1alpha1.Claim {
				a = s.reaches(a, v1alpha1.ActionClaimable)
				return s.claim(s.agent, a)
			}
			var yes *v1alpha1.Approval
			var c *v1alpha1.Claim
			if answered {
				yes = answer()
			}
			if claimed {
				c = claim()
			}
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			if !answered {
				yes = answer()
			}
			if !claimed {
				c = claim()
			}
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			expectAccepted(yes)
			expectAccepted(c)
			Expect(a.Status.Execution.ClaimID).To(Equal(c.Spec.ClaimID))
			Expect(a.Status.Execution.Approvals).To(HaveLen(1))
			Expect(a.Status.Execution.Approvals[0].UID).To(Equal(yes.UID))
			Expect(a.Status.Effect.Attempt).To(Equal(int64(1)))
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
			Expect(s.receipts()).To(HaveLen(1))
			s.chainHolds()
		},
		Entry(nil, "before pin"), Entry(nil, "after pin"),
		Entry(nil, "before claimable"), Entry(nil, "after claimable"),
		Entry(nil, "before reserve"), Entry(nil, "after reserve"),
		Entry(nil, "before admit"), Entry(nil, "after admit"),
	)

	DescribeTable("leaves the votes that were counted to the next operator, which asks the others",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			a := s.reaches(s.propose(act("grant.admin", `{"to":"`+unique("user")+`"}`)), v1alpha1.ActionAwaitingApproval)
			first := s.approve(s.approver, a)
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			Eventually(func() string { return s.get(a).Status.Approval.Votes }).Should(Equal("1/2"))
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
			second := s.approve(s.second, a)
			a = s.reaches(a, v1alpha1.ActionClaimable)
			s.claim(s.agent, a)
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			var spent []types.UID
			for _, x := range a.Status.Execution.Approvals {
				spent = append(spent, x.UID)
			}
			Expect(spent).To(ConsistOf(first.UID, second.UID))
		},
		Entry(nil, "before wait"), Entry(nil, "after wait"),
	)

	DescribeTable("leaves an action that waits for room to the next operator, which admits it when there is",
		func(point string) {
			s := newSceneWithoutWaiting()
			makeRoom := s.noRoom()
			died := startDoomed(point)
			payment := unique("txn")
			a := s.propose(refund(payment, 100))
			Eventually(died).Should(BeClosed())
			Expect(s.get(a).Status.Reason).To(Equal(map[string]string{"before hold": "", "after hold": string(decision.Quota)}[point]))

			operator = startOperator(controllers.Options{})
			Eventually(func() string { return s.get(a).Status.Reason }).Should(Equal(string(decision.Quota)))
			s.noEffect("refund:" + payment)
			makeRoom()
			var got *v1alpha1.Action
			Eventually(func() v1alpha1.ActionState {
				got = s.get(a)
				if got.Status.State == v1alpha1.ActionClaimable { // it waited for so long that its process might be gone
					Expect(client.IgnoreAlreadyExists(env.Client(s.agent).Create(ctx, s.claimFor(s.agent, got)))).To(Succeed())
				}
				return got.Status.State
			}).WithTimeout(time.Minute).Should(Equal(v1alpha1.ActionAdmitted))
			Expect(got.Status.Effect.Attempt).To(Equal(int64(1)))
			Expect(got.Status.Reason).To(BeEmpty())
			s.report(s.agent, got, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
			Expect(s.receipts()).To(HaveLen(1))
			s.chainHolds()
		},
		Entry(nil, "before hold"), Entry(nil, "after hold"),
	)

	DescribeTable("leaves the next attempt to the next operator, which makes it once",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			payment := unique("txn")
			first := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
			s.report(s.agent, first, v1alpha1.OutcomeNotExecuted)
			s.reaches(first, v1alpha1.ActionFailed)
			second := s.propose(refund(payment, 100))
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			second = s.reaches(second, v1alpha1.ActionAdmitted)
			Expect(second.Status.Effect.Attempt).To(Equal(int64(2)))
			Expect(second.Status.Execution.Token).NotTo(Equal(first.Status.Execution.Token))
			s.report(s.agent, second, v1alpha1.OutcomeCommitted)
			s.reaches(second, v1alpha1.ActionCommitted)
			e := s.effect("refund:" + payment)
			Expect(e.Status.Attempt).To(Equal(int64(2)))
			Expect(e.Status.StartedAttempts).To(Equal(int64(2)))
			Expect(e.Status.History).To(HaveLen(2))
			Expect(s.receipts()).To(HaveLen(2))
			s.chainHolds()
		},
		Entry(nil, "before renew"), Entry(nil, "after renew"),
	)

	DescribeTable("leaves a reservation that nobody will use to the next operator, which frees the key once",
		func(point string) {
			s := newSceneWithoutWaiting()
			reserved := startDoomed("before admit")
			payment := unique("txn")
			orphaned := s.propose(refund(payment, 100))
			Eventually(reserved).Should(BeClosed())
			Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectExecuting))
			s.writePolicy("payments", `{"stripe.refund": {"effect": "refund:{payment_id}", "resource": "payment:{payment_id}", "decision": "deny"}}`)
			died := startDoomed(point)
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			orphaned = s.reaches(orphaned, v1alpha1.ActionDenied, string(decision.PlainDecision))
			Expect(orphaned.Status.Execution).To(BeNil())
			e := s.effectReaches("refund:"+payment, v1alpha1.EffectFailed)
			Expect(e.Status.StartedAttempts).To(BeZero())
			Expect(e.Status.History).To(HaveLen(1))
			Expect(e.Status.History[0].Result).To(Equal(effect.NeverBegan))

			By("so that it can be taken again, by another attempt with another token")
			s.policy("payments", payments)
			a := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
			Expect(a.Status.Effect.Attempt).To(Equal(int64(2)))
			Expect(a.Status.Execution.Token).NotTo(Equal(e.Status.Token))
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
			Expect(s.receipts()).To(HaveLen(2))
			s.chainHolds()
		},
		Entry(nil, "before release"), Entry(nil, "after release"),
	)

	DescribeTable("leaves an action that ended unadmitted its one receipt",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			a := s.propose(act("no.such.action", `{}`))
			Eventually(died).Should(BeClosed())
			operator = startOperator(controllers.Options{})
			s.reaches(a, v1alpha1.ActionDenied, "unknown_action")
			Expect(s.receipts()).To(HaveLen(1))
			s.chainHolds()
		},
		Entry(nil, "before end"), Entry(nil, "after end"),
		Entry(nil, "before receipt"), Entry(nil, "after receipt"),
		Entry(nil, "before finish"), Entry(nil, "after finish"),
	)

	DescribeTable("leaves a lapsed lease to the next operator, which declares it once",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			payment := unique("txn")
			a := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
			clock.Advance(GinkgoT(), time.Duration(a.Spec.LeaseDurationSeconds)*time.Second+11*time.Second)
			Eventually(died).Should(BeClosed())
			operator = startOperator(controllers.Options{})
			s.reaches(a, v1alpha1.ActionAmbiguous, "lease_lapsed")
			Expect(s.effect("refund:" + payment).Status.Cause).To(Equal(v1alpha1.CauseLeaseLapsed))
			Expect(s.receipts()).To(HaveLen(1))
			s.chainHolds()
		},
		Entry(nil, "before lapse"), Entry(nil, "after lapse"), Entry(nil, "after settle"),
	)

	DescribeTable("leaves a report that came too late to the next operator, which shows it to whoever resolves",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			payment := unique("txn")
			a := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
			own := s.outcome(a, v1alpha1.OutcomeCommitted)
			clock.Advance(GinkgoT(), lapsed)
			s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))
			o := late(own)
			Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			expectRefused(o, v1alpha1.ReasonLateReport)
			Eventually(func() *v1alpha1.LateOutcome { return s.effect("refund:" + payment).Status.LateOutcomeRef }).Should(Equal(&v1alpha1.LateOutcome{Name: o.Name, Result: v1alpha1.OutcomeCommitted}))
			Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAmbiguous))
			Expect(s.receipts()).To(HaveLen(1))
			s.chainHolds()
		},
		Entry(nil, "before late"), Entry(nil, "after late"),
	)

	DescribeTable("leaves a record that lost its status to the next operator, which puts the loss on record once",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			payment := unique("txn")
			key := "refund:" + payment
			s.committed(payment)
			withoutEffectRules()
			s.strip(key)
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			e := s.effectReaches(key, v1alpha1.EffectAmbiguous)
			Expect(e.Status.Cause).To(Equal(v1alpha1.CauseStatusMissing))
			Eventually(func() []receipt.Document { return s.receiptsOfKind(receipt.KindStatusMissing, key) }).Should(HaveLen(1))
			Expect(s.receiptsOfKind(receipt.KindStatusMissing, key)[0].Ordinal).To(Equal(int64(1)))
			s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, string(decision.AmbiguousEffect))
			expectAccepted(s.resolve(s.oncall, key, v1alpha1.ResolutionCommitted))
			Expect(s.receiptsOfKind(receipt.KindStatusMissing, key)).To(HaveLen(1))
			s.chainHolds()
		},
		Entry(nil, "before lost"), Entry(nil, "after lost"),
	)

	DescribeTable("leaves a resolution to the next operator, which receipts it once",
		func(point string) {
			s := newSceneWithoutWaiting()
			died := startDoomed(point)
			payment := unique("txn")
			a := s.ambiguous(payment)
			r := s.resolve(s.oncall, "refund:"+payment, v1alpha1.ResolutionNotExecuted)
			Eventually(died).Should(BeClosed())
			operator = startOperator(controllers.Options{})
			expectAccepted(r)
			Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectFailed))
			Expect(s.receipts()).To(HaveLen(2))
			s.chainHolds()
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAmbiguous))
		},
		Entry(nil, "before resolve"), Entry(nil, "after resolve"), Entry(nil, "before resolved"), Entry(nil, "after resolved"),
	)
})

// noRoom lets a ResourceQuota refuse every Effect of the namespace, and gives the function that takes it away. In a cluster
// the quota controller would count; here it is done by hand.
func (s *scene) noRoom() (makeRoom func()) {
	GinkgoHelper()
	none := corev1.ResourceList{"count/effects.ctrlrun.dev": resource.MustParse("0"), "count/configmaps": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "records"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	Expect(env.Admin().Create(ctx, quota)).To(Succeed())
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	Expect(env.Admin().Status().Update(ctx, quota)).To(Succeed())
	// The apiserver takes it up by a watch. What it says about a ConfigMap it says about an Effect.
	Eventually(func() bool {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "probe"}}
		return apierrors.IsForbidden(env.Admin().Create(ctx, o, client.DryRunAll))
	}).Should(BeTrue())
	return func() { Expect(env.Admin().Delete(ctx, quota)).To(Succeed()) }
}

// newSceneWithoutWaiting is a scene whose policy nobody has judged yet.
func newSceneWithoutWaiting() *scene {
	GinkgoHelper()
	return setScene(payments, nil)
}

var _ = Describe("two operators at once", Serial, func() {
	It("take many actions each to one end", func() {
		second := startOperator(controllers.Options{})
		DeferCleanup(second.Stop)
		s := newScene()
		var all []*v1alpha1.Action
		for range 10 {
			payment := unique("txn")
			for range 3 {
				all = append(all, s.propose(refund(payment, 100)))
			}
		}
		admitted := 0
		for _, a := range all {
			Eventually(func(g Gomega) {
				got := s.get(a)
				g.Expect(got.Status.State).To(BeElementOf(v1alpha1.ActionAdmitted, v1alpha1.ActionBlocked), got.Status.Message)
			}).Should(Succeed())
			if got := s.get(a); got.Status.State == v1alpha1.ActionAdmitted {
				admitted++
				s.report(s.agent, got, v1alpha1.OutcomeCommitted)
			}
		}
		Expect(admitted).To(Equal(10))
		for _, a := range all {
			Eventually(func() *v1alpha1.ReceiptReference { return s.get(a).Status.ReceiptRef }).ShouldNot(BeNil())
		}
		Expect(s.receipts()).To(HaveLen(30))
		s.chainHolds()
	})

	DescribeTable("stay safe when one of them is suspended, and wakes after a lapse, a resolution and a retry",
		func(point string) {
			withoutOperator()
			p := testenv.PauseAt(GinkgoT(), point)
			sleepy := startOperator(controllers.Options{Crash: p.At})
			DeferCleanup(func() { _ = sleepy.Stop() })
			s := newScene()
			payment := unique("txn")
			key := "refund:" + payment
			first := s.propose(refund(payment, 100))
			if point == "before settle" {
				first = s.reaches(first, v1alpha1.ActionAdmitted)
				s.report(s.agent, first, v1alpha1.OutcomeUnknown)
			}
			Eventually(p.Reached).Should(BeClosed())

			// The other operator goes on alone.
			operator = startOperator(controllers.Options{})
			if point == "before settle" {
				s.reaches(first, v1alpha1.ActionAmbiguous)
			} else {
				first = s.reaches(first, v1alpha1.ActionAdmitted)
				clock.Advance(GinkgoT(), time.Duration(first.Spec.LeaseDurationSeconds)*time.Second+11*time.Second)
				s.reaches(first, v1alpha1.ActionAmbiguous, "lease_lapsed")
			}
			expectAccepted(s.resolve(s.oncall, key, v1alpha1.ResolutionNotExecuted))
			// The clock may be far ahead, so that the second process has to claim.
			second := s.propose(refund(payment, 100).unclaimed())
			second = s.reaches(second, v1alpha1.ActionClaimable)
			s.claim(s.agent, second)
			second = s.reaches(second, v1alpha1.ActionAdmitted)
			Expect(second.Status.Effect.Attempt).To(Equal(int64(2)))

			// The first wakes, and writes what it was about to write long ago.
			p.Resume()
			Consistently(func(g Gomega) {
				e := s.effect(key)
				g.Expect(e.Status.State).To(Equal(v1alpha1.EffectExecuting))
				g.Expect(e.Status.Attempt).To(Equal(int64(2)))
				g.Expect(e.Status.Holder.UID).To(Equal(second.UID))
			}).WithTimeout(time.Second).Should(Succeed())
			s.report(s.agent, second, v1alpha1.OutcomeCommitted)
			s.reaches(second, v1alpha1.ActionCommitted)
			Expect(s.get(first).Status.State).To(Equal(v1alpha1.ActionAmbiguous))
			Expect(s.receipts()).To(HaveLen(3))
			s.chainHolds()
		},
		Entry("suspended before it reserves", "before reserve"),
		Entry("suspended before it admits", "before admit"),
		Entry("suspended before it settles", "before settle"),
	)
})
