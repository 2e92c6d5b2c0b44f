package observe

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

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

var _ = Describe("An operator that dies while it observes", Serial, func() {
	BeforeEach(func() {
		Expect(operator.Stop()).To(Succeed())
		DeferCleanup(func() {
			_ = operator.Stop()
			operator = startOperator(controllers.Options{})
		})
	})

	// begun is a scene in observe mode that no operator has seen.
	begun := func() *scene {
		GinkgoHelper()
		s := setScene()
		Expect(s.settingsAs(s.owner, `{"mode":"Observe"}`)).To(Succeed())
		return s
	}

	DescribeTable("leaves a denied action that the next operator takes to its one end",
		func(point string) {
			s := begun()
			died := startDoomed(point)
			name := unique("txn")
			a := s.propose(refund(name, denied))
			early := map[string]bool{"before reserve": true, "after reserve": true, "before admit": true, "after admit": true}[point]
			report := func() {
				a = s.reaches(a, v1alpha1.ActionAdmitted)
				s.report(a, v1alpha1.OutcomeCommitted)
			}
			if !early {
				report()
			}
			Eventually(died).Should(BeClosed())
			operator = startOperator(controllers.Options{})
			if early {
				report()
			}
			a = s.reaches(a, v1alpha1.ActionObserved)
			Expect(a.Status.Outcome).To(Equal(v1alpha1.ActionCommitted))
			Expect(a.Status.WouldHave.BlockedReason).To(Equal(string(decision.PolicyDenied)))
			e := s.effect("refund:" + name)
			Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
			Expect(e.Status.Attempt).To(Equal(int64(1)))
			Expect(s.receiptOf(a).WouldHave).To(HaveValue(Equal(receipt.WouldHave{Decision: decision.Deny, Reason: "rule[2]", BlockedReason: "policy_denied"})))
			s.chainHolds()
		},
		Entry(nil, "before reserve"), Entry(nil, "after reserve"),
		Entry(nil, "before admit"), Entry(nil, "after admit"),
		Entry(nil, "before settle"), Entry(nil, "after settle"),
		Entry(nil, "before receipt"), Entry(nil, "after receipt"),
		Entry(nil, "before finish"), Entry(nil, "after finish"),
	)

	DescribeTable("leaves a duplicate that the next operator lets run, without touching the effect",
		func(point string) {
			s := begun()
			name := unique("txn")
			first := startOperator(controllers.Options{})
			s.ran(refund(name, allowed), v1alpha1.OutcomeCommitted)
			Expect(first.Stop()).To(Succeed())
			version := s.effect("refund:" + name).ResourceVersion

			died := startDoomed(point)
			a := s.propose(refund(name, allowed))
			Eventually(died).Should(BeClosed())
			operator = startOperator(controllers.Options{})
			s.observes(a, would{decision.Allow, "rule[0]", decision.Duplicate, decision.Duplicate, 0}, v1alpha1.OutcomeCommitted)
			Expect(s.effect("refund:" + name).ResourceVersion).To(Equal(version))
			s.chainHolds()
		},
		Entry(nil, "before admit"), Entry(nil, "after admit"),
	)

	It("before it admits leaves nothing to an operator that enforces: the action is denied, and its reservation is free", func() {
		s := begun()
		died := startDoomed("before admit")
		name := unique("txn")
		a := s.propose(refund(name, denied))
		Eventually(died).Should(BeClosed())
		Expect(s.effect("refund:" + name).Status.State).To(Equal(v1alpha1.EffectExecuting))
		Expect(s.settingsAs(s.owner, `{"mode":"Enforce"}`)).To(Succeed())

		operator = startOperator(controllers.Options{})
		a = s.reaches(a, v1alpha1.ActionDenied)
		Expect(a.Status.WouldHave).To(BeNil())
		Expect(s.receiptOf(a).Result).To(Equal(decision.Denied))
		Eventually(func() v1alpha1.EffectState { return s.effect("refund:" + name).Status.State }).Should(Equal(v1alpha1.EffectFailed))
		e := s.effect("refund:" + name)
		Expect(e.Status.StartedAttempts).To(BeZero())
		Expect(e.Status.History).To(HaveLen(1))
		Expect(e.Status.History[0].Result).To(Equal(effect.NeverBegan))
		s.ends(refund(name, allowed), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
		s.chainHolds()
	})
})
