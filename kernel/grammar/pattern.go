package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// PatternKind says what a pattern is about, and with it how names are cut into segments.
type PatternKind string

const (
	// KindAction is dotted action names: stripe.refund.
	KindAction PatternKind = "action"
	// KindResource is resources of the form type:id.
	KindResource PatternKind = "resource"
	// KindSubject is names of agents and users, which are one segment whatever they contain.
	KindSubject PatternKind = "subject"
)

// ParseKind reads the kind of a pattern.
func ParseKind(s string) (PatternKind, error) {
	switch k := PatternKind(s); k {
	case KindAction, KindResource, KindSubject:
		return k, nil
	}
	return "", fmt.Errorf("%s is not a kind of pattern; the kinds are action, resource, subject", strconv.Quote(s))
}

func (k PatternKind) segments(s string) []string {
	switch k {
	case KindAction:
		return strings.Split(s, ".")
	case KindResource:
		return strings.Split(s, ":")
	}
	return []string{s}
}

// cut is the first segment of s, what follows it, and whether anything does.
func (k PatternKind) cut(s string) (first, rest string, more bool) {
	switch k {
	case KindAction:
		return strings.Cut(s, ".")
	case KindResource:
		return strings.Cut(s, ":")
	}
	return s, "", false
}

// Pattern is a name, or a set of names. Segments are literal or end in one *; the last may be **, which stands for one or more
// segments, and then all before it are literal. The zero Pattern matches nothing.
type Pattern struct {
	kind PatternKind
	text string
	// segments are those before a final **.
	segments []segment
	// open says that a final ** follows.
	open bool
}

type segment struct {
	literal string
	// wild says that any text, also none, may follow the literal.
	wild bool
}

// ParsePattern reads a pattern of the given kind.
func ParsePattern(kind PatternKind, s string) (Pattern, error) {
	if _, err := ParseKind(string(kind)); err != nil {
		return Pattern{}, err
	}
	refuse := func(format string, args ...any) (Pattern, error) {
		return Pattern{}, fmt.Errorf("the %s pattern %s is refused: %s", kind, strconv.Quote(s), fmt.Sprintf(format, args...))
	}
	switch {
	case s == "":
		return refuse("it is empty; write a name, or * for any one segment")
	case !utf8.ValidString(s):
		return refuse("it is not valid UTF-8; save it as UTF-8")
	case strings.ContainsAny(s, "?[]"):
		return refuse("the characters ? [ ] have no meaning in patterns; only * at the end of a segment and ** as the last segment do")
	}
	p := Pattern{kind: kind, text: s}
	parts := kind.segments(s)
	for i, part := range parts {
		literal, wild := strings.CutSuffix(part, "*")
		switch {
		case part == "":
			return refuse("segment %d is empty; remove the extra separator", i+1)
		case part == "**" && kind == KindSubject:
			return refuse("a subject has one segment, so ** has no meaning; write *")
		case part == "**" && i < len(parts)-1:
			return refuse("** may stand only as the last segment")
		case part == "**":
			p.open = true
		case strings.Contains(literal, "*"):
			return refuse("in segment %d a * stands elsewhere than at the end; a segment is literal text with at most one * after it, or ** as the last segment", i+1)
		default:
			p.segments = append(p.segments, segment{literal: literal, wild: wild})
		}
	}
	if p.open {
		for i, seg := range p.segments {
			if seg.wild {
				return refuse("segment %d is a wildcard before **; every segment before ** is literal", i+1)
			}
		}
	}
	return p, nil
}

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Kind is the kind of the pattern.
func (p Pattern) Kind() PatternKind { return p.kind }

// Literal reports whether the pattern is one name, which String then is.
func (p Pattern) Literal() bool {
	return p.text != "" && !p.open && !slices.ContainsFunc(p.segments, func(s segment) bool { return s.wild })
}

// Match reports whether value is in the set. Matching goes segment by segment, is case-sensitive, and normalises nothing.
func (p Pattern) Match(value string) bool {
	if p.text == "" {
		return false
	}
	// Grants are matched by the thousand, so the value is cut as it is read.
	rest, more := value, true
	for _, s := range p.segments {
		if !more {
			return false
		}
		var one string
		one, rest, more = p.kind.cut(rest)
		if one != s.literal && !(s.wild && strings.HasPrefix(one, s.literal)) {
			return false
		}
	}
	return p.open == more
}

// Contains reports whether every name that child matches is matched by p as well. What cannot be shown segment by segment
// is not contained; patterns of different kinds never are.
func (p Pattern) Contains(child Pattern) bool {
	if p.text == "" || child.text == "" || p.kind != child.kind {
		return false
	}
	if p.open {
		// ** counts as one segment of the child: stripe.** is in stripe.**, and stripe alone is not.
		n := len(child.segments)
		if child.open {
			n++
		}
		if n <= len(p.segments) {
			return false
		}
		for i, s := range p.segments {
			if i >= len(child.segments) || child.segments[i] != s {
				return false
			}
		}
		return true
	}
	if child.open || len(child.segments) != len(p.segments) {
		return false
	}
	for i, s := range p.segments {
		c := child.segments[i]
		within := s.wild && strings.HasPrefix(c.literal, s.literal)
		if c != s && !within {
			return false
		}
	}
	return true
}
