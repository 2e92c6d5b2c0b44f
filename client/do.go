package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Execution is the permission to execute once.
type Execution struct {
	// Action that was admitted.
	Action *v1alpha1.Action
	// Arguments as canonical JSON: exactly what was hashed, and approved if people were asked.
	Arguments []byte
	// Token to send along as idempotency key. Empty for an action without an effect, and in observe mode for one whose effect
	// is not reserved for it.
	Token string
	// LeaseRemaining at the start. The context of the execution is done when it is over; whoever acts later than that may
	// act twice.
	LeaseRemaining time.Duration
}

// Executor does the work, once.
type Executor func(context.Context, Execution) Report

// settleWindow is how long Do waits for the receipt after its report.
const settleWindow = 30 * time.Second

// Do proposes, waits, executes and reports. A nil error means that the effect is committed and has a receipt; in observe mode,
// where the Action ends Observed, that this execution was reported committed. ctx bounds the waiting; once the execution has
// begun it is only passed on.
func (c *Client) Do(ctx context.Context, req Request, execute Executor, progress Progress) (*v1alpha1.Action, error) {
	call, err := c.Propose(ctx, req)
	if err != nil {
		return nil, err
	}
	progress.tell(StageProposed, call.action)
	err = call.Execute(ctx, execute, progress)
	return call.action, err
}

// Execute waits until this process is admitted, executes and reports.
func (call *Call) Execute(ctx context.Context, execute Executor, progress Progress) error {
	if err := call.WaitAdmitted(ctx, progress); err != nil {
		return call.withdraw(ctx, err)
	}
	execution, err := call.execution()
	if err != nil {
		return errors.Join(err, call.GiveUp(ctx, err.Error()))
	}
	if !enoughLease(call.action, execution.LeaseRemaining) {
		late := &LeaseError{Action: call.action, Remaining: execution.LeaseRemaining}
		return errors.Join(late, call.GiveUp(ctx, late.Error()))
	}
	if ctx.Err() != nil {
		return call.withdraw(ctx, &WaitingError{Action: call.action, Err: ctx.Err()})
	}
	report := call.perform(ctx, execute, execution)
	if err := call.Report(ctx, report); err != nil {
		return call.unreported(report, err)
	}
	progress.tell(StageReported, call.action)
	return call.settle(ctx, report)
}

// execution is what an admitted process needs to start.
func (call *Call) execution() (Execution, error) {
	proposal, err := ProposalOf(call.action, v1alpha1.DefaultEnvironment)
	if err != nil {
		return Execution{}, fmt.Errorf("the stored arguments of action %s: %w", call.action.Name, err)
	}
	arguments, err := proposal.CanonicalArguments()
	if err != nil {
		return Execution{}, fmt.Errorf("the stored arguments of action %s: %w", call.action.Name, err)
	}
	return Execution{
		Action:         call.action,
		Arguments:      arguments,
		Token:          call.action.Status.Execution.Token,
		LeaseRemaining: call.RemainingLease(),
	}, nil
}

// RemainingLease is how long this process may still act; 0 if it is not admitted.
func (call *Call) RemainingLease() time.Duration {
	return remainingLease(call.action, call.client.clock.now(), call.asked, time.Now())
}

// EnoughLease reports whether enough of the lease is left to start.
func (call *Call) EnoughLease() bool { return enoughLease(call.action, call.RemainingLease()) }

// perform runs the executor. If it panics, what it did is unknown, and that is reported before the panic goes on.
func (call *Call) perform(ctx context.Context, execute Executor, execution Execution) (report Report) {
	ctx, cancel := context.WithTimeout(ctx, execution.LeaseRemaining)
	defer cancel()
	finished := false
	defer func() {
		if !finished {
			_ = call.Report(ctx, Unknown("the executor panicked"))
		}
	}()
	report = execute(ctx, execution)
	finished = true
	return report
}

// withdraw tells the Action that this process will not start, unless nobody waits for it: the Action has ended, another
// process has it, or what this one said does not count.
func (call *Call) withdraw(ctx context.Context, cause error) error {
	var ended *EndedError
	var elsewhere *ElsewhereError
	var gone *GoneError
	var stranger *NotAgentError
	var uncounted *StatementError
	if errors.As(cause, &ended) || errors.As(cause, &elsewhere) || errors.As(cause, &gone) || call.claimID == "" ||
		errors.As(cause, &stranger) || errors.As(cause, &uncounted) {
		return cause
	}
	if err := call.GiveUp(ctx, "the process stopped waiting"); err != nil {
		return errors.Join(cause, fmt.Errorf("nothing was executed, but that could not be said: %w", err))
	}
	var waiting *WaitingError
	if errors.As(cause, &waiting) {
		waiting.Withdrawn = true
	}
	return cause
}

// unreported is the error for an execution whose report is not stored. Only a certain "nothing happened" stays certain.
func (call *Call) unreported(report Report, err error) error {
	var unknown *UnknownError
	if errors.As(err, &unknown) {
		return err
	}
	return &UnknownError{Action: call.action, Why: fmt.Sprintf("%s could not be reported", report.Result), Err: err}
}

// settle waits for the end that the operator concludes from the report.
func (call *Call) settle(ctx context.Context, report Report) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWindow)
	defer cancel()
	_, err := call.WaitFinished(ctx)
	var uncounted *StatementError
	if errors.As(err, &uncounted) {
		return &UnknownError{Action: call.action, Why: fmt.Sprintf("%s was reported in vain", report.Result), Err: err}
	}
	if err != nil {
		return &UnknownError{Action: call.action, Why: fmt.Sprintf("%s was reported, but the operator has not settled it", report.Result), Err: err}
	}
	return resultOf(call.action)
}

// resultOf is what is said of an execution whose Action has ended.
func resultOf(action *v1alpha1.Action) error {
	switch EndOf(action) {
	case v1alpha1.ActionCommitted:
		return nil
	case v1alpha1.ActionAmbiguous:
		return &UnknownError{Action: action, Why: "it ended Ambiguous: " + action.Status.Message}
	}
	return &EndedError{Action: action}
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
