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

func ofAction(a *flow.Action) receipt.Identity {
	return receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}
}

// lapsed is when the lease of what was admitted at noon is declared lapsed, at the earliest.
var lapsed = noon.Add(5*time.Minute + flow.LapseGrace)

// An attempt ends by what holds the lock's name, and by nothing else.
func TestSettle(t *testing.T) {
	a := anAction("a1").Admitted(1).Obj()
	record := aRecord(a).Obj()
	report := func(r flow.OutcomeResult) *outcomeBuilder { return anOutcome(a, r) }
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"no report, lease live":                  {aPass(a), "wait until 12:05:10 for outcome"},
		"no report, lease over, not long enough": {aPass(a).At(lapsed.Add(-1)), "wait until 12:05:10 for outcome"},
		"no report, lapsed":                      {aPass(a).At(lapsed), "lapse " + flow.LockName(a.UID, "a1-claim", alice)},
		"committed":                              {aPass(a).Lock(report(flow.ReportCommitted).Obj()), "settle: Committed 1"},
		"committed, long after the lease":        {aPass(a).At(noon.Add(time.Hour)).Lock(report(flow.ReportCommitted).At(noon.Add(time.Hour)).Obj()), "settle: Committed 1"},
		"not executed":                           {aPass(a).Lock(report(flow.ReportNotExecuted).Obj()), "settle: Failed 1"},
		"unknown":                                {aPass(a).Lock(report(flow.ReportUnknown).Obj()), "settle: Ambiguous 1 ReportedUnknown"},
		"a result of no list":                    {aPass(a).Lock(report("Perhaps").Obj()), "settle: Ambiguous 1 ReportedUnknown"},
		"declared lapsed":                        {aPass(a).Lock(report(flow.ReportUnknown).Lapsed().Obj()), "settle: Ambiguous 1 LeaseLapsed"},
		"a lapse that says committed":            {aPass(a).Lock(report(flow.ReportCommitted).Lapsed().Obj()), "settle: Ambiguous 1 OutcomeNotAccepted"},
		"reported by another":                    {aPass(a).Lock(report(flow.ReportNotExecuted).By(bob).Obj()), "settle: Ambiguous 1 OutcomeNotAccepted"},
		"reported without admission":             {aPass(a).Lock(report(flow.ReportNotExecuted).At(aWorld().AdmissionSince).Obj()), "settle: Ambiguous 1 OutcomeNotAccepted"},
		"the name, of another claim":             {aPass(a).Lock(report(flow.ReportNotExecuted).Of("other").Obj()), "settle: Ambiguous 1 OutcomeNotAccepted"},
		"the name, of another action":            {aPass(a).Lock(report(flow.ReportNotExecuted).OfAction("other").Obj()), "settle: Ambiguous 1 OutcomeNotAccepted"},
		"reported while admission is missing":    {aPass(a).With(hold(decision.AdmissionMissing, noon)).Lock(report(flow.ReportCommitted).Obj()), "wait for admission_missing"},
		"reported, the clock is wrong":           {aPass(a).With(hold(decision.ClockSkew, noon)).Lock(report(flow.ReportCommitted).Obj()), "settle: Committed 1"},
		"lapsed by a clock that is wrong":        {aPass(a).At(lapsed).With(hold(decision.ClockSkew, noon)), "wait for clock_skew"},
		"nor does the policy":                    {aPass(a).Policy(denying).Lock(report(flow.ReportCommitted).Obj()), "settle: Committed 1"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass.Effect(flow.Cached, record), tc.want) })
	}
	t.Run("what is settled", func(t *testing.T) {
		s := expect(t, aPass(a).Effect(flow.Cached, record).Lock(report(flow.ReportCommitted).Obj()), "settle: Committed 1").(flow.WriteEffect)
		if s.Create || s.Status.Outcome == nil || s.Status.Outcome.UID != "a1-outcome" || s.Status.StartedAttempts != 1 || s.Status.Holder.UID != a.UID {
			t.Errorf("it is %+v", s)
		}
	})
}

// The lock is that of the admitted claim. A pass that began before it knew which claim that is has looked for another's.
func TestAnotherProcessGaveUp(t *testing.T) {
	a := anAction("a1").Claimable(noon).Obj()
	gaveUp := anOutcome(a, flow.ReportNotExecuted).Obj()
	admitted := anAction("a1").Claimable(noon).Admitted(1).Obj()
	admitted.Execution.ClaimID = "second"
	late := *gaveUp
	late.Name = "late." + late.Name
	b := func() *snapshotBuilder {
		return aPass(admitted).Effect(flow.Fresh, aRecord(a).Obj()).Read().Lock(gaveUp).With(func(s *flow.Snapshot) { s.Late = &late })
	}
	expect(t, b(), "wait until 12:05:10 for outcome")
	expect(t, b().At(lapsed), "lapse "+flow.LockName(a.UID, "second", alice))
	t.Run("nor is it in the receipt", func(t *testing.T) {
		settled := aRecord(a).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()
		expect(t, b().Effect(flow.Fresh, settled).Chain(ofAction(a), nil), "read lock")
		document := expect(t, b().Effect(flow.Fresh, settled).Chain(ofAction(a), nil).With(func(s *flow.Snapshot) { s.Lock = flow.OutcomeRead{Presence: flow.Absent} }),
			"append action/a1-uid/0: ambiguous lease_lapsed").(flow.Append).Document
		if document.LateOutcomeName != "" || document.Reporter != "" || document.ClaimID != "second" {
			t.Errorf("the receipt is %+v", document)
		}
	})
}

// What a pass read before it learned of the admission does not speak against the admitted action.
func TestAdmittedDuringThePass(t *testing.T) {
	a := anAction("a1").Admitted(2).Obj()
	before := failedAttempt().Obj()
	other := aRecord(anAction("a0").Obj()).Obj()
	other.Name = "other"
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"a record from before":                         {aPass(a).Read().Effect(flow.Fresh, before), "wait until 12:00:01.01 for begin again"},
		"no record, before":                            {aPass(a).Read().NoEffect(), "wait until 12:00:01.01 for begin again"},
		"no status, before":                            {aPass(a).Read().Effect(flow.Fresh, aRecord(a).Lost()), "wait until 12:00:01.01 for begin again"},
		"the record of another effect":                 {aPass(a).Read().Effect(flow.Fresh, other), "read effect"},
		"the record of another effect, from a cache":   {aPass(a).Effect(flow.Cached, other), "read effect"},
		"a cached record of an earlier attempt":        {aPass(a).Effect(flow.Cached, before), "read effect"},
		"a pass that began with the admission":         {aPass(a).Effect(flow.Fresh, before), "read chain"},
		"and there is no record":                       {aPass(a).NoEffect(), "read key"},
		"and the record has no status":                 {aPass(a).Effect(flow.Fresh, aRecord(a).Lost()), "read key"},
		"and a cache has a record without status":      {aPass(a).Effect(flow.Cached, aRecord(a).Lost()), "read effect"},
		"its own record, whenever the action was read": {aPass(anAction("a1").Admitted(1).Obj()).Read().Effect(flow.Fresh, aRecord(a).Obj()), "wait until 12:05:10 for outcome"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
}

func TestOperatorMode(t *testing.T) {
	a := anAction("a1").Admitted(1).InOperatorMode().Obj()
	wantedUntil := func(t time.Time) *flow.Action { return anAction("a1").NotAfter(t).Admitted(1).InOperatorMode().Obj() }
	waiting, acting := aReservation(a).Obj(), aReservation(a).Began().Obj()
	another := flow.Executor{Name: "refunds", Hash: "sha256:" + strings.Repeat("a", 64), Types: []string{"stripe.refund"}}
	rival := flow.Executor{Name: "rival", Hash: executorHash, Types: []string{"iam.grant", "stripe.refund"}}
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"not begun, lease live":             {aPass(a).Executor().Effect(flow.Cached, waiting), "begin refunds before 12:03:20"},
		"not begun, wanted until soon":      {aPass(wantedUntil(noon.Add(time.Minute))).Executor().Effect(flow.Cached, waiting), "begin refunds before 12:01:00"},
		"not begun, not wanted any more":    {aPass(wantedUntil(noon.Add(time.Minute))).Executor().At(noon.Add(time.Minute)).Effect(flow.Cached, waiting), "release: Failed 1"},
		"not begun, not wanted, on hold":    {aPass(wantedUntil(noon.Add(time.Minute))).Executor().At(noon.Add(time.Minute)).With(hold(decision.ClockSkew, noon)).Effect(flow.Cached, waiting), "wait for clock_skew"},
		"not begun, too little time left":   {aPass(a).Executor().At(noon.Add(200*time.Second)).Effect(flow.Cached, waiting), "release: Failed 1"},
		"not begun, and something holds":    {aPass(a).Executor().Effect(flow.Cached, waiting).With(hold(decision.NamespaceTerminating, noon)), "wait until 12:03:20 for namespace_terminating"},
		"its executor is gone":              {aPass(a).Effect(flow.Cached, waiting), "release: Failed 1"},
		"its executor is another one":       {aPass(a).Executors(another).Effect(flow.Cached, waiting), "release: Failed 1"},
		"its executor is not alone":         {aPass(a).Executor().Executors(rival).Effect(flow.Cached, waiting), "release: Failed 1"},
		"gone, but nobody can be sure":      {aPass(a).Effect(flow.Cached, waiting).With(hold(decision.CachesStale, noon)), "wait until 12:03:20 for caches_stale"},
		"gone, and it acts already":         {aPass(a).Effect(flow.Cached, acting), "wait until 12:05:10 for lease"},
		"gone: the receipt":                 {aPass(a).Effect(flow.Cached, aReservation(a).Released().Obj()).Chain(ofAction(a), nil), "append action/a1-uid/0: failed executor_changed"},
		"not begun, lease over":             {aPass(a).Executor().At(noon.Add(5*minute)).Effect(flow.Cached, waiting), "release: Failed 1"},
		"acting, lease live":                {aPass(a).Executor().Effect(flow.Cached, acting), "wait until 12:05:10 for lease"},
		"acting, lease over":                {aPass(a).Executor().At(lapsed.Add(-1)).Effect(flow.Cached, acting), "wait until 12:05:10 for lease"},
		"acting, and lost":                  {aPass(a).Executor().At(lapsed).Effect(flow.Cached, acting), "settle: Ambiguous 1 ExecutorLost"},
		"an outcome is nothing to it":       {aPass(a).Executor().Effect(flow.Cached, acting).Lock(anOutcome(a, flow.ReportNotExecuted).Obj()), "wait until 12:05:10 for lease"},
		"acting, and lost by a wrong clock": {aPass(a).Executor().At(lapsed).Effect(flow.Cached, acting).With(hold(decision.ClockSkew, noon)), "wait for clock_skew"},
		"not begun, by a wrong clock":       {aPass(a).Executor().At(noon.Add(5*minute)).Effect(flow.Cached, waiting).With(hold(decision.ClockSkew, noon)), "wait for clock_skew"},
		"released: it never began":          {aPass(a).Executor().Effect(flow.Cached, aReservation(a).Released().Obj()).Chain(ofAction(a), nil), "append action/a1-uid/0: failed never_began"},
		"settled by its worker":             {aPass(a).Executor().Effect(flow.Cached, aReservation(a).Began().Settled(effect.Committed, "").Obj()).Chain(ofAction(a), nil), "append action/a1-uid/0: committed"},
		"settled as not executed":           {aPass(a).Executor().Effect(flow.Cached, aReservation(a).Began().Settled(effect.Failed, "").Obj()).Chain(ofAction(a), nil), "append action/a1-uid/0: failed"},
		"its worker was lost: the receipt":  {aPass(a).Executor().Effect(flow.Cached, aReservation(a).Began().Settled(effect.Ambiguous, effect.ExecutorLost).Obj()).Chain(ofAction(a), nil), "append action/a1-uid/0: ambiguous executor_lost"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
	t.Run("a release and a begin contend for the record", func(t *testing.T) {
		released := expect(t, aPass(a).Executor().At(noon.Add(5*minute)).Effect(flow.Cached, waiting), "release: Failed 1").(flow.WriteEffect)
		if released.Create {
			t.Error("the release is not guarded by the version that was read")
		}
		if _, err := released.Status.Begin("nonce", noon); err == nil {
			t.Error("what was released can begin")
		}
		if _, err := acting.Status.Begin("another", noon); err == nil {
			t.Error("two workers begin")
		}
	})
	t.Run("the receipt says who executed", func(t *testing.T) {
		d := expect(t, aPass(a).Executor().Effect(flow.Cached, aReservation(a).Began().Settled(effect.Committed, "").Obj()).Chain(ofAction(a), nil), "append action/a1-uid/0: committed").(flow.Append).Document
		if d.ExecutorMode != receipt.ModeOperator || d.ClaimID != "" {
			t.Errorf("the receipt says %s, claim %q", d.ExecutorMode, d.ClaimID)
		}
		if want := (receipt.Executor{Name: "refunds", Hash: executorHash}); d.Executor == nil || *d.Executor != want {
			t.Errorf("the receipt says executor %+v, want %+v", d.Executor, want)
		}
	})
	t.Run("the receipt says what the executor got", func(t *testing.T) {
		record := aReservation(a).Began().Obj()
		status, err := record.Status.Settle(effect.Settlement{State: effect.Committed, Output: `{"id":"re_1"}`, Error: "none", Now: noon})
		if err != nil {
			t.Fatal(err)
		}
		record.Status = &status
		d := expect(t, aPass(a).Executor().Effect(flow.Cached, record).Chain(ofAction(a), nil), "append action/a1-uid/0: committed").(flow.Append).Document
		if d.Output != `{"id":"re_1"}` || d.Error != "none" {
			t.Errorf("output %q, error %q", d.Output, d.Error)
		}
	})
}

// The receipt follows the record, and the end of the action follows the receipt, whoever wrote it.
func TestFinish(t *testing.T) {
	a := anAction("a1").Admitted(1).Obj()
	lock := anOutcome(a, flow.ReportCommitted)
	committed := aRecord(a).Settled(effect.Committed, "").Obj()
	found := func(r decision.Result, reason decision.Reason) *receipt.Document {
		return &receipt.Document{Kind: receipt.KindAction, SubjectUID: a.UID, Result: r, Reason: reason, Message: "as it was written"}
	}
	another := receipt.Identity{Kind: receipt.KindAction, SubjectUID: "other"}
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"the chain was not looked at":            {aPass(a).Executor().Effect(flow.Cached, committed), "read chain"},
		"it was asked about another action":      {aPass(a).Executor().Effect(flow.Cached, committed).Chain(another, nil), "read chain"},
		"the outcome was not looked at":          {aPass(a).Executor().Effect(flow.Cached, committed).Chain(ofAction(a), nil), "read lock"},
		"no receipt yet":                         {aPass(a).Executor().Effect(flow.Cached, committed).Chain(ofAction(a), nil).Lock(lock.Obj()), "append action/a1-uid/0: committed"},
		"its receipt":                            {aPass(a).Executor().Effect(flow.Cached, committed).Chain(ofAction(a), found(decision.Committed, "")), "finish a1: Committed"},
		"its receipt says what this pass cannot": {aPass(a).Executor().Effect(flow.Cached, committed).Chain(ofAction(a), found(decision.Ambiguous, decision.LeaseLapsed)), "finish a1: Ambiguous lease_lapsed"},
		"its receipt says failed":                {aPass(a).Executor().Effect(flow.Cached, committed).Chain(ofAction(a), found(decision.Failed, "")), "finish a1: Failed"},
		"a receipt of an action not admitted":    {aPass(a).Executor().Effect(flow.Cached, committed).Chain(ofAction(a), found(decision.Denied, "")), "finish a1: Ambiguous"},
		"the chain was rolled back":              {aPass(a).Executor().Effect(flow.Cached, committed).With(hold(decision.LedgerRolledBack, noon)), "wait for ledger_rolled_back"},
		"another hold":                           {aPass(a).Executor().Effect(flow.Cached, committed).With(hold(decision.ClockSkew, noon)), "read chain"},
		"failed":                                 {aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Failed, "").Obj()).Chain(ofAction(a), nil).Lock(lock.Obj()), "append action/a1-uid/0: failed"},
		"lapsed":                                 {aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()).Chain(ofAction(a), nil).With(noLock), "append action/a1-uid/0: ambiguous lease_lapsed"},
		"reported unknown":                       {aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Ambiguous, effect.ReportedUnknown).Obj()).Chain(ofAction(a), nil).With(noLock), "append action/a1-uid/0: ambiguous reported_unknown"},
		"an outcome that does not count":         {aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Ambiguous, effect.OutcomeNotAccepted).Obj()).Chain(ofAction(a), nil).With(noLock), "append action/a1-uid/0: ambiguous outcome_not_accepted"},
		"its record was lost":                    {aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Ambiguous, effect.StatusMissing).Obj()).Chain(ofAction(a), nil).With(noLock), "append action/a1-uid/0: ambiguous status_missing"},
		"its record was lost, whatever it said":  {aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Ambiguous, effect.StatusMissing).Obj()).Chain(ofAction(a), nil).Lock(lock.Obj()), "append action/a1-uid/0: ambiguous status_missing"},
		"its record has another attempt":         {aPass(anAction("a1").Admitted(2).Obj()).Effect(flow.Fresh, committed).Chain(ofAction(a), nil).With(noLock), "append action/a1-uid/0: ambiguous status_missing"},
		"lost, and resolved before it finished":  {aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Ambiguous, effect.StatusMissing).Resolved(effect.Failed).Obj()).Chain(ofAction(a), nil).With(noLock), "append action/a1-uid/0: failed"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
	t.Run("the end is what the receipt says", func(t *testing.T) {
		status := expect(t, aPass(a).Executor().Effect(flow.Cached, committed).Chain(ofAction(a), found(decision.Committed, "")), "finish a1: Committed").(flow.WriteAction).Status
		if status.Receipt == nil || status.Receipt.Seq != 7 || status.Message != "as it was written" || status.FinishTime == nil || status.Execution == nil {
			t.Errorf("the status is %+v", status)
		}
	})
	t.Run("the fold begins where the receipt can be at the earliest", func(t *testing.T) {
		seq := int64(42)
		a := anAction("a1").Admitted(1).Obj()
		a.FirstSeq = &seq
		if read := expect(t, aPass(a).Executor().Effect(flow.Cached, committed), "read chain").(flow.Read); read.Floor != 42 || read.Identity != ofAction(a) {
			t.Errorf("it reads %+v", read)
		}
	})
	t.Run("who resolved it is told, not that its executor reported", func(t *testing.T) {
		b := aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Ambiguous, effect.StatusMissing).Resolved(effect.Committed).Obj()).Chain(ofAction(a), nil).With(noLock)
		if d := expect(t, b, "append action/a1-uid/0: committed").(flow.Append).Document; !strings.Contains(d.Message, erin) || strings.Contains(d.Message, "executor") {
			t.Errorf("the message is %q", d.Message)
		}
	})
}

func noLock(s *flow.Snapshot) { s.Lock = flow.OutcomeRead{Presence: flow.Absent} }

// An action without an effect is settled by its outcome alone.
func TestWithoutEffect(t *testing.T) {
	a := anAction("a1").Admitted(0).Obj()
	expect(t, aPass(a).Executor(), "wait until 12:05:10 for outcome")
	expect(t, aPass(a).Executor().At(lapsed), "lapse "+flow.LockName(a.UID, "a1-claim", alice))
	for result, want := range map[flow.OutcomeResult]string{
		flow.ReportCommitted: "committed", flow.ReportNotExecuted: "failed", flow.ReportUnknown: "ambiguous reported_unknown",
	} {
		b := aPass(a).Executor().Lock(anOutcome(a, result).Obj())
		expect(t, b, "read chain")
		d := expect(t, b.Chain(ofAction(a), nil), "append action/a1-uid/0: "+want).(flow.Append).Document
		if d.EffectKey != "" || d.EffectUID != "" || d.Attempt != 0 || d.Token != "" {
			t.Errorf("the receipt has an effect: %+v", d)
		}
	}
}

// An action that is not admitted ends first, and gets its receipt afterwards: so no receipt says "denied" of an action that
// somebody admits.
func TestReceiptOfUnadmitted(t *testing.T) {
	for name, tc := range map[string]struct {
		state  flow.State
		reason decision.Reason
		result string
	}{
		"denied":  {flow.Denied, decision.Rule(1), "denied rule[1]"},
		"blocked": {flow.Blocked, decision.Duplicate, "blocked duplicate"},
		"expired": {flow.Expired, decision.NotClaimed, "denied not_claimed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := anAction("a1").Ended(tc.state, tc.reason).Obj()
			expect(t, aPass(a).Executor(), "read chain")
			d := expect(t, aPass(a).Executor().Chain(ofAction(a), nil), "append action/a1-uid/0: "+tc.result).(flow.Append).Document
			if d.ExecutorMode != "" || d.Attempt != 0 || !d.AdmittedTime.IsZero() {
				t.Errorf("its receipt says it was admitted: %+v", d)
			}
			if _, err := d.Entry(receipt.Link{Seq: 7, Hash: "sha256:" + strings.Repeat("0", 63) + "1"}); err != nil {
				t.Errorf("nobody could read its receipt: %v", err)
			}
			status := expect(t, aPass(a).Executor().Chain(ofAction(a), &d), strings.TrimSpace("finish a1: "+string(tc.state)+" "+string(tc.reason))).(flow.WriteAction).Status
			if status.Receipt == nil || status.Receipt.Seq != 7 || !status.FinishTime.Equal(noon) {
				t.Errorf("the status is %+v", status)
			}
			expect(t, aPass(a).Executor().With(hold(decision.LedgerRolledBack, noon)), "wait for ledger_rolled_back")
		})
	}
}

func TestReceipt(t *testing.T) {
	a := anAction("a1").For("frank").Asked(1).Admitted(1).Obj()
	a.Claims = map[string]any{"pod": "refunds-0"}
	a.Ask = &flow.Ask{Required: 1, Requested: noon, Expiration: noon.Add(minute)}
	yes := anApproval(a).Obj()
	yes.Groups, yes.Reason = []string{"finance"}, "checked"
	a.Execution.Approvals = append(a.Execution.Approvals, yes)
	o := anOutcome(a, flow.ReportCommitted).Obj()
	o.Output, o.Error = `{"id":1.5}`, "a warning"
	late := &flow.Outcome{Name: "late." + o.Name}
	b := aPass(a).Executor().Effect(flow.Cached, aRecord(a).Settled(effect.Committed, "").Obj()).Chain(ofAction(a), nil).Lock(o).With(func(s *flow.Snapshot) { s.Late, s.World.Epoch = late, 3 })
	write := expect(t, b, "append action/a1-uid/0: committed").(flow.Append)
	if write.Head.Seq != 7 {
		t.Errorf("it is appended after %s", write.Head)
	}
	entry, err := write.Document.Entry(write.Head)
	if err != nil {
		t.Fatal(err)
	}
	d, err := receipt.Parse(entry)
	if err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]bool{
		"action":    d.ActionName != "a1" || d.ActionUID != a.UID || d.ActionType != a.Type || d.ActionHash != a.Hash || len(d.Arguments) != 2,
		"principal": d.Principal.Agent != alice || d.Principal.User != "frank" || d.Principal.Claims["pod"] != "refunds-0",
		"decision":  d.Decision != decision.Approve || d.DecisionReason != string(decision.PlainDecision) || d.Policy.Generation != 1,
		"effect":    d.EffectName != refundName || d.EffectKey != refundKey || d.EffectUID != "effect-uid" || d.Attempt != 1 || d.Token != tokenOf(1),
		"approvals": d.ApprovalsRequired != 1 || len(d.Approvals) != 1 || d.Approvals[0].Approver != carol || d.Approvals[0].Reason != "checked" || d.Approvals[0].Groups[0] != "finance",
		"execution": d.ExecutorMode != receipt.ModeAgent || d.ClaimID != "a1-claim" || !d.AdmittedTime.Equal(noon) || !d.ProposedTime.Equal(noon),
		"report":    d.Reporter != alice || d.Output != o.Output || d.Error != o.Error || d.LateOutcomeName != late.Name,
		"place":     d.Namespace != "payments" || d.NamespaceUID != "namespace" || d.ClusterID != "cluster" || d.Epoch != 3 || d.Environment != "production",
	} {
		if wrong {
			t.Errorf("the %s of the receipt is wrong: %s", what, entry.Document)
		}
	}
}

// An action that nothing could be computed of has a receipt all the same.
func TestReceiptOfWhatCannotBeHashed(t *testing.T) {
	status := expect(t, aPass(anAction("a1").Args(`{"amount":1.5}`).Obj()), "end a1: Denied unrepresentable_argument").(flow.WriteAction).Status
	a := anAction("a1").Args(`{"amount":1.5}`).Obj()
	a.Status = status
	d := expect(t, aPass(a).Executor().Chain(ofAction(a), nil), "append action/a1-uid/0: denied unrepresentable_argument").(flow.Append).Document
	if d.Arguments != nil || d.ActionHash != "" || d.Environment != "production" {
		t.Errorf("the receipt is %+v", d)
	}
	if _, err := d.Entry(receipt.Start()); err != nil {
		t.Errorf("nobody could read it: %v", err)
	}
}
