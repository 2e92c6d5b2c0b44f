package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// Runnable is what an operator is to this package, which does not know the controllers: a manager is one.
type Runnable interface {
	Start(ctx context.Context) error
}

// Builder makes an operator that talks to the apiserver by the given connection.
type Builder func(cfg *rest.Config) (Runnable, error)

// Operator is an operator that runs in this process.
type Operator struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Start; read after done is closed
}

// StartOperator builds an operator as OperatorUser and runs it. Any number may run at once.
func (e *Environment) StartOperator(build Builder) (*Operator, error) {
	r, err := build(e.Config(OperatorUser()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &Operator{cancel: cancel, done: make(chan struct{})}
	go func() {
		o.err = r.Start(ctx)
		close(o.done)
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.operators = append(e.operators, o)
	return o, nil
}

// Done is closed when the operator has ended, whether or not it was asked to.
func (o *Operator) Done() <-chan struct{} { return o.done }

// Stop ends the operator gracefully and returns the error it ended with. It can be called twice.
func (o *Operator) Stop() error {
	o.cancel()
	select {
	case <-o.done:
		return o.err
	case <-time.After(stopTimeout):
		return fmt.Errorf("the operator did not end within %s", stopTimeout)
	}
}

// OperatorBinary is where `make build` puts the operator.
func (e *Environment) OperatorBinary() string {
	return filepath.Join(e.Root, "bin", "ctrlrun-operator")
}

// OperatorLog is the end of what processes of that binary have logged, all of them in one file.
func (e *Environment) OperatorLog() (string, error) {
	const enough = 20_000
	log, err := os.ReadFile(filepath.Join(e.Dir, filepath.Base(e.OperatorBinary())+".log"))
	return string(log[max(0, len(log)-enough):]), err
}

// OperatorProcess is the operator's binary as a process of its own.
type OperatorProcess struct {
	*Process
	// Ready is the URL of the readiness probe, Metrics that of the metrics.
	Ready, Metrics string
}

// StartOperatorProcess runs the operator's binary as OperatorUser, listening on free ports of the loopback interface. It
// returns at once; see WaitReady. Further arguments come last, so they win.
func (e *Environment) StartOperatorProcess(args ...string) (*OperatorProcess, error) {
	probes, err := freePort()
	if err != nil {
		return nil, err
	}
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	p, err := e.StartProcess(Command{
		Path: e.OperatorBinary(),
		Args: append([]string{
			"--kubeconfig=" + e.Kubeconfig(OperatorUser()),
			"--namespace=" + SystemNamespace,
			"--health-probe-bind-address=" + probes,
			"--metrics-bind-address=" + metrics,
		}, args...),
	})
	if err != nil {
		return nil, fmt.Errorf("%w; `make build` puts it there", err)
	}
	return &OperatorProcess{Process: p, Ready: "http://" + probes + "/readyz", Metrics: "http://" + metrics + "/metrics"}, nil
}

// WaitReady returns when the operator says that it is ready: its caches are filled and its admission policies enforced. It
// fails at once if the process ends.
func (o *OperatorProcess) WaitReady(ctx context.Context) error {
	c := &http.Client{Timeout: 2 * time.Second}
	// Each refusal is a line in the operator's log.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("no answer yet")
	for {
		err := ask(ctx, c, o.Ready+"?verbose")
		if err == nil {
			return nil
		}
		// When ctx ends, what is worth telling is the answer before, not that the request was cancelled.
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-o.Done():
			return fmt.Errorf("the operator ended before it was ready: %w", errors.Join(o.err, last))
		case <-ctx.Done():
			return fmt.Errorf("the operator is not ready: %w: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

func ask(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() // it was only read
	if res.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1024))
	return fmt.Errorf("%s answers %s: %s", url, res.Status, bytes.TrimSpace(body))
}

// freePort returns a loopback address nobody listens on now. The operator cannot be told to pick one and say which.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
