package policy

import (
	"errors"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/grammar"
)

// Bounds of what an ActionPolicy may hold. The API has the same ones; here they are errors with a place in the file.
const (
	MaxActions           = 64
	MaxRules             = 16
	MaxTemplateLength    = 512
	MaxVersionLength     = 128
	MinApprovalTTL       = 60
	MaxApprovalTTL       = 604800
	MaxApprovalsRequired = 10
	MaxMaxAttempts       = 1000000
	MaxApproverGroups    = 16
	MaxGroupLength       = 256
	// MaxResolutionsRequired is as many as there are people who may be asked to approve.
	MaxResolutionsRequired = MaxApprovalsRequired
)

// Rule decides if its conditions hold.
type Rule struct {
	// When are the conditions; without any (HasWhen false) the rule always matches.
	When     grammar.Conditions
	HasWhen  bool
	Decision decision.Decision
}

// Entry is what a policy says about one action.
type Entry struct {
	// Decision for every proposal; "" if Rules decide.
	Decision decision.Decision
	// Rules are tried from top to bottom, and the first that matches decides.
	Rules []Rule
	// Effect and Resource are the templates of effect key and resource; the zero Template if there is none.
	Effect, Resource action.Template
	// ApprovalTTLSeconds, ApprovalsRequired, MaxAttempts and ResolutionsRequired are 0 if not set.
	ApprovalTTLSeconds, ApprovalsRequired, MaxAttempts, ResolutionsRequired int
	// ApproverGroups are groups of which an approver has to be in one; without any, whoever may approve is asked.
	ApproverGroups []string
	// NotExecutedOnError tells the MCP gateway that an error result of the tool means that nothing was executed.
	NotExecutedOnError bool

	// canonical is the entry as written. It decides whether two entries are the same.
	canonical map[string]any
}

// Equal reports whether e and o are written the same, apart from order of keys and layout.
func (e Entry) Equal(o Entry) bool { return canonical.Equal(e.canonical, o.canonical) }

// Approvals is how many people have to say yes where the answer is approve.
func (e Entry) Approvals() int { return max(1, e.ApprovalsRequired) }

// Resolutions is how many people have to say the same of an effect before one that nobody knows of is settled.
func (e Entry) Resolutions() int { return max(1, e.ResolutionsRequired) }

// decides reports whether the entry can come to one of the decisions.
func (e Entry) decides(d ...decision.Decision) bool {
	return slices.Contains(d, e.Decision) || slices.ContainsFunc(e.Rules, func(r Rule) bool { return slices.Contains(d, r.Decision) })
}

// dialect is the set of keys a kind of document may use.
type dialect struct {
	// name is what messages call it.
	name string
	// templates says that entries may have effect, resource and mcp.
	templates bool
	// object says that it is an ActionPolicy: its own keys, and the bounds of the API.
	object bool
}

func dialects() map[string]dialect {
	return map[string]dialect{
		SchemaV1: {name: SchemaV1},
		SchemaV2: {name: SchemaV2, templates: true},
	}
}

func objectDialect() dialect { return dialect{name: "an ActionPolicy", templates: true, object: true} }

func (d dialect) entryKeys() []string {
	keys := []string{"decision", "rules"}
	if d.templates {
		keys = append(keys, "effect", "resource", "mcp")
	}
	if d.object {
		keys = append(keys, "approvalTTLSeconds", "approvalsRequired", "approverGroups", "maxAttempts", "resolutionsRequired")
	}
	return keys
}

// parser reads the map of actions out of a tree of canonical values.
type parser struct {
	*report
	dialect
}

// actions returns the entries that have no error.
func (p *parser) actions(v any, path string) map[string]Entry {
	out := map[string]Entry{}
	m, ok := v.(map[string]any)
	switch {
	case isRefused(v):
		return out
	case !ok:
		p.error(path, "the actions are %s; write a mapping from action names to entries, or {} to deny everything", typeName(v))
		return out
	case p.object && len(m) > MaxActions:
		p.error(path, "there are %d actions, and %d are the limit of one ActionPolicy; spread them over several, which form a union", len(m), MaxActions)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		at := child(path, name)
		if name == "" {
			p.error(at, "the name of the action is empty; write the name that agents propose")
			continue
		}
		if strings.ContainsAny(name, "*?") {
			p.warn(at, "names of actions are matched exactly, so this covers only an action that is called just that; write one entry for each action")
		}
		if e, ok := p.entry(m[name], at); ok {
			out[name] = e
			p.suspicions(e, at)
			p.changes(name, e, at)
		}
	}
	return out
}

// keys checks that m has only the known keys, none of them blank, and reports whether that is so.
func (p *parser) keys(m map[string]any, path string, known []string, foreign func(key string) string) bool {
	ok := true
	for _, k := range slices.Sorted(maps.Keys(m)) {
		at := child(path, k)
		switch {
		case isRefused(m[k]):
			ok = false
		case !slices.Contains(known, k):
			ok = false
			if why := foreign(k); why != "" {
				p.error(at, "%s", why)
				continue
			}
			p.error(at, "unknown key %s: the keys here are %s; %s", strconv.Quote(clip(k)), strings.Join(known, ", "), remedy(k, known))
		case m[k] == nil:
			ok = false
			p.error(at, "%s is blank; write a value, or remove the key", k)
		}
	}
	return ok
}

func remedy(key string, known []string) string {
	for _, k := range known {
		if strings.EqualFold(strings.ReplaceAll(k, "_", ""), strings.ReplaceAll(key, "_", "")) || nearby(k, key) {
			return "did you mean " + k + "?"
		}
	}
	return "remove it"
}

// nearby reports whether a and b differ by one character more, less or other, or by two exchanged ones.
func nearby(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(a) < 3 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	return i == len(a) || a[i+1:] == b[i+1:] || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

func (p *parser) entry(v any, path string) (Entry, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		if !isRefused(v) {
			p.error(path, "the entry is %s; write a mapping with decision or rules", typeName(v))
		}
		return Entry{}, false
	}
	ok = p.keys(m, path, p.entryKeys(), func(key string) string {
		switch all := objectDialect().entryKeys(); {
		case !p.templates && slices.Contains(all[2:5], key):
			return key + " needs schema: " + SchemaV2 + ", and this document says " + p.name + "; raise the schema, or remove the key"
		case !p.object && slices.Contains(all[5:], key):
			return key + " is known to ActionPolicy objects only; convert the document with kubectl ctrlrun policy convert, or remove the key"
		}
		return ""
	})
	_, plain := m["decision"]
	_, ruled := m["rules"]
	switch {
	case plain && ruled:
		p.error(path, "the entry has both decision and rules; keep one of them")
		ok = false
	case !plain && !ruled:
		p.error(path, "the entry has neither decision nor rules; add one of them")
		ok = false
	}
	e := Entry{canonical: m}
	for _, read := range []struct {
		key  string
		into func(v any, path string) bool
	}{
		{"decision", func(v any, path string) (ok bool) { e.Decision, ok = p.decision(v, path); return ok }},
		{"rules", func(v any, path string) (ok bool) { e.Rules, ok = p.rules(v, path); return ok }},
		{"effect", func(v any, path string) (ok bool) { e.Effect, ok = p.template(v, path); return ok }},
		{"resource", func(v any, path string) (ok bool) { e.Resource, ok = p.template(v, path); return ok }},
		{"mcp", func(v any, path string) (ok bool) { e.NotExecutedOnError, ok = p.mcp(v, path); return ok }},
		{"approvalTTLSeconds", func(v any, path string) (ok bool) {
			e.ApprovalTTLSeconds, ok = p.number(v, path, MinApprovalTTL, MaxApprovalTTL)
			return ok
		}},
		{"approvalsRequired", func(v any, path string) (ok bool) {
			e.ApprovalsRequired, ok = p.number(v, path, 1, MaxApprovalsRequired)
			return ok
		}},
		{"approverGroups", func(v any, path string) (ok bool) {
			e.ApproverGroups, ok = p.groups(v, path)
			return ok
		}},
		{"maxAttempts", func(v any, path string) (ok bool) {
			e.MaxAttempts, ok = p.number(v, path, 1, MaxMaxAttempts)
			return ok
		}},
		{"resolutionsRequired", func(v any, path string) (ok bool) {
			e.ResolutionsRequired, ok = p.number(v, path, 1, MaxResolutionsRequired)
			return ok
		}},
	} {
		v, present := m[read.key]
		if present && v != nil && !isRefused(v) && slices.Contains(p.entryKeys(), read.key) {
			ok = read.into(v, child(path, read.key)) && ok
		}
	}
	return e, ok
}

func (p *parser) decision(v any, path string) (decision.Decision, bool) {
	s, _ := v.(string)
	if d := decision.Decision(s); d.Valid() {
		return d, true
	}
	if s == "" {
		s = typeName(v)
	} else {
		s = strconv.Quote(clip(s))
	}
	p.error(path, "%s is not a decision; write allow, approve or deny", s)
	return "", false
}

func (p *parser) groups(v any, path string) ([]string, bool) {
	list, ok := v.([]any)
	switch {
	case !ok:
		p.error(path, "the groups are %s; write a list of names of groups", typeName(v))
		return nil, false
	case len(list) == 0:
		p.error(path, "there are no groups; name one, or remove the key if whoever may approve is asked")
		return nil, false
	case len(list) > MaxApproverGroups:
		p.error(path, "there are %d groups, and %d are the limit; name a group that holds several", len(list), MaxApproverGroups)
		return nil, false
	}
	out := make([]string, 0, len(list))
	for i, v := range list {
		s, isText := v.(string)
		if isRefused(v) {
			return nil, false
		}
		if !isText || s == "" || utf8.RuneCountInString(s) > MaxGroupLength {
			p.error(element(path, i), "this is no name of a group; write a text of 1 to %d characters", MaxGroupLength)
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

func (p *parser) rules(v any, path string) ([]Rule, bool) {
	list, ok := v.([]any)
	switch {
	case !ok:
		p.error(path, "the rules are %s; write a list of rules, each with a decision", typeName(v))
		return nil, false
	case len(list) == 0:
		p.error(path, "there are no rules; add one, or write decision: deny")
		return nil, false
	case p.object && len(list) > MaxRules:
		p.error(path, "there are %d rules, and %d are the limit for one action of an ActionPolicy; combine some", len(list), MaxRules)
		ok = false
	}
	var out []Rule
	for i, v := range list {
		r, valid := p.rule(v, element(path, i))
		ok = ok && valid
		out = append(out, r)
	}
	return out, ok
}

func (p *parser) rule(v any, path string) (Rule, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		if !isRefused(v) {
			p.error(path, "the rule is %s; write a mapping with decision, and when if it is not to match always", typeName(v))
		}
		return Rule{}, false
	}
	ok = p.keys(m, path, []string{"when", "decision"}, func(key string) string {
		_, notList := grammar.ParseCondition(key, []any{})
		_, notInteger := grammar.ParseCondition(key, new(big.Int))
		if notList == nil || notInteger == nil {
			return "the condition " + strconv.Quote(clip(key)) + " stands beside when; indent it below when"
		}
		return ""
	})
	var r Rule
	if d, present := m["decision"]; !present {
		p.error(path, "the rule has no decision; add decision: allow, approve or deny")
		ok = false
	} else if d != nil && !isRefused(d) {
		valid := false
		r.Decision, valid = p.decision(d, child(path, "decision"))
		ok = ok && valid
	}
	if when, present := m["when"]; present && when != nil && !isRefused(when) {
		valid := false
		r.When, valid = p.when(when, child(path, "when"))
		r.HasWhen = true
		ok = ok && valid
	}
	return r, ok
}

func (p *parser) when(v any, path string) (grammar.Conditions, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		p.error(path, "when is %s; write a mapping from conditions to operands, such as amount_lte: 500", typeName(v))
		return grammar.Conditions{}, false
	}
	if len(m) == 0 {
		p.error(path, "when is empty; write at least one condition, or remove when if the rule is to match always")
		return grammar.Conditions{}, false
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		at := child(path, k)
		if containsRefused(m[k]) {
			ok = false
			continue
		}
		if _, err := grammar.ParseCondition(k, m[k]); err != nil {
			ok = false
			problem := err.Error()
			if c := (*grammar.ConditionError)(nil); errors.As(err, &c) {
				problem = c.Problem
			}
			p.error(at, "%s", problem)
			continue
		}
		if pointer, stored := action.CheckStored(m[k]); p.object && !stored {
			ok = false
			p.error(at, "the integer at %q does not fit into 64 bits, and the API would change it; write a smaller one", pointer)
		}
	}
	if !ok {
		return grammar.Conditions{}, false
	}
	c, err := grammar.ParseConditions(m)
	if err != nil {
		p.error(path, "%v", err)
		return grammar.Conditions{}, false
	}
	return c, true
}

func containsRefused(v any) bool {
	switch x := v.(type) {
	case []any:
		return slices.ContainsFunc(x, containsRefused)
	case map[string]any:
		for _, e := range x {
			if containsRefused(e) {
				return true
			}
		}
	}
	return isRefused(v)
}

func (p *parser) template(v any, path string) (action.Template, bool) {
	s, ok := v.(string)
	if !ok {
		p.error(path, "the template is %s; write text with {argument} placeholders, in quotes", typeName(v))
		return action.Template{}, false
	}
	t, err := action.ParseTemplate(s)
	if err != nil {
		p.error(path, "%v", err)
		return action.Template{}, false
	}
	if n := len([]rune(s)); p.object && n > MaxTemplateLength {
		p.error(path, "the template has %d characters, and %d are the limit; shorten it", n, MaxTemplateLength)
		return action.Template{}, false
	}
	return t, true
}

func (p *parser) mcp(v any, path string) (bool, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		p.error(path, "mcp is %s; write a mapping with not_executed_on_error", typeName(v))
		return false, false
	}
	const key = "not_executed_on_error"
	if !p.keys(m, path, []string{key}, func(string) string { return "" }) {
		return false, false
	}
	value, present := m[key]
	if !present {
		return false, true
	}
	b, ok := value.(bool)
	if !ok {
		p.error(child(path, key), "%s is %s; write true or false", key, typeName(value))
	}
	return b, ok
}

func (p *parser) number(v any, path string, low, high int64) (int, bool) {
	i, ok := v.(*big.Int)
	if !ok {
		p.error(path, "the value is %s; write a whole number from %d to %d", typeName(v), low, high)
		return 0, false
	}
	if !i.IsInt64() || i.Int64() < low || i.Int64() > high {
		p.error(path, "%s is out of range; write a whole number from %d to %d", clip(i.String()), low, high)
		return 0, false
	}
	return int(i.Int64()), true
}

// typeName says what a canonical value is, for messages.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "blank"
	case bool:
		return kindBool
	case string:
		return kindText
	case *big.Int:
		return kindInteger
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return "no value"
}
