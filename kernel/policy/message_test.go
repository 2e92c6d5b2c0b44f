package policy

import (
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
)

// TestDenialSaysWhyNoEarlierRuleMatched proves that somebody who wrote amount=100 for amount:=100 is told.
func TestDenialSaysWhyNoEarlierRuleMatched(t *testing.T) {
	source, findings := NewSource("payments", "", 1, map[string]any{"stripe.refund": map[string]any{"rules": []any{
		map[string]any{"when": map[string]any{"amount_lte": int64(500)}, "decision": "allow"},
		map[string]any{"decision": "deny"},
	}}})
	if HasErrors(findings) {
		t.Fatal(findings)
	}
	e, err := NewSet([]Source{source}).Evaluate(action.Proposal{Name: "stripe.refund", Arguments: map[string]any{"amount": "100"}, Principal: action.Principal{Agent: "a"}, Environment: "production"})
	if err != nil {
		t.Fatal(err)
	}
	if e.Reason != "rule[1]" || !strings.Contains(e.Message, "rule[0]: amount_lte is false because the argument is a string, not an integer") {
		t.Errorf("%s: %s", e.Reason, e.Message)
	}
}

// TestAQuestionSaysWhoIsAsked proves that whoever evaluates a policy is told how many of whom have to say yes.
func TestAQuestionSaysWhoIsAsked(t *testing.T) {
	entry := func(groups ...any) map[string]any {
		return map[string]any{"stripe.refund": map[string]any{"decision": "approve", "approvalsRequired": int64(2), "approverGroups": groups}}
	}
	source, findings := NewSource("payments", "", 1, entry("finance", "board"))
	if HasErrors(findings) {
		t.Fatal(findings)
	}
	set := NewSet([]Source{source})
	e, err := set.Evaluate(action.Proposal{Name: "stripe.refund", Arguments: map[string]any{}, Principal: action.Principal{Agent: "a"}, Environment: "production"})
	if err != nil || !strings.Contains(e.Message, "2 different people") || !strings.Contains(e.Message, "one of the groups finance, board.") {
		t.Errorf("%s: %v", e.Message, err)
	}
	other, _ := NewSource("more", "", 1, entry("board", "finance"))
	if e := set.Entry("stripe.refund"); e == nil || len(e.ApproverGroups) != 2 {
		t.Errorf("the entry is %+v", e)
	}
	both := NewSet([]Source{source, other})
	if both.Entry("stripe.refund") != nil || both.Entry("stripe.payout") != nil {
		t.Error("an entry that does not count, or is not there, decides")
	}
}
