package client

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
)

// ErrAmbiguous is what *AmbiguousError and *UnknownError have in common: nobody knows whether the effect happened. Whoever gets it must
// not try again, neither under this key nor under another: a person resolves the effect.
var ErrAmbiguous = errors.New("nobody knows whether the effect happened")

// EndedError says that the Action has ended, and not as Committed by this call. Each such end has an error of its own that wraps this one:
// *DeniedError, *ExpiredError, *DuplicateError, *AmbiguousError, *BlockedError, *FailedError. This call executed nothing.
type EndedError struct{ Action *v1alpha1.Action }

func (e *EndedError) Error() string {
	s := e.Action.Status
	text := fmt.Sprintf("action %s is %s", e.Action.Name, s.State)
	if s.State == v1alpha1.ActionObserved {
		text += ", " + string(EndOf(e.Action))
	}
	if s.Reason != "" {
		text += " (" + s.Reason + ")"
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	return text
}

// DeniedError says that a rule or a person said no. To propose the same again changes nothing.
type DeniedError struct {
	*EndedError
	// Reason is a machine word: "rule[2]", "unknown_action", "approval_denied", "no_authority" and others.
	Reason string
}

func (e *DeniedError) Unwrap() error { return e.EndedError }

// ExpiredError says that the time for it was over before it was admitted. It may be proposed again, if it is still wanted.
type ExpiredError struct {
	*EndedError
	// Reason is "approval_expired", "not_claimed" or "not_after".
	Reason string
}

func (e *ExpiredError) Unwrap() error { return e.EndedError }

// DuplicateError says that the effect is another attempt's: it happened already, or somebody is executing it now. Committed, the agent
// has what it wanted; otherwise it may wait, and propose again if it is still wanted.
type DuplicateError struct {
	*EndedError
	// State of the effect: Committed, or Executing.
	State v1alpha1.EffectState
	// OutcomeRef is the Outcome that ended the other attempt, and has its output while the Action is kept. Nil while it executes, and
	// if the agent may not get effects.
	OutcomeRef *v1alpha1.ObjectReference
	// Observer that found out that it happened, when nobody knew; empty if it was on record.
	Observer string
}

func (e *DuplicateError) Error() string {
	if e.Observer == "" {
		return e.EndedError.Error()
	}
	return fmt.Sprintf("action %s was not executed: observer %s found that its effect is committed already", e.Action.Name, e.Observer)
}

func (e *DuplicateError) Unwrap() error { return e.EndedError }

// AmbiguousError says that the effect is Ambiguous by an attempt that was not this call's. This call executed nothing.
type AmbiguousError struct{ *EndedError }

func (e *AmbiguousError) Unwrap() error { return e.EndedError }

// Is makes it an ErrAmbiguous.
func (e *AmbiguousError) Is(target error) bool { return target == ErrAmbiguous }

// BlockedError says that it was allowed, and that something else than a rule refused it. Whether to propose again depends on the reason.
type BlockedError struct {
	*EndedError
	// Reason is a machine word: "attempt_ceiling", "precondition_changed", "not_admitted", "withdrawn" and others.
	Reason string
}

func (e *BlockedError) Unwrap() error { return e.EndedError }

// FailedError says that it was admitted, and that for certain nothing happened. It may be proposed again.
type FailedError struct {
	*EndedError
	// Returned is the error of the Function, or what was given to Report. Nil if another process reported.
	Returned error
}

func (e *FailedError) Error() string { return saying(e.EndedError.Error(), e.Returned) }

func (e *FailedError) Unwrap() []error { return present(e.EndedError, e.Returned) }

// UnknownError says that this call may have executed, and that nobody can tell how that ended, or that it ended and could not be
// recorded. It is an ErrAmbiguous.
type UnknownError struct {
	Action *v1alpha1.Action
	Why    string
	// Err is what kept the end from being known, if anything did.
	Err error
	// Returned is the error of the Function, or what was given to Report.
	Returned error
}

func (e *UnknownError) Error() string {
	return saying(fmt.Sprintf("the outcome of action %s is unknown: %s", e.Action.Name, e.Why), e.Err, e.Returned)
}

// Unwrap gives both errors.
func (e *UnknownError) Unwrap() []error { return present(e.Err, e.Returned) }

// Is makes it an ErrAmbiguous.
func (e *UnknownError) Is(target error) bool { return target == ErrAmbiguous }

// NotExecuted is false, whatever the Function said: nobody has it on record.
func (e *UnknownError) NotExecuted() bool { return false }

// saying is a text and what errors say beside it; one that was made of no words says nothing.
func saying(text string, errs ...error) string {
	for _, err := range present(errs...) {
		if more := err.Error(); more != "" {
			text += ": " + more
		}
	}
	return text
}

func present(errs ...error) []error {
	var out []error
	for _, err := range errs {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// refusedBy is the error for an Action that has ended without this call. If another attempt has the effect, the ledger says which.
func (c *Client) refusedBy(ctx context.Context, action *v1alpha1.Action) error {
	ended := &EndedError{Action: action}
	reason := action.Status.Reason
	switch EndOf(action) {
	case v1alpha1.ActionDenied:
		return &DeniedError{EndedError: ended, Reason: reason}
	case v1alpha1.ActionExpired:
		return &ExpiredError{EndedError: ended, Reason: reason}
	case v1alpha1.ActionCommitted:
		return &DuplicateError{EndedError: ended, State: v1alpha1.EffectCommitted, OutcomeRef: c.outcomeOf(ctx, action)}
	case v1alpha1.ActionAmbiguous:
		return &AmbiguousError{EndedError: ended}
	case v1alpha1.ActionFailed:
		return &FailedError{EndedError: ended}
	}
	switch decision.Reason(reason) {
	case decision.Duplicate:
		return &DuplicateError{EndedError: ended, State: v1alpha1.EffectCommitted, OutcomeRef: c.outcomeOf(ctx, action)}
	case decision.InProgress:
		return &DuplicateError{EndedError: ended, State: v1alpha1.EffectExecuting}
	case decision.AmbiguousEffect:
		return &AmbiguousError{EndedError: ended}
	}
	return &BlockedError{EndedError: ended, Reason: reason}
}

// outcomeOf is the Outcome that ended the attempt at an effect, if the agent may look. It only saves a search.
func (c *Client) outcomeOf(ctx context.Context, action *v1alpha1.Action) *v1alpha1.ObjectReference {
	if action.Status.Effect == nil {
		return nil
	}
	var effect v1alpha1.Effect
	if err := c.kube.Get(ctx, types.NamespacedName{Namespace: action.Namespace, Name: action.Status.Effect.Name}, &effect); err != nil || effect.Status == nil {
		return nil
	}
	return effect.Status.OutcomeRef
}

// end is what is said of an Action that has ended: of what this call executed, or of what kept it from executing.
func (call *Call) end(ctx context.Context) error {
	if !call.admitted(call.action) {
		if EndOf(call.action) == v1alpha1.ActionCommitted {
			return nil
		}
		return call.client.refusedBy(ctx, call.action)
	}
	return endOfExecution(call.action, call.said.returned)
}

// endOfExecution is what is said of an execution whose Action has ended.
func endOfExecution(action *v1alpha1.Action, returned error) error {
	switch EndOf(action) {
	case v1alpha1.ActionCommitted:
		return nil
	case v1alpha1.ActionFailed:
		return &FailedError{EndedError: &EndedError{Action: action}, Returned: returned}
	}
	return &UnknownError{Action: action, Why: "it ended Ambiguous: " + action.Status.Message, Returned: returned}
}

// EndOf is how an Action ended: its state, or of an observed one what it did. An observed one that does not say so ended as
// nobody knows.
func EndOf(action *v1alpha1.Action) v1alpha1.ActionState {
	switch {
	case action.Status.State != v1alpha1.ActionObserved:
		return action.Status.State
	case action.Status.Outcome == "":
		return v1alpha1.ActionAmbiguous
	}
	return action.Status.Outcome
}
