package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/testenv"
)

// Report is what is known after a run.
type Report struct {
	Seed   uint64 `json:"seed"`
	Length Length `json:"length"`
	// Wanted is how many Actions were to be proposed, GivenInStorm how many of them were given to agents in the storm.
	Wanted       int           `json:"wanted"`
	GivenInStorm int           `json:"givenInStorm"`
	Start        time.Time     `json:"start"`
	Duration     time.Duration `json:"duration"`

	// Control is the verdict over the positive control, Verdict that over the storm, Loss that over lost records.
	Control judge.Verdict  `json:"control"`
	Verdict judge.Verdict  `json:"verdict"`
	Loss    *judge.Verdict `json:"loss,omitempty"`
	// Plugins is how `kubectl ctrlrun receipts verify` ended, for each namespace that was judged.
	Plugins []Plugin `json:"plugins"`
	// Unsettled is what had not ended when the time was over.
	Unsettled []string `json:"unsettled"`

	Crashes []Coverage     `json:"crashes"`
	Faults  map[string]int `json:"faults"`
	// Overlaps is how often a leader was stopped for longer than its lease, another took over, and it went on.
	Overlaps int64 `json:"overlaps"`
	// Killed is how often an agent was killed.
	Killed int64 `json:"killed"`
	// Troubles is the last error that each person met.
	Troubles map[string]string `json:"troubles"`
	// Starts is how often each process was started.
	Starts map[string]int `json:"starts"`
}

// Plugin is the end of the plugin.
type Plugin struct {
	Namespace string `json:"namespace"`
	ExitCode  int    `json:"exitCode"`
	Output    string `json:"output"`
}

func (r *Report) finish(run *run) {
	r.Duration = time.Since(run.began)
	r.Crashes, r.Overlaps, r.Killed = run.crashes.coverage(run.proxy.Stats()), run.overlaps.Load(), run.kills.Load()
	r.Troubles = run.troubles // the people have gone
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
	for _, p := range r.Plugins {
		add(p.ExitCode != 0, "kubectl ctrlrun receipts verify -n %s ended with %d: %s", p.Namespace, p.ExitCode, p.Output)
		add(strings.Contains(p.Output, "not visible to you"), "kubectl ctrlrun receipts verify -n %s could not see everything: %s", p.Namespace, p.Output)
	}
	for _, u := range r.Unsettled {
		all = append(all, "not settled: "+u)
	}
	return append(all, r.proofs()...)
}

// most is the share of the work of which a run must show something, in percent: agents that are killed lose the rest.
const most = 90

// resolvable is how many attempts have to be Ambiguous before one must have been resolved: some are left as they are.
const resolvable = 10

// proofs are the reasons why a run has not shown what it is for.
func (r *Report) proofs() []string {
	var all []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(r.GivenInStorm*100 < most*r.Wanted, "only %d pieces of work of %d were given out before the storm was over", r.GivenInStorm, r.Wanted)
	add(r.Verdict.Actions*100 < most*r.Wanted, "there are only %d Actions where %d were to be proposed", r.Verdict.Actions, r.Wanted)
	add(r.Verdict.Executions == 0, "nothing was executed")
	add(r.Verdict.Approved == 0, "no Action was admitted by approval; alice: %s; bob: %s", r.Troubles["alice"], r.Troubles["bob"])
	add(r.Verdict.Ambiguous == 0, "no attempt became Ambiguous: nothing was proved about those")
	add(r.Verdict.Ambiguous >= resolvable && r.Verdict.Resolved == 0, "no effect was resolved; oncall: %s", r.Troubles["oncall"])
	add(r.Killed == 0, "no agent was killed")
	add(r.Overlaps == 0, "no leader was ever overtaken while it was stopped")
	for _, c := range r.Crashes {
		none := c.missing()
		switch {
		case r.Length == Long:
			add(len(none) > 0, "at %s no operator was %s", c.Point, strings.Join(none, ", "))
		case slices.Contains(required, c.Point):
			add(len(none) == ways, "no operator was killed or stopped at %s", c.Point)
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
	fmt.Fprintf(to, "\ninjections: %v\nstarts: %v\nagents killed: %d\nleaders overtaken while stopped: %d\n", r.Faults, r.Starts, r.Killed, r.Overlaps)
	fmt.Fprintf(to, "work given out in the storm: %d of %d\n", r.GivenInStorm, r.Wanted)
	for _, name := range slices.Sorted(maps.Keys(r.Troubles)) {
		fmt.Fprintf(to, "last error of %s: %s\n", name, r.Troubles[name])
	}
	fmt.Fprintln(to)
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
	for _, p := range r.Plugins {
		fmt.Fprintf(to, "kubectl ctrlrun receipts verify -n %s: exit code %d\n", p.Namespace, p.ExitCode)
	}
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

// auditor may view everything, and nothing else.
var auditor = testenv.User{Name: "auditor"}

// pluginVerifies runs the plugin over the chain of a namespace.
func (r *run) pluginVerifies(ctx context.Context, namespace string) (Plugin, error) {
	verify := exec.CommandContext(ctx, filepath.Join(r.env.Root, "bin", "kubectl-ctrlrun"), "receipts", "verify", "-n", namespace,
		"--kubeconfig", r.env.Kubeconfig(auditor))
	var out bytes.Buffer
	verify.Stdout, verify.Stderr = &out, &out
	err := verify.Run()
	if verify.ProcessState == nil {
		return Plugin{}, fmt.Errorf("kubectl ctrlrun: %w; `make build` puts it there", err)
	}
	return Plugin{Namespace: namespace, ExitCode: verify.ProcessState.ExitCode(), Output: strings.TrimSpace(out.String())}, nil
}
