package verify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"ctrlrun.dev/operator/client"
)

// remote stands for the system that an action acts on. It is a directory, and each call is a file in it that was created
// exclusively, so that two calls never count as one, whichever processes make them.
type remote struct{ dir string }

func newRemote(parent, name string) (*remote, error) {
	r := &remote{dir: filepath.Join(parent, name)}
	return r, os.Mkdir(r.dir, 0o700)
}

// call is one execution.
func (r *remote) call() error {
	name := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	f, err := os.OpenFile(filepath.Join(r.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// calls is how many there were.
func (r *remote) calls() (int, error) {
	entries, err := os.ReadDir(r.dir)
	return len(entries), err
}

// End is how a command that executes an action ends.
type End string

const (
	// Commit: it acts and exits 0.
	Commit End = "commit"
	// Timeout: it acts, and exits like timeout(1) does when the time is over.
	Timeout End = "timeout"
	// Crash: it acts, and exits with a code that says nothing.
	Crash End = "error"
	// Signal: it acts, and is killed.
	Signal End = "signal"
	// NotExecuted: it does not act, and says so by the one exit code that means it.
	NotExecuted End = "not-executed"
)

// Exit codes of the command. That of NotExecuted is the one that `run --not-executed-exit` is told.
const (
	timeoutExit     = 124
	crashExit       = 1
	notExecutedExit = 75
)

// Execute is what the hidden command does: it calls the remote in dir, and ends as it is told to. It gives its exit code.
func Execute(dir string, end End) (int, error) {
	if end == NotExecuted {
		return notExecutedExit, nil
	}
	if err := (&remote{dir: dir}).call(); err != nil {
		return notExecutedExit, err
	}
	switch end {
	case Commit:
		return 0, nil
	case Timeout:
		return timeoutExit, nil
	case Signal:
		return crashExit, errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("SIGKILL did not end the process"))
	}
	return crashExit, nil
}

// command is an executor that runs the hidden command, by the code that `kubectl ctrlrun run` executes commands with: how the
// command ended is what is reported.
func (s *stage) command(r *remote, end End) (client.Function, error) {
	return s.run.Command(notExecutedExit, []string{s.run.Executable, "verify", "execute", r.dir, string(end)})
}

// remoteFor is a new remote of this scenario.
func (s *stage) remoteFor(part string) (*remote, error) {
	return newRemote(s.run.dir, string(s.plan.Guarantee.ID)+"-"+part)
}

// ParseEnd reads an End.
func ParseEnd(text string) (End, error) {
	for _, end := range []End{Commit, Timeout, Crash, Signal, NotExecuted} {
		if text == string(end) {
			return end, nil
		}
	}
	return "", errors.New(strconv.Quote(text) + " is not how a command ends")
}
