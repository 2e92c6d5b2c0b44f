package flow

import (
	"fmt"
	"math/big"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
)

// holdsReservation reports whether the record belongs to this action. The uid alone decides: a reservation belongs to the
// action, whichever process wrote it and whether or not its response was lost.
func (p *pass) holdsReservation() bool {
	r := p.Effect.Record
	return r != nil && r.Status != nil && r.Status.Holder != nil && r.Status.Holder.UID == p.a.UID
}

// reserved answers until the effect is reserved for this action.
func (p *pass) reserved() Step {
	key := p.evaluation.EffectKey
	if key == nil {
		return p.withoutRecord()
	}
	name := action.EffectName(*key)
	switch {
	case p.Effect.Presence == Unread && p.atOnce():
		return p.create(name, *key)
	case p.Effect.Presence == Unread, p.Effect.Presence == Cached:
		return Read{Object: TheEffect, Name: name}
	case p.Effect.Presence == Absent:
		if step := p.lastReads(); step != nil {
			return step
		}
		return p.create(name, *key)
	}
	r := p.Effect.Record
	if p.holdsReservation() {
		return nil
	}
	if step := p.refusedBy(r); step != nil || p.unreserved != "" {
		return p.orWithout(step)
	}
	if p.asks {
		p.would(decision.ApprovalRequired) // by now enforcing would have asked, and looks again when they have answered
	}
	if r.Status.State != effect.Failed {
		return p.orWithout(p.inTheWay(r))
	}
	if step := p.predecessorDone(r); step != nil {
		return step
	}
	if step := p.lastReads(); step != nil {
		return step
	}
	next, err := r.Status.Renew(p.take(r.Status.Attempt + 1))
	if err != nil {
		return p.end(Blocked, decision.InProgress, fmt.Sprintf("The effect %q cannot be taken: %v. Nothing was executed.", r.Key, err))
	}
	// Guarded by the version that was read: of all who saw this failed attempt, one makes the next.
	return WriteEffect{Name: name, Key: r.Key, Status: next, Why: WhyRenew}
}

// withoutRecord answers until an admission that reserves nothing may follow.
func (p *pass) withoutRecord() Step {
	if p.atOnce() {
		return nil
	}
	return p.lastReads()
}

// orWithout is the step, or in observe mode what follows where there is none.
func (p *pass) orWithout(step Step) Step {
	if step != nil {
		return step
	}
	return p.withoutRecord()
}

// refusedBy answers for records that no proposal can take, whatever its holder does.
func (p *pass) refusedBy(r *effect.Record) Step {
	switch {
	case r.Key != *p.evaluation.EffectKey:
		return p.refuseReservation(decision.EffectNameCollision, fmt.Sprintf("The record of this effect's name belongs to the key %q. The two cannot be told apart by name; nothing was executed. Choose another key.", r.Key))
	case r.Status == nil:
		return p.refuseReservation(decision.StatusMissing, fmt.Sprintf("The record of effect %q lost its status, as a restore can do, so nobody knows whether it happened. Nothing was executed. See: kubectl ctrlrun inspect --key %q -n %s", r.Key, r.Key, p.World.Namespace))
	case r.Status.State == effect.Committed:
		return p.refuseReservation(decision.Duplicate, fmt.Sprintf("The effect %q is committed already, by %s in attempt %d. It is not executed again.", r.Key, r.Status.HolderName(), r.Status.Attempt))
	case r.Status.State == effect.Ambiguous:
		if step := p.observed(r); step != nil {
			return step
		}
		return p.refuseReservation(decision.AmbiguousEffect, fmt.Sprintf("Nobody knows whether attempt %d of effect %q happened (%s), so it is not tried again.%s Find out, then: %s", r.Status.Attempt, r.Key, r.Status.Cause, p.asked(r), howToResolve(r.Name, p.World.Namespace)))
	case r.Status.State == effect.Failed && p.ceilingReached(r):
		return p.refuseReservation(decision.AttemptCeiling, fmt.Sprintf("Attempt %d of effect %q is refused: the policy's maxAttempts is %d. Nothing was executed.", r.Status.Attempt+1, r.Key, p.evaluation.Entry.MaxAttempts))
	}
	return nil
}

func (p *pass) ceilingReached(r *effect.Record) bool {
	ceiling := p.evaluation.Entry.MaxAttempts
	return ceiling > 0 && r.Status.StartedAttempts >= int64(ceiling)
}

// inTheWay answers for a record that another action holds: an orphan is released, anything else is in progress.
func (p *pass) inTheWay(r *effect.Record) Step {
	if p.Holder.Presence == Unread || (p.Holder.Presence == Cached && unsettled(p.Holder.Action)) {
		return Read{Object: TheHolder, Name: r.Status.Holder.Name}
	}
	if step := releaseOrphan(p.Snapshot, r); step != nil {
		return step
	}
	return p.refuseReservation(decision.InProgress, fmt.Sprintf("%s is executing effect %q, attempt %d. Nothing was executed for this Action. Wait for its outcome, then propose again if it is still wanted.", r.Status.Holder.Name, r.Key, r.Status.Attempt))
}

// unsettled reports whether what a cache says of a holder may yet turn into something that makes its reservation an orphan.
func unsettled(holder *Action) bool {
	return holder != nil && holder.Execution == nil && !holder.State.Terminal()
}

// predecessorDone answers until everything about the failed attempt is on record: its action is finished, and if a person
// resolved it, so is the resolution. Else the renewal would take away what their receipts are made from.
func (p *pass) predecessorDone(r *effect.Record) Step {
	if holder := r.Status.Holder; holder != nil {
		switch {
		case p.Holder.Presence == Unread, p.Holder.Presence == Cached && !p.Holder.Finished():
			return Read{Object: TheHolder, Name: holder.Name}
		case p.Holder.Presence != Absent && !p.Holder.Finished():
			return p.waitFor(fmt.Sprintf("It waits for %s, which made attempt %d of effect %q, to be finished.", holder.Name, r.Status.Attempt, r.Key))
		}
	}
	resolution := r.Status.Resolution
	if resolution == nil {
		return nil
	}
	id := receipt.Identity{Kind: receipt.KindResolution, SubjectUID: r.UID, Ordinal: r.Status.Attempt}
	if !p.Chain.answers(id) {
		return Read{Object: TheChain, Identity: id, Floor: p.World.Floor(resolution.QuotedSeq, r.Status.Transition)}
	}
	if p.Chain.Found == nil {
		// Whoever resolved it died before it was on record, or the receipt was lost with the end of a chain. The record says
		// all that goes into it, so whoever needs it writes it.
		return Append{Head: p.Chain.Head, Document: resolutionDocument(p.Snapshot, *r)}
	}
	return nil
}

func (p *pass) waitFor(message string) Step {
	status := p.decided(p.a.State)
	status.Reason, status.Message = decision.WaitingForHolder, message
	return p.write(status, WhyWait, Wait{Why: string(decision.WaitingForHolder)})
}

// atOnce reports whether the action is on its first path: nobody was asked, and nothing was waited for. On it nothing is read
// before the reservation. Whether the effect is taken is answered by its creation. An action that has ended meanwhile is not
// admitted, since that write is guarded by the version that was looked at; what was created for it is an orphan, as it would
// be if its creation had been under way for long.
// An action with preconditions is not on it: what they name is read first.
func (p *pass) atOnce() bool {
	return p.a.State == Pending && p.a.Reason == "" && p.a.Ask == nil && len(p.a.Preconditions) == 0
}

// create makes the record. The apiserver lets one creation of this name succeed, of all processes, operators and retries. If
// we die right here nobody was admitted: the next pass, of whichever operator, finds the record and goes on from it.
func (p *pass) create(name, key string) Step {
	return WriteEffect{Name: name, Key: key, Status: effect.First(p.take(1)), Create: true, Why: WhyReserve}
}

// lastReads answers until everything a reservation or admission rests on was read from the apiserver in this pass: the
// approvals, which may have turned into a denial, what the preconditions name, and last the action itself.
func (p *pass) lastReads() Step {
	if step := p.answersStand(); step != nil {
		return step
	}
	if step := p.preconditionsStand(); step != nil {
		return step
	}
	if p.Action.Presence != Fresh {
		return Read{Object: TheAction, Name: p.a.Name}
	}
	return nil
}

// answersStand answers until all approvals were read in this pass, and the apiserver was asked whether those who gave the ones
// that are to be spent may give them. If one of them may not any more, it is counted again without.
func (p *pass) answersStand() Step {
	if p.a.Ask == nil {
		return nil
	}
	if p.Answers.Presence != Fresh {
		return Read{Object: TheAnswers}
	}
	return p.entitled()
}

// entitled answers until the apiserver was asked whether those whose approvals count may give them.
func (p *pass) entitled() Step {
	for _, a := range p.tally.Approved {
		if a.Entitlement == approval.Unchecked {
			return Read{Object: TheEntitlement, Name: a.UID}
		}
	}
	return nil
}

func (p *pass) take(attempt int64) effect.Take {
	token, err := effect.Token(*p.evaluation.EffectKey, big.NewInt(attempt))
	if err != nil {
		token = "" // an empty key or attempt 0: neither gets here, and the record's own rules refuse an empty token
	}
	user := ""
	if p.a.User != nil {
		user = *p.a.User
	}
	return effect.Take{
		Holder:     effect.Holder{Name: p.a.Name, UID: p.a.UID, Agent: p.a.Agent, User: user},
		ActionType: p.a.Type,
		Began:      p.mode == AgentMode,
		Token:      token,
		Lease:      p.Now.Add(p.a.Lease),
		Now:        p.Now,
		// There is an entry: the key is from its template.
		ResolutionsRequired: p.evaluation.Entry.Resolutions(),
	}
}

// admit is the last check and the one write that lets a process act. It copies what the record says, so that whoever wrote
// the reservation, the admission fits it.
func (p *pass) admit() Step {
	if step := p.answersStand(); step != nil {
		return step
	}
	if step := p.preconditionsStand(); step != nil {
		return step
	}
	execution := Execution{Mode: p.mode, ClaimID: p.claimID, Claim: p.claim, Lease: p.Now.Add(p.a.Lease), Admitted: p.Now, Approvals: p.tally.Approved}
	status := p.decided(Admitted)
	p.counted(&status)
	p.rechecked(&status)
	status.Message = "The process with this claimID may execute it, once. Its report is awaited."
	if p.World.Observe {
		if p.asks {
			p.would(decision.ApprovalRequired)
		}
		status.WouldHave = &WouldHave{Decision: p.evaluation.Decision, Reason: p.evaluation.Reason, Blocked: p.blocked}
		status.Message = "Observe mode: nothing is enforced. The process with this claimID may execute it. Its report is awaited."
	}
	if p.executor != nil {
		status.Message = fmt.Sprintf("The operator executes it, by Executor %s.", p.executor.Name)
	}
	if r := p.Effect.Record; p.evaluation.EffectKey != nil && p.unreserved == "" {
		mode := map[effect.State]Mode{effect.Executing: AgentMode, effect.Reserved: OperatorMode}[r.Status.State]
		switch {
		case r.Key != *p.evaluation.EffectKey, mode != "" && mode != p.mode:
			return p.end(Blocked, decision.ProposalChanged, "Between its reservation and its admission the policy or the way it is executed changed. Nothing was executed. Propose it again.")
		case mode == "" && r.Status.State == effect.Ambiguous:
			return p.end(Blocked, decision.StatusMissing, fmt.Sprintf("The record of effect %q lost its status before this was admitted. Nothing was executed for this Action. See: kubectl ctrlrun inspect --key %q -n %s", r.Key, r.Key, p.World.Namespace))
		case mode == "", !p.Now.Before(r.Status.Lease):
			return p.end(Blocked, decision.NotAdmitted, "Its reservation ran out before it was admitted. Nothing was executed. Propose it again.")
		}
		execution.Mode, execution.Token, execution.Lease = mode, r.Status.Token, r.Status.Lease
		status.Effect.Attempt = r.Status.Attempt
	}
	status.Execution = &execution
	// Guarded by the version of the action that was read: an action is admitted at most once, and whatever ended it
	// meanwhile wins. If the response is lost, the next pass reads an action that is admitted, or writes this again.
	return p.writes(status, WhyAdmit)
}
