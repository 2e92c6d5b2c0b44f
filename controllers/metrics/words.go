package metrics

import (
	"slices"
	"strings"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// Values of labels come from closed lists, so that nobody who proposes actions can make a metric grow. Two words stand for
// what is in none: a word of a later version, and no word at all.
const (
	other  = "other"
	noWord = "none"
	// anyRule stands for rule[0], rule[1] and so on: which rule it was is in the receipt.
	anyRule = "rule"
)

// word is w if it is one of those, and else other.
func word[W ~string](w W, of []W) string {
	if w == "" {
		return noWord
	}
	if slices.Contains(of, w) {
		return string(w)
	}
	return other
}

// reason of an end. All rules of all policies are one word.
func reason(r decision.Reason) string {
	if strings.HasPrefix(string(r), anyRule+"[") {
		return anyRule
	}
	return word(r, reasons())
}

func reasons() []decision.Reason {
	return append([]decision.Reason{
		decision.PlainDecision, decision.NoMatchingRule, decision.UnknownAction, decision.PolicyConflict, decision.PolicyInvalid,
		decision.EffectKeyError, decision.ResourceError, decision.UnrepresentableArgument, decision.ArgumentsTooLarge,
		decision.LeaseTooLong, decision.ExecutorNeedsEffect, decision.ExecutorNeedsNotAfter, decision.ExecutorConflict, decision.ExecutorInvalid, decision.ApprovalDenied, decision.PrincipalExpired,
		decision.PolicyChangeUnapproved,
		decision.PolicyDenied, decision.ApprovalRequired,
		decision.AuthorityGrant, decision.AuthorityUnreadable, decision.AuthorityEscalation, decision.AuthorityRevoked,
		decision.AuthorityExpired, decision.AuthorityConstraint, decision.NoAuthority,
		decision.Duplicate, decision.InProgress, decision.AmbiguousEffect, decision.AttemptCeiling, decision.EffectNameCollision,
		decision.NotAdmitted, decision.ProposalChanged, decision.StatusMissing, decision.MadeWithoutAdmission, decision.Withdrawn, decision.ExecutorChanged,
		decision.PreconditionChanged, decision.PreconditionMissing,
		decision.ApprovalExpired, decision.NotClaimed, decision.NotAfter,
		decision.LeaseLapsed, decision.ReportedUnknown, decision.ExecutorLost, decision.OutcomeNotAccepted, decision.NeverBegan,
	}, holds()...)
}

func holds() []decision.Reason {
	return []decision.Reason{
		decision.AdmissionMissing, decision.LedgerRolledBack, decision.ClockSkew, decision.CachesStale, decision.NamespaceTerminating,
		decision.WaitingForHolder, decision.Quota, decision.PreconditionUnavailable,
	}
}

func decisions() []decision.Decision {
	return []decision.Decision{decision.Allow, decision.Approve, decision.Deny}
}

func actionStates() []flow.State {
	return []flow.State{
		flow.Pending, flow.AwaitingApproval, flow.Claimable, flow.Admitted,
		flow.Committed, flow.Failed, flow.Ambiguous, flow.Observed, flow.Denied, flow.Blocked, flow.Expired,
	}
}

// outcomes of what was observed.
func outcomes() []flow.State { return []flow.State{flow.Committed, flow.Failed, flow.Ambiguous} }

func effectStates() []effect.State {
	return []effect.State{effect.Reserved, effect.Executing, effect.Committed, effect.Failed, effect.Ambiguous}
}

// unsettled states of an effect, which the operator's cache holds.
func unsettled() []effect.State {
	return []effect.State{effect.Reserved, effect.Executing, effect.Ambiguous}
}

func causes() []effect.Cause {
	return []effect.Cause{effect.LeaseLapsed, effect.ReportedUnknown, effect.ExecutorLost, effect.StatusMissing, effect.OutcomeNotAccepted}
}

func receiptKinds() []string {
	return []string{receipt.KindAction, receipt.KindResolution, receipt.KindStatusMissing, receipt.KindLedgerAccepted, receipt.KindEvent}
}

// Results of asking people.
const (
	granted     = "granted"
	denied      = "denied"
	expired     = "expired"
	invalidated = "invalidated"
)
