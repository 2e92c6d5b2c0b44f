package authority_test

import (
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
)

// The published scenario of an escalation: what was handed on is what holds, and nothing wider can be handed on.
func TestEscalationScenario(t *testing.T) {
	w := finance(t)
	s := w.set()
	for amount, want := range map[int]decision.Reason{5000000: decision.AuthorityConstraint, 150000: decision.AuthorityGrant, 200000: decision.AuthorityGrant, 200001: decision.AuthorityConstraint} {
		r := s.Evaluate(proposal("support-agent", "stripe.refund", spec{"amount": amount}), t0)
		if r.Reason != want || r.Passed != (want == decision.AuthorityGrant) || r.Ref != delegationRef("dlg-2") || r.Root != grantRef("head-of-finance") || r.Depth != 2 {
			t.Errorf("amount %d: %s, want %s", amount, describe(r), want)
		}
	}
	wider := w.source("wider", below(delegationRef("dlg-1"), "finance-agent", "support-agent", spec{
		"actions": []string{"stripe.*"}, "expirationTime": at(time.Hour), "constraints": spec{"amount_lte": 5000000}}))
	if j := s.Judge(wider, t0); j.Refusal != authority.Containment || j.Dimension != authority.DimensionConstraints {
		t.Errorf("a wider delegation: %q in %q", j.Refusal, j.Dimension)
	}
	any := w.source("any", below(delegationRef("dlg-2"), "support-agent", "helper", spec{
		"actions": []string{"stripe.refund"}, "expirationTime": at(time.Hour), "constraints": spec{"amount_lte": 1}}))
	if j := s.Judge(any, t0); j.Refusal != authority.ParentNotDelegable || j.Dimension != "" {
		t.Errorf("a delegation by somebody who may not delegate: %q in %q", j.Refusal, j.Dimension)
	}
}
