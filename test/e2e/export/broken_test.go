package export

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/controllers/export"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/test/testenv"
)

// clock is the machine's, which nobody moves here.
type clock struct{ jumped chan struct{} }

func (clock) Now() time.Time             { return time.Now() }
func (c clock) Changed() <-chan struct{} { return c.jumped }

// queued is an observer that puts whatever it hears into the queue of a sink, as every sink does.
type queued struct{ *export.Queue[string] }

func (q queued) ActionWritten(observe.ActionWrite)     { q.Put("action", 1) }
func (q queued) EffectWritten(observe.EffectWrite)     { q.Put("effect", 1) }
func (q queued) ReceiptAppended(observe.ReceiptAppend) { q.Put("receipt", 1) }

// rude is an observer that has no queue, and panics.
type rude struct{ called *atomic.Int64 }

func (r rude) ActionWritten(observe.ActionWrite)     { r.called.Add(1); panic("rude") }
func (r rude) EffectWritten(observe.EffectWrite)     { r.called.Add(1); panic("rude") }
func (r rude) ReceiptAppended(observe.ReceiptAppend) { r.called.Add(1); panic("rude") }

var _ = Describe("sinks that do not work", func() {
	It("change no decision and delay none", func(c SpecContext) {
		limits := export.Limits{Items: 4, Bytes: 1 << 10, Batch: 1}
		release := make(chan struct{})
		defer close(release)
		sink := func(name string, take export.Take[string]) queued {
			return queued{export.NewQueue(name, limits, take, logr.Discard())}
		}
		hangs := sink("hangs", func(context.Context, []string) (int, error) { <-release; return 1, nil })
		panics := sink("panics", func(context.Context, []string) (int, error) { panic("no") })
		errs := sink("errs", func(context.Context, []string) (int, error) { return 0, errors.New("no") })
		direct := rude{called: &atomic.Int64{}}
		// Nobody listens there, so that each batch takes as long as one may.
		traces, err := export.NewSpans(ctx, export.Traces{Endpoint: "127.0.0.1:1"}, "cluster", logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		last := &heard{}

		started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
			cfg.QPS, cfg.Burst = 500, 1000
			return controllers.New(cfg, controllers.Options{
				Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock{},
				Observers: []observe.Observer{direct, hangs, panics, errs, traces, last},
			})
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = started.Stop() })
		Expect(env.WaitForAdmission(c)).To(Succeed())
		s := newStage()

		const rounds = 10
		var slowest time.Duration
		for i := range rounds {
			began := time.Now()
			a := s.do(c, request(fmt.Sprintf("ok_%d", i), 100), nil)
			slowest = max(slowest, time.Since(began))
			Expect(a.Status.State).To(Equal(v1alpha1.ActionCommitted), a.Status.Message)
			a = s.do(c, request(fmt.Sprintf("no_%d", i), 50000), nil)
			Expect(a.Status.State).To(Equal(v1alpha1.ActionDenied), a.Status.Message)
		}
		AddReportEntry("slowest action", slowest.String())
		// One sink that waited for one second of its own would show.
		Expect(slowest).To(BeNumerically("<", 5*time.Second))

		// All of them were told, and lost what they were told.
		writes := last.n.Load()
		Expect(writes).To(BeNumerically(">=", rounds*6))
		Expect(direct.called.Load()).To(BeNumerically(">=", writes))
		// The one at the sink and those that wait for it are not lost yet.
		Expect(hangs.Dropped()).To(BeNumerically(">=", uint64(writes)-uint64(limits.Items)-1))
		Expect(panics.Dropped()).To(BeNumerically(">", 0))
		Expect(errs.Dropped()).To(BeNumerically(">", 0))

		// And the end of the operator does not wait for them either.
		Expect(started.Stop()).To(Succeed())
		short, cancel := context.WithTimeout(c, 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		Expect(hangs.Close(short)).To(MatchError(context.DeadlineExceeded))
		Expect(traces.Close(short)).NotTo(Succeed())
		Expect(time.Since(began)).To(BeNumerically("<", 3*time.Second))
		Eventually(traces.Dropped).Should(BeNumerically(">=", 2*rounds))
	}, SpecTimeout(90*time.Second))
})

// heard counts what the observers before it were told.
type heard struct{ n atomic.Int64 }

func (h *heard) ActionWritten(observe.ActionWrite)     { h.n.Add(1) }
func (h *heard) EffectWritten(observe.EffectWrite)     { h.n.Add(1) }
func (h *heard) ReceiptAppended(observe.ReceiptAppend) { h.n.Add(1) }
