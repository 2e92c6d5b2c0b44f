package flow

import (
	"fmt"
	"slices"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
)

// MaxOutputBytes is the most a receipt takes over of what an executor says it got. A longer output is left in the Outcome.
const MaxOutputBytes = 16 << 10

// ending is how an admitted attempt ended, and why.
type ending struct {
	state   State
	reason  decision.Reason
	message string
}

// afterAdmission goes on with an action that one process may execute: its outcome, its record, its receipt, its end. The
// decision stands; policies and people are not asked again.
func afterAdmission(s Snapshot) Step {
	a := s.Action.Action
	if a.Reserves() {
		s.Effect = s.Effect.named(a.Effect.Name)
	}
	s.Lock, s.Late = s.lock()
	if !a.Reserves() {
		end, step := outcome(s)
		if step != nil {
			return step
		}
		return finish(s, end)
	}
	ours := s.Effect.Record != nil && s.Effect.HeldBy(a.UID, a.Effect.Attempt)
	if s.Effect.Presence == Unread || (s.Effect.Presence == Cached && !ours) {
		return Read{Object: TheEffect, Name: a.Effect.Name}
	}
	switch {
	case !ours && s.Action.Presence != Cached:
		// The action was read in this pass, perhaps after the record: it may have been admitted in between, and the record
		// may be its own by now. Only a record that was read by a pass which began with the admission speaks against it.
		return Wait{Until: s.Now.Add(10 * time.Millisecond), Why: "begin again"}
	case s.Effect.Presence == Absent, s.Effect.Status == nil:
		// The record was lost after somebody was admitted for it. It is re-created Ambiguous, and then settles this action.
		return lost(s, a.Effect.Name, a.Effect.Key)
	case !ours:
		return finish(s, ending{Ambiguous, decision.StatusMissing, fmt.Sprintf("The record of effect %q no longer knows of this attempt, so nobody knows whether it happened.", a.Effect.Key)})
	}
	record := *s.Effect.Record
	switch record.Status.State {
	case effect.Reserved:
		return begin(s, record)
	case effect.Executing:
		return settle(s, record)
	}
	return finish(s, endingOf(s, record))
}

// settle moves the record of an attempt that is over.
func settle(s Snapshot, record effect.Record) Step {
	if step := tellSuspension(s, record); step != nil {
		return step
	}
	if record.Status.Suspended() {
		return suspended(s, record)
	}
	a := s.Action.Action
	if a.Execution.Mode == AgentMode {
		if step := askedBack(s, record); step != nil {
			return step
		}
	}
	settlement := effect.Settlement{Now: s.Now, Approvals: spent(a)}
	if a.Execution.Mode == OperatorMode {
		// The worker settles with what it knows. When the lease is over it is lost; both are a compare-and-set on the same
		// record, so one of them wins.
		lease := record.Status.Lease
		due := lease.Add(LapseGrace)
		if s.Now.Before(due) {
			return Wait{Until: due, Why: "lease"}
		}
		if step := clockHold(s); step != nil {
			return step
		}
		settlement.State, settlement.Cause = effect.Ambiguous, effect.ExecutorLost
	} else {
		end, step := outcome(s)
		if step != nil {
			return step
		}
		settlement.Outcome = &effect.Ref{Name: s.Lock.Name, UID: s.Lock.UID}
		settlement.State = map[State]effect.State{Committed: effect.Committed, Failed: effect.Failed, Ambiguous: effect.Ambiguous}[end.state]
		if settlement.State == effect.Ambiguous {
			settlement.Cause = causeOf(end.reason)
		}
	}
	next, err := record.Status.Settle(settlement)
	if err != nil {
		return Read{Object: TheEffect, Name: record.Name}
	}
	// If we die right here the receipt is made from the record and the outcome by whoever comes next.
	return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhySettle}
}

// lock is what is known of the outcome of whoever may execute now, and of its late one. A pass may have begun before it knew which
// claim was admitted, or goes on, and have looked for those of another.
func (s Snapshot) lock() (OutcomeRead, *Outcome) {
	name := s.LockName()
	lock, late := s.Lock, s.Late
	if lock.Outcome != nil && lock.Outcome.Name != name {
		lock = OutcomeRead{}
	}
	if late != nil && late.Name != "late."+name {
		late = nil
	}
	return lock, late
}

// outcome is what the lock says, or the step that brings somebody's outcome about. No clock decides between a report and a
// lapse: both create the same name, and the apiserver lets one of them.
func outcome(s Snapshot) (ending, Step) {
	a := s.Action.Action
	claimID, lease := s.leg()
	if s.Lock.Outcome == nil {
		due := lease.Add(LapseGrace)
		if s.Now.Before(due) {
			return ending{}, Wait{Until: due, Why: "outcome"}
		}
		if step := clockHold(s); step != nil {
			return ending{}, step
		}
		return ending{}, DeclareLapse{ActionName: a.Name, ActionUID: a.UID, ClaimID: claimID, Proposer: a.Agent}
	}
	if held(s, decision.AdmissionMissing) {
		// Anybody may have made it, now. When admission is back, only what was made after that counts.
		return ending{}, Wait{Why: string(decision.AdmissionMissing)}
	}
	o := s.Lock.Outcome
	inspect := findOut(s)
	switch {
	case o.LeaseLapsed && o.Result == ReportUnknown:
		return ending{Ambiguous, decision.LeaseLapsed, fmt.Sprintf("No report came before the lease was over at %s, so nobody knows whether it happened. %s", lease.UTC().Format(time.RFC3339), inspect)}, nil
	case o.ActionUID != a.UID, o.ClaimID != claimID, o.Reporter != a.Agent, !o.Created.After(s.World.AdmissionSince):
		return ending{Ambiguous, decision.OutcomeNotAccepted, fmt.Sprintf("The report %s does not count: it was made by %s, or while admission was away. Nobody knows whether it happened. %s", o.Name, o.Reporter, inspect)}, nil
	case o.Result == ReportCommitted:
		return ending{Committed, "", "It was executed, and its executor reported success."}, nil
	case o.Result == ReportNotExecuted:
		return ending{Failed, "", "Its executor stated that nothing was executed. It may be proposed again."}, nil
	case o.Result == ReportAskedBack:
		return ending{Ambiguous, decision.ReportedUnknown, "Its executor asked back" + s.unheld() + ", so nobody knows whether it happened. " + inspect}, nil
	}
	return ending{Ambiguous, decision.ReportedUnknown, "Its executor does not know whether it happened. " + inspect}, nil
}

// findOut is what to do about an outcome that nobody knows.
func findOut(s Snapshot) string {
	a := s.Action.Action
	e := a.Effect
	switch {
	case e != nil && !a.Reserves():
		return "Its effect was not reserved for it: nothing is blocked by it, and there is nothing to resolve. Find out what happened."
	case e == nil:
		return "It has no effect key: nothing is blocked by it, and there is nothing to resolve. Find out what happened before it is proposed again."
	}
	return "Find out what happened, then: " + howToResolve(e.Name, s.World.Namespace)
}

// howToResolve is the command for it, whole.
func howToResolve(effectName, namespace string) string {
	return fmt.Sprintf("kubectl ctrlrun resolve %s -n %s --committed --reason ..., or --not-executed --reason ... --evidence URL", effectName, namespace)
}

// endingOf is how the attempt ended, as its record says.
func endingOf(s Snapshot, record effect.Record) ending {
	status := record.Status
	inspect := findOut(s)
	if by := status.Resolution; by != nil {
		state := map[effect.State]State{effect.Committed: Committed, effect.Failed: Failed}[status.State]
		return ending{state, "", fmt.Sprintf("The record of its effect was lost, and %s resolved it before this Action was finished: %s.", listed(by.By()), status.State)}
	}
	switch status.State {
	case effect.Committed:
		return ending{Committed, "", "It was executed, and its executor reported success."}
	case effect.Failed:
		if n := len(status.History); n > 0 && status.History[n-1].Result == effect.NeverBegan {
			if x := s.Action.Executor; x != nil && !s.World.Executors.stand(s.Action.Type, *x) {
				return ending{Failed, decision.ExecutorChanged, executorChanged(x.Name) + " It may be proposed again."}
			}
			if until := s.Action.NotAfter; until != nil && !status.Transition.Before(*until) {
				return ending{Failed, decision.NeverBegan, fmt.Sprintf("It was not to be executed after %s, and had not begun by then. Nothing was executed. It may be proposed again.", until.UTC().Format(time.RFC3339))}
			}
			return ending{Failed, decision.NeverBegan, "No executor began it while at least a third of its lease was left. Nothing was executed. It may be proposed again."}
		}
		return ending{Failed, "", "Its executor stated that nothing was executed. It may be proposed again."}
	}
	switch status.Cause {
	case effect.StatusMissing:
		return ending{Ambiguous, decision.StatusMissing, "The record of its effect was lost, so nobody knows whether it happened. " + inspect}
	case effect.ReportedUnknown:
		return ending{Ambiguous, decision.ReportedUnknown, "Its executor does not know whether it happened. " + inspect}
	case effect.ExecutorLost:
		return ending{Ambiguous, decision.ExecutorLost, "Its executor was lost while it acted, so nobody knows whether it happened. " + inspect}
	}
	if x := status.Suspension; x != nil && x.Taken() == nil && status.Cause == effect.LeaseLapsed {
		return ending{state: Ambiguous, reason: decision.LeaseLapsed, message: fmt.Sprintf("Its executor asked back, and nobody had gone on with it by %s, so nobody knows whether it happened. %s", x.Expiration.UTC().Format(time.RFC3339), inspect)}
	}
	if s.Lock.Outcome != nil {
		if end, step := outcome(s); step == nil && end.state == Ambiguous {
			return end
		}
	}
	return ending{Ambiguous, map[effect.Cause]decision.Reason{effect.LeaseLapsed: decision.LeaseLapsed, effect.ReportedUnknown: decision.ReportedUnknown, effect.OutcomeNotAccepted: decision.OutcomeNotAccepted}[status.Cause], "Nobody knows whether it happened. " + inspect}
}

func causeOf(reason decision.Reason) effect.Cause {
	switch reason {
	case decision.LeaseLapsed:
		return effect.LeaseLapsed
	case decision.OutcomeNotAccepted:
		return effect.OutcomeNotAccepted
	}
	return effect.ReportedUnknown
}

func spent(a *Action) []string {
	var names []string
	for _, approval := range a.Execution.Approvals {
		names = append(names, approval.Name)
	}
	return names
}

// finish appends the receipt, unless one is in the chain already, and then writes the terminal state as that receipt says
// it: whoever wrote the receipt, receipt and action agree.
func finish(s Snapshot, end ending) Step {
	a := s.Action.Action
	found, step := findReceipt(s)
	if step != nil {
		return step
	}
	if found == nil {
		if a.Reserves() && a.Execution.Mode == AgentMode && s.Lock.Presence == Unread {
			return Read{Object: TheLock} // its error and output belong into the receipt
		}
		return Append{Head: s.Chain.Head, Document: document(s, end)}
	}
	if found.Result == decision.Ambiguous {
		if step := eager(s, s.Chain.FoundLink); step != nil {
			return step
		}
	}
	status := a.Status
	status.State = map[decision.Result]State{decision.Committed: Committed, decision.Failed: Failed, decision.Ambiguous: Ambiguous, decision.Observed: Observed}[found.Result]
	if status.State == "" {
		// A receipt says that this action was never admitted, which its own status disproves. Nobody knows.
		status.State = Ambiguous
	}
	if status.State == Observed {
		status.Outcome = map[decision.Result]State{decision.Committed: Committed, decision.Failed: Failed}[found.Ended()]
		if status.Outcome == "" {
			status.Outcome = Ambiguous
		}
	}
	if e := s.ours(); e != nil && e.Status.Suspension != nil {
		status.Suspension = e.Status.Suspension
	}
	status.Reason, status.Message = found.Reason, found.Message
	now, link := s.Now, s.Chain.FoundLink
	status.FinishTime, status.Receipt = &now, &link
	return WriteAction{Name: a.Name, UID: a.UID, Status: status, Why: WhyFinish}
}

// receiptOfUnadmitted gives an action that ended before it was admitted its receipt.
func receiptOfUnadmitted(s Snapshot) Step {
	a := s.Action.Action
	found, step := findReceipt(s)
	if step != nil {
		return step
	}
	if found == nil {
		return Append{Head: s.Chain.Head, Document: document(s, ending{a.State, a.Reason, a.Message})}
	}
	status := a.Status
	link := s.Chain.FoundLink
	status.Receipt = &link
	return WriteAction{Name: a.Name, UID: a.UID, Status: status, Why: WhyFinish}
}

// findReceipt looks for this action's receipt from where it can be at the earliest to the end of the chain.
func findReceipt(s Snapshot) (*receipt.Document, Step) {
	if step := chainHold(s); step != nil {
		return nil, step
	}
	a := s.Action.Action
	id := receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}
	if !s.Chain.answers(id) {
		floor := int64(0)
		if a.FirstSeq != nil {
			floor = s.World.Floor(*a.FirstSeq, a.Created)
		}
		return nil, Read{Object: TheChain, Identity: id, Floor: floor}
	}
	return s.Chain.Found, nil
}

// held reports whether the world holds for that reason.
func held(s Snapshot, reason decision.Reason) bool {
	return slices.ContainsFunc(s.World.Holds, func(h Hold) bool { return h.Reason == reason })
}

// chainHold answers while nothing may be appended: a chain that does not fit what is remembered of it must not grow.
func chainHold(s Snapshot) Step {
	if held(s, decision.LedgerRolledBack) {
		return Wait{Why: string(decision.LedgerRolledBack)}
	}
	return nil
}

// clockHold answers while the clock is known to be wrong: it must not end anybody's lease.
func clockHold(s Snapshot) Step {
	if held(s, decision.ClockSkew) {
		return Wait{Why: string(decision.ClockSkew)}
	}
	return nil
}

// document is the receipt of an action.
func document(s Snapshot, end ending) receipt.Document {
	a := s.Action.Action
	d := base(s, receipt.KindAction, a.UID, 0)
	d.ActionName, d.ActionUID, d.ActionType, d.ActionHash = a.Name, a.UID, a.Type, a.Hash
	d.Principal = &receipt.Principal{Agent: a.Agent, Claims: a.Claims}
	if a.User != nil {
		d.Principal.User = *a.User
	}
	if a.Expires != nil {
		d.Principal.Expires = *a.Expires
	}
	if arguments, ok := parsedArguments(a); ok {
		d.Arguments = arguments
	}
	d.Resource, d.Environment = deref(a.Status.Resource), a.Environment
	if d.Resource == "" {
		d.Resource = deref(a.Resource)
	}
	if d.Environment == "" {
		d.Environment = s.World.Environment
	}
	d.Decision, d.DecisionReason = a.Decision, string(a.DecisionReason)
	// A policy with a fraction in it has no canonical form and so no hash to be cited by; the message names it.
	if p := a.Policy; p != nil && p.RulesHash != "" {
		d.Policy = &receipt.Policy{Name: p.Name, Version: p.Version, Generation: p.Generation, RulesHash: p.RulesHash}
	}
	if by := a.Authority; by != nil {
		d.Authority = &receipt.Authority{Kind: string(by.Kind), Name: by.Name, Root: by.Root, BreakGlass: by.BreakGlass}
	}
	if e := a.Effect; e != nil {
		d.EffectName, d.EffectKey, d.Attempt = e.Name, e.Key, e.Attempt
		if e.Attempt > 0 && s.Effect.Record != nil {
			d.EffectUID = s.Effect.UID
		}
	}
	if a.Ask != nil {
		d.ApprovalsRequired = int64(a.Ask.Required)
	}
	if x := a.Execution; x != nil {
		d.ExecutorMode = map[Mode]receipt.Mode{AgentMode: receipt.ModeAgent, OperatorMode: receipt.ModeOperator}[x.Mode]
		d.ClaimID, d.Token, d.AdmittedTime = x.ClaimID, x.Token, x.Admitted
		for _, answer := range x.Approvals {
			d.Approvals = append(d.Approvals, receipt.Approval{Approver: answer.Approver, Groups: answer.Groups, Name: answer.Name, UID: answer.UID, Time: answer.Created, Reason: answer.Reason, RulesHash: answer.RulesHash})
		}
		if by := a.Executor; by != nil {
			d.Executor = &receipt.Executor{Name: by.Name, Hash: by.Hash}
		}
		if e := s.Effect.Record; x.Mode == OperatorMode && a.Effect != nil && e != nil && e.HeldBy(a.UID, a.Effect.Attempt) {
			d.Error, d.Output = e.Status.Error, e.Status.Output
		}
		if e := s.ours(); e != nil {
			d.Rounds = e.Status.Rounds()
		}
		if o := s.Lock.Outcome; o != nil && x.Mode == AgentMode {
			d.Reporter, d.Error = o.Reporter, o.Error
			if len(o.Output) <= MaxOutputBytes && o.Result != ReportAskedBack {
				d.Output = o.Output
			}
		}
		if s.Late != nil && x.Mode == AgentMode {
			d.LateOutcomeName = s.Late.Name
		}
	}
	for _, p := range a.Preconditions {
		d.Preconditions = append(d.Preconditions, receipt.Precondition{APIVersion: p.APIVersion, Kind: p.Kind, Name: p.Name, Pointer: p.Pointer})
	}
	if f := a.Fingerprints; f != nil {
		d.PreconditionAtRequest, d.PreconditionAtRecheck = f.AtRequest, f.AtRecheck
	}
	d.ProposedTime, d.RulesHash = a.Created, a.RulesHash
	d.Refused, d.RefusedCount = refusedStatements(s)
	d.Result, d.Reason, d.Message = resultOf(end.state), end.reason, clip(end.message)
	if w := a.WouldHave; w != nil && a.Execution != nil {
		d.Result, d.Execution = decision.Observed, d.Result
		d.WouldHave = &receipt.WouldHave{Decision: w.Decision, Reason: string(w.Reason), BlockedReason: string(w.Blocked)}
	}
	return d
}

func base(s Snapshot, kind, subject string, ordinal int64) receipt.Document {
	return receipt.Document{
		Kind: kind, SubjectUID: subject, Ordinal: ordinal,
		Epoch: s.World.Epoch, ClusterID: s.World.ClusterID, Namespace: s.World.Namespace, NamespaceUID: s.World.NamespaceUID,
		FinishedTime: s.Now,
	}
}

func resultOf(state State) decision.Result {
	switch state {
	case Committed:
		return decision.Committed
	case Failed:
		return decision.Failed
	case Observed:
		return decision.Observed
	case Blocked:
		return decision.Blocked
	case Denied, Expired:
		return decision.Denied
	}
	return decision.Ambiguous
}

func parsedArguments(a *Action) (map[string]any, bool) {
	if len(a.Arguments) == 0 {
		return map[string]any{}, true
	}
	v, err := canonical.Parse(a.Arguments)
	if err != nil {
		return nil, false
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	// What policy would not take is no part of a receipt either: it may be as large, or nest as deep, as the apiserver takes.
	if action.CheckSize(m) != nil {
		return nil, false
	}
	return m, true
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
