package controllers

import (
	"bytes"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

// actionReconciler takes every unfinished Action as far as it goes.
type actionReconciler struct {
	client client.Client
	passes *passes
}

var _ reconcile.Reconciler = &actionReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *actionReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.passes.runAction(ctx, request.NamespacedName)
}

func (r *actionReconciler) setup(mgr ctrl.Manager, options controller.Options, all <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).Named("action").
		For(&v1alpha1.Action{}).
		// An Action that finishes leaves the cache; whoever waits for its effect looks again.
		Watches(&v1alpha1.Action{}, handler.EnqueueRequestsFromMapFunc(r.waitingForSameEffect)).
		Watches(&v1alpha1.Approval{}, handler.EnqueueRequestsFromMapFunc(actionOf), statementsTell).
		Watches(&v1alpha1.Claim{}, handler.EnqueueRequestsFromMapFunc(actionOf), statementsTell).
		Watches(&v1alpha1.Outcome{}, handler.EnqueueRequestsFromMapFunc(actionOf), statementsTell).
		Watches(&v1alpha1.Effect{}, handler.EnqueueRequestsFromMapFunc(r.actionsOfEffect)).
		// A resolution that is receipted, which its verdict says, lets the next attempt go on.
		Watches(&v1alpha1.Resolution{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.unadmittedFor(ctx, o.GetNamespace(), o.(*v1alpha1.Resolution).Spec.EffectRef.Name)
		})).
		Watches(&v1alpha1.ActionPolicy{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Settings{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted)).
		Watches(&v1alpha1.Grant{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Executor{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// A Delegation counts from when its status says so.
		Watches(&v1alpha1.Delegation{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted), builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			before, now := e.ObjectOld.(*v1alpha1.Delegation).Status.Conditions, e.ObjectNew.(*v1alpha1.Delegation).Status.Conditions
			_, did := accepted(before)
			_, does := accepted(now)
			return did != does || !bytes.Equal(e.ObjectOld.(*v1alpha1.Delegation).Spec.Raw, e.ObjectNew.(*v1alpha1.Delegation).Spec.Raw)
		}})).
		Watches(&v1alpha1.Revocation{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Ledger{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted), builder.WithPredicates(ledgerTurns)).
		// Its environment is part of every hash, and its end ends everything.
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.unadmitted)).
		WatchesRawSource(source.Channel(all, handler.EnqueueRequestsFromMapFunc(r.unadmitted))).
		WatchesRawSource(source.Channel(r.passes.executions.wake, &handler.EnqueueRequestForObject{})).
		WithOptions(options).
		Complete(r)
}

// statementsTell lets through what is said from now on. What was said before a start is in the caches when the first pass
// reads them, and everything unfinished has a pass then; of what was said about finished Actions there is nothing to do.
var statementsTell = builder.WithPredicates(predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion()
	},
})

// actionOf is the Action a statement names.
func actionOf(_ context.Context, o client.Object) []reconcile.Request {
	var ref v1alpha1.ObjectReference
	switch o := o.(type) {
	case *v1alpha1.Approval:
		ref = o.Spec.ActionRef
	case *v1alpha1.Claim:
		ref = o.Spec.ActionRef
	case *v1alpha1.Outcome:
		ref = o.Spec.ActionRef
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}}}
}

func (r *actionReconciler) waitingForSameEffect(ctx context.Context, o client.Object) []reconcile.Request {
	a := o.(*v1alpha1.Action)
	if a.Status.Effect == nil {
		return nil
	}
	return r.list(ctx, o.GetNamespace(), func(other *v1alpha1.Action) bool { return other.UID != a.UID }, client.MatchingFields{byEffectName: a.Status.Effect.Name})
}

// actionsOfEffect are the Actions a change of a record may let go on. What their own pass writes they need not hear of: one
// that was reserved, or settled by a report, is being worked on by whoever did it. What the operator executes is settled by no pass, and
// what is settled leaves the cache as it was before.
func (r *actionReconciler) actionsOfEffect(ctx context.Context, o client.Object) []reconcile.Request {
	if s := o.(*v1alpha1.Effect).Status; s != nil && s.State == v1alpha1.EffectExecuting && s.Nonce == "" {
		return r.unadmittedFor(ctx, o.GetNamespace(), o.GetName())
	}
	return r.list(ctx, o.GetNamespace(), func(*v1alpha1.Action) bool { return true }, client.MatchingFields{byEffectName: o.GetName()})
}

func (r *actionReconciler) unadmittedFor(ctx context.Context, namespace, effect string) []reconcile.Request {
	return r.list(ctx, namespace, func(a *v1alpha1.Action) bool { return a.Status.Execution == nil }, client.MatchingFields{byEffectName: effect})
}

// unadmitted are the Actions of a namespace that are not decided for good. An object without a namespace of its own, such
// as a Ledger, stands for the namespace of its name; one without a name for all.
func (r *actionReconciler) unadmitted(ctx context.Context, o client.Object) []reconcile.Request {
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = o.GetName()
	}
	return r.list(ctx, namespace, func(*v1alpha1.Action) bool { return true })
}

func (r *actionReconciler) list(ctx context.Context, namespace string, want func(*v1alpha1.Action) bool, options ...client.ListOption) []reconcile.Request {
	list := &v1alpha1.ActionList{}
	if err := r.client.List(ctx, list, append(options, client.InNamespace(namespace))...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list actions")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if want(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// effectReconciler looks after every Effect that is not settled, and every one that is being resolved.
type effectReconciler struct {
	client client.Client
	passes *passes
}

var _ reconcile.Reconciler = &effectReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *effectReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.passes.runEffect(ctx, request.NamespacedName, "")
}

func (r *effectReconciler) setup(mgr ctrl.Manager, options controller.Options, all <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).Named("effect").
		// An Effect that is settled leaves the cache. Only of one that was Ambiguous there is more to do: its resolution's
		// receipt, if the operator that resolved it died.
		For(&v1alpha1.Effect{}, builder.WithPredicates(predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
			s := e.Object.(*v1alpha1.Effect).Status
			return s == nil || s.State == v1alpha1.EffectAmbiguous
		}})).
		Watches(&v1alpha1.Resolution{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.(*v1alpha1.Resolution).Spec.EffectRef.Name}}}
		})).
		// A holder that ended, or is gone, leaves an orphan.
		Watches(&v1alpha1.Action{}, handler.EnqueueRequestsFromMapFunc(r.effectsOfAction)).
		Watches(&v1alpha1.Outcome{}, handler.EnqueueRequestsFromMapFunc(r.heldBy), statementsTell).
		Watches(&v1alpha1.Ledger{}, handler.EnqueueRequestsFromMapFunc(r.unsettled), builder.WithPredicates(ledgerTurns)).
		// How many people have to say the same, and who is one person, may be otherwise now.
		Watches(&v1alpha1.ActionPolicy{}, handler.EnqueueRequestsFromMapFunc(r.resolving), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Settings{}, handler.EnqueueRequestsFromMapFunc(r.resolving), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(all, handler.EnqueueRequestsFromMapFunc(r.unsettled))).
		WithOptions(options).
		Complete(r)
}

// effectsOfAction are the unsettled effects an Action holds; and one that has left the cache while a resolution of it still
// waits for its verdict, which may have waited for this Action.
func (r *effectReconciler) effectsOfAction(ctx context.Context, o client.Object) []reconcile.Request {
	requests := r.list(ctx, o.GetNamespace(), client.MatchingFields{byHolderUID: string(o.GetUID())})
	s := o.(*v1alpha1.Action).Status
	if s.Execution == nil || s.Effect == nil {
		return requests
	}
	resolutions := &v1alpha1.ResolutionList{}
	if err := r.client.List(ctx, resolutions, client.InNamespace(o.GetNamespace()), client.MatchingFields{byEffectName: s.Effect.Name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list resolutions")
	}
	if len(resolutions.Items) > 0 {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: s.Effect.Name}})
	}
	return requests
}

func (r *effectReconciler) heldBy(ctx context.Context, o client.Object) []reconcile.Request {
	return r.list(ctx, o.GetNamespace(), client.MatchingFields{byHolderUID: string(o.(*v1alpha1.Outcome).Spec.ActionRef.UID)})
}

// unsettled are the effects of a namespace that are not settled, and those whose resolutions wait for their verdict.
func (r *effectReconciler) unsettled(ctx context.Context, o client.Object) []reconcile.Request {
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = o.GetName()
	}
	return append(r.list(ctx, namespace), r.waiting(ctx, namespace)...)
}

// resolving are the effects of a namespace whose resolutions wait for their verdict.
func (r *effectReconciler) resolving(ctx context.Context, o client.Object) []reconcile.Request {
	return r.waiting(ctx, o.GetNamespace())
}

func (r *effectReconciler) waiting(ctx context.Context, namespace string) []reconcile.Request {
	resolutions := &v1alpha1.ResolutionList{}
	if err := r.client.List(ctx, resolutions, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list resolutions")
	}
	var requests []reconcile.Request
	for i := range resolutions.Items {
		if given, _ := accepted(resolutions.Items[i].Status.Conditions); !given {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: resolutions.Items[i].Spec.EffectRef.Name}})
		}
	}
	return requests
}

// ledgerTurns lets through what changes what may be decided: not the checkpoints, of which there is one a second.
var ledgerTurns = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*v1alpha1.Ledger).Status, e.ObjectNew.(*v1alpha1.Ledger).Status
	if before == nil || now == nil {
		return before != now
	}
	return before.Epoch != now.Epoch || !equalStatus(before.AdmissionSince, now.AdmissionSince) || !equalStatus(before.Conditions, now.Conditions)
}}

func (r *effectReconciler) list(ctx context.Context, namespace string, options ...client.ListOption) []reconcile.Request {
	list := &v1alpha1.EffectList{}
	if err := r.client.List(ctx, list, append(options, client.InNamespace(namespace))...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list effects")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// actionFor reads the Action a statement names. If the name belongs to another uid it is that other Action; nil: there is
// none of that name.
func actionFor(ctx context.Context, from client.Reader, namespace string, ref v1alpha1.ObjectReference) (*flow.Action, error) {
	o := &v1alpha1.Action{}
	if err := from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, o); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return records.Action(o), nil
}
