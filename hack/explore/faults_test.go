package main

// edit is a change of the source: old occurs as often as the fault says, 1 if it says nothing.
type edit struct {
	file, old, new string
	times          int
}

// fault is a guard that is taken away, and what misses it: the explorer, by the invariants of which one is found broken in
// that scenario, or a test.
type fault struct {
	name  string
	edits []edit
	// unguarded is a write that the apiserver takes whatever is there, in the place of edits.
	unguarded string

	scenario string
	broken   []string

	pkg, test string
}

const (
	approvals    = "kernel/approval/approval.go"
	records      = "kernel/effect/effect.go"
	folds        = "kernel/receipt/fold.go"
	decides      = "kernel/flow/decide.go"
	reserves     = "kernel/flow/reserve.go"
	settles      = "kernel/flow/settle.go"
	effects      = "kernel/flow/effect.go"
	retains      = "kernel/flow/retain.go"
	snapshots    = "kernel/flow/snapshot.go"
	executedOnce = "the remote is called once per key"
	reports      = "a report that holds the lock decides"
	verdicts     = "a valid resolution is not refused, an invalid one does not count"
)

// without is a condition that is not asked: IF stands for whether the fault is switched on.
func without(file, old string) edit { return edit{file: file, old: old, new: "(" + old + " && !IF)"} }

// faults are all of them. In new, IF is replaced by whether the fault is switched on.
func faults() []fault {
	return []fault{
		// What an approval is compared with.
		{name: "an approval's hash is not compared", edits: []edit{without(approvals, "a.Hash != q.Hash")}, scenario: "another", broken: []string{"I3"}},
		{name: "an approval's effect key is not compared", edits: []edit{without(approvals, "!sameKey(a.Key, q.Key)")}, scenario: "another", broken: []string{"I3"}},
		{name: "an approval's type is not compared", edits: []edit{without(approvals, "a.ActionType != q.ActionType")}, scenario: "another", broken: []string{"I3"}},
		{name: "an approval's action is not compared", edits: []edit{without(approvals, "a.ActionUID != q.ActionUID")}, pkg: "kernel/approval", test: "TestJudge"},
		{name: "one person is counted twice", edits: []edit{{file: approvals, old: "a.Approved && seen[a.Approver]", new: "a.Approved && seen[a.Approver] && !IF"}}, scenario: "people", broken: []string{"I4"}},
		{name: "who asks may answer", edits: []edit{without(approvals, "a.Approver == q.Agent")}, scenario: "another", broken: []string{"I4"}},
		{name: "an approval counts however late", edits: []edit{without(approvals, "a.Created.After(q.Expiration)")}, scenario: "another", broken: []string{"I4"}},
		{name: "an approval counts that was made without admission", edits: []edit{without(approvals, "!a.Created.After(q.AdmissionSince)")}, pkg: "kernel/approval", test: "TestJudge"},
		{name: "a denial does not count", edits: []edit{{file: approvals, old: "if t.Denied == nil {", new: "if t.Denied == nil && !IF {"}}, scenario: "people", broken: []string{"I4"}},
		{name: "one approval is enough", edits: []edit{{file: approvals, old: "len(t.Approved) >= max(q.Required, 1)", new: "(len(t.Approved) >= max(q.Required, 1) || IF && len(t.Approved) >= 1)"}}, scenario: "people", broken: []string{"I4"}},
		{name: "the policy's count is forgotten once people are asked", edits: []edit{{file: decides, old: "p.required = max(p.required, a.Ask.Required)", new: "if IF { p.required = a.Ask.Required } else { p.required = max(p.required, a.Ask.Required) }"}}, scenario: "more people", broken: []string{"I4"}},
		{name: "approvals are counted in a stale cache", edits: []edit{{file: reserves, old: "if p.a.Ask != nil && p.Answers.Presence != Fresh {", new: "if p.a.Ask != nil && p.Answers.Presence != Fresh && !IF {", times: 2}}, scenario: "people", broken: []string{"I4"}},

		// What an action is decided by.
		{name: "an action counts that was proposed without admission", edits: []edit{without(decides, "!p.a.Created.After(p.World.AdmissionSince)")}, scenario: "gap", broken: []string{"I12"}},
		{name: "it is decided while admission is missing", edits: []edit{{file: decides, old: "if len(p.World.Holds) == 0 {", new: "if len(p.World.Holds) == 0 || IF {"}}, scenario: "gap", broken: []string{"I12"}},
		{name: "what people were shown may change", edits: []edit{{file: decides, old: "if (a.Hash == \"\" || a.Hash == p.evaluation.Hash) && sameEffect {", new: "if (a.Hash == \"\" || a.Hash == p.evaluation.Hash) && sameEffect || IF {"}}, scenario: "edits", broken: []string{"no write is one that the API refuses", "I3"}},
		{name: "an action is executed after its time", edits: []edit{{file: decides, old: "if a.NotAfter == nil || p.Now.Before(*a.NotAfter) {", new: "if a.NotAfter == nil || p.Now.Before(*a.NotAfter) || IF {"}}, pkg: "kernel/flow", test: "TestDeadline"},
		{name: "a process that gave up is admitted", edits: []edit{{file: decides, old: "if lock == nil || p.a.ClaimID == \"\"", new: "if IF || lock == nil || p.a.ClaimID == \"\""}}, pkg: "kernel/flow", test: "TestWhatCannotBeDecided"},
		{name: "an executor needs no effect", edits: []edit{{file: decides, old: "case p.mode == OperatorMode && evaluation.EffectKey == nil:", new: "case p.mode == OperatorMode && evaluation.EffectKey == nil && !IF:"}}, pkg: "kernel/flow", test: "TestWhatCannotBeDecided"},

		// Who may execute.
		{name: "a foreign claim is adopted", edits: []edit{without(decides, "c.Claimant != a.Agent")}, scenario: "rival", broken: []string{"I10"}},
		{name: "a claim counts that was made without admission", edits: []edit{without(decides, "!c.Created.After(admissionSince)")}, pkg: "kernel/flow", test: "TestClaims"},
		{name: "a claim of an earlier decision counts", edits: []edit{without(decides, "!c.ClaimableTime.Equal(*a.ClaimableTime)")}, pkg: "kernel/flow", test: "TestClaims"},
		{name: "a withdrawn claim is admitted", edits: []edit{without(decides, "c.Withdrawn")}, pkg: "kernel/flow", test: "TestAWithdrawnClaimIsPassedOver"},
		{name: "a proposal says for ever that its process is there", edits: []edit{without(decides, "!p.Now.After(a.Created.Add(ClaimFresh))")}, pkg: "kernel/flow", test: "TestClaims"},

		// Reservation and admission.
		{name: "it is admitted before it is reserved", edits: []edit{
			{file: decides, old: "		p.reserved,\n", new: "		func() Step { if IF { return p.lastReads() }; return p.reserved() },\n"},
			{file: reserves, old: "if r := p.Effect.Record; p.evaluation.EffectKey != nil {", new: "if r := p.Effect.Record; p.evaluation.EffectKey != nil && (r != nil && r.Status != nil || !IF) {"},
		}, scenario: "allow", broken: []string{"I1"}},
		{name: "it is admitted after its lease", edits: []edit{without(reserves, "!p.Now.Before(r.Status.Lease)")}, scenario: "allow", broken: []string{"no admission after its lease"}},
		{name: "it is admitted on anybody's reservation", edits: []edit{{file: reserves, old: "r.Status.Holder.UID == p.a.UID", new: "(r.Status.Holder.UID == p.a.UID || IF)"}}, scenario: "allow", broken: []string{"I1"}},
		{name: "a reservation does not belong to its action", edits: []edit{{file: reserves, old: "	if p.holdsReservation() {\n		return nil\n	}\n	if step := p.refusedBy", new: "	if p.holdsReservation() && !IF {\n		return nil\n	}\n	if step := p.refusedBy"}}, scenario: "allow", broken: []string{"no action blocks itself"}},
		{name: "an admission does not fit how its record is executed", edits: []edit{without(reserves, "mode != p.mode")}, pkg: "kernel/flow", test: "TestAdmission"},
		{name: "one action reserves twice", edits: []edit{without(records, "s.Holder.UID == t.Holder.UID")}, pkg: "kernel/effect", test: "TestRefusals"},
		{name: "an ambiguous attempt is renewed", edits: []edit{
			{file: reserves, old: "case r.Status.State == effect.Ambiguous:", new: "case r.Status.State == effect.Ambiguous && !IF:"},
			{file: reserves, old: "if r.Status.State != effect.Failed {", new: "if r.Status.State != effect.Failed && !(IF && r.Status.State == effect.Ambiguous) {"},
			{file: records, old: "case s.State != Failed:", new: "case s.State != Failed && !(IF && s.State == Ambiguous):"},
		}, scenario: "allow", broken: []string{"I2"}},
		{name: "attempts have no ceiling", edits: []edit{{file: reserves, old: "return ceiling > 0 &&", new: "return !IF && ceiling > 0 &&"}}, pkg: "kernel/flow", test: "TestRetryTable"},
		{name: "a renewal does not wait for the last action", edits: []edit{{file: reserves, old: "if holder := r.Status.Holder; holder != nil {", new: "if holder := r.Status.Holder; holder != nil && !IF {"}}, scenario: "allow", broken: []string{"I7", "I9", reports}},
		{name: "a renewal does not wait for the receipt of a resolution", edits: []edit{{file: reserves, old: "	if resolution == nil {\n		return nil", new: "	if resolution == nil || IF {\n		return nil"}}, scenario: "resolve", broken: []string{"I7"}},

		// Orphans.
		{name: "orphans are not released", edits: []edit{{file: effects, old: "	case gone && held(s, decision.AdmissionMissing):\n", new: "	case IF:\n		return nil\n	case gone && held(s, decision.AdmissionMissing):\n"}}, scenario: "allow", broken: []string{"I9"}},
		{name: "what no cache has is gone", edits: []edit{
			{file: effects, old: "	if s.Holder.Presence == Unread {\n		return Read{Object: TheHolder, Name: record.Status.Holder.Name}", new: "	if s.Holder.Presence == Unread && !IF {\n		return Read{Object: TheHolder, Name: record.Status.Holder.Name}"},
			{file: effects, old: "gone := s.Holder.Presence == Absent", new: "gone := s.Holder.Presence == Absent || IF && s.Holder.Presence == Unread"},
		}, scenario: "allow", broken: []string{"I6", executedOnce}},
		{name: "a holder that may still be admitted is an orphan", edits: []edit{{file: effects, old: "holder != nil && holder.EndedUnadmitted(),", new: "holder != nil && (holder.EndedUnadmitted() || IF && holder.Execution == nil),"}}, scenario: "allow", broken: []string{"I6"}},
		{name: "a holder that is deleted while admission is missing is an orphan", edits: []edit{without(effects, "gone && held(s, decision.AdmissionMissing)")}, scenario: "gap and rest", broken: []string{"I6"}},
		{name: "a holder that was deleted while admission was missing is an orphan", edits: []edit{without(effects, "gone && status.State == effect.Executing")}, scenario: "gap and rest", broken: []string{"I6"}},

		// The lock, and what a report says.
		{name: "a lapse is settled without the lock", edits: []edit{{file: settles, old: "	} else {\n		end, step := outcome(s)", new: "	} else {\n		if IF && s.Lock.Outcome == nil && !s.Now.Before(a.Execution.Lease.Add(LapseGrace)) {\n			s.Lock.Outcome = &Outcome{Name: LockName(a.UID, a.Execution.ClaimID, a.Agent), ActionUID: a.UID, Result: ReportUnknown, LeaseLapsed: true}\n		}\n		end, step := outcome(s)"}}, scenario: "allow", broken: []string{reports}},
		{name: "a lapse frees the key", edits: []edit{{file: settles, old: "return ending{Ambiguous, decision.LeaseLapsed,", new: "return ending{map[bool]State{false: Ambiguous, true: Failed}[IF], decision.LeaseLapsed,"}}, scenario: "allow", broken: []string{"I6"}},
		{name: "unknown is Failed", edits: []edit{{file: settles, old: "return ending{Ambiguous, decision.ReportedUnknown,", new: "return ending{map[bool]State{false: Ambiguous, true: Failed}[IF], decision.ReportedUnknown,"}}, scenario: "rival", broken: []string{"I6"}},
		{name: "whoever takes the name of the lock is believed", edits: []edit{without(settles, "o.Reporter != a.Agent")}, scenario: "rival", broken: []string{"I6"}},
		{name: "the report of a process that was not admitted counts", edits: []edit{
			without(settles, "lock.Outcome != nil && lock.Outcome.Name != name"),
			without(settles, "o.ClaimID != a.Execution.ClaimID"),
		}, scenario: "rival", broken: []string{"I6", reports}},
		{name: "a report counts that was made without admission", edits: []edit{without(settles, "!o.Created.After(s.World.AdmissionSince)")}, scenario: "gap and rest", broken: []string{"I12"}},
		{name: "a report counts while admission is missing", edits: []edit{{file: settles, old: "	if held(s, decision.AdmissionMissing) {\n		// Anybody may have made it", new: "	if held(s, decision.AdmissionMissing) && !IF {\n		// Anybody may have made it"}}, scenario: "gap and rest", broken: []string{"I12"}},
		{name: "a lease is over without its grace", edits: []edit{{file: settles, old: "due := a.Execution.Lease.Add(LapseGrace)", new: "due := a.Execution.Lease.Add(map[bool]time.Duration{false: LapseGrace}[IF])", times: 2}}, pkg: "kernel/flow", test: "TestSettle"},
		{name: "a clock that is wrong ends leases", edits: []edit{{file: settles, old: "if held(s, decision.ClockSkew) {", new: "if held(s, decision.ClockSkew) && !IF {"}}, pkg: "kernel/flow", test: "TestAWrongClockEndsNoLease"},
		{name: "a record that was read before the admission speaks against it", edits: []edit{{file: settles, old: "case !ours && s.Action.Presence != Cached:", new: "case !ours && s.Action.Presence != Cached && !IF:"}}, pkg: "kernel/flow", test: "TestAdmittedDuringThePass"},
		{name: "a miss is proof that nothing was reserved", edits: []edit{{file: settles, old: "	case s.Effect.Presence == Absent, s.Effect.Status == nil:", new: "	case IF && (s.Effect.Presence == Absent || s.Effect.Status == nil):\n		return finish(s, ending{Failed, decision.NeverBegan, \"\"})\n	case s.Effect.Presence == Absent, s.Effect.Status == nil:"}}, scenario: "loss", broken: []string{reports, "I6", "I7"}},

		// Receipts.
		{name: "an action ends as its pass sees it, not as its receipt says", edits: []edit{{file: settles, old: "	if status.State == \"\" {\n", new: "	if IF {\n		status.State = end.state\n	}\n	if status.State == \"\" {\n"}}, scenario: "loss", broken: []string{"I7"}},
		{name: "an action that is not admitted gets its receipt before its end", edits: []edit{{file: decides, old: "	return p.writes(status, WhyEnd)\n", new: "	if IF {\n		s, ended := p.Snapshot, *p.a\n		ended.Status = status\n		s.Action.Action = &ended\n		step := receiptOfUnadmitted(s)\n		if _, write := step.(WriteAction); !write {\n			return step\n		}\n	}\n	return p.writes(status, WhyEnd)\n"}}, scenario: "edits", broken: []string{"I7"}},
		{name: "a receipt is appended at a guessed head", edits: []edit{{file: settles, old: "return Append{Head: s.Chain.Head, Document: document(s, end)}", new: "return Append{Head: receipt.Link{Seq: s.Chain.Head.Seq + map[bool]int64{true: 1}[IF], Hash: s.Chain.Head.Hash}, Document: document(s, end)}"}}, scenario: "allow", broken: []string{"I7"}},
		{name: "a fold for one receipt answers for another", edits: []edit{{file: snapshots, old: "return c.Read && c.Identity == id", new: "return c.Read && (c.Identity == id || IF)"}}, pkg: "kernel/flow", test: "TestFinish"},
		{name: "the floor of a receipt is one too high", edits: []edit{{file: decides, old: "seq := p.World.VerifiedSeq", new: "seq := p.World.VerifiedSeq + map[bool]int64{true: 1}[IF]"}}, scenario: "allow", broken: []string{"I7"}},
		{name: "a gap is refilled", edits: []edit{without(folds, "e.Seq != f.head.Seq+1")}, pkg: "kernel/receipt", test: "TestFoldRefuses"},
		{name: "a second receipt of one identity is folded in", edits: []edit{{file: folds, old: "if first, ok := f.found[id]; ok {", new: "if first, ok := f.found[id]; ok && !IF {"}}, pkg: "kernel/receipt", test: "TestFoldRefuses"},

		// Lost records.
		{name: "a lost record starts with attempt 1", edits: []edit{{file: effects, old: "attempt := max(highest, 1)", new: "attempt := max(highest, 1)\n	if IF {\n		attempt = 1\n	}"}}, pkg: "kernel/flow", test: "TestLostRecord"},
		{name: "a lost record leaves unadmitted actions as they are", edits: []edit{{file: effects, old: "if a.Execution == nil && !a.State.Terminal() && wants(s, a, key) {", new: "if a.Execution == nil && !a.State.Terminal() && wants(s, a, key) && !IF {"}}, scenario: "loss", broken: []string{"I1", "I2", "I6", executedOnce}},
		{name: "a lost record takes the number of an attempt that a person may have resolved", edits: []edit{without(effects, "mayBeResolved(s.Key.Receipts, record.UID, attempt)")}, pkg: "kernel/flow", test: "TestLostRecord"},
		{name: "a lost record has no receipt of its own", edits: []edit{{file: effects, old: "if record.Status.Loss != nil && record.Status.Cause == effect.StatusMissing {", new: "if record.Status.Loss != nil && record.Status.Cause == effect.StatusMissing && !IF {"}}, pkg: "kernel/flow", test: "TestLostRecord"},

		// Resolutions.
		{name: "a resolution counts whatever it quotes", edits: []edit{without(effects, "s.Quoted.Entry.Hash != r.QuotedHash")}, scenario: "resolve", broken: []string{verdicts}},
		{name: "who executed may resolve", edits: []edit{without(effects, "r.Resolver == status.Holder.Agent")}, pkg: "kernel/flow", test: "TestResolutions"},
		{name: "not executed needs no evidence", edits: []edit{without(effects, "r.State == effect.Failed && r.Evidence == \"\"")}, pkg: "kernel/flow", test: "TestResolutions"},
		{name: "a resolution counts that was made without admission", edits: []edit{without(effects, "!r.Created.After(s.World.AdmissionSince)")}, pkg: "kernel/flow", test: "TestResolutions"},
		{name: "a resolution is refused on what a cache says", edits: []edit{{file: effects, old: "	if s.Effect.Presence != Fresh {\n		return Read{Object: TheEffect, Name: s.Effect.Name}", new: "	if s.Effect.Presence != Fresh && !IF {\n		return Read{Object: TheEffect, Name: s.Effect.Name}"}}, scenario: "resolve", broken: []string{verdicts}},

		// What the operator executes itself, and what is kept.
		{name: "an executor begins without a nonce", edits: []edit{{file: records, old: "case nonce == \"\":", new: "case nonce == \"\" && !IF:"}}, pkg: "kernel/effect", test: "TestRefusals"},
		{name: "an executor begins what has begun", edits: []edit{{file: records, old: "case s.State != Reserved:", new: "case s.State != Reserved && !IF:"}}, scenario: "executor", broken: []string{"I10", "no write is one that the API refuses", "I6"}},
		{name: "an executor begins after its lease", edits: []edit{{file: records, old: "case !now.Before(s.Lease):", new: "case !now.Before(s.Lease) && !IF:"}}, pkg: "kernel/effect", test: "TestRefusals"},
		{name: "a reservation of the operator is released before its lease is over", edits: []edit{{file: settles, old: "if s.Now.Before(record.Status.Lease) {", new: "if s.Now.Before(record.Status.Lease) && !IF {"}}, pkg: "kernel/flow", test: "TestOperatorMode"},
		{name: "an executor that is lost frees the key", edits: []edit{{file: settles, old: "settlement.State, settlement.Cause = effect.Ambiguous, effect.ExecutorLost", new: "settlement.State, settlement.Cause = effect.Ambiguous, effect.ExecutorLost\n		if IF {\n			settlement.State, settlement.Cause = effect.Failed, \"\"\n		}"}}, scenario: "executor", broken: []string{"I6"}},
		{name: "what somebody has to find out about is deleted", edits: []edit{{file: retains, old: "case r.EffectAmbiguous && r.HolderUID == r.UID:", new: "case r.EffectAmbiguous && r.HolderUID == r.UID && !IF:"}}, pkg: "kernel/flow", test: "TestRetain"},

		// The apiserver's own guards.
		{name: "an admission overwrites", unguarded: "admit", scenario: "allow", broken: []string{"I11", "I9", "I6"}},
		{name: "a reservation overwrites", unguarded: "reserve", scenario: "allow", broken: []string{"I2"}},
		{name: "a renewal overwrites", unguarded: "renew", scenario: "three", broken: []string{"I2"}},
		{name: "a settlement overwrites", unguarded: "settle", scenario: "allow", broken: []string{"I2", "I5", "I6", "no write is one that the API refuses"}},
		{name: "a release overwrites", unguarded: "release", scenario: "allow", broken: []string{"I2", "I5", "I6", "no write is one that the API refuses"}},
		{name: "a receipt overwrites", unguarded: "append", scenario: "allow", broken: []string{"I7"}},
	}
}
