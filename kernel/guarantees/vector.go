package guarantees

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// prefix begins every value that the policy leaves free, so that whoever meets one knows where it comes from.
const prefix = "ctrlrun-verify"

// Vector is one proposal that the policy answers in a known way.
type Vector struct {
	// ActionType, Arguments and Resource are what is proposed. The arguments are canonical values and not to be changed.
	ActionType string
	Arguments  map[string]any
	Resource   *string

	// Decision and Reason are the policy's answer.
	Decision decision.Decision
	Reason   decision.Reason
	// Approvals is how many people it asks; 0 if it asks nobody.
	Approvals int
	// EffectKey is nil if the action has none.
	EffectKey *string
	// Target is the resource that is hashed: that of the policy's template, or the one that is named. Nil: none.
	Target *string
}

// rulebook is what vectors are made for: the policies, and where they are proposed.
type rulebook struct {
	set         *policy.Set
	entries     map[string]policy.Entry // those that decide: an action that is invalid or in conflict has none
	environment string
	required    bool    // that a grant covers what is proposed
	grants      []grant // one of which has to
}

// newRulebook leaves out the action by which policies are changed: nobody but the operator proposes it, so it is not driven.
func newRulebook(sources []policy.Source, environment string) rulebook {
	sources = slices.Clone(sources)
	for i := range sources {
		sources[i].Actions, sources[i].Invalid = maps.Clone(sources[i].Actions), maps.Clone(sources[i].Invalid)
		delete(sources[i].Actions, policy.ChangeAction)
		delete(sources[i].Invalid, policy.ChangeAction)
	}
	b := rulebook{set: policy.NewSet(sources), entries: map[string]policy.Entry{}, environment: environment}
	for _, source := range sources {
		for name, entry := range source.Actions {
			if b.set.Counts(name) {
				b.entries[name] = entry
			}
		}
	}
	return b
}

// evaluate asks the policy. Who proposes is no part of the answer, so any agent will do. It gives nil where no Action can be
// built, where Kubernetes could not store the arguments unchanged, and where no grant covers what needs one.
func (b rulebook) evaluate(name string, arguments map[string]any, resource *string) *Vector {
	if _, stored := action.CheckStored(arguments); !stored {
		return nil
	}
	e, err := b.set.Evaluate(action.Proposal{
		Name: name, Arguments: arguments, Principal: action.Principal{Agent: prefix}, Resource: resource, Environment: b.environment,
	})
	if err != nil {
		return nil
	}
	if !b.covers(e.Proposal) {
		return nil
	}
	v := &Vector{
		ActionType: name, Arguments: arguments, Resource: resource, Decision: e.Decision, Reason: e.Reason, EffectKey: e.EffectKey, Target: e.Proposal.Resource,
	}
	if e.Decision == decision.Approve {
		v.Approvals = e.Entry.Approvals()
	}
	return v
}

// same reports whether the policy answers both in the same way, whatever their keys.
func (v Vector) same(o *Vector) bool {
	return o != nil && v.ActionType == o.ActionType && v.Decision == o.Decision && v.Reason == o.Reason
}

func sameKey(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// with is a copy with one argument more, or another.
func with(arguments map[string]any, name string, value any) map[string]any {
	out := maps.Clone(arguments)
	if out == nil {
		out = map[string]any{}
	}
	out[name] = value
	return out
}

// vary gives n vectors that the policy answers like v, each with an effect key of its own. An action without an effect can be
// proposed as often as one likes, so it is given n times. It fails if the template does not give that many.
func (b rulebook) vary(v Vector, n int) ([]Vector, bool) {
	if v.EffectKey == nil {
		return slices.Repeat([]Vector{v}, n), true
	}
	for _, change := range b.changes(v) {
		seen, out := map[string]bool{}, make([]Vector, 0, n)
		// An integer goes both ways from where it is, for its bound may be on either side.
		for i := 1; len(out) < n && i <= 2*n; i++ {
			varied := change(i)
			if !v.same(varied) || varied.EffectKey == nil || seen[*varied.EffectKey] {
				continue
			}
			seen[*varied.EffectKey] = true
			out = append(out, *varied)
		}
		if len(out) == n {
			return out, true
		}
	}
	return nil, false
}

// changes are the ways to come to another effect key: another value of one placeholder of its template. {resource} stands for
// the placeholders of the resource's template, or, without one, for the resource the agent names.
func (b rulebook) changes(v Vector) []func(i int) *Vector {
	entry := b.entries[v.ActionType]
	names := entry.Effect.Placeholders()
	if at := slices.Index(names, "resource"); at >= 0 && !entry.Resource.IsZero() {
		names = append(slices.Delete(names, at, at+1), entry.Resource.Placeholders()...)
	}
	var changes []func(i int) *Vector
	for _, name := range names {
		changes = append(changes, func(i int) *Vector {
			if _, argument := v.Arguments[name]; !argument && name == "resource" && v.Resource != nil {
				resource := *v.Resource + "-" + strconv.Itoa(i)
				return b.evaluate(v.ActionType, v.Arguments, &resource)
			}
			value, ok := another(v.Arguments[name], i)
			if !ok {
				return nil
			}
			return b.evaluate(v.ActionType, with(v.Arguments, name, value), v.Resource)
		})
	}
	return changes
}

// another is the i-th value beside one, of the same type.
func another(value any, i int) (any, bool) {
	switch x := value.(type) {
	case string:
		return x + "-" + strconv.Itoa(i), true
	case *big.Int:
		step := int64(i+1) / 2
		if i%2 == 0 {
			step = -step
		}
		return new(big.Int).Add(x, big.NewInt(step)), true
	}
	return nil, false
}

// mutate changes one argument so that the policy answers the same about the same effect, and the hash is another. Without an
// argument that allows it, one is added that the policy does not look at.
func (b rulebook) mutate(v Vector) (Vector, bool) {
	for _, name := range slices.Sorted(maps.Keys(v.Arguments)) {
		for i := 1; i <= 2; i++ {
			value, ok := another(v.Arguments[name], i)
			if flag, is := v.Arguments[name].(bool); is {
				value, ok = !flag, true
			}
			if !ok {
				continue
			}
			if m := b.evaluate(v.ActionType, with(v.Arguments, name, value), v.Resource); v.same(m) && sameKey(v.EffectKey, m.EffectKey) {
				return *m, true
			}
		}
	}
	m := b.evaluate(v.ActionType, with(v.Arguments, "ctrlrun_verify_mutated", true), v.Resource)
	if v.same(m) && sameKey(v.EffectKey, m.EffectKey) {
		return *m, true
	}
	return Vector{}, false
}

// absent is the name of an action that no policy names. It is made of those that are named, so that none of them is it. It is not
// under "ctrlrun.": those are the operator's, and admission refuses them to anybody else.
func absent(names []string) (string, error) {
	hash, err := canonical.Hash(names)
	if err != nil {
		return "", fmt.Errorf("name an action that the policy does not have: %w", err)
	}
	const digits = 12
	name := prefix + ".absent." + hash[len("sha256:"):][:digits]
	for slices.Contains(names, name) {
		name += "x"
	}
	return name, nil
}
