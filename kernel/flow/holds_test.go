package flow_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/receipt"
)

// back is when admission is in force again, in tests where it was missing at noon.
var back = noon.Add(2 * minute)

// While admission is missing anybody can have said anything. It is heard by nobody, and when admission is back, only what
// was said since counts.
func TestNothingSaidWhileAdmissionIsMissingCounts(t *testing.T) {
	a := anAction("a1").Admitted(1).Obj()
	record := aRecord(a).Obj()
	free := anAction("a1").Admitted(0).Obj()
	waiting := anAction("a1").Obj()
	quoted := ambiguousReceipt(nil)
	ambiguous := aRecord(anAction("a0").Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()
	late := flow.Outcome{Name: "late.x", ActionUID: "a0-uid", Reporter: alice, Result: flow.ReportCommitted}
	resolution := aResolution(effect.Committed, quoted)
	for name, tc := range map[string]struct {
		said           func(at time.Time) *snapshotBuilder
		forged, honest string // what becomes, when admission is back, of what was said before and since
	}{
		"a report that it happened": {
			func(at time.Time) *snapshotBuilder {
				return aPass(a).Effect(flow.Cached, record).Lock(anOutcome(a, flow.ReportCommitted).At(at).Obj())
			}, "settle: Ambiguous 1 OutcomeNotAccepted", "settle: Committed 1"},
		"a report that it did not, which would free the key": {
			func(at time.Time) *snapshotBuilder {
				return aPass(a).Effect(flow.Cached, record).Lock(anOutcome(a, flow.ReportNotExecuted).At(at).Obj())
			}, "settle: Ambiguous 1 OutcomeNotAccepted", "settle: Failed 1"},
		"a lapse, which only the operator declares": {
			func(at time.Time) *snapshotBuilder {
				return aPass(a).Effect(flow.Cached, record).Lock(anOutcome(a, flow.ReportUnknown).At(at).Lapsed().Obj())
			}, "settle: Ambiguous 1 LeaseLapsed", "settle: Ambiguous 1 LeaseLapsed"},
		"a report of an action without effect": {
			func(at time.Time) *snapshotBuilder {
				return aPass(free).Chain(ofAction(free), nil).Lock(anOutcome(free, flow.ReportNotExecuted).At(at).Obj())
			}, "append action/a1-uid/0: ambiguous outcome_not_accepted", "append action/a1-uid/0: failed"},
		"a report that came too late": {
			func(at time.Time) *snapshotBuilder {
				return aPassOver(ambiguous).With(func(s *flow.Snapshot) { o := late; o.Created = at; s.Late = &o })
			}, "wait for resolution", "late: Ambiguous 1 LeaseLapsed"},
		"a resolution": {
			func(at time.Time) *snapshotBuilder {
				return aPassOver(ambiguous).With(func(s *flow.Snapshot) {
					r := resolution
					r.Created = at
					s.Resolutions, s.Quoted = []flow.Resolution{r}, []flow.QuotedRead{{Name: r.QuotedName, Entry: &quoted}}
				})
			}, "judge r: MadeWithoutAdmission", "resolve: Committed 1 LeaseLapsed"},
		"a process that gives up": {
			func(at time.Time) *snapshotBuilder {
				return aPass(waiting).Lock(anOutcome(waiting, flow.ReportNotExecuted).At(at).Obj()).With(func(s *flow.Snapshot) {
					s.Action.Action = anAction("a1").At(at).Obj()
				})
			}, "end a1: Blocked made_without_admission", "end a1: Blocked withdrawn"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []time.Time{noon.Add(-minute), noon, noon.Add(minute)} {
				missing := tc.said(at).At(noon.Add(minute)).With(hold(decision.AdmissionMissing, noon))
				step := flow.Next(missing.Obj())
				if write, ok := step.(flow.WriteAction); ok && write.Why == flow.WhyHold {
					// An action that is not admitted says that it waits, and then waits.
					held := *missing.s.Action.Action
					held.Status = write.Status
					missing.s.Action.Action = &held
				}
				expect(t, missing, "wait for admission_missing")
			}
			again := func(s *flow.Snapshot) { s.World.AdmissionSince = back }
			expect(t, tc.said(noon.Add(minute)).At(back.Add(minute)).With(again), tc.forged)
			expect(t, tc.said(back.Add(1)).At(back.Add(minute)).With(again), tc.honest)
		})
	}
	t.Run("but a lease that is over may be declared lapsed: that frees nothing", func(t *testing.T) {
		expect(t, aPass(a).Effect(flow.Cached, record).At(lapsed).With(hold(decision.AdmissionMissing, noon)), "lapse "+flow.LockName(a.UID, "a1-claim", alice))
	})
}

// By a clock that is known to be wrong every lease is over. It ends none; what people and processes say is heard.
func TestAWrongClockEndsNoLease(t *testing.T) {
	agents, free := anAction("a1").Admitted(1).Obj(), anAction("a1").Admitted(0).Obj()
	operators := anAction("a1").Admitted(1).InOperatorMode().Obj()
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string // as soon as the clock is right
	}{
		"of an agent":                        {aPass(agents).Effect(flow.Cached, aRecord(agents).Obj()), "lapse " + flow.LockName(agents.UID, "a1-claim", alice)},
		"of an agent, without an effect":     {aPass(free), "lapse " + flow.LockName(free.UID, "a1-claim", alice)},
		"of an executor that acts":           {aPass(operators).Effect(flow.Cached, aReservation(operators).Began().Obj()), "settle: Ambiguous 1 ExecutorLost"},
		"of an executor that has yet to act": {aPass(operators).Effect(flow.Cached, aReservation(operators).Obj()), "release: Failed 1"},
	} {
		t.Run(name, func(t *testing.T) {
			held := *tc.pass
			expect(t, held.At(noon.Add(time.Hour)).With(hold(decision.ClockSkew, noon)), "wait for clock_skew")
			expect(t, tc.pass.At(noon.Add(time.Hour)), tc.want)
		})
	}
	t.Run("but a report settles", func(t *testing.T) {
		expect(t, aPass(agents).Effect(flow.Cached, aRecord(agents).Obj()).At(noon.Add(time.Hour)).With(hold(decision.ClockSkew, noon)).Lock(anOutcome(agents, flow.ReportNotExecuted).Obj()), "settle: Failed 1")
	})
	t.Run("nor is anything deleted: retention looks again in a minute", func(t *testing.T) {
		finished := flow.Retained{UID: "a1-uid", Finished: true, FinishTime: noon}
		for _, reason := range []decision.Reason{decision.ClockSkew, decision.CachesStale} {
			world := aWorld()
			world.Holds = []flow.Hold{{Reason: decision.AdmissionMissing}, {Reason: reason}}
			want := time.Duration(0)
			if reason == decision.ClockSkew {
				want = minute
			}
			if wait, keep := flow.Retain(finished, world, noon.Add(time.Hour)); wait != want || keep {
				t.Errorf("held by %s it is kept for %s, %t, want %s", reason, wait, keep, want)
			}
		}
	})
}

// nested is an object with that many levels, itself the first.
func nested(levels int) string {
	return `{"payment_id":"txn_1","in":` + strings.Repeat(`[`, levels-1) + strings.Repeat(`]`, levels-1) + `}`
}

// What policy does not take is denied for what it is, however deep it is nested, and has its receipt all the same: without
// the arguments.
func TestArgumentsThatAreTooLarge(t *testing.T) {
	for name, arguments := range map[string]string{
		"one level too deep":                           nested(action.MaxArgumentsDepth + 1),
		"as deep as can be parsed":                     nested(64),
		"one byte too long":                            `{"payment_id":"` + strings.Repeat("x", action.MaxArgumentsBytes+1-len(`{"payment_id":""}`)) + `"}`,
		"so long and so deep that nothing can be said": strings.Replace(nested(64), "txn_1", strings.Repeat("x", 2*action.MaxArgumentsBytes), 1),
	} {
		t.Run(name, func(t *testing.T) {
			status := expect(t, aPass(anAction("a1").Args(arguments).Obj()), "end a1: Denied arguments_too_large").(flow.WriteAction).Status
			ended := anAction("a1").Args(arguments).Obj()
			ended.Status = status
			d := expect(t, aPass(ended).Chain(ofAction(ended), nil), "append action/a1-uid/0: denied arguments_too_large").(flow.Append).Document
			entry, err := d.Entry(receipt.Start())
			if err != nil {
				t.Fatalf("it cannot be receipted: %v", err)
			}
			if !strings.Contains(entry.Document, `"arguments":null`) {
				t.Errorf("the receipt has the arguments: %s", entry.Document)
			}
		})
	}
	t.Run("as deep, and as long, as is allowed", func(t *testing.T) {
		for _, arguments := range []string{nested(action.MaxArgumentsDepth), `{"payment_id":"txn_1","x":"` + strings.Repeat("x", action.MaxArgumentsBytes-len(`{"payment_id":"txn_1","x":""}`)) + `"}`} {
			a := anAction("a1").Args(arguments).Obj()
			expect(t, aPass(a), "reserve: Executing 1")
			a = anAction("a1").Args(arguments).Ended(flow.Blocked, decision.Duplicate).Obj()
			if d := expect(t, aPass(a).Chain(ofAction(a), nil), "append action/a1-uid/0: blocked duplicate").(flow.Append).Document; d.Arguments == nil {
				t.Error("the receipt lacks the arguments")
			}
		}
	})
}

// An output that is longer than a receipt takes is left where it is: in the Outcome.
func TestALongOutputIsNotInTheReceipt(t *testing.T) {
	a := anAction("a1").Admitted(1).Obj()
	for name, tc := range map[string]struct {
		length int
		taken  bool
	}{
		"as long as it takes": {flow.MaxOutputBytes, true},
		"a byte longer":       {flow.MaxOutputBytes + 1, false},
		"a megabyte":          {1 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := anOutcome(a, flow.ReportCommitted).Obj()
			o.Output, o.Error = `"`+strings.Repeat("x", tc.length-2)+`"`, "a warning"
			b := aPass(a).Effect(flow.Cached, aRecord(a).Settled(effect.Committed, "").Obj()).Chain(ofAction(a), nil).Lock(o)
			write := expect(t, b, "append action/a1-uid/0: committed").(flow.Append)
			if got := write.Document.Output; (got == o.Output) != tc.taken || (got == "") == tc.taken {
				t.Errorf("the receipt has %d bytes of %d", len(got), tc.length)
			}
			if write.Document.Error != o.Error || write.Document.Reporter != alice {
				t.Errorf("it lacks what is short: %q, %q", write.Document.Error, write.Document.Reporter)
			}
			if _, err := write.Document.Entry(write.Head); err != nil {
				t.Error(err)
			}
		})
	}
}

// A message is written as it is stored, so that the next pass does not take it for another one: a status whose message does
// not fit is written once.
func TestALongMessageIsWrittenOnce(t *testing.T) {
	// Two bytes a character, after one of one byte: a cut at any one length would be in the middle of a character somewhere.
	for _, long := range []string{"x" + strings.Repeat("ä", 1000), strings.Repeat("ä", 1000), "xx" + strings.Repeat("€", 600)} {
		held := func(a *flow.Action) *snapshotBuilder {
			return aPass(a).At(noon.Add(minute)).With(func(s *flow.Snapshot) {
				s.World.Holds = []flow.Hold{{Reason: decision.LedgerRolledBack, Message: long, Since: noon}}
			})
		}
		a := anAction("a1").Obj()
		status := expect(t, held(a), "hold a1: Pending ledger_rolled_back").(flow.WriteAction).Status
		if len(status.Message) > 1024 || len(status.Message) < 1020 || !utf8.ValidString(status.Message) || !strings.HasSuffix(status.Message, "…") {
			t.Errorf("the message has %d bytes: %q", len(status.Message), status.Message)
		}
		a.Status = status
		expect(t, held(a), "wait for ledger_rolled_back")
	}
	t.Run("nor does an end say more than is stored", func(t *testing.T) {
		asked := anAction("a1").Asked(1).Obj()
		no := anApproval(asked).Denied().Obj()
		no.Reason = strings.Repeat("because ", 200)
		status := expect(t, aPass(asked).Policy(approving).Answers(flow.Cached, no), "end a1: Denied approval_denied").(flow.WriteAction).Status
		if len(status.Message) != 1024 {
			t.Errorf("the message has %d bytes", len(status.Message))
		}
		asked.Status = status
		if d := expect(t, aPass(asked).Chain(ofAction(asked), nil), "append action/a1-uid/0: denied approval_denied").(flow.Append).Document; d.Message != status.Message {
			t.Errorf("the receipt says %q, the action %q", d.Message, status.Message)
		}
	})
	t.Run("a short one is left alone", func(t *testing.T) {
		short := strings.Repeat("x", 1024)
		b := aPass(anAction("a1").Obj()).At(noon.Add(minute)).With(func(s *flow.Snapshot) {
			s.World.Holds = []flow.Hold{{Reason: decision.Quota, Message: short, Since: noon}}
		})
		if got := expect(t, b, "hold a1: Pending quota").(flow.WriteAction).Status.Message; got != short {
			t.Errorf("it is %q", got)
		}
	})
}

// Whoever looks for a receipt begins where it can be at the earliest. What was noted before a person accepted an earlier
// head counts receipts that are gone: those in their place are looked at as well.
func TestFloorOfAnAcceptedChain(t *testing.T) {
	const accepted = 2
	seq := int64(42)
	a := anAction("a1").Admitted(1).Obj()
	a.FirstSeq = &seq
	ended := anAction("a1").Ended(flow.Denied, decision.PlainDecision).Obj()
	ended.FirstSeq = &seq
	resolved := resolvedAs(effect.Failed) // at 12:01, quoting receipt 3
	lost := aRecord(anAction("a0").Obj()).Lost()
	status := effect.Lost(3, nil, "", "", 0, effect.Loss{Ordinal: 1, Seq: 42}, 0, noon.Add(minute))
	lost.Status = &status
	retry := func() *snapshotBuilder {
		return aPass(anAction("a1").Obj()).Effect(flow.Fresh, resolved).Holder(flow.Absent, nil).Read()
	}
	for name, tc := range map[string]struct {
		pass   func() *snapshotBuilder
		noted  time.Time
		before int64 // the floor if nobody accepted anything, or before it was noted
	}{
		"of an action": {func() *snapshotBuilder {
			return aPass(a).Effect(flow.Cached, aRecord(a).Settled(effect.Failed, "").Obj())
		}, noon, 42},
		"of an action that was denied":  {func() *snapshotBuilder { return aPass(ended) }, noon, 42},
		"of a resolution":               {func() *snapshotBuilder { return aPassOver(resolved) }, noon.Add(minute), 3},
		"of a lost record":              {func() *snapshotBuilder { return aPassOver(lost) }, noon.Add(minute), 42},
		"of a predecessor's resolution": {retry, noon.Add(minute), 3},
	} {
		t.Run(name, func(t *testing.T) {
			floor := func(change func(*flow.World)) int64 {
				return expect(t, tc.pass().With(func(s *flow.Snapshot) { change(&s.World) }), "read chain").(flow.Read).Floor
			}
			at := func(when time.Time, head int64) func(*flow.World) {
				return func(w *flow.World) {
					w.Accepted, w.AcceptedTime = receipt.Link{Seq: head, Hash: "sha256:" + strings.Repeat("2", 64)}, when
				}
			}
			for want, change := range map[int64]func(*flow.World){
				accepted:  at(tc.noted.Add(time.Hour), accepted),
				0:         at(tc.noted, 0), // the same moment: nothing says which was first
				tc.before: at(tc.noted.Add(-1), accepted),
			} {
				if got := floor(change); got != want {
					t.Errorf("the floor is %d, want %d", got, want)
				}
			}
			if got := floor(func(*flow.World) {}); got != tc.before {
				t.Errorf("of a chain nobody accepted the floor is %d, want %d", got, tc.before)
			}
			if got := floor(at(tc.noted.Add(time.Hour), 99)); got != tc.before {
				t.Errorf("the floor is raised to %d by an acceptance of a later head", got)
			}
		})
	}
}

// A claim whose own process has reported already is passed over: it will not execute, and the next one may.
func TestAWithdrawnClaimIsPassedOver(t *testing.T) {
	a := anAction("a1").Asked(1).Claimable(noon).Obj()
	yes := anApproval(a).Obj()
	gone, there := aClaim(a, "gone").Obj(), aClaim(a, "there").At(noon.Add(minute)).Obj()
	gone.Withdrawn = true
	pass := func(all ...flow.Claim) *snapshotBuilder {
		return aPass(a).At(noon.Add(minute)).Policy(approving).Answers(flow.Fresh, yes).Effect(flow.Fresh, aRecord(a).Obj()).Claims(flow.Fresh, all...)
	}
	t.Run("alone it admits nobody, and no approval is spent", func(t *testing.T) {
		status := expect(t, pass(gone), "wait a1: Claimable").(flow.WriteAction).Status
		if status.Execution != nil || status.Ask.Counted != 1 {
			t.Errorf("the status is %+v", status)
		}
		expect(t, pass(gone).At(noon.Add(15*minute+1)), "end a1: Expired not_claimed")
	})
	t.Run("the next one is admitted, and spends it", func(t *testing.T) {
		for _, all := range [][]flow.Claim{{gone, there}, {there, gone}} {
			x := expect(t, pass(all...), "admit a1: Admitted").(flow.WriteAction).Status.Execution
			if x.ClaimID != "there" || x.Claim.UID != there.UID || len(x.Approvals) != 1 {
				t.Errorf("admitted is %+v", x)
			}
		}
	})
	t.Run("and it is told so", func(t *testing.T) {
		if got := verdict(t, flow.JudgeClaim(a, gone, aWorld().AdmissionSince)); got != "Withdrawn" {
			t.Errorf("the verdict is %q", got)
		}
		if got := verdict(t, flow.JudgeClaim(a, there, aWorld().AdmissionSince)); got != "" {
			t.Errorf("the verdict on the next is %q", got)
		}
		other := gone
		other.Claimant = bob
		if got := verdict(t, flow.JudgeClaim(a, other, aWorld().AdmissionSince)); got != "NotTheAgent" {
			t.Errorf("the verdict on another's is %q", got)
		}
		admitted := anAction("a1").Claimable(noon).Admitted(1).Obj()
		admitted.Execution.ClaimID, admitted.Execution.Claim = gone.ClaimID, refTo(gone)
		if got := verdict(t, flow.JudgeClaim(admitted, gone, aWorld().AdmissionSince)); got != "+Accepted" {
			t.Errorf("the verdict on one that reported after it was admitted is %q", got)
		}
	})
}

// A hold that a Ledger remembers lasts until a person accepts a head: not until a restart, nor until the chain happens to
// fit again.
func TestAHoldOfTheLedgerIsRemembered(t *testing.T) {
	const held = "Receipt 9 is missing."
	fits := flow.LedgerView{Namespace: "payments", NamespaceUID: "namespace", RecordedUID: "namespace", Recorded: linkAt(5), HighestRef: *linkAt(3), At: stored}
	for name, tc := range map[string]struct {
		change func(*flow.LedgerView)
		says   string
	}{
		"it fits again":                       {func(*flow.LedgerView) {}, held},
		"by a process that never saw it hold": {func(v *flow.LedgerView) { v.Remembered = linkAt(5) }, held},
		"nothing can be read":                 {func(v *flow.LedgerView) { v.At = func(int64) (string, error) { return "", errNotRead } }, held},
		"it was accepted":                     {func(v *flow.LedgerView) { v.Held = "" }, ""},
		"the namespace is another since":      {func(v *flow.LedgerView) { v.NamespaceUID = "since" }, "created again"},
	} {
		t.Run(name, func(t *testing.T) {
			v := fits
			v.Held = held
			tc.change(&v)
			got, err := flow.CheckLedger(v)
			if err != nil || (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
				t.Errorf("it holds with %q, %v, want %q", got, err, tc.says)
			}
		})
	}
}

// A policy that cannot be hashed decides all the same, and is no obstacle to a receipt.
func TestReceiptOfAnUnhashedPolicy(t *testing.T) {
	a := anAction("a1").Ended(flow.Denied, decision.PolicyInvalid).Obj()
	a.Policy = &policy.Ref{Name: "refunds", Generation: 1}
	d := expect(t, aPass(a).Chain(ofAction(a), nil), "append action/a1-uid/0: denied policy_invalid").(flow.Append).Document
	if d.Policy != nil {
		t.Errorf("it cites %+v", d.Policy)
	}
	if _, err := d.Entry(receipt.Start()); err != nil {
		t.Error(err)
	}
}
