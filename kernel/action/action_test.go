package action_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
)

func ptr[T any](v T) *T { return &v }

func refund() action.Proposal {
	return action.Proposal{
		Name:        "stripe.refund",
		Arguments:   map[string]any{"amount": big.NewInt(2000), "payment_id": "txn_1"},
		Principal:   action.Principal{Agent: "refund-agent"},
		Environment: "production",
	}
}

func TestParseDocumentFillsInWhatMayBeOmitted(t *testing.T) {
	got, err := action.ParseDocument([]byte(`{"name":"stripe.refund","arguments":{"payment_id":"txn_1","amount":2000},"principal":{"agent":"refund-agent"}}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := canonical.Encode(got.Document())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"arguments":{"amount":2000,"payment_id":"txn_1"},"environment":"production","name":"stripe.refund",` +
		`"principal":{"agent":"refund-agent","user":null},"resource":null,"schema":"ctrlrun.action/v1"}`
	if string(text) != want {
		t.Errorf("document = %s, want %s", text, want)
	}
}

func TestParseDocumentRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, names string }{
		"what is not JSON":               {`{`, "action document"},
		"a list":                         {`[]`, "a list"},
		"an unknown member":              {`{"name":"a","arguments":{},"principal":{"agent":"x"},"reason":"y"}`, `"reason"`},
		"the schema tag":                 {`{"schema":"ctrlrun.action/v1","name":"a","arguments":{},"principal":{"agent":"x"}}`, "schema"},
		"an unknown member of principal": {`{"name":"a","arguments":{},"principal":{"agent":"x","claims":{}}}`, `"principal.claims"`},
		"a name in other case":           {`{"Name":"a","arguments":{},"principal":{"agent":"x"}}`, `"Name"`},
		"no name":                        {`{"arguments":{},"principal":{"agent":"x"}}`, "name is missing"},
		"an empty name":                  {`{"name":"","arguments":{},"principal":{"agent":"x"}}`, "name is empty"},
		"a name that is a number":        {`{"name":1,"arguments":{},"principal":{"agent":"x"}}`, "an integer"},
		"no arguments":                   {`{"name":"a","principal":{"agent":"x"}}`, "arguments is missing"},
		"null arguments":                 {`{"name":"a","arguments":null,"principal":{"agent":"x"}}`, "null"},
		"arguments in a list":            {`{"name":"a","arguments":[],"principal":{"agent":"x"}}`, "a list"},
		"no principal":                   {`{"name":"a","arguments":{}}`, "principal is missing"},
		"a principal in a string":        {`{"name":"a","arguments":{},"principal":"x"}`, "a string"},
		"no agent":                       {`{"name":"a","arguments":{},"principal":{}}`, "principal.agent is missing"},
		"an empty user":                  {`{"name":"a","arguments":{},"principal":{"agent":"x","user":""}}`, "principal.user is empty"},
		"a user that is a bool":          {`{"name":"a","arguments":{},"principal":{"agent":"x","user":false}}`, "a bool"},
		"an empty resource":              {`{"name":"a","arguments":{},"principal":{"agent":"x"},"resource":""}`, "resource is empty"},
		"a null environment":             {`{"name":"a","arguments":{},"principal":{"agent":"x"},"environment":null}`, "environment"},
		"an empty environment":           {`{"name":"a","arguments":{},"principal":{"agent":"x"},"environment":""}`, "environment is empty"},
		"a fraction deep in arguments":   {`{"name":"a","arguments":{"x":[{"y":1.5}]},"principal":{"agent":"x"}}`, "/arguments/x/0/y"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := action.ParseDocument([]byte(tc.text))
			if err == nil {
				t.Fatalf("accepted as %+v", p)
			}
			if !strings.Contains(err.Error(), tc.names) {
				t.Errorf("the error %q does not name %q", err, tc.names)
			}
		})
	}
}

func TestStringsAreNotTrimmed(t *testing.T) {
	p := refund()
	p.Name, p.Principal.Agent, p.Principal.User, p.Resource, p.Environment = " ", " ", ptr(" "), ptr(" "), " "
	if err := p.Validate(); err != nil {
		t.Errorf("a blank is refused: %v", err)
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*action.Proposal)
		names  string
	}{
		"an empty name":            {func(p *action.Proposal) { p.Name = "" }, "name"},
		"an empty agent":           {func(p *action.Proposal) { p.Principal.Agent = "" }, "principal.agent"},
		"an empty user":            {func(p *action.Proposal) { p.Principal.User = ptr("") }, "principal.user"},
		"an empty resource":        {func(p *action.Proposal) { p.Resource = ptr("") }, "resource"},
		"an empty environment":     {func(p *action.Proposal) { p.Environment = "" }, "environment"},
		"a name that is not UTF-8": {func(p *action.Proposal) { p.Name = "\xff" }, "name"},
		"no arguments":             {func(p *action.Proposal) { p.Arguments = nil }, "arguments"},
		"a float among arguments":  {func(p *action.Proposal) { p.Arguments["amount"] = 20.0 }, "/amount"},
		"a key that is not UTF-8":  {func(p *action.Proposal) { p.Arguments["\xff"] = nil }, "arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			p := refund()
			tc.change(&p)
			if err := p.Validate(); err == nil || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("Validate = %v, want a refusal that names %q", err, tc.names)
			}
		})
	}
}

func TestEveryDifferenceChangesTheHash(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*action.Proposal){
		"nothing":              func(*action.Proposal) {},
		"name":                 func(p *action.Proposal) { p.Name = "stripe.Refund" },
		"amount":               func(p *action.Proposal) { p.Arguments["amount"] = big.NewInt(2001) },
		"amount as text":       func(p *action.Proposal) { p.Arguments["amount"] = "2000" },
		"amount renamed":       func(p *action.Proposal) { p.Arguments["amoun"] = p.Arguments["amount"]; delete(p.Arguments, "amount") },
		"a null argument more": func(p *action.Proposal) { p.Arguments["note"] = nil },
		"resource":             func(p *action.Proposal) { p.Resource = ptr("payment:txn_1") },
		"agent":                func(p *action.Proposal) { p.Principal.Agent = "other" },
		"user":                 func(p *action.Proposal) { p.Principal.User = ptr("alice") },
		"another user":         func(p *action.Proposal) { p.Principal.User = ptr("bob") },
		"environment":          func(p *action.Proposal) { p.Environment = "staging" },
	} {
		p := refund()
		change(&p)
		h, err := p.Hash()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, dup := seen[h]; dup {
			t.Errorf("changing %s and changing %s give one hash", name, other)
		}
		seen[h] = name
	}
}

func TestCanonicalArgumentsAreTheHashedOnes(t *testing.T) {
	p := refund()
	p.Arguments = map[string]any{"b": []any{"é", nil}, "a": big.NewInt(1)}
	got, err := p.CanonicalArguments()
	if err != nil || string(got) != `{"a":1,"b":["é",null]}` {
		t.Errorf("arguments = %s, %v", got, err)
	}
	if got, err := (action.Proposal{}).CanonicalArguments(); err != nil || string(got) != `{}` {
		t.Errorf("no arguments = %s, %v, want {}", got, err)
	}
}

func TestCheckSize(t *testing.T) {
	// {"a":"..."} is 8 bytes and the text.
	text := func(n int) map[string]any { return map[string]any{"a": strings.Repeat("x", n-8)} }
	nest := func(depth int) map[string]any {
		v := map[string]any{}
		for range depth - 1 {
			v = map[string]any{"a": v}
		}
		return v
	}
	for name, tc := range map[string]struct {
		arguments map[string]any
		ok        bool
	}{
		"nothing":                    {map[string]any{}, true},
		"exactly the byte limit":     {text(action.MaxArgumentsBytes), true},
		"one byte beyond":            {text(action.MaxArgumentsBytes + 1), false},
		"exactly the depth limit":    {nest(action.MaxArgumentsDepth), true},
		"one level beyond":           {nest(action.MaxArgumentsDepth + 1), false},
		"lists are levels too":       {map[string]any{"a": []any{nest(action.MaxArgumentsDepth - 1)}}, false},
		"an argument without a form": {map[string]any{"a": 1.5}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := action.CheckSize(tc.arguments); (err == nil) != tc.ok {
				t.Errorf("CheckSize = %v, want ok %v", err, tc.ok)
			}
		})
	}
}

func TestCheckStored(t *testing.T) {
	beyond := new(big.Int).Add(big.NewInt(math.MaxInt64), big.NewInt(1))
	for name, tc := range map[string]struct {
		arguments any
		pointer   string
		ok        bool
	}{
		"the ends of int64":                     {map[string]any{"a": []any{big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64), int64(1), 2, nil, true, "9223372036854775808"}}, "", true},
		"one beyond":                            {map[string]any{"a": beyond}, "/a", false},
		"one below":                             {map[string]any{"a": new(big.Int).Sub(big.NewInt(math.MinInt64), big.NewInt(1))}, "/a", false},
		"a float from the API":                  {map[string]any{"a": map[string]any{"b": []any{"x", 1e30}}}, "/a/b/1", false},
		"a whole float is still a float":        {map[string]any{"a": 20.0}, "/a", false},
		"a large unsigned integer":              {map[string]any{"a": uint64(math.MaxInt64) + 1}, "/a", false},
		"the first offender in sorted order":    {map[string]any{"b": 1.5, "a/b": beyond, "c": 2.5}, "/a~1b", false},
		"a float where the arguments should be": {1.5, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			pointer, ok := action.CheckStored(tc.arguments)
			if pointer != tc.pointer || ok != tc.ok {
				t.Errorf("CheckStored = %q, %v, want %q, %v", pointer, ok, tc.pointer, tc.ok)
			}
		})
	}
}

func TestParseTemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		template string
		ok       bool
	}{
		"a placeholder":                {"refund:{payment_id}", true},
		"literal text only":            {"the-one", true},
		"placeholders side by side":    {"{a}{_b}{C9}", true},
		"principal may be an argument": {"grant:{principal}:{role}", true},
		"text in any script":           {"é:{a}", true},
		"nothing":                      {"", false},
		"a dot":                        {"refund:{payment.id}", false},
		"doubled braces":               {"payment:{{id}}", false},
		"an unmatched opening brace":   {"x:{a", false},
		"an unmatched closing brace":   {"x:a}", false},
		"a brace the wrong way round":  {"}{", false},
		"an empty placeholder":         {"x:{}", false},
		"a digit first":                {"x:{1a}", false},
		"a space":                      {"x:{ a}", false},
		"an index":                     {"x:{a[0]}", false},
		"a format":                     {"x:{a:d}", false},
		"a letter outside ASCII":       {"x:{é}", false},
		"text that is not UTF-8":       {"x:\xff", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := action.ParseTemplate(tc.template)
			if (err == nil) != tc.ok {
				t.Fatalf("ParseTemplate = %v, want ok %v", err, tc.ok)
			}
			if err == nil && (got.String() != tc.template || got.IsZero()) {
				t.Errorf("String = %q, IsZero %v, want %q", got, got.IsZero(), tc.template)
			}
			if err != nil && !got.IsZero() {
				t.Errorf("a refusal came with the template %q", got)
			}
		})
	}
}

func template(t testing.TB, s string) action.Template {
	t.Helper()
	out, err := action.ParseTemplate(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPlaceholdersAreNamedOnce(t *testing.T) {
	if got := strings.Join(template(t, "{b}:{a}:{b}").Placeholders(), ","); got != "b,a" {
		t.Errorf("Placeholders = %s, want b,a", got)
	}
}

func TestResolve(t *testing.T) {
	arguments := map[string]any{
		"id": "txn_1", "n": big.NewInt(-7), "big": new(big.Int).Lsh(big.NewInt(1), 70), "braces": "{id}", "blank": " ",
		"null": nil, "empty": "", "yes": true, "list": []any{"a"}, "map": map[string]any{}, "long": strings.Repeat("é", action.MaxResolvedLength),
	}
	with := func(k string) map[string]any {
		out := map[string]any{k: "x"}
		for key, v := range arguments {
			out[key] = v
		}
		return out
	}
	for name, tc := range map[string]struct {
		template    string
		resource    *string
		arguments   map[string]any
		effect      string
		effectErr   string
		asResource  string
		resourceErr string
	}{
		"a string and an integer":          {template: "r:{id}:{n}", effect: "r:txn_1:-7", asResource: "r:txn_1:-7"},
		"an integer beyond 64 bits":        {template: "{big}", effect: "1180591620717411303424", asResource: "1180591620717411303424"},
		"values are not read as templates": {template: "{braces}", effect: "{id}", asResource: "{id}"},
		"a blank is not empty":             {template: "{blank}", effect: " ", asResource: " "},
		"no placeholder":                   {template: "the-one", effect: "the-one", asResource: "the-one"},
		"a missing argument":               {template: "{id}:{gone}", effectErr: "gone", resourceErr: "gone"},
		"null":                             {template: "{null}", effectErr: "null", resourceErr: "null"},
		"an empty string":                  {template: "{empty}", effectErr: "empty", resourceErr: "empty"},
		"a bool":                           {template: "{yes}", effectErr: "yes", resourceErr: "yes"},
		"a list":                           {template: "{list}", effectErr: "list", resourceErr: "list"},
		"an object":                        {template: "{map}", effectErr: "map", resourceErr: "map"},
		"the longest result":               {template: "{long}", effect: strings.Repeat("é", action.MaxResolvedLength), asResource: strings.Repeat("é", action.MaxResolvedLength)},
		"a result too long to record":      {template: "x{long}", effectErr: "*", resourceErr: "*"},
		"{resource} is the action's, for an effect only":       {template: "restart:{resource}", resource: ptr("deploy:web"), effect: "restart:deploy:web", resourceErr: "resource"},
		"{resource} of an action without one":                  {template: "restart:{resource}", effectErr: "resource", resourceErr: "resource"},
		"{resource} beside an argument of that name":           {template: "restart:{resource}", resource: ptr("deploy:web"), arguments: with("resource"), effectErr: "resource", asResource: "restart:x"},
		"{resource} beside such an argument, resource null":    {template: "restart:{resource}", arguments: with("resource"), effectErr: "resource", asResource: "restart:x"},
		"an argument named resource that no template mentions": {template: "{id}", resource: ptr("deploy:web"), arguments: with("resource"), effect: "txn_1", asResource: "txn_1"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.arguments == nil {
				tc.arguments = arguments
			}
			tmpl := template(t, tc.template)
			got, err := tmpl.ResolveEffect(action.Proposal{Arguments: tc.arguments, Resource: tc.resource})
			checkResolved(t, "effect", got, err, tc.effect, tc.effectErr)
			got, err = tmpl.ResolveResource(tc.arguments)
			checkResolved(t, "resource", got, err, tc.asResource, tc.resourceErr)
		})
	}
}

// checkResolved compares one resolution; wantErr is the placeholder at fault, or * for the whole.
func checkResolved(t *testing.T, what, got string, err error, want, wantErr string) {
	t.Helper()
	if wantErr == "" {
		if err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", what, got, err, want)
		}
		return
	}
	var failed *action.ResolveError
	if !errors.As(err, &failed) || got != "" {
		t.Fatalf("%s = %q, %v, want a *ResolveError", what, got, err)
	}
	if failed.Placeholder != strings.Trim(wantErr, "*") || failed.Problem == "" || failed.Remedy == "" {
		t.Errorf("%s failed as %+v, want placeholder %q with problem and remedy", what, failed, wantErr)
	}
}

func TestEffectName(t *testing.T) {
	// The hash part of each is: printf %s KEY | openssl dgst -sha256 -binary | base32 | tr A-Z a-z | cut -c1-20
	for key, want := range map[string]string{
		"refund:txn_1": "refund-txn-1-x65u2jfxzep2glb2dhvo",
		"Refund:TXN_1": "refund-txn-1-rizpindglv53j2tzkvis",
		"":             "k-4oymiquy7qobjgx36tej",
		"é:🔑":          "k-szfu3kd36qyoftunhkko",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-4m6n7hd7oeqltdumpbai",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaa:b":          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa-zc2tczjnylc3yus52uxv",
		":::lead":                                  "lead-u2sq3av5mhujwsp7juyw",
		"restart:eu:web":                           "restart-eu-web-n3bmna2mqoi2rctjc7wa",
	} {
		if got := action.EffectName(key); got != want {
			t.Errorf("EffectName(%q) = %q, want %q", key, got, want)
		}
	}
}

func TestSpeaker(t *testing.T) {
	for username, want := range map[string]string{
		"system:serviceaccount:payments:refund-agent": "system-serviceaccount-payments-refund-agent",
		"Alice@Example.COM":                           "alice-example-com",
		"":                                            "x",
		"::":                                          "x",
		"-a--b-":                                      "a-b",
		"\u212aim":                                    "im", // the Kelvin sign is not a k
		"né":                                          "n",
		strings.Repeat("a", 100):                      strings.Repeat("a", 100),
		strings.Repeat("a", 60) + "bbb" + strings.Repeat("c", 39): strings.Repeat("a", 60) + "-" + strings.Repeat("c", 39),
	} {
		if got := action.Speaker(username); got != want {
			t.Errorf("Speaker(%q) = %q, want %q", username, got, want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("refund:{id}", "txn", "deploy:web")
	f.Add("{resource}", "", "")
	f.Add("{{id}}", "x", "y")
	f.Fuzz(func(t *testing.T, text, id, resource string) {
		tmpl, err := action.ParseTemplate(text)
		if err != nil {
			if !tmpl.IsZero() {
				t.Fatal("a refusal came with a template")
			}
			return
		}
		// Putting the placeholders back gives the text that was read.
		p := action.Proposal{Arguments: map[string]any{}, Resource: ptr("{resource}")}
		for _, name := range tmpl.Placeholders() {
			if name != "resource" {
				p.Arguments[name] = "{" + name + "}"
			}
		}
		back, err := tmpl.ResolveEffect(p)
		if err != nil && len(text) <= action.MaxResolvedLength {
			t.Fatalf("%q with every placeholder given: %v", text, err)
		}
		if err == nil && back != text {
			t.Fatalf("%q read back as %q", text, back)
		}
		for name := range p.Arguments {
			p.Arguments[name] = id
		}
		p.Resource = &resource
		if resource == "" {
			p.Resource = nil
		}
		if key, err := tmpl.ResolveEffect(p); err == nil && key == "" {
			t.Fatalf("%q resolved to an empty key", text)
		}
	})
}

func FuzzEffectName(f *testing.F) {
	f.Add("refund:txn_1", "refund:txn_2")
	f.Add("", "é")
	f.Fuzz(func(t *testing.T, a, b string) {
		name := action.EffectName(a)
		if len(name) > 51 || strings.Trim(name, "-abcdefghijklmnopqrstuvwxyz0123456789") != "" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") {
			t.Fatalf("EffectName(%q) = %q is not a DNS label of at most 51 characters", a, name)
		}
		if a != b && name == action.EffectName(b) {
			t.Fatalf("%q and %q share the name %s", a, b, name)
		}
		if s := action.Speaker(a); s == "" || len(s) > 100 {
			t.Fatalf("Speaker(%q) = %q", a, s)
		}
	})
}

func BenchmarkHash(b *testing.B) {
	p := refund()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Hash(); err != nil {
			b.Fatal(err)
		}
	}
}
