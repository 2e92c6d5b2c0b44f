package flow_test

import (
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

const forFinance = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approverGroups":["finance"]}}`

// The right to approve is asked for again before an approval is spent, by the last read before the reservation, and one that was
// taken away makes the approval count no more.
func TestEntitlementIsCheckedAgain(t *testing.T) {
	a := anAction("a1").Asked(1).Claimable(noon).Obj()
	yes := anApproval(a).Obj()
	claim := aClaim(a, "c1").Obj()
	p := func(e approval.Entitlement) *snapshotBuilder {
		answer := yes
		answer.Entitlement = e
		return aPass(a).Policy(approving).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, answer).Claims(flow.Fresh, claim)
	}
	read := expect(t, p(approval.Unchecked), "read entitlement").(flow.Read)
	if read.Name != yes.UID {
		t.Errorf("it asks about %q, want the approval %q", read.Name, yes.UID)
	}
	expect(t, p(approval.Entitled), "reserve: Executing 1")
	waits := expect(t, p(approval.Unentitled), "wait a1: AwaitingApproval").(flow.WriteAction).Status
	if waits.Ask.Counted != 0 {
		t.Errorf("it counts: %+v", waits.Ask)
	}
	// Reserved by another pass: the one that admits asks for itself.
	reserved := p(approval.Unchecked).Effect(flow.Fresh, aRecord(a).Obj())
	expect(t, reserved, "read entitlement")
}

// The groups that are asked are pinned with the question, and the policy's of now count as well.
func TestApproverGroupsArePinned(t *testing.T) {
	a := anAction("a1").Obj()
	pinned := expect(t, aPass(a).Policy(forFinance).Read().Effect(flow.Absent, nil), "pin a1: AwaitingApproval").(flow.WriteAction).Status
	if len(pinned.Ask.Groups) != 1 || pinned.Ask.Groups[0] != "finance" {
		t.Fatalf("pinned is %+v", pinned.Ask)
	}
	a.Status = pinned
	by := func(groups ...string) approval.Answer {
		x := anApproval(a).Obj()
		x.Groups = groups
		return x
	}
	for name, tc := range map[string]struct {
		policy string
		groups []string
		want   string
	}{
		"as they are":              {forFinance, []string{"finance"}, "claimable a1: Claimable"},
		"another group":            {forFinance, []string{"support"}, "wait until 12:15:01.001 for approval"},
		"asked of nobody now":      {approving, []string{"support"}, "wait until 12:15:01.001 for approval"},
		"asked of others now":      {`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approverGroups":["board"]}}`, []string{"finance"}, "wait until 12:15:01.001 for approval"},
		"in those of then and now": {`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approverGroups":["board"]}}`, []string{"finance", "board"}, "claimable a1: Claimable"},
	} {
		t.Run(name, func(t *testing.T) {
			first := flow.Next(aPass(a).Policy(tc.policy).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, by(tc.groups...)).Obj())
			if write, ok := first.(flow.WriteAction); ok && write.Why == flow.WhyWait {
				b := *a
				b.Status = write.Status
				first = flow.Next(aPass(&b).Policy(tc.policy).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, by(tc.groups...)).Obj())
			}
			if got := told(first); got != tc.want {
				t.Errorf("next is %q, want %q", got, tc.want)
			}
		})
	}
	v := flow.JudgeAnswer(aWorld(), a, by("support"), []approval.Answer{by("support")})
	if v.Accepted || v.Reason != "NotEntitled" {
		t.Errorf("the verdict is %+v", v)
	}
	unknown := by()
	if v := flow.JudgeAnswer(aWorld(), a, unknown, []approval.Answer{unknown}); v.Reason != "NotEntitled" || !strings.Contains(v.Message, "more than 64 groups") {
		t.Errorf("the verdict is %+v", v)
	}
	revoked := by("finance")
	revoked.Entitlement = approval.Unentitled
	if v := flow.JudgeAnswer(aWorld(), a, revoked, []approval.Answer{revoked}); v.Accepted || v.Reason != "NotEntitled" || !strings.Contains(v.Message, "may not approve stripe.refund") {
		t.Errorf("the verdict is %+v", v)
	}
	// Who was told that another one was enough would be told so for good, so it is asked whether that one may say it.
	second := by("finance")
	second.Name, second.UID, second.Approver = "second", "second", "dave"
	first := by("finance")
	first.Entitlement = approval.Unchecked
	ready := *a
	ready.State = flow.Claimable
	if uid := flow.Unchecked(aWorld(), &ready, []approval.Answer{first, second}); uid != first.UID {
		t.Errorf("it asks about %q, want %q", uid, first.UID)
	}
	first.Entitlement = approval.Unentitled
	both := []approval.Answer{first, second}
	if v := flow.JudgeAnswer(aWorld(), &ready, second, both); !v.Accepted || flow.Unchecked(aWorld(), &ready, both) != "" {
		t.Errorf("the verdict is %+v", v)
	}
	// What only the policy of now does not ask for gets no verdict: a refusal is for good, and a policy is not.
	w := aWorld()
	w.Policies = aPolicy(`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approverGroups":["board"]}}`)
	if v := flow.JudgeAnswer(w, a, by("finance"), []approval.Answer{by("finance")}); v.Given() {
		t.Errorf("the verdict is %+v", v)
	}
	if v := flow.JudgeAnswer(w, a, by("finance", "board"), []approval.Answer{by("finance", "board")}); !v.Accepted {
		t.Errorf("the verdict is %+v", v)
	}
}

// Whoever asked, by whatever name, neither answers nor says what became of it.
func TestOnePersonByManyNames(t *testing.T) {
	people := func(s *flow.Snapshot) { s.World.People = approval.NewPeople([][]string{{alice, carol}}) }
	a := anAction("a1").Asked(1).Obj()
	yes := anApproval(a).Obj()
	v := flow.JudgeAnswer(flow.World{AdmissionSince: aWorld().AdmissionSince, People: approval.NewPeople([][]string{{alice, carol}})}, a, yes, []approval.Answer{yes})
	if v.Accepted || v.Reason != "SelfApproval" {
		t.Errorf("the verdict is %+v", v)
	}
	step := flow.Next(aPass(a).Policy(approving).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, yes).With(people).Obj())
	if write, ok := step.(flow.WriteAction); !ok || write.Status.State != flow.AwaitingApproval {
		t.Errorf("next is %s", told(step))
	}
	record := aRecord(anAction("a1").Admitted(1).Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()
	resolution := flow.Resolution{Name: "r", UID: "r", EffectUID: record.UID, Attempt: 1, ActionType: record.Status.ActionType, State: effect.Committed, Resolver: carol, Created: noon, Reason: "seen"}
	s := aPassOver(record).With(people).With(func(s *flow.Snapshot) { s.Resolutions = []flow.Resolution{resolution} })
	if judged, ok := flow.Next(s.Obj()).(flow.Judge); !ok || judged.Accepted || judged.Reason != "SelfResolution" {
		t.Errorf("the resolution is judged %+v", judged)
	}
}

// Nobody is told to come on an approval by somebody who may not approve any more, in no pass: each asks before it says so.
func TestNothingIsClaimableByTheUnentitled(t *testing.T) {
	a := anAction("a1").Asked(1).Obj()
	p := func(a *flow.Action, e approval.Entitlement) *snapshotBuilder {
		answer := anApproval(a).Obj()
		answer.Entitlement = e
		return aPass(a).Policy(approving).Effect(flow.Absent, nil).Answers(flow.Cached, answer)
	}
	read := expect(t, p(a, approval.Unchecked), "read entitlement").(flow.Read)
	if want := anApproval(a).Obj().UID; read.Name != want {
		t.Errorf("it asks about %q, want the approval %q", read.Name, want)
	}
	expect(t, p(a, approval.Entitled), "claimable a1: Claimable")
	waits := expect(t, p(a, approval.Unentitled), "wait a1: AwaitingApproval").(flow.WriteAction).Status
	if waits.Ask.Counted != 0 || !strings.Contains(waits.Message, carol) {
		t.Errorf("it counts %d and says %q", waits.Ask.Counted, waits.Message)
	}
	b := *a
	b.Status = waits
	expect(t, p(&b, approval.Unchecked), "read entitlement")
	expect(t, p(&b, approval.Unentitled), "wait until 12:15:00.001 for approval")
}
