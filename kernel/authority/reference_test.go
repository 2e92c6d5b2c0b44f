package authority_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/grammar"
)

// reference answers as the rules are written down: it walks every chain from its lower end, each time it is asked, one rule
// after the other.
type reference struct{ authority.Documents }

type link struct {
	grant      authority.Grant
	ref        authority.Ref
	uid        string
	delegation *authority.DelegationSource
}

func (d reference) find(ref authority.Ref) *link {
	for i := range d.Grants {
		if g := d.Grants[i]; ref == grantRef(g.Name) && g.Problem == "" {
			return &link{grant: g.Grant, ref: ref, uid: g.UID}
		}
	}
	for i := range d.Delegations {
		if s := d.Delegations[i]; ref == delegationRef(s.Name) && s.Problem == "" && s.Accepted {
			return &link{grant: s.Delegation.Grant, ref: ref, uid: s.UID, delegation: &s}
		}
	}
	return nil
}

// chain is l and everything above it, as far as it is there; gone is what is not, and cyclic says that there is no end.
func (d reference) chain(l *link) (chain []*link, gone authority.Ref, cyclic bool) {
	for l.delegation != nil {
		chain = append(chain, l)
		if len(chain) > len(d.Delegations) {
			return chain, gone, true
		}
		parent := d.find(l.delegation.Delegation.Parent)
		if parent == nil || parent.delegation != nil && l.delegation.ParentUID != "" && l.delegation.ParentUID != parent.uid {
			return chain, l.delegation.Delegation.Parent, false
		}
		l = parent
	}
	return append(chain, l), gone, false
}

func (d reference) evaluate(p action.Proposal, now time.Time) (decision.Reason, authority.Ref) {
	found := map[decision.Reason][]authority.Ref{}
	for _, s := range d.Delegations {
		if !s.Accepted {
			continue
		}
		cyclic := false
		if s.Problem == "" {
			_, _, cyclic = d.chain(d.find(delegationRef(s.Name)))
		}
		if s.Problem != "" || cyclic {
			found[decision.AuthorityUnreadable] = append(found[decision.AuthorityUnreadable], delegationRef(s.Name))
		}
	}
	var candidates []*link
	for _, g := range d.Grants {
		if l := d.find(grantRef(g.Name)); l != nil && l.grant.Type == authority.Standard {
			candidates = append(candidates, l)
		}
	}
	for _, s := range d.Delegations {
		if l := d.find(delegationRef(s.Name)); l != nil {
			candidates = append(candidates, l)
		}
	}
	for _, l := range candidates {
		// The shape: the grant without what has a reason of its own.
		shape := l.grant
		shape.Expiration = nil
		shape.Constraints = authority.Grant{}.Constraints
		if !shape.Match(p, now) {
			continue
		}
		reasons := []decision.Reason{d.walk(l, now)}
		if l.grant.Expiration != nil && now.After(*l.grant.Expiration) {
			reasons = append(reasons, decision.AuthorityExpired)
		}
		if !l.grant.Constraints.Match(p.Arguments) {
			reasons = append(reasons, decision.AuthorityConstraint)
		}
		if reasons = slices.DeleteFunc(reasons, func(r decision.Reason) bool { return r == "" }); len(reasons) == 0 {
			reasons = append(reasons, decision.AuthorityGrant)
		}
		for _, r := range reasons {
			found[r] = append(found[r], l.ref)
		}
	}
	for _, r := range []decision.Reason{decision.AuthorityUnreadable, decision.AuthorityGrant, decision.AuthorityEscalation, decision.AuthorityRevoked, decision.AuthorityExpired, decision.AuthorityConstraint} {
		if refs := found[r]; len(refs) > 0 {
			return r, slices.MinFunc(refs, func(a, b authority.Ref) int { return strings.Compare(a.String(), b.String()) })
		}
	}
	return decision.NoAuthority, authority.Ref{}
}

// walk is the first rule that the chain of l breaks.
func (d reference) walk(l *link, now time.Time) decision.Reason {
	chain, gone, cyclic := d.chain(l)
	if cyclic {
		return ""
	}
	if !gone.IsZero() {
		return decision.AuthorityEscalation
	}
	for _, one := range chain {
		if slices.ContainsFunc(d.Revocations, func(r authority.Revocation) bool {
			return one.delegation != nil && r.DelegationName == one.delegation.Name && r.DelegationUID == one.delegation.UID
		}) || one.delegation != nil && one.delegation.Revoked {
			return decision.AuthorityRevoked
		}
	}
	for i, parent := range chain[1:] {
		child := chain[i]
		if _, ok := authority.Contains(parent.grant, child.grant); !ok || parent.grant.Expiration != nil && now.After(*parent.grant.Expiration) || !parent.grant.Delegable && parent.grant.Type != authority.BreakGlass {
			return decision.AuthorityEscalation
		}
		opens := parent.grant.Type == authority.BreakGlass
		if child.delegation.Delegation.BreakGlass != opens || opens && (child.grant.Expiration == nil || child.grant.Expiration.After(child.delegation.Created.Add(parent.grant.MaxDuration))) {
			return decision.AuthorityEscalation
		}
		whom := action.Principal{Agent: child.grant.Subject.Agent.String()}
		if child.grant.Subject.User != nil {
			user := child.grant.Subject.User.String()
			whom.User = &user
		}
		if opens && !parent.grant.Subject.Match(whom) {
			return decision.AuthorityEscalation
		}
	}
	if len(chain)-1 > d.MaxDepth {
		return decision.AuthorityEscalation
	}
	return ""
}

// In generated sets the answer is the one of the reference, in whatever order the documents come, and what is judged to hold
// does so.
func TestReference(t *testing.T) {
	p := newPool(t)
	r := rand.New(rand.NewPCG(*seed, 99))
	reasons := map[decision.Reason]int{}
	refusals := map[authority.Refusal]int{}
	passedBelow, throughGlass := 0, 0
	for n := range *sets {
		w := &world{t: t, Documents: authority.Documents{MaxDepth: r.IntN(4)}}
		things := map[authority.Ref]made{}
		for i := range 1 + r.IntN(3) {
			m := p.random(r)
			switch r.IntN(5) {
			case 0:
				m.grant.Type, m.grant.MaxDuration, m.grant.Expiration = authority.BreakGlass, 2*time.Hour, nil
			case 1:
			default:
				m.grant.Delegable = true
			}
			source := authority.GrantSource{Name: fmt.Sprintf("g%d", i), UID: fmt.Sprintf("ug%d", i), Grant: m.grant}
			if r.IntN(15) == 0 {
				source.Problem = "it has one"
			}
			w.Grants = append(w.Grants, source)
			things[grantRef(source.Name)] = m
		}
		refs := make([]authority.Ref, 0, 8)
		for i := range w.Grants {
			refs = append(refs, grantRef(w.Grants[i].Name))
		}
		for i := range r.IntN(6) {
			name := fmt.Sprintf("d%d", i)
			parent := pick(r, refs)
			m := p.narrower(r, things[parent])
			m.grant.Delegable = r.IntN(6) > 0
			if things[parent].grant.Type == authority.BreakGlass && r.IntN(4) > 0 {
				agent, err := grammar.ParsePattern(grammar.KindSubject, p.agent(r, things[parent]))
				if err != nil {
					t.Fatal(err)
				}
				m.grant.Subject.Agent = &agent
			}
			s := authority.DelegationSource{Name: name, UID: "u" + name, Created: t0.Add(-time.Hour), Accepted: r.IntN(12) > 0}
			s.Delegation = authority.Delegation{Grant: m.grant, Parent: parent, BreakGlass: things[parent].grant.Type == authority.BreakGlass, Reason: "x"}
			s.Delegation.Delegator.Agent = p.agent(r, things[parent])
			switch r.IntN(40) {
			case 0:
				s.Problem = "it has one"
			case 1:
				s.Delegation.Parent = delegationRef(fmt.Sprintf("d%d", r.IntN(6)))
			case 2:
				s.Delegation.BreakGlass = !s.Delegation.BreakGlass
			case 3:
				s.Delegation.Parent = grantRef("gone")
			}
			if r.IntN(10) == 0 {
				s.ParentUID = "u" + parent.Name
			}
			if r.IntN(12) == 0 {
				w.Revocations = append(w.Revocations, authority.Revocation{Name: "r" + name, DelegationName: name, DelegationUID: pick(r, []string{"u" + name, "u" + name, "former"})})
			}
			s.Revoked = r.IntN(40) == 0
			w.Delegations = append(w.Delegations, s)
			refs = append(refs, delegationRef(name))
			things[delegationRef(name)] = m
		}
		set := w.set()
		now := t0.Add(time.Duration(r.IntN(4)-2) * time.Hour)
		var last action.Proposal
		for range 4 {
			q := p.proposal(r, things[pick(r, refs)])
			last = q
			want, wantRef := reference{w.Documents}.evaluate(q, now)
			got := set.Evaluate(q, now)
			if got.Reason != want || got.Ref != wantRef || got.Passed != (want == decision.AuthorityGrant) {
				t.Fatalf("set %d: %s, the reference says %s by %q\n%+v\n%+v", n, describe(got), want, wantRef, w.Documents, q)
			}
			reasons[want]++
			if got.Passed && got.Depth > 0 {
				passedBelow++
				// Nobody below a root may do what the root could not let its own agent do.
				root := things[got.Root].grant
				lifted := q
				lifted.Principal.Agent = p.lift(things[got.Root])
				if !root.Match(lifted, now) {
					t.Fatalf("set %d: %s, and its root would not let it pass", n, describe(got))
				}
			}
			if got.BreakGlass && got.Passed {
				throughGlass++
			}
			// Explain tells each by itself; the answer is the union.
			passes := slices.ContainsFunc(set.Explain(q, now), func(v authority.Verdict) bool { return v.Passed })
			if got.Reason != decision.AuthorityUnreadable && passes != got.Passed {
				t.Fatalf("set %d: %s, and explained as %t", n, describe(got), passes)
			}
		}
		before, beforeRules := set.Evaluate(last, now), rulesHash(t, set)
		w.shuffle(r)
		shuffled := w.set()
		if after := shuffled.Evaluate(last, now); describe(after) != describe(before) || after.Message != before.Message || rulesHash(t, shuffled) != beforeRules {
			t.Fatalf("set %d: in another order %s, before %s", n, describe(after), describe(before))
		}
		for _, d := range w.Delegations {
			j := set.Judge(d, now)
			if other := shuffled.Judge(d, now); other != j {
				t.Fatalf("set %d: in another order %+v, before %+v", n, other, j)
			}
			refusals[j.Refusal]++
			if !j.Accepted() {
				continue
			}
			d.Accepted, d.ParentUID = true, j.ParentUID
			accepted := reference{w.Documents}
			accepted.Delegations = slices.Clone(w.Delegations)
			accepted.Delegations[slices.IndexFunc(w.Delegations, func(o authority.DelegationSource) bool { return o.Name == d.Name })] = d
			own := accepted.find(delegationRef(d.Name))
			if reason := accepted.walk(own, now); reason != "" && reason != decision.AuthorityRevoked {
				t.Fatalf("set %d: %s was accepted, and its chain says %s", n, d.Name, reason)
			}
		}
	}
	t.Logf("%d sets: reasons %v, refusals %v, %d passed by a delegation, %d through an envelope", *sets, reasons, refusals, passedBelow, throughGlass)
	for _, reason := range []decision.Reason{decision.AuthorityGrant, decision.AuthorityUnreadable, decision.AuthorityEscalation, decision.AuthorityRevoked, decision.AuthorityExpired, decision.AuthorityConstraint, decision.NoAuthority} {
		if reasons[reason] < *sets/100 {
			t.Errorf("in %d sets only %d times %s", *sets, reasons[reason], reason)
		}
	}
	for _, refusal := range authority.Refusals() {
		if refusals[refusal] < *sets/1000 && refusal != authority.PrincipalExpired {
			t.Errorf("in %d sets only %d times %s", *sets, refusals[refusal], refusal)
		}
	}
	if refusals[""] < *sets/10 || passedBelow < *sets/10 || throughGlass < *sets/200 {
		t.Error("too little of what was generated holds")
	}
}
