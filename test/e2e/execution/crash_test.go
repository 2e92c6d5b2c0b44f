package execution

import (
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/test/testenv"
)

// startDoomed starts an operator that ends at one point, once, as a killed process does. The channel is closed then.
func startDoomed(point string) (died <-chan struct{}) {
	GinkgoHelper()
	return env.StartDoomed(GinkgoT(), point, func(cfg *rest.Config, crash func(string)) (testenv.Runnable, error) {
		cfg.QPS = -1
		o, err := options(cfg, controllers.Options{Crash: crash})
		if err != nil {
			return nil, err
		}
		return controllers.New(cfg, o)
	})
}

// lapse is longer than a lease of these tests, and the time it is waited for after it.
const lapse = 75 * time.Second

var _ = Describe("an operator that executes, and dies", Serial, func() {
	BeforeEach(withoutOperator)

	DescribeTable("leaves an action to its one end",
		func(point string, calls int, state v1alpha1.ActionState, reason string) {
			died := startDoomed(point)
			s := newScene()
			s.executes(s.executor("refunds"))
			payment := unique("txn")
			a := s.refund(payment, 100)
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			if reason == "executor_lost" {
				s.reaches(a, v1alpha1.ActionAdmitted, "")
				clock.Advance(GinkgoT(), lapse)
			}
			a = s.reaches(a, state, reason)
			Expect(s.provider.of(payment)).To(HaveLen(calls))
			if state == v1alpha1.ActionAmbiguous {
				Expect(s.effect(a).Status.Cause).To(Equal(v1alpha1.CauseExecutorLost))
				s.reaches(s.refund(payment, 100), v1alpha1.ActionBlocked, "ambiguous")
				Expect(s.provider.of(payment)).To(HaveLen(calls))
			}
		},
		// Nobody began, so the next operator does.
		Entry(nil, "after admit", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "before begin", 1, v1alpha1.ActionCommitted, ""),
		// Somebody began, and nobody can know what it did.
		Entry(nil, "after begin", 0, v1alpha1.ActionAmbiguous, "executor_lost"),
		Entry(nil, "before execute", 0, v1alpha1.ActionAmbiguous, "executor_lost"),
		Entry(nil, "after execute", 1, v1alpha1.ActionAmbiguous, "executor_lost"),
		Entry(nil, "before settle", 1, v1alpha1.ActionAmbiguous, "executor_lost"),
		Entry(nil, "after settle", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "before receipt", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "before finish", 1, v1alpha1.ActionCommitted, ""),
	)
})

var _ = Describe("two operators that execute", Serial, func() {
	It("execute each action once", func() {
		second := startOperator(controllers.Options{})
		DeferCleanup(second.Stop)
		s := newScene()
		s.executes(s.executor("refunds"))
		payments := map[string][]*v1alpha1.Action{}
		for range 12 {
			payment := unique("txn")
			for range 2 {
				payments[payment] = append(payments[payment], s.refund(payment, 100))
			}
		}
		for payment, actions := range payments {
			var ends []v1alpha1.ActionState
			for _, a := range actions {
				Eventually(func() *v1alpha1.ReceiptReference { return s.get(a).Status.ReceiptRef }).ShouldNot(BeNil())
				ends = append(ends, s.get(a).Status.State)
			}
			Expect(ends).To(ConsistOf(v1alpha1.ActionCommitted, v1alpha1.ActionBlocked))
			Expect(s.provider.of(payment)).To(HaveLen(1))
		}
	})

	It("do not begin twice, though one of them was suspended right before", func() {
		withoutOperator()
		p := testenv.PauseAt(GinkgoT(), "before begin")
		sleepy := startOperator(controllers.Options{Crash: p.At})
		DeferCleanup(sleepy.Stop)
		DeferCleanup(p.Resume) // before it is stopped
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		a := s.refund(payment, 100)
		Eventually(p.Reached).Should(BeClosed())
		operator = startOperator(controllers.Options{})
		s.reaches(a, v1alpha1.ActionCommitted, "")
		p.Resume()
		Consistently(func() []request { return s.provider.of(payment) }).WithTimeout(time.Second).Should(HaveLen(1))
	})

	It("begin though the record was touched right before, by whoever labels things", func() {
		withoutOperator()
		p := testenv.PauseAt(GinkgoT(), "before begin")
		var first atomic.Bool
		operator = startOperator(controllers.Options{Crash: func(point string) {
			if point == "before begin" && first.CompareAndSwap(false, true) {
				p.At(point)
			}
		}})
		DeferCleanup(p.Resume)
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		a := s.refund(payment, 100)
		Eventually(p.Reached).Should(BeClosed())
		e := s.effect(s.get(a))
		e.Labels = map[string]string{"team": "payments"}
		Expect(env.Admin().Update(ctx, e)).To(Succeed())
		s.reaches(s.refund(unique("txn"), 100), v1alpha1.ActionCommitted, "") // by now it has heard of that
		p.Resume()
		s.reaches(a, v1alpha1.ActionCommitted, "")
		Expect(s.provider.of(payment)).To(HaveLen(1))
	})

	It("leave a report that comes too late for whoever resolves", func() {
		withoutOperator()
		p := testenv.PauseAt(GinkgoT(), "before settle")
		sleepy := startOperator(controllers.Options{Crash: p.At})
		DeferCleanup(sleepy.Stop)
		DeferCleanup(p.Resume)
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		a := s.refund(payment, 100)
		Eventually(p.Reached).Should(BeClosed())
		operator = startOperator(controllers.Options{})
		s.reaches(a, v1alpha1.ActionAdmitted, "")
		clock.Advance(GinkgoT(), lapse)
		a = s.reaches(a, v1alpha1.ActionAmbiguous, "executor_lost")
		p.Resume()
		Eventually(func(g Gomega) {
			e := s.effect(a)
			g.Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
			g.Expect(e.Status.LateOutcomeRef).NotTo(BeNil())
			g.Expect(e.Status.LateOutcomeRef.Result).To(Equal(v1alpha1.OutcomeCommitted))
		}).Should(Succeed())
		late := &v1alpha1.Outcome{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: s.effect(a).Status.LateOutcomeRef.Name}, late)).To(Succeed())
		Expect(late.Spec.Reporter).To(Equal(testenv.OperatorUser().Name))
	})
})

var _ = Describe("an operator that executes, and is stopped", Serial, func() {
	BeforeEach(withoutOperator)

	It("lets what it has begun come to its end first", func() {
		stopping := startOperator(controllers.Options{})
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		arrived, goOn := make(chan struct{}), make(chan struct{})
		s.provider.answer(payment, func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-goOn
			w.WriteHeader(http.StatusOK)
		})
		a := s.refund(payment, 100)
		Eventually(arrived).Should(BeClosed())
		stopped := make(chan error, 1)
		go func() { stopped <- stopping.Stop() }()
		Consistently(stopped).WithTimeout(500 * time.Millisecond).ShouldNot(Receive())
		close(goOn)
		Eventually(stopped).Should(Receive(BeNil()))
		Expect(s.effect(s.get(a)).Status.State).To(Equal(v1alpha1.EffectCommitted))
		operator = startOperator(controllers.Options{})
		s.reaches(a, v1alpha1.ActionCommitted, "")
		Expect(s.provider.of(payment)).To(HaveLen(1))
	})
})
