package authority

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Finding is one thing that is wrong with the content of a grant or a delegation.
type Finding struct {
	// Path is where below spec it is, such as subject.agent; "" is the whole.
	Path string
	// Message says what is wrong and what to do.
	Message string
}

// String is path and message.
func (f Finding) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// report collects findings.
type report struct{ findings []Finding }

func (r *report) error(path, format string, args ...any) {
	r.findings = append(r.findings, Finding{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (r *report) sorted() []Finding {
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return r.findings
}

// problem is the findings in one sentence, for those who see no more than a status; "" if there are none.
func problem(findings []Finding) string {
	switch len(findings) {
	case 0:
		return ""
	case 1:
		return "spec." + findings[0].String()
	}
	return fmt.Sprintf("spec.%s (one of %d errors)", findings[0], len(findings))
}

func child(parent, key string) string {
	switch {
	case !identifier(key):
		return parent + "[" + strconv.Quote(clip(key)) + "]"
	case parent == "":
		return key
	}
	return parent + "." + key
}

func element(parent string, i int) string { return parent + "[" + strconv.Itoa(i) + "]" }

func identifier(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= maxClip
}

const maxClip = 80

// clip shortens text from an object for a message.
func clip(s string) string {
	if utf8.RuneCountInString(s) <= maxClip {
		return s
	}
	return string([]rune(s)[:maxClip]) + "…"
}

func quoted(s string) string { return strconv.Quote(clip(s)) }
