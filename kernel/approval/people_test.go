package approval_test

import (
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
)

func TestPeople(t *testing.T) {
	for name, aliases := range map[string][][]string{
		"in one list":       {{"alice", "alice-admin", "sa-alice"}, {"bob", "bob-admin"}},
		"in lists that mix": {{"sa-alice", "alice-admin"}, {"bob-admin", "bob"}, {"alice", "sa-alice"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := approval.NewPeople(aliases)
			for _, tc := range []struct {
				a, b string
				same bool
			}{
				{"alice", "sa-alice", true}, {"alice-admin", "alice", true}, {"bob", "bob-admin", true},
				{"alice", "bob", false}, {"carol", "carol", true}, {"carol", "alice", false}, {"", "alice", false},
			} {
				if got := p.Same(tc.a, tc.b); got != tc.same {
					t.Errorf("%q and %q are one person: %t", tc.a, tc.b, got)
				}
			}
			if got := p.Aliases(); len(got) != 2 || len(got[0]) != 3 || len(got[1]) != 2 {
				t.Errorf("the aliases are %v", got)
			}
			if want := approval.NewPeople([][]string{{"bob-admin", "bob"}, {"alice", "alice-admin", "sa-alice"}}).Key(); p.Key() != want {
				t.Errorf("the key depends on how it was written: %q and %q", p.Key(), want)
			}
		})
	}
	var nobody *approval.People
	if nobody.Same("a", "b") || !nobody.Same("a", "a") || nobody.Key() != "" || nobody.Aliases() != nil {
		t.Error("without aliases every name is a person of its own")
	}
}

// Who asked cannot answer by another name, and one person counts once by whatever names.
func TestCountPeople(t *testing.T) {
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	user := "carol"
	q := approval.Question{
		ActionUID: "uid", ActionType: "stripe.refund", Hash: "hash", Agent: "alice", User: &user, Required: 2,
		Expiration: noon.Add(time.Hour), AdmissionSince: noon.Add(-time.Hour),
		People: approval.NewPeople([][]string{{"alice", "alice-admin"}, {"carol", "c2"}, {"bob", "bob-admin"}}),
	}
	yes := func(who string, after time.Duration) approval.Answer {
		return approval.Answer{UID: who, ActionUID: "uid", ActionType: "stripe.refund", Hash: "hash", Approved: true, Approver: who, Created: noon.Add(after)}
	}
	tally := q.Count([]approval.Answer{yes("alice-admin", 1), yes("c2", 2), yes("bob", 3), yes("bob-admin", 4)})
	for who, want := range map[string]approval.Refusal{
		"alice-admin": approval.SelfApproval, "c2": approval.SelfApproval, "bob": approval.Counts, "bob-admin": approval.DuplicateApprover,
	} {
		if got := tally.Refusals[who]; got != want {
			t.Errorf("%s: %q, want %q", who, got, want)
		}
	}
	if tally.Sufficient(q) {
		t.Error("one person was enough where two are asked")
	}
	if tally = q.Count([]approval.Answer{yes("bob", 3), yes("dave", 5)}); !tally.Sufficient(q) {
		t.Error("two people are not enough")
	}
}

// An approver is in a group of each list, and still has the right when the approval is to be spent.
func TestCountEntitled(t *testing.T) {
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	answer := func(groups []string, e approval.Entitlement) approval.Answer {
		return approval.Answer{UID: "x", ActionUID: "uid", Hash: "hash", Approved: true, Approver: "bob", Groups: groups, Entitlement: e, Created: noon}
	}
	for name, tc := range map[string]struct {
		asked  [][]string
		answer approval.Answer
		want   approval.Refusal
	}{
		"nobody is named":                     {nil, answer(nil, approval.Unchecked), approval.Counts},
		"in one of them":                      {[][]string{{"finance", "board"}}, answer([]string{"all", "board"}, approval.Unchecked), approval.Counts},
		"in none of them":                     {[][]string{{"finance"}}, answer([]string{"financial"}, approval.Unchecked), approval.NotEntitled},
		"without groups":                      {[][]string{{"finance"}}, answer(nil, approval.Entitled), approval.NotEntitled},
		"in one that the policy asks no more": {[][]string{{"finance"}, {"board"}}, answer([]string{"finance"}, approval.Entitled), approval.NotEntitled},
		"in one of each":                      {[][]string{{"finance"}, {"board"}}, answer([]string{"finance", "board"}, approval.Entitled), approval.Counts},
		"still entitled":                      {nil, answer(nil, approval.Entitled), approval.Counts},
		"not any more":                        {nil, answer(nil, approval.Unentitled), approval.NotEntitled},
	} {
		t.Run(name, func(t *testing.T) {
			q := approval.Question{ActionUID: "uid", Hash: "hash", Agent: "alice", Expiration: noon, AdmissionSince: noon.Add(-time.Hour), Required: 1, Groups: tc.asked}
			if got := q.Count([]approval.Answer{tc.answer}).Refusals["x"]; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
