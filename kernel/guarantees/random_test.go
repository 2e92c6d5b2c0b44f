package guarantees

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// operands a random condition may have, by operator.
func operand(r *rand.Rand, operator string) any {
	values := []any{nil, true, "a", "b", big.NewInt(0), big.NewInt(1), big.NewInt(2)}
	switch operator {
	case "in":
		list := []any{}
		for range r.IntN(3) {
			list = append(list, values[r.IntN(len(values))])
		}
		return list
	case "eq", "neq":
		return values[r.IntN(len(values))]
	}
	return big.NewInt(int64(r.IntN(4)))
}

// randomActions is a policy of three actions with up to four rules of up to three conditions on three arguments.
func randomActions(r *rand.Rand) map[string]any {
	decisions := []string{"allow", "approve", "deny"}
	actions := map[string]any{}
	for _, name := range []string{"a.a", "b.b", "c.c"} {
		entry := map[string]any{}
		if r.IntN(2) == 0 {
			entry["effect"] = []string{"e:{x}", "e:{y}:{id}", "e:{id}", "{resource}"}[r.IntN(4)]
		}
		if r.IntN(3) == 0 {
			entry["resource"] = []string{"r:{x}", "r:{id}"}[r.IntN(2)]
		}
		var rules []any
		for range 1 + r.IntN(4) {
			rule := map[string]any{"decision": decisions[r.IntN(3)]}
			if r.IntN(5) > 0 {
				when := map[string]any{}
				for range 1 + r.IntN(3) {
					operator := []string{"eq", "neq", "lt", "lte", "gt", "gte", "in"}[r.IntN(7)]
					when[[]string{"x", "y", "z"}[r.IntN(3)]+"_"+operator] = operand(r, operator)
				}
				rule["when"] = when
			}
			rules = append(rules, rule)
		}
		entry["rules"] = rules
		actions[name] = entry
	}
	return actions
}

// reachable looks for arguments that bring an action to a decision, among all that give x, y and z a small value or none.
func reachable(b rulebook, name string, want decision.Decision) (map[string]any, bool) {
	values := []any{nil, true, "a", "other", big.NewInt(-1), big.NewInt(0), big.NewInt(1), big.NewInt(2), big.NewInt(4)}
	n := len(values) + 1
	for i := range n * n * n {
		arguments := map[string]any{"id": "i"}
		for _, name := range []string{"x", "y", "z"} {
			if at := i % n; at > 0 {
				arguments[name] = values[at-1]
			}
			i /= n
		}
		resource := "r"
		if v := b.evaluate(name, arguments, &resource); v != nil && v.Decision == want {
			return arguments, true
		}
	}
	return nil, false
}

// Of any policy, whatever is driven is answered as wanted by the policy itself, all variants of it too, each with a key of its
// own. And of what can be reached with small values, next to nothing is not driven.
func TestDriveOnRandomPolicies(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 6))
	found, missed := 0, 0
	for i := range 80 {
		actions := randomActions(r)
		source, findings := policy.NewSource("p", "", 1, actions)
		if policy.HasErrors(findings) {
			t.Fatalf("%v", findings)
		}
		sources := []policy.Source{source}
		b := newRulebook(sources, "production")
		say := func(format string, args ...any) {
			t.Helper()
			t.Errorf("policy %d %s: %s", i, mustEncode(t, actions), fmt.Sprintf(format, args...))
		}
		for _, name := range b.set.Names() {
			for _, want := range []decision.Decision{decision.Allow, decision.Approve, decision.Deny} {
				v, driven := b.drive(name, want)
				if driven {
					found++
					if again := b.evaluate(name, v.Arguments, v.Resource); again == nil || again.Decision != want || again.Reason != v.Reason {
						say("%s is driven to %s by %s, and answered %v", name, want, v.Reason, again)
					}
					continue
				}
				if want == decision.Deny || !decides(b.entries[name], want) {
					continue // a denial may come from no rule at all
				}
				if arguments, reached := reachable(b, name, want); reached {
					missed++
					t.Logf("policy %d %s: %s of %s is reached with %v, and not driven", i, mustEncode(t, actions), want, name, arguments)
				}
			}
		}
		plans, err := Plans(sources, "production", nil, false)
		if err != nil {
			say("%v", err)
		}
		for _, s := range shared(plans) {
			say("%s", s)
		}
		for _, p := range plans {
			if (p.NotApplicable == "") == (len(p.Vectors) == 0) {
				say("%s has %d vectors and the reason %q", p.Guarantee.ID, len(p.Vectors), p.NotApplicable)
			}
			for _, v := range p.Vectors {
				if again := b.evaluate(v.ActionType, v.Arguments, v.Resource); !v.same(again) || !sameKey(v.EffectKey, again.EffectKey) {
					say("%s: %v is answered %v", p.Guarantee.ID, v, again)
				}
			}
		}
	}
	t.Logf("%d driven, %d missed", found, missed)
	if found < 200 || missed*200 > found {
		t.Errorf("%d driven and %d missed of what small values reach", found, missed)
	}
}

func mustEncode(t testing.TB, v any) string {
	t.Helper()
	b, err := canonical.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
