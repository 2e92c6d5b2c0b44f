package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

const commandHelp = `CMD gets the canonical arguments, exactly what was hashed and approved, on stdin, and in its environment

  CTRLRUN_IDEMPOTENCY_TOKEN   the token of this attempt: send it along, so that a repeated request executes once
  CTRLRUN_ACTION, CTRLRUN_EFFECT_KEY, CTRLRUN_ATTEMPT, CTRLRUN_LEASE_SECONDS

How it ends is what is reported: exit code 0 is committed; the code of --not-executed-exit, if you give one, states that for
certain nothing happened; every other code, and a signal, is unknown, and a person resolves the effect. Its output passes
through; --record-output also keeps it in the Outcome, if it is JSON.`

// maxRecorded bounds how much output is kept in memory for --record-output; an Outcome holds 16 KiB.
const maxRecorded = 64 << 10

// running are the flags of the commands that execute.
type running struct {
	notExecuted  int
	recordOutput bool
	timeout      time.Duration
}

func (r *running) addTo(cmd *cobra.Command) {
	cmd.Flags().IntVar(&r.notExecuted, "not-executed-exit", 0, "the one exit code of CMD that states that nothing happened")
	cmd.Flags().BoolVar(&r.recordOutput, "record-output", false, "keep CMD's output in the Outcome, if it is JSON")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 15*time.Minute, "how long to wait for the permission to execute")
}

func (r *running) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("not-executed-exit") && (r.notExecuted < 1 || r.notExecuted > 255) {
		return exit.Errorf(exit.Usage, "--not-executed-exit is from 1 to 255: 0 is committed")
	}
	return nil
}

// command runs CMD once and judges how it ended.
type command struct {
	app     *app
	running *running
	path    string
	args    []string
}

// newCommand looks CMD up before anything is proposed: a command that is not there must not become an action.
func (a *app) newCommand(r *running, words []string) (*command, error) {
	if len(words) == 0 {
		return nil, exit.Errorf(exit.Usage, "name the command to execute after --")
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil, usage(err)
	}
	return &command{app: a, running: r, path: path, args: words[1:]}, nil
}

// execute is a client.Function. The child is never killed by us: a process that may have acted is left to say how it
// ended, and an interruption is passed on to it.
func (c *command) execute(_ context.Context, x client.Execution) (any, error) {
	child := exec.Command(c.path, c.args...)
	child.Stdin = bytes.NewReader(x.CanonicalArguments)
	child.Stderr = c.app.streams.ErrOut
	recorded := &limitedBuffer{limit: maxRecorded}
	child.Stdout = c.app.streams.Out
	if c.running.recordOutput {
		child.Stdout = io.MultiWriter(c.app.streams.Out, recorded)
	}
	child.Env = append(os.Environ(), environment(x)...)
	if err := child.Start(); err != nil {
		return nil, client.NotExecuted(fmt.Errorf("the command could not be started: %w", err))
	}
	stop := forwardSignals(child.Process)
	defer stop()
	lease := time.AfterFunc(x.LeaseRemaining, func() {
		c.app.note("the lease of action %s is over: unless a report comes at once, its effect becomes Ambiguous", x.Action.Name)
	})
	defer lease.Stop()
	err := c.judge(child.Wait())
	if c.running.recordOutput && !recorded.overflowed {
		return json.RawMessage(recorded.Bytes()), err
	}
	return nil, err
}

func environment(x client.Execution) []string {
	env := []string{
		"CTRLRUN_IDEMPOTENCY_TOKEN=" + x.Token,
		"CTRLRUN_ACTION=" + x.Action.Name,
		"CTRLRUN_LEASE_SECONDS=" + strconv.Itoa(int(x.LeaseRemaining/time.Second)),
	}
	if effect := x.Action.Status.Effect; effect != nil {
		env = append(env, "CTRLRUN_EFFECT_KEY="+effect.Key, "CTRLRUN_ATTEMPT="+strconv.FormatInt(effect.Attempt, 10))
	}
	return env
}

// judge says what an exit means. Only two exits are certain.
func (c *command) judge(err error) error {
	if err == nil {
		return nil
	}
	var exited *exec.ExitError
	if !errors.As(err, &exited) {
		return err
	}
	if status, ok := exited.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return errors.New("the command was ended by the signal " + status.Signal().String())
	}
	code := exited.ExitCode()
	if c.running.notExecuted != 0 && code == c.running.notExecuted {
		return client.NotExecuted(fmt.Errorf("the command exited with %d, which states that nothing happened", code))
	}
	return fmt.Errorf("the command exited with %d", code)
}

// forwardSignals passes SIGTERM on to the child. SIGINT from a terminal reaches the child by itself; this process only must
// not die of it before it has reported.
func forwardSignals(child *os.Process) (stop func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGTERM {
					_ = child.Signal(s)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// limitedBuffer keeps the beginning of what is written to it, and never fails the writer.
type limitedBuffer struct {
	bytes.Buffer
	limit      int
	overflowed bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		b.overflowed = true
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// narrate tells a person on stderr how a call goes on.
func (a *app) narrate() client.Progress {
	return func(stage client.Stage, action *actionObject) {
		switch stage {
		case client.StageProposed:
			a.note("proposed %s", action.Name)
		case client.StageSilent:
			a.note("%s", silentNote)
		case client.StageClaimed:
			a.note("claimed %s", action.Name)
		case client.StageReported:
			a.note("reported %s", action.Name)
		case client.StageState:
			a.note("%s", oneLine(stateLine(action)))
		}
	}
}

func stateLine(action *actionObject) string {
	text := fmt.Sprintf("%s is %s", action.Name, action.Status.State)
	if action.Status.Reason != "" {
		text += ", " + action.Status.Reason
	}
	if action.Status.Message != "" && !action.Status.State.Terminal() {
		text += ": " + action.Status.Message
	}
	return text
}
