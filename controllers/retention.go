package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/flow"
)

// retentionWorkers is how many finished Actions are deleted at once.
const retentionWorkers = 4

// retention deletes finished Actions and what was said about them after a while: the statements first, the Action last, so
// that a half-done deletion is found again. Effects and receipts stay; everything needed later is in them.
type retention struct {
	client client.Client
	reader client.Reader
	clock  Clock
	worlds *worlds
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu      sync.Mutex
	waiting map[types.NamespacedName]bool // for a time; a clock that jumps ends the wait
}

func newRetention() *retention {
	return &retention{waiting: map[types.NamespacedName]bool{}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())}
}

// Add notes an Action that is finished.
func (r *retention) Add(o *v1alpha1.Action) {
	if o.Labels[v1alpha1.CanaryLabel] != "" {
		return
	}
	// The settings may be changed until then; whoever changes them makes it look again.
	settings := &v1alpha1.Settings{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: v1alpha1.SettingsName}, settings); client.IgnoreNotFound(err) != nil {
		r.waits(client.ObjectKeyFromObject(o), time.Second) // to be looked at, with the settings then
		return
	}
	finished := o.CreationTimestamp.Time
	if o.Status.FinishTime != nil {
		finished = o.Status.FinishTime.Time
	}
	r.waits(client.ObjectKeyFromObject(o), max(finished.Add(limits(settings).FinishedTTL).Sub(r.clock.Now()), time.Millisecond))
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
	workers.Wait()
	return nil
}

func (r *retention) work(ctx context.Context) {
	for {
		key, stop := r.queue.Get()
		if stop {
			return
		}
		wait, err := r.look(ctx, key)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			ctrl.LoggerFrom(ctx).V(1).Info("Retention is repeated", "action", key.String(), "err", err.Error())
			r.queue.AddRateLimited(key)
		default:
			r.queue.Forget(key)
			r.waits(key, wait)
		}
		r.queue.Done(key)
	}
}

// findFinished notes what was finished before this process began, in namespaces where nothing happens any more too.
func (r *retention) findFinished(ctx context.Context) {
	for {
		all, err := listFinished(ctx, r.reader, metav1.NamespaceAll)
		if err == nil {
			for i := range all {
				r.Add(&all[i])
			}
			return
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Finished actions are listed again", "err", err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}

func (r *retention) waits(key types.NamespacedName, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, key)
	if wait > 0 {
		r.waiting[key] = true
		r.queue.AddAfter(key, wait)
	}
}

// Look makes it look again at a namespace; at all of them if none is named.
func (r *retention) Look(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.waiting {
		if namespace == "" || key.Namespace == namespace {
			r.queue.Add(key)
		}
	}
}

// look deletes one finished Action if it is time, or says how long to wait.
func (r *retention) look(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	world, open, err := r.worlds.world(ctx, key.Namespace)
	if err != nil {
		if err == errNoNamespace {
			return 0, nil
		}
		return 0, err
	}
	o := &v1alpha1.Action{}
	if err := r.reader.Get(ctx, key, o); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	var effect *v1alpha1.Effect
	if e := o.Status.Effect; e != nil {
		effect = &v1alpha1.Effect{}
		if err := r.reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: e.Name}, effect); apierrors.IsNotFound(err) {
			effect = nil
		} else if err != nil {
			return 0, err
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
	if keep || open.usable() == nil {
		return 0, nil // its effect's resolution, or the acceptance of the chain, brings it here again
	}
	if due > 0 {
		return due, nil
	}
	return 0, r.remove(ctx, o)
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
