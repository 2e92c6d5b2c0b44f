// Package timeline is the closed vocabulary of what happens to an action, and the bounded list in which it is kept.
//
// A timeline is an account for people and for whatever watches. Nothing is ever decided by it: the state of an action is
// in its status, what happened to an effect in its record, and the proof in the receipt.
package timeline

import (
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
)

// Type is a word of the closed vocabulary.
type Type string

// What happens to an action, in the order in which it usually happens.
const (
	// ActionProposed: somebody created it.
	ActionProposed Type = "ACTION_PROPOSED"
	// ActionHeld: nothing can be decided at present; data: reason.
	ActionHeld Type = "ACTION_HELD"
	// AuthorityResolved: a grant or delegation lets the principal propose it; data: reason, grant; of a delegation also
	// delegation, depth; break_glass if it is for emergencies. The policy is asked next.
	AuthorityResolved Type = "AUTHORITY_RESOLVED"
	// AuthorityDenied: none does, so no policy is asked; data: reason, and of grant, delegation, dimension, missing_parent,
	// expired_parent, depth_exceeded, cycle_at those that are implicated.
	AuthorityDenied Type = "AUTHORITY_DENIED"
	// PolicyEvaluated: a policy answered; data: decision, reason, rules_hash. Written again when the answer changes.
	PolicyEvaluated Type = "POLICY_EVALUATED"
	// ApprovalRequested: people were asked; data: required, expires.
	ApprovalRequested Type = "APPROVAL_REQUESTED"
	// ApprovalGranted: an approval counts; data: approval, approver.
	ApprovalGranted Type = "APPROVAL_GRANTED"
	// ApprovalDenied: somebody who was asked said no; data: approval, approver.
	ApprovalDenied Type = "APPROVAL_DENIED"
	// ApprovalExpired: not enough people answered in time. ApprovalInvalidated follows.
	ApprovalExpired Type = "APPROVAL_EXPIRED"
	// ApprovalInvalidated: approvals do not count, or not any more; data: reason, and approval, approver of a single one; at_request
	// and at_recheck, the fingerprints, where what the action rests on is another.
	ApprovalInvalidated Type = "APPROVAL_INVALIDATED"
	// ActionClaimable: it may be executed, and waits for a process that says it is there; data: expires.
	ActionClaimable Type = "ACTION_CLAIMABLE"
	// ApprovalConsumed: the admission spent an approval; data: approval, approver.
	ApprovalConsumed Type = "APPROVAL_CONSUMED"
	// EffectReserved: the record of the effect is this action's; data: effect_key, attempt.
	EffectReserved Type = "EFFECT_RESERVED"
	// EffectReservationRefused: the effect cannot be taken; data: reason, effect_key.
	EffectReservationRefused Type = "EFFECT_RESERVATION_REFUSED"
	// ExecutionStarted: one process was admitted and may act from now on; data: claim_id, attempt.
	ExecutionStarted Type = "EXECUTION_STARTED"
	// ExecutionSuspended: the executor asked back, and waits for somebody to go on; data: round, expires.
	ExecutionSuspended Type = "EXECUTION_SUSPENDED"
	// ExecutionResumed: one process goes on after a round; data: round, claim, claim_id, and input_hash of the answer it brings.
	ExecutionResumed Type = "EXECUTION_RESUMED"
	// ReconciliationStarted: an Executor is asked what became of an attempt that nobody knows of; data: executor, attempt, moment.
	ReconciliationStarted Type = "RECONCILIATION_STARTED"
	// ReconciliationResolved: what it said; data: executor, attempt, moment, answer.
	ReconciliationResolved Type = "RECONCILIATION_RESOLVED"
	// ExecutionCommitted: it happened, as its executor stated.
	ExecutionCommitted Type = "EXECUTION_COMMITTED"
	// ExecutionFailed: nothing happened, as stated, or because it never began.
	ExecutionFailed Type = "EXECUTION_FAILED"
	// ExecutionAmbiguous: nobody knows; data: reason.
	ExecutionAmbiguous Type = "EXECUTION_AMBIGUOUS"
	// ActionDenied: it ended because a policy, a person or a limit said no; data: reason.
	ActionDenied Type = "ACTION_DENIED"
	// ActionBlocked: it ended although it was allowed, or before anybody could say; data: reason.
	ActionBlocked Type = "ACTION_BLOCKED"
	// ActionExpired: it ran out of time before it was admitted; data: reason.
	ActionExpired Type = "ACTION_EXPIRED"
	// EffectResolved: a person, or a program that looked, said what really happened; data: resolved_by, resolver, resolution, result.
	EffectResolved Type = "EFFECT_RESOLVED"
)

// What happens without an action. Each is a receipt of kind event in a chain.
const (
	// PolicyInForce: the operator decides by this generation of a policy from now on; data: name, generation, version,
	// policy_hash, rules_hash.
	PolicyInForce Type = "POLICY_IN_FORCE"
	// PolicyRemoved: a policy that was in force is gone; data: name, rules_hash.
	PolicyRemoved Type = "POLICY_REMOVED"
	// SettingsInForce: the operator decides by this generation of the settings from now on; data: name, generation,
	// rules_hash.
	SettingsInForce Type = "SETTINGS_IN_FORCE"
	// SettingsRemoved: the settings are gone, so that the defaults hold; data: name, rules_hash.
	SettingsRemoved Type = "SETTINGS_REMOVED"
	// GrantInForce: the operator decides by this generation of a grant from now on; data: name, generation, rules_hash.
	GrantInForce Type = "GRANT_IN_FORCE"
	// GrantRemoved: a grant that was in force is gone; data: name, rules_hash.
	GrantRemoved Type = "GRANT_REMOVED"
	// DelegationCreated: a delegation counts from now on; data: delegation, parent, parent_uid, depth, delegator, user,
	// reason, break_glass, expires.
	DelegationCreated Type = "DELEGATION_CREATED"
	// DelegationRejected: a delegation never counts; data: delegation, reason, parent, dimension, delegator, user.
	DelegationRejected Type = "DELEGATION_REJECTED"
	// DelegationRevoked: somebody cut a delegation, and all below it; data: delegation, revoker, revocation, reason.
	DelegationRevoked Type = "DELEGATION_REVOKED"
	// AdmissionGap: the admission policies were away, or different; data: admission_since, previous_admission_since,
	// noticed. What was stated before admission_since does not count.
	AdmissionGap Type = "ADMISSION_GAP"
	// ClockSkewDetected: the operator's clock is too far from the apiserver's; data: skew_us, bound_us, threshold_us, direction,
	// measured_at.
	ClockSkewDetected Type = "CLOCK_SKEW_DETECTED"
)

// Types is the whole vocabulary: first what happens to an action, then what happens without one.
func Types() []Type {
	return []Type{
		ActionProposed, ActionHeld, AuthorityResolved, AuthorityDenied, PolicyEvaluated, ApprovalRequested, ApprovalGranted, ApprovalDenied, ApprovalExpired,
		ApprovalInvalidated, ActionClaimable, ApprovalConsumed, EffectReserved, EffectReservationRefused, ExecutionStarted,
		ExecutionSuspended, ExecutionResumed, ReconciliationStarted, ReconciliationResolved,
		ExecutionCommitted, ExecutionFailed, ExecutionAmbiguous, ActionDenied, ActionBlocked, ActionExpired, EffectResolved,
		PolicyInForce, PolicyRemoved, SettingsInForce, SettingsRemoved, GrantInForce, GrantRemoved,
		DelegationCreated, DelegationRejected, DelegationRevoked, AdmissionGap, ClockSkewDetected,
	}
}

// Reason is the word in CamelCase, as Kubernetes Events want it: ExecutionCommitted.
func (t Type) Reason() string {
	var b strings.Builder
	for _, word := range strings.Split(string(t), "_") {
		if word != "" {
			b.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return b.String()
}

// End is the event with which an action ends that has this result for this reason. An observed action ends as what it
// executed did: result is its execution. If only observed is known, nobody knows what it did.
func End(result decision.Result, reason decision.Reason) Type {
	switch {
	case result == decision.Committed:
		return ExecutionCommitted
	case result == decision.Failed:
		return ExecutionFailed
	case result == decision.Ambiguous, result == decision.Observed:
		return ExecutionAmbiguous
	case result == decision.Denied && reason.RanOut():
		return ActionExpired
	case result == decision.Denied:
		return ActionDenied
	case reason.OfReservation():
		return EffectReservationRefused
	}
	return ActionBlocked
}

// Event is one thing that happened.
type Event struct {
	// Seq counts the events of one action from 1. A number is never given twice, also when its event was dropped.
	Seq  int64
	Time time.Time
	Type Type
	// Data by snake_case key; what each type carries is said there.
	Data map[string]string
}

// Bounds of a timeline that is kept.
const (
	// MaxEvents is how many events one action keeps.
	MaxEvents = 32
	// keepFirst is how many of them are the first: how it began is worth more than the middle.
	keepFirst = 12
	// MaxData is the most bytes one value of Data has.
	MaxData = 256
)

// Append adds events to a timeline, numbers them, and drops from the middle what is too many.
func Append(events []Event, more ...Event) []Event {
	var last int64
	if n := len(events); n > 0 {
		last = events[n-1].Seq
	}
	all := append([]Event(nil), events...)
	for _, e := range more {
		last++
		e.Seq = last
		data := make(map[string]string, len(e.Data))
		for k, v := range e.Data {
			if v == "" {
				continue
			}
			if len(v) > MaxData {
				v = strings.ToValidUTF8(v[:MaxData], "")
			}
			data[k] = v
		}
		e.Data = data
		all = append(all, e)
	}
	if excess := len(all) - MaxEvents; excess > 0 {
		all = append(all[:keepFirst:keepFirst], all[keepFirst+excess:]...)
	}
	return all
}

// Since gives the events that came after those of before.
func Since(before, after []Event) []Event {
	var last int64
	if n := len(before); n > 0 {
		last = before[n-1].Seq
	}
	for i, e := range after {
		if e.Seq > last {
			return after[i:]
		}
	}
	return nil
}

// ResolvedBy is who resolved an effect, in one word: the program of that name, which looked, or if it has none a person.
func ResolvedBy(observer string) string {
	if observer != "" {
		return "reconcile"
	}
	return "human"
}
