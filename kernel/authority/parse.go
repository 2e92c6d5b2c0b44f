package authority

import (
	"errors"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/grammar"
)

// Bounds of what a grant or a delegation may hold. The API has the same ones; here they are findings with a path.
const (
	MaxPatterns           = 64
	MaxPatternLength      = 512
	MaxConstraints        = 64
	MaxEnvironments       = 64
	MaxEnvironmentLength  = 63
	MaxReasonLength       = 1024
	MaxDurationSeconds    = 14400
	maxNameLength         = 253
	maxPrincipalLength    = 512
	requiredSubjectMember = "write agent, user, or both"
)

func contentKeys() []string {
	return []string{"subject", "actions", "resources", "constraints", "environments", "expirationTime", "delegable"}
}

func grantKeys() []string { return append(contentKeys(), "grantType", "maxDurationSeconds") }

func delegationKeys() []string {
	return append(contentKeys(), "parentRef", "breakGlass", "reason", "delegator")
}

// ParseGrant reads the spec of a Grant: a canonical value, as canonical.Parse returns it. Every problem is found, and with
// any of them there is no Grant.
func ParseGrant(spec any) (Grant, []Finding) {
	p := &parser{keys: grantKeys(), foreign: func(key string) string {
		if slices.Contains(delegationKeys(), key) {
			return key + " belongs to a Delegation; remove it, or write a Delegation"
		}
		return foreignKey(key)
	}}
	m, ok := p.object(spec)
	if !ok {
		return Grant{}, p.sorted()
	}
	g := p.content(m)
	p.grantType(m, &g)
	if findings := p.sorted(); len(findings) > 0 {
		return Grant{}, findings
	}
	return g, nil
}

// ParseDelegation reads the spec of a Delegation: a canonical value, as canonical.Parse returns it. Every problem is found,
// and with any of them there is no Delegation.
func ParseDelegation(spec any) (Delegation, []Finding) {
	p := &parser{keys: delegationKeys(), foreign: func(key string) string {
		if slices.Contains(grantKeys(), key) {
			return key + " belongs to a Grant; remove it"
		}
		return foreignKey(key)
	}}
	m, ok := p.object(spec)
	if !ok {
		return Delegation{}, p.sorted()
	}
	d := Delegation{Grant: p.content(m)}
	d.Type = Standard
	d.Parent = p.parent(m)
	d.BreakGlass, _ = p.boolean(m, "breakGlass")
	d.Reason = p.text(m, "", "reason", MaxReasonLength)
	d.Delegator, d.DelegatorExpires = p.delegator(m)
	if d.BreakGlass {
		if _, present := m["reason"]; !present {
			p.error("", "reason is missing, and whoever breaks glass says why; add it")
		}
		if _, present := m["expirationTime"]; !present {
			p.error("", "expirationTime is missing, and what opens an envelope has an end; add one that is within the grant's maxDurationSeconds")
		}
	}
	if findings := p.sorted(); len(findings) > 0 {
		return Delegation{}, findings
	}
	return d, nil
}

// foreignKey says what to do about keys that other documents have in the place of ours.
func foreignKey(key string) string {
	switch key {
	case "agent", "user":
		return key + " stands beside subject; indent it below subject"
	case "when":
		return "the limits on arguments are called constraints here; rename when to constraints"
	case "expires_at", "expiresAt":
		return key + " is called expirationTime here; rename it"
	case "decision":
		return "a grant says who may propose, and the policy decides; remove decision"
	case "id":
		return "the name of the object is its id; remove id"
	}
	_, notList := grammar.ParseCondition(key, []any{})
	_, notInteger := grammar.ParseCondition(key, new(big.Int))
	if notList == nil || notInteger == nil {
		return "the condition " + quoted(key) + " stands beside constraints; indent it below constraints"
	}
	return ""
}

// parser reads one spec. Members that are absent, blank or of the wrong type are reported once and then stepped over.
type parser struct {
	report
	keys    []string
	foreign func(key string) string
}

func (p *parser) object(spec any) (map[string]any, bool) {
	spec = canonical.Clone(spec)
	m, ok := spec.(map[string]any)
	if !ok {
		p.error("", "the spec is %s; write a mapping with subject and actions", typeName(spec))
		return nil, false
	}
	p.closed(m, "", p.keys, p.foreign)
	return m, true
}

// closed checks that m has only the known keys, none of them blank.
func (p *parser) closed(m map[string]any, path string, known []string, foreign func(key string) string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		at := child(path, k)
		switch {
		case !slices.Contains(known, k):
			if why := foreign(k); why != "" {
				p.error(at, "%s", why)
				continue
			}
			p.error(at, "unknown key %s: the keys here are %s; %s", quoted(k), strings.Join(known, ", "), remedy(k, known))
		case m[k] == nil:
			p.error(at, "%s is blank; write a value, or remove the key", k)
		}
	}
}

func remedy(key string, known []string) string {
	plain := func(s string) string { return strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(s), "_", ""), "s") }
	for _, k := range known {
		if plain(k) == plain(key) {
			return "did you mean " + k + "?"
		}
	}
	return "remove it"
}

func (p *parser) content(m map[string]any) Grant {
	g := Grant{Subject: p.subject(m)}
	if _, present := m["actions"]; !present {
		p.error("", "actions is missing; add the list of patterns of actions that the grant is about")
	}
	g.Actions = p.patterns(m, "actions", grammar.KindAction)
	g.Resources = p.patterns(m, "resources", grammar.KindResource)
	g.Constraints = p.constraints(m)
	g.Environments = p.environments(m)
	g.Expiration = p.expiration(m)
	delegable, _ := p.boolean(m, "delegable")
	g.Delegable = delegable
	if _, present := m["expirationTime"]; delegable && !present {
		p.error("delegable", "what may be delegated has an end; add expirationTime, or remove delegable")
	}
	return g
}

func (p *parser) subject(m map[string]any) Subject {
	v, present := m["subject"]
	if !present {
		p.error("", "subject is missing, and no grant is for everybody by omission; %s below subject", requiredSubjectMember)
		return Subject{}
	}
	if v == nil {
		return Subject{}
	}
	s, ok := v.(map[string]any)
	if !ok {
		p.error("subject", "the subject is %s; write a mapping with agent, user, or both", typeName(v))
		return Subject{}
	}
	p.closed(s, "subject", []string{"agent", "user"}, func(string) string { return "" })
	_, agent := s["agent"]
	_, user := s["user"]
	if !agent && !user {
		p.error("subject", "the subject has neither agent nor user; %s", requiredSubjectMember)
	}
	return Subject{Agent: p.pattern(s["agent"], "subject.agent", grammar.KindSubject), User: p.pattern(s["user"], "subject.user", grammar.KindSubject)}
}

func (p *parser) pattern(v any, path string, kind grammar.PatternKind) *grammar.Pattern {
	if v == nil {
		return nil
	}
	s, ok := v.(string)
	if !ok {
		p.error(path, "the pattern is %s; write text, in quotes", typeName(v))
		return nil
	}
	if n := utf8.RuneCountInString(s); n > MaxPatternLength {
		p.error(path, "the pattern has %d characters, and %d are the limit; shorten it", n, MaxPatternLength)
		return nil
	}
	pattern, err := grammar.ParsePattern(kind, s)
	if err != nil {
		p.error(path, "%v", err)
		return nil
	}
	return &pattern
}

// list is the list under key, which is not empty and not too long.
func (p *parser) list(m map[string]any, key, of string, limit int) []any {
	v := m[key]
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	switch {
	case !ok:
		p.error(key, "%s is %s; write a list of %s", key, typeName(v), of)
	case len(list) == 0:
		p.error(key, "the list is empty, which could be read as none and as any; add %s, or remove the key", of)
	case len(list) > limit:
		p.error(key, "there are %d %s, and %d are the limit; spread them over several objects", len(list), of, limit)
		return nil
	}
	return list
}

func (p *parser) patterns(m map[string]any, key string, kind grammar.PatternKind) []grammar.Pattern {
	var out []grammar.Pattern
	for i, v := range p.list(m, key, "patterns", MaxPatterns) {
		if v == nil {
			p.error(element(key, i), "the pattern is blank; write one, or remove the element")
			continue
		}
		if pattern := p.pattern(v, element(key, i), kind); pattern != nil {
			out = append(out, *pattern)
		}
	}
	return out
}

func (p *parser) environments(m map[string]any) []string {
	var out []string
	for i, v := range p.list(m, "environments", "names of environments", MaxEnvironments) {
		at := element("environments", i)
		s, ok := v.(string)
		switch {
		case !ok:
			p.error(at, "the environment is %s; write its name, in quotes", typeName(v))
		case s == "" || !utf8.ValidString(s):
			p.error(at, "the environment is empty or not valid UTF-8; write its name")
		case strings.Contains(s, "*"):
			p.error(at, "environments are exact names, in which * has no meaning; write each of them, or remove environments for all")
		case utf8.RuneCountInString(s) > MaxEnvironmentLength:
			p.error(at, "the environment has more than %d characters, and no label of a namespace is so long; write its name", MaxEnvironmentLength)
		default:
			out = append(out, s)
		}
	}
	return out
}

func (p *parser) constraints(m map[string]any) grammar.Conditions {
	const key = "constraints"
	v := m[key]
	if v == nil {
		return grammar.Conditions{}
	}
	conditions, ok := v.(map[string]any)
	switch {
	case !ok:
		p.error(key, "constraints is %s; write a mapping from conditions to operands, such as amount_lte: 500", typeName(v))
		return grammar.Conditions{}
	case len(conditions) == 0:
		p.error(key, "constraints is empty, and would read as a limit that is none; write at least one condition, or remove the key")
		return grammar.Conditions{}
	case len(conditions) > MaxConstraints:
		p.error(key, "there are %d conditions, and %d are the limit; remove some", len(conditions), MaxConstraints)
		return grammar.Conditions{}
	}
	for _, k := range slices.Sorted(maps.Keys(conditions)) {
		at := child(key, k)
		if _, err := grammar.ParseCondition(k, conditions[k]); err != nil {
			problem := err.Error()
			if c, ok := errors.AsType[*grammar.ConditionError](err); ok {
				problem = c.Problem
			}
			p.error(at, "%s", problem)
			ok = false
			continue
		}
		if pointer, stored := action.CheckStored(conditions[k]); !stored {
			p.error(at, "the integer at %q does not fit into 64 bits, and the API would change it; write a smaller one", pointer)
			ok = false
		}
	}
	if !ok {
		return grammar.Conditions{}
	}
	c, err := grammar.ParseConditions(conditions)
	if err != nil {
		p.error(key, "%v", err)
	}
	return c
}

// timestamp is RFC 3339 with an offset. time.Parse is more lenient: it takes hours of one digit and rounds fractions.
var timestamp = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func (p *parser) expiration(m map[string]any) *time.Time { return p.time(m, "", "expirationTime") }

func (p *parser) time(m map[string]any, path, key string) *time.Time {
	v := m[key]
	key = child(path, key)
	if v == nil {
		return nil
	}
	s, ok := v.(string)
	if !ok {
		p.error(key, "the time is %s; write text such as \"2027-01-31T18:00:00Z\", in quotes", typeName(v))
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || !timestamp.MatchString(s) {
		p.error(key, "%s is not a time of RFC 3339 with an offset; write it such as 2027-01-31T18:00:00Z or 2027-01-31T18:00:00+01:00", quoted(s))
		return nil
	}
	t = t.UTC()
	return &t
}

func (p *parser) boolean(m map[string]any, key string) (value, ok bool) {
	v, present := m[key]
	if !present || v == nil {
		return false, !present
	}
	value, ok = v.(bool)
	if !ok {
		p.error(key, "%s is %s; write true or false, without quotes", key, typeName(v))
	}
	return value, ok
}

// text is the text under key, "" if there is none.
func (p *parser) text(m map[string]any, path, key string, limit int) string {
	v, present := m[key]
	if !present || v == nil {
		return ""
	}
	at := child(path, key)
	s, ok := v.(string)
	switch {
	case !ok:
		p.error(at, "%s is %s; write text, in quotes", key, typeName(v))
	case strings.TrimSpace(s) == "":
		p.error(at, "%s is empty; write it, or remove the key", key)
	case !utf8.ValidString(s):
		p.error(at, "%s is not valid UTF-8; encode it as UTF-8", key)
	case utf8.RuneCountInString(s) > limit:
		p.error(at, "%s has more than %d characters; shorten it", key, limit)
	}
	return s
}

func (p *parser) grantType(m map[string]any, g *Grant) {
	g.Type = Standard
	if v, present := m["grantType"]; present && v != nil {
		switch s, _ := v.(string); Type(s) {
		case Standard, BreakGlass:
			g.Type = Type(s)
		default:
			p.error("grantType", "the type is not one of Standard and BreakGlass; write one of them")
			return
		}
	}
	v, present := m["maxDurationSeconds"]
	if g.Type == Standard {
		if present {
			p.error("maxDurationSeconds", "maxDurationSeconds is for grants of type BreakGlass; remove it, or write grantType: BreakGlass")
		}
		return
	}
	if !present {
		p.error("", "maxDurationSeconds is missing, and a grant of type BreakGlass says for how long it may be opened; add a number from 1 to %d", MaxDurationSeconds)
	}
	if present && v != nil {
		seconds, ok := v.(*big.Int)
		switch {
		case !ok:
			p.error("maxDurationSeconds", "the value is %s; write a whole number from 1 to %d", typeName(v), MaxDurationSeconds)
		case !seconds.IsInt64() || seconds.Int64() < 1 || seconds.Int64() > MaxDurationSeconds:
			p.error("maxDurationSeconds", "%s is out of range; write a whole number from 1 to %d", clip(seconds.String()), MaxDurationSeconds)
		default:
			g.MaxDuration = time.Duration(seconds.Int64()) * time.Second
		}
	}
	for key, why := range map[string]string{
		"expirationTime": "a grant of type BreakGlass has no expirationTime: what opens it ends after maxDurationSeconds; remove it",
		"delegable":      "a grant of type BreakGlass has no delegable: it can be opened and nothing else; remove it",
	} {
		if _, present := m[key]; present {
			p.error(key, "%s", why)
		}
	}
}

func (p *parser) parent(m map[string]any) Ref {
	v, present := m["parentRef"]
	if !present {
		p.error("", "parentRef is missing; add the kind and the name of the Grant or the Delegation that this is a part of")
		return Ref{}
	}
	if v == nil {
		return Ref{}
	}
	ref, ok := v.(map[string]any)
	if !ok {
		p.error("parentRef", "the reference is %s; write a mapping with kind and name", typeName(v))
		return Ref{}
	}
	p.closed(ref, "parentRef", []string{"kind", "name"}, func(string) string { return "" })
	for _, key := range []string{"kind", "name"} {
		if _, present := ref[key]; !present {
			p.error("parentRef", "%s is missing; add it", key)
		}
	}
	kind := Kind(p.text(ref, "parentRef", "kind", maxNameLength))
	if s, isText := ref["kind"].(string); isText && strings.TrimSpace(s) != "" && kind != KindGrant && kind != KindDelegation {
		p.error("parentRef.kind", "%s is not a kind of parent; write Grant or Delegation", quoted(s))
	}
	return Ref{Kind: kind, Name: p.text(ref, "parentRef", "name", maxNameLength)}
}

func (p *parser) delegator(m map[string]any) (action.Principal, *time.Time) {
	v, present := m["delegator"]
	if !present {
		p.error("", "delegator is missing, and without it nobody is known to have delegated; the apiserver stamps it, or kubectl ctrlrun delegate writes it")
		return action.Principal{}, nil
	}
	if v == nil {
		return action.Principal{}, nil
	}
	d, ok := v.(map[string]any)
	if !ok {
		p.error("delegator", "the delegator is %s; write a mapping with agent, and user if there is one", typeName(v))
		return action.Principal{}, nil
	}
	p.closed(d, "delegator", []string{"agent", "user", "claims", "expiresTime"}, func(string) string { return "" })
	if _, present := d["agent"]; !present {
		p.error("delegator", "agent is missing; add it")
	}
	out := action.Principal{Agent: p.text(d, "delegator", "agent", maxPrincipalLength)}
	if _, present := d["user"]; present {
		user := p.text(d, "delegator", "user", maxPrincipalLength)
		out.User = &user
	}
	return out, p.time(d, "delegator", "expiresTime")
}

// typeName says what a canonical value is, for messages.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "blank"
	case bool:
		return "a boolean"
	case string:
		return "text"
	case *big.Int:
		return "an integer"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return "no value of a document"
}
