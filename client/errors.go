package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// ElsewhereError says that the Action was admitted for another process of the same agent, or for an Executor of the operator. Nothing was
// executed here; Wait says how it ends.
type ElsewhereError struct{ Action *v1alpha1.Action }

func (e *ElsewhereError) Error() string {
	if execution := e.Action.Status.Execution; execution != nil && execution.Mode == v1alpha1.ExecutionModeOperator {
		return fmt.Sprintf("action %s is executed by the operator, not by this process: wait for how it ends", e.Action.Name)
	}
	return fmt.Sprintf("action %s was admitted for another process: it executes, not this one", e.Action.Name)
}

// NotAgentError says that somebody else proposed the Action: only that identity executes and reports it. Nothing was sent.
type NotAgentError struct {
	Action   *v1alpha1.Action
	Username string
}

func (e *NotAgentError) Error() string {
	return fmt.Sprintf("action %s was proposed by %s, and only that identity claims, executes and reports it: you are %s",
		e.Action.Name, e.Action.Spec.Principal.Agent, e.Username)
}

// NotAdmittedError says that this process was not admitted, so that it has nothing to report. Nothing was sent.
type NotAdmittedError struct {
	Action  *v1alpha1.Action
	ClaimID string
}

func (e *NotAdmittedError) Error() string {
	execution := e.Action.Status.Execution
	if execution == nil {
		return fmt.Sprintf("action %s is %s and was never admitted, so there is nothing to report: nothing was sent", e.Action.Name, stateOf(e.Action))
	}
	return fmt.Sprintf("action %s was admitted for claimID %s, not for %s: only the process that was admitted reports, and nothing was sent",
		e.Action.Name, execution.ClaimID, e.ClaimID)
}

// StatementError says that a Claim or an Outcome of this call was stored, and does not count.
type StatementError struct {
	Action  *v1alpha1.Action
	Kind    string // claim or outcome
	Name    string
	Reason  string
	Message string
}

func (e *StatementError) Error() string {
	return fmt.Sprintf("%s %s does not count: %s: %s", e.Kind, e.Name, e.Reason, e.Message)
}

// WaitingError says that the wait is over and the Action has not been decided. Nothing was executed here. Withdrawn says
// whether the Action was told that this process will not start.
type WaitingError struct {
	Action    *v1alpha1.Action
	Withdrawn bool
	Err       error
}

func (e *WaitingError) Error() string {
	text := fmt.Sprintf("action %s is still %s", e.Action.Name, stateOf(e.Action))
	if reason := e.Action.Status.Reason; reason != "" {
		text += " (" + reason + ")"
	}
	switch {
	case errors.Is(e.Err, context.DeadlineExceeded):
		text += ": the time to wait is over"
	case errors.Is(e.Err, context.Canceled):
		text += ": the wait was interrupted"
	case e.Err != nil:
		text += ": " + e.Err.Error()
	}
	if e.Withdrawn {
		text += "; it was withdrawn and nothing was executed"
	}
	return text
}

func (e *WaitingError) Unwrap() error { return e.Err }

// ApprovalRequiredError is the *WaitingError of an Action that waits for people. Withdrawn, it has to be proposed and approved again:
// wait longer, or propose it Unclaimed, and Attach to it when they have answered.
type ApprovalRequiredError struct {
	*WaitingError
	// Required is how many different people must approve, Counted how many have.
	Required, Counted int64
	// ExpirationTime is until when an answer counts.
	ExpirationTime time.Time
}

func (e *ApprovalRequiredError) Unwrap() error { return e.WaitingError }

// stillWaiting is the error for an Action that is undecided when the wait for it is over.
func (call *Call) stillWaiting(err error) error {
	waiting := &WaitingError{Action: call.action, Err: err}
	approval := call.action.Status.Approval
	if call.action.Status.State != v1alpha1.ActionAwaitingApproval || approval == nil {
		return waiting
	}
	return &ApprovalRequiredError{
		WaitingError: waiting, Required: approval.Required, Counted: approval.Counted, ExpirationTime: approval.ExpirationTime.Time,
	}
}

// LeaseError says that so little of the lease was left that the execution was not started, and that this was reported.
type LeaseError struct {
	Action    *v1alpha1.Action
	Remaining time.Duration
}

func (e *LeaseError) Error() string {
	return fmt.Sprintf("action %s was admitted too late: %s of its lease of %s is left, less than a third; nothing was executed",
		e.Action.Name, e.Remaining.Round(time.Second), leaseDuration(e.Action))
}

// GoneError says that the Action is not there any more. Finished actions are deleted after a time; the receipts stay.
type GoneError struct{ Name string }

func (e *GoneError) Error() string {
	return fmt.Sprintf("action %s is gone: finished actions are deleted after a time, look in the receipts", e.Name)
}

// NoNameError says that every name tried for the Action is taken by other proposals.
type NoNameError struct{ Names []string }

func (e *NoNameError) Error() string {
	return "every name for the action is taken by another proposal: " + strings.Join(e.Names, ", ")
}

// RefusedError says that admission or RBAC refused a statement.
type RefusedError struct {
	What string // such as "propose stripe.refund"
	Err  error
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: refused: %v", e.What, e.Err) }

func (e *RefusedError) Unwrap() error { return e.Err }

// refusal gives an error of a create its type.
func refusal(what string, err error) error {
	if Refused(err) {
		return &RefusedError{What: what, Err: err}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Refused reports whether err is a refusal by RBAC or by an admission policy, as opposed to an object that is not valid.
func Refused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || byAdmission(err)
}

// byAdmission: an admission policy refuses with the code its author chose, 422 if none was chosen; its name is in the message.
func byAdmission(err error) bool {
	return err != nil && apierrors.ReasonForError(err) != "" && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '")
}

// unknownHere reports whether an apiserver said that it knows no right to a create, or not who asks.
func unknownHere(err error) bool {
	var unreadable *unreadableError // the create was allowed
	return (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) && !byAdmission(err) && !errors.As(err, &unreadable)
}

// transient reports whether a request may have had no answer, or an answer that will be another one later. A create that
// failed so may have happened.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var network net.Error
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsUnexpectedServerError(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) ||
		errors.As(err, &network)
}

func stateOf(action *v1alpha1.Action) v1alpha1.ActionState {
	if action.Status.State == "" {
		return v1alpha1.ActionPending
	}
	return action.Status.State
}

// Unreachable reports whether the apiserver did not answer at all.
func Unreachable(err error) bool {
	var network net.Error
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsTimeout(err) || errors.As(err, &network)
}
