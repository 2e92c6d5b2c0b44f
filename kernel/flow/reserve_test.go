package flow_test

import (
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// failedAttempt is a record whose first attempt, by a0, failed.
func failedAttempt() *recordBuilder {
	return aRecord(anAction("a0").Obj()).Settled(effect.Failed, "")
}

var ofResolution = receipt.Identity{Kind: receipt.KindResolution, SubjectUID: "effect-uid", Ordinal: 1}

// The retry table: a new action comes for a key that may have a record.
func TestRetryTable(t *testing.T) {
	a0 := anAction("a0").Obj()
	running := anAction("a0").Admitted(1).Obj()
	finished := anAction("a0").Admitted(1).Ended(flow.Failed, "").Receipted(3).Obj()
	ambiguous := aRecord(a0).Settled(effect.Ambiguous, effect.LeaseLapsed)
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
		says string
	}{
		"no record":             {aPass(anAction("a1").Obj()).NoEffect().Read(), "reserve: Executing 1", ""},
		"committed":             {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(a0).Settled(effect.Committed, "").Obj()), "end a1: Blocked duplicate", "a0"},
		"ambiguous":             {aPass(anAction("a1").Obj()).Effect(flow.Fresh, ambiguous.Obj()), "end a1: Blocked ambiguous", "kubectl ctrlrun resolve"},
		"executing, lease live": {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(a0).Obj()).Holder(flow.Fresh, running), "end a1: Blocked in_progress", "a0"},
		"executing, lease over: only its outcome frees it": {
			aPass(anAction("a1").At(noon.Add(time.Hour)).Obj()).At(noon.Add(time.Hour)).Effect(flow.Fresh, aRecord(a0).Obj()).Holder(flow.Fresh, running), "end a1: Blocked in_progress", ""},
		"reserved, not begun": {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aReservation(a0).Obj()).Holder(flow.Fresh, running), "end a1: Blocked in_progress", ""},
		"failed, its action is finished": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, failedAttempt().Obj()).Holder(flow.Cached, finished).Read(), "renew: Executing 2", ""},
		"failed, its action is finished and gone": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, failedAttempt().Obj()).Holder(flow.Absent, nil).Read(), "renew: Executing 2", ""},
		"failed, its action was not looked at": {aPass(anAction("a1").Obj()).Effect(flow.Fresh, failedAttempt().Obj()).Read(), "read holder", ""},
		"failed, by a cache its action is not finished": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, failedAttempt().Obj()).Holder(flow.Cached, running).Read(), "read holder", ""},
		"failed, its action is not finished": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, failedAttempt().Obj()).Holder(flow.Fresh, running).Read(), "wait a1: Pending waiting_for_holder", "a0"},
		"resolved as failed, the chain was not looked at": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, resolvedAs(effect.Failed)).Holder(flow.Absent, nil).Read(), "read chain", ""},
		"resolved as failed, the resolution is not in the chain": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, resolvedAs(effect.Failed)).Holder(flow.Absent, nil).Chain(ofResolution, nil).Read(), "append resolution/effect-uid/1: failed", ""},
		"resolved as failed, the resolution is in the chain": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, resolvedAs(effect.Failed)).Holder(flow.Absent, nil).Chain(ofResolution, &receipt.Document{}).Read(), "renew: Executing 2", ""},
		"resolved as committed": {aPass(anAction("a1").Obj()).Effect(flow.Fresh, resolvedAs(effect.Committed)), "end a1: Blocked duplicate", ""},
		"failed, and so was the one before: the ceiling": {
			aPass(anAction("a1").Obj()).Policy(twoAttempts).Effect(flow.Fresh, failedTwice()).Holder(flow.Cached, finished), "end a1: Blocked attempt_ceiling", "maxAttempts is 2"},
		"failed once, with a ceiling of two": {
			aPass(anAction("a1").Obj()).Policy(twoAttempts).Effect(flow.Fresh, failedAttempt().Obj()).Holder(flow.Cached, finished).Read(), "renew: Executing 2", ""},
		"released often: that does not count": {
			aPass(anAction("a1").Obj()).Policy(twoAttempts).Effect(flow.Fresh, releasedTwice()).Holder(flow.Cached, finished).Read(), "renew: Executing 3", ""},
		"its status was lost":      {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(a0).Lost()), "end a1: Blocked status_missing", "inspect"},
		"its name has another key": {aPass(anAction("a1").Obj()).Effect(flow.Fresh, failedAttempt().Key("refund:txn-1").Obj()), "end a1: Blocked effect_name_collision", "refund:txn-1"},
		"a collision that lost its status": {
			aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(a0).Key("refund:txn-1").Lost()), "end a1: Blocked effect_name_collision", ""},
		"a record that a cache has":  {aPass(anAction("a1").Obj()).Effect(flow.Cached, aRecord(a0).Settled(effect.Committed, "").Obj()), "read effect", ""},
		"a record of another effect": {aPass(anAction("a1").Obj()).Policy(anotherKey).Effect(flow.Fresh, failedAttempt().Obj()), "reserve: Executing 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			step := expect(t, tc.pass, tc.want)
			if write, ok := step.(flow.WriteAction); ok && (!strings.Contains(write.Status.Message, tc.says) || write.Status.Message == "") {
				t.Errorf("the message %q does not say %q", write.Status.Message, tc.says)
			}
		})
	}
}

func resolvedAs(state effect.State) *effect.Record {
	return aRecord(anAction("a0").Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Resolved(state).Obj()
}

func failedTwice() *effect.Record {
	b := failedAttempt()
	b.must(b.s.Renew(effect.Take{Holder: effect.Holder{Name: "a0b", UID: "a0b-uid"}, Began: true}))
	return b.Settled(effect.Failed, "").Obj()
}

func releasedTwice() *effect.Record {
	b := aRecord(anAction("a0").Obj()).Released()
	b.must(b.s.Renew(effect.Take{Holder: effect.Holder{Name: "a0b", UID: "a0b-uid"}, Began: true}))
	return b.Released().Obj()
}

// A reservation is free again only if it provably never began.
func TestOrphans(t *testing.T) {
	reserved := aRecord(anAction("a0").Obj()).Obj()
	waiting := aReservation(anAction("a0").Obj()).Obj()
	gap := func(s *flow.Snapshot) { s.World.AdmissionSince = noon }
	for name, tc := range map[string]struct {
		record   *effect.Record
		presence flow.Presence
		holder   *flow.Action
		change   func(*flow.Snapshot)
		want     string
	}{
		"nobody looked":                              {reserved, flow.Unread, nil, nil, "read holder"},
		"gone":                                       {reserved, flow.Absent, nil, nil, "release: Failed 1"},
		"ended unadmitted, by a cache":               {reserved, flow.Cached, anAction("a0").Ended(flow.Blocked, decision.NotAdmitted).Obj(), nil, "release: Failed 1"},
		"ended unadmitted":                           {reserved, flow.Fresh, anAction("a0").Ended(flow.Expired, decision.NotClaimed).Obj(), nil, "release: Failed 1"},
		"admitted for another attempt":               {reserved, flow.Cached, anAction("a0").Admitted(2).Obj(), nil, "release: Failed 1"},
		"admitted for another effect":                {reserved, flow.Cached, admittedFor("other"), nil, "release: Failed 1"},
		"admitted without an effect":                 {reserved, flow.Cached, anAction("a0").Admitted(0).Obj(), nil, "release: Failed 1"},
		"admitted for this":                          {reserved, flow.Fresh, anAction("a0").Admitted(1).Obj(), nil, "in the way"},
		"committed, its record is not settled yet":   {reserved, flow.Fresh, anAction("a0").Admitted(1).Ended(flow.Committed, "").Obj(), nil, "in the way"},
		"not decided, by a cache":                    {reserved, flow.Cached, anAction("a0").Obj(), nil, "look again"},
		"not decided":                                {reserved, flow.Fresh, anAction("a0").Obj(), nil, "in the way"},
		"reserved for an executor, gone":             {waiting, flow.Absent, nil, nil, "release: Failed 1"},
		"gone, since a gap in admission":             {reserved, flow.Absent, nil, gap, "read key"},
		"gone, since a gap, and everything was read": {reserved, flow.Absent, nil, func(s *flow.Snapshot) { gap(s); s.Key.Read = true }, "lost: Ambiguous 1 StatusMissing"},
		"reserved for an executor, gone since a gap": {waiting, flow.Absent, nil, gap, "release: Failed 1"},
		"ended unadmitted, since a gap":              {reserved, flow.Cached, anAction("a0").Ended(flow.Blocked, decision.NotAdmitted).Obj(), gap, "release: Failed 1"},
		"gone, in a gap":                             {reserved, flow.Absent, nil, hold(decision.AdmissionMissing, noon), "wait for admission_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string][2]string{"in the way": {"wait for holder", "end a1: Blocked in_progress"}, "look again": {"wait for holder", "read holder"}}[tc.want]
			if want[0] == "" {
				want = [2]string{tc.want, tc.want}
			}
			change := tc.change
			if change == nil {
				change = func(*flow.Snapshot) {}
			}
			expect(t, aPassOver(tc.record).Holder(tc.presence, tc.holder).With(change), want[0])
			if name != "gone, in a gap" {
				expect(t, aPass(anAction("a1").At(noon.Add(1)).Obj()).Effect(flow.Fresh, tc.record).Holder(tc.presence, tc.holder).With(change), want[1])
			}
		})
	}
	t.Run("what is not known to be free counts as an attempt", func(t *testing.T) {
		s := expect(t, aPassOver(reserved).Holder(flow.Absent, nil).With(func(s *flow.Snapshot) { gap(s); s.Key.Read = true }), "lost: Ambiguous 1 StatusMissing").(flow.WriteEffect).Status
		if s.StartedAttempts != 1 || s.Loss == nil || len(s.History) != 1 || s.Holder == nil {
			t.Errorf("the record is %+v", s)
		}
	})
}

func admittedFor(effectName string) *flow.Action {
	a := anAction("a0").Admitted(1).Obj()
	a.Effect.Name = effectName
	return a
}

// The order of writes: each only after the reads that show the one before.
func TestReservation(t *testing.T) {
	a := anAction("a1").Obj()
	t.Run("on the first path nothing is read", func(t *testing.T) {
		expect(t, aPass(a), "reserve: Executing 1")
	})
	t.Run("but what a refused creation showed", func(t *testing.T) {
		expect(t, aPass(a).NoEffect(), "read action")
		expect(t, aPass(a).Effect(flow.Fresh, failedAttempt().Obj()).Holder(flow.Absent, nil), "read action")
	})
	t.Run("after a wait the effect is read first, the action last", func(t *testing.T) {
		waited := anAction("a1").Obj()
		waited.Reason = decision.WaitingForHolder
		expect(t, aPass(waited), "read effect")
		expect(t, aPass(waited).NoEffect(), "read action")
		claimable := anAction("a1").Claimable(noon).Obj()
		claimed := func() *snapshotBuilder { return aPass(claimable).Claims(flow.Cached, aClaim(claimable, "c").Obj()) }
		expect(t, claimed(), "read effect")
		expect(t, claimed().NoEffect(), "read action")
	})
	t.Run("the approvals in between", func(t *testing.T) {
		asked := anAction("a1").Asked(1).Claimable(noon).Obj()
		b := func() *snapshotBuilder {
			return aPass(asked).Policy(approving).Claims(flow.Cached, aClaim(asked, "c").Obj()).Answers(flow.Cached, anApproval(asked).Obj()).NoEffect()
		}
		expect(t, b().Read(), "read approvals")
		expect(t, b().Answers(flow.Fresh, anApproval(asked).Obj()), "read action")
		expect(t, b().Answers(flow.Fresh, anApproval(asked).Obj()).Read(), "reserve: Executing 1")
		expect(t, b().Answers(flow.Fresh, anApproval(asked).Obj(), anApproval(asked).By(dave).Denied().Obj()).Read(), "end a1: Denied approval_denied")
	})
	t.Run("what is reserved", func(t *testing.T) {
		user := anAction("a1").For("frank").Obj()
		write := expect(t, aPass(user).NoEffect().Read(), "reserve: Executing 1").(flow.WriteEffect)
		s := write.Status
		if !write.Create || write.Name != refundName || write.Key != refundKey || *s.Holder != (effect.Holder{Name: "a1", UID: "a1-uid", Agent: alice, User: "frank"}) || s.Token != tokenOf(1) || !s.Lease.Equal(noon.Add(5*minute+time.Second)) || s.ActionType != "stripe.refund" {
			t.Errorf("it is %+v: %+v", write, s)
		}
		renewal := expect(t, aPass(a).Effect(flow.Fresh, failedAttempt().Obj()).Holder(flow.Absent, nil).Read(), "renew: Executing 2").(flow.WriteEffect)
		if renewal.Create || renewal.Status.Token != tokenOf(2) || renewal.Status.Holder.UID != "a1-uid" {
			t.Errorf("the renewal is %+v", renewal)
		}
	})
	t.Run("an executor begins later", func(t *testing.T) {
		expect(t, aPass(a).Executor().NoEffect().Read(), "reserve: Reserved 1")
	})
	t.Run("an action without effect is admitted at once, and after a wait when it was read", func(t *testing.T) {
		waited := anAction("a1").Obj()
		waited.Reason = decision.WaitingForHolder
		expect(t, aPass(waited).Policy(withoutKey), "read action")
		write := expect(t, aPass(a).Policy(withoutKey), "admit a1: Admitted").(flow.WriteAction)
		if x := write.Status.Execution; x.Token != "" || !x.Lease.Equal(noon.Add(5*minute+time.Second)) || write.Status.Effect != nil {
			t.Errorf("it is %+v", x)
		}
	})
}

// Admission copies the reservation, whoever wrote it, and is refused where it does not fit any more.
func TestAdmission(t *testing.T) {
	a := anAction("a1").Obj()
	over := noon.Add(5 * minute)
	fresh := func(at time.Time) *flow.Action { return anAction("a1").At(at.Add(-time.Second)).Obj() }
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"its own reservation":                {aPass(a).Effect(flow.Fresh, aRecord(a).Obj()), "admit a1: Admitted"},
		"its own reservation, by a cache":    {aPass(a).Effect(flow.Cached, aRecord(a).Obj()), "read effect"},
		"just before the end of the lease":   {aPass(fresh(over)).At(over.Add(-1)).Effect(flow.Fresh, aRecord(a).Obj()), "admit a1: Admitted"},
		"at the end of the lease":            {aPass(fresh(over)).At(over).Effect(flow.Fresh, aRecord(a).Obj()), "end a1: Blocked not_admitted"},
		"it was released":                    {aPass(a).Effect(flow.Fresh, aRecord(a).Released().Obj()), "end a1: Blocked not_admitted"},
		"its record was lost":                {aPass(a).Effect(flow.Fresh, aRecord(a).Settled(effect.Ambiguous, effect.StatusMissing).Obj()), "end a1: Blocked status_missing"},
		"an executor came in between":        {aPass(a).Executor().Effect(flow.Fresh, aRecord(a).Obj()), "end a1: Blocked proposal_changed"},
		"the executor went away in between":  {aPass(a).Effect(flow.Fresh, aReservation(a).Obj()), "end a1: Blocked proposal_changed"},
		"an executor, and its reservation":   {aPass(a).Executor().Effect(flow.Fresh, aReservation(a).Obj()), "admit a1: Admitted"},
		"the policy denies in between":       {aPass(a).Policy(denying).Effect(flow.Fresh, aRecord(a).Obj()), "end a1: Denied decision"},
		"its name, but another action's uid": {aPass(anAction("a1").UID("another").Obj()).Effect(flow.Fresh, aRecord(a).Obj()).Holder(flow.Fresh, anAction("a1").Admitted(1).Obj()), "end a1: Blocked in_progress"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
	t.Run("what it copies", func(t *testing.T) {
		record := aRecord(a).Obj()
		record.Status.Attempt, record.Status.Token, record.Status.Lease = 4, "a-token", noon.Add(2*minute)
		status := expect(t, aPass(a).Effect(flow.Fresh, record), "admit a1: Admitted").(flow.WriteAction).Status
		x := status.Execution
		if x.Mode != flow.AgentMode || x.ClaimID != "a1-claim" || x.Claim != nil || x.Token != "a-token" || !x.Lease.Equal(noon.Add(2*minute)) || !x.Admitted.Equal(noon.Add(time.Second)) {
			t.Errorf("the execution is %+v", x)
		}
		if status.Effect.Attempt != 4 || status.Effect.Key != refundKey || status.Hash != hashOf(a) || status.FirstSeq == nil {
			t.Errorf("the status is %+v", status)
		}
		operator := expect(t, aPass(a).Executor().Effect(flow.Fresh, aReservation(a).Obj()), "admit a1: Admitted").(flow.WriteAction).Status.Execution
		if operator.Mode != flow.OperatorMode || operator.ClaimID != "" {
			t.Errorf("the execution is %+v", operator)
		}
	})
}
