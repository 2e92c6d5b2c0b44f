package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// acceptanceReconciler continues the chain of a namespace that holds, from the head a person names.
type acceptanceReconciler struct {
	client  client.Client
	reader  client.Reader
	clock   Clock
	worlds  *worlds
	changed func()
}

var _ reconcile.Reconciler = &acceptanceReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *acceptanceReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.LedgerAcceptance{}
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if given, _ := accepted(o.Status.Conditions); given {
		return ctrl.Result{}, nil
	}
	if r.worlds.admission.Hold() != nil {
		return ctrl.Result{RequeueAfter: probeRetry}, nil
	}
	if !o.CreationTimestamp.After(r.worlds.admission.Since()) {
		return r.answer(ctx, o, false, v1alpha1.ReasonMadeWithoutAdmission, "It was created while the admission policies were not in force, so nobody can say who made it. Make it again.")
	}
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: o.Spec.Ledger}, namespace); err != nil {
		if apierrors.IsNotFound(err) {
			return r.answer(ctx, o, false, v1alpha1.ReasonMismatch, "There is no namespace "+o.Spec.Ledger+".")
		}
		return ctrl.Result{}, err
	}
	open, err := r.worlds.open(ctx, namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	open.mu.Lock()
	held := open.hold != nil
	open.mu.Unlock()
	acceptance := flow.Acceptance{
		Name: o.Name, UID: string(o.UID), Namespace: o.Spec.Ledger, NamespaceUID: string(o.Spec.NamespaceUID),
		Head: receipt.Link{Seq: o.Spec.Seq, Hash: o.Spec.Hash}, Reason: o.Spec.Reason, AcceptedBy: o.Spec.AcceptedBy,
	}
	if !held {
		// It may be this very acceptance that ended the hold: we died before saying so.
		document, err := r.tookEffect(ctx, acceptance)
		if err != nil {
			return ctrl.Result{}, err
		}
		if document != nil {
			return r.answerAccepted(ctx, o, acceptance.Head, document.Epoch, document.Seq)
		}
	}
	reason, message, err := flow.JudgeAcceptance(acceptance, string(namespace.UID), held, func(seq int64) (receipt.Entry, bool, error) {
		return ledger.Get(ctx, r.reader, o.Spec.Ledger, seq)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if reason != "" {
		return r.answer(ctx, o, false, reason, message)
	}
	return r.accept(ctx, o, acceptance, namespace)
}

// accept writes the receipt first, then the Ledger, then the verdict: if we die between two of them, the next pass finds
// the receipt by its identity and goes on.
func (r *acceptanceReconciler) accept(ctx context.Context, o *v1alpha1.LedgerAcceptance, acceptance flow.Acceptance, namespace *corev1.Namespace) (ctrl.Result, error) {
	l := &v1alpha1.Ledger{}
	err := r.reader.Get(ctx, types.NamespacedName{Name: o.Spec.Ledger}, l)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil {
		l = &v1alpha1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: o.Spec.Ledger}}
		if err := r.client.Create(ctx, l); err != nil {
			return ctrl.Result{}, err
		}
	}
	epoch := int64(0)
	if l.Status != nil {
		epoch = l.Status.Epoch
	}
	world := flow.World{ClusterID: r.worlds.clusterID, Namespace: namespace.Name, NamespaceUID: string(namespace.UID), Epoch: epoch}
	document := acceptance.Document(world, flow.Snapshot{Now: r.clock.Now()})
	chain := ledger.NewChain(o.Spec.Ledger, acceptance.Head, acceptance.Head, r.reader, r.client)
	head, found, at, err := chain.Find(ctx, document.Identity(), acceptance.Head.Seq)
	if err != nil {
		return ctrl.Result{}, err
	}
	epoch++
	if found != nil {
		epoch = found.Epoch // as its receipt says, however often this is done again
	} else if at, _, err = r.worlds.append(ctx, o.Spec.Ledger, chain, head, document, time.Time{}); err != nil {
		return ctrl.Result{}, err // taken, or unknown: look again
	}
	if l.Status == nil || l.Status.Epoch < epoch {
		if err := r.turn(ctx, o, l, acceptance, namespace, epoch, at); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.worlds.reopen(ctx, namespace); err != nil {
		return ctrl.Result{}, err
	}
	r.changed()
	return r.answerAccepted(ctx, o, acceptance.Head, epoch, at.Seq)
}

// turn begins the new epoch in the Ledger.
func (r *acceptanceReconciler) turn(ctx context.Context, o *v1alpha1.LedgerAcceptance, l *v1alpha1.Ledger, acceptance flow.Acceptance, namespace *corev1.Namespace, epoch int64, at receipt.Link) error {
	if l.Status == nil {
		l.Status = &v1alpha1.LedgerStatus{}
	}
	l.Status.Epoch, l.Status.Seq, l.Status.Hash, l.Status.NamespaceUID = epoch, at.Seq, at.Hash, namespace.UID
	// What was on record may be lost, or come up again: it is read from the chain as it is accepted.
	l.Status.Rules, l.Status.RulesSeq = nil, nil
	now := metav1.NewTime(r.clock.Now())
	l.Status.CheckpointTime, l.Status.Accepted = now, &v1alpha1.AcceptedHead{Seq: acceptance.Head.Seq, Hash: acceptance.Head.Hash, Time: now}
	records.SetCondition(&l.Status.Conditions, l.Generation, r.clock.Now(), v1alpha1.ReadyCondition, true, "ChainAccepted", fmt.Sprintf("%s accepted the chain up to %s.", o.Spec.AcceptedBy, acceptance.Head))
	return r.client.Status().Update(ctx, l)
}

func (r *acceptanceReconciler) answerAccepted(ctx context.Context, o *v1alpha1.LedgerAcceptance, head receipt.Link, epoch, seq int64) (ctrl.Result, error) {
	return r.answer(ctx, o, true, v1alpha1.ReasonAccepted, fmt.Sprintf("The chain goes on after %s, in epoch %d. Receipt %d says so.", head, epoch, seq))
}

// tookEffect finds the receipt of an acceptance that took effect before its verdict was written.
func (r *acceptanceReconciler) tookEffect(ctx context.Context, a flow.Acceptance) (*receipt.Document, error) {
	entry, ok, err := ledger.Get(ctx, r.reader, a.Namespace, a.Head.Seq+1)
	if err != nil || !ok {
		return nil, err
	}
	document, err := receipt.Parse(entry)
	if err != nil || document.Identity() != a.Identity() {
		return nil, nil
	}
	return &document, nil
}

func (r *acceptanceReconciler) answer(ctx context.Context, o *v1alpha1.LedgerAcceptance, yes bool, reason, message string) (ctrl.Result, error) {
	next := o.DeepCopy()
	records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.AcceptedCondition, yes, reason, message)
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Status().Update(ctx, next))
}

func (r *acceptanceReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("ledgeracceptance").
		For(&v1alpha1.LedgerAcceptance{}).
		WithOptions(options).
		Complete(r)
}

// checkpointer writes the heads of chains that grew into their Ledgers, at most once a second each.
type checkpointer struct {
	worlds *worlds
	queue  workqueue.TypedRateLimitingInterface[string]

	mu  sync.Mutex
	due map[string]bool
}

const checkpointEvery = time.Second

func newCheckpointer(w *worlds) *checkpointer {
	return &checkpointer{worlds: w, due: map[string]bool{}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](checkpointEvery, time.Minute))}
}

// Grew notes that a chain has a new head.
func (c *checkpointer) Grew(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.due[namespace] {
		c.due[namespace] = true
		c.queue.AddAfter(namespace, checkpointEvery)
	}
}

// Start implements manager.Runnable.
func (c *checkpointer) Start(ctx context.Context) error {
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for {
		namespace, stop := c.queue.Get()
		if stop {
			return nil
		}
		c.mu.Lock()
		c.due[namespace] = false
		c.mu.Unlock()
		if err := c.worlds.checkpoint(ctx, namespace); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).V(1).Info("Checkpoint is repeated", "namespace", namespace, "err", err.Error())
			c.queue.AddRateLimited(namespace)
		} else {
			c.queue.Forget(namespace)
		}
		c.queue.Done(namespace)
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *checkpointer) NeedLeaderElection() bool { return false }

// audit folds a namespace's whole chain again and compares it with the Effects, after admission was away: in that gap
// anybody with the right to delete could have deleted an Effect, which would free its key. It answers the seq of the last receipt
// that it read, and whether one of them tells of this gap.
func (w *worlds) audit(ctx context.Context, namespace string, accepted receipt.Link, gap receipt.Identity, recreate func(ctx context.Context, key types.NamespacedName, effectKey string) error) (last int64, told bool, err error) {
	if err := w.remembered(ctx, namespace); err != nil {
		return 0, false, err
	}
	verifier := receipt.NewVerifier(receipt.Options{From: accepted})
	keys := map[string]string{} // effect name -> key
	list := &v1alpha1.ReceiptList{}
	err = records.EachPage(ctx, w.reader, list, func() error {
		for i := range list.Items {
			entry := records.Entry(&list.Items[i])
			last = entry.Seq
			if id, err := receipt.IdentityOf(entry); err == nil && id == gap {
				told = true
			}
			if entry.Seq > accepted.Seq {
				if err := verifier.Add(entry); err != nil {
					return fmt.Errorf("%w: %w", ledger.ErrBroken, err)
				}
			}
			document, err := receipt.Parse(entry)
			if err != nil {
				continue // a kind of a later release; its bytes are verified all the same
			}
			if document.EffectKey != "" && document.Attempt > 0 {
				keys[document.EffectName] = document.EffectKey
			}
		}
		return nil
	}, client.InNamespace(namespace), client.Limit(100))
	if err != nil {
		return 0, false, err
	}
	if breaks := verifier.Report().Breaks; len(breaks) > 0 {
		return 0, false, fmt.Errorf("%w: %s at receipt %d", ledger.ErrBroken, breaks[0].Name, breaks[0].Seq)
	}
	// An admitted attempt that has no receipt yet names its key too.
	unfinished := &v1alpha1.ActionList{}
	err = records.EachPage(ctx, w.reader, unfinished, func() error {
		for i := range unfinished.Items {
			if s := unfinished.Items[i].Status; s.Execution != nil && s.Effect != nil {
				keys[s.Effect.Name] = s.Effect.Key
			}
		}
		return nil
	}, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("status.receiptRef.name", "")}, client.Limit(100))
	if err != nil {
		return 0, false, fmt.Errorf("list unfinished actions: %w", err)
	}
	effects := &metav1.PartialObjectMetadataList{}
	effects.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "EffectList"})
	err = records.EachPage(ctx, w.reader, effects, func() error {
		for i := range effects.Items {
			delete(keys, effects.Items[i].Name)
		}
		return nil
	}, client.InNamespace(namespace), client.Limit(100))
	if err != nil {
		return 0, false, fmt.Errorf("list effects: %w", err)
	}
	for name, key := range keys {
		if name == action.EffectName(key) {
			err = errors.Join(err, recreate(ctx, types.NamespacedName{Namespace: namespace, Name: name}, key))
		}
	}
	return last, told, err
}
