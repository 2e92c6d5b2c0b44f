package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"ctrlrun.dev/operator/test/testenv"
)

// person is somebody at a prompt, human or not, with a certificate and Roles.
type person struct {
	d          *demo
	name       string
	user       testenv.User
	kubeconfig string
}

// result is how a command ended.
type result struct {
	code   int
	output string
}

// commandTimeout is for a command that hangs: none takes more than a few seconds on an idle machine.
const commandTimeout = 2 * time.Minute

// types runs a command line in a shell and shows both it and what it prints.
func (p *person) types(ctx context.Context, format string, args ...any) (result, error) {
	command := fmt.Sprintf(format, args...)
	p.prompt(command)
	r, err := p.run(ctx, command)
	if err != nil {
		return r, err
	}
	p.show(r)
	return r, nil
}

// typesForTable is types for a command that prints a table, of which some columns are not shown.
func (p *person) typesForTable(ctx context.Context, command string, without ...string) error {
	p.prompt(command)
	r, err := p.run(ctx, command)
	if err != nil {
		return err
	}
	if r.code != 0 {
		p.show(r)
		return fmt.Errorf("%s: exit code %d", command, r.code)
	}
	p.d.table(r.output, without...)
	return nil
}

// typesLong is types for a command that prints what was shown before: it shows only the last lines.
func (p *person) typesLong(ctx context.Context, last int, format string, args ...any) (result, error) {
	command := fmt.Sprintf(format, args...)
	p.prompt(command)
	r, err := p.run(ctx, command)
	if err != nil {
		return r, err
	}
	shown := r
	lines := strings.Split(strings.TrimRight(r.output, "\n"), "\n")
	if len(lines) > last {
		shown.output = strings.Join(append([]string{"[...]"}, lines[len(lines)-last:]...), "\n")
	}
	p.show(shown)
	return r, nil
}

// run runs a command line without showing it.
func (p *person) run(ctx context.Context, command string) (result, error) {
	return p.start(ctx, command).wait()
}

// job is a command that runs while others do something.
type job struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	output bytes.Buffer
	done   chan struct{}
	err    error // of Start or Wait; read after done is closed
}

// start begins a command line and shows nothing.
func (p *person) start(ctx context.Context, command string) *job {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	j := &job{cmd: exec.CommandContext(ctx, "sh", "-c", command), cancel: cancel, done: make(chan struct{})}
	j.cmd.Dir = p.d.work
	j.cmd.Env = append(os.Environ(),
		"PATH="+p.d.bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"KUBECONFIG="+p.kubeconfig,
		"KUBECACHEDIR="+p.d.cache, // the home directory is none of the demo's business
		providerURL+"="+p.d.provider.url,
	)
	j.cmd.Stdout, j.cmd.Stderr = &j.output, &j.output
	// A group of its own: to end it is to end what the shell started too.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.Cancel = func() error { return syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) }
	p.d.jobs = append(p.d.jobs, j)
	j.err = j.cmd.Start()
	if j.err != nil {
		close(j.done)
		return j
	}
	go func() {
		j.err = j.cmd.Wait()
		close(j.done)
	}()
	return j
}

// stop ends the command if it still runs.
func (j *job) stop() {
	j.cancel()
	<-j.done
}

// ended says whether the command is over.
func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func (j *job) wait() (result, error) {
	<-j.done
	j.cancel()
	var exited *exec.ExitError
	if j.err != nil && !errors.As(j.err, &exited) {
		return result{}, fmt.Errorf("%s: %w", j.cmd.Args[2], j.err)
	}
	r := result{code: j.cmd.ProcessState.ExitCode(), output: j.output.String()}
	if r.code < 0 {
		return r, fmt.Errorf("%s was ended: %w: %s", j.cmd.Args[2], j.err, r.output)
	}
	return r, nil
}

func (p *person) prompt(command string) {
	p.d.say("")
	for i, l := range strings.Split(command, "\n") {
		if i == 0 {
			p.d.say("%s", p.d.cyan(p.name+" $ ")+p.d.bold(l))
			continue
		}
		p.d.say("%s", p.d.bold(strings.Repeat(" ", len(p.name)+5)+strings.TrimLeft(l, " ")))
	}
}

// show writes what a command printed, and its exit code if that says something.
func (p *person) show(r result) {
	p.d.answer(r.output)
	if r.code != 0 {
		p.d.say("    [exit %d]", r.code)
	}
}
