package flow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

const (
	allowing    = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow"}}`
	approving   = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve"}}`
	approving2  = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approvalsRequired":2}}`
	denying     = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"deny"}}`
	withoutKey  = `{"stripe.refund":{"decision":"allow"}}`
	anotherKey  = `{"stripe.refund":{"effect":"other:{payment_id}","decision":"allow"}}`
	twoAttempts = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow","maxAttempts":2}}`
)

var minute = time.Minute

func hold(reason decision.Reason, since time.Time) func(*flow.Snapshot) {
	return func(s *flow.Snapshot) {
		s.World.Holds = append(s.World.Holds, flow.Hold{Reason: reason, Message: "held", Since: since})
	}
}

func TestSubjects(t *testing.T) {
	gone := aPass(anAction("a1").Obj())
	gone.s.Action.Presence = flow.Absent
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"an action that is gone":               {gone, "done"},
		"an action that is finished":           {aPass(anAction("a1").Admitted(1).Ended(flow.Committed, "").Receipted(3).Obj()), "done"},
		"an effect nobody read":                {aPassOver(nil).With(func(s *flow.Snapshot) { s.Effect.Presence = flow.Unread }), "read effect"},
		"an effect that never was":             {aPassOver(nil), "done"},
		"an effect that is gone, and is known": {aPassOver(nil).With(func(s *flow.Snapshot) { s.EffectKey = refundKey }), "read key"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
}

// While something forbids deciding, nothing is decided: neither denied nor admitted. It is written down once it lasts.
func TestHolds(t *testing.T) {
	for _, reason := range []decision.Reason{decision.AdmissionMissing, decision.LedgerRolledBack, decision.ClockSkew, decision.CachesStale, decision.NamespaceTerminating, decision.Quota} {
		t.Run(string(reason), func(t *testing.T) {
			held := aPass(anAction("a1").Obj()).Policy(denying).With(hold(reason, noon))
			expect(t, held.At(noon.Add(4*time.Second)), "wait until 12:00:05 for "+string(reason))
			write := expect(t, held.At(noon.Add(5*time.Second)), "hold a1: Pending "+string(reason)).(flow.WriteAction)
			if write.Status.Message != "held" || write.Status.FirstSeq == nil {
				t.Errorf("the status is %+v", write.Status)
			}
			written := anAction("a1").Obj()
			written.Status = write.Status
			expect(t, aPass(written).Policy(denying).With(hold(reason, noon)).At(noon.Add(minute)), "wait for "+string(reason))
			// It is over: the action goes on as if nothing had been, and the reason is gone.
			end := expect(t, aPass(written).Policy(denying), "end a1: Denied decision").(flow.WriteAction)
			if *end.Status.FirstSeq != *write.Status.FirstSeq {
				t.Error("firstSeq was written twice")
			}
		})
	}
	t.Run("of two the gravest is told", func(t *testing.T) {
		expect(t, aPass(anAction("a1").Obj()).With(hold(decision.AdmissionMissing, noon)).With(hold(decision.ClockSkew, noon)).At(noon.Add(minute)), "hold a1: Pending admission_missing")
	})
}

// The checks stand in a fixed order: of several that would answer, the first does.
func TestOrderOfChecks(t *testing.T) {
	yesterday := noon.Add(-24 * time.Hour)
	committed := aRecord(anAction("a0").Obj()).Settled(effect.Committed, "").Obj()
	layers := []struct {
		name string
		do   func(*snapshotBuilder)
		want string
	}{
		{"admission", func(b *snapshotBuilder) { hold(decision.AdmissionMissing, yesterday)(&b.s) }, "hold a1: Claimable admission_missing"},
		{"statement", func(b *snapshotBuilder) { b.s.World.AdmissionSince = noon }, "end a1: Blocked made_without_admission"},
		{"withdrawn", func(b *snapshotBuilder) { b.Lock(anOutcome(b.s.Action.Action, flow.ReportNotExecuted).Obj()) }, "end a1: Blocked withdrawn"},
		{"arguments", func(b *snapshotBuilder) { b.s.Action.Arguments = []byte(`{"payment_id":"txn_1","amount":1.5}`) }, "end a1: Denied unrepresentable_argument"},
		{"lease", func(b *snapshotBuilder) { b.s.World.Limits.MaxLease = time.Second }, "end a1: Denied lease_too_long"},
		{"policy", func(b *snapshotBuilder) { b.Policy(denying) }, "end a1: Denied decision"},
		{"proposal", func(b *snapshotBuilder) { b.s.World.Environment = "staging" }, "end a1: Blocked proposal_changed"},
		{"deadline", func(b *snapshotBuilder) { b.s.Action.NotAfter = &yesterday }, "end a1: Expired not_after"},
		{"denial", func(b *snapshotBuilder) {
			b.Answers(flow.Cached, anApproval(b.s.Action.Action).Denied().Obj())
		}, "end a1: Denied approval_denied"},
		{"expiry", func(b *snapshotBuilder) { b.At(noon.Add(time.Hour)).Answers(flow.Fresh) }, "end a1: Expired approval_expired"},
		{"effect", func(b *snapshotBuilder) {
			b.Answers(flow.Fresh, anApproval(b.s.Action.Action).Obj()).Claims(flow.Cached, aClaim(b.s.Action.Action, "c").Obj())
		}, "end a1: Blocked duplicate"},
	}
	for i, layer := range layers {
		t.Run(layer.name, func(t *testing.T) {
			a := anAction("a1").Asked(1).Claimable(noon).Obj()
			b := aPass(a).Policy(approving).Effect(flow.Fresh, committed).Answers(flow.Fresh).Read()
			// From the last to this one, so that what this one needs is not taken back.
			for _, other := range slices.Backward(layers[i:]) {
				other.do(b)
			}
			expect(t, b, layer.want)
		})
	}
}

func TestWhatCannotBeDecided(t *testing.T) {
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
		says string
	}{
		"made just when admission came":      {aPass(anAction("a1").At(aWorld().AdmissionSince).Obj()), "end a1: Blocked made_without_admission", "Propose it again"},
		"nobody proposed it":                 {aPass(anAction("a1").By("").Obj()), "end a1: Blocked made_without_admission", ""},
		"a fraction":                         {aPass(anAction("a1").Args(`{"payment_id":"txn_1","a":[1,{"b/c":1.5}]}`).Obj()), "end a1: Denied unrepresentable_argument", `/spec/arguments/a/1/b~1c`},
		"a number beyond 64 bits":            {aPass(anAction("a1").Args(`{"payment_id":"txn_1","a":9223372036854775808}`).Obj()), "end a1: Denied unrepresentable_argument", "/spec/arguments/a"},
		"arguments that are a list":          {aPass(anAction("a1").Args(`[1]`).Obj()), "end a1: Denied unrepresentable_argument", "not an object"},
		"arguments that are too large":       {aPass(anAction("a1").Args(`{"payment_id":"` + strings.Repeat("x", action.MaxArgumentsBytes) + `"}`).Obj()), "end a1: Denied arguments_too_large", "65536"},
		"no arguments, and a key of one":     {aPass(anAction("a1").Args(``).Obj()), "end a1: Denied effect_key_error", "payment_id"},
		"a type no policy names":             {aPass(anAction("a1").Obj()).Policy(`{"x":{"decision":"allow"}}`), "end a1: Denied unknown_action", "stripe.refund"},
		"no rule that matches":               {aPass(anAction("a1").Obj()).Policy(`{"stripe.refund":{"rules":[{"when":{"amount_eq":1},"decision":"allow"}]}}`), "end a1: Denied no_matching_rule", ""},
		"the second rule denies":             {aPass(anAction("a1").Obj()).Policy(`{"stripe.refund":{"rules":[{"when":{"amount_eq":1},"decision":"allow"},{"decision":"deny"}]}}`), "end a1: Denied rule[1]", ""},
		"a resource that cannot be named":    {aPass(anAction("a1").Obj()).Policy(`{"stripe.refund":{"resource":"p:{nothing}","decision":"deny"}}`), "end a1: Denied resource_error", "nothing"},
		"a lease as long as is allowed":      {aPass(anAction("a1").Lease(time.Hour).Obj()), "reserve: Executing 1", ""},
		"a lease a little longer":            {aPass(anAction("a1").Lease(time.Hour + 1).Obj()), "end a1: Denied lease_too_long", "leaseDurationSeconds"},
		"an executor, and no effect key":     {aPass(anAction("a1").Obj()).Policy(withoutKey).Executor(), "end a1: Denied executor_needs_effect", "effect template"},
		"its process reported that it won't": {aPass(anAction("a1").Obj()).Lock(anOutcome(anAction("a1").Obj(), flow.ReportNotExecuted).Obj()), "end a1: Blocked withdrawn", "gave up"},
		"its process reported something":     {aPass(anAction("a1").Obj()).Lock(anOutcome(anAction("a1").Obj(), flow.ReportCommitted).Obj()), "end a1: Blocked withdrawn", "Find out"},
		"another process gave up":            {aPass(anAction("a1").Obj()).Lock(anOutcome(anAction("a1").Obj(), flow.ReportNotExecuted).Of("other").Obj()), "reserve: Executing 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			step := expect(t, tc.pass, tc.want)
			if write, ok := step.(flow.WriteAction); ok {
				if !strings.Contains(write.Status.Message, tc.says) || write.Status.Message == "" {
					t.Errorf("the message %q does not say %q", write.Status.Message, tc.says)
				}
				if write.Status.FinishTime == nil || write.Status.FirstSeq == nil || write.Status.Execution != nil {
					t.Errorf("the end is %+v", write.Status)
				}
				if write.Status.State == flow.Denied && write.Status.Decision != decision.Deny && write.Status.Reason != decision.ExecutorNeedsEffect {
					t.Errorf("a denied action says %q", write.Status.Decision)
				}
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	late := func() *actionBuilder { return anAction("a1").NotAfter(noon) }
	mine := aRecord(late().Obj()).Obj()
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"in time":                        {aPass(late().Obj()).At(noon.Add(-1)), "reserve: Executing 1"},
		"too late, without a key":        {aPass(late().Obj()).Policy(withoutKey), "end a1: Expired not_after"},
		"too late, its effect not read":  {aPass(late().Obj()), "read effect"},
		"too late, by a cache reserved":  {aPass(late().Obj()).Effect(flow.Cached, mine), "read effect"},
		"too late, and not reserved":     {aPass(late().Obj()).NoEffect(), "end a1: Expired not_after"},
		"too late, reserved by another":  {aPass(late().Obj()).Effect(flow.Fresh, aRecord(anAction("a0").Obj()).Obj()), "end a1: Expired not_after"},
		"too late, but reserved already": {aPass(late().Obj()).Effect(flow.Fresh, mine), "admit a1: Admitted"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
}

// Nobody is asked for what cannot happen anyway; and what people are asked is written before anything else.
func TestAsking(t *testing.T) {
	holder := anAction("a0").Obj()
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"its effect was not read":      {aPass(anAction("a1").Obj()), "read effect"},
		"a cache does not say":         {aPass(anAction("a1").Obj()).Effect(flow.Cached, aRecord(holder).Settled(effect.Committed, "").Obj()), "read effect"},
		"it is committed":              {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(holder).Settled(effect.Committed, "").Obj()), "end a1: Blocked duplicate"},
		"nobody knows":                 {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(holder).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()), "end a1: Blocked ambiguous"},
		"its record lost its status":   {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(holder).Lost()), "end a1: Blocked status_missing"},
		"the name has another key":     {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(holder).Key("refund:txn-1").Obj()), "end a1: Blocked effect_name_collision"},
		"somebody is executing it":     {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(holder).Obj()), "pin a1: AwaitingApproval"},
		"it failed":                    {aPass(anAction("a1").Obj()).Effect(flow.Fresh, aRecord(holder).Settled(effect.Failed, "").Obj()), "pin a1: AwaitingApproval"},
		"there is no record":           {aPass(anAction("a1").Obj()).NoEffect(), "pin a1: AwaitingApproval"},
		"it was asked: it is not read": {aPass(anAction("a1").Asked(1).Obj()), "wait AwaitingApproval"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want == "wait AwaitingApproval" {
				tc.want = "wait a1: AwaitingApproval" // its message is not written yet
			}
			expect(t, tc.pass.Policy(approving), tc.want)
		})
	}
	t.Run("what is pinned", func(t *testing.T) {
		a := anAction("a1").Obj()
		ttl := `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approvalsRequired":2,"approvalTTLSeconds":60}}`
		status := expect(t, aPass(a).Policy(ttl).NoEffect(), "pin a1: AwaitingApproval").(flow.WriteAction).Status
		if status.Hash != hashOf(a) || status.Effect == nil || status.Effect.Key != refundKey || status.Effect.Name != refundName || status.Effect.Attempt != 0 {
			t.Errorf("pinned is %s, %+v", status.Hash, status.Effect)
		}
		if status.Ask.Required != 2 || status.Ask.Counted != 0 || !status.Ask.Requested.Equal(noon.Add(time.Second)) || !status.Ask.Expiration.Equal(noon.Add(61*time.Second)) {
			t.Errorf("asked is %+v", status.Ask)
		}
		if status.Decision != decision.Approve || status.DecisionReason != decision.PlainDecision || status.Policy == nil || status.FirstSeq == nil || status.Environment != "production" {
			t.Errorf("the status is %+v", status)
		}
	})
}

func TestApprovals(t *testing.T) {
	asked := anAction("a1").Asked(1).Obj()
	asked2 := anAction("a1").Asked(2).Obj()
	yes, no := anApproval(asked).Obj(), anApproval(asked).By(dave).Denied().Obj()
	late := noon.Add(15*minute + 1)
	for name, tc := range map[string]struct {
		pass   *snapshotBuilder
		policy string
		want   string
	}{
		"nobody answered":                         {aPass(asked), approving, "wait a1: AwaitingApproval"},
		"the answer is of another hash":           {aPass(asked).Answers(flow.Cached, anApproval(asked).Hash("sha256:2").Obj()), approving, "wait a1: AwaitingApproval"},
		"the agent answered":                      {aPass(asked).Answers(flow.Cached, anApproval(asked).By(alice).Obj()), approving, "wait a1: AwaitingApproval"},
		"one of one: it waits for a claim":        {aPass(asked).Answers(flow.Cached, yes), approving, "claimable a1: Claimable"},
		"one of two":                              {aPass(asked2).Answers(flow.Cached, yes), approving2, "wait a1: AwaitingApproval"},
		"the policy requires more now":            {aPass(asked).Answers(flow.Cached, yes), approving2, "wait a1: AwaitingApproval"},
		"the policy requires less now":            {aPass(asked2).Answers(flow.Cached, yes), approving, "wait a1: AwaitingApproval"},
		"two of two":                              {aPass(asked2).Answers(flow.Cached, yes, anApproval(asked).By(dave).Obj()), approving2, "claimable a1: Claimable"},
		"one yes, one no":                         {aPass(asked).Answers(flow.Cached, yes, no), approving, "end a1: Denied approval_denied"},
		"a no by the agent is none":               {aPass(asked).Answers(flow.Cached, yes, anApproval(asked).By(alice).Denied().Obj()), approving, "claimable a1: Claimable"},
		"too late, by a cache nobody answered":    {aPass(asked).At(late), approving, "read approvals"},
		"too late, nobody answered":               {aPass(asked).At(late).Answers(flow.Fresh), approving, "end a1: Expired approval_expired"},
		"too late, answered in time":              {aPass(asked).At(late).Answers(flow.Cached, yes), approving, "claimable a1: Claimable"},
		"too late, answered too late":             {aPass(asked).At(late.Add(1)).Answers(flow.Fresh, anApproval(asked).At(late).Obj()), approving, "end a1: Expired approval_expired"},
		"just in time":                            {aPass(asked).At(noon.Add(15 * minute)), approving, "wait a1: AwaitingApproval"},
		"the policy denies now":                   {aPass(asked).Answers(flow.Cached, yes), denying, "end a1: Denied decision"},
		"the policy allows now":                   {aPass(asked), allowing, "claimable a1: Claimable"},
		"the policy allows now, somebody said no": {aPass(asked).Answers(flow.Cached, no), allowing, "end a1: Denied approval_denied"},
		"the policy gives another key now":        {aPass(asked).Answers(flow.Cached, yes), anotherKey, "end a1: Blocked proposal_changed"},
		"the policy gives no key now":             {aPass(asked).Answers(flow.Cached, yes), withoutKey, "end a1: Blocked proposal_changed"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass.Policy(tc.policy), tc.want) })
	}
	t.Run("a status that is written already is not written again", func(t *testing.T) {
		status := expect(t, aPass(asked2).Policy(approving2).Answers(flow.Cached, yes), "wait a1: AwaitingApproval").(flow.WriteAction).Status
		if status.Ask.Counted != 1 || !strings.Contains(status.Message, "1 of 2") {
			t.Errorf("counted %d: %s", status.Ask.Counted, status.Message)
		}
		written := *asked2
		written.Status = status
		expect(t, aPass(&written).Policy(approving2).Answers(flow.Cached, yes), "wait until 12:15:00.001 for approval")
	})
	t.Run("a denial is told with its reason", func(t *testing.T) {
		because := no
		because.Reason = "not on Fridays"
		status := expect(t, aPass(asked).Policy(approving).Answers(flow.Cached, because), "end a1: Denied approval_denied").(flow.WriteAction).Status
		if !strings.Contains(status.Message, dave) || !strings.Contains(status.Message, "not on Fridays") {
			t.Errorf("the message is %q", status.Message)
		}
	})
	t.Run("an action without a key that got one since is another one", func(t *testing.T) {
		a := anAction("a1").Asked(1).Obj()
		a.Effect = nil
		expect(t, aPass(a).Policy(approving), "end a1: Blocked proposal_changed")
	})
}

func TestClaims(t *testing.T) {
	claimable := anAction("a1").Claimable(noon).Obj()
	until := noon.Add(15 * minute)
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"its own claim, in time":            {aPass(anAction("a1").Obj()).At(noon.Add(flow.ClaimFresh)), "reserve: Executing 1"},
		"its own claim, too old":            {aPass(anAction("a1").Obj()).At(noon.Add(flow.ClaimFresh + 1)), "claimable a1: Claimable"},
		"no claim of its own":               {aPass(anAction("a1").Claim("").Obj()), "claimable a1: Claimable"},
		"its own claim, after it was asked": {aPass(anAction("a1").Asked(1).Obj()).Policy(approving).Answers(flow.Cached, anApproval(anAction("a1").Asked(1).Obj()).Obj()), "claimable a1: Claimable"},
		"claimable, unclaimed":              {aPass(claimable), "wait a1: Claimable"},
		"claimed":                           {aPass(claimable).Claims(flow.Cached, aClaim(claimable, "c").Obj()), "read effect"},
		"claimed by another":                {aPass(claimable).Claims(flow.Cached, aClaim(claimable, "c").By(bob).Obj()), "wait a1: Claimable"},
		"claimed for another action":        {aPass(claimable).Claims(flow.Cached, aClaim(claimable, "c").OfAction("other").Obj()), "wait a1: Claimable"},
		"claimed for an earlier decision":   {aPass(claimable).Claims(flow.Cached, aClaim(claimable, "c").Quoting(noon.Add(-1)).Obj()), "wait a1: Claimable"},
		"claimed without admission":         {aPass(claimable).Claims(flow.Cached, aClaim(claimable, "c").At(aWorld().AdmissionSince).Obj()), "wait a1: Claimable"},
		"claimed at the very end":           {aPass(claimable).At(until.Add(minute)).Claims(flow.Cached, aClaim(claimable, "c").At(until).Obj()), "read effect"},
		"claimed after the end":             {aPass(claimable).At(until.Add(minute)).Claims(flow.Fresh, aClaim(claimable, "c").At(until.Add(1)).Obj()), "end a1: Expired not_claimed"},
		"over, by a cache unclaimed":        {aPass(claimable).At(until.Add(1)), "read claims"},
		"over, unclaimed":                   {aPass(claimable).At(until.Add(1)).Claims(flow.Fresh), "end a1: Expired not_claimed"},
		"not over yet":                      {aPass(claimable).At(until), "wait a1: Claimable"},
		"the policy denies now":             {aPass(claimable).Policy(denying).Claims(flow.Cached, aClaim(claimable, "c").Obj()), "end a1: Denied decision"},
		"the policy asks now: it is pinned": {aPass(claimable).Policy(approving).NoEffect().Claims(flow.Cached, aClaim(claimable, "c").Obj()), "pin a1: AwaitingApproval"},
		"an executor needs no claim":        {aPass(anAction("a1").Claim("").Obj()).Executor(), "reserve: Reserved 1"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
	t.Run("when it becomes claimable", func(t *testing.T) {
		status := expect(t, aPass(anAction("a1").Claim("").Obj()), "claimable a1: Claimable").(flow.WriteAction).Status
		if !status.ClaimableTime.Equal(noon.Add(time.Second)) || !status.ClaimExpiration.Equal(noon.Add(15*minute+time.Second)) || status.Effect.Key != refundKey || status.Execution != nil {
			t.Errorf("the status is %+v", status)
		}
	})
	t.Run("it returns to being asked, and what was pinned stays", func(t *testing.T) {
		a := anAction("a1").Asked(1).Claimable(noon).Obj()
		status := expect(t, aPass(a).Policy(approving2).Answers(flow.Cached, anApproval(a).Obj()), "wait a1: AwaitingApproval").(flow.WriteAction).Status
		if status.ClaimableTime != nil || status.ClaimExpiration != nil || status.Ask.Required != 1 || !status.Ask.Expiration.Equal(a.Ask.Expiration) {
			t.Errorf("the status is %+v", status)
		}
	})
	t.Run("the first of several is admitted", func(t *testing.T) {
		second := aClaim(claimable, "second").At(noon.Add(2)).UID("a").Obj()
		first := aClaim(claimable, "first").At(noon.Add(1)).UID("c").Obj()
		twin := aClaim(claimable, "twin").At(noon.Add(1)).UID("b").Obj()
		for want, all := range map[string][]flow.Claim{"first": {second, first}, "twin": {second, first, twin}} {
			for range 2 {
				slices.Reverse(all)
				write := expect(t, aPass(claimable).Policy(withoutKey).Read().Claims(flow.Cached, all...).With(func(s *flow.Snapshot) { s.Action.Effect = nil }), "admit a1: Admitted").(flow.WriteAction)
				if x := write.Status.Execution; x.ClaimID != want || x.Claim == nil || x.Claim.Name != want {
					t.Errorf("admitted is %+v, want %s", x, want)
				}
			}
			claimable = anAction("a1").Claimable(noon).Obj()
		}
	})
}

// What is spent on an admission: as many answers as were asked for, also where the policy allows it without any by now.
func TestAdmissionSpendsApprovals(t *testing.T) {
	asked := anAction("a1").Asked(1).Claimable(noon).Obj()
	yes, second := anApproval(asked).Obj(), anApproval(asked).By(dave).At(noon.Add(1)).Obj()
	mine := aRecord(asked).Obj()
	claim := aClaim(asked, "c").Obj()
	t.Run("read anew before it is admitted", func(t *testing.T) {
		expect(t, aPass(asked).Policy(approving).Claims(flow.Cached, claim).Answers(flow.Cached, yes).Effect(flow.Fresh, mine), "read approvals")
	})
	t.Run("read anew also if nobody's yes is needed: somebody may have said no", func(t *testing.T) {
		expect(t, aPass(asked).Policy(allowing).Claims(flow.Cached, claim).Effect(flow.Fresh, mine), "read approvals")
	})
	for name, tc := range map[string]struct {
		policy string
		want   []string
	}{
		"the policy asks":       {approving, []string{yes.UID}},
		"the policy allows now": {allowing, []string{yes.UID}},
	} {
		t.Run(name, func(t *testing.T) {
			write := expect(t, aPass(asked).Policy(tc.policy).Claims(flow.Cached, claim).Answers(flow.Fresh, second, yes).Effect(flow.Fresh, mine), "admit a1: Admitted").(flow.WriteAction)
			var spent []string
			for _, x := range write.Status.Execution.Approvals {
				spent = append(spent, x.UID)
			}
			if !slices.Equal(spent, tc.want) {
				t.Errorf("spent are %v, want %v", spent, tc.want)
			}
		})
	}
}

// Next changes nothing of what it is given, and answers the same for the same.
func TestNextIsPure(t *testing.T) {
	a := anAction("a1").Asked(1).Claimable(noon).Obj()
	b := aPass(a).Policy(approving).Claims(flow.Cached, aClaim(a, "c").Obj()).Answers(flow.Fresh, anApproval(a).Obj()).Effect(flow.Fresh, aRecord(a).Obj())
	before := fmt.Sprintf("%+v %+v %+v", *a, *a.Ask, *a.Effect)
	first, second := flow.Next(b.Obj()).(flow.WriteAction), flow.Next(b.Obj()).(flow.WriteAction)
	if after := fmt.Sprintf("%+v %+v %+v", *a, *a.Ask, *a.Effect); after != before {
		t.Errorf("the action was\n%s\nand is\n%s", before, after)
	}
	if a.Effect.Attempt != 0 || first.Status.Effect.Attempt != 1 || second.Status.Effect.Attempt != 1 || told(first) != told(second) {
		t.Errorf("attempts are %d, %d and %d", a.Effect.Attempt, first.Status.Effect.Attempt, second.Status.Effect.Attempt)
	}
}
