package grammar_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/grammar"
)

func TestPatternVectors(t *testing.T) {
	data, err := os.ReadFile("../testdata/vectors/pattern.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		ID, Op, Kind, Pattern, Value, Parent, Child string
		Want                                        bool
		WantError                                   bool `json:"want_error"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("the vector file has no cases")
	}
	for _, tc := range cases {
		t.Run(tc.ID, func(t *testing.T) {
			got, err := run(tc.Op, tc.Kind, tc.Pattern, tc.Value, tc.Parent, tc.Child)
			if (err != nil) != tc.WantError || got != tc.Want {
				t.Errorf("%s = %v, %v, want %v, error %v", tc.Op, got, err, tc.Want, tc.WantError)
			}
		})
	}
}

func run(op, kind, pattern, value, parent, child string) (bool, error) {
	k, err := grammar.ParseKind(kind)
	if err != nil {
		return false, err
	}
	if op == "match" {
		p, err := grammar.ParsePattern(k, pattern)
		return err == nil && p.Match(value), err
	}
	p, err := grammar.ParsePattern(k, parent)
	if err != nil {
		return false, err
	}
	c, err := grammar.ParsePattern(k, child)
	return err == nil && p.Contains(c), err
}

func TestMatch(t *testing.T) {
	for name, tc := range map[string]struct {
		kind           grammar.PatternKind
		pattern, value string
		want           bool
	}{
		"* matches an empty remainder":              {grammar.KindResource, "host:web-*", "host:web-", true},
		"* alone matches an empty segment":          {grammar.KindAction, "a.*", "a.", true},
		"case counts":                               {grammar.KindAction, "stripe.refund", "Stripe.refund", false},
		"nothing is normalised":                     {grammar.KindAction, "\u00e9", "e\u0301", false},
		"a wildcard in the middle":                  {grammar.KindAction, "a.b*.c", "a.bx.c", true},
		"a wildcard does not cross a separator":     {grammar.KindAction, "a.b*", "a.b.c", false},
		"** takes many":                             {grammar.KindResource, "a:**", "a:b:c:d", true},
		"** takes at least one":                     {grammar.KindResource, "a:**", "a", false},
		"a colon does not cut an action":            {grammar.KindAction, "a:*", "a:b:c", true},
		"a dot does not cut a resource":             {grammar.KindResource, "a.*", "a.b.c", true},
		"a subject is one segment":                  {grammar.KindSubject, "system:serviceaccount:pay.eu:*", "system:serviceaccount:pay.eu:bot", true},
		"a subject pattern reaches over separators": {grammar.KindSubject, "*", "system:serviceaccount:a:b", true},
		"a literal subject":                         {grammar.KindSubject, "alice", "alice2", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := grammar.ParsePattern(tc.kind, tc.pattern)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Match(tc.value); got != tc.want {
				t.Errorf("Match(%q, %q) = %v, want %v", tc.pattern, tc.value, got, tc.want)
			}
		})
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		kind    grammar.PatternKind
		pattern string
	}{
		"an empty pattern":         {grammar.KindAction, ""},
		"an empty first segment":   {grammar.KindAction, ".a"},
		"an empty last segment":    {grammar.KindAction, "a."},
		"an empty segment between": {grammar.KindResource, "a::b"},
		"a question mark":          {grammar.KindSubject, "a?"},
		"an opening bracket":       {grammar.KindSubject, "a["},
		"a closing bracket":        {grammar.KindSubject, "a]"},
		"** for a subject":         {grammar.KindSubject, "**"},
		"three stars":              {grammar.KindAction, "***"},
		"text after **":            {grammar.KindAction, "a.**b"},
		"** twice":                 {grammar.KindAction, "a.**.**"},
		"** first":                 {grammar.KindAction, "**.a"},
		"a wildcard before **":     {grammar.KindResource, "a:b*:**"},
		"text that is not UTF-8":   {grammar.KindAction, "\xff"},
		"an unknown kind":          {"tool", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := grammar.ParsePattern(tc.kind, tc.pattern)
			if err == nil {
				t.Fatalf("%q is accepted as a pattern", tc.pattern)
			}
			if p.Match("a") || p.Match("") || p.Contains(p) {
				t.Error("what was refused matches all the same")
			}
		})
	}
}

func TestLiteral(t *testing.T) {
	for text, want := range map[string]bool{"a": true, "a.b": true, "a*": false, "a.*": false, "a*.b": false, "a.**": false, "**": false} {
		p, err := grammar.ParsePattern(grammar.KindAction, text)
		if err != nil {
			t.Fatal(err)
		}
		if p.Literal() != want {
			t.Errorf("%q is literal: %t", text, !want)
		}
	}
	if (grammar.Pattern{}).Literal() {
		t.Error("the zero pattern is literal")
	}
}

func TestKindsAreNotContainedInOneAnother(t *testing.T) {
	a, err := grammar.ParsePattern(grammar.KindAction, "**")
	if err != nil {
		t.Fatal(err)
	}
	r, err := grammar.ParsePattern(grammar.KindResource, "x")
	if err != nil {
		t.Fatal(err)
	}
	if a.Contains(r) || r.Contains(a) {
		t.Error("patterns over different names were compared")
	}
}

func FuzzPattern(f *testing.F) {
	for _, seed := range [][3]string{
		{"stripe.**", "stripe.*", "stripe.refund"}, {"**", "a.**", "a.b.c"}, {"a*", "ab*", "abc"}, {"a.b*.c", "a.b.c", "a.b.c"},
		{"**", "*", ""}, {"*", "a", "a"},
	} {
		f.Add(uint8(0), seed[0], seed[1], seed[2])
		f.Add(uint8(1), strings.ReplaceAll(seed[0], ".", ":"), strings.ReplaceAll(seed[1], ".", ":"), strings.ReplaceAll(seed[2], ".", ":"))
		f.Add(uint8(2), seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, k uint8, parent, child, value string) {
		kind := []grammar.PatternKind{grammar.KindAction, grammar.KindResource, grammar.KindSubject}[k%3]
		p, err := grammar.ParsePattern(kind, parent)
		if err != nil {
			return
		}
		if !p.Contains(p) {
			t.Fatalf("%q does not contain itself", p)
		}
		if !strings.Contains(parent, "*") && !p.Match(parent) {
			t.Fatalf("the literal %q does not match itself", p)
		}
		c, err := grammar.ParsePattern(kind, child)
		if err != nil {
			return
		}
		// The value as given, and one that the child matches: its stars filled with the value's text.
		fill := strings.Map(func(r rune) rune {
			if r == '.' || r == ':' || r == '*' {
				return -1
			}
			return r
		}, value)
		for _, v := range []string{value, strings.ReplaceAll(strings.ReplaceAll(child, "**", "*"), "*", fill)} {
			if p.Contains(c) && c.Match(v) && !p.Match(v) {
				t.Fatalf("%q is contained in %q, but %q matches only the former", child, parent, v)
			}
		}
		if !strings.Contains(child, "*") && p.Match(child) != p.Contains(c) {
			t.Fatalf("for the literal %q match and containment in %q differ", child, parent)
		}
		if p.Contains(c) && c.Contains(p) && p.String() != c.String() {
			t.Fatalf("%q and %q contain each other", p, c)
		}
	})
}
