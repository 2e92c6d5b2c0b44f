package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
)

// Observer looks whether an attempt happened of which nobody knows, so that a person need not. Its answer becomes a Resolution in the
// name of this process, which needs create on resolutions, and the verb observe on the virtual resource actiontypes for the type. No
// receipt is changed by it: the one of the attempt still says ambiguous, and the one of the Resolution who looked.
type Observer struct {
	// Name of what looks, for the Resolution and its receipt, such as "stripe lookup". 1 to 253 bytes.
	Name string
	// Look asks the system that the effect is in. It is called at most once in a Protect, when an earlier attempt nobody knows the end
	// of is in the way; and where Eager is set, otherwise after this call's own. It has no time limit but the context of Protect. An
	// error says that it does not know; a panic goes on.
	Look func(context.Context, Attempt) (Finding, error)
	// Eager lets Look be called when the function of this call returned an error from which nobody can tell what happened. The error
	// of Protect and its receipt stay what they are. After a panic, the end of the goroutine or of the context nobody looks.
	Eager bool
}

// Attempt is what an Observer gets to know: what names the attempt to the remote, and nothing of the arguments.
type Attempt struct {
	EffectKey string
	// Number of the attempt, from 1.
	Number int64
	// Token the attempt was made with: its idempotency key.
	Token string
}

// Finding is what an Observer found out.
type Finding string

const (
	// FoundCommitted: it happened.
	FoundCommitted Finding = "committed"
	// FoundNotExecuted: it did not happen and will not: whoever tried does not any more. This frees the effect for the next attempt.
	FoundNotExecuted Finding = "not_executed"
	// FoundUnknown: it cannot be told. Every other value is taken as this one.
	FoundUnknown Finding = "unknown"
)

// ObserverError says why a look settled nothing. It is joined to the error that Protect returns in any case.
type ObserverError struct {
	// Name of the Observer.
	Name string
	Err  error
}

func (e *ObserverError) Error() string { return fmt.Sprintf("observer %s: %v", e.Name, e.Err) }

func (e *ObserverError) Unwrap() error { return e.Err }

// check refuses an Observer that could not look or would not be named.
func (o *Observer) check() error {
	switch {
	case o == nil:
		return nil
	case o.Look == nil:
		return errors.New("the observer has no function to look: nothing was proposed and nothing executed")
	case o.Name == "" || len(o.Name) > 253:
		return errors.New("the observer needs a name of 1 to 253 bytes: nothing was proposed and nothing executed")
	}
	return nil
}

// observeWindow bounds each wait of an observation for what the operator writes: the receipt to be quoted, and the verdict.
const observeWindow = 30 * time.Second

// inTheWay is the Action of a proposal that an Ambiguous effect blocked, nil if err says anything else.
func inTheWay(err error) *v1alpha1.Action {
	var ambiguous *AmbiguousError
	if errors.As(err, &ambiguous) {
		if s := ambiguous.Action.Status; s.State == v1alpha1.ActionBlocked && s.Reason == string(decision.AmbiguousEffect) {
			return ambiguous.Action
		}
	}
	return nil
}

// endedUnknown reports whether the function of this call returned an error that left its own effect Ambiguous.
func (call *Call) endedUnknown(err error) bool {
	var unknown *UnknownError
	s := call.action.Status
	return errors.As(err, &unknown) && unknown.Action == call.action && call.said.returned != nil && s.Effect != nil &&
		(s.State == v1alpha1.ActionAmbiguous || s.State == v1alpha1.ActionObserved) && s.Reason == string(decision.ReportedUnknown)
}

// observe lets the observer look at the attempt that left the effect of an Action Ambiguous, states what it found, and gives the state
// that the effect has then. Whoever settled it meanwhile was first, and their answer stands.
func (c *Client) observe(ctx context.Context, o *Observer, named *v1alpha1.ActionEffect) (v1alpha1.EffectState, error) {
	effect, err := c.effect(ctx, named.Name)
	if err != nil {
		return "", err
	}
	record := effect.Status
	switch {
	case record.State != v1alpha1.EffectAmbiguous:
		return record.State, nil
	case record.Cause == v1alpha1.CauseStatusMissing || record.Holder == nil:
		return record.State, errors.New("the record of the effect was lost, and which attempt was the last is a guess: a person resolves it")
	}
	// First the receipt, which can take a while, so that what is found is stated at once.
	quoted, err := c.ambiguousReceipt(ctx, record.Holder)
	if err != nil {
		return record.State, err
	}
	finding, err := o.Look(ctx, Attempt{EffectKey: effect.Spec.Key, Number: record.Attempt, Token: record.Token})
	if err != nil {
		return record.State, fmt.Errorf("does not know: %w", err)
	}
	result, known := map[Finding]v1alpha1.ResolutionResult{FoundCommitted: v1alpha1.ResolutionCommitted, FoundNotExecuted: v1alpha1.ResolutionNotExecuted}[finding]
	switch {
	case !known && finding != FoundUnknown:
		return record.State, fmt.Errorf("its answer is none of committed, not_executed and unknown, and counts as unknown")
	case !known:
		return record.State, errors.New("does not know")
	}
	if err := c.state(ctx, o, effect, quoted, result); err != nil {
		return record.State, err
	}
	if effect, err = c.effect(ctx, named.Name); err != nil {
		return "", err
	}
	return effect.Status.State, nil
}

func (c *Client) effect(ctx context.Context, name string) (*v1alpha1.Effect, error) {
	effect := &v1alpha1.Effect{}
	err := repeat(ctx, observeWindow, transient, func(ctx context.Context) error {
		return c.kube.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: name}, effect)
	})
	if err == nil && effect.Status == nil {
		err = fmt.Errorf("the record %s has lost its status", name)
	}
	return effect, err
}

// ambiguousReceipt waits for the receipt of the Action that holds an Ambiguous effect.
func (c *Client) ambiguousReceipt(ctx context.Context, holder *v1alpha1.EffectHolder) (*v1alpha1.ReceiptReference, error) {
	ctx, cancel := context.WithTimeout(ctx, observeWindow)
	defer cancel()
	like := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: holder.Name, UID: holder.UID}}
	for update := range c.Follow(ctx, like) {
		if update.Err != nil {
			return nil, fmt.Errorf("the Action %s, whose receipt would be quoted, cannot be read: %w", holder.Name, update.Err)
		}
		if ref := update.Object.(*v1alpha1.Action).Status.ReceiptRef; ref != nil {
			return ref, nil
		}
	}
	return nil, fmt.Errorf("the Action %s has no receipt yet that could be quoted: %w", holder.Name, ctx.Err())
}

// state makes the Resolution, and waits for the verdict on it.
func (c *Client) state(ctx context.Context, o *Observer, effect *v1alpha1.Effect, quoted *v1alpha1.ReceiptReference, result v1alpha1.ResolutionResult) error {
	user, err := c.Whoami(ctx)
	if err != nil {
		return err
	}
	record := effect.Status
	resolution := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef:  v1alpha1.ObjectReference{Name: effect.Name, UID: effect.UID},
			Attempt:    record.Attempt,
			ActionType: record.ActionType,
			Result:     result,
			ReceiptRef: v1alpha1.ReceiptReference{Name: quoted.Name, Hash: quoted.Hash},
			Reason:     "A program of the agent looked.",
			Evidence:   fmt.Sprintf("It looked for attempt %d with token %s.", record.Attempt, record.Token),
			Resolver:   user.Username,
			Observer:   o.Name,
		},
	}
	name := StatementName(fmt.Sprintf("%s.%d", effect.Name, record.Attempt), user.Username)
	err = c.CreateStatement(ctx, resolution, name, func(existing kube.Object) bool {
		have := existing.(*v1alpha1.Resolution)
		want := resolution.Spec
		return have.Spec.Resolver == want.Resolver && have.Spec.Observer == want.Observer && have.Spec.EffectRef == want.EffectRef &&
			have.Spec.ReceiptRef == want.ReceiptRef && have.Spec.Result == want.Result && !meta.IsStatusConditionFalse(have.Status.Conditions, v1alpha1.AcceptedCondition)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, observeWindow)
	defer cancel()
	for update := range c.Follow(ctx, resolution) {
		if apierrors.IsForbidden(update.Err) {
			// Whoever may not read it sees by the effect whether it counted, if it was judged by now.
			return nil
		}
		if update.Err != nil {
			return fmt.Errorf("the verdict on the Resolution %s cannot be read: %w", resolution.Name, update.Err)
		}
		verdict := meta.FindStatusCondition(update.Object.(*v1alpha1.Resolution).Status.Conditions, v1alpha1.AcceptedCondition)
		switch {
		case verdict == nil || verdict.Status == metav1.ConditionUnknown:
		case verdict.Status == metav1.ConditionTrue || verdict.Reason == "AnotherWasFirst" || verdict.Reason == "NotAmbiguous":
			return nil
		default:
			return fmt.Errorf("the Resolution %s does not count (%s): %s", resolution.Name, verdict.Reason, verdict.Message)
		}
	}
	return fmt.Errorf("the Resolution %s has no verdict yet: %w", resolution.Name, ctx.Err())
}
