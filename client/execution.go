package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/json"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

// Execution is the permission to execute once, while the lease lasts.
type Execution struct {
	// Action that was admitted.
	Action *v1alpha1.Action
	// Arguments that were hashed, and approved if people were asked, parsed from CanonicalArguments. A value is nil, bool, string,
	// int64, []any or map[string]any: there are no fractions. Decode reads them into a struct.
	Arguments map[string]any
	// CanonicalArguments is the JSON text that was hashed: sorted keys, no whitespace.
	CanonicalArguments []byte
	// Token to send along as idempotency key: the same for one effect and attempt, another for the next. Empty for an action
	// without an effect, and in observe mode for one whose effect is not reserved for it.
	Token string
	// LeaseRemaining when this was made. Whoever acts later than that may act twice. The context of a Function is done by then.
	LeaseRemaining time.Duration
}

// Decode reads the arguments into a struct, by its json tags. It is strict: names are case-sensitive, and an argument that the struct
// has no field for is an error, because whoever leaves out what people approved does something else.
func (x Execution) Decode(into any) error {
	strict, err := json.UnmarshalStrict(x.CanonicalArguments, into)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return fmt.Errorf("the arguments do not fit %T: %w", into, err)
	}
	return nil
}

// Claim waits until this process may execute, and makes a Claim whenever the Action asks for one: when people have said yes, or when it
// was proposed Unclaimed. A nil error is the permission to execute once, while the lease lasts; whoever has it must Report, or GiveUp.
// It does not withdraw when ctx is done: the Action goes on waiting.
//
// The errors are those of an Action that has ended (*EndedError and what wraps it), *WaitingError when ctx is done first,
// *ElsewhereError, *LeaseError, *NotAgentError, *GoneError, and *StatementError when the Claim does not count. A call that was given its
// permission, or that gave it up, gets no other.
func (call *Call) Claim(ctx context.Context) (Execution, error) {
	if call.begun || call.gaveUp || call.said.result != "" {
		return Execution{}, fmt.Errorf("action %s: %w", call.action.Name, errOnce)
	}
	if err := call.waitAdmitted(ctx); err != nil {
		return Execution{}, err
	}
	execution, err := call.execution()
	if err != nil {
		return Execution{}, errors.Join(err, call.GiveUp(ctx, err.Error()))
	}
	if !enoughLease(call.action, execution.LeaseRemaining) {
		late := &LeaseError{Action: call.action, Remaining: execution.LeaseRemaining}
		return Execution{}, errors.Join(late, call.GiveUp(ctx, late.Error()))
	}
	call.begun = true
	return execution, nil
}

// errOnce keeps a call from executing twice: what it has seen of its Action may be older than what it did.
var errOnce = errors.New("this call has begun or given up its execution: nothing was executed again")

// execution is what an admitted process needs to start.
func (call *Call) execution() (Execution, error) {
	x := Execution{
		Action:         call.action,
		Token:          call.action.Status.Execution.Token,
		LeaseRemaining: remainingLease(call.action, call.client.clock.now(), call.asked, time.Now()),
	}
	proposal, err := KernelProposal(call.action, v1alpha1.DefaultEnvironment)
	if err == nil {
		x.CanonicalArguments, err = proposal.CanonicalArguments()
	}
	if err == nil {
		x.Arguments, err = parseArguments(x.CanonicalArguments, proposal.Arguments)
	}
	if err != nil {
		return Execution{}, fmt.Errorf("the stored arguments of action %s: %w", call.action.Name, err)
	}
	return x, nil
}

// parseArguments reads canonical arguments back into plain values. Nothing with a larger number is admitted; if it were, it would not
// be handed on rounded.
func parseArguments(text []byte, arguments map[string]any) (map[string]any, error) {
	if pointer, ok := action.CheckStored(arguments); !ok {
		return nil, fmt.Errorf("the number at %q does not fit 64 bits", pointer)
	}
	parsed := map[string]any{}
	err := utiljson.Unmarshal(text, &parsed)
	return parsed, err
}
