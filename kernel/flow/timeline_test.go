package flow_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/timeline"
)

// story renders the events a step adds, one a line.
func story(t *testing.T, step flow.Step, before ...timeline.Event) string {
	t.Helper()
	write, ok := step.(flow.WriteAction)
	if !ok {
		t.Fatalf("the step is %#v, want a write of the action", step)
	}
	var b strings.Builder
	for _, e := range timeline.Since(before, write.Status.Timeline) {
		fmt.Fprint(&b, e.Type)
		for _, k := range slices.Sorted(maps.Keys(e.Data)) {
			fmt.Fprintf(&b, " %s=%s", k, e.Data[k])
		}
		b.WriteString("\n")
	}
	return b.String()
}

func wantStory(t *testing.T, got string, lines ...string) {
	t.Helper()
	if want := strings.Join(lines, "\n") + "\n"; got != want {
		t.Errorf("told is\n%swant\n%s", got, want)
	}
}

// The orders of events: each specific one before the one it leads to.
func TestTimelineTellsInOrder(t *testing.T) {
	proposed := timeline.Event{Seq: 1, Time: noon, Type: timeline.ActionProposed}
	const proposedLine = "ACTION_PROPOSED action_type=stripe.refund agent=" + alice
	policyIs := func(answer string) string {
		return "POLICY_EVALUATED decision=" + answer + " reason=decision rules_hash=rules"
	}
	world := func(s *flow.Snapshot) { s.World.RulesHash = "rules" }
	told := func(s *flow.Snapshot) { world(s); s.Action.Action.Timeline = []timeline.Event{proposed} }

	t.Run("allowed and admitted", func(t *testing.T) {
		a := anAction("a1").Obj()
		step := flow.Next(aPass(a).Policy(allowing).Read().Effect(flow.Fresh, aRecord(a).Obj()).With(world).Obj())
		wantStory(t, story(t, step), proposedLine, policyIs("allow"),
			"EFFECT_RESERVED attempt=1 effect_key="+refundKey, "EXECUTION_STARTED attempt=1 claim_id=a1-claim")
	})
	t.Run("asked", func(t *testing.T) {
		a := anAction("a1").Obj()
		step := flow.Next(aPass(a).Policy(approving).Effect(flow.Absent, nil).With(world).Obj())
		wantStory(t, story(t, step), proposedLine, policyIs("approve"), "APPROVAL_REQUESTED expires=2026-07-01T12:15:01.000Z required=1")
	})
	t.Run("granted, and one that does not count", func(t *testing.T) {
		a := anAction("a1").Asked(1).Obj()
		yes, other := anApproval(a).Obj(), anApproval(a).By(dave).Obj()
		other.Hash = "sha256:another"
		step := flow.Next(aPass(a).Policy(approving).Answers(flow.Fresh, other, yes).Effect(flow.Absent, nil).With(told).Obj())
		wantStory(t, story(t, step, proposed), "APPROVAL_INVALIDATED approval="+other.Name+" approver="+dave+" reason=mismatch",
			"APPROVAL_GRANTED approval="+yes.Name+" approver="+carol, "ACTION_CLAIMABLE expires=2026-07-01T12:15:01.000Z")
	})
	t.Run("consumed", func(t *testing.T) {
		a := anAction("a1").Asked(1).Claimable(noon).Obj()
		yes, claim := anApproval(a).Obj(), aClaim(a, "c").Obj()
		granted := timeline.Event{Seq: 2, Type: timeline.ApprovalGranted, Data: map[string]string{"approval": yes.Name}}
		step := flow.Next(aPass(a).Policy(approving).Claims(flow.Cached, claim).Answers(flow.Fresh, yes).Effect(flow.Fresh, aRecord(a).Obj()).Read().With(func(s *flow.Snapshot) {
			told(s)
			s.Action.Action.Timeline = append(s.Action.Action.Timeline, granted)
			s.Answers.Presence = flow.Fresh
		}).Obj())
		wantStory(t, story(t, step, proposed, granted), "APPROVAL_CONSUMED approval="+yes.Name+" approver="+carol,
			"EFFECT_RESERVED attempt=1 effect_key="+refundKey, "EXECUTION_STARTED attempt=1 claim_id="+claim.ClaimID)
	})
	t.Run("a person says no: that is an answer, and nothing is invalidated", func(t *testing.T) {
		a := anAction("a1").Asked(1).Obj()
		no := anApproval(a).Obj()
		no.Approved = false
		step := flow.Next(aPass(a).Policy(approving).Answers(flow.Fresh, no).Effect(flow.Absent, nil).With(told).Obj())
		wantStory(t, story(t, step, proposed), "APPROVAL_DENIED approval="+no.Name+" approver="+carol, "ACTION_DENIED reason=approval_denied")
	})
	t.Run("nobody answers: the specific event first", func(t *testing.T) {
		a := anAction("a1").Asked(1).Obj()
		step := flow.Next(aPass(a).Policy(approving).Answers(flow.Fresh).Effect(flow.Absent, nil).With(told).With(func(s *flow.Snapshot) { s.Now = noon.Add(time.Hour) }).Obj())
		wantStory(t, story(t, step, proposed), "APPROVAL_EXPIRED expires=2026-07-01T12:15:00.000Z", "APPROVAL_INVALIDATED reason=expired", "ACTION_EXPIRED reason=approval_expired")
	})
	t.Run("denied by the policy", func(t *testing.T) {
		a := anAction("a1").Obj()
		step := flow.Next(aPass(a).Policy(`{"stripe.refund":{"decision":"deny"}}`).With(world).Obj())
		wantStory(t, story(t, step), proposedLine, policyIs("deny"), "ACTION_DENIED reason=decision")
	})
	t.Run("denied before any policy saw it", func(t *testing.T) {
		a := anAction("a1").Args(`{"amount":1.5}`).Obj()
		step := flow.Next(aPass(a).Policy(allowing).With(world).Obj())
		wantStory(t, story(t, step), proposedLine, "ACTION_DENIED reason=unrepresentable_argument")
	})
	t.Run("the effect is taken", func(t *testing.T) {
		a := anAction("a2").Obj()
		taken := aRecord(anAction("a1").Obj()).Obj()
		taken.Status.State = "Committed"
		step := flow.Next(aPass(a).Policy(allowing).Read().Effect(flow.Fresh, taken).With(world).Obj())
		wantStory(t, story(t, step), proposedLine, policyIs("allow"), "EFFECT_RESERVATION_REFUSED effect_key="+refundKey+" reason=duplicate")
	})
	t.Run("held", func(t *testing.T) {
		a := anAction("a1").Obj()
		step := flow.Next(aPass(a).Policy(allowing).With(func(s *flow.Snapshot) {
			s.World.Holds = []flow.Hold{{Reason: decision.ClockSkew, Message: "held", Since: noon.Add(-time.Minute)}}
		}).Obj())
		wantStory(t, story(t, step), proposedLine, "ACTION_HELD reason=clock_skew")
	})
}

// What people said is on the receipt and on the admission with the rules they said it under, or those of the pass that
// accepted them first.
func TestApprovalsCarryTheRulesTheyWereAcceptedUnder(t *testing.T) {
	a := anAction("a1").Asked(2).Claimable(noon).Obj()
	judged, fresh := anApproval(a).Obj(), anApproval(a).By(dave).At(noon.Add(1)).Obj()
	judged.RulesHash = "rules of then"
	step := flow.Next(aPass(a).Policy(`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approvalsRequired":2}}`).
		Claims(flow.Cached, aClaim(a, "c").Obj()).Answers(flow.Fresh, judged, fresh).Effect(flow.Fresh, aRecord(a).Obj()).Read().
		With(func(s *flow.Snapshot) { s.World.RulesHash, s.Answers.Presence = "rules of now", flow.Fresh }).Obj())
	write, ok := step.(flow.WriteAction)
	if !ok || write.Status.Execution == nil {
		t.Fatalf("the step is %#v", step)
	}
	got := func(x []approval.Answer) string { return x[0].RulesHash + ", " + x[1].RulesHash }(write.Status.Execution.Approvals)
	if got != "rules of then, rules of now" || write.Status.RulesHash != "rules of now" {
		t.Errorf("approvals under %s, decided under %s", got, write.Status.RulesHash)
	}
}

// Whoever may approve can make many approvals that do not count. They are told of a few times, never twice, and push nothing
// out of the timeline that a later write would then tell again.
func TestTimelineIsNotFilledByApprovers(t *testing.T) {
	a := anAction("a1").Asked(1).Obj()
	a.Timeline = []timeline.Event{{Seq: 1, Time: noon, Type: timeline.ActionProposed}}
	yes := anApproval(a).Obj()
	answers := []approval.Answer{yes}
	for i := range 60 {
		no := anApproval(a).By(dave).Obj()
		no.Hash, no.Name, no.UID = "sha256:another", fmt.Sprintf("a1.dave.%d", i), fmt.Sprintf("no-%d", i)
		answers = append(answers, no)
	}
	told := map[string]int{}
	for range 6 {
		before := a.Timeline
		step := flow.Next(aPass(a).Policy(approving).Answers(flow.Fresh, answers...).Effect(flow.Absent, nil).With(func(s *flow.Snapshot) { s.Action.Action.ClaimableTime = nil }).Obj())
		write, ok := step.(flow.WriteAction)
		if !ok {
			t.Fatalf("the step is %#v", step)
		}
		for _, e := range timeline.Since(before, write.Status.Timeline) {
			told[string(e.Type)+" "+e.Data["approval"]]++
		}
		a.Timeline = write.Status.Timeline
	}
	invalidated := 0
	for what, n := range told {
		if strings.HasPrefix(what, string(timeline.ApprovalInvalidated)) {
			invalidated++
		}
		if n > 1 && !strings.HasPrefix(what, string(timeline.ActionClaimable)) {
			t.Errorf("%s is told %d times", what, n)
		}
	}
	if invalidated != 8 || told[string(timeline.ApprovalGranted)+" "+yes.Name] != 1 {
		t.Errorf("told are %v", told)
	}
}
