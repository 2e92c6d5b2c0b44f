package flow_test

import (
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

// anAsked is the record of an attempt that was asked back about at noon, and the action as it was told so.
func anAsked(t *testing.T, a *flow.Action, record *effect.Record) (*flow.Action, *effect.Record) {
	t.Helper()
	status, err := record.Status.Suspend(effect.Asked{Continuation: "state"}, nil, noon)
	if err != nil {
		t.Fatal(err)
	}
	asked, told := *record, *a
	asked.Status, told.Suspension = &status, status.Suspension
	return &told, &asked
}

// onward is a claim to go on with what was asked back about.
func onward(a *flow.Action, with ...func(*flow.Claim)) flow.Claim {
	c := flow.Claim{
		Name: a.Name + ".2", UID: "onward-uid", ActionUID: a.UID, ClaimID: "onward", ClaimableTime: noon, Claimant: alice, Created: noon.Add(time.Second),
		Continuation: &flow.Continuation{Round: 1, Value: "state", ActionHash: a.Hash},
	}
	for _, f := range with {
		f(&c)
	}
	return c
}

func claims(all ...flow.Claim) func(*flow.Snapshot) {
	return func(s *flow.Snapshot) { s.Claims = flow.ClaimsRead{Presence: flow.Cached, Claims: all} }
}

// Who goes on after an executor asked back, and when nobody does.
func TestAskedBack(t *testing.T) {
	plain := anAction("a1").Admitted(1).InOperatorMode().Obj()
	a, record := anAsked(t, plain, aReservation(plain).Began().Obj())
	until := record.Status.Lease // noon and five minutes
	waits := "wait until 12:05:10 for continuation"
	const goes = "begin refunds before 12:03:20"
	wanted := anAction("a1").NotAfter(noon.Add(time.Minute)).Admitted(1).InOperatorMode().Obj()
	wanted.Suspension = a.Suspension
	change := func(f func(*flow.Claim)) func(*flow.Snapshot) { return claims(onward(a, f)) }
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"the action is told first":               {aPass(plain).Executor().With(claims(onward(a))), "suspended a1: Admitted"},
		"nobody goes on yet":                     {aPass(a).Executor(), waits},
		"somebody does":                          {aPass(a).Executor().With(claims(onward(a))), goes},
		"a claim to begin is none to go on":      {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Continuation = nil })), waits},
		"somebody else":                          {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Claimant = bob })), waits},
		"another action":                         {aPass(a).Executor().With(change(func(c *flow.Claim) { c.ActionUID = "other" })), waits},
		"another round":                          {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Continuation.Round = 2 })), waits},
		"another continuation":                   {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Continuation.Value = "stat" })), waits},
		"of another time":                        {aPass(a).Executor().With(change(func(c *flow.Claim) { c.ClaimableTime = noon.Add(time.Second) })), waits},
		"other arguments":                        {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Continuation.ActionHash = "sha256:" + strings.Repeat("0", 64) })), waits},
		"an answer without canonical form":       {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Continuation.SetInput([]byte("0.5")) })), waits},
		"withdrawn":                              {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Withdrawn = true })), waits},
		"made without admission":                 {aPass(a).Executor().With(change(func(c *flow.Claim) { c.Created = aWorld().AdmissionSince })), waits},
		"with too little time left":              {aPass(a).Executor().At(noon.Add(200 * time.Second)).With(claims(onward(a))), waits},
		"when it is not wanted any more":         {aPass(wanted).Executor().At(noon.Add(time.Minute)).With(claims(onward(a))), waits},
		"while it holds":                         {aPass(a).Executor().With(claims(onward(a))).With(hold(decision.CachesStale, noon)), "wait until 12:05:10 for caches_stale"},
		"its executor is gone":                   {aPass(a).With(claims(onward(a))), "wait until 12:05:10 for executor"},
		"nobody went on, not long enough":        {aPass(a).Executor().At(until.Add(flow.LapseGrace - 1)).With(claims(onward(a))), waits},
		"nobody went on":                         {aPass(a).Executor().At(until.Add(flow.LapseGrace)).With(claims(onward(a))), "settle: Ambiguous 1 LeaseLapsed"},
		"nobody went on, by a clock that is off": {aPass(a).Executor().At(until.Add(flow.LapseGrace)).With(hold(decision.ClockSkew, noon)), "wait for clock_skew"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass.Effect(flow.Cached, record), tc.want) })
	}
	t.Run("the oldest goes on", func(t *testing.T) {
		later := onward(a, func(c *flow.Claim) { c.UID, c.Created = "later", noon.Add(2*time.Second) })
		begin := expect(t, aPass(a).Executor().With(claims(later, onward(a))).Effect(flow.Cached, record), goes).(flow.Begin)
		if begin.Going == nil || begin.Going.Taken.Claim.UID != "onward-uid" || begin.Going.Continuation != "state" {
			t.Errorf("it goes on by %+v", begin.Going)
		}
	})
	t.Run("nobody begins by a claim to go on", func(t *testing.T) {
		since, at := aWorld().AdmissionSince, noon
		claimable := *anAction("a1").Obj()
		claimable.ClaimableTime = &at
		begins := onward(&claimable, func(c *flow.Claim) { c.ClaimableTime, c.Continuation = at, nil })
		if reason := flow.ClaimCounts(&claimable, begins, since); reason != "" {
			t.Errorf("a claim to begin does not count: %s", reason)
		}
		goesOn := onward(&claimable, func(c *flow.Claim) { c.ClaimableTime = at })
		if reason := flow.ClaimCounts(&claimable, goesOn, since); reason != "NotSuspended" {
			t.Errorf("it is said to be %q", reason)
		}
	})
	t.Run("the receipt of what nobody went on with", func(t *testing.T) {
		status, err := record.Status.Settle(effect.Settlement{State: effect.Ambiguous, Cause: effect.LeaseLapsed, Now: until})
		if err != nil {
			t.Fatal(err)
		}
		over := *record
		over.Status = &status
		d := expect(t, aPass(a).Executor().Effect(flow.Cached, &over).Chain(ofAction(a), nil), "append action/a1-uid/0: ambiguous lease_lapsed").(flow.Append).Document
		if d.Rounds != 1 || !strings.Contains(d.Message, "nobody had gone on") {
			t.Errorf("it says %d rounds, %s", d.Rounds, d.Message)
		}
	})
}

// An agent asks back by the name that ends its attempt, and whoever goes on has another such name.
func TestAnAgentAskedBack(t *testing.T) {
	a := anAction("a1").Admitted(1).Obj()
	record := aRecord(a).Obj()
	back := func(with ...func(*flow.Outcome)) *flow.Outcome {
		o := anOutcome(a, flow.ReportAskedBack).Obj()
		o.Continuation = "state"
		for _, f := range with {
			f(o)
		}
		return o
	}
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"it is held":              {aPass(a).Lock(back()), "suspend: Executing 1"},
		"without a way on":        {aPass(a).Lock(back(func(o *flow.Outcome) { o.Continuation = "" })), "settle: Ambiguous 1 ReportedUnknown"},
		"after its lease":         {aPass(a).At(lapsed).Lock(back()), "settle: Ambiguous 1 ReportedUnknown"},
		"by another":              {aPass(a).Lock(back(func(o *flow.Outcome) { o.Reporter = bob })), "settle: Ambiguous 1 OutcomeNotAccepted"},
		"made without admission":  {aPass(a).Lock(back(func(o *flow.Outcome) { o.Created = aWorld().AdmissionSince })), "settle: Ambiguous 1 OutcomeNotAccepted"},
		"while admission is away": {aPass(a).Lock(back()).With(hold(decision.AdmissionMissing, noon)), "wait for admission_missing"},
		"while something else holds, for nothing is executed": {aPass(a).Lock(back()).With(hold(decision.CachesStale, noon)), "suspend: Executing 1"},
		"after its lease, while something holds":              {aPass(a).At(lapsed).Lock(back()).With(hold(decision.CachesStale, noon)), "settle: Ambiguous 1 ReportedUnknown"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass.Effect(flow.Cached, record), tc.want) })
	}
	t.Run("somebody goes on", func(t *testing.T) {
		told, asked := anAsked(t, a, record)
		again := onward(told, func(c *flow.Claim) { c.ClaimID = "a1-claim" })
		expect(t, aPass(told).With(claims(again)).Lock(back()).Effect(flow.Cached, asked), "wait until 12:05:10 for continuation") // its outcome has a name already
		if v := flow.JudgeClaim(told, again, aWorld().AdmissionSince); v.Reason != "ClaimIDTaken" {
			t.Errorf("a claim under the claimID that asked back: %+v", v)
		}
		next := expect(t, aPass(told).With(claims(onward(told))).Lock(back()).Effect(flow.Cached, asked), "continue: Executing 1").(flow.WriteEffect)
		taken := *asked
		taken.Status = &next.Status
		told.Suspension = next.Status.Suspension
		expect(t, aPass(told).Lock(back()).Effect(flow.Cached, &taken), "wait until 12:05:10 for outcome") // what asked back is no report of it
		expect(t, aPass(told).At(lapsed).Effect(flow.Cached, &taken), "lapse "+flow.LockName(a.UID, "onward", alice))
		report := back(func(o *flow.Outcome) {
			o.Name, o.ClaimID, o.Result = flow.LockName(a.UID, "onward", alice), "onward", flow.ReportCommitted
		})
		expect(t, aPass(told).Lock(report).Effect(flow.Cached, &taken), "settle: Committed 1")
		for _, o := range []*flow.Outcome{back(), report} {
			if v := flow.JudgeOutcome(told, *o); v.Given() {
				t.Errorf("the outcome of %s: %+v", o.ClaimID, v)
			}
		}
		if v := flow.JudgeClaim(told, onward(told), aWorld().AdmissionSince); !v.Accepted {
			t.Errorf("the claim that went on: %+v", v)
		}
		if v := flow.JudgeClaim(told, onward(told, func(c *flow.Claim) { c.UID, c.ClaimID = "second", "another" }), aWorld().AdmissionSince); v.Reason != "UnknownContinuation" {
			t.Errorf("a second claim: %+v", v)
		}
	})
}

// What an execution proves that goes on is less than what one proves that begins.
func TestConcluded(t *testing.T) {
	failed, stated := effect.Settlement{State: effect.Failed}, effect.Settlement{State: effect.Failed, Stated: true}
	for name, tc := range map[string]struct {
		going *flow.Going
		said  effect.Settlement
		state effect.State
		cause effect.Cause
	}{
		"it begins, and proves that nothing was executed": {nil, failed, effect.Failed, ""},
		"it begins, and the other side says so":           {nil, stated, effect.Failed, ""},
		"it goes on, and could not send anything":         {&flow.Going{}, failed, effect.Ambiguous, effect.ReportedUnknown},
		"it goes on, and the other side says so":          {&flow.Going{}, stated, effect.Failed, ""},
		"it goes on, and it happened":                     {&flow.Going{}, effect.Settlement{State: effect.Committed}, effect.Committed, ""},
		"it begins, and nobody knows":                     {nil, effect.Settlement{State: effect.Ambiguous}, effect.Ambiguous, effect.ReportedUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (flow.Begin{Going: tc.going}).Concluded(tc.said); got.State != tc.state || got.Cause != tc.cause {
				t.Errorf("%s %s, want %s %s", got.State, got.Cause, tc.state, tc.cause)
			}
		})
	}
}

// Rounds can come faster than they are told. That each was gone on with is told all the same.
func TestTimelineOfRounds(t *testing.T) {
	a := anAction("a1").Admitted(1).InOperatorMode().Obj()
	status := *aReservation(a).Began().Obj().Status
	for _, id := range []string{"one", "two"} {
		asked, err := status.Suspend(effect.Asked{Continuation: "state"}, nil, noon)
		if err == nil {
			status, err = asked.Continue(effect.Taken{Claim: effect.Ref{Name: "c-" + id, UID: id}, ClaimID: id}, "nonce-"+id, noon)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	record := aReservation(a).Began().Obj()
	record.Status = &status
	wantStory(t, story(t, expect(t, aPass(a).Executor().Effect(flow.Cached, record), "suspended a1: Admitted")),
		"ACTION_PROPOSED action_type=stripe.refund agent="+alice, "EXECUTION_RESUMED claim=c-one claim_id=one round=1", "EXECUTION_SUSPENDED expires=2026-07-01T12:05:00.000Z round=2", "EXECUTION_RESUMED claim=c-two claim_id=two round=2")
}
