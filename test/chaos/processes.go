package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ctrlrun.dev/operator/test/testenv"
)

// process is an operator or an agent: a real process that is started again when it has ended, until it is retired.
type process struct {
	name  string
	start func() (*testenv.Process, error)
	ended func() // called when the process has ended, before it is started again

	mu      sync.Mutex
	current *testenv.Process
	starts  int
	retired bool
	done    chan struct{}
}

// supervise starts a process and keeps it running. It returns once it has started.
func supervise(name string, start func() (*testenv.Process, error), ended func()) (*process, error) {
	p := &process{name: name, start: start, ended: ended, done: make(chan struct{})}
	if err := p.run(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.keep()
	return p, nil
}

func (p *process) run() error {
	started, err := p.start()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = started
	p.starts++
	return nil
}

// keep starts the process again whenever it has ended, also by itself: an operator that loses its leader lease does.
func (p *process) keep() {
	defer close(p.done)
	for {
		<-p.now().Done()
		p.ended()
		for again := true; again; again = p.run() != nil {
			time.Sleep(200 * time.Millisecond)
			if p.isRetired() {
				return
			}
		}
	}
}

func (p *process) now() *testenv.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// started is how often the process was started.
func (p *process) started() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

func (p *process) isRetired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

// kill ends the process as it stands (SIGKILL). It will be started again.
func (p *process) kill() error { return p.now().Kill() }

// suspend stops the process as it stands (SIGSTOP), until it is resumed (SIGCONT).
func (p *process) suspend() (resume func(), err error) {
	current := p.now()
	if err := current.Pause(); err != nil {
		return nil, err
	}
	return func() { _ = current.Resume() }, nil // it may have been killed meanwhile
}

// pause is suspend for a time.
func (p *process) pause(d time.Duration) error {
	resume, err := p.suspend()
	if err == nil {
		time.AfterFunc(d, resume)
	}
	return err
}

// stop asks the process to end, and returns when it has, and when one that was being started meanwhile has.
func (p *process) stop() error {
	p.mu.Lock()
	p.retired = true
	p.mu.Unlock()
	var errs []error
	for {
		errs = append(errs, p.now().Stop())
		select {
		case <-p.done:
			return errors.Join(append(errs, p.now().Stop())...)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// operator is one with a connection through the proxy.
type operator struct {
	*process
	mu   sync.Mutex
	args []string
}

// newOperator starts an operator whose connection goes through the proxy.
func (r *run) newOperator(name string, args ...string) (*operator, error) {
	connection, err := r.proxy.Listen(name, r.env.Config(testenv.OperatorUser()))
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(r.env.Dir, name+".kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, connection, name, testenv.SystemNamespace); err != nil {
		return nil, err
	}
	o := &operator{args: args}
	o.process, err = supervise(name, func() (*testenv.Process, error) {
		p, err := r.env.StartOperatorProcess(append([]string{"--kubeconfig=" + kubeconfig, "-v=2"}, o.arguments()...)...)
		if err != nil {
			return nil, err
		}
		return p.Process, nil
	}, func() {})
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (o *operator) arguments() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.args
}

// replace kills the operator and has it started with other arguments.
func (o *operator) replace(args ...string) error {
	o.mu.Lock()
	o.args = args
	o.mu.Unlock()
	return o.kill()
}

// newAgent starts an agent whose connection goes through the proxy.
func (r *run) newAgent(name string, user testenv.User, workers int) (*process, error) {
	connection, err := r.proxy.Listen(name, r.env.Config(user))
	if err != nil {
		return nil, err
	}
	return supervise(name, func() (*testenv.Process, error) {
		return r.env.StartProcess(testenv.Command{Path: r.agentBinary, Args: []string{
			"-name=" + name, "-server=" + connection.Host, "-namespace=" + r.namespace, "-desk=" + r.desk.URL(), fmt.Sprintf("-workers=%d", workers),
		}})
	}, func() { r.desk.Dead(name) })
}

// buildAgent compiles the agent.
func (r *run) buildAgent(ctx context.Context) error {
	r.agentBinary = filepath.Join(r.env.Dir, "agent")
	build, err := r.env.StartProcess(testenv.Command{
		Path: "go", Args: []string{"build", "-o", r.agentBinary, "ctrlrun.dev/operator/test/chaos/agent"},
		Env: []string{"CGO_ENABLED=0"},
	})
	if err != nil {
		return fmt.Errorf("build the agent: %w", err)
	}
	code, err := build.Wait(ctx)
	if err != nil || code != 0 {
		log, _ := os.ReadFile(filepath.Join(r.env.Dir, "go.log"))
		return errors.Join(err, fmt.Errorf("build the agent: exit code %d: %s", code, log))
	}
	return nil
}
