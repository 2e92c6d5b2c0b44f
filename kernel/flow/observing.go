package flow

import (
	"fmt"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
)

const (
	// ObservationGrace is how long after the time an observer has the operator waits for its answer to be on record. Whoever asked
	// died, then, or cannot write.
	ObservationGrace = 15 * time.Second
	// ResolutionWait is how long after an answer its Resolution may take to settle the effect. Then the proposal ends as without it.
	ResolutionWait = time.Minute
)

// Observer is how an Executor looks what became of an attempt that nobody knows of.
type Observer struct {
	// Eager: it looks also right after an attempt of its own ended so.
	Eager bool
	// Timeout is how long one look may take.
	Timeout time.Duration
}

// Moment is when an observer is asked.
type Moment string

const (
	// Blocking: a proposal meets an ambiguous record of another action, right before it would end for it.
	Blocking Moment = "Blocking"
	// Eager: the action's own attempt has just ended ambiguous, and its receipt says so.
	Eager Moment = "Eager"
)

// Answer is what an observer says.
type Answer string

const (
	AnswerCommitted   Answer = "Committed"
	AnswerNotExecuted Answer = "NotExecuted"
	AnswerUnknown     Answer = "Unknown"
)

// Observation is one look, the only one of its action. Its start is on record before anybody is asked, so that whoever died, nobody is
// asked again; its answer is written once.
type Observation struct {
	Executor ExecutorRef
	// Attempt of the effect that was asked for, and the uid of its record.
	Attempt   int64
	EffectUID string
	Moment    Moment
	// ID is known to the one process that asks.
	ID         string
	Started    time.Time
	Expiration time.Time // an answer that is not on record by then is lost
	Answer     Answer    // "": none yet
	Message    string
	Finished   *time.Time
}

// Observe asks an observer, in the background: it writes the status of the action, guarded by the version that was read, with an ID of
// this very process in its observation, and only if that is written by this process it asks; then it writes the answer, by Answered.
type Observe struct {
	WriteAction
	ActionType string
	Observer   Observer
	// What is asked: all that an observer is told.
	Key     string
	Attempt int64
	Token   string
}

// Resolve creates the Resolution by which an observer's answer settles an effect, in the operator's name. If it is there already nothing is
// created; if the operator's name is taken by one that was refused, the next name is.
type Resolve struct {
	EffectName, EffectUID string
	Attempt               int64
	ActionType            string
	State                 effect.State // Committed, or Failed for not executed
	Quoted                receipt.Link
	Observer              string
	Reason, Evidence      string
}

func (Observe) step() {}
func (Resolve) step() {}

// mayObserve is the observer for a record, nil if none is to be asked: its answer could settle nothing, or it is a dry run.
func (s Snapshot) mayObserve(x *Executor, record *effect.Record) *Observer {
	if x == nil || x.Observes == nil || s.World.Observe || len(s.World.Holds) > 0 || record.Status.Cause == effect.StatusMissing || record.Status.Token == "" {
		return nil
	}
	if required, known := resolutionsRequired(s.World, record.Status); !known || required > 1 {
		return nil // people were asked
	}
	return x.Observes
}

// begun is the step that begins an observation.
func begun(a *Action, status Status, s Snapshot, x *Executor, record *effect.Record, moment Moment) Step {
	status.Observation = &Observation{
		Executor: *x.ref(), Attempt: record.Status.Attempt, EffectUID: record.UID, Moment: moment,
		Started: s.Now, Expiration: s.Now.Add(x.Observes.Timeout + ObservationGrace),
	}
	return Observe{
		WriteAction: WriteAction{Name: a.Name, UID: a.UID, Status: status, Why: WhyObserve},
		ActionType:  a.Type, Observer: *x.Observes, Key: record.Key, Attempt: record.Status.Attempt, Token: record.Status.Token,
	}
}

// Answered is the write of an observer's answer by the process that asked. It is false if that is not this one, or there is an answer.
func Answered(s Snapshot, id string, answer Answer, message string) (WriteAction, bool) {
	a := s.Action.Action
	if s.Action.Presence == Absent || a == nil || a.Observation == nil || a.Observation.ID != id || a.Observation.Answer != "" {
		return WriteAction{}, false
	}
	write := answeredBy(a, s.Now, answer, message)
	write.Status.Timeline = told(s, write)
	return write, true
}

func answeredBy(a *Action, now time.Time, answer Answer, message string) WriteAction {
	status, o := a.Status, *a.Observation
	o.Answer, o.Message, o.Finished = answer, clip(message), &now
	status.Observation = &o
	return WriteAction{Name: a.Name, UID: a.UID, Status: status, Why: WhyObserved}
}

// pending answers for an observation that has no answer yet.
func pending(s Snapshot, a *Action) Step {
	o := a.Observation
	if o.Answer != "" {
		return nil
	}
	if s.Now.Before(o.Expiration) {
		return Wait{Until: o.Expiration, Why: "observation"}
	}
	if step := clockHold(s); step != nil {
		return step
	}
	return answeredBy(a, s.Now, AnswerUnknown, "lost: whoever asked it died, or could not write what it said")
}

// about reports whether an observation was of the record in its present attempt.
func (o *Observation) about(record *effect.Record) bool {
	return o.EffectUID == record.UID && o.Attempt == record.Status.Attempt
}

// settles reports whether an observation has an answer that says what became of the effect.
func (o *Observation) settles() bool {
	return o.Answer == AnswerCommitted || o.Answer == AnswerNotExecuted
}

// observed answers while an observer is asked what became of the ambiguous record of another action, before this one ends for it. It
// is asked once, whatever this action meets afterwards.
func (p *pass) observed(r *effect.Record) Step {
	o := p.a.Observation
	if o != nil && !o.about(r) {
		return nil
	}
	if o == nil && p.mayObserve(p.observer, r) == nil || p.World.Observe || r.Status.Holder == nil {
		return nil
	}
	if o != nil {
		if step := pending(p.Snapshot, p.a); step != nil {
			return step
		}
		if !o.settles() || !p.Now.Before(o.Finished.Add(ResolutionWait)) {
			return nil
		}
	}
	// Its holder has to be finished: the receipt of that is what is answered.
	holder := r.Status.Holder
	switch {
	case p.Holder.Presence == Unread, p.Holder.Presence == Cached && !p.Holder.Finished():
		return Read{Object: TheHolder, Name: holder.Name}
	case p.Holder.Presence == Absent:
		return nil
	case !p.Holder.Finished():
		return p.waitFor(fmt.Sprintf("It waits for %s, which made attempt %d of effect %q, to be finished.", holder.Name, r.Status.Attempt, r.Key))
	case p.Holder.Ended() != Ambiguous || !admittedFor(p.Holder.Action, r):
		return nil
	case o == nil:
		status := p.decided(p.a.State)
		status.Message = clip(fmt.Sprintf("Nobody knows whether attempt %d of effect %q happened. The Executor %s is asked.", r.Status.Attempt, r.Key, p.observer.Name))
		if status.FirstSeq == nil {
			seq := p.World.VerifiedSeq
			status.FirstSeq = &seq
		}
		return begun(p.a, status, p.Snapshot, p.observer, r, Blocking)
	case !p.Stated:
		return resolutionOf(p.a, r, *p.Holder.Receipt)
	}
	return Wait{Until: o.Finished.Add(ResolutionWait), Why: "resolution"}
}

// asked says in a sentence what an observer that was asked about the record said.
func (p *pass) asked(r *effect.Record) string {
	o := p.a.Observation
	switch {
	case o == nil || !o.about(r):
		return ""
	case o.settles():
		return fmt.Sprintf(" The Executor %s was asked and said %s, and that did not settle it.", o.Executor.Name, o.Answer)
	}
	return fmt.Sprintf(" The Executor %s was asked and did not know: %s.", o.Executor.Name, o.Message)
}

// resolutionOf is the step by which an answer becomes a statement like everybody else's.
func resolutionOf(a *Action, r *effect.Record, quoted receipt.Link) Step {
	o := a.Observation
	state := effect.Failed
	if o.Answer == AnswerCommitted {
		state = effect.Committed
	}
	return Resolve{
		EffectName: r.Name, EffectUID: r.UID, Attempt: o.Attempt, ActionType: r.Status.ActionType, State: state, Quoted: quoted, Observer: o.Executor.Name,
		Reason: clip(fmt.Sprintf("The Executor %s looked and answered %s.", o.Executor.Name, o.Answer)),
		Evidence: clip(fmt.Sprintf("Executor %s (%s) was asked at %s for Action %s, look %s, what became of attempt %d, token %s, and answered %s.",
			o.Executor.Name, o.Executor.Hash, o.Started.UTC().Format(time.RFC3339), a.Name, o.ID, o.Attempt, r.Status.Token, o.Answer)),
	}
}

// eager answers while the observer of an action is asked right after the action's own attempt ended ambiguous. The receipt says
// ambiguous already, and so does the action afterwards.
func eager(s Snapshot, end receipt.Link) Step {
	a := s.Action.Action
	record := s.Effect.Record
	if a.WouldHave != nil || record == nil || record.Status == nil || !a.Reserves() || !record.HeldBy(a.UID, a.Effect.Attempt) {
		return nil
	}
	if o := a.Observation; o != nil {
		if o.Moment != Eager {
			return nil
		}
		if step := pending(s, a); step != nil {
			return step
		}
		if !o.settles() || s.Stated || record.Status.State != effect.Ambiguous {
			return nil
		}
		return resolutionOf(a, record, end)
	}
	// Only an executor that says itself that it does not know has ended: one that was lost may still act.
	if record.Status.State != effect.Ambiguous || record.Status.Cause != effect.ReportedUnknown {
		return nil
	}
	named := s.World.Executors.of(a.Type)
	if len(named) != 1 || named[0].Invalid != "" {
		return nil
	}
	x := s.mayObserve(&named[0], record)
	if x == nil || !x.Eager || a.Executor != nil && *a.Executor != *named[0].ref() {
		return nil
	}
	if s.Effect.Presence != Fresh {
		return Read{Object: TheEffect, Name: record.Name}
	}
	return begun(a, a.Status, s, &named[0], record, Eager)
}

// Overdue says why an observer must not be asked after all; "" if it may.
func (x Observe) Overdue(w World) string {
	switch {
	case len(w.Holds) > 0:
		return "the namespace was held: " + w.Holds[0].Message
	case w.Observe:
		return "nothing is enforced any more"
	case !w.Executors.stand(x.ActionType, x.Status.Observation.Executor):
		return "the Executor was not there any more, or another one (" + string(decision.ExecutorChanged) + ")"
	}
	return ""
}
