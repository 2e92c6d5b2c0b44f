// Package canonical is the one canonicaliser and the one hash.
//
// Everything this product promises hangs on two parties computing the same bytes for the same thing: an approval names the
// hash of an action, a receipt names the hash of its predecessor, an idempotency token is the hash of a key and an attempt.
// So there is exactly one text for every value, and a reader that refuses whatever two readers could understand differently.
//
// # Values
//
// A canonical value is nil, bool, string, *big.Int, []any or map[string]any, and nothing else. Numbers are integers of any
// size; there are no fractions and no exponents, because 20, 20.0 and 2e1 would be three spellings of one amount. Money is an
// integer in minor units, or a decimal string.
//
// # Text
//
// The canonical text is JSON in UTF-8 with no whitespace. Object keys are sorted by Unicode code point, which is the byte order
// of UTF-8 and not the UTF-16 order of some other canonical forms. In strings only the quote, the backslash and the characters below U+0020
// are escaped: \b \f \n \r \t in their short form, the rest as \u00xx in lower-case hexadecimal. Everything else is written
// as it is: no HTML escapes, no escapes for U+2028 or U+007F, no Unicode normalisation.
//
// # Reading
//
// Parse is strict where encoding/json is lenient: it refuses duplicate keys (compared after unescaping), invalid UTF-8,
// escapes that name half a surrogate pair, trailing data, and nesting beyond MaxDepth. It reads in one pass and never
// goes through float64.
package canonical

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// MaxDepth is how many arrays and objects may be nested in one another: [] has depth 1, [[]] depth 2.
const MaxDepth = 64

// MaxDigits is how many decimal digits one integer may have. Reading a number takes time quadratic in its length; this
// keeps one hostile number from costing more than the rest of a document can.
const MaxDigits = 1 << 16

// Kind says what class of fault an Error is, for callers that answer some of them in a particular way.
type Kind string

const (
	// KindSyntax is text that is not JSON.
	KindSyntax Kind = "syntax"
	// KindNumber is a number that is not an integer, or has more than MaxDigits digits.
	KindNumber Kind = "number"
	// KindDuplicate is a key that appears twice in one object.
	KindDuplicate Kind = "duplicate"
	// KindUnicode is invalid UTF-8, or an escape that names half a surrogate pair.
	KindUnicode Kind = "unicode"
	// KindDepth is nesting beyond MaxDepth.
	KindDepth Kind = "depth"
	// KindType is a Go value that is not a canonical value.
	KindType Kind = "type"
)

// Error says what in a document, or in a value, has no canonical form, and where.
type Error struct {
	// Pointer is the RFC 6901 JSON pointer to the offending member or element; "" is the whole document.
	Pointer string
	// Reason is a sentence without a full stop: what is wrong, and what to do.
	Reason string
	// Kind is the class of the fault.
	Kind Kind
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Reason
	}
	return "at " + e.Pointer + ": " + e.Reason
}

// Pointer appends reference tokens to a JSON pointer, escaping ~ and / as RFC 6901 says.
func Pointer(base string, tokens ...string) string {
	var b strings.Builder
	b.WriteString(base)
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(t, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// Encode returns the canonical bytes of v. Beside canonical values it takes int, int64, uint64, []string and
// map[string]string, so that documents can be written as Go literals. Every other type is an *Error, floats above all.
func Encode(v any) ([]byte, error) {
	e := encoder{buf: make([]byte, 0, 256)}
	if err := e.value(v, 0); err != nil {
		return nil, err
	}
	return e.buf, nil
}

// Hash is Sum of the canonical bytes of v.
func Hash(v any) (string, error) {
	b, err := Encode(v)
	if err != nil {
		return "", err
	}
	return Sum(b), nil
}

// Sum is "sha256:" and the lower-case hexadecimal SHA-256 of b.
func Sum(b []byte) string {
	d := sha256.Sum256(b)
	out := make([]byte, 0, 7+2*sha256.Size)
	return string(hex.AppendEncode(append(out, "sha256:"...), d[:]))
}

// Equal reports whether a and b are the same value. It is type-strict and recursive: true is not 1, "1" is not 1, a list is
// not its only element. The Go types that Encode takes beside canonical values count as the values they are encoded to;
// a value that has no canonical form equals nothing, itself included.
func Equal(a, b any) bool {
	switch x := a.(type) {
	case nil:
		return b == nil
	case bool:
		y, ok := b.(bool)
		return ok && x == y
	case string:
		y, ok := b.(string)
		return ok && x == y
	}
	if x, ok := Integer(a); ok {
		y, ok := Integer(b)
		return ok && x != nil && y != nil && x.Cmp(y) == 0
	}
	if x, ok := list(a); ok {
		y, ok := list(b)
		return ok && slices.EqualFunc(x, y, Equal)
	}
	if x, ok := object(a); ok {
		y, ok := object(b)
		return ok && maps.EqualFunc(x, y, Equal)
	}
	return false
}

// Clone returns a deep copy of v in which the Go types that Encode takes beside canonical values have become canonical
// values. A value that has no canonical form is copied as it is, and Encode will refuse it.
func Clone(v any) any {
	if i, ok := Integer(v); ok {
		if i == nil {
			return v
		}
		return new(big.Int).Set(i)
	}
	if l, ok := list(v); ok {
		out := make([]any, len(l))
		for i := range l {
			out[i] = Clone(l[i])
		}
		return out
	}
	if m, ok := object(v); ok {
		out := make(map[string]any, len(m))
		for k := range m {
			out[k] = Clone(m[k])
		}
		return out
	}
	return v
}
