package canonical

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Parse reads one JSON document strictly and returns it as a canonical value. Every refusal is an *Error.
//
// It accepts insignificant whitespace, any order of keys and any legal escape, so many texts have the same value; Encode
// gives the one canonical text of it.
func Parse(data []byte) (any, error) {
	p := parser{data: data}
	p.space()
	if p.pos == len(p.data) {
		return nil, p.fail(KindSyntax, "the document is empty; write one JSON value")
	}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos != len(p.data) {
		p.path = nil
		return nil, p.fail(KindSyntax, "there is more text after the end of the value; write one JSON value and nothing after it")
	}
	return v, nil
}

// parser is a recursive-descent reader over data. path is the way to the value being read.
type parser struct {
	data []byte
	pos  int
	path []string
}

// fail builds the refusal at the current position. Positions are computed only here: reading needs none.
func (p *parser) fail(kind Kind, format string, args ...any) error {
	before := p.data[:min(p.pos, len(p.data))]
	line, column := 1, 1
	for _, c := range before {
		if c == '\n' {
			line, column = line+1, 0
		}
		// Continuation bytes do not start a character.
		if c&0xc0 != 0x80 {
			column++
		}
	}
	return &Error{
		Pointer: Pointer("", p.path...),
		Kind:    kind,
		Reason:  fmt.Sprintf("line %d, column %d: ", line, column) + fmt.Sprintf(format, args...),
	}
}

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek is the byte at the position, or 0 at the end; a NUL byte is legal nowhere, so the two need no telling apart.
func (p *parser) peek() byte {
	if p.pos < len(p.data) {
		return p.data[p.pos]
	}
	return 0
}

func (p *parser) value(depth int) (any, error) {
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth + 1)
	case c == '[':
		return p.array(depth + 1)
	case c == '"':
		return p.string()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for _, w := range []struct {
		word  string
		value any
	}{{"true", true}, {"false", false}, {"null", nil}} {
		if strings.HasPrefix(string(p.data[p.pos:min(p.pos+5, len(p.data))]), w.word) {
			p.pos += len(w.word)
			return w.value, nil
		}
	}
	return nil, p.unexpected()
}

func (p *parser) unexpected() error {
	rest := p.data[p.pos:]
	if len(rest) == 0 {
		return p.fail(KindSyntax, "the text ends where a value should stand; is it cut off?")
	}
	for _, w := range []string{"NaN", "Infinity", "+", "."} {
		if strings.HasPrefix(string(rest[:min(len(rest), 8)]), w) {
			return p.fail(KindNumber, "%s does not begin a JSON integer; use an integer in minor units or a decimal string", w)
		}
	}
	if strings.HasPrefix(string(rest[:min(len(rest), 3)]), "\ufeff") {
		return p.fail(KindSyntax, "the text begins with a byte order mark; save it without one")
	}
	r, size := utf8.DecodeRune(rest)
	if r == utf8.RuneError && size <= 1 {
		return p.fail(KindUnicode, "the text is not valid UTF-8; save it as UTF-8")
	}
	return p.fail(KindSyntax, "%q does not begin a JSON value", r)
}

func (p *parser) object(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, p.fail(KindDepth, "lists and objects are nested more than %d deep; flatten the document", MaxDepth)
	}
	out := map[string]any{}
	p.pos++
	p.space()
	if p.peek() == '}' {
		p.pos++
		return out, nil
	}
	for {
		if p.peek() != '"' {
			return nil, p.fail(KindSyntax, "a key in double quotes should stand here")
		}
		start := p.pos
		key, err := p.string()
		if err != nil {
			return nil, err
		}
		p.path = append(p.path, key)
		if _, dup := out[key]; dup {
			// Of two equal keys readers keep the first, the last, or both: whoever approved one of them may get the other.
			p.pos = start
			return nil, p.fail(KindDuplicate, "the key %s appears twice in one object; keep one", strconv.Quote(key))
		}
		p.space()
		if p.peek() != ':' {
			return nil, p.fail(KindSyntax, "a colon should stand after the key %s", strconv.Quote(key))
		}
		p.pos++
		p.space()
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		out[key] = v
		p.path = p.path[:len(p.path)-1]
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
			p.space()
		case '}':
			p.pos++
			return out, nil
		default:
			return nil, p.fail(KindSyntax, "a comma or a closing brace should stand here")
		}
	}
}

func (p *parser) array(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, p.fail(KindDepth, "lists and objects are nested more than %d deep; flatten the document", MaxDepth)
	}
	out := []any{}
	p.pos++
	p.space()
	if p.peek() == ']' {
		p.pos++
		return out, nil
	}
	for {
		p.path = append(p.path, strconv.Itoa(len(out)))
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		p.path = p.path[:len(p.path)-1]
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
			p.space()
		case ']':
			p.pos++
			return out, nil
		default:
			return nil, p.fail(KindSyntax, "a comma or a closing bracket should stand here")
		}
	}
}

func (p *parser) digits() int {
	start := p.pos
	for p.pos < len(p.data) && p.data[p.pos] >= '0' && p.data[p.pos] <= '9' {
		p.pos++
	}
	return p.pos - start
}

func (p *parser) number() (any, error) {
	start := p.pos
	if p.peek() == '-' {
		p.pos++
	}
	leading := p.peek()
	n := p.digits()
	switch c := p.peek(); {
	case n == 0:
		return nil, p.fail(KindSyntax, "a digit should stand after the minus sign")
	case n > 1 && leading == '0':
		p.pos = start
		return nil, p.fail(KindSyntax, "the number begins with a zero; write it without")
	case c == '.' || c == 'e' || c == 'E':
		p.pos = start
		return nil, p.fail(KindNumber, "the number has a fraction or an exponent; use an integer in minor units or a decimal string")
	case n > MaxDigits:
		p.pos = start
		return nil, p.fail(KindNumber, "the number has %d digits, and %d are the limit; carry it as a string", n, MaxDigits)
	case n < 19:
		i, _ := strconv.ParseInt(string(p.data[start:p.pos]), 10, 64) // 18 digits always fit
		return big.NewInt(i), nil
	}
	i, _ := new(big.Int).SetString(string(p.data[start:p.pos]), 10) // a sign and digits: cannot fail
	return i, nil
}

func (p *parser) string() (string, error) {
	p.pos++
	start := p.pos
	// Most strings have no escape and can be taken as they stand.
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case c == '"':
			s := p.data[start:p.pos]
			if !utf8.Valid(s) {
				return "", p.badUTF8(start)
			}
			p.pos++
			return string(s), nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", p.fail(KindSyntax, "the string holds the control character U+%04X as it is; write it as an escape", c)
		default:
			p.pos++
		}
	}
	return "", p.fail(KindSyntax, "the text ends inside a string; is it cut off?")
}

// escaped goes on with a string at its first escape; the text from start to the position is known to have none.
func (p *parser) escaped(start int) (string, error) {
	out := append([]byte(nil), p.data[start:p.pos]...)
	if !utf8.Valid(out) {
		return "", p.badUTF8(start)
	}
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case c == '"':
			p.pos++
			return string(out), nil
		case c == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		case c < 0x20:
			return "", p.fail(KindSyntax, "the string holds the control character U+%04X as it is; write it as an escape", c)
		case c < utf8.RuneSelf:
			out = append(out, c)
			p.pos++
		default:
			r, size := utf8.DecodeRune(p.data[p.pos:])
			if r == utf8.RuneError && size <= 1 {
				return "", p.badUTF8(p.pos)
			}
			out = append(out, p.data[p.pos:p.pos+size]...)
			p.pos += size
		}
	}
	return "", p.fail(KindSyntax, "the text ends inside a string; is it cut off?")
}

// badUTF8 points at the first invalid byte at or after from.
func (p *parser) badUTF8(from int) error {
	p.pos = from
	for p.pos < len(p.data) {
		r, size := utf8.DecodeRune(p.data[p.pos:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		p.pos += size
	}
	return p.fail(KindUnicode, "the string is not valid UTF-8; encode it as UTF-8, or binary data as base64")
}

func (p *parser) escape() (rune, error) {
	start := p.pos
	p.pos++
	c := p.peek()
	p.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
	default:
		p.pos = start
		return 0, p.fail(KindSyntax, `the escape is not one of \" \\ \/ \b \f \n \r \t \uXXXX`)
	}
	high, ok := p.hex4()
	if !ok {
		p.pos = start
		return 0, p.fail(KindSyntax, `four hexadecimal digits should stand after \u`)
	}
	if !utf16.IsSurrogate(high) {
		return high, nil
	}
	// A surrogate is half a character. Readers replace a lone one by U+FFFD or keep it, so the same text would hash differently.
	if p.peek() == '\\' && p.pos+1 < len(p.data) && p.data[p.pos+1] == 'u' {
		p.pos += 2
		if low, ok := p.hex4(); ok {
			if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
				return r, nil
			}
		}
	}
	p.pos = start
	return 0, p.fail(KindUnicode, `the escape \u%04x is half a surrogate pair; write the character itself or both halves`, high)
}

func (p *parser) hex4() (rune, bool) {
	if p.pos+4 > len(p.data) {
		return 0, false
	}
	var r rune
	for _, c := range p.data[p.pos : p.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.pos += 4
	return r, true
}
