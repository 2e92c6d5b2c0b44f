// Command soak keeps the operator busy for a while with agents whose executions go wrong in every way there is, and asks one
// question: does an effect become Ambiguous that nobody made so?
//
//	make soak MINUTES=20
//
// It runs a real etcd and kube-apiserver, the built operator as a process, four agents with a client and an identity each, a
// remote that counts what it is made to do, somebody who approves, and somebody on call who resolves what is Ambiguous. See
// README.md for what is counted, and what that shows.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/test/testenv"
	"ctrlrun.dev/operator/test/testenv/assets"
)

func main() {
	minutes := flag.Float64("minutes", 20, "for how long agents begin actions")
	rate := flag.Int("rate", 20, "how many actions are begun a second, at most")
	keep := flag.Duration("keep", time.Minute, "for how long finished actions are kept")
	seed := flag.Uint64("seed", 1, "the order in which executions go wrong")
	out := flag.String("out", "", "also write the report to this file, as JSON")
	flag.Parse()
	o := options{duration: time.Duration(*minutes * float64(time.Minute)), rate: *rate, keep: *keep, seed: *seed, progress: os.Stderr}
	if err := o.check(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig()))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *out); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (o options) check() error {
	switch {
	case o.duration <= 0:
		return errors.New("--minutes must be more than 0")
	case o.rate <= 0:
		return errors.New("--rate must be more than 0")
	case o.keep < 10*time.Second:
		return errors.New("--keep must be at least 10s: an agent has to see how its action ended")
	}
	return nil
}

// errNotMet says what the report says in more words.
var errNotMet = errors.New("the exit criterion is not met")

func run(ctx context.Context, o options, out string) (err error) {
	root, err := assets.Root()
	if err != nil {
		return err
	}
	if _, err := assets.Ensure(ctx, root, os.Stderr); err != nil {
		return err
	}
	env, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	r, err := soak(ctx, env, o)
	if err != nil {
		log, _ := env.OperatorLog() // without it the error has to do
		return fmt.Errorf("%w\nthe end of the operator's log:\n%s", err, log)
	}
	if err := r.print(os.Stdout); err != nil {
		return err
	}
	if err := r.write(out); err != nil {
		return err
	}
	if r.GoroutinesVerdict == growing {
		return errors.New("the operator's goroutines grew")
	}
	if !r.ExitCriterionMet {
		return errNotMet
	}
	return nil
}

// write writes the report as JSON, if it is to be written.
func (r report) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
