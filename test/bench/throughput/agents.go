package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/flow"
)

// path is the way an action takes: how much is refunded decides whether people are asked.
type path struct {
	name   string
	amount int
}

var (
	allowPath   = path{name: "allow", amount: 2_000}
	approvePath = path{name: "approve", amount: 200_000}
)

// agent proposes one action at a time, executes nothing, and reports. It sends what an action needs and no more, and learns
// of its own actions by one watch that it keeps.
type agent struct {
	client kube.WithWatch
	user   string
	path   path
	// lease of its actions.
	lease   time.Duration
	watch   watch.Interface
	rewatch func() error // begins the watch where it ended
	version string       // of the last event of that watch
}

// open starts the watch, which lasts as long as ctx. So does one that has to be begun again: whoever notices that waits for
// less.
func (a *agent) open(ctx context.Context) error {
	list := &v1alpha1.ActionList{}
	if err := a.client.List(ctx, list, kube.InNamespace(namespace), kube.Limit(1)); err != nil {
		return err
	}
	a.version = list.ResourceVersion
	a.rewatch = func() error { return a.follow(ctx) }
	return a.rewatch()
}

func (a *agent) follow(ctx context.Context) (err error) {
	a.watch, err = a.client.Watch(ctx, &v1alpha1.ActionList{}, kube.InNamespace(namespace), kube.MatchingFields{"spec.principal.agent": a.user},
		&kube.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: a.version}})
	if err != nil {
		return fmt.Errorf("watch the actions of %s: %w", a.user, err)
	}
	return nil
}

func (a *agent) close() { a.watch.Stop() }

// next is the next state of one of its actions.
func (a *agent) next(ctx context.Context) (*v1alpha1.Action, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e, open := <-a.watch.ResultChan():
			if !open {
				// kube-apiserver ends watches that are not read fast enough, and here they share the processors with everything.
				if err := a.rewatch(); err != nil {
					return nil, err
				}
				continue
			}
			action, ok := e.Object.(*v1alpha1.Action)
			if !ok {
				return nil, apierrors.FromObject(e.Object)
			}
			a.version = action.ResourceVersion
			return action, nil
		}
	}
}

func (a *agent) once(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := sample{began: time.Now()}
	proposed, err := a.propose(ctx)
	if err != nil {
		return s, err
	}
	claimed := 0
	for {
		action, err := a.next(ctx)
		if err != nil {
			return s, fmt.Errorf("waiting for action %s, which was %s %s: %w", proposed.Name, proposed.Status.State, proposed.Status.Reason, err)
		}
		if action.Name != proposed.Name {
			continue
		}
		status := proposed.Status
		proposed = action
		switch {
		case action.Status.ReceiptRef != nil:
			s.ended = time.Now()
			return s, committed(action)
		case action.Status.State == v1alpha1.ActionAdmitted && status.State != v1alpha1.ActionAdmitted:
			s.admitted = time.Now()
			err = a.report(ctx, action)
		case action.Status.State == v1alpha1.ActionClaimable && !action.Status.ClaimableTime.Equal(status.ClaimableTime):
			claimed++
			err = a.claim(ctx, action, claimed)
		}
		if err != nil {
			return s, err
		}
	}
}

// committed refuses an action that ended in another way: it took another path, and is no measurement of this one.
func committed(a *v1alpha1.Action) error {
	if a.Status.State != v1alpha1.ActionCommitted {
		return fmt.Errorf("action %s ended %s (%s): %s", a.Name, a.Status.State, a.Status.Reason, a.Status.Message)
	}
	return nil
}

func (a *agent) propose(ctx context.Context) (*v1alpha1.Action, error) {
	id := uuid.NewString()
	o := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refund-" + id},
		Spec: v1alpha1.ActionSpec{
			ActionType: "stripe.refund", ClaimID: uuid.NewString(), LeaseDurationSeconds: int64(a.lease / time.Second),
			Arguments: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"payment_id":%q,"amount":%d,"currency":"eur","note":"the customer said \"it never arrived\""}`, id, a.path.amount)},
		},
	}
	if err := a.client.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("propose: %w", err)
	}
	o.Status = v1alpha1.ActionStatus{}
	return o, nil
}

// claim says that the agent is still there, as the SDK does.
func (a *agent) claim(ctx context.Context, o *v1alpha1.Action, n int) error {
	name := sdk.StatementName(o.Name, a.user)
	if n > 1 {
		name = fmt.Sprintf("%s.%d", name, n)
	}
	err := a.client.Create(ctx, &v1alpha1.Claim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ClaimSpec{
			ActionRef: v1alpha1.ObjectReference{Name: o.Name, UID: o.UID}, ClaimID: o.Spec.ClaimID, ClaimableTime: *o.Status.ClaimableTime,
		},
	})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	return nil
}

// report says that it is done.
func (a *agent) report(ctx context.Context, o *v1alpha1.Action) error {
	claim := o.Status.Execution.ClaimID
	err := a.client.Create(ctx, &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: flow.LockName(string(o.UID), claim, a.user)},
		Spec:       v1alpha1.OutcomeSpec{ActionRef: v1alpha1.ObjectReference{Name: o.Name, UID: o.UID}, ClaimID: claim, Result: v1alpha1.OutcomeCommitted},
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// sdkAgent does the same by the SDK.
type sdkAgent struct {
	sdk    *sdk.Client
	amount int
}

func newSDKAgent(cfg *rest.Config) (*sdkAgent, error) {
	c, err := sdk.New(cfg, namespace)
	return &sdkAgent{sdk: c, amount: allowPath.amount}, err
}

func (a *sdkAgent) once(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request := sdk.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{
		"payment_id": uuid.NewString(), "amount": a.amount, "currency": "eur", "note": `the customer said "it never arrived"`,
	}}
	s := sample{began: time.Now()}
	_, err := a.sdk.Protect(ctx, request, func(context.Context, sdk.Execution) (any, error) {
		s.admitted = time.Now()
		return nil, nil
	})
	s.ended = time.Now()
	return s, err
}

// approver says yes to whatever asks for an answer, as soon as it does.
type approver struct {
	client kube.WithWatch
	user   string
}

// answer runs until ctx is done, and returns why it could not go on.
func (p *approver) answer(ctx context.Context) error {
	list := &v1alpha1.ActionList{}
	if err := p.client.List(ctx, list, kube.InNamespace(namespace), kube.Limit(1)); err != nil {
		return err
	}
	failed := make(chan error, 1)
	version, err := list.ResourceVersion, error(nil)
	for err == nil {
		version, err = p.follow(ctx, version, failed)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow watches from a version on, and gives the one it has come to when the watch ends.
func (p *approver) follow(ctx context.Context, from string, failed chan error) (string, error) {
	w, err := p.client.Watch(ctx, &v1alpha1.ActionList{}, kube.InNamespace(namespace),
		kube.MatchingFields{"status.state": string(v1alpha1.ActionAwaitingApproval)}, &kube.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}})
	if err != nil {
		return from, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return from, ctx.Err()
		case err := <-failed:
			return from, err
		case e, open := <-w.ResultChan():
			if !open {
				return from, nil
			}
			a, ok := e.Object.(*v1alpha1.Action)
			if !ok {
				return from, apierrors.FromObject(e.Object)
			}
			from = a.ResourceVersion
			if e.Type == watch.Added {
				go p.approve(ctx, a, failed)
			}
		}
	}
}

func (p *approver) approve(ctx context.Context, a *v1alpha1.Action, failed chan<- error) {
	o := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sdk.StatementName(a.Name, p.user)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash,
			Decision: v1alpha1.Approved, Reason: "looked at the delivery",
		},
	}
	if e := a.Status.Effect; e != nil {
		o.Spec.EffectKey = &e.Key
	}
	err := p.client.Create(ctx, o)
	if err == nil || errors.Is(err, context.Canceled) || apierrors.IsAlreadyExists(err) {
		return
	}
	select {
	case failed <- fmt.Errorf("approve %s: %w", a.Name, err):
	default:
	}
}
