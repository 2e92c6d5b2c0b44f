package records_test

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
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
			source, _ := records.Policy(o)
			set := policy.NewSet([]policy.Source{source})
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

func TestSettingsHaveDefaults(t *testing.T) {
	o := &v1alpha1.Settings{}
	if r := records.Settings(o); r.Required || r.Observe || r.MaxDepth != 3 || r.Limits.ApprovalTTL != 15*time.Minute || r.People != nil {
		t.Errorf("empty Settings: %+v", r)
	}
	spec := `{"authority":"Required","mode":"Observe","maxDelegationDepth":0,"approvalTTLSeconds":60,"identityAliases":[[],["alice@a","alice@b"]]}`
	if err := json.Unmarshal([]byte(spec), &o.Spec); err != nil {
		t.Fatal(err)
	}
	r := records.Settings(o)
	if !r.Required || !r.Observe || r.MaxDepth != 0 || r.Limits.ApprovalTTL != time.Minute || r.Limits.MaxLease != 24*time.Hour {
		t.Errorf("%+v", r)
	}
	if got := r.People.Aliases(); len(got) != 1 || len(got[0]) != 2 {
		t.Errorf("people: %v", got)
	}
}

func TestInForce(t *testing.T) {
	gone := metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}
	for name, test := range map[string]struct {
		o    metav1.Object
		want bool
	}{
		"a policy":                  {&v1alpha1.ActionPolicy{}, true},
		"a policy that is deleted":  {&v1alpha1.ActionPolicy{ObjectMeta: gone}, false},
		"a Grant that is deleted":   {&v1alpha1.Grant{ObjectMeta: gone}, false},
		"Settings that are deleted": {&v1alpha1.Settings{ObjectMeta: gone}, true},
	} {
		if got := records.InForce(test.o); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
