package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"
)

const (
	// startTimeout is generous: a cold, busy machine needs half of it.
	startTimeout = 3 * time.Minute
	// stopTimeout covers the graceful stop of the operator and then of the apiserver.
	stopTimeout = 90 * time.Second
)

func up(ctx context.Context, p place) error {
	running, err := p.recorded()
	if err != nil {
		return err
	}
	if len(running) > 0 && running[0].Name == supervisor {
		if _, err := os.Stat(p.ready()); err == nil {
			fmt.Println("It is running already; `make down` first gives a fresh one.")
			return p.explain()
		}
	}
	// What is left of an earlier one, if anything.
	if err := stopAll(running); err != nil {
		return err
	}
	if err := p.clean(); err != nil {
		return err
	}
	if err := os.MkdirAll(p.run, 0o700); err != nil {
		return err
	}
	log, err := os.Create(p.log())
	if err != nil {
		return err
	}
	defer log.Close() // the supervisor has its own descriptor
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A session of its own: neither Ctrl-C nor the end of this terminal reaches it.
	cmd := exec.Command(self, "serve")
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.root, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	fmt.Println("Starting etcd, kube-apiserver and the operator ...")
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := p.record(supervisor, cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if err := p.waitReady(ctx, ended); err != nil {
		// The logs stay; what runs does not.
		running, listErr := p.recorded()
		return errors.Join(err, listErr, stopAll(running))
	}
	return p.explain()
}

// waitReady returns when the supervisor says that all is up, and fails with the end of its log if it ends first.
func (p place) waitReady(ctx context.Context, ended <-chan error) error {
	timeout := time.After(startTimeout)
	for {
		if _, err := os.Stat(p.ready()); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-timeout:
			return fmt.Errorf("not up after %s; the logs are in %s", startTimeout, p.run)
		case err := <-ended:
			log, _ := os.ReadFile(p.log())
			lines := strings.Split(strings.TrimSpace(string(log)), "\n")
			return fmt.Errorf("it did not start (%w); the logs are in %s, the last lines say:\n%s",
				err, p.run, strings.Join(lines[max(0, len(lines)-10):], "\n"))
		}
	}
}

func down(p place) error {
	running, err := p.recorded()
	if err != nil {
		return err
	}
	if err := stopAll(running); err != nil {
		return err
	}
	if err := p.clean(); err != nil {
		return err
	}
	if len(running) == 0 {
		fmt.Println("Nothing was running.")
		return nil
	}
	var names []string
	for _, one := range running {
		if one.Name != supervisor {
			names = append(names, one.Name)
		}
	}
	fmt.Printf("Stopped %s; its data and its kubeconfigs are gone.\n", strings.Join(names, ", "))
	return nil
}

// stopAll stops processes in their order. The supervisor comes first and stops its children gracefully, so there is more
// to do only if it was killed.
func stopAll(running []process) error {
	var errs []error
	for _, one := range running {
		errs = append(errs, one.stop(stopTimeout))
	}
	return errors.Join(errs...)
}

// clean removes what was written by `up`, and nothing else that may be in the directory.
func (p place) clean() error {
	errs := []error{os.RemoveAll(p.run)}
	for _, role := range roles() {
		if err := os.Remove(p.kubeconfig(role)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func roles() []string {
	all := []string{admin}
	for _, one := range people {
		all = append(all, one.role)
	}
	return all
}

var explanation = template.Must(template.New("").Parse(`
A Kubernetes API with ctrlrun on it runs at {{.Server}}. In a shell:

  export PATH={{.Bin}}:{{.Assets}}:$PATH   # kubectl and its plugin
  export KUBECONFIG={{.Dir}}/kubeconfig    # cluster-admin, namespace payments
  kubectl ctrlrun
  kubectl get actionpolicy payments -o yaml

As an agent: a small refund is allowed at once, a large one waits for a person. The command after -- is what would
call the provider; it gets the arguments on stdin.

  KUBECONFIG={{.Dir}}/agent.kubeconfig kubectl ctrlrun run stripe.refund payment_id=txn_1 amount:=2000 -- cat
  KUBECONFIG={{.Dir}}/agent.kubeconfig kubectl ctrlrun run stripe.refund payment_id=txn_2 amount:=200000 -- cat

As a person, in another shell while the second one waits:

  export PATH={{.Bin}}:{{.Assets}}:$PATH
  KUBECONFIG={{.Dir}}/approver.kubeconfig kubectl ctrlrun pending
  KUBECONFIG={{.Dir}}/approver.kubeconfig kubectl ctrlrun approve NAME

A command that dies leaves an effect that nobody may try again until somebody has looked:

  KUBECONFIG={{.Dir}}/agent.kubeconfig kubectl ctrlrun run stripe.refund payment_id=txn_3 amount:=2000 -- false
  KUBECONFIG={{.Dir}}/resolver.kubeconfig kubectl ctrlrun resolve --key refund:txn_3 \
    --not-executed --reason "the command does nothing" --evidence https://example.com/log

What happened, and the proof:

  kubectl get ctrlrun
  kubectl ctrlrun receipts verify

Logs are in {{.Logs}}. Stop it with: make down
`))

// explain prints what to try.
func (p place) explain() error {
	data, err := os.ReadFile(p.ready())
	if err != nil {
		return err
	}
	server, binaries, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	return explanation.Execute(os.Stdout, map[string]string{
		"Server": server, "Assets": binaries, "Dir": p.dir, "Logs": p.run, "Bin": filepath.Join(p.root, "bin"),
	})
}
