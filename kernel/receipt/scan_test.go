package receipt

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/canonical"
)

// documentTexts are documents a scan takes, documents it leaves to the strict reader, and documents that reader refuses.
var documentTexts = map[string]struct {
	text    string
	scanned bool
}{
	"empty":                       {`{}`, true},
	"values of all kinds":         {`{"a":null,"b":true,"c":false,"d":-0,"e":[1,[],{}],"f":{"x":"y"},"prev_hash":"p","seq":7}`, true},
	"escapes":                     {`{"a":"\"\\\/\b\f\n\r\t\u001f","namespace":"n","seq":1}`, true},
	"not ASCII":                   {`{"é":"ü😀","ﬀ":1}`, true},
	"seq of another type":         {`{"prev_hash":1,"seq":"1"}`, true},
	"seq beyond 64 bits":          {`{"seq":9223372036854775808}`, true},
	"members that are objects":    {`{"cluster_id":{"a":1},"namespace":[],"prev_hash":null,"seq":{}}`, true},
	"deepest":                     {`{"a":` + strings.Repeat("[", canonical.MaxDepth-1) + strings.Repeat("]", canonical.MaxDepth-1) + `}`, true},
	"inner seq is not the seq":    {`{"a":{"seq":3},"seq":4}`, true},
	"keys out of order":           {`{"seq":1,"prev_hash":"p"}`, false},
	"whitespace":                  {`{"a": 1}`, false},
	"whitespace around":           {` {"a":1}`, false},
	"escape in a key":             {`{"\u0061":1}`, false},
	"escape in a member":          {`{"prev_hash":"\u0061"}`, false},
	"surrogate pair":              {`{"a":"\ud83d\ude00"}`, false},
	"duplicate key":               {`{"a":1,"a":2}`, false},
	"duplicate inside":            {`{"x":{"a":1,"a":2}}`, false},
	"too deep":                    {`{"a":` + strings.Repeat("[", canonical.MaxDepth) + strings.Repeat("]", canonical.MaxDepth) + `}`, false},
	"no object":                   {`[]`, false},
	"nothing":                     {``, false},
	"more text":                   {`{}{}`, false},
	"cut off":                     {`{"a":1`, false},
	"cut off in a string":         {`{"a":"1`, false},
	"cut off in an escape":        {`{"a":"\u00`, false},
	"comma at the end":            {`{"a":1,}`, false},
	"array with a comma":          {`{"a":[1,]}`, false},
	"leading zero":                {`{"a":01}`, false},
	"fraction":                    {`{"a":1.0}`, false},
	"exponent":                    {`{"seq":1e0}`, false},
	"lone minus":                  {`{"a":-}`, false},
	"plus":                        {`{"a":+1}`, false},
	"word cut off":                {`{"a":nul}`, false},
	"word with more":              {`{"a":nullx}`, false},
	"control character":           {"{\"a\":\"\x01\"}", false},
	"control character in a key":  {"{\"\x01\":1}", false},
	"invalid UTF-8":               {"{\"a\":\"\xff\"}", false},
	"unknown escape":              {`{"a":"\x"}`, false},
	"signed escape":               {`{"a":"\u+0f1"}`, false},
	"underscore in an escape":     {`{"a":"\u0_f1"}`, false},
	"too many digits":             {`{"a":` + strings.Repeat("9", canonical.MaxDigits+1) + `}`, false},
	"half a surrogate pair":       {`{"a":"\ud83d"}`, false},
	"minus with a leading zero":   {`{"a":-01}`, false},
	"number without a separator":  {`{"a":1"b":2}`, false},
	"key that is no string":       {`{1:1}`, false},
	"key without a colon":         {`{"a"1}`, false},
	"NUL at the end":              {"{}\x00", false},
	"document of another product": {`{"apiVersion":"v1","kind":"Secret"}`, true},
}

// agree checks the promise of a scan: it takes nothing that the strict reader refuses, and finds what that one finds.
func agree(t *testing.T, text string) (scanned bool) {
	t.Helper()
	fast, ok := scanDocument([]byte(text))
	doc, err := open(text)
	if !ok {
		return false
	}
	if err != nil {
		t.Fatalf("the scan takes %q, the strict reader says: %v", text, err)
	}
	if slow := outlineOf(doc); fast != slow {
		t.Fatalf("of %q the scan finds %+v, the strict reader %+v", text, fast, slow)
	}
	return true
}

func TestScanDocument(t *testing.T) {
	for name, test := range documentTexts {
		t.Run(name, func(t *testing.T) {
			if got := agree(t, test.text); got != test.scanned {
				t.Errorf("scanned %v, want %v", got, test.scanned)
			}
		})
	}
	for _, d := range []Document{actionDocument(), resolutionDocument(), statusMissingDocument(), ledgerAcceptedDocument()} {
		e, err := d.Entry(Start())
		if err != nil {
			t.Fatal(err)
		}
		if !agree(t, e.Document) {
			t.Errorf("a document of kind %s, as it is written, is not scanned: verification would be slow", d.Kind)
		}
		line, err := Line(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := scanLine(line, nil); !ok || string(got.document) != e.Document || string(got.hash) != e.Hash || got.seq != e.Seq {
			t.Errorf("a line of kind %s, as it is written, is not scanned: verification would be slow", d.Kind)
		}
	}
}

func FuzzScanDocument(f *testing.F) {
	for _, test := range documentTexts {
		if len(test.text) < 1<<12 {
			f.Add(test.text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) { agree(t, text) })
}

func FuzzScanLine(f *testing.F) {
	line := func(seq, hash, document string) []byte {
		return []byte(`{"seq":` + seq + `,"hash":"` + hash + `","document":"` + document + `"}`)
	}
	for _, seq := range []string{"1", "0", "01", "-1", "999999999999999999", "9223372036854775808", "1.0", "null"} {
		f.Add(line(seq, Genesis, "x"))
	}
	for _, document := range []string{"", `\"\\\/\b\f\n\r\t`, `\u0041`, "\xff", `\`, "\x01", "ü", "\xc3\\n\xa9", `"`, `\x`} {
		f.Add(line("1", Genesis, document))
	}
	f.Add(line("1", "", "x"))
	f.Add(line("1", Genesis+"0", "x"))
	f.Add(append(line("1", Genesis, "x"), ' '))
	f.Add([]byte(`{"seq":1,"seq":2,"hash":"","document":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Whatever is in the scratch, and however it is read, the digest is that of the entry.
		digest, scratch, err := DigestLine(b, []byte("what was read before"))
		entry, parseErr := ParseLine(b)
		if (err == nil) != (parseErr == nil) || err == nil && digest != DigestOf(entry) {
			t.Fatalf("of %q the digest is %+v, %v; that of its entry %+v, %v", b, digest, err, DigestOf(entry), parseErr)
		}
		if again, _, err := DigestLine(b, scratch); err == nil && again != digest {
			t.Fatalf("of %q the digest is %+v, and then %+v", b, digest, again)
		}
		l, ok := scanLine(b, nil)
		if !ok {
			return
		}
		fast := Entry{Seq: l.seq, Hash: string(l.hash), Document: string(l.document)}
		v, err := canonical.Parse(b)
		if err != nil {
			t.Fatalf("the scan takes %q, the strict reader says: %v", b, err)
		}
		m := v.(map[string]any)
		seq, _ := integer(m["seq"])
		if slow := (Entry{Seq: seq, Hash: m["hash"].(string), Document: m["document"].(string)}); len(m) != 3 || fast != slow {
			t.Fatalf("of %q the scan finds %+v, the strict reader %+v", b, fast, slow)
		}
	})
}

// A digest stands for its receipt: whatever a verification finds in the receipts it finds in their digests.
func TestDigestsAreJudgedAsTheirReceipts(t *testing.T) {
	whole := chain(t, 4)
	reordered := whole[1]
	// The same document in a layout that only the strict reader takes.
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(reordered.Document), &members); err != nil {
		t.Fatal(err)
	}
	reordered.Document = `{ "seq":` + string(members["seq"])
	delete(members, "seq")
	for key, value := range members {
		reordered.Document += `,"` + key + `":` + string(value)
	}
	reordered = rehashed(Entry{Seq: 2, Document: reordered.Document + "}"})
	for name, e := range map[string]Entry{"as written": whole[1], "in another layout": reordered} {
		d := DigestOf(e)
		if want := (Digest{Seq: 2, Stored: e.Hash, Computed: e.Hash, Linked: true, Prev: whole[0].Hash, Origin: Origin{"cluster-uid", "payments"}}); d != want {
			t.Errorf("%s: got %+v, want %+v", name, d, want)
		}
	}
	for name, e := range map[string]Entry{
		"no JSON": {Seq: 2, Document: "gone"}, "another seq": {Seq: 3, Document: whole[1].Document}, "no previous hash": {Seq: 2, Document: `{"seq":2}`},
	} {
		if DigestOf(e).Fault == "" {
			t.Errorf("%s: no fault", name)
		}
	}
}

func TestADigestIsOfBoundedSize(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	d := DigestOf(Entry{Seq: 1, Hash: long, Document: `{"cluster_id":"` + long + `","namespace":"` + long + `","prev_hash":"` + long + `","seq":1}`})
	size := len(d.Stored) + len(d.Computed) + len(d.Prev) + len(d.Fault) + len(d.Origin.ClusterID) + len(d.Origin.Namespace)
	if size > 4096 {
		t.Errorf("the digest of a hostile receipt has %d bytes", size)
	}
	if d.Prev == DigestOf(Entry{Seq: 1, Document: `{"prev_hash":"` + long[:maxKept] + `","seq":1}`}).Prev {
		t.Error("what was cut equals what was not")
	}
}

func TestBreaksCanBeTakenAsTheyAreFound(t *testing.T) {
	whole := chain(t, 5)
	head := Link{Seq: 9, Hash: whole[0].Hash}
	var taken []string
	v := NewVerifier(Options{Head: &head, Each: func(b Break) { taken = append(taken, b.Name+" "+strconv.FormatInt(b.Seq, 10)) }})
	for _, e := range []Entry{whole[0], altered(t, whole[1], set("x", "y")), whole[3], whole[4]} {
		if err := v.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	r := v.Report()
	if got, want := strings.Join(taken, ", "), "content_altered 2, missing 3, link_broken 4"; got != want {
		t.Errorf("taken %q, want %q", got, want)
	}
	if got := breaks(r); len(got) != 1 || got[0] != "head_mismatch 9" || r.BreakCount != 4 || r.Verdict != Broken {
		t.Errorf("at the end %q, %d breaks, verdict %s", got, r.BreakCount, r.Verdict)
	}
}

// What one verification of a realistic receipt costs, reading its line included.
func BenchmarkReadAndDigest(b *testing.B) {
	e, err := actionDocument().Entry(Start())
	if err != nil {
		b.Fatal(err)
	}
	line, err := Line(e)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	var scratch []byte
	var d Digest
	for b.Loop() {
		if d, scratch, err = DigestLine(line, scratch); err != nil || d.Fault != "" {
			b.Fatal(err, d.Fault)
		}
	}
}
