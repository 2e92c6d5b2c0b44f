package stats

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ended(result decision.Result, reason decision.Reason) receipt.Document {
	return receipt.Document{
		Kind: receipt.KindAction, ActionType: "stripe.refund", Principal: &receipt.Principal{Agent: "bot"}, Result: result, Reason: reason,
		ProposedTime: noon.Add(-time.Hour), FinishedTime: noon,
	}
}

func approved(d receipt.Document, after ...time.Duration) receipt.Document {
	for _, a := range after {
		d.Approvals = append(d.Approvals, receipt.Approval{Approver: "alice", Time: d.ProposedTime.Add(a)})
	}
	return d
}

// TestEveryNumber proves that each kind of end is counted once, under its own word and reason.
func TestEveryNumber(t *testing.T) {
	c := New(Options{})
	byDecision := ended(decision.Denied, "")
	byDecision.DecisionReason = "rule[2]"
	byDecision.Refused = []receipt.Refusal{{Kind: "approval"}, {Kind: "claim"}, {Kind: "approval"}}
	for _, d := range []receipt.Document{
		ended(decision.Committed, ""),
		approved(ended(decision.Committed, ""), 10*time.Second, 20*time.Second),
		ended(decision.Failed, decision.NeverBegan),
		ended(decision.Ambiguous, decision.LeaseLapsed),
		ended(decision.Ambiguous, decision.ReportedUnknown),
		ended(decision.Ambiguous, decision.ReportedUnknown),
		ended(decision.Denied, decision.UnknownAction),
		byDecision,
		ended(decision.Denied, decision.ApprovalDenied),
		ended(decision.Denied, decision.ApprovalExpired),
		ended(decision.Denied, decision.NotClaimed),
		ended(decision.Denied, decision.NotAfter),
		ended(decision.Blocked, decision.Duplicate),
		ended(decision.Blocked, decision.AmbiguousEffect),
		{Kind: receipt.KindResolution, Result: decision.Committed, FinishedTime: noon},
		{Kind: receipt.KindResolution, Result: decision.Failed, FinishedTime: noon},
		{Kind: receipt.KindResolution, Result: decision.Failed, FinishedTime: noon},
		{Kind: receipt.KindStatusMissing, Result: decision.Ambiguous, Reason: decision.StatusMissing, FinishedTime: noon},
		{Kind: receipt.KindLedgerAccepted, FinishedTime: noon.Add(time.Hour)},
	} {
		c.Add(d)
	}
	got := c.Report()
	seconds := got.Approvals.Seconds
	got.Approvals.Seconds = nil
	want := Report{
		Receipts: 19, Actions: 14, First: noon, Last: noon.Add(time.Hour), By: ByType,
		Results:     map[string]int64{"committed": 2, "failed": 1, "ambiguous": 3, "denied": 3, "expired": 3, "blocked": 2},
		Observed:    newObserved(),
		Denied:      map[string]int64{"unknown_action": 1, "rule[2]": 1, "approval_denied": 1},
		Expired:     map[string]int64{"approval_expired": 1, "not_claimed": 1, "not_after": 1},
		Blocked:     map[string]int64{"duplicate": 1, "ambiguous": 1},
		Ambiguous:   map[string]int64{"lease_lapsed": 1, "reported_unknown": 2},
		LostRecords: 1,
		Resolutions: Resolutions{Committed: 1, NotExecuted: 2},
		Approvals:   Approvals{Granted: 2, Denied: 1, Expired: 1, Invalidated: 2},
		Rows:        []Row{{Name: "stripe.refund", Actions: 14, Committed: 2, Failed: 1, Ambiguous: 3, Denied: 3, Expired: 3, Blocked: 2}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if seconds == nil || math.Abs(seconds.Median-10) > 0.2 || math.Abs(seconds.P95-20) > 0.4 {
		t.Errorf("the answers took 10 s and 20 s, not %+v", seconds)
	}
}

// TestNothing proves that an empty chain gives zeros and no gaps.
func TestNothing(t *testing.T) {
	got := New(Options{}).Report()
	want := map[string]int64{"committed": 0, "failed": 0, "ambiguous": 0, "denied": 0, "expired": 0, "blocked": 0}
	if got.Actions != 0 || got.Rows == nil || got.Approvals.Seconds != nil || !reflect.DeepEqual(got.Results, want) {
		t.Errorf("an empty chain gives %+v", got)
	}
}

// TestSinceIsInclusive proves the edge of the window.
func TestSinceIsInclusive(t *testing.T) {
	c := New(Options{Since: noon})
	for _, at := range []time.Duration{-time.Millisecond, 0, time.Millisecond} {
		d := ended(decision.Committed, "")
		d.FinishedTime = noon.Add(at)
		c.Add(d)
	}
	if got := c.Report().Actions; got != 2 {
		t.Errorf("%d actions are from noon on, want 2: noon itself counts", got)
	}
}

// TestAWordBeyondTheListIsCounted proves that the results always add up to the actions.
func TestAWordBeyondTheListIsCounted(t *testing.T) {
	c := New(Options{})
	c.Add(ended("postponed", ""))
	if got := c.Report(); got.Results["postponed"] != 1 || got.Actions != 1 {
		t.Errorf("got %+v", got.Results)
	}
}

// observed is the receipt of an action that ran in observe mode.
func observed(execution decision.Result, reason decision.Reason, would decision.Decision, why string, blocked decision.Reason) receipt.Document {
	d := ended(decision.Observed, reason)
	d.Decision, d.DecisionReason, d.Execution = would, why, execution
	d.WouldHave = &receipt.WouldHave{Decision: would, Reason: why, BlockedReason: string(blocked)}
	return d
}

// TestWhatEnforcingWouldHaveDone proves that each observed action is counted once by what enforcing would have done, by the
// reason that tells most, and once by how it ended; and that what observe mode refused is counted as ever.
func TestWhatEnforcingWouldHaveDone(t *testing.T) {
	c := New(Options{})
	for _, d := range []receipt.Document{
		observed(decision.Committed, "", decision.Allow, "rule[0]", ""),
		observed(decision.Failed, "", decision.Allow, "rule[0]", ""),
		observed(decision.Committed, "", decision.Deny, "no_authority", decision.NoAuthority),
		observed(decision.Ambiguous, decision.LeaseLapsed, decision.Deny, "rule[2]", decision.PolicyDenied),
		observed(decision.Committed, "", decision.Deny, "rule[2]", decision.PolicyDenied),
		observed(decision.Committed, "", decision.Approve, "rule[1]", decision.ApprovalRequired),
		observed(decision.Committed, "", decision.Approve, "rule[1]", decision.ApprovalExpired),
		observed(decision.Committed, "", decision.Approve, "rule[1]", decision.ApprovalDenied),
		observed(decision.Committed, "", decision.Approve, "rule[1]", decision.Duplicate),
		observed(decision.Ambiguous, decision.ReportedUnknown, decision.Allow, "rule[0]", decision.AmbiguousEffect),
		observed(decision.Ambiguous, decision.ReportedUnknown, decision.Allow, "rule[0]", decision.InProgress),
		observed(decision.Committed, "", decision.Approve, "rule[1]", ""), // people had approved it
		ended(decision.Denied, decision.EffectKeyError),
		ended(decision.Ambiguous, decision.LeaseLapsed),
	} {
		c.Add(d)
	}
	got := c.Report()
	want := Observed{
		Actions: 12, WouldHaveRun: 3,
		WouldHaveBeenDenied:     Share{4, 33.3, map[string]int64{"no_authority": 1, "rule[2]": 2, "approval_denied": 1}},
		WouldHaveNeededApproval: Share{2, 16.7, map[string]int64{"rule[1]": 2}},
		WouldHaveBeenBlocked:    Share{3, 25, map[string]int64{"duplicate": 1, "ambiguous": 1, "in_progress": 1}},
		Executions:              map[string]int64{"committed": 8, "failed": 1, "ambiguous": 3},
		Ambiguous:               map[string]int64{"lease_lapsed": 1, "reported_unknown": 2},
	}
	if !reflect.DeepEqual(got.Observed, want) {
		t.Errorf("got  %+v\nwant %+v", got.Observed, want)
	}
	if r := got.Results; r["observed"] != 12 || r["denied"] != 1 || r["ambiguous"] != 1 || got.Actions != 14 {
		t.Errorf("the results are %v of %d", r, got.Actions)
	}
	if got.Rows[0].Observed != 12 || got.Ambiguous["lease_lapsed"] != 1 || got.Denied["effect_key_error"] != 1 || len(got.Blocked) > 0 {
		t.Errorf("got %+v", got)
	}
	c.Add(observed(decision.Committed, "", decision.Deny, "no_authority", decision.NoAuthority))
	if !reflect.DeepEqual(got.Observed, want) {
		t.Error("a report changes after it was made")
	}
}

// TestRowsAreBounded proves that neither the memory nor the table grows with names that agents make up, and that no action is
// lost from the sums.
func TestRowsAreBounded(t *testing.T) {
	c := New(Options{By: ByAgent})
	const names = 5 * maxNames
	for i := range names {
		d := ended(decision.Denied, decision.UnknownAction)
		d.Principal = &receipt.Principal{Agent: fmt.Sprint("agent-", i)}
		c.Add(d)
	}
	d := ended(decision.Committed, "")
	d.Principal = &receipt.Principal{Agent: "agent-7"}
	c.Add(d)
	nobody := ended(decision.Committed, "")
	nobody.Principal = nil
	c.Add(nobody)
	if len(c.rows) > maxNames+1 {
		t.Errorf("%d names are kept", len(c.rows))
	}
	got := c.Report()
	if len(got.Rows) != MaxRows || got.Others == nil || got.Rows[0].Name != Other || got.Rows[1].Name != "agent-7" || got.Rows[1].Committed != 1 {
		t.Fatalf("%d rows, the first are %+v", len(got.Rows), got.Rows[:2])
	}
	sum := got.Others.Actions
	for _, row := range got.Rows {
		sum += row.Actions
	}
	if sum != got.Actions || sum != names+2 {
		t.Errorf("the rows have %d actions, the report %d", sum, got.Actions)
	}
}

// TestQuantiles proves the promised accuracy over the whole range of waits.
func TestQuantiles(t *testing.T) {
	for _, seconds := range []float64{0.5, 1, 7, 59, 60, 3599, 86400, 604800} {
		var h histogram
		h.add(time.Duration(seconds * float64(time.Second)))
		if got := h.quantile(0.5); math.Abs(got-seconds) > 0.02*seconds+0.05 {
			t.Errorf("one wait of %v s has the median %v", seconds, got)
		}
	}
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Second)
	}
	h.add(-time.Second)
	h.add(10_000 * 24 * time.Hour)
	if got := h.describe(); math.Abs(got.Median-500) > 11 || math.Abs(got.P95-951) > 20 {
		t.Errorf("waits of 1 s to 1000 s give %+v", got)
	}
}
