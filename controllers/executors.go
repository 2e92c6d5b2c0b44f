package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

// Executors executes what the operator itself is to execute.
type Executors interface {
	// Check says what is wrong with an Executor, beyond what its schema says.
	Check(o *v1alpha1.Executor) error
	// Slot takes one of the executions an Executor may run at a time, for an action. run executes it, for as long as its context lasts
	// at the most, and says how it ended: Committed, Failed for not executed, or Ambiguous, perhaps asked back. going is with what it goes
	// on, nil if it begins. release, which is called once, gives the slot back. If there is none now both are nil, and freed is called once
	// there may be.
	Slot(o *v1alpha1.Executor, action types.UID, freed func()) (run func(context.Context, *v1alpha1.Action, *flow.Going) effect.Settlement, release func())
	// Look asks an Executor that observes, for an action, what became of an attempt, for as long as the context lasts at the most. Why says,
	// of an answer that is unknown, for what reason.
	Look(ctx context.Context, o *v1alpha1.Executor, a *v1alpha1.Action, key string, attempt int64, token string) (answer flow.Answer, why string)
}

// noExecutors is of an operator that was not told how to execute anything.
type noExecutors struct{}

func (noExecutors) Check(*v1alpha1.Executor) error {
	return fmt.Errorf("this operator executes nothing itself")
}

func (noExecutors) Slot(*v1alpha1.Executor, types.UID, func()) (func(context.Context, *v1alpha1.Action, *flow.Going) effect.Settlement, func()) {
	return nil, nil
}

func (noExecutors) Look(context.Context, *v1alpha1.Executor, *v1alpha1.Action, string, int64, string) (flow.Answer, string) {
	return flow.AnswerUnknown, "this operator asks nobody"
}

// executorCache judges each Executor once.
type executorCache struct {
	cache client.Reader
	check func(*v1alpha1.Executor) error

	mu     sync.Mutex
	judged map[types.UID]judgedExecutor
}

type judgedExecutor struct {
	key        types.NamespacedName
	generation int64
	executor   flow.Executor
}

// set is the Executors of a namespace.
func (c *executorCache) set(ctx context.Context, namespace string) (flow.Executors, error) {
	list := &v1alpha1.ExecutorList{}
	if err := c.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read executors: %w", err)
	}
	var set flow.Executors
	for i := range list.Items {
		if o := &list.Items[i]; records.InForce(o) { // shared with the cache: read, never written
			set = append(set, c.judge(o))
		}
	}
	slices.SortFunc(set, func(a, b flow.Executor) int { return strings.Compare(a.Name, b.Name) })
	return set, nil
}

func (c *executorCache) judge(o *v1alpha1.Executor) flow.Executor {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.judged[o.UID]; ok && known.generation == o.Generation {
		return known.executor
	}
	x := records.Executor(o, c.check)
	c.judged[o.UID] = judgedExecutor{key: client.ObjectKeyFromObject(o), generation: o.Generation, executor: x}
	return x
}

func (c *executorCache) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, known := range c.judged {
		if known.key == key {
			delete(c.judged, uid)
		}
	}
}

// executorReconciler says of each Executor whether it is valid and in force, and what its hash is.
type executorReconciler struct {
	client    client.Client
	clock     Clock
	executors *executorCache
}

var _ reconcile.Reconciler = &executorReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *executorReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.Executor{}
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.executors.forget(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	set, err := r.executors.set(ctx, o.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	x := r.executors.judge(o)
	next := o.DeepCopy()
	s := &next.Status
	s.ObservedGeneration, s.Hash = o.Generation, x.Hash
	mark := func(ready bool, reason, message string) {
		records.SetCondition(&s.Conditions, o.Generation, r.clock.Now(), v1alpha1.ReadyCondition, ready, reason, message)
		if ready {
			message = "Nothing is wrong with it."
		}
		records.SetCondition(&s.Conditions, o.Generation, r.clock.Now(), v1alpha1.StalledCondition, !ready, reason, message)
	}
	switch conflicts := set.Conflicts(o.Name); {
	case x.Invalid != "":
		mark(false, v1alpha1.ReasonExecutorInvalid, "The actions it names are denied (executor_invalid) until it is replaced: "+x.Invalid)
	case len(conflicts) > 0:
		mark(false, v1alpha1.ReasonExecutorConflict, "It has an action type in common with "+strings.Join(conflicts, ", ")+". Actions of such a type are denied (executor_conflict) until one of them is deleted.")
	default:
		does := "It executes "
		if x.OnlyObserves {
			does = "Agents execute, and it looks what became of, "
		}
		mark(true, "InForce", does+strings.Join(o.Spec.ActionTypes, ", ")+".")
	}
	if equalStatus(o.Status, next.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Status().Update(ctx, next))
}

func (r *executorReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("executor").
		For(&v1alpha1.Executor{}).
		// A conflict is between two; the other one has to say so too.
		Watches(&v1alpha1.Executor{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			list := &v1alpha1.ExecutorList{}
			if err := r.client.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
				return nil
			}
			var requests []reconcile.Request
			for i := range list.Items {
				if list.Items[i].Name != o.GetName() {
					requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
				}
			}
			return requests
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options).
		Complete(r)
}
