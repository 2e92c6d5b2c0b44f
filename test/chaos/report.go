package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/testenv"
)

// Report is what is known after a run.
type Report struct {
	Seed     uint64        `json:"seed"`
	Length   Length        `json:"length"`
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration"`

	// Control is the verdict over the positive control, Verdict that over the storm, Loss that over lost records.
	Control judge.Verdict  `json:"control"`
	Verdict judge.Verdict  `json:"verdict"`
	Loss    *judge.Verdict `json:"loss,omitempty"`
	// Plugin is how `kubectl ctrlrun receipts verify` ended.
	Plugin Plugin `json:"plugin"`
	// Unsettled is what had not ended when the time was over.
	Unsettled []string `json:"unsettled"`

	Crashes []Coverage     `json:"crashes"`
	Faults  map[string]int `json:"faults"`
	// Overlaps is how often a leader was stopped for longer than its lease, another took over, and it went on.
	Overlaps int64 `json:"overlaps"`
	// Starts is how often each process was started.
	Starts map[string]int `json:"starts"`
}

// Plugin is the end of the plugin.
type Plugin struct {
	ExitCode int    `json:"exitCode"`
	Output   string `json:"output"`
}

func (r *Report) finish(run *run) {
	r.Duration = time.Since(run.began)
	r.Crashes, r.Overlaps = run.crashes.coverage(run.proxy.Stats()), run.overlaps.Load()
	r.Faults, r.Starts = map[string]int{}, map[string]int{}
	for _, i := range run.journal.Injections() {
		r.Faults[i.Kind]++
	}
	for name, o := range run.operators {
		r.Starts[name] = o.started()
	}
	for name, a := range run.agents {
		r.Starts[name] = a.started()
	}
}

// Problems are the reasons why a run failed; none: it is as it should be.
func (r *Report) Problems() []string {
	var all []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(!fired(r.Control), "the positive control did not fire as it must: %+v", r.Control.Findings())
	for _, v := range []*judge.Verdict{&r.Verdict, r.Loss} {
		if v == nil {
			continue
		}
		for _, f := range v.Findings() {
			all = append(all, fmt.Sprintf("%s: %s: action %q, effect %q attempt %d: %s", v.Namespace, f.Rule, f.Action, f.EffectKey, f.Attempt, f.Detail))
		}
	}
	add(r.Plugin.ExitCode != 0, "kubectl ctrlrun receipts verify ended with %d: %s", r.Plugin.ExitCode, r.Plugin.Output)
	for _, u := range r.Unsettled {
		all = append(all, "not settled: "+u)
	}
	add(r.Verdict.Ambiguous == 0, "no attempt became Ambiguous: nothing was proved about those")
	add(r.Overlaps == 0, "no leader was ever overtaken while it was stopped")
	if r.Length == Long {
		for _, c := range r.Crashes {
			add(c.total() == 0, "no operator was killed or stopped at %s", c.Point)
		}
	}
	return all
}

// Print writes the tables.
func (r *Report) Print(to io.Writer) error {
	fmt.Fprintf(to, "\nseed %d, %s, %s\n\n", r.Seed, r.Length, r.Duration.Round(time.Second))
	fmt.Fprintln(to, "operators at each write of the protocol:")
	if err := printCoverage(to, r.Crashes); err != nil {
		return err
	}
	fmt.Fprintf(to, "\ninjections: %v\nstarts: %v\nleaders overtaken while stopped: %d\n\n", r.Faults, r.Starts, r.Overlaps)
	fmt.Fprintln(to, "positive control:")
	if err := r.Control.Print(to); err != nil {
		return err
	}
	if r.Loss != nil {
		fmt.Fprintln(to, "\nlost records:")
		if err := r.Loss.Print(to); err != nil {
			return err
		}
	}
	fmt.Fprintln(to, "\nthe run:")
	if err := r.Verdict.Print(to); err != nil {
		return err
	}
	fmt.Fprintf(to, "kubectl ctrlrun receipts verify: exit code %d\n", r.Plugin.ExitCode)
	for _, p := range r.Problems() {
		fmt.Fprintln(to, "PROBLEM", p)
	}
	return nil
}

// Write puts the report into a file.
func (r *Report) Write(path string) error { return writeJSON(path, r) }

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// pluginVerifies runs the plugin over the chain of a namespace, as somebody who may see everything.
func (r *run) pluginVerifies(ctx context.Context, namespace string) (Plugin, error) {
	auditor := testenv.User{Name: "auditor", Groups: []string{"system:masters"}}
	verify := exec.CommandContext(ctx, filepath.Join(r.env.Root, "bin", "kubectl-ctrlrun"), "receipts", "verify", "-n", namespace,
		"--kubeconfig", r.env.Kubeconfig(auditor))
	var out bytes.Buffer
	verify.Stdout, verify.Stderr = &out, &out
	err := verify.Run()
	if verify.ProcessState == nil {
		return Plugin{}, fmt.Errorf("kubectl ctrlrun: %w; `make build` puts it there", err)
	}
	return Plugin{ExitCode: verify.ProcessState.ExitCode(), Output: strings.TrimSpace(out.String())}, nil
}
