package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

// ChangeAction is the action by which a change of a policy or a grant is put to people. No decision lets it run without them.
const ChangeAction = "ctrlrun.policy.change"

// Change is what people are asked: that one object, as it was when they were asked, becomes another, or goes.
type Change struct {
	// Kind and Name are those of the object.
	Kind, Name string
	// From is the hash of what it was; "": there was none. To is that of what it becomes; "": it goes.
	From, To string
	// TargetUID and TargetGeneration are those of the object that was compared.
	TargetUID        string
	TargetGeneration int64
	// Proposal, ProposalUID and Generation name the revision that proposes it.
	Proposal, ProposalUID string
	Generation            int64
}

// Operation is create, update or delete, for policies that decide about them differently.
func (c Change) Operation() string {
	switch {
	case c.From == "":
		return "create"
	case c.To == "":
		return "delete"
	}
	return "update"
}

// Resource is what the change is of, as grants name it.
func (c Change) Resource() string { return "policy:" + c.Kind + "/" + c.Name }

// Arguments are the change as the arguments of its action. They are hashed, so that a yes is to this change and no other.
func (c Change) Arguments() map[string]any {
	hash := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{
		"operation": c.Operation(), "kind": c.Kind, "name": c.Name, "from": hash(c.From), "to": hash(c.To),
		"target_uid": hash(c.TargetUID), "target_generation": c.TargetGeneration,
		"proposal": c.Proposal, "proposal_uid": c.ProposalUID, "generation": c.Generation,
	}
}

// ReadChange reads the arguments of such an action.
func ReadChange(arguments []byte) (Change, error) {
	var a struct {
		Kind             string `json:"kind"`
		Name             string `json:"name"`
		From             string `json:"from"`
		To               string `json:"to"`
		TargetUID        string `json:"target_uid"`
		TargetGeneration int64  `json:"target_generation"`
		Proposal         string `json:"proposal"`
		ProposalUID      string `json:"proposal_uid"`
		Generation       int64  `json:"generation"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return Change{}, fmt.Errorf("these are no arguments of %s: %w", ChangeAction, err)
	}
	return Change{
		Kind: a.Kind, Name: a.Name, From: a.From, To: a.To, TargetUID: a.TargetUID, TargetGeneration: a.TargetGeneration,
		Proposal: a.Proposal, ProposalUID: a.ProposalUID, Generation: a.Generation,
	}, nil
}

// ContentHash is the hash of the spec of an ActionPolicy or a Grant, as canonical values. Order of keys and white space do not
// move it.
func ContentHash(kind string, spec any) (string, error) {
	h, err := canonical.Hash(map[string]any{"schema": "ctrlrun.policy-content/v1", "kind": kind, "spec": spec})
	if err != nil {
		return "", fmt.Errorf("the content has no hash: %w", err)
	}
	return h, nil
}

// Target is what a change is about, as it is now.
type Target struct {
	Present    bool
	UID        string
	Generation int64
	Hash       string
}

// Stands reports whether the target is still what people were asked about. Of the same hash is not enough: it may have been
// another in between.
func (c Change) Stands(t Target) bool {
	if c.From == "" {
		return !t.Present
	}
	return t.Present && t.UID == c.TargetUID && t.Generation == c.TargetGeneration && t.Hash == c.From
}

// Made reports whether the target is what the change makes of it.
func (c Change) Made(t Target) bool {
	if c.To == "" {
		return !t.Present
	}
	return t.Present && t.Hash == c.To
}

// ChangeStep is what is to be done about a change that was approved.
type ChangeStep string

const (
	// ChangeWrite: write it.
	ChangeWrite ChangeStep = "write"
	// ChangeMade: it was written.
	ChangeMade ChangeStep = "made"
	// ChangeStale: it was never written, and is not to be: the target is no longer what people were asked about.
	ChangeStale ChangeStep = "stale"
	// ChangeUnknown: it may have been written, and the target is neither what it was nor what it was to become.
	ChangeUnknown ChangeStep = "unknown"
)

// Next says what is to be done. begun says that a write may have been sent, by whomever; it is put on record before the first is.
// A write is made for exactly the version that stands, so that one that is sent twice, or comes late, changes nothing a second time; but
// a create does, if what it made was deleted in between.
func (c Change) Next(t Target, begun bool) ChangeStep {
	switch {
	case c.Stands(t):
		return ChangeWrite
	case !begun:
		return ChangeStale
	case c.Made(t):
		return ChangeMade
	}
	return ChangeUnknown
}

// unapproved refuses to let a change of policies run without people, whatever the policy says.
func (s *Set) unapproved(e Evaluation) string {
	return bounded(fmt.Sprintf("Policy %s says allow for %s, and a change of policies is applied only after people said yes. %s Let the policy say approve.", quoted(e.Policy.Name), quoted(e.Proposal.Name), nothing))
}

// changes warns about an entry for ChangeAction that cannot do what it says, or does not hold what it could.
func (p *parser) changes(name string, e Entry, path string) {
	if name != ChangeAction {
		return
	}
	if e.decides(decision.Allow) {
		p.warn(path, "allow is never followed for this action: a change of policies needs people (policy_change_unapproved); decide approve")
	}
	if p.templates && !e.Effect.IsZero() && !slices.Contains(e.Effect.Placeholders(), "generation") {
		p.warn(child(path, "effect"), "revisions of one proposal share this key, so that only the first could ever be applied; write policy:{proposal_uid}:{generation}")
	}
}
