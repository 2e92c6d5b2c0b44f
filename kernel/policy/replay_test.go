package policy_test

import (
	"math/big"
	"reflect"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

func setOf(t *testing.T, actions string) *policy.Set {
	t.Helper()
	document, findings, err := policy.ParseYAML("test.yaml", []byte("apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: p}\nspec:\n  actions:\n"+actions))
	if err != nil || policy.HasErrors(findings) {
		t.Fatalf("%v %v", findings, err)
	}
	return policy.NewSet([]policy.Source{document.Source("p")})
}

func refund(amount int64) action.Proposal {
	return action.Proposal{
		Name: "stripe.refund", Arguments: map[string]any{"payment_id": "txn_1", "amount": big.NewInt(amount)},
		Principal: action.Principal{Agent: "bot"}, Environment: "production",
	}
}

func known(s string) *string { return &s }

// TestReplay proves what counts as another decision, as another rule, as a key that does not block any more, and as another
// action.
func TestReplay(t *testing.T) {
	allowed := policy.Past{Proposal: refund(500), Verdict: policy.Verdict{Decision: decision.Allow, Reason: "rule[0]"}, EffectKey: known("refund:txn_1")}
	asked := allowed
	asked.Verdict = policy.Verdict{Decision: decision.Approve, Reason: decision.PlainDecision, Approvals: 1}
	blocked := asked
	blocked.Verdict.Approvals = 0 // it was blocked before anybody was asked
	of := allowed
	of.Proposal.Resource = known("payment:txn_1")
	type facts struct {
		Now                                policy.Verdict
		Decided, Rerouted, Freed, Rehashed bool
	}
	deny := func(r decision.Reason) policy.Verdict { return policy.Verdict{Decision: decision.Deny, Reason: r} }
	allow := policy.Verdict{Decision: decision.Allow, Reason: "rule[0]"}
	for name, test := range map[string]struct {
		past    policy.Past
		actions string
		want    facts
	}{
		"the same": {allowed, `    stripe.refund: {effect: "refund:{payment_id}", rules: [{when: {amount_lte: 500}, decision: allow}, {decision: deny}]}`, facts{Now: allow}},
		"a lower limit": {allowed, `    stripe.refund: {effect: "refund:{payment_id}", rules: [{when: {amount_lte: 499}, decision: allow}, {decision: deny}]}`,
			facts{Now: deny("rule[1]"), Decided: true}},
		"the same by another rule": {allowed, `    stripe.refund: {effect: "refund:{payment_id}", rules: [{when: {amount_lte: 1}, decision: deny}, {decision: allow}]}`,
			facts{Now: policy.Verdict{Decision: decision.Allow, Reason: "rule[1]"}, Rerouted: true}},
		"another key": {allowed, `    stripe.refund: {effect: "r:{payment_id}", rules: [{decision: allow}]}`, facts{Now: allow, Freed: true}},
		"no key":      {allowed, `    stripe.refund: {rules: [{decision: allow}]}`, facts{Now: allow, Freed: true}},
		"another template that makes the same key": {allowed, `    stripe.refund: {effect: "refund:txn_{amount_unit}", rules: [{decision: allow}]}`,
			facts{Now: deny(decision.EffectKeyError), Decided: true}},
		"a resource":        {allowed, `    stripe.refund: {effect: "refund:{payment_id}", resource: "payment:{payment_id}", rules: [{decision: allow}]}`, facts{Now: allow, Rehashed: true}},
		"the same resource": {of, `    stripe.refund: {effect: "refund:{payment_id}", resource: "payment:{payment_id}", rules: [{decision: allow}]}`, facts{Now: allow}},
		"an impossible resource": {allowed, `    stripe.refund: {effect: "refund:{payment_id}", resource: "payment:{order}", rules: [{decision: allow}]}`,
			facts{Now: deny(decision.ResourceError), Decided: true}},
		"gone": {allowed, `    stripe.charge: {decision: allow}`, facts{Now: deny(decision.UnknownAction), Decided: true}},
		"more people": {asked, `    stripe.refund: {effect: "refund:{payment_id}", decision: approve, approvalsRequired: 2}`,
			facts{Now: policy.Verdict{Decision: decision.Approve, Reason: decision.PlainDecision, Approvals: 2}, Decided: true}},
		"nobody had been asked": {blocked, `    stripe.refund: {effect: "refund:{payment_id}", decision: approve, approvalsRequired: 2}`,
			facts{Now: policy.Verdict{Decision: decision.Approve, Reason: decision.PlainDecision, Approvals: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := setOf(t, test.actions).Replay(test.past)
			if got := (facts{r.Now, r.Decided(), r.Rerouted(), r.Freed(), r.Rehashed()}); got != test.want {
				t.Errorf("got  %+v\nwant %+v (%s)", got, test.want, r.Message)
			}
		})
	}
}

// TestTemplateChanges proves that templates are compared for what counts in both sets, and nothing else.
func TestTemplateChanges(t *testing.T) {
	then := setOf(t, `    a: {effect: "a:{id}", resource: "x:{id}", decision: allow}
    b: {effect: "b:{id}", decision: allow}
    c: {decision: allow}
    d: {effect: "d:{id}", decision: allow}`)
	now := setOf(t, `    a: {effect: "a:{id}:{day}", resource: "y:{id}", decision: allow}
    b: {decision: allow}
    c: {effect: "c:{id}", decision: deny}
    e: {effect: "e:{id}", decision: allow}`)
	want := []policy.TemplateChange{
		{Action: "a", Kind: policy.EffectTemplate, Then: "a:{id}", Now: "a:{id}:{day}"},
		{Action: "a", Kind: policy.ResourceTemplate, Then: "x:{id}", Now: "y:{id}"},
		{Action: "b", Kind: policy.EffectTemplate, Then: "b:{id}"},
		{Action: "c", Kind: policy.EffectTemplate, Now: "c:{id}"},
	}
	if got := policy.TemplateChanges(then, now); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := policy.Removed(then, now); !reflect.DeepEqual(got, []string{"d"}) {
		t.Errorf("removed: %v", got)
	}
	if !then.Counts("d") || now.Counts("d") {
		t.Error("only the first set has an entry for d")
	}
	if changes, removed := policy.TemplateChanges(then, then), policy.Removed(then, then); changes != nil || removed != nil {
		t.Errorf("a set differs from itself: %v %v", changes, removed)
	}
}

// TestByPolicy proves which denials of the past a policy can be asked about again.
func TestByPolicy(t *testing.T) {
	for reason, want := range map[decision.Reason]bool{
		"decision": true, "rule[0]": true, "rule[15]": true, "unknown_action": true, "resource_error": true, "effect_key_error": true,
		"rule[16]": false, "": false, "lease_too_long": false, "unrepresentable_argument": false, "executor_needs_effect": false, "authority_denied": false,
	} {
		if got := policy.ByPolicy(reason); got != want {
			t.Errorf("%q: %v", reason, got)
		}
	}
}
