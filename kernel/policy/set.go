package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

// Source is one policy as a member of a Set.
type Source struct {
	// Name is what messages and receipts call it: the name of the object, or the file.
	Name string
	// Version is the free text it carries.
	Version string
	// Generation is that of the object; 0 for a file.
	Generation int64
	// RulesHash is the hash of its actions.
	RulesHash string
	// Actions are its valid entries.
	Actions map[string]Entry
	// Invalid are the actions that it names and that are denied because it is invalid, each with a message that names a
	// field path. The name "" stands for actions that could not even be named.
	Invalid map[string]string
	// Resolutions is how many people have to say the same of an effect, by action, of each entry of which that can be read, whatever
	// else is wrong with it or its policy.
	Resolutions map[string]int
}

// NewSource judges an ActionPolicy object. One error makes the whole policy invalid, and an invalid policy denies every action it
// names: half of a policy is not what its author wrote. The findings are those of ParseActions.
func NewSource(name, version string, generation int64, actions any) (Source, []Finding) {
	s := Source{Name: name, Version: version, Generation: generation}
	entries, findings := ParseActions(actions)
	if h, err := RulesHash(actions); err == nil {
		s.RulesHash = h
	}
	s.Resolutions = resolutions(entries)
	readResolutions(actions, s.Resolutions)
	i := slices.IndexFunc(findings, func(f Finding) bool { return !f.Warning })
	if i < 0 {
		s.Actions = entries
		return s, findings
	}
	wrong := 0
	for _, f := range findings {
		if !f.Warning {
			wrong++
		}
	}
	tell := func(f Finding) string {
		if wrong == 1 {
			return "spec." + f.String()
		}
		return fmt.Sprintf("spec.%s (one of %d errors)", f, wrong)
	}
	first := tell(findings[i])
	s.Invalid = map[string]string{}
	if m, ok := actions.(map[string]any); ok {
		for action := range m {
			s.Invalid[action] = first
		}
	}
	if len(s.Invalid) == 0 {
		s.Invalid[""] = first
	}
	// An action with an error of its own is better told about that one.
	for _, f := range slices.Backward(findings) {
		if action, ok := actionOf(f.Path); ok && !f.Warning {
			s.Invalid[action] = tell(f)
		}
	}
	return s, findings
}

// Source is the document as a member of a Set, under the name of the object or, if it has none, the one given.
func (d Document) Source(name string) Source {
	if d.Name != "" {
		name = d.Name
	}
	h, _ := RulesHash(d.actions()) // entries were read from canonical values
	return Source{Name: name, Version: d.Version, RulesHash: h, Actions: d.Actions, Resolutions: resolutions(d.Actions)}
}

func resolutions(entries map[string]Entry) map[string]int {
	out := make(map[string]int, len(entries))
	for name, e := range entries {
		out[name] = e.Resolutions()
	}
	return out
}

// readResolutions adds the numbers of entries that have an error: a mistake elsewhere in an entry must not make it fewer people.
func readResolutions(actions any, into map[string]int) {
	named, _ := actions.(map[string]any)
	for name, raw := range named {
		entry, ok := raw.(map[string]any)
		if _, have := into[name]; have || !ok {
			continue
		}
		said, says := entry["resolutionsRequired"]
		if !says {
			into[name] = 1
			continue
		}
		if n, ok := canonical.Integer(said); ok && n != nil && n.IsInt64() && n.Int64() >= 1 && n.Int64() <= MaxResolutionsRequired {
			into[name] = int(n.Int64())
		}
	}
}

// Ref names the policy that decided.
type Ref struct {
	Name       string
	Generation int64
	RulesHash  string
	Version    string
}

// Set is the union of policies. It is not changed after NewSet, so it may be shared.
type Set struct {
	slots     map[string]slot
	names     []string
	sources   int
	namespace string
	// unnamed are messages of invalid policies whose actions could not be named.
	unnamed []string
	// resolutions are the highest numbers that can be read.
	resolutions map[string]int
	// unread are the actions that a policy names with a number nobody can read.
	unread map[string]bool
}

// slot is what the union says about one action: an entry, or why there is none that counts.
type slot struct {
	ref         Ref
	entry       Entry
	reason      decision.Reason // "" if the entry counts
	explanation string
}

// NewSet unites sources. An action with an error in any source is denied, and so is one that two sources define differently;
// two identical entries are no conflict, so that an action can move between files.
func NewSet(sources []Source) *Set {
	sources = slices.SortedFunc(slices.Values(sources), func(a, b Source) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.RulesHash, b.RulesHash))
	})
	s := &Set{slots: map[string]slot{}, sources: len(sources), resolutions: map[string]int{}, unread: map[string]bool{}}
	for _, src := range sources {
		for name, n := range src.Resolutions {
			s.resolutions[name] = max(s.resolutions[name], n)
		}
		ref := Ref{Name: src.Name, Generation: src.Generation, RulesHash: src.RulesHash, Version: src.Version}
		for name, message := range src.Invalid {
			if _, read := src.Resolutions[name]; !read {
				s.unread[name] = true
			}
			if name == "" {
				s.unnamed = append(s.unnamed, fmt.Sprintf("Policy %q is invalid: %s.", src.Name, message))
				continue
			}
			if s.slots[name].reason != decision.PolicyInvalid {
				s.slots[name] = slot{ref: ref, reason: decision.PolicyInvalid, explanation: message}
			}
		}
		for name, e := range src.Actions {
			have, taken := s.slots[name]
			switch {
			case !taken:
				s.slots[name] = slot{ref: ref, entry: e}
			case have.reason == "" && !have.entry.Equal(e):
				s.slots[name] = slot{ref: have.ref, reason: decision.PolicyConflict,
					explanation: fmt.Sprintf("policies %q and %q define it differently (%s)", have.ref.Name, src.Name, strings.Join(differences(have.entry, e), ", "))}
			}
		}
	}
	s.names = slices.Sorted(maps.Keys(s.slots))
	return s
}

// Rules are what the set decides by, as canonical values: each action's entry as it was written, and of those that are
// denied because policies contradict each other or are invalid, which of the two.
func (s *Set) Rules() (actions, refused map[string]any) {
	actions, refused = map[string]any{}, map[string]any{}
	for name, slot := range s.slots {
		if slot.reason != "" {
			refused[name] = string(slot.reason)
			continue
		}
		actions[name] = slot.entry.canonical
	}
	return actions, refused
}

// differences are the keys in which two entries differ.
func differences(a, b Entry) []string {
	keys := maps.Clone(a.canonical)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, b.canonical)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		x, inA := a.canonical[k]
		y, inB := b.canonical[k]
		if inA != inB || !equal(x, y) {
			out = append(out, k)
		}
	}
	return out
}

// InNamespace is the same set, with messages that name the namespace it is the policy of.
func (s *Set) InNamespace(namespace string) *Set {
	out := *s
	out.namespace = namespace
	return &out
}

// Names are the actions that the set names, also those that it denies because of an error or a conflict.
func (s *Set) Names() []string { return slices.Clone(s.names) }

// Entry is what decides about an action, nil if nothing counts.
func (s *Set) Entry(action string) *Entry {
	found, ok := s.slots[action]
	if !ok || found.reason != "" {
		return nil
	}
	return &found.entry
}

// Resolutions is how many people have to say the same of an effect of that action before it is settled. It may be read where
// the action is refused: of entries that contradict each other the higher number counts, and of an invalid policy every entry
// of which it can be read. Known is false where there may be a higher one that nobody can read. The action "" is one that
// nobody knows the name of; the highest number of all counts for it.
func (s *Set) Resolutions(action string) (n int, known bool) {
	n, known = 1, true
	for _, name := range s.names {
		if action != "" && name != action {
			continue
		}
		n = max(n, s.resolutions[name])
		known = known && !s.unread[name]
	}
	return n, known && len(s.unnamed) == 0
}

// Evaluation is the answer to one proposal.
type Evaluation struct {
	Decision decision.Decision
	Reason   decision.Reason
	// EffectKey is the resolved effect template, also on deny; nil if there is none, or it could not be resolved.
	EffectKey *string
	// Proposal is the proposal with the resource that was hashed: the policy's, if it has a template for it.
	Proposal action.Proposal
	// Hash is the action hash of Proposal.
	Hash string
	// Policy is the policy that decided; nil if none names the action, or several contradict each other.
	Policy *Ref
	// Entry is the entry that decided; nil if none counts.
	Entry *Entry
	// Message is for people: what was decided, why, and what to do now. It is empty on allow, the same for the same
	// input, and tells no argument's value.
	Message string
}

// Evaluate decides about p. The order is fixed: resource and hash, size of the arguments, effect key, then the rules, so
// that a proposal whose key cannot be computed is denied before any rule could allow it. An error means that there is no
// action to decide about: p is malformed, or the policy's resource template cannot be resolved.
func (s *Set) Evaluate(p action.Proposal) (Evaluation, error) {
	if err := p.Validate(); err != nil {
		return Evaluation{}, err
	}
	found, known := s.slots[p.Name]
	counts := known && found.reason == ""
	if counts && !found.entry.Resource.IsZero() {
		resource, err := found.entry.Resource.ResolveResource(p.Arguments)
		if err != nil {
			return Evaluation{}, fmt.Errorf("policy %q, %s: %w", found.ref.Name, child(child("actions", p.Name), "resource"), err)
		}
		p.Resource = &resource
	}
	hash, err := p.Hash()
	if err != nil {
		return Evaluation{}, err
	}
	e := Evaluation{Proposal: p, Hash: hash}
	if known && found.reason != decision.PolicyConflict {
		e.Policy = &found.ref
	}
	if counts {
		e.Entry = &found.entry
	}
	if err := action.CheckSize(p.Arguments); err != nil {
		return e.deny(decision.ArgumentsTooLarge, s.tooLarge(p, err)), nil
	}
	switch {
	case !known:
		return e.deny(decision.UnknownAction, s.unknown(p)), nil
	case !counts:
		return e.deny(found.reason, s.unusable(p, found)), nil
	}
	if !found.entry.Effect.IsZero() {
		key, err := found.entry.Effect.ResolveEffect(p)
		if err != nil {
			return e.deny(decision.EffectKeyError, s.unresolved(p, found, err)), nil
		}
		e.EffectKey = &key
	}
	return s.decide(e), nil
}

// decide is the policy proper: the entry's decision, or its first matching rule.
func (s *Set) decide(e Evaluation) Evaluation {
	if e.Entry.Decision != "" {
		return s.conclude(e, e.Entry.Decision, decision.PlainDecision)
	}
	for i, r := range e.Entry.Rules {
		if r.When.Match(e.Proposal.Arguments) {
			return s.conclude(e, r.Decision, decision.Rule(i))
		}
	}
	return e.deny(decision.NoMatchingRule, s.unmatched(e))
}

func (s *Set) conclude(e Evaluation, d decision.Decision, reason decision.Reason) Evaluation {
	e.Decision, e.Reason = d, reason
	switch d {
	case decision.Allow:
		if e.Proposal.Name == ChangeAction {
			return e.deny(decision.PolicyChangeUnapproved, s.unapproved(e))
		}
		return e
	case decision.Approve:
		e.Message = s.asks(e)
		return e
	}
	return e.deny(reason, s.denied(e))
}

func (e Evaluation) deny(reason decision.Reason, message string) Evaluation {
	e.Decision, e.Reason, e.Message = decision.Deny, reason, bounded(message)
	return e
}

// resolveError is the template's own error, if err is one.
func resolveError(err error) (*action.ResolveError, bool) {
	return errors.AsType[*action.ResolveError](err)
}
