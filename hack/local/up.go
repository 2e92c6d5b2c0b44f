package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/test/testenv"
)

const (
	// startTimeout is generous: a cold, busy machine needs half of it.
	startTimeout = 3 * time.Minute
	// stopTimeout covers the graceful stop of the operator and then of the apiserver.
	stopTimeout = 90 * time.Second
)

func up(ctx context.Context, p place, flags []string) error {
	table, flags, err := takeNode(flags)
	if err != nil {
		return err
	}
	if err := checkFlags(flags); err != nil {
		return err
	}
	running, err := p.recorded()
	if err != nil {
		return err
	}
	if len(running) > 0 && running[0].Name == supervisor {
		if _, err := os.Stat(p.ready()); err == nil {
			before, err := said(p.node())
			if err != nil {
				return err
			}
			if table != "" && !slices.Equal(before, []string{table}) {
				return errors.New("it is running already, without such a node: `make down` first")
			}
			return p.upAlready(ctx, running, flags)
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
	if err := say(p.flags(), flags...); err != nil {
		return err
	}
	if table != "" {
		if err := say(p.node(), table); err != nil {
			return err
		}
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

// takeNode takes the one flag that is not the operator's: --node=FILE, with the table of images that pods may have. The table's
// path is absolute, as the supervisor may be started from elsewhere.
func takeNode(flags []string) (table string, rest []string, err error) {
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		if name != "--node" {
			rest = append(rest, flag)
			continue
		}
		if value == "" || table != "" {
			return "", nil, errors.New("--node=FILE starts a node for pods; the file says what runs for an image, see docs/testing.md")
		}
		if table, err = filepath.Abs(value); err != nil {
			return "", nil, err
		}
		if _, err := readTable(table); err != nil {
			return "", nil, err
		}
	}
	return table, rest, nil
}

// readTable reads a table of images.
func readTable(file string) (map[string]testenv.Image, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	images := map[string]testenv.Image{}
	if err := yaml.UnmarshalStrict(text, &images); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return images, nil
}

// chosen are the flags of the operator that are not free here.
var chosen = []string{"--kubeconfig", "--namespace", "--health-probe-bind-address", "--metrics-bind-address"}

func checkFlags(flags []string) error {
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		if slices.Contains(chosen, name) {
			return fmt.Errorf("%s is chosen by `make up`: leave it out; addresses are printed", name)
		}
		if strings.Contains(flag, "\n") {
			return fmt.Errorf("a flag cannot have a line end: %q", flag)
		}
	}
	return nil
}

// upAlready starts the operator again if it has ended or is to have other flags. The control plane and all that is in it stay.
func (p place) upAlready(ctx context.Context, running []process, flags []string) error {
	before, err := said(p.flags())
	if err != nil {
		return err
	}
	alive := slices.ContainsFunc(running, func(one process) bool { return one.Name == operatorName })
	if len(flags) == 0 {
		flags = before
	}
	switch {
	case alive && slices.Equal(flags, before):
		fmt.Println("It is running already; `make down` first gives a fresh one.")
		return p.explain()
	case alive:
		fmt.Printf("It is running already. Starting its operator again, with %s ...\n", strings.Join(flags, " "))
	default:
		fmt.Printf("It is running, but its operator has ended; see %s. Starting it again ...\n", p.operatorLog())
		fmt.Println("If it was killed, nothing is decided until its lease is over, at most 30 seconds.")
	}
	if err := say(p.flags(), flags...); err != nil {
		return err
	}
	if err := os.Remove(p.restarted()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := running[0]
	if err := syscall.Kill(parent.PID, restart); err != nil {
		return fmt.Errorf("asking %s (process %d) to start the operator: %w", parent.Name, parent.PID, err)
	}
	if err := p.waitRestarted(ctx, parent); err != nil {
		return err
	}
	return p.explain()
}

func (p place) waitRestarted(ctx context.Context, parent process) error {
	timeout := time.After(startTimeout)
	for {
		result, err := os.ReadFile(p.restarted())
		switch {
		case err == nil && len(result) > 0:
			return fmt.Errorf("the operator did not start: %s\nthe control plane is still there; `make up` tries again with these flags, or with others that you give", result)
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case !parent.running():
			return fmt.Errorf("%s (process %d) ended; the logs are in %s", parent.Name, parent.PID, p.run)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-timeout:
			return fmt.Errorf("the operator is not ready after %s; the logs are in %s", startTimeout, p.run)
		}
	}
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
			return fmt.Errorf("it did not start (%w); the logs are in %s, the last lines say:\n%s", err, p.run, end(p.log(), 10))
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

What happened, and the proof, as an auditor, who sees everything and changes nothing:

  KUBECONFIG={{.Dir}}/auditor.kubeconfig kubectl get ctrlrun
  KUBECONFIG={{.Dir}}/auditor.kubeconfig kubectl ctrlrun receipts verify

Other rules: edit a copy of {{.Policy}}, then

  kubectl apply --server-side -f COPY

Metrics of the operator: {{.Metrics}}
Its flags, with what is in the cluster left as it is: make up ARGS="--export=dir:/tmp/ctrlrun-export"
Logs are in {{.Logs}}. Stop it with: make down
`))

// explain prints what to try.
func (p place) explain() error {
	ready, err := said(p.ready())
	if err != nil {
		return err
	}
	if len(ready) != 3 {
		return fmt.Errorf("%s has %d lines, want 3: `make down`, and start it again", p.ready(), len(ready))
	}
	return explanation.Execute(os.Stdout, map[string]string{
		"Server": ready[0], "Assets": ready[1], "Metrics": ready[2], "Dir": p.dir, "Logs": p.run, "Bin": filepath.Join(p.root, "bin"),
		"Policy": filepath.Join(p.root, "config", "samples", "policies", "payments.yaml"),
	})
}
