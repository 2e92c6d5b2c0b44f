// Package effect is the record of one logical effect and its state machine.
//
//	          +--------------------- renew: attempt+1, another holder ---------------------+
//	          v                                                                            |
//	(create) Executing ---- Committed                                                      |
//	          |  \--------- Failed <---- released: the attempt provably never began --------+
//	          |                ^
//	          +-- Ambiguous ---+---- resolved by a person, or a program that looked: Committed or Failed
//
// Reserved stands before Executing where the operator itself executes. Committed is final. Failed is the only state another
// attempt may start from, and only a stated "not executed", or an attempt that provably never began, leads there. Nothing
// else ever frees a key: a lapsed lease makes an effect Ambiguous, not Failed.
//
// While it is Executing, an executor may ask back (Suspend) instead of ending the attempt, and one process goes on with the answer
// (Continue): the attempt stays what it is, under the same token, and only its lease moves.
package effect

import (
	"fmt"
	"slices"
	"time"
)

// State is what is known of an effect.
type State string

const (
	Reserved  State = "Reserved"
	Executing State = "Executing"
	Committed State = "Committed"
	Failed    State = "Failed"
	Ambiguous State = "Ambiguous"
)

// Cause is why an effect is Ambiguous.
type Cause string

const (
	LeaseLapsed        Cause = "LeaseLapsed"
	ReportedUnknown    Cause = "ReportedUnknown"
	ExecutorLost       Cause = "ExecutorLost"
	StatusMissing      Cause = "StatusMissing"
	OutcomeNotAccepted Cause = "OutcomeNotAccepted"
)

// Results of an attempt, as a line of history says them.
const (
	DidCommit           = "committed"
	NotExecuted         = "not_executed"
	NeverBegan          = "never_began"
	BecameAmbiguous     = "ambiguous"
	ResolvedCommitted   = "resolved_committed"
	ResolvedNotExecuted = "resolved_not_executed"
)

// HistoryLimit is how many attempts a record remembers by line; the receipts remember all.
const HistoryLimit = 16

// Ref names another object.
type Ref struct{ Name, UID string }

// Holder is the action an attempt belongs to.
type Holder struct{ Name, UID, Agent, User string }

// Late is a report that came after its lease had been declared lapsed.
type Late struct{ Name, Result string }

// Resolution is the statement that settled an ambiguous attempt: the last that was needed for it.
type Resolution struct {
	Name, UID, Resolver string
	// State it says the effect has: Committed, or Failed for not executed.
	State State
	// QuotedSeq and QuotedHash are the receipt it answers; its own receipt comes later in the chain.
	QuotedSeq        int64
	QuotedHash       string
	Reason, Evidence string
	// Observer is what looked, where no person is the source; "": a person said it.
	Observer string
	// Agreed are the statements of all people that were needed, in the order in which they were made, where one was not enough.
	// The last of them is this one.
	Agreed []Agreement
}

// Agreement is one of several statements that settled an attempt together.
type Agreement struct {
	Name, UID, Resolver string
	QuotedSeq           int64
	QuotedHash          string
	Reason, Evidence    string
}

// By are the names of all people whose statements settled the attempt, or of the program whose look did.
func (r Resolution) By() []string {
	if r.Observer != "" {
		return []string{"program " + r.Observer}
	}
	if len(r.Agreed) == 0 {
		return []string{r.Resolver}
	}
	var names []string
	for _, a := range r.Agreed {
		names = append(names, a.Resolver)
	}
	return names
}

// Counts reports whether the statement of that uid is one of those that settled the attempt.
func (r Resolution) Counts(uid string) bool {
	return r.UID == uid || slices.ContainsFunc(r.Agreed, func(a Agreement) bool { return a.UID == uid })
}

// Loss says which loss of the record this state stands for.
type Loss struct {
	// Ordinal counts the losses of this effect, from 1.
	Ordinal int64
	// Seq is a seq of the chain not above its head when the loss was recorded.
	Seq int64
}

const (
	// MaxRounds is how often an attempt may be asked back about.
	MaxRounds = 8
	// RoundTime is how long after an executor asked back somebody has to go on, and to end it or to be asked back.
	RoundTime = 5 * time.Minute
	// MaxContinuation is the most of a continuation, and MaxQuestion the most of a question that a record keeps, in bytes.
	MaxContinuation = 1024
	MaxQuestion     = 4 << 10
)

// FitContinuation reports whether a continuation can be kept and sent as it is: visible ASCII, 1 to MaxContinuation of it.
func FitContinuation(c string) bool {
	for i := range len(c) {
		if c[i] < '!' || c[i] > '~' {
			return false
		}
	}
	return c != "" && len(c) <= MaxContinuation
}

// Suspension is the last time that an executor asked back instead of ending the attempt.
type Suspension struct {
	// Round counts from 1.
	Round int64
	// Continuation is what whoever goes on has to present. The executor made it up.
	Continuation string
	// Question is what it asks, JSON as text, or nothing.
	Question string
	// Time it asked, and until when somebody has to have gone on and ended it, or been asked back.
	Time, Expiration time.Time
	// Outcome is the agent's report by which it asked back; nil: an executor of the operator did.
	Outcome *Ref
	// Continued are the processes that went on after each round, this one's last: it waits as long as there are fewer than rounds.
	Continued []Taken
}

// Taken is the process that went on after a round; nil: nobody has yet.
func (s *Suspension) Taken() *Taken {
	if int64(len(s.Continued)) < s.Round {
		return nil
	}
	return &s.Continued[s.Round-1]
}

// Taken is a process that goes on after an executor asked back.
type Taken struct {
	Claim   Ref
	ClaimID string
	// InputHash is of the canonical answer it brings; "": it brings none.
	InputHash string
	Time      time.Time
}

// Asked is what an executor asks back.
type Asked struct{ Continuation, Question string }

// Line is one attempt in the history.
type Line struct {
	Attempt   int64
	Action    string
	Result    string
	Approvals []string
	// Resolution is the name of the one that settled it, if one did.
	Resolution string
	// Agreed are the names of all that settled it, where one was not enough.
	Agreed []string
}

// Status is the record of an effect.
type Status struct {
	State           State
	Attempt         int64
	StartedAttempts int64
	ActionType      string
	Holder          *Holder
	Nonce           string
	Token           string
	Lease           time.Time
	Cause           Cause
	Transition      time.Time
	Outcome         *Ref
	Late            *Late
	// Output, JSON as text, and Error are what an executor of the operator got; an agent's are in its Outcome.
	Output, Error string
	Resolution    *Resolution
	Loss          *Loss
	// Suspension is the last time the executor of this attempt asked back; nil: it never did.
	Suspension *Suspension
	// ResolutionsRequired is how many people had to say the same when the attempt was reserved, or its record was found lost;
	// 0: it was not said.
	ResolutionsRequired int
	History             []Line
}

// Record is an effect as it is stored. A record without Status lost it: nobody may act on it before it is Ambiguous.
type Record struct {
	Name, UID, Key string
	Status         *Status
}

// HeldBy reports whether the record belongs to that action's attempt.
func (r Record) HeldBy(uid string, attempt int64) bool {
	return r.Status != nil && r.Status.Holder != nil && r.Status.Holder.UID == uid && r.Status.Attempt == attempt
}

// Take is what an action brings to a reservation.
type Take struct {
	Holder     Holder
	ActionType string
	// Began says that the holder may act as soon as it is admitted. Without it the effect is Reserved, and an executor
	// begins later.
	Began bool
	Token string
	Lease time.Time
	// ResolutionsRequired is how many people have to say the same, should nobody know how it ended.
	ResolutionsRequired int
	Now                 time.Time
}

// First is the record of the first attempt.
func First(t Take) Status {
	s := Status{Attempt: 1}
	return s.take(t)
}

// Renew is the next attempt after a failed one. It fails where that would execute an effect twice.
func (s Status) Renew(t Take) (Status, error) {
	switch {
	case s.State != Failed:
		return Status{}, fmt.Errorf("an effect that is %s is not free for another attempt", s.State)
	case s.Holder != nil && s.Holder.UID == t.Holder.UID:
		return Status{}, fmt.Errorf("attempt %d was made by this very action", s.Attempt)
	}
	next := Status{Attempt: s.Attempt + 1, StartedAttempts: s.StartedAttempts, History: s.History}
	return next.take(t), nil
}

func (s Status) take(t Take) Status {
	s.State = Reserved
	if t.Began {
		s.State = Executing
	}
	holder := t.Holder
	s.Holder, s.ActionType, s.Token, s.Lease, s.Transition = &holder, t.ActionType, t.Token, t.Lease, t.Now
	s.ResolutionsRequired = t.ResolutionsRequired
	return s
}

// Begin is the operator's own executor starting to act. The nonce is known to that one process.
func (s Status) Begin(nonce string, now time.Time) (Status, error) {
	switch {
	case s.State != Reserved:
		return Status{}, fmt.Errorf("an effect that is %s cannot begin", s.State)
	case nonce == "":
		return Status{}, fmt.Errorf("an executor begins with a nonce")
	case !now.Before(s.Lease):
		return Status{}, fmt.Errorf("the lease is over")
	}
	s.State, s.Nonce, s.Transition = Executing, nonce, now
	return s, nil
}

// Suspended reports whether the attempt waits for somebody to go on with it.
func (s Status) Suspended() bool {
	return s.State == Executing && s.Suspension != nil && s.Suspension.Taken() == nil
}

// Rounds is how often the executor of this attempt has asked back.
func (s Status) Rounds() int64 {
	if s.Suspension == nil {
		return 0
	}
	return s.Suspension.Round
}

// Suspend is an executor asking back. The attempt goes on being what it is, for RoundTime more at the least.
func (s Status) Suspend(asked Asked, outcome *Ref, now time.Time) (Status, error) {
	switch {
	case s.State != Executing:
		return Status{}, fmt.Errorf("an effect that is %s is not asked back about", s.State)
	case s.Suspended():
		return Status{}, fmt.Errorf("nobody has gone on with round %d", s.Suspension.Round)
	case !FitContinuation(asked.Continuation):
		return Status{}, fmt.Errorf("it has no continuation of 1 to %d visible ASCII characters", MaxContinuation)
	case s.Rounds() >= MaxRounds:
		return Status{}, fmt.Errorf("it was asked back %d times already", MaxRounds)
	case s.Lease.Compare(now) <= 0:
		return Status{}, fmt.Errorf("the lease is over")
	}
	if until := now.Add(RoundTime); until.After(s.Lease) {
		s.Lease = until
	}
	if len(asked.Question) > MaxQuestion {
		asked.Question = "" // whoever goes on does without
	}
	next := &Suspension{Round: s.Rounds() + 1, Continuation: asked.Continuation, Question: asked.Question, Time: now, Expiration: s.Lease, Outcome: outcome}
	if s.Suspension != nil {
		next.Continued = s.Suspension.Continued
	}
	s.Suspension = next
	return s, nil
}

// Continue is one process going on after the executor asked back. The nonce is of an executor of the operator, and "" for an agent.
func (s Status) Continue(taken Taken, nonce string, now time.Time) (Status, error) {
	switch {
	case !s.Suspended():
		return Status{}, fmt.Errorf("nobody waits for it to go on")
	case (nonce == "") != (s.Nonce == "") || nonce != "" && nonce == s.Nonce:
		return Status{}, fmt.Errorf("whoever goes on has another nonce than whoever began, and an agent has none")
	case taken.ClaimID == "" || taken.Claim.UID == "":
		return Status{}, fmt.Errorf("whoever goes on has a claim")
	case s.Lease.Compare(now) <= 0:
		return Status{}, fmt.Errorf("the lease is over")
	}
	suspension := *s.Suspension
	suspension.Continued = append(slices.Clone(suspension.Continued), taken)
	s.Suspension, s.Nonce = &suspension, nonce
	return s, nil
}

// Release frees an attempt that provably never began: it was reserved, but its action was never admitted for it, or no
// executor began before the lease was over. Such an attempt does not count against a ceiling.
func (s Status) Release(now time.Time) (Status, error) {
	if s.State != Reserved && s.State != Executing {
		return Status{}, fmt.Errorf("an effect that is %s cannot be released", s.State)
	}
	if s.Suspension != nil {
		return Status{}, fmt.Errorf("an executor that asked back had begun")
	}
	s.State, s.Transition = Failed, now
	return s.line(NeverBegan, nil), nil
}

// Settlement is how an attempt ended.
type Settlement struct {
	State     State
	Cause     Cause
	Outcome   *Ref
	Approvals []string
	// Output, JSON as text, and Error of an executor of the operator.
	Output, Error string
	// Stated: that nothing was executed is what the other side stated, and not what an executor of the operator concluded.
	Stated bool
	// Asked: the other side asks back. If it may not, this settles the attempt.
	Asked *Asked
	Now   time.Time
}

// Settle ends an attempt that was admitted.
func (s Status) Settle(e Settlement) (Status, error) {
	if s.State != Executing {
		return Status{}, fmt.Errorf("an effect that is %s cannot be settled", s.State)
	}
	result, ok := map[State]string{Committed: DidCommit, Failed: NotExecuted, Ambiguous: BecameAmbiguous}[e.State]
	if !ok {
		return Status{}, fmt.Errorf("an attempt does not end %s", e.State)
	}
	if (e.State == Ambiguous) != (e.Cause != "") {
		return Status{}, fmt.Errorf("a cause goes with Ambiguous, and only with it")
	}
	s.State, s.Cause, s.Outcome, s.Transition = e.State, e.Cause, e.Outcome, e.Now
	s.Output, s.Error = e.Output, e.Error
	s.StartedAttempts++
	return s.line(result, e.Approvals), nil
}

// End is an executor of the operator saying how its attempt ended: settled, or, if it was asked back and may be, waiting for somebody to
// go on.
func (s Status) End(e Settlement) (after Status, suspended bool, err error) {
	if e.Asked != nil {
		if after, err = s.Suspend(*e.Asked, nil, e.Now); err == nil {
			return after, true, nil
		}
		e.Error += ", and is not waited for: " + err.Error()
	}
	after, err = s.Settle(e)
	return after, false, err
}

// Resolve is a person, or a program that looked, saying what really happened.
func (s Status) Resolve(r Resolution, now time.Time) (Status, error) {
	result, ok := map[State]string{Committed: ResolvedCommitted, Failed: ResolvedNotExecuted}[r.State]
	switch {
	case s.State != Ambiguous:
		return Status{}, fmt.Errorf("an effect that is %s is not resolved", s.State)
	case !ok:
		return Status{}, fmt.Errorf("a resolution does not say %q", r.State)
	}
	s.State = r.State
	s.Resolution, s.Transition = &r, now
	s = s.line(result, nil)
	line := &s.History[len(s.History)-1]
	line.Resolution = r.Name
	for _, a := range r.Agreed {
		line.Agreed = append(line.Agreed, a.Name)
	}
	return s, nil
}

// Lost is the record that stands for one whose status, or itself, was lost. Nothing is known but that it may have happened.
// Resolutions is how many people have to say the same, 0 if nobody can say how many.
func Lost(attempt int64, holder *Holder, actionType, token string, started int64, loss Loss, resolutions int, now time.Time) Status {
	s := Status{State: Ambiguous, Attempt: attempt, StartedAttempts: started, Holder: holder, ActionType: actionType, Token: token, Cause: StatusMissing, Loss: &loss, ResolutionsRequired: resolutions, Transition: now}
	return s.line(BecameAmbiguous, nil)
}

// line appends to the history without sharing the earlier record's memory.
func (s Status) line(result string, approvals []string) Status {
	l := Line{Attempt: s.Attempt, Result: result, Approvals: approvals}
	if s.Holder != nil {
		l.Action = s.Holder.Name
	}
	h := append(append([]Line(nil), s.History...), l)
	if len(h) > HistoryLimit {
		h = h[len(h)-HistoryLimit:]
	}
	s.History = h
	return s
}

// HolderName is the name of the action that holds the attempt, for messages.
func (s Status) HolderName() string {
	if s.Holder == nil {
		return "an action that is not on record any more"
	}
	return s.Holder.Name
}
