package guarantees

import (
	"fmt"
	"maps"
	"slices"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// Processes is how many processes ask for one effect at once.
const Processes = 8

// keys is how many different effects an action has to give to be driven: more than all plans together take, so that there are
// some left whoever has the others, and what one guarantee does to an effect is never in the way of another.
const keys = 32

// Plan is what to drive for one guarantee, or why the policy gives no occasion for it.
type Plan struct {
	Guarantee Guarantee
	// NotApplicable is a true sentence about the policy; "" if the guarantee is checked. Then the rest is set.
	NotApplicable string
	// Vectors are what is driven: as many as the guarantee needs, of one action, all answered in the same way. Each has an effect
	// of its own that no other plan has, if the action has any.
	Vectors []Vector
	// Mutated differs from the first of them in its hash only. G1 alone has one.
	Mutated *Vector
}

// need is how many effects of its own a guarantee takes.
func need(id ID) int {
	switch id {
	case G4:
		return Processes + 1
	case G5:
		return 2
	case G10:
		return 5
	}
	return 1
}

// Plans are the plans for all guarantees, in their order. They depend on nothing but the arguments, and never on which of the
// guarantees somebody wants to see.
func Plans(sources []policy.Source, environment string) ([]Plan, error) {
	b := newRulebook(sources, environment)
	runnable := b.first(b.runnable)
	approved, reasonApproved := b.first(func(name string) (Vector, bool) { return b.repeatable(name, decision.Approve) }), b.noneAsks()
	effect, reasonEffect := b.first(b.withEffect(1)), b.noneHasEffect(1)
	retried, reasonRetried := b.first(b.withEffect(2)), b.noneHasEffect(2)
	listed := b.first(b.listed)
	taken := map[string]bool{} // keys that plans have; actions may share a template, and rules an action, so it is of all of them
	if listed != nil && listed.EffectKey != nil {
		taken[*listed.EffectKey] = true
	}
	var plans []Plan
	for _, g := range All() {
		p := Plan{Guarantee: g}
		var found *Vector
		switch g.ID {
		case G1, G2:
			found, p.NotApplicable = approved, reasonApproved
		case G3, G4:
			found, p.NotApplicable = effect, reasonEffect
		case G5:
			found, p.NotApplicable = retried, reasonRetried
		case G7:
			found, p.NotApplicable = runnable, b.noneRuns("no action in the policy can run at all")
		case G10:
			found, p.NotApplicable = runnable, b.noneRuns("every action in the policy is denied")
		case G6:
			found, p.NotApplicable = listed, "the policy lists no action, so an unknown action is indistinguishable from a known one"
		case G11:
			found, p.NotApplicable = listed, "the policy lists no action, so no action of it can leave a receipt"
			if runnable != nil {
				found = runnable
			}
		}
		if found != nil {
			if err := b.complete(&p, *found, taken); err != nil {
				return nil, err
			}
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// complete gives a plan its vectors.
func (b rulebook) complete(p *Plan, v Vector, taken map[string]bool) error {
	p.NotApplicable = ""
	all, varies := b.vary(v, keys)
	switch {
	case p.Guarantee.ID == G6, v.Decision == decision.Deny, !varies:
		// It is proposed as it is: once, and in G6 nobody executes it.
		p.Vectors = []Vector{v}
	default:
		p.Vectors = free(all, need(p.Guarantee.ID), taken)
	}
	if n := need(p.Guarantee.ID); len(p.Vectors) != n {
		return fmt.Errorf("action %q gives %d effects that nothing else needs, and %s takes %d", v.ActionType, len(p.Vectors), p.Guarantee.ID, n)
	}
	if p.Guarantee.ID != G1 {
		return nil
	}
	mutated, ok := b.mutate(p.Vectors[0])
	if !ok {
		return fmt.Errorf("action %q cannot be changed so that the policy answers the same", v.ActionType)
	}
	p.Mutated = &mutated
	return nil
}

// free are the first n vectors whose key nobody has, and takes their keys.
func free(all []Vector, n int, taken map[string]bool) []Vector {
	var out []Vector
	for _, v := range all {
		if len(out) == n {
			break
		}
		if v.EffectKey != nil {
			if taken[*v.EffectKey] {
				continue
			}
			taken[*v.EffectKey] = true
		}
		out = append(out, v)
	}
	return out
}

// first is the first action, by name, that gives a vector.
func (b rulebook) first(of func(name string) (Vector, bool)) *Vector {
	for _, name := range b.set.Names() {
		if v, ok := of(name); ok {
			return &v
		}
	}
	return nil
}

// repeatable drives an action that can be proposed again and again: each time as another effect, if it has any.
func (b rulebook) repeatable(name string, want decision.Decision) (Vector, bool) {
	v, ok := b.drive(name, want)
	if !ok {
		return Vector{}, false
	}
	_, ok = b.vary(v, keys)
	return v, ok
}

// runnable prefers what nobody has to be asked about.
func (b rulebook) runnable(name string) (Vector, bool) {
	if v, ok := b.repeatable(name, decision.Allow); ok {
		return v, true
	}
	return b.repeatable(name, decision.Approve)
}

// withEffect drives an action that has an effect key and may be attempted at least so often.
func (b rulebook) withEffect(attempts int) func(name string) (Vector, bool) {
	return func(name string) (Vector, bool) {
		if ceiling := b.entries[name].MaxAttempts; ceiling > 0 && ceiling < attempts {
			return Vector{}, false
		}
		v, ok := b.runnable(name)
		return v, ok && v.EffectKey != nil
	}
}

// listed is what the policy answers to an action that it names, whatever that is.
func (b rulebook) listed(name string) (Vector, bool) {
	if v, ok := b.runnable(name); ok {
		return v, true
	}
	arguments, resource := fill(b.entries[name], map[string]any{})
	v := b.evaluate(name, arguments, resource)
	if v == nil {
		return Vector{}, false
	}
	return *v, true
}

// Reasons why a guarantee is not applicable. Each is true of the policy as it is written.

func (b rulebook) noneAsks() string {
	if !b.any(func(e policy.Entry) bool { return decides(e, decision.Approve) }) {
		return "no action requires approval"
	}
	return b.undriven("requires approval")
}

func (b rulebook) noneRuns(reason string) string {
	if !b.any(runs) {
		return reason
	}
	return b.undriven("can run")
}

func (b rulebook) noneHasEffect(attempts int) string {
	declared := func(e policy.Entry) bool { return !e.Effect.IsZero() }
	switch {
	case !b.any(declared):
		return "no action declares an `effect:` template, so nothing keeps one from being executed twice"
	case !b.any(func(e policy.Entry) bool { return declared(e) && runs(e) }):
		return "every action that declares an `effect:` template is denied"
	case !b.any(func(e policy.Entry) bool {
		return declared(e) && runs(e) && (e.MaxAttempts == 0 || e.MaxAttempts >= attempts)
	}):
		return fmt.Sprintf("every action that declares an `effect:` template has maxAttempts below %d, so no retry is ever admitted", attempts)
	}
	return b.undriven("declares an `effect:` template")
}

func (b rulebook) undriven(what string) string {
	return fmt.Sprintf("no action that %s can be driven: %d combinations of conditions were tried of each, and its effect: template has to give %d keys", what, MaxCandidates, keys)
}

func (b rulebook) any(is func(policy.Entry) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(b.entries)), is)
}

func runs(e policy.Entry) bool { return decides(e, decision.Allow) || decides(e, decision.Approve) }

func decides(e policy.Entry, d decision.Decision) bool {
	return e.Decision == d || slices.ContainsFunc(e.Rules, func(r policy.Rule) bool { return r.Decision == d })
}

// Absent is an action type that none of the policies names.
func Absent(sources []policy.Source) (string, error) {
	return absent(policy.NewSet(sources).Names())
}
