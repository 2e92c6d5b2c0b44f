package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// verifyCluster verifies the chain of the namespace, or all chains, and holds them against the objects around them.
func (a *app) verifyCluster(ctx context.Context, s *session, v verifying) error {
	if v.everywhere {
		return a.verifyAll(ctx, s, v)
	}
	for _, name := range append(v.heads.names(), v.from.names()...) {
		if name != s.Namespace() {
			return exit.Errorf(exit.Usage, "the chain is that of namespace %s; for %s give -n %s, or -A", s.Namespace(), name, name)
		}
	}
	if err := s.chainMayExist(ctx); err != nil {
		return err
	}
	report, err := a.verifyChain(ctx, s, s.Namespace(), v, "")
	if err != nil {
		return err
	}
	return a.reportVerification(report)
}

// chainMayExist refuses a namespace that does not exist: its chain would be empty, and intact. One that was deleted is known by
// its Ledger, and what that misses is reported.
func (s *session) chainMayExist(ctx context.Context) error {
	gone := s.namespaceThere(ctx)
	if gone == nil {
		return nil
	}
	if ledger, err := s.ledger(ctx); err == nil && ledger != nil && headOf(ledger).Seq > 0 {
		return nil
	}
	return exit.With(exit.Usage, fmt.Errorf("nothing was verified: %w", gone))
}

func (a *app) verifyAll(ctx context.Context, s *session, v verifying) error {
	names, err := a.chainNames(ctx, s)
	if err != nil {
		return err
	}
	for _, given := range []links{v.heads, v.from} {
		if err := given.needNames(names); err != nil {
			return err
		}
		names = append(names, given.names()...)
	}
	slices.Sort(names)
	t := a.tally()
	for _, name := range slices.Compact(names) {
		report, err := a.verifyChain(ctx, s, name, v, name)
		if err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		t.add(name, report)
	}
	if t.all == 0 {
		a.note("there is no chain in this cluster yet: a chain begins with the first receipt")
	}
	return t.verdict()
}

// chainNames are the namespaces that have a chain: a Ledger that remembers one, or a receipt.
func (a *app) chainNames(ctx context.Context, s *session) ([]string, error) {
	found := map[string]bool{}
	ledgers := &v1alpha1.LedgerList{}
	err := s.eachPage(ctx, ledgers, func() error {
		for i := range ledgers.Items {
			if headOf(&ledgers.Items[i]).Seq > 0 {
				found[ledgers.Items[i].Name] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	namespaces := &corev1.NamespaceList{}
	err = s.eachPage(ctx, namespaces, func() error {
		for i := range namespaces.Items {
			name := namespaces.Items[i].Name
			if found[name] {
				continue
			}
			first := &v1alpha1.ReceiptList{}
			if err := s.kube.List(ctx, first, kube.InNamespace(name), kube.Limit(1)); err != nil {
				return explain(err)
			}
			if len(first.Items) > 0 {
				found[name] = true
			}
		}
		return nil
	})
	if exit.Of(err) == exit.Refused {
		a.note("you may not list namespaces: only chains that have a Ledger are found")
		err = nil
	}
	return sortedKeys(found), err
}

// walk is one verification of a chain in a cluster.
type walk struct {
	app       *app
	session   *session
	namespace string
	spool     *spool
	cross     *receipt.CrossCheck
	found     map[int64]string // hashes of the seqs that heads name
	last      int64
	unread    int
	unseen    []string // what may not be read, and so is not checked
}

// verifyChain verifies one chain. It grows while it is read, so a head must be in it, not end it: the ledger's, and the one
// the user noted. What is read in which order matters, see receipt.CrossCheck.
func (a *app) verifyChain(ctx context.Context, s *session, namespace string, v verifying, label string) (receipt.Report, error) {
	w := &walk{app: a, session: s, namespace: namespace, spool: newSpool(), found: map[int64]string{0: receipt.Genesis}}
	defer w.spool.close()
	printer := a.breakPrinter(label)
	opts := receipt.Options{Each: printer.add}
	heads := map[string]receipt.Link{}
	if head, given := v.heads.forOne(namespace); given {
		heads["the head that was given"] = *head
	}
	if from, given := v.from.forOne(namespace); given {
		opts.From = *from
		w.found[from.Seq] = from.Hash
	}
	ledger, err := s.ledgerOf(ctx, namespace)
	switch {
	case exit.Of(err) == exit.Refused:
		w.unseen = append(w.unseen, "the Ledger (receipts cut off at the end cannot be missed without --head)")
	case err != nil:
		return receipt.Report{}, err
	case ledger != nil:
		heads["the ledger's head"] = headOf(ledger)
	}
	place, err := w.place(ctx, ledger)
	if err != nil {
		return receipt.Report{}, err
	}
	w.cross = receipt.NewCrossCheck(place)
	for _, head := range heads {
		if _, known := w.found[head.Seq]; !known {
			w.found[head.Seq] = ""
		}
	}
	for _, step := range []func(context.Context) error{w.actions, w.receipts, w.effects} {
		if err := step(ctx); err != nil {
			return receipt.Report{}, err
		}
	}
	verifier := receipt.NewVerifier(opts)
	if err := w.spool.each(func(r spooled) error { return verifier.AddDigest(r.digest) }); err != nil {
		return receipt.Report{}, err
	}
	printer.flush()
	if len(w.unseen) > 0 {
		a.note("not visible to you, and so not checked: %s", strings.Join(w.unseen, ", "))
	}
	report := againstHeads(verifier.Report(), heads, w.found)
	report = contradicted(report, w.cross.Breaks())
	if n := w.cross.Excused(); n > 0 {
		a.note("%s to receipts that were lost before a person accepted the chain", map[bool]string{true: "1 action refers", false: fmt.Sprintf("%d actions refer", n)}[n == 1])
	}
	return unreadToo(report, w.unread), nil
}

// contradicted adds to a report what the objects around the chain say against it.
func contradicted(report receipt.Report, breaks []receipt.Break) receipt.Report {
	report.Breaks = append(report.Breaks, breaks...)
	report.BreakCount += len(breaks)
	if len(breaks) > 0 && report.Verdict != receipt.Unreadable {
		report.Verdict = receipt.Broken
	}
	return report
}

// place is where the chain is, as far as one may know.
func (w *walk) place(ctx context.Context, ledger *v1alpha1.Ledger) (receipt.Place, error) {
	place := receipt.Place{Namespace: w.namespace}
	if ledger != nil && ledger.Status != nil {
		if accepted := ledger.Status.Accepted; accepted != nil {
			place.Accepted = &receipt.AcceptedHead{Seq: accepted.Seq, Time: accepted.Time.Time}
		}
		place.NamespaceUID = string(ledger.Status.NamespaceUID)
	}
	for name, uid := range map[string]*string{w.namespace: &place.NamespaceUID, metav1.NamespaceSystem: &place.ClusterID} {
		namespace := &corev1.Namespace{}
		err := w.session.kube.Get(ctx, kube.ObjectKey{Name: name}, namespace)
		switch {
		case err == nil:
			*uid = string(namespace.UID)
		case apierrors.IsForbidden(err):
			w.unseen = append(w.unseen, "the uid of namespace "+name)
		case !apierrors.IsNotFound(err):
			return place, explain(err)
		}
	}
	slices.Sort(w.unseen)
	return place, nil
}

// actions reads what finished Actions refer to.
func (w *walk) actions(ctx context.Context) error {
	page := &v1alpha1.ActionList{}
	err := w.session.eachPage(ctx, page, func() error {
		for i := range page.Items {
			if r, finished := records.Reference(&page.Items[i]); finished {
				w.cross.Refer(r)
			}
		}
		return nil
	}, kube.InNamespace(w.namespace), notCanary)
	return w.orUnseen(err, "Actions")
}

func (w *walk) orUnseen(err error, what string) error {
	if exit.Of(err) == exit.Refused {
		w.unseen = append(w.unseen, what)
		return nil
	}
	return err
}

func (w *walk) receipts(ctx context.Context) error {
	return w.session.eachReceiptOf(ctx, w.namespace, w.add)
}

func (w *walk) add(o *v1alpha1.Receipt) error {
	entry := records.Entry(o)
	if hash, wanted := w.found[entry.Seq]; wanted && hash == "" {
		w.found[entry.Seq] = entry.Hash
	}
	w.last = max(w.last, entry.Seq)
	digest := receipt.DigestOf(entry)
	if err := w.cross.Add(records.Stored(o), digest); err != nil {
		if w.unread++; w.unread <= maxNotedUnread {
			w.app.note("%s; its bytes are verified, but what it says is not held against Actions and Effects", oneLine(err.Error()))
		}
	}
	return w.spool.add(0, digest)
}

// effects holds the Effects against the receipts. Whatever is in doubt is read again, after the chain was read to its end
// once more, and reported only if it is in doubt still.
func (w *walk) effects(ctx context.Context) error {
	seen := map[string]bool{}
	var doubtful []*v1alpha1.Effect
	page := &v1alpha1.EffectList{}
	err := w.session.eachPage(ctx, page, func() error {
		for i := range page.Items {
			o := &page.Items[i]
			seen[o.Name] = true
			doubt := w.judge(o)
			if doubt == (receipt.Doubt{}) {
				continue
			}
			over := true
			if doubt.Pending {
				var err error
				if over, err = w.over(ctx, o); err != nil {
					return err
				}
			}
			if over {
				doubtful = append(doubtful, o.DeepCopy())
			}
		}
		return nil
	}, kube.InNamespace(w.namespace), notCanary)
	if exit.Of(err) == exit.Refused {
		return w.orUnseen(err, "Effects")
	}
	if err != nil {
		return err
	}
	for _, name := range w.cross.EffectNames() {
		if !seen[name] {
			doubtful = append(doubtful, &v1alpha1.Effect{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	if err := w.extend(ctx); err != nil {
		return err
	}
	for _, before := range doubtful {
		if err := w.again(ctx, before); err != nil {
			return err
		}
	}
	return nil
}

// judge asks what speaks against an Effect. One whose status was lost counts as Ambiguous, and contradicts nothing.
func (w *walk) judge(o *v1alpha1.Effect) receipt.Doubt {
	if o.Status == nil {
		return receipt.Doubt{}
	}
	return w.cross.Judge(records.EffectSays(o))
}

// over reports whether nobody is about to write the receipt of what an Effect says.
func (w *walk) over(ctx context.Context, o *v1alpha1.Effect) (bool, error) {
	if by := o.Status.Resolution; by != nil {
		resolution := &v1alpha1.Resolution{}
		there, err := w.get(ctx, by.Name, resolution)
		return !there || resolution.UID != by.UID || records.Given(meta.FindStatusCondition(resolution.Status.Conditions, v1alpha1.AcceptedCondition)), err
	}
	holder := o.Status.Holder
	if holder == nil {
		return false, nil
	}
	action := &v1alpha1.Action{}
	there, err := w.get(ctx, holder.Name, action)
	return !there || action.UID != holder.UID || action.Status.ReceiptRef != nil, err
}

// get reads an object of the namespace. One that may not be read is taken to be there, unfinished: it proves nothing.
func (w *walk) get(ctx context.Context, name string, o kube.Object) (there bool, err error) {
	err = w.session.kube.Get(ctx, kube.ObjectKey{Namespace: w.namespace, Name: name}, o)
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err) && !missingKind(err):
		return false, nil
	}
	return true, explain(err)
}

// extend reads the chain on from where the walk ended.
func (w *walk) extend(ctx context.Context) error {
	for {
		o := &v1alpha1.Receipt{}
		there, err := w.get(ctx, receipt.Name(w.namespace, w.last+1), o)
		if err != nil || !there {
			return err
		}
		if err := w.add(o); err != nil {
			return err
		}
		if o.Spec.Seq != w.last {
			return nil // it is not the receipt that its name promises, which is a break already
		}
	}
}

// again reads an Effect that was in doubt once more.
func (w *walk) again(ctx context.Context, before *v1alpha1.Effect) error {
	o := &v1alpha1.Effect{}
	there, err := w.get(ctx, before.Name, o)
	if err != nil {
		return err
	}
	doubt := receipt.Doubt{}
	if there {
		doubt = w.judge(o)
	} else {
		doubt = w.cross.Judge(receipt.Record{Name: before.Name, Absent: true})
	}
	// What another attempt, or a resolution since, says may be on its way again.
	moved := before.Status == nil || o.Status == nil || o.Status.Attempt != before.Status.Attempt || o.Status.State != before.Status.State
	if doubt == (receipt.Doubt{}) || doubt.Pending && moved {
		return nil
	}
	w.cross.Contradicted(doubt)
	return nil
}
