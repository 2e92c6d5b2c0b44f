package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Function does the work, once. Its context is done when the lease is over, or when the caller's context is. What it returns is what
// is reported:
//
//   - a nil error: Committed. The value is kept in the Outcome if it is JSON without fractions, at most 16 KiB; a value that is
//     not is left out, and the effect is committed all the same.
//   - an error that says that for certain nothing happened (see NotExecuted): Failed, and the effect may be attempted again.
//   - every other error, a panic and runtime.Goexit: nobody knows. The effect is Ambiguous, and a person resolves it.
type Function func(context.Context, Execution) (any, error)

// settleWindow is how long Execute waits for the receipt after its report.
const settleWindow = 30 * time.Second

// Protect proposes an action, waits until this process may execute it, runs f once, reports how it ended, and waits for the receipt.
// A nil error means that the effect is committed; in observe mode, where the Action ends Observed, that this execution was reported
// committed. Every other end is one of the errors of this package, and the Receipt then says what is known.
//
// Where an attempt nobody knows the end of is in the way, p.Observer is asked, if there is one: see Observer.
//
// ctx bounds the waiting: when it is done before f began, the proposal is withdrawn. Once f has begun ctx is only passed on to it, and
// what it did is reported on a context of its own. A panic of f goes on after the report.
func (c *Client) Protect(ctx context.Context, p Proposal, f Function) (Receipt, error) {
	if f == nil {
		return Receipt{}, errNoFunction
	}
	if err := p.Observer.check(); err != nil {
		return Receipt{}, err
	}
	call, err := c.Propose(ctx, p)
	if err != nil {
		return Receipt{}, err
	}
	receipt, err := call.Execute(ctx, f)
	if p.Observer == nil || err == nil {
		return receipt, err
	}
	return c.afterLook(ctx, p, f, call, receipt, err)
}

// afterLook is how a Protect goes on that met an attempt nobody knows the end of, or left one. The observer is called at most once, so
// that whatever comes of it comes without one.
func (c *Client) afterLook(ctx context.Context, p Proposal, f Function, call *Call, receipt Receipt, err error) (Receipt, error) {
	o := p.Observer
	blocked := inTheWay(err)
	if blocked == nil && !(o.Eager && ctx.Err() == nil && call.endedUnknown(err)) {
		return receipt, err
	}
	state, trouble := c.observe(ctx, o, call.action.Status.Effect)
	switch {
	case trouble != nil:
		return receipt, errors.Join(err, &ObserverError{Name: o.Name, Err: trouble})
	case blocked == nil:
		return receipt, err // what this call did is still not known to it, and its receipt says so
	case state == v1alpha1.EffectCommitted:
		return receipt, &DuplicateError{EndedError: &EndedError{Action: blocked}, State: state, OutcomeRef: c.outcomeOf(ctx, blocked), Observer: o.Name}
	case state == v1alpha1.EffectFailed:
		p.Observer = nil
		if p.Name != "" {
			p.Name += ".2"
		}
		return c.Protect(ctx, p, f)
	}
	return receipt, err
}

var errNoFunction = errors.New("there is no function to execute: nothing was proposed and nothing executed")

// Execute is Protect for an Action that is there already: it claims, runs f once, reports, and waits for the receipt.
func (call *Call) Execute(ctx context.Context, f Function) (Receipt, error) {
	if f == nil {
		return call.known(), errNoFunction
	}
	execution, err := call.Claim(ctx)
	if err == nil && ctx.Err() != nil {
		err = call.stillWaiting(ctx.Err())
	}
	if err != nil {
		return call.known(), call.withdraw(ctx, err)
	}
	said := call.perform(ctx, f, execution)
	if err := call.report(ctx, said); err != nil {
		return call.known(), call.unreported(said, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWindow)
	defer cancel()
	return call.Wait(ctx)
}

// perform runs f, and judges how it ended. If f does not return, because it panicked or ended its goroutine, what it did is unknown, and
// that is reported before the panic goes on.
func (call *Call) perform(ctx context.Context, f Function, execution Execution) report {
	ctx, cancel := context.WithTimeout(ctx, execution.LeaseRemaining)
	defer cancel()
	said := report{result: v1alpha1.OutcomeUnknown, text: "the function panicked or ended its goroutine"}
	judged := false
	defer func() {
		if !judged {
			// There is nobody to give an error to: without this report the end of the lease says the same.
			_ = call.report(ctx, said)
		}
	}()
	output, err := f(ctx, execution)
	said = judge(err)
	said.output = encodeOutput(output)
	judged = true
	return said
}

// withdraw tells the Action that this process will not start, unless it was told so, or nobody waits for it: the Action has ended,
// another process has it, or what this one said does not count.
func (call *Call) withdraw(ctx context.Context, cause error) error {
	var ended *EndedError
	var elsewhere *ElsewhereError
	var gone *GoneError
	var stranger *NotAgentError
	var uncounted *StatementError
	if errors.As(cause, &ended) || errors.As(cause, &elsewhere) || errors.As(cause, &gone) || call.claimID == "" || call.gaveUp ||
		errors.Is(cause, errOnce) || errors.As(cause, &stranger) || errors.As(cause, &uncounted) {
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

// unreported is the error for an execution whose report is not stored. Not even a certain "nothing happened" stays certain: the operator
// does not know it, and the effect stays taken.
func (call *Call) unreported(said report, err error) error {
	var unknown *UnknownError
	if errors.As(err, &unknown) {
		return err
	}
	return &UnknownError{Action: call.action, Why: fmt.Sprintf("%s could not be reported", said.result), Err: err, Returned: said.returned}
}
