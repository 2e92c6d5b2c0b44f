// Command throughput measures what a governed action costs, beside what the apiserver takes for one object in the same run
// on the same control plane. docs/benchmarks.md says how, and what came of it.
//
//	make bench
//	make bench ARGS=--quick
//	make bench ARGS="--only governed --operator 'old=../old/bin/ctrlrun-operator manifests=../old/config/local' --operator new=bin/ctrlrun-operator"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"ctrlrun.dev/operator/test/testenv"
	"ctrlrun.dev/operator/test/testenv/assets"
)

func main() {
	log.SetLogger(logr.Discard()) // of the clients, which are many; what goes wrong is an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	root, err := assets.Root()
	if err != nil {
		return err
	}
	o, err := parse(args, root, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	spec, err := readRanges(o.ranges)
	if err != nil {
		return err
	}
	if _, err := assets.Ensure(ctx, root, os.Stderr); err != nil {
		return err
	}
	r := newResult(o)
	if err := measure(ctx, o, r); err != nil {
		return err
	}
	r.Ended = time.Now().UTC()
	r.conclude()
	show(os.Stdout, r)
	if o.out != "" {
		if err := r.write(o.out); err != nil {
			return err
		}
	}
	if o.record != "" {
		return r.record(o.record, o.ranges, spec)
	}
	return spec.check(os.Stdout, r)
}

// Sections of a run.
const (
	governedSection = "governed"
	restartSection  = "restart"
	kernelSection   = "kernel"
)

// options of a run.
type options struct {
	operators   []binary
	clients     []int
	loads       []string
	existing    []int
	inFlight    int
	repetitions int
	phases      phases
	sections    []string
	profiles    string
	out         string
	ranges      string
	record      string
}

// some of the sections are measured.
func (o options) measures(section string) bool { return slices.Contains(o.sections, section) }

// parse reads the flags; help and what is wrong with them goes to out.
func parse(args []string, root string, out io.Writer) (options, error) {
	o := options{
		clients: []int{1, 16, 64}, existing: []int{0, 10_000, 50_000}, inFlight: 5_000,
		loads: []string{allowLoad, approveLoad, sdkLoad}, repetitions: 3, phases: phases{warm: time.Second, window: 6 * time.Second},
		sections: []string{governedSection, restartSection, kernelSection},
	}
	f := flag.NewFlagSet("throughput", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolFunc("quick", "one short repetition on an empty cluster, a minute or two; what is given after it wins", func(string) error {
		o.repetitions, o.phases, o.existing, o.inFlight = 1, phases{warm: time.Second, window: 3 * time.Second}, []int{0}, 200
		o.loads = []string{allowLoad, approveLoad}
		return nil
	})
	f.Func("operator", "an operator to measure: `[NAME=]PATH [manifests=DIR] [ARGS...]`; given more than once, they take turns (default bin/ctrlrun-operator)", func(text string) error {
		b, err := parseBinary(text, root)
		o.operators = append(o.operators, b)
		return err
	})
	f.Func("only", "measure only `SECTIONS`: governed, restart, kernel", words(&o.sections, governedSection, restartSection, kernelSection))
	f.Func("loads", "what is measured beside raw creates: `LOADS` of allow, approve, sdk", words(&o.loads, allowLoad, approveLoad, sdkLoad))
	f.Func("clients", "how many act at once: `N,N,...` (default 1,16,64)", numbers(&o.clients, 1))
	f.Func("existing", "how many finished actions the cluster has before: `N,N,...` (default 0,10000,50000)", numbers(&o.existing, 0))
	f.IntVar(&o.inFlight, "in-flight", o.inFlight, "how many admitted actions an operator takes up when it starts")
	f.IntVar(&o.repetitions, "repetitions", o.repetitions, "how often each block is measured")
	f.DurationVar(&o.phases.warm, "warm", o.phases.warm, "the beginning of each block, which does not count")
	f.DurationVar(&o.phases.window, "window", o.phases.window, "how long each block is measured")
	f.StringVar(&o.profiles, "profiles", "", "a `directory` for CPU profiles of kube-apiserver, one for each governed block")
	f.StringVar(&o.out, "out", "", "a `file` for everything that was found, as JSON")
	f.StringVar(&o.ranges, "ranges", "", "the `file` of the ranges that figures have to be in (default docs/benchmarks/ranges.yaml)")
	f.StringVar(&o.record, "record", "", "write results, curves and what was found of each range to this `directory` instead of checking the ranges")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is no flag: what runs is said by flags alone", f.Arg(0))
	case o.repetitions < 1, o.inFlight < 1, o.phases.window <= 0, o.phases.warm < 0:
		return o, errors.New("repetitions, in-flight and window have to be above 0")
	}
	if o.ranges == "" {
		o.ranges = filepath.Join(root, "docs", "benchmarks", "ranges.yaml")
	}
	if len(o.operators) == 0 {
		b, err := parseBinary(filepath.Join(root, "bin", "ctrlrun-operator"), root)
		if err != nil {
			return o, err
		}
		o.operators = []binary{b}
	}
	names := map[string]bool{}
	for _, b := range o.operators {
		if names[b.Name] {
			return o, fmt.Errorf("two operators are called %s: give each a name, NAME=PATH", b.Name)
		}
		names[b.Name] = true
	}
	return o, nil
}

// flags are those that say what is measured, as parse reads them. Operators are in the result by themselves, and where files
// lie says nothing to anybody else.
func (o options) flags() []string {
	flags := []string{
		"--only=" + strings.Join(o.sections, ","), "--loads=" + strings.Join(o.loads, ","),
		"--clients=" + strings.Join(texts(o.clients), ","), "--existing=" + strings.Join(texts(o.existing), ","),
		"--in-flight=" + strconv.Itoa(o.inFlight), "--repetitions=" + strconv.Itoa(o.repetitions),
		"--warm=" + o.phases.warm.String(), "--window=" + o.phases.window.String(),
	}
	if o.profiles != "" {
		flags = append(flags, "--profiles="+filepath.Base(o.profiles)) // profiling takes time, too
	}
	return flags
}

// words reads a list of some of the given ones.
func words(into *[]string, of ...string) func(string) error {
	return func(text string) error {
		*into = strings.Split(text, ",")
		for _, word := range *into {
			if !slices.Contains(of, word) {
				return fmt.Errorf("%q is none of %s", word, strings.Join(of, ", "))
			}
		}
		return nil
	}
}

// numbers reads a list, and sorts it.
func numbers(into *[]int, least int) func(string) error {
	return func(text string) error {
		*into = nil
		for word := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < least {
				return fmt.Errorf("%q is no number from %d on", word, least)
			}
			*into = append(*into, n)
		}
		slices.Sort(*into)
		*into = slices.Compact(*into)
		return nil
	}
}

// progress tells whoever waits what was found just now.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func measure(ctx context.Context, o options, r *result) (err error) {
	if o.measures(kernelSection) {
		if r.Kernel, err = kernelTimings(); err != nil {
			return err
		}
	}
	if !o.measures(governedSection) && !o.measures(restartSection) {
		return nil
	}
	dir, err := bare()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	env, err := testenv.Start(ctx, testenv.Options{Manifests: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	s, err := newScene(ctx, env, slices.Max(o.clients))
	if err != nil {
		return err
	}
	if o.profiles != "" {
		if s.profiler, err = newProfiler(ctx, env, o.profiles); err != nil {
			return err
		}
	}
	from, err := s.clusters(ctx, o, r)
	if err != nil {
		return err
	}
	if o.measures(governedSection) {
		if err := s.visits(ctx, o, from, r); err != nil {
			return err
		}
	}
	if o.measures(restartSection) {
		return s.restarts(ctx, o, from, r)
	}
	return nil
}
