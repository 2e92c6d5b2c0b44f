package metrics

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// stored is a cache that holds these.
type stored struct {
	client.Reader
	actions []v1alpha1.Action
	effects []v1alpha1.Effect
	// delegations that open an envelope, most of them.
	delegations []v1alpha1.Delegation
	err         error
}

func (s *stored) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.ActionList:
		list.Items = s.actions
	case *v1alpha1.EffectList:
		list.Items = s.effects
	case *v1alpha1.DelegationList:
		list.Items = s.delegations
	default:
		return fmt.Errorf("a scrape lists %T", list)
	}
	return s.err
}

func waiting(state v1alpha1.ActionState, change func(*v1alpha1.Action)) v1alpha1.Action {
	a := v1alpha1.Action{Status: v1alpha1.ActionStatus{State: state}}
	if change != nil {
		change(&a)
	}
	return a
}

func unsettledSince(state v1alpha1.EffectState, d time.Duration) v1alpha1.Effect {
	return v1alpha1.Effect{Status: &v1alpha1.EffectStatus{State: state, LastTransitionTime: metav1.NewTime(ago(d))}}
}

// emergency is an envelope that was opened for that long from now on, with these conditions True.
func emergency(namespace string, left time.Duration, conditions ...string) v1alpha1.Delegation {
	yes, end := true, metav1.NewTime(ago(-left))
	d := v1alpha1.Delegation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	d.Spec.BreakGlass, d.Spec.ExpirationTime = &yes, &end
	for _, c := range conditions {
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	return d
}

func ordinary(namespace string) v1alpha1.Delegation {
	d := emergency(namespace, time.Hour, v1alpha1.AcceptedCondition)
	d.Spec.BreakGlass = nil
	return d
}

func proposed(d time.Duration) *v1alpha1.Action {
	return &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(ago(d))}}
}

// full is an operator of which every metric has something to show.
func full() *Metrics {
	m := New(&stored{
		actions: []v1alpha1.Action{
			waiting("", nil),
			waiting(v1alpha1.ActionPending, func(a *v1alpha1.Action) { a.Status.Reason = "quota" }),
			waiting(v1alpha1.ActionAwaitingApproval, func(a *v1alpha1.Action) {
				a.Status.Approval = &v1alpha1.ActionApproval{RequestTime: metav1.NewTime(ago(100 * time.Second))}
			}),
			waiting(v1alpha1.ActionAwaitingApproval, func(a *v1alpha1.Action) {
				a.Status.Approval = &v1alpha1.ActionApproval{RequestTime: metav1.NewTime(ago(300 * time.Second))}
			}),
			waiting(v1alpha1.ActionClaimable, func(a *v1alpha1.Action) { a.Status.Reason = "rule[3]" }),
			waiting(v1alpha1.ActionAdmitted, func(a *v1alpha1.Action) {
				a.Status.Execution = &v1alpha1.ActionExecution{LeaseExpirationTime: metav1.NewMicroTime(ago(-time.Hour))}
			}),
			waiting(v1alpha1.ActionDenied, func(a *v1alpha1.Action) {
				a.Status.FinishTime = &metav1.Time{Time: ago(7 * time.Second)}
				a.Status.Reason = "quota"
			}),
			waiting(v1alpha1.ActionPending, func(a *v1alpha1.Action) { a.Labels = map[string]string{v1alpha1.CanaryLabel: "true"} }),
			waiting(v1alpha1.ActionCommitted, func(a *v1alpha1.Action) { a.Status.ReceiptRef = &v1alpha1.ReceiptReference{} }),
		},
		effects: []v1alpha1.Effect{
			unsettledSince(v1alpha1.EffectExecuting, time.Hour),
			unsettledSince(v1alpha1.EffectAmbiguous, 20*time.Second),
			unsettledSince(v1alpha1.EffectAmbiguous, 50*time.Second),
			unsettledSince(v1alpha1.EffectCommitted, time.Hour), // seen by the cache for a moment
			{},
		},
		delegations: []v1alpha1.Delegation{
			emergency("payments", time.Minute, v1alpha1.AcceptedCondition),
			emergency("payments", time.Hour, v1alpha1.AcceptedCondition),
			emergency("payments", -time.Minute, v1alpha1.AcceptedCondition), // it has ended
			emergency("shop", time.Hour),                                    // not judged yet
			emergency("shop", time.Hour, v1alpha1.AcceptedCondition, v1alpha1.RevokedCondition),
			ordinary("shop"),
		},
	}, func() time.Time { return now }, Guards{
		AdmissionHeld:  func() (string, bool) { return "admission_missing", true },
		Freshness:      func() time.Duration { return 1500 * time.Millisecond },
		ClockOffset:    func() (time.Duration, time.Duration, bool) { return -time.Second, 2 * time.Second, true },
		Chains:         func() map[string]int64 { return map[string]int64{"payments": 42, "default": 0} },
		HeldNamespaces: func() map[string]string { return map[string]string{"payments": "ledger_rolled_back", "x": "made up"} },
		Version:        "v1",
	}, "jsonl", "otlp")
	m.ActionWritten(observe.ActionWrite{Object: proposed(0), After: flow.Status{Receipt: &receipt.Link{Seq: 1}, State: flow.Denied, Decision: decision.Deny, Reason: decision.NoMatchingRule}, Time: now})
	m.ActionWritten(observe.ActionWrite{Object: proposed(0), After: flow.Status{Receipt: &receipt.Link{Seq: 1}, State: flow.Observed, Outcome: flow.Failed, Decision: decision.Allow, WouldHave: &flow.WouldHave{}}, Time: now})
	return m
}

// gathered is what a scrape of m shows, by name.
func gathered(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*dto.MetricFamily{}
	for _, f := range families {
		by[f.GetName()] = f
	}
	return by
}

// compare fails unless the metrics that these lines name have exactly these values.
func compare(t *testing.T, m *Metrics, want string) {
	t.Helper()
	lines := map[string]string{}
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		if name := line[:max(0, strings.IndexAny(line, "{ "))]; name != "" {
			lines[name] += line + "\n"
		}
	}
	if len(lines) == 0 {
		t.Fatal("nothing is compared")
	}
	shown := gathered(t, m)
	var exposition strings.Builder
	for name, values := range lines {
		f := shown[name]
		fmt.Fprintf(&exposition, "# HELP %s %s\n# TYPE %s %s\n%s", name, f.GetHelp(), name, strings.ToLower(f.GetType().String()), values)
	}
	if err := testutil.CollectAndCompare(m, strings.NewReader(exposition.String()), slices.Collect(maps.Keys(lines))...); err != nil {
		t.Error(err)
	}
}

// TestFullShowsEverything: what is tested by it below is every metric there is, and the linter of Prometheus has nothing to
// say.
func TestFullShowsEverything(t *testing.T) {
	m := full()
	described := make(chan *prometheus.Desc, 100)
	m.Describe(described)
	if shown := gathered(t, m); len(shown) != len(described) || len(shown) == 0 {
		t.Errorf("%d metrics are defined, and a scrape shows %d: %q", len(described), len(shown), slices.Sorted(maps.Keys(shown)))
	}
	problems, err := testutil.CollectAndLint(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestGaugeWithWrongLabels: it fails the scrape and not the operator.
func TestGaugeWithWrongLabels(t *testing.T) {
	to := make(chan prometheus.Metric, 1)
	show(to, define().chainSeq, 1)
	if err := (<-to).Write(&dto.Metric{}); err == nil {
		t.Error("a gauge without its label is shown")
	}
}

func TestScrapeTellsWhatWaits(t *testing.T) {
	compare(t, full(), `
		ctrlrun_actions{state="Admitted"} 1
		ctrlrun_actions{state="Ambiguous"} 0
		ctrlrun_actions{state="AwaitingApproval"} 2
		ctrlrun_actions{state="Blocked"} 0
		ctrlrun_actions{state="Claimable"} 1
		ctrlrun_actions{state="Committed"} 0
		ctrlrun_actions{state="Denied"} 1
		ctrlrun_actions{state="Expired"} 0
		ctrlrun_actions{state="Failed"} 0
		ctrlrun_actions{state="Observed"} 0
		ctrlrun_actions{state="Pending"} 2
		ctrlrun_actions_held{reason="admission_missing"} 0
		ctrlrun_actions_held{reason="caches_stale"} 0
		ctrlrun_actions_held{reason="clock_skew"} 0
		ctrlrun_actions_held{reason="ledger_rolled_back"} 0
		ctrlrun_actions_held{reason="namespace_terminating"} 0
		ctrlrun_break_glass_open{namespace="payments"} 2
		ctrlrun_actions_held{reason="precondition_unavailable"} 0
		ctrlrun_actions_held{reason="quota"} 1
		ctrlrun_actions_held{reason="waiting_for_holder"} 0
		ctrlrun_approvals_waiting 2
		ctrlrun_approvals_waiting_oldest_seconds 300
		ctrlrun_receipts_missing_oldest_seconds 7
		ctrlrun_effects{state="Ambiguous"} 3
		ctrlrun_effects{state="Executing"} 1
		ctrlrun_effects{state="Reserved"} 0
		ctrlrun_effects_ambiguous_oldest_seconds 50`)
}

func TestScrapeTellsWhatForbidsDeciding(t *testing.T) {
	compare(t, full(), `
		ctrlrun_admission_held 1
		ctrlrun_freshness_age_seconds 1.5
		ctrlrun_clock_offset_seconds 0.5
		ctrlrun_clock_offset_bound_seconds 1.5
		ctrlrun_chain_seq{namespace="payments"} 42
		ctrlrun_namespace_held{namespace="payments",reason="ledger_rolled_back"} 1
		ctrlrun_namespace_held{namespace="x",reason="other"} 1
		ctrlrun_build_info{version="v1"} 1`)
}

// TestNothingWaits: when nothing waits it says 0, so that an alert ends.
func TestNothingWaits(t *testing.T) {
	m := New(&stored{}, func() time.Time { return now }, Guards{AdmissionHeld: func() (string, bool) { return "", false }})
	compare(t, m, `
		ctrlrun_approvals_waiting 0
		ctrlrun_approvals_waiting_oldest_seconds 0
		ctrlrun_receipts_missing_oldest_seconds 0
		ctrlrun_effects_ambiguous_oldest_seconds 0
		ctrlrun_admission_held 0`)
}

// TestWhatIsNotKnownIsLeftOut: 0 would say that all is well.
func TestWhatIsNotKnownIsLeftOut(t *testing.T) {
	m := New(&stored{err: errors.New("the cache is not filled yet")}, func() time.Time { return now },
		Guards{ClockOffset: func() (time.Duration, time.Duration, bool) { return 0, 0, false }})
	got := slices.Sorted(maps.Keys(gathered(t, m)))
	want := []string{
		"ctrlrun_approvals_total", "ctrlrun_decision_seconds", "ctrlrun_effect_transitions_total", "ctrlrun_effects_ambiguous_total",
		"ctrlrun_leases_lapsed_total", "ctrlrun_proposal_to_admitted_seconds", "ctrlrun_receipt_lag_seconds", "ctrlrun_receipts_appended_total",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCountersBeginAtZero: what has not happened yet is there as 0, or increase() would miss the first time.
func TestCountersBeginAtZero(t *testing.T) {
	compare(t, New(&stored{}, time.Now, Guards{}, "jsonl"), `
		ctrlrun_approvals_total{result="denied"} 0
		ctrlrun_approvals_total{result="expired"} 0
		ctrlrun_approvals_total{result="granted"} 0
		ctrlrun_approvals_total{result="invalidated"} 0
		ctrlrun_effect_transitions_total{state="Ambiguous"} 0
		ctrlrun_effect_transitions_total{state="Committed"} 0
		ctrlrun_effect_transitions_total{state="Executing"} 0
		ctrlrun_effect_transitions_total{state="Failed"} 0
		ctrlrun_effect_transitions_total{state="Reserved"} 0
		ctrlrun_effects_ambiguous_total{cause="ExecutorLost"} 0
		ctrlrun_effects_ambiguous_total{cause="LeaseLapsed"} 0
		ctrlrun_effects_ambiguous_total{cause="OutcomeNotAccepted"} 0
		ctrlrun_effects_ambiguous_total{cause="ReportedUnknown"} 0
		ctrlrun_effects_ambiguous_total{cause="StatusMissing"} 0
		ctrlrun_leases_lapsed_total 0
		ctrlrun_receipts_appended_total{kind="action"} 0
		ctrlrun_receipts_appended_total{kind="event"} 0
		ctrlrun_receipts_appended_total{kind="ledger-accepted"} 0
		ctrlrun_receipts_appended_total{kind="resolution"} 0
		ctrlrun_receipts_appended_total{kind="status-missing"} 0
		ctrlrun_sink_dropped_total{sink="jsonl"} 0`)
}

func TestWritesOfAnAction(t *testing.T) {
	link := &receipt.Link{Seq: 1}
	for name, tt := range map[string]struct {
		write observe.ActionWrite
		want  string // counters that are not 0
	}{
		"an end with a receipt": {
			observe.ActionWrite{Before: flow.Status{State: flow.Admitted, Decision: decision.Allow}, After: flow.Status{State: flow.Committed, Decision: decision.Allow, Receipt: link}},
			`ctrlrun_actions_finished_total{decision="allow",reason="none",state="Committed"} 1`,
		},
		"an end without one yet": {
			observe.ActionWrite{Before: flow.Status{State: flow.Pending, Decision: decision.Deny}, After: flow.Status{State: flow.Denied, Decision: decision.Deny}}, "",
		},
		"what is added after the end": {
			observe.ActionWrite{Before: flow.Status{State: flow.Ambiguous, Receipt: link}, After: flow.Status{State: flow.Ambiguous, Receipt: link, Resolved: &flow.Resolved{}}}, "",
		},
		"whichever rule it was": {
			observe.ActionWrite{Before: flow.Status{State: flow.Denied, Decision: decision.Deny}, After: flow.Status{State: flow.Denied, Decision: decision.Deny, Reason: decision.Rule(7), Receipt: link}},
			`ctrlrun_actions_finished_total{decision="deny",reason="rule",state="Denied"} 1`,
		},
		"words of another version": {
			observe.ActionWrite{Before: flow.Status{Decision: "perhaps"}, After: flow.Status{State: "Lost", Decision: "perhaps", Reason: "agent said so", Receipt: link}},
			`ctrlrun_actions_finished_total{decision="other",reason="other",state="other"} 1`,
		},
		"an end that nobody decided": {
			observe.ActionWrite{Before: flow.Status{State: flow.Blocked}, After: flow.Status{State: flow.Blocked, Reason: decision.MadeWithoutAdmission, Receipt: link}},
			`ctrlrun_actions_finished_total{decision="none",reason="made_without_admission",state="Blocked"} 1`,
		},
		"a lapse": {
			observe.ActionWrite{Before: flow.Status{State: flow.Admitted, Decision: decision.Allow}, After: flow.Status{State: flow.Ambiguous, Decision: decision.Allow, Reason: decision.LeaseLapsed, Receipt: link}},
			`ctrlrun_leases_lapsed_total 1
			ctrlrun_actions_finished_total{decision="allow",reason="lease_lapsed",state="Ambiguous"} 1`,
		},
		"an observed end": {
			observe.ActionWrite{
				Before: flow.Status{State: flow.Admitted, Decision: decision.Deny, WouldHave: &flow.WouldHave{Blocked: decision.NoAuthority}},
				After:  flow.Status{State: flow.Observed, Outcome: flow.Committed, Decision: decision.Deny, WouldHave: &flow.WouldHave{Blocked: decision.NoAuthority}, Receipt: link},
			},
			`ctrlrun_actions_finished_total{decision="deny",reason="none",state="Observed"} 1
			ctrlrun_actions_observed_total{blocked_reason="no_authority",outcome="Committed"} 1`,
		},
		"a lapse while it was observed": {
			observe.ActionWrite{
				Before: flow.Status{State: flow.Admitted, Decision: decision.Allow, WouldHave: &flow.WouldHave{}},
				After:  flow.Status{State: flow.Observed, Outcome: flow.Ambiguous, Decision: decision.Allow, Reason: decision.LeaseLapsed, WouldHave: &flow.WouldHave{}, Receipt: link},
			},
			`ctrlrun_leases_lapsed_total 1
			ctrlrun_actions_finished_total{decision="allow",reason="lease_lapsed",state="Observed"} 1
			ctrlrun_actions_observed_total{blocked_reason="none",outcome="Ambiguous"} 1`,
		},
		"what is added after an observed end": {
			observe.ActionWrite{
				Before: flow.Status{State: flow.Observed, Outcome: flow.Ambiguous, Reason: decision.LeaseLapsed, WouldHave: &flow.WouldHave{}, Receipt: link},
				After:  flow.Status{State: flow.Observed, Outcome: flow.Ambiguous, Reason: decision.LeaseLapsed, WouldHave: &flow.WouldHave{}, Receipt: link, Resolved: &flow.Resolved{}},
			}, "",
		},
		"answers of people": {
			observe.ActionWrite{Events: []timeline.Event{
				{Type: timeline.ApprovalRequested}, {Type: timeline.ApprovalGranted}, {Type: timeline.ApprovalGranted}, {Type: timeline.ApprovalDenied},
				{Type: timeline.ApprovalExpired}, {Type: timeline.ApprovalInvalidated}, {Type: timeline.ApprovalConsumed},
			}},
			`ctrlrun_approvals_total{result="granted"} 2
			ctrlrun_approvals_total{result="denied"} 1
			ctrlrun_approvals_total{result="expired"} 1
			ctrlrun_approvals_total{result="invalidated"} 1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(&stored{}, time.Now, Guards{})
			tt.write.Object, tt.write.Time = proposed(0), now
			m.ActionWritten(tt.write)
			counted(t, m, tt.want)
		})
	}
}

func TestWritesOfAnEffect(t *testing.T) {
	at := func(state effect.State, attempt int64, cause effect.Cause) effect.Status {
		return effect.Status{State: state, Attempt: attempt, Cause: cause}
	}
	before := func(s effect.Status) *effect.Status { return &s }
	for name, tt := range map[string]struct {
		before *effect.Status
		after  effect.Status
		want   string
	}{
		"a reservation":      {nil, at(effect.Executing, 1, ""), `ctrlrun_effect_transitions_total{state="Executing"} 1`},
		"a renewal":          {before(at(effect.Failed, 1, "")), at(effect.Reserved, 2, ""), `ctrlrun_effect_transitions_total{state="Reserved"} 1`},
		"a late report":      {before(at(effect.Ambiguous, 1, effect.LeaseLapsed)), at(effect.Ambiguous, 1, effect.LeaseLapsed), ""},
		"what nobody knows":  {before(at(effect.Executing, 1, "")), at(effect.Ambiguous, 1, effect.LeaseLapsed), "ctrlrun_effect_transitions_total{state=\"Ambiguous\"} 1\nctrlrun_effects_ambiguous_total{cause=\"LeaseLapsed\"} 1"},
		"a lost record":      {nil, at(effect.Ambiguous, 3, effect.StatusMissing), "ctrlrun_effect_transitions_total{state=\"Ambiguous\"} 1\nctrlrun_effects_ambiguous_total{cause=\"StatusMissing\"} 1"},
		"a resolution":       {before(at(effect.Ambiguous, 1, effect.LeaseLapsed)), at(effect.Committed, 1, effect.LeaseLapsed), `ctrlrun_effect_transitions_total{state="Committed"} 1`},
		"a cause of another": {before(at(effect.Executing, 1, "")), at(effect.Ambiguous, 1, "Sunspots"), "ctrlrun_effect_transitions_total{state=\"Ambiguous\"} 1\nctrlrun_effects_ambiguous_total{cause=\"other\"} 1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(&stored{}, time.Now, Guards{})
			m.EffectWritten(observe.EffectWrite{Before: tt.before, After: tt.after})
			counted(t, m, tt.want)
		})
	}
}

func TestReceiptsAndDrops(t *testing.T) {
	m := New(&stored{}, time.Now, Guards{}, "jsonl")
	m.ReceiptAppended(observe.ReceiptAppend{Document: receipt.Document{Kind: receipt.KindAction}, Lag: 30 * time.Millisecond})
	m.ReceiptAppended(observe.ReceiptAppend{Document: receipt.Document{Kind: receipt.KindEvent}})
	m.ReceiptAppended(observe.ReceiptAppend{Document: receipt.Document{Kind: "contract"}})
	m.SinkDropped("jsonl")
	m.SinkDropped("a file name")
	counted(t, m, `
		ctrlrun_receipts_appended_total{kind="action"} 1
		ctrlrun_receipts_appended_total{kind="event"} 1
		ctrlrun_receipts_appended_total{kind="other"} 1
		ctrlrun_sink_dropped_total{sink="jsonl"} 1
		ctrlrun_sink_dropped_total{sink="other"} 1`)
	h := gathered(t, m)["ctrlrun_receipt_lag_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 1 || h.GetSampleSum() != 0.03 {
		t.Errorf("a lag that is not known was counted: %v", h)
	}
}

// TestHowLongADecisionTook: each is measured once, by the write that brings it.
func TestHowLongADecisionTook(t *testing.T) {
	m := New(&stored{}, time.Now, Guards{})
	o := proposed(20 * time.Second)
	pending := flow.Status{State: flow.Pending}
	asked := flow.Status{State: flow.AwaitingApproval, Decision: decision.Approve}
	admitted := flow.Status{State: flow.Admitted, Decision: decision.Approve, Execution: &flow.Execution{Admitted: now}}
	m.ActionWritten(observe.ActionWrite{Object: o, Before: pending, After: asked, Time: ago(15 * time.Second)})
	m.ActionWritten(observe.ActionWrite{Object: o, Before: asked, After: asked, Time: ago(10 * time.Second)})
	m.ActionWritten(observe.ActionWrite{Object: o, Before: asked, After: admitted, Time: now})
	m.ActionWritten(observe.ActionWrite{Object: o, Before: admitted, After: admitted, Time: now})
	// A clock behind the apiserver's does not make a negative duration.
	m.ActionWritten(observe.ActionWrite{Object: proposed(-time.Second), Before: pending, After: asked, Time: now})
	got := gathered(t, m)
	for name, want := range map[string]struct {
		count uint64
		sum   float64
	}{"ctrlrun_decision_seconds": {2, 5}, "ctrlrun_proposal_to_admitted_seconds": {1, 20}} {
		h := got[name].GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != want.count || h.GetSampleSum() != want.sum {
			t.Errorf("%s: %d of %v s together, want %d of %v", name, h.GetSampleCount(), h.GetSampleSum(), want.count, want.sum)
		}
	}
}

// counted fails unless the counters that are not 0 are these.
func counted(t *testing.T, m *Metrics, want string) {
	t.Helper()
	var got []string
	for name, f := range gathered(t, m) {
		if f.GetType() != dto.MetricType_COUNTER {
			continue
		}
		for _, metric := range f.GetMetric() {
			if metric.GetCounter().GetValue() == 0 {
				continue
			}
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if len(labels) > 0 {
				name = f.GetName() + "{" + strings.Join(labels, ",") + "}"
			}
			got = append(got, fmt.Sprintf("%s %v", name, metric.GetCounter().GetValue()))
		}
	}
	var lines []string
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(got)
	slices.Sort(lines)
	if !slices.Equal(got, lines) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// TestSeveralOperators of one process have a registry each; the second in one registry is refused and changes nothing.
func TestSeveralOperators(t *testing.T) {
	first, second := full(), full()
	r := prometheus.NewRegistry()
	if err := first.Register(r); err != nil {
		t.Fatal(err)
	}
	if err := second.Register(r); !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		t.Errorf("registering a second operator gives %v", err)
	}
	if err := second.Register(prometheus.NewRegistry()); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "ctrlrun_actions_observed_total"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestWritesDuringAScrape proves with the race detector that an observer and a scrape may run at once.
func TestWritesDuringAScrape(t *testing.T) {
	m := full()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				m.ActionWritten(observe.ActionWrite{Object: proposed(0), After: flow.Status{State: flow.Admitted, Decision: decision.Allow, Execution: &flow.Execution{Admitted: now}}, Time: now})
				m.SinkDropped("jsonl")
			}
		})
		group.Go(func() {
			for range 20 {
				if _, err := testutil.CollectAndLint(m); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := testutil.ToFloat64(m.sinkDropped.WithLabelValues("jsonl")); n != 200 {
		t.Errorf("%v drops were counted", n)
	}
}

// TestListsAreComplete: every word that the kernel has for one of these is in the list of labels.
func TestListsAreComplete(t *testing.T) {
	for _, tt := range []struct {
		file, typ string
		want      []string
	}{
		{"decision/decision.go", "Reason", words(reasons())},
		{"decision/decision.go", "Decision", words(decisions())},
		{"effect/effect.go", "State", words(effectStates())},
		{"effect/effect.go", "Cause", words(causes())},
		{"flow/snapshot.go", "State", words(actionStates())},
	} {
		got := constants(t, tt.file, func(_, typ string) bool { return typ == tt.typ })
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: the kernel has %q, the labels %q", tt.file, tt.typ, got, tt.want)
		}
	}
}

func TestReceiptKindsAreComplete(t *testing.T) {
	got := constants(t, "receipt/document.go", func(name, _ string) bool { return strings.HasPrefix(name, "Kind") })
	if want := slices.Sorted(slices.Values(receiptKinds())); !slices.Equal(got, want) {
		t.Errorf("the kernel has the kinds %q, the labels %q", got, want)
	}
}

func words[W ~string](of []W) []string {
	var s []string
	for _, w := range of {
		s = append(s, string(w))
	}
	return s
}

// constants of a file of the kernel that are chosen by their name and type, sorted.
func constants(t *testing.T, file string, chosen func(name, typ string) bool) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "kernel", filepath.FromSlash(file)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		typ, _ := spec.Type.(*ast.Ident)
		if typ == nil {
			typ = &ast.Ident{}
		}
		value, isLiteral := spec.Values[0].(*ast.BasicLit)
		if isLiteral && value.Kind == token.STRING && chosen(spec.Names[0].Name, typ.Name) {
			s, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, s)
		}
		return true
	})
	slices.Sort(found)
	return found
}

// TestDocumented: the table of docs/metrics.md is what a scrape shows.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	families := gathered(t, full())
	for name, f := range families {
		// The order of labels is that of the page.
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\| " + strings.ToLower(f.GetType().String()) + " \\| (.*) \\| " + regexp.QuoteMeta(f.GetHelp()) + " \\|$").FindStringSubmatch(page)
		if row == nil {
			t.Errorf("docs/metrics.md lacks the row of %s, a %s: %s", name, f.GetType(), f.GetHelp())
			continue
		}
		documented := strings.Fields(strings.ReplaceAll(row[1], "`", ""))
		slices.Sort(documented)
		for _, metric := range f.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if !slices.Equal(labels, documented) {
				t.Errorf("%s has the labels %q, and docs/metrics.md says %q", name, labels, documented)
			}
		}
	}
	if rows := strings.Count(page, "\n| `ctrlrun_"); rows != len(families) {
		t.Errorf("docs/metrics.md has %d rows of metrics of the operator, which has %d", rows, len(families))
	}
}
