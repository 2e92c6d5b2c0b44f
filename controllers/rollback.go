package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// lookBackEvery is how often it is looked whether the cluster has gone back in time.
const lookBackEvery = 2 * time.Second

// errRolledBack ends the process after the cluster was restored to an earlier point, once every Ledger says what does not
// fit. Our watches would go on at a version the cluster has yet to reach, and our caches show what never happened there.
var errRolledBack = errors.New("the cluster was restored to an earlier point, so the caches of this process hold what is not there any more; what its chains lack is written into their Ledgers; it ends, to be started anew")

// rollback notices what this process alone can notice of a chain, without waiting for an action that would touch it: that the
// cluster was restored to an earlier point, and, once admission is in force again, what was done to the chain while it was
// away. Only this process remembers the heads there were, and whoever restores a cluster is told to restart what runs in it.
// So what it knows goes into the Ledgers.
type rollback struct {
	worlds *worlds
	log    logr.Logger

	// highest version of the cluster that was seen.
	highest uint64
	// lost: a chain lacks what this process remembers of it.
	lost bool
	// away: the apiserver did not answer since. Whoever restores a cluster stops its apiservers.
	away bool
	// audited is the admissionSince all open chains were audited for.
	audited time.Time
	// checkpointed are chains whose heads were written into their Ledgers after they were opened.
	checkpointed map[string]*ledger.Chain
}

// Start implements manager.Runnable.
func (r *rollback) Start(ctx context.Context) error {
	r.checkpointed = map[string]*ledger.Chain{}
	ticker := time.NewTicker(lookBackEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.log.Error(err, "The cluster has gone back in time")
			return err
		}
		r.audit(ctx)
		r.checkpoint(ctx)
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each process remembers heads of its own.
func (r *rollback) NeedLeaderElection() bool { return false }

// look gives errRolledBack when the cluster has gone back and every Ledger says what its chain lacks. What could not be found
// out is left to the next look.
func (r *rollback) look(ctx context.Context) error {
	at, err := r.version(ctx)
	if err != nil {
		r.away = true
		return nil
	}
	if at >= r.highest && !r.away {
		r.highest = at
		return nil
	}
	lost, err := r.compare(ctx)
	r.lost = r.lost || lost // a Ledger that could not be written is tried again, by when the head may have been held already
	switch {
	case err != nil:
		r.log.V(1).Info("The heads could not be compared with the cluster after it was away", "err", err.Error())
		return nil
	case r.lost || at < r.highest:
		return errRolledBack
	}
	r.highest, r.away = at, false
	return nil
}

// audit has every open chain audited that no action has led to since admission is in force again. Where the namespace holds
// already, the Ledger may have been rewritten meanwhile to say that it does not.
func (r *rollback) audit(ctx context.Context) {
	since := r.worlds.admission.Since()
	if r.worlds.admission.Hold() != nil || since.Equal(r.audited) {
		return
	}
	all := true
	for namespace := range r.open() {
		if err := r.worlds.again(ctx, namespace); err != nil {
			r.log.V(1).Info("A chain could not be audited", "namespace", namespace, "err", err.Error())
			all = false
		}
	}
	if all {
		r.audited = since
	}
}

// checkpoint writes the heads of chains that were opened since the last look. Whoever appended their last receipts may have
// died before the Ledger said so, and until it does the next process would not miss them.
func (r *rollback) checkpoint(ctx context.Context) {
	open := r.open()
	maps.DeleteFunc(r.checkpointed, func(namespace string, _ *ledger.Chain) bool { return open[namespace] == nil })
	for namespace, o := range open {
		chain := o.usable()
		if chain == nil || r.checkpointed[namespace] == chain {
			continue
		}
		if err := r.worlds.checkpoint(ctx, namespace); err != nil {
			r.log.V(1).Info("A head could not be written into its Ledger", "namespace", namespace, "err", err.Error())
			continue
		}
		r.checkpointed[namespace] = chain
	}
}

// open are the chains of this process by namespace.
func (r *rollback) open() map[string]*openChain {
	r.worlds.mu.Lock()
	defer r.worlds.mu.Unlock()
	return maps.Clone(r.worlds.chains)
}

// version is the cluster's present resource version, which only grows unless it is restored.
func (r *rollback) version(ctx context.Context) (uint64, error) {
	bounded, cancel := context.WithTimeout(ctx, freshnessTrust)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.worlds.reader.List(bounded, list, client.Limit(1)); err != nil { // without a resourceVersion: consistent
		return 0, err
	}
	return version(list.ResourceVersion)
}

// compare looks at the head of every open chain, and says whether one was lost. An error means that it was not found out for
// all of them.
func (r *rollback) compare(ctx context.Context) (lost bool, err error) {
	chains := r.open()
	for _, namespace := range slices.Sorted(maps.Keys(chains)) {
		gone, failed := r.worlds.lost(ctx, namespace, chains[namespace])
		lost, err = lost || gone, errors.Join(err, failed)
	}
	return lost, err
}

// lost says whether a chain lacks what this process remembers of it. Then its namespace holds, and its Ledger says so.
func (w *worlds) lost(ctx context.Context, namespace string, o *openChain) (bool, error) {
	o.mu.Lock()
	uid, chain, hold := o.uid, o.chain, o.hold
	o.mu.Unlock()
	if chain == nil && hold == nil {
		return false, nil // never opened: nothing is remembered of it
	}
	gone := false
	if chain != nil {
		err := chain.Look(ctx)
		if gone = errors.Is(err, ledger.ErrBroken); err != nil && !gone {
			return false, err
		}
		if gone {
			// Looked at afterwards: receipts go with their namespace.
			if remains, err := w.remains(ctx, namespace, uid); err != nil || !remains {
				return false, err
			}
			o.mu.Lock()
			o.holdLedger(err.Error()+"."+flow.HowToAccept(namespace), w.clock.Now())
			hold = o.hold
			o.mu.Unlock()
		}
	}
	if hold == nil {
		return false, nil
	}
	if remains, err := w.remains(ctx, namespace, uid); err != nil || !remains {
		return false, err
	}
	// An earlier hold may be gone from the Ledger: it was restored too.
	return gone, w.keepHold(ctx, namespace, o, hold.Message)
}

// remains reports whether the namespace is there, and is not going. Another one of its name is checked when it is opened.
func (w *worlds) remains(ctx context.Context, namespace string, uid types.UID) (bool, error) {
	ns := &corev1.Namespace{}
	if err := w.reader.Get(ctx, types.NamespacedName{Name: namespace}, ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return ns.UID == uid && ns.DeletionTimestamp == nil, nil
}

// again audits a chain, or, where its namespace holds, sees to it that the Ledger says so.
func (w *worlds) again(ctx context.Context, namespace string) error {
	_, o, err := w.world(ctx, namespace)
	if err != nil {
		if errors.Is(err, errNoNamespace) {
			return nil
		}
		return err
	}
	o.mu.Lock()
	hold := o.hold
	o.mu.Unlock()
	if hold == nil {
		return nil
	}
	return w.keepHold(ctx, namespace, o, hold.Message)
}

// remembered compares what this process remembers of a chain with what is there: its head, and that there is a Ledger. An
// error that is ledger.ErrBroken says that the namespace has to hold.
func (w *worlds) remembered(ctx context.Context, namespace string) error {
	w.mu.Lock()
	o := w.chains[namespace]
	w.mu.Unlock()
	if o == nil {
		return nil
	}
	o.mu.Lock()
	chain, uid := o.chain, o.uid
	o.mu.Unlock()
	if chain == nil {
		return nil
	}
	broken := chain.Look(ctx)
	if broken == nil {
		err := w.reader.Get(ctx, types.NamespacedName{Name: namespace}, &v1alpha1.Ledger{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		broken = fmt.Errorf("%w: the Ledger of this namespace has disappeared", ledger.ErrBroken)
	}
	if !errors.Is(broken, ledger.ErrBroken) {
		return broken
	}
	if remains, err := w.remains(ctx, namespace, uid); err != nil || !remains {
		return errors.Join(err, errAgain)
	}
	if err := w.keepHold(ctx, namespace, o, broken.Error()+"."+flow.HowToAccept(namespace)); err != nil {
		return err
	}
	return broken
}

// keepHold writes into the Ledger that the namespace holds. Where there is none any more it is made again with what this
// process remembers: otherwise the hold would end with the process.
func (w *worlds) keepHold(ctx context.Context, namespace string, o *openChain, message string) error {
	l := &v1alpha1.Ledger{}
	err := w.reader.Get(ctx, types.NamespacedName{Name: namespace}, l)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	o.mu.Lock()
	epoch := o.epoch
	o.mu.Unlock()
	if err == nil && l.Status != nil {
		if l.Status.Epoch > epoch {
			return nil // a person has accepted another head since; it is opened anew
		}
		return w.markLedger(ctx, namespace, false, message)
	}
	if apierrors.IsNotFound(err) {
		l = &v1alpha1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := w.writer.Create(ctx, l); err != nil {
			return fmt.Errorf("make the ledger again: %w", err)
		}
	}
	o.mu.Lock()
	head, now := receipt.Start(), w.clock.Now()
	if o.chain != nil {
		head = o.chain.Head()
	}
	l.Status = &v1alpha1.LedgerStatus{Epoch: o.epoch, Seq: head.Seq, Hash: head.Hash, NamespaceUID: o.uid, CheckpointTime: metav1.NewTime(now)}
	if o.accepted.Hash != "" {
		l.Status.Accepted = &v1alpha1.AcceptedHead{Seq: o.accepted.Seq, Hash: o.accepted.Hash, Time: metav1.NewTime(o.acceptedTime)}
	}
	if !o.audited.IsZero() {
		t := metav1.NewMicroTime(o.audited)
		l.Status.AdmissionSince = &t
	}
	o.mu.Unlock()
	records.SetCondition(&l.Status.Conditions, l.Generation, now, v1alpha1.ReadyCondition, false, decision.LedgerRolledBack.Condition(), message)
	if err := w.writer.Status().Update(ctx, l); err != nil {
		return fmt.Errorf("make the ledger again: %w", err)
	}
	return nil
}
