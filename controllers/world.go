package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// guard is something that may forbid deciding, in every namespace.
type guard interface {
	// Hold is nil while there is no reason to hold.
	Hold() *flow.Hold
}

// worlds knows what holds for each namespace: its settings and policies, its chain, its reasons to hold.
type worlds struct {
	cache     client.Reader
	reader    client.Reader
	writer    client.Client
	clock     Clock
	clusterID string
	// identity is who this operator is to the apiserver.
	identity  string
	admission *admissionGuard
	guards    []guard
	// proved is until when what the caches hold is known to be what the apiserver held.
	proved    func() time.Time
	retain    func(*v1alpha1.Action)
	recreate  func(ctx context.Context, key types.NamespacedName, effectKey string) error
	policies  *policyCache
	authority *authorityCache
	executors *executorCache
	// appended is called after each append, observer hears of every write.
	appended func(namespace string)
	observer observe.Observer
	// crash is called before and after an event is put on record. Tests end the operator there; else it does nothing.
	crash func(point string)

	mu     sync.Mutex
	chains map[string]*openChain

	showing sync.Mutex
	shown   map[string]shown
}

// openChain is a namespace's chain, and whether it may be used.
type openChain struct {
	mu sync.Mutex
	// uid of the namespace it was opened for.
	uid   types.UID
	epoch int64
	// accepted is the head the present epoch began with.
	accepted     receipt.Link
	acceptedTime time.Time
	chain        *ledger.Chain
	// hold says why nothing may be decided or appended here.
	hold *flow.Hold
	// audited is the admissionSince the chain was last compared with the effects for.
	audited time.Time
	// auditing serialises that comparison.
	auditing sync.Mutex
}

// errNoNamespace: nothing can be decided in a namespace that is not there.
var errNoNamespace = errors.New("the namespace is gone")

// world is everything that holds for a namespace now. The chain is nil while the ledger holds.
func (w *worlds) world(ctx context.Context, name string) (flow.World, *openChain, error) {
	ns := &corev1.Namespace{}
	if err := w.cache.Get(ctx, types.NamespacedName{Name: name}, ns); err != nil {
		if apierrors.IsNotFound(err) {
			w.mu.Lock()
			delete(w.chains, name)
			w.mu.Unlock()
			w.authority.forget(name)
			return flow.World{}, nil, errNoNamespace
		}
		return flow.World{}, nil, fmt.Errorf("read namespace: %w", err)
	}
	settings := &v1alpha1.Settings{}
	if err := w.cache.Get(ctx, types.NamespacedName{Namespace: name, Name: v1alpha1.SettingsName}, settings); err != nil && !apierrors.IsNotFound(err) {
		return flow.World{}, nil, fmt.Errorf("read settings: %w", err)
	}
	set, err := w.policies.set(ctx, name)
	if err != nil {
		return flow.World{}, nil, err
	}
	open, err := w.open(ctx, ns)
	if err != nil {
		return flow.World{}, nil, err
	}
	refused, err := w.audited(ctx, ns, open)
	if err != nil {
		return flow.World{}, nil, err
	}
	ruling := records.Settings(settings)
	world := flow.World{
		ClusterID:      w.clusterID,
		Namespace:      name,
		NamespaceUID:   string(ns.UID),
		Environment:    records.Environment(ns),
		AdmissionSince: w.admission.Since(),
		Limits:         ruling.Limits,
		Policies:       set,
		Observe:        ruling.Observe,
		Operator:       w.identity,
		People:         ruling.People,
		Required:       ruling.Required,
	}
	if world.Authority, err = w.authority.set(ctx, name, ruling.MaxDepth, world.AdmissionSince); err != nil {
		return flow.World{}, nil, err
	}
	if world.Executors, err = w.executors.set(ctx, name); err != nil {
		return flow.World{}, nil, err
	}
	if world.RulesHash, err = w.policies.hash(world); err != nil {
		return flow.World{}, nil, err
	}
	open.mu.Lock()
	world.Epoch, world.Accepted, world.AcceptedTime = open.epoch, open.accepted, open.acceptedTime
	if open.chain != nil {
		world.VerifiedSeq = open.chain.Head().Seq
	}
	open.mu.Unlock()
	world.Holds = w.holds(ns, open)
	if refused != nil {
		world.Holds = append(world.Holds, *refused)
	}
	return world, open, nil
}

// holds are the reasons to decide nothing now, the gravest first.
func (w *worlds) holds(ns *corev1.Namespace, open *openChain) []flow.Hold {
	var holds []flow.Hold
	if h := w.admission.Hold(); h != nil {
		holds = append(holds, *h)
	}
	open.mu.Lock()
	if open.hold != nil {
		holds = append(holds, *open.hold)
	}
	open.mu.Unlock()
	if ns.DeletionTimestamp != nil {
		holds = append(holds, flow.Hold{Reason: decision.NamespaceTerminating, Message: "The namespace is being deleted. Nothing is decided in it any more.", Since: ns.DeletionTimestamp.Time})
	}
	for _, g := range w.guards {
		if h := g.Hold(); h != nil {
			holds = append(holds, *h)
		}
	}
	return holds
}

// open gives the namespace's chain, checked against everything that is remembered of it.
func (w *worlds) open(ctx context.Context, ns *corev1.Namespace) (*openChain, error) {
	w.mu.Lock()
	o, ok := w.chains[ns.Name]
	if !ok {
		o = &openChain{}
		w.chains[ns.Name] = o
	}
	w.mu.Unlock()

	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uid == ns.UID && (o.chain != nil || o.hold != nil) {
		return o, nil
	}
	return o, w.check(ctx, o, ns)
}

// check opens or re-opens a chain. The caller holds o.mu.
func (w *worlds) check(ctx context.Context, o *openChain, ns *corev1.Namespace) error {
	view := flow.LedgerView{Namespace: ns.Name, NamespaceUID: string(ns.UID), At: func(seq int64) (string, error) {
		entry, ok, err := ledger.Get(ctx, w.reader, ns.Name, seq)
		if err != nil || !ok {
			return "", err
		}
		return entry.Hash, nil
	}}
	l := &v1alpha1.Ledger{}
	err := w.reader.Get(ctx, types.NamespacedName{Name: ns.Name}, l)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read ledger: %w", err)
	}
	exists := err == nil
	if exists && l.Status != nil {
		view.Recorded = &receipt.Link{Seq: l.Status.Seq, Hash: l.Status.Hash}
		view.RecordedUID = string(l.Status.NamespaceUID)
		o.epoch, o.accepted, o.acceptedTime = l.Status.Epoch, receipt.Link{}, time.Time{}
		if a := l.Status.Accepted; a != nil {
			o.accepted, o.acceptedTime = receipt.Link{Seq: a.Seq, Hash: a.Hash}, a.Time.Time
		}
		if c := meta.FindStatusCondition(l.Status.Conditions, v1alpha1.ReadyCondition); c != nil && c.Status == metav1.ConditionFalse {
			view.Held = c.Message // it is for a person to accept, not for a restart to forget
		}
	}
	if o.chain != nil {
		head := o.chain.Head()
		view.Remembered = &head
	}
	if view.HighestRef, err = highestRef(ctx, w.reader, ns.Name, o.acceptedTime); err != nil {
		return err
	}
	message, err := flow.CheckLedger(view)
	if err != nil {
		return err
	}
	if message != "" {
		o.uid = ns.UID
		o.holdLedger(message, w.clock.Now())
		return w.markLedger(ctx, ns.Name, false, message)
	}
	from := receipt.Start()
	if view.Recorded != nil {
		from = *view.Recorded
	} else if err := w.createLedger(ctx, ns, exists, l); err != nil {
		return err
	}
	chain := ledger.NewChain(ns.Name, from, o.accepted, w.reader, w.writer)
	told := rulesOf(l.Status)
	if told == nil {
		// A Ledger that does not say: of an accepted head, or made again. Only then the chain is searched.
		if told, err = w.readRules(ctx, ns.Name, from.Seq); err != nil {
			return err
		}
	}
	chain.Follow(told)
	if _, err := chain.Extend(ctx); err != nil {
		if errors.Is(err, ledger.ErrBroken) {
			o.uid = ns.UID
			message := err.Error() + "." + flow.HowToAccept(ns.Name)
			o.holdLedger(message, w.clock.Now())
			return w.markLedger(ctx, ns.Name, false, message)
		}
		return err
	}
	o.uid, o.chain, o.hold = ns.UID, chain, nil
	if l.Status != nil && l.Status.AdmissionSince != nil {
		o.audited = l.Status.AdmissionSince.Time
	}
	if exists && l.Status != nil && !meta.IsStatusConditionTrue(l.Status.Conditions, v1alpha1.ReadyCondition) {
		return w.markLedger(ctx, ns.Name, true, "")
	}
	return nil
}

func (o *openChain) holdLedger(message string, now time.Time) {
	if o.hold == nil {
		o.hold = &flow.Hold{Reason: decision.LedgerRolledBack, Since: now}
	}
	o.hold.Message = message
}

// broken holds the namespace because its chain contradicts what is remembered of it.
func (w *worlds) broken(ctx context.Context, namespace string, o *openChain, cause error) error {
	message := cause.Error() + "." + flow.HowToAccept(namespace)
	o.mu.Lock()
	o.holdLedger(message, w.clock.Now())
	o.mu.Unlock()
	return w.markLedger(ctx, namespace, false, message)
}

// reopen checks a chain again, after somebody accepted another head.
func (w *worlds) reopen(ctx context.Context, ns *corev1.Namespace) error {
	o, err := w.open(ctx, ns)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.chain, o.hold = nil, nil
	return w.check(ctx, o, ns)
}

// highestRef is the last link of a chain that an Action quotes which finished after a time.
func highestRef(ctx context.Context, reader client.Reader, namespace string, after time.Time) (receipt.Link, error) {
	var highest receipt.Link
	page := &v1alpha1.ActionList{}
	err := records.EachPage(ctx, reader, page, func() error {
		for i := range page.Items {
			s := &page.Items[i].Status
			if t := s.FinishTime; t != nil && t.After(after) && s.ReceiptRef != nil && s.ReceiptRef.Seq > highest.Seq {
				highest = receipt.Link{Seq: s.ReceiptRef.Seq, Hash: s.ReceiptRef.Hash}
			}
		}
		return nil
	}, client.InNamespace(namespace), client.Limit(finishedPage), finishedActions)
	if err != nil {
		return receipt.Link{}, fmt.Errorf("list finished actions: %w", err)
	}
	return highest, nil
}

func (w *worlds) createLedger(ctx context.Context, ns *corev1.Namespace, exists bool, l *v1alpha1.Ledger) error {
	if !exists {
		l = &v1alpha1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
		if err := w.writer.Create(ctx, l); err != nil {
			return fmt.Errorf("create ledger: %w", err)
		}
	}
	// If we die right here the Ledger has no status: the next check writes it, as for a new chain.
	l.Status = &v1alpha1.LedgerStatus{Hash: receipt.Genesis, NamespaceUID: ns.UID, CheckpointTime: metav1.NewTime(w.clock.Now())}
	if since := w.admission.Since(); !since.IsZero() {
		t := metav1.NewMicroTime(since)
		l.Status.AdmissionSince = &t
	}
	records.SetCondition(&l.Status.Conditions, l.Generation, w.clock.Now(), v1alpha1.ReadyCondition, true, "ChainVerified", "The chain fits everything that is remembered of it.")
	if err := w.writer.Status().Update(ctx, l); err != nil {
		return fmt.Errorf("initialise ledger: %w", err)
	}
	return nil
}

// markLedger tells people whether the namespace holds.
func (w *worlds) markLedger(ctx context.Context, namespace string, ready bool, message string) error {
	l := &v1alpha1.Ledger{}
	if err := w.reader.Get(ctx, types.NamespacedName{Name: namespace}, l); err != nil || l.Status == nil {
		return client.IgnoreNotFound(err)
	}
	before := l.DeepCopy()
	reason := "ChainVerified"
	if !ready {
		reason = decision.LedgerRolledBack.Condition()
	} else {
		message = "The chain fits everything that is remembered of it."
	}
	records.SetCondition(&l.Status.Conditions, l.Generation, w.clock.Now(), v1alpha1.ReadyCondition, ready, reason, message)
	if equalStatus(before.Status.Conditions, l.Status.Conditions) {
		return nil
	}
	return w.writer.Status().Update(ctx, l)
}

// checkpoint writes the head into the Ledger. It is never needed for safety: it is what a later process starts from, and
// what a rollback is noticed by.
func (w *worlds) checkpoint(ctx context.Context, namespace string) error {
	w.mu.Lock()
	o := w.chains[namespace]
	w.mu.Unlock()
	if o == nil {
		return nil
	}
	o.mu.Lock()
	chain, epoch, held := o.chain, o.epoch, o.hold != nil
	o.mu.Unlock()
	if chain == nil || held {
		return nil
	}
	rules, head := chain.Rules()
	l := &v1alpha1.Ledger{}
	if err := w.reader.Get(ctx, types.NamespacedName{Name: namespace}, l); err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	if l.Status == nil || l.Status.Epoch != epoch || l.Status.Seq >= head.Seq {
		return nil
	}
	l.Status.Seq, l.Status.Hash, l.Status.CheckpointTime = head.Seq, head.Hash, metav1.NewTime(w.clock.Now())
	setRules(l.Status, rules)
	if err := w.writer.Status().Update(ctx, l); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Checkpoint", "namespace", namespace, "seq", head.Seq, "hash", head.Hash, "epoch", epoch)
	return nil
}

// append creates a receipt after the head that was folded, and tells who wants to know. settled is when what it is about was
// over; the zero time: not known.
func (w *worlds) append(ctx context.Context, namespace string, chain *ledger.Chain, head receipt.Link, document receipt.Document, settled time.Time) (receipt.Link, receipt.Document, error) {
	link, document, err := chain.Append(ctx, head, document)
	if err != nil {
		return receipt.Link{}, document, err
	}
	w.appended(namespace)
	// A document has one rendering, so this is what was stored.
	entry, err := document.Entry(head)
	if err != nil {
		return receipt.Link{}, document, err
	}
	now := w.clock.Now()
	told := observe.ReceiptAppend{Namespace: namespace, Entry: entry, Document: document, Time: now}
	if !settled.IsZero() {
		told.Lag = max(0, now.Sub(settled))
	}
	w.observer.ReceiptAppended(told)
	return link, document, nil
}

// shown is what metrics show of one chain.
type shown struct {
	open bool
	seq  int64
	hold string // reason, or ""
}

// show looks at all chains. One is locked while it is opened, for as long as the apiserver takes; whoever looks does not
// wait for that and gets what it was the last time.
func (w *worlds) show() map[string]shown {
	w.mu.Lock()
	chains := maps.Clone(w.chains)
	w.mu.Unlock()
	w.showing.Lock()
	defer w.showing.Unlock()
	now := make(map[string]shown, len(chains))
	for namespace, o := range chains {
		now[namespace] = w.shown[namespace]
		if !o.mu.TryLock() {
			continue
		}
		var s shown
		if o.chain != nil {
			s.open, s.seq = true, o.chain.Head().Seq
		}
		if o.hold != nil {
			s.hold = string(o.hold.Reason)
		}
		o.mu.Unlock()
		now[namespace] = s
	}
	w.shown = now
	return now
}

// heads are the last receipts of the chains that are open, by namespace.
func (w *worlds) heads() map[string]int64 {
	heads := map[string]int64{}
	for namespace, s := range w.show() {
		if s.open {
			heads[namespace] = s.seq
		}
	}
	return heads
}

// held are the reasons of namespaces that hold because of their chains.
func (w *worlds) held() map[string]string {
	held := map[string]string{}
	for namespace, s := range w.show() {
		if s.hold != "" {
			held[namespace] = s.hold
		}
	}
	return held
}

type auditKey struct{}

// audited compares the chain with the effects once for each admissionSince, before anything is decided under it. The hold
// says that a quota refuses what has to be put on record first.
func (w *worlds) audited(ctx context.Context, ns *corev1.Namespace, o *openChain) (*flow.Hold, error) {
	namespace := ns.Name
	since := w.admission.Since()
	if ctx.Value(auditKey{}) != nil || w.admission.Hold() != nil || ns.DeletionTimestamp != nil {
		return nil, nil
	}
	o.auditing.Lock()
	defer o.auditing.Unlock()
	o.mu.Lock()
	done, accepted := o.hold != nil || o.chain == nil || o.audited.Equal(since), o.accepted
	o.mu.Unlock()
	if done {
		return nil, nil
	}
	gap := receipt.Identity{Kind: receipt.KindEvent, SubjectUID: string(ns.UID), Ordinal: since.UnixMicro()}
	last, told, err := w.audit(context.WithValue(ctx, auditKey{}, true), namespace, accepted, gap, w.recreate)
	if errors.Is(err, ledger.ErrBroken) {
		return nil, w.broken(ctx, namespace, o, err)
	}
	if err != nil {
		return nil, err
	}
	l := &v1alpha1.Ledger{}
	if err := w.reader.Get(ctx, types.NamespacedName{Name: namespace}, l); err != nil {
		return nil, err
	}
	if s := l.Status; !told && s != nil && s.AdmissionSince != nil && s.AdmissionSince.Time.Before(since) {
		// Put on record before the Ledger says that it is over: if we die in between, the next audit reads it. It was not
		// among what this one read, so it is not at or before the last of that.
		snapshot := flow.Snapshot{Now: w.clock.Now(), World: flow.World{ClusterID: w.clusterID, Namespace: namespace, NamespaceUID: string(ns.UID), Epoch: s.Epoch}}
		_, _, err := w.appendEvent(ctx, o, flow.GapDocument(snapshot, since, s.AdmissionSince.Time, w.admission.Noticed()), last, always)
		switch {
		case errors.Is(err, ledger.ErrBroken):
			return nil, w.broken(ctx, namespace, o, err)
		case exceedsQuota(err):
			return quotaHold(err), nil
		case err != nil:
			return nil, err
		}
	}
	if l.Status != nil && (l.Status.AdmissionSince == nil || l.Status.AdmissionSince.Time.Before(since)) {
		t := metav1.NewMicroTime(since)
		l.Status.AdmissionSince = &t
		if err := w.writer.Status().Update(ctx, l); err != nil {
			return nil, fmt.Errorf("note the audit: %w", err)
		}
	}
	o.mu.Lock()
	o.audited = since
	o.mu.Unlock()
	return nil, nil
}
