// Command throughput measures what a governed action costs, beside what the apiserver takes for one object in the same run
// on the same control plane. docs/benchmarks.md says how, and what came of it.
//
//	make bench
//	go run ./test/bench/throughput --quick
//	go run ./test/bench/throughput --only governed --operator old=/tmp/old/ctrlrun-operator --operator new=bin/ctrlrun-operator
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ctrlrun.dev/operator/test/testenv"
	"ctrlrun.dev/operator/test/testenv/assets"
)

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	operators   []binary
	clients     []int
	loads       []string
	repetitions int
	phases      phases
	out         string
}

func parse(args []string) (options, error) {
	o := options{clients: []int{1, 16, 64}, loads: []string{allowLoad, approveLoad}}
	f := flag.NewFlagSet("throughput", flag.ContinueOnError)
	f.Func("operator", "an operator to measure: `[NAME=]PATH [ARGS...]`; given twice, they take turns (default bin/ctrlrun-operator)", func(text string) error {
		b, err := parseBinary(text)
		o.operators = append(o.operators, b)
		return err
	})
	f.Func("clients", "how many act at once, `N,N,...` (default 1,16,64)", func(text string) (err error) {
		o.clients, err = numbers(text)
		return err
	})
	f.Func("loads", "what is measured beside the floor: allow, approve, sdk (default allow,approve)", func(text string) error {
		o.loads = strings.Split(text, ",")
		return nil
	})
	f.IntVar(&o.repetitions, "repetitions", 5, "how often each block is measured")
	f.DurationVar(&o.phases.warm, "warm", time.Second, "the beginning of each block, which does not count")
	f.DurationVar(&o.phases.window, "window", 8*time.Second, "how long each block is measured")
	f.StringVar(&o.out, "out", "", "a `file` for everything that was found, as JSON")
	quick := f.Bool("quick", false, "one short repetition")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *quick {
		o.repetitions, o.phases = 1, phases{warm: time.Second, window: 3 * time.Second}
	}
	if len(o.operators) > 0 {
		return o, nil
	}
	root, err := assets.Root()
	if err != nil {
		return o, err
	}
	b, err := parseBinary(filepath.Join(root, "bin", "ctrlrun-operator"))
	o.operators = []binary{b}
	return o, err
}

func numbers(text string) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of clients", word)
		}
		all = append(all, n)
	}
	return all, nil
}

func run(ctx context.Context, o options) (err error) {
	root, err := assets.Root()
	if err != nil {
		return err
	}
	if _, err := assets.Ensure(ctx, root, os.Stderr); err != nil {
		return err
	}
	r := &result{
		Started: time.Now().UTC(), Machine: thisMachine(), Operators: o.operators,
		WarmSeconds: o.phases.warm.Seconds(), WindowSeconds: o.phases.window.Seconds(),
	}
	env, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	s, err := newScene(ctx, env, slices.Max(o.clients))
	if err != nil {
		return err
	}
	if err := s.found(ctx, o.operators[0], r); err != nil {
		return err
	}
	if err := s.visits(ctx, o, r); err != nil {
		return err
	}
	r.Ended = time.Now().UTC()
	show(os.Stdout, r)
	if o.out == "" {
		return nil
	}
	return r.write(o.out)
}
