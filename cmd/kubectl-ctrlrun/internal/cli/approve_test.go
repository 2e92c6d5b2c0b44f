package cli

import (
	"strings"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/approval"
)

// Whoever is about to answer in vain is told before, by whatever name they ask.
func TestWontCount(t *testing.T) {
	action := func(user string, groups ...string) *v1alpha1.Action {
		a := &v1alpha1.Action{}
		a.Spec.Principal.Agent = "bot"
		if user != "" {
			a.Spec.Principal.User = &user
		}
		a.Status.Approval = &v1alpha1.ActionApproval{ApproverGroups: groups}
		return a
	}
	people := approval.NewPeople([][]string{{"alice", "alice@home"}})
	for name, tc := range map[string]struct {
		action *v1alpha1.Action
		you    string
		groups []string
		says   string
	}{
		"somebody":                     {action(""), "alice", nil, ""},
		"the agent":                    {action(""), "bot", nil, "you are the one who asks: "},
		"its user":                     {action("alice"), "alice", nil, "it is asked on your behalf: "},
		"its user, by another name":    {action("alice@home"), "alice", nil, "it is asked on your behalf, as alice@home: "},
		"in the groups":                {action("", "finance", "audit"), "alice", []string{"people", "audit"}, ""},
		"in none":                      {action("", "finance", "audit"), "alice", []string{"people"}, "only people of finance, audit are asked"},
		"in none at all":               {action("", "finance"), "alice", nil, "only people of finance are asked"},
		"in the groups, but who asks":  {action("", "finance"), "bot", []string{"finance"}, "you are the one who asks: "},
		"a user's name that is no one": {action("carol"), "alice", nil, ""},
	} {
		got := wontCount(tc.action, tc.you, tc.groups, people)
		if got == "" != (tc.says == "") || !strings.HasPrefix(got, tc.says) {
			t.Errorf("%s: it says %q, want %q", name, got, tc.says)
		}
	}
	if got := wontCount(action("alice@home"), "alice", nil, nil); got != "" {
		t.Errorf("with Settings that may not be read it says %q", got)
	}
}
