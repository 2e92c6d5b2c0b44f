package receipt

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
)

// stored makes objects of a chain of documents, as the operator writes them.
func stored(t testing.TB, documents ...Document) []Stored {
	t.Helper()
	var out []Stored
	head := Start()
	for _, d := range documents {
		e, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Stored{Name: Name("payments", e.Seq), Entry: e, Columns: d.Columns()})
		head = e.Link()
	}
	return out
}

// attempt is the receipt of an action that ended so, in an attempt of the one effect of these tests.
func attempt(n int64, action string, result decision.Result) Document {
	d := actionDocument()
	d.Epoch, d.ActionUID, d.SubjectUID, d.ActionName, d.Attempt, d.Result = 0, action, action, action, n, result
	if n == 0 {
		d.EffectUID, d.Token = "", ""
	}
	return d
}

// observed is the receipt of an action that was observed: with attempt 0 its effect could not be reserved.
func observed(n int64, action string, execution decision.Result) Document {
	d := attempt(n, action, decision.Observed)
	d.Execution, d.WouldHave = execution, &WouldHave{Decision: decision.Allow, Reason: "decision"}
	return d
}

func resolution(n int64, result decision.Result) Document {
	d := resolutionDocument()
	d.Epoch, d.Attempt, d.Ordinal, d.Result = 0, n, n, result
	return d
}

func loss(n int64) Document {
	d := statusMissingDocument()
	d.Attempt = n
	return d
}

var here = Place{Namespace: "payments", NamespaceUID: "namespace-uid", ClusterID: "cluster-uid"}

// check walks over a chain.
func check(t testing.TB, p Place, chain []Stored, references ...Reference) *CrossCheck {
	t.Helper()
	c := NewCrossCheck(p)
	for _, r := range references {
		c.Refer(r)
	}
	for _, s := range chain {
		if err := c.Add(s, DigestOf(s.Entry)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func named(found []Break) []string {
	var out []string
	for _, b := range found {
		out = append(out, fmt.Sprintf("%s %d", b.Name, b.Seq))
	}
	return out
}

func TestCrossCheckOfReceiptsAndReferences(t *testing.T) {
	chain := func() []Stored {
		return stored(t, attempt(1, "a", decision.Failed), attempt(2, "b", decision.Committed), attempt(0, "c", decision.Blocked))
	}
	at := func(seq int64) Link { return chain()[seq-1].Entry.Link() }
	refer := func(action string, seq int64, result decision.Result) Reference {
		return Reference{ActionName: action, ActionUID: action, Result: result, Name: Name("payments", seq), Link: at(seq), Finished: noon}
	}
	refersTo := func(s Stored, action string, result decision.Result) Reference {
		return Reference{ActionName: action, ActionUID: action, Result: result, Name: s.Name, Link: s.Entry.Link(), Finished: noon}
	}
	epochs := func(change func(accepted, after *Document)) []Stored {
		accepted, after := ledgerAcceptedDocument(), attempt(1, "b", decision.Committed)
		accepted.Epoch, after.Epoch = 1, 1
		old := attempt(1, "a", decision.Failed)
		old.NamespaceUID, old.ClusterID = "older-uid", "older-cluster"
		change(&accepted, &after)
		return stored(t, old, accepted, after)
	}
	for name, test := range map[string]struct {
		place      Place
		chain      []Stored
		references []Reference
		want       []string
	}{
		"as it should be": {here, chain(), []Reference{refer("a", 1, decision.Failed), refer("b", 2, decision.Committed), refer("c", 3, "")}, nil},
		"a copy changed": {here, func() []Stored {
			c := chain()
			c[1].Columns.Result = "failed"
			return c
		}(), nil, []string{"mirror_mismatch 2"}},
		"another name": {here, func() []Stored {
			c := chain()
			c[1].Name = "payments-x"
			return c
		}(), nil, []string{"name_mismatch 2"}},
		"observed":                       {here, stored(t, observed(1, "a", decision.Committed)), []Reference{refersTo(stored(t, observed(1, "a", decision.Committed))[0], "a", "")}, nil},
		"observed, and says committed":   {here, stored(t, observed(1, "a", decision.Committed)), []Reference{refersTo(stored(t, observed(1, "a", decision.Committed))[0], "a", decision.Committed)}, []string{"reference_broken 1"}},
		"refers to nothing":              {here, chain()[:2], []Reference{refer("c", 3, "")}, []string{"reference_broken 3"}},
		"refers to that of another":      {here, chain(), []Reference{refer("c", 2, decision.Committed)}, []string{"reference_broken 2"}},
		"says something else":            {here, chain(), []Reference{refer("b", 2, decision.Failed)}, []string{"reference_broken 2"}},
		"says something it cannot be":    {here, chain(), []Reference{refer("c", 3, decision.Committed)}, []string{"reference_broken 3"}},
		"refers by another name":         {here, chain(), []Reference{{ActionUID: "b", Result: decision.Committed, Name: "payments-2", Link: at(2)}}, []string{"reference_broken 2"}},
		"refers by another hash":         {here, chain(), []Reference{{ActionUID: "b", Result: decision.Committed, Name: Name("payments", 2), Link: Link{2, someHash}}}, []string{"reference_broken 2"}},
		"lost, and a person knows":       {Place{Namespace: "payments", Accepted: &AcceptedHead{Seq: 2, Time: noon}}, chain()[:2], []Reference{refer("c", 3, "")}, nil},
		"lost after a person looked":     {Place{Namespace: "payments", Accepted: &AcceptedHead{Seq: 2, Time: noon.Add(-time.Second)}}, chain()[:2], []Reference{refer("c", 3, "")}, []string{"reference_broken 3"}},
		"lost before what was accepted":  {Place{Namespace: "payments", Accepted: &AcceptedHead{Seq: 3, Time: noon}}, chain()[:2], []Reference{refer("c", 3, "")}, []string{"reference_broken 3"}},
		"of another namespace":           {Place{Namespace: "orders"}, stored(t, attempt(1, "a", decision.Failed)), nil, []string{"name_mismatch 1"}},
		"of an earlier namespace":        {Place{Namespace: "payments", NamespaceUID: "younger"}, chain(), nil, []string{"origin_mismatch 1"}},
		"of another cluster":             {Place{Namespace: "payments", ClusterID: "other"}, chain(), nil, []string{"origin_mismatch 1"}},
		"where one is, nobody may say":   {Place{Namespace: "payments"}, chain(), nil, nil},
		"accepted from elsewhere":        {here, epochs(func(_, _ *Document) {}), nil, nil},
		"moved within an epoch":          {here, epochs(func(_, after *Document) { after.NamespaceUID = "other" }), nil, []string{"origin_mismatch 3"}},
		"moved, by nobody's acceptance":  {here, epochs(func(accepted, _ *Document) { accepted.Epoch = 0 }), nil, []string{"origin_mismatch 2", "origin_mismatch 3"}},
		"back to an earlier epoch":       {here, epochs(func(_, after *Document) { after.Epoch = 0 }), nil, []string{"origin_mismatch 3"}},
		"a document of another chain":    {here, epochs(func(_, after *Document) { after.Namespace = "orders" }), nil, []string{"origin_mismatch 3"}},
		"accepted, and then moved again": {Place{Namespace: "payments", NamespaceUID: "younger"}, epochs(func(_, _ *Document) {}), nil, []string{"origin_mismatch 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := check(t, test.place, test.chain, test.references...)
			if got := named(c.Breaks()); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
				for _, b := range c.Breaks() {
					t.Log(b)
				}
			}
		})
	}
}

func TestCrossCheckOfEffects(t *testing.T) {
	record := func(n int64, holder string, result decision.Result) Record {
		return Record{Name: "refund-txn-1-x", UID: "effect-uid", Attempt: n, HolderUID: holder, HolderName: holder, Result: result, Changed: noon}
	}
	resolved := func(r Record) Record { r.Resolution = "x"; return r }
	lost := func(r Record) Record { r.Lost = true; return r }
	unbegun := func(r Record) Record { r.NeverBegan = true; return r }
	another := func(r Record) Record { r.UID = "another-uid"; return r }
	absent := Record{Name: "refund-txn-1-x", Absent: true}
	const doubt, pending = "doubt", "pending"
	for name, test := range map[string]struct {
		chain  []Document
		record Record
		want   string
		seq    int64
	}{
		"committed":                              {[]Document{attempt(1, "a", decision.Committed)}, record(1, "a", decision.Committed), "", 0},
		"failed, and tried again":                {[]Document{attempt(1, "a", decision.Failed)}, record(2, "b", ""), "", 0},
		"failed, and committed at last":          {[]Document{attempt(1, "a", decision.Failed), attempt(2, "b", decision.Committed)}, record(2, "b", decision.Committed), "", 0},
		"ambiguous":                              {[]Document{attempt(1, "a", decision.Ambiguous)}, record(1, "a", decision.Ambiguous), "", 0},
		"resolved":                               {[]Document{attempt(1, "a", decision.Ambiguous), resolution(1, decision.Failed)}, resolved(record(1, "a", decision.Failed)), "", 0},
		"resolved as failed, and tried again":    {[]Document{attempt(1, "a", decision.Ambiguous), resolution(1, decision.Failed)}, record(2, "b", ""), "", 0},
		"observed, committed":                    {[]Document{observed(1, "a", decision.Committed)}, record(1, "a", decision.Committed), "", 0},
		"observed, failed, and tried again":      {[]Document{observed(1, "a", decision.Failed)}, record(2, "b", ""), "", 0},
		"observed, ambiguous":                    {[]Document{observed(1, "a", decision.Ambiguous)}, record(1, "a", decision.Ambiguous), "", 0},
		"observed, ambiguous, and resolved":      {[]Document{observed(1, "a", decision.Ambiguous), resolution(1, decision.Failed)}, resolved(record(1, "a", decision.Failed)), "", 0},
		"observed beside what others settled":    {[]Document{attempt(1, "a", decision.Failed), observed(0, "b", decision.Committed)}, record(1, "a", decision.Failed), "", 0},
		"observed beside what is in progress":    {[]Document{observed(0, "b", decision.Committed)}, record(1, "a", ""), "", 0},
		"observed, and nothing was reserved":     {[]Document{observed(0, "b", decision.Ambiguous)}, absent, "", 0},
		"observed committed, says failed":        {[]Document{observed(1, "a", decision.Committed)}, record(1, "a", decision.Failed), doubt, 1},
		"observed ambiguous, says committed":     {[]Document{observed(1, "a", decision.Ambiguous)}, record(1, "a", decision.Committed), doubt, 1},
		"observed committed, not there":          {[]Document{observed(1, "a", decision.Committed)}, absent, doubt, 1},
		"observed beside, settles nothing":       {[]Document{observed(0, "a", decision.Committed)}, record(1, "a", decision.Committed), pending, 0},
		"only refused actions":                   {[]Document{attempt(0, "a", decision.Blocked)}, absent, "", 0},
		"nothing known, nothing there":           {nil, absent, "", 0},
		"nothing known, in progress":             {nil, record(1, "a", ""), "", 0},
		"its record lost, and on record again":   {[]Document{attempt(1, "a", decision.Committed)}, lost(record(1, "a", decision.Ambiguous)), "", 0},
		"lost, with a receipt":                   {[]Document{attempt(1, "a", decision.Committed), loss(1)}, lost(record(1, "a", decision.Ambiguous)), "", 0},
		"lost, and resolved":                     {[]Document{attempt(1, "a", decision.Committed), loss(1), resolution(1, decision.Committed)}, resolved(record(1, "a", decision.Committed)), "", 0},
		"lost, and another action told":          {[]Document{attempt(1, "a", decision.Committed), attempt(1, "b", decision.Ambiguous)}, record(1, "a", decision.Committed), "", 0},
		"never began":                            {nil, unbegun(record(1, "a", decision.Failed)), "", 0},
		"says failed instead":                    {[]Document{attempt(1, "a", decision.Committed)}, record(1, "a", decision.Failed), doubt, 1},
		"says ambiguous instead":                 {[]Document{attempt(1, "a", decision.Committed)}, record(1, "a", decision.Ambiguous), doubt, 1},
		"says in progress instead":               {[]Document{attempt(1, "a", decision.Failed)}, record(1, "a", ""), doubt, 1},
		"settled with nobody's word":             {[]Document{attempt(1, "a", decision.Ambiguous)}, record(1, "a", decision.Failed), doubt, 1},
		"resolved otherwise":                     {[]Document{attempt(1, "a", decision.Ambiguous), resolution(1, decision.Committed)}, resolved(record(1, "a", decision.Failed)), doubt, 2},
		"resolution taken back":                  {[]Document{attempt(1, "a", decision.Ambiguous), resolution(1, decision.Committed)}, record(1, "a", decision.Ambiguous), doubt, 2},
		"an earlier attempt":                     {[]Document{attempt(1, "a", decision.Failed), attempt(2, "b", decision.Committed)}, record(1, "a", decision.Failed), doubt, 2},
		"of another holder":                      {[]Document{attempt(1, "a", decision.Committed)}, record(1, "b", decision.Committed), doubt, 1},
		"another object":                         {[]Document{attempt(1, "a", decision.Committed)}, another(record(1, "a", decision.Committed)), doubt, 1},
		"not there":                              {[]Document{attempt(1, "a", decision.Failed), attempt(0, "b", decision.Blocked)}, absent, doubt, 1},
		"settled, its receipt not written yet":   {[]Document{attempt(1, "a", decision.Failed)}, record(2, "b", decision.Committed), pending, 1},
		"first attempt, not written yet":         {nil, record(1, "a", decision.Ambiguous), pending, 0},
		"resolved, its receipt not written yet":  {[]Document{attempt(1, "a", decision.Ambiguous)}, resolved(record(1, "a", decision.Committed)), pending, 1},
		"resolved, and no receipt of the action": {nil, resolved(record(1, "a", decision.Committed)), pending, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := check(t, here, stored(t, test.chain...))
			got := c.Judge(test.record)
			kind := ""
			switch {
			case got.Pending:
				kind = pending
			case got != (Doubt{}):
				kind = doubt
			}
			if kind != test.want || got.Seq != test.seq {
				t.Errorf("%q at %d, want %q at %d: %s", kind, got.Seq, test.want, test.seq, got.Detail)
			}
			if len(c.Breaks()) > 0 {
				t.Errorf("a doubt is no break before it is looked at again: %v", c.Breaks())
			}
			if kind != "" {
				c.Contradicted(got)
				if want := []string{fmt.Sprintf("effect_mismatch %d", test.seq)}; !slices.Equal(named(c.Breaks()), want) {
					t.Errorf("reported as %q, want %q", named(c.Breaks()), want)
				}
			}
		})
	}
}

func TestWhatHappenedBeforeAnAcceptanceMayHaveNoReceipt(t *testing.T) {
	r := Record{Name: "e", UID: "effect-uid", Attempt: 1, HolderUID: "a", Result: decision.Committed, Changed: noon}
	p := here
	p.Accepted = &AcceptedHead{Time: noon}
	if d := check(t, p, nil).Judge(r); d != (Doubt{}) {
		t.Errorf("it was lost with what the person accepted: %+v", d)
	}
	r.Changed = noon.Add(time.Second)
	if d := check(t, p, nil).Judge(r); !d.Pending {
		t.Errorf("it happened after the acceptance: %+v", d)
	}
}

// An altered receipt is a break already. What it may have been about is not a second one.
func TestAnAlteredReceiptSpoilsNothingElse(t *testing.T) {
	chain := stored(t, attempt(1, "a", decision.Committed))
	reference := Reference{ActionName: "a", ActionUID: "a", Result: decision.Committed, Name: chain[0].Name, Link: chain[0].Entry.Link()}
	for name, change := range map[string]func(map[string]any){
		"its result": set("result", "failed"), "its effect": set("effect_name", "other"), "its identity": set("kind", "other"), "its action": set("action_uid", "b"),
	} {
		t.Run(name, func(t *testing.T) {
			tampered := chain[0]
			tampered.Entry = altered(t, tampered.Entry, change)
			c := check(t, here, []Stored{tampered}, reference)
			record := Record{Name: "refund-txn-1-x", UID: "effect-uid", Attempt: 1, HolderUID: "a", Result: decision.Committed}
			if d := c.Judge(record); d != (Doubt{}) || len(c.Breaks()) > 0 {
				t.Errorf("%+v, %v", d, c.Breaks())
			}
		})
	}
}

func TestCrossCheckRefusesToInterpretWhatItDoesNotKnow(t *testing.T) {
	d := attempt(1, "a", decision.Committed)
	e, err := Build(Start(), func() map[string]any { m := d.Map(); m["kind"] = "later"; return m }())
	if err != nil {
		t.Fatal(err)
	}
	c := NewCrossCheck(here)
	var refused *ParseError
	if err := c.Add(Stored{Name: Name("payments", 1), Entry: e, Columns: d.Columns()}, DigestOf(e)); !errors.As(err, &refused) || refused.Seq != 1 || refused.Reason != UnknownKind {
		t.Errorf("error %v, want a ParseError of seq 1", err)
	}
	if got := c.Judge(Record{Name: "refund-txn-1-x", Attempt: 1, Result: decision.Failed}); got != (Doubt{}) {
		t.Errorf("a guess about what it does not know: %+v", got)
	}
}
