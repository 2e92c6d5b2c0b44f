package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

// judge tells the speaker of one statement whether it counts. What it says never admits anything: the Action's own pass
// does, and judges for itself.
type judge[T client.Object] struct {
	client    client.Client
	short     client.Reader // the caches: what is cut is not made whole for a verdict
	reader    client.Reader
	worlds    *worlds
	empty     func() T
	reference func(T) v1alpha1.ObjectReference
	status    func(T) *v1alpha1.StatementStatus
	verdict   func(ctx context.Context, j *judge[T], o T, a *flow.Action) (flow.Verdict, error)
	// first is what of those that were there before this process may be about Actions that are finished.
	first *firstLook
	// note, if there is one, writes what else an accepted statement's status says.
	note func(ctx context.Context, j *judge[T], next T, v flow.Verdict) error
}

// Reconcile implements reconcile.Reconciler.
func (j *judge[T]) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := j.empty()
	if err := j.short.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if c := meta.FindStatusCondition(j.status(o).Conditions, v1alpha1.AcceptedCondition); c != nil {
		return j.sweep(ctx, o, c)
	}
	if j.worlds.admission.Hold() != nil {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	v, err := j.judge(ctx, o)
	if err != nil || !v.Given() {
		return ctrl.Result{}, err
	}
	next := o.DeepCopyObject().(T)
	if outcome, ok := any(next).(*v1alpha1.Outcome); ok && isCut(outcome) {
		// What is written is whole. A status that was written since tells of itself.
		*outcome = v1alpha1.Outcome{}
		if err := j.reader.Get(ctx, request.NamespacedName, outcome); err != nil || outcome.ResourceVersion != o.GetResourceVersion() {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	records.SetCondition(&j.status(next).Conditions, next.GetGeneration(), j.worlds.clock.Now(), v1alpha1.AcceptedCondition, v.Accepted, v.Reason, v.Message)
	if j.note != nil && v.Accepted {
		if err := j.note(ctx, j, next, v); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, client.IgnoreNotFound(j.client.Status().Update(ctx, next))
}

// judge gives the verdict. A refusal is final, so it is never given on what a cache says of the Action.
func (j *judge[T]) judge(ctx context.Context, o T) (flow.Verdict, error) {
	var v flow.Verdict
	for _, from := range []client.Reader{j.client, j.reader} {
		a, err := actionFor(ctx, from, o.GetNamespace(), j.reference(o))
		if err != nil {
			return flow.Verdict{}, err
		}
		if a == nil && from == client.Reader(j.client) {
			continue // the cache holds unfinished ones only
		}
		if v, err = j.verdict(ctx, j, o, a); err != nil || v.Accepted || !v.Given() {
			return v, err
		}
	}
	return v, nil
}

// sweep deletes, after a while, what was said about an Action that is not there: nothing else ever would.
func (j *judge[T]) sweep(ctx context.Context, o T, c *metav1.Condition) (ctrl.Result, error) {
	if c.Reason != v1alpha1.ReasonActionNotFound {
		return ctrl.Result{}, nil
	}
	return j.worlds.sweep(ctx, o, c.LastTransitionTime.Time, nil)
}

// setup watches the statements, and the Actions they are about: a verdict may have to wait for the Action's.
func (j *judge[T]) setup(mgr ctrl.Manager, name string, options controller.Options, list func() client.ObjectList) error {
	b := ctrl.NewControllerManagedBy(mgr).Named(name)
	if j.first != nil {
		b = b.WatchesRawSource(source.Channel(j.first.look, &handler.EnqueueRequestForObject{}))
	}
	return b.
		For(j.empty(), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool {
				o := e.Object.(T)
				if c := meta.FindStatusCondition(j.status(o).Conditions, v1alpha1.AcceptedCondition); c != nil && c.Reason != v1alpha1.ReasonActionNotFound {
					return false // it has its verdict, and goes with its Action
				}
				return !e.IsInInitialList || j.first == nil || !j.first.puts(o)
			},
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion()
			},
		})).
		Watches(&v1alpha1.Action{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			found := list()
			if err := j.client.List(ctx, found, client.InNamespace(o.GetNamespace()), client.MatchingFields{byActionUID: string(o.GetUID())}); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Cannot list statements")
				return nil
			}
			var requests []reconcile.Request
			_ = meta.EachListItem(found, func(item runtimeObject) error {
				statement := item.(T)
				if meta.FindStatusCondition(j.status(statement).Conditions, v1alpha1.AcceptedCondition) == nil {
					requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(statement)})
				}
				return nil
			})
			return requests
		}), builder.WithPredicates(predicate.Funcs{
			// It left the cache because it is finished: whatever there was to judge was judged when it was admitted or ended.
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WithOptions(options).
		Complete(j)
}

func approvalJudge() *judge[*v1alpha1.Approval] {
	return &judge[*v1alpha1.Approval]{
		empty:     func() *v1alpha1.Approval { return &v1alpha1.Approval{} },
		reference: func(o *v1alpha1.Approval) v1alpha1.ObjectReference { return o.Spec.ActionRef },
		status:    func(o *v1alpha1.Approval) *v1alpha1.StatementStatus { return &o.Status.StatementStatus },
		note: func(ctx context.Context, j *judge[*v1alpha1.Approval], next *v1alpha1.Approval, v flow.Verdict) error {
			// One that was spent already says what the admission says of it.
			if next.Status.RulesHash = v.RulesHash; next.Status.RulesHash != "" {
				return nil
			}
			world, _, err := j.worlds.world(ctx, next.Namespace)
			next.Status.RulesHash = world.RulesHash
			return err
		},
		verdict: func(ctx context.Context, j *judge[*v1alpha1.Approval], o *v1alpha1.Approval, a *flow.Action) (flow.Verdict, error) {
			all := &v1alpha1.ApprovalList{}
			if err := j.client.List(ctx, all, client.InNamespace(o.Namespace), client.MatchingFields{byActionUID: string(o.Spec.ActionRef.UID)}); err != nil {
				return flow.Verdict{}, err
			}
			world, _, err := j.worlds.world(ctx, o.Namespace)
			if err != nil {
				return flow.Verdict{}, err
			}
			answer, others := records.Approval(o), answers(all)
			v := flow.JudgeAnswer(world, a, answer, others)
			if !answer.Approved || !v.Accepted && v.Reason != v1alpha1.ReasonNotRequired {
				return v, nil
			}
			// Nobody is told that they count whom the Action's pass will not count, nor that one of those was enough.
			for uid := flow.Unchecked(world, a, others); uid != ""; uid = flow.Unchecked(world, a, others) {
				i := slices.IndexFunc(others, func(x approval.Answer) bool { return x.UID == uid })
				if others[i].Entitlement, err = entitlement(ctx, j.client, o.Namespace, others[i]); err != nil {
					return flow.Verdict{}, err
				}
				if uid == answer.UID {
					answer.Entitlement = others[i].Entitlement
				}
			}
			return flow.JudgeAnswer(world, a, answer, others), nil
		},
	}
}

func claimJudge() *judge[*v1alpha1.Claim] {
	return &judge[*v1alpha1.Claim]{
		empty:     func() *v1alpha1.Claim { return &v1alpha1.Claim{} },
		reference: func(o *v1alpha1.Claim) v1alpha1.ObjectReference { return o.Spec.ActionRef },
		status:    func(o *v1alpha1.Claim) *v1alpha1.StatementStatus { return &o.Status },
		verdict: func(ctx context.Context, j *judge[*v1alpha1.Claim], o *v1alpha1.Claim, a *flow.Action) (flow.Verdict, error) {
			c, err := claimValue(ctx, j.client, o)
			if err != nil {
				return flow.Verdict{}, err
			}
			return flow.JudgeClaim(a, c, j.worlds.admission.Since()), nil
		},
	}
}

func outcomeJudge() *judge[*v1alpha1.Outcome] {
	return &judge[*v1alpha1.Outcome]{
		empty:     func() *v1alpha1.Outcome { return &v1alpha1.Outcome{} },
		reference: func(o *v1alpha1.Outcome) v1alpha1.ObjectReference { return o.Spec.ActionRef },
		status:    func(o *v1alpha1.Outcome) *v1alpha1.StatementStatus { return &o.Status },
		verdict: func(_ context.Context, _ *judge[*v1alpha1.Outcome], o *v1alpha1.Outcome, a *flow.Action) (flow.Verdict, error) {
			return flow.JudgeOutcome(a, *records.Outcome(o)), nil
		},
	}
}

func (j *judge[T]) with(mgr ctrl.Manager, w *worlds, first *firstLook) *judge[T] {
	j.client, j.short, j.reader, j.worlds, j.first = mgr.GetClient(), shortened(mgr.GetCache()), mgr.GetAPIReader(), w, first
	return j
}

// firstLook keeps a judge from asking, when it starts, for the Action of each Outcome there is. Almost all of these Actions
// are finished, and the retention lists them anyway. What it puts aside is judged by what was listed: a finished Action never
// changes, so an Outcome that needs no verdict by it needs none ever. Everything else is given to the judge, who asks. It only
// ever saves requests: what comes to it too late is not put aside.
type firstLook struct {
	statements client.Reader
	look       chan event.GenericEvent

	mu    sync.Mutex
	over  bool
	aside map[types.UID]types.NamespacedName
	clear map[types.UID]struct{}
}

func newFirstLook(statements client.Reader) *firstLook {
	return &firstLook{statements: statements, look: make(chan event.GenericEvent), aside: map[types.UID]types.NamespacedName{}, clear: map[types.UID]struct{}{}}
}

// puts an Outcome aside, if this is not over yet.
func (f *firstLook) puts(o client.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	if _, clear := f.clear[o.GetUID()]; !clear {
		f.aside[o.GetUID()] = client.ObjectKeyFromObject(o)
	}
	return true
}

// finished judges the Outcomes of a finished Action by what was read of it.
func (f *firstLook) finished(ctx context.Context, a *v1alpha1.Action) {
	outcomes := &v1alpha1.OutcomeList{}
	if err := f.statements.List(ctx, outcomes, client.InNamespace(a.Namespace), client.MatchingFields{byActionUID: string(a.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return // they stay aside
	}
	for i := range outcomes.Items {
		o := &outcomes.Items[i]
		if given, _ := accepted(o.Status.Conditions); given || o.Spec.ActionRef.Name != a.Name || flow.JudgeOutcome(records.Action(a), *records.Outcome(o)).Given() {
			continue
		}
		f.mu.Lock()
		delete(f.aside, o.UID)
		f.clear[o.UID] = struct{}{}
		f.mu.Unlock()
	}
}

// end gives the judge what is left.
func (f *firstLook) end(ctx context.Context) {
	f.mu.Lock()
	left := f.aside
	f.over, f.aside, f.clear = true, nil, nil
	f.mu.Unlock()
	for _, key := range left {
		select {
		case f.look <- event.GenericEvent{Object: &v1alpha1.Outcome{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}:
		case <-ctx.Done():
			return
		}
	}
}

// accepted reports whether a statement has a verdict, and which.
func accepted(conditions []metav1.Condition) (given, yes bool) {
	c := meta.FindStatusCondition(conditions, v1alpha1.AcceptedCondition)
	return records.Given(c), c != nil && c.Status == metav1.ConditionTrue
}
