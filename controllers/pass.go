package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
)

type runtimeObject = runtime.Object

const (
	// passLimit is how long after its first read a pass may still reserve or admit.
	passLimit = 10 * time.Second
	// maxSteps bounds one pass; whatever is left is done by the next.
	maxSteps = 64
	// quotaRetry is how long after a ResourceQuota refused a write it is tried again.
	quotaRetry = 15 * time.Second
)

// Indexes of the caches.
const (
	byActionUID  = "actionUID"
	byEffectName = "effectName"
	byHolderUID  = "holderUID"
)

// passes does what the kernel says, step by step, for one subject at a time. It decides nothing: it reads what it is told
// to read, writes what it is told to write, and asks again.
type passes struct {
	client client.Client // writes; reads from caches
	reader client.Reader // the apiserver itself
	clock  Clock
	worlds *worlds
	// parts reads what preconditions name.
	parts *parts
	// executions are what this process executes itself.
	executions *executions
	// identity is who this operator is to the apiserver, for what it states itself.
	identity string
	// crash is called before and after each write with its name. Tests end the operator there; else it does nothing.
	crash func(point string)
}

// pass is one run over one subject.
type pass struct {
	*passes
	namespace string
	open      *openChain
	began     time.Time
	s         flow.Snapshot

	action *v1alpha1.Action
	effect *v1alpha1.Effect
	holder *v1alpha1.Action
	others map[string]*v1alpha1.Action // by uid: actions of a lost record's key
	// over is when what the pass is about was over, if this pass made it so: stored times have whole seconds.
	over time.Time
	// entitled is what the apiserver said in this pass of those who approved, by uid of the approval.
	entitled map[string]approval.Entitlement
	// quota is a write that a ResourceQuota refused in this pass.
	quota *flow.Hold
}

// errAgain ends a pass that must begin anew, soon.
var errAgain = errors.New("begin again")

// runAction takes an Action as far as it goes now.
func (p *passes) runAction(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	r := &pass{passes: p, namespace: key.Namespace, began: time.Now()}
	o := &v1alpha1.Action{}
	if err := p.client.Get(ctx, key, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if o.Labels[v1alpha1.CanaryLabel] != "" || o.Status.ReceiptRef != nil {
		return ctrl.Result{}, nil
	}
	r.setAction(o, flow.Cached)
	if err := r.fill(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return r.run(ctx)
}

// runEffect looks after an Effect. effectKey is given where there may be no record.
func (p *passes) runEffect(ctx context.Context, key types.NamespacedName, effectKey string) (ctrl.Result, error) {
	r := &pass{passes: p, namespace: key.Namespace, began: time.Now()}
	r.s.EffectName, r.s.EffectKey = key.Name, effectKey
	o := &v1alpha1.Effect{}
	err := p.client.Get(ctx, key, o)
	switch {
	case err == nil && o.Labels[v1alpha1.CanaryLabel] != "":
		return ctrl.Result{}, nil
	case err == nil:
		r.setEffect(o, flow.Cached)
	case !apierrors.IsNotFound(err):
		return ctrl.Result{}, err
	}
	if err := r.fillEffect(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return r.run(ctx)
}

// fill puts into the snapshot what the caches hold about an action.
func (r *pass) fill(ctx context.Context) error {
	a := r.s.Action.Action
	if a.Effect != nil {
		o := &v1alpha1.Effect{}
		if err := r.client.Get(ctx, r.named(a.Effect.Name), o); err == nil {
			r.setEffect(o, flow.Cached)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	approvals := &v1alpha1.ApprovalList{}
	if err := r.client.List(ctx, approvals, client.InNamespace(r.namespace), client.MatchingFields{byActionUID: a.UID}); err != nil {
		return err
	}
	r.s.Answers = flow.AnswersRead{Presence: flow.Cached, Answers: r.answers(approvals)}
	claims := &v1alpha1.ClaimList{}
	if err := r.client.List(ctx, claims, client.InNamespace(r.namespace), client.MatchingFields{byActionUID: a.UID}); err != nil {
		return err
	}
	if err := r.setClaims(ctx, claims, flow.Cached); err != nil {
		return err
	}
	if name := r.s.LockName(); name != "" {
		o := &v1alpha1.Outcome{}
		if err := r.client.Get(ctx, r.named(name), o); err == nil {
			r.s.Lock = flow.OutcomeRead{Presence: flow.Cached, Outcome: records.Outcome(o)}
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		late := &v1alpha1.Outcome{}
		if err := r.client.Get(ctx, r.named("late."+name), late); err == nil {
			r.s.Late = records.Outcome(late)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return r.fillHolder(ctx)
}

// fillEffect puts into the snapshot what the caches hold about an effect.
func (r *pass) fillEffect(ctx context.Context) error {
	resolutions := &v1alpha1.ResolutionList{}
	if err := r.client.List(ctx, resolutions, client.InNamespace(r.namespace), client.MatchingFields{byEffectName: r.s.EffectName}); err != nil {
		return err
	}
	r.setResolutions(resolutions)
	if err := r.fillHolder(ctx); err != nil {
		return err
	}
	if e := r.effect; e != nil && e.Status != nil && e.Status.Nonce != "" && e.Status.Holder != nil {
		late := &v1alpha1.Outcome{}
		if err := r.client.Get(ctx, r.named(lateName(e.Status.Holder.UID, e.Status.Nonce, r.identity)), late); err == nil {
			r.s.Late = records.Outcome(late)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	if e := r.effect; e != nil && e.Status != nil && e.Status.OutcomeRef != nil {
		late := &v1alpha1.Outcome{}
		if err := r.client.Get(ctx, r.named("late."+e.Status.OutcomeRef.Name), late); err == nil {
			r.s.Late = records.Outcome(late)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (r *pass) fillHolder(ctx context.Context) error {
	if r.effect == nil || r.effect.Status == nil || r.effect.Status.Holder == nil {
		return nil
	}
	h := r.effect.Status.Holder
	o := &v1alpha1.Action{}
	err := r.client.Get(ctx, r.named(h.Name), o)
	switch {
	case err == nil && o.UID == h.UID:
		r.setHolder(o, flow.Cached)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	return nil
}

// run asks the kernel for the next step and does it, until there is nothing to do now.
func (r *pass) run(ctx context.Context) (ctrl.Result, error) {
	log := ctrl.LoggerFrom(ctx)
	for range maxSteps {
		world, open, err := r.worlds.world(ctx, r.namespace)
		if errors.Is(err, errNoNamespace) {
			return ctrl.Result{}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
		if r.quota != nil {
			world.Holds = append(world.Holds, *r.quota)
		}
		r.open, r.s.World, r.s.Now = open, world, r.clock.Now()
		step := flow.Next(r.s)
		log.V(4).Info("next step", "step", fmt.Sprintf("%T", step), "elapsed", time.Since(r.began).String())
		switch step := step.(type) {
		case flow.Done:
			return ctrl.Result{}, nil
		case flow.Wait:
			switch {
			case r.quota != nil:
				return ctrl.Result{RequeueAfter: quotaRetry}, nil
			case step.Until.IsZero():
				return ctrl.Result{}, nil
			}
			return ctrl.Result{RequeueAfter: max(step.Until.Sub(r.s.Now), time.Millisecond)}, nil
		case flow.Read:
			err = r.read(ctx, step)
		case flow.WriteAction:
			err = r.writeAction(ctx, step)
		case flow.WriteEffect:
			err = r.writeEffect(ctx, step)
		case flow.Begin:
			return r.begin(ctx, step)
		case flow.Observe:
			return r.observe(ctx, step)
		case flow.Resolve:
			err = r.resolve(ctx, step)
		case flow.DeclareLapse:
			err = r.declareLapse(ctx, step)
		case flow.Append:
			err = r.append(ctx, step)
		case flow.Judge:
			err = r.judge(ctx, step)
		default:
			err = fmt.Errorf("unknown step %T", step)
		}
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return ctrl.Result{}, nil // nothing can be created there any more; all of it goes with the namespace
		case r.quota == nil && exceedsQuota(err):
			r.quota = quotaHold(err)
		case errors.Is(err, errAgain):
			return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil
		case errors.Is(err, ledger.ErrBroken):
			log.Error(err, "The chain of this namespace does not fit what is remembered of it; the namespace holds", "namespace", r.namespace)
			return ctrl.Result{}, r.worlds.broken(ctx, r.namespace, r.open, err)
		case err != nil:
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil
}

func (r *pass) named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

func (r *pass) setAction(o *v1alpha1.Action, presence flow.Presence) {
	r.action, r.s.Action = o, flow.ActionRead{Presence: presence, Action: records.Action(o)}
}

func (r *pass) setEffect(o *v1alpha1.Effect, presence flow.Presence) {
	r.effect, r.s.Effect = o, flow.EffectRead{Presence: presence, Record: records.Effect(o)}
}

func (r *pass) setHolder(o *v1alpha1.Action, presence flow.Presence) {
	r.holder, r.s.Holder = o, flow.ActionRead{Presence: presence, Action: records.Action(o)}
}

// read puts one thing into the snapshot, as the apiserver itself gives it.
func (r *pass) read(ctx context.Context, step flow.Read) error {
	switch step.Object {
	case flow.TheAction:
		return r.readAction(ctx)
	case flow.TheEffect:
		return r.readEffect(ctx, step.Name)
	case flow.TheHolder:
		return r.readHolder(ctx, step.Name)
	case flow.TheAnswers:
		list := &v1alpha1.ApprovalList{}
		if err := r.reader.List(ctx, list, client.InNamespace(r.namespace), r.ofAction()); err != nil {
			return fmt.Errorf("list approvals: %w", err)
		}
		r.s.Answers = flow.AnswersRead{Presence: flow.Fresh, Answers: r.answers(list)}
	case flow.TheEntitlement:
		return r.readEntitlement(ctx, step.Name)
	case flow.ThePreconditions:
		return r.readPreconditions(ctx)
	case flow.TheClaims:
		list := &v1alpha1.ClaimList{}
		if err := r.reader.List(ctx, list, client.InNamespace(r.namespace), r.ofAction()); err != nil {
			return fmt.Errorf("list claims: %w", err)
		}
		return r.setClaims(ctx, list, flow.Fresh)
	case flow.TheLock:
		return r.readLock(ctx)
	case flow.TheChain:
		return r.readChain(ctx, step.Identity, step.Floor)
	case flow.TheKey:
		return r.readKey(ctx, step.Name)
	case flow.TheResolutions:
		list := &v1alpha1.ResolutionList{}
		if err := r.reader.List(ctx, list, client.InNamespace(r.namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.effectRef.name", step.Name)}); err != nil {
			return fmt.Errorf("list resolutions: %w", err)
		}
		r.setResolutions(list)
		r.s.ResolutionsListed = true
	case flow.TheQuoted:
		return r.readQuoted(ctx, step.Name)
	default:
		return fmt.Errorf("unknown object %q", step.Object)
	}
	return nil
}

func (r *pass) setResolutions(list *v1alpha1.ResolutionList) {
	r.s.Resolutions = make([]flow.Resolution, 0, len(list.Items))
	for i := range list.Items {
		r.s.Resolutions = append(r.s.Resolutions, records.Resolution(&list.Items[i]))
	}
}

func (r *pass) ofAction() client.MatchingFieldsSelector {
	return client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.actionRef.uid", r.s.Action.UID)}
}

func (r *pass) readAction(ctx context.Context) error {
	o := &v1alpha1.Action{}
	err := r.reader.Get(ctx, r.named(r.s.Action.Name), o)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(o.UID) != r.s.Action.UID:
		r.s.Action.Presence = flow.Absent
	case err != nil:
		return fmt.Errorf("read action: %w", err)
	default:
		r.setAction(o, flow.Fresh)
	}
	return nil
}

func (r *pass) readEffect(ctx context.Context, name string) error {
	o := &v1alpha1.Effect{}
	err := r.reader.Get(ctx, r.named(name), o)
	switch {
	case apierrors.IsNotFound(err):
		r.effect, r.s.Effect = nil, flow.EffectRead{Presence: flow.Absent}
	case err != nil:
		return fmt.Errorf("read effect: %w", err)
	default:
		r.setEffect(o, flow.Fresh)
	}
	// Whatever was known of a holder was known of another version's.
	if h := r.s.Holder.Action; h != nil && (r.effect == nil || r.effect.Status == nil || r.effect.Status.Holder == nil || string(r.effect.Status.Holder.UID) != h.UID) || r.s.Holder.Presence == flow.Absent {
		r.holder, r.s.Holder = nil, flow.ActionRead{}
	}
	return nil
}

func (r *pass) readHolder(ctx context.Context, name string) error {
	o := &v1alpha1.Action{}
	err := r.reader.Get(ctx, r.named(name), o)
	switch {
	case apierrors.IsNotFound(err), err == nil && (r.effect == nil || r.effect.Status == nil || r.effect.Status.Holder == nil || o.UID != r.effect.Status.Holder.UID):
		r.holder, r.s.Holder = nil, flow.ActionRead{Presence: flow.Absent}
	case err != nil:
		return fmt.Errorf("read holder: %w", err)
	default:
		r.setHolder(o, flow.Fresh)
	}
	return nil
}

func (r *pass) readLock(ctx context.Context) error {
	o := &v1alpha1.Outcome{}
	err := r.reader.Get(ctx, r.named(r.s.LockName()), o)
	switch {
	case apierrors.IsNotFound(err):
		r.s.Lock = flow.OutcomeRead{Presence: flow.Absent}
	case err != nil:
		return fmt.Errorf("read outcome: %w", err)
	default:
		r.s.Lock = flow.OutcomeRead{Presence: flow.Fresh, Outcome: records.Outcome(o)}
	}
	return nil
}

func (r *pass) readChain(ctx context.Context, id receipt.Identity, floor int64) error {
	chain := r.open.usable()
	if chain == nil {
		return errAgain // the hold that came up meanwhile answers the next pass
	}
	head, found, at, err := chain.Find(ctx, id, floor)
	if err != nil {
		return err
	}
	r.s.Chain = flow.ChainRead{Read: true, Identity: id, Head: head, Found: found, FoundLink: at}
	return nil
}

// readKey reads everything that may know about an effect whose record was lost.
func (r *pass) readKey(ctx context.Context, name string) error {
	actions := &v1alpha1.ActionList{}
	if err := r.reader.List(ctx, actions, client.InNamespace(r.namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("status.receiptRef.name", "")}); err != nil {
		return fmt.Errorf("list unfinished actions: %w", err)
	}
	receipts := &v1alpha1.ReceiptList{}
	if err := r.reader.List(ctx, receipts, client.InNamespace(r.namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.effectName", name)}); err != nil {
		return fmt.Errorf("list receipts of the effect: %w", err)
	}
	r.s.Key = flow.KeyRead{Read: true}
	r.others = map[string]*v1alpha1.Action{}
	for i := range actions.Items {
		o := &actions.Items[i]
		if o.Labels[v1alpha1.CanaryLabel] != "" {
			continue
		}
		r.others[string(o.UID)] = o
		r.s.Key.Actions = append(r.s.Key.Actions, *records.Action(o))
	}
	for i := range receipts.Items {
		document, err := receipt.Parse(records.Entry(&receipts.Items[i]))
		if err != nil {
			return fmt.Errorf("receipts of the effect: %w", err)
		}
		r.s.Key.Receipts = append(r.s.Key.Receipts, document)
	}
	return nil
}

func (r *pass) readQuoted(ctx context.Context, name string) error {
	o := &v1alpha1.Receipt{}
	err := r.reader.Get(ctx, r.named(name), o)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read quoted receipt: %w", err)
	}
	quoted := flow.QuotedRead{Name: name}
	if err == nil {
		entry := records.Entry(o)
		quoted.Entry = &entry
	}
	r.s.Quoted = append(r.s.Quoted, quoted)
	return nil
}

// writeAction replaces the status of an action, guarded by the version that was read.
func (r *pass) writeAction(ctx context.Context, step flow.WriteAction) error {
	var target *v1alpha1.Action
	switch {
	case r.action != nil && string(r.action.UID) == step.UID:
		target = r.action
	case r.others[step.UID] != nil:
		target = r.others[step.UID]
	case r.holder != nil && string(r.holder.UID) == step.UID:
		target = r.holder
	default:
		return fmt.Errorf("no version of action %s was read", step.Name)
	}
	if step.Why == flow.WhyAdmit {
		bounded, cancel, err := r.within(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		ctx = bounded
	}
	next := target.DeepCopy()
	before := records.Action(target).Status
	records.SetActionStatus(next, step.Status, r.s.Now)
	r.crash("before " + step.Why)
	err := r.client.Status().Update(ctx, next)
	r.crash("after " + step.Why)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Somebody was faster. What they wrote decides; look at it.
		switch target {
		case r.action:
			return r.readAction(ctx)
		case r.holder:
			return r.readHolder(ctx, step.Name)
		}
		r.s.Key = flow.KeyRead{}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step.Why, err)
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Wrote action", "action", step.Name, "write", step.Why, "state", next.Status.State, "reason", next.Status.Reason)
	if step.Why == flow.WhyEnd {
		r.over = r.s.Now
	}
	r.tellAction(next, before, step)
	switch {
	case target == r.action:
		r.setAction(next, flow.Fresh)
		if next.Status.ReceiptRef != nil {
			r.worlds.retain(next)
		}
	case target == r.holder:
		r.setHolder(next, flow.Fresh)
		if next.Status.ReceiptRef != nil {
			r.worlds.retain(next) // it was kept for its effect's sake, which is resolved
		}
	default:
		r.others[step.UID] = next
		for i := range r.s.Key.Actions {
			if r.s.Key.Actions[i].UID == step.UID {
				r.s.Key.Actions[i] = *records.Action(next)
			}
		}
	}
	return nil
}

// within bounds a write by the age of what it rests on, caches included, and the time it waits to be sent. It rests on the chain too:
// where that is shorter than it was, an effect that is not on record may have happened.
func (r *pass) within(ctx context.Context) (context.Context, context.CancelFunc, error) {
	chain := r.open.usable()
	if chain == nil {
		return nil, nil, errAgain // the hold that came up meanwhile answers the next pass
	}
	if err := chain.Stands(ctx); err != nil {
		return nil, nil, err
	}
	return sentBy(ctx, r.began, r.worlds.proved(), time.Now())
}

// sentBy bounds a write of a pass that began then and rests on caches that are proved until then, whichever is over first.
func sentBy(ctx context.Context, began, proved, now time.Time) (context.Context, context.CancelFunc, error) {
	limit := began.Add(passLimit)
	if proved.Before(limit) {
		limit = proved
	}
	if now.After(limit) {
		return nil, nil, errAgain
	}
	bounded, cancel := context.WithDeadline(ctx, limit)
	return bounded, cancel, nil
}

// writeEffect creates a record, or replaces its status guarded by the version that was read.
func (r *pass) writeEffect(ctx context.Context, step flow.WriteEffect) error {
	if step.Why == flow.WhyReserve || step.Why == flow.WhyRenew || step.Why == flow.WhyContinue {
		bounded, cancel, err := r.within(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		ctx = bounded
	}
	if step.Why == flow.WhyResolve {
		// How many people are needed, and who is one of them, is as the last proof has it, and as this pass has read it.
		bounded, cancel, err := sentBy(ctx, r.began, r.worlds.proved(), time.Now())
		if err != nil {
			return err
		}
		defer cancel()
		ctx = bounded
	}
	next := &v1alpha1.Effect{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: step.Name}, Spec: v1alpha1.EffectSpec{Key: step.Key}}
	if !step.Create {
		next = r.effect.DeepCopy()
	}
	var before *effect.Status
	if !step.Create {
		before = records.Effect(r.effect).Status
	}
	next.Status = records.EffectStatus(step.Status)
	r.crash("before " + step.Why)
	var err error
	if step.Create {
		err = r.client.Create(ctx, next)
	} else {
		err = r.client.Update(ctx, next)
	}
	r.crash("after " + step.Why)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return r.readEffect(ctx, step.Name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step.Why, err)
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Wrote effect", "effect", step.Name, "write", step.Why, "state", next.Status.State, "attempt", next.Status.Attempt)
	if step.Why != flow.WhyReserve && step.Why != flow.WhyRenew {
		r.over = r.s.Now
	}
	r.worlds.observer.EffectWritten(observe.EffectWrite{Object: next, Before: before, After: step.Status, Why: step.Why, Time: r.clock.Now()})
	r.setEffect(next, flow.Fresh)
	return nil
}

// declareLapse takes the name under which the executor would report.
func (r *pass) declareLapse(ctx context.Context, step flow.DeclareLapse) error {
	name := flow.LockName(step.ActionUID, step.ClaimID, step.Proposer)
	o := &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: step.ActionName, UID: types.UID(step.ActionUID)},
			ClaimID:   step.ClaimID, Result: v1alpha1.OutcomeUnknown, Reason: v1alpha1.OutcomeReasonLeaseLapsed, Reporter: r.identity,
		},
	}
	r.crash("before lapse")
	err := r.client.Create(ctx, o)
	r.crash("after lapse")
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.readLock(ctx) // the executor was first, or we were
	case err != nil:
		return fmt.Errorf("declare lapse: %w", err)
	}
	r.s.Lock = flow.OutcomeRead{Presence: flow.Fresh, Outcome: records.Outcome(o)}
	return nil
}

// append creates the receipt after the head that was folded.
func (r *pass) append(ctx context.Context, step flow.Append) error {
	chain := r.open.usable()
	if chain == nil {
		return errAgain
	}
	r.crash("before receipt")
	link, document, err := r.worlds.append(ctx, r.namespace, chain, step.Head, step.Document, r.settled())
	r.crash("after receipt")
	if errors.Is(err, ledger.ErrTaken) {
		r.s.Chain = flow.ChainRead{}
		return nil
	}
	if err != nil {
		return err
	}
	r.s.Chain = flow.ChainRead{Read: true, Identity: document.Identity(), Head: link, Found: &document, FoundLink: link}
	return nil
}

// tellAction tells observers of a status that was written.
func (r *pass) tellAction(next *v1alpha1.Action, before flow.Status, step flow.WriteAction) {
	write := observe.ActionWrite{
		Object: next, Before: before, After: step.Status, Why: step.Why, Time: r.clock.Now(),
		Events: timeline.Since(before.Timeline, step.Status.Timeline),
	}
	if step.Why == flow.WhyFinish {
		write.Receipt = r.s.Chain.Found
	}
	r.worlds.observer.ActionWritten(write)
}

// settled is when what the pass is about was over, the zero time if it is not known.
func (r *pass) settled() time.Time {
	if !r.over.IsZero() {
		return r.over
	}
	if r.effect != nil && r.effect.Status != nil && r.s.Effect.Record != nil && (r.action == nil || r.action.Status.Execution != nil) {
		return r.s.Effect.Record.Status.Transition
	}
	if r.action != nil && r.action.Status.FinishTime != nil {
		return r.action.Status.FinishTime.Time
	}
	return time.Time{}
}

// judge writes the verdict on a resolution, or what is missing for one. A verdict stands: whoever saw less does not write over it.
func (r *pass) judge(ctx context.Context, step flow.Judge) error {
	o := &v1alpha1.Resolution{}
	if err := r.reader.Get(ctx, r.named(step.Name), o); err != nil {
		return client.IgnoreNotFound(err)
	}
	known := records.Resolution(o)
	if known.UID != step.UID {
		known = flow.Resolution{Judged: true} // another one has its name by now, and that one is gone
	}
	if !known.Judged {
		if step.Open {
			records.SetOpen(&o.Status.Conditions, o.Generation, r.s.Now, v1alpha1.AcceptedCondition, step.Reason, step.Message)
		} else {
			records.SetCondition(&o.Status.Conditions, o.Generation, r.s.Now, v1alpha1.AcceptedCondition, step.Accepted, step.Reason, step.Message)
		}
		if err := r.client.Status().Update(ctx, o); err != nil {
			return fmt.Errorf("judge resolution: %w", err)
		}
	}
	for i := range r.s.Resolutions {
		if r.s.Resolutions[i].UID == step.UID {
			r.s.Resolutions[i].Judged, r.s.Resolutions[i].Told = known.Judged || !step.Open, step.Message
		}
	}
	return nil
}

// exceedsQuota reports whether a ResourceQuota refused a create. The apiserver has no machine reason for it.
func quotaHold(err error) *flow.Hold {
	return &flow.Hold{Reason: decision.Quota, Message: "A ResourceQuota of this namespace refuses what the operator has to create: " + err.Error() + ". Raise it; nothing is lost."}
}

func exceedsQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// usable is the chain, nil while the namespace holds.
func (o *openChain) usable() *ledger.Chain {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hold != nil {
		return nil
	}
	return o.chain
}

func answers(list *v1alpha1.ApprovalList) []approval.Answer {
	out := make([]approval.Answer, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, records.Approval(&list.Items[i]))
	}
	return out
}

// answers are the approvals, with what was asked about their speakers already.
func (r *pass) answers(list *v1alpha1.ApprovalList) []approval.Answer {
	out := answers(list)
	for i := range out {
		out[i].Entitlement = r.entitled[out[i].UID]
	}
	return out
}

// readEntitlement asks the apiserver whether an approver may approve.
func (r *pass) readEntitlement(ctx context.Context, uid string) error {
	for i := range r.s.Answers.Answers {
		a := &r.s.Answers.Answers[i]
		if a.UID != uid {
			continue
		}
		var err error
		if a.Entitlement, err = entitlement(ctx, r.client, r.namespace, *a); err != nil {
			return err
		}
		if r.entitled == nil {
			r.entitled = map[string]approval.Entitlement{}
		}
		r.entitled[uid] = a.Entitlement
		return nil
	}
	return fmt.Errorf("no approval with uid %s was read", uid)
}

// maxPrefixes is how many dotted prefixes of a type give the right to approve it.
const maxPrefixes = 4

// entitlement asks the apiserver whether somebody may give an approval, as admission did when it was made: of that type, or of
// one of its first four dotted prefixes. Whoever has left a group since is asked about with it.
func entitlement(ctx context.Context, c client.Writer, namespace string, a approval.Answer) (approval.Entitlement, error) {
	names := []string{a.ActionType}
	segments := strings.Split(a.ActionType, ".")
	for n := 1; n < len(segments) && n <= maxPrefixes; n++ {
		names = append(names, strings.Join(segments[:n], ".")+".*")
	}
	for _, name := range names {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: a.Approver, Groups: a.Groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: v1alpha1.GroupVersion.Group, Resource: "actiontypes", Verb: "approve", Name: name},
		}}
		err := c.Create(ctx, review)
		if err == nil && review.Status.Allowed {
			return approval.Entitled, nil
		}
		if err == nil && review.Status.EvaluationError != "" {
			err = errors.New(review.Status.EvaluationError)
		}
		if err != nil {
			return approval.Unchecked, fmt.Errorf("ask whether %s may approve %s: %w", a.Approver, name, err)
		}
	}
	return approval.Unentitled, nil
}

// setClaims notes the claims of the action, and which of them their own process has withdrawn.
func (r *pass) setClaims(ctx context.Context, list *v1alpha1.ClaimList, presence flow.Presence) error {
	r.s.Claims = flow.ClaimsRead{Presence: presence}
	for i := range list.Items {
		c, err := claimValue(ctx, r.client, &list.Items[i])
		if err != nil {
			return err
		}
		r.s.Claims.Claims = append(r.s.Claims.Claims, c)
	}
	return nil
}

func claimValue(ctx context.Context, cached client.Reader, o *v1alpha1.Claim) (flow.Claim, error) {
	c := records.Claim(o)
	lock := types.NamespacedName{Namespace: o.Namespace, Name: flow.LockName(c.ActionUID, c.ClaimID, c.Claimant)}
	outcome := &v1alpha1.Outcome{}
	err := cached.Get(ctx, lock, outcome)
	c.Withdrawn = err == nil && string(outcome.Spec.ActionRef.UID) == c.ActionUID && outcome.Spec.ClaimID == c.ClaimID
	return c, client.IgnoreNotFound(err)
}

func equalStatus(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }
