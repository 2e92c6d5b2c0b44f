package controllers

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// authorityCache unites the grants, delegations and revocations of a namespace, once for what they are.
type authorityCache struct {
	cache client.Reader
	seed  maphash.Seed

	mu   sync.Mutex
	sets map[string]*namespaceAuthority
}

// namespaceAuthority is that of one namespace. It has a lock of its own: where there are thousands, uniting them takes a while,
// for which nobody else waits.
type namespaceAuthority struct {
	mu   sync.Mutex
	made madeAuthority
	read records.Authorities
}

type madeAuthority struct {
	of    uint64
	count int
	depth int
	since time.Time
	set   *authority.Set
}

func newAuthorityCache(cache client.Reader) *authorityCache {
	return &authorityCache{cache: cache, seed: maphash.MakeSeed(), sets: map[string]*namespaceAuthority{}}
}

func (c *authorityCache) of(namespace string) *namespaceAuthority {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.sets[namespace]
	if !ok {
		n = &namespaceAuthority{}
		c.sets[namespace] = n
	}
	return n
}

// fresh is what the apiserver holds now.
func fresh(ctx context.Context, reader client.Reader, namespace string, since time.Time) (*authority.Set, error) {
	settings := &v1alpha1.Settings{}
	if err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.SettingsName}, settings); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return newAuthorityCache(reader).set(ctx, namespace, records.Settings(settings).MaxDepth, since)
}

// forget drops what was a namespace's.
func (c *authorityCache) forget(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sets, namespace)
}

// set is what the cache holds now. A delegation counts only if it was made after since: a status of before may be forged.
func (c *authorityCache) set(ctx context.Context, namespace string, depth int, since time.Time) (*authority.Set, error) {
	grants, delegations, revocations := &v1alpha1.GrantList{}, &v1alpha1.DelegationList{}, &v1alpha1.RevocationList{}
	for _, list := range []client.ObjectList{grants, delegations, revocations} {
		// Shared with the cache: read, never written.
		if err := c.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("read authority: %w", err)
		}
	}
	made := madeAuthority{depth: depth, since: since}
	note := func(o client.Object) {
		// The order of a list is any; the sum of what was hashed is not.
		made.of += maphash.String(c.seed, string(o.GetUID())+"/"+o.GetResourceVersion())
		made.count++
	}
	for i := range grants.Items {
		note(&grants.Items[i])
	}
	for i := range delegations.Items {
		note(&delegations.Items[i])
	}
	for i := range revocations.Items {
		note(&revocations.Items[i])
	}
	n := c.of(namespace)
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.made; known.set != nil && known.of == made.of && known.count == made.count && known.depth == depth && known.since.Equal(since) {
		return known.set, nil
	}
	made.set = authority.NewSet(n.read.Documents(grants.Items, delegations.Items, revocations.Items, depth, since))
	n.made = made
	return made.set, nil
}

// grantReconciler says of each Grant whether it is valid, and whether it is over. What decides is the content of the cache, not
// this status.
type grantReconciler struct {
	client client.Client
	clock  Clock
}

var _ reconcile.Reconciler = &grantReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *grantReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.Grant{}
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	grant, findings := records.Grant(o)
	next, now := o.DeepCopy(), r.clock.Now()
	set := func(kind string, status bool, reason, message string) {
		records.SetCondition(&next.Status.Conditions, o.Generation, now, kind, status, reason, message)
	}
	next.Status.ObservedGeneration = o.Generation
	var problems []string
	for _, f := range findings {
		at := "spec: "
		if f.Path != "" {
			at = "spec."
		}
		problems = append(problems, at+f.String())
	}
	if len(problems) > 0 {
		message := "It grants nothing, and nothing below it does, until it is corrected: " + strings.Join(problems, "; ")
		set(v1alpha1.ReadyCondition, false, "GrantInvalid", message)
		set(v1alpha1.StalledCondition, true, "GrantInvalid", message)
	} else {
		set(v1alpha1.ReadyCondition, true, "InForce", fmt.Sprintf("Generation %d is in force.", o.Generation))
		set(v1alpha1.StalledCondition, false, "InForce", "Nothing is wrong with it.")
	}
	var again ctrl.Result
	switch end := grant.Grant.Expiration; {
	case end == nil:
		set(v1alpha1.ExpiredCondition, false, "NoExpiration", "It has no end.")
	case now.After(*end):
		set(v1alpha1.ExpiredCondition, true, "Expired", fmt.Sprintf("It ended at %s and grants nothing since. Set a later expirationTime, or delete it.", end.UTC().Format(time.RFC3339)))
	default:
		set(v1alpha1.ExpiredCondition, false, "NotYet", fmt.Sprintf("It ends at %s.", end.UTC().Format(time.RFC3339)))
		again.RequeueAfter = end.Sub(now) + time.Millisecond
	}
	if equalStatus(o.Status, next.Status) {
		return again, nil
	}
	return again, client.IgnoreNotFound(r.client.Status().Update(ctx, next))
}

func (r *grantReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("grant").For(&v1alpha1.Grant{}).WithOptions(options).Complete(r)
}

// delegationReconciler judges each Delegation once, and says when it is revoked.
type delegationReconciler struct {
	client client.Client
	reader client.Reader
	clock  Clock
	worlds *worlds
}

var _ reconcile.Reconciler = &delegationReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *delegationReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.Delegation{}
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if given, _ := accepted(o.Status.Conditions); given {
		if err := r.revoked(ctx, o); err != nil {
			return ctrl.Result{}, err
		}
		return r.sweep(ctx, o)
	}
	return r.worlds.stated(ctx, o.Namespace, func(world flow.World, open *openChain) error { return r.judge(ctx, o, world, open) })
}

// judge puts the verdict on record, and then into the status as the receipt says it.
func (r *delegationReconciler) judge(ctx context.Context, o *v1alpha1.Delegation, world flow.World, open *openChain) error {
	s := flow.Snapshot{Now: r.clock.Now(), World: world}
	j := flow.JudgeDelegation(s, records.Delegation(o, world.AdmissionSince))
	if !j.Accepted() {
		// A refusal is for good, so it is never given on what caches say: those of Grant, Delegation and Settings are of different
		// times, and what was made together comes one after the other.
		var err error
		if s.World.Authority, err = fresh(ctx, r.reader, o.Namespace, world.AdmissionSince); err != nil {
			return err
		}
		if j = flow.JudgeDelegation(s, records.Delegation(o, world.AdmissionSince)); j.Waits {
			return errAgain
		}
	}
	next := o.DeepCopy()
	if next.Status.FirstSeq == nil {
		// The receipt that comes is after this seq. If we die after writing either, the next pass finds it from here.
		next.Status.FirstSeq = &world.VerifiedSeq
		if err := r.client.Status().Update(ctx, next); err != nil {
			return err
		}
	}
	link, document, err := r.worlds.appendEvent(ctx, open, flow.DelegationDocument(s, records.Delegation(o, world.AdmissionSince), j), world.Floor(*next.Status.FirstSeq, o.CreationTimestamp.Time), always)
	if err != nil {
		return err
	}
	refusal, dimension, parentUID, depth := flow.DelegationVerdict(document)
	message := j.Message
	if refusal != string(j.Refusal) {
		message = "Receipt " + receipt.Name(o.Namespace, link.Seq) + " says so."
	}
	next.Status.ReceiptRef = &v1alpha1.ReceiptReference{Name: receipt.Name(o.Namespace, link.Seq), Seq: link.Seq, Hash: link.Hash}
	next.Status.Dimension, next.Status.ParentUID, next.Status.Depth = dimension, types.UID(parentUID), depth
	reason := v1alpha1.ReasonAccepted
	if refusal != "" {
		reason = decision.Reason(refusal).Condition()
	}
	records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.AcceptedCondition, refusal == "", reason, message)
	records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.RevokedCondition, false, "NotRevoked", "No Revocation names it.")
	return r.client.Status().Update(ctx, next)
}

// revoked says of an accepted delegation that a Revocation names it.
func (r *delegationReconciler) revoked(ctx context.Context, o *v1alpha1.Delegation) error {
	if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.RevokedCondition) {
		return nil
	}
	if _, yes := accepted(o.Status.Conditions); !yes {
		return nil
	}
	list := &v1alpha1.RevocationList{}
	if err := r.client.List(ctx, list, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy); err != nil { // read, never written
		return fmt.Errorf("read revocations: %w", err)
	}
	for i := range list.Items {
		if c := &list.Items[i]; c.Spec.DelegationRef.Name == o.Name && c.Spec.DelegationRef.UID == o.UID {
			next := o.DeepCopy()
			records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.RevokedCondition, true, "Revoked", fmt.Sprintf("%s revoked it (Revocation %s). It and everything below it grant nothing.", c.Spec.Revoker, c.Name))
			err := r.client.Status().Update(ctx, next)
			if apierrors.IsConflict(err) {
				return nil // a later version comes, and is looked at
			}
			return client.IgnoreNotFound(err)
		}
	}
	return nil
}

// sweep deletes, after a while, a delegation that grants nothing for good and that no other hangs below. Its receipts stay.
func (r *delegationReconciler) sweep(ctx context.Context, o *v1alpha1.Delegation) (ctrl.Result, error) {
	since := func(kind string, status metav1.ConditionStatus) *time.Time {
		if c := meta.FindStatusCondition(o.Status.Conditions, kind); c != nil && c.Status == status {
			return &c.LastTransitionTime.Time
		}
		return nil
	}
	d := records.Delegation(o, time.Time{})
	over, ends := flow.DelegationOver(since(v1alpha1.AcceptedCondition, metav1.ConditionFalse), since(v1alpha1.RevokedCondition, metav1.ConditionTrue), d.Delegation.Expiration)
	if !ends {
		return ctrl.Result{}, nil
	}
	return r.worlds.sweep(ctx, o, over, func(ctx context.Context) (bool, error) {
		list := &v1alpha1.DelegationList{}
		if err := r.client.List(ctx, list, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy); err != nil { // read, never written
			return false, fmt.Errorf("read delegations: %w", err)
		}
		for i := range list.Items {
			if p := list.Items[i].Spec.ParentRef; p.Kind == v1alpha1.ParentDelegation && p.Name == o.Name {
				return true, nil
			}
		}
		return false, nil
	})
}

func (r *delegationReconciler) setup(mgr ctrl.Manager, options controller.Options, all <-chan event.GenericEvent) error {
	waiting := unjudged(r.client, func() client.ObjectList { return &v1alpha1.DelegationList{} }, func(o client.Object) []metav1.Condition {
		return o.(*v1alpha1.Delegation).Status.Conditions
	})
	return ctrl.NewControllerManagedBy(mgr).Named("delegation").
		For(&v1alpha1.Delegation{}).
		Watches(&v1alpha1.Revocation{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.(*v1alpha1.Revocation).Spec.DelegationRef.Name}}}
		})).
		Watches(&v1alpha1.Ledger{}, waiting, builder.WithPredicates(ledgerTurns)).
		WatchesRawSource(source.Channel(all, waiting)).
		WithOptions(options).
		Complete(r)
}

// revocationReconciler puts each Revocation on record and says that it counts. It cuts before that: from when the cache holds it.
type revocationReconciler struct {
	client client.Client
	reader client.Reader
	clock  Clock
	worlds *worlds
}

var _ reconcile.Reconciler = &revocationReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *revocationReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.Revocation{}
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if given, _ := accepted(o.Status.Conditions); given {
		return r.sweep(ctx, o)
	}
	return r.worlds.stated(ctx, o.Namespace, func(world flow.World, open *openChain) error { return r.judge(ctx, o, world, open) })
}

// sweep deletes, after a while, a Revocation of a delegation that is gone.
func (r *revocationReconciler) sweep(ctx context.Context, o *v1alpha1.Revocation) (ctrl.Result, error) {
	judged := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition).LastTransitionTime.Time
	return r.worlds.sweep(ctx, o, judged, func(ctx context.Context) (bool, error) {
		d := &v1alpha1.Delegation{}
		err := r.reader.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.DelegationRef.Name}, d)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read delegation: %w", err)
		}
		return err == nil && d.UID == o.Spec.DelegationRef.UID, nil
	})
}

func (r *revocationReconciler) judge(ctx context.Context, o *v1alpha1.Revocation, world flow.World, open *openChain) error {
	next := o.DeepCopy()
	conclude := func(status bool, reason, message string) error {
		records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.AcceptedCondition, status, reason, message)
		return r.client.Status().Update(ctx, next)
	}
	ref := o.Spec.DelegationRef
	d := &v1alpha1.Delegation{}
	// A refusal is final, so it is never given on what a cache says.
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: ref.Name}, d)
	switch {
	case apierrors.IsNotFound(err), err == nil && d.UID != ref.UID:
		return conclude(false, "DelegationNotFound", fmt.Sprintf("There is no Delegation %s with uid %s. Nothing was revoked. kubectl ctrlrun grants shows those there are.", ref.Name, ref.UID))
	case err != nil:
		return fmt.Errorf("read delegation: %w", err)
	}
	if given, _ := accepted(d.Status.Conditions); !given || d.Status.FirstSeq == nil {
		// The end of a delegation is on record once, by whichever Revocation was first, after its verdict: all of them look from
		// the same place on. What it cuts is cut already.
		return errAgain
	}
	if next.Status.FirstSeq == nil {
		next.Status.FirstSeq = d.Status.FirstSeq
		if err := r.client.Status().Update(ctx, next); err != nil {
			return err
		}
	}
	reason := ""
	if o.Spec.Reason != nil {
		reason = *o.Spec.Reason
	}
	s := flow.Snapshot{Now: r.clock.Now(), World: world}
	link, document, err := r.worlds.appendEvent(ctx, open, flow.RevocationDocument(s, records.Revocation(o), reason), world.Floor(*next.Status.FirstSeq, d.CreationTimestamp.Time), always)
	if err != nil {
		return err
	}
	next.Status.ReceiptRef = &v1alpha1.ReceiptReference{Name: receipt.Name(o.Namespace, link.Seq), Seq: link.Seq, Hash: link.Hash}
	if first := document.Data["revocation"]; first != o.Name {
		return conclude(true, v1alpha1.ReasonAccepted, fmt.Sprintf("Delegation %s was revoked already, by Revocation %s.", ref.Name, first))
	}
	return conclude(true, v1alpha1.ReasonAccepted, fmt.Sprintf("Delegation %s and everything below it grant nothing.", ref.Name))
}

func (r *revocationReconciler) setup(mgr ctrl.Manager, options controller.Options, all <-chan event.GenericEvent) error {
	waiting := unjudged(r.client, func() client.ObjectList { return &v1alpha1.RevocationList{} }, func(o client.Object) []metav1.Condition {
		return o.(*v1alpha1.Revocation).Status.Conditions
	})
	return ctrl.NewControllerManagedBy(mgr).Named("revocation").
		For(&v1alpha1.Revocation{}).
		Watches(&v1alpha1.Ledger{}, waiting, builder.WithPredicates(ledgerTurns)).
		WatchesRawSource(source.Channel(all, waiting)).
		WithOptions(options).
		Complete(r)
}

// stated concludes about a statement that no action waits for: only while nothing forbids to decide, and again a little later if
// something does.
func (w *worlds) stated(ctx context.Context, namespace string, conclude func(flow.World, *openChain) error) (ctrl.Result, error) {
	world, open, err := w.world(ctx, namespace)
	switch {
	case errors.Is(err, errNoNamespace):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	case len(world.Holds) > 0:
		if world.Holds[0].Reason == decision.NamespaceTerminating {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{RequeueAfter: recordRetry}, nil
	}
	err = conclude(world, open)
	switch {
	case errors.Is(err, ledger.ErrBroken):
		return ctrl.Result{RequeueAfter: recordRetry}, w.broken(ctx, namespace, open, err)
	case errors.Is(err, errAgain):
		return ctrl.Result{RequeueAfter: recordRetry}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil // somebody was faster; look again
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// unjudged asks, in a namespace in which something may be decided again, for the statements without a verdict.
func unjudged(cache client.Reader, list func() client.ObjectList, conditions func(client.Object) []metav1.Condition) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = o.GetName() // a Namespace, or its Ledger
		}
		found := list()
		if err := cache.List(ctx, found, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil { // read, never written
			ctrl.LoggerFrom(ctx).Error(err, "Cannot list statements")
			return nil
		}
		var requests []reconcile.Request
		_ = meta.EachListItem(found, func(item runtimeObject) error {
			statement := item.(client.Object)
			if given, _ := accepted(conditions(statement)); !given {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(statement)})
			}
			return nil
		})
		return requests
	})
}

// sweep deletes a statement that changes nothing any more, after a while, and unless something that is there needs it.
func (w *worlds) sweep(ctx context.Context, o client.Object, over time.Time, needed func(context.Context) (bool, error)) (ctrl.Result, error) {
	world, _, err := w.world(ctx, o.GetNamespace())
	switch {
	case errors.Is(err, errNoNamespace):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	wait := flow.RetainStatement(over, false, world, w.clock.Now())
	if wait == 0 && needed != nil {
		yes, err := needed(ctx)
		if err != nil {
			return ctrl.Result{}, err
		}
		wait = flow.RetainStatement(over, yes, world, w.clock.Now())
	}
	if wait > 0 {
		return ctrl.Result{RequeueAfter: min(wait, sweepAgain)}, nil
	}
	uid := o.GetUID()
	return ctrl.Result{}, client.IgnoreNotFound(w.writer.Delete(ctx, o, client.Preconditions{UID: &uid}))
}

// sweepAgain is how long a statement is waited for at most: the Settings may say something else by then, or the clock.
const sweepAgain = 10 * time.Minute
