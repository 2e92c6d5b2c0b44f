package flow

import (
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
)

// Continuation is what a claim presents to go on with an attempt whose executor asked back.
type Continuation struct {
	// Round it answers.
	Round int64
	// Value the executor made up.
	Value string
	// ActionHash is of the action as whoever goes on would do it: its arguments may not be other ones by then.
	ActionHash string
	// Input is the answer, canonical JSON; nil: there is none, or, if Invalid says why, none that can be taken.
	Input     []byte
	InputHash string
	Invalid   string
}

// SetInput takes the JSON text of an answer over in canonical form, or notes why it cannot be taken.
func (c *Continuation) SetInput(text []byte) {
	if len(text) == 0 {
		return
	}
	value, err := canonical.Parse(text)
	if err != nil {
		c.Invalid = "has no canonical form: " + err.Error()
		return
	}
	if pointer, ok := action.CheckStored(value); !ok {
		c.Invalid = fmt.Sprintf("has a number at %q that does not fit 64 bits", pointer)
		return
	}
	encoded, err := canonical.Encode(value)
	switch {
	case err != nil:
		c.Invalid = "has no canonical form: " + err.Error()
	case len(encoded) > MaxOutputBytes:
		c.Invalid = fmt.Sprintf("is longer than %d bytes", MaxOutputBytes)
	default:
		c.Input = encoded
		c.InputHash, _ = canonical.Hash(value) // it has a canonical form
	}
}

// Going is how an executor of the operator goes on.
type Going struct {
	Taken        effect.Taken
	Continuation string
	Input        []byte
}

// ours is the record of the action's own attempt, as far as it is known.
func (s Snapshot) ours() *effect.Record {
	a, e := s.Action.Action, s.Effect.Record
	if a == nil || a.Effect == nil || a.Execution == nil || e == nil || e.Name != a.Effect.Name || !e.HeldBy(a.UID, a.Effect.Attempt) {
		return nil
	}
	return e
}

// leg is the claim of the one process that may execute now, and until when: the one that was admitted, or that went on last.
func (s Snapshot) leg() (claimID string, lease time.Time) {
	x := s.Action.Execution
	claimID, lease = x.ClaimID, x.Lease
	if e := s.ours(); e != nil && e.Status.Suspension != nil {
		lease = e.Status.Lease
		if n := len(e.Status.Suspension.Continued); n > 0 {
			claimID = e.Status.Suspension.Continued[n-1].ClaimID
		}
	}
	return claimID, lease
}

// LockName is the name of the outcome that ends the action's attempt, or the leg of it that is under way; "" while it has no claim.
func (s Snapshot) LockName() string {
	a := s.Action.Action
	claimID := a.ClaimID
	if a.Execution != nil {
		claimID, _ = s.leg()
	}
	if claimID == "" {
		return ""
	}
	return LockName(a.UID, claimID, a.Agent)
}

// askedBack holds an attempt whose agent asks back, if it may. If not, nobody knows how it ended, and outcome says so.
func askedBack(s Snapshot, record effect.Record) Step {
	a, o := s.Action.Action, s.Lock.Outcome
	claimID, _ := s.leg()
	if o == nil || o.Result != ReportAskedBack || o.ActionUID != a.UID || o.ClaimID != claimID || o.Reporter != a.Agent || !o.Created.After(s.World.AdmissionSince) {
		return nil
	}
	if held(s, decision.AdmissionMissing) {
		return nil // anybody may have made it, now
	}
	next, err := record.Status.Suspend(effect.Asked{Continuation: o.Continuation, Question: o.Output}, &effect.Ref{Name: o.Name, UID: o.UID}, s.Now)
	if err != nil {
		return nil
	}
	return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhySuspend}
}

// unheld says why an attempt whose executor asked back was not held.
func (s Snapshot) unheld() string {
	switch e := s.ours(); {
	case e == nil:
		return ", and what has no reserved effect is not held for anybody"
	case e.Status.Rounds() >= effect.MaxRounds:
		return fmt.Sprintf(" more than %d times", effect.MaxRounds)
	}
	return " when its lease was over"
}

// tellSuspension brings on the action what its record says of its executor asking back, before anything else comes of it.
func tellSuspension(s Snapshot, record effect.Record) Step {
	a, now := s.Action.Action, record.Status.Suspension
	if now == nil || a.Suspension != nil && a.Suspension.Round == now.Round && len(a.Suspension.Continued) == len(now.Continued) {
		return nil
	}
	status := a.Status
	status.Suspension = now
	if now.Taken() == nil {
		status.Message = clip(fmt.Sprintf("Its executor asked back (round %d of at most %d), and waits for %s to go on before %s, by a Claim with spec.continuation: kubectl explain claim.spec.continuation", now.Round, effect.MaxRounds, a.Agent, now.Expiration.UTC().Format(time.RFC3339)))
	} else {
		status.Message = fmt.Sprintf("It goes on after its executor asked back (round %d). It has until %s.", now.Round, now.Expiration.UTC().Format(time.RFC3339))
	}
	return WriteAction{Name: a.Name, UID: a.UID, Status: status, Why: WhySuspended}
}

// suspended answers while an attempt waits for somebody to go on with it. Whoever goes on, and whoever declares that nobody did,
// replace the same version of the record: one of them does.
func suspended(s Snapshot, record effect.Record) Step {
	a, x := s.Action.Action, record.Status.Suspension
	due := record.Status.Lease.Add(LapseGrace)
	if !s.Now.Before(due) {
		if step := clockHold(s); step != nil {
			return step
		}
		next, err := record.Status.Settle(effect.Settlement{State: effect.Ambiguous, Cause: effect.LeaseLapsed, Outcome: x.Outcome, Approvals: spent(a), Now: s.Now})
		if err != nil {
			return Read{Object: TheEffect, Name: record.Name}
		}
		return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhySettle}
	}
	// Nobody goes on with less than a third of the time there was: it would be cut off in the middle. Nor when it is not wanted any more.
	before := record.Status.Lease.Add(-min(a.Lease, effect.RoundTime) / 3)
	if a.NotAfter != nil && a.NotAfter.Before(before) {
		before = *a.NotAfter
	}
	claim := s.goesOn(x)
	switch {
	case len(s.World.Holds) > 0:
		return Wait{Until: due, Why: string(s.World.Holds[0].Reason)}
	case claim == nil || !s.Now.Before(before):
		return Wait{Until: due, Why: "continuation"}
	}
	taken := effect.Taken{Claim: effect.Ref{Name: claim.Name, UID: claim.UID}, ClaimID: claim.ClaimID, InputHash: claim.Continuation.InputHash, Time: s.Now}
	if a.Execution.Mode == OperatorMode {
		if a.Executor == nil || !s.World.Executors.stand(a.Type, *a.Executor) {
			return Wait{Until: due, Why: "executor"}
		}
		return Begin{
			EffectName: record.Name, ActionType: a.Type, Executor: *a.Executor, Before: before, Lease: record.Status.Lease,
			Going: &Going{Taken: taken, Continuation: x.Continuation, Input: claim.Continuation.Input},
		}
	}
	next, err := record.Status.Continue(taken, "", s.Now)
	if err != nil {
		return Wait{Until: due, Why: "continuation"}
	}
	return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhyContinue}
}

// goesOn is the oldest claim by which somebody goes on after that round, nil if there is none.
func (s Snapshot) goesOn(x *effect.Suspension) *Claim {
	a := *s.Action.Action
	a.Suspension = x
	var found *Claim
	for i := range s.Claims.Claims {
		c := &s.Claims.Claims[i]
		if c.Continuation == nil || c.Continuation.Round != x.Round || JudgeClaim(&a, *c, s.World.AdmissionSince).Given() {
			continue
		}
		if found == nil || c.Created.Before(found.Created) || c.Created.Equal(found.Created) && strings.Compare(c.Name, found.Name) < 0 {
			found = c
		}
	}
	return found
}

// claimIDs are of all processes that were admitted, or went on, so far.
func (a *Action) claimIDs() []string {
	var all []string
	if a.Execution != nil {
		all = append(all, a.Execution.ClaimID)
	}
	if a.Suspension != nil {
		for _, t := range a.Suspension.Continued {
			all = append(all, t.ClaimID)
		}
	}
	return all
}

// judgeContinuation is the verdict on a claim to go on.
func judgeContinuation(a *Action, c Claim, admissionSince time.Time) Verdict {
	x, now := c.Continuation, a.Suspension
	if now != nil {
		if i := slices.IndexFunc(now.Continued, func(t effect.Taken) bool { return t.Claim.UID == c.UID }); i >= 0 {
			return accepted("Its process goes on after round %d.", i+1)
		}
	}
	switch {
	case a.State.Terminal():
		return refused("ActionFinished", "%s is over: %s (%s). Do not execute anything.", a.Name, a.State, a.Reason)
	case c.Claimant != a.Agent:
		return refused("NotTheAgent", "%s proposed %s; only that identity may go on with it.", a.Agent, a.Name)
	case c.Withdrawn:
		return refused("Withdrawn", "Its own process has said that it will not execute. Claim again.")
	case !c.Created.After(admissionSince):
		return refused("MadeWithoutAdmission", "%s Claim again.", notVouched("It", admissionSince))
	case x.Invalid != "":
		return refused("InputNotAccepted", "The input %s. Nothing was sent.", x.Invalid)
	case now == nil || x.Round > now.Round:
		return Verdict{} // it may be about to be told that its executor asked back
	case slices.Contains(a.claimIDs(), c.ClaimID):
		return refused("ClaimIDTaken", "Its claimID has begun or gone on with %s before, and its outcome has a name already. Claim again with another.", a.Name)
	case x.Round != now.Round, !c.ClaimableTime.Equal(now.Time.Truncate(time.Microsecond)), now.Taken() != nil, subtle.ConstantTimeCompare([]byte(x.Value), []byte(now.Continuation)) != 1, x.ActionHash != a.Hash:
		// Which of these it is says nothing to whoever guesses.
		return refused("UnknownContinuation", "%s does not wait for this: it is another round, another continuation, another action than the one that was admitted, or somebody went on already. Do not execute anything.", a.Name)
	}
	return Verdict{} // the action's pass takes it, or an older one
}
