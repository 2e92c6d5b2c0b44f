package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Finding is one thing that is wrong with a policy, or suspicious about it.
type Finding struct {
	// File is the name the document was read under; "" if it did not come from a file.
	File string
	// Line and Column count from 1; 0 if the document has no lines, such as an object of the API.
	Line, Column int
	// Path is where in the document it is, such as actions["stripe.refund"].rules[1].when; "" is the whole document.
	Path string
	// Message says what is wrong and what to do.
	Message string
	// Warning says that the policy is valid all the same.
	Warning bool
}

// String is one line in the form file:line: message, as editors read it.
func (f Finding) String() string {
	var b strings.Builder
	switch {
	case f.File != "" && f.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", f.File, f.Line)
	case f.File != "":
		b.WriteString(f.File + ": ")
	case f.Line > 0:
		fmt.Fprintf(&b, "line %d: ", f.Line)
	}
	if f.Warning {
		b.WriteString("warning: ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// HasErrors reports whether any finding is more than a warning.
func HasErrors(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return !f.Warning })
}

// child is the path of a member. Names of actions are quoted, because they contain dots.
func child(parent, key string) string {
	if parent == "actions" || parent == "spec.actions" || !identifier(key) {
		return parent + "[" + strconv.Quote(key) + "]"
	}
	if parent == "" {
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
	return s != ""
}

// actionOf is the name of the action that a path lies in.
func actionOf(path string) (string, bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(path, "spec."), "actions[")
	if !ok {
		return "", false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", false
	}
	name, err := strconv.Unquote(quoted)
	return name, err == nil
}

// report collects findings about one document, and knows where in its text each path stands.
type report struct {
	file     string
	findings []Finding
	lines    map[string]position
}

type position struct{ line, column int }

func (r *report) add(path string, warning bool, format string, args ...any) {
	at := r.position(path)
	r.findings = append(r.findings, Finding{
		File: r.file, Line: at.line, Column: at.column, Path: path, Warning: warning, Message: fmt.Sprintf(format, args...),
	})
}

// position is that of the path, or else of the nearest place around it.
func (r *report) position(path string) position {
	for p := path; ; {
		if at, ok := r.lines[p]; ok {
			return at
		}
		i := strings.LastIndexAny(p, ".[")
		if i < 0 {
			return r.lines[""]
		}
		p = p[:i]
	}
}

func (r *report) error(path, format string, args ...any) { r.add(path, false, format, args...) }
func (r *report) warn(path, format string, args ...any)  { r.add(path, true, format, args...) }

// sorted are the findings in the order of the text; what has no line goes by path.
func (r *report) sorted() []Finding {
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return r.findings
}
