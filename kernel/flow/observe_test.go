package flow_test

import (
	"slices"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/receipt"
)

func observing(s *flow.Snapshot) { s.World.Observe = true }

// Nobody is asked in observe mode, so a change of policies is refused there, whatever the policy says of it.
func TestObserveAppliesNoChangeOfPolicies(t *testing.T) {
	for name, entry := range map[string]string{"approve": "approve", "deny": "deny", "allow": "allow"} {
		t.Run(name, func(t *testing.T) {
			a := anAction("a1").Obj()
			a.Type = policy.ChangeAction
			p := aPass(a).Policy(`{"ctrlrun.policy.change": {"effect": "policy:{payment_id}", "decision": "` + entry + `"}}`).Read()
			expect(t, p.With(observing), "end a1: Denied policy_change_unapproved")
		})
	}
	a := anAction("a1").Obj()
	a.Type = policy.ChangeAction
	expect(t, aPass(a).Policy(`{"ctrlrun.policy.change": {"effect": "policy:{payment_id}", "decision": "allow"}}`).Read(), "end a1: Denied policy_change_unapproved")
}

// In observe mode an action goes on where enforce mode ends it, and what would have ended it first is on record.
func TestObserveGoesOn(t *testing.T) {
	mine := func(p *snapshotBuilder) *snapshotBuilder { return p.Effect(flow.Absent, nil) }
	held := anAction("a0").Admitted(1).Obj()
	committed := aRecord(held).Settled(effect.Committed, "").Obj()
	for name, tc := range map[string]struct {
		policy string
		effect func(*snapshotBuilder) *snapshotBuilder
		with   func(*flow.Snapshot)
		first  string // the reservation, or the admission where there is none
		would  flow.WouldHave
	}{
		"allowed":           {allowing, mine, nil, "reserve: Executing 1", flow.WouldHave{Decision: decision.Allow, Reason: decision.PlainDecision}},
		"to be approved":    {approving, mine, nil, "reserve: Executing 1", flow.WouldHave{Decision: decision.Approve, Reason: decision.PlainDecision, Blocked: decision.ApprovalRequired}},
		"denied":            {denying, mine, nil, "reserve: Executing 1", flow.WouldHave{Decision: decision.Deny, Reason: decision.PlainDecision, Blocked: decision.PolicyDenied}},
		"unknown":           {`{}`, mine, nil, "admit a1: Admitted", flow.WouldHave{Decision: decision.Deny, Reason: decision.UnknownAction, Blocked: decision.UnknownAction}},
		"not granted":       {allowing, mine, requiring(grants(t, nil)), "reserve: Executing 1", flow.WouldHave{Decision: decision.Deny, Reason: decision.NoAuthority, Blocked: decision.NoAuthority}},
		"committed already": {allowing, func(p *snapshotBuilder) *snapshotBuilder { return p.Effect(flow.Fresh, committed) }, nil, "admit a1: Admitted", flow.WouldHave{Decision: decision.Allow, Reason: decision.PlainDecision, Blocked: decision.Duplicate}},
		// Enforcing looks at the effect before it asks anybody, unless it is in progress.
		"committed, and to be approved": {approving, func(p *snapshotBuilder) *snapshotBuilder { return p.Effect(flow.Fresh, committed) }, nil, "admit a1: Admitted", flow.WouldHave{Decision: decision.Approve, Reason: decision.PlainDecision, Blocked: decision.Duplicate}},
		"in progress, and to be approved": {approving, func(p *snapshotBuilder) *snapshotBuilder {
			return p.Effect(flow.Fresh, aRecord(held).Obj()).Holder(flow.Fresh, held)
		}, nil, "admit a1: Admitted", flow.WouldHave{Decision: decision.Approve, Reason: decision.PlainDecision, Blocked: decision.ApprovalRequired}},
		"committed, and denied": {denying, func(p *snapshotBuilder) *snapshotBuilder { return p.Effect(flow.Fresh, committed) }, nil, "admit a1: Admitted", flow.WouldHave{Decision: decision.Deny, Reason: decision.PlainDecision, Blocked: decision.PolicyDenied}},
		"in progress": {allowing, func(p *snapshotBuilder) *snapshotBuilder {
			return p.Effect(flow.Fresh, aRecord(held).Obj()).Holder(flow.Fresh, held)
		}, nil, "admit a1: Admitted", flow.WouldHave{Decision: decision.Allow, Reason: decision.PlainDecision, Blocked: decision.InProgress}},
	} {
		t.Run(name, func(t *testing.T) {
			a := anAction("a1").Obj()
			p := tc.effect(aPass(a).Policy(tc.policy).Read()).With(observing)
			if tc.with != nil {
				p = p.With(tc.with)
			}
			step := expect(t, p, tc.first)
			if reserve, ok := step.(flow.WriteEffect); ok {
				record := &effect.Record{Name: reserve.Name, UID: "effect-uid", Key: reserve.Key, Status: &reserve.Status}
				step = expect(t, p.Effect(flow.Fresh, record), "admit a1: Admitted")
			}
			admitted := step.(flow.WriteAction).Status
			if w := admitted.WouldHave; w == nil || *w != tc.would {
				t.Errorf("it would have: %+v, want %+v", w, tc.would)
			}
			if reserved := tc.first == "reserve: Executing 1"; admitted.Reserves() != reserved || (admitted.Execution.Token != "") != reserved {
				t.Errorf("it has attempt %+v and token %q", admitted.Effect, admitted.Execution.Token)
			}
			if len(admitted.Execution.Approvals) > 0 || admitted.Ask != nil {
				t.Errorf("people were asked: %+v", admitted)
			}
		})
	}
}

// The timeline says why the effect is not reserved, whatever would have stopped the action before.
func TestObserveTellsWhyNothingIsReserved(t *testing.T) {
	committed := aRecord(anAction("a0").Admitted(1).Obj()).Settled(effect.Committed, "").Obj()
	step := expect(t, aPass(anAction("a1").Obj()).Policy(denying).Read().Effect(flow.Fresh, committed).With(observing), "admit a1: Admitted")
	status := step.(flow.WriteAction).Status
	var told []string
	for _, e := range status.Timeline {
		told = append(told, string(e.Type)+" "+e.Data["reason"])
	}
	want := []string{"ACTION_PROPOSED ", "POLICY_EVALUATED decision", "EFFECT_RESERVATION_REFUSED duplicate", "EXECUTION_STARTED "}
	if !slices.Equal(told, want) || status.WouldHave.Blocked != decision.PolicyDenied {
		t.Errorf("told %q of an action that %s would have stopped", told, status.WouldHave.Blocked)
	}
}

// What has no hash and no key to be recorded under does not run in observe mode either; nor what nobody vouched for.
func TestObserveStillRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		action *flow.Action
		policy string
		want   string
	}{
		"no effect key":      {anAction("a1").Args(`{"amount":1}`).Obj(), allowing, "end a1: Denied effect_key_error"},
		"a fraction":         {anAction("a1").Args(`{"amount":1.5}`).Obj(), allowing, "end a1: Denied unrepresentable_argument"},
		"too long a lease":   {anAction("a1").Lease(2 * time.Hour).Obj(), allowing, "end a1: Denied lease_too_long"},
		"before admission":   {anAction("a1").At(noon.Add(-2 * time.Hour)).Obj(), allowing, "end a1: Blocked made_without_admission"},
		"no resource for it": {anAction("a1").Obj(), `{"stripe.refund":{"resource":"r:{missing}","decision":"allow"}}`, "end a1: Denied resource_error"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, aPass(tc.action).Policy(tc.policy).Read().Effect(flow.Absent, nil).With(observing), tc.want)
		})
	}
}

func TestEnded(t *testing.T) {
	for _, tc := range []struct {
		status flow.Status
		want   flow.State
	}{
		{flow.Status{State: flow.Committed}, flow.Committed},
		{flow.Status{State: flow.Pending}, flow.Pending},
		{flow.Status{State: flow.Observed, Outcome: flow.Failed}, flow.Failed},
		{flow.Status{State: flow.Observed}, flow.Ambiguous},
	} {
		if got := tc.status.Ended(); got != tc.want {
			t.Errorf("%s with outcome %q ended %q", tc.status.State, tc.status.Outcome, got)
		}
	}
}

// An observed action ends Observed, and what it did is beside that; a record it could not have stays as it is.
func TestObserveEnds(t *testing.T) {
	for result, want := range map[flow.OutcomeResult]flow.State{
		flow.ReportCommitted: flow.Committed, flow.ReportNotExecuted: flow.Failed, flow.ReportUnknown: flow.Ambiguous,
	} {
		for _, attempt := range []int64{0, 1} {
			a := anAction("a1").Admitted(1).Obj()
			a.WouldHave = &flow.WouldHave{Decision: decision.Deny, Reason: decision.NoAuthority, Blocked: decision.NoAuthority}
			p := aPass(a).With(observing)
			if attempt == 0 {
				a.Effect.Attempt, a.Execution.Token = 0, ""
			} else {
				p = p.Effect(flow.Fresh, aRecord(a).Obj())
			}
			p = p.Lock(anOutcome(a, result).Obj())
			step := flow.Next(p.Obj())
			if write, ok := step.(flow.WriteEffect); ok != (attempt == 1) {
				t.Fatalf("attempt %d, %s: the step is %s", attempt, result, told(step))
			} else if ok {
				p = p.Effect(flow.Fresh, &effect.Record{Name: write.Name, UID: "effect-uid", Key: write.Key, Status: &write.Status})
			}
			id := receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}
			written, ok := flow.Next(p.Chain(id, nil).Obj()).(flow.Append)
			if !ok {
				t.Fatalf("attempt %d, %s: no receipt is written", attempt, result)
			}
			if _, err := written.Document.Entry(receipt.Link{Hash: receipt.Genesis}); err != nil {
				t.Fatalf("attempt %d, %s: the receipt is refused: %v", attempt, result, err)
			}
			finish, ok := flow.Next(p.Chain(id, &written.Document).Obj()).(flow.WriteAction)
			if !ok || finish.Status.State != flow.Observed || finish.Status.Outcome != want || finish.Status.Ended() != want {
				t.Errorf("attempt %d, %s: it ends %+v", attempt, result, finish.Status)
			}
		}
	}
}

// Switched to while people are asked, it asks them no longer and spends nothing; switched back, they are asked as before.
func TestObserveWhileItWaits(t *testing.T) {
	a := anAction("a1").Asked(1).Obj()
	yes := anApproval(a).Obj()
	p := func() *snapshotBuilder {
		return aPass(a).Policy(approving).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, []approval.Answer{yes}...)
	}
	claimable := expect(t, p().With(observing), "claimable a1: Claimable").(flow.WriteAction).Status
	if claimable.WouldHave != nil {
		t.Error("what would have happened is on record before it was admitted")
	}
	a.Status = claimable
	expect(t, aPass(a).Policy(approving).Read().Effect(flow.Absent, nil).Answers(flow.Fresh), "wait a1: AwaitingApproval")
}

// What people said before it was switched to is part of what enforcing would have done, and is not spent.
func TestObserveHearsWhatPeopleSaid(t *testing.T) {
	asked := anAction("a1").Asked(1).Obj()
	yes, no := anApproval(asked).Obj(), anApproval(asked).Denied().Obj()
	for name, tc := range map[string]struct {
		policy  string
		answers []approval.Answer
		after   time.Duration
		want    decision.Reason
	}{
		"nothing yet":          {approving, nil, 0, decision.ApprovalRequired},
		"yes":                  {approving, []approval.Answer{yes}, 0, ""},
		"no":                   {approving, []approval.Answer{no}, 0, decision.ApprovalDenied},
		"nothing in time":      {approving, nil, time.Hour, decision.ApprovalExpired},
		"no, where it may now": {allowing, []approval.Answer{no}, 0, decision.ApprovalDenied},
	} {
		t.Run(name, func(t *testing.T) {
			a := anAction("a1").Asked(1).Obj()
			now := noon.Add(tc.after)
			p := func() *snapshotBuilder {
				return aPass(a).At(now).Policy(tc.policy).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, tc.answers...).With(observing)
			}
			a.Status = expect(t, p(), "claimable a1: Claimable").(flow.WriteAction).Status
			claimed := p().Claims(flow.Fresh, aClaim(a, "c1").Obj())
			reserve := expect(t, claimed, "reserve: Executing 1").(flow.WriteEffect)
			record := &effect.Record{Name: reserve.Name, UID: "effect-uid", Key: reserve.Key, Status: &reserve.Status}
			admitted := expect(t, claimed.Effect(flow.Fresh, record), "admit a1: Admitted").(flow.WriteAction).Status
			if got := admitted.WouldHave.Blocked; got != tc.want {
				t.Errorf("it would have been stopped by %q, want %q", got, tc.want)
			}
			if len(admitted.Execution.Approvals) > 0 {
				t.Errorf("approvals were spent: %+v", admitted.Execution.Approvals)
			}
		})
	}
}
