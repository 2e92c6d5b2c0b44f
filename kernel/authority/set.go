package authority

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
)

// DefaultMaxDepth is how far below its root a delegation may be where the settings do not say.
const DefaultMaxDepth = 3

// GrantSource is one Grant as a member of a Set.
type GrantSource struct {
	Name, UID  string
	Generation int64
	Grant      Grant
	// Problem is why the content is no grant; "" if it is one. Such a grant lets nobody do anything, and is no parent.
	Problem string
}

// NewGrantSource judges the spec of a Grant. The findings are those of ParseGrant.
func NewGrantSource(name, uid string, generation int64, spec any) (GrantSource, []Finding) {
	g, findings := ParseGrant(spec)
	return GrantSource{Name: name, UID: uid, Generation: generation, Grant: g, Problem: problem(findings)}, findings
}

// DelegationSource is one Delegation as a member of a Set.
type DelegationSource struct {
	Name, UID string
	// Created is when the apiserver stored it.
	Created    time.Time
	Delegation Delegation
	// Problem is why the content is no delegation; "" if it is one.
	Problem string
	// Accepted and Refused are the verdict it has, if it has one: that it holds, or the word why it does not. One that is
	// refused or not yet judged grants nothing, and is no parent.
	Accepted bool
	Refused  string
	// ParentUID is the uid of the parent that it was accepted under; "" if the verdict does not say. A delegation that took
	// the name of a former parent since does not take its children: they may have been cut with the former one.
	ParentUID string
	// Revoked says that its status already tells of a revocation. It stays revoked, also where that is gone.
	Revoked bool
}

// NewDelegationSource judges the spec of a Delegation as far as its form goes. The findings are those of ParseDelegation.
// Its verdict is left to the caller.
func NewDelegationSource(name, uid string, created time.Time, spec any) (DelegationSource, []Finding) {
	d, findings := ParseDelegation(spec)
	return DelegationSource{Name: name, UID: uid, Created: created, Delegation: d, Problem: problem(findings)}, findings
}

// Revocation cuts the delegation of that name and uid, and everything below it.
type Revocation struct {
	Name                          string
	DelegationName, DelegationUID string
	Revoker                       string
}

// Documents are everything that authority is made of in one namespace.
type Documents struct {
	Grants      []GrantSource
	Delegations []DelegationSource
	// Revocations are those that count.
	Revocations []Revocation
	// MaxDepth is how far below its root a delegation may be; 0 is no delegation at all.
	MaxDepth int
}

// Set is the union of grants and delegations. It is not changed after NewSet, so it may be shared.
type Set struct {
	maxDepth int
	nodes    map[Ref]*node
	// sorted are all nodes by their refs.
	sorted []*node
	// byAgent are the candidates that name one agent; anyAgent are the other candidates.
	byAgent  map[string][]*node
	anyAgent []*node
	children map[Ref][]*node
	// unreadable is the first node that makes the whole Set unusable; nil if there is none.
	unreadable *node
	grants     int
}

// node is one grant or delegation, with what there is to know about it whatever the proposal and the time.
type node struct {
	ref        Ref
	key        string
	uid        string
	generation int64
	grant      Grant
	// delegation is nil for a grant.
	delegation *DelegationSource
	inert      Inert
	problem    string
	// unreadable says that it was accepted and cannot be used: nobody knows what it would limit.
	unreadable bool

	// The chain from here to the root. Each is about the nearest one to which it applies.
	parent, root *node
	// depth is how many steps it is below the root; it is walked, never read.
	depth   int
	missing Ref
	cycle   Ref
	revoked *node
	by      Revocation
	// earliest is the ancestor that expires first.
	earliest *node
	// broken is the node whose step to its parent is not contained any more, in dimension and for the reason why.
	broken    *node
	dimension Dimension
	why       string
	// closed is the ancestor that may not be delegated any more.
	closed *node

	walked walk
}

type walk int

const (
	unseen walk = iota
	underway
	done
)

// Inert says why something is no candidate, whatever is proposed.
type Inert string

const (
	// Invalid: its content cannot be used.
	Invalid Inert = "invalid"
	// Envelope: it is a grant of type BreakGlass, which can only be opened.
	Envelope Inert = "envelope"
	// NotJudged: it has no verdict yet.
	NotJudged Inert = "not_judged"
	// Refused: its verdict is no.
	Refused Inert = "refused"
)

// usable reports whether there can be something below n.
func (n *node) usable() bool { return n.inert == "" || n.inert == Envelope }

// accepted reports whether n is a delegation that was found to hold, whatever has become of it.
func (n *node) accepted() bool { return n.unreadable || n.delegation != nil && n.delegation.Accepted }

// NewSet unites documents.
func NewSet(d Documents) *Set {
	s := &Set{maxDepth: d.MaxDepth, nodes: map[Ref]*node{}, byAgent: map[string][]*node{}, children: map[Ref][]*node{}}
	for _, g := range d.Grants {
		n := &node{ref: Ref{KindGrant, g.Name}, uid: g.UID, generation: g.Generation, grant: g.Grant, problem: g.Problem}
		n.root = n
		switch {
		case g.Problem != "":
			n.inert = Invalid
		case g.Grant.Type == BreakGlass:
			n.inert = Envelope
		}
		s.add(n)
	}
	for i := range d.Delegations {
		source := d.Delegations[i]
		n := &node{ref: Ref{KindDelegation, source.Name}, uid: source.UID, grant: source.Delegation.Grant, delegation: &source, problem: source.Problem}
		switch {
		case source.Accepted && source.Problem != "":
			n.inert, n.unreadable = Invalid, true
		case source.Accepted:
		case source.Refused != "":
			n.inert = Refused
		default:
			n.inert = NotJudged
		}
		s.add(n)
	}
	for _, n := range s.nodes {
		s.sorted = append(s.sorted, n)
	}
	slices.SortFunc(s.sorted, func(a, b *node) int { return strings.Compare(a.key, b.key) })
	s.revoke(d.Revocations)
	for _, n := range s.sorted {
		s.walk(n)
	}
	for _, n := range s.sorted {
		if n.ref.Kind == KindGrant && n.inert == "" {
			s.grants++
		}
		if n.unreadable && s.unreadable == nil {
			s.unreadable = n
		}
		if n.delegation != nil && n.problem == "" {
			s.children[n.delegation.Delegation.Parent] = append(s.children[n.delegation.Delegation.Parent], n)
		}
		switch agent := n.grant.Subject.Agent; {
		case n.inert != "":
		case agent != nil && agent.Literal():
			s.byAgent[agent.String()] = append(s.byAgent[agent.String()], n)
		default:
			s.anyAgent = append(s.anyAgent, n)
		}
	}
	return s
}

// add takes n in. Two objects of one kind never have one name; where they do, nobody can say which of them is meant.
func (s *Set) add(n *node) {
	n.key = n.ref.String()
	if other, taken := s.nodes[n.ref]; taken {
		n = &node{ref: n.ref, key: n.key, inert: Invalid, problem: "there are two of this name; keep one", unreadable: n.accepted() || other.accepted()}
	}
	s.nodes[n.ref] = n
}

func (s *Set) revoke(revocations []Revocation) {
	revocations = slices.SortedFunc(slices.Values(revocations), func(a, b Revocation) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Revoker, b.Revoker))
	})
	for _, r := range revocations {
		n := s.nodes[Ref{KindDelegation, r.DelegationName}]
		if n != nil && n.delegation != nil && n.uid == r.DelegationUID && n.revoked == nil {
			n.revoked, n.by = n, r
		}
	}
	for _, n := range s.nodes {
		if n.revoked == nil && n.delegation != nil && n.delegation.Revoked {
			n.revoked = n
		}
	}
}

// walk settles n and everything above it that is not settled yet: upwards until the chain ends, then down again, so that each
// takes over what its parent knows. A chain that comes to where it has been runs in a cycle.
func (s *Set) walk(n *node) {
	var path []*node
	for n.walked == unseen && n.delegation != nil && n.usable() {
		n.walked = underway
		path = append(path, n)
		if n.parent = s.parent(n); n.parent == nil {
			break
		}
		n = n.parent
	}
	if n.walked == underway && n.parent != nil {
		s.cycle(n, path)
	}
	for _, n := range slices.Backward(path) {
		n.settle()
		n.walked = done
	}
}

// parent is what n stands on; nil if that is not there.
func (s *Set) parent(n *node) *node {
	d := n.delegation
	p := s.nodes[d.Delegation.Parent]
	if p == nil || !p.usable() || p.delegation != nil && d.ParentUID != "" && d.ParentUID != p.uid {
		return nil
	}
	return p
}

// cycle marks the nodes of path, all of which lead into the cycle that first is on. It is named by its first member by ref, so
// that it does not matter where it was entered.
func (s *Set) cycle(first *node, path []*node) {
	at := first.ref
	for n := first.parent; n != first; n = n.parent {
		if n.ref.compare(at) < 0 {
			at = n.ref
		}
	}
	for _, n := range path {
		n.cycle = at
	}
}

// settle takes over what the parent knows, and adds what its own step to the parent adds.
func (n *node) settle() {
	p := n.parent
	switch {
	case p == nil:
		n.missing = n.delegation.Delegation.Parent
		return
	case !n.cycle.IsZero() || !p.cycle.IsZero():
		if n.cycle.IsZero() {
			n.cycle = p.cycle
		}
		n.unreadable = true
		return
	}
	n.root, n.depth, n.missing = p.root, p.depth+1, p.missing
	if n.revoked == nil && p.revoked != nil {
		n.revoked, n.by = p.revoked, p.by
	}
	n.earliest = p.earliest
	if e := p.grant.Expiration; e != nil && (n.earliest == nil || !n.earliest.grant.Expiration.Before(*e)) {
		n.earliest = p
	}
	if dimension, why := n.step(); why != "" {
		n.broken, n.dimension, n.why = n, dimension, why
	} else {
		n.broken, n.dimension, n.why = p.broken, p.dimension, p.why
	}
	n.closed = p.closed
	if !p.grant.delegable() {
		n.closed = p
	}
}

// step is in which dimension n is not within its parent, and why. That n opens an envelope which is none any more, or the other
// way round, is a broken step without a dimension.
func (n *node) step() (Dimension, string) {
	if why := mismatched(n.delegation.Delegation, n.parent); why != "" {
		return "", why
	}
	if dimension, why := uncontained(&n.parent.grant, &n.grant); why != "" {
		return dimension, why
	}
	if why := outsideEnvelope(&n.grant, n.parent); why != "" {
		return DimensionSubject, why
	}
	if why := tooLong(n.delegation, n.parent); why != "" {
		return DimensionExpiration, why
	}
	return "", ""
}

// mismatched is why d and its parent do not agree on whether this is the opening of an envelope.
func mismatched(d Delegation, parent *node) string {
	envelope := parent.inert == Envelope
	switch {
	case d.BreakGlass && !envelope:
		return "it says breakGlass, and its parent is no grant of type BreakGlass; remove breakGlass, or name a grant that is"
	case !d.BreakGlass && envelope:
		return "its parent is a grant of type BreakGlass, and it does not say so; add breakGlass: true and a reason, or name another parent"
	}
	return ""
}

// outsideEnvelope is why what opens an envelope is for somebody the envelope is not for. Whoever holds another grant chooses whom
// to hand it to; an envelope says itself for whom it may be opened.
func outsideEnvelope(child *Grant, parent *node) string {
	if parent.inert != Envelope || child.Subject.Agent == nil {
		return ""
	}
	p := action.Principal{Agent: child.Subject.Agent.String()}
	if child.Subject.User != nil {
		user := child.Subject.User.String()
		p.User = &user
	}
	if !parent.grant.Subject.Match(p) {
		return "the grant may not be opened for " + person(p) + "; name somebody its subject matches"
	}
	return ""
}

// tooLong is why d keeps an envelope open for longer than the envelope allows.
func tooLong(d *DelegationSource, parent *node) string {
	if parent.inert != Envelope {
		return ""
	}
	if e := d.Delegation.Expiration; e == nil || e.After(d.Created.Add(parent.grant.MaxDuration)) {
		return "it lasts longer than the envelope may be open; choose an expirationTime that is at most " + parent.grant.MaxDuration.String() + " after its creation"
	}
	return ""
}

// breakGlass reports whether n stands on an envelope.
func (n *node) breakGlass() bool {
	return n.root != nil && n.root.inert == Envelope && n.delegation != nil
}

// Below are the delegations strictly below ref, however deep and whatever their verdict, in the order of their refs.
func (s *Set) Below(ref Ref) []Ref {
	seen := map[Ref]bool{ref: true}
	var out []Ref
	for queue := []Ref{ref}; len(queue) > 0; queue = queue[1:] {
		for _, n := range s.children[queue[0]] {
			if !seen[n.ref] {
				seen[n.ref] = true
				out = append(out, n.ref)
				queue = append(queue, n.ref)
			}
		}
	}
	slices.SortFunc(out, Ref.compare)
	return out
}

// Rules are what the set decides by, as a canonical value: the valid grants by name, written in one way, and the depth.
// Delegations and revocations come and go with the work, and are not part of it.
func (s *Set) Rules() any {
	grants := map[string]any{}
	for _, n := range s.sorted {
		if n.ref.Kind == KindGrant && n.inert != Invalid {
			grants[n.ref.Name] = n.grant.canonical()
		}
	}
	return canonical.Clone(map[string]any{"grants": grants, "maxDelegationDepth": s.maxDepth})
}

// canonical is g in one way of writing: what does not matter, such as the order of patterns, is not in it.
func (g *Grant) canonical() map[string]any {
	subject := map[string]any{}
	if g.Subject.Agent != nil {
		subject["agent"] = g.Subject.Agent.String()
	}
	if g.Subject.User != nil {
		subject["user"] = g.Subject.User.String()
	}
	out := map[string]any{"subject": subject, "actions": texts(g.Actions), "delegable": g.Delegable, "grantType": string(g.Type)}
	if len(g.Resources) > 0 {
		out["resources"] = texts(g.Resources)
	}
	if !g.Constraints.IsZero() {
		out["constraints"] = g.Constraints.Canonical()
	}
	if len(g.Environments) > 0 {
		out["environments"] = slices.Compact(slices.Sorted(slices.Values(g.Environments)))
	}
	if g.Expiration != nil {
		out["expirationTime"] = g.Expiration.UTC().Format(time.RFC3339Nano)
	}
	if g.MaxDuration > 0 {
		out["maxDurationSeconds"] = int64(g.MaxDuration / time.Second)
	}
	return out
}

func texts[T interface{ String() string }](list []T) []string {
	out := make([]string, 0, len(list))
	for _, one := range list {
		out = append(out, one.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
