package authority

import (
	"fmt"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
)

// The messages are read by people on call who did not write the grants. Each says what was decided, why, and what to do now.

// maxMessage is how many characters a message has at most; status.message holds no more.
const maxMessage = 1024

const nothing = "Nothing was executed."

func bounded(s string) string {
	if utf8.RuneCountInString(s) <= maxMessage {
		return s
	}
	return string([]rune(s)[:maxMessage-1]) + "…"
}

func person(p action.Principal) string {
	if p.User == nil {
		return quoted(p.Agent)
	}
	return quoted(p.Agent) + " for " + quoted(*p.User)
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

func absent(n *node) string {
	switch {
	case n == nil:
		return "does not exist"
	case n.inert == Refused:
		return "was refused itself"
	case n.inert == NotJudged:
		return "has no verdict yet"
	}
	return "is invalid"
}

func (n *node) passes(p action.Proposal, r Result) string {
	return bounded(fmt.Sprintf("%s lets %s propose %s%s.", n.ref, person(p.Principal), quoted(p.Name), n.origin(r)))
}

// origin says where a delegation comes from.
func (n *node) origin(r Result) string {
	switch {
	case n.delegation == nil:
		return ""
	case r.BreakGlass:
		return fmt.Sprintf(", %s below %s, whose glass was broken", steps(r.Depth), r.Root)
	}
	return fmt.Sprintf(", %s below %s", steps(r.Depth), r.Root)
}

func (n *node) stands(r Result) string {
	return bounded(fmt.Sprintf("%s holds%s.", n.ref, n.origin(r)))
}

// denied is for a proposal that nothing lets pass and n comes nearest to.
func (n *node) denied(p action.Proposal, f fault) string {
	return bounded(fmt.Sprintf("%s is about %s, but %s. %s %s", n.ref, quoted(p.Name), n.reason(p, f), nothing, remedyOf(f)))
}

// fails is n's part of an explanation.
func (n *node) fails(p action.Proposal, f fault) string {
	return bounded(fmt.Sprintf("It is about %s, but %s. %s", quoted(p.Name), n.reason(p, f), remedyOf(f)))
}

// lapsed is for n by itself.
func (n *node) lapsed(f fault) string {
	return bounded(fmt.Sprintf("It lets nobody propose anything: %s. %s", n.cause(f), remedyOf(f)))
}

func (n *node) reason(p action.Proposal, f fault) string {
	if f.reason == decision.AuthorityConstraint {
		return "its constraints do not hold: " + n.grant.Constraints.Explain(p.Arguments)
	}
	return n.cause(f)
}

func remedyOf(f fault) string {
	switch {
	case f.reason == decision.AuthorityConstraint:
		return "Propose arguments within its constraints, or ask for a grant that is wider."
	case f.reason == decision.AuthorityExpired:
		return "Ask whoever gave it for a new one."
	case f.reason == decision.AuthorityRevoked:
		return "A revocation is not undone; ask for a new delegation if it is still right."
	case !f.missing.IsZero():
		return "Ask for a delegation from something that is there."
	case f.expired != nil:
		return "Renew what has expired, then ask for a new delegation."
	case f.depthExceeded:
		return "Ask for a delegation from further up, or for a higher maxDelegationDepth in the settings."
	}
	return "Ask for a delegation that is within what its parent is now."
}

// cause is what is wrong with n or with its chain, whatever is proposed.
func (n *node) cause(f fault) string {
	switch {
	case f.reason == decision.AuthorityExpired:
		return "it has expired"
	case !f.missing.IsZero():
		return fmt.Sprintf("%s, which it goes back to, is not there or does not hold", f.missing)
	case f.reason == decision.AuthorityRevoked && n.revoked == n:
		return "it was revoked by " + n.revoker()
	case f.reason == decision.AuthorityRevoked:
		return fmt.Sprintf("%s, which it goes back to, was revoked by %s", n.revoked.ref, n.revoker())
	case f.expired != nil:
		return fmt.Sprintf("%s, which it goes back to, has expired", f.expired.ref)
	case f.broken && n.dimension == "":
		return fmt.Sprintf("%s does not fit %s: %s", n.broken.ref, n.broken.parent.ref, n.why)
	case f.broken:
		return fmt.Sprintf("%s is not within %s any more (%s): %s", n.broken.ref, n.broken.parent.ref, n.dimension, n.why)
	case f.depthExceeded:
		return fmt.Sprintf("it is %s below %s, and the limit of this namespace is %d", steps(n.depth), n.root.ref, f.limit)
	case f.closed:
		return fmt.Sprintf("%s may not be delegated any more", n.closed.ref)
	}
	return "it does not hold"
}

// unusable is about everything, because nobody knows what an unreadable delegation would limit.
func (n *node) unusable() string {
	why := n.problem
	if !n.cycle.IsZero() {
		why = fmt.Sprintf("its chain runs into itself at %s", n.cycle)
	}
	return bounded(fmt.Sprintf("%s was accepted and can no longer be used, so everything is denied to everybody in this namespace. %s An administrator has to remove it; revoking it does not help. The error: %s.", n.ref, nothing, why))
}

// idle is why n is no candidate.
func (n *node) idle() string {
	switch n.inert {
	case Envelope:
		return "It is an envelope: it lets nobody propose anything until somebody opens it with a Delegation that says breakGlass: true."
	case NotJudged:
		return "It has no verdict yet."
	case Refused:
		return bounded(fmt.Sprintf("It was refused at its creation (%s); its status says why.", clip(n.delegation.Refused)))
	}
	return bounded("It is invalid and lets nobody propose anything. Correct it. The error: " + n.problem + ".")
}

// elsewhere says in what p is not what n is about.
func (n *node) elsewhere(p action.Proposal, d Dimension) string {
	switch d {
	case DimensionSubject:
		return bounded(fmt.Sprintf("It is not for %s.", person(p.Principal)))
	case DimensionActions:
		return bounded(fmt.Sprintf("It is not about %s.", quoted(p.Name)))
	case DimensionResources:
		if p.Resource == nil {
			return "It is about certain resources, and the action has none."
		}
		return "It is about other resources."
	}
	return bounded(fmt.Sprintf("It is not for the environment %s.", quoted(p.Environment)))
}

// nobody says what comes nearest: the usual causes are no grant at all, and one that leaves out the action or the place.
func (s *Set) nobody(p action.Proposal) Result {
	var nearest *node
	var at Dimension
	order := map[Dimension]int{DimensionSubject: 0, DimensionActions: 1, DimensionResources: 2, DimensionEnvironments: 3}
	for _, candidates := range [...][]*node{s.byAgent[p.Principal.Agent], s.anyAgent} {
		for _, n := range candidates {
			d := n.grant.mismatch(p)
			if nearest == nil || order[d] > order[at] || d == at && n.key < nearest.key {
				nearest, at = n, d
			}
		}
	}
	why := "No grant names this agent."
	switch {
	case s.grants == 0:
		why = "There is no valid grant in this namespace, and authority is required."
	case nearest != nil && at == DimensionSubject:
		why = "No grant is for this agent and its user."
	case nearest != nil:
		why = fmt.Sprintf("What comes nearest is %s: %s", nearest.ref, nearest.elsewhere(p, at))
	}
	return Result{Reason: decision.NoAuthority, Message: bounded(fmt.Sprintf("Nobody lets %s propose %s. %s %s Ask the owners of the grants for one that covers it; kubectl ctrlrun why shows each of them.",
		person(p.Principal), quoted(p.Name), why, nothing))}
}

// revoker is who cut the chain of n.
func (n *node) revoker() string {
	if n.by.Name == "" {
		return "a Revocation that is gone, as its status and a receipt say"
	}
	return fmt.Sprintf("%s (Revocation/%s)", quoted(n.by.Revoker), clip(n.by.Name))
}
