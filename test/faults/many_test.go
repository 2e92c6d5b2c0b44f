package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/test/provider"
)

var (
	executions = flag.Int("executions", 1000, "how many requests are executed, faulted")
	seed       = flag.Uint64("seed", 1, "of everything that is drawn")
)

// maxAttempts at one effect: after Failed, and after nothing else, there may be another.
const maxAttempts = 4

// inFlight bounds how many executions there are at a time. Most of them wait.
const inFlight = 24

// place is an endpoint of the provider, with an executor for it.
type place struct {
	fault   provider.Fault
	secure  bool
	share   int // of what is drawn
	execute func(context.Context, string) executors.Result
}

// places are all endpoints. Those that take seconds have a smaller share.
func places(t testing.TB, p *provider.Provider) []place {
	slow := []provider.Fault{
		provider.NobodyAccepts, provider.SilentHandshake, provider.HangAfterActing, provider.HangInBody, provider.Dripping, provider.Huge,
	}
	var all []place
	for _, fault := range provider.Faults() {
		for _, secure := range []bool{false, true} {
			if fault.NeedsTLS() && !secure {
				continue
			}
			e, values := newExecutor(t, p, fault, secure)
			share := 5
			switch {
			case slices.Contains(slow, fault):
				share = 1
			case fault == provider.NobodyListens || fault == provider.None:
				share = 20
			}
			all = append(all, place{fault, secure, share, func(ctx context.Context, token string) executors.Result {
				return e.Execute(ctx, executors.Call{Arguments: []byte(`{"amount":500,"payment_id":"txn_1"}`), Token: token}, values)
			}})
		}
	}
	return all
}

// record is what is known of one effect: its attempts, each but the last of them Failed.
type record struct {
	number   int
	draw     *rand.Rand
	attempts []attempt
}

// attempt is one execution.
type attempt struct {
	place   place
	token   string
	givenUp bool
	result  executors.Result
}

func (r *record) key() string { return fmt.Sprintf("refund:txn_%d", r.number) }

// run attempts the effect at endpoints that are drawn, as long as it is recorded Failed. A few attempts are given up while they run.
func (r *record) run(ctx context.Context, all, weighted []place) error {
	for n := int64(1); n <= maxAttempts; n++ {
		token, err := effect.Token(r.key(), big.NewInt(n))
		if err != nil {
			return err
		}
		a := attempt{place: weighted[r.draw.IntN(len(weighted))], token: token}
		if n == 1 && r.number < len(all) {
			a.place = all[r.number] // each at least once
		}
		ctx, cancel := context.WithCancel(ctx)
		if r.draw.IntN(100) == 0 {
			time.AfterFunc(time.Duration(r.draw.IntN(3000))*time.Microsecond, cancel)
		}
		a.result = a.place.execute(ctx, token)
		a.givenUp = ctx.Err() != nil
		cancel()
		r.attempts = append(r.attempts, a)
		if a.result.State != effect.Failed {
			break
		}
	}
	return nil
}

// crowd runs effects until there were that many executions. The last go on for a little longer: an effect is seen to its end.
func crowd(t *testing.T, all []place) []*record {
	var weighted []place
	for _, at := range all {
		for range at.share {
			weighted = append(weighted, at)
		}
	}
	work, done := make(chan *record), make(chan *record)
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() {
			for r := range work {
				if err := r.run(t.Context(), all, weighted); err != nil {
					t.Error(err)
				}
				done <- r
			}
		})
	}
	var records []*record
	count, drawn := 0, 0
	for count < *executions || len(records) < drawn {
		out := work
		if count >= *executions {
			out = nil
		}
		select {
		case out <- &record{number: drawn, draw: rand.New(rand.NewPCG(*seed, uint64(drawn)))}:
			drawn++
		case r := <-done:
			count += len(r.attempts)
			records = append(records, r)
		}
	}
	close(work)
	workers.Wait()
	return records
}

// figures of a run.
type figures struct {
	executions, givenUp, acted             int
	states                                 map[effect.State]int
	never, proved, neverGivenUp            int
	falseFailed, falseCommitted, duplicate int
	starved, late                          int
	places                                 map[string]bool
}

func (f figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d executions, %d given up; recorded: %d Committed, %d Failed, %d Ambiguous; the provider acted %d times\n",
		f.executions, f.givenUp, f.states[effect.Committed], f.states[effect.Failed], f.states[effect.Ambiguous], f.acted)
	fmt.Fprintf(&b, "Failed although the provider acted: %d; effects that happened twice: %d; Committed although it did not act: %d\n",
		f.falseFailed, f.duplicate, f.falseCommitted)
	fmt.Fprintf(&b, "never connected: %d, of them proved Failed: %d (%.1f %%), given up while connecting: %d\n",
		f.never, f.proved, 100*float64(f.proved)/float64(max(f.never, 1)), f.neverGivenUp)
	fmt.Fprintf(&b, "for want of time: %d not connected, %d not answered", f.starved, f.late)
	return b.String()
}

// judge compares what is recorded with what the provider did.
func judge(t *testing.T, p *provider.Provider, records []*record) figures {
	f := figures{states: map[effect.State]int{}, places: map[string]bool{}}
	for _, r := range records {
		total := 0
		for _, a := range r.attempts {
			n := p.Executions(a.token)
			total += n
			f.count(t, a, n)
		}
		f.acted += total
		if total > 1 {
			f.duplicate++
			t.Errorf("%s happened %d times", r.key(), total)
		}
	}
	return f
}

func (f *figures) count(t *testing.T, a attempt, acted int) {
	name := fmt.Sprintf("%s, TLS %t", a.place.fault, a.place.secure)
	state := a.result.State
	f.executions++
	f.states[state]++
	f.places[name] = true
	if a.givenUp {
		f.givenUp++
	}
	switch {
	case state == effect.Failed && acted > 0:
		f.falseFailed++
		t.Errorf("%s: Failed (%s), and the provider acted", name, a.result.Error)
	case state == effect.Committed && acted == 0:
		f.falseCommitted++
		t.Errorf("%s: Committed, and the provider did not act", name)
	case a.givenUp || of(a.place.fault, a.place.secure).settled(state, a.place.fault):
	case state == effect.Failed:
		f.starved++ // the machine was too busy to connect in time: nothing happened, as is recorded
	case state == effect.Ambiguous:
		f.late++ // or too busy to be answered
	default:
		t.Errorf("%s: %s", name, state)
	}
	if !a.place.fault.NeverConnects(a.place.secure) {
		return
	}
	f.never++
	if a.givenUp {
		f.neverGivenUp++
	}
	if state == effect.Failed {
		f.proved++
	}
}

// TestManyExecutions runs effects at every fault, many at a time. Nothing that the provider did is recorded as not executed, no
// effect happens twice although it is attempted again after Failed, and nothing is committed that did not happen.
func TestManyExecutions(t *testing.T) {
	before := runtime.NumGoroutine()
	p := provider.New(t)
	all := places(t, p)
	begin := time.Now()
	records := crowd(t, all)
	took := time.Since(begin)
	p.Close()
	f := judge(t, p, records)
	t.Logf("seed %d: %d effects in %s\n%s", *seed, len(records), took.Round(time.Millisecond), f)

	if f.proved*100 < f.never*95 {
		t.Errorf("%d of %d that never connected were proved, want 95 of 100", f.proved, f.never)
	}
	if len(f.places) < len(all) {
		t.Errorf("%d of %d faults happened", len(f.places), len(all))
	}
	if (f.starved+f.late)*10 > f.executions {
		t.Errorf("%d of %d had no time to be what they should have been: the machine is too busy for this", f.starved+f.late, f.executions)
	}
	// A connection that is left open has goroutines that wait for it.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines are left, %d were there before", runtime.NumGoroutine(), before)
			break
		}
	}
}

// BenchmarkExecute is the ceiling of one executor: executions a second against a provider in the same process.
func BenchmarkExecute(b *testing.B) {
	for _, secure := range []bool{false, true} {
		b.Run(fmt.Sprintf("TLS=%t", secure), func(b *testing.B) {
			p := provider.New(b)
			e, values := newExecutor(b, p, provider.None, secure)
			b.ReportAllocs()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call := executors.Call{Arguments: []byte(`{"amount":500,"payment_id":"txn_1"}`), Token: "token"}
					if result := e.Execute(b.Context(), call, values); result.State != effect.Committed {
						b.Errorf("%s: %s", result.State, result.Error)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "executions/s")
		})
	}
}
