package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/test/testenv"
)

// earlySeed deals every kind within the first sixteen cards, those that may reach the remote both ways: a slow machine does
// not get further in a short run.
const earlySeed = 2749

// TestSoak is the command, with a load of some seconds: what was begun then takes another forty until its leases have lapsed.
func TestSoak(t *testing.T) {
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(t.Output()))))
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	env, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	r, err := soak(ctx, env, options{duration: 20 * time.Second, rate: 20, keep: 10 * time.Second, seed: earlySeed, progress: t.Output()})
	if err != nil {
		log, _ := env.OperatorLog()
		t.Fatalf("%v\nthe end of the operator's log:\n%s", err, log)
	}
	if err := r.print(t.Output()); err != nil {
		t.Fatal(err)
	}
	if !r.ExitCriterionMet {
		t.Error("the exit criterion is not met")
	}

	// What was done to an execution, and how it ended because of that.
	for k, want := range map[kind]string{
		clean: "committed", executorTimeout: "ambiguous reported_unknown", unknownException: "ambiguous reported_unknown",
		notExecuted: "failed", leaseLapse: "ambiguous lease_lapsed",
	} {
		if r.Table.Ends[k][want] == 0 || len(r.Table.Ends[k]) != 1 {
			t.Errorf("%s ended %v, want all of them %s", k, r.Table.Ends[k], want)
		}
		if k != clean && k != notExecuted && r.Verdict.Explained[string(k)] != r.Table.Ends[k][want] {
			t.Errorf("%d of %d %s are explained as such", r.Verdict.Explained[string(k)], r.Table.Ends[k][want], k)
		}
	}
	if r.Table.Approved == 0 {
		t.Error("nothing went by the approve path")
	}
	if r.Verdict.Executions == 0 || r.Verdict.Executions >= r.Table.Actions {
		t.Errorf("the remote did %d of %d actions; it has to have done some and not all", r.Verdict.Executions, r.Table.Actions)
	}
	if len(r.Samples) < 5 {
		t.Errorf("only %d samples were taken", len(r.Samples))
	}
	for _, s := range append(r.Samples, r.Before, r.After) {
		if s.Goroutines < 10 || s.Resident < 10<<20 || s.Heap < 1<<20 || s.NextGC < 1<<20 {
			t.Errorf("%+v is no operator", s)
		}
	}

	out := filepath.Join(t.TempDir(), "soak.json")
	if err := r.write(out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var written struct {
		ExitCriterionMet *bool `json:"exit_criterion_met"`
	}
	if err := json.Unmarshal(text, &written); err != nil || written.ExitCriterionMet == nil || !*written.ExitCriterionMet {
		t.Errorf("the file does not say that the criterion is met: %v, %s", err, strings.SplitN(string(text), "\n", 3)[1])
	}
}
