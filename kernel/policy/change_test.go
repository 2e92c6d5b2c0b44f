package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

func TestChangeIsReadAsItWasWritten(t *testing.T) {
	for name, c := range map[string]policy.Change{
		"update": {Kind: "Grant", Name: "g", From: "sha256:a", To: "sha256:b", TargetUID: "u", TargetGeneration: 3, Proposal: "p", ProposalUID: "x", Generation: 2},
		"create": {Kind: "Grant", Name: "g", To: "sha256:b", Proposal: "p", ProposalUID: "x", Generation: 1},
		"delete": {Kind: "Grant", Name: "g", From: "sha256:a", TargetUID: "u", TargetGeneration: 3, Proposal: "p", ProposalUID: "x", Generation: 1},
	} {
		t.Run(name, func(t *testing.T) {
			arguments, err := canonical.Encode(c.Arguments())
			if err != nil {
				t.Fatal(err)
			}
			got, err := policy.ReadChange(arguments)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c, got); d != "" {
				t.Error(d)
			}
			if c.Operation() != name {
				t.Errorf("it is called %s", c.Operation())
			}
		})
	}
	if _, err := policy.ReadChange([]byte(`{"kind": 1}`)); err == nil {
		t.Error("what is no change was read as one")
	}
}

func TestChangeNext(t *testing.T) {
	at := func(uid string, generation int64, hash string) policy.Target {
		return policy.Target{Present: true, UID: uid, Generation: generation, Hash: hash}
	}
	none := policy.Target{}
	update := policy.Change{From: "a", To: "b", TargetUID: "u", TargetGeneration: 3}
	create := policy.Change{To: "b"}
	remove := policy.Change{From: "a", TargetUID: "u", TargetGeneration: 3}
	for name, test := range map[string]struct {
		change policy.Change
		target policy.Target
		// fresh is the step before a write may have been sent, begun the one after.
		fresh, begun policy.ChangeStep
	}{
		"an update of what stands":           {update, at("u", 3, "a"), policy.ChangeWrite, policy.ChangeWrite},
		"an update that was made":            {update, at("u", 4, "b"), policy.ChangeStale, policy.ChangeMade},
		"an update of what changed":          {update, at("u", 4, "c"), policy.ChangeStale, policy.ChangeUnknown},
		"an update of what changed and back": {update, at("u", 5, "a"), policy.ChangeStale, policy.ChangeUnknown},
		"an update of another of that name":  {update, at("v", 3, "a"), policy.ChangeStale, policy.ChangeUnknown},
		"an update of what is gone":          {update, none, policy.ChangeStale, policy.ChangeUnknown},
		"a create of what is not there":      {create, none, policy.ChangeWrite, policy.ChangeWrite},
		"a create that was made":             {create, at("u", 1, "b"), policy.ChangeStale, policy.ChangeMade},
		"a create of what is there":          {create, at("u", 1, "c"), policy.ChangeStale, policy.ChangeUnknown},
		"a delete of what stands":            {remove, at("u", 3, "a"), policy.ChangeWrite, policy.ChangeWrite},
		"a delete that was made":             {remove, none, policy.ChangeStale, policy.ChangeMade},
		"a delete of what changed":           {remove, at("u", 4, "c"), policy.ChangeStale, policy.ChangeUnknown},
		"a delete of another of that name":   {remove, at("v", 1, "a"), policy.ChangeStale, policy.ChangeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.change.Next(test.target, false); got != test.fresh {
				t.Errorf("before: %s, want %s", got, test.fresh)
			}
			if got := test.change.Next(test.target, true); got != test.begun {
				t.Errorf("after: %s, want %s", got, test.begun)
			}
		})
	}
}

func TestContentHash(t *testing.T) {
	hash := func(kind, text string) string {
		t.Helper()
		v, err := canonical.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		h, err := policy.ContentHash(kind, v)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := hash("Grant", `{"a":1,"b":[1,2]}`)
	if hash("Grant", ` { "b" : [1, 2], "a" : 1 } `) != base {
		t.Error("order and white space move the hash")
	}
	for name, other := range map[string]string{
		"another kind": hash("ActionPolicy", `{"a":1,"b":[1,2]}`), "another value": hash("Grant", `{"a":2,"b":[1,2]}`),
		"another order of a list": hash("Grant", `{"a":1,"b":[2,1]}`), "a text": hash("Grant", `{"a":"1","b":[1,2]}`),
	} {
		if other == base {
			t.Errorf("%s does not move the hash", name)
		}
	}
	if _, err := policy.ContentHash("Grant", map[string]any{"a": 1.5}); err == nil {
		t.Error("a fraction was hashed")
	}
}

func TestAChangeIsNeverAllowedWithoutPeople(t *testing.T) {
	for name, test := range map[string]struct {
		entry  string
		want   decision.Decision
		reason decision.Reason
	}{
		"allow":              {`{"decision": "allow"}`, decision.Deny, decision.PolicyChangeUnapproved},
		"a rule that allows": {`{"rules": [{"when": {"operation_eq": "update"}, "decision": "allow"}]}`, decision.Deny, decision.PolicyChangeUnapproved},
		"approve":            {`{"decision": "approve"}`, decision.Approve, decision.PlainDecision},
		"deny":               {`{"decision": "deny"}`, decision.Deny, decision.PlainDecision},
		"nothing":            {`{"rules": [{"when": {"operation_eq": "delete"}, "decision": "allow"}]}`, decision.Deny, decision.NoMatchingRule},
	} {
		t.Run(name, func(t *testing.T) {
			actions, err := canonical.Parse([]byte(`{"ctrlrun.policy.change": ` + test.entry + `, "ctrlrun.policy.changes": {"decision": "allow"}}`))
			if err != nil {
				t.Fatal(err)
			}
			source, findings := policy.NewSource("p", "", 1, actions)
			if policy.HasErrors(findings) {
				t.Fatal(findings)
			}
			set := policy.NewSet([]policy.Source{source})
			c := policy.Change{Kind: "Grant", Name: "g", From: "a", To: "b", TargetUID: "u", Proposal: "p", ProposalUID: "x", Generation: 1}
			ask := func(name string) policy.Evaluation {
				e, err := set.Evaluate(action.Proposal{Name: name, Arguments: c.Arguments(), Principal: action.Principal{Agent: "operator"}, Environment: "production"})
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			if e := ask(policy.ChangeAction); e.Decision != test.want || e.Reason != test.reason {
				t.Errorf("got %s, %s", e.Decision, e.Reason)
			}
			if e := ask("ctrlrun.policy.changes"); e.Decision != decision.Allow {
				t.Errorf("a name that only begins like it: %s", e.Decision)
			}
		})
	}
}

func TestWarningsAboutChanges(t *testing.T) {
	for name, test := range map[string]struct {
		entry string
		warns int
	}{
		"as it should be":         {`{"effect": "policy:{proposal_uid}:{generation}", "decision": "approve"}`, 0},
		"allow":                   {`{"effect": "policy:{proposal_uid}:{generation}", "decision": "allow"}`, 1},
		"a key for all revisions": {`{"effect": "policy:{proposal_uid}", "decision": "approve"}`, 1},
		"no key":                  {`{"decision": "approve"}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			actions, err := canonical.Parse([]byte(`{"ctrlrun.policy.change": ` + test.entry + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if _, findings := policy.ParseActions(actions); len(findings) != test.warns || policy.HasErrors(findings) {
				t.Errorf("got %v", findings)
			}
		})
	}
}
