package policy

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"ctrlrun.dev/operator/kernel/canonical"
)

// A document is first turned into a tree of canonical values, whatever it is written in. What has no canonical value (a
// float, a date, a duplicate key) is reported and replaced by refused, over which the rest of the reading steps in silence.
type refusedValue struct{}

var refused any = refusedValue{}

func isRefused(v any) bool { _, ok := v.(refusedValue); return ok }

// maxAliasNodes bounds how many nodes aliases may stand for: a few lines of nested aliases can name billions.
const maxAliasNodes = 10000

// reader turns YAML nodes into canonical values.
type reader struct {
	*report
	aliased int
}

func (r *reader) value(n *yaml.Node, path string, depth int, alias bool) any {
	if _, known := r.lines[path]; !known {
		r.lines[path] = position{n.Line, n.Column}
	}
	if alias {
		if r.aliased++; r.aliased > maxAliasNodes {
			if r.aliased == maxAliasNodes+1 {
				r.error(path, "the aliases stand for more than %d nodes; write the values out", maxAliasNodes)
			}
			return refused
		}
	}
	if depth > canonical.MaxDepth {
		r.error(path, "the value is nested more than %d deep, or an alias stands inside its own anchor; flatten it", canonical.MaxDepth)
		return refused
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.value(n.Alias, path, depth+1, true)
	case yaml.MappingNode:
		return r.mapping(n, path, depth, alias)
	case yaml.SequenceNode:
		if tagged(n, "!!seq") {
			return r.tag(n, path)
		}
		out := make([]any, 0, len(n.Content))
		for i, e := range n.Content {
			out = append(out, r.value(e, element(path, i), depth+1, alias))
		}
		return out
	case yaml.ScalarNode:
		return r.scalar(n, path)
	}
	r.error(path, "this is no value; write a mapping, a list or a scalar")
	return refused
}

// tagged reports whether n carries an explicit tag other than the one allowed.
func tagged(n *yaml.Node, allowed string) bool {
	return n.Style&yaml.TaggedStyle != 0 && n.ShortTag() != allowed
}

func (r *reader) tag(n *yaml.Node, path string) any {
	r.error(path, "the tag %s is not allowed; write the value without a tag", n.ShortTag())
	return refused
}

func (r *reader) mapping(n *yaml.Node, path string, depth int, alias bool) any {
	if tagged(n, "!!map") {
		return r.tag(n, path)
	}
	out := map[string]any{}
	whole := true
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key, ok := r.key(k, path)
		if !ok {
			whole = false
			continue
		}
		at := child(path, key)
		if _, duplicate := out[key]; duplicate {
			r.lines[at] = position{k.Line, k.Column}
			r.error(at, "the key appears twice in one mapping, and readers differ in which one they take; keep one")
			out[key] = refused
			continue
		}
		r.lines[at] = position{k.Line, k.Column}
		before := len(r.findings)
		out[key] = r.value(v, at, depth+1, alias)
		if path == "" && (key == "metadata" || key == "status") {
			// These belong to Kubernetes, not to the policy: labels and times in them are no business of this reader.
			r.findings = r.findings[:before]
		}
	}
	if !whole {
		return refused
	}
	return out
}

func (r *reader) key(k *yaml.Node, path string) (string, bool) {
	if k.Kind == yaml.AliasNode && k.Alias != nil {
		k = k.Alias
	}
	refuse := func(format string, args ...any) (string, bool) {
		r.findings = append(r.findings, Finding{File: r.file, Line: k.Line, Column: k.Column, Path: path, Message: fmt.Sprintf(format, args...)})
		return "", false
	}
	if k.Kind != yaml.ScalarNode {
		return refuse("a mapping or a list stands as a key; a key is text")
	}
	if k.ShortTag() == "!!merge" {
		return refuse("the merge key << is not supported; write the keys out")
	}
	if tagged(k, "!!str") {
		return refuse("the tag %s is not allowed on a key; write the key without a tag", k.ShortTag())
	}
	v, kind := plain(k)
	key, ok := v.(string)
	if !ok {
		return refuse("the key %s is %s, not text; write it in quotes", clip(k.Value), kind)
	}
	if other, differs := otherReading(k); differs {
		r.findings = append(r.findings, Finding{File: r.file, Line: k.Line, Column: k.Column, Path: path, Warning: true,
			Message: fmt.Sprintf("the key %s is text here, but kubectl and other readers take it for %s; write it in quotes", clip(k.Value), other)})
	}
	return key, true
}

func (r *reader) scalar(n *yaml.Node, path string) any {
	if tagged(n, "!!str") {
		return r.tag(n, path)
	}
	v, kind := plain(n)
	if isRefused(v) {
		switch kind {
		case kindFloat:
			r.error(path, "%s is a floating-point number, which other readers silently round or make an integer; write an integer in minor units, or text in quotes", clip(n.Value))
		case kindDate:
			r.error(path, "%s is a date; write it in quotes", clip(n.Value))
		default:
			r.error(path, "%s has more than %d digits; write it in quotes", clip(n.Value), canonical.MaxDigits)
		}
		return refused
	}
	if s, ok := v.(string); ok && !utf8.ValidString(s) {
		r.error(path, "the text is not valid UTF-8; save the file as UTF-8")
		return refused
	}
	if other, differs := otherReading(n); differs {
		here := "the text " + strconv.Quote(n.Value)
		if i, ok := v.(*big.Int); ok {
			here = i.String()
		}
		r.warn(path, "%s without quotes is %s here, but kubectl and other readers take it for %s; write what you mean so that all agree: text in quotes, a plain decimal number, true or false",
			clip(n.Value), here, other)
	}
	return v
}

const (
	kindText    = "text"
	kindNull    = "null"
	kindBool    = "a boolean"
	kindInteger = "an integer"
	kindFloat   = "a floating-point number"
	kindDate    = "a date"
)

// The tokens of the YAML 1.2 core schema. The YAML library resolves by a mixture of 1.1 and 1.2 and loses digits, so the
// token is looked at here.
var (
	decimalToken = regexp.MustCompile(`^[-+]?[0-9]+$`)
	octalToken   = regexp.MustCompile(`^0o[0-7]+$`)
	hexToken     = regexp.MustCompile(`^0x[0-9a-fA-F]+$`)
	floatToken   = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$`)
)

// plain resolves a scalar by the YAML 1.2 core schema, dates apart: they are text there, and something else to most readers.
func plain(n *yaml.Node) (any, string) {
	s := n.Value
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return s, kindText
	}
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nil, kindNull
	case "true", "True", "TRUE":
		return true, kindBool
	case "false", "False", "FALSE":
		return false, kindBool
	}
	digits, base := s, 10
	switch {
	case decimalToken.MatchString(s):
	case octalToken.MatchString(s):
		digits, base = s[2:], 8
	case hexToken.MatchString(s):
		digits, base = s[2:], 16
	case floatToken.MatchString(s):
		return refused, kindFloat
	case n.ShortTag() == "!!timestamp":
		return refused, kindDate
	default:
		return s, kindText
	}
	if len(digits) > canonical.MaxDigits {
		return refused, kindInteger
	}
	i, _ := new(big.Int).SetString(digits, base) // the token's expression allows only digits of the base
	return i, kindInteger
}

var (
	base60Token      = regexp.MustCompile(`^[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)
	legacyOctalToken = regexp.MustCompile(`^[-+]?0[0-7]+$`)
	leadingZeroToken = regexp.MustCompile(`^[-+]?0[0-9]+$`)
)

// otherReading says what readers of YAML 1.1, kubectl among them, make of a scalar that YAML 1.2 reads differently.
func otherReading(n *yaml.Node) (string, bool) {
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return "", false
	}
	s := n.Value
	switch s {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return "the boolean true", true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return "the boolean false", true
	case "=":
		return "a value of a special type", true
	}
	_, kind := plain(n)
	switch {
	case legacyOctalToken.MatchString(s) && len(s) <= 64:
		i, ok := new(big.Int).SetString(s, 8)
		if !ok {
			return "", false
		}
		return "the octal number " + i.String(), true
	case leadingZeroToken.MatchString(s):
		return "a floating-point number", true
	case octalToken.MatchString(s):
		return "text", true
	case kind != kindText:
		return "", false
	case base60Token.MatchString(s):
		return "a number to the base 60", true
	}
	switch n.ShortTag() {
	case "!!int":
		return "the number " + clip(strings.ReplaceAll(s, "_", "")), true
	case "!!float":
		return "a floating-point number", true
	}
	return "", false
}

// normal turns Go values of an API object into canonical values.
func (r *report) normal(v any, path string, depth int) any {
	if depth > canonical.MaxDepth {
		r.error(path, "the value is nested more than %d deep; flatten it", canonical.MaxDepth)
		return refused
	}
	switch x := v.(type) {
	case nil, bool:
		return v
	case string:
		if !utf8.ValidString(x) {
			r.error(path, "the text is not valid UTF-8; encode it as UTF-8")
			return refused
		}
		return v
	case *big.Int, int, int64, uint64:
		return canonical.Clone(v)
	case float64, float32:
		r.error(path, "the number is a fraction, or too large for the API; write an integer in minor units, or text")
		return refused
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = r.normal(x[i], element(path, i), depth+1)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for _, k := range slices.Sorted(maps.Keys(x)) {
			out[k] = r.normal(x[k], child(path, k), depth+1)
		}
		return out
	}
	r.error(path, "a value of type %T has no place in a policy; write null, a boolean, an integer, text, a list or a mapping", v)
	return refused
}

// clip shortens text from a document for a message.
func clip(s string) string {
	const limit = 80
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "…"
}
