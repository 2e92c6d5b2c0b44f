package guarantees

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/grammar"
	"ctrlrun.dev/operator/kernel/policy"
)

// Authority is what a namespace says about who may propose, where that is required.
type Authority struct {
	Grants []GrantDocument
	// MaxDepth is how many delegations may hang below a grant, one under the other.
	MaxDepth int64
}

// GrantDocument is one Grant as it is written.
type GrantDocument struct {
	Name string
	// Spec is a canonical value.
	Spec any
}

// Envelope reports whether it is of type BreakGlass. Such a grant lets nobody propose, so nothing is driven by it.
func (g GrantDocument) Envelope() bool {
	spec, _ := g.Spec.(map[string]any)
	return spec["grantType"] == string(authority.BreakGlass)
}

// For is the spec of a copy that is for one agent, whoever it acts for, and holds until the given time; nil leaves its own. What
// the grant is about is what it was.
func (g GrantDocument) For(agent string, until *time.Time) map[string]any {
	spec, _ := canonical.Clone(g.Spec).(map[string]any)
	if spec == nil {
		spec = map[string]any{}
	}
	spec["subject"] = map[string]any{"agent": agent}
	if until != nil {
		spec["expirationTime"] = until.UTC().Format(time.RFC3339)
	}
	return spec
}

// Expiration is the last moment it holds; nil if it says none.
func (g GrantDocument) Expiration() *time.Time {
	parsed, _ := authority.ParseGrant(g.For(prefix, nil))
	return parsed.Expiration
}

// grant is one that lets the scratch agent propose.
type grant struct {
	name string
	authority.Grant
}

// grantsFor are the grants as they are for the scratch agent, by name.
func grantsFor(a *Authority) ([]grant, error) {
	var grants []grant
	for _, document := range a.Grants {
		if document.Envelope() {
			continue
		}
		parsed, findings := authority.ParseGrant(document.For(prefix, nil))
		if len(findings) > 0 {
			return nil, fmt.Errorf("grant %s: %s", document.Name, findings[0])
		}
		grants = append(grants, grant{document.Name, parsed})
	}
	slices.SortFunc(grants, func(a, b grant) int { return strings.Compare(a.name, b.name) })
	return grants, nil
}

// under is a rulebook where this grant alone lets anybody propose.
func (b rulebook) under(g grant) rulebook {
	b.required, b.grants = true, []grant{g}
	return b
}

// covers reports whether somebody may propose p, before any grant has expired.
func (b rulebook) covers(p action.Proposal) bool {
	return !b.required || slices.ContainsFunc(b.grants, func(g grant) bool { return g.Match(p, time.Time{}) })
}

// limits are what one grant asks of an action beside the policy.
type limits struct {
	demands   []demand
	resources []grammar.Pattern
}

// limits are those of each grant that is about an action of that name; where none is required there are none.
func (b rulebook) limits(name string) []limits {
	if !b.required {
		return []limits{{}}
	}
	var all []limits
	for _, g := range b.grants {
		if !slices.ContainsFunc(g.Actions, func(p grammar.Pattern) bool { return p.Match(name) }) {
			continue
		}
		l := limits{resources: g.Resources}
		for _, c := range g.Constraints.List() {
			l.demands = append(l.demands, demand{Condition: c})
		}
		all = append(all, l)
	}
	return all
}

// target is what is acted on: the resource that the agent names, or the arguments by which the policy's template comes to it.
type target struct {
	resource  *string
	arguments map[string]any
}

// targets are the ways to come to a resource within the limits.
func (l limits) targets(entry policy.Entry) []target {
	if len(l.resources) == 0 {
		return []target{{}}
	}
	var all []target
	for _, p := range l.resources {
		if entry.Resource.IsZero() {
			name := instance(p)
			all = append(all, target{resource: &name})
			continue
		}
		all = append(all, target{arguments: unify(entry.Resource.String(), p)})
	}
	return all
}

// instance is a resource that a pattern is about.
func instance(p grammar.Pattern) string {
	segments := strings.Split(p.String(), ":")
	for i, s := range segments {
		switch {
		case s == "**" || s == "*":
			segments[i] = prefix
		case strings.HasSuffix(s, "*"):
			segments[i] = strings.TrimSuffix(s, "*") + prefix
		}
	}
	return strings.Join(segments, ":")
}

// unify gives the placeholders of a template values with which it comes to a resource that a pattern is about, segment by segment,
// where a segment has one placeholder. What is not found so is found out when the grant is asked.
func unify(template string, p grammar.Pattern) map[string]any {
	arguments := map[string]any{}
	patterns := strings.Split(p.String(), ":")
	for i, s := range strings.Split(template, ":") {
		before, rest, found := strings.Cut(s, "{")
		name, after, closed := strings.Cut(rest, "}")
		if !found || !closed || strings.Contains(after, "{") || i >= len(patterns) || patterns[i] == "**" {
			continue
		}
		own := prefix + "-" + name
		wanted, open := strings.CutSuffix(patterns[i], "*")
		switch {
		case open && strings.HasPrefix(wanted, before):
			arguments[name] = wanted[len(before):] + own
		case !open && strings.HasPrefix(wanted, before) && strings.HasSuffix(wanted[len(before):], after):
			arguments[name] = strings.TrimSuffix(wanted[len(before):], after)
		}
	}
	return arguments
}

// Child is a delegation below a grant, by what is handed on.
type Child struct {
	// Dimension is in what it is wider than its parent; "" if it is narrower.
	Dimension authority.Dimension
	// Omitted says that what the parent limits is left out; otherwise it is loosened.
	Omitted bool
	// Terms are the subject, actions, resources, constraints, environments and expirationTime, as canonical values.
	Terms map[string]any
}

// Children are a delegation that is as narrow as v allows, and one for each way to be wider than the parent in one dimension only.
// Dimensions in which the parent has no limit have none.
func Children(parent map[string]any, agent string, v Vector, environment string) (narrow Child, wider []Child, err error) {
	g, findings := authority.ParseGrant(parent)
	if len(findings) > 0 || g.Expiration == nil {
		return narrow, nil, fmt.Errorf("the parent is no grant that can be handed on: %v", findings)
	}
	terms := map[string]any{
		"subject": map[string]any{"agent": agent}, "actions": []any{v.ActionType},
		"expirationTime": g.Expiration.Add(-time.Minute).UTC().Format(time.RFC3339),
	}
	if len(g.Resources) > 0 && v.Target != nil {
		terms["resources"] = []any{*v.Target}
	}
	if !g.Constraints.IsZero() {
		terms["constraints"] = tightened(g.Constraints, v.Arguments)
	}
	if len(g.Environments) > 0 {
		terms["environments"] = []any{environment}
	}
	if d := outside(g, terms); d != "" {
		return narrow, nil, fmt.Errorf("no delegation below the grant is narrower: it would be wider in %s", d)
	}
	add := func(d authority.Dimension, omitted bool, key string, value any) {
		changed := maps.Clone(terms)
		if changed[key] = value; value == nil {
			delete(changed, key)
		}
		if outside(g, changed) == d {
			wider = append(wider, Child{Dimension: d, Omitted: omitted, Terms: changed})
		}
	}
	add(authority.DimensionSubject, false, "subject", map[string]any{"agent": "*"})
	add(authority.DimensionSubject, true, "subject", map[string]any{"user": prefix})
	// Every delegation names actions, so they are never left out.
	add(authority.DimensionActions, false, "actions", []any{v.ActionType, "**"})
	add(authority.DimensionResources, false, "resources", []any{"**"})
	add(authority.DimensionResources, true, "resources", nil)
	if !g.Constraints.IsZero() {
		add(authority.DimensionConstraints, false, "constraints", loosened(g.Constraints))
		add(authority.DimensionConstraints, true, "constraints", nil)
	}
	if len(g.Environments) > 0 {
		add(authority.DimensionEnvironments, false, "environments", []any{environment, prefix + "-env"})
		add(authority.DimensionEnvironments, true, "environments", nil)
	}
	add(authority.DimensionExpiration, false, "expirationTime", g.Expiration.Add(time.Hour).UTC().Format(time.RFC3339))
	add(authority.DimensionExpiration, true, "expirationTime", nil)
	return Child{Terms: terms}, wider, nil
}

// outside is the first dimension in which terms are wider than g; "" if they are within it.
func outside(g authority.Grant, terms map[string]any) authority.Dimension {
	child, findings := authority.ParseGrant(terms)
	if len(findings) > 0 {
		return "malformed"
	}
	d, _ := authority.Contains(g, child)
	return d
}

// tightened are conditions with each bound one step further in, where the arguments allow it, and each list down to what the
// arguments have.
func tightened(of grammar.Conditions, arguments map[string]any) map[string]any {
	out := map[string]any{}
	for _, c := range of.List() {
		out[c.Key()] = c.Operand()
		if c.Operator() == grammar.In {
			out[c.Key()] = []any{arguments[c.Argument()]}
			continue
		}
		closer, ok := moved(c, 1)
		if !ok {
			continue
		}
		if n, err := grammar.ParseCondition(c.Key(), closer); err == nil && n.Match(arguments) {
			out[c.Key()] = closer
		}
	}
	return out
}

// loosened are conditions with each bound one step further out; without a bound, the first of them takes another value.
func loosened(of grammar.Conditions) map[string]any {
	out := map[string]any{}
	changed := false
	for _, c := range of.List() {
		out[c.Key()] = c.Operand()
		if further, ok := moved(c, -1); ok {
			out[c.Key()], changed = further, true
		}
	}
	if changed {
		return out
	}
	first := of.List()[0]
	if list, ok := first.Operand().([]any); ok && first.Operator() == grammar.In {
		out[first.Key()] = append(slices.Clone(list), prefix)
		return out
	}
	out[first.Key()] = prefix
	return out
}

// moved is the bound of a comparison so many steps further in.
func moved(c grammar.Condition, steps int64) (*big.Int, bool) {
	n, ok := c.Operand().(*big.Int)
	switch c.Operator() {
	case grammar.Gte, grammar.Gt:
		return new(big.Int).Add(orZero(n), big.NewInt(steps)), ok
	case grammar.Lte, grammar.Lt:
		return new(big.Int).Sub(orZero(n), big.NewInt(steps)), ok
	}
	return nil, false
}

func orZero(n *big.Int) *big.Int {
	if n == nil {
		return new(big.Int)
	}
	return n
}
