package cli

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestCandidates(t *testing.T) {
	for actionType, want := range map[string][]string{
		"deploy":                {"deploy"},
		"stripe.refund":         {"stripe.refund", "stripe.*"},
		"stripe.refund.partial": {"stripe.refund.partial", "stripe.*", "stripe.refund.*"},
		"a.b.c.d.e.f.g":         {"a.b.c.d.e.f.g", "a.*", "a.b.*", "a.b.c.*", "a.b.c.d.*"},
	} {
		if got := candidates(actionType); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", actionType, got, want)
		}
	}
}

func TestGrantsRule(t *testing.T) {
	rule := func(group, resource, verb string, names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}}
	}
	for name, test := range map[string]struct {
		rules []rbacv1.PolicyRule
		want  bool
	}{
		"the type":          {rule("ctrlrun.dev", "actiontypes", "approve", "stripe.refund"), true},
		"every type":        {rule("ctrlrun.dev", "actiontypes", "approve"), true},
		"everything":        {rule("*", "*", "*"), true},
		"another type":      {rule("ctrlrun.dev", "actiontypes", "approve", "iam.grant"), false},
		"another verb":      {rule("ctrlrun.dev", "actiontypes", "resolve"), false},
		"another resource":  {rule("ctrlrun.dev", "approvals", "approve"), false},
		"another group":     {rule("", "actiontypes", "approve"), false},
		"nothing whatever":  {nil, false},
		"a wider type name": {rule("ctrlrun.dev", "actiontypes", "approve", "stripe.refund.*"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := grantsRule(test.rules, "approve", "actiontypes", "stripe.refund"); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
	if grantsRule(rule("ctrlrun.dev", "approvals", "create", "x"), "create", "approvals", "") {
		t.Error("a resourceName gave a create")
	}
}
