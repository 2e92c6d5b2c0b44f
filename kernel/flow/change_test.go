package flow_test

import (
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
)

// Nobody is put a question that a lack in the policies answers; what a policy denies is asked for, so that a receipt says who denied it.
func TestUnaskable(t *testing.T) {
	const change = `"ctrlrun.policy.change": `
	for name, test := range map[string]struct {
		policies []string
		observe  bool
		reason   decision.Reason
		says     string
	}{
		"people are asked":       {[]string{`{` + change + `{"effect": "policy:{proposal_uid}:{generation}", "decision": "approve"}}`}, false, "", ""},
		"denied":                 {[]string{`{` + change + `{"decision": "deny"}}`}, false, "", ""},
		"no rule for it":         {[]string{`{` + change + `{"rules": [{"when": {"operation_eq": "delete"}, "decision": "approve"}]}}`}, false, "", ""},
		"in observe mode":        {[]string{`{` + change + `{"decision": "approve"}}`}, true, decision.PolicyChangeUnapproved, "In observe mode nobody is asked"},
		"no policy":              {nil, false, decision.UnknownAction, "add the action ctrlrun.policy.change with decision: approve"},
		"a policy of others":     {[]string{`{"stripe.refund": {"decision": "approve"}}`}, false, decision.UnknownAction, "add the action ctrlrun.policy.change"},
		"allowed":                {[]string{`{` + change + `{"decision": "allow"}}`}, false, decision.PolicyChangeUnapproved, "Let the policy say approve."},
		"two that contradict":    {[]string{`{` + change + `{"decision": "approve"}}`, `{` + change + `{"decision": "deny"}}`}, false, decision.PolicyConflict, "ctrlrun.policy.change"},
		"an invalid one":         {[]string{`{` + change + `{"decision": "perhaps"}}`}, false, decision.PolicyInvalid, "ctrlrun.policy.change"},
		"a key it has no use of": {[]string{`{` + change + `{"effect": "policy:{ticket}", "decision": "approve"}}`}, false, decision.EffectKeyError, "ticket"},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []policy.Source
			for i, text := range test.policies {
				actions, err := canonical.Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				source, _ := policy.NewSource(string(rune('a'+i)), "", 1, actions)
				sources = append(sources, source)
			}
			c := policy.Change{Kind: "Grant", Name: "g", From: "a", To: "b", TargetUID: "u", Proposal: "p", ProposalUID: "x", Generation: 1}
			reason, message := flow.Unaskable(flow.World{Policies: policy.NewSet(sources), Observe: test.observe}, action.Proposal{
				Name: policy.ChangeAction, Arguments: c.Arguments(), Environment: "production", Principal: action.Principal{Agent: "operator"},
			})
			if reason != test.reason || !strings.Contains(message, test.says) || (reason == "") != (message == "") {
				t.Errorf("got %q, %q", reason, message)
			}
		})
	}
}
