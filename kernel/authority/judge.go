package authority

import (
	"fmt"
	"time"
)

// Judgement is the verdict on a new delegation.
type Judgement struct {
	// Refusal is "" if the delegation is accepted.
	Refusal Refusal
	// Waits says that its parent has no verdict yet, so that there is none of it either.
	Waits bool
	// Dimension is in what it is wider than its parent; only with Containment.
	Dimension Dimension
	// ParentUID is the uid of the parent it was accepted under, to be kept with the verdict.
	ParentUID string
	// Root is the grant it goes back to, and Depth how many steps it is below it; only if it is accepted.
	Root  Ref
	Depth int
	// Message is for people: what was decided, why, and what to do now.
	Message string
}

// Accepted reports whether the delegation holds.
func (j Judgement) Accepted() bool { return j.Refusal == "" && !j.Waits }

// Judge says whether the delegation holds at its creation. The checks have a fixed order, and the first that fails names the
// refusal. Whether d itself is in the set makes no difference, as long as it has no verdict.
func (s *Set) Judge(d DelegationSource, now time.Time) Judgement {
	refuse := func(r Refusal, format string, args ...any) Judgement {
		return Judgement{Refusal: r, Message: bounded(fmt.Sprintf("Delegation %s is refused: ", quoted(d.Name)) + fmt.Sprintf(format, args...))}
	}
	if d.Problem != "" {
		return refuse(Malformed, "its content is not that of a delegation. Correct it, and create it under another name. The error: %s.", d.Problem)
	}
	content := d.Delegation
	if until := content.DelegatorExpires; until != nil && now.After(*until) {
		return refuse(PrincipalExpired, "the credential of %s has ended, as its delegator.expiresTime says. Make it again with one that holds.", person(content.Delegator))
	}
	parent := s.nodes[content.Parent]
	if parent != nil && parent.inert == NotJudged && parent.ref != (Ref{KindDelegation, d.Name}) {
		return Judgement{Waits: true, Message: fmt.Sprintf("Delegation %s waits for the verdict on its parent %s.", quoted(d.Name), parent.ref)}
	}
	if parent == nil || !parent.usable() {
		return refuse(UnknownParent, "%s %s. Name a valid Grant or an accepted Delegation of this namespace; kubectl ctrlrun grants shows them.", content.Parent, absent(parent))
	}
	if why := mismatched(content, parent); why != "" {
		return refuse(BreakGlassMismatch, "%s.", why)
	}
	if !parent.grant.delegable() {
		return refuse(ParentNotDelegable, "%s may not be delegated. Ask whoever gave it for one that is delegable.", parent.ref)
	}
	if why := s.invalid(parent, now); why != "" {
		return refuse(ParentNotValid, "%s. Name a parent that holds; kubectl ctrlrun grants shows them.", why)
	}
	// Who may open an envelope is asked before: admission lets nobody say breakGlass who has not the verb for it.
	if parent.inert != Envelope && !parent.grant.Subject.Match(content.Delegator) {
		return refuse(NotTheSubject, "%s is not the subject of %s, and only its subject hands it on. Ask its subject to delegate.", person(content.Delegator), parent.ref)
	}
	if parent.depth+1 > s.maxDepth {
		return refuse(MaxDepth, "it would be %s below its root, and the limit of this namespace is %d. Delegate from further up, or ask for a higher maxDelegationDepth in the settings.", steps(parent.depth+1), s.maxDepth)
	}
	if dimension, why := uncontained(&parent.grant, &content.Grant); why != "" {
		j := refuse(Containment, "it is not within %s (%s): %s.", parent.ref, dimension, why)
		j.Dimension = dimension
		return j
	}
	if why := outsideEnvelope(&content.Grant, parent); why != "" {
		j := refuse(Containment, "it is not within %s (%s): %s.", parent.ref, DimensionSubject, why)
		j.Dimension = DimensionSubject
		return j
	}
	if why := tooLong(&d, parent); why != "" {
		return refuse(BreakGlassTooLong, "%s.", why)
	}
	return Judgement{ParentUID: parent.uid, Root: parent.root.ref, Depth: parent.depth + 1,
		Message: fmt.Sprintf("It holds, %s below %s.", steps(parent.depth+1), parent.root.ref)}
}

// invalid is why nothing can be delegated from n at now; "" if something can. How deep n is, is asked later.
func (s *Set) invalid(n *node, now time.Time) string {
	if n.unreadable || !n.cycle.IsZero() {
		return fmt.Sprintf("its parent %s cannot be used: its chain runs into itself", n.ref)
	}
	switch f := n.chainFault(max(n.depth, s.maxDepth), now); {
	case f.reason != "":
		return fmt.Sprintf("its parent %s no longer holds: %s", n.ref, n.cause(f))
	case n.grant.expired(now):
		return fmt.Sprintf("its parent %s has expired", n.ref)
	}
	return ""
}
