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

// ambiguousReceipt is the receipt that says attempt 1 of the refund is ambiguous.
// observed makes a resolution one of a program that looked, speaking as somebody.
func observed(by, as string) func(*flow.Resolution) {
	return func(r *flow.Resolution) { r.Observer, r.Resolver = by, as }
}

func ambiguousReceipt(change func(*receipt.Document)) receipt.Entry {
	d := receipt.Document{
		Kind: receipt.KindAction, SubjectUID: "a0-uid", ActionName: "a0", ActionUID: "a0-uid", ActionType: "stripe.refund", Principal: &receipt.Principal{Agent: alice},
		EffectKey: refundKey, EffectName: refundName, EffectUID: "effect-uid", Attempt: 1, Result: decision.Ambiguous, Reason: decision.LeaseLapsed,
		ClusterID: "cluster", Namespace: "payments", NamespaceUID: "namespace", Environment: "production", ProposedTime: noon, FinishedTime: noon,
		Message: "nobody knows", ExecutorMode: receipt.ModeAgent, AdmittedTime: noon,
	}
	if change != nil {
		change(&d)
	}
	entry, err := d.Entry(receipt.Link{Seq: 4, Hash: "sha256:" + strings.Repeat("0", 63) + "1"})
	if err != nil {
		panic(err)
	}
	return entry
}

func aResolution(state effect.State, quoted receipt.Entry) flow.Resolution {
	return flow.Resolution{
		Name: "r", UID: "r-uid", EffectUID: "effect-uid", Attempt: 1, ActionType: "stripe.refund", State: state,
		QuotedName: "payments-000000000005", QuotedHash: quoted.Hash, Resolver: erin, Reason: "asked the provider", Evidence: "https://provider.example", Created: noon,
	}
}

func TestResolutions(t *testing.T) {
	quoted := ambiguousReceipt(nil)
	ambiguous := aRecord(anAction("a0").For("frank").Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()
	ambiguous.Status.Holder.User = "frank"
	lostRecord := func() *effect.Record {
		r := *ambiguous
		s := *ambiguous.Status
		s.Cause, s.Loss = effect.StatusMissing, &effect.Loss{Ordinal: 1, Seq: 5}
		r.Status = &s
		return &r
	}
	ofLoss := receipt.Identity{Kind: receipt.KindStatusMissing, SubjectUID: "effect-uid", Ordinal: 1}
	for name, tc := range map[string]struct {
		record *effect.Record
		change func(*flow.Resolution)
		quoted *receipt.Entry
		other  func(*snapshotBuilder)
		want   string
	}{
		"committed":                                {ambiguous, nil, &quoted, nil, "resolve: Committed 1 LeaseLapsed"},
		"not executed, with evidence":              {ambiguous, func(r *flow.Resolution) { r.State = effect.Failed }, &quoted, nil, "resolve: Failed 1 LeaseLapsed"},
		"not executed, without":                    {ambiguous, func(r *flow.Resolution) { r.State, r.Evidence = effect.Failed, "" }, &quoted, nil, "judge r: EvidenceMissing"},
		"committed, without":                       {ambiguous, func(r *flow.Resolution) { r.Evidence = "" }, &quoted, nil, "resolve: Committed 1 LeaseLapsed"},
		"a state of no list":                       {ambiguous, func(r *flow.Resolution) { r.State = effect.Ambiguous }, &quoted, nil, "judge r: Mismatch"},
		"the quoted receipt was not looked at":     {ambiguous, nil, nil, nil, "read quoted receipt"},
		"another one was looked at":                {ambiguous, nil, &quoted, func(b *snapshotBuilder) { b.s.Quoted[0].Name = "other" }, "read quoted receipt"},
		"no such receipt":                          {ambiguous, nil, &receipt.Entry{}, func(b *snapshotBuilder) { b.s.Quoted[0].Entry = nil }, "judge r: Mismatch"},
		"another hash":                             {ambiguous, func(r *flow.Resolution) { r.QuotedHash = "sha256:2" }, &quoted, nil, "judge r: Mismatch"},
		"another effect":                           {ambiguous, func(r *flow.Resolution) { r.EffectUID = "other" }, &quoted, nil, "judge r: Mismatch"},
		"another attempt":                          {ambiguous, func(r *flow.Resolution) { r.Attempt = 2 }, &quoted, nil, "judge r: Mismatch"},
		"another type":                             {ambiguous, func(r *flow.Resolution) { r.ActionType = "other" }, &quoted, nil, "judge r: Mismatch"},
		"made without admission":                   {ambiguous, func(r *flow.Resolution) { r.Created = aWorld().AdmissionSince }, &quoted, nil, "judge r: MadeWithoutAdmission"},
		"by the agent":                             {ambiguous, func(r *flow.Resolution) { r.Resolver = alice }, &quoted, nil, "judge r: SelfResolution"},
		"by the user":                              {ambiguous, func(r *flow.Resolution) { r.Resolver = "frank" }, &quoted, nil, "judge r: SelfResolution"},
		"by nobody":                                {ambiguous, func(r *flow.Resolution) { r.Resolver = "" }, &quoted, nil, "judge r: SelfResolution"},
		"a program that looked":                    {ambiguous, observed("ledger-watcher", "carol"), &quoted, nil, "resolve: Committed 1 LeaseLapsed"},
		"a program of the agent's own":             {ambiguous, observed("ledger-watcher", alice), &quoted, nil, "resolve: Committed 1 LeaseLapsed"},
		"a program that names nobody":              {ambiguous, observed("ledger-watcher", ""), &quoted, nil, "judge r: SelfResolution"},
		"a program, not executed, without":         {ambiguous, func(r *flow.Resolution) { r.Observer, r.State, r.Evidence = "x", effect.Failed, "" }, &quoted, nil, "judge r: EvidenceMissing"},
		"a program, of a lost record":              {lostRecord(), observed("ledger-watcher", "carol"), entryOf(ofLostRecord), func(b *snapshotBuilder) { b.Chain(ofLoss, &receipt.Document{}); b.s.Effect.Status.Loss.Seq = 4 }, "judge r: PeopleRequired"},
		"judged already":                           {ambiguous, func(r *flow.Resolution) { r.Judged = true }, &quoted, nil, "wait for resolution"},
		"quoting a committed receipt":              {ambiguous, nil, entryOf(func(d *receipt.Document) { d.Result, d.Reason = decision.Committed, "" }), nil, "judge r: Mismatch"},
		"quoting another key":                      {ambiguous, nil, entryOf(func(d *receipt.Document) { d.EffectKey = "refund:txn_2" }), nil, "judge r: Mismatch"},
		"quoting another attempt":                  {ambiguous, nil, entryOf(func(d *receipt.Document) { d.Attempt = 2 }), nil, "judge r: Mismatch"},
		"quoting another record's loss":            {ambiguous, nil, entryOf(func(d *receipt.Document) { ofLostRecord(d); d.EffectUID, d.SubjectUID = "other", "other" }), nil, "judge r: Mismatch"},
		"a lost record, without its receipt":       {lostRecord(), nil, &quoted, nil, "read chain"},
		"a lost record, not in the chain":          {lostRecord(), nil, &quoted, func(b *snapshotBuilder) { b.Chain(ofLoss, nil) }, "append status-missing/effect-uid/1: ambiguous status_missing"},
		"a lost record, the chain rolled back":     {lostRecord(), nil, &quoted, func(b *snapshotBuilder) { hold(decision.LedgerRolledBack, noon)(&b.s) }, "wait for ledger_rolled_back"},
		"a receipt from before the loss":           {lostRecord(), nil, &quoted, func(b *snapshotBuilder) { b.Chain(ofLoss, &receipt.Document{}) }, "judge r: Mismatch"},
		"an earlier loss's receipt":                {lostRecord(), nil, entryOf(ofLostRecord), func(b *snapshotBuilder) { b.Chain(ofLoss, &receipt.Document{}) }, "judge r: Mismatch"},
		"the loss's receipt":                       {lostRecord(), nil, entryOf(ofLostRecord), func(b *snapshotBuilder) { b.Chain(ofLoss, &receipt.Document{}); b.s.Effect.Status.Loss.Seq = 4 }, "resolve: Committed 1 StatusMissing"},
		"while admission is missing":               {ambiguous, nil, &quoted, func(b *snapshotBuilder) { hold(decision.AdmissionMissing, noon)(&b.s) }, "wait for admission_missing"},
		"a cache does not refuse it":               {ambiguous, func(r *flow.Resolution) { r.Attempt = 2 }, &quoted, func(b *snapshotBuilder) { b.s.Effect.Presence = flow.Cached }, "read effect"},
		"a cache settles it: the write is guarded": {ambiguous, nil, &quoted, func(b *snapshotBuilder) { b.s.Effect.Presence = flow.Cached }, "resolve: Committed 1 LeaseLapsed"},
		"an executing effect":                      {aRecord(anAction("a0").Obj()).Obj(), nil, &quoted, nil, "judge r: NotAmbiguous"},
		"an executing effect, by a cache":          {aRecord(anAction("a0").Obj()).Obj(), nil, &quoted, func(b *snapshotBuilder) { b.s.Effect.Presence = flow.Cached }, "read effect"},
		"a committed effect":                       {aRecord(anAction("a0").Obj()).Settled(effect.Committed, "").Obj(), nil, &quoted, nil, "judge r: NotAmbiguous"},
		"a committed effect, by a cache":           {aRecord(anAction("a0").Obj()).Settled(effect.Committed, "").Obj(), nil, &quoted, func(b *snapshotBuilder) { b.s.Effect.Presence = flow.Cached }, "read effect"},
	} {
		t.Run(name, func(t *testing.T) {
			b := aPassOver(tc.record).Holder(flow.Fresh, anAction("a0").Admitted(1).Obj())
			q := quoted
			if tc.quoted != nil {
				q = *tc.quoted
				b.s.Quoted = []flow.QuotedRead{{Name: "payments-000000000005", Entry: &q}}
			}
			r := aResolution(effect.Committed, q)
			if tc.change != nil {
				tc.change(&r)
			}
			b.s.Resolutions = []flow.Resolution{r}
			if tc.other != nil {
				tc.other(b)
			}
			step := expect(t, b, tc.want)
			if judged, ok := step.(flow.Judge); ok && (judged.Message == "" || judged.Accepted || judged.UID != "r-uid") {
				t.Errorf("the verdict is %+v", judged)
			}
			if write, ok := step.(flow.WriteEffect); ok {
				by := write.Status.Resolution
				if write.Create || by.Name != "r" || by.UID != "r-uid" || by.Resolver != r.Resolver || by.Observer != r.Observer || by.QuotedSeq != 5 || by.QuotedHash != q.Hash || by.Reason != "asked the provider" || write.Status.Attempt != 1 || write.Status.Holder == nil {
					t.Errorf("the write is %+v", by)
				}
			}
		})
	}
}

func entryOf(change func(*receipt.Document)) *receipt.Entry {
	e := ambiguousReceipt(change)
	return &e
}

func ofLostRecord(d *receipt.Document) {
	*d = receipt.Document{
		Kind: receipt.KindStatusMissing, SubjectUID: "effect-uid", Ordinal: 1, EffectKey: refundKey, EffectName: refundName, EffectUID: "effect-uid", Attempt: 1,
		Result: decision.Ambiguous, Reason: decision.StatusMissing, ClusterID: "cluster", Namespace: "payments", NamespaceUID: "namespace", FinishedTime: noon,
	}
}

// Of several resolutions the oldest that counts settles it; the others are told so.
func TestSeveralResolutions(t *testing.T) {
	quoted := ambiguousReceipt(nil)
	first, second := aResolution(effect.Committed, quoted), aResolution(effect.Failed, quoted)
	second.Name, second.UID, second.Created = "s", "s-uid", noon.Add(1)
	b := aPassOver(aRecord(anAction("a0").Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj())
	b.s.Quoted = []flow.QuotedRead{{Name: first.QuotedName, Entry: &quoted}}
	b.s.Resolutions = []flow.Resolution{second, first}
	write := expect(t, b, "resolve: Committed 1 LeaseLapsed").(flow.WriteEffect)

	resolved := &effect.Record{Name: refundName, UID: "effect-uid", Key: refundKey, Status: &write.Status}
	after := func() *snapshotBuilder {
		b := aPassOver(resolved).Holder(flow.Absent, nil).Chain(ofResolution, &receipt.Document{})
		b.s.Resolutions = []flow.Resolution{second, first}
		return b
	}
	if j := expect(t, after(), "judge r: Accepted").(flow.Judge); !j.Accepted {
		t.Error("the resolution that settled it is refused")
	}
	first.Judged = true
	expect(t, after(), "judge s: AnotherWasFirst")
	second.Attempt = 2
	expect(t, after(), "judge s: NotAmbiguous")
	second.Judged = true
	expect(t, after(), "done")
}

// What a resolution settled is brought on record: its receipt, a word on the action, the verdict.
func TestResolved(t *testing.T) {
	record := resolvedAs(effect.Committed)
	a0 := anAction("a0").Admitted(1).Ended(flow.Ambiguous, decision.LeaseLapsed)
	over := a0.Receipted(3).Obj()
	told := anAction("a0").Admitted(1).Ended(flow.Ambiguous, decision.LeaseLapsed).Receipted(3).Obj()
	told.Resolved = &flow.Resolved{Name: "r"}
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
	}{
		"the chain was not looked at":    {aPassOver(record), "read chain"},
		"the chain was rolled back":      {aPassOver(record).With(hold(decision.LedgerRolledBack, noon)), "wait for ledger_rolled_back"},
		"no receipt":                     {aPassOver(record).Chain(ofResolution, nil), "append resolution/effect-uid/1: committed"},
		"the action was not looked at":   {aPassOver(record).Chain(ofResolution, &receipt.Document{}), "read holder"},
		"the action, by a cache":         {aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Cached, over), "read holder"},
		"the action":                     {aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Fresh, over), "resolved a0: Ambiguous lease_lapsed"},
		"the action was told":            {aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Fresh, told), "done"},
		"the action is gone":             {aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Absent, nil), "done"},
		"the action is not finished":     {aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Fresh, anAction("a0").Admitted(1).Obj()), "wait for holder"},
		"the action ended otherwise":     {aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Fresh, anAction("a0").Admitted(1).Ended(flow.Failed, "").Receipted(3).Obj()), "done"},
		"the action had another attempt": {aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Fresh, anAction("a0").Admitted(2).Ended(flow.Ambiguous, "").Receipted(3).Obj()), "done"},
		"committed, and nobody resolved": {aPassOver(aRecord(anAction("a0").Obj()).Settled(effect.Committed, "").Obj()), "done"},
		"failed, and nobody resolved":    {aPassOver(failedAttempt().Obj()), "done"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.pass, tc.want) })
	}
	t.Run("the receipt", func(t *testing.T) {
		write := expect(t, aPassOver(resolvedAs(effect.Failed)).Chain(ofResolution, nil), "append resolution/effect-uid/1: failed").(flow.Append)
		d := write.Document
		if d.Resolver != erin || d.ResolutionUID != "r-uid" || d.Resolves.Seq != 3 || d.ActionUID != "a0-uid" || d.EffectUID != "effect-uid" || d.Attempt != 1 {
			t.Errorf("it is %+v", d)
		}
	})
	t.Run("the action", func(t *testing.T) {
		write := expect(t, aPassOver(record).Chain(ofResolution, &receipt.Document{}).Holder(flow.Fresh, over), "resolved a0: Ambiguous lease_lapsed").(flow.WriteAction)
		if r := write.Status.Resolved; r.Name != "r" || r.Resolver != erin || r.State != effect.Committed || write.Status.Receipt.Seq != 3 {
			t.Errorf("it is told %+v", r)
		}
	})
	t.Run("the fold begins behind the receipt it quotes", func(t *testing.T) {
		if read := expect(t, aPassOver(record), "read chain").(flow.Read); read.Floor != 3 || read.Identity != ofResolution {
			t.Errorf("it reads %+v", read)
		}
	})
}

func TestLateReport(t *testing.T) {
	record := aRecord(anAction("a0").Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()
	report := flow.Outcome{Name: "late.x", ActionUID: "a0-uid", Reporter: alice, Result: flow.ReportCommitted, Created: noon}
	b := func(change func(*flow.Outcome)) *snapshotBuilder {
		o := report
		change(&o)
		return aPassOver(record).With(func(s *flow.Snapshot) { s.Late = &o })
	}
	for name, tc := range map[string]struct {
		change func(*flow.Outcome)
		want   string
	}{
		"by the holder":          {func(*flow.Outcome) {}, "late: Ambiguous 1 LeaseLapsed"},
		"by another":             {func(o *flow.Outcome) { o.Reporter = bob }, "wait for resolution"},
		"of another action":      {func(o *flow.Outcome) { o.ActionUID = "other" }, "wait for resolution"},
		"made without admission": {func(o *flow.Outcome) { o.Created = aWorld().AdmissionSince }, "wait for resolution"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, b(tc.change), tc.want) })
	}
	write := expect(t, b(func(*flow.Outcome) {}), "late: Ambiguous 1 LeaseLapsed").(flow.WriteEffect)
	if l := write.Status.Late; l.Name != "late.x" || l.Result != "Committed" || len(write.Status.History) != 1 {
		t.Errorf("it is %+v", write.Status)
	}
	record.Status.Late = write.Status.Late
	expect(t, b(func(*flow.Outcome) {}), "wait for resolution")
}

// What an executor of the operator did is told by the operator, under the nonce with which it began, and by nobody else.
func TestLateReportOfAnExecutor(t *testing.T) {
	began, err := aReservation(anAction("a0").Obj()).Obj().Status.Begin("nonce", noon)
	if err != nil {
		t.Fatal(err)
	}
	lost, err := began.Settle(effect.Settlement{State: effect.Ambiguous, Cause: effect.ExecutorLost, Now: lapsed})
	if err != nil {
		t.Fatal(err)
	}
	record := aReservation(anAction("a0").Obj()).Obj()
	record.Status = &lost
	for name, tc := range map[string]struct {
		reporter, claimID, want string
	}{
		"by the operator":                     {"operator", "nonce", "late: Ambiguous 1 ExecutorLost"},
		"by the operator, of another process": {"operator", "another", "wait for resolution"},
		"by somebody who has read the nonce":  {bob, "nonce", "wait for resolution"},
		"by the agent":                        {alice, "nonce", "wait for resolution"},
	} {
		t.Run(name, func(t *testing.T) {
			o := flow.Outcome{Name: "late.x", ActionUID: "a0-uid", ClaimID: tc.claimID, Reporter: tc.reporter, Result: flow.ReportCommitted, Created: noon}
			expect(t, aPassOver(record).With(func(s *flow.Snapshot) { s.Late, s.World.Operator = &o, "operator" }), tc.want)
		})
	}
}

// A record that lost its status, or is gone, becomes Ambiguous with the highest attempt anybody knows of, after whatever
// might still be admitted for it was ended.
func TestLostRecord(t *testing.T) {
	received := func(attempt int64, change func(*receipt.Document)) receipt.Document {
		d := receipt.Document{Kind: receipt.KindAction, SubjectUID: "old-uid", ActionName: "old", ActionUID: "old-uid", ActionType: "stripe.refund", Principal: &receipt.Principal{Agent: bob, User: "frank"},
			EffectKey: refundKey, EffectName: refundName, EffectUID: "effect-uid", Attempt: attempt, Token: tokenOf(attempt), Result: decision.Failed, Seq: 10 + attempt}
		if change != nil {
			change(&d)
		}
		return d
	}
	loss := func(ordinal int64) func(*receipt.Document) {
		return func(d *receipt.Document) {
			d.Kind, d.SubjectUID, d.Ordinal, d.Result, d.ActionUID = receipt.KindStatusMissing, "effect-uid", ordinal, decision.Ambiguous, ""
		}
	}
	ambiguous := func(d *receipt.Document) { d.Result = decision.Ambiguous }
	unadmitted := func(b *actionBuilder) flow.Action { return *b.Obj() }
	bare := aRecord(anAction("a0").Obj()).Lost()
	for name, tc := range map[string]struct {
		actions  []flow.Action
		receipts []receipt.Document
		want     string
		holder   string
		seq      int64
		ordinal  int64
	}{
		"nobody knows anything":                 {nil, nil, "lost: Ambiguous 1 StatusMissing", "", 0, 1},
		"a receipt knows":                       {nil, []receipt.Document{received(3, nil), received(2, nil)}, "lost: Ambiguous 3 StatusMissing", "old-uid", 13, 1},
		"an admitted action knows":              {[]flow.Action{*anAction("a4").Admitted(4).Obj()}, []receipt.Document{received(3, nil)}, "lost: Ambiguous 4 StatusMissing", "a4-uid", 13, 1},
		"an admitted action of another key":     {[]flow.Action{*admittedFor("other")}, nil, "lost: Ambiguous 1 StatusMissing", "", 0, 1},
		"an action would take the key":          {[]flow.Action{*anAction("a4").Admitted(4).Obj(), unadmitted(anAction("a5"))}, nil, "end a5: Blocked status_missing", "", 0, 0},
		"an action waits for it":                {[]flow.Action{unadmitted(anAction("a5").Asked(1))}, nil, "end a5: Blocked status_missing", "", 0, 0},
		"an action takes another key":           {[]flow.Action{unadmitted(anAction("a5").Args(`{"payment_id":"txn_2"}`))}, nil, "lost: Ambiguous 1 StatusMissing", "", 0, 1},
		"an action that cannot be decided":      {[]flow.Action{unadmitted(anAction("a5").Args(`{"payment_id":1.5}`))}, nil, "lost: Ambiguous 1 StatusMissing", "", 0, 1},
		"an action that ended":                  {[]flow.Action{unadmitted(anAction("a5").Ended(flow.Denied, decision.PlainDecision))}, nil, "lost: Ambiguous 1 StatusMissing", "", 0, 1},
		"it was lost before":                    {nil, []receipt.Document{received(2, nil), received(1, loss(3))}, "lost: Ambiguous 2 StatusMissing", "old-uid", 12, 4},
		"another record was lost before":        {nil, []receipt.Document{received(1, func(d *receipt.Document) { loss(3)(d); d.SubjectUID, d.EffectUID = "other", "other" })}, "lost: Ambiguous 1 StatusMissing", "", 11, 1},
		"it was ambiguous: a number of its own": {nil, []receipt.Document{received(2, ambiguous)}, "lost: Ambiguous 3 StatusMissing", "old-uid", 12, 1},
		"an earlier attempt was ambiguous":      {nil, []receipt.Document{received(1, ambiguous), received(2, nil)}, "lost: Ambiguous 2 StatusMissing", "old-uid", 12, 1},
		"a receipt of a colliding key":          {nil, []receipt.Document{received(9, func(d *receipt.Document) { d.EffectKey = "refund:txn-1" })}, "lost: Ambiguous 1 StatusMissing", "", 19, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := aPassOver(bare).With(func(s *flow.Snapshot) { s.World.VerifiedSeq = 99 })
			expect(t, b, "read key")
			b.s.Key = flow.KeyRead{Read: true, Actions: tc.actions, Receipts: tc.receipts}
			step := expect(t, b, tc.want)
			write, ok := step.(flow.WriteEffect)
			if !ok {
				return
			}
			s := write.Status
			holder := ""
			if s.Holder != nil {
				holder = s.Holder.UID
			}
			if write.Create || write.Name != refundName || write.Key != refundKey || holder != tc.holder || s.Loss.Seq != tc.seq || s.Loss.Ordinal != tc.ordinal || s.State != effect.Ambiguous {
				t.Errorf("it is %+v, loss %+v, holder %q", write, s.Loss, holder)
			}
			if name == "it was ambiguous: a number of its own" && s.Token != "" {
				t.Errorf("the new number has a token of the old one: %s", s.Token)
			}
		})
	}
	t.Run("one that is gone is created", func(t *testing.T) {
		b := aPassOver(nil).With(func(s *flow.Snapshot) {
			s.EffectKey, s.Key = refundKey, flow.KeyRead{Read: true, Receipts: []receipt.Document{received(2, ambiguous)}}
		})
		if write := expect(t, b, "lost: Ambiguous 2 StatusMissing").(flow.WriteEffect); !write.Create || write.Key != refundKey {
			t.Errorf("it is %+v", write)
		}
	})
	t.Run("an admitted action sees to its own", func(t *testing.T) {
		a := anAction("a4").Admitted(4).Obj()
		b := aPass(a).Effect(flow.Fresh, bare).With(func(s *flow.Snapshot) { s.Key = flow.KeyRead{Read: true, Actions: []flow.Action{*a}} })
		write := expect(t, b, "lost: Ambiguous 4 StatusMissing").(flow.WriteEffect)
		record := *bare
		record.Status = &write.Status
		expect(t, aPass(a).Effect(flow.Fresh, &record).Chain(ofAction(a), nil).With(noLock), "append action/a4-uid/0: ambiguous status_missing")
	})
	t.Run("the receipt of the loss", func(t *testing.T) {
		record := *bare
		status := effect.Lost(3, nil, "", "", 0, effect.Loss{Ordinal: 2, Seq: 6}, 0, noon)
		record.Status = &status
		id := receipt.Identity{Kind: receipt.KindStatusMissing, SubjectUID: "effect-uid", Ordinal: 2}
		if read := expect(t, aPassOver(&record), "read chain").(flow.Read); read.Floor != 6 || read.Identity != id {
			t.Errorf("it reads %+v", read)
		}
		d := expect(t, aPassOver(&record).Chain(id, nil), "append status-missing/effect-uid/2: ambiguous status_missing").(flow.Append).Document
		if _, err := d.Entry(receipt.Start()); err != nil {
			t.Errorf("nobody could read it: %v", err)
		}
		expect(t, aPassOver(&record).Chain(id, &d), "wait for resolution")
	})
}

func TestRetain(t *testing.T) {
	finished := flow.Retained{UID: "a1-uid", Finished: true, FinishTime: noon}
	for name, tc := range map[string]struct {
		change func(*flow.Retained)
		at     time.Time
		wait   time.Duration
		keep   bool
	}{
		"just finished":                      {at: noon, wait: 10 * minute},
		"almost over":                        {at: noon.Add(10*minute - 1), wait: 1},
		"over":                               {at: noon.Add(10 * minute)},
		"long over":                          {at: noon.Add(time.Hour)},
		"over, by a clock that is wrong":     {at: noon.Add(time.Hour), wait: minute},
		"not finished":                       {change: func(r *flow.Retained) { r.Finished = false }, at: noon.Add(time.Hour), keep: true},
		"its effect is ambiguous":            {change: func(r *flow.Retained) { r.HolderUID, r.EffectAmbiguous = "a1-uid", true }, at: noon.Add(time.Hour), keep: true},
		"another's attempt is ambiguous":     {change: func(r *flow.Retained) { r.HolderUID, r.EffectAmbiguous = "a2-uid", true }, at: noon.Add(time.Hour)},
		"its effect is not ambiguous":        {change: func(r *flow.Retained) { r.HolderUID = "a1-uid" }, at: noon.Add(time.Hour)},
		"a clock that went back: it is kept": {at: noon.Add(-time.Hour), wait: 70 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := finished
			if tc.change != nil {
				tc.change(&r)
			}
			world := aWorld()
			if strings.Contains(name, "wrong") {
				world.Holds = []flow.Hold{{Reason: decision.ClockSkew}}
			}
			if wait, keep := flow.Retain(r, world, tc.at); wait != tc.wait || keep != tc.keep {
				t.Errorf("Retain = %s, %t, want %s, %t", wait, keep, tc.wait, tc.keep)
			}
		})
	}
}

func TestDelegationOver(t *testing.T) {
	at := func(minutes int) *time.Time {
		t := noon.Add(time.Duration(minutes) * minute)
		return &t
	}
	for name, tc := range map[string]struct {
		refused, revoked, expiration *time.Time
		over                         int
		never                        bool
	}{
		"it stands, without an end":          {never: true},
		"it ends":                            {expiration: at(5), over: 5},
		"refused":                            {refused: at(1), over: 1},
		"revoked":                            {revoked: at(2), over: 2},
		"revoked before its end":             {revoked: at(2), expiration: at(5), over: 2},
		"revoked after its end":              {revoked: at(7), expiration: at(5), over: 5},
		"refused, with an end long ago":      {refused: at(3), expiration: at(-9), over: -9},
		"refused and, by a bug, revoked too": {refused: at(3), revoked: at(4), over: 3},
	} {
		over, ends := flow.DelegationOver(tc.refused, tc.revoked, tc.expiration)
		if ends == tc.never || ends && !over.Equal(*at(tc.over)) {
			t.Errorf("%s: %s, %t", name, over, ends)
		}
	}
}

func TestRetainStatement(t *testing.T) {
	for name, tc := range map[string]struct {
		needed bool
		hold   decision.Reason
		ttl    time.Duration
		at     time.Time
		wait   time.Duration
	}{
		"just over":                         {at: noon, ttl: 10 * minute, wait: 10 * minute},
		"over long ago":                     {at: noon.Add(time.Hour), ttl: 10 * minute},
		"to be over later":                  {at: noon.Add(-time.Hour), ttl: 10 * minute, wait: 70 * minute},
		"something needs it":                {at: noon.Add(time.Hour), ttl: 10 * minute, needed: true, wait: 10 * minute},
		"something needs what is not kept":  {at: noon.Add(time.Hour), needed: true, wait: 10 * time.Second},
		"nothing is kept":                   {at: noon},
		"by a clock that is wrong":          {at: noon.Add(time.Hour), hold: decision.ClockSkew, wait: minute},
		"while statements may be forged":    {at: noon.Add(time.Hour), hold: decision.AdmissionMissing, wait: minute},
		"while the chain is to be accepted": {at: noon.Add(time.Hour), hold: decision.LedgerRolledBack, wait: minute},
	} {
		world := aWorld()
		world.Limits.FinishedTTL = tc.ttl
		if tc.hold != "" {
			world.Holds = []flow.Hold{{Reason: tc.hold}}
		}
		if wait := flow.RetainStatement(noon, tc.needed, world, tc.at); wait != tc.wait {
			t.Errorf("%s: %s, want %s", name, wait, tc.wait)
		}
	}
}

// TestResolutionOfAnEarlierAttempt proves that a resolution which settled an attempt is told so, although the record has gone
// on before anybody wrote its verdict.
func TestResolutionOfAnEarlierAttempt(t *testing.T) {
	for name, record := range map[string]*effect.Record{
		"the next attempt executes":     aRecord(anAction("a1").Obj()).Obj(),
		"the next attempt is ambiguous": aRecord(anAction("a1").Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj(),
	} {
		for by, want := range map[string]string{"r": "Accepted", "another": "AnotherWasFirst"} {
			t.Run(name+", settled by "+by, func(t *testing.T) {
				record.Status.Attempt = 2
				record.Status.History = []effect.Line{{Attempt: 1, Result: effect.BecameAmbiguous}, {Attempt: 1, Result: effect.ResolvedNotExecuted, Resolution: by}}
				b := aPassOver(record).Holder(flow.Fresh, anAction("a1").Admitted(2).Obj())
				r := aResolution(effect.Failed, receipt.Entry{})
				r.Attempt, r.EffectUID, r.Evidence = 1, record.UID, "the provider's log"
				b.s.Resolutions = []flow.Resolution{r}
				step := expect(t, b, "judge r: "+want)
				if judged := step.(flow.Judge); judged.Accepted != (by == "r") {
					t.Errorf("the verdict is %+v", judged)
				}
			})
		}
	}
}
