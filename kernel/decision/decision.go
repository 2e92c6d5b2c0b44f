// Package decision is the vocabulary every other kernel package shares: what a policy can say, how an action can end, and
// the closed list of reasons for it. It imports nothing, so everything may import it.
//
// Literals are the snake_case words of the ctrlrun policy format; they stand in receipts, in status.reason and in exported documents.
// Conditions of custom resources use the CamelCase form, which Reason.Condition computes.
package decision

import (
	"strconv"
	"strings"
)

// Decision is what a policy says about one action.
type Decision string

const (
	// Allow lets the action run without asking anybody.
	Allow Decision = "allow"
	// Approve lets it run once the required people have said yes to its exact hash.
	Approve Decision = "approve"
	// Deny refuses it.
	Deny Decision = "deny"
)

// Valid reports whether d is one of the three decisions. Every other word is an error, never a default.
func (d Decision) Valid() bool { return d == Allow || d == Approve || d == Deny }

// Result is how a finished action ended, as its receipt says it.
type Result string

const (
	// Committed: the executor stated that the effect happened.
	Committed Result = "committed"
	// Failed: it was stated that nothing happened, or the attempt provably never began.
	Failed Result = "failed"
	// Ambiguous: neither of the two is known.
	Ambiguous Result = "ambiguous"
	// Denied: a rule or a person said no; nothing was executed.
	Denied Result = "denied"
	// Blocked: the action was allowed, but the state of its effect or of the system refused it; nothing was executed.
	Blocked Result = "blocked"
	// Observed: the action ran in observe mode.
	Observed Result = "observed"
)

// Reason says why, in one word of a closed list. `rule[N]` is the one family with an index.
type Reason string

// Reasons of a policy decision, and of a denial.
const (
	PlainDecision           Reason = "decision"
	NoMatchingRule          Reason = "no_matching_rule"
	UnknownAction           Reason = "unknown_action"
	PolicyConflict          Reason = "policy_conflict"
	PolicyInvalid           Reason = "policy_invalid"
	EffectKeyError          Reason = "effect_key_error"
	ResourceError           Reason = "resource_error"
	UnrepresentableArgument Reason = "unrepresentable_argument"
	ArgumentsTooLarge       Reason = "arguments_too_large"
	LeaseTooLong            Reason = "lease_too_long"
	ExecutorNeedsEffect     Reason = "executor_needs_effect"
	ExecutorNeedsNotAfter   Reason = "executor_needs_not_after"
	ExecutorConflict        Reason = "executor_conflict"
	ExecutorInvalid         Reason = "executor_invalid"
	ApprovalDenied          Reason = "approval_denied"
	// PolicyDenied and ApprovalRequired say in observe mode what enforce mode would have done: a policy says deny, or asks.
	PolicyDenied     Reason = "policy_denied"
	ApprovalRequired Reason = "approval_required"
	PrincipalExpired Reason = "principal_expired"
	// PolicyChangeUnapproved: nobody would be asked about a change of policies, so it is not applied.
	PolicyChangeUnapproved Reason = "policy_change_unapproved"
)

// Reasons of an authority decision. AuthorityGrant is the one that lets pass; it stands in the timeline, and never is why an
// action ended.
const (
	AuthorityGrant      Reason = "authority_grant"
	AuthorityUnreadable Reason = "authority_unreadable"
	AuthorityEscalation Reason = "authority_escalation"
	AuthorityRevoked    Reason = "authority_revoked"
	AuthorityExpired    Reason = "authority_expired"
	AuthorityConstraint Reason = "authority_constraint"
	NoAuthority         Reason = "no_authority"
)

// Reasons for an action that was allowed but is blocked: nothing was executed.
const (
	Duplicate            Reason = "duplicate"
	InProgress           Reason = "in_progress"
	AmbiguousEffect      Reason = "ambiguous"
	AttemptCeiling       Reason = "attempt_ceiling"
	EffectNameCollision  Reason = "effect_name_collision"
	NotAdmitted          Reason = "not_admitted"
	ProposalChanged      Reason = "proposal_changed"
	StatusMissing        Reason = "status_missing"
	MadeWithoutAdmission Reason = "made_without_admission"
	Withdrawn            Reason = "withdrawn"
	// ExecutorChanged is also why an admitted action is Failed: nothing was executed, for what was to execute it is another one.
	ExecutorChanged Reason = "executor_changed"
)

// Reasons about what an action rests on: what its preconditions name. The last is also why one is denied that did not wait yet, and
// why one is held while the apiserver does not answer.
const (
	PreconditionChanged     Reason = "precondition_changed"
	PreconditionMissing     Reason = "precondition_missing"
	PreconditionUnavailable Reason = "precondition_unavailable"
)

// Reasons for an action that ran out of time before it was admitted.
const (
	ApprovalExpired Reason = "approval_expired"
	NotClaimed      Reason = "not_claimed"
	NotAfter        Reason = "not_after"
)

// Reasons for an action that is held: nothing is denied, it goes on when the cause is gone.
const (
	AdmissionMissing     Reason = "admission_missing"
	LedgerRolledBack     Reason = "ledger_rolled_back"
	ClockSkew            Reason = "clock_skew"
	CachesStale          Reason = "caches_stale"
	NamespaceTerminating Reason = "namespace_terminating"
	WaitingForHolder     Reason = "waiting_for_holder"
	Quota                Reason = "quota"
)

// Reasons for how an executed action ended.
const (
	LeaseLapsed        Reason = "lease_lapsed"
	ReportedUnknown    Reason = "reported_unknown"
	ExecutorLost       Reason = "executor_lost"
	OutcomeNotAccepted Reason = "outcome_not_accepted"
	NeverBegan         Reason = "never_began"
)

// RanOut reports whether r is why an action ran out of time before it was admitted. Such an action is Expired; its receipt
// says denied.
func (r Reason) RanOut() bool {
	switch r {
	case ApprovalExpired, NotClaimed, NotAfter:
		return true
	}
	return false
}

// OfReservation reports whether r is about the record of the effect: it refused the reservation.
func (r Reason) OfReservation() bool {
	switch r {
	case Duplicate, InProgress, AmbiguousEffect, AttemptCeiling, EffectNameCollision:
		return true
	}
	return false
}

// OfPrecondition reports whether r is about what an action rests on.
func (r Reason) OfPrecondition() bool {
	switch r {
	case PreconditionChanged, PreconditionMissing, PreconditionUnavailable:
		return true
	}
	return false
}

// OfAuthority reports whether r is why authority refused an action.
func (r Reason) OfAuthority() bool {
	switch r {
	case AuthorityUnreadable, AuthorityEscalation, AuthorityRevoked, AuthorityExpired, AuthorityConstraint, NoAuthority:
		return true
	}
	return false
}

// Rule is the reason `rule[n]`: the n-th rule of the action's policy entry decided, counted from zero.
func Rule(n int) Reason {
	return Reason("rule[" + strconv.Itoa(n) + "]")
}

// Condition is the CamelCase form a Kubernetes condition carries: unknown_action is UnknownAction, rule[1] is Rule1.
func (r Reason) Condition() string {
	var b strings.Builder
	up := true
	for _, c := range r {
		switch {
		case c == '_' || c == '[' || c == ']':
			up = true
		case up:
			b.WriteString(strings.ToUpper(string(c)))
			up = false
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
