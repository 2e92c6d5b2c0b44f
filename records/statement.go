package records

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

// Approval reads an Approval.
func Approval(o *v1alpha1.Approval) approval.Answer {
	a := approval.Answer{
		Name: o.Name, UID: string(o.UID),
		ActionUID: string(o.Spec.ActionRef.UID), ActionType: o.Spec.ActionType, Hash: o.Spec.ActionHash, Key: o.Spec.EffectKey,
		Approved: o.Spec.Decision == v1alpha1.Approved, Approver: o.Spec.Approver, Reason: o.Spec.Reason, Created: o.CreationTimestamp.Time,
		RulesHash: o.Status.RulesHash,
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition); c != nil {
		if a.Accepted = c.Status == metav1.ConditionTrue; !a.Accepted {
			a.Refused = c.Reason
		}
	}
	if o.Spec.Claims != nil {
		a.Groups = o.Spec.Claims.Groups
	}
	return a
}

// Claim reads a Claim.
func Claim(o *v1alpha1.Claim) flow.Claim {
	c := flow.Claim{
		Name: o.Name, UID: string(o.UID), ActionUID: string(o.Spec.ActionRef.UID), ClaimID: o.Spec.ClaimID,
		ClaimableTime: o.Spec.ClaimableTime.Time, Claimant: o.Spec.Claimant, Created: o.CreationTimestamp.Time,
	}
	if x := o.Spec.Continuation; x != nil {
		c.Continuation = &flow.Continuation{Round: x.Round, Value: x.Continuation, ActionHash: x.ActionHash}
		c.Continuation.SetInput([]byte(RawJSON(x.Input)))
	}
	return c
}

// Outcome reads an Outcome.
func Outcome(o *v1alpha1.Outcome) *flow.Outcome {
	return &flow.Outcome{
		Name: o.Name, UID: string(o.UID), ActionUID: string(o.Spec.ActionRef.UID), ClaimID: o.Spec.ClaimID,
		Result: flow.OutcomeResult(o.Spec.Result), LeaseLapsed: o.Spec.Reason == v1alpha1.OutcomeReasonLeaseLapsed,
		Reporter: o.Spec.Reporter, Error: o.Spec.Error, Output: RawJSON(o.Spec.Output), Continuation: o.Spec.Continuation, Created: o.CreationTimestamp.Time,
	}
}

// Resolution reads a Resolution.
func Resolution(o *v1alpha1.Resolution) flow.Resolution {
	r := flow.Resolution{
		Name: o.Name, UID: string(o.UID), EffectUID: string(o.Spec.EffectRef.UID), Attempt: o.Spec.Attempt, ActionType: o.Spec.ActionType,
		State: effect.Failed, QuotedName: o.Spec.ReceiptRef.Name, QuotedHash: o.Spec.ReceiptRef.Hash,
		Resolver: o.Spec.Resolver, Observer: o.Spec.Observer, Reason: o.Spec.Reason, Evidence: o.Spec.Evidence, Created: o.CreationTimestamp.Time,
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition); c != nil {
		if r.Judged = Given(c); !r.Judged {
			r.Told = c.Message
		}
	}
	if o.Spec.Result == v1alpha1.ResolutionCommitted {
		r.State = effect.Committed
	}
	return r
}

// Given reports whether a condition Accepted is a verdict. Unknown is none: it says what is missing for one.
func Given(c *metav1.Condition) bool { return c != nil && c.Status != metav1.ConditionUnknown }
