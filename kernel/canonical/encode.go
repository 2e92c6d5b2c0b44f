package canonical

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// encoder appends canonical text to buf. path is the way to the value being written; it is turned into a pointer only
// when something is refused.
type encoder struct {
	buf  []byte
	path []string
}

func (e *encoder) fail(kind Kind, format string, args ...any) error {
	return &Error{Pointer: Pointer("", e.path...), Kind: kind, Reason: fmt.Sprintf(format, args...)}
}

func (e *encoder) value(v any, depth int) error {
	switch x := v.(type) {
	case nil:
		e.buf = append(e.buf, "null"...)
		return nil
	case bool:
		e.buf = strconv.AppendBool(e.buf, x)
		return nil
	case string:
		return e.string(x)
	}
	if i, ok := Integer(v); ok {
		if i == nil {
			return e.fail(KindType, "a nil *big.Int is not a value; write nil for null")
		}
		e.buf = i.Append(e.buf, 10)
		return nil
	}
	if l, ok := list(v); ok {
		return e.list(l, depth+1)
	}
	if m, ok := object(v); ok {
		return e.object(m, depth+1)
	}
	switch v.(type) {
	case float64, float32:
		return e.fail(KindNumber, "a floating-point number has no canonical form; use an integer in minor units or a decimal string")
	}
	return e.fail(KindType, "a value of type %T has no canonical form; use null, a bool, a string, an integer, a list or an object", v)
}

func (e *encoder) list(l []any, depth int) error {
	if depth > MaxDepth {
		return e.fail(KindDepth, "lists and objects are nested more than %d deep; flatten the value", MaxDepth)
	}
	e.buf = append(e.buf, '[')
	for i := range l {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.path = append(e.path, strconv.Itoa(i))
		if err := e.value(l[i], depth); err != nil {
			return err
		}
		e.path = e.path[:len(e.path)-1]
	}
	e.buf = append(e.buf, ']')
	return nil
}

func (e *encoder) object(m map[string]any, depth int) error {
	if depth > MaxDepth {
		return e.fail(KindDepth, "lists and objects are nested more than %d deep; flatten the value", MaxDepth)
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	// The byte order of valid UTF-8 is the order of its code points.
	slices.Sort(keys)
	e.buf = append(e.buf, '{')
	for i, k := range keys {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.path = append(e.path, k)
		if err := e.string(k); err != nil {
			return err
		}
		e.buf = append(e.buf, ':')
		if err := e.value(m[k], depth); err != nil {
			return err
		}
		e.path = e.path[:len(e.path)-1]
	}
	e.buf = append(e.buf, '}')
	return nil
}

func (e *encoder) string(s string) error {
	if !utf8.ValidString(s) {
		return e.fail(KindUnicode, "the string is not valid UTF-8; encode it as UTF-8, or binary data as base64")
	}
	const hexDigits = "0123456789abcdef"
	e.buf = append(e.buf, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		e.buf = append(e.buf, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			e.buf = append(e.buf, '\\', c)
		case '\b':
			e.buf = append(e.buf, `\b`...)
		case '\f':
			e.buf = append(e.buf, `\f`...)
		case '\n':
			e.buf = append(e.buf, `\n`...)
		case '\r':
			e.buf = append(e.buf, `\r`...)
		case '\t':
			e.buf = append(e.buf, `\t`...)
		default:
			e.buf = append(e.buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
	}
	e.buf = append(e.buf, s[start:]...)
	e.buf = append(e.buf, '"')
	return nil
}

// Integer is v as an integer, if it is one in any Go type that Encode takes. A *big.Int is returned itself, and may be nil.
func Integer(v any) (*big.Int, bool) {
	switch x := v.(type) {
	case *big.Int:
		return x, true
	case int:
		return big.NewInt(int64(x)), true
	case int64:
		return big.NewInt(x), true
	case uint64:
		return new(big.Int).SetUint64(x), true
	}
	return nil, false
}

func list(v any) ([]any, bool) {
	switch x := v.(type) {
	case []any:
		return x, true
	case []string:
		out := make([]any, len(x))
		for i := range x {
			out[i] = x[i]
		}
		return out, true
	}
	return nil, false
}

func object(v any) (map[string]any, bool) {
	switch x := v.(type) {
	case map[string]any:
		return x, true
	case map[string]string:
		out := make(map[string]any, len(x))
		for k := range x {
			out[k] = x[k]
		}
		return out, true
	}
	return nil, false
}
