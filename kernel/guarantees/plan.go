package guarantees

import (
	"fmt"
	"maps"
	"slices"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// Processes is how many processes ask for one effect at once.
const Processes = 8

// keys is how many different effects an action has to give to be driven: more than all plans together take, so that there are
// some left whoever has the others, and what one guarantee does to an effect is never in the way of another.
const keys = 64

// MaxAttempts is how often one effect is attempted at most. A ceiling that is higher is not driven.
const MaxAttempts = 10

// Tries is how often something is tried again that a slow machine did too late.
const Tries = 3

// Plan is what to drive for one guarantee, or why the policy gives no occasion for it.
type Plan struct {
	Guarantee Guarantee
	// NotApplicable is a true sentence about the documents of the user, or about what is verified; "" if the guarantee is checked.
	// Then the rest is set.
	NotApplicable string
	// Vectors are what is driven: as many as the guarantee needs, of one action, all answered in the same way. Each has an effect
	// of its own that no other plan has, if the action has any.
	Vectors []Vector
	// Mutated differs from the first of them in its hash only. G1 alone has one.
	Mutated *Vector
	// Ceiling is how often the effect may be attempted. G15 alone has one.
	Ceiling int
	// Groups are those of which an approver of the action has to be in one. G17 alone has them, and only if the policy names some.
	Groups []string
	// Grant is the name of the one that covers the vectors. G8 and G9 alone have one.
	Grant string
	// RefusedBy is the reason with which G6 sees an unknown action refused. Where a grant is required and none covers it, that is
	// what is asked first.
	RefusedBy decision.Reason
}

// need is how many effects of its own a guarantee takes.
func need(id ID) int {
	switch id {
	case G4:
		return Processes + 1
	case G8:
		return Tries + 1
	case G10:
		return 5
	case G5, G16, G17, G20:
		return 2
	}
	return 1
}

// choice is what a guarantee would drive, by which rulebook, or why there is nothing.
type choice struct {
	vector *Vector
	by     rulebook
	reason string
	grant  string
}

// Plans are the plans for all guarantees, in their order. A is nil where nobody needs a grant; proposed says that policies change by
// proposals only. They depend on nothing but the arguments, and never on which of the guarantees somebody wants to see.
func Plans(sources []policy.Source, environment string, a *Authority, proposed bool) ([]Plan, error) {
	b := newRulebook(sources, environment)
	policyOnly := b
	if a != nil {
		var err error
		b.required = true
		if b.grants, err = grantsFor(a); err != nil {
			return nil, err
		}
	}
	unknown, err := absent(b.set.Names())
	if err != nil {
		return nil, err
	}
	choices, listed := b.choices(a, policyOnly)
	taken := map[string]bool{} // keys that plans have; actions may share a template, and rules an action, so it is of all of them
	if listed != nil && listed.EffectKey != nil {
		taken[*listed.EffectKey] = true
	}
	var plans []Plan
	for _, g := range All() {
		c := choices[g.ID]
		p := Plan{Guarantee: g, NotApplicable: c.reason}
		if c.vector != nil {
			p.Grant = c.grant
			if err := c.by.complete(&p, *c.vector, taken); err != nil {
				return nil, err
			}
		}
		switch g.ID {
		case G6:
			p.RefusedBy = decision.UnknownAction
			if !b.covers(action.Proposal{Name: unknown, Arguments: map[string]any{}, Principal: action.Principal{Agent: prefix}, Environment: environment}) {
				p.RefusedBy = decision.NoAuthority
			}
		case G15:
			if c.vector != nil {
				p.Ceiling = b.entries[c.vector.ActionType].MaxAttempts
			}
		case G17:
			if c.vector != nil {
				p.Groups = slices.Clone(b.entries[c.vector.ActionType].ApproverGroups)
			}
		}
		if g.ID == G21 && proposed {
			// It is refused before any policy is asked.
			p.NotApplicable, p.Vectors = "", []Vector{{ActionType: policy.ChangeAction, Arguments: map[string]any{}}}
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// choices are what each guarantee would drive, and what G6 does, which is proposed as it is.
func (b rulebook) choices(a *Authority, policyOnly rulebook) (map[ID]choice, *Vector) {
	asked := func(entry func(policy.Entry) bool) *Vector {
		return b.first(func(name string) (Vector, bool) {
			if !entry(b.entries[name]) {
				return Vector{}, false
			}
			return b.repeatable(name, decision.Approve)
		})
	}
	of := func(v *Vector, reason string) choice { return choice{vector: v, by: b, reason: reason} }
	runnable := b.first(b.runnable)
	approved := of(asked(func(policy.Entry) bool { return true }), b.noneAsks())
	byGroup := approved
	if v := asked(func(e policy.Entry) bool { return len(e.ApproverGroups) > 0 }); v != nil {
		byGroup = of(v, "")
	}
	several := func(e policy.Entry) bool { return e.Approvals() > 1 }
	effect := of(b.first(b.withEffect(1, 0)), b.noneHasEffect(1))
	retried := of(b.first(b.withEffect(2, 0)), b.noneHasEffect(2))
	listed := b.first(b.listed)
	receipt := of(runnable, "the policy lists no action, so no action of it can leave a receipt")
	if receipt.vector == nil {
		receipt.vector = listed
	}
	if v := policyOnly.first(policyOnly.listed); receipt.vector == nil && v != nil {
		// No grant covers it, and a denial leaves a receipt too.
		v.Decision, v.Approvals = decision.Deny, 0
		receipt.vector, receipt.by = v, policyOnly
	}
	return map[ID]choice{
		G1: approved, G2: approved, G3: effect, G4: effect, G5: retried,
		G6:  of(listed, b.noneListed()),
		G7:  of(runnable, b.noneRuns("no action in the policy can run at all")),
		G8:  b.expiring(a),
		G9:  b.delegable(a),
		G10: of(runnable, b.noneRuns("every action in the policy is denied")),
		G11: receipt,
		G12: {reason: "ctrlrun calls no system that an action acts on: agents execute and report themselves, so it has no transport that could be lost"},
		G13: {reason: "the operator compares its own clock with that of the apiserver, and neither can be set from outside"},
		G14: retried,
		G15: of(b.first(b.withEffect(1, MaxAttempts)), b.noneHasCeiling()),
		G16: approved, G17: byGroup, G18: approved,
		G19: of(asked(several), b.noneAsksSeveral(several)),
		G20: approved,
		G21: {reason: "no Settings of the namespace say `policyChanges: Proposed`, so whoever may write policies changes what is decided"},
	}, listed
}

// byGrant is the first of the grants, by name, that lets something be driven, and what.
func (b rulebook) byGrant(is func(grant) bool, none, undriven string) choice {
	c := choice{reason: none}
	for _, g := range b.grants {
		if !is(g) {
			continue
		}
		c.reason = undriven
		under := b.under(g)
		if v := under.first(under.runnable); v != nil {
			return choice{vector: v, by: under, grant: g.name}
		}
	}
	return c
}

func (b rulebook) expiring(a *Authority) choice {
	if a == nil {
		return choice{reason: "no Settings of the namespace say `authority: Required`, so nobody needs a grant that could expire"}
	}
	return b.byGrant(func(g grant) bool { return g.Grant.Expiration != nil }, "no grant declares an expirationTime",
		"no grant that declares an expirationTime covers an action that can be driven")
}

func (b rulebook) delegable(a *Authority) choice {
	switch {
	case a == nil:
		return choice{reason: "no Settings of the namespace say `authority: Required`, so nobody needs what could be handed on"}
	case a.MaxDepth == 0:
		return choice{reason: "the Settings say maxDelegationDepth 0, so nothing can be handed on"}
	}
	return b.byGrant(func(g grant) bool { return g.Delegable }, "no grant is delegable", "no grant that is delegable covers an action that can be driven")
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

// withEffect drives an action that has an effect key and may be attempted at least so often, and, if most is given, has a ceiling
// that is no higher.
func (b rulebook) withEffect(attempts, most int) func(name string) (Vector, bool) {
	return func(name string) (Vector, bool) {
		ceiling := b.entries[name].MaxAttempts
		if ceiling > 0 && ceiling < attempts || most > 0 && (ceiling == 0 || ceiling > most) {
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
	arguments, resource := fill(b.entries[name], map[string]any{}, target{})
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

func (b rulebook) noneAsksSeveral(several func(policy.Entry) bool) string {
	if !b.any(func(e policy.Entry) bool { return several(e) && decides(e, decision.Approve) }) {
		return "no action asks more than one person"
	}
	return b.undriven("asks more than one person")
}

func (b rulebook) noneHasCeiling() string {
	limited := func(e policy.Entry) bool { return !e.Effect.IsZero() && e.MaxAttempts > 0 && runs(e) }
	switch {
	case !b.any(limited):
		return "no action that can run declares both an `effect:` template and maxAttempts"
	case !b.any(func(e policy.Entry) bool { return limited(e) && e.MaxAttempts <= MaxAttempts }):
		return fmt.Sprintf("every maxAttempts is above %d, and no effect is attempted more often here", MaxAttempts)
	}
	return b.undriven("declares both an `effect:` template and maxAttempts")
}

func (b rulebook) noneListed() string {
	if !b.required || len(b.entries) == 0 {
		return "the policy lists no action, so an unknown action is indistinguishable from a known one"
	}
	return "no grant covers an action that the policy lists, so an unknown action is indistinguishable from a known one"
}

func (b rulebook) undriven(what string) string {
	text := fmt.Sprintf("no action that %s can be driven: %d combinations of conditions were tried of each, and its effect: template has to give %d keys", what, MaxCandidates, keys)
	if b.required {
		text += "; a grant has to cover it"
	}
	return text
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
