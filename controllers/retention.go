package controllers

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

// retentionWorkers is how many finished Actions are deleted at once.
const retentionWorkers = 4

// finishedActions are those that have a receipt. There may be very many, and they are listed in pages of that size.
var finishedActions = client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("status.receiptRef.name", "")}

const finishedPage = 250

// retention deletes finished Actions and what was said about them after a while: the statements first, the Action last, so
// that a half-done deletion is found again. Effects and receipts stay; everything needed later is in them.
type retention struct {
	client client.Client
	reader client.Reader
	clock  Clock
	worlds *worlds
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// found is told of each Action that was finished before this process began, and foundAll when there are no more.
	found    func(context.Context, *v1alpha1.Action)
	foundAll func(context.Context)

	mu   sync.Mutex
	kept map[string]*keptActions // by namespace
	wake chan struct{}
}

// kept is a finished Action. There are many: it is no more than says when it is due, by whatever the settings are then.
type kept struct {
	finished int64 // nanoseconds
	name     string
}

// keptActions is a heap whose first is due first.
type keptActions []kept

func (k keptActions) Len() int           { return len(k) }
func (k keptActions) Less(i, j int) bool { return k[i].finished < k[j].finished }
func (k keptActions) Swap(i, j int)      { k[i], k[j] = k[j], k[i] }
func (k *keptActions) Push(x any)        { *k = append(*k, x.(kept)) }
func (k *keptActions) Pop() any {
	last := len(*k) - 1
	x := (*k)[last]
	(*k)[last] = kept{}
	*k = (*k)[:last]
	return x
}

func newRetention() *retention {
	return &retention{
		kept: map[string]*keptActions{}, wake: make(chan struct{}, 1),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		found: func(context.Context, *v1alpha1.Action) {}, foundAll: func(context.Context) {},
	}
}

// Add notes an Action that is finished.
func (r *retention) Add(o *v1alpha1.Action) {
	if o.Labels[v1alpha1.CanaryLabel] != "" {
		return
	}
	finished := o.CreationTimestamp.Time
	if o.Status.FinishTime != nil {
		finished = o.Status.FinishTime.Time
	}
	r.keep(client.ObjectKeyFromObject(o), finished)
}

func (r *retention) keep(key types.NamespacedName, finished time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.kept[key.Namespace]
	if all == nil {
		all = &keptActions{}
		r.kept[strings.Clone(key.Namespace)] = all
	}
	one := kept{finished: finished.UnixNano(), name: key.Name}
	heap.Push(all, one)
	if (*all)[0] == one {
		r.again()
	}
}

func (r *retention) again() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable.
func (r *retention) Start(ctx context.Context) error {
	go func() {
		<-ctx.Done()
		r.queue.ShutDown()
	}()
	go r.findFinished(ctx)
	// One alone falls behind a steady load, and what is kept, and the caches with it, grows.
	var workers sync.WaitGroup
	for range retentionWorkers {
		workers.Go(func() { r.work(ctx) })
	}
	for ctx.Err() == nil {
		timer := time.NewTimer(r.due(ctx))
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	workers.Wait()
	return nil
}

// due gives out what is due, and says after how long there is more. By a clock that jumps, and after settings are changed,
// it is asked again.
func (r *retention) due(ctx context.Context) time.Duration {
	r.mu.Lock()
	namespaces := slices.Collect(maps.Keys(r.kept))
	r.mu.Unlock()
	wait := time.Hour
	for _, namespace := range namespaces {
		settings := &v1alpha1.Settings{}
		if err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.SettingsName}, settings); client.IgnoreNotFound(err) != nil {
			wait = min(wait, time.Second)
			continue
		}
		since := r.clock.Now().Add(-records.Settings(settings).Limits.FinishedTTL).UnixNano()
		r.mu.Lock()
		all := r.kept[namespace]
		for all.Len() > 0 && (*all)[0].finished <= since {
			r.queue.Add(types.NamespacedName{Namespace: namespace, Name: heap.Pop(all).(kept).name})
		}
		if all.Len() > 0 {
			wait = min(wait, max(time.Duration((*all)[0].finished-since), time.Millisecond))
		} else {
			delete(r.kept, namespace)
		}
		r.mu.Unlock()
	}
	return wait
}

func (r *retention) work(ctx context.Context) {
	for {
		key, stop := r.queue.Get()
		if stop {
			return
		}
		later, err := r.look(ctx, key)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			ctrl.LoggerFrom(ctx).V(1).Info("Retention is repeated", "action", key.String(), "err", err.Error())
			r.queue.AddRateLimited(key)
		default:
			r.queue.Forget(key)
			if !later.IsZero() {
				r.keep(key, later)
			}
		}
		r.queue.Done(key)
	}
}

// findFinished notes what was finished before this process began, in namespaces where nothing happens any more too.
func (r *retention) findFinished(ctx context.Context) {
	next := ""
	for {
		page := &v1alpha1.ActionList{}
		err := r.reader.List(ctx, page, client.Limit(finishedPage), client.Continue(next), finishedActions)
		if err == nil {
			for i := range page.Items {
				if o := &page.Items[i]; o.Status.ReceiptRef != nil {
					r.Add(o)
					r.found(ctx, o)
				}
			}
			if next = page.Continue; next == "" {
				r.foundAll(ctx)
				return
			}
			continue
		}
		if apierrors.IsResourceExpired(err) {
			next = "" // what is noted twice is looked at twice
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Finished actions are listed again", "err", err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}

// Look makes it look again at what is due: by other settings, or another time.
func (r *retention) Look() { r.again() }

// look deletes one finished Action if it is time. Otherwise it says when the Action would have to have finished to be looked at
// when that makes sense; the zero time: not again.
func (r *retention) look(ctx context.Context, key types.NamespacedName) (time.Time, error) {
	var never time.Time
	world, open, err := r.worlds.world(ctx, key.Namespace)
	if err != nil {
		if err == errNoNamespace {
			return never, nil
		}
		return never, err
	}
	after := func(wait time.Duration) time.Time { return r.clock.Now().Add(wait - world.Limits.FinishedTTL) }
	if open.usable() == nil {
		return after(time.Minute), nil // nothing is deleted until a person has accepted the chain
	}
	o := &v1alpha1.Action{}
	if err := r.reader.Get(ctx, key, o); err != nil {
		return never, client.IgnoreNotFound(err)
	}
	var effect *v1alpha1.Effect
	if e := o.Status.Effect; e != nil {
		effect = &v1alpha1.Effect{}
		if err := r.reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: e.Name}, effect); apierrors.IsNotFound(err) {
			effect = nil
		} else if err != nil {
			return never, err
		}
	}
	view := flow.Retained{Finished: o.Status.ReceiptRef != nil, FinishTime: o.CreationTimestamp.Time, UID: string(o.UID)}
	if o.Status.FinishTime != nil {
		view.FinishTime = o.Status.FinishTime.Time
	}
	if effect != nil && effect.Status != nil && effect.Status.Holder != nil {
		view.HolderUID, view.EffectAmbiguous = string(effect.Status.Holder.UID), effect.Status.State == v1alpha1.EffectAmbiguous
	}
	due, keep := flow.Retain(view, world, r.clock.Now())
	switch {
	case keep:
		return never, nil // its effect's resolution brings it here again
	case due > 0:
		return after(due), nil
	case open.usable() == nil:
		return after(time.Minute), nil
	}
	return never, r.remove(ctx, o)
}

func (r *retention) remove(ctx context.Context, o *v1alpha1.Action) error {
	// From the caches: the apiserver would look through all of the namespace for each. What a cache lacks is a statement about
	// nothing once the Action is gone, and goes as such.
	ofAction := client.MatchingFields{byActionUID: string(o.UID)}
	approvals, claims, outcomes := &v1alpha1.ApprovalList{}, &v1alpha1.ClaimList{}, &v1alpha1.OutcomeList{}
	for _, list := range []client.ObjectList{approvals, claims, outcomes} {
		if err := r.client.List(ctx, list, client.InNamespace(o.Namespace), ofAction); err != nil {
			return fmt.Errorf("list statements: %w", err)
		}
	}
	var all []client.Object
	for i := range approvals.Items {
		all = append(all, &approvals.Items[i])
	}
	for i := range claims.Items {
		all = append(all, &claims.Items[i])
	}
	for i := range outcomes.Items {
		all = append(all, &outcomes.Items[i])
	}
	if e := o.Status.Effect; e != nil && e.Attempt > 0 && o.Status.Execution != nil {
		resolutions := &v1alpha1.ResolutionList{}
		if err := r.client.List(ctx, resolutions, client.InNamespace(o.Namespace), client.MatchingFields{byEffectName: e.Name}); err != nil {
			return fmt.Errorf("list resolutions: %w", err)
		}
		for i := range resolutions.Items {
			if resolutions.Items[i].Spec.Attempt != e.Attempt {
				continue
			}
			if given, _ := accepted(resolutions.Items[i].Status.Conditions); !given {
				// Nobody would come back for it once the Action is gone.
				return fmt.Errorf("resolution %s has no verdict yet", resolutions.Items[i].Name)
			}
			all = append(all, &resolutions.Items[i])
		}
	}
	for _, statement := range append(all, o) {
		uid := statement.GetUID()
		err := r.client.Delete(ctx, statement, client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *retention) NeedLeaderElection() bool { return true }
