package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

const whyPolicies = `{"a.b": {"effect": "b:{id}", "rules": [
	{"when": {"n_lte": 5}, "decision": "allow"}, {"when": {"n_lte": 50}, "decision": "approve"}, {"decision": "deny"}]},
	"a.r": {"resource": "thing:{id}", "decision": "allow"}}`

func whyWorldOf(t *testing.T, x *authorities) flow.World {
	t.Helper()
	actions, err := canonical.Parse([]byte(whyPolicies))
	if err != nil {
		t.Fatal(err)
	}
	source, _ := policy.NewSource("p", "1", 1, actions)
	world := flow.World{Namespace: "ns", Environment: "production", Limits: records.Settings(&v1alpha1.Settings{}).Limits, Policies: policy.NewSet([]policy.Source{source})}
	if x != nil {
		world.Authority, world.Required = x.set, true
	}
	return world
}

// What is foreseen is what flow does; a cluster is only asked for what it asks for, and here it asks for nothing.
func TestWhatWouldHappen(t *testing.T) {
	record := func(state effect.State) *effect.Record {
		return &effect.Record{Name: action.EffectName("b:1"), Key: "b:1", Status: &effect.Status{State: state, Attempt: 1}}
	}
	for name, test := range map[string]struct {
		agent, kind, arguments string
		authorities            *authorities
		record                 *effect.Record
		observe                bool
		state, reason, blocked string
	}{
		"allowed":                     {kind: "a.b", arguments: `{"id":"1","n":1}`, state: "Admitted"},
		"people are asked":            {kind: "a.b", arguments: `{"id":"1","n":9}`, state: "AwaitingApproval"},
		"denied by a rule":            {kind: "a.b", arguments: `{"id":"1","n":99}`, state: "Denied", reason: "rule[2]"},
		"no such action":              {kind: "a.c", arguments: `{}`, state: "Denied", reason: "unknown_action"},
		"no key":                      {kind: "a.b", arguments: `{"n":1}`, state: "Denied", reason: "effect_key_error"},
		"no resource":                 {kind: "a.r", arguments: `{}`, state: "Denied", reason: "resource_error"},
		"committed already":           {kind: "a.b", arguments: `{"id":"1","n":1}`, record: record(effect.Committed), state: "Blocked", reason: "duplicate"},
		"committed, before asking":    {kind: "a.b", arguments: `{"id":"1","n":9}`, record: record(effect.Committed), state: "Blocked", reason: "duplicate"},
		"ambiguous":                   {kind: "a.b", arguments: `{"id":"1","n":1}`, record: record(effect.Ambiguous), state: "Blocked", reason: "ambiguous"},
		"failed before":               {kind: "a.b", arguments: `{"id":"1","n":1}`, record: record(effect.Failed), state: "Admitted"},
		"by a grant":                  {agent: "boss", kind: "a.b", arguments: `{"id":"1","n":1}`, authorities: family(t), state: "Admitted"},
		"by nobody's grant":           {agent: "stranger", kind: "a.b", arguments: `{"id":"1","n":1}`, authorities: family(t), state: "Denied", reason: "no_authority"},
		"by what was revoked":         {agent: "c", kind: "a.b", arguments: `{"id":"1","n":1}`, authorities: family(t), state: "Denied", reason: "authority_revoked"},
		"observed":                    {kind: "a.b", arguments: `{"id":"1","n":99}`, observe: true, state: "Admitted", blocked: "policy_denied"},
		"observed, committed already": {kind: "a.b", arguments: `{"id":"1","n":1}`, record: record(effect.Committed), observe: true, state: "Admitted", blocked: "duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			world := whyWorldOf(t, test.authorities)
			world.Observe = test.observe
			asked := &flow.Action{Name: whyName, UID: whyName, Type: test.kind, Arguments: []byte(test.arguments), Agent: test.agent, Lease: time.Minute, ClaimID: whyName, Created: noon, Status: flow.Status{State: flow.Pending}}
			if test.agent == "" {
				asked.Agent = "bot"
			}
			snapshot := flow.Snapshot{
				Now: noon, World: world, Action: flow.ActionRead{Presence: flow.Fresh, Action: asked}, Answers: flow.AnswersRead{Presence: flow.Fresh},
				Claims: flow.ClaimsRead{Presence: flow.Fresh}, Lock: flow.OutcomeRead{Presence: flow.Absent}, Effect: flow.EffectRead{Presence: flow.Absent},
			}
			if test.record != nil {
				snapshot.Effect = flow.EffectRead{Presence: flow.Fresh, Record: test.record}
			}
			answer := &whyAnswer{}
			step, err := (&session{}).foresee(t.Context(), answer, &snapshot)
			if err != nil {
				t.Fatal(err)
			}
			answer.conclude(step)
			if got := answer.WouldHappen; got.State != test.state || got.Reason != test.reason || got.BlockedReason != test.blocked || got.Message == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestRulesAreShownUpToTheOneThatDecides(t *testing.T) {
	arguments, err := canonical.Parse([]byte(`{"id":"1","n":9}`))
	if err != nil {
		t.Fatal(err)
	}
	p := action.Proposal{Name: "a.b", Arguments: arguments.(map[string]any), Principal: action.Principal{Agent: "bot"}, Environment: "production"}
	e, err := whyWorldOf(t, nil).Policies.Evaluate(p)
	if err != nil {
		t.Fatal(err)
	}
	answer := &whyAnswer{}
	answer.takePolicy(e)
	text, err := json.Marshal(answer.Policy.Rules)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Policy.Rules) != 2 || answer.Policy.Rules[0].Matches || answer.Policy.Rules[0].Why == "" || !answer.Policy.Rules[1].Matches || !strings.Contains(string(text), `"n_lte":50`) {
		t.Errorf("%s", text)
	}
}

// Of many grants only those are shown that are about this agent and action, and what makes everything denied.
func TestVerdictsOfOthersAreHidden(t *testing.T) {
	p := action.Proposal{Name: "a.b", Arguments: map[string]any{}, Principal: action.Principal{Agent: "c"}, Environment: "production"}
	shown := map[string]bool{}
	for _, v := range whyAuthorityOf(family(t).set, p, noon).Verdicts {
		if v.concerns() {
			shown[v.Name] = true
		}
	}
	if len(shown) != 1 || !shown["Delegation/cut"] {
		t.Errorf("%v", shown)
	}
}
