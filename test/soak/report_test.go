package main

import (
	"bytes"
	"math/big"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/chaos/judge"
)

// stored is a state with one receipt for each attempt.
type stored struct {
	t *testing.T
	judge.State
	head receipt.Link
	at   time.Time
}

func newStored(t *testing.T) *stored {
	return &stored{t: t, State: judge.State{Namespace: "soak", NamespaceUID: "n", ClusterID: "c"}, head: receipt.Start(), at: time.Now()}
}

// ended adds the receipt of an Action that was admitted.
func (s *stored) ended(uid, key string, attempt int64, result decision.Result, reason decision.Reason) {
	s.t.Helper()
	d := receipt.Document{
		Kind: receipt.KindAction, SubjectUID: uid, ActionName: "name-" + uid, ActionUID: uid, ActionType: actionType,
		Principal: &receipt.Principal{Agent: "agent"}, EffectKey: key, EffectName: action.EffectName(key), EffectUID: "effect-" + key,
		Attempt: attempt, Token: "token", Result: result, Reason: reason, Arguments: map[string]any{"n": big.NewInt(1)},
		ActionHash: receipt.Genesis, Environment: "production", Decision: decision.Allow, DecisionReason: "decision",
		Policy: &receipt.Policy{Name: "p", RulesHash: receipt.Genesis}, RulesHash: receipt.Genesis, ExecutorMode: receipt.ModeAgent,
		ClaimID: "claim", ProposedTime: s.at, AdmittedTime: s.at, FinishedTime: s.at,
		ClusterID: s.ClusterID, Namespace: s.Namespace, NamespaceUID: s.NamespaceUID,
	}
	e, err := d.Entry(s.head)
	if err != nil {
		s.t.Fatal(err)
	}
	d.Seq, s.head = e.Seq, e.Link()
	s.Receipts = append(s.Receipts, *records.Receipt(s.Namespace, e, d))
}

// execution of an Action that was admitted.
func execution(uid, key string, attempt int64) client.Execution {
	return client.Execution{Action: &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: "soak", Name: "name-" + uid, UID: types.UID(uid)},
		Status:     v1alpha1.ActionStatus{Effect: &v1alpha1.ActionEffect{Key: key, Attempt: attempt}},
	}}
}

// TestInjectionsExplainTheirOwnAttempt: the attempt that is Ambiguous is the second of its effect.
func TestInjectionsExplainTheirOwnAttempt(t *testing.T) {
	const key = "refund:txn_1"
	second := execution("uid-2", key, 2)
	for name, tc := range map[string]struct {
		reason   decision.Reason
		of       client.Execution
		kind     kind
		recorded time.Duration // before it was over
		want     bool
	}{
		"a timeout explains that the executor does not know": {decision.ReportedUnknown, second, executorTimeout, time.Second, true},
		"an exception does":                           {decision.ReportedUnknown, second, unknownException, time.Second, true},
		"a stall explains a lapse":                    {decision.LeaseLapsed, second, leaseLapse, time.Minute, true},
		"a stall explains nothing that was reported":  {decision.ReportedUnknown, second, leaseLapse, time.Minute, false},
		"a timeout explains no lapse":                 {decision.LeaseLapsed, second, executorTimeout, time.Minute, false},
		"a refusal explains nothing that is unknown":  {decision.ReportedUnknown, second, notExecuted, time.Second, false},
		"what was recorded afterwards explains none":  {decision.ReportedUnknown, second, executorTimeout, -time.Second, false},
		"the first attempt does not explain this one": {decision.ReportedUnknown, execution("uid-1", key, 1), executorTimeout, time.Second, false},
		"another Action of the same attempt neither":  {decision.ReportedUnknown, execution("uid-3", key, 2), executorTimeout, time.Second, false},
		"nor does another effect":                     {decision.ReportedUnknown, execution("uid-4", "refund:txn_2", 2), executorTimeout, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStored(t)
			s.ended("uid-1", key, 1, decision.Failed, "")
			s.ended("uid-2", key, 2, decision.Ambiguous, tc.reason)
			i, harmful := injection(tc.of, card{kind: tc.kind})
			if !harmful {
				t.Fatal("it is not put on record")
			}
			i.Time = s.at.Add(-tc.recorded)
			v := judge.Judge(s.State, []judge.Injection{i})
			if v.Ambiguous != 1 {
				t.Fatalf("%d attempts are Ambiguous, want 1", v.Ambiguous)
			}
			if got := len(v.Unexplained) == 0; got != tc.want {
				t.Errorf("explained: %t, want %t: %+v", got, tc.want, v.Unexplained)
			}
		})
	}
	if _, harmful := injection(second, card{kind: clean}); harmful {
		t.Error("a clean execution is put on record as harmed")
	}
}

func TestControlFires(t *testing.T) {
	twice := judge.Finding{EffectKey: "refund:attempted-twice", Attempt: 2}
	late := judge.Finding{EffectKey: "refund:recorded-late", Attempt: 1}
	recorded := judge.Finding{EffectKey: "refund:recorded", Attempt: 1}
	explained := map[string]int{string(unknownException): 1}
	for name, tc := range map[string]struct {
		verdict judge.Verdict
		want    bool
	}{
		"what nobody recorded, and nothing else": {judge.Verdict{Unexplained: []judge.Finding{late, twice}, Explained: explained}, true},
		"a classifier that reports nothing":      {judge.Verdict{Explained: map[string]int{string(unknownException): 3}}, false},
		"one that asks for the key alone":        {judge.Verdict{Unexplained: []judge.Finding{late}, Explained: map[string]int{string(unknownException): 2}}, false},
		"one that does not look at the time":     {judge.Verdict{Unexplained: []judge.Finding{twice}, Explained: map[string]int{string(unknownException): 2}}, false},
		"one that reports everything":            {judge.Verdict{Unexplained: []judge.Finding{twice, recorded, late}}, false},
		"one that reports others":                {judge.Verdict{Unexplained: []judge.Finding{recorded, late}, Explained: explained}, false},
		"one that does not see the third":        {judge.Verdict{Unexplained: []judge.Finding{late, twice}}, false},
		"a run that broke something else":        {judge.Verdict{Unexplained: []judge.Finding{late, twice}, Explained: explained, Lost: []judge.Finding{{}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := controlOf(tc.verdict); got.Fired != tc.want {
				t.Errorf("fired: %t, want %t: %+v", got.Fired, tc.want, got)
			}
		})
	}
}

func TestExitCriterion(t *testing.T) {
	fired, finding, done := control{Fired: true}, []judge.Finding{{Rule: "something"}}, table{Actions: 1}
	for name, tc := range map[string]struct {
		control control
		verdict judge.Verdict
		table   table
		want    bool
		says    string
	}{
		"nothing was found":           {control: fired, table: done, want: true, says: "no unexplained ambiguity"},
		"the control did not fire":    {table: done, says: "the control did not fire"},
		"nothing was done":            {control: fired, says: "nothing was done"},
		"an Ambiguous is unexplained": {control: fired, table: done, verdict: judge.Verdict{Ambiguous: 1, Unexplained: finding}, says: "UNEXPLAINED AMBIGUITY"},
		"a duplicate":                 {control: fired, table: done, verdict: judge.Verdict{Duplicates: finding}, says: "FOUND something"},
		"lost":                        {control: fired, table: done, verdict: judge.Verdict{Lost: finding}, says: "FOUND something"},
		"wrongly Failed":              {control: fired, table: done, verdict: judge.Verdict{WrongFailed: finding}, says: "FOUND something"},
		"the chain is broken":         {control: fired, table: done, verdict: judge.Verdict{Chain: finding}, says: "FOUND something"},
		"a proposal without a receipt": {control: fired, table: table{Actions: 1, without: map[types.UID]card{"uid-1": {kind: clean}}},
			says: "FOUND a proposed Action without a receipt"},
	} {
		t.Run(name, func(t *testing.T) {
			r := report{Control: tc.control}
			r.conclude(tc.verdict, tc.table)
			if r.ExitCriterionMet != tc.want {
				t.Errorf("met: %t, want %t", r.ExitCriterionMet, tc.want)
			}
			var text bytes.Buffer
			if err := r.print(&text); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text.String(), tc.says) {
				t.Errorf("the report does not say %q:\n%s", tc.says, text.String())
			}
		})
	}
}

func TestTally(t *testing.T) {
	s := newStored(t)
	s.ended("uid-1", "refund:txn_1", 1, decision.Failed, "")
	s.ended("uid-2", "refund:txn_1", 2, decision.Ambiguous, decision.LeaseLapsed)
	s.ended("uid-3", "refund:txn_2", 1, decision.Committed, "")
	got := tally(s.State, map[types.UID]card{
		"uid-1": {kind: notExecuted}, "uid-2": {kind: leaseLapse, path: approved}, "uid-4": {kind: clean},
	})
	if got.Actions != 3 || got.Repeated != 1 || got.Approved != 1 {
		t.Errorf("%d actions, %d repeated, %d approved, want 3, 1 and 1", got.Actions, got.Repeated, got.Approved)
	}
	for k, end := range map[kind]string{notExecuted: "failed", leaseLapse: "ambiguous lease_lapsed", foreign: "committed"} {
		if got.Ends[k][end] != 1 {
			t.Errorf("%s ended %v, want one %s", k, got.Ends[k], end)
		}
	}
	if _, lost := got.without["uid-4"]; !lost || len(got.without) != 1 {
		t.Errorf("without a receipt are %v, want uid-4", got.without)
	}
}
