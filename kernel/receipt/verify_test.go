package receipt

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/canonical"
)

// breaks is a report's breaks as a command prints them.
func breaks(r Report) []string {
	var lines []string
	for _, b := range r.Breaks {
		lines = append(lines, fmt.Sprintf("%s %d", b.Name, b.Seq))
	}
	return lines
}

// altered changes the document and leaves seq and hash beside it.
func altered(t testing.TB, e Entry, change func(doc map[string]any)) Entry {
	t.Helper()
	doc, err := open(e.Document)
	if err != nil {
		t.Fatal(err)
	}
	change(doc)
	b, err := canonical.Encode(doc)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) == e.Document {
		t.Fatal("the tampering changed nothing")
	}
	e.Document = string(b)
	return e
}

// rehashed gives an entry the hash of its document: the forger who knows the rule.
func rehashed(e Entry) Entry {
	e.Hash = canonical.Sum([]byte(e.Document))
	return e
}

func set(key string, value any) func(map[string]any) {
	return func(doc map[string]any) { doc[key] = value }
}

func TestVerify(t *testing.T) {
	whole := chain(t, 6)
	other := extend(t, whole[1].Link(), 4, "other") // 3 to 6 of another history
	replace := func(replacements ...Entry) []Entry {
		entries := slices.Clone(whole)
		for _, e := range replacements {
			entries[e.Seq-1] = e
		}
		return entries
	}
	without := func(seqs ...int64) []Entry {
		return slices.DeleteFunc(slices.Clone(whole), func(e Entry) bool { return slices.Contains(seqs, e.Seq) })
	}
	and := func(more ...Entry) []Entry { return append(slices.Clone(whole), more...) }
	head := func(l Link) *Link { return &l }
	wrong := "sha256:" + strings.Repeat("a", 64)

	for name, tc := range map[string]struct {
		entries []Entry
		opts    Options
		want    []string
		verdict Verdict
	}{
		"a chain is intact":                   {whole, Options{}, nil, Intact},
		"an empty chain is intact":            {nil, Options{}, nil, Intact},
		"an empty chain has the genesis head": {nil, Options{Head: head(Start())}, nil, Intact},
		"the head was noted earlier":          {whole, Options{Head: head(whole[3].Link())}, nil, Intact},
		"the head was noted at the beginning": {whole, Options{Head: head(whole[0].Link())}, nil, Intact},
		"noted before there was any receipt":  {whole, Options{Head: head(Start())}, nil, Intact},
		"with its head":                       {whole, Options{Head: head(whole[5].Link())}, nil, Intact},
		"truncation is not visible by itself": {whole[:4], Options{}, nil, Intact},
		"order is by seq, not by line":        {[]Entry{whole[3], whole[0], whole[5], whole[1], whole[2], whole[4]}, Options{}, nil, Intact},
		"equal duplicates of several files":   {and(whole[2], whole[2], whole[5], whole[0]), Options{Head: head(whole[5].Link())}, nil, Intact},
		"an unknown schema is verified by its bytes": {
			append(chain(t, 1), rehashed(Entry{Seq: 2, Document: `{"prev_hash":"` + whole[0].Hash + `","schema":"x/v9","seq":2}`})),
			Options{}, nil, Intact,
		},

		"an amount altered":     {replace(altered(t, whole[2], func(d map[string]any) { d["arguments"].(map[string]any)["amount"] = big.NewInt(1) })), Options{}, []string{"content_altered 3"}, Broken},
		"a decision altered":    {replace(altered(t, whole[2], set("decision", "allow"))), Options{}, []string{"content_altered 3"}, Broken},
		"an approver altered":   {replace(altered(t, whole[2], func(d map[string]any) { d["approvals"].([]any)[0].(map[string]any)["approver"] = "mallory" })), Options{}, []string{"content_altered 3"}, Broken},
		"a time altered":        {replace(altered(t, whole[2], set("finished_time", "2026-11-30T23:59:59.999Z"))), Options{}, []string{"content_altered 3"}, Broken},
		"a key added":           {replace(altered(t, whole[2], set("note", "x"))), Options{}, []string{"content_altered 3"}, Broken},
		"the schema relabelled": {replace(altered(t, whole[2], set("schema", "ctrlrun.receipt/v1"))), Options{}, []string{"content_altered 3"}, Broken},
		"the schema removed":    {replace(altered(t, whole[2], func(d map[string]any) { delete(d, "schema") })), Options{}, []string{"content_altered 3"}, Broken},
		"the last one altered":  {replace(altered(t, whole[5], set("decision", "allow"))), Options{}, []string{"content_altered 6"}, Broken},
		"the last one altered, head noted": {
			replace(altered(t, whole[5], set("decision", "allow"))), Options{Head: head(whole[5].Link())}, []string{"content_altered 6"}, Broken,
		},
		"altered and hashed again: the next one's link breaks": {
			replace(rehashed(altered(t, whole[2], set("decision", "allow")))), Options{}, []string{"link_broken 4"}, Broken,
		},
		"the last one altered and hashed again needs the head": {
			replace(rehashed(altered(t, whole[5], set("decision", "allow")))), Options{Head: head(whole[5].Link())}, []string{"head_mismatch 6"}, Broken,
		},
		"a hash altered breaks its own content and the next link": {
			replace(Entry{3, wrong, whole[2].Document}), Options{}, []string{"content_altered 3", "link_broken 4"}, Broken,
		},
		"a previous hash altered": {
			replace(altered(t, whole[2], set("prev_hash", wrong))), Options{}, []string{"content_altered 3", "link_broken 3"}, Broken,
		},
		"a previous hash removed": {
			replace(altered(t, whole[2], func(d map[string]any) { delete(d, "prev_hash") })), Options{}, []string{"content_altered 3"}, Broken,
		},
		"a document that is no JSON, hashed again": {
			replace(rehashed(Entry{Seq: 3, Document: "gone"})), Options{}, []string{"content_altered 3", "link_broken 4"}, Broken,
		},
		"a document that is no object, hashed again": {
			replace(rehashed(Entry{Seq: 6, Document: "[]"})), Options{}, []string{"content_altered 6"}, Broken,
		},
		"an inner seq altered and hashed again": {
			replace(rehashed(altered(t, whole[5], set("seq", big.NewInt(7))))), Options{}, []string{"content_altered 6"}, Broken,
		},
		"an inner seq that is no integer": {
			replace(rehashed(altered(t, whole[5], set("seq", "6")))), Options{}, []string{"content_altered 6"}, Broken,
		},
		"every break is reported, in order": {
			replace(altered(t, whole[1], set("decision", "allow")), altered(t, whole[4], set("decision", "allow"))),
			Options{}, []string{"content_altered 2", "content_altered 5"}, Broken,
		},

		"one deleted":          {without(3), Options{}, []string{"missing 3", "link_broken 4"}, Broken},
		"two deleted in a row": {without(3, 4), Options{}, []string{"missing 3", "missing 4", "link_broken 5"}, Broken},
		"two deleted apart":    {without(2, 5), Options{}, []string{"missing 2", "link_broken 3", "missing 5", "link_broken 6"}, Broken},
		"the first deleted":    {without(1), Options{}, []string{"missing 1", "link_broken 2"}, Broken},
		"deleted, and the next linked over the gap": {
			append(slices.Clone(whole[:2]), rehashed(altered(t, whole[3], set("prev_hash", whole[1].Hash)))),
			Options{}, []string{"missing 3"}, Broken,
		},
		"linked to one further back": {
			replace(rehashed(altered(t, whole[3], set("prev_hash", whole[0].Hash)))), Options{}, []string{"link_broken 4", "link_broken 5"}, Broken,
		},
		"linked to the one before the one before": {
			replace(rehashed(altered(t, whole[3], set("prev_hash", whole[1].Hash)))), Options{}, []string{"link_broken 4", "link_broken 5"}, Broken,
		},
		"the end cut off needs the head": {whole[:4], Options{Head: head(whole[5].Link())}, []string{"head_mismatch 6"}, Short},
		"everything cut off":             {nil, Options{Head: head(whole[5].Link())}, []string{"head_mismatch 6"}, Short},
		"cut off, and altered":           {replace(altered(t, whole[2], set("decision", "allow")))[:4], Options{Head: head(whole[5].Link())}, []string{"content_altered 3", "head_mismatch 6"}, Broken},
		"a head with another hash":       {whole, Options{Head: head(Link{6, wrong})}, []string{"head_mismatch 6"}, Broken},
		"a head with another seq":        {whole, Options{Head: head(Link{5, whole[5].Hash})}, []string{"head_mismatch 5"}, Broken},
		"a head of another seq's hash":   {whole, Options{Head: head(Link{3, whole[1].Hash})}, []string{"head_mismatch 3"}, Broken},
		"a seq after the end, any hash":  {whole, Options{Head: head(Link{7, whole[5].Hash})}, []string{"head_mismatch 7"}, Short},
		"a head of genesis, made up":     {whole, Options{Head: head(Link{0, wrong})}, []string{"head_mismatch 0"}, Broken},
		"the head's receipt is missing":  {without(3), Options{Head: head(whole[2].Link())}, []string{"missing 3", "link_broken 4", "head_mismatch 3"}, Broken},
		"written anew after a head":      {append(slices.Clone(whole[:2]), other...), Options{Head: head(whole[3].Link())}, []string{"head_mismatch 4"}, Broken},

		"two contents swapped, seq and hash beside them left": {
			replace(Entry{2, whole[1].Hash, whole[2].Document}, Entry{3, whole[2].Hash, whole[1].Document}), Options{},
			[]string{"content_altered 2", "link_broken 2", "content_altered 3", "link_broken 3"}, Broken,
		},
		"two receipts swapped, hash moved with them": {
			replace(Entry{2, whole[2].Hash, whole[2].Document}, Entry{3, whole[1].Hash, whole[1].Document}), Options{},
			[]string{"content_altered 2", "link_broken 2", "content_altered 3", "link_broken 3", "link_broken 4"}, Broken,
		},
		"two receipts swapped, seq rewritten and hashed again": {
			replace(
				rehashed(altered(t, Entry{2, "", whole[2].Document}, set("seq", big.NewInt(2)))),
				rehashed(altered(t, Entry{3, "", whole[1].Document}, set("seq", big.NewInt(3)))),
			), Options{},
			[]string{"link_broken 2", "link_broken 3", "link_broken 4"}, Broken,
		},
		"two receipts swapped, seq rewritten, hash moved": {
			replace(
				altered(t, Entry{2, whole[2].Hash, whole[2].Document}, set("seq", big.NewInt(2))),
				altered(t, Entry{3, whole[1].Hash, whole[1].Document}, set("seq", big.NewInt(3))),
			), Options{},
			[]string{"content_altered 2", "link_broken 2", "content_altered 3", "link_broken 3", "link_broken 4"}, Broken,
		},

		"two histories in two files": {append(slices.Clone(whole), other...), Options{}, []string{"link_broken 3", "link_broken 4", "link_broken 5", "link_broken 6"}, Broken},
		"a receipt inserted":         {and(rehashed(altered(t, whole[2], set("decision", "allow")))), Options{}, []string{"link_broken 3"}, Broken},
		"two last receipts, one of them the head": {
			and(extend(t, whole[4].Link(), 1, "other")...), Options{Head: head(whole[5].Link())}, []string{"link_broken 6"}, Broken,
		},
		"two last receipts, the other one the head": {
			and(extend(t, whole[4].Link(), 1, "other")...), Options{Head: head(extend(t, whole[4].Link(), 1, "other")[0].Link())},
			[]string{"link_broken 6"}, Broken,
		},
		"an altered copy beside the original": {
			and(altered(t, whole[2], set("decision", "allow"))), Options{}, []string{"content_altered 3"}, Broken,
		},
		"two altered copies are one line": {
			and(altered(t, whole[2], set("decision", "allow")), altered(t, whole[2], set("decision", "deny"))), Options{}, []string{"content_altered 3"}, Broken,
		},
		"a copy with another hash": {and(Entry{3, wrong, whole[2].Document}), Options{}, []string{"content_altered 3"}, Broken},

		"no seq":        {and(Entry{0, whole[2].Hash, whole[2].Document}), Options{}, []string{"unchained 0"}, Broken},
		"a seq removed": {append(without(3), Entry{0, whole[2].Hash, whole[2].Document}), Options{}, []string{"missing 3", "link_broken 4", "unchained 0"}, Broken},
		"nothing but receipts without seq": {
			[]Entry{{0, wrong, "{}"}, {0, wrong, "[]"}}, Options{Head: head(Start())}, []string{"unchained 0"}, Broken,
		},
		"unchained receipts make no chain short": {
			append(slices.Clone(whole[:4]), Entry{0, wrong, "{}"}), Options{Head: head(whole[5].Link())}, []string{"head_mismatch 6", "unchained 0"}, Broken,
		},
		"no hash":              {replace(Entry{3, "", whole[2].Document}), Options{}, []string{"hash_missing 3"}, Broken},
		"no hash, and altered": {replace(altered(t, Entry{3, "", whole[2].Document}, set("decision", "allow"))), Options{}, []string{"hash_missing 3", "link_broken 4"}, Broken},
		"no hash at the head":  {replace(Entry{6, "", whole[5].Document}), Options{Head: head(whole[5].Link())}, []string{"hash_missing 6"}, Broken},

		"a partial file":                   {whole[3:], Options{From: whole[2].Link()}, nil, Intact},
		"a partial file with its head":     {whole[3:], Options{From: whole[2].Link(), Head: head(whole[5].Link())}, nil, Intact},
		"a partial file without its start": {whole[3:], Options{}, []string{"missing 1", "missing 2", "missing 3", "link_broken 4"}, Broken},
		"a start with another hash":        {whole[3:], Options{From: Link{3, wrong}}, []string{"link_broken 4"}, Broken},
		"a start too late":                 {whole[3:], Options{From: Link{4, whole[2].Hash}}, []string{"link_broken 4", "link_broken 5"}, Broken},
		"a start too early":                {whole[3:], Options{From: whole[1].Link()}, []string{"missing 3", "link_broken 4"}, Broken},
		"a start that is in the file":      {whole, Options{From: whole[2].Link(), Head: head(whole[5].Link())}, nil, Intact},
		"a start that is another in the file": {
			whole[:3], Options{From: Link{3, wrong}}, []string{"link_broken 3"}, Broken,
		},
		"the head is the start":                 {whole[3:], Options{From: whole[2].Link(), Head: head(whole[2].Link())}, nil, Intact},
		"the start has another hash than head":  {whole[3:], Options{From: whole[2].Link(), Head: head(Link{3, wrong})}, []string{"head_mismatch 3"}, Broken},
		"a head between start and end":          {whole[2:], Options{From: whole[1].Link(), Head: head(whole[3].Link())}, nil, Intact},
		"nothing after the start":               {nil, Options{From: whole[5].Link(), Head: head(whole[5].Link())}, nil, Intact},
		"nothing after the start, another head": {nil, Options{From: Link{6, wrong}, Head: head(whole[5].Link())}, []string{"head_mismatch 6"}, Broken},
		"a head before the start":               {whole[3:], Options{From: whole[2].Link(), Head: head(whole[1].Link())}, []string{"head_mismatch 2"}, Broken},
		"altered before the start":              {replace(altered(t, whole[0], set("decision", "allow"))), Options{From: whole[2].Link()}, []string{"content_altered 1"}, Broken},
		"missing before the start":              {without(1, 2), Options{From: whole[2].Link()}, nil, Intact},
	} {
		t.Run(name, func(t *testing.T) {
			given := slices.Clone(tc.entries)
			r := Verify(tc.entries, tc.opts)
			if got := breaks(r); !slices.Equal(got, tc.want) {
				t.Errorf("breaks %q, want %q", got, tc.want)
				for _, b := range r.Breaks {
					t.Log(b)
				}
			}
			if r.Verdict != tc.verdict {
				t.Errorf("verdict %s, want %s", r.Verdict, tc.verdict)
			}
			if !slices.Equal(given, tc.entries) {
				t.Error("Verify changed the caller's entries")
			}
			slices.Reverse(given)
			if reversed := Verify(given, tc.opts); !slices.Equal(breaks(reversed), breaks(r)) {
				t.Errorf("in another order the breaks are %q", breaks(reversed))
			}
		})
	}
}

func TestReportCounts(t *testing.T) {
	whole := chain(t, 5)
	entries := append(slices.Clone(whole[2:]), whole[4], Entry{Document: "{}"}, Entry{Document: "{}"})
	r := Verify(entries, Options{From: whole[1].Link()})
	if r.Count != 3 || r.Unchained != 2 || r.Head != whole[4].Link() {
		t.Errorf("count %d, unchained %d, head %s; want 3, 2, %s", r.Count, r.Unchained, r.Head, whole[4].Link())
	}
	if r := Verify(nil, Options{From: whole[1].Link()}); r.Head != whole[1].Link() {
		t.Errorf("the head of nothing after %s is %s", whole[1].Link(), r.Head)
	}
}

func TestVerdictExitCodes(t *testing.T) {
	for verdict, want := range map[Verdict]int{Intact: 0, Broken: 1, Unreadable: 2, Short: 3, "": 1} {
		if got := verdict.ExitCode(); got != want {
			t.Errorf("%q exits %d, want %d", verdict, got, want)
		}
	}
}

// What could not be read may have been anything: the verdict says so, and the rest is still judged.
func TestUnreadableInputIsTheVerdictAndHidesNoBreak(t *testing.T) {
	whole := chain(t, 3)
	v := NewVerifier(Options{})
	v.Unreadable("b.jsonl:2", errors.New("cut off"))
	for _, e := range []Entry{whole[0], whole[2]} {
		if err := v.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	r := v.Report()
	if r.Verdict != Unreadable || !slices.Equal(breaks(r), []string{"missing 2", "link_broken 3"}) {
		t.Errorf("verdict %s, breaks %q", r.Verdict, breaks(r))
	}
	if want := (Unread{"b.jsonl:2", "cut off"}); len(r.Unread) != 1 || r.Unread[0] != want {
		t.Errorf("unread %v, want %v", r.Unread, want)
	}
}

func TestAddRefusesAnEarlierSeq(t *testing.T) {
	whole := chain(t, 3)
	v := NewVerifier(Options{})
	for _, e := range whole {
		if err := v.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	var order *OrderError
	if err := v.Add(whole[1]); !errors.As(err, &order) || order.Seq != 2 || order.After != 3 {
		t.Errorf("error %v, want an OrderError of 2 after 3", err)
	}
	if r := v.Report(); r.Verdict != Intact {
		t.Errorf("the refused receipt was judged: %q", breaks(r))
	}
}

// A number in a file must not cost memory or time in proportion to itself.
func TestAGapOfAnySizeIsReportedInBoundedSpace(t *testing.T) {
	far := func(seq int64) Entry {
		return rehashed(Entry{Seq: seq, Document: fmt.Sprintf(`{"prev_hash":"x","seq":%d}`, seq)})
	}
	r := Verify([]Entry{far(math.MaxInt64 / 2), far(math.MaxInt64)}, Options{})
	if len(r.Breaks) > maxNamedMissing+10 {
		t.Fatalf("%d breaks", len(r.Breaks))
	}
	var missing []int64
	for _, b := range r.Breaks {
		if b.Name == Missing {
			missing = append(missing, b.Seq)
		}
	}
	if missing[0] != 1 || missing[len(missing)-1] != math.MaxInt64/2+1 {
		t.Errorf("the first missing is %d, the last named %d; each gap has to be named", missing[0], missing[len(missing)-1])
	}
	if last := r.Breaks[len(r.Breaks)-2].Detail; !strings.Contains(last, fmt.Sprint(int64(math.MaxInt64-1))) {
		t.Errorf("the detail %q does not say where the gap ends", last)
	}
}

// The property the chain is for: whatever single byte of whatever receipt changes, somebody is told, and at a seq that is
// not far from it.
func TestAnyByteChangedIsReported(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2026))
	for round := range 2 {
		whole := chain(t, 2+rng.IntN(2))
		head := whole[len(whole)-1].Link()
		for i, e := range whole {
			line, err := Line(e)
			if err != nil {
				t.Fatal(err)
			}
			for at := range line {
				changed := slices.Clone(line)
				for changed[at] == line[at] {
					changed[at] = byte(rng.IntN(256))
				}
				tampered, err := ParseLine(changed)
				if err != nil {
					continue // reported as unreadable
				}
				entries := slices.Clone(whole)
				entries[i] = tampered
				if r := Verify(entries, Options{Head: &head}); r.Verdict != Broken {
					t.Fatalf("round %d, receipt %d: byte %d changed from %q to %q: %s", round, e.Seq, at, line[at], changed[at], r.Verdict)
				}
			}
			for at := range len(e.Document) {
				document := []byte(e.Document)
				document[at] ^= byte(1 + rng.IntN(255))
				entries := slices.Clone(whole)
				entries[i].Document = string(document)
				// Nothing but this receipt's own content, and where that byte was in prev_hash its own link, breaks.
				r := Verify(entries, Options{Head: &head})
				if r.Verdict != Broken || r.Breaks[0].Name != ContentAltered {
					t.Fatalf("receipt %d, document byte %d: %q", e.Seq, at, breaks(r))
				}
				for _, b := range r.Breaks {
					if b.Seq != e.Seq {
						t.Fatalf("receipt %d, document byte %d: another receipt is blamed: %q", e.Seq, at, breaks(r))
					}
				}
			}
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, e := range append(chain(f, 1), pinned...) {
		line, err := Line(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Add([]byte(`{"hash":null,"document":"\ud83d\ude00\u0000"}`))
	f.Add([]byte(`{"seq":9223372036854775807,"document":"","hash":"\u2028"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseLine(b)
		if err != nil {
			return
		}
		line, err := Line(e)
		if err != nil {
			t.Fatalf("%+v was read, but cannot be written: %v", e, err)
		}
		if back, err := ParseLine(line); err != nil || back != e {
			t.Fatalf("read %+v, wrote %s, read %+v, %v", e, line, back, err)
		}
		Verify([]Entry{e}, Options{})
	})
}

func BenchmarkVerify100k(b *testing.B) {
	entries := chain(b, 100_000)
	var size int64
	for _, e := range entries {
		size += int64(len(e.Document))
	}
	head := entries[len(entries)-1].Link()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		v := NewVerifier(Options{Head: &head})
		for _, e := range entries {
			if err := v.Add(e); err != nil {
				b.Fatal(err)
			}
		}
		if r := v.Report(); r.Verdict != Intact {
			b.Fatal(r.Verdict)
		}
	}
}
