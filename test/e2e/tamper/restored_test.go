package tamper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// dying is a connection that is cut at the first request that match picks: neither that one nor any later one arrives.
type dying struct {
	match func(method, path, body string) bool

	once sync.Once
	cut  atomic.Bool
	died chan struct{}
}

var errCut = errors.New("this operator is dead")

func (d *dying) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		body := ""
		if r.GetBody != nil {
			reader, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(reader)
			if err != nil {
				return nil, err
			}
			body = string(text)
		}
		if d.match(r.Method, r.URL.Path, body) {
			d.cut.Store(true)
			d.once.Do(func() { close(d.died) })
		}
		if d.cut.Load() {
			return nil, errCut
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// noEffect expects that nothing is on record of a payment.
func (s *scene) noEffect(id string) {
	GinkgoHelper()
	err := env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.ns, Name: action.EffectName("refund:" + id)}, &v1alpha1.Effect{})
	Expect(err).To(MatchError(ContainSubstring("not found")))
}

var _ = Describe("an etcd that is restored to an earlier point", Ordered, func() {
	// Of each scene's chain one payment is lost, but of quiet's none.
	var paid, second, dead, alone, kept, quiet *scene
	lost, was, left := map[*scene]string{}, map[*scene]receipt.Link{}, map[*scene]receipt.Link{}

	var restore func()
	// forget makes payments that the restored cluster does not know of.
	forget := func(all ...*scene) {
		GinkgoHelper()
		for _, s := range all {
			left[s] = s.checkpointed()
		}
		snapshot, err := env.Snapshot()
		Expect(err).NotTo(HaveOccurred())
		for _, s := range all {
			lost[s] = payment()
			s.committed(lost[s])
			was[s] = s.noted()
			Expect(was[s].Seq).To(BeNumerically(">", left[s].Seq))
		}
		restore = func() { Expect(env.Restore(ctx, snapshot)).To(Succeed()) }
	}

	BeforeAll(func() {
		made := scenes(6, func(s *scene) {
			s.committed(payment())
			s.denied()
		})
		paid, second, dead, alone, kept, quiet = made[0], made[1], made[2], made[3], made[4], made[5]
	})

	It("is noticed by the operator that runs, which says so in the Ledgers and ends", func() {
		quiet.checkpointed()
		forget(paid, second, dead)
		restore()
		Eventually(operator.Done()).Should(BeClosed())
		Expect(operator.ended).To(MatchError(ContainSubstring("restored to an earlier point")))
		for _, s := range []*scene{paid, second, dead} {
			s.heldByLedger(fmt.Sprintf("receipt %s is not there any more", was[s]))
		}
		Expect(meta.IsStatusConditionTrue(quiet.ledger().Status.Conditions, v1alpha1.ReadyCondition)).To(BeTrue())
		operator = startOperator()
	})

	It("has nothing admitted again that was executed before", func() {
		retries := map[*scene]*client.Call{}
		for _, s := range []*scene{paid, second, dead} {
			call, err := s.sdk.Propose(ctx, refund(lost[s], 100))
			Expect(err).NotTo(HaveOccurred())
			retries[s] = call
		}
		for s, call := range retries {
			s.holds(call.Action(), fmt.Sprintf("receipt %s is not there any more", was[s]))
			s.noEffect(lost[s])
			Expect(s.head()).To(Equal(left[s]))
			brief, cancel := context.WithCancel(ctx)
			cancel()
			_, err := call.Execute(brief, s.pay(lost[s]))
			Expect(err).To(HaveOccurred()) // the agent gives up
			Expect(s.payments(lost[s])).To(Equal(1))
		}
		By("while other namespaces go on")
		id := payment()
		quiet.committed(id)
		Expect(quiet.payments(id)).To(Equal(1))
		quiet.intact()
	})

	It("is found by whoever kept the head, and by nobody else who looks at the chain", func() {
		inCluster, offline := paid.verifies()
		for _, r := range []result{inCluster, offline} {
			Expect(r.code).To(Equal(0), "%s", r)
		}
		inCluster, offline = paid.verifies("--head", was[paid].String())
		for _, r := range []result{inCluster, offline} {
			Expect(r.code).To(Equal(3), "%s", r)
			Expect(r.breaks()).To(Equal([]string{fmt.Sprint("head_mismatch ", was[paid].Seq)}))
		}
	})

	It("is accepted by name only, with the head that is there, by who may, and once", func() {
		refused := func(u testenv.User, head receipt.Link, code int, words string, more ...string) {
			GinkgoHelper()
			r := paid.accepts(u, head, more...)
			Expect(r.code).To(Equal(code), "%s", r)
			Expect(r.stderr).To(ContainSubstring(words))
			Expect(paid.ledger().Status.Epoch).To(BeZero())
			Expect(paid.head()).To(Equal(left[paid]))
		}
		before := entries(paid.receipts())[left[paid].Seq-2].Link()
		refused(clerk, left[paid], 9, "govern")
		refused(governor, was[paid], 1, "There is no receipt "+was[paid].String())
		refused(governor, receipt.Link{Seq: left[paid].Seq, Hash: "sha256:" + strings.Repeat("1", 64)}, 1, "There is no receipt")
		refused(governor, before, 1, "The chain goes on after "+before.String())
		refused(governor, receipt.Start(), 1, "The chain goes on after")
		refused(governor, left[paid], 1, "It names namespace uid", "--namespace-uid", "6e033ff1-e955-4662-9c1c-d8603053295a")

		for _, s := range []*scene{paid, second} {
			r := s.accepts(governor, left[s])
			Expect(r.code).To(Equal(0), "%s", r)
			s.continues(left[s], 1)
		}
		r := paid.accepts(governor, left[paid])
		Expect(r.code).To(Equal(1), "%s", r)
		Expect(r.stderr).To(ContainSubstring("LedgerNotHeld"))
		Expect(paid.ledger().Status.Epoch).To(Equal(int64(1)))

		id := payment()
		paid.committed(id)
		Expect(paid.payments(id)).To(Equal(1))
		paid.intact()
		inCluster, _ := paid.verifies()
		Expect(inCluster.code).To(Equal(0), "%s", inCluster)
	})

	It("is accepted once by an operator that dies before it has said so in the Ledger, and the next", func() {
		Expect(operator.Stop()).To(Succeed())
		d := &dying{died: make(chan struct{}), match: func(method, path, body string) bool {
			return method == http.MethodPut && strings.HasSuffix(path, "/ledgers/"+dead.ns+"/status") && strings.Contains(body, `"accepted"`)
		}}
		operator = startOperator(d.wrap)
		r := make(chan result, 1)
		go func() {
			defer GinkgoRecover()
			r <- dead.accepts(governor, left[dead])
		}()
		Eventually(d.died).Should(BeClosed())
		Expect(dead.ledger().Status.Epoch).To(BeZero())
		Expect(dead.head().Seq).To(Equal(left[dead].Seq + 1))
		Expect(operator.Stop()).To(Succeed())
		operator = startOperator()
		var accepted result
		Eventually(r).Should(Receive(&accepted))
		Expect(accepted.code).To(Equal(0), "%s", accepted)
		dead.continues(left[dead], 1)
		id := payment()
		dead.committed(id)
		Expect(dead.payments(id)).To(Equal(1))
		dead.intact()
	})

	It("is not noticed by an operator that starts afterwards, unless something was kept that remembers", func() {
		forget(alone, kept)
		var ledger *v1alpha1.LedgerStatus
		replaced(func() {
			ledger = kept.ledger().Status
			restore()
			// Of kept only the Ledger is as it was: restored from a backup of namespaces, for example.
			l := kept.ledger()
			l.Status.Seq, l.Status.Hash = ledger.Seq, ledger.Hash
			Expect(env.Client(testenv.OperatorUser()).Status().Update(ctx, l)).To(Succeed())
		})
		By("such as the Ledger")
		kept.holds(kept.proposed(lost[kept], 100), fmt.Sprintf("Receipt %d is missing: the chain was longer than it is now", was[kept].Seq))
		Expect(kept.payments(lost[kept])).To(Equal(1))
		inCluster, _ := kept.verifies()
		Expect(inCluster.code).To(Equal(3), "%s", inCluster)
		Expect(inCluster.breaks()).To(Equal([]string{fmt.Sprint("head_mismatch ", was[kept].Seq)}))

		By("or a head outside of the cluster")
		inCluster, offline := alone.verifies()
		for _, r := range []result{inCluster, offline} {
			Expect(r.code).To(Equal(0), "%s", r)
		}
		inCluster, offline = alone.verifies("--head", was[alone].String())
		for _, r := range []result{inCluster, offline} {
			Expect(r.code).To(Equal(3), "%s", r)
			Expect(r.breaks()).To(Equal([]string{fmt.Sprint("head_mismatch ", was[alone].Seq)}))
		}

		By("else it is executed again")
		alone.committed(lost[alone])
		Expect(alone.payments(lost[alone])).To(Equal(2), "this is a limit that is stated; if it is none any more, say so")
		for alone.head().Seq <= was[alone].Seq {
			alone.denied()
		}
		_, offline = alone.verifies("--head", was[alone].String())
		Expect(offline.code).To(Equal(1), "%s", offline)
		Expect(offline.breaks()).To(Equal([]string{fmt.Sprint("head_mismatch ", was[alone].Seq)}))
	})
})
