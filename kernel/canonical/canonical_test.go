package canonical_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/canonical"
)

func bigInt(t testing.TB, s string) *big.Int {
	t.Helper()
	i, ok := new(big.Int).SetString(s, 10)
	if !ok {
		t.Fatalf("%q is not an integer", s)
	}
	return i
}

func TestEncode(t *testing.T) {
	for name, tc := range map[string]struct {
		value any
		want  string
	}{
		"null is written out": {nil, `null`},
		"bools":               {[]any{true, false}, `[true,false]`},
		"zero":                {big.NewInt(0), `0`},
		"an integer beyond 64 bits keeps every digit":     {bigInt(t, "-123456789012345678901234567890"), `-123456789012345678901234567890`},
		"the empty containers":                            {[]any{[]any{}, map[string]any{}, ""}, `[[],{},""]`},
		"keys are sorted by code point, upper case first": {map[string]any{"b": 1, "a": 2, "B": 3, "": 4}, `{"":4,"B":3,"a":2,"b":1}`},
		"an astral key sorts after U+FF5E, unlike in UTF-16": {map[string]any{"\U0001F600": 1, "\uff5e": 2},
			"{\"\uff5e\":2,\"\U0001F600\":1}"},
		"HTML characters, slash, DEL and line separators are raw": {"<a>&\u2028\u2029/\x7f", "\"<a>&\u2028\u2029/\x7f\""},
		"short escapes":                     {"\"\\\b\f\n\r\t", `"\"\\\b\f\n\r\t"`},
		"other controls are lower-case hex": {"\x00\x01\x0b\x1f", `"\u0000\u0001\u000b\u001f"`},
		"no normalisation: NFD stays NFD":   {"e\u0301", "\"e\u0301\""},
		"convenience types are what they stand for": {
			map[string]any{"i": 1, "j": int64(-2), "k": uint64(18446744073709551615), "l": []string{"x"}, "m": map[string]string{"y": "z"}},
			`{"i":1,"j":-2,"k":18446744073709551615,"l":["x"],"m":{"y":"z"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := canonical.Encode(tc.value)
			if err != nil {
				t.Fatalf("Encode: %v", err)
			}
			if string(got) != tc.want {
				t.Errorf("Encode = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	deep := any([]any{})
	for range canonical.MaxDepth {
		deep = []any{deep}
	}
	var none *big.Int
	type named string
	for name, tc := range map[string]struct {
		value   any
		pointer string
		kind    canonical.Kind
	}{
		"a float":                           {map[string]any{"a": []any{1, 2.0}}, "/a/1", canonical.KindNumber},
		"a nil integer":                     {[]any{none}, "/0", canonical.KindType},
		"a named type":                      {named("x"), "", canonical.KindType},
		"a json.Number":                     {json.Number("1"), "", canonical.KindType},
		"bytes":                             {[]byte("x"), "", canonical.KindType},
		"a string that is not UTF-8":        {map[string]any{"a": "\xff"}, "/a", canonical.KindUnicode},
		"a surrogate encoded as UTF-8":      {"\xed\xa0\x80", "", canonical.KindUnicode},
		"a key that is not UTF-8":           {map[string]any{"\xff": 1}, "/\xff", canonical.KindUnicode},
		"nesting beyond the limit":          {deep, strings.Repeat("/0", canonical.MaxDepth), canonical.KindDepth},
		"the pointer escapes ~ and / right": {map[string]any{"~/": 1.5}, "/~0~1", canonical.KindNumber},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := canonical.Encode(tc.value)
			wantError(t, err, tc.pointer, tc.kind)
			if got != nil {
				t.Errorf("a refusal came with bytes: %s", got)
			}
			if h, err := canonical.Hash(tc.value); err == nil || h != "" {
				t.Errorf("Hash = %q, %v: a value without canonical form has no hash", h, err)
			}
		})
	}
}

func wantError(t *testing.T, err error, pointer string, kind canonical.Kind) {
	t.Helper()
	var refused *canonical.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error = %v, want a *canonical.Error", err)
	}
	if refused.Pointer != pointer || refused.Kind != kind {
		t.Errorf("refused at %q as %s (%v), want at %q as %s", refused.Pointer, refused.Kind, err, pointer, kind)
	}
	if refused.Reason == "" || !strings.HasSuffix(refused.Error(), refused.Reason) {
		t.Errorf("the error text %q does not end in its reason %q", refused.Error(), refused.Reason)
	}
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want any
	}{
		"whitespace around everything":              {" \t\r\n{ \"a\" : [ 1 , 2 ] } \n", map[string]any{"a": []any{big.NewInt(1), big.NewInt(2)}}},
		"minus zero is zero":                        {`-0`, big.NewInt(0)},
		"eighteen digits":                           {`-999999999999999999`, big.NewInt(-999999999999999999)},
		"nineteen digits beyond int64":              {`9999999999999999999`, bigInt(t, "9999999999999999999")},
		"every escape":                              {`"\"\\\/\b\f\n\r\t\u00e9\u0000"`, "\"\\/\b\f\n\r\té\x00"},
		"hex digits of either case":                 {`"\u00E9\u00e9"`, "éé"},
		"a surrogate pair":                          {`"x\ud83d\ude00y"`, "x😀y"},
		"raw text around an escape":                 {"\"é\\n😀\u2028\"", "é\n😀\u2028"},
		"noncharacters are characters":              {`"\uffff\ufdd0"`, "\uffff\ufdd0"},
		"a replacement character is not an error":   {`"\ufffd` + "\ufffd" + `"`, "\ufffd\ufffd"},
		"an empty key":                              {`{"":null}`, map[string]any{"": nil}},
		"keys that differ by normalisation are two": {"{\"\u00e9\":1,\"e\u0301\":2}", map[string]any{"\u00e9": big.NewInt(1), "e\u0301": big.NewInt(2)}},
		"equal keys in different objects":           {`[{"a":true},{"a":{"a":false}}]`, []any{map[string]any{"a": true}, map[string]any{"a": map[string]any{"a": false}}}},
		"the deepest nesting allowed":               {strings.Repeat("[", canonical.MaxDepth) + strings.Repeat("]", canonical.MaxDepth), nested(canonical.MaxDepth)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := canonical.Parse([]byte(tc.text))
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			// Not canonical.Equal, which is under test itself; an integer has one representation in a big.Int.
			if !reflect.DeepEqual(tc.want, got) {
				t.Errorf("Parse = %#v, want %#v", got, tc.want)
			}
		})
	}
}

func nested(depth int) any {
	v := any([]any{})
	for range depth - 1 {
		v = []any{v}
	}
	return v
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		pointer string
		kind    canonical.Kind
	}{
		"nothing":                               {"", "", canonical.KindSyntax},
		"only whitespace":                       {" \n", "", canonical.KindSyntax},
		"trailing data":                         {`{"a":1}{}`, "", canonical.KindSyntax},
		"a trailing NUL":                        {"1\x00", "", canonical.KindSyntax},
		"a byte order mark":                     {"\ufeff{}", "", canonical.KindSyntax},
		"a fraction":                            {`{"a":20.0}`, "/a", canonical.KindNumber},
		"an exponent":                           {`{"a":[{"b":1e2}]}`, "/a/0/b", canonical.KindNumber},
		"an upper-case exponent":                {`[0,1E2]`, "/1", canonical.KindNumber},
		"NaN":                                   {`{"a":NaN}`, "/a", canonical.KindNumber},
		"Infinity":                              {`[Infinity]`, "/0", canonical.KindNumber},
		"a plus sign":                           {`+1`, "", canonical.KindNumber},
		"a leading point":                       {`.5`, "", canonical.KindNumber},
		"a leading zero":                        {`[01]`, "/0", canonical.KindSyntax},
		"a leading zero after the sign":         {`-01`, "", canonical.KindSyntax},
		"a lone minus":                          {`-`, "", canonical.KindSyntax},
		"more digits than the limit":            {strings.Repeat("9", canonical.MaxDigits+1), "", canonical.KindNumber},
		"a duplicate key":                       {`{"a":1,"b":2,"a":1}`, "/a", canonical.KindDuplicate},
		"a duplicate key after unescaping":      {`{"x":{"a":1,"\u0061":2}}`, "/x/a", canonical.KindDuplicate},
		"a duplicate of an escaped solidus":     {`{"a/b":1,"a\/b":2}`, "/a~1b", canonical.KindDuplicate},
		"a lone high surrogate":                 {`{"a":"\ud801"}`, "/a", canonical.KindUnicode},
		"a lone low surrogate":                  {`["\udc00"]`, "/0", canonical.KindUnicode},
		"a surrogate pair the wrong way round":  {`"\ude00\ud83d"`, "", canonical.KindUnicode},
		"a high surrogate and a plain escape":   {`"\ud83d\u0041"`, "", canonical.KindUnicode},
		"a high surrogate and a short escape":   {`"\ud83d\n"`, "", canonical.KindUnicode},
		"a high surrogate at the end":           {`"\ud83d`, "", canonical.KindUnicode},
		"a lone surrogate in a key":             {`{"\ud801":1}`, "", canonical.KindUnicode},
		"invalid UTF-8":                         {"[\"ok\",\"\xff\"]", "/1", canonical.KindUnicode},
		"invalid UTF-8 after an escape":         {"\"\\n\xc3\"", "", canonical.KindUnicode},
		"invalid UTF-8 before an escape":        {"\"\xc3\\n\"", "", canonical.KindUnicode},
		"an overlong encoding":                  {"\"\xc0\xaf\"", "", canonical.KindUnicode},
		"a surrogate encoded as UTF-8":          {"\"\xed\xa0\x80\"", "", canonical.KindUnicode},
		"invalid UTF-8 outside of a string":     {"\xff", "", canonical.KindUnicode},
		"a control character in a string":       {"\"a\tb\"", "", canonical.KindSyntax},
		"a control character after an escape":   {"\"\\n\n\"", "", canonical.KindSyntax},
		"an unknown escape":                     {`"\x41"`, "", canonical.KindSyntax},
		"an escape cut off":                     {`"\`, "", canonical.KindSyntax},
		"a short unicode escape":                {`"\u00e"`, "", canonical.KindSyntax},
		"a unicode escape that is not hex":      {`"\u00g0"`, "", canonical.KindSyntax},
		"an unterminated string":                {`"abc`, "", canonical.KindSyntax},
		"a string unterminated after an escape": {`"a\n`, "", canonical.KindSyntax},
		"single quotes":                         {`{'a':1}`, "", canonical.KindSyntax},
		"a key without quotes":                  {`{a:1}`, "", canonical.KindSyntax},
		"a number as key":                       {`{1:1}`, "", canonical.KindSyntax},
		"a missing colon":                       {`{"a" 1}`, "/a", canonical.KindSyntax},
		"a missing value":                       {`{"a":}`, "/a", canonical.KindSyntax},
		"a missing comma":                       {`{"a":1 "b":2}`, "", canonical.KindSyntax},
		"a trailing comma in an object":         {`{"a":1,}`, "", canonical.KindSyntax},
		"a trailing comma in a list":            {`[1,]`, "/1", canonical.KindSyntax},
		"an unclosed list":                      {`[1`, "", canonical.KindSyntax},
		"an unclosed object":                    {`{"a":1`, "", canonical.KindSyntax},
		"a misspelt literal":                    {`[tru]`, "/0", canonical.KindSyntax},
		"an upper-case literal":                 {`True`, "", canonical.KindSyntax},
		"a literal with a tail":                 {`nullx`, "", canonical.KindSyntax},
		"a comment":                             {`/**/1`, "", canonical.KindSyntax},
		"form feed as whitespace":               {"\f1", "", canonical.KindSyntax},
		"lists nested beyond the limit":         {strings.Repeat("[", canonical.MaxDepth+1) + strings.Repeat("]", canonical.MaxDepth+1), strings.Repeat("/0", canonical.MaxDepth), canonical.KindDepth},
		"objects nested beyond the limit":       {strings.Repeat(`{"a":`, canonical.MaxDepth+1), strings.Repeat("/a", canonical.MaxDepth), canonical.KindDepth},
		"an endless opening costs no stack":     {strings.Repeat("[", 1<<20), strings.Repeat("/0", canonical.MaxDepth), canonical.KindDepth},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := canonical.Parse([]byte(tc.text))
			wantError(t, err, tc.pointer, tc.kind)
			if v != nil {
				t.Errorf("a refusal came with the value %v", v)
			}
		})
	}
}

func TestParseNamesTheLine(t *testing.T) {
	_, err := canonical.Parse([]byte("{\n \"é\": 1,\n \"ü\": 1.5}"))
	if err == nil || !strings.Contains(err.Error(), "line 3, column 7") {
		t.Errorf("error = %v, want it to name line 3, column 7", err)
	}
}

func TestSum(t *testing.T) {
	const want = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := canonical.Sum(nil); got != want {
		t.Errorf("Sum of nothing = %s, want %s", got, want)
	}
	h, err := canonical.Hash(map[string]any{"b": 1, "a": nil})
	if err != nil || h != canonical.Sum([]byte(`{"a":null,"b":1}`)) {
		t.Errorf("Hash = %s, %v: not the sum of the canonical bytes", h, err)
	}
}

func TestEqual(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b any
		want bool
	}{
		"true is not 1":                        {true, big.NewInt(1), false},
		"null is not false":                    {nil, false, false},
		"a digit is not a number":              {"1", big.NewInt(1), false},
		"a list is not its element":            {[]any{big.NewInt(1)}, big.NewInt(1), false},
		"an integer is an integer":             {big.NewInt(1), 1, true},
		"large integers by value":              {bigInt(t, "36893488147419103232"), bigInt(t, "36893488147419103232"), true},
		"large integers differ":                {bigInt(t, "36893488147419103232"), bigInt(t, "36893488147419103233"), false},
		"lists by order":                       {[]any{"a", "b"}, []any{"b", "a"}, false},
		"lists by length":                      {[]any{"a"}, []any{"a", "a"}, false},
		"objects recursively":                  {map[string]any{"a": []any{map[string]any{"b": nil}}}, map[string]any{"a": []any{map[string]any{"b": nil}}}, true},
		"an absent member is not null":         {map[string]any{"a": nil}, map[string]any{}, false},
		"an absent member is not another":      {map[string]any{"a": nil}, map[string]any{"b": nil}, false},
		"no normalisation":                     {"é", "e\u0301", false},
		"an empty list is not an empty object": {[]any{}, map[string]any{}, false},
		"a float equals nothing":               {1.0, 1.0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := canonical.Equal(tc.a, tc.b); got != tc.want {
				t.Errorf("Equal = %v, want %v", got, tc.want)
			}
			if got := canonical.Equal(tc.b, tc.a); got != tc.want {
				t.Errorf("Equal is not symmetric: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCloneSharesNothing(t *testing.T) {
	n := big.NewInt(7)
	original := map[string]any{"n": n, "l": []any{map[string]any{"x": "y"}}, "s": []string{"a"}, "i": 3}
	clone := canonical.Clone(original).(map[string]any)
	want := map[string]any{"n": big.NewInt(7), "l": []any{map[string]any{"x": "y"}}, "s": []any{"a"}, "i": big.NewInt(3)}

	n.SetInt64(8)
	original["l"].([]any)[0].(map[string]any)["x"] = "changed"
	original["s"].([]string)[0] = "changed"
	delete(original, "i")

	if !reflect.DeepEqual(want, clone) {
		t.Errorf("the clone changed with its original: %v, want %v", clone, want)
	}
	if _, ok := clone["i"].(*big.Int); !ok {
		t.Errorf("an int was cloned as %T, want *big.Int", clone["i"])
	}
}

// lenient is what a lenient reader makes of text that Parse took: the same value, or Parse understood something else.
func lenient(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q, which Parse accepts: %v", text, err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("encoding/json finds more after the value in %q, which Parse accepts", text)
	}
	return numbers(t, v)
}

func numbers(t *testing.T, v any) any {
	t.Helper()
	switch x := v.(type) {
	case json.Number:
		return bigInt(t, x.String())
	case []any:
		for i := range x {
			x[i] = numbers(t, x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = numbers(t, x[k])
		}
	}
	return v
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-0,null,true,"\u00e9\ud83d\ude00\/"]}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", `1e2`, `[[[[]]]]`,
		`{"":{"~/":123456789012345678901234567890}}`, "\"\u2028<>&\x7f\"", "[1,]", "01", "\ufeff1",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := canonical.Parse(data)
		if err != nil {
			var refused *canonical.Error
			if !errors.As(err, &refused) || refused.Reason == "" || refused.Kind == "" || v != nil {
				t.Fatalf("Parse = %v, %#v: a refusal is an *Error with kind and reason, and no value", v, err)
			}
			return
		}
		if want := lenient(t, data); !canonical.Equal(v, want) {
			t.Fatalf("Parse and encoding/json read %q differently: %v, %v", data, v, want)
		}
		text, err := canonical.Encode(v)
		if err != nil {
			t.Fatalf("Encode refuses what Parse accepted: %v", err)
		}
		again, err := canonical.Parse(text)
		if err != nil {
			t.Fatalf("Parse refuses canonical text %q: %v", text, err)
		}
		if !canonical.Equal(v, again) {
			t.Fatalf("the value changed in canonical text: %v, %v", v, again)
		}
		if twice, err := canonical.Encode(again); err != nil || !bytes.Equal(text, twice) {
			t.Fatalf("canonical text is not a fixed point: %q, %q, %v", text, twice, err)
		}
		if !canonical.Equal(v, canonical.Clone(v)) {
			t.Fatalf("a clone differs from its original")
		}
	})
}

func FuzzEncodeString(f *testing.F) {
	for _, seed := range []string{"", "a\"\\\x00\x1f\x7f", "é\u2028😀", "\xff", "\xed\xa0\x80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := canonical.Encode(s)
		if err == nil != utf8.ValidString(s) {
			t.Fatalf("Encode(%q): %v", s, err)
		}
		if err != nil {
			return
		}
		if back, err := canonical.Parse(text); err != nil || back != s {
			t.Fatalf("Parse(Encode(%q)) = %q, %v", s, back, err)
		}
	})
}

func sample() map[string]any {
	return map[string]any{
		"schema": "ctrlrun.action/v1", "name": "stripe.refund", "environment": "production", "resource": "payment:txn_8231",
		"principal": map[string]any{"agent": "refund-agent", "user": nil},
		"arguments": map[string]any{"amount": big.NewInt(2000), "currency": "EUR", "payment_id": "txn_8231"},
	}
}

func BenchmarkHash(b *testing.B) {
	b.Run("action", func(b *testing.B) {
		v := sample()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := canonical.Hash(v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("arguments of 64 KiB", func(b *testing.B) {
		v := sample()
		rows := []any{}
		for i := range 1000 {
			rows = append(rows, map[string]any{"id": big.NewInt(int64(i)), "note": "a line of text with a \"quote\" and é in it, 64 bytes"})
		}
		v["arguments"] = map[string]any{"rows": rows}
		text, err := canonical.Encode(v)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := canonical.Hash(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text, err := canonical.Encode(sample())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canonical.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
