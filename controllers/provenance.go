package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/controllers/records"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// recordRetry is how long after a namespace held, or an apiserver failed, it is tried again to put something on record.
const recordRetry = 5 * time.Second

// record appends an event, unless it is in the chain after floor already. floor is a seq that it is certainly not at or before.
func (w *worlds) record(ctx context.Context, o *openChain, document receipt.Document, floor int64) (receipt.Link, error) {
	for range maxSteps {
		chain := o.usable()
		if chain == nil {
			return receipt.Link{}, errAgain
		}
		head, found, at, err := chain.Find(ctx, document.Identity(), floor)
		if err != nil || found != nil {
			return at, err
		}
		w.crash("before event")
		at, _, err = w.append(ctx, document.Namespace, chain, head, document, time.Time{})
		w.crash("after event")
		if !errors.Is(err, ledger.ErrTaken) {
			return at, err
		}
	}
	return receipt.Link{}, errAgain
}

// rulesRecorder puts on record by what is decided in a namespace: each generation of a policy and of the settings that is in
// force, and that one is gone.
type rulesRecorder struct {
	client   client.Client
	reader   client.Reader
	clock    Clock
	policies *policyCache
	worlds   *worlds

	mu   sync.Mutex
	told map[string]*rulesTold // by namespace
}

// rulesTold is what a chain says of the objects that decide.
type rulesTold struct {
	chain *ledger.Chain
	// listed is the head before the receipts were read: what is not among them is not at or before it.
	listed int64
	byUID  map[string]flow.RulesTold
}

var _ reconcile.Reconciler = &rulesRecorder{}

// Reconcile implements reconcile.Reconciler. The request names a namespace.
func (r *rulesRecorder) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	namespace := request.Name
	world, open, err := r.worlds.world(ctx, namespace)
	if errors.Is(err, errNoNamespace) {
		r.mu.Lock()
		delete(r.told, namespace)
		r.mu.Unlock()
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, h := range world.Holds {
		if h.Reason == decision.NamespaceTerminating {
			return ctrl.Result{}, nil
		}
	}
	chain := open.usable()
	if chain == nil {
		return ctrl.Result{RequeueAfter: recordRetry}, nil
	}
	err = r.record(ctx, world, open, chain)
	switch {
	case errors.Is(err, errAgain):
		return ctrl.Result{RequeueAfter: recordRetry}, nil
	case errors.Is(err, ledger.ErrBroken):
		return ctrl.Result{RequeueAfter: recordRetry}, r.worlds.broken(ctx, namespace, open, err)
	}
	return ctrl.Result{}, err
}

func (r *rulesRecorder) record(ctx context.Context, world flow.World, open *openChain, chain *ledger.Chain) error {
	told, err := r.read(ctx, world.Namespace, chain)
	if err != nil {
		return err
	}
	present, err := r.present(ctx, world.Namespace)
	if err != nil {
		return err
	}
	for _, document := range flow.RulesDue(flow.Snapshot{Now: r.clock.Now(), World: world}, told.byUID, present) {
		known := told.byUID[document.SubjectUID]
		if document.Ordinal == 0 {
			gone, err := r.gone(ctx, world.Namespace, document.SubjectUID, known)
			if err != nil {
				return err
			}
			if !gone {
				return errAgain // the cache lags
			}
		}
		at, err := r.worlds.record(ctx, open, document, max(told.listed, known.Seq))
		if err != nil {
			return err
		}
		document.Seq = at.Seq
		if uid, now, ok := flow.ReadRulesTold(document); ok {
			told.byUID[uid] = now
		}
	}
	return nil
}

// read gives what the chain says, read once for each time it is opened.
func (r *rulesRecorder) read(ctx context.Context, namespace string, chain *ledger.Chain) (*rulesTold, error) {
	r.mu.Lock()
	known := r.told[namespace]
	r.mu.Unlock()
	if known != nil && known.chain == chain {
		return known, nil
	}
	head, err := chain.Extend(ctx)
	if err != nil {
		return nil, err
	}
	told := &rulesTold{chain: chain, listed: head.Seq, byUID: map[string]flow.RulesTold{}}
	list := &v1alpha1.ReceiptList{}
	for {
		if err := r.reader.List(ctx, list, client.InNamespace(namespace), client.Limit(200), client.Continue(list.Continue),
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.kind", receipt.KindEvent)}); err != nil {
			return nil, fmt.Errorf("list events of the chain: %w", err)
		}
		for i := range list.Items {
			document, err := receipt.Parse(records.Entry(&list.Items[i]))
			if err != nil {
				continue // of a later release; what this one would say of the same object has another identity, or is found
			}
			if uid, now, ok := flow.ReadRulesTold(document); ok && now.Seq > told.byUID[uid].Seq {
				told.byUID[uid] = now
			}
		}
		if list.Continue == "" {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[namespace] = told
	return told, nil
}

// present are the objects that decide now.
func (r *rulesRecorder) present(ctx context.Context, namespace string) ([]flow.RulesObject, error) {
	var present []flow.RulesObject
	policies := &v1alpha1.ActionPolicyList{}
	if err := r.client.List(ctx, policies, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	for i := range policies.Items {
		o := &policies.Items[i]
		if o.DeletionTimestamp != nil {
			continue // it decides nothing any more
		}
		source := r.policies.parse(o).source
		present = append(present, flow.RulesObject{Kind: flow.PolicyRules, Name: o.Name, UID: string(o.UID), Generation: o.Generation, Hash: source.RulesHash, Version: source.Version})
	}
	settings := &v1alpha1.Settings{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.SettingsName}, settings)
	switch {
	case err == nil:
		present = append(present, flow.RulesObject{Kind: flow.SettingsRules, Name: settings.Name, UID: string(settings.UID), Generation: settings.Generation})
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return present, nil
}

// gone asks the apiserver whether an object that a cache does not have is really not there, or decides nothing any more.
func (r *rulesRecorder) gone(ctx context.Context, namespace, uid string, known flow.RulesTold) (bool, error) {
	var o client.Object = &v1alpha1.ActionPolicy{}
	if known.Kind == flow.SettingsRules {
		o = &v1alpha1.Settings{}
	}
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: known.Name}, o)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", known.Kind, known.Name, err)
	}
	return string(o.GetUID()) != uid || o.GetDeletionTimestamp() != nil, nil
}

func (r *rulesRecorder) setup(mgr ctrl.Manager, options controller.Options) error {
	namespaceOf := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
	})
	// A deletion that waits for a finalizer raises the generation too.
	inForce := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).Named("rules").
		Watches(&v1alpha1.ActionPolicy{}, namespaceOf, inForce).
		Watches(&v1alpha1.Settings{}, namespaceOf, inForce).
		Watches(&v1alpha1.Ledger{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ledgerTurns)).
		WithOptions(options).
		Complete(r)
}

// skewRecorder puts a clock that is too far off on record, in the chain of the operator's own namespace.
type skewRecorder struct {
	namespace string
	worlds    *worlds
	detected  <-chan flow.Skew
}

// Start implements manager.Runnable.
func (r *skewRecorder) Start(ctx context.Context) error {
	for {
		var skew flow.Skew
		select {
		case <-ctx.Done():
			return nil
		case skew = <-r.detected:
		}
		floor := int64(-1)
		for {
			err := r.record(ctx, skew, &floor)
			if err == nil {
				break
			}
			ctrl.LoggerFrom(ctx).V(1).Info("The clock skew is not on record yet", "event", timeline.ClockSkewDetected, "cause", err.Error())
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(recordRetry):
			}
		}
	}
}

// record appends the receipt of a skew. floor is noted before the first attempt: a later one finds what an earlier one wrote
// although its answer was lost.
func (r *skewRecorder) record(ctx context.Context, skew flow.Skew, floor *int64) error {
	world, open, err := r.worlds.world(ctx, r.namespace)
	if err != nil {
		return err
	}
	if *floor < 0 {
		*floor = world.VerifiedSeq
	}
	_, err = r.worlds.record(ctx, open, flow.SkewDocument(flow.Snapshot{Now: skew.Measured, World: world}, skew), *floor)
	return err
}
