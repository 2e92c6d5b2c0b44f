package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

const (
	// slotRetry is how long after there was no slot, or a beginning was under way, the pass looks again, if nobody woke it before.
	slotRetry = 5 * time.Second
	// settleTries is how long after its end an execution that could not be put on record is tried again. By then its lease may be over,
	// and the record say so.
	settleTries = 10 * time.Minute
	// executionsEnd is how long executions may go on once the operator was told to stop. It is less than the manager waits.
	executionsEnd = 15 * time.Second
)

// executions are what this process executes itself. Each is begun once, by a compare-and-set of the record with a nonce that only this
// process knows; if we die after it, nobody goes on: the record says Executing until its lease is over, and then that nobody knows.
type executions struct {
	executors Executors
	// wake tells of an action that may find a slot now.
	wake chan event.GenericEvent

	mu      sync.Mutex
	running map[types.UID]bool // by action
	stopped bool
	all     sync.WaitGroup
	// base ends when those that are still running have to.
	base context.Context
	end  context.CancelFunc
}

func newExecutions(x Executors) *executions {
	e := &executions{executors: x, wake: make(chan event.GenericEvent, 1024), running: map[types.UID]bool{}}
	e.base, e.end = context.WithCancel(context.Background())
	return e
}

// Start implements manager.Runnable. When the operator ends, what it executes has a moment to end by itself; whatever has not by then
// is cut off, and its end put on record for what it is: unknown.
func (e *executions) Start(ctx context.Context) error {
	<-ctx.Done()
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	over := make(chan struct{})
	go func() {
		e.all.Wait()
		close(over)
	}()
	select {
	case <-over:
		e.end()
		return nil
	case <-time.After(executionsEnd):
	}
	e.end()
	<-over
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e *executions) NeedLeaderElection() bool { return false }

// enter reports whether the action is not being executed here yet, and notes that it is.
func (e *executions) enter(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped || e.running[uid] {
		return false
	}
	e.running[uid] = true
	e.all.Add(1)
	return true
}

func (e *executions) leave(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, uid)
	e.all.Done()
}

// begin starts to execute the action of this pass, or waits for a slot.
func (r *pass) begin(ctx context.Context, step flow.Begin) (ctrl.Result, error) {
	until := func(t time.Time) ctrl.Result {
		return ctrl.Result{RequeueAfter: max(t.Sub(r.clock.Now()), time.Millisecond)}
	}
	o := &v1alpha1.Executor{}
	if err := r.client.Get(ctx, r.named(step.Executor.Name), o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // it was there a moment ago: its end wakes this action
	}
	if r.worlds.executors.judge(o).Hash != step.Executor.Hash {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	bounded, cancel, err := r.within(ctx)
	if errors.Is(err, errAgain) {
		return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	cancel()
	deadline, _ := bounded.Deadline()
	a := r.action
	// A beginning can fail, and whatever woke this action meanwhile found it under way.
	again := r.clock.Now().Add(slotRetry)
	if step.Before.Before(again) {
		again = step.Before
	}
	if !r.executions.enter(a.UID) {
		return until(again), nil
	}
	key := client.ObjectKeyFromObject(a)
	act, release := r.executions.executors.Slot(o, a.UID, func() { r.executions.tell(key) })
	if act == nil {
		r.executions.leave(a.UID)
		return until(again), nil
	}
	x := &execution{passes: r.passes, step: step, action: a, record: r.effect, act: act, send: deadline, nonce: string(uuid.NewUUID())}
	go func() {
		defer r.executions.leave(a.UID)
		defer release()
		x.run(ctrl.LoggerInto(r.executions.base, ctrl.LoggerFrom(ctx)))
	}()
	return until(again), nil
}

func (e *executions) tell(key types.NamespacedName) {
	o := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case e.wake <- event.GenericEvent{Object: o}:
	default: // it looks again by itself
	}
}

// execution is one action that this process executes.
type execution struct {
	*passes
	step   flow.Begin
	action *v1alpha1.Action
	record *v1alpha1.Effect
	act    func(context.Context, *v1alpha1.Action, *flow.Going) effect.Settlement
	// send is until when a write rests on what the pass has read.
	send  time.Time
	nonce string
}

func (x *execution) run(ctx context.Context) {
	log := ctrl.LoggerFrom(ctx).WithValues("action", x.action.Name, "executor", x.step.Executor.Name)
	begun, err := x.begin(ctx)
	if err != nil {
		log.Error(err, "Did not begin to execute; nothing was executed")
		return
	}
	if !begun {
		log.V(1).Info("Did not begin to execute: somebody else has, or the record is another one by now")
		return
	}
	settlement := x.execute(ctx)
	if err := x.settle(context.WithoutCancel(ctx), settlement); err != nil {
		log.Error(err, "The end of an execution could not be put on record, so that its effect becomes Ambiguous", "state", settlement.State)
	}
}

// begin writes the nonce. As long as nobody knows whether it is written, it is not executed, and nothing else is written: the write is
// repeated, guarded by the same version, or found.
func (x *execution) begin(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, x.step.Before.Sub(x.clock.Now()))
	defer cancel()
	before := records.Effect(x.record).Status
	why := flow.WhyBegin
	status, err := before.Begin(x.nonce, x.clock.Now())
	if going := x.step.Going; going != nil {
		why = flow.WhyContinue
		status, err = before.Continue(going.Taken, x.nonce, x.clock.Now())
	}
	if err != nil {
		return false, err
	}
	next := x.record.DeepCopy()
	next.Status = records.EffectStatus(status)
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 64, Cap: 5 * time.Second}
	for tries := 0; ; tries++ {
		if time.Now().Before(x.send) {
			sent := next.DeepCopy()
			x.crash("before " + why)
			bounded, stop := context.WithDeadline(ctx, x.send)
			err = x.client.Update(bounded, sent)
			stop()
			x.crash("after " + why)
			if err == nil {
				x.written(sent, before, status, why)
				return true, nil
			}
			if tries == 0 && refusedForGood(err) {
				return false, client.IgnoreNotFound(err) // this one write did not happen, and there is no other
			}
		}
		current := &v1alpha1.Effect{}
		switch e := x.reader.Get(ctx, client.ObjectKeyFromObject(x.record), current); {
		case e == nil && current.Status != nil && current.Status.Nonce == x.nonce:
			if current.Status.State != v1alpha1.EffectExecuting {
				return false, nil
			}
			x.written(current, before, status, why)
			return true, nil
		case e == nil && current.ResourceVersion != x.record.ResourceVersion:
			return false, nil // somebody else was first, so that no write of ours can land any more
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("nobody knows whether the record says that this process begins: %w", errors.Join(ctx.Err(), err))
		case <-time.After(backoff.Step()):
		}
	}
}

// refusedForGood reports whether the apiserver refused a write for good. A conflict may be with this very write, sent again beneath.
func refusedForGood(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
}

func (x *execution) written(o *v1alpha1.Effect, before *effect.Status, after effect.Status, why string) {
	x.record = o
	x.worlds.observer.EffectWritten(observe.EffectWrite{Object: o, Before: before, After: after, Why: why, Time: x.clock.Now()})
}

// execute acts, unless what the beginning rested on is not so any more: it may have taken long to learn that it was written.
func (x *execution) execute(ctx context.Context) (s effect.Settlement) {
	unknown := func(why string) effect.Settlement {
		return effect.Settlement{State: effect.Ambiguous, Error: why}
	}
	finished := false
	defer func() {
		switch r := recover(); {
		case r != nil:
			ctrl.LoggerFrom(ctx).Error(fmt.Errorf("a %T, which may hold arguments", r), "An executor panicked")
			s = unknown("The executor panicked.")
		case !finished:
			s = unknown("The executor ended without an answer.")
		}
		s = x.step.Concluded(s)
	}()
	if why := x.overdue(ctx); why != "" {
		finished = true
		return effect.Settlement{State: effect.Failed, Error: why}
	}
	ctx, cancel := context.WithTimeout(ctx, x.step.Lease.Sub(x.clock.Now()))
	defer cancel()
	x.crash("before execute")
	s = x.act(ctx, x.action, x.step.Going)
	x.crash("after execute")
	finished = true
	return s
}

// overdue says why what was begun must not be executed after all, "" if it may. As long as what the pass has read counts, only time
// has to be looked at, by the clock that leases are judged by: a machine that was suspended may not have counted its own.
func (x *execution) overdue(ctx context.Context) string {
	now := x.clock.Now()
	switch {
	case !now.Before(x.step.Before):
		return x.step.Overdue(flow.World{}, now)
	case time.Now().Before(x.send):
		return ""
	}
	world, _, err := x.worlds.world(ctx, x.action.Namespace)
	if err != nil {
		return "It took too long to begin, and what holds in the namespace by then could not be read."
	}
	return x.step.Overdue(world, now)
}

// settle puts the end on record. If the record says by now that the executor was lost, the end is left for whoever resolves it.
func (x *execution) settle(ctx context.Context, s effect.Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, settleTries)
	defer cancel()
	for _, a := range x.action.Status.Execution.Approvals {
		s.Approvals = append(s.Approvals, a.Name)
	}
	s.Now = x.clock.Now()
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 64, Cap: 5 * time.Second}
	record := x.record
	rounds := records.Effect(record).Status.Rounds()
	var last error
	for {
		before := records.Effect(record).Status
		if before.Nonce != x.nonce || before.State != effect.Executing {
			break
		}
		if before.Suspended() {
			return nil // the answer to our own write was lost
		}
		after, suspended, err := before.End(s)
		if err != nil {
			return err
		}
		why := flow.WhySettle
		if suspended {
			why = flow.WhySuspend
		}
		next := record.DeepCopy()
		next.Status = records.EffectStatus(after)
		x.crash("before " + why)
		last = x.client.Update(ctx, next)
		x.crash("after " + why)
		if last == nil {
			x.written(next, before, after, why)
			return nil
		}
		if s.Output != "" && apierrors.IsInvalid(last) {
			s.Output = "" // what happened is worth more than what it printed
			continue
		}
		for {
			current := &v1alpha1.Effect{}
			err := x.reader.Get(ctx, client.ObjectKeyFromObject(record), current)
			if err == nil && current.Status != nil {
				record = current
				break
			}
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("the record is gone: %w", last)
			}
			select {
			case <-ctx.Done():
				return errors.Join(last, err)
			case <-time.After(backoff.Step()):
			}
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(backoff.Step()):
		}
	}
	if s.Asked != nil && records.Effect(record).Status.Rounds() > rounds {
		return nil // the answer was lost, not the write, and somebody has gone on since
	}
	if ours := record.Status; ours.Nonce == x.nonce && string(ours.State) == string(s.State) && ours.Cause == v1alpha1.EffectCause(s.Cause) {
		return nil // the answer was lost, not the write
	}
	return x.late(ctx, record, s)
}

// late leaves what this process knows of an attempt that was declared lost. It settles nothing.
func (x *execution) late(ctx context.Context, record *v1alpha1.Effect, s effect.Settlement) error {
	result := map[effect.State]v1alpha1.OutcomeResult{effect.Committed: v1alpha1.OutcomeCommitted, effect.Failed: v1alpha1.OutcomeNotExecuted, effect.Ambiguous: v1alpha1.OutcomeUnknown}[s.State]
	o := &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: x.action.Namespace, Name: lateName(x.action.UID, x.nonce, x.identity)},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: x.action.Name, UID: x.action.UID},
			ClaimID:   x.nonce, Result: result, Error: records.Clip(s.Error, 1024), Reporter: x.identity,
		},
	}
	if s.Output != "" {
		o.Spec.Output = &apiextensionsv1.JSON{Raw: []byte(s.Output)}
	}
	err := x.client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) { // ours, if an answer was lost
		existing := &v1alpha1.Outcome{}
		if err = x.reader.Get(ctx, client.ObjectKeyFromObject(o), existing); err == nil && existing.Spec.Reporter != x.identity {
			err = fmt.Errorf("%s has its name", existing.Spec.Reporter)
		}
	}
	if err != nil {
		return fmt.Errorf("the record is %s by now, and the late report could not be left: %w", record.Status.State, err)
	}
	return nil
}

// lateName is that of what an executor of the operator reports when its record says already that it was lost.
func lateName(uid types.UID, nonce, identity string) string {
	return "late." + flow.LockName(string(uid), nonce, identity)
}
