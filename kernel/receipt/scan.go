package receipt

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/canonical"
)

// A verification reads every line twice, as a line and as the document in it, and needs five values of the two. The strict
// reader of package canonical builds all of them. So the layouts that this product writes are read here in one pass that
// builds nothing; everything else, and everything that is wrong, is left to the strict reader, which says what it is. A scan
// takes no text that the strict reader refuses, and finds in it what the strict reader finds.

// outline is what a chain needs to know of a document, clipped.
type outline struct {
	numbered             bool // seq is a 64-bit integer
	seq                  int64
	linked               bool // prev_hash is a string
	prev                 string
	clusterID, namespace string // "" if they are no strings
}

func outlineOf(doc map[string]any) outline {
	var o outline
	o.seq, o.numbered = integer(doc["seq"])
	prev, linked := doc["prev_hash"].(string)
	clusterID, _ := doc["cluster_id"].(string)
	namespace, _ := doc["namespace"].(string)
	o.prev, o.linked, o.clusterID, o.namespace = clip(prev), linked, clip(clusterID), clip(namespace)
	return o
}

// scanDocument reads an object without whitespace whose keys are sorted, as every canonical text is: where keys only grow,
// none can appear twice.
func scanDocument(document []byte) (outline, bool) {
	s := scanner{text: document}
	if !utf8.Valid(document) || s.at() != '{' {
		return outline{}, false
	}
	var o outline
	if !s.object(1, &o) || s.pos != len(s.text) {
		return outline{}, false
	}
	return o, true
}

// scanner walks over a text that is valid UTF-8. Its methods report false for everything they leave to the strict reader.
type scanner struct {
	text []byte
	pos  int
}

// at is the byte at the position, or 0 at the end.
func (s *scanner) at() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.at() != c {
		return false
	}
	s.pos++
	return true
}

// object walks over an object. The members that o wants are written into it, if it is not nil.
func (s *scanner) object(depth int, o *outline) bool {
	if depth > canonical.MaxDepth {
		return false
	}
	s.pos++
	if s.take('}') {
		return true
	}
	var last []byte
	first := true
	for {
		key, plain := s.string()
		if !plain || (!first && bytes.Compare(key, last) <= 0) || !s.take(':') {
			return false
		}
		last, first = key, false
		if o != nil {
			if !s.member(key, depth, o) {
				return false
			}
		} else if !s.value(depth) {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// member walks over the value of a key of the document itself.
func (s *scanner) member(key []byte, depth int, o *outline) bool {
	start := s.pos
	text := func() (string, bool) {
		if s.at() != '"' {
			return "", s.value(depth)
		}
		b, plain := s.string()
		return clip(b), plain
	}
	var ok bool
	switch string(key) {
	case "seq":
		if !s.value(depth) {
			return false
		}
		if n, err := strconv.ParseInt(string(s.text[start:s.pos]), 10, 64); err == nil {
			o.seq, o.numbered = n, true
		}
		return true
	case "prev_hash":
		o.linked = s.at() == '"'
		o.prev, ok = text()
		return ok
	case "cluster_id":
		o.clusterID, ok = text()
		return ok
	case "namespace":
		o.namespace, ok = text()
		return ok
	}
	return s.value(depth)
}

func (s *scanner) value(depth int) bool {
	switch c := s.at(); {
	case c == '"':
		return s.skipString()
	case c == '{':
		return s.object(depth+1, nil)
	case c == '[':
		return s.array(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 'n':
		return s.word("null")
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	}
	return false
}

func (s *scanner) word(w string) bool {
	if len(s.text)-s.pos < len(w) || string(s.text[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}

func (s *scanner) array(depth int) bool {
	if depth > canonical.MaxDepth {
		return false
	}
	s.pos++
	if s.take(']') {
		return true
	}
	for {
		if !s.value(depth) {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) number() bool {
	if s.at() == '-' {
		s.pos++
	}
	start := s.pos
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		s.pos++
	}
	// A fraction or an exponent ends the digits, and then nothing takes it.
	n := s.pos - start
	return n > 0 && n <= canonical.MaxDigits && (n == 1 || s.text[start] != '0')
}

// string reads a string that has no escape.
func (s *scanner) string() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	for start := s.pos; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.text[start : s.pos-1], true
		case c == '\\', c < 0x20:
			return nil, false
		}
	}
	return nil, false
}

// skipString walks over a string. Escapes of characters that take two of them are left to the strict reader.
func (s *scanner) skipString() bool {
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return true
		case c < 0x20:
			return false
		case c == '\\':
			s.pos++
			switch s.at() {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(s.text)-s.pos < 5 {
					return false
				}
				code, err := strconv.ParseUint(string(s.text[s.pos+1:s.pos+5]), 16, 16)
				if err != nil || code >= 0xd800 && code < 0xe000 {
					return false
				}
				s.pos += 4
			default:
				return false
			}
		}
	}
	return false
}

// line is a line that was scanned. Its document lies in memory of the caller.
type line struct {
	seq      int64
	hash     []byte
	document []byte
}

// scanLine reads a line as Line writes it; it appends the document to scratch[:0]. Lines of any other layout are left to the
// strict reader.
func scanLine(b, scratch []byte) (line, bool) {
	rest, ok := after(b, `{"seq":`)
	if !ok {
		return line{}, false
	}
	digits := 0
	var seq int64
	for digits < len(rest) && digits < 18 && rest[digits] >= '0' && rest[digits] <= '9' {
		seq = seq*10 + int64(rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 1 && rest[0] == '0' {
		return line{}, false
	}
	if rest, ok = after(rest[digits:], `,"hash":"`); !ok {
		return line{}, false
	}
	// The hash of a Receipt has this form. Whatever has another is no text to be read in a hurry.
	const hashLength = len(Genesis)
	if len(rest) < hashLength || !validHash(string(rest[:hashLength])) {
		return line{}, false
	}
	hash := rest[:hashLength]
	if rest, ok = after(rest[hashLength:], `","document":"`); !ok {
		return line{}, false
	}
	document, ok := unescape(rest, scratch)
	return line{seq: seq, hash: hash, document: document}, ok
}

func after(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, false
	}
	return b[len(prefix):], true
}

// unescape reads the rest of a line: the inside of a string, and the end of string and object. It appends to scratch[:0], and
// returns that also when it fails.
func unescape(b, scratch []byte) ([]byte, bool) {
	out := scratch[:0]
	for start, i := 0, 0; i < len(b); i++ {
		c := b[i]
		if c != '"' && c != '\\' && c >= 0x20 {
			continue
		}
		out = append(out, b[start:i]...)
		if c == '"' {
			return out, string(b[i:]) == `"}` && utf8.Valid(out)
		}
		if c < 0x20 || i+1 == len(b) {
			return out, false
		}
		i++
		switch b[i] {
		case '"', '\\', '/':
			out = append(out, b[i])
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			return out, false
		}
		start = i + 1
	}
	return out, false
}
