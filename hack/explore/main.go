// Command explore looks at every state of small worlds around the protocol, as kernel/explore describes, and fails with the
// shortest way to a state in which an invariant does not hold.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"ctrlrun.dev/operator/kernel/explore"
)

func main() {
	var (
		options   explore.Options
		names     = flag.String("scenario", "", "the scenarios to explore, by comma; all if it is empty")
		unguarded = flag.String("unguarded", "", "a write that the apiserver takes whatever is there: a fault, to see it found")
		parallel  = flag.Int("parallel", runtime.GOMAXPROCS(0), "how many scenarios are explored at once")
		verbose   = flag.Bool("v", false, "tell each depth")
	)
	flag.IntVar(&options.States, "states", 0, "how many states of each scenario are looked at; 0: as many as the scenario says; negative: no bound")
	flag.IntVar(&options.Depth, "depth", 0, "how many events an order has at most; 0: no bound")
	flag.Parse()
	if *unguarded != "" {
		options.Unguarded = map[string]bool{*unguarded: true}
	}
	scenarios := explore.Scenarios()
	if *names != "" {
		wanted := strings.Split(*names, ",")
		scenarios = slices.DeleteFunc(scenarios, func(s explore.Scenario) bool { return !slices.Contains(wanted, s.Name) })
		if len(scenarios) != len(wanted) {
			fmt.Fprintf(os.Stderr, "explore: %q names a scenario that there is not\n", *names)
			os.Exit(2)
		}
	}
	if *verbose {
		options.Progress = func(r explore.Result) {
			fmt.Printf("  %s: depth %d, %d states, %d snapshots\n", r.Scenario, r.Depth, r.States, r.Asked)
		}
	}
	found, err := run(os.Stdout, scenarios, options, *parallel)
	if err != nil {
		fmt.Fprintf(os.Stderr, "explore: %v\n", err)
		os.Exit(2)
	}
	if found {
		os.Exit(1)
	}
}

// run explores scenarios, several at once, and writes a line for each. It reports whether an invariant did not hold.
func run(w io.Writer, scenarios []explore.Scenario, options explore.Options, parallel int) (found bool, err error) {
	began := time.Now()
	var (
		mu    sync.Mutex
		wait  sync.WaitGroup
		total explore.Result
		bound = options.States
		todo  = make(chan explore.Scenario)
	)
	fmt.Fprintf(w, "%-18s %10s %11s %6s  %-9s %10s %10s %8s\n", "SCENARIO", "STATES", "TRANSITIONS", "DEPTH", "", "RECOVERIES", "SNAPSHOTS", "TIME")
	for range parallel {
		wait.Go(func() {
			for s := range todo {
				own := options
				if bound < 0 {
					s.States, own.States = 0, 0
				}
				if bound > 0 {
					s.States, own.States = 0, bound
				}
				start := time.Now()
				r, failed := explore.Explore(s, own)
				mu.Lock()
				if failed != nil {
					err = failed
				} else {
					line(w, r, time.Since(start))
					total.States, total.Transitions = total.States+r.States, total.Transitions+r.Transitions
					found = found || r.Violation != nil
				}
				mu.Unlock()
				runtime.GC() // a scenario leaves as much as its states need
			}
		})
	}
	for _, s := range scenarios {
		todo <- s
	}
	close(todo)
	wait.Wait()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	fmt.Fprintf(w, "%d states, %d transitions, %s, %d MB at most\n", total.States, total.Transitions, time.Since(began).Round(time.Second/10), memory.Sys>>20)
	return found, err
}

func line(w io.Writer, r explore.Result, took time.Duration) {
	how := "bounded"
	if r.Exhausted {
		how = "exhausted"
	}
	fmt.Fprintf(w, "%-18s %10d %11d %6d  %-9s %10d %10d %8s\n", r.Scenario, r.States, r.Transitions, r.Depth, how, r.Recovered, r.Asked, took.Round(time.Second/10))
	if r.Violation != nil {
		fmt.Fprintf(w, "VIOLATION of %s, at event %d:\n%s\n", r.Violation, r.Depth+1, strings.Join(r.Trace, "\n"))
	}
}
