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
