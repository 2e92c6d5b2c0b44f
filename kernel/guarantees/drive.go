package guarantees

import (
	"maps"
	"math/big"
	"slices"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/grammar"
	"ctrlrun.dev/operator/kernel/policy"
)

// MaxCandidates bounds how many combinations of conditions are tried for one decision of one action.
const MaxCandidates = 64

// drive finds arguments that bring an action to a decision. Rules are tried from the top; to reach one, its own conditions have
// to hold and one of each earlier rule must not. False means that none of the candidates does it.
func (b rulebook) drive(name string, want decision.Decision) (Vector, bool) {
	entry, ok := b.entries[name]
	if !ok {
		return Vector{}, false
	}
	for _, l := range b.limits(name) {
		if v, ok := b.within(l, name, entry, want); ok {
			return v, true
		}
	}
	return Vector{}, false
}

// within drives an action within the limits of one grant.
func (b rulebook) within(l limits, name string, entry policy.Entry, want decision.Decision) (Vector, bool) {
	if entry.Decision != "" {
		return b.check(l, name, entry, nil, want, decision.PlainDecision)
	}
	candidates := MaxCandidates
	for i, rule := range entry.Rules {
		if rule.Decision == want {
			for _, demands := range reach(entry.Rules[:i], rule, candidates) {
				candidates--
				if v, ok := b.check(l, name, entry, demands, want, decision.Rule(i)); ok {
					return v, true
				}
			}
		}
		if !rule.HasWhen || candidates == 0 {
			break // nothing behind a rule that always matches is ever reached
		}
	}
	return Vector{}, false
}

// demand is a condition that has to hold, or must not.
type demand struct {
	grammar.Condition
	refused bool
}

func (d demand) met(value any) bool {
	return d.Match(map[string]any{d.Argument(): value}) != d.refused
}

// reach are the ways to come to a rule, at most limit: all of its own conditions, and against each earlier rule one of its
// conditions. The choice against the last earlier rule changes first.
func reach(earlier []policy.Rule, rule policy.Rule, limit int) [][]demand {
	var own []demand
	for _, c := range rule.When.List() {
		own = append(own, demand{Condition: c})
	}
	ways := [][]demand{own}
	for _, r := range earlier {
		var next [][]demand
		for _, way := range ways {
			for _, c := range r.When.List() {
				if len(next) < limit {
					next = append(next, append(slices.Clone(way), demand{Condition: c, refused: true}))
				}
			}
		}
		ways = next
	}
	return ways[:min(len(ways), limit)]
}

// check makes arguments that meet demands, fills in what the templates need beside them, and asks the policy.
func (b rulebook) check(l limits, name string, entry policy.Entry, demands []demand, want decision.Decision, reason decision.Reason) (Vector, bool) {
	demands = slices.Concat(demands, l.demands)
	arguments, ok := assign(demands, slices.Concat(entry.Effect.Placeholders(), entry.Resource.Placeholders()))
	if !ok {
		return Vector{}, false
	}
	for _, at := range l.targets(entry) {
		filled, resource := fill(entry, maps.Clone(arguments), at)
		if v := b.evaluate(name, filled, resource); v != nil && v.Decision == want && v.Reason == reason {
			return *v, true
		}
	}
	return Vector{}, false
}

// fill gives the templates' placeholders values that conditions leave free, and names a resource where one is needed: at says which.
func fill(entry policy.Entry, arguments map[string]any, at target) (map[string]any, *string) {
	placeholders := entry.Resource.Placeholders()
	resource := at.resource
	for _, name := range entry.Effect.Placeholders() {
		if name != "resource" {
			placeholders = append(placeholders, name)
			continue
		}
		if entry.Resource.IsZero() && resource == nil {
			free := prefix + ":resource"
			resource = &free
		}
	}
	for _, name := range placeholders {
		if _, given := arguments[name]; given {
			continue
		}
		arguments[name] = prefix + "-" + name
		if value, known := at.arguments[name]; known {
			arguments[name] = value
		}
	}
	return arguments, resource
}

// assign gives each argument that is named the first value that meets everything demanded of it. An argument of which something
// is only refused is left out if no value will do: every condition on it is false then. What a template has a placeholder for is text or an integer.
func assign(demands []demand, placeholders []string) (map[string]any, bool) {
	arguments := map[string]any{}
	for i, d := range demands {
		name := d.Argument()
		if slices.ContainsFunc(demands[:i], func(earlier demand) bool { return earlier.Argument() == name }) {
			continue
		}
		var about []demand
		for _, other := range demands[i:] {
			if other.Argument() == name {
				about = append(about, other)
			}
		}
		value, ok := choose(about, func(value any) bool { return !slices.Contains(placeholders, name) || fills(value) })
		if !ok && slices.ContainsFunc(about, func(d demand) bool { return !d.refused }) {
			return nil, false
		}
		if ok {
			arguments[name] = value
		}
	}
	return arguments, true
}

// choose tries the values that conditions themselves suggest: what is named, the bounds, and what is just beside them.
func choose(about []demand, usable func(any) bool) (any, bool) {
	for _, value := range suggestions(about) {
		if usable(value) && !slices.ContainsFunc(about, func(d demand) bool { return !d.met(value) }) {
			return canonical.Clone(value), true
		}
	}
	return nil, false
}

// fills reports whether a template can be filled in with a value.
func fills(value any) bool {
	text, isText := value.(string)
	_, isInteger := value.(*big.Int)
	return isInteger || isText && text != ""
}

// suggestions are in the order in which they are preferred: what is asked for by name, then the lower bounds, then the upper, and
// then what is only beside a value that is refused. Text comes last: a comparison of it is false.
func suggestions(about []demand) []any {
	var named, lower, upper, beside []any
	for _, d := range about {
		operand := d.Operand()
		switch op := d.Operator(); {
		case op == grammar.In:
			list, _ := operand.([]any)
			if !d.refused {
				named = append(named, list...)
			}
			for _, o := range list {
				beside = append(beside, besides(o)...)
			}
		case op == grammar.Eq && !d.refused, op == grammar.Neq && d.refused:
			named = append(named, operand)
		case op == grammar.Eq, op == grammar.Neq:
			beside = append(beside, besides(operand)...)
		case d.floor():
			lower = append(lower, d.bound())
			beside = append(beside, besides(d.bound())...)
		default:
			upper = append(upper, d.bound())
			beside = append(beside, besides(d.bound())...)
		}
	}
	return slices.Concat(named, lower, upper, beside, []any{prefix})
}

// floor reports whether a comparison demands a value from a bound on: gte 5, gt 5, and what is not lt 5 or lte 5.
func (d demand) floor() bool {
	return (d.Operator() == grammar.Gte || d.Operator() == grammar.Gt) != d.refused
}

// bound is the integer next to the operand that meets the comparison.
func (d demand) bound() *big.Int {
	n, ok := d.Operand().(*big.Int)
	if !ok {
		return new(big.Int)
	}
	step := map[grammar.Operator]int64{grammar.Gt: 1, grammar.Lt: -1}[d.Operator()]
	if d.refused {
		step = map[grammar.Operator]int64{grammar.Gte: -1, grammar.Lte: 1}[d.Operator()]
	}
	return new(big.Int).Add(n, big.NewInt(step))
}

// besides are values that are not the given one, of its type where there are others.
func besides(value any) []any {
	switch x := value.(type) {
	case *big.Int:
		return []any{new(big.Int).Add(x, big.NewInt(1)), new(big.Int).Sub(x, big.NewInt(1))}
	case string:
		return []any{x + "-x"}
	}
	return nil
}
