// Command demo runs five stories on a real Kubernetes API: etcd and kube-apiserver on loopback, config/ installed on them,
// the operator as a process of its own, and people and agents with client certificates and the Roles of config/samples.
//
// What somebody types is what is executed: every line behind a prompt goes to a shell as it is shown, and what is shown
// below it is what came back, wrapped. A fake payment provider counts the calls that really reached it; it carries out every
// one of them, so that nothing but ctrlrun keeps a refund from being paid twice.
//
// It exits with 0 only if every count, state, reason and hash is what it should be.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// timeout is for a machine that is far too busy; a usual run takes half a minute.
const timeout = 5 * time.Minute

func main() {
	// The agent's own program is this binary under another name: Go is all that the demo needs.
	if filepath.Base(os.Args[0]) == refundCommand {
		os.Exit(refund())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctrllog.SetLogger(klog.Background())
	if !run(ctx) {
		stop()
		os.Exit(1)
	}
}

// run plays everything and reports whether all of it was as it should be.
func run(ctx context.Context) bool {
	d := &demo{screen: newScreen(os.Stdout), started: time.Now()}
	err := d.play(ctx)
	if ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("it was interrupted, or took more than %s", timeout), err)
	}
	if d.stage.operatorEnded() {
		err = errors.Join(errors.New("the operator ended by itself"), err)
	}
	good := err == nil && len(d.failures) == 0
	stopErr := d.close(good)
	d.say("")
	switch {
	case err != nil:
		d.say("%s", d.red("FAILED: "+err.Error()))
	case stopErr != nil:
		d.say("%s", d.red("FAILED to stop: "+stopErr.Error()))
	case good:
		d.say("%s", d.bold(fmt.Sprintf("All %d expectations hold. %.0f seconds.", d.held, time.Since(d.started).Seconds())))
		return true
	}
	for _, failure := range d.failures {
		d.say("%s", d.red("FAILED: "+failure))
	}
	d.say("The logs of etcd, kube-apiserver and the operator are in %s", d.dir)
	return false
}

// demo is one run.
type demo struct {
	*screen
	*stage
	started time.Time
	// dir holds everything this run writes. It is kept if something failed.
	dir      string
	held     int
	failures []string
}

func (d *demo) play(ctx context.Context) error {
	d.introduce()
	var err error
	if d.dir, err = os.MkdirTemp("", "ctrlrun-demo-"); err != nil {
		return err
	}
	if d.stage, err = d.setUp(ctx); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	for i, story := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{"The reply that got lost", d.lostReply},
		{"2,000 approved, 5,000 attempted", d.changedAmount},
		{"A race for one refund", d.race},
		{"An approval used twice", d.replayedApproval},
		{"Authority escalation", d.escalation},
	} {
		d.heading(fmt.Sprintf("%d. %s", i+1, story.title))
		if err := story.tell(ctx); err != nil {
			return fmt.Errorf("story %d, %s: %w", i+1, story.title, err)
		}
	}
	d.heading("The proof")
	if err := d.proof(ctx); err != nil {
		return fmt.Errorf("the proof: %w", err)
	}
	return nil
}

func (d *demo) heading(title string) {
	elapsed := fmt.Sprintf("%.0f s", time.Since(d.started).Seconds())
	d.say("")
	d.say("")
	d.say("%s%s", d.bold(title), strings.Repeat(" ", max(1, columns-len(title)-len(elapsed)))+elapsed)
	d.say("%s", d.bold(strings.Repeat("=", columns)))
}

// close stops what was started. What was written is removed after a good run only.
func (d *demo) close(good bool) error {
	if d.dir == "" {
		return nil
	}
	err := d.stage.stop()
	if good && err == nil {
		err = os.RemoveAll(d.dir)
	}
	return err
}

// expect notes whether something is as it should be. The stories go on after a difference: what comes later often explains it.
func expect[T comparable](d *demo, what string, got, want T) {
	if got == want {
		d.held++
		d.say("  %s  %s", d.green("ok     "), what)
		return
	}
	failure := fmt.Sprintf("%s: got %#v, want %#v", what, got, want)
	d.failures = append(d.failures, failure)
	d.say("  %s  %s", d.red("FAILED "), failure)
}
