package policy

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"ctrlrun.dev/operator/kernel/canonical"
)

var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Convert writes doc as the manifest of an ActionPolicy. Namespace may be empty. All text is quoted, so that every reader of
// YAML reads the same. What the API could not store unchanged is refused.
func Convert(doc Document, name, namespace string) ([]byte, error) {
	switch {
	case len(name) > 253 || !objectName.MatchString(name):
		return nil, fmt.Errorf("%q is not a name for an object; write lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit", name)
	case namespace != "" && (len(namespace) > 63 || strings.Contains(namespace, ".") || !objectName.MatchString(namespace)):
		return nil, fmt.Errorf("%q is not the name of a namespace; write lower-case letters, digits and dashes", namespace)
	}
	actions := doc.actions()
	if _, findings := ParseActions(actions); HasErrors(findings) {
		i := slices.IndexFunc(findings, func(f Finding) bool { return !f.Warning })
		return nil, fmt.Errorf("this policy cannot be an ActionPolicy: %s", findings[i])
	}
	w := &writer{}
	w.line(0, "apiVersion: "+APIVersion)
	w.line(0, "kind: "+Kind)
	w.line(0, "metadata:")
	w.line(1, "name: "+w.text(name))
	if namespace != "" {
		w.line(1, "namespace: "+w.text(namespace))
	}
	w.line(0, "spec:")
	if doc.Version != "" {
		w.line(1, "version: "+w.text(doc.Version))
	}
	w.member(1, "actions", actions)
	out := []byte(w.String())
	// What was written is read again: YAML has corners, such as keys of more than 1024 characters, that are found no better way.
	if back, _, err := ParseYAML(name, out); err != nil || !canonical.Equal(back.actions(), actions) {
		return nil, fmt.Errorf("this policy cannot be written as YAML that reads back the same; shorten its names and texts")
	}
	return out, nil
}

// writer writes block-style YAML in which nothing is left to a reader's resolution but integers, true, false and null.
type writer struct {
	strings.Builder
}

func (w *writer) line(indent int, text string) {
	w.WriteString(strings.Repeat("  ", indent) + text + "\n")
}

// keyOrder is the order in which people write the keys of an entry; all others follow by name.
func keyOrder() []string { return []string{"effect", "resource", "when", "rules", "decision"} }

func (w *writer) keys(m map[string]any) []string {
	keys := slices.Sorted(maps.Keys(m))
	rank := func(k string) int {
		if i := slices.Index(keyOrder(), k); i >= 0 {
			return i
		}
		return len(keyOrder())
	}
	slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
	return keys
}

func (w *writer) member(indent int, key string, v any) {
	label := w.label(key)
	switch x := v.(type) {
	case map[string]any:
		if len(x) == 0 || key == "when" {
			w.line(indent, label+": "+w.flow(x))
			return
		}
		w.line(indent, label+":")
		for _, k := range w.keys(x) {
			w.member(indent+1, k, x[k])
		}
	case []any:
		if len(x) == 0 || key != "rules" {
			w.line(indent, label+": "+w.flow(x))
			return
		}
		w.line(indent, label+":")
		for _, e := range x {
			w.item(indent, e)
		}
	default:
		w.line(indent, label+": "+w.flow(v))
	}
}

// label writes a key, without quotes where every reader takes it for the same text.
func (w *writer) label(key string) string {
	if plainKey.MatchString(key) && !ambiguous(key) {
		return key
	}
	return w.text(key)
}

// item writes one rule: its first key stands behind the dash.
func (w *writer) item(indent int, v any) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		w.line(indent, "- "+w.flow(v))
		return
	}
	inner := &writer{}
	for _, k := range w.keys(m) {
		inner.member(0, k, m[k])
	}
	for i, text := range strings.Split(strings.TrimSuffix(inner.String(), "\n"), "\n") {
		prefix := "  "
		if i == 0 {
			prefix = "- "
		}
		w.line(indent, prefix+text)
	}
}

// flow writes a value on one line.
func (w *writer) flow(v any) string {
	switch x := v.(type) {
	case string:
		return w.text(x)
	case *big.Int:
		return x.String()
	case []any:
		var parts []string
		for _, e := range x {
			parts = append(parts, w.flow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, k := range w.keys(x) {
			parts = append(parts, w.label(k)+": "+w.flow(x[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	b, _ := canonical.Encode(v) // null, true or false
	return string(b)
}

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

func ambiguous(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

// decisionWord is the only text written without quotes: they are what people compare files by.
func decisionWord(s string) bool { return s == "allow" || s == "approve" || s == "deny" }

// text writes a double-quoted scalar. What is not printable is escaped: YAML readers refuse some of it raw.
func (w *writer) text(s string) string {
	if decisionWord(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c) && c != '\ufeff':
			b.WriteRune(c)
		case c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
