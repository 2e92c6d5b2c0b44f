package records

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/effect"
)

// Effect reads an Effect.
func Effect(o *v1alpha1.Effect) *effect.Record {
	r := &effect.Record{Name: o.Name, UID: string(o.UID), Key: o.Spec.Key}
	s := o.Status
	if s == nil {
		return r
	}
	r.Status = &effect.Status{
		State: effect.State(s.State), Attempt: s.Attempt, StartedAttempts: s.StartedAttempts, ActionType: s.ActionType,
		Nonce: s.Nonce, Token: s.Token, Cause: effect.Cause(s.Cause), Transition: s.LastTransitionTime.Time,
		ResolutionsRequired: int(s.ResolutionsRequired),
	}
	if h := s.Holder; h != nil {
		r.Status.Holder = &effect.Holder{Name: h.Name, UID: string(h.UID), Agent: h.Agent, User: h.User}
	}
	if s.LeaseExpirationTime != nil {
		r.Status.Lease = s.LeaseExpirationTime.Time
	}
	if s.OutcomeRef != nil {
		r.Status.Outcome = &effect.Ref{Name: s.OutcomeRef.Name, UID: string(s.OutcomeRef.UID)}
	}
	if s.LateOutcomeRef != nil {
		r.Status.Late = &effect.Late{Name: s.LateOutcomeRef.Name, Result: string(s.LateOutcomeRef.Result)}
	}
	if x := s.Resolution; x != nil {
		r.Status.Resolution = &effect.Resolution{Name: x.Name, UID: string(x.UID), Resolver: x.Resolver, State: effect.State(s.State), QuotedSeq: x.QuotedSeq, QuotedHash: x.QuotedHash, Reason: x.Reason, Evidence: x.Evidence, Observer: x.Observer}
		for _, y := range x.Resolvers {
			r.Status.Resolution.Agreed = append(r.Status.Resolution.Agreed, effect.Agreement{Name: y.Name, UID: string(y.UID), Resolver: y.Resolver, QuotedSeq: y.QuotedSeq, QuotedHash: y.QuotedHash, Reason: y.Reason, Evidence: y.Evidence})
		}
	}
	r.Status.Suspension = suspension(s.Suspension)
	if s.Loss != nil {
		r.Status.Loss = &effect.Loss{Ordinal: s.Loss.Ordinal, Seq: s.Loss.Seq}
	}
	r.Status.Output, r.Status.Error = s.Output, s.Error
	for _, l := range s.History {
		r.Status.History = append(r.Status.History, effect.Line{Attempt: l.Attempt, Action: l.Action, Result: l.Result, Approvals: l.Approvals, Resolution: l.Resolution, Agreed: l.Resolutions})
	}
	return r
}

// EffectStatus is the status that holds the record.
func EffectStatus(s effect.Status) *v1alpha1.EffectStatus {
	n := &v1alpha1.EffectStatus{
		State: v1alpha1.EffectState(s.State), Attempt: s.Attempt, StartedAttempts: s.StartedAttempts, ActionType: s.ActionType,
		Nonce: s.Nonce, Token: s.Token, Cause: v1alpha1.EffectCause(s.Cause), LastTransitionTime: metav1.NewTime(s.Transition),
		ResolutionsRequired: int64(s.ResolutionsRequired),
	}
	if h := s.Holder; h != nil {
		n.Holder = &v1alpha1.EffectHolder{Name: h.Name, UID: types.UID(h.UID), Agent: h.Agent, User: h.User}
	}
	if s.Lease != (time.Time{}) {
		n.LeaseExpirationTime = micro(&s.Lease)
	}
	if s.Outcome != nil {
		n.OutcomeRef = &v1alpha1.ObjectReference{Name: s.Outcome.Name, UID: types.UID(s.Outcome.UID)}
	}
	if s.Late != nil {
		n.LateOutcomeRef = &v1alpha1.LateOutcome{Name: s.Late.Name, Result: v1alpha1.OutcomeResult(s.Late.Result)}
	}
	if x := s.Resolution; x != nil {
		n.Resolution = &v1alpha1.EffectResolution{Name: x.Name, UID: types.UID(x.UID), Resolver: x.Resolver, QuotedSeq: x.QuotedSeq, QuotedHash: x.QuotedHash, Reason: x.Reason, Evidence: x.Evidence, Observer: x.Observer}
		for _, y := range x.Agreed {
			n.Resolution.Resolvers = append(n.Resolution.Resolvers, v1alpha1.EffectResolver{Name: y.Name, UID: types.UID(y.UID), Resolver: y.Resolver, QuotedSeq: y.QuotedSeq, QuotedHash: y.QuotedHash, Reason: y.Reason, Evidence: y.Evidence})
		}
	}
	n.Suspension = suspensionStatus(s.Suspension)
	if s.Loss != nil {
		n.Loss = &v1alpha1.EffectLoss{Ordinal: s.Loss.Ordinal, Seq: s.Loss.Seq}
	}
	n.Output, n.Error = s.Output, Clip(s.Error, 1024)
	for _, l := range s.History {
		n.History = append(n.History, v1alpha1.EffectHistory{Attempt: l.Attempt, Action: l.Action, Result: l.Result, Approvals: l.Approvals, Resolution: l.Resolution, Resolutions: l.Agreed})
	}
	return n
}

func suspension(s *v1alpha1.Suspension) *effect.Suspension {
	if s == nil {
		return nil
	}
	out := &effect.Suspension{Round: s.Round, Continuation: s.Continuation, Question: s.Question, Time: s.Time.Time, Expiration: s.ExpirationTime.Time}
	if s.OutcomeRef != nil {
		out.Outcome = &effect.Ref{Name: s.OutcomeRef.Name, UID: string(s.OutcomeRef.UID)}
	}
	for _, t := range s.Continued {
		out.Continued = append(out.Continued, effect.Taken{Claim: effect.Ref{Name: t.ClaimRef.Name, UID: string(t.ClaimRef.UID)}, ClaimID: t.ClaimID, InputHash: t.InputHash, Time: t.Time.Time})
	}
	return out
}

func suspensionStatus(s *effect.Suspension) *v1alpha1.Suspension {
	if s == nil {
		return nil
	}
	n := &v1alpha1.Suspension{Round: s.Round, Continuation: s.Continuation, Question: s.Question, Time: metav1.NewMicroTime(s.Time), ExpirationTime: metav1.NewMicroTime(s.Expiration)}
	if s.Outcome != nil {
		n.OutcomeRef = &v1alpha1.ObjectReference{Name: s.Outcome.Name, UID: types.UID(s.Outcome.UID)}
	}
	for _, t := range s.Continued {
		n.Continued = append(n.Continued, v1alpha1.SuspensionContinued{ClaimRef: v1alpha1.ObjectReference{Name: t.Claim.Name, UID: types.UID(t.Claim.UID)}, ClaimID: t.ClaimID, InputHash: t.InputHash, Time: metav1.NewMicroTime(t.Time)})
	}
	return n
}
