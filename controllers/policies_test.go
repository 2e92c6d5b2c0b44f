package controllers

import (
	"encoding/json"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// TestPolicyIsJudgedAsStored proves that what the Go type would drop or change is still seen: a policy that was written
// while admission was away must not become a wider one.
func TestPolicyIsJudgedAsStored(t *testing.T) {
	tests := map[string]struct {
		spec   string
		reason decision.Reason
	}{
		"a valid policy":              {`{"actions":{"a":{"decision":"allow"}}}`, decision.PlainDecision},
		"a misspelt key":              {`{"actions":{"a":{"decision":"allow","efect":"x:{y}"}}}`, decision.PolicyInvalid},
		"a null effect":               {`{"actions":{"a":{"decision":"allow","effect":null}}}`, decision.PolicyInvalid},
		"a null when":                 {`{"actions":{"a":{"rules":[{"when":null,"decision":"allow"}]}}}`, decision.PolicyInvalid},
		"a fraction":                  {`{"actions":{"a":{"rules":[{"when":{"x_lte":1.5},"decision":"allow"}]}}}`, decision.PolicyInvalid},
		"a fraction of another entry": {`{"actions":{"b":{"rules":[{"when":{"x_lte":1.5},"decision":"allow"}]},"a":{"decision":"allow"}}}`, decision.PolicyInvalid},
		"an unknown decision":         {`{"actions":{"a":{"decision":"permit"}}}`, decision.PolicyInvalid},
		"a decision that is a number": {`{"actions":{"a":{"decision":1}}}`, decision.PolicyInvalid},
		"both decision and rules":     {`{"actions":{"a":{"decision":"allow","rules":[{"decision":"deny"}]}}}`, decision.PolicyInvalid},
		"no such action":              {`{"actions":{"b":{"decision":"allow"}}}`, decision.UnknownAction},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.ActionPolicy{}
			o.Name = "p"
			if err := json.Unmarshal([]byte(test.spec), &o.Spec); err != nil {
				t.Fatal(err)
			}
			set := policy.NewSet([]policy.Source{parsePolicy(o).source})
			e, err := set.Evaluate(action.Proposal{Name: "a", Arguments: map[string]any{}, Principal: action.Principal{Agent: "x"}, Environment: "production"})
			if err != nil {
				t.Fatal(err)
			}
			if e.Reason != test.reason {
				t.Errorf("reason %q (%s), want %q", e.Reason, e.Message, test.reason)
			}
			if (e.Decision == decision.Allow) != (test.reason == decision.PlainDecision) {
				t.Errorf("decision %q", e.Decision)
			}
		})
	}
}
