package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/stats"
)

// Settings beside policies count for verify if they are those of the namespace, and nothing else does.
func TestSettingsInFilesThatSayObserve(t *testing.T) {
	settings := func(apiVersion, namespace, mode string) string {
		return "apiVersion: " + apiVersion + "\nkind: Settings\nmetadata: {name: default, namespace: " + namespace + "}\nspec: {mode: " + mode + "}\n"
	}
	const policy = "apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: p}\nspec: {actions: {note: {decision: allow}}}\n"
	for name, test := range map[string]struct {
		file, text string
		want       bool
	}{
		"observe":                 {"settings.yaml", settings("ctrlrun.dev/v1alpha1", "payments", "Observe"), true},
		"observe, of none":        {"settings.yml", settings("ctrlrun.dev/v1alpha1", `""`, "Observe"), true},
		"beside a policy":         {"all.yaml", policy + "---\n" + settings("ctrlrun.dev/v1alpha1", "payments", "Observe"), true},
		"enforce":                 {"settings.yaml", settings("ctrlrun.dev/v1alpha1", "payments", "Enforce"), false},
		"of another namespace":    {"settings.yaml", settings("ctrlrun.dev/v1alpha1", "billing", "Observe"), false},
		"Settings of others":      {"settings.yaml", settings("example.com/v1", "payments", "Observe"), false},
		"a file that is not read": {"settings.txt", settings("ctrlrun.dev/v1alpha1", "payments", "Observe"), false},
		"no YAML":                 {"settings.yaml", "{", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, test.file), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := observeIn([]string{dir}, "payments"); got != test.want {
				t.Errorf("the directory says observe: %t", got)
			}
			if got := observeIn([]string{filepath.Join(dir, test.file)}, "payments"); got != test.want && filepath.Ext(test.file) != ".txt" {
				t.Errorf("the file says observe: %t", got)
			}
		})
	}
	if observeIn([]string{"-", filepath.Join(t.TempDir(), "none")}, "payments") {
		t.Error("what is not there says observe")
	}
}

// What enforcing would have done is on the page and in the document, with the same numbers; without observed actions the page is
// as it was.
func TestStatsSayWhatEnforcingWouldHaveDone(t *testing.T) {
	counter := stats.New(stats.Options{})
	add := func(would receipt.WouldHave, execution decision.Result, reason decision.Reason) {
		counter.Add(receipt.Document{
			Kind: receipt.KindAction, ActionType: "stripe.refund", Result: decision.Observed, Execution: execution, Reason: reason, WouldHave: &would,
			FinishedTime: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		})
	}
	add(receipt.WouldHave{Decision: decision.Allow, Reason: "rule[0]"}, decision.Committed, "")
	add(receipt.WouldHave{Decision: decision.Deny, Reason: "no_authority", BlockedReason: "no_authority"}, decision.Committed, "")
	add(receipt.WouldHave{Decision: decision.Approve, Reason: "rule[1]", BlockedReason: "approval_required"}, decision.Ambiguous, decision.LeaseLapsed)
	page := func(report stats.Report) string {
		var out bytes.Buffer
		a := &app{streams: genericiooptions.IOStreams{Out: &out}}
		answer := &statistics{Report: report}
		a.printStats(answer, "namespace payments")
		return regexp.MustCompile(` +`).ReplaceAllString(out.String(), " ")
	}
	got := page(counter.Report())
	for _, want := range []string{
		"observed: 3\n", "Would have run: 1 of 3\n", "Would have been denied: 1 of 3, 33.3% (no_authority 1)\n",
		"Would have needed approval: 1 of 3, 33.3% (rule[1] 1)\n", "Would have been blocked: 0 of 3, 0%\n",
		"Observed ended: 3 (committed 2, ambiguous 1)\n", "Observed ambiguous: 1 (lease_lapsed 1)\n", "Observed actions ran",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if text := page(stats.New(stats.Options{}).Report()); strings.Contains(text, "bserved") || strings.Contains(text, "Would") {
		t.Errorf("a page without observed actions speaks of them:\n%s", text)
	}
	text, err := json.Marshal(statistics{Report: counter.Report()})
	if err != nil {
		t.Fatal(err)
	}
	const want = `"observed":{"actions":3,"wouldHaveRun":1,"wouldHaveBeenDenied":{"actions":1,"percent":33.3,"reasons":{"no_authority":1}},` +
		`"wouldHaveNeededApproval":{"actions":1,"percent":33.3,"reasons":{"rule[1]":1}},"wouldHaveBeenBlocked":{"actions":0,"percent":0,"reasons":{}},` +
		`"executions":{"ambiguous":1,"committed":2,"failed":0},"ambiguous":{"lease_lapsed":1}}`
	if !strings.Contains(string(text), want) {
		t.Errorf("the document lacks %s: %s", want, text)
	}
}
