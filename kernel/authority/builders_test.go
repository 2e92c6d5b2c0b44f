package authority_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
)

// t0 is the moment at which tests ask, unless they say another.
var t0 = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// spec is a document as tests write it; with changes it without changing the original, and a nil value removes the key.
type spec map[string]any

func (s spec) with(changes spec) spec {
	out := spec{}
	for k, v := range s {
		out[k] = v
	}
	for k, v := range changes {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = v
	}
	return out
}

// tree is s as the apiserver would hand it over.
func (s spec) tree(t testing.TB) any {
	t.Helper()
	data, err := json.Marshal(map[string]any(s))
	if err != nil {
		t.Fatal(err)
	}
	v, err := canonical.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// world is the documents of one namespace.
type world struct {
	t testing.TB
	authority.Documents
}

func newWorld(t testing.TB) *world {
	return &world{t: t, Documents: authority.Documents{MaxDepth: authority.DefaultMaxDepth}}
}

func (w *world) grant(name string, s spec) *world {
	w.t.Helper()
	source, findings := authority.NewGrantSource(name, "uid-"+name, 1, s.tree(w.t))
	if len(findings) > 0 {
		w.t.Fatalf("grant %s: %v", name, findings)
	}
	w.Grants = append(w.Grants, source)
	return w
}

// source reads a delegation that was created an hour ago.
func (w *world) source(name string, s spec) authority.DelegationSource {
	w.t.Helper()
	source, findings := authority.NewDelegationSource(name, "uid-"+name, t0.Add(-time.Hour), s.tree(w.t))
	if len(findings) > 0 {
		w.t.Fatalf("delegation %s: %v", name, findings)
	}
	return source
}

// delegation is one that was accepted, whether or not it would be now.
func (w *world) delegation(name string, s spec) *world {
	w.t.Helper()
	source := w.source(name, s)
	source.Accepted = true
	w.Delegations = append(w.Delegations, source)
	return w
}

func (w *world) revoke(name string) *world {
	w.Revocations = append(w.Revocations, authority.Revocation{Name: name + ".alice", DelegationName: name, DelegationUID: "uid-" + name, Revoker: "alice"})
	return w
}

func (w *world) set() *authority.Set { return authority.NewSet(w.Documents) }

func grantRef(name string) authority.Ref { return authority.Ref{Kind: authority.KindGrant, Name: name} }

func delegationRef(name string) authority.Ref {
	return authority.Ref{Kind: authority.KindDelegation, Name: name}
}

// below is a delegation's spec: like the parent, for another agent.
func below(parent authority.Ref, delegator, agent string, content spec) spec {
	return content.with(spec{
		"subject":   spec{"agent": agent},
		"parentRef": spec{"kind": string(parent.Kind), "name": parent.Name},
		"delegator": spec{"agent": delegator},
	})
}

func at(d time.Duration) string { return t0.Add(d).Format(time.RFC3339) }

func proposal(agent, name string, arguments spec) action.Proposal {
	args := map[string]any{}
	for k, v := range arguments {
		args[k] = canonical.Clone(v)
	}
	return action.Proposal{Name: name, Arguments: args, Principal: action.Principal{Agent: agent}, Environment: action.DefaultEnvironment}
}

func forUser(p action.Proposal, user string) action.Proposal {
	p.Principal.User = &user
	return p
}

func on(p action.Proposal, resource string) action.Proposal {
	p.Resource = &resource
	return p
}

func in(p action.Proposal, environment string) action.Proposal {
	p.Environment = environment
	return p
}

// finance is the published chain: head of finance, finance agent, support agent. Amounts are minor units.
func finance(t testing.TB) *world {
	refunds := spec{"actions": []string{"stripe.*"}, "expirationTime": at(240 * time.Hour), "delegable": true}
	w := newWorld(t)
	w.grant("head-of-finance", refunds.with(spec{"subject": spec{"agent": "head-of-finance"}, "constraints": spec{"amount_lte": 10000000}}))
	w.delegation("dlg-1", below(grantRef("head-of-finance"), "head-of-finance", "finance-agent", refunds.with(spec{"constraints": spec{"amount_lte": 2500000}})))
	w.delegation("dlg-2", below(delegationRef("dlg-1"), "finance-agent", "support-agent", refunds.with(spec{"constraints": spec{"amount_lte": 200000}, "delegable": nil})))
	return w
}

func describe(r authority.Result) string {
	return fmt.Sprintf("passed %t, %s, ref %q root %q depth %d, dimension %q, missing %q, expired %q, cycle %q, too deep %t, glass %t",
		r.Passed, r.Reason, r.Ref, r.Root, r.Depth, r.Dimension, r.MissingParent, r.ExpiredParent, r.CycleAt, r.DepthExceeded, r.BreakGlass)
}

func rulesHash(t testing.TB, s *authority.Set) string {
	t.Helper()
	h, err := canonical.Hash(s.Rules())
	if err != nil {
		t.Fatal(err)
	}
	return h
}
