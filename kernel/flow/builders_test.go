package flow_test

import (
	"sync"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
)

// noon is the time of all tests that do not move it.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func aWorld() flow.World {
	return flow.World{
		ClusterID: "cluster", Namespace: "payments", NamespaceUID: "namespace", Environment: "production",
		AdmissionSince: noon.Add(-time.Hour),
		Limits:         flow.Limits{ApprovalTTL: 15 * time.Minute, MaxLease: time.Hour, FinishedTTL: 10 * time.Minute},
		Policies:       policies()[0].set,
	}
}

// aPolicy is the set of one policy with the given actions, in JSON.
func aPolicy(actions string) *policy.Set {
	v, err := canonical.Parse([]byte(actions))
	if err != nil {
		panic(err)
	}
	source, findings := policy.NewSource("refunds", "v1", 1, v)
	if policy.HasErrors(findings) {
		panic(findings)
	}
	return policy.NewSet([]policy.Source{source}).InNamespace("payments")
}

// simulated is one policy of the simulation.
type simulated struct {
	text     string
	decision decision.Decision
	required int
	set      *policy.Set
}

// policies are those the simulation changes between. Their generation, from 1, says which one decided.
var policies = sync.OnceValue(func() []simulated {
	all := []simulated{
		{text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow"}}`, decision: decision.Allow},
		{text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow","maxAttempts":2}}`, decision: decision.Allow},
		{text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve"}}`, decision: decision.Approve, required: 1},
		{text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approvalsRequired":2}}`, decision: decision.Approve, required: 2},
		{text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"deny"}}`, decision: decision.Deny},
		{text: `{"stripe.refund":{"effect":"refund2:{payment_id}","decision":"allow"}}`, decision: decision.Allow},
	}
	for i := range all {
		v, err := canonical.Parse([]byte(all[i].text))
		if err != nil {
			panic(err)
		}
		source, findings := policy.NewSource("refunds", "v1", int64(i+1), v)
		if policy.HasErrors(findings) {
			panic(findings)
		}
		all[i].set = policy.NewSet([]policy.Source{source}).InNamespace("payments")
	}
	return all
})

// actionBuilder builds an action as it stands in the cluster.
type actionBuilder struct{ a flow.Action }

// anAction is a refund of txn_1, proposed at noon, by alice, who is there.
func anAction(name string) *actionBuilder {
	return &actionBuilder{flow.Action{
		Name: name, UID: name + "-uid", Created: noon, Type: "stripe.refund", Arguments: []byte(`{"amount":100,"payment_id":"txn_1"}`),
		Agent: alice, ClaimID: name + "-claim", Lease: 5 * time.Minute, Status: flow.Status{State: flow.Pending},
	}}
}

func (b *actionBuilder) UID(uid string) *actionBuilder        { b.a.UID = uid; return b }
func (b *actionBuilder) By(agent string) *actionBuilder       { b.a.Agent = agent; return b }
func (b *actionBuilder) For(user string) *actionBuilder       { b.a.User = &user; return b }
func (b *actionBuilder) At(t time.Time) *actionBuilder        { b.a.Created = t; return b }
func (b *actionBuilder) Type(t string) *actionBuilder         { b.a.Type = t; return b }
func (b *actionBuilder) Args(json string) *actionBuilder      { b.a.Arguments = []byte(json); return b }
func (b *actionBuilder) Claim(id string) *actionBuilder       { b.a.ClaimID = id; return b }
func (b *actionBuilder) Obj() *flow.Action                    { a := b.a; return &a }
func (b *actionBuilder) NotAfter(t time.Time) *actionBuilder  { b.a.NotAfter = &t; return b }
func (b *actionBuilder) Lease(d time.Duration) *actionBuilder { b.a.Lease = d; return b }

// approvalBuilder builds an answer to an action as it stands.
type approvalBuilder struct{ x approval.Answer }

// anApproval is carol's yes to exactly what the action's status says.
func anApproval(a *flow.Action) *approvalBuilder {
	x := approval.Answer{Name: a.Name + ".carol", UID: a.Name + "-carol", ActionUID: a.UID, ActionType: a.Type, Hash: a.Hash, Approved: true, Approver: carol, Created: noon}
	if a.Effect != nil {
		key := a.Effect.Key
		x.Key = &key
	}
	return &approvalBuilder{x}
}

func (b *approvalBuilder) By(who string) *approvalBuilder {
	b.x.Approver, b.x.Name, b.x.UID = who, b.x.ActionUID+"."+action.Speaker(who), b.x.ActionUID+"-"+who
	return b
}
func (b *approvalBuilder) At(t time.Time) *approvalBuilder   { b.x.Created = t; return b }
func (b *approvalBuilder) Hash(hash string) *approvalBuilder { b.x.Hash = hash; return b }
func (b *approvalBuilder) Denied() *approvalBuilder          { b.x.Approved = false; return b }
func (b *approvalBuilder) Obj() approval.Answer              { return b.x }
