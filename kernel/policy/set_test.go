package policy_test

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// source is a policy object with the given actions, in JSON.
func source(t testing.TB, name, actions string) policy.Source {
	t.Helper()
	v, err := canonical.Parse([]byte(actions))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := policy.NewSource(name, "v1", 3, v)
	return s
}

func proposal(name string, arguments map[string]any) action.Proposal {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return action.Proposal{Name: name, Arguments: arguments, Principal: action.Principal{Agent: "bot"}, Environment: "production"}
}

func TestUnion(t *testing.T) {
	const allow = `{"a":{"decision":"allow"}}`
	for name, tc := range map[string]struct {
		sources  map[string]string
		decision decision.Decision
		reason   decision.Reason
		says     []string
	}{
		"no policy":                         {nil, decision.Deny, decision.UnknownAction, []string{`"payments"`, "no policy", "init"}},
		"one that allows":                   {map[string]string{"p": allow}, decision.Allow, decision.PlainDecision, nil},
		"two identical entries":             {map[string]string{"p": allow, "q": allow}, decision.Allow, decision.PlainDecision, nil},
		"identical but for order of keys":   {map[string]string{"p": `{"a":{"rules":[{"decision":"allow","when":{"n_eq":1}}]}}`, "q": `{"a":{"rules":[{"when":{"n_eq":1},"decision":"allow"}]}}`}, decision.Deny, decision.NoMatchingRule, nil},
		"two different decisions":           {map[string]string{"p": allow, "q": `{"a":{"decision":"deny"}}`}, decision.Deny, decision.PolicyConflict, []string{`"p"`, `"q"`, "(decision)"}},
		"the same decision, an effect more": {map[string]string{"p": allow, "q": `{"a":{"decision":"allow","effect":"{n}"}}`}, decision.Deny, decision.PolicyConflict, []string{"(effect)"}},
		"true is not 1":                     {map[string]string{"p": `{"a":{"rules":[{"decision":"allow","when":{"n_eq":1}}]}}`, "q": `{"a":{"rules":[{"decision":"allow","when":{"n_eq":true}}]}}`}, decision.Deny, decision.PolicyConflict, nil},
		"a third that agrees with one":      {map[string]string{"p": allow, "q": `{"a":{"decision":"deny"}}`, "r": allow}, decision.Deny, decision.PolicyConflict, nil},
		"a conflict about another action":   {map[string]string{"p": `{"a":{"decision":"allow"},"b":{"decision":"allow"}}`, "q": `{"b":{"decision":"deny"}}`}, decision.Allow, decision.PlainDecision, nil},
		"an invalid entry":                  {map[string]string{"p": `{"a":{"decision":"maybe"}}`}, decision.Deny, decision.PolicyInvalid, []string{`spec.actions["a"].decision`, "lint"}},
		"an error elsewhere in the policy":  {map[string]string{"p": `{"a":{"decision":"allow"},"b":{"rules":[{"decision":"deny"},{"when":null,"decision":"allow"}]}}`}, decision.Deny, decision.PolicyInvalid, []string{`spec.actions["b"].rules[1].when`}},
		"invalid here, valid there":         {map[string]string{"p": allow, "q": `{"a":{"decision":"maybe"}}`}, decision.Deny, decision.PolicyInvalid, []string{`"q"`}},
		"invalid and in conflict":           {map[string]string{"p": allow, "q": `{"a":{"decision":"deny"}}`, "r": `{"a":{}}`}, decision.Deny, decision.PolicyInvalid, []string{`"r"`}},
		"another policy is invalid":         {map[string]string{"p": allow, "q": `{"b":{"decision":"maybe"}}`}, decision.Allow, decision.PlainDecision, nil},
		"unknown, in one policy":            {map[string]string{"p": `{"A":{"decision":"allow"},"b":{"decision":"deny"}}`}, decision.Deny, decision.UnknownAction, []string{`does not name the action "a"`, `Did you mean "A"?`, `"A", "b"`, `"payments"`}},
		"unknown, in several":               {map[string]string{"p": `{"x":{"decision":"allow"}}`, "q": `{"y":{"decision":"maybe"}}`}, decision.Deny, decision.UnknownAction, []string{`No policy of namespace "payments" names the action "a"`, `"x", "y"`}},
		"policies without actions":          {map[string]string{"p": `{}`}, decision.Deny, decision.UnknownAction, []string{"no action at all"}},
		"a policy that cannot be read":      {map[string]string{"p": `[]`}, decision.Deny, decision.UnknownAction, []string{`Policy "p" is invalid`}},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []policy.Source
			for name, actions := range tc.sources {
				sources = append(sources, source(t, name, actions))
			}
			set := policy.NewSet(sources).InNamespace("payments")
			e, err := set.Evaluate(proposal("a", nil))
			if err != nil {
				t.Fatal(err)
			}
			if e.Decision != tc.decision || e.Reason != tc.reason {
				t.Errorf("evaluation = %s / %s, want %s / %s (%s)", e.Decision, e.Reason, tc.decision, tc.reason, e.Message)
			}
			for _, says := range tc.says {
				if !strings.Contains(e.Message, says) {
					t.Errorf("the message %q does not say %q", e.Message, says)
				}
			}
			if (e.Message == "") != (e.Decision == decision.Allow) {
				t.Errorf("message %q with decision %s", e.Message, e.Decision)
			}
			if counts := e.Reason == decision.PlainDecision || e.Reason == decision.NoMatchingRule; (e.Entry != nil) != counts || counts && e.Policy.Name != "p" {
				t.Errorf("entry %v of policy %v with reason %s", e.Entry, e.Policy, e.Reason)
			}
			slices.Reverse(sources)
			again, err := policy.NewSet(sources).InNamespace("payments").Evaluate(proposal("a", nil))
			if err != nil || again.Message != e.Message || again.Reason != e.Reason {
				t.Errorf("the answer depends on the order of policies: %q, %q", e.Message, again.Message)
			}
		})
	}
}

func TestRefNamesThePolicyThatDecided(t *testing.T) {
	s := source(t, "payments", `{"a":{"decision":"deny"}}`)
	want, err := canonical.Hash(map[string]any{"a": map[string]any{"decision": "deny"}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.NewSet([]policy.Source{s}).Evaluate(proposal("a", nil))
	if err != nil || e.Policy == nil || *e.Policy != (policy.Ref{Name: "payments", Generation: 3, RulesHash: want, Version: "v1"}) {
		t.Errorf("policy = %+v, %v", e.Policy, err)
	}
}

func TestEvaluateOrder(t *testing.T) {
	const actions = `{
		"both":    {"effect":"e:{id}","resource":"r:{id}","decision":"deny"},
		"twisted": {"effect":"e:{resource}","resource":"r:{id}","decision":"allow"},
		"ruled":   {"effect":"e:{id}","rules":[{"when":{"n_gte":0,"n_lte":5},"decision":"allow"},{"when":{"n_eq":7},"decision":"approve"},{"when":{"n_eq":8},"decision":"deny"}]}
	}`
	huge := strings.Repeat("x", action.MaxArgumentsBytes)
	deep := any("x")
	for range action.MaxArgumentsDepth {
		deep = []any{deep}
	}
	for name, tc := range map[string]struct {
		action    string
		arguments map[string]any
		decision  decision.Decision
		reason    decision.Reason
		key       string
		resource  string
		says      []string
		silent    string
	}{
		"the key is known on deny":            {"both", map[string]any{"id": "1"}, decision.Deny, decision.PlainDecision, "e:1", "r:1", []string{`"p"`, "whatever its arguments"}, ""},
		"the key is made of the new resource": {"twisted", map[string]any{"id": "1"}, decision.Allow, decision.PlainDecision, "e:r:1", "r:1", nil, ""},
		"no key, so no rule is asked":         {"ruled", map[string]any{"n": big.NewInt(1)}, decision.Deny, decision.EffectKeyError, "", "", []string{"{id}", "does not have"}, ""},
		"the first rule":                      {"ruled", map[string]any{"id": "1", "n": big.NewInt(5)}, decision.Allow, "rule[0]", "e:1", "", nil, ""},
		"the second rule":                     {"ruled", map[string]any{"id": "1", "n": big.NewInt(7)}, decision.Approve, "rule[1]", "e:1", "", []string{"rule[1]", "One person"}, ""},
		"a rule that denies":                  {"ruled", map[string]any{"id": "1", "n": big.NewInt(8)}, decision.Deny, "rule[2]", "e:1", "", []string{"rule[2]"}, ""},
		"no rule":                             {"ruled", map[string]any{"id": "secret", "n": big.NewInt(6)}, decision.Deny, decision.NoMatchingRule, "e:secret", "", []string{"rule[0]: n_lte is false"}, "secret"},
		"no rule, for want of an integer":     {"ruled", map[string]any{"id": "1", "n": "6"}, decision.Deny, decision.NoMatchingRule, "e:1", "", []string{"not an integer"}, ""},
		"arguments too large":                 {"ruled", map[string]any{"id": "1", "n": huge}, decision.Deny, decision.ArgumentsTooLarge, "", "", []string{"65536"}, "xxx"},
		"arguments too deep":                  {"ruled", map[string]any{"id": "1", "n": deep}, decision.Deny, decision.ArgumentsTooLarge, "", "", []string{"nested"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := proposal(tc.action, tc.arguments)
			e, err := policy.NewSet([]policy.Source{source(t, "p", actions)}).Evaluate(p)
			if err != nil {
				t.Fatal(err)
			}
			if e.Decision != tc.decision || e.Reason != tc.reason || deref(e.EffectKey) != tc.key || deref(e.Proposal.Resource) != tc.resource {
				t.Errorf("evaluation = %s %s key %q resource %q, want %s %s %q %q", e.Decision, e.Reason, deref(e.EffectKey), deref(e.Proposal.Resource),
					tc.decision, tc.reason, tc.key, tc.resource)
			}
			if h, err := e.Proposal.Hash(); err != nil || h != e.Hash {
				t.Errorf("hash = %s, want that of the proposal, %s", e.Hash, h)
			}
			for _, says := range tc.says {
				if !strings.Contains(e.Message, says) {
					t.Errorf("the message %q does not say %q", e.Message, says)
				}
			}
			if tc.silent != "" && strings.Contains(e.Message, tc.silent) {
				t.Errorf("the message %q tells an argument", e.Message)
			}
			if p.Resource != nil {
				t.Error("the caller's proposal was changed")
			}
		})
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestEvaluateCannotBuild(t *testing.T) {
	set := policy.NewSet([]policy.Source{source(t, "p", `{"a":{"resource":"r:{id}","decision":"deny"}}`)})
	_, err := set.Evaluate(proposal("a", nil))
	var failed *action.ResolveError
	if !errors.As(err, &failed) || failed.Placeholder != "id" || !strings.Contains(err.Error(), `actions["a"].resource`) {
		t.Errorf("a resource that cannot be computed: %v, want a *ResolveError for id with its place", err)
	}
	if _, err := set.Evaluate(proposal("", nil)); err == nil {
		t.Error("a proposal without name was evaluated")
	}
	if _, err := set.Evaluate(proposal("a", map[string]any{"id": 1.5})); err == nil {
		t.Error("a proposal with a float was evaluated")
	}
}

func TestApprovalsAskForPeople(t *testing.T) {
	set := policy.NewSet([]policy.Source{source(t, "p", `{"a":{"decision":"approve","approvalsRequired":3}}`)})
	e, err := set.Evaluate(proposal("a", nil))
	if err != nil || !strings.Contains(e.Message, "3 different people") {
		t.Errorf("message = %q, %v", e.Message, err)
	}
}

// What nobody can read never makes it fewer people, and what is refused may be read all the same.
func TestResolutionsOfASet(t *testing.T) {
	one, two := `{"a":{"effect":"{id}","decision":"allow"}}`, `{"a":{"effect":"{id}","decision":"deny","resolutionsRequired":2}}`
	other, invalid := `{"b":{"effect":"{id}","decision":"allow","resolutionsRequired":3}}`, `{"a":{"effect":"{id}","decision":"maybe","resolutionsRequired":4},"c":{"effect":"{id}","decision":"allow","resolutionsRequired":5}}`
	for name, tc := range map[string]struct {
		sources []string
		action  string
		want    int
		known   bool
	}{
		"nothing":                           {nil, "a", 1, true},
		"an entry that does not say":        {[]string{one}, "a", 1, true},
		"an entry that does":                {[]string{two}, "a", 2, true},
		"two that differ":                   {[]string{one, two}, "a", 2, true},
		"in another order":                  {[]string{two, one}, "a", 2, true},
		"of another action":                 {[]string{one, other}, "a", 1, true},
		"an entry with an error":            {[]string{invalid}, "a", 4, true},
		"beside one without":                {[]string{invalid, two}, "a", 4, true},
		"an entry without, of an invalid":   {[]string{invalid}, "c", 5, true},
		"a number that is none":             {[]string{`{"a":{"effect":"{id}","decision":"allow","resolutionsRequired":"2"}}`}, "a", 1, false},
		"a number that is too high":         {[]string{`{"a":{"effect":"{id}","decision":"allow","resolutionsRequired":11}}`, two}, "a", 2, false},
		"an error and no number":            {[]string{`{"a":{"effect":"{id}","decision":"maybe"}}`}, "a", 1, true},
		"an entry that is none":             {[]string{`{"a":[]}`}, "a", 1, false},
		"of whatever action":                {[]string{two, other}, "", 3, true},
		"of whatever action, of an invalid": {[]string{other, invalid}, "", 5, true},
		"of an action that nothing names":   {[]string{other, invalid}, "d", 1, true},
		"of an invalid that names nothing":  {[]string{`[]`}, "a", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []policy.Source
			for i, text := range tc.sources {
				v, err := canonical.Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				s, _ := policy.NewSource(fmt.Sprint("p", i), "", 1, v)
				sources = append(sources, s)
			}
			if n, known := policy.NewSet(sources).Resolutions(tc.action); n != tc.want || known != tc.known {
				t.Errorf("%d people, known: %t, want %d, %t", n, known, tc.want, tc.known)
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("é", 3000)
	many := map[string]any{}
	for i := range 60 {
		many[fmt.Sprint(i, long)] = map[string]any{"decision": "deny"}
	}
	broken, _ := policy.NewSource(long, "", 1, map[string]any{long: map[string]any{"decision": long}})
	full, _ := policy.NewSource(long, "", 1, many)
	for name, set := range map[string]*policy.Set{
		"an inventory": policy.NewSet([]policy.Source{full}), "an error": policy.NewSet([]policy.Source{broken}), "nothing": policy.NewSet(nil).InNamespace(long),
	} {
		e, err := set.Evaluate(proposal(long, nil))
		if err != nil {
			t.Fatal(err)
		}
		if n := utf8.RuneCountInString(e.Message); n > 1024 || !utf8.ValidString(e.Message) || !strings.Contains(e.Message, "Nothing was executed") {
			t.Errorf("%s: a message of %d characters: %q", name, n, e.Message)
		}
	}
}

func TestNewSourceIsWholeOrInvalid(t *testing.T) {
	v, err := canonical.Parse([]byte(`{"good":{"decision":"allow"},"bad.one":{"decision":"maybe"},"worse":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	s, findings := policy.NewSource("p", "", 1, v)
	if len(s.Actions) != 0 || len(s.Invalid) != 3 || !policy.HasErrors(findings) {
		t.Fatalf("source = %+v, findings %v: one error makes the whole policy invalid", s, findings)
	}
	for name, path := range map[string]string{"good": `spec.actions["bad.one"].decision`, "bad.one": `spec.actions["bad.one"].decision`, "worse": `spec.actions["worse"]`} {
		if !strings.Contains(s.Invalid[name], path) {
			t.Errorf("%s is told %q, want it to name %s", name, s.Invalid[name], path)
		}
	}
	if h, err := policy.RulesHash(v); err != nil || s.RulesHash != h {
		t.Errorf("rules hash = %s, want %s, %v", s.RulesHash, h, err)
	}
}

func TestNamesHoldWhatIsDenied(t *testing.T) {
	set := policy.NewSet([]policy.Source{source(t, "p", `{"b":{"decision":"allow"},"a":{"decision":"allow"}}`), source(t, "q", `{"b":{"decision":"deny"}}`), source(t, "r", `{"c":{}}`)})
	if got := strings.Join(set.Names(), ","); got != "a,b,c" {
		t.Errorf("Names = %s, want a,b,c", got)
	}
}

func BenchmarkEvaluate(b *testing.B) {
	set := policy.NewSet([]policy.Source{source(b, "p", `{"stripe.refund":{"effect":"refund:{payment_id}","resource":"payment:{payment_id}","rules":[
		{"when":{"amount_gte":0,"amount_lte":500},"decision":"allow"},{"when":{"amount_gte":0,"amount_lte":5000},"decision":"approve"},{"decision":"deny"}]}}`)})
	p := proposal("stripe.refund", map[string]any{"payment_id": "txn_1", "amount": big.NewInt(2000)})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := set.Evaluate(p); err != nil {
			b.Fatal(err)
		}
	}
}
