package flow_test

import (
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/receipt"
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

// refundKey is the effect key of the action that anAction builds, and refundName the name of its record.
const refundKey = "refund:txn_1"

var refundName = action.EffectName(refundKey)

// actionBuilder builds an action as it stands in the cluster.
type actionBuilder struct{ a flow.Action }

// anAction is a refund of txn_1, proposed at noon, by alice, who is there. Nothing was concluded about it yet.
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
func (b *actionBuilder) Args(json string) *actionBuilder      { b.a.Arguments = []byte(json); return b }
func (b *actionBuilder) Claim(id string) *actionBuilder       { b.a.ClaimID = id; return b }
func (b *actionBuilder) Lease(d time.Duration) *actionBuilder { b.a.Lease = d; return b }
func (b *actionBuilder) NotAfter(t time.Time) *actionBuilder  { b.a.NotAfter = &t; return b }
func (b *actionBuilder) Obj() *flow.Action                    { a := b.a; return &a }

// decided is what a pass writes first.
func (b *actionBuilder) decided(state flow.State) *actionBuilder {
	seq, resource := int64(0), (*string)(nil)
	b.a.State, b.a.FirstSeq, b.a.Status.Resource, b.a.Environment = state, &seq, resource, "production"
	b.a.Hash, b.a.Effect = hashOf(&b.a), &flow.EffectRef{Name: refundName, Key: refundKey}
	b.a.Decision, b.a.DecisionReason = decision.Allow, decision.PlainDecision
	b.a.Policy = &policy.Ref{Name: "refunds", Generation: 1, RulesHash: "sha256:0000000000000000000000000000000000000000000000000000000000000000", Version: "v1"}
	return b
}

// Asked is waiting for that many people, until 12:15.
func (b *actionBuilder) Asked(required int) *actionBuilder {
	b.decided(flow.AwaitingApproval)
	b.a.Decision, b.a.Ask = decision.Approve, &flow.Ask{Required: required, Requested: noon, Expiration: noon.Add(15 * time.Minute)}
	return b
}

// Claimable is waiting for a claim since then, for 15 minutes.
func (b *actionBuilder) Claimable(since time.Time) *actionBuilder {
	if b.a.Ask == nil {
		b.decided(flow.Claimable)
	}
	until := since.Add(15 * time.Minute)
	b.a.State, b.a.ClaimableTime, b.a.ClaimExpiration = flow.Claimable, &since, &until
	return b
}

// Admitted is admitted at noon, for five minutes, in that attempt; 0 is an action without an effect.
func (b *actionBuilder) Admitted(attempt int64) *actionBuilder {
	if b.a.Hash == "" {
		b.decided(flow.Admitted)
	}
	b.a.State = flow.Admitted
	b.a.Execution = &flow.Execution{Mode: flow.AgentMode, ClaimID: b.a.ClaimID, Lease: noon.Add(b.a.Lease), Admitted: noon}
	if attempt == 0 {
		b.a.Effect = nil
		return b
	}
	b.a.Effect = &flow.EffectRef{Name: refundName, Key: refundKey, Attempt: attempt}
	b.a.Execution.Token = tokenOf(attempt)
	return b
}

// executorHash is that of the Executor that executes refunds where one does.
var executorHash = "sha256:" + strings.Repeat("e", 64)

func (b *actionBuilder) InOperatorMode() *actionBuilder {
	b.a.Executor = &flow.ExecutorRef{Name: "refunds", Hash: executorHash}
	b.a.Execution.Mode, b.a.Execution.ClaimID = flow.OperatorMode, ""
	return b
}

// Ended is over, with or without its receipt.
func (b *actionBuilder) Ended(state flow.State, reason decision.Reason) *actionBuilder {
	if b.a.FirstSeq == nil {
		b.decided(state)
	}
	finished := noon
	b.a.State, b.a.Reason, b.a.FinishTime = state, reason, &finished
	return b
}

func (b *actionBuilder) Receipted(seq int64) *actionBuilder {
	b.a.Receipt = &receipt.Link{Seq: seq, Hash: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
	return b
}

func hashOf(a *flow.Action) string {
	m, _ := arguments(a.Arguments)
	hash, err := action.Proposal{Name: a.Type, Arguments: m, Principal: action.Principal{Agent: a.Agent, User: a.User}, Environment: "production"}.Hash()
	if err != nil {
		panic(err)
	}
	return hash
}

func tokenOf(attempt int64) string {
	token, err := effect.Token(refundKey, big.NewInt(attempt))
	if err != nil {
		panic(err)
	}
	return token
}

// approvalBuilder builds an answer to an action as it stands.
type approvalBuilder struct{ x approval.Answer }

// anApproval is carol's yes, at noon, to exactly what the action's status says.
func anApproval(a *flow.Action) *approvalBuilder {
	x := approval.Answer{ActionUID: a.UID, ActionType: a.Type, Hash: a.Hash, Approved: true, Created: noon, Entitlement: approval.Entitled}
	if a.Effect != nil {
		key := a.Effect.Key
		x.Key = &key
	}
	return (&approvalBuilder{x}).By(carol)
}

func (b *approvalBuilder) By(who string) *approvalBuilder {
	b.x.Approver, b.x.Name, b.x.UID = who, b.x.ActionUID+"."+action.Speaker(who), b.x.ActionUID+"-"+who
	return b
}
func (b *approvalBuilder) At(t time.Time) *approvalBuilder   { b.x.Created = t; return b }
func (b *approvalBuilder) Hash(hash string) *approvalBuilder { b.x.Hash = hash; return b }
func (b *approvalBuilder) Denied() *approvalBuilder          { b.x.Approved = false; return b }
func (b *approvalBuilder) Obj() approval.Answer              { return b.x }

// claimBuilder builds a claim of an action as it stands.
type claimBuilder struct{ c flow.Claim }

// aClaim is the proposer's claim of exactly the present decision, when it became claimable.
func aClaim(a *flow.Action, id string) *claimBuilder {
	c := flow.Claim{Name: id, UID: id + "-uid", ActionUID: a.UID, ClaimID: id, Claimant: a.Agent}
	if a.ClaimableTime != nil {
		c.ClaimableTime, c.Created = *a.ClaimableTime, *a.ClaimableTime
	}
	return &claimBuilder{c}
}

func (b *claimBuilder) By(who string) *claimBuilder       { b.c.Claimant = who; return b }
func (b *claimBuilder) At(t time.Time) *claimBuilder      { b.c.Created = t; return b }
func (b *claimBuilder) Quoting(t time.Time) *claimBuilder { b.c.ClaimableTime = t; return b }
func (b *claimBuilder) OfAction(uid string) *claimBuilder { b.c.ActionUID = uid; return b }
func (b *claimBuilder) UID(uid string) *claimBuilder      { b.c.UID = uid; return b }
func (b *claimBuilder) Obj() flow.Claim                   { return b.c }

// outcomeBuilder builds the outcome that holds the lock of an action.
type outcomeBuilder struct{ o flow.Outcome }

// anOutcome is the report of the admitted process, or, of an action that is not admitted, of its own, a minute after noon.
func anOutcome(a *flow.Action, result flow.OutcomeResult) *outcomeBuilder {
	claimID := a.ClaimID
	if a.Execution != nil {
		claimID = a.Execution.ClaimID
	}
	return &outcomeBuilder{flow.Outcome{
		Name: flow.LockName(a.UID, claimID, a.Agent), UID: a.Name + "-outcome", ActionUID: a.UID, ClaimID: claimID,
		Result: result, Reporter: a.Agent, Created: noon.Add(time.Minute),
	}}
}

func (b *outcomeBuilder) By(who string) *outcomeBuilder       { b.o.Reporter = who; return b }
func (b *outcomeBuilder) At(t time.Time) *outcomeBuilder      { b.o.Created = t; return b }
func (b *outcomeBuilder) Of(claimID string) *outcomeBuilder   { b.o.ClaimID = claimID; return b }
func (b *outcomeBuilder) OfAction(uid string) *outcomeBuilder { b.o.ActionUID = uid; return b }
func (b *outcomeBuilder) Lapsed() *outcomeBuilder {
	b.o.LeaseLapsed, b.o.Reporter = true, "operator"
	return b
}
func (b *outcomeBuilder) Obj() *flow.Outcome { o := b.o; return &o }

// recordBuilder builds the record of txn_1's refund.
type recordBuilder struct {
	r effect.Record
	s effect.Status
}

// aRecord is reserved at noon for an action, whose process may act as soon as it is admitted.
func aRecord(holder *flow.Action) *recordBuilder { return taken(holder, true) }

// aReservation is reserved at noon for an action that the operator executes.
func aReservation(holder *flow.Action) *recordBuilder { return taken(holder, false) }

func taken(holder *flow.Action, began bool) *recordBuilder {
	return &recordBuilder{
		r: effect.Record{Name: refundName, UID: "effect-uid", Key: refundKey},
		s: effect.First(effect.Take{
			Holder: effect.Holder{Name: holder.Name, UID: holder.UID, Agent: holder.Agent}, ActionType: holder.Type, Began: began,
			Token: tokenOf(1), Lease: noon.Add(5 * time.Minute), Now: noon,
		}),
	}
}

func (b *recordBuilder) must(s effect.Status, err error) *recordBuilder {
	if err != nil {
		panic(err)
	}
	b.s = s
	return b
}

func (b *recordBuilder) Key(key string) *recordBuilder { b.r.Key = key; return b }
func (b *recordBuilder) Released() *recordBuilder      { return b.must(b.s.Release(noon)) }
func (b *recordBuilder) Began() *recordBuilder         { return b.must(b.s.Begin("nonce", noon)) }
func (b *recordBuilder) Settled(state effect.State, cause effect.Cause) *recordBuilder {
	return b.must(b.s.Settle(effect.Settlement{State: state, Cause: cause, Now: noon.Add(time.Minute)}))
}
func (b *recordBuilder) Resolved(state effect.State) *recordBuilder {
	return b.must(b.s.Resolve(effect.Resolution{Name: "r", UID: "r-uid", Resolver: erin, State: state, QuotedSeq: 3, QuotedHash: "sha256:3"}, noon.Add(time.Minute)))
}
func (b *recordBuilder) Lost() *effect.Record {
	return &effect.Record{Name: b.r.Name, UID: b.r.UID, Key: b.r.Key}
}
func (b *recordBuilder) Obj() *effect.Record {
	r, s := b.r, b.s
	r.Status = &s
	return &r
}

// snapshotBuilder builds what a pass has read.
type snapshotBuilder struct{ s flow.Snapshot }

// aPass is over an action, a minute after noon, and has read nothing but what caches have: no effect, no statement.
func aPass(a *flow.Action) *snapshotBuilder {
	return &snapshotBuilder{flow.Snapshot{
		Now: noon.Add(time.Second), World: aWorld(), Action: flow.ActionRead{Presence: flow.Cached, Action: a},
		Answers: flow.AnswersRead{Presence: flow.Cached}, Claims: flow.ClaimsRead{Presence: flow.Cached},
	}}
}

// aPassOver is over a record; nil: there is none.
func aPassOver(r *effect.Record) *snapshotBuilder {
	b := &snapshotBuilder{flow.Snapshot{Now: noon.Add(time.Second), World: aWorld(), EffectName: refundName}}
	if r == nil {
		b.s.Effect.Presence = flow.Absent
		return b
	}
	return b.Effect(flow.Fresh, r)
}

func (b *snapshotBuilder) At(t time.Time) *snapshotBuilder { b.s.Now = t; return b }
func (b *snapshotBuilder) Policy(actions string) *snapshotBuilder {
	b.s.World.Policies = aPolicy(actions)
	return b
}
func (b *snapshotBuilder) With(change func(*flow.Snapshot)) *snapshotBuilder { change(&b.s); return b }
func (b *snapshotBuilder) Read() *snapshotBuilder                            { b.s.Action.Presence = flow.Fresh; return b }
func (b *snapshotBuilder) NoEffect() *snapshotBuilder {
	b.s.Effect = flow.EffectRead{Presence: flow.Absent}
	return b
}
func (b *snapshotBuilder) Effect(p flow.Presence, r *effect.Record) *snapshotBuilder {
	b.s.Effect = flow.EffectRead{Presence: p, Record: r}
	return b
}
func (b *snapshotBuilder) Holder(p flow.Presence, a *flow.Action) *snapshotBuilder {
	b.s.Holder = flow.ActionRead{Presence: p, Action: a}
	return b
}
func (b *snapshotBuilder) Answers(p flow.Presence, all ...approval.Answer) *snapshotBuilder {
	b.s.Answers = flow.AnswersRead{Presence: p, Answers: all}
	return b
}
func (b *snapshotBuilder) Claims(p flow.Presence, all ...flow.Claim) *snapshotBuilder {
	b.s.Claims = flow.ClaimsRead{Presence: p, Claims: all}
	return b
}
func (b *snapshotBuilder) Lock(o *flow.Outcome) *snapshotBuilder {
	b.s.Lock = flow.OutcomeRead{Presence: flow.Cached, Outcome: o}
	return b
}

// Executor executes refunds for the operator; the action, if it does not say otherwise, is wanted for an hour.
func (b *snapshotBuilder) Executor() *snapshotBuilder {
	if a := b.s.Action.Action; a != nil && a.NotAfter == nil {
		until := noon.Add(time.Hour)
		a.NotAfter = &until
	}
	b.s.World.Executors = flow.Executors{{Name: "refunds", Hash: executorHash, Types: []string{"stripe.refund"}}}
	return b
}

// Executors are there, too.
func (b *snapshotBuilder) Executors(more ...flow.Executor) *snapshotBuilder {
	b.s.World.Executors = append(b.s.World.Executors, more...)
	return b
}

// Chain has been folded for that identity; found is its receipt, nil if there is none.
func (b *snapshotBuilder) Chain(id receipt.Identity, found *receipt.Document) *snapshotBuilder {
	head := receipt.Link{Seq: 7, Hash: "sha256:" + strings.Repeat("7", 64)}
	b.s.Chain = flow.ChainRead{Read: true, Identity: id, Head: head, Found: found, FoundLink: head}
	return b
}

// Obj is the snapshot, in a pass that has read what is not said.
func (b *snapshotBuilder) Obj() flow.Snapshot { return b.s }

// told is a step in one line.
func told(step flow.Step) string {
	switch s := step.(type) {
	case flow.Done:
		return "done"
	case flow.Wait:
		if s.Until.IsZero() {
			return "wait for " + s.Why
		}
		return fmt.Sprintf("wait until %s for %s", s.Until.Format("15:04:05.999"), s.Why)
	case flow.Read:
		return "read " + string(s.Object)
	case flow.WriteAction:
		return strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", s.Why, s.Name, s.Status.State, s.Status.Reason))
	case flow.Begin:
		return fmt.Sprintf("begin %s before %s", s.Executor.Name, s.Before.Format("15:04:05"))
	case flow.WriteEffect:
		return strings.TrimSpace(fmt.Sprintf("%s: %s %d %s", s.Why, s.Status.State, s.Status.Attempt, s.Status.Cause))
	case flow.DeclareLapse:
		return "lapse " + flow.LockName(s.ActionUID, s.ClaimID, s.Proposer)
	case flow.Append:
		return strings.TrimSpace(fmt.Sprintf("append %s: %s %s", s.Document.Identity(), s.Document.Result, s.Document.Reason))
	case flow.Observe:
		return fmt.Sprintf("observe %s %d", s.Status.Observation.Moment, s.Attempt)
	case flow.Resolve:
		return fmt.Sprintf("resolve %d: %s by %s quoting %d", s.Attempt, s.State, s.Observer, s.Quoted.Seq)
	case flow.Judge:
		return fmt.Sprintf("judge %s: %s", s.Name, s.Reason)
	}
	return fmt.Sprintf("%T", step)
}

// expect checks the next step of a snapshot.
func expect(t *testing.T, b *snapshotBuilder, want string) flow.Step {
	t.Helper()
	step := flow.Next(b.Obj())
	if got := told(step); got != want {
		t.Fatalf("next is %q, want %q: %+v", got, want, step)
	}
	return step
}

func refTo(c flow.Claim) *effect.Ref { return &effect.Ref{Name: c.Name, UID: c.UID} }
