package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
)

// recordRetry is how long after a namespace held, or an apiserver failed, it is tried again to put something on record.
const recordRetry = 5 * time.Second

// appendEvent appends an event, unless it is in the chain after floor already. floor is a seq that it is certainly not at or
// before. still is asked after each fold and before the append that rests on it: whatever it answers then is true of a time
// at which the folded chain was all there was. If it answers no, the event is not appended and the error is errAgain. The
// document is the one that is in the chain, whoever wrote it.
func (w *worlds) appendEvent(ctx context.Context, o *openChain, document receipt.Document, floor int64, still func(context.Context) (bool, error)) (receipt.Link, receipt.Document, error) {
	for range maxSteps {
		chain := o.usable()
		if chain == nil {
			return receipt.Link{}, document, errAgain
		}
		head, found, at, err := chain.Find(ctx, document.Identity(), floor)
		if err != nil {
			return at, document, err
		}
		if found != nil {
			return at, *found, nil
		}
		if yes, err := still(ctx); err != nil || !yes {
			return receipt.Link{}, document, errors.Join(err, errAgain)
		}
		w.crash("before event")
		at, written, err := w.append(ctx, document.Namespace, chain, head, document, time.Time{})
		w.crash("after event")
		if !errors.Is(err, ledger.ErrTaken) {
			return at, written, err
		}
	}
	return receipt.Link{}, document, errAgain
}

// always is still true.
func always(context.Context) (bool, error) { return true, nil }

// rulesRecorder puts on record by what is decided in a namespace: each generation of a policy, of a grant and of the settings that is in
// force, and that one is gone.
type rulesRecorder struct {
	client   client.Client
	reader   client.Reader
	clock    Clock
	policies *policyCache
	worlds   *worlds
}

var _ reconcile.Reconciler = &rulesRecorder{}

// Reconcile implements reconcile.Reconciler. The request names a namespace.
func (r *rulesRecorder) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	namespace := request.Name
	world, open, err := r.worlds.world(ctx, namespace)
	if errors.Is(err, errNoNamespace) {
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
	err = r.putOnRecord(ctx, world, open, chain)
	switch {
	case errors.Is(err, ledger.ErrBroken):
		return ctrl.Result{RequeueAfter: recordRetry}, r.worlds.broken(ctx, namespace, open, err)
	case errors.Is(err, errAgain):
		return ctrl.Result{RequeueAfter: recordRetry}, nil
	}
	return ctrl.Result{}, err
}

func (r *rulesRecorder) putOnRecord(ctx context.Context, world flow.World, open *openChain, chain *ledger.Chain) error {
	if _, err := chain.Extend(ctx); err != nil {
		return err
	}
	rules, head := chain.Rules()
	present, err := r.present(ctx, world.Namespace)
	if err != nil {
		return err
	}
	for _, document := range flow.RulesDue(flow.Snapshot{Now: r.clock.Now(), World: world}, rules, present) {
		// An end comes after everything else about an object. Asked after the fold, "it is there" says that no end is in it.
		still := func(ctx context.Context) (bool, error) {
			here, err := r.there(ctx, world.Namespace, document)
			return here != (document.Ordinal == 0), err
		}
		// What the chain says up to its head is known. If we die after this, whoever folds the chain learns of it. One that
		// has to wait, for a cache that lags, is no reason for the others to.
		if _, _, e := r.worlds.appendEvent(ctx, open, document, head.Seq, still); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
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
		if !records.InForce(o) {
			continue
		}
		source := r.policies.parse(o).source
		present = append(present, flow.RulesObject{Kind: flow.PolicyRules, Name: o.Name, UID: string(o.UID), Generation: o.Generation, Hash: source.RulesHash, Version: source.Version})
	}
	grants := &v1alpha1.GrantList{}
	if err := r.client.List(ctx, grants, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("read grants: %w", err)
	}
	for i := range grants.Items {
		if o := &grants.Items[i]; records.InForce(o) {
			present = append(present, flow.RulesObject{Kind: flow.GrantRules, Name: o.Name, UID: string(o.UID), Generation: o.Generation})
		}
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

// there asks the apiserver whether the object of an event is there, and decides.
func (r *rulesRecorder) there(ctx context.Context, namespace string, document receipt.Document) (bool, error) {
	var o client.Object = &v1alpha1.ActionPolicy{}
	switch timeline.Type(document.Event) {
	case timeline.SettingsInForce, timeline.SettingsRemoved:
		o = &v1alpha1.Settings{}
	case timeline.GrantInForce, timeline.GrantRemoved:
		o = &v1alpha1.Grant{}
	}
	name := document.Data["name"]
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	this := document.Ordinal == 0 || o.GetGeneration() == document.Ordinal // else a later one is in force by now
	return this && string(o.GetUID()) == document.SubjectUID && records.InForce(o), nil
}

// readRules reads from the chain up to a seq what its receipts say of the objects that decide.
func (w *worlds) readRules(ctx context.Context, namespace string, upTo int64) (flow.RulesOnRecord, error) {
	told := flow.RulesOnRecord{}
	if upTo == 0 {
		return told, nil
	}
	list := &v1alpha1.ReceiptList{}
	err := records.EachPage(ctx, w.reader, list, func() error {
		for i := range list.Items {
			entry := records.Entry(&list.Items[i])
			if document, err := receipt.Parse(entry); err == nil && entry.Seq <= upTo {
				told.Add(document)
			}
		}
		return nil
	}, client.InNamespace(namespace), client.Limit(200), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.kind", receipt.KindEvent)})
	if err != nil {
		return nil, fmt.Errorf("list events of the chain: %w", err)
	}
	return told, nil
}

// maxRulesOnRecord is how many objects a Ledger remembers. Where there are more they are read from the chain each time.
const maxRulesOnRecord = 512

// setRules notes in a Ledger what the chain says up to its head. Ledger and head are written by one request, so they fit.
func setRules(status *v1alpha1.LedgerStatus, told flow.RulesOnRecord) {
	status.Rules, status.RulesSeq = nil, nil
	if told == nil || len(told) > maxRulesOnRecord {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(told)) {
		t := told[uid]
		status.Rules = append(status.Rules, v1alpha1.RuleOnRecord{Kind: string(t.Kind), Name: t.Name, UID: types.UID(uid), Generation: t.Generation, Seq: t.Seq})
	}
	seq := status.Seq
	status.RulesSeq = &seq
}

// rulesOf is what a Ledger says of the chain up to its head; nil: it does not say.
func rulesOf(status *v1alpha1.LedgerStatus) flow.RulesOnRecord {
	if status == nil || status.RulesSeq == nil || *status.RulesSeq != status.Seq {
		return nil
	}
	told := flow.RulesOnRecord{}
	for _, r := range status.Rules {
		told[string(r.UID)] = flow.RuleOnRecord{Kind: flow.RulesKind(r.Kind), Name: r.Name, Generation: r.Generation, Seq: r.Seq}
	}
	return told
}

func (r *rulesRecorder) setup(mgr ctrl.Manager, options controller.Options) error {
	namespaceOf := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
	})
	// A deletion that waits for a finalizer raises the generation too.
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).Named("rules").
		Watches(&v1alpha1.ActionPolicy{}, namespaceOf, changed).
		Watches(&v1alpha1.Settings{}, namespaceOf, changed).
		Watches(&v1alpha1.Grant{}, namespaceOf, changed).
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
		// Noted before the first attempt: a later one finds what an earlier one wrote although its answer was lost.
		floor := int64(-1)
		for {
			world, open, err := r.worlds.world(ctx, r.namespace)
			if err == nil {
				if floor < 0 {
					floor = world.VerifiedSeq
				}
				_, _, err = r.worlds.appendEvent(ctx, open, flow.SkewDocument(flow.Snapshot{Now: skew.Measured, World: world}, skew), floor, always)
			}
			if err == nil {
				break
			}
			ctrl.LoggerFrom(ctx).V(1).Info("The clock skew is not on record yet", "event", timeline.ClockSkewDetected, "err", err.Error())
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(recordRetry):
			}
		}
	}
}
