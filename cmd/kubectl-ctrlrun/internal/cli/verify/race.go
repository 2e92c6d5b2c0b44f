package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/guarantees"
)

// Entry is what a process that takes part in a race is told, on its stdin, so that the token is in no argument and no file.
type Entry struct {
	Server    string               `json:"server"`
	TLS       rest.TLSClientConfig `json:"tls"`
	Proxy     string               `json:"proxy,omitempty"`
	Token     string               `json:"token"`
	Namespace string               `json:"namespace"`
	// Action to claim and execute.
	Action string `json:"action"`
	// Remote is the directory that stands for the system acted on.
	Remote string `json:"remote"`
}

// Finish is how the process ended.
type Finish struct {
	PID      int    `json:"pid"`
	Action   string `json:"action"`
	Executed bool   `json:"executed"`
	Error    string `json:"error,omitempty"`
}

// ready is the line by which a process says that it is at the start.
const ready = "ready"

// Contend is what the hidden command does: it reads its Entry, says that it is ready, and at the next line claims the action,
// executes it if it is admitted, and reports.
func Contend(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	var entry Entry
	if err := json.Unmarshal(text, &entry); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	config := &rest.Config{Host: entry.Server, TLSClientConfig: entry.TLS, BearerToken: entry.Token, UserAgent: "kubectl-ctrlrun-verify"}
	if entry.Proxy != "" {
		proxy, err := url.Parse(entry.Proxy)
		if err != nil {
			return fmt.Errorf("the proxy of the cluster: %w", err)
		}
		config.Proxy = http.ProxyURL(proxy)
	}
	c, err := client.New(config, entry.Namespace)
	if err != nil {
		return err
	}
	// Everything that takes time is done before the start.
	call, err := c.Attach(ctx, entry.Action, "")
	if err != nil {
		return err
	}
	if _, err := c.Whoami(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, ready)
	if _, err := lines.ReadBytes('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	finish := Finish{PID: os.Getpid(), Action: entry.Action}
	_, err = call.Execute(ctx, func(context.Context, client.Execution) (any, error) {
		finish.Executed = true
		if err := (&remote{dir: entry.Remote}).call(); err != nil {
			return nil, client.NotExecuted(err)
		}
		return nil, nil
	})
	var ended *client.EndedError
	if err != nil && !errors.As(err, &ended) {
		finish.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(finish)
}

// oneWinner: G4. Processes that all may execute ask for one effect at the same moment, and one of them gets it.
func oneWinner(ctx context.Context, s *stage) (any, error) {
	one, err := s.race(ctx, "one", func(int) guarantees.Vector { return s.plan.Vectors[0] })
	if err != nil {
		return nil, err
	}
	if err := s.calls(one.remote, 1, "the effect"); err != nil {
		return nil, err
	}
	committed, refused := one.tally()
	expected := fmt.Sprintf("of %d processes 1 commits and %d are refused", guarantees.Processes, guarantees.Processes-1)
	if committed != 1 || refused != guarantees.Processes-1 {
		return nil, s.fail(expected, "%d commit and %d are refused", committed, refused)
	}
	for _, o := range one.ends {
		state, reason, result := v1alpha1.ActionCommitted, decision.Reason(""), decision.Committed
		if o.Status.State == v1alpha1.ActionBlocked {
			state, reason, result = v1alpha1.ActionBlocked, decision.Reason(o.Status.Reason), decision.Blocked
		}
		if err := s.ends(ctx, o, state, reason, result); err != nil {
			return nil, err
		}
	}
	s.control = true
	many, err := s.race(ctx, "many", func(i int) guarantees.Vector { return s.plan.Vectors[1+i] })
	if err != nil {
		return nil, err
	}
	if committed, _ := many.tally(); committed != guarantees.Processes {
		return nil, s.fail(fmt.Sprintf("%d processes with a key each all commit", guarantees.Processes), "%d commit", committed)
	}
	if err := s.calls(many.remote, guarantees.Processes, "each effect once"); err != nil {
		return nil, err
	}
	return map[string]any{"processes": guarantees.Processes}, nil
}

// heat is one race: how each action ended.
type heat struct {
	remote *remote
	ends   []*v1alpha1.Action
}

// tally counts who committed, and who was refused because of the effect.
func (h *heat) tally() (committed, refused int) {
	for _, o := range h.ends {
		switch {
		case o.Status.State == v1alpha1.ActionCommitted:
			committed++
		case o.Status.State == v1alpha1.ActionBlocked && decision.Reason(o.Status.Reason).OfReservation():
			refused++
		}
	}
	return committed, refused
}

// race proposes an action for each process, lets people approve them if they are asked, and starts the processes when every one of
// them only has to claim its action.
func (s *stage) race(ctx context.Context, part string, vector func(i int) guarantees.Vector) (*heat, error) {
	r, err := s.remoteFor(part)
	if err != nil {
		return nil, err
	}
	before := s.control
	s.control = true // that all of them may claim
	var names []string
	for i := range guarantees.Processes {
		req := s.request(fmt.Sprintf("%s-%d", part, i+1), vector(i))
		req.Unclaimed = true
		call, err := s.agent.Propose(ctx, req)
		if err != nil {
			return nil, err
		}
		names = append(names, call.Action().Name)
	}
	for i, name := range names {
		if err := s.settle(ctx, name, vector(i)); err != nil {
			return nil, err
		}
		_, err := s.await(ctx, name, "it waits for a process", func(o *v1alpha1.Action) bool { return o.Status.State == v1alpha1.ActionClaimable })
		if err != nil {
			return nil, err
		}
	}
	s.control = before
	if err := s.contend(ctx, r, names); err != nil {
		return nil, err
	}
	h := &heat{remote: r}
	for _, name := range names {
		o, err := s.over(ctx, name)
		if err != nil {
			return nil, err
		}
		h.ends = append(h.ends, o)
	}
	return h, nil
}

// contend runs a process for each action and checks that they are processes of their own.
func (s *stage) contend(ctx context.Context, r *remote, names []string) error {
	bounded, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var contenders []*contender
	defer func() {
		cancel() // one that does not mind its stdin would be waited for
		for _, c := range contenders {
			_ = c.stop()
		}
	}()
	for _, name := range names {
		c, err := s.start(bounded, r, name)
		if err != nil {
			return err
		}
		contenders = append(contenders, c)
	}
	for _, c := range contenders {
		if err := c.atStart(); err != nil {
			return err
		}
	}
	for _, c := range contenders {
		if _, err := io.WriteString(c.stdin, "go\n"); err != nil {
			return fmt.Errorf("start process %d: %w", c.cmd.Process.Pid, err)
		}
	}
	pids := map[int]bool{os.Getpid(): true}
	for _, c := range contenders {
		finish, err := c.finish()
		if err != nil {
			return err
		}
		if pids[finish.PID] {
			return fmt.Errorf("process %d took part twice: the race was none", finish.PID)
		}
		pids[finish.PID] = true
	}
	return nil
}

// contender is one process of a race.
type contender struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Reader
	stderr *bytes.Buffer
	ended  bool
}

func (s *stage) start(ctx context.Context, r *remote, action string) (*contender, error) {
	proxy, err := proxyOf(s.config)
	if err != nil {
		return nil, err
	}
	entry, err := json.Marshal(Entry{
		Server: s.config.Host, Proxy: proxy, TLS: rest.AnonymousClientConfig(s.config).TLSClientConfig, Token: s.agent.token,
		Namespace: s.namespace, Action: action, Remote: r.dir,
	})
	if err != nil {
		return nil, err
	}
	c := &contender{cmd: exec.CommandContext(ctx, s.run.Executable, "verify", "contend"), stderr: &bytes.Buffer{}}
	c.cmd.Stderr, c.cmd.WaitDelay = c.stderr, time.Second
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process of its own for action %s: %w", action, err)
	}
	if _, err := c.stdin.Write(append(entry, '\n')); err != nil {
		_ = c.cmd.Process.Kill()
		return nil, fmt.Errorf("tell process %d what to do: %w", c.cmd.Process.Pid, errors.Join(err, c.stop()))
	}
	return c, nil
}

// proxyOf is the proxy that a kubeconfig names for its cluster. One of the environment the process has anyway.
func proxyOf(config *rest.Config) (string, error) {
	if config.Proxy == nil {
		return "", nil
	}
	request, err := http.NewRequest(http.MethodGet, config.Host, nil)
	if err != nil {
		return "", fmt.Errorf("the address of the cluster: %w", err)
	}
	proxy, err := config.Proxy(request)
	if err != nil || proxy == nil {
		return "", err
	}
	return proxy.String(), nil
}

// atStart returns when the process is ready.
func (c *contender) atStart() error {
	line, err := c.lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != ready {
		return fmt.Errorf("process %d did not come to the start: %w", c.cmd.Process.Pid, errors.Join(err, c.stop()))
	}
	return nil
}

// finish waits for the end of the process.
func (c *contender) finish() (Finish, error) {
	var f Finish
	line, err := c.lines.ReadBytes('\n')
	if err = errors.Join(err, c.stop()); err != nil {
		return f, fmt.Errorf("process %d: %w", c.cmd.Process.Pid, err)
	}
	if err := json.Unmarshal(line, &f); err != nil {
		return f, fmt.Errorf("process %d: %w", c.cmd.Process.Pid, err)
	}
	if f.Error != "" {
		return f, fmt.Errorf("process %d: %s", f.PID, f.Error)
	}
	return f, nil
}

// stop lets the process end and collects it. Without its stdin it has nothing to wait for.
func (c *contender) stop() error {
	if c.ended {
		return nil
	}
	c.ended = true
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(c.stderr.String()))
	}
	return nil
}
