package policy

import (
	"slices"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
)

// Past is an action as its receipt remembers it: what was proposed, and what was decided then.
type Past struct {
	// Proposal has the resource that was hashed: if the policy of then had a template for it, what the agent gave is not known.
	Proposal action.Proposal
	Verdict  Verdict
	// EffectKey is nil if the action had none.
	EffectKey *string
}

// Verdict is an answer of a policy.
type Verdict struct {
	Decision decision.Decision
	Reason   decision.Reason
	// Approvals is how many people have to approve; 0 if nobody has to, or nobody was asked.
	Approvals int
}

// Replay is what a Set says about a past action.
type Replay struct {
	Then, Now Verdict
	// KeyThen and KeyNow are the effect keys; nil if there is none, or it cannot be computed.
	KeyThen, KeyNow *string
	// ResourceThen and ResourceNow are what is hashed; nil if there is none.
	ResourceThen, ResourceNow *string
	// Counts says that an entry of the Set answered: without one the action is denied whatever its key.
	Counts bool
	// Message is that of the Evaluation, or why no action can be built.
	Message string
}

// ByPolicy reports whether a decision for this reason is one of a policy. The others come from limits, people or the state of
// things, and no policy would decide them otherwise.
func ByPolicy(r decision.Reason) bool {
	switch r {
	case decision.PlainDecision, decision.NoMatchingRule, decision.UnknownAction, decision.PolicyConflict, decision.PolicyInvalid,
		decision.EffectKeyError, decision.ResourceError, decision.ArgumentsTooLarge:
		return true
	}
	return slices.Contains(rules(), r)
}

func rules() []decision.Reason {
	out := make([]decision.Reason, MaxRules)
	for i := range out {
		out[i] = decision.Rule(i)
	}
	return out
}

// Replay evaluates a past action. It decides nothing and asks nobody.
func (s *Set) Replay(p Past) Replay {
	r := Replay{Then: p.Verdict, KeyThen: p.EffectKey, ResourceThen: p.Proposal.Resource}
	e, err := s.Evaluate(p.Proposal)
	if err != nil {
		// No action can be built, which is how the operator denies it too.
		r.Now = Verdict{Decision: decision.Deny, Reason: decision.ResourceError}
		if action.CheckSize(p.Proposal.Arguments) != nil {
			r.Now.Reason = decision.ArgumentsTooLarge
		}
		r.ResourceNow, r.Message = r.ResourceThen, err.Error()
		return r
	}
	r.Now = Verdict{Decision: e.Decision, Reason: e.Reason}
	if e.Decision == decision.Approve {
		r.Now.Approvals = e.Entry.Approvals()
	}
	r.KeyNow, r.ResourceNow, r.Counts, r.Message = e.EffectKey, e.Proposal.Resource, e.Entry != nil, e.Message
	return r
}

// Decided reports whether the answer is another one: the decision, or how many people it asks.
func (r Replay) Decided() bool {
	return r.Then.Decision != r.Now.Decision || r.Then.Approvals > 0 && r.Now.Approvals > 0 && r.Then.Approvals != r.Now.Approvals
}

// Rerouted reports whether the same answer comes for another reason, such as another rule.
func (r Replay) Rerouted() bool { return !r.Decided() && r.Then.Reason != r.Now.Reason }

// Freed reports whether what blocked a second attempt then blocks none now: the same proposal has another key, or none. An
// action that is denied because its key cannot be computed is not freed.
func (r Replay) Freed() bool {
	return r.KeyThen != nil && r.Counts && r.Now.Reason != decision.EffectKeyError && !same(r.KeyThen, r.KeyNow)
}

// Rehashed reports whether the same proposal is another action now, so that approvals for it do not fit any more.
func (r Replay) Rehashed() bool { return r.Counts && !same(r.ResourceThen, r.ResourceNow) }

func same(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// TemplateKind says what a template makes.
type TemplateKind string

const (
	// EffectTemplate makes the key under which an effect happens once.
	EffectTemplate TemplateKind = "effect"
	// ResourceTemplate makes the resource that is hashed.
	ResourceTemplate TemplateKind = "resource"
)

// TemplateChange is an action whose template is another one; "" stands for none.
type TemplateChange struct {
	Action    string
	Kind      TemplateKind
	Then, Now string
}

// TemplateChanges are the templates that differ in two sets, for actions that have an entry which counts in both.
func TemplateChanges(then, now *Set) []TemplateChange {
	var changes []TemplateChange
	for _, name := range then.names {
		before, after := then.slots[name], now.slots[name]
		if _, known := now.slots[name]; !known || before.reason != "" || after.reason != "" {
			continue
		}
		if x, y := before.entry.Effect.String(), after.entry.Effect.String(); x != y {
			changes = append(changes, TemplateChange{Action: name, Kind: EffectTemplate, Then: x, Now: y})
		}
		if x, y := before.entry.Resource.String(), after.entry.Resource.String(); x != y {
			changes = append(changes, TemplateChange{Action: name, Kind: ResourceTemplate, Then: x, Now: y})
		}
	}
	return changes
}

// Removed are the actions that only the first set names. Every proposal of them is denied by the second.
func Removed(then, now *Set) []string {
	var removed []string
	for _, name := range then.names {
		if _, known := now.slots[name]; !known {
			removed = append(removed, name)
		}
	}
	return removed
}

// Counts reports whether the set has an entry for an action that decides: none that is invalid, or contradicts another one.
func (s *Set) Counts(name string) bool {
	found, known := s.slots[name]
	return known && found.reason == ""
}
