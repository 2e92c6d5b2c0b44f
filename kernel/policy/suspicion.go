package policy

import (
	"maps"
	"math/big"
	"slices"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/grammar"
)

// suspicions warns about what is valid and hardly meant.
func (p *parser) suspicions(e Entry, path string) {
	runs := e.decides(decision.Allow, decision.Approve)
	if p.templates {
		switch {
		case e.Effect.IsZero() && runs:
			p.warn(path, "this action can run and has no effect template, so nothing keeps it from running twice; add effect, unless it only reads")
		case !e.Effect.IsZero() && len(e.Effect.Placeholders()) == 0:
			p.warn(child(path, "effect"), "the template names no argument, so every proposal of this action is one and the same effect, which can be committed only once; add a placeholder")
		}
	}
	if !e.decides(decision.Approve) {
		if e.ApprovalsRequired > 0 {
			p.warn(child(path, "approvalsRequired"), "nobody is ever asked: no decision of this entry is approve; remove it, or decide approve")
		}
		if len(e.ApproverGroups) > 0 {
			p.warn(child(path, "approverGroups"), "nobody is ever asked: no decision of this entry is approve; remove it, or decide approve")
		}
	}
	if e.MaxAttempts > 0 && e.Effect.IsZero() {
		p.warn(child(path, "maxAttempts"), "attempts are counted by effect key, and this entry has no effect template, so the limit has no effect; add effect")
	}
	if e.ResolutionsRequired > 0 && e.Effect.IsZero() {
		p.warn(child(path, "resolutionsRequired"), "what is resolved is the record of an effect, and this entry has no effect template, so nobody is ever asked; add effect")
	}
	for i, r := range e.Rules {
		at := element(child(path, "rules"), i)
		if earlier := slices.IndexFunc(e.Rules[:i], func(r Rule) bool { return !r.HasWhen }); earlier >= 0 {
			p.warn(at, "this rule never matches, because rules[%d] before it has no when and matches always; move it up or remove it", earlier)
			continue
		}
		if !r.HasWhen {
			continue
		}
		if earlier := slices.IndexFunc(e.Rules[:i], func(o Rule) bool { return o.When.Equal(r.When) }); earlier >= 0 {
			p.warn(at, "this rule never matches, because rules[%d] before it has the same conditions; remove one of them", earlier)
			continue
		}
		p.unmatchable(r, child(at, "when"))
		if r.Decision != decision.Deny {
			p.negatives(r, e.Rules[:i], child(at, "when"))
		}
	}
}

func (p *parser) unmatchable(r Rule, path string) {
	ranges := r.When.Ranges()
	for _, argument := range slices.Sorted(maps.Keys(ranges)) {
		if ranges[argument].Empty() {
			p.warn(path, "this rule never matches, because no integer is within the bounds of %s; correct them", argument)
		}
	}
	for _, c := range r.When.List() {
		if l, ok := c.Operand().([]any); ok && c.Operator() == grammar.In && len(l) == 0 {
			p.warn(child(path, c.Key()), "this rule never matches, because nothing is in an empty list; fill the list or remove the rule")
		}
	}
}

// negatives warns of an upper bound alone: amount_lte: 500 lets -1000000 pass as well.
func (p *parser) negatives(r Rule, earlier []Rule, path string) {
	minusOne := big.NewInt(-1)
	ranges := r.When.Ranges()
	for _, argument := range slices.Sorted(maps.Keys(ranges)) {
		bounds := ranges[argument]
		if bounds.High == nil || bounds.Low != nil || pinned(r.When, argument) {
			continue
		}
		// An earlier rule that takes all negatives, such as amount_lt: 0 for deny, leaves none for this one.
		taken := slices.ContainsFunc(earlier, func(o Rule) bool {
			list := o.When.List()
			b := o.When.Ranges()[argument]
			return len(list) == 1 && b.High != nil && b.Low == nil && b.High.Cmp(minusOne) >= 0
		})
		if !taken {
			p.warn(path, "%s has an upper bound only, so negative numbers pass; add %s_gte: 0", argument, argument)
		}
	}
}

// pinned reports whether the conditions name the possible values of the argument.
func pinned(c grammar.Conditions, argument string) bool {
	return slices.ContainsFunc(c.List(), func(one grammar.Condition) bool {
		return one.Argument() == argument && (one.Operator() == grammar.Eq || one.Operator() == grammar.In)
	})
}
