package receipt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
)

// A small chain that stands in the file as well, so that the format is pinned by text and not by this package: each hash
// is what sha256sum prints for the document.
var pinned = []Entry{
	{
		Seq:      1,
		Hash:     "sha256:5f1b07c540748e39f039e4afd2c088fd5cf28b724bf5cc24bacb27999c12c69d",
		Document: `{"amount":12345678901234567890123,"kind":"action","note":"<é \"q\" \u0001&` + "\u2028" + `>","ordinal":0,"prev_hash":"` + Genesis + `","schema":"ctrlrun.dev/receipt/v1alpha1","seq":1,"subject_uid":"uid-1"}`,
	},
	{
		Seq:      2,
		Hash:     "sha256:42b9e998b5c224f388aa536921d5dfbffed52948e4a467ceeff6daeeaf9dc110",
		Document: `{"kind":"action","ordinal":0,"prev_hash":"sha256:5f1b07c540748e39f039e4afd2c088fd5cf28b724bf5cc24bacb27999c12c69d","schema":"ctrlrun.dev/receipt/v1alpha1","seq":2,"subject_uid":"uid-2"}`,
	},
}

func TestBuildWritesThePinnedChain(t *testing.T) {
	amount, _ := new(big.Int).SetString("12345678901234567890123", 10)
	docs := []map[string]any{
		{"kind": "action", "subject_uid": "uid-1", "ordinal": big.NewInt(0), "amount": amount, "note": "<é \"q\" \x01&\u2028>"},
		{"kind": "action", "subject_uid": "uid-2", "ordinal": big.NewInt(0)},
	}
	head := Start()
	for i, doc := range docs {
		e, err := Build(head, doc)
		if err != nil {
			t.Fatal(err)
		}
		if e != pinned[i] {
			t.Errorf("receipt %d\n got %+v\nwant %+v", i+1, e, pinned[i])
		}
		head = e.Link()
		if _, touched := doc["seq"]; touched {
			t.Error("Build changed the caller's document")
		}
	}
}

// The promise to people with jq and sha256sum: another JSON reader and another SHA-256 over the line's document member
// give the line's hash.
func TestTheDocumentOfALineHashesToItsHash(t *testing.T) {
	for _, e := range append(chain(t, 3), pinned...) {
		line, err := Line(e)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Seq      int64
			Hash     string
			Document string
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(got.Document))
		if want := "sha256:" + hex.EncodeToString(sum[:]); got.Hash != want || got.Seq != e.Seq {
			t.Errorf("line says seq %d and hash %s; sha256sum says %s", got.Seq, got.Hash, want)
		}
		if !strings.HasPrefix(string(line), fmt.Sprintf(`{"seq":%d,"hash":"sha256:`, e.Seq)) || strings.ContainsAny(string(line), "\n\r") {
			t.Errorf("not one line in the order seq, hash, document: %s", line)
		}
		back, err := ParseLine(line)
		if err != nil || back != e {
			t.Errorf("ParseLine(Line(e)) = %+v, %v; want %+v", back, err, e)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	good := func() map[string]any {
		return map[string]any{"kind": "action", "subject_uid": "u", "ordinal": big.NewInt(0)}
	}
	with := func(key string, v any) map[string]any {
		d := good()
		d[key] = v
		return d
	}
	hash := "sha256:" + strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		head Link
		doc  map[string]any
		want string
	}{
		"a head without hash":            {Link{Seq: 3}, good(), "64 lower-case"},
		"a head with an upper-case hash": {Link{Seq: 3, Hash: strings.ToUpper(hash)}, good(), "64 lower-case"},
		"a negative head":                {Link{Seq: -1, Hash: hash}, good(), "negative"},
		"genesis with a seq":             {Link{Seq: 3, Hash: Genesis}, good(), "genesis"},
		"seq 0 without genesis":          {Link{Seq: 0, Hash: hash}, good(), "genesis"},
		"the last possible head":         {Link{Seq: math.MaxInt64, Hash: hash}, good(), "no further seq"},
		"no document":                    {Start(), nil, "kind"},
		"no kind":                        {Start(), with("kind", ""), "kind"},
		"a kind that is no string":       {Start(), with("kind", big.NewInt(1)), "kind"},
		"no subject":                     {Start(), with("subject_uid", nil), "subject_uid"},
		"a negative ordinal":             {Start(), with("ordinal", big.NewInt(-1)), "ordinal"},
		"an ordinal beyond 64 bits":      {Start(), with("ordinal", new(big.Int).Lsh(big.NewInt(1), 64)), "ordinal"},
		"a float":                        {Start(), with("amount", 1.5), "canonical form"},
		"more than a MiB":                {Start(), with("note", strings.Repeat("x", MaxDocumentBytes)), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Build(tc.head, tc.doc)
			if err == nil {
				t.Fatalf("built %+v", e)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not say %q", err, tc.want)
			}
		})
	}
}

func TestIdentityIsReadFromUnknownSchemasToo(t *testing.T) {
	got, err := IdentityOf(Entry{Seq: 7, Document: `{"schema":"x/v9","kind":"future","subject_uid":"u","ordinal":3}`})
	if want := (Identity{"future", "u", 3}); err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := IdentityOf(Entry{Seq: 7, Document: `[]`}); err == nil || !strings.Contains(err.Error(), "receipt 7") {
		t.Errorf("the error does not name the seq: %v", err)
	}
}

func TestParseLine(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		want Entry
	}{
		"as written":         {`{"seq":3,"hash":"h","document":"d"}`, Entry{3, "h", "d"}},
		"any order, spaces":  {` { "document" : "d", "seq" : 3, "hash" : "h" } `, Entry{3, "h", "d"}},
		"no seq is seq 0":    {`{"hash":"h","document":"d"}`, Entry{0, "h", "d"}},
		"null seq is seq 0":  {`{"seq":null,"hash":"h","document":"d"}`, Entry{0, "h", "d"}},
		"no hash is empty":   {`{"seq":3,"document":"d"}`, Entry{3, "", "d"}},
		"null hash is empty": {`{"seq":3,"hash":null,"document":"d"}`, Entry{3, "", "d"}},
		"escapes":            {`{"seq":3,"hash":"h","document":"\u0064\""}`, Entry{3, "h", `d"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseLine([]byte(tc.line)); err != nil || got != tc.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
	for name, line := range map[string]string{
		"empty":                ``,
		"cut off":              `{"seq":3,"hash":"h","docum`,
		"two objects":          `{"seq":3,"hash":"h","document":"d"}{"seq":4,"hash":"h","document":"d"}`,
		"a list":               `[3,"h","d"]`,
		"no document":          `{"seq":3,"hash":"h"}`,
		"null document":        `{"seq":3,"hash":"h","document":null}`,
		"document as object":   `{"seq":3,"hash":"h","document":{}}`,
		"another member":       `{"seq":3,"hash":"h","document":"d","seq2":4}`,
		"a member in capitals": `{"Seq":3,"hash":"h","document":"d"}`,
		"a member twice":       `{"seq":3,"seq":4,"hash":"h","document":"d"}`,
		"twice by escape":      `{"seq":3,"s\u0065q":4,"hash":"h","document":"d"}`,
		"seq as string":        `{"seq":"3","hash":"h","document":"d"}`,
		"seq as float":         `{"seq":3.0,"hash":"h","document":"d"}`,
		"negative seq":         `{"seq":-3,"hash":"h","document":"d"}`,
		"seq beyond 64 bits":   `{"seq":9223372036854775808,"hash":"h","document":"d"}`,
		"hash as number":       `{"seq":3,"hash":1,"document":"d"}`,
		"invalid UTF-8":        "{\"seq\":3,\"hash\":\"h\",\"document\":\"\xff\"}",
		"a lone surrogate":     `{"seq":3,"hash":"h","document":"\ud800"}`,
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			if got, err := ParseLine([]byte(line)); err == nil {
				t.Errorf("accepted as %+v", got)
			}
		})
	}
}

func TestLineRefusesWhatJSONCannotCarry(t *testing.T) {
	for _, e := range []Entry{{1, "\xff", "d"}, {1, "h", "\xff"}} {
		if line, err := Line(e); err == nil {
			t.Errorf("wrote %q", line)
		}
	}
}

func TestLinkText(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0f", 32)
	for _, l := range []Link{Start(), {Seq: 42, Hash: hash}, {Seq: math.MaxInt64, Hash: hash}} {
		if got, err := ParseLink(l.String()); err != nil || got != l {
			t.Errorf("ParseLink(%q) = %v, %v", l, got, err)
		}
	}
	for _, s := range []string{
		"", "42", "42:", ":" + hash, "42:" + hash[7:], "042:" + hash, "+42:" + hash, "-1:" + hash, " 42:" + hash,
		"42:" + hash + "0", "42:" + strings.ToUpper(hash), "42:sha512:" + hash[7:], "0:" + hash, "42:" + Genesis,
		"9223372036854775808:" + hash,
	} {
		if got, err := ParseLink(s); err == nil {
			t.Errorf("ParseLink(%q) = %v, want an error", s, got)
		}
	}
}

func TestName(t *testing.T) {
	if got := Name("payments", 42); got != "payments-000000000042" {
		t.Error(got)
	}
}

// chain builds an intact chain of n action receipts.
func chain(t testing.TB, n int) []Entry {
	t.Helper()
	return extend(t, Start(), n, "uid")
}

// extend builds n receipts after head; uids makes their subjects differ from those of another chain.
func extend(t testing.TB, head Link, n int, uids string) []Entry {
	t.Helper()
	entries := make([]Entry, 0, n)
	for range n {
		d := actionDocument()
		d.ActionUID = fmt.Sprintf("%s-%d", uids, head.Seq+1)
		d.SubjectUID = d.ActionUID
		e, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
		head = e.Link()
	}
	return entries
}
