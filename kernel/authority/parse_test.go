package authority_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
)

func validGrant() spec {
	return spec{"subject": spec{"agent": "bot-*", "user": "ann"}, "actions": []string{"stripe.**", "k8s.scale"}, "resources": []string{"payment:EU-*"},
		"constraints": spec{"amount_lte": 500, "currency_in": []any{"EUR"}}, "environments": []string{"production"}, "expirationTime": "2027-06-01T00:00:00.5+02:00", "delegable": true}
}

func validDelegation() spec {
	return validGrant().with(spec{"parentRef": spec{"kind": "Grant", "name": "root"}, "delegator": spec{"agent": "boss", "user": "ann"}, "breakGlass": true, "reason": "it burns"})
}

func TestParseGrant(t *testing.T) {
	g, findings := authority.ParseGrant(validGrant().tree(t))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	if g.Subject.Agent.String() != "bot-*" || g.Subject.User.String() != "ann" || len(g.Actions) != 2 || g.Actions[0].String() != "stripe.**" || g.Resources[0].String() != "payment:EU-*" ||
		len(g.Constraints.List()) != 2 || !slices.Equal(g.Environments, []string{"production"}) || !g.Delegable || g.Type != authority.Standard || g.MaxDuration != 0 ||
		!g.Expiration.Equal(time.Date(2027, 5, 31, 22, 0, 0, 5e8, time.UTC)) {
		t.Errorf("read as %+v", g)
	}
	g, findings = authority.ParseGrant(spec{"subject": spec{"user": "*"}, "actions": []string{"*"}, "grantType": "BreakGlass", "maxDurationSeconds": 14400}.tree(t))
	if len(findings) > 0 || g.Type != authority.BreakGlass || g.MaxDuration != 4*time.Hour || g.Subject.Agent != nil || g.Expiration != nil || g.Delegable {
		t.Errorf("an envelope is read as %+v, %v", g, findings)
	}
	d, findings := authority.ParseDelegation(validDelegation().tree(t))
	if len(findings) > 0 || d.Parent != grantRef("root") || !d.BreakGlass || d.Reason != "it burns" || d.Delegator.Agent != "boss" || *d.Delegator.User != "ann" || d.Type != authority.Standard || !d.Delegable {
		t.Errorf("a delegation is read as %+v, %v", d, findings)
	}
}

// Every mistake is one finding, at its path, that says what to do. A grant and a delegation share most of their content.
func TestFindings(t *testing.T) {
	long := strings.Repeat("x", 600)
	many := func(n int) []any {
		var out []any
		for i := range n {
			out = append(out, fmt.Sprintf("a%d", i))
		}
		return out
	}
	null := map[string]any{"null": nil}["null"]
	set := func(key string, v any) func(s spec) spec {
		return func(s spec) spec {
			out := s.with(nil)
			out[key] = v
			return out
		}
	}
	without := func(key string) func(s spec) spec { return func(s spec) spec { return s.with(spec{key: nil}) } }
	type change = func(s spec) spec
	type finding struct{ path, says string }
	shared := map[string]struct {
		change change
		want   finding
	}{
		"no subject":                  {without("subject"), finding{"", "subject is missing"}},
		"a blank subject":             {set("subject", null), finding{"subject", "blank"}},
		"an empty subject":            {set("subject", spec{}), finding{"subject", "neither agent nor user"}},
		"a subject of text":           {set("subject", "bot"), finding{"subject", "text"}},
		"a blank agent":               {set("subject", map[string]any{"agent": nil, "user": "x"}), finding{"subject.agent", "blank"}},
		"an empty agent":              {set("subject", spec{"agent": ""}), finding{"subject.agent", "empty"}},
		"** as an agent":              {set("subject", spec{"agent": "**"}), finding{"subject.agent", "write *"}},
		"an agent that is a number":   {set("subject", spec{"agent": 1}), finding{"subject.agent", "an integer"}},
		"a long agent":                {set("subject", spec{"agent": long}), finding{"subject.agent", "600 characters"}},
		"an unknown key in subject":   {set("subject", spec{"agent": "a", "group": "b"}), finding{"subject.group", "unknown key"}},
		"a misspelt key in subject":   {set("subject", spec{"agent": "a", "users": "b"}), finding{"subject.users", "did you mean user?"}},
		"no actions":                  {without("actions"), finding{"", "actions is missing"}},
		"blank actions":               {set("actions", null), finding{"actions", "blank"}},
		"empty actions":               {set("actions", []any{}), finding{"actions", "empty"}},
		"actions of text":             {set("actions", "a"), finding{"actions", "text"}},
		"a blank action":              {set("actions", []any{"a", nil}), finding{"actions[1]", "blank"}},
		"an action that is a list":    {set("actions", []any{[]any{"a"}}), finding{"actions[0]", "a list"}},
		"a pattern with ?":            {set("actions", []any{"a?"}), finding{"actions[0]", "no meaning"}},
		"a pattern with a class":      {set("actions", []any{"[abc]"}), finding{"actions[0]", "no meaning"}},
		"a pattern with a leading *":  {set("actions", []any{"*a"}), finding{"actions[0]", "elsewhere"}},
		"a wildcard before **":        {set("actions", []any{"stripe.a*.**"}), finding{"actions[0]", "before **"}},
		"too many actions":            {set("actions", many(65)), finding{"actions", "65"}},
		"blank resources":             {set("resources", null), finding{"resources", "blank"}},
		"empty resources":             {set("resources", []any{}), finding{"resources", "empty"}},
		"a resource off grammar":      {set("resources", []any{"a::b"}), finding{"resources[0]", "empty"}},
		"blank constraints":           {set("constraints", null), finding{"constraints", "blank"}},
		"empty constraints":           {set("constraints", spec{}), finding{"constraints", "empty"}},
		"constraints in a list":       {set("constraints", []any{}), finding{"constraints", "a list"}},
		"a condition without op":      {set("constraints", spec{"amount": 1}), finding{"constraints.amount", "_lte"}},
		"a bound that is text":        {set("constraints", spec{"amount_lte": "5.00"}), finding{"constraints.amount_lte", "minor units"}},
		"a bound that is a bool":      {set("constraints", spec{"amount_lte": true}), finding{"constraints.amount_lte", "integer"}},
		"a reserved argument":         {set("constraints", spec{"claims_eq": 1}), finding{"constraints.claims_eq", "another name"}},
		"another reserved argument":   {set("constraints", spec{"expires_at_eq": 1}), finding{"constraints.expires_at_eq", "reserved"}},
		"a third reserved argument":   {set("constraints", spec{"issuer_eq": 1}), finding{"constraints.issuer_eq", "reserved"}},
		"a condition beside":          {set("amount_lte", 5), finding{"amount_lte", "below constraints"}},
		"an integer beyond 64 bits":   {set("constraints", spec{"n_in": []any{1, new64()}}), finding{"constraints.n_in", "64 bits"}},
		"empty environments":          {set("environments", []any{}), finding{"environments", "empty"}},
		"blank environments":          {set("environments", null), finding{"environments", "blank"}},
		"a pattern of environments":   {set("environments", []any{"prod*"}), finding{"environments[0]", "exact"}},
		"an empty environment":        {set("environments", []any{"a", ""}), finding{"environments[1]", "empty"}},
		"a blank environment":         {set("environments", []any{nil}), finding{"environments[0]", "blank"}},
		"a long environment":          {set("environments", []any{long}), finding{"environments[0]", "63"}},
		"a time without offset":       {set("expirationTime", "2027-06-01T00:00:00"), finding{"expirationTime", "offset"}},
		"a date":                      {set("expirationTime", "2027-06-01"), finding{"expirationTime", "offset"}},
		"a time that is a number":     {set("expirationTime", 1234), finding{"expirationTime", "an integer"}},
		"an hour of one digit":        {set("expirationTime", "2027-06-01T1:00:00Z"), finding{"expirationTime", "offset"}},
		"a day that does not exist":   {set("expirationTime", "2027-02-30T00:00:00Z"), finding{"expirationTime", "offset"}},
		"a comma in a time":           {set("expirationTime", "2027-06-01T00:00:00,5Z"), finding{"expirationTime", "offset"}},
		"delegable of text":           {set("delegable", "yes"), finding{"delegable", "true or false"}},
		"blank delegable":             {set("delegable", null), finding{"delegable", "blank"}},
		"delegable without an end":    {without("expirationTime"), finding{"delegable", "add expirationTime"}},
		"a key that is unknown":       {set("foo", 1), finding{"foo", "unknown key"}},
		"a key in snake case":         {set("expiration_time", "2027-06-01T00:00:00Z"), finding{"expiration_time", "did you mean expirationTime?"}},
		"a key of another document":   {set("expires_at", "2027-06-01T00:00:00Z"), finding{"expires_at", "rename"}},
		"when":                        {set("when", spec{"a_eq": 1}), finding{"when", "constraints"}},
		"a decision":                  {set("decision", "allow"), finding{"decision", "the policy decides"}},
		"an id":                       {set("id", "x"), finding{"id", "name of the object"}},
		"an agent beside the subject": {set("agent", "x"), finding{"agent", "below subject"}},
	}
	for name, tc := range shared {
		t.Run(name, func(t *testing.T) {
			g, findings := authority.ParseGrant(tc.change(validGrant()).tree(t))
			checkFinding(t, findings, tc.want.path, tc.want.says)
			if g.Actions != nil || g.Subject.Agent != nil {
				t.Error("there is a grant all the same")
			}
			// A delegation that breaks glass misses its end as well.
			d, findings := authority.ParseDelegation(tc.change(validDelegation().with(spec{"breakGlass": nil})).tree(t))
			checkFinding(t, findings, tc.want.path, tc.want.says)
			if d.Actions != nil || !d.Parent.IsZero() {
				t.Error("there is a delegation all the same")
			}
		})
	}
	envelope := spec{"subject": spec{"agent": "a"}, "actions": []string{"a"}, "grantType": "BreakGlass", "maxDurationSeconds": 60}
	for name, tc := range map[string]struct {
		spec spec
		want finding
	}{
		"an unknown type":                    {envelope.with(spec{"grantType": "breakglass"}), finding{"grantType", "Standard and BreakGlass"}},
		"a type that is a bool":              {envelope.with(spec{"grantType": true}), finding{"grantType", "Standard and BreakGlass"}},
		"an envelope without a duration":     {envelope.with(spec{"maxDurationSeconds": nil}), finding{"", "maxDurationSeconds is missing"}},
		"an envelope of no time":             {envelope.with(spec{"maxDurationSeconds": 0}), finding{"maxDurationSeconds", "from 1 to 14400"}},
		"an envelope of too long":            {envelope.with(spec{"maxDurationSeconds": 14401}), finding{"maxDurationSeconds", "from 1 to 14400"}},
		"an envelope of a duration of text":  {envelope.with(spec{"maxDurationSeconds": "4h"}), finding{"maxDurationSeconds", "text"}},
		"an envelope that expires":           {envelope.with(spec{"expirationTime": at(0)}), finding{"expirationTime", "remove it"}},
		"an envelope that says delegable":    {envelope.with(spec{"delegable": false}), finding{"delegable", "remove it"}},
		"a standard grant with a duration":   {envelope.with(spec{"grantType": nil}), finding{"maxDurationSeconds", "BreakGlass"}},
		"a grant with a parent":              {envelope.with(spec{"parentRef": spec{"kind": "Grant", "name": "a"}}), finding{"parentRef", "belongs to a Delegation"}},
		"a grant with a delegator":           {envelope.with(spec{"delegator": spec{"agent": "a"}}), finding{"delegator", "belongs to a Delegation"}},
		"a grant that says breakGlass":       {envelope.with(spec{"breakGlass": true}), finding{"breakGlass", "belongs to a Delegation"}},
		"a duration of many digits":          {envelope.with(spec{"maxDurationSeconds": new64()}), finding{"maxDurationSeconds", "out of range"}},
		"a type that is misspelt, and ends?": {validGrant().with(spec{"grantType": "standard"}), finding{"grantType", "Standard and BreakGlass"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, findings := authority.ParseGrant(tc.spec.tree(t))
			checkFinding(t, findings, tc.want.path, tc.want.says)
		})
	}
	for name, tc := range map[string]struct {
		change change
		want   finding
	}{
		"no parent":                        {without("parentRef"), finding{"", "parentRef is missing"}},
		"a blank parent":                   {set("parentRef", null), finding{"parentRef", "blank"}},
		"a parent of text":                 {set("parentRef", "root"), finding{"parentRef", "text"}},
		"a parent without kind":            {set("parentRef", spec{"name": "root"}), finding{"parentRef", "kind is missing"}},
		"a parent without name":            {set("parentRef", spec{"kind": "Grant"}), finding{"parentRef", "name is missing"}},
		"a parent of another kind":         {set("parentRef", spec{"kind": "Role", "name": "root"}), finding{"parentRef.kind", "Grant or Delegation"}},
		"a parent of an empty kind":        {set("parentRef", spec{"kind": "", "name": "root"}), finding{"parentRef.kind", "empty"}},
		"a parent of an empty name":        {set("parentRef", spec{"kind": "Grant", "name": ""}), finding{"parentRef.name", "empty"}},
		"a parent with a namespace":        {set("parentRef", spec{"kind": "Grant", "name": "root", "namespace": "x"}), finding{"parentRef.namespace", "unknown key"}},
		"no delegator":                     {without("delegator"), finding{"", "delegator is missing"}},
		"a blank delegator":                {set("delegator", null), finding{"delegator", "blank"}},
		"a delegator of text":              {set("delegator", "boss"), finding{"delegator", "text"}},
		"a delegator without agent":        {set("delegator", spec{"user": "ann"}), finding{"delegator", "agent is missing"}},
		"a delegator with an empty agent":  {set("delegator", spec{"agent": ""}), finding{"delegator.agent", "empty"}},
		"a delegator with an empty user":   {set("delegator", spec{"agent": "a", "user": ""}), finding{"delegator.user", "empty"}},
		"a delegator with groups":          {set("delegator", spec{"agent": "a", "groups": []any{}}), finding{"delegator.groups", "unknown key"}},
		"breakGlass of text":               {set("breakGlass", "true"), finding{"breakGlass", "true or false"}},
		"breakGlass without reason":        {without("reason"), finding{"", "reason is missing"}},
		"breakGlass with a reason of air":  {set("reason", " "), finding{"reason", "empty"}},
		"breakGlass without end":           {func(s spec) spec { return s.with(spec{"expirationTime": nil, "delegable": nil}) }, finding{"", "expirationTime is missing"}},
		"a reason that is a number":        {set("reason", 1), finding{"reason", "an integer"}},
		"a long reason":                    {set("reason", strings.Repeat("x", 1025)), finding{"reason", "1024"}},
		"a delegation with a type":         {set("grantType", "Standard"), finding{"grantType", "belongs to a Grant"}},
		"a delegation with a max duration": {set("maxDurationSeconds", 5), finding{"maxDurationSeconds", "belongs to a Grant"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, findings := authority.ParseDelegation(tc.change(validDelegation()).tree(t))
			checkFinding(t, findings, tc.want.path, tc.want.says)
		})
	}
}

func new64() any { return uint64(1) << 63 }

func checkFinding(t *testing.T, findings []authority.Finding, path, says string) {
	t.Helper()
	if len(findings) != 1 || findings[0].Path != path || !strings.Contains(findings[0].Message, says) {
		t.Errorf("found %q, want one at %q that says %q", findings, path, says)
	}
}

// Everything that is wrong is found at once, in a fixed order, and a status shows the first with the number of them.
func TestAllFindings(t *testing.T) {
	tree := spec{"subject": spec{}, "actions": []any{"a?", "b", "*c"}, "constraints": spec{"x": 1, "agent_eq": "y"}, "delegable": true, "foo": 1}.tree(t)
	source, findings := authority.NewGrantSource("g", "u", 1, tree)
	var paths []string
	for _, f := range findings {
		paths = append(paths, f.Path)
	}
	if want := []string{"actions[0]", "actions[2]", "constraints.agent_eq", "constraints.x", "delegable", "foo", "subject"}; !slices.Equal(paths, want) {
		t.Errorf("found at %v, want %v", paths, want)
	}
	if !strings.HasPrefix(source.Problem, "spec.actions[0]: ") || !strings.HasSuffix(source.Problem, "(one of 7 errors)") {
		t.Errorf("the problem is %q", source.Problem)
	}
	for _, v := range []any{nil, true, "x", []any{}, 1} {
		if _, findings := authority.ParseGrant(v); len(findings) != 1 {
			t.Errorf("%v as a spec: %v", v, findings)
		}
		if d, findings := authority.NewDelegationSource("d", "u", t0, v); len(findings) != 1 || d.Problem == "" {
			t.Errorf("%v as a spec: %v", v, findings)
		}
	}
}

func addSeeds(f *testing.F) {
	for _, s := range []spec{validGrant(), validDelegation(), {"subject": spec{"agent": "a"}, "actions": []string{"a"}, "grantType": "BreakGlass", "maxDurationSeconds": 60}, {}} {
		data, err := canonical.Encode(s.tree(f))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"subject":null,"actions":[null],"constraints":{"a_in":[]},"environments":[""],"expirationTime":"x","delegable":1}`))
	f.Add([]byte(`{"subject":{"agent":"*"},"actions":["**"],"parentRef":{"kind":"Delegation","name":"x"},"delegator":{"agent":"a"}}`))
}

// Whatever is read without findings is a grant that can be written, compared and asked, and what has findings is none.
func FuzzParseGrant(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := canonical.Parse(data)
		if err != nil {
			return
		}
		source, findings := authority.NewGrantSource("g", "u", 1, tree)
		checkForm(t, source.Grant, findings, source.Problem)
		s := authority.NewSet(authority.Documents{Grants: []authority.GrantSource{source}, MaxDepth: 3})
		if _, err := canonical.Encode(s.Rules()); err != nil {
			t.Fatalf("the rules cannot be written: %v", err)
		}
		r := s.Evaluate(proposal("a", "a", nil), t0)
		if r.Passed && (source.Problem != "" || source.Grant.Type == authority.BreakGlass) {
			t.Fatal("what is no candidate lets pass")
		}
	})
}

func FuzzParseDelegation(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := canonical.Parse(data)
		if err != nil {
			return
		}
		source, findings := authority.NewDelegationSource("d", "u", t0, tree)
		checkForm(t, source.Delegation.Grant, findings, source.Problem)
		d := source.Delegation
		if source.Problem == "" && (d.Parent.Name == "" || d.Delegator.Agent == "" || d.BreakGlass && (d.Reason == "" || d.Expiration == nil) || d.Type != authority.Standard) {
			t.Fatalf("an incomplete delegation: %+v", d)
		}
		source.Accepted = true
		s := newWorld(t).grant("x", spec{"subject": spec{"agent": "*"}, "actions": []string{"**"}, "delegable": true, "expirationTime": at(time.Hour)})
		s.Delegations = []authority.DelegationSource{source}
		set := s.set()
		// Alone with an unreadable delegation everything is denied; with a readable one the grant beside it still counts.
		if r := set.Evaluate(proposal("a", "a", nil), t0); r.Passed != (source.Problem == "" && d.Parent != delegationRef("d")) {
			t.Fatalf("%s", describe(r))
		}
		if j := set.Judge(source, t0); source.Problem != "" && j.Refusal != authority.Malformed {
			t.Fatalf("what is malformed is judged %q", j.Refusal)
		}
	})
}

func checkForm(t *testing.T, g authority.Grant, findings []authority.Finding, problem string) {
	t.Helper()
	for _, f := range findings {
		if f.Message == "" {
			t.Fatal("a finding says nothing")
		}
	}
	if (len(findings) > 0) != (problem != "") {
		t.Fatalf("%d findings, and the problem %q", len(findings), problem)
	}
	if len(findings) > 0 {
		return
	}
	if g.Subject.Agent == nil && g.Subject.User == nil || len(g.Actions) == 0 || g.Delegable && g.Expiration == nil ||
		(g.Type == authority.BreakGlass) != (g.MaxDuration > 0) || g.MaxDuration > 4*time.Hour {
		t.Fatalf("an incomplete grant: %+v", g)
	}
	concrete := g.Subject.Agent != nil && g.Subject.Agent.Literal() && (g.Subject.User == nil || g.Subject.User.Literal())
	if dimension, ok := authority.Contains(g, g); ok != concrete {
		t.Fatalf("a grant contains itself: %t, %s", ok, dimension)
	}
}
