package policy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/policy"
)

func TestEvaluateVectors(t *testing.T) {
	data, err := os.ReadFile("../testdata/vectors/evaluate.json")
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Decision, Reason, ActionHash string
		EffectKey, Resource          *string
	}
	var cases []struct {
		ID        string
		Policy    json.RawMessage
		Action    json.RawMessage
		Want      *answer
		WantError bool `json:"want_error"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("the vector file has no cases")
	}
	for _, tc := range cases {
		t.Run(tc.ID, func(t *testing.T) {
			doc, findings, err := policy.ParseYAML("policy.json", tc.Policy)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(tc.ID, "l") {
				if !policy.HasErrors(findings) {
					t.Error("the policy loads, want a refusal")
				}
				return
			}
			if policy.HasErrors(findings) {
				t.Fatalf("the policy does not load: %v", findings)
			}
			p, err := action.ParseDocument(tc.Action)
			if err != nil {
				t.Fatal(err)
			}
			e, err := policy.NewSet([]policy.Source{doc.Source("policy.json")}).Evaluate(p)
			if tc.WantError {
				if err == nil {
					t.Errorf("evaluated as %s / %s, want an error", e.Decision, e.Reason)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := answer{string(e.Decision), string(e.Reason), e.Hash, e.EffectKey, e.Proposal.Resource}
			if text(got) != text(*tc.Want) {
				t.Errorf("evaluation = %s, want %s", text(got), text(*tc.Want))
			}
		})
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
