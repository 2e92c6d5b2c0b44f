package grammar_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/grammar"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	v, err := canonical.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

func TestConditionsMatch(t *testing.T) {
	for name, tc := range map[string]struct {
		when, arguments string
		want            bool
	}{
		"equal":                                   {`{"a_eq":"x"}`, `{"a":"x"}`, true},
		"true is not 1":                           {`{"a_eq":1}`, `{"a":true}`, false},
		"true is not 1, so they are unequal":      {`{"a_neq":1}`, `{"a":true}`, true},
		"a list is not its element":               {`{"a_eq":[1]}`, `{"a":1}`, false},
		"lists are compared recursively":          {`{"a_eq":[{"b":[null,1]}]}`, `{"a":[{"b":[null,1]}]}`, true},
		"null equals null":                        {`{"a_eq":null}`, `{"a":null}`, true},
		"absent is not null":                      {`{"a_eq":null}`, `{}`, false},
		"absent makes _neq false":                 {`{"a_neq":1}`, `{}`, false},
		"absent makes _in false":                  {`{"a_in":[null]}`, `{}`, false},
		"below, equal":                            {`{"a_lt":5}`, `{"a":5}`, false},
		"below":                                   {`{"a_lt":5}`, `{"a":4}`, true},
		"at most, equal":                          {`{"a_lte":5}`, `{"a":5}`, true},
		"at most admits negatives":                {`{"a_lte":5}`, `{"a":-5}`, true},
		"above, equal":                            {`{"a_gt":5}`, `{"a":5}`, false},
		"above":                                   {`{"a_gt":5}`, `{"a":6}`, true},
		"at least, equal":                         {`{"a_gte":5}`, `{"a":5}`, true},
		"at least, below":                         {`{"a_gte":5}`, `{"a":4}`, false},
		"beyond 64 bits, one apart":               {`{"a_lt":36893488147419103233}`, `{"a":36893488147419103232}`, true},
		"a comparison with text":                  {`{"a_gte":0}`, `{"a":"5"}`, false},
		"a comparison with a bool":                {`{"a_gte":0}`, `{"a":true}`, false},
		"a comparison with null":                  {`{"a_lte":0}`, `{"a":null}`, false},
		"a comparison with a list":                {`{"a_gte":0}`, `{"a":[5]}`, false},
		"member":                                  {`{"a_in":["x","y"]}`, `{"a":"y"}`, true},
		"not a member":                            {`{"a_in":["x","y"]}`, `{"a":"z"}`, false},
		"membership is type-strict":               {`{"a_in":[1,[true]]}`, `{"a":true}`, false},
		"nothing is in the empty list":            {`{"a_in":[]}`, `{"a":null}`, false},
		"all must hold":                           {`{"a_gte":0,"a_lte":5}`, `{"a":6}`, false},
		"all hold":                                {`{"a_gte":0,"a_lte":5,"b_eq":"x"}`, `{"a":3,"b":"x"}`, true},
		"the longest operator is the operator":    {`{"a_neq":1}`, `{"a":2,"a_n":1}`, true},
		"underscores in the name":                 {`{"payment_id_eq":"t"}`, `{"payment_id":"t"}`, true},
		"an operator in the name":                 {`{"a_eq_neq":1}`, `{"a_eq":2}`, true},
		"a dot is part of a top-level name":       {`{"a.b_eq":1}`, `{"a.b":1}`, true},
		"a dot does not reach inside":             {`{"a.b_eq":1}`, `{"a":{"b":1}}`, false},
		"names in other case are other names":     {`{"A_eq":1}`, `{"a":1}`, false},
		"a reserved name in other case is a name": {`{"Agent_eq":1}`, `{"Agent":1}`, true},
		"a reserved name is part of a longer one": {`{"agent_id_eq":1}`, `{"agent_id":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := grammar.ParseConditions(object(t, tc.when))
			if err != nil {
				t.Fatal(err)
			}
			arguments := object(t, tc.arguments)
			if got := c.Match(arguments); got != tc.want {
				t.Errorf("Match(%s, %s) = %v, want %v", tc.when, tc.arguments, got, tc.want)
			}
			if why := c.Explain(arguments); (why == "") != tc.want {
				t.Errorf("Explain = %q although Match = %v", why, tc.want)
			}
		})
	}
}

func TestNoConditionsAlwaysMatch(t *testing.T) {
	if !(grammar.Conditions{}).Match(nil) {
		t.Error("a rule without conditions does not match")
	}
}

func TestExplain(t *testing.T) {
	for name, tc := range map[string]struct{ when, arguments, want string }{
		"an absent argument":       {`{"amount_lte":5}`, `{}`, `no argument "amount"`},
		"an argument of some type": {`{"amount_lte":5}`, `{"amount":"5"}`, `a string, not an integer`},
		"a value is not told":      {`{"card_eq":"a"}`, `{"card":"4111"}`, `card_eq is false`},
		"the first one in order":   {`{"b_eq":1,"a_eq":1}`, `{"b":2,"a":2}`, `a_eq is false`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := grammar.ParseConditions(object(t, tc.when))
			if err != nil {
				t.Fatal(err)
			}
			got := c.Explain(object(t, tc.arguments))
			if !strings.Contains(got, tc.want) || strings.Contains(got, "4111") {
				t.Errorf("Explain = %q, want it to say %q", got, tc.want)
			}
		})
	}
}

func TestParseConditionsRefuses(t *testing.T) {
	type refusal struct {
		when map[string]any
		key  string
	}
	cases := map[string]refusal{
		"no conditions":                  {map[string]any{}, ""},
		"no mapping":                     {nil, ""},
		"an unknown operator":            {map[string]any{"amount_max": big.NewInt(3)}, "amount_max"},
		"an operator without underscore": {map[string]any{"eq": "x"}, "eq"},
		"an operator in other case":      {map[string]any{"a_EQ": "x"}, "a_EQ"},
		"no argument":                    {map[string]any{"_eq": "x"}, "_eq"},
		"a bool under a comparison":      {map[string]any{"a_lt": true}, "a_lt"},
		"text under a comparison":        {map[string]any{"a_gte": "5"}, "a_gte"},
		"null under a comparison":        {map[string]any{"a_gt": nil}, "a_gt"},
		"a list under a comparison":      {map[string]any{"a_lte": []any{big.NewInt(1)}}, "a_lte"},
		"text under _in":                 {map[string]any{"a_in": "x"}, "a_in"},
		"null under _in":                 {map[string]any{"a_in": nil}, "a_in"},
		"an object under _in":            {map[string]any{"a_in": map[string]any{}}, "a_in"},
		"a float":                        {map[string]any{"a_eq": 1.5}, "a_eq"},
		"a float deep inside":            {map[string]any{"a_eq": []any{map[string]any{"b": 1.5}}}, "a_eq"},
		"text that is not UTF-8":         {map[string]any{"a_eq": "\xff"}, "a_eq"},
		"the first key in order":         {map[string]any{"z_max": "x", "b_max": "x"}, "b_max"},
	}
	for _, name := range []string{"agent", "user", "claims", "issuer", "expires_at", "principal", "environment", "resource", "name", "action_id", "data_scope"} {
		cases["the reserved name "+name] = refusal{map[string]any{name + "_eq": "x"}, name + "_eq"}
		cases["the reserved name "+name+" with _in"] = refusal{map[string]any{name + "_in": []any{"x"}}, name + "_in"}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := grammar.ParseConditions(tc.when)
			var refused *grammar.ConditionError
			if !errors.As(err, &refused) || refused.Key != tc.key || refused.Problem == "" {
				t.Fatalf("ParseConditions = %v, want a *ConditionError for %q", err, tc.key)
			}
			if !strings.Contains(err.Error(), tc.key) {
				t.Errorf("the error %q does not name the key %q", err, tc.key)
			}
		})
	}
}

func TestOperandsAreSnapshots(t *testing.T) {
	operand := []any{"x"}
	c, err := grammar.ParseConditions(map[string]any{"a_in": operand})
	if err != nil {
		t.Fatal(err)
	}
	operand[0] = "y"
	if !c.Match(map[string]any{"a": "x"}) || c.Match(map[string]any{"a": "y"}) {
		t.Error("a condition changed with the document it was read from")
	}
}

func TestRanges(t *testing.T) {
	for name, tc := range map[string]struct {
		when      string
		low, high string
		empty     bool
	}{
		"both, inclusive":      {`{"a_gte":1,"a_lte":5}`, "1", "5", false},
		"both, exclusive":      {`{"a_gt":1,"a_lt":5}`, "2", "4", false},
		"the narrowest counts": {`{"a_gte":1,"a_gt":3,"a_lte":9,"a_lt":9}`, "4", "8", false},
		"high alone":           {`{"a_lte":5}`, "", "5", false},
		"low alone":            {`{"a_gte":5}`, "5", "", false},
		"nothing between":      {`{"a_gt":1,"a_lt":2}`, "2", "1", true},
		"equality is no range": {`{"a_eq":5}`, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := grammar.ParseConditions(object(t, tc.when))
			if err != nil {
				t.Fatal(err)
			}
			r := c.Ranges()["a"]
			text := func(n *big.Int) string {
				if n == nil {
					return ""
				}
				return n.String()
			}
			if text(r.Low) != tc.low || text(r.High) != tc.high || r.Empty() != tc.empty {
				t.Errorf("range = %s..%s empty %v, want %s..%s empty %v", text(r.Low), text(r.High), r.Empty(), tc.low, tc.high, tc.empty)
			}
		})
	}
}

func FuzzConditions(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"amount_lte":500}`, `{"amount":-5}`}, {`{"a_in":[1,true],"b_neq":null}`, `{"a":true,"b":[]}`}, {`{"agent_eq":1}`, `{}`}, {`{"_eq":1}`, `{"":1}`},
		{`{"a_gt":1,"a_lt":2}`, `{"a":1}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, when, args []byte) {
		w, err := canonical.Parse(when)
		if err != nil {
			return
		}
		conditions, ok := w.(map[string]any)
		if !ok {
			return
		}
		c, err := grammar.ParseConditions(conditions)
		if err != nil {
			var refused *grammar.ConditionError
			if !errors.As(err, &refused) {
				t.Fatalf("refused by a %T", err)
			}
			return
		}
		if len(c.List()) != len(conditions) {
			t.Fatalf("%d conditions were read from %d keys", len(c.List()), len(conditions))
		}
		if c.Match(map[string]any{}) {
			t.Fatal("conditions hold without arguments")
		}
		a, err := canonical.Parse(args)
		if err != nil {
			return
		}
		arguments, ok := a.(map[string]any)
		if !ok {
			return
		}
		matched := c.Match(arguments)
		if (c.Explain(arguments) == "") != matched {
			t.Fatalf("Match = %v, Explain = %q", matched, c.Explain(arguments))
		}
		for _, one := range c.List() {
			if matched && !one.Match(arguments) {
				t.Fatalf("all hold, but %s does not", one.Key())
			}
			if n, ok := arguments[one.Argument()].(*big.Int); ok && matched {
				r := c.Ranges()[one.Argument()]
				if r.Low != nil && n.Cmp(r.Low) < 0 || r.High != nil && n.Cmp(r.High) > 0 {
					t.Fatalf("%s matches outside of its range", n)
				}
			}
		}
		again, err := grammar.ParseConditions(conditions)
		if err != nil || !again.Equal(c) {
			t.Fatal("the same conditions are not equal")
		}
	})
}

// Containment of conditions: the same argument and the same operator, at least as strict.
func TestConditionsContain(t *testing.T) {
	type m = map[string]any
	list := func(v ...any) []any { return v }
	for name, tc := range map[string]struct {
		parent, child m
		want          bool
	}{
		"lte, the same":                         {m{"n_lte": 5}, m{"n_lte": 5}, true},
		"lte, stricter":                         {m{"n_lte": 5}, m{"n_lte": 4}, true},
		"lte, wider":                            {m{"n_lte": 5}, m{"n_lte": 6}, false},
		"lt, stricter":                          {m{"n_lt": 5}, m{"n_lt": 4}, true},
		"lt, wider":                             {m{"n_lt": 5}, m{"n_lt": 6}, false},
		"gte, stricter":                         {m{"n_gte": 5}, m{"n_gte": 6}, true},
		"gte, wider":                            {m{"n_gte": 5}, m{"n_gte": 4}, false},
		"gt, stricter":                          {m{"n_gt": 5}, m{"n_gt": 6}, true},
		"gt, wider":                             {m{"n_gt": 5}, m{"n_gt": 4}, false},
		"eq, the same":                          {m{"n_eq": 5}, m{"n_eq": 5}, true},
		"eq, of another type":                   {m{"n_eq": 1}, m{"n_eq": true}, false},
		"eq, another":                           {m{"n_eq": "a"}, m{"n_eq": "b"}, false},
		"neq, the same":                         {m{"n_neq": "a"}, m{"n_neq": "a"}, true},
		"neq, another":                          {m{"n_neq": "a"}, m{"n_neq": "b"}, false},
		"in, the same in another order":         {m{"n_in": list("a", "b")}, m{"n_in": list("b", "a", "a")}, true},
		"in, fewer":                             {m{"n_in": list("a", "b")}, m{"n_in": list("b")}, true},
		"in, none":                              {m{"n_in": list("a")}, m{"n_in": list()}, true},
		"in, more":                              {m{"n_in": list("a")}, m{"n_in": list("a", "b")}, false},
		"in, of another type":                   {m{"n_in": list(1)}, m{"n_in": list("1")}, false},
		"another operator that is stricter":     {m{"n_lte": 5}, m{"n_lt": 5}, false},
		"an equality does not stand for bounds": {m{"n_lte": 5}, m{"n_eq": 5}, false},
		"an equality does not stand for a list": {m{"n_in": list(5)}, m{"n_eq": 5}, false},
		"another argument":                      {m{"n_lte": 5}, m{"m_lte": 5}, false},
		"one more":                              {m{"n_lte": 5}, m{"n_lte": 5, "m_eq": 1}, true},
		"one less":                              {m{"n_lte": 5, "m_eq": 1}, m{"n_lte": 5}, false},
		"two of one argument":                   {m{"n_lte": 5, "n_gte": 1}, m{"n_lte": 4, "n_gte": 2}, true},
		"two of one argument, one wider":        {m{"n_lte": 5, "n_gte": 1}, m{"n_lte": 4, "n_gte": 0}, false},
		"the longest operator counts":           {m{"n_gte": 5}, m{"n_gt_gte": 6}, false},
	} {
		t.Run(name, func(t *testing.T) {
			parent, err := grammar.ParseConditions(tc.parent)
			if err != nil {
				t.Fatal(err)
			}
			child, err := grammar.ParseConditions(tc.child)
			if err != nil {
				t.Fatal(err)
			}
			if got := parent.Contains(child); got != tc.want {
				t.Errorf("contained: %t, want %t", got, tc.want)
			}
			if !parent.Contains(parent) || !child.Contains(child) {
				t.Error("conditions do not contain themselves")
			}
			none := grammar.Conditions{}
			if !none.Contains(child) || child.Contains(none) || !none.Contains(none) || !none.IsZero() || child.IsZero() {
				t.Error("what has no conditions contains all and is contained in nothing else")
			}
			again, err := grammar.ParseConditions(child.Canonical())
			if err != nil || !again.Equal(child) {
				t.Errorf("the conditions are written as %v: %v", child.Canonical(), err)
			}
		})
	}
	var zero grammar.Condition
	if zero.Contains(zero) {
		t.Error("the zero condition contains something")
	}
}
