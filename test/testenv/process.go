package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a process or an operator may take to stop when asked to.
const stopTimeout = 30 * time.Second

// Command says what to run as a process of its own.
type Command struct {
	Path string
	Args []string
	// Env is added to this process's environment.
	Env []string
	// Stdin may be nil.
	Stdin io.Reader
	// Output takes stdout and stderr. Default: a file in Dir, named after the binary.
	Output io.Writer
}

// Process is a running process that the environment stops if nobody else does.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done is closed

	mu     sync.Mutex
	paused bool
}

// StartProcess starts a process in a process group of its own, so that a Ctrl-C in the terminal reaches this program and
// not its children: they are stopped in order.
func (e *Environment) StartProcess(c Command) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdin = c.Stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output := c.Output
	if output == nil {
		f, err := os.OpenFile(filepath.Join(e.Dir, filepath.Base(c.Path)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		defer f.Close() // the child has its own descriptor
		output = f
	}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.processes = append(e.processes, p)
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end and returns the exit code, -1 after a signal.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Pause stops the process as it stands (SIGSTOP), as a long garbage collection or a suspended machine would.
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

// Resume lets a paused process go on.
func (p *Process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// Kill ends the process without giving it a chance to clean up (SIGKILL), and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Stop asks the process to end (SIGTERM) and returns when it has. One that does not end in time is killed, which is an
// error; one that has ended already is none.
func (p *Process) Stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if paused {
		if err := p.Resume(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.cmd.Path, stopTimeout), p.Kill())
	}
}
