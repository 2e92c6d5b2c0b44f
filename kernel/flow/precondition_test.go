package flow_test

import (
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/precondition"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

var (
	asThen = "sha256:" + strings.Repeat("a", 64)
	asNow  = "sha256:" + strings.Repeat("b", 64)
)

// resting is an action that rests on how many replicas there are.
func resting(b *actionBuilder) *flow.Action {
	a := b.Obj()
	a.Preconditions = []precondition.Ref{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Pointer: "/spec/replicas"}}
	return a
}

// noted has waited, since it was as it was then.
func noted(a *flow.Action) *flow.Action {
	a.Fingerprints = &flow.Fingerprints{AtRequest: asThen}
	return a
}

func found(read flow.PreconditionsRead) func(*flow.Snapshot) {
	return func(s *flow.Snapshot) { s.Preconditions = read; s.Preconditions.Read = true }
}

var (
	unread = func(*flow.Snapshot) {}
	same   = found(flow.PreconditionsRead{Fingerprint: asThen})
	moved  = found(flow.PreconditionsRead{Fingerprint: asNow})
	gone   = found(flow.PreconditionsRead{Refusal: "Deployment web does not exist"})
	silent = found(flow.PreconditionsRead{Trouble: "the apiserver is busy"})
)

// What the preconditions name is noted by the write with which the action begins to wait, and by no other.
func TestPreconditionsAreNoted(t *testing.T) {
	for name, tc := range map[string]struct {
		action *flow.Action
		policy string
		with   func(*flow.Snapshot)
		want   string
		at     string
	}{
		"people are asked":                    {resting(anAction("a1")), approving, same, "pin a1: AwaitingApproval", asThen},
		"it is read first":                    {resting(anAction("a1")), approving, unread, "read preconditions", ""},
		"a process is waited for":             {resting(anAction("a1").Claim("")), allowing, same, "claimable a1: Claimable", asThen},
		"a process is waited for, after read": {resting(anAction("a1").Claim("")), allowing, unread, "read preconditions", ""},
		"it cannot be noted":                  {resting(anAction("a1")), approving, gone, "end a1: Denied precondition_unavailable", ""},
		"it cannot be noted for a process":    {resting(anAction("a1").Claim("")), allowing, gone, "end a1: Denied precondition_unavailable", ""},
		"nobody knows":                        {resting(anAction("a1")), approving, silent, "hold a1: Pending precondition_unavailable", ""},
		"it names none":                       {anAction("a1").Obj(), approving, unread, "pin a1: AwaitingApproval", ""},
		"it waits again, for people":          {noted(resting(anAction("a1").Claim("").Claimable(noon))), approving, same, "pin a1: AwaitingApproval", asThen},
		"nobody is asked once it is another":  {noted(resting(anAction("a1").Claim("").Claimable(noon))), approving, moved, "end a1: Blocked precondition_changed", asThen},
		"nobody is asked in vain":             {resting(anAction("a1").Claim("").Claimable(noon)), approving, same, "end a1: Blocked precondition_missing", ""},
	} {
		t.Run(name, func(t *testing.T) {
			step := expect(t, aPass(tc.action).Policy(tc.policy).Read().Effect(flow.Absent, nil).With(tc.with), tc.want)
			write, ok := step.(flow.WriteAction)
			if !ok {
				return
			}
			at := ""
			if f := write.Status.Fingerprints; f != nil {
				at = f.AtRequest
			}
			if at != tc.at {
				t.Errorf("it notes %q, want %q", at, tc.at)
			}
			if write.Status.State == flow.Denied && (write.Status.Decision == decision.Deny) {
				t.Errorf("the policy did not deny it: %+v", write.Status)
			}
		})
	}
}

// What cannot be read for now is asked for again, and says so once.
func TestPreconditionsAreReadAgain(t *testing.T) {
	a := resting(anAction("a1"))
	held := expect(t, aPass(a).Policy(approving).Read().Effect(flow.Absent, nil).With(silent), "hold a1: Pending precondition_unavailable").(flow.WriteAction).Status
	if !strings.Contains(held.Message, "the apiserver is busy") || held.Timeline[len(held.Timeline)-2].Type != timeline.ActionHeld {
		t.Errorf("it says %q, and tells %+v", held.Message, held.Timeline)
	}
	b := *a
	b.Status = held
	expect(t, aPass(&b).Policy(approving).Read().Effect(flow.Absent, nil).With(silent), "wait until 12:00:16 for precondition_unavailable")
	after := expect(t, aPass(&b).Policy(approving).Read().Effect(flow.Absent, nil).With(same), "pin a1: AwaitingApproval").(flow.WriteAction).Status
	if after.Reason != "" {
		t.Errorf("it still says %q", after.Reason)
	}
}

// Right before the reservation, and by the pass that admits, what they name is compared: after everything else but the action
// itself was read.
func TestPreconditionsAreCompared(t *testing.T) {
	asked := func() *flow.Action { return resting(anAction("a1").Asked(1).Claimable(noon)) }
	for name, tc := range map[string]struct {
		action *flow.Action
		with   func(*flow.Snapshot)
		want   string
		says   string
	}{
		"read":                     {noted(asked()), unread, "read preconditions", ""},
		"the same":                 {noted(asked()), same, "reserve: Executing 1", ""},
		"another":                  {noted(asked()), moved, "end a1: Blocked precondition_changed", "apps/v1/Deployment/web#/spec/replicas"},
		"gone":                     {noted(asked()), gone, "end a1: Blocked precondition_unavailable", "Deployment web does not exist"},
		"nobody knows":             {noted(asked()), silent, "hold a1: Claimable precondition_unavailable", "the apiserver is busy"},
		"never noted":              {asked(), same, "end a1: Blocked precondition_missing", "Propose it again"},
		"never noted, and none":    {anAction("a1").Asked(1).Claimable(noon).Obj(), unread, "reserve: Executing 1", ""},
		"noted, and names no more": {noted(anAction("a1").Asked(1).Claimable(noon).Obj()), unread, "reserve: Executing 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := tc.action
			p := aPass(a).Policy(approving).Read().Answers(flow.Fresh, anApproval(a).Obj()).Claims(flow.Fresh, aClaim(a, "c1").Obj()).With(tc.with)
			step := expect(t, p.Effect(flow.Absent, nil), tc.want)
			if write, ok := step.(flow.WriteAction); ok {
				if !strings.Contains(write.Status.Message, tc.says) {
					t.Errorf("it says %q", write.Status.Message)
				}
				return
			}
			if tc.want != "reserve: Executing 1" {
				return
			}
			admitted := expect(t, p.Effect(flow.Fresh, aRecord(a).Obj()), "admit a1: Admitted").(flow.WriteAction).Status
			if f := admitted.Fingerprints; len(a.Preconditions) > 0 && (f == nil || *f != flow.Fingerprints{AtRequest: asThen, AtRecheck: asThen}) {
				t.Errorf("it notes %+v", f)
			}
			// Reserved by another pass: the one that admits looks for itself.
			if len(a.Preconditions) > 0 {
				expect(t, p.Effect(flow.Fresh, aRecord(a).Obj()).With(func(s *flow.Snapshot) { s.Preconditions = flow.PreconditionsRead{} }), "read preconditions")
				expect(t, p.With(moved), "end a1: Blocked precondition_changed")
			}
		})
	}
}

// Whenever somebody has said yes, what they were shown is compared: with two to be asked, after the first.
func TestPreconditionsAreComparedWithEachYes(t *testing.T) {
	const two = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approvalsRequired":2}}`
	a := noted(resting(anAction("a1").Asked(2)))
	one := aPass(a).Policy(two).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, anApproval(a).Obj())
	expect(t, one, "read preconditions")
	expect(t, one.With(moved), "end a1: Blocked precondition_changed")
	counted := expect(t, one.With(same), "wait a1: AwaitingApproval").(flow.WriteAction).Status
	if counted.Ask.Counted != 1 {
		t.Errorf("it counts %+v", counted.Ask)
	}
	b := *a
	b.Status = counted
	again := aPass(&b).Policy(two).Read().Effect(flow.Absent, nil).Answers(flow.Fresh, anApproval(a).Obj())
	expect(t, again, "wait until 12:15:00.001 for approval")
	both := again.Answers(flow.Fresh, anApproval(a).Obj(), anApproval(a).By(dave).Obj())
	expect(t, both, "read preconditions")
	expect(t, both.With(moved), "end a1: Blocked precondition_changed")
	expect(t, both.With(same), "claimable a1: Claimable")
}

// What nobody answers about is asked for again only as long as the action may wait, and never with a reservation in hand.
func TestPreconditionsAreNotReadForEver(t *testing.T) {
	first := resting(anAction("a1"))
	asked := noted(resting(anAction("a1").Asked(1)))
	claimed := noted(resting(anAction("a1").Claimable(noon)))
	for name, tc := range map[string]struct {
		action *flow.Action
		policy string
		change func(*snapshotBuilder) *snapshotBuilder
		until  time.Time
		end    string
	}{
		"before it waits": {first, approving, func(p *snapshotBuilder) *snapshotBuilder { return p }, noon.Add(15 * time.Minute), "end a1: Denied precondition_unavailable"},
		"with a yes":      {asked, approving, func(p *snapshotBuilder) *snapshotBuilder { return p.Answers(flow.Fresh, anApproval(asked).Obj()) }, noon.Add(15 * time.Minute), "end a1: Blocked precondition_unavailable"},
		"with a claim":    {claimed, allowing, func(p *snapshotBuilder) *snapshotBuilder { return p.Claims(flow.Fresh, aClaim(claimed, "c1").Obj()) }, noon.Add(15 * time.Minute), "end a1: Blocked precondition_unavailable"},
	} {
		p := tc.change(aPass(tc.action).Policy(tc.policy).Read().Effect(flow.Absent, nil).With(silent))
		if got := told(flow.Next(p.At(tc.until).Obj())); !strings.HasPrefix(got, "hold a1: ") {
			t.Errorf("%s: until then next is %q", name, got)
		}
		if got := told(flow.Next(p.At(tc.until.Add(time.Millisecond)).Obj())); got != tc.end {
			t.Errorf("%s: after it next is %q", name, got)
		}
	}
	reserved := aPass(claimed).Policy(allowing).Read().Effect(flow.Fresh, aRecord(claimed).Obj()).Claims(flow.Fresh, aClaim(claimed, "c1").Obj()).With(silent)
	ended := expect(t, reserved, "end a1: Blocked precondition_unavailable").(flow.WriteAction).Status
	b := *claimed
	b.Status = ended
	expect(t, aPassOver(aRecord(claimed).Obj()).Holder(flow.Fresh, &b), "release: Failed 1")
}

// They are looked at last but for the action: a read that takes long makes nothing older than it has to be.
func TestPreconditionsAreReadLast(t *testing.T) {
	a := noted(resting(anAction("a1").Asked(1).Claimable(noon)))
	p := aPass(a).Policy(approving).Answers(flow.Cached, anApproval(a).Obj()).Claims(flow.Fresh, aClaim(a, "c1").Obj()).Effect(flow.Absent, nil)
	expect(t, p, "read approvals")
	expect(t, p.Answers(flow.Fresh, anApproval(a).Obj()), "read preconditions")
	expect(t, p.With(same), "read action")
	expect(t, p.Read(), "reserve: Executing 1")
}

// An action that is allowed and waits for nobody has nothing to be compared with. What it names has to be there all the same.
func TestPreconditionsOfWhatDoesNotWait(t *testing.T) {
	a := resting(anAction("a1"))
	p := aPass(a).Policy(allowing)
	expect(t, p, "read effect")
	expect(t, p.Effect(flow.Absent, nil), "read preconditions")
	expect(t, p.With(gone), "end a1: Denied precondition_unavailable")
	expect(t, p.With(silent), "hold a1: Pending precondition_unavailable")
	expect(t, p.With(same).Read(), "reserve: Executing 1")
	admitted := expect(t, p.Effect(flow.Fresh, aRecord(a).Obj()), "admit a1: Admitted").(flow.WriteAction).Status
	if f := admitted.Fingerprints; f == nil || *f != (flow.Fingerprints{AtRecheck: asThen}) {
		t.Errorf("it notes %+v", f)
	}
}

// In observe mode it runs, and what would have kept it from it is on record.
func TestPreconditionsAreObserved(t *testing.T) {
	waits := func() *flow.Action { return resting(anAction("a1").Claim("").Claimable(noon)) }
	for name, tc := range map[string]struct {
		action *flow.Action
		with   func(*flow.Snapshot)
		would  decision.Reason
	}{
		"the same":     {noted(waits()), same, ""},
		"another":      {noted(waits()), moved, decision.PreconditionChanged},
		"gone":         {noted(waits()), gone, decision.PreconditionUnavailable},
		"nobody knows": {noted(waits()), silent, decision.PreconditionUnavailable},
		"never noted":  {waits(), same, decision.PreconditionMissing},
	} {
		t.Run(name, func(t *testing.T) {
			a := tc.action
			p := aPass(a).Policy(allowing).Read().Claims(flow.Fresh, aClaim(a, "c1").Obj()).With(observing).With(tc.with)
			expect(t, p.Effect(flow.Absent, nil), "reserve: Executing 1")
			w := expect(t, p.Effect(flow.Fresh, aRecord(a).Obj()), "admit a1: Admitted").(flow.WriteAction).Status.WouldHave
			if w == nil || w.Blocked != tc.would {
				t.Errorf("it would have: %+v, want %q", w, tc.would)
			}
		})
	}
	expect(t, aPass(resting(anAction("a1").Claim(""))).Policy(allowing).Read().Effect(flow.Absent, nil).With(observing).With(gone), "claimable a1: Claimable")
}

// What was compared is on record, by its fingerprint, and people are told that what they said does not count.
func TestPreconditionsAreOnRecord(t *testing.T) {
	a := noted(resting(anAction("a1").Asked(1).Claimable(noon)))
	p := aPass(a).Policy(approving).Read().Answers(flow.Fresh, anApproval(a).Obj()).Claims(flow.Fresh, aClaim(a, "c1").Obj()).Effect(flow.Absent, nil).With(moved)
	ended := expect(t, p, "end a1: Blocked precondition_changed").(flow.WriteAction).Status
	var told *timeline.Event
	for i := range ended.Timeline {
		if e := &ended.Timeline[i]; e.Type == timeline.ApprovalInvalidated {
			told = e
		}
	}
	if told == nil || told.Data["reason"] != "precondition_changed" || told.Data["at_request"] != asThen || told.Data["at_recheck"] != asNow {
		t.Errorf("it tells %+v", ended.Timeline)
	}
	if ended.Execution != nil || ended.Ended() != flow.Blocked {
		t.Errorf("it ended %+v", ended)
	}
	b := *a
	b.Status = ended
	d := expect(t, aPass(&b).Read().At(noon.Add(time.Minute)).Chain(receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}, nil), "append action/a1-uid/0: blocked precondition_changed").(flow.Append).Document
	want := receipt.Precondition{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Pointer: "/spec/replicas"}
	if len(d.Preconditions) != 1 || d.Preconditions[0] != want || d.PreconditionAtRequest != asThen || d.PreconditionAtRecheck != asNow || len(d.Approvals) != 0 {
		t.Errorf("the receipt says %+v", d)
	}
}
