package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/chaos/remote"
)

// person is somebody who answers, with an identity and a client of their own.
type person struct {
	sdk  *client.Client
	name string
}

// approve says yes to everything that people are asked about, until ctx is done.
func (p *person) approve(ctx context.Context) error {
	return p.each(ctx, v1alpha1.ActionAwaitingApproval, func(ctx context.Context, a *v1alpha1.Action) (bool, error) {
		o := &v1alpha1.Approval{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace},
			Spec: v1alpha1.ApprovalSpec{
				ActionRef:  v1alpha1.ObjectReference{Name: a.Name, UID: a.UID},
				ActionType: a.Spec.ActionType,
				ActionHash: a.Status.ActionHash,
				EffectKey:  &a.Status.Effect.Key,
				Decision:   v1alpha1.Approved,
				Reason:     "the soak approves whatever it proposed",
				Approver:   p.name,
			},
		}
		return true, p.sdk.CreateStatement(ctx, o, client.StatementName(a.Name, p.name), func(existing kube.Object) bool {
			return existing.(*v1alpha1.Approval).Spec.ActionRef.UID == a.UID
		})
	})
}

// resolve finds out what became of everything that is Ambiguous, in the remote's own records, and says so, until ctx is done.
// freed is told of what may be attempted again. Without anybody who does this, Ambiguous effects would pile up, and the
// operator rightly keeps every one of them.
func (p *person) resolve(ctx context.Context, records *remote.Server, freed func(payment string)) error {
	return p.each(ctx, v1alpha1.ActionAmbiguous, func(ctx context.Context, a *v1alpha1.Action) (bool, error) {
		if a.Status.ReceiptRef == nil {
			return false, nil // nobody resolves what they could not read
		}
		o, err := p.resolution(ctx, a, records)
		if err != nil {
			return false, err
		}
		if err := p.sdk.CreateStatement(ctx, o, fmt.Sprintf("%s.%d.%s", o.Spec.EffectRef.Name, o.Spec.Attempt, action.Speaker(p.name)), func(existing kube.Object) bool {
			return existing.(*v1alpha1.Resolution).Spec.ReceiptRef == o.Spec.ReceiptRef
		}); err != nil {
			return false, err
		}
		if err := p.accepted(ctx, o); err != nil {
			return false, err
		}
		if o.Spec.Result == v1alpha1.ResolutionNotExecuted {
			freed(paymentOf(a))
		}
		return true, nil
	})
}

// resolution is what the remote's records say about an Action.
func (p *person) resolution(ctx context.Context, a *v1alpha1.Action, records *remote.Server) (*v1alpha1.Resolution, error) {
	e := &v1alpha1.Effect{}
	if err := p.sdk.Kube().Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Status.Effect.Name}, e); err != nil {
		return nil, err
	}
	o := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef:  v1alpha1.ObjectReference{Name: e.Name, UID: e.UID},
			Attempt:    a.Status.Effect.Attempt,
			ActionType: a.Spec.ActionType,
			Result:     v1alpha1.ResolutionCommitted,
			ReceiptRef: v1alpha1.ReceiptReference{Name: a.Status.ReceiptRef.Name, Hash: a.Status.ReceiptRef.Hash},
			Reason:     "the records of the remote show it",
			Resolver:   p.name,
		},
	}
	if !records.Executed(a.Namespace, a.Status.Effect.Key, a.Status.Effect.Attempt) {
		o.Spec.Result = v1alpha1.ResolutionNotExecuted
		o.Spec.Reason, o.Spec.Evidence = "the records of the remote do not show it", "records of the remote"
	}
	return o, nil
}

// accepted returns when a Resolution counts, and an error if it does not.
func (p *person) accepted(ctx context.Context, o *v1alpha1.Resolution) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for update := range p.sdk.Follow(ctx, o) {
		if update.Err != nil {
			return fmt.Errorf("follow resolution %s: %w", o.Name, update.Err)
		}
		verdict := meta.FindStatusCondition(update.Object.(*v1alpha1.Resolution).Status.Conditions, v1alpha1.AcceptedCondition)
		switch {
		case verdict == nil:
		case verdict.Status == metav1.ConditionTrue:
			return nil
		default:
			return fmt.Errorf("resolution %s does not count: %s: %s", o.Name, verdict.Reason, verdict.Message)
		}
	}
	return fmt.Errorf("resolution %s has no verdict: %w", o.Name, ctx.Err())
}

// each shows the Actions that are in a state, those of now and those to come, until ctx is done. An Action is shown at each
// change until answer says that it was answered.
func (p *person) each(ctx context.Context, state v1alpha1.ActionState, answer func(context.Context, *v1alpha1.Action) (bool, error)) error {
	answered := map[types.UID]bool{}
	look := func(a *v1alpha1.Action) error {
		if answered[a.UID] || a.Status.State != state {
			return nil
		}
		done, err := answer(ctx, a)
		answered[a.UID] = done
		return err
	}
	for ctx.Err() == nil {
		err := p.follow(ctx, state, look)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// follow lists once and then watches, until the watch ends.
func (p *person) follow(ctx context.Context, state v1alpha1.ActionState, look func(*v1alpha1.Action) error) error {
	of := []kube.ListOption{kube.InNamespace(p.sdk.Namespace()), kube.MatchingFields{"status.state": string(state)}}
	list := &v1alpha1.ActionList{}
	if err := p.sdk.Kube().List(ctx, list, of...); err != nil {
		return err
	}
	for i := range list.Items {
		if err := look(&list.Items[i]); err != nil {
			return err
		}
	}
	w, err := p.sdk.Kube().Watch(ctx, &v1alpha1.ActionList{}, append(of, &kube.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})...)
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		a, ok := event.Object.(*v1alpha1.Action)
		if !ok {
			return nil // an error such as "too old": it is listed again
		}
		if err := look(a); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long the operator may take for one thing before the soak calls it stuck.
const patience = 2 * time.Minute
