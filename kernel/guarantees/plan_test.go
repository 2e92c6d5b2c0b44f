package guarantees

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// sources is one policy with the given actions, in JSON.
func sources(t testing.TB, actions string) []policy.Source {
	t.Helper()
	value, err := canonical.Parse([]byte(actions))
	if err != nil {
		t.Fatal(err)
	}
	source, findings := policy.NewSource("p", "", 1, value)
	if policy.HasErrors(findings) {
		t.Fatalf("%v", findings)
	}
	return []policy.Source{source}
}

func text(t testing.TB, arguments map[string]any) string {
	t.Helper()
	b, err := canonical.Encode(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each operator, alone, refused by an earlier rule, and together with others: the arguments are the ones that are wanted, and
// the policy decides by the rule that was meant.
func TestDrive(t *testing.T) {
	for name, test := range map[string]struct {
		actions   string
		want      decision.Decision
		arguments string // "": it cannot be driven
		reason    decision.Reason
	}{
		"a plain decision":              {`{"a.b":{"decision":"allow"}}`, decision.Allow, `{}`, "decision"},
		"another plain decision":        {`{"a.b":{"decision":"allow"}}`, decision.Approve, ``, ""},
		"placeholders":                  {`{"a.b":{"decision":"allow","effect":"x:{id}:{to}"}}`, decision.Allow, `{"id":"ctrlrun-verify-id","to":"ctrlrun-verify-to"}`, "decision"},
		"placeholders of the resource":  {`{"a.b":{"decision":"allow","resource":"x:{id}","effect":"{resource}"}}`, decision.Allow, `{"id":"ctrlrun-verify-id"}`, "decision"},
		"eq":                            {`{"a.b":{"rules":[{"when":{"x_eq":"v"},"decision":"allow"}]}}`, decision.Allow, `{"x":"v"}`, "rule[0]"},
		"eq of an object":               {`{"a.b":{"rules":[{"when":{"x_eq":{"y":[1]}},"decision":"allow"}]}}`, decision.Allow, `{"x":{"y":[1]}}`, "rule[0]"},
		"in":                            {`{"a.b":{"rules":[{"when":{"x_in":["p","q"]},"decision":"allow"}]}}`, decision.Allow, `{"x":"p"}`, "rule[0]"},
		"in and neq":                    {`{"a.b":{"rules":[{"when":{"x_in":["p","q"],"x_neq":"p"},"decision":"allow"}]}}`, decision.Allow, `{"x":"q"}`, "rule[0]"},
		"an empty list":                 {`{"a.b":{"rules":[{"when":{"x_in":[]},"decision":"allow"}]}}`, decision.Allow, ``, ""},
		"neq of an integer":             {`{"a.b":{"rules":[{"when":{"x_neq":7},"decision":"allow"}]}}`, decision.Allow, `{"x":8}`, "rule[0]"},
		"neq of text":                   {`{"a.b":{"rules":[{"when":{"x_neq":"v"},"decision":"allow"}]}}`, decision.Allow, `{"x":"v-x"}`, "rule[0]"},
		"neq of null":                   {`{"a.b":{"rules":[{"when":{"x_neq":null},"decision":"allow"}]}}`, decision.Allow, `{"x":"ctrlrun-verify"}`, "rule[0]"},
		"neq of a bool":                 {`{"a.b":{"rules":[{"when":{"x_neq":true},"decision":"allow"}]}}`, decision.Allow, `{"x":"ctrlrun-verify"}`, "rule[0]"},
		"gte":                           {`{"a.b":{"rules":[{"when":{"x_gte":5},"decision":"allow"}]}}`, decision.Allow, `{"x":5}`, "rule[0]"},
		"gt":                            {`{"a.b":{"rules":[{"when":{"x_gt":5},"decision":"allow"}]}}`, decision.Allow, `{"x":6}`, "rule[0]"},
		"lte":                           {`{"a.b":{"rules":[{"when":{"x_lte":5},"decision":"allow"}]}}`, decision.Allow, `{"x":5}`, "rule[0]"},
		"lt":                            {`{"a.b":{"rules":[{"when":{"x_lt":5},"decision":"allow"}]}}`, decision.Allow, `{"x":4}`, "rule[0]"},
		"both bounds":                   {`{"a.b":{"rules":[{"when":{"x_gt":5,"x_lte":9},"decision":"allow"}]}}`, decision.Allow, `{"x":6}`, "rule[0]"},
		"bounds and neq":                {`{"a.b":{"rules":[{"when":{"x_gte":5,"x_lte":6,"x_neq":5},"decision":"allow"}]}}`, decision.Allow, `{"x":6}`, "rule[0]"},
		"contradicting bounds":          {`{"a.b":{"rules":[{"when":{"x_gte":5,"x_lte":4},"decision":"allow"}]}}`, decision.Allow, ``, ""},
		"behind gte":                    {`{"a.b":{"rules":[{"when":{"x_gte":5},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":4}`, "rule[1]"},
		"behind gt":                     {`{"a.b":{"rules":[{"when":{"x_gt":5},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":5}`, "rule[1]"},
		"behind lte":                    {`{"a.b":{"rules":[{"when":{"x_lte":5},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":6}`, "rule[1]"},
		"behind lt":                     {`{"a.b":{"rules":[{"when":{"x_lt":5},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":5}`, "rule[1]"},
		"behind eq":                     {`{"a.b":{"rules":[{"when":{"x_eq":true},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":"ctrlrun-verify"}`, "rule[1]"},
		"behind neq":                    {`{"a.b":{"rules":[{"when":{"x_neq":3},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":3}`, "rule[1]"},
		"behind in":                     {`{"a.b":{"rules":[{"when":{"x_in":["p","p-x"]},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":"p-x-x"}`, "rule[1]"},
		"behind a rule that always is":  {`{"a.b":{"rules":[{"decision":"deny"},{"when":{"x_eq":1},"decision":"allow"}]}}`, decision.Allow, ``, ""},
		"behind every integer":          {`{"a.b":{"rules":[{"when":{"x_gte":0},"decision":"deny"},{"when":{"x_lt":0},"decision":"deny"},{"decision":"allow"}]}}`, decision.Allow, `{"x":"ctrlrun-verify"}`, "rule[2]"},
		"the second way round a rule":   {`{"a.b":{"rules":[{"when":{"x_gte":0,"y_eq":"v"},"decision":"deny"},{"when":{"x_gte":5},"decision":"allow"}]}}`, decision.Allow, `{"x":5,"y":"v-x"}`, "rule[1]"},
		"the last integer":              {`{"a.b":{"rules":[{"when":{"x_gt":9223372036854775807},"decision":"allow"}]}}`, decision.Allow, ``, ""},
		"the second rule that decides":  {`{"a.b":{"rules":[{"when":{"x_gte":5,"x_lte":4},"decision":"allow"},{"when":{"x_eq":1},"decision":"allow"}]}}`, decision.Allow, `{"x":1}`, "rule[1]"},
		"a key of text that is missing": {`{"a.b":{"effect":"x:{x}","rules":[{"when":{"x_eq":""},"decision":"allow"}]}}`, decision.Allow, ``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRulebook(sources(t, test.actions), "production")
			v, ok := b.drive("a.b", test.want)
			if !ok {
				if test.arguments != "" {
					t.Fatalf("it cannot be driven; want %s", test.arguments)
				}
				return
			}
			if got := text(t, v.Arguments); got != test.arguments || v.Reason != test.reason || v.Decision != test.want {
				t.Errorf("%s by %s with %s; want %s by %s with %s", v.Decision, v.Reason, got, test.want, test.reason, test.arguments)
			}
		})
	}
}

// What is tried ends, however many ways there are round the earlier rules.
func TestCandidatesAreBounded(t *testing.T) {
	var rules []string
	for i := range 8 {
		rules = append(rules, fmt.Sprintf(`{"when":{"a%d_eq":1,"b%d_eq":1,"c%d_eq":1},"decision":"deny"}`, i, i, i))
	}
	actions := `{"a.b":{"rules":[` + strings.Join(rules, ",") + `,{"when":{"z_gte":2,"z_lte":1},"decision":"allow"}]}}`
	b := newRulebook(sources(t, actions), "production")
	entry := b.entries["a.b"]
	if n := len(reach(entry.Rules[:8], entry.Rules[8], MaxCandidates)); n != MaxCandidates {
		t.Errorf("%d candidates, want %d of 3^8", n, MaxCandidates)
	}
	if v, ok := b.drive("a.b", decision.Allow); ok {
		t.Errorf("driven with %v, which no integer can be", v.Arguments)
	}
}

// summary is a plan in one line.
func summary(t testing.TB, p Plan) string {
	t.Helper()
	if p.NotApplicable != "" {
		return p.NotApplicable
	}
	v := p.Vectors[0]
	return fmt.Sprintf("%s %s %s", v.ActionType, v.Decision, v.Reason)
}

func TestPlans(t *testing.T) {
	const asksNobody = "no action requires approval"
	const noEffect = "no action declares an `effect:` template, so nothing keeps one from being executed twice"
	// always are those that policies alone never give an occasion for.
	always := map[ID]string{
		G8:  "no Settings of the namespace say `authority: Required`, so nobody needs a grant that could expire",
		G9:  "no Settings of the namespace say `authority: Required`, so nobody needs what could be handed on",
		G12: "ctrlrun calls no system that an action acts on: agents execute and report themselves, so it has no transport that could be lost",
		G13: "the operator compares its own clock with that of the apiserver, and neither can be set from outside",
		G21: "no Settings of the namespace say `policyChanges: Proposed`, so whoever may write policies changes what is decided",
	}
	const noCeiling = "no action that can run declares both an `effect:` template and maxAttempts"
	const asksOne = "no action asks more than one person"
	undriven := func(what string) string {
		return "no action that " + what + " can be driven: 64 combinations of conditions were tried of each, and its effect: template has to give 64 keys"
	}
	for name, test := range map[string]struct {
		actions string
		want    map[ID]string
	}{
		"payments": {
			`{"stripe.refund":{"effect":"refund:{payment_id}","resource":"payment:{payment_id}","rules":[
				{"when":{"amount_gte":0,"amount_lte":50000},"decision":"allow"},
				{"when":{"amount_gte":0,"amount_lte":500000},"decision":"approve"},{"decision":"deny"}]},
			  "stripe.payout":{"effect":"payout:{payout_id}","decision":"approve","approvalsRequired":2},
			  "stripe.balance":{"decision":"allow"}}`,
			map[ID]string{
				G1: "stripe.payout approve decision", G2: "stripe.payout approve decision", G3: "stripe.payout approve decision",
				G4: "stripe.payout approve decision", G5: "stripe.payout approve decision", G6: "stripe.balance allow decision",
				G7: "stripe.balance allow decision", G10: "stripe.balance allow decision", G11: "stripe.balance allow decision",
				G14: "stripe.payout approve decision", G15: noCeiling, G16: "stripe.payout approve decision", G17: "stripe.payout approve decision", G18: "stripe.payout approve decision",
				G19: "stripe.payout approve decision", G20: "stripe.payout approve decision",
			},
		},
		"nothing listed": {`{}`, map[ID]string{
			G1: asksNobody, G2: asksNobody, G3: noEffect, G4: noEffect, G5: noEffect,
			G6:  "the policy lists no action, so an unknown action is indistinguishable from a known one",
			G7:  "no action in the policy can run at all",
			G10: "every action in the policy is denied",
			G11: "the policy lists no action, so no action of it can leave a receipt",
			G14: noEffect, G15: noCeiling, G16: asksNobody, G17: asksNobody, G18: asksNobody, G19: asksOne, G20: asksNobody,
		}},
		"changes of policies only": {`{"ctrlrun.policy.change":{"effect":"policy:{proposal_uid}:{generation}","decision":"approve"}}`, map[ID]string{
			G1: asksNobody, G2: asksNobody, G3: noEffect, G4: noEffect, G5: noEffect,
			G6:  "the policy lists no action, so an unknown action is indistinguishable from a known one",
			G7:  "no action in the policy can run at all",
			G10: "every action in the policy is denied",
			G11: "the policy lists no action, so no action of it can leave a receipt",
			G14: noEffect, G15: noCeiling, G16: asksNobody, G17: asksNobody, G18: asksNobody, G19: asksOne, G20: asksNobody,
		}},
		"all denied": {`{"a.b":{"effect":"x:{id}","decision":"deny"}}`, map[ID]string{
			G1: asksNobody, G2: asksNobody,
			G3: "every action that declares an `effect:` template is denied", G4: "every action that declares an `effect:` template is denied",
			G5:  "every action that declares an `effect:` template is denied",
			G14: "every action that declares an `effect:` template is denied",
			G15: noCeiling, G16: asksNobody, G17: asksNobody, G18: asksNobody, G19: asksOne, G20: asksNobody,
			G6: "a.b deny decision", G11: "a.b deny decision",
			G7:  "no action in the policy can run at all",
			G10: "every action in the policy is denied",
		}},
		"allowed only, without an effect": {`{"a.b":{"decision":"allow"}}`, map[ID]string{
			G1: asksNobody, G2: asksNobody, G3: noEffect, G4: noEffect, G5: noEffect,
			G14: noEffect, G15: noCeiling, G16: asksNobody, G17: asksNobody, G18: asksNobody, G19: asksOne, G20: asksNobody,
			G6: "a.b allow decision", G7: "a.b allow decision", G10: "a.b allow decision", G11: "a.b allow decision",
		}},
		"approved only": {`{"a.b":{"effect":"x:{id}","decision":"approve"}}`, map[ID]string{
			G1: "a.b approve decision", G2: "a.b approve decision", G3: "a.b approve decision", G4: "a.b approve decision",
			G5: "a.b approve decision", G6: "a.b approve decision", G7: "a.b approve decision", G10: "a.b approve decision", G11: "a.b approve decision",
			G14: "a.b approve decision", G15: noCeiling, G16: "a.b approve decision", G17: "a.b approve decision", G18: "a.b approve decision", G19: asksOne, G20: "a.b approve decision",
		}},
		"one attempt": {`{"a.b":{"effect":"x:{id}","decision":"allow","maxAttempts":1}}`, map[ID]string{
			G1: asksNobody, G2: asksNobody, G3: "a.b allow decision", G4: "a.b allow decision",
			G5:  "every action that declares an `effect:` template has maxAttempts below 2, so no retry is ever admitted",
			G14: "every action that declares an `effect:` template has maxAttempts below 2, so no retry is ever admitted",
			G15: "a.b allow decision", G16: asksNobody, G17: asksNobody, G18: asksNobody, G19: asksOne, G20: asksNobody,
			G6: "a.b allow decision", G7: "a.b allow decision", G10: "a.b allow decision", G11: "a.b allow decision",
		}},
		"one effect for all": {`{"a.b":{"effect":"the-only-one","decision":"allow"},"c.d":{"decision":"allow"}}`, map[ID]string{
			G1: asksNobody, G2: asksNobody,
			G3: undriven("declares an `effect:` template"),
			G4: undriven("declares an `effect:` template"),
			G5: undriven("declares an `effect:` template"),
			G6: "a.b allow decision", G7: "c.d allow decision", G10: "c.d allow decision", G11: "c.d allow decision",
			G14: undriven("declares an `effect:` template"), G15: noCeiling, G16: asksNobody, G17: asksNobody, G18: asksNobody, G19: asksOne, G20: asksNobody,
		}},
		"nothing but one effect": {`{"a.b":{"effect":"the-only-one","decision":"allow"}}`, map[ID]string{
			G1: asksNobody, G2: asksNobody, G3: undriven("declares an `effect:` template"), G4: undriven("declares an `effect:` template"),
			G5: undriven("declares an `effect:` template"), G6: "a.b allow decision", G7: undriven("can run"), G10: undriven("can run"), G11: "a.b allow decision",
			G14: undriven("declares an `effect:` template"), G15: noCeiling, G16: asksNobody, G17: asksNobody, G18: asksNobody, G19: asksOne, G20: asksNobody,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			plans, err := Plans(sources(t, test.actions), "production", nil, false)
			if err != nil {
				t.Fatal(err)
			}
			if len(plans) != len(All()) {
				t.Fatalf("%d plans for %d guarantees", len(plans), len(All()))
			}
			for i, p := range plans {
				if p.Guarantee.ID != All()[i].ID {
					t.Fatalf("plan %d is of %s", i, p.Guarantee.ID)
				}
				want, own := test.want[p.Guarantee.ID]
				if !own {
					want = always[p.Guarantee.ID]
				}
				if got := summary(t, p); got != want {
					t.Errorf("%s: %s; want %s", p.Guarantee.ID, got, want)
				}
			}
		})
	}
}

// Where policies change by proposals only, that is checked whatever they say, and the other plans are what they are without.
func TestPlansWhereChangesAreProposed(t *testing.T) {
	for _, actions := range []string{`{}`, refund, `{"a.b":{"decision":"deny"}}`, `{"ctrlrun.policy.change":{"decision":"approve"}}`} {
		free, err := Plans(sources(t, actions), "production", nil, false)
		if err != nil {
			t.Fatal(err)
		}
		proposed, err := Plans(sources(t, actions), "production", nil, true)
		if err != nil {
			t.Fatal(err)
		}
		last := len(All()) - 1
		x, _ := json.Marshal(free[:last])
		y, _ := json.Marshal(proposed[:last])
		if string(x) != string(y) {
			t.Errorf("%s: %s; want %s", actions, y, x)
		}
		p := proposed[last]
		if p.Guarantee.ID != G21 || p.NotApplicable != "" || len(p.Vectors) != need(G21) || p.Vectors[0].ActionType != policy.ChangeAction ||
			text(t, p.Vectors[0].Arguments) != "{}" || p.Vectors[0].EffectKey != nil || p.Vectors[0].Approvals != 0 {
			t.Errorf("%s: %+v", actions, p)
		}
	}
}

// Two plans never touch one effect, and the same policy gives the same plans.
func TestPlansShareNoEffect(t *testing.T) {
	for name, actions := range map[string]string{
		"one action, two rules":             `{"a.b":{"effect":"x:{id}","rules":[{"when":{"n_gte":3},"decision":"approve"},{"decision":"allow"}]}}`,
		"two actions, one template":         `{"a.refund":{"effect":"refund:{id}","decision":"allow"},"b.refund":{"effect":"refund:{id}","decision":"approve"}}`,
		"one integer, two rules":            `{"a.b":{"effect":"e:{n}","rules":[{"when":{"n_gte":0,"kind_eq":"a"},"decision":"allow"},{"when":{"n_gte":5},"decision":"approve"}]}}`,
		"a template for what never changes": `{"a.b":{"effect":"e:6","decision":"allow"},"c.d":{"effect":"e:{n}","rules":[{"when":{"n_gte":5},"decision":"allow"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			once, err := Plans(sources(t, actions), "production", nil, false)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Plans(sources(t, actions), "production", nil, false)
			if err != nil {
				t.Fatal(err)
			}
			x, _ := json.Marshal(once)
			y, _ := json.Marshal(again)
			if string(x) != string(y) {
				t.Error("two plans of one policy differ")
			}
			for _, p := range once {
				if p.NotApplicable == "" && len(p.Vectors) != need(p.Guarantee.ID) {
					t.Errorf("%s has %d vectors, want %d", p.Guarantee.ID, len(p.Vectors), need(p.Guarantee.ID))
				}
			}
			for _, s := range shared(once) {
				t.Error(s)
			}
		})
	}
}

// shared are the effects that more than one vector has. What is denied has none. Where no action can be driven, G6 and G11 have the
// same vector: G6 executes nothing.
func shared(plans []Plan) []string {
	type use struct {
		of ID
		v  Vector
	}
	var twice []string
	seen := map[string]use{}
	for _, p := range plans {
		for _, v := range p.Vectors {
			if v.EffectKey == nil || v.Decision == decision.Deny {
				continue
			}
			other, taken := seen[*v.EffectKey]
			if taken && !(other.of == G6 && p.Guarantee.ID == G11 && other.v.same(&v)) {
				twice = append(twice, fmt.Sprintf("%s and %s both have the effect %q", other.of, p.Guarantee.ID, *v.EffectKey))
			}
			seen[*v.EffectKey] = use{p.Guarantee.ID, v}
		}
	}
	return twice
}

// However the others choose, there is a key left for each plan.
func TestThereAreEnoughKeys(t *testing.T) {
	n := 0
	for _, g := range All() {
		n += need(g.ID)
	}
	if n > keys {
		t.Errorf("all plans together take %d effects, and an action has to give %d", n, keys)
	}
}

func TestMutatedDiffersInItsHashOnly(t *testing.T) {
	for name, test := range map[string]struct{ actions, changed string }{
		"an integer":            {`{"a.b":{"effect":"x:{id}","rules":[{"when":{"n_gte":3},"decision":"approve"}]}}`, `{"id":"ctrlrun-verify-id-1","n":4}`},
		"only the key":          {`{"a.b":{"effect":"x:{id}","decision":"approve"}}`, `{"ctrlrun_verify_mutated":true,"id":"ctrlrun-verify-id-1"}`},
		"a pinned value":        {`{"a.b":{"rules":[{"when":{"n_eq":3},"decision":"approve"}]}}`, `{"ctrlrun_verify_mutated":true,"n":3}`},
		"an integer downwards":  {`{"a.b":{"rules":[{"when":{"n_lte":3},"decision":"approve"}]}}`, `{"n":2}`},
		"text":                  {`{"a.b":{"resource":"r:{to}","decision":"approve"}}`, `{"to":"ctrlrun-verify-to-1"}`},
		"no argument":           {`{"a.b":{"decision":"approve"}}`, `{"ctrlrun_verify_mutated":true}`},
		"a bool that may be no": {`{"a.b":{"rules":[{"when":{"f_in":[true,false]},"decision":"approve"}]}}`, `{"f":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			plans, err := Plans(sources(t, test.actions), "production", nil, false)
			if err != nil {
				t.Fatal(err)
			}
			p := plans[0]
			if got := text(t, p.Mutated.Arguments); got != test.changed {
				t.Errorf("mutated to %s, want %s", got, test.changed)
			}
			first := p.Vectors[0]
			if !first.same(p.Mutated) || !sameKey(first.EffectKey, p.Mutated.EffectKey) || hash(t, first) == hash(t, *p.Mutated) {
				t.Errorf("%v is mutated to %v", first, *p.Mutated)
			}
		})
	}
}

func hash(t testing.TB, v Vector) string {
	t.Helper()
	p := action.Proposal{Name: v.ActionType, Arguments: v.Arguments, Principal: action.Principal{Agent: "a"}, Resource: v.Resource, Environment: "production"}
	h, err := p.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestEffectKeysVary(t *testing.T) {
	for name, test := range map[string]struct {
		actions string
		driven  bool
	}{
		"by text":                        {`{"a.b":{"effect":"x:{id}","decision":"allow"}}`, true},
		"by the resource's template":     {`{"a.b":{"effect":"{resource}","resource":"r:{id}","decision":"allow"}}`, true},
		"by the resource that is named":  {`{"a.b":{"effect":"{resource}","decision":"allow"}}`, true},
		"by an integer":                  {`{"a.b":{"effect":"x:{n}","rules":[{"when":{"n_gte":0},"decision":"allow"}]}}`, true},
		"by an integer downwards":        {`{"a.b":{"effect":"x:{n}","rules":[{"when":{"n_lte":0},"decision":"allow"}]}}`, true},
		"by the second placeholder":      {`{"a.b":{"effect":"x:{region}:{id}","rules":[{"when":{"region_eq":"eu"},"decision":"allow"}]}}`, true},
		"not: it is pinned":              {`{"a.b":{"effect":"x:{region}","rules":[{"when":{"region_eq":"eu"},"decision":"allow"}]}}`, false},
		"not: too few values":            {`{"a.b":{"effect":"x:{n}","rules":[{"when":{"n_gte":0,"n_lte":9},"decision":"allow"}]}}`, false},
		"not: {resource} of an argument": {`{"a.b":{"effect":"{resource}","resource":"r:{resource}","decision":"allow"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRulebook(sources(t, test.actions), "production")
			if _, ok := b.runnable("a.b"); ok != test.driven {
				t.Errorf("driven: %t, want %t", ok, test.driven)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	all, err := Select(nil)
	if err != nil || len(all) != len(All()) {
		t.Errorf("%d of %d, %v", len(all), len(All()), err)
	}
	some, err := Select([]string{"G3", "G11"})
	if err != nil || len(some) != 2 || !some[G3] || !some[G11] {
		t.Errorf("%v, %v", some, err)
	}
	for _, unknown := range []string{"G99", "g1", "", "G0"} {
		_, err := Select([]string{"G1", unknown})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", unknown)) || !strings.Contains(err.Error(), "G1, G2, G3") {
			t.Errorf("%q: %v", unknown, err)
		}
	}
}

func TestAbsentIsNotListed(t *testing.T) {
	for _, actions := range []string{`{}`, `{"a.b":{"decision":"deny"}}`} {
		s := sources(t, actions)
		name, err := Absent(s)
		if err != nil || !strings.HasPrefix(name, "ctrlrun-verify.absent.") || slices.Contains(policy.NewSet(s).Names(), name) {
			t.Errorf("%s, %v", name, err)
		}
	}
	taken, err := absent([]string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if name, _ := absent([]string{"a"}); name != taken {
		t.Error("the name changes")
	}
}

// Integers beyond 64 bits are no vectors: Kubernetes would store others.
func TestVectorsCanBeStored(t *testing.T) {
	b := newRulebook(sources(t, `{"a.b":{"decision":"allow"}}`), "production")
	big65 := new(big.Int).Lsh(big.NewInt(1), 65)
	if v := b.evaluate("a.b", map[string]any{"n": big65}, nil); v != nil {
		t.Errorf("%v", v)
	}
}
