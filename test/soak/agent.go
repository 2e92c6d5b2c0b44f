package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/remote"
)

const (
	// actionType that is proposed; askedFrom is the amount from which people are asked.
	actionType = "stripe.refund"
	askedFrom  = 501
	// remoteTimeout is how long an executor waits for the remote.
	remoteTimeout = 500 * time.Millisecond
	// lease of all executions but those whose lease is to lapse.
	lease = 5 * time.Minute
	// shortLease is the shortest there is.
	shortLease = 30 * time.Second
	// stall is for how long, at most, an execution whose lease is to lapse says nothing: until the lapse was declared.
	stall = shortLease + patience
)

// agent proposes, executes and reports under an identity of its own.
type agent struct {
	scene  *scene
	sdk    *client.Client
	number int
}

// work handles one card at each turn, one after the other, until there are no more turns. Only an execution that stalls until its
// lease lapses is left to itself meanwhile: an agent may have several of them.
func (a *agent) work(ctx context.Context, g *group, d *deck, turns <-chan struct{}) error {
	for range turns {
		c := d.deal()
		if c.kind == leaseLapse {
			g.start(func() error { return a.govern(ctx, c) })
			continue
		}
		if err := a.govern(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// govern takes one action through its whole life. An end that the protocol has a word for is no error; where it stands in the
// record is what is judged.
func (a *agent) govern(ctx context.Context, c card) error {
	payment := a.scene.payments.next()
	call, err := a.sdk.Propose(ctx, request(c, payment))
	if err != nil {
		return fmt.Errorf("agent %d: propose a refund of %s: %w", a.number, payment, err)
	}
	a.scene.dealt.note(call.Action(), c)
	waiting, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	err = a.execute(waiting, call, c)
	if ctx.Err() != nil {
		return nil // the run is given up
	}
	if !expected(err) {
		return fmt.Errorf("agent %d: action %s: %w", a.number, call.Action().Name, err)
	}
	a.scene.finished.Add(1)
	if call.Action().Status.State == v1alpha1.ActionFailed {
		a.scene.payments.again(payment)
	}
	return nil
}

// request of a card.
func request(c card, payment string) client.Proposal {
	r := client.Proposal{
		ActionType: actionType, LeaseDuration: lease,
		Arguments: map[string]any{"payment_id": payment, "amount": askedFrom - 1},
	}
	if c.path == approved {
		r.Arguments["amount"] = askedFrom
	}
	if c.kind == leaseLapse {
		r.LeaseDuration = shortLease
	}
	return r
}

// expected reports whether an execution ended in a way that the protocol has a word for.
func expected(err error) bool {
	var ended *client.EndedError
	var unknown *client.UnknownError
	var late *client.LeaseError
	return err == nil || errors.As(err, &ended) || errors.As(err, &unknown) || errors.As(err, &late)
}

// exception is what an executor panics with when its remote failed in a way it has no word for.
type exception struct{ error }

// execute waits until it may, and does what the card says. An executor that panics takes nothing with it but its own
// execution: the SDK has reported what it could by then.
func (a *agent) execute(ctx context.Context, call *client.Call, c card) (err error) {
	defer func() {
		switch thrown := recover().(type) {
		case nil:
		case exception:
			_, err = call.Wait(ctx)
		default:
			panic(thrown)
		}
	}()
	var broken error
	_, err = call.Execute(ctx, func(ctx context.Context, x client.Execution) (any, error) {
		if i, harmful := injection(x, c); harmful {
			if broken = a.scene.journal.Record(i); broken != nil {
				return nil, client.NotExecuted(broken) // what is not on record must not be caused
			}
		}
		return nil, a.perform(ctx, call, x, c)
	})
	return errors.Join(broken, err)
}

// perform is the executor. Whatever it does wrong is on record by now.
func (a *agent) perform(ctx context.Context, call *client.Call, x client.Execution, c card) error {
	switch c.kind {
	case executorTimeout:
		return a.timeOut(ctx, x, c)
	case unknownException:
		behaviour := remote.Lose
		if c.reaches {
			behaviour = remote.ExecuteAndLose
		}
		panic(exception{a.call(ctx, x, behaviour)})
	case notExecuted:
		return a.call(ctx, x, remote.Refuse)
	case leaseLapse:
		return a.outlive(ctx, call, x, c)
	}
	return a.call(ctx, x, remote.Execute)
}

// timeOut waits for an answer that does not come. The remote got the request, or it was lost on its way.
func (a *agent) timeOut(ctx context.Context, x client.Execution, c card) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	if c.reaches {
		return a.call(ctx, x, remote.ExecuteAndHang)
	}
	<-ctx.Done()
	return errors.New("the remote did not answer in time")
}

// outlive says nothing until the operator has declared the lease over, and reports then what it did: too late.
func (a *agent) outlive(ctx context.Context, call *client.Call, x client.Execution, c card) error {
	err := client.NotExecuted(errors.New("the process was stopped before it began"))
	if c.reaches {
		err = a.call(ctx, x, remote.Execute)
	}
	// The context of an execution ends with its lease. This is the executor that does not look at it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stall)
	defer cancel()
	// If the lapse is never declared this reports in time after all, and the table shows it.
	_, _ = call.Wait(ctx)
	return err
}

// call sends the request to the remote, which behaves as it is told for this Action.
func (a *agent) call(ctx context.Context, x client.Execution, behaviour remote.Behaviour) error {
	a.scene.behaviours.Store(string(x.Action.UID), behaviour)
	return remote.Send(ctx, a.scene.remote.URL(), remote.CallOf(x, a.number, ""))
}

// injection is what a card does to an execution, for the journal; false for a card that does nothing.
func injection(x client.Execution, c card) (judge.Injection, bool) {
	i := judge.Injection{
		Kind: string(c.kind), Namespace: x.Action.Namespace, ActionUID: string(x.Action.UID), Action: x.Action.Name,
		EffectKey: x.Action.Status.Effect.Key, Attempt: x.Action.Status.Effect.Attempt,
	}
	switch c.kind {
	case executorTimeout, unknownException:
		i.Causes = []v1alpha1.EffectCause{v1alpha1.CauseReportedUnknown}
	case notExecuted:
		// It must not make anything Ambiguous.
	case leaseLapse:
		i.Causes, i.HoldUp = []v1alpha1.EffectCause{v1alpha1.CauseLeaseLapsed}, stall
	default:
		return i, false
	}
	return i, true
}
