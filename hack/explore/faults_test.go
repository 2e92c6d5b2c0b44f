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
	approvals     = "kernel/approval/approval.go"
	records       = "kernel/effect/effect.go"
	folds         = "kernel/receipt/fold.go"
	decides       = "kernel/flow/decide.go"
	reserves      = "kernel/flow/reserve.go"
	settles       = "kernel/flow/settle.go"
	effects       = "kernel/flow/effect.go"
	retains       = "kernel/flow/retain.go"
	executes      = "kernel/flow/executor.go"
	preconditions = "kernel/flow/precondition.go"
	delegates     = "kernel/flow/delegation.go"
	grants        = "kernel/authority/set.go"
	evaluates     = "kernel/authority/evaluate.go"
	judges        = "kernel/authority/judge.go"
	snapshots     = "kernel/flow/snapshot.go"
	executedOnce  = "the remote is called once per key"
	reports       = "a report that holds the lock decides"
	observed      = "what is observed is marked at its admission, and ends so"
	others        = "no action settles another's record"
	verdicts      = "a valid resolution is not refused, an invalid one does not count"
	agrees        = "kernel/flow/agreement.go"
	observes      = "kernel/flow/observing.go"
	suspends      = "kernel/flow/suspension.go"
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
		{name: "one person is counted twice", edits: []edit{{file: approvals, old: "a.Approved && seen[q.People.Person(a.Approver)]", new: "a.Approved && seen[q.People.Person(a.Approver)] && !IF"}}, scenario: "people", broken: []string{"I4"}},
		{name: "who asks may answer", edits: []edit{without(approvals, "q.People.Same(a.Approver, q.Agent)")}, scenario: "another", broken: []string{"I4"}},
		{name: "an approval counts however late", edits: []edit{without(approvals, "a.Created.After(q.Expiration)")}, scenario: "another", broken: []string{"I4"}},
		{name: "an approval counts that was made without admission", edits: []edit{without(approvals, "!a.Created.After(q.AdmissionSince)")}, pkg: "kernel/approval", test: "TestJudge"},
		{name: "a denial does not count", edits: []edit{{file: approvals, old: "if t.Denied == nil {", new: "if t.Denied == nil && !IF {"}}, scenario: "people", broken: []string{"I4"}},
		{name: "one approval is enough", edits: []edit{{file: approvals, old: "len(t.Approved) >= max(q.Required, 1)", new: "(len(t.Approved) >= max(q.Required, 1) || IF && len(t.Approved) >= 1)"}}, scenario: "people", broken: []string{"I4"}},
		{name: "the policy's count is forgotten once people are asked", edits: []edit{{file: decides, old: "p.required = max(p.required, a.Ask.Required)", new: "if IF { p.required = a.Ask.Required } else { p.required = max(p.required, a.Ask.Required) }"}}, scenario: "more people", broken: []string{"I4"}},
		{name: "approvals are counted in a stale cache", edits: []edit{{file: reserves, old: "if p.Answers.Presence != Fresh {", new: "if p.Answers.Presence != Fresh && !IF {"}}, scenario: "people", broken: []string{"I4"}},

		// What an action is decided by.
		{name: "an action counts that was proposed without admission", edits: []edit{without(decides, "!p.a.Created.After(p.World.AdmissionSince)")}, scenario: "gap", broken: []string{"I12"}},
		{name: "it is decided while admission is missing", edits: []edit{{file: decides, old: "if len(p.World.Holds) == 0 {", new: "if len(p.World.Holds) == 0 || IF {"}}, scenario: "gap", broken: []string{"I12"}},
		{name: "what people were shown may change", edits: []edit{{file: decides, old: "if (a.Hash == \"\" || a.Hash == p.evaluation.Hash) && sameEffect {", new: "if (a.Hash == \"\" || a.Hash == p.evaluation.Hash) && sameEffect || IF {"}}, scenario: "edits", broken: []string{"no write is one that the API refuses", "I3"}},
		{name: "an action is executed after its time", edits: []edit{{file: decides, old: "if a.NotAfter == nil || p.Now.Before(*a.NotAfter) {", new: "if a.NotAfter == nil || p.Now.Before(*a.NotAfter) || IF {"}}, pkg: "kernel/flow", test: "TestDeadline"},
		{name: "a process that gave up is admitted", edits: []edit{{file: decides, old: "if lock == nil || p.a.ClaimID == \"\"", new: "if IF || lock == nil || p.a.ClaimID == \"\""}}, pkg: "kernel/flow", test: "TestWhatCannotBeDecided"},
		{name: "an executor needs no effect", edits: []edit{{file: executes, old: "case p.evaluation.EffectKey == nil:", new: "case p.evaluation.EffectKey == nil && !IF:"}}, pkg: "kernel/flow", test: "TestWhatCannotBeDecided"},
		{name: "what the operator executes is wanted for ever", edits: []edit{{file: executes, old: "case p.a.NotAfter == nil:", new: "case p.a.NotAfter == nil && !IF:"}}, pkg: "kernel/flow", test: "TestExecutors"},
		{name: "one of two executors executes", edits: []edit{{file: executes, old: "case len(named) > 1:", new: "case len(named) > 1 && !IF:"}}, pkg: "kernel/flow", test: "TestExecutors"},
		{name: "an executor that is not valid executes", edits: []edit{{file: executes, old: "case x.Invalid != \"\":", new: "case x.Invalid != \"\" && !IF:"}}, pkg: "kernel/flow", test: "TestExecutors"},
		{name: "an executor that people were not shown executes", edits: []edit{{file: executes, old: "case sameRef(was, now):", new: "case IF || sameRef(was, now):"}}, pkg: "kernel/flow", test: "TestExecutors"},

		// Who may propose.
		{name: "authority is not asked", edits: []edit{{file: decides, old: "	if !p.World.Required {\n		return\n", new: "	if IF || !p.World.Required {\n		return\n"}}, scenario: "delegation", broken: []string{"I4"}},
		{name: "authority is asked only when an action is first decided", edits: []edit{
			{file: decides, old: "!p.World.Required {\n		return\n", new: "!p.World.Required || IF && p.a.Hash != \"\" {\n		return\n"},
			{file: decides, old: "	status.Authority = authorityOf(p.authority)\n", new: "	if p.authority != nil || !IF {\n		status.Authority = authorityOf(p.authority)\n	}\n"},
		}, scenario: "delegation", broken: []string{"I4"}},
		{name: "authority is not asked once the effect is reserved", edits: []edit{
			{file: decides, old: "!p.World.Required ||", new: "!p.World.Required || IF && p.holdsReservation() ||"},
			{file: decides, old: "status.Authority = authorityOf(p.authority)\n", new: "if p.authority != nil || !IF {\n			status.Authority = authorityOf(p.authority)\n		}\n"},
		}, scenario: "grants", broken: []string{"I4"}},
		{name: "what authority lets pass is allowed", edits: []edit{{file: decides, old: "	if !result.Passed {\n", new: "	if IF && result.Passed && e.Decision == decision.Deny {\n		e.Decision = decision.Allow\n	}\n	if !result.Passed {\n"}}, scenario: "grants", broken: []string{"I8"}},
		{name: "what authority lets pass needs nobody's approval", edits: []edit{{file: decides, old: "	p.authority = &result\n", new: "	p.authority = &result\n	if IF && result.Passed && e.Decision == decision.Approve {\n		e.Decision = decision.Allow\n	}\n"}}, scenario: "delegation", broken: []string{"I4"}},
		{name: "a revocation cuts what it names, and nothing below", edits: []edit{{file: grants, old: "if n.revoked == nil && p.revoked != nil {", new: "if n.revoked == nil && p.revoked != nil && !IF {"}}, scenario: "delegation", broken: []string{"I4"}},
		{name: "a delegation counts before its verdict", edits: []edit{{file: grants, old: "			n.inert = NotJudged\n", new: "			if !IF {\n				n.inert = NotJudged\n			}\n"}}, scenario: "delegation", broken: []string{"I4"}},
		{name: "whose credential is over may still propose", edits: []edit{
			{file: decides, old: "until != nil && p.Now.After(*until)", new: "until != nil && p.Now.After(*until) && !IF"},
			{file: decides, old: "e != nil && e.Before(until)", new: "e != nil && e.Before(until) && !IF"},
		}, scenario: "grants", broken: []string{"I4"}},
		{name: "a constraint of a grant does not count", edits: []edit{{file: evaluates, old: "case !n.grant.Constraints.Match(p.Arguments):", new: "case !n.grant.Constraints.Match(p.Arguments) && !IF:"}}, scenario: "grants", broken: []string{"I4"}},
		{name: "what is above a delegation may have become less", edits: []edit{{file: evaluates, old: "case n.broken != nil:", new: "case n.broken != nil && !IF:"}}, pkg: "kernel/authority", test: "TestEvaluateChain"},
		{name: "a delegation may be wider than what it is a part of", edits: []edit{{file: judges, old: "uncontained(&parent.grant, &content.Grant); why != \"\" {", new: "uncontained(&parent.grant, &content.Grant); why != \"\" && !IF {"}}, pkg: "kernel/authority", test: "TestJudgeRefusals"},
		{name: "one unreadable delegation denies nothing", edits: []edit{{file: evaluates, old: "	if s.unreadable != nil {\n		return s.unreadable.unreadableResult()", new: "	if s.unreadable != nil && !IF {\n		return s.unreadable.unreadableResult()"}}, pkg: "kernel/authority", test: "TestUnreadable"},
		{name: "a delegation counts that was made without admission", edits: []edit{without(delegates, "!d.Created.After(s.World.AdmissionSince)")}, pkg: "kernel/flow", test: "TestDelegationReceipts"},

		// Who may approve.
		{name: "two names of one person are two people", edits: []edit{{file: approvals, old: "seen[q.People.Person(a.Approver)]", new: "seen[map[bool]string{false: q.People.Person(a.Approver), true: a.Approver}[IF]]", times: 2}}, scenario: "persons", broken: []string{"I4"}},
		{name: "who asks may answer by another name", edits: []edit{{file: approvals, old: "q.People.Same(a.Approver, q.Agent)", new: "(!IF && q.People.Same(a.Approver, q.Agent) || IF && a.Approver == q.Agent)"}}, scenario: "persons", broken: []string{"I4"}},
		{name: "whose right to approve was taken away still counts", edits: []edit{without(approvals, "a.Entitlement == Unentitled")}, scenario: "entitlement", broken: []string{"I4"}},
		{name: "the right to approve is not asked for again", edits: []edit{{file: reserves, old: "if a.Entitlement == approval.Unchecked {", new: "if a.Entitlement == approval.Unchecked && !IF {"}}, scenario: "entitlement", broken: []string{"I4"}},
		{name: "the right to approve is not asked for again by the pass that admits", edits: []edit{{file: reserves, old: "	if step := p.answersStand(); step != nil {\n		return step\n	}\n	if step := p.preconditionsStand(); step != nil {\n		return step\n	}\n	execution :=", new: "	if step := p.answersStand(); step != nil && !IF {\n		return step\n	}\n	if step := p.preconditionsStand(); step != nil {\n		return step\n	}\n	execution :="}}, scenario: "entitlement", broken: []string{"I4"}},
		{name: "an earlier pass has asked for the right to approve", edits: []edit{{file: reserves, old: "if a.Entitlement == approval.Unchecked", new: "if a.Entitlement == approval.Unchecked && !(IF && p.a.ClaimableTime != nil)"}}, scenario: "entitlement", broken: []string{"I4"}},
		{name: "whoever may approve is in every group", edits: []edit{without(approvals, "!q.asks(a.Groups)")}, pkg: "kernel/flow", test: "TestApproverGroupsArePinned"},
		{name: "the groups that were asked are forgotten", edits: []edit{{file: decides, old: "if len(ask.Groups) > 0 {", new: "if len(ask.Groups) > 0 && !IF {"}}, pkg: "kernel/flow", test: "TestApproverGroupsArePinned"},

		// What an action rests on.
		{name: "what an action rests on is not compared", edits: []edit{{file: preconditions, old: "noted.AtRequest != r.Fingerprint:", new: "noted.AtRequest != r.Fingerprint && !IF:"}}, pkg: "kernel/flow", test: "TestPreconditionsAreCompared"},
		{name: "it is not compared by the pass that admits", edits: []edit{{file: reserves, old: "p.preconditionsStand(); step != nil {\n		return step\n	}\n	execution :=", new: "p.preconditionsStand(); step != nil {\n		if !IF {\n			return step\n		}\n	}\n	execution :="}}, pkg: "kernel/flow", test: "TestPreconditionsAreCompared"},
		{name: "what was never noted is as it was", edits: []edit{{file: preconditions, old: "case p.waited() && (noted == nil || noted.AtRequest == \"\") && !p.World.Observe:", new: "case p.waited() && (noted == nil || noted.AtRequest == \"\") && !p.World.Observe && !IF:"}}, pkg: "kernel/flow", test: "TestPreconditionsAreCompared"},
		{name: "what cannot be compared is as it was", edits: []edit{{file: preconditions, old: "case r.Fingerprint == \"\" && p.waited():", new: "case IF && r.Fingerprint == \"\" && p.waited():\n		return nil\n	case r.Fingerprint == \"\" && p.waited():"}}, pkg: "kernel/flow", test: "TestPreconditionsAreCompared"},
		{name: "it is noted anew when people are asked again", edits: []edit{{file: preconditions, old: "	if p.waited() {\n		return p.preconditionsStand()", new: "	if p.waited() && !IF {\n		return p.preconditionsStand()"}}, pkg: "kernel/flow", test: "TestPreconditionsAreNoted"},

		// Observe mode.
		{name: "what is observed has the token of another's attempt", edits: []edit{{file: reserves, old: "	status.Execution = &execution\n", new: "	status.Execution = &execution\n	if IF && p.unreserved != \"\" && p.Effect.Status != nil {\n		execution.Token, status.Effect.Attempt = p.Effect.Status.Token, p.Effect.Status.Attempt\n	}\n"}}, scenario: "observe", broken: []string{observed, "I1"}},
		{name: "what is observed settles another's record", edits: []edit{
			{file: settles, old: "	if !a.Reserves() {\n		end, step := outcome(s)", new: "	if !a.Reserves() && !(IF && a.Effect != nil) {\n		end, step := outcome(s)"},
			{file: settles, old: "ours := s.Effect.Record != nil && s.Effect.HeldBy(a.UID, a.Effect.Attempt)", new: "ours := s.Effect.Record != nil && (s.Effect.HeldBy(a.UID, a.Effect.Attempt) || IF && a.WouldHave != nil && s.Effect.Status != nil)"},
		}, scenario: "observe", broken: []string{others}},
		{name: "what is observed releases who is in its way", edits: []edit{{file: effects, old: "case gone, holder != nil", new: "case gone, IF && s.World.Observe && holder != nil, holder != nil"}}, scenario: "observe", broken: []string{"I6"}},
		{name: "what is observed renews an attempt that is under way", edits: []edit{
			{file: reserves, old: " p.unreserved != \"\" {\n		return p.orWithout(step)\n	}\n", new: " p.unreserved != \"\" && !(IF && p.World.Observe) {\n		return p.orWithout(step)\n	}\n"},
			{file: reserves, old: "		return p.orWithout(p.inTheWay(r))\n", new: "		if !(IF && p.World.Observe) {\n			return p.orWithout(p.inTheWay(r))\n		}\n"},
			{file: records, old: "case s.State != Failed", new: "case IF:\n	case s.State != Failed"},
		}, scenario: "observe", broken: []string{"I2"}},
		{name: "an admission does not say that it was observed", edits: []edit{{file: reserves, old: "Reason: p.evaluation.Reason, Blocked: p.blocked}\n", new: "Reason: p.evaluation.Reason, Blocked: p.blocked}\n		if IF {\n			status.WouldHave = nil\n		}\n"}}, scenario: "one observed", broken: []string{observed}},
		{name: "an admission says that it was observed where it is enforced", edits: []edit{{file: reserves, old: "	if p.World.Observe {\n		if p.asks {", new: "	if p.World.Observe || IF {\n		if p.asks {"}}, scenario: "one observed", broken: []string{observed}},
		{name: "an action is observed by the mode of its end", edits: []edit{{file: settles, old: "	status.FinishTime, status.Receipt = &now, &link\n", new: "	status.FinishTime, status.Receipt = &now, &link\n	if IF && s.World.Observe && status.WouldHave == nil {\n		status.WouldHave = &WouldHave{Decision: status.Decision}\n	}\n"}}, scenario: "one observed", broken: []string{observed}},
		{name: "what is observed ends as if it were enforced", edits: []edit{{file: settles, old: "if w := a.WouldHave; w != nil && a.Execution != nil {", new: "if w := a.WouldHave; w != nil && a.Execution != nil && !IF {"}}, scenario: "one observed", broken: []string{observed}},
		{name: "how what is observed was executed is not on record", edits: []edit{{file: settles, old: "d.Result, d.Execution = decision.Observed, d.Result", new: "d.Result, d.Execution = decision.Observed, map[bool]decision.Result{false: d.Result, true: decision.Ambiguous}[IF]"}}, scenario: "one observed", broken: []string{observed, reports}},
		{name: "what is observed spends approvals", edits: []edit{{file: decides, old: "p.required, p.tally = 0, approval.Tally{}", new: "p.required = 0\n	if !IF {\n		p.tally = approval.Tally{}\n	}"}}, scenario: "observed people", broken: []string{observed}},

		// Who may execute.
		{name: "a foreign claim is adopted", edits: []edit{without(decides, "c.Claimant != a.Agent")}, scenario: "rival", broken: []string{"I10"}},
		{name: "a claim counts that was made without admission", edits: []edit{without(decides, "!c.Created.After(admissionSince)")}, pkg: "kernel/flow", test: "TestClaims"},
		{name: "a claim of an earlier decision counts", edits: []edit{without(decides, "!c.ClaimableTime.Equal(*a.ClaimableTime)")}, pkg: "kernel/flow", test: "TestClaims"},
		{name: "a withdrawn claim is admitted", edits: []edit{without(decides, "c.Withdrawn")}, pkg: "kernel/flow", test: "TestAWithdrawnClaimIsPassedOver"},
		{name: "a proposal says for ever that its process is there", edits: []edit{without(decides, "!p.Now.After(a.Created.Add(ClaimFresh))")}, pkg: "kernel/flow", test: "TestClaims"},

		// Reservation and admission.
		{name: "it is admitted before it is reserved", edits: []edit{
			{file: decides, old: "		p.reserved,\n", new: "		func() Step { if IF { return p.lastReads() }; return p.reserved() },\n"},
			{file: reserves, old: "if r := p.Effect.Record; p.evaluation.EffectKey != nil && p.unreserved == \"\" {", new: "if r := p.Effect.Record; p.evaluation.EffectKey != nil && p.unreserved == \"\" && (r != nil && r.Status != nil || !IF) {"},
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
		{name: "unknown is Failed", edits: []edit{{file: settles, old: "return ending{Ambiguous, decision.ReportedUnknown, \"Its executor does not know whether it happened. \" + inspect}, nil", new: "return ending{map[bool]State{false: Ambiguous, true: Failed}[IF], decision.ReportedUnknown, \"Its executor does not know whether it happened. \" + inspect}, nil"}}, scenario: "rival", broken: []string{"I6"}},
		{name: "whoever takes the name of the lock is believed", edits: []edit{without(settles, "o.Reporter != a.Agent")}, scenario: "rival", broken: []string{"I6"}},
		{name: "the report of a process that was not admitted counts", edits: []edit{
			without(settles, "lock.Outcome != nil && lock.Outcome.Name != name"),
			without(settles, "o.ClaimID != claimID"),
		}, scenario: "rival", broken: []string{"I6", reports}},
		{name: "a report counts that was made without admission", edits: []edit{without(settles, "!o.Created.After(s.World.AdmissionSince)")}, scenario: "gap and rest", broken: []string{"I12"}},
		{name: "a report counts while admission is missing", edits: []edit{{file: settles, old: "	if held(s, decision.AdmissionMissing) {\n		// Anybody may have made it", new: "	if held(s, decision.AdmissionMissing) && !IF {\n		// Anybody may have made it"}}, scenario: "gap and rest", broken: []string{"I12"}},
		{name: "a lease is over without its grace", edits: []edit{{file: settles, old: "due := lease.Add(LapseGrace)", new: "due := lease.Add(map[bool]time.Duration{false: LapseGrace}[IF])", times: 2}}, pkg: "kernel/flow", test: "TestSettle"},
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
		{name: "a resolution counts whatever it quotes", edits: []edit{without(effects, "entry.Hash != r.QuotedHash")}, scenario: "resolve", broken: []string{verdicts}},
		{name: "who executed may resolve", edits: []edit{without(effects, "s.World.People.Same(r.Resolver, status.Holder.Agent)")}, pkg: "kernel/flow", test: "TestResolutions"},
		{name: "not executed needs no evidence", edits: []edit{without(effects, "r.State == effect.Failed && r.Evidence == \"\"")}, pkg: "kernel/flow", test: "TestResolutions"},
		{name: "a resolution counts that was made without admission", edits: []edit{without(effects, "!r.Created.After(s.World.AdmissionSince)")}, pkg: "kernel/flow", test: "TestResolutions"},
		{name: "a resolution is refused on what a cache says", edits: []edit{{file: effects, old: "	if s.Effect.Presence != Fresh {\n		return Read{Object: TheEffect, Name: s.Effect.Name}", new: "	if s.Effect.Presence != Fresh && !IF {\n		return Read{Object: TheEffect, Name: s.Effect.Name}"}}, scenario: "resolve", broken: []string{verdicts}},
		{name: "one resolution is enough", edits: []edit{{file: agrees, old: "n, known = resolutionsOf(w, status.ActionType)\n", new: "n, known = resolutionsOf(w, status.ActionType)\n	if IF {\n		return 1, true\n	}\n"}}, scenario: "resolvers", broken: []string{"I5"}},
		{name: "one person resolves twice", edits: []edit{{file: agrees, old: "case before.State == one.State:", new: "case IF && before.State == one.State:\n		case before.State == one.State:"}}, scenario: "resolvers", broken: []string{"I5"}},
		{name: "two names of one person resolve as two people", edits: []edit{{file: agrees, old: "return s.World.People.Person(one.Resolver) }", new: "return map[bool]string{false: s.World.People.Person(one.Resolver), true: one.Resolver}[IF] }"}}, scenario: "resolvers", broken: []string{"I5"}},
		{name: "people agree who say different things", edits: []edit{{file: agrees, old: "if said[one.State] = append(said[one.State], one); len(said[one.State]) == required {\n			return said[one.State]", new: "at := map[bool]effect.State{false: one.State}[IF]\n		if said[at] = append(said[at], one); len(said[at]) == required {\n			return said[at]"}}, scenario: "disputed", broken: []string{"I5"}},
		{name: "a policy that asks fewer people makes it easier", edits: []edit{{file: agrees, old: "max(n, status.ResolutionsRequired)", new: "max(n, map[bool]int{false: status.ResolutionsRequired}[IF])"}}, scenario: "disputed", broken: []string{"I5"}},
		{name: "a policy that asks more people is not heard", edits: []edit{{file: agrees, old: "(n int, known bool) {\n	n, known = ", new: "(n int, known bool) {\n	if IF {\n		return max(1, status.ResolutionsRequired), true\n	}\n	n, known = "}}, scenario: "more resolvers", broken: []string{"I5"}},
		{name: "an attempt does not say how many people have to resolve it", edits: []edit{{file: reserves, old: "ResolutionsRequired: p.evaluation.Entry.Resolutions(),", new: "ResolutionsRequired: map[bool]int{false: p.evaluation.Entry.Resolutions()}[IF],"}}, scenario: "disputed", broken: []string{"I5"}},
		{name: "what was taken back counts", edits: []edit{{file: agrees, old: "		default:\n			return refuse(s, before", new: "		case IF:\n		default:\n			return refuse(s, before"}}, scenario: "disputed", broken: []string{"I5"}},
		{name: "resolutions are counted in a stale cache", edits: []edit{{file: agrees, old: "if required > 1 && !s.ResolutionsListed {", new: "if required > 1 && !s.ResolutionsListed && !IF {"}}, scenario: "disputed", broken: []string{"I5"}},
		{name: "resolutions are counted by a stale policy", edits: []edit{{file: agrees, old: "case held(s, decision.CachesStale):", new: "case held(s, decision.CachesStale) && !IF:"}}, pkg: "kernel/flow", test: "TestAgreement"},
		{name: "a lost record asks for one person", edits: []edit{{file: effects, old: "required, known := resolutionsOf(s.World, kind)\n", new: "required, known := resolutionsOf(s.World, kind)\n	if IF {\n		required = 1\n	}\n"}}, pkg: "kernel/flow", test: "TestALostRecordAsksAsThePoliciesDo"},

		// What the operator executes itself, and what is kept.
		{name: "an executor begins without a nonce", edits: []edit{{file: records, old: "case nonce == \"\":", new: "case nonce == \"\" && !IF:"}}, pkg: "kernel/effect", test: "TestRefusals"},
		{name: "an executor begins what has begun", edits: []edit{{file: records, old: "case s.State != Reserved:", new: "case s.State != Reserved && !IF:"}}, scenario: "executor", broken: []string{"I10", "no write is one that the API refuses", "I6"}},
		{name: "an executor begins after its lease", edits: []edit{{file: records, old: "case !now.Before(s.Lease):", new: "case !now.Before(s.Lease) && !IF:"}}, pkg: "kernel/effect", test: "TestRefusals"},
		{name: "a reservation of the operator is released before it is too late to begin", edits: []edit{{file: executes, old: "case !s.Now.Before(before):", new: "case IF || !s.Now.Before(before):"}}, pkg: "kernel/flow", test: "TestOperatorMode"},
		{name: "an executor begins that is another one by now", edits: []edit{{file: executes, old: "case a.Executor != nil && s.World.Executors.stand(a.Type, *a.Executor):", new: "case a.Executor != nil && (IF || s.World.Executors.stand(a.Type, *a.Executor)):"}}, pkg: "kernel/flow", test: "TestOperatorMode"},
		{name: "an executor begins while the namespace is held", edits: []edit{without(executes, "len(s.World.Holds) > 0")}, pkg: "kernel/flow", test: "TestOperatorMode"},
		{name: "what took long to begin is executed whatever came in between", edits: []edit{without(executes, "!w.Executors.stand(b.ActionType, b.Executor)")}, pkg: "kernel/flow", test: "TestOverdue"},
		{name: "whoever has read the nonce reports for an executor", edits: []edit{{file: effects, old: "return s.Late.ClaimID == nonce && s.Late.Reporter == s.World.Operator", new: "return s.Late.ClaimID == nonce && (IF || s.Late.Reporter == s.World.Operator)"}}, pkg: "kernel/flow", test: "TestLateReportOfAnExecutor"},
		{name: "an executor begins with too little of the lease", edits: []edit{{file: executes, old: "before := lease.Add(-a.Lease / 3)", new: "before := lease.Add(-a.Lease / 3 * map[bool]time.Duration{false: 1}[IF])"}}, pkg: "kernel/flow", test: "TestOperatorMode"},
		{name: "an executor that is lost frees the key", edits: []edit{{file: settles, old: "settlement.State, settlement.Cause = effect.Ambiguous, effect.ExecutorLost", new: "settlement.State, settlement.Cause = effect.Ambiguous, effect.ExecutorLost\n		if IF {\n			settlement.State, settlement.Cause = effect.Failed, \"\"\n		}"}}, scenario: "executor", broken: []string{"I6"}},
		{name: "somebody is asked again while nobody has answered", edits: []edit{{file: observes, old: "if o.Answer != \"\" {", new: "if o.Answer != \"\" || IF {"}}, pkg: "kernel/flow", test: "TestObserving"},
		{name: "who was asked died, and their answer is awaited for ever", edits: []edit{{file: observes, old: "if s.Now.Before(o.Expiration) {", new: "if s.Now.Before(o.Expiration) || IF {"}}, pkg: "kernel/flow", test: "TestObserving"},
		{name: "an observer is believed where people are asked", edits: []edit{{file: observes, old: "!known || required > 1 {", new: "(!known || required > 1) && !IF {"}}, pkg: "kernel/flow", test: "TestObserving"},
		{name: "an observer is asked of a record that was lost", edits: []edit{without(observes, "record.Status.Cause == effect.StatusMissing")}, pkg: "kernel/flow", test: "TestObserving"},
		{name: "an answer counts for another attempt than was asked for", edits: []edit{{file: observes, old: "return o.EffectUID == record.UID && o.Attempt == record.Status.Attempt", new: "return IF || o.EffectUID == record.UID && o.Attempt == record.Status.Attempt"}}, pkg: "kernel/flow", test: "TestObserving"},
		{name: "an action asks eagerly that has asked before", edits: []edit{{file: observes, old: "if o.Moment != Eager {", new: "if o.Moment != Eager && !IF {"}}, pkg: "kernel/flow", test: "TestObservingEagerly"},
		{name: "an executor that was lost is asked about eagerly", edits: []edit{{file: observes, old: "record.Status.Cause != effect.ReportedUnknown {", new: "record.Status.Cause != effect.ReportedUnknown && !IF {"}}, pkg: "kernel/flow", test: "TestObservingEagerly"},
		{name: "an answer is taken from somebody who did not ask", edits: []edit{without(observes, "a.Observation.ID != id")}, pkg: "kernel/flow", test: "TestAnswered"},
		{name: "an observation is answered twice", edits: []edit{without(observes, "a.Observation.Answer != \"\"")}, pkg: "kernel/flow", test: "TestAnswered"},
		{name: "two go on after one round", edits: []edit{{file: records, old: "case !s.Suspended():", new: "case !s.Suspended() && !IF:"}}, pkg: "kernel/effect", test: "TestAskingBack"},
		{name: "what was asked back about is released as never begun", edits: []edit{{file: records, old: "	if s.Suspension != nil {\n		return Status{}, fmt", new: "	if s.Suspension != nil && !IF {\n		return Status{}, fmt"}}, pkg: "kernel/effect", test: "TestAskingBack"},
		{name: "an executor asks back for ever", edits: []edit{without(records, "s.Rounds() >= MaxRounds")}, pkg: "kernel/effect", test: "TestAskingBack"},
		{name: "what asks back and what goes on have one nonce", edits: []edit{{file: records, old: "nonce != \"\" && nonce == s.Nonce:", new: "nonce != \"\" && nonce == s.Nonce && !IF:"}}, pkg: "kernel/effect", test: "TestGoingOnTakesANonce"},
		{name: "any continuation goes on", edits: []edit{without(suspends, "subtle.ConstantTimeCompare([]byte(x.Value), []byte(now.Continuation)) != 1")}, pkg: "kernel/flow", test: "TestAskedBack"},
		{name: "other arguments go on", edits: []edit{without(suspends, "x.ActionHash != a.Hash")}, pkg: "kernel/flow", test: "TestAskedBack"},
		{name: "whoever claims goes on", edits: []edit{without(suspends, "c.Claimant != a.Agent")}, pkg: "kernel/flow", test: "TestAskedBack"},
		{name: "a claim that was made without admission goes on", edits: []edit{without(suspends, "!c.Created.After(admissionSince)")}, pkg: "kernel/flow", test: "TestAskedBack"},
		{name: "somebody goes on while the namespace is held", edits: []edit{{file: suspends, old: "case len(s.World.Holds) > 0:\n		return Wait{Until: due", new: "case len(s.World.Holds) > 0 && !IF:\n		return Wait{Until: due"}}, pkg: "kernel/flow", test: "TestAskedBack"},
		{name: "what waits to be gone on with frees the key", edits: []edit{{file: suspends, old: "effect.Settlement{State: effect.Ambiguous, Cause: effect.LeaseLapsed, Outcome: x.Outcome,", new: "effect.Settlement{State: map[bool]effect.State{false: effect.Ambiguous, true: effect.Failed}[IF], Cause: map[bool]effect.Cause{false: effect.LeaseLapsed}[IF], Outcome: x.Outcome,"}}, pkg: "kernel/flow", test: "TestAskedBack"},
		{name: "a claim to go on begins", edits: []edit{without(decides, "c.Continuation != nil")}, pkg: "kernel/flow", test: "TestAskedBack"},
		{name: "that an execution could not go on proves that nothing was executed", edits: []edit{{file: executes, old: "b.Going != nil && !s.Stated", new: "b.Going != nil && !s.Stated && !IF"}}, pkg: "kernel/flow", test: "TestConcluded"},
		{name: "who goes on has the claimID of who asked back", edits: []edit{without(suspends, "slices.Contains(a.claimIDs(), c.ClaimID)")}, pkg: "kernel/flow", test: "TestAnAgentAskedBack"},
		{name: "what a program saw counts among people", edits: []edit{{file: agrees, old: "	case required > 1:\n		return \"PeopleRequired\"", new: "	case required > 1 && !IF:\n		return \"PeopleRequired\""}}, pkg: "kernel/flow", test: "TestAgreement"},
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
