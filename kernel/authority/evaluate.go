package authority

import (
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
)

// Result is the answer to one proposal.
type Result struct {
	Passed bool
	Reason decision.Reason
	// Ref is the grant or delegation that lets it pass, or that the reason is about; zero for no_authority.
	Ref Ref
	// UID is that of Ref, and Generation too, which only grants have.
	UID        string
	Generation int64
	// Root is the grant at the upper end of Ref's chain, and Depth how many steps Ref is below it.
	Root  Ref
	Depth int
	// Dimension is in what a delegation of the chain is no longer within its parent.
	Dimension Dimension
	// MissingParent is the ancestor that is not there, ExpiredParent one that is over, CycleAt a member of the cycle that
	// the chain runs into. Each is zero if the reason is another.
	MissingParent, ExpiredParent, CycleAt Ref
	// DepthExceeded says that the chain is longer than the settings allow.
	DepthExceeded bool
	// BreakGlass says that the chain stands on an envelope: somebody broke glass for this.
	BreakGlass bool
	// Until is when the chain that lets it pass ends, which is when the first of it expires; nil if none does.
	Until *time.Time
	// Message is for people: what was decided, why, and what to do now. It is the same for the same input, and tells no
	// argument's value.
	Message string
}

// Verdict is what one grant or delegation by itself says about a proposal.
type Verdict struct {
	// Result names the grant or the delegation in Ref, whatever it says.
	Result
	// Inert is why it is no candidate whatever is proposed; "" if it is one.
	Inert Inert
	// Mismatch is the first dimension of its shape that the proposal is outside of; "" if it is about the proposal.
	Mismatch Dimension
}

// Evaluate says whether anybody lets p be proposed at now. P's resource is the one that is hashed.
//
// One delegation that cannot be read denies everything. Otherwise one candidate that matches is enough. If none does, the
// reasons of all whose shape matches are collected, and the gravest is the answer.
func (s *Set) Evaluate(p action.Proposal, now time.Time) Result {
	if s.unreadable != nil {
		return s.unreadable.unreadableResult()
	}
	var passed, failed *node
	var fault fault
	for _, candidates := range [...][]*node{s.byAgent[p.Principal.Agent], s.anyAgent} {
		for _, n := range candidates {
			if n.grant.mismatch(p) != "" {
				continue
			}
			f := n.fault(s.maxDepth, p, now)
			switch {
			case f.reason == "":
				if passed == nil || n.key < passed.key {
					passed = n
				}
			case failed == nil || f.graver(fault) || f.reason == fault.reason && n.key < failed.key:
				failed, fault = n, f
			}
		}
	}
	switch {
	case passed != nil:
		return passed.pass(p)
	case failed != nil:
		r := failed.deny(fault)
		r.Message = failed.denied(p, fault)
		return r
	}
	return s.nobody(p)
}

// fault is why a candidate whose shape matches lets nobody pass: the gravest reason, and what belongs to it.
type fault struct {
	reason        decision.Reason
	missing       Ref
	expired       *node
	broken        bool
	depthExceeded bool
	limit         int
	closed        bool
}

// graver reports whether f comes before g in the fixed order of reasons.
func (f fault) graver(g fault) bool { return gravity(f.reason) < gravity(g.reason) }

func gravity(r decision.Reason) int {
	switch r {
	case decision.AuthorityUnreadable:
		return 0
	case decision.AuthorityEscalation:
		return 1
	case decision.AuthorityRevoked:
		return 2
	case decision.AuthorityExpired:
		return 3
	case decision.AuthorityConstraint:
		return 4
	case decision.NoAuthority:
		return 5
	}
	return 6
}

// fault is the gravest reason why n does not let p pass, whose shape matches.
func (n *node) fault(maxDepth int, p action.Proposal, now time.Time) fault {
	if f := n.chainFault(maxDepth, now); f.reason != "" {
		return f
	}
	switch {
	case n.grant.expired(now):
		return fault{reason: decision.AuthorityExpired}
	case !n.grant.Constraints.Match(p.Arguments):
		return fault{reason: decision.AuthorityConstraint}
	}
	return fault{}
}

// chainFault is the first rule of the walk that the chain of n breaks: all are there, none is revoked, none above has
// expired, each is within its parent, the chain is short enough, each above may be delegated.
func (n *node) chainFault(maxDepth int, now time.Time) fault {
	switch {
	case n.delegation == nil:
		return fault{}
	case !n.missing.IsZero():
		return fault{reason: decision.AuthorityEscalation, missing: n.missing}
	case n.revoked != nil:
		return fault{reason: decision.AuthorityRevoked}
	case n.earliest != nil && n.earliest.grant.expired(now):
		return fault{reason: decision.AuthorityEscalation, expired: n.earliest}
	case n.broken != nil:
		return fault{reason: decision.AuthorityEscalation, broken: true}
	case n.depth > maxDepth:
		return fault{reason: decision.AuthorityEscalation, depthExceeded: true, limit: maxDepth}
	case n.closed != nil:
		return fault{reason: decision.AuthorityEscalation, closed: true}
	}
	return fault{}
}

// about is what every result says about the node that it names.
func (n *node) about(reason decision.Reason) Result {
	r := Result{Reason: reason, Ref: n.ref, UID: n.uid, Generation: n.generation, Depth: n.depth, BreakGlass: n.breakGlass()}
	if n.root != nil {
		r.Root = n.root.ref
	}
	return r
}

func (n *node) pass(p action.Proposal) Result {
	r := n.about(decision.AuthorityGrant)
	r.Passed = true
	r.Until = n.until()
	r.Message = n.passes(p, r)
	return r
}

// until is the earliest expiration of n and of everything above it.
func (n *node) until() *time.Time {
	e := n.grant.Expiration
	if n.earliest != nil && (e == nil || n.earliest.grant.Expiration.Before(*e)) {
		e = n.earliest.grant.Expiration
	}
	if e == nil {
		return nil
	}
	t := *e
	return &t
}

func (n *node) deny(f fault) Result {
	r := n.about(f.reason)
	r.MissingParent = f.missing
	if f.expired != nil {
		r.ExpiredParent = f.expired.ref
	}
	if f.broken {
		r.Dimension = n.dimension
	}
	r.DepthExceeded = f.depthExceeded
	return r
}

func (n *node) unreadableResult() Result {
	r := Result{Reason: decision.AuthorityUnreadable, Ref: n.ref, UID: n.uid, CycleAt: n.cycle}
	r.Message = n.unusable()
	return r
}

// Explain is what each grant and each delegation by itself says about p, in the order of their refs. What Evaluate answers
// is the union of them: nothing passes while one is unreadable.
func (s *Set) Explain(p action.Proposal, now time.Time) []Verdict {
	out := make([]Verdict, 0, len(s.sorted))
	for _, n := range s.sorted {
		v := Verdict{Inert: n.inert}
		switch {
		case n.unreadable:
			v.Result = n.unreadableResult()
		case n.inert != "":
			v.Result = n.about(decision.NoAuthority)
			v.Message = n.idle()
		default:
			v.Mismatch = n.grant.mismatch(p)
			switch f := n.fault(s.maxDepth, p, now); {
			case v.Mismatch != "":
				v.Result = n.about(decision.NoAuthority)
				v.Message = n.elsewhere(p, v.Mismatch)
			case f.reason == "":
				v.Result = n.pass(p)
			default:
				v.Result = n.deny(f)
				v.Message = n.fails(p, f)
			}
		}
		out = append(out, v)
	}
	return out
}

// Standing is how each grant and each delegation stands at now, whatever is proposed: Passed if proposals may pass by it, and
// the reason if none can. An envelope stands although nothing passes by it.
func (s *Set) Standing(now time.Time) []Verdict {
	out := make([]Verdict, 0, len(s.sorted))
	for _, n := range s.sorted {
		v := Verdict{Inert: n.inert}
		f := n.chainFault(s.maxDepth, now)
		if f.reason == "" && n.grant.expired(now) {
			f.reason = decision.AuthorityExpired
		}
		switch {
		case n.unreadable:
			v.Result = n.unreadableResult()
		case n.inert != "":
			v.Result = n.about(decision.NoAuthority)
			v.Message = n.idle()
		case f.reason == "":
			v.Result = n.about(decision.AuthorityGrant)
			v.Passed, v.Until = true, n.until()
			v.Message = n.stands(v.Result)
		default:
			v.Result = n.deny(f)
			v.Message = n.lapsed(f)
		}
		out = append(out, v)
	}
	return out
}
