// Package rules tests what people are told: the alerts and the dashboard of config/prometheus.
package rules

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// step is how often the operator is scraped and the rules are evaluated in these tests.
const step = 30 * time.Second

// scenario is what happened, and whether somebody has to be told.
type scenario struct {
	// series in the notation of Prometheus' rule tests, one sample each 30 seconds: 0+1x3 is 0 1 2 3.
	series string
	// after is when the alert must fire for the first time; it must not fire a step before. For a quiet scenario it is how
	// long nothing may fire.
	after time.Duration
	// ends is the first step at which it must not fire any more; 0: it goes on.
	ends time.Duration
	// labels of the alert, besides alertname and severity.
	labels map[string]string
	// summary that people read, or a part of it.
	summary string
}

// scenarios are, for each alert, one in which it fires and one, as near to it as can be, in which it does not. Where what
// replicas say must be added up or the largest be taken, they differ.
var scenarios = map[string]struct{ fires, quiet scenario }{
	"CtrlrunEffectAmbiguous": {
		fires: scenario{
			series: `ctrlrun_effects_ambiguous_oldest_seconds{pod="a"} 0+30x60
			ctrlrun_effects_ambiguous_oldest_seconds{pod="b"} 0x60`,
			after: 16*time.Minute + step, summary: "16m 30s",
		},
		// One after the other is resolved within a quarter of an hour; both replicas see it.
		quiet: scenario{
			series: `ctrlrun_effects_ambiguous_oldest_seconds{pod="a"} 0+30x30 0+30x30 0+30x30
			ctrlrun_effects_ambiguous_oldest_seconds{pod="b"} 0+30x30 0+30x30 0+30x30`,
			after: 45 * time.Minute,
		},
	},
	"CtrlrunEffectsAmbiguousBurst": {
		// Five within three minutes, counted by two replicas of which one took over.
		fires: scenario{
			series: `ctrlrun_effects_ambiguous_total{pod="a",cause="LeaseLapsed"} 0 0 1 2 2 2 2x50
			ctrlrun_effects_ambiguous_total{pod="b",cause="LeaseLapsed"} 0 0 0 0 1 3 3x50
			ctrlrun_effects_ambiguous_total{pod="a",cause="ReportedUnknown"} 0x60`,
			after: 5 * step, ends: 15*time.Minute + step, labels: map[string]string{"cause": "LeaseLapsed"}, summary: "LeaseLapsed",
		},
		// Four at once of one cause and two of another; then one every ten minutes.
		quiet: scenario{
			series: `ctrlrun_effects_ambiguous_total{pod="a",cause="LeaseLapsed"} 0x10 4x40 5x20 6x20 7x20
			ctrlrun_effects_ambiguous_total{pod="a",cause="ReportedUnknown"} 0x10 2x110`,
			after: 50 * time.Minute,
		},
	},
	"CtrlrunLeasesLapsing": {
		fires: scenario{
			series: `ctrlrun_leases_lapsed_total{pod="a"} 0x9 1x9 2x9 2x80
			ctrlrun_leases_lapsed_total{pod="b"} 0x30 1x90`,
			after: 31 * step, ends: 30*time.Minute + 9*step, summary: "3 executions",
		},
		// Two at once, two more 35 minutes later, and a restart that begins at zero.
		quiet: scenario{series: `ctrlrun_leases_lapsed_total{pod="a"} 5x9 7x69 9x69 0x9 1x99`, after: 2 * time.Hour},
	},
	"CtrlrunApprovalsWaiting": {
		fires: scenario{
			series: `ctrlrun_approvals_waiting_oldest_seconds{pod="a"} 0 0 0+30x40
			ctrlrun_approvals_waiting_oldest_seconds{pod="b"} 0x40`,
			after: 7*time.Minute + step, summary: "6m 30s",
		},
		// Always something to answer, always answered within five minutes.
		quiet: scenario{
			series: `ctrlrun_approvals_waiting_oldest_seconds{pod="a"} 0+30x10 0+30x10 0+30x10 0+30x10
			ctrlrun_approvals_waiting_oldest_seconds{pod="b"} 0+30x10 0+30x10 0+30x10 0+30x10`,
			after: 20 * time.Minute,
		},
	},
	"CtrlrunAdmissionHeld": {
		// Some replicas see it; one was cut off before.
		fires: scenario{
			series: `ctrlrun_admission_held{pod="a"} 0 0 1x20 0x5
			ctrlrun_admission_held{pod="b"} 0 0 1x20 0x5
			ctrlrun_admission_held{pod="c"} 0x40`,
			after: 3 * time.Minute, ends: 23 * step, summary: "not in force",
		},
		// A start, and an upgrade that takes a minute.
		quiet: scenario{series: `ctrlrun_admission_held{pod="a"} 1 1 1 0x20 1 1 1 0x20`, after: 20 * time.Minute},
	},
	"CtrlrunNamespaceHeld": {
		// A replica that led before may still remember it, and a scrape may miss it.
		fires: scenario{
			series: `ctrlrun_namespace_held{pod="a",namespace="payments",reason="ledger_rolled_back"} _ _ 1 stale 1 1 stale 1x20
			ctrlrun_namespace_held{pod="b",namespace="payments",reason="ledger_rolled_back"} _ _ 1 stale 1 1 stale 1x20`,
			after: 3 * time.Minute, labels: map[string]string{"namespace": "payments"}, summary: "payments",
		},
		// A namespace that is being deleted has a page of its own; a hold that was accepted is gone.
		quiet: scenario{
			series: `ctrlrun_namespace_held{pod="a",namespace="old",reason="namespace_terminating"} 1x40
			ctrlrun_namespace_held{pod="a",namespace="payments",reason="ledger_rolled_back"} 1 stale`,
			after: 20 * time.Minute,
		},
	},
	"CtrlrunCachesStale": {
		fires: scenario{
			series: `ctrlrun_freshness_age_seconds{pod="a"} 1 2 10x20
			ctrlrun_freshness_age_seconds{pod="b"} 1x40`,
			after: 2 * time.Minute, labels: map[string]string{"pod": "a"}, summary: "Operator a",
		},
		// Long rounds, and one that failed.
		quiet: scenario{series: `ctrlrun_freshness_age_seconds{pod="a"} 9x20 12 1 9x20`, after: 20 * time.Minute},
	},
	"CtrlrunClockSkew": {
		fires: scenario{
			series: `ctrlrun_clock_offset_seconds{pod="a"} 0 0 -1.8x20
			ctrlrun_clock_offset_bound_seconds{pod="a"} 0.52x30
			ctrlrun_clock_offset_seconds{pod="b"} 0.1x30
			ctrlrun_clock_offset_bound_seconds{pod="b"} 0.52x30`,
			after: 3 * time.Minute, labels: map[string]string{"pod": "a"}, summary: "operator a",
		},
		// Off by a second at the least, and not by more. A slow answer bounds the offset badly, which is no skew.
		quiet: scenario{
			series: `ctrlrun_clock_offset_seconds{pod="a"} 1.5x40
			ctrlrun_clock_offset_bound_seconds{pod="a"} 0.5x40
			ctrlrun_clock_offset_seconds{pod="b"} -1.4x40
			ctrlrun_clock_offset_bound_seconds{pod="b"} 1.5x40`,
			after: 20 * time.Minute,
		},
	},
	"CtrlrunBreakGlassOpen": {
		fires: scenario{
			series: `ctrlrun_break_glass_open{pod="a",namespace="payments"} _x4 1x20
			ctrlrun_break_glass_open{pod="b",namespace="payments"} _x4 1x20`,
			after: 2 * time.Minute, labels: map[string]string{"namespace": "payments"}, summary: "payments; 1 open",
		},
		quiet: scenario{series: `ctrlrun_break_glass_open{pod="a",namespace="payments"} 0x40`, after: 20 * time.Minute},
	},
	"CtrlrunActionsHeld": {
		fires: scenario{
			series: `ctrlrun_actions_held{pod="a",reason="quota"} 0 0 1x40
			ctrlrun_actions_held{pod="b",reason="quota"} 0 0 1x40
			ctrlrun_actions_held{pod="a",reason="waiting_for_holder"} 0x50`,
			after: 11 * time.Minute, labels: map[string]string{"reason": "quota"}, summary: "quota (1)",
		},
		// Holders that finish, and a hold that has an alert of its own.
		quiet: scenario{
			series: `ctrlrun_actions_held{pod="a",reason="waiting_for_holder"} 1x10 0 1x10 0 1x10
			ctrlrun_actions_held{pod="a",reason="admission_missing"} 7x60`,
			after: 20 * time.Minute,
		},
	},
	"CtrlrunReceiptLag": slowness("ctrlrun_receipt_lag_seconds", "Receipts come 10."),
	"CtrlrunReceiptsMissing": {
		fires: scenario{
			series: `ctrlrun_receipts_missing_oldest_seconds{pod="a"} 0 0 0+30x40
			ctrlrun_receipts_missing_oldest_seconds{pod="b"} 0x40`,
			after: 7*time.Minute + step, summary: "6m 30s",
		},
		// One that takes long, as both replicas see, and load: there is always one that just ended.
		quiet: scenario{
			series: `ctrlrun_receipts_missing_oldest_seconds{pod="a"} 0+10x30 0.2x60
			ctrlrun_receipts_missing_oldest_seconds{pod="b"} 0+10x30 0.2x60`,
			after: 30 * time.Minute,
		},
	},
	"CtrlrunSinkDropping": {
		fires: scenario{
			series: `ctrlrun_sink_dropped_total{pod="a",sink="otlp"} 0 0 0 1x40
			ctrlrun_sink_dropped_total{pod="a",sink="files"} 0x50`,
			after: 3 * step, ends: 15*time.Minute + 2*step, labels: map[string]string{"sink": "otlp"}, summary: "otlp",
		},
		// Long ago, or never.
		quiet: scenario{
			series: `ctrlrun_sink_dropped_total{pod="a",sink="otlp"} 40x60
			ctrlrun_sink_dropped_total{pod="b",sink="files"} 0x60`,
			after: 30 * time.Minute,
		},
	},
	"CtrlrunDecisionsSlow": slowness("ctrlrun_decision_seconds", "Decisions take 10."),
	"CtrlrunOperatorDown": {
		// Both are gone after two minutes.
		fires: scenario{series: `ctrlrun_admission_held{pod="a"} 0x4 stale`, after: 5*time.Minute + step, summary: "No operator"},
		// One of two is gone.
		quiet: scenario{
			series: `ctrlrun_admission_held{pod="a"} 0x4 stale
			ctrlrun_admission_held{pod="b"} 0x60`,
			after: 30 * time.Minute,
		},
	},
	"CtrlrunNoLeader": {
		fires: scenario{
			series: `leader_election_master_status{pod="a",name="operator.ctrlrun.dev"} 1 1 0x20
			leader_election_master_status{pod="b",name="operator.ctrlrun.dev"} 0x22
			leader_election_master_status{pod="c",name="other"} 1x22`,
			after: 3 * time.Minute, summary: "No replica",
		},
		// One follows, one leads; a change takes a minute. Somebody else's lease is not ours.
		quiet: scenario{
			series: `leader_election_master_status{pod="a",name="operator.ctrlrun.dev"} 1x20 0 0 0 0x20
			leader_election_master_status{pod="b",name="operator.ctrlrun.dev"} 0x20 0 0 1 1x20
			leader_election_master_status{pod="c",name="other"} 0x60`,
			after: 20 * time.Minute,
		},
	},
}

// slowness of a histogram, of which an alert takes the 99th percentile of ten minutes: the alert fires twenty minutes after
// a little more than one in a hundred, of all replicas together, began to take 20 seconds, and never for a little less.
func slowness(name, summary string) struct{ fires, quiet scenario } {
	// pod is a replica that observes 10,000 in each step: fast ones at first, then a tenth that takes up to ten seconds, and
	// so many that take longer.
	pod := func(pod string, slow int) string {
		var b strings.Builder
		for _, bucket := range []struct {
			le string
			n  int
		}{{"1", 9_000}, {"10", 10_000 - slow}, {"30", 10_000}, {"+Inf", 10_000}} {
			fmt.Fprintf(&b, "%s_bucket{pod=%q,le=%q} 0+10000x30 %d+%dx60\n", name, pod, bucket.le, 300_000+bucket.n, bucket.n)
		}
		return b.String()
	}
	return struct{ fires, quiet scenario }{
		fires: scenario{series: pod("a", 0) + pod("b", 202), after: 14*time.Minute + step + 20*time.Minute, summary: summary},
		quiet: scenario{series: pod("a", 99), after: 45 * time.Minute},
	}
}

func TestAlerts(t *testing.T) {
	all := alerts(t)
	for name := range scenarios {
		if !slices.ContainsFunc(all, func(r rulefmt.Rule) bool { return r.Alert == name }) {
			t.Errorf("there is no alert %s", name)
		}
	}
	for _, r := range all {
		t.Run(r.Alert, func(t *testing.T) {
			s, ok := scenarios[r.Alert]
			if !ok {
				t.Fatal("no scenario in which it fires, and none in which it does not")
			}
			t.Run("fires", func(t *testing.T) {
				evaluate(t, r, s.fires, func(at time.Duration) bool { return at >= s.fires.after && (s.fires.ends == 0 || at < s.fires.ends) })
			})
			t.Run("quiet", func(t *testing.T) { evaluate(t, r, s.quiet, func(time.Duration) bool { return false }) })
		})
	}
}

// evaluate runs a rule at each step as Prometheus does, and fails unless it fires exactly when it has to.
func evaluate(t *testing.T, r rulefmt.Rule, s scenario, fires func(at time.Duration) bool) {
	var load strings.Builder
	fmt.Fprintf(&load, "load %s\n", step)
	for line := range strings.Lines(s.series) {
		load.WriteString("  " + strings.TrimSpace(line) + "\n")
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer func() {
		if err := storage.Close(); err != nil {
			t.Error(err)
		}
	}()
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: language})
	rule := rules.NewAlertingRule(r.Alert, parse(t, r.Expr), time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	last := max(s.after, s.ends)
	if last == 0 || s.after%step != 0 || s.ends%step != 0 {
		t.Fatalf("%s and %s have to be multiples of %s", s.after, s.ends, step)
	}
	for at := time.Duration(0); at <= last; at += step {
		if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(at), rules.EngineQueryFunc(engine, storage), &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
		var firing []*rules.Alert
		for _, a := range rule.ActiveAlerts() {
			if a.State == rules.StateFiring {
				firing = append(firing, a)
			}
		}
		switch want := fires(at); {
		case !want && len(firing) > 0:
			t.Fatalf("after %s it fires: %v", at, firing[0].Annotations)
		case want && len(firing) != 1:
			t.Fatalf("after %s %d fire, want one", at, len(firing))
		case want && at == s.after:
			told(t, firing[0], r, s)
		}
	}
}

// told checks what people get to read.
func told(t *testing.T, a *rules.Alert, r rulefmt.Rule, s scenario) {
	want := map[string]string{model.AlertNameLabel: r.Alert, "severity": r.Labels["severity"]}
	maps.Copy(want, s.labels)
	if got := a.Labels.Map(); !maps.Equal(got, want) {
		t.Errorf("its labels are %v, want %v", got, want)
	}
	a.Annotations.Range(func(l labels.Label) {
		for _, broken := range []string{"<error", "<no value>", "NaN", "{{"} {
			if strings.Contains(l.Value, broken) {
				t.Errorf("%s: %q", l.Name, l.Value)
			}
		}
	})
	if summary := a.Annotations.Get("summary"); s.summary == "" || !strings.Contains(summary, s.summary) {
		t.Errorf("the summary is %q, want it to contain %q", summary, s.summary)
	}
}

// TestAlertsSayWhatToDo: a severity, a command, and a page that exists and has what somebody needs who was woken up.
func TestAlertsSayWhatToDo(t *testing.T) {
	pages := map[string]bool{}
	for _, r := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
			t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || !strings.Contains(r.Annotations["description"], "`kubectl ") {
			t.Errorf("%s needs a summary, and a description with the command to run", r.Alert)
		}
		page := "docs/runbooks/" + r.Alert + ".md"
		if got := r.Annotations["runbook_url"]; got != page {
			t.Errorf("%s has runbook_url %q, want %q", r.Alert, got, page)
		}
		text := read(t, page)
		for _, part := range []string{"# " + r.Alert + "\n", "**What it means.**", "**What is at risk.**", "## What to run", "```sh\nkubectl ", "## How to tell that it is over"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %q", page, part)
			}
		}
		if row := fmt.Sprintf("| [%s](runbooks/%s.md) | %s | ", r.Alert, r.Alert, r.Labels["severity"]); !strings.Contains(read(t, "docs/metrics.md"), row) {
			t.Errorf("docs/metrics.md lacks a row that begins %q", row)
		}
		if row := fmt.Sprintf("| [%s](%s.md) | ", r.Alert, r.Alert); !strings.Contains(read(t, "docs/runbooks/README.md"), row) {
			t.Errorf("docs/runbooks/README.md lacks a row that begins %q", row)
		}
		pages[r.Alert+".md"] = true
	}
	files, err := os.ReadDir(filepath.Join(root, "docs", "runbooks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "Ctrlrun") && !pages[f.Name()] {
			t.Errorf("docs/runbooks/%s is the page of no alert", f.Name())
		}
	}
}

// TestRulesWithoutTheOperatorOfPrometheus: the command of docs/metrics.md makes a rule file with the same rules.
func TestRulesWithoutTheOperatorOfPrometheus(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "docs/metrics.md"), "\nsed ")
	command, file, redirected := strings.Cut(rest, " > ")
	file, _, _ = strings.Cut(file, "\n")
	if !found || !redirected || strings.Contains(command, "\n") || !strings.Contains(read(t, "docs/metrics.md"), "\npromtool check rules "+file+"\n") {
		t.Fatal("docs/metrics.md lacks a line sed ... > FILE, and one that checks that file")
	}
	cmd := exec.Command("sh", "-c", "sed "+command)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(out, false, model.UTF8Validation, language, slog.Default())
	for _, err := range errs {
		t.Fatal(err)
	}
	var rendered []rulefmt.Rule
	for _, g := range groups.Groups {
		rendered = append(rendered, g.Rules...)
	}
	if want := alerts(t); !reflect.DeepEqual(rendered, want) {
		t.Errorf("it has %d rules, want the %d of the PrometheusRule, as they are", len(rendered), len(want))
	}
}

// root of the repository.
var root = filepath.Join("..", "..")

// language is PromQL without what is experimental in it, as a Prometheus without flags takes it.
var language = parser.NewParser(parser.Options{})

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	e, err := language.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return e
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// alerts of the PrometheusRule, which Prometheus' own reader of rule files has accepted.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var object struct {
		Kind string `yaml:"kind"`
		Spec any    `yaml:"spec"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "config/prometheus/prometheusrule.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(spec, false, model.UTF8Validation, language, slog.Default())
	for _, err := range errs {
		t.Fatal(err)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				t.Fatalf("group %s has a rule that is no alert", g.Name)
			}
			all = append(all, r)
		}
	}
	if object.Kind != "PrometheusRule" || len(all) == 0 {
		t.Fatalf("a %s with %d alerts", object.Kind, len(all))
	}
	return all
}
