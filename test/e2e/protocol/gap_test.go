package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// forge creates what the apiserver refuses while admission is in force, and must not refuse any more. It is made by a user
// who may create such things, and says to be made by another.
func forge[T client.Object](u testenv.User, o T) T {
	GinkgoHelper()
	made := o
	Eventually(func() error {
		made = o.DeepCopyObject().(T)
		return env.Client(u).Create(ctx, made)
	}).Should(Succeed(), "the apiserver does not refuse it any more")
	return made
}

// gapNoticed waits until the operator holds because admission is missing.
func (s *scene) gapNoticed() *v1alpha1.Action {
	GinkgoHelper()
	during := s.propose(refund(unique("txn"), 100))
	clock.Advance(GinkgoT(), 10*time.Second)
	Eventually(func() string { return s.get(during).Status.Reason }).Should(Equal(string(decision.AdmissionMissing)))
	return during
}

var _ = Describe("what was forged while admission was missing", Serial, func() {
	It("frees no key, settles nothing, and is no evidence", func() {
		s := newScene()
		mallory := testenv.User{Name: unique("mallory")}
		s.allowTypes(mallory, "outcomes", "")
		s.allowTypes(mallory, "resolutions", "")
		executing, lapsing, unknown := unique("txn"), unique("txn"), unique("txn")
		running, silent := s.admitted(executing), s.admitted(lapsing)
		noted := s.reaches(s.propose(act("note.write", `{"text":"hello"}`)), v1alpha1.ActionAdmitted)
		s.ambiguous(unknown)

		closeGap := admissionGap("ctrlrun-outcomes", "ctrlrun-resolutions")
		s.gapNoticed()
		for _, a := range []*v1alpha1.Action{running, noted} {
			lie := s.outcome(s.get(a), v1alpha1.OutcomeNotExecuted)
			lie.Spec.Reporter = s.agent.Name
			forge(mallory, lie)
		}
		tooLate := late(s.outcome(s.get(silent), v1alpha1.OutcomeNotExecuted))
		tooLate.Spec.Reporter = s.agent.Name
		forge(mallory, tooLate)
		resolution := s.resolution(s.oncall, s.effect("refund:"+unknown), s.ambiguousReceipt("refund:"+unknown), v1alpha1.ResolutionNotExecuted)
		resolution.Spec.Resolver = s.oncall.Name
		resolution = forge(mallory, resolution)
		Expect(resolution.Spec.Resolver).To(Equal(s.oncall.Name))

		By("waiting meanwhile")
		clock.Advance(GinkgoT(), time.Second) // everything is looked at again
		Consistently(func(g Gomega) {
			g.Expect(s.get(running).Status.State).To(Equal(v1alpha1.ActionAdmitted))
			g.Expect(s.get(noted).Status.State).To(Equal(v1alpha1.ActionAdmitted))
			g.Expect(s.effect("refund:" + executing).Status.State).To(Equal(v1alpha1.EffectExecuting))
			g.Expect(s.effect("refund:" + unknown).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
			g.Expect(s.effect("refund:" + unknown).Status.Resolution).To(BeNil())
		}).WithTimeout(time.Second).Should(Succeed())

		closeGap()
		By("an attempt ends ambiguous by a report that anybody may have made")
		for _, a := range []*v1alpha1.Action{running, noted} {
			a = s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.OutcomeNotAccepted))
			Expect(s.receiptOf(a).Result).To(Equal(decision.Ambiguous))
		}
		e := s.effect("refund:" + executing)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseOutcomeNotAccepted))
		s.reaches(s.propose(refund(executing, 2000)), v1alpha1.ActionBlocked, string(decision.AmbiguousEffect))

		By("a resolution does not count, and an honest one does")
		expectRefused(resolution, v1alpha1.ReasonMadeWithoutAdmission)
		Expect(s.effect("refund:" + unknown).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(s.receiptsOfKind(receipt.KindResolution, "refund:"+unknown)).To(BeEmpty())
		for _, payment := range []string{executing, unknown} {
			key := "refund:" + payment
			honest := again(s.resolution(s.oncall, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionCommitted), "2")
			Expect(env.Client(s.oncall).Create(ctx, honest)).To(Succeed())
			expectAccepted(honest)
			s.effectReaches(key, v1alpha1.EffectCommitted)
		}

		By("a late report is not shown to whoever resolves")
		clock.Advance(GinkgoT(), lapsed)
		s.reaches(silent, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))
		key := "refund:" + lapsing
		expectAccepted(s.resolve(s.oncall, key, v1alpha1.ResolutionCommitted))
		Expect(s.effectReaches(key, v1alpha1.EffectCommitted).Status.LateOutcomeRef).To(BeNil())
		s.chainHolds()
	})
})

// errCut is what an operator gets for its requests after it was cut off.
var errCut = errors.New("this operator is dead")

// startCut starts an operator that dies at its first request that match picks: neither that one nor any other reaches the
// apiserver any more. It gives a channel that is closed then.
func startCut(match func(method, path, body string) bool) (died chan struct{}) {
	GinkgoHelper()
	died = make(chan struct{})
	var once sync.Once
	var cut atomic.Bool
	started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS, cfg.Burst = 500, 1000
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				var body []byte
				if r.Body != nil && r.Method != http.MethodGet {
					var err error
					if body, err = io.ReadAll(r.Body); err != nil {
						return nil, err
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
				}
				if match(r.Method, r.URL.Path, string(body)) {
					cut.Store(true)
					once.Do(func() { close(died) })
				}
				if cut.Load() {
					return nil, errCut
				}
				return next.RoundTrip(r)
			})
		})
		return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(started.Stop)
	return died
}

var _ = Describe("a chain that becomes shorter while an operator runs", Serial, func() {
	It("holds its namespace before anything is reserved or admitted", func() {
		reserving, admitting := newScene(), newScene()
		payment := unique("txn")
		for _, s := range []*scene{reserving, admitting} {
			s.committed(payment)
			s.checkpointed()
		}
		// As after a restore to a point before the payment was proposed: nothing knows of it, but whoever remembers the head.
		closeGap := admissionGap("ctrlrun-records-kept", "ctrlrun-statements-kept")
		for _, s := range []*scene{reserving, admitting} {
			s.forget(1)
			Eventually(func() error {
				return client.IgnoreNotFound(env.Admin().Delete(ctx, s.effect("refund:"+payment)))
			}).Should(Succeed())
		}
		closeGap()

		retry := reserving.propose(refund(payment, 100))
		note := admitting.propose(act("note.write", `{"text":"hello"}`))
		clock.Advance(GinkgoT(), 10*time.Second)
		reserving.holds(retry)
		admitting.holds(note)
		reserving.noEffect("refund:" + payment)
		for _, s := range []*scene{reserving, admitting} {
			Expect(s.receipts()).To(BeEmpty())
		}
	})
})

var _ = Describe("a chain that is held", Serial, func() {
	It("stays so until a person accepts it, whichever operator dies when", func() {
		people := governor()
		// What an operator is about to write when it dies, of an acceptance.
		points := map[string]func(s *scene) func(method, path, body string) bool{
			"the receipt": func(s *scene) func(string, string, string) bool {
				return func(method, path, body string) bool {
					return method == http.MethodPost && strings.HasSuffix(path, "/namespaces/"+s.ns+"/receipts") && strings.Contains(body, receipt.KindLedgerAccepted)
				}
			},
			"the Ledger": func(s *scene) func(string, string, string) bool {
				return func(method, path, body string) bool {
					return method == http.MethodPut && strings.HasSuffix(path, "/ledgers/"+s.ns+"/status") && strings.Contains(body, `"accepted"`)
				}
			},
			"the verdict": func(s *scene) func(string, string, string) bool {
				return func(method, path, _ string) bool {
					return method == http.MethodPut && strings.Contains(path, "/ledgeracceptances/"+s.ns+".") && strings.HasSuffix(path, "/status")
				}
			},
		}
		scenes, heads, lost := map[string]*scene{}, map[string]receipt.Link{}, map[string]v1alpha1.Receipt{}
		for point := range points {
			s := newScene()
			s.committed(unique("txn"))
			s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
			lost[point] = s.checkpointed()
			scenes[point] = s
		}
		closeGap := admissionGap("ctrlrun-records-kept")
		withoutOperator()
		for point, s := range scenes {
			heads[point] = s.forget(1)
		}
		operator = startOperator(controllers.Options{})
		closeGap()
		for _, s := range scenes {
			waiting := s.propose(refund(unique("txn"), 100).unclaimed())
			clock.Advance(GinkgoT(), 10*time.Second)
			s.holds(waiting)
		}

		By("although it fits again when the next operator looks")
		Expect(operator.Stop()).To(Succeed())
		s := scenes["the receipt"]
		back := lost["the receipt"]
		original := &v1alpha1.Receipt{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: back.Name}, Spec: back.Spec}
		Expect(env.Client(testenv.OperatorUser()).Create(ctx, original)).To(Succeed())
		heads["the receipt"] = receipt.Link{Seq: back.Spec.Seq, Hash: back.Spec.Hash}
		operator = startOperator(controllers.Options{})
		since := s.propose(refund(unique("txn"), 100).unclaimed())
		clock.Advance(GinkgoT(), 10*time.Second)
		s.holds(since)
		Expect(s.ledger().Status.Epoch).To(BeZero())
		Expect(operator.Stop()).To(Succeed())

		for point, match := range points {
			By("and an operator dies that is about to write " + point)
			s := scenes[point]
			died := startCut(match(s))
			o := s.acceptance(people, heads[point])
			Expect(env.Client(people).Create(ctx, o)).To(Succeed())
			Eventually(died).Should(BeClosed())
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			Expect(meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)).To(BeNil())
			epoch := int64(0)
			if point == "the verdict" {
				epoch = 1
			}
			Expect(s.ledger().Status.Epoch).To(Equal(epoch))

			operator = startOperator(controllers.Options{})
			s.continues(o, 1)
			c := verdict(o)
			Expect(c.Message).To(ContainSubstring(fmt.Sprintf("Receipt %d says so", heads[point].Seq+1)))
			Expect(c.Message).To(ContainSubstring("epoch 1"))
			denied := s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
			Expect(s.receiptOf(denied).Epoch).To(Equal(int64(1)))
			s.chainHolds()
			Expect(operator.Stop()).To(Succeed())
		}
	})
})
