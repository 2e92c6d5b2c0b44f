package operator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
)

// remote is the system the effects happen in. It counts, and knows nothing of keys or tokens.
type remote struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	total int
}

// newRemote makes a remote that does not answer before open is closed.
func newRemote(open <-chan struct{}) *remote {
	r := &remote{calls: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.calls[strings.TrimPrefix(q.URL.Path, "/")]++
		r.total++
		r.mu.Unlock()
		<-open
	}))
	DeferCleanup(r.Close)
	return r
}

func (r *remote) count(payment string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[payment]
}

func (r *remote) sum() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// execute refunds a payment at the remote.
func (r *remote) execute(payment string) client.Function {
	return func(ctx context.Context, _ client.Execution) (any, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/"+payment, nil)
		if err != nil {
			return nil, client.NotExecuted(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		if err := response.Body.Close(); err != nil {
			return nil, err
		}
		return nil, nil
	}
}

var _ = Describe("an operator that is killed", func() {
	It("leaves everything to the next one: every action has one end, and every effect happens once", func(ctx SpecContext) {
		first := start(ctx, alone)
		s := newScene(ctx)
		opened := make(chan struct{})
		open := sync.OnceFunc(func() { close(opened) })
		provider := newRemote(opened)
		DeferCleanup(open) // before the remote is closed, which waits for its answers

		// Two processes want each effect.
		const payments, each = 10, 2
		var agents sync.WaitGroup
		DeferCleanup(agents.Wait)
		propose := func(from, to int) {
			for n := from; n < to; n++ {
				for range each {
					// How it ended for the agent does not matter here: what is on record is compared with what was executed.
					agents.Go(func() { _, _ = s.sdk.Protect(ctx, refund(payment(n), 100), provider.execute(payment(n))) })
				}
			}
		}

		By("killing the first while some execute, and others wait to hear of it")
		propose(0, payments/2)
		Eventually(ctx, provider.sum).Should(BeNumerically(">=", 2))
		Expect(first.Kill()).To(Succeed())

		By("reporting and proposing while there is none")
		open()
		propose(payments/2, payments)
		Eventually(ctx, func() int { return len(s.actions(ctx)) }).Should(Equal(payments * each))
		Eventually(ctx, func() int {
			list := &v1alpha1.OutcomeList{}
			Expect(env.Admin().List(ctx, list, kube.InNamespace(s.ns))).To(Succeed())
			return len(list.Items)
		}).Should(BeNumerically(">=", 2))

		By("killing the second as soon as it has done something")
		second, err := env.StartOperatorProcess(alone)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(second.Stop)
		receipts := len(s.receipts(ctx))
		Eventually(ctx, func() int { return len(s.receipts(ctx)) }).WithPolling(time.Millisecond).Should(BeNumerically(">", receipts))
		Expect(second.Kill()).To(Succeed())

		By("letting the third finish")
		start(ctx, alone)
		var all []v1alpha1.Action
		Eventually(ctx, func(g Gomega) {
			all = s.actions(ctx)
			for _, a := range all {
				g.Expect(a.Status.ReceiptRef).NotTo(BeNil(), "%s is %s: %s", a.Name, a.Status.State, a.Status.Message)
			}
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		agents.Wait()
		Expect(all).To(HaveLen(payments * each))
		ends := map[string][]v1alpha1.ActionState{}
		for _, a := range all {
			ends[a.Status.Effect.Key] = append(ends[a.Status.Effect.Key], a.Status.State)
		}
		for n := range payments {
			Expect(ends["refund:"+payment(n)]).To(ConsistOf(v1alpha1.ActionCommitted, v1alpha1.ActionBlocked), payment(n))
			Expect(provider.count(payment(n))).To(Equal(1), payment(n))
			e := s.effect(ctx, payment(n))
			Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
			Expect(e.Status.Attempt).To(Equal(int64(1)))
		}
		s.chainHolds(ctx, payments*each)
	}, SpecTimeout(5*time.Minute))
})
