package execution

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
)

var _ = Describe("an Executor that sends a request", func() {
	It("executes what was allowed, once, as it was hashed, and says so in the receipt", func() {
		s := newScene()
		x := s.executes(s.executor("refunds"))
		payment := unique("txn")
		a := s.reaches(s.refund(payment, 100), v1alpha1.ActionCommitted, "")

		sent := s.provider.of(payment)
		Expect(sent).To(HaveLen(1))
		Expect(sent[0].Method).To(Equal(http.MethodPost))
		Expect(sent[0].Path).To(Equal("/payments/" + payment + "/refunds"))
		Expect(sent[0].Body).To(Equal(`{"amount":100,"payment_id":"` + payment + `"}`))
		Expect(sent[0].Header.Get("Idempotency-Key")).To(Equal(a.Status.Execution.Token))
		Expect(sent[0].Header.Get("Authorization")).To(Equal("Bearer s3cr3t"))
		Expect(sent[0].Header.Get("Content-Type")).To(Equal("application/json"))

		Expect(a.Status.Execution.Mode).To(Equal(v1alpha1.ExecutionModeOperator))
		Expect(a.Status.Executor).To(Equal(&v1alpha1.ExecutorReference{Name: "refunds", Hash: x.Status.Hash}))
		d := s.receipt(a)
		Expect(d.ExecutorMode).To(Equal(receipt.ModeOperator))
		Expect(d.Executor).To(Equal(&receipt.Executor{Name: "refunds", Hash: x.Status.Hash}))
		Expect(d.Output).To(Equal(`{"id":"re_` + payment + `"}`))
		Expect(d.ClaimID).To(BeEmpty())
		e := s.effect(a)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
		Expect(e.Status.Nonce).NotTo(BeEmpty())

		again := s.reaches(s.refund(payment, 100), v1alpha1.ActionBlocked, "duplicate")
		Expect(again.Status.Execution).To(BeNil())
		Expect(s.provider.of(payment)).To(HaveLen(1))
	})

	It("escapes an argument for where it stands", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		s.reaches(s.refund("b c?d#e", 100), v1alpha1.ActionCommitted, "")
		s.reaches(s.refund("a/../b", 100), v1alpha1.ActionFailed, "") // many servers decode before they split
		s.provider.mu.Lock()
		defer s.provider.mu.Unlock()
		Expect(s.provider.requests).To(HaveLen(1))
		Expect(s.provider.requests[0].Path).To(Equal("/payments/b%20c%3Fd%23e/refunds"))
	})

	It("waits for people, who are shown how it will be executed", func() {
		s := newScene()
		x := s.executes(s.executor("refunds"))
		payment := unique("txn")
		a := s.reaches(s.refund(payment, 2000), v1alpha1.ActionAwaitingApproval, "")
		Expect(a.Status.Executor).To(Equal(&v1alpha1.ExecutorReference{Name: "refunds", Hash: x.Status.Hash}))
		Expect(s.provider.of(payment)).To(BeEmpty())
		s.approves(a)
		a = s.reaches(a, v1alpha1.ActionCommitted, "")
		Expect(s.provider.of(payment)).To(HaveLen(1))
		Expect(s.receipt(a).Approvals).To(HaveLen(1))
	})

	It("does not execute what was approved for another Executor", func() {
		s := newScene()
		x := s.executes(s.executor("refunds"))
		payment := unique("txn")
		a := s.reaches(s.refund(payment, 2000), v1alpha1.ActionAwaitingApproval, "")
		s.ceases(x)
		s.executes(s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.HTTP.URL = s.provider.URL + "/payments/{payment_id}/other" }))
		s.approves(a)
		s.reaches(a, v1alpha1.ActionBlocked, "executor_changed")
		Expect(s.provider.of(payment)).To(BeEmpty())
	})

	It("does not execute what waits for its turn when its Executor goes, and lets end what has begun", func() {
		s := newScene()
		one := int32(1)
		x := s.executes(s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.MaxConcurrent = &one }))
		first, second := unique("txn"), unique("txn")
		arrived, goOn := make(chan struct{}), make(chan struct{})
		s.provider.answer(first, func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-goOn
			w.WriteHeader(http.StatusOK)
		})
		DeferCleanup(func() {
			select {
			case <-goOn:
			default:
				close(goOn)
			}
		})
		a := s.refund(first, 100)
		Eventually(arrived).Should(BeClosed())
		b := s.reaches(s.refund(second, 100), v1alpha1.ActionAdmitted, "")
		Expect(s.effect(b).Status.State).To(Equal(v1alpha1.EffectReserved))
		s.ceases(x)
		b = s.reaches(b, v1alpha1.ActionFailed, "executor_changed")
		Expect(s.effect(b).Status.StartedAttempts).To(BeZero())
		close(goOn)
		s.reaches(a, v1alpha1.ActionCommitted, "")
		Expect(s.provider.of(second)).To(BeEmpty())
	})

	It("runs as many at a time as it may, and all of them in the end", func() {
		s := newScene()
		two := int32(2)
		s.executes(s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.MaxConcurrent = &two }))
		running, most := make(chan struct{}, 16), 0
		count := make(chan int, 64)
		var all []*v1alpha1.Action
		for range 8 {
			payment := unique("txn")
			s.provider.answer(payment, func(w http.ResponseWriter, _ *http.Request) {
				running <- struct{}{}
				count <- len(running)
				<-time.After(50 * time.Millisecond) // so that they overlap
				<-running
				w.WriteHeader(http.StatusOK)
			})
			all = append(all, s.refund(payment, 100))
		}
		for _, a := range all {
			s.reaches(a, v1alpha1.ActionCommitted, "")
		}
		close(count)
		for n := range count {
			most = max(most, n)
		}
		Expect(most).To(Equal(2))
	})

	It("says Failed of what never left, so that it can be tried again", func() {
		s := newScene()
		x := s.executes(s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.HTTP.URL = closedPort() + "/payments/{payment_id}/refunds" }))
		payment := unique("txn")
		a := s.reaches(s.refund(payment, 100), v1alpha1.ActionFailed, "")
		Expect(s.receipt(a).Error).NotTo(ContainSubstring(payment))
		s.ceases(x)
		s.executes(s.executor("refunds"))
		b := s.reaches(s.refund(payment, 100), v1alpha1.ActionCommitted, "")
		Expect(b.Status.Effect.Attempt).To(BeEquivalentTo(2))
		Expect(s.provider.of(payment)).To(HaveLen(1))
	})

	It("believes a status by which the provider promises that nothing happened, and no other", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		for status, state := range map[int]v1alpha1.ActionState{422: v1alpha1.ActionFailed, 200: v1alpha1.ActionCommitted} {
			payment := unique("txn")
			s.provider.answer(payment, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			s.reaches(s.refund(payment, 100), state, "")
		}
		for _, status := range []int{204, 302, 401, 409, 429, 500, 503} {
			payment := unique("txn")
			s.provider.answer(payment, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			s.reaches(s.refund(payment, 100), v1alpha1.ActionAmbiguous, "reported_unknown")
			Expect(s.provider.of(payment)).To(HaveLen(1))
		}
	})

	It("says Ambiguous of what was sent and not answered", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		s.provider.answer(payment, hangUp)
		a := s.reaches(s.refund(payment, 100), v1alpha1.ActionAmbiguous, "reported_unknown")
		Expect(s.effect(a).Status.Cause).To(Equal(v1alpha1.CauseReportedUnknown))
		Expect(s.effect(a).Status.Error).NotTo(BeEmpty())
		s.reaches(s.refund(payment, 100), v1alpha1.ActionBlocked, "ambiguous")
		Expect(s.provider.of(payment)).To(HaveLen(1))
	})

	It("executes nothing as a ServiceAccount it may not be, or with a Secret that one may not read", func() {
		s := newScene()
		other := "elsewhere"
		s.may(s.admin, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}})
		x := s.executes(s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.ServiceAccountName = other }))
		payment := unique("txn")
		a := s.reaches(s.refund(payment, 100), v1alpha1.ActionFailed, "")
		Expect(s.receipt(a).Error).To(ContainSubstring("ServiceAccount " + other))
		s.ceases(x)
		s.executes(s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) {
			spec.HTTP.Headers[0].ValueFrom.SecretKeyRef = v1alpha1.KeyReference{Name: "another", Key: "token"}
		}))
		b := s.reaches(s.refund(payment, 100), v1alpha1.ActionFailed, "")
		Expect(s.receipt(b).Error).To(ContainSubstring("cannot read Secret another"))
		Expect(s.provider.of(payment)).To(BeEmpty())
	})

	DescribeTable("denies what it cannot execute",
		func(reason string, prepare func(s *scene) *v1alpha1.Action) {
			s := newScene()
			a := s.reaches(prepare(s), v1alpha1.ActionDenied, reason)
			Expect(a.Status.Message).To(ContainSubstring("refunds"))
		},
		Entry("two Executors for one type", "executor_conflict", func(s *scene) *v1alpha1.Action {
			s.executes(s.executor("refunds"))
			rival := s.executor("refunds-rival")
			Expect(env.Client(s.admin).Create(ctx, rival)).To(Succeed())
			Eventually(func(g Gomega) {
				for _, name := range []string{"refunds", "refunds-rival"} {
					o := &v1alpha1.Executor{}
					g.Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: name}, o)).To(Succeed())
					c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.StalledCondition)
					g.Expect(c).NotTo(BeNil())
					g.Expect(c.Reason).To(Equal("ExecutorConflict"))
				}
			}).Should(Succeed())
			return s.refund(unique("txn"), 100)
		}),
		Entry("no end to how long it is wanted", "executor_needs_not_after", func(s *scene) *v1alpha1.Action {
			s.executes(s.executor("refunds"))
			return s.refund(unique("txn"), 100, func(a *v1alpha1.Action) { a.Spec.NotAfter = nil })
		}),
		Entry("no effect key", "executor_needs_effect", func(s *scene) *v1alpha1.Action {
			s.executes(s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.ActionTypes = []string{"note.write"} }))
			return s.refund(unique("txn"), 100, func(a *v1alpha1.Action) { a.Spec.ActionType = "note.write" })
		}),
		Entry("a url that is none", "executor_invalid", func(s *scene) *v1alpha1.Action {
			o := s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.HTTP.URL = "ftp://127.0.0.1/{payment_id}" })
			Expect(env.Client(s.admin).Create(ctx, o)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				g.Expect(meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.StalledCondition)).To(BeTrue())
			}).Should(Succeed())
			return s.refund(unique("txn"), 100)
		}),
	)
})
