// Package schema_test holds the published JSON Schema of receipts against the reader that decides: what one takes the other
// takes, and what one refuses the other refuses.
package schema_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

var (
	noon     = time.Date(2026, 11, 30, 12, 0, 0, 123e6, time.UTC)
	someHash = "sha256:" + strings.Repeat("0f", 32)
)

// fullAction has no field that is null, apart from those of observed actions.
func fullAction() receipt.Document {
	return receipt.Document{
		Kind: receipt.KindAction, SubjectUID: "action-uid", Epoch: 1,
		ClusterID: "cluster-uid", Namespace: "payments", NamespaceUID: "namespace-uid", FinishedTime: noon.Add(time.Minute),
		ActionName: "refund-txn-1", ActionUID: "action-uid", ActionType: "stripe.refund",
		Principal: &receipt.Principal{Agent: "system:serviceaccount:payments:refund-agent", User: "alice", Claims: map[string]any{"pod": "refund-0"}},
		EffectKey: "refund:txn_1", EffectName: "refund-txn-1-x", EffectUID: "effect-uid", Attempt: 2, Token: "token",
		Result: decision.Committed, Reason: decision.PlainDecision, Message: "done",
		ActionHash: someHash, Resource: "payment:txn_1",
		Arguments:   map[string]any{"amount": big.NewInt(200000), "lines": []any{"a", map[string]any{"b": nil}}},
		Environment: "production", Decision: decision.Approve, DecisionReason: "rule[1]",
		Policy:            &receipt.Policy{Name: "payments", Version: "git-3f2c1a", Generation: 3, RulesHash: someHash},
		ApprovalsRequired: 1,
		Approvals: []receipt.Approval{{
			Approver: "bob", Groups: []string{"leads"}, Name: "refund-txn-1.bob", UID: "approval-uid", Time: noon, Reason: "ok", RulesHash: someHash,
		}},
		ExecutorMode: receipt.ModeAgent, ClaimID: "claim", Reporter: "agent", Error: "none", Output: `{"rate":1.5}`,
		ProposedTime: noon, AdmittedTime: noon, LateOutcomeName: "late.x", RulesHash: someHash, RefusedCount: 17,
		Refused:   []receipt.Refusal{{Kind: "approval", Name: "refund-txn-1.mallory", UID: "refused-uid", Speaker: "mallory", Reason: "SelfApproval", Time: noon}},
		Authority: &receipt.Authority{Kind: receipt.AuthorityDelegation, Name: "refunds-of-alice", BreakGlass: true, Root: "refunds"},
	}
}

func observedAction() receipt.Document {
	d := fullAction()
	d.Result, d.Execution = decision.Observed, decision.Failed
	d.Authority = &receipt.Authority{Kind: receipt.AuthorityGrant, Name: "refunds", Root: "refunds"}
	d.WouldHave = &receipt.WouldHave{Decision: decision.Deny, Reason: "no_authority", BlockedReason: "no_authority"}
	return d
}

func documents() map[string]receipt.Document {
	a := fullAction()
	common := receipt.Document{
		ClusterID: a.ClusterID, Namespace: a.Namespace, NamespaceUID: a.NamespaceUID, FinishedTime: noon, Epoch: 1,
	}
	denied := common
	denied.Kind, denied.SubjectUID, denied.ActionUID, denied.ActionName, denied.ActionType = receipt.KindAction, "action-uid", "action-uid", "refund", "stripe.refund"
	denied.Principal, denied.Environment, denied.Result, denied.ProposedTime = &receipt.Principal{}, "production", decision.Denied, noon

	resolution := common
	resolution.Kind, resolution.SubjectUID, resolution.Ordinal = receipt.KindResolution, a.EffectUID, a.Attempt
	resolution.ActionName, resolution.ActionUID, resolution.ActionType, resolution.Principal = a.ActionName, a.ActionUID, a.ActionType, a.Principal
	resolution.EffectKey, resolution.EffectName, resolution.EffectUID, resolution.Attempt, resolution.Token = a.EffectKey, a.EffectName, a.EffectUID, a.Attempt, a.Token
	resolution.Result, resolution.Statement, resolution.Evidence = decision.Failed, "looked", "https://bank.example/1"
	resolution.Resolver, resolution.ResolutionName, resolution.ResolutionUID = "carol", "x.2.carol", "resolution-uid"
	resolution.Resolves = receipt.Link{Seq: 7, Hash: someHash}

	missing := resolution
	missing.Kind, missing.Ordinal, missing.Result, missing.Reason, missing.Message = receipt.KindStatusMissing, 4, decision.Ambiguous, decision.StatusMissing, "look"

	lost := missing
	lost.ActionName, lost.ActionUID, lost.ActionType, lost.Principal, lost.Token, lost.Reason, lost.Message = "", "", "", nil, "", "", ""

	accepted := common
	accepted.Kind, accepted.SubjectUID, accepted.AcceptanceUID = receipt.KindLedgerAccepted, "acceptance-uid", "acceptance-uid"
	accepted.Statement, accepted.Acceptor, accepted.AcceptanceName, accepted.Accepted = "restored", "dave", "payments.dave", receipt.Link{Seq: 5, Hash: someHash}

	fromNothing := accepted
	fromNothing.Statement, fromNothing.Accepted = "", receipt.Start()

	event := common
	event.Kind, event.SubjectUID, event.Ordinal, event.Event = receipt.KindEvent, "policy-uid", 3, "POLICY_IN_FORCE"
	event.Data = map[string]string{"policy": "payments", "version": ""}

	return map[string]receipt.Document{
		"action": a, "observed action": observedAction(), "denied action": denied, "resolution": resolution, "status-missing": missing, "lost holder": lost,
		"ledger-accepted": accepted, "accepted from nothing": fromNothing, "event": event,
	}
}

// valid are documents of every kind, as they are written now, were written before keys were added, and at both ends of a chain.
func valid(t testing.TB) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for name, d := range documents() {
		for place, head := range map[string]receipt.Link{"first": receipt.Start(), "later": {Seq: 41, Hash: someHash}} {
			e, err := d.Entry(head)
			if err != nil {
				t.Fatal(err)
			}
			all[name+", "+place] = read(t, e.Document)
		}
	}
	for i, e := range golden(t) {
		all[fmt.Sprintf("golden %d", i+1)] = read(t, e.Document)
	}
	return all
}

func golden(t testing.TB) []receipt.Entry {
	t.Helper()
	var entries []receipt.Entry
	for _, name := range []string{"golden.jsonl", "golden-authority.jsonl"} {
		f, err := os.Open(filepath.Join("..", "..", "kernel", "receipt", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		before := len(entries)
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, receipt.MaxDocumentBytes)
		for lines.Scan() {
			e, err := receipt.ParseLine(lines.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		if err := lines.Err(); err != nil || len(entries) == before {
			t.Fatalf("%d golden receipts of %s, %v", len(entries)-before, name, err)
		}
	}
	return entries
}

func read(t testing.TB, document string) map[string]any {
	t.Helper()
	v, err := canonical.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(receipt.JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(receipt.SchemaID, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(receipt.SchemaID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge asks both. The seq the receipt is stored under is the one the document says, since only Parse knows the other.
func judge(t testing.TB, s *jsonschema.Schema, doc map[string]any) (parse, schema error) {
	t.Helper()
	text, err := canonical.Encode(doc)
	if err != nil {
		t.Fatal(err)
	}
	seq := int64(1)
	if n, ok := doc["seq"].(*big.Int); ok && n.IsInt64() {
		seq = n.Int64()
	}
	_, parse = receipt.Parse(receipt.Entry{Seq: seq, Document: string(text)})
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return parse, s.Validate(v)
}

// agree fails unless both say the same, apart from what a schema cannot say: then Parse refuses.
func agree(t testing.TB, s *jsonschema.Schema, doc map[string]any, what string) (taken bool) {
	t.Helper()
	parse, schema := judge(t, s, doc)
	unsayable := beyondSchema(doc)
	if (parse == nil) != (schema == nil && unsayable == "") {
		text, _ := canonical.Encode(doc)
		t.Errorf("%s: Parse says %v, the schema says %v, and beyond a schema is %q:\n%s", what, parse, schema, unsayable, text)
	}
	return parse == nil
}

// beyondSchema says which rule a document breaks that a JSON Schema cannot say. The list is the one JSONSchema promises.
func beyondSchema(doc map[string]any) string {
	same := func(a, b string) bool { return canonical.Equal(doc[a], doc[b]) }
	kind, _ := doc["kind"].(string)
	subject := map[string]string{
		receipt.KindAction: "action_uid", receipt.KindResolution: "effect_uid",
		receipt.KindStatusMissing: "effect_uid", receipt.KindLedgerAccepted: "acceptance_uid",
	}
	if key := subject[kind]; key != "" && !same("subject_uid", key) {
		return "subject_uid"
	}
	if kind == receipt.KindResolution && !same("ordinal", "attempt") {
		return "ordinal"
	}
	if list, ok := doc["refused"].([]any); ok && kind == receipt.KindAction {
		if n, ok := doc["refused_count"].(*big.Int); ok && n.Cmp(big.NewInt(int64(len(list)))) < 0 {
			return "refused_count"
		}
	}
	if a, ok := doc["authority"].(map[string]any); ok && kind == receipt.KindAction && a["kind"] == receipt.AuthorityGrant && !canonical.Equal(a["root"], a["name"]) {
		return "root"
	}
	times := []any{doc["finished_time"]}
	if kind == receipt.KindAction {
		times = append(times, doc["proposed_time"], doc["admitted_time"])
		for _, key := range []string{"approvals", "refused"} {
			list, _ := doc[key].([]any)
			for _, item := range list {
				m, _ := item.(map[string]any)
				times = append(times, m["time"])
			}
		}
	}
	for _, v := range times {
		if s, ok := v.(string); ok {
			if at, err := time.Parse(receipt.TimeLayout, s); err != nil && strings.Contains(err.Error(), "day out of range") || err == nil && at.IsZero() {
				return "time"
			}
		}
	}
	return ""
}

func TestSchemaIsValidInItsDraft(t *testing.T) {
	// Compile checks it against the metaschema; this makes sure that it is the one meant.
	if s := compiled(t); s.DraftVersion != 2020 || s.ID != receipt.SchemaID {
		t.Errorf("draft %d, id %s", s.DraftVersion, s.ID)
	}
}

func TestWhatIsWrittenIsValid(t *testing.T) {
	s := compiled(t)
	for name, doc := range valid(t) {
		parse, schema := judge(t, s, doc)
		if parse != nil || schema != nil {
			t.Errorf("%s: Parse says %v, the schema says %v", name, parse, schema)
		}
	}
}

// samples are values that stand somewhere in documents, and some that stand nowhere.
func samples() []any {
	values := []any{
		nil, true, "", "x", "\n", someHash, strings.ToUpper(someHash), someHash[:70], someHash + "\n", receipt.Genesis, "sha256:x", receipt.Schema,
		"2026-11-30T12:00:00.123Z", "2026-11-30T12:00:00Z", "2026-11-30T12:00:00.1234Z", "2026-11-30T12:00:00,123Z", "2026-11-30T12:00:00.123+00:00",
		"2026-02-30T12:00:00.123Z", "2024-02-29T00:00:00.000Z", "2025-02-29T00:00:00.000Z", "2026-13-01T00:00:00.000Z", "2026-00-01T00:00:00.000Z",
		"2026-11-00T00:00:00.000Z", "2026-11-31T00:00:00.000Z", "2026-12-31T23:59:60.000Z", "2026-12-31T24:00:00.000Z", "0001-01-01T00:00:00.000Z",
		"0000-02-29T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "10000-01-01T00:00:00.000Z", "2026-11-30t12:00:00.123z",
		big.NewInt(-1), big.NewInt(0), big.NewInt(1), big.NewInt(2), big.NewInt(42), big.NewInt(math.MaxInt64), new(big.Int).Lsh(big.NewInt(1), 63),
		[]any{}, []any{nil}, []any{"x"}, []any{map[string]any{}}, map[string]any{}, map[string]any{"x": "y"}, map[string]any{"x": nil},
		map[string]any{"x": []any{map[string]any{"y": big.NewInt(-7)}}},
		map[string]any{"seq": big.NewInt(0), "hash": receipt.Genesis}, map[string]any{"seq": big.NewInt(1), "hash": receipt.Genesis},
		map[string]any{"seq": big.NewInt(0), "hash": someHash}, map[string]any{"seq": big.NewInt(1), "hash": someHash},
	}
	for _, kind := range receipt.Kinds() {
		values = append(values, kind)
	}
	for _, word := range []decision.Decision{decision.Allow, decision.Approve, decision.Deny} {
		values = append(values, string(word))
	}
	for _, word := range []decision.Result{decision.Committed, decision.Failed, decision.Ambiguous, decision.Denied, decision.Blocked, decision.Observed} {
		values = append(values, string(word))
	}
	for _, mode := range []receipt.Mode{receipt.ModeAgent, receipt.ModeOperator} {
		values = append(values, string(mode))
	}
	values = append(values, receipt.AuthorityGrant, receipt.AuthorityDelegation, observedAction().Map()["authority"], observedAction().Map()["would_have"])
	return values
}

// change is one edit of a document.
type change struct {
	what  string
	apply func(doc map[string]any)
}

// changes are all single edits: each key at each level removed, replaced by each sample and joined by one nobody knows, and
// each list shortened, emptied and lengthened.
func changes(doc map[string]any) []change {
	var all []change
	var walk func(path []any, v any)
	walk = func(path []any, v any) {
		if len(path) > 0 {
			where := fmt.Sprint(path...)
			all = append(all, change{"without " + where, func(d map[string]any) { edit(d, path, nil, remove) }})
			for _, sample := range samples() {
				all = append(all, change{fmt.Sprintf("%s = %v", where, sample), func(d map[string]any) { edit(d, path, sample, replace) }})
			}
		}
		switch v := v.(type) {
		case map[string]any:
			all = append(all, change{fmt.Sprintf("a key more in %v", path), func(d map[string]any) { edit(d, append(slices.Clone(path), "unheard_of"), "x", replace) }})
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(append(slices.Clone(path), key), v[key])
			}
		case []any:
			for _, n := range []int{0, 2, receipt.MaxRefused, receipt.MaxRefused + 1} {
				if len(v) == 0 {
					continue
				}
				longer := make([]any, n)
				for i := range longer {
					longer[i] = canonical.Clone(v[0])
				}
				all = append(all, change{fmt.Sprintf("%d items in %v", n, path), func(d map[string]any) { edit(d, path, longer, replace) }})
			}
			for i, item := range v {
				walk(append(slices.Clone(path), i), item)
			}
		}
	}
	walk(nil, doc)
	return all
}

type operation int

const (
	remove operation = iota
	replace
)

// edit changes what stands at a path, if the path is still there.
func edit(doc map[string]any, path []any, value any, op operation) {
	var at any = doc
	for _, step := range path[:len(path)-1] {
		switch step := step.(type) {
		case string:
			m, _ := at.(map[string]any)
			at = m[step]
		case int:
			l, _ := at.([]any)
			if step >= len(l) {
				return
			}
			at = l[step]
		}
	}
	switch last := path[len(path)-1].(type) {
	case string:
		m, ok := at.(map[string]any)
		switch {
		case !ok:
		case op == remove:
			delete(m, last)
		default:
			m[last] = canonical.Clone(value)
		}
	case int:
		l, ok := at.([]any)
		if !ok || last >= len(l) {
			return
		}
		// A list element cannot be taken out in place; null stands for it.
		l[last] = nil
		if op == replace {
			l[last] = canonical.Clone(value)
		}
	}
}

// Each single edit of a document of each form: the schema and Parse say the same.
func TestSchemaAgreesWithParse(t *testing.T) {
	s := compiled(t)
	taken, refused := 0, 0
	docs := valid(t)
	for _, name := range []string{
		"action, later", "observed action, later", "denied action, first", "resolution, later", "status-missing, later", "ledger-accepted, later", "event, first", "golden 1",
	} {
		doc, ok := docs[name]
		if !ok {
			t.Fatalf("there is no document %q", name)
		}
		for _, c := range changes(doc) {
			changed := canonical.Clone(doc).(map[string]any)
			c.apply(changed)
			if agree(t, s, changed, name+", "+c.what) {
				taken++
				continue
			}
			refused++
		}
	}
	// If all were refused, a schema that takes nothing would pass.
	t.Logf("%d changed documents were taken, %d refused", taken, refused)
	if taken < 500 || refused < 5000 {
		t.Errorf("%d changed documents were taken and %d refused: too few to say anything", taken, refused)
	}
}

// Several edits at once, also of documents that have more than one of a kind wrong, and of keys that depend on each other.
func TestSchemaAgreesWithParseOnSeveralChanges(t *testing.T) {
	s := compiled(t)
	random := rand.New(rand.NewPCG(1, 2))
	docs := valid(t)
	names := slices.Sorted(maps.Keys(docs))
	edits := map[string][]change{}
	for _, name := range names {
		edits[name] = changes(docs[name])
	}
	for range 5000 {
		name := names[random.IntN(len(names))]
		doc := canonical.Clone(docs[name]).(map[string]any)
		what := name
		for range 2 + random.IntN(2) {
			c := edits[name][random.IntN(len(edits[name]))]
			c.apply(doc)
			what += ", " + c.what
		}
		agree(t, s, doc, what)
		if t.Failed() {
			return
		}
	}
}

// Keys that are null together: each combination of null and not null.
func TestSchemaAgreesWithParseOnNulls(t *testing.T) {
	s := compiled(t)
	keys := []string{
		"decision", "decision_reason", "effect_uid", "attempt", "effect_name", "effect_key", "executor_mode", "admitted_time", "policy", "token",
	}
	e, err := fullAction().Entry(receipt.Start())
	if err != nil {
		t.Fatal(err)
	}
	// Of the keys about observed actions, with each result: null, not null, and not there.
	values := map[string]any{}
	for _, key := range []string{"authority", "execution", "would_have"} {
		values[key] = observedAction().Map()[key]
	}
	for _, result := range []decision.Result{decision.Committed, decision.Denied, decision.Observed} {
		for state := range 27 {
			doc := read(t, e.Document)
			doc["result"] = string(result)
			for i, key := range slices.Sorted(maps.Keys(values)) {
				switch state / []int{1, 3, 9}[i] % 3 {
				case 0:
					delete(doc, key)
				case 1:
					doc[key] = nil
				case 2:
					doc[key] = values[key]
				}
			}
			agree(t, s, doc, fmt.Sprintf("result %s, state %d", result, state))
		}
	}
	for mask := range 1 << len(keys) {
		doc := read(t, e.Document)
		for i, key := range keys {
			if mask&(1<<i) != 0 {
				doc[key] = nil
			}
		}
		agree(t, s, doc, fmt.Sprintf("nulls %b", mask))
	}
}

// What the shape of a document cannot hold, in words, so that a refusal of both for the wrong reason would show.
func TestSchemaNamesWhatItRefuses(t *testing.T) {
	s := compiled(t)
	e, err := fullAction().Entry(receipt.Link{Seq: 41, Hash: someHash})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(map[string]any)
		says   string
	}{
		"a missing key":       {func(d map[string]any) { delete(d, "token") }, "missing property 'token'"},
		"an unknown key":      {func(d map[string]any) { d["unheard_of"] = nil }, "additional properties 'unheard_of' not allowed"},
		"a hash in capitals":  {func(d map[string]any) { d["action_hash"] = strings.ToUpper(someHash) }, "at '/action_hash'"},
		"an unknown result":   {func(d map[string]any) { d["result"] = "Committed" }, "at '/result'"},
		"a number as text":    {func(d map[string]any) { d["epoch"] = "1" }, "at '/epoch'"},
		"no execution":        {func(d map[string]any) { d["result"] = "observed" }, "at '/execution'"},
		"no would_have":       {func(d map[string]any) { delete(d, "would_have") }, "'would_have' required"},
		"an approval too few": {func(d map[string]any) { delete(d, "refused_count") }, "'refused_count' required"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := read(t, e.Document)
			tc.change(doc)
			if _, err := judge(t, s, doc); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
		})
	}
}

// FuzzSchemaAgreesWithParse starts from documents and goes where the fuzzer goes.
func FuzzSchemaAgreesWithParse(f *testing.F) {
	s := compiled(f)
	for _, doc := range valid(f) {
		text, err := canonical.Encode(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, document string) {
		v, err := canonical.Parse([]byte(document))
		if err != nil {
			// How JSON is written is no matter of the schema.
			t.Skip()
		}
		doc, ok := v.(map[string]any)
		if !ok {
			if s.Validate(plain(t, document)) == nil {
				t.Fatalf("the schema takes %s", document)
			}
			return
		}
		agree(t, s, doc, "fuzzed")
	})
}

func plain(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
