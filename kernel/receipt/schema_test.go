package receipt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/canonical"
)

// frozenKey is what the schema promised about a key once. It stands in testdata/v1alpha1-frozen.json.
type frozenKey struct {
	Types    []string       `json:"types,omitempty"` // sorted; null among them
	Required bool           `json:"required"`        // not required: receipts of before the key existed do not have it
	Words    []string       `json:"words,omitempty"` // of an enumeration
	Limits   map[string]any `json:"limits,omitempty"`
}

// frozenKind is the keys of one kind by path, such as approvals[].rules_hash, and the rules between keys.
type frozenKind struct {
	Keys  map[string]frozenKey `json:"keys"`
	Rules []string             `json:"rules"`
}

// today flattens the schema that is published now.
func today(t testing.TB) map[string]frozenKind {
	t.Helper()
	schema := decoded(t, JSONSchema())
	defs := schema["$defs"].(map[string]any)
	kinds := map[string]frozenKind{}
	for _, form := range schema["oneOf"].([]any) {
		name := strings.TrimPrefix(form.(map[string]any)["$ref"].(string), "#/$defs/")
		kind := frozenKind{Keys: map[string]frozenKey{}}
		form := defs[name].(map[string]any)
		flatten(t, defs, form, "", kind.Keys)
		for _, rule := range form["allOf"].([]any) {
			text, err := json.Marshal(rule)
			if err != nil {
				t.Fatal(err)
			}
			kind.Rules = append(kind.Rules, string(text))
		}
		kinds[name] = kind
	}
	return kinds
}

func decoded(t testing.TB, text []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// flatten notes every key of an object and of the objects inside.
func flatten(t testing.TB, defs, form map[string]any, path string, keys map[string]frozenKey) {
	t.Helper()
	properties, _ := form["properties"].(map[string]any)
	if properties != nil && form["additionalProperties"] != false {
		t.Fatalf("%s is not closed", path)
	}
	for name, value := range properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		value := resolved(t, defs, value.(map[string]any))
		required, _ := form["required"].([]any)
		keys[at] = frozen(t, at, value, slices.Contains(required, any(name)))
		flatten(t, defs, value, at, keys)
		if items, ok := value["items"].(map[string]any); ok {
			item := resolved(t, defs, items)
			keys[at+"[]"] = frozen(t, at+"[]", item, true)
			flatten(t, defs, item, at+"[]", keys)
		}
	}
}

// resolved is a schema with the definition it refers to written into it; its own keywords win.
func resolved(t testing.TB, defs, value map[string]any) map[string]any {
	t.Helper()
	name, ok := value["$ref"].(string)
	if !ok {
		return value
	}
	definition, ok := defs[strings.TrimPrefix(name, "#/$defs/")].(map[string]any)
	if !ok {
		t.Fatalf("there is no definition %s", name)
	}
	merged := maps.Clone(definition)
	maps.Copy(merged, value)
	return merged
}

func frozen(t testing.TB, path string, value map[string]any, required bool) frozenKey {
	t.Helper()
	k := frozenKey{Required: required, Limits: map[string]any{}}
	for keyword, v := range value {
		switch keyword {
		case "type":
			if one, ok := v.(string); ok {
				v = []any{one}
			}
			for _, name := range v.([]any) {
				k.Types = append(k.Types, name.(string))
			}
			slices.Sort(k.Types)
		case "enum":
			for _, word := range v.([]any) {
				if word, ok := word.(string); ok {
					k.Words = append(k.Words, word)
				}
			}
		case "const", "pattern", "format", "minLength", "minimum", "maximum", "maxItems", "maxProperties":
			k.Limits[keyword] = v
		case "if", "then", "else":
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			k.Limits[keyword] = string(text)
		case "additionalProperties":
			if v != false {
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				k.Limits[keyword] = string(text)
			}
		case "properties", "required", "items", "$ref", "description":
		default:
			// What is not looked at could become stricter unseen.
			t.Fatalf("%s has the keyword %s, which is not compared", path, keyword)
		}
	}
	return k
}

// broken says which promises of then are not kept now, and what was added since.
func broken(then, now map[string]frozenKind) (complaints, added []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	for name, old := range then {
		kind, ok := now[name]
		if !ok {
			complain("kind %s is gone", name)
			continue
		}
		for _, rule := range old.Rules {
			if !slices.Contains(kind.Rules, rule) {
				complain("a rule between keys of %s is gone: %s", name, rule)
			}
		}
		for _, rule := range kind.Rules {
			switch {
			case slices.Contains(old.Rules, rule):
			case !aboutNew(rule, old.Keys):
				complain("%s has a new rule between keys that receipts of before may break: %s", name, rule)
			default:
				added = append(added, name+" rule "+rule)
			}
		}
		for path, was := range old.Keys {
			is, ok := kind.Keys[path]
			switch {
			case !ok:
				complain("%s %s is gone", name, path)
				continue
			case !slices.Equal(was.Types, is.Types):
				complain("%s %s has the types %q, not %q", name, path, is.Types, was.Types)
			case was.Required != is.Required:
				complain("%s %s is required: %t, not %t", name, path, is.Required, was.Required)
			case fmt.Sprint(was.Limits) != fmt.Sprint(is.Limits):
				complain("%s %s has the limits %v, not %v", name, path, is.Limits, was.Limits)
			case len(was.Words) == 0 && len(is.Words) > 0:
				complain("%s %s has become an enumeration", name, path)
			}
			for _, word := range was.Words {
				if !slices.Contains(is.Words, word) {
					complain("%s %s cannot be %s any more", name, path, word)
				}
			}
			for _, word := range is.Words {
				if !slices.Contains(was.Words, word) {
					added = append(added, name+" "+path+" = "+word)
				}
			}
		}
		for path, is := range kind.Keys {
			if _, ok := old.Keys[path]; ok {
				continue
			}
			added = append(added, name+" "+path)
			// What stands in something that is new itself may be required.
			if is.Required && !insideNew(path, old.Keys) {
				complain("%s %s is new and required, but receipts of before do not have it", name, path)
			}
		}
	}
	for name := range now {
		if _, ok := then[name]; !ok {
			added = append(added, "kind "+name)
		}
	}
	slices.Sort(complaints)
	slices.Sort(added)
	return complaints, added
}

// aboutNew reports whether a rule says nothing about documents without keys that are new: it is an if that requires one, with
// a then alone, or says what is required beside new ones.
func aboutNew(rule string, old map[string]frozenKey) bool {
	var r struct {
		If *struct {
			Required []string `json:"required"`
		} `json:"if"`
		Then              json.RawMessage     `json:"then"`
		DependentRequired map[string][]string `json:"dependentRequired"`
	}
	d := json.NewDecoder(strings.NewReader(rule))
	d.DisallowUnknownFields() // an else, or another keyword, could say something of all documents
	if err := d.Decode(&r); err != nil {
		return false
	}
	isNew := func(key string) bool { _, known := old[key]; return !known }
	for key := range r.DependentRequired {
		if !isNew(key) {
			return false
		}
	}
	return r.DependentRequired != nil && r.If == nil && r.Then == nil ||
		r.DependentRequired == nil && r.If != nil && slices.ContainsFunc(r.If.Required, isNew)
}

func insideNew(path string, old map[string]frozenKey) bool {
	parent, inside := strings.CutSuffix(path, "[]")
	if !inside {
		i := strings.LastIndex(path, ".")
		if i < 0 {
			return false
		}
		parent = path[:i]
	}
	_, known := old[parent]
	return !known
}

func readFrozen(t testing.TB) map[string]frozenKind {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "v1alpha1-frozen.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	d.DisallowUnknownFields()
	var kinds map[string]frozenKind
	if err := d.Decode(&kinds); err != nil {
		t.Fatal(err)
	}
	return kinds
}

// The schema of this version only grows, so that a reader of today reads what was written ever since.
func TestSchemaOnlyGrows(t *testing.T) {
	now := today(t)
	complaints, added := broken(readFrozen(t), now)
	for _, c := range complaints {
		t.Errorf("%s: an incompatible change needs another schema version", c)
	}
	if len(added) > 0 && len(complaints) == 0 {
		t.Errorf("%q: new, and from now on frozen too. Make testdata/v1alpha1-frozen.json\n%s", added, rendered(t, now))
	}
}

// rendered is the frozen file: a key a line, so that a difference shows what was added.
func rendered(t testing.TB, kinds map[string]frozenKind) string {
	t.Helper()
	line := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var forms []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		var keys, rules []string
		for _, path := range slices.Sorted(maps.Keys(kinds[name].Keys)) {
			keys = append(keys, fmt.Sprintf("   %q: %s", path, line(kinds[name].Keys[path])))
		}
		for _, rule := range kinds[name].Rules {
			rules = append(rules, "   "+line(rule))
		}
		forms = append(forms, fmt.Sprintf(" %q: {\n  \"keys\": {\n%s\n  },\n  \"rules\": [\n%s\n  ]\n }", name,
			strings.Join(keys, ",\n"), strings.Join(rules, ",\n")))
	}
	return "{\n" + strings.Join(forms, ",\n") + "\n}\n"
}

// The control of the test above: each kind of change that it must refuse, and those it must allow.
func TestFrozenSchemaRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(action frozenKind, all map[string]frozenKind)
		says   string // part of the one complaint; empty: none, but something was added
	}{
		"a kind that is gone":      {func(_ frozenKind, all map[string]frozenKind) { delete(all, KindEvent) }, "kind event is gone"},
		"a key that is gone":       {func(k frozenKind, _ map[string]frozenKind) { delete(k.Keys, "token") }, "action token is gone"},
		"a later key that is gone": {func(k frozenKind, _ map[string]frozenKind) { delete(k.Keys, "rules_hash") }, "action rules_hash is gone"},
		"an inner key that is gone": {func(k frozenKind, _ map[string]frozenKind) { delete(k.Keys, "approvals[].uid") },
			"action approvals[].uid is gone"},
		"null that is not allowed any more": {edited("token", func(k *frozenKey) { k.Types = []string{"string"} }), "has the types"},
		"null that is allowed now":          {edited("namespace", func(k *frozenKey) { k.Types = []string{"null", "string"} }), "has the types"},
		"another type":                      {edited("epoch", func(k *frozenKey) { k.Types = []string{"string"} }), "has the types"},
		"a later key that is required":      {edited("rules_hash", func(k *frozenKey) { k.Required = true }), "is required: true"},
		"a key that need not be there now":  {edited("token", func(k *frozenKey) { k.Required = false }), "is required: false"},
		"a word that is gone":               {edited("result", func(k *frozenKey) { k.Words = k.Words[1:] }), "cannot be committed any more"},
		"text that becomes an enumeration":  {edited("reason", func(k *frozenKey) { k.Words = []string{"x"} }), "has become an enumeration"},
		"a limit that is tighter":           {edited("refused", func(k *frozenKey) { k.Limits = map[string]any{"maxItems": json.Number("8")} }), "has the limits"},
		"a pattern that is new":             {edited("resource", func(k *frozenKey) { k.Limits = map[string]any{"pattern": "x"} }), "has the limits"},
		"a new key that is required":        {edited("new", func(k *frozenKey) { k.Required = true }), "is new and required"},
		"a new inner key that is required":  {edited("policy.new", func(k *frozenKey) { k.Required = true }), "is new and required"},
		"a new rule": {func(k frozenKind, all map[string]frozenKind) {
			k.Rules = append(slices.Clone(k.Rules), "{}")
			all[KindAction] = k
		}, "new rule between keys"},
		"a new rule about new keys and others": {func(k frozenKind, all map[string]frozenKind) {
			k.Keys["new"] = frozenKey{}
			k.Rules = append(slices.Clone(k.Rules), `{"dependentRequired":{"new":["token"],"rules_hash":["new"]}}`)
			all[KindAction] = k
		}, "new rule between keys"},
		"a new rule that also says otherwise": {func(k frozenKind, all map[string]frozenKind) {
			k.Keys["new"] = frozenKey{}
			k.Rules = append(slices.Clone(k.Rules), `{"if":{"required":["new"]},"then":{},"else":false}`)
			all[KindAction] = k
		}, "new rule between keys"},
		"a rule that is gone": {func(k frozenKind, all map[string]frozenKind) {
			k.Rules = k.Rules[1:]
			all[KindAction] = k
		}, "a rule between keys of action is gone"},

		"new rules about a new key": {func(k frozenKind, all map[string]frozenKind) {
			k.Keys["new"] = frozenKey{}
			k.Rules = append(slices.Clone(k.Rules), `{"dependentRequired":{"new":["token"]}}`, `{"if":{"required":["new"]},"then":{"properties":{"token":{"type":"null"}}}}`)
			all[KindAction] = k
		}, ""},
		"a new key": {edited("new", func(*frozenKey) {}), ""},
		"a new key with required keys inside": {func(k frozenKind, _ map[string]frozenKind) {
			k.Keys["new"], k.Keys["new.inner"] = frozenKey{}, frozenKey{Required: true}
		}, ""},
		"a new word": {edited("result", func(k *frozenKey) { k.Words = append(slices.Clone(k.Words), "abstained") }), ""},
		"a new kind": {func(_ frozenKind, all map[string]frozenKind) {
			all["contract"] = frozenKind{Keys: map[string]frozenKey{"kind": {Required: true}}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			then, now := today(t), today(t)
			tc.change(now[KindAction], now)
			complaints, added := broken(then, now)
			switch {
			case tc.says == "" && (len(complaints) > 0 || len(added) == 0):
				t.Errorf("complaints %q, added %q; want none, and what was added", complaints, added)
			case tc.says != "" && (len(complaints) != 1 || !strings.Contains(complaints[0], tc.says)):
				t.Errorf("complaints %q, want one with %q", complaints, tc.says)
			}
		})
	}
}

// edited changes one key of the kind action.
func edited(path string, change func(*frozenKey)) func(frozenKind, map[string]frozenKind) {
	return func(kind frozenKind, _ map[string]frozenKind) {
		k := kind.Keys[path]
		change(&k)
		kind.Keys[path] = k
	}
}

// The keys of the schema are those that are written: at every level, and all of them.
func TestSchemaHasTheKeysOfDocuments(t *testing.T) {
	kinds := today(t)
	if got, want := slices.Sorted(maps.Keys(kinds)), slices.Sorted(slices.Values(Kinds())); !slices.Equal(got, want) {
		t.Fatalf("the schema has the kinds %q, want %q", got, want)
	}
	full := map[string]Document{
		KindAction: observedDocument(), KindResolution: resolutionDocument(), KindStatusMissing: statusMissingDocument(),
		KindLedgerAccepted: ledgerAcceptedDocument(), KindEvent: eventDocument(),
	}
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			document := map[string]bool{}
			// What stands in these is up to others.
			open := []string{"arguments", "principal.claims", "data"}
			var walk func(path string, v any)
			walk = func(path string, v any) {
				switch v := v.(type) {
				case map[string]any:
					for key, value := range v {
						at := strings.TrimPrefix(path+"."+key, ".")
						document[at] = true
						if !slices.Contains(open, at) {
							walk(at, value)
						}
					}
				case []any:
					for _, item := range v {
						document[path+"[]"] = true
						walk(path+"[]", item)
					}
				}
			}
			walk("", full[kind].Map())
			got, want := slices.Sorted(maps.Keys(kinds[kind].Keys)), slices.Sorted(maps.Keys(document))
			if !slices.Equal(got, want) {
				t.Errorf("the schema has the keys\n%q\na document\n%q", got, want)
			}
		})
	}
}

// Where a key may be null, a reader must be ready for it; where it may not, the writer must not.
func TestSchemaAllowsTheNullsOfDocuments(t *testing.T) {
	kinds := today(t)
	for name, d := range documents() {
		for key, value := range d.Map() {
			k := kinds[d.Kind].Keys[key]
			if value == nil && !slices.Contains(k.Types, "null") {
				t.Errorf("%s: %s is null, the schema says %q", name, key, k.Types)
			}
		}
	}
}

// The published text, so that a change of it is seen for what it is. If it is meant, write it there.
func TestSchemaText(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := JSONSchema(); !bytes.Equal(got, want) {
		t.Errorf("testdata/schema.json is not the schema, which is\n%s", got)
	}
	if !json.Valid(JSONSchema()) || !bytes.Equal(JSONSchema(), JSONSchema()) {
		t.Error("it is no JSON, or another each time")
	}
}

// goldenFiles are golden receipts, pinned: a file never changes. Receipts of later forms go into a file of their own.
var goldenFiles = map[string]struct {
	sum     string
	head    string // the last of them
	kinds   map[string]int
	without map[string]int // keys that came later, and in how many receipts they are not
}{
	"golden.jsonl": {
		sum:   "sha256:b27aa2fd177441604bdc0769ac207bbf0e56a6f6e27164f841666b4dcece1a10",
		head:  "8:sha256:da987490f24eb18f50d535809fee0397b84809f62fbaa7f9c84cc0cdeb01f792",
		kinds: map[string]int{KindAction: 4, KindResolution: 1, KindStatusMissing: 1, KindLedgerAccepted: 1, KindEvent: 1},
		without: map[string]int{
			"rules_hash": 1, "refused": 1, "refused_count": 1, "approvals[].rules_hash": 1, "authority": 4, "execution": 4, "would_have": 4,
			"preconditions": 4, "precondition_at_request": 4, "precondition_at_recheck": 4, "resolvers": 1, "executor": 4, "observer": 1, "rounds": 4,
		},
	},
	// Since receipts name authority, and what was observed.
	"golden-authority.jsonl": {
		sum:     "sha256:5ce51469e80bc60a07e9c38cc9069335233363ca38767d24d03ce6e164a71555",
		head:    "8:sha256:a2c6dda71498d33d345090ccf338b25af955031bf861a7dd4561eb9cd7e3bfbf",
		kinds:   map[string]int{KindAction: 4, KindEvent: 4},
		without: map[string]int{"preconditions": 4, "precondition_at_request": 4, "precondition_at_recheck": 4, "executor": 4, "rounds": 4},
	},
	// Since receipts name preconditions, and all who resolved.
	"golden-oversight.jsonl": {
		sum:     "sha256:9821806ce0227685608644e6d8827cabc18eef71e06e700534db622efa77716a",
		head:    "8:sha256:dc7d8c5f18aaf29e945994a6cba4cd1569f332b1bd2b18cc07778cbdb26615f7",
		kinds:   map[string]int{KindAction: 5, KindEvent: 1, KindResolution: 2},
		without: map[string]int{"executor": 5, "observer": 2, "rounds": 5},
	},
	// Since receipts name what executed for the operator.
	"golden-executors.jsonl": {
		sum:     "sha256:fe4327952daa8b52e65892f2f4a886987afa099c721a1843f7c9a238ddcaf2dc",
		head:    "3:sha256:5dfc5e3f44b3973d426e79154916f2b3d5baf4c482c29b6dc0047a2d25c65eb5",
		kinds:   map[string]int{KindAction: 3},
		without: map[string]int{"rounds": 3},
	},
	// Since receipts name the program that looked.
	"golden-observer.jsonl": {
		sum:     "sha256:e0afce6fa2cc8eb1f2d91d0f5bf977847f309d6e80ad1ae3190f6cc61f5b0d6d",
		head:    "2:sha256:bd25e62db1631ef0334698a650c96791fd790865ec5230467a6fd84dff503b40",
		kinds:   map[string]int{KindResolution: 2},
		without: map[string]int{},
	},
}

// Receipts are kept for ever, so what was once written is read for ever.
func TestGoldenReceipts(t *testing.T) {
	for name, golden := range goldenFiles {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			if got := canonical.Sum(text); got != golden.sum {
				t.Fatalf("testdata/%s has been changed: its hash is %s", name, got)
			}
			head, err := ParseLink(golden.head)
			if err != nil {
				t.Fatal(err)
			}
			var entries []Entry
			kinds := map[string]int{}
			without := map[string]int{} // keys that came later, and in how many receipts they are not
			for line := range bytes.Lines(text) {
				e, err := ParseLine(bytes.TrimSuffix(line, []byte("\n")))
				if err != nil {
					t.Fatal(err)
				}
				entries = append(entries, e)
				again, err := Line(e)
				if err != nil || !bytes.Equal(append(again, '\n'), line) {
					t.Errorf("receipt %d is exported as %s, %v", e.Seq, again, err)
				}
				d, err := Parse(e)
				if err != nil {
					t.Error(err)
					continue
				}
				kinds[d.Kind]++
				read, err := open(e.Document)
				if err != nil {
					t.Fatal(err)
				}
				// Whatever stands in it is in the document; what does not is null, empty or 0 there.
				for key, value := range d.Map() {
					was, ok := read[key]
					switch {
					case !ok && (value == nil || canonical.Equal(value, []any{}) || canonical.Equal(value, 0)):
						without[key]++
					case key == "approvals" && ok: // looked at below
					case !canonical.Equal(was, value):
						t.Errorf("receipt %d says %s %v, read as %v", e.Seq, key, was, value)
					}
				}
				list, _ := read["approvals"].([]any)
				for i, item := range list {
					for key, was := range item.(map[string]any) {
						if value := d.Approvals[i].document().(map[string]any)[key]; !canonical.Equal(was, value) {
							t.Errorf("receipt %d says approvals[%d].%s %v, read as %v", e.Seq, i, key, was, value)
						}
					}
					if _, ok := item.(map[string]any)["rules_hash"]; !ok {
						without["approvals[].rules_hash"]++
					}
				}
			}
			if r := Verify(entries, Options{Head: &head}); r.Verdict != Intact || int64(r.Count) != head.Seq {
				t.Errorf("%d receipts are %s: %v", r.Count, r.Verdict, r.Breaks)
			}
			if !maps.Equal(kinds, golden.kinds) {
				t.Errorf("kinds %v, want %v", kinds, golden.kinds)
			}
			if !maps.Equal(without, golden.without) {
				t.Errorf("keys that are not there: %v, want %v", without, golden.without)
			}
		})
	}
}
