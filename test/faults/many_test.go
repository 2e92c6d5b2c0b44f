package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
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
	executions = flag.Int("executions", 1500, "how many requests are executed, faulted")
	seed       = flag.Uint64("seed", 1, "of everything that is drawn")
)

// maxAttempts at one effect: after Failed, and after nothing else, there is another, as the operator allows it.
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

// attempt is one execution, as it is recorded.
type attempt struct {
	place   place
	token   string
	givenUp bool
	result  executors.Result
}

// TestManyExecutions draws effects. Each has attempts, as long as the one before is recorded Failed, at an endpoint that is drawn;
// some are given up while they run. Then the records are compared with what the provider did: nothing that it did is recorded as
// not executed, no effect happened twice, and nothing is committed that did not happen.
func TestManyExecutions(t *testing.T) {
	p := provider.New(t)
	all := places(t, p)
	var weighted []place
	for _, at := range all {
		for range at.share {
			weighted = append(weighted, at)
		}
	}
	type effectRecord struct {
		key      string
		draw     *rand.Rand
		attempts []attempt
	}
	work := make(chan *effectRecord)
	results := make(chan *effectRecord)
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() {
			for record := range work {
				for n := int64(1); n <= maxAttempts; n++ {
					token, err := effect.Token(record.key, big.NewInt(n))
					if err != nil {
						t.Error(err)
						break
					}
					a := attempt{place: weighted[record.draw.IntN(len(weighted))], token: token}
					ctx, cancel := context.WithCancel(t.Context())
					if record.draw.IntN(40) == 0 {
						time.AfterFunc(time.Duration(record.draw.IntN(3000))*time.Microsecond, cancel)
					}
					a.result = a.place.execute(ctx, token)
					a.givenUp = ctx.Err() != nil
					cancel()
					record.attempts = append(record.attempts, a)
					if a.result.State != effect.Failed {
						break
					}
				}
				results <- record
			}
		})
	}
	begin := time.Now()
	done, effects := 0, 0
	var records []*effectRecord
	for running := 0; done < *executions || running > 0; {
		out := work
		if done >= *executions {
			out = nil
		}
		key := fmt.Sprintf("refund:txn_%d", effects)
		select {
		case out <- &effectRecord{key: key, draw: rand.New(rand.NewPCG(*seed, uint64(effects)))}:
			effects++
			running++
		case record := <-results:
			running--
			done += len(record.attempts)
			records = append(records, record)
		}
	}
	close(work)
	workers.Wait()
	p.Close()
	took := time.Since(begin)

	var never, neverGivenUp, proved, givenUp int
	states := map[effect.State]int{}
	seen := map[string]bool{}
	var acted, duplicates, falseFailed, falseCommitted, starved, late int
	for _, record := range records {
		total := 0
		for _, a := range record.attempts {
			n := p.Executions(a.token)
			total += n
			states[a.result.State]++
			seen[fmt.Sprint(a.place.fault, a.place.secure)] = true
			if a.givenUp {
				givenUp++
			}
			switch {
			case a.result.State == effect.Failed && n > 0:
				falseFailed++
				t.Errorf("%s, TLS %t: Failed (%s), and the provider acted", a.place.fault, a.place.secure, a.result.Error)
			case a.result.State == effect.Committed && n == 0:
				falseCommitted++
				t.Errorf("%s, TLS %t: Committed, and the provider did not act", a.place.fault, a.place.secure)
			case a.givenUp || of(a.place.fault, a.place.secure).settled(a.result.State, a.place.fault):
			case a.result.State == effect.Failed:
				starved++ // a machine that is too busy to connect in time; nothing happened, and that is what is recorded
			case a.result.State != effect.Ambiguous:
				t.Errorf("%s, TLS %t: %s (%s)", a.place.fault, a.place.secure, a.result.State, a.result.Error)
			default:
				late++ // or to answer in time
			}
			if !a.place.fault.NeverConnects(a.place.secure) {
				continue
			}
			never++
			if a.givenUp {
				neverGivenUp++
			}
			if a.result.State == effect.Failed {
				proved++
			}
		}
		acted += total
		if total > 1 {
			duplicates++
			t.Errorf("%s happened %d times", record.key, total)
		}
	}
	if proved*100 < never*95 {
		t.Errorf("%d of %d that never connected were proved, want 95 of 100", proved, never)
	}
	if len(seen) < len(all) && *executions >= 1500 {
		t.Errorf("%d of %d faults were drawn", len(seen), len(all))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d executions of %d effects in %s, %d given up\n", *seed, done, effects, took.Round(time.Millisecond), givenUp)
	fmt.Fprintf(&b, "recorded: %d Committed, %d Failed, %d Ambiguous; the provider acted %d times\n", states[effect.Committed], states[effect.Failed], states[effect.Ambiguous], acted)
	fmt.Fprintf(&b, "Failed although the provider acted: %d; effects that happened twice: %d; Committed although it did not act: %d\n", falseFailed, duplicates, falseCommitted)
	fmt.Fprintf(&b, "never connected: %d, of them proved Failed: %d (%.1f %%), given up while connecting: %d\n", never, proved, 100*float64(proved)/float64(max(never, 1)), neverGivenUp)
	fmt.Fprintf(&b, "for want of time: %d not connected, %d not answered", starved, late)
	t.Log(b.String())
	if (starved+late)*10 > done {
		t.Errorf("%d of %d had no time to be what they should have been; the machine is too busy for this", starved+late, done)
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
