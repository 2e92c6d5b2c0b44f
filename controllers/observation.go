package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
)

// resolutionTries is how many names the operator has for its Resolutions of one attempt.
const resolutionTries = 99

// observe begins to ask an Executor what became of an effect, or waits for a slot. The beginning is on record before anybody is asked,
// and only whoever reads there that it was their own asks: if we die in between, or nobody can tell whose it is, nobody does.
func (r *pass) observe(ctx context.Context, step flow.Observe) (ctrl.Result, error) {
	soon := ctrl.Result{RequeueAfter: slotRetry}
	begins := step.Status.Observation
	o := &v1alpha1.Executor{}
	if err := r.client.Get(ctx, r.named(begins.Executor.Name), o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // it was there a moment ago: its end wakes this action
	}
	if r.worlds.executors.judge(o).Hash != begins.Executor.Hash {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	bounded, cancel, err := r.within(ctx)
	if errors.Is(err, errAgain) {
		return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	defer cancel()
	key := client.ObjectKeyFromObject(r.action)
	if !r.executions.enter(r.action.UID) {
		return soon, nil
	}
	slot, release := r.executions.executors.Slot(o, r.action.UID, func() { r.executions.tell(key) })
	if slot == nil {
		r.executions.leave(r.action.UID)
		return soon, nil
	}
	x := &observation{passes: r.passes, step: step, executor: o, id: string(uuid.NewUUID())}
	if x.action, err = r.beginObservation(bounded, step.WriteAction, x.id); x.action == nil {
		release()
		r.executions.leave(r.action.UID)
		return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, err
	}
	go func() {
		defer r.executions.leave(x.action.UID)
		defer release()
		x.run(ctrl.LoggerInto(r.executions.base, ctrl.LoggerFrom(ctx)))
	}()
	return ctrl.Result{RequeueAfter: max(begins.Expiration.Sub(r.clock.Now()), time.Millisecond)}, nil
}

// beginObservation writes that this process asks. The action is nil if that is not certain.
func (r *pass) beginObservation(ctx context.Context, write flow.WriteAction, id string) (*v1alpha1.Action, error) {
	begins := *write.Status.Observation
	begins.ID = id
	write.Status.Observation = &begins
	before := records.Action(r.action).Status
	next := r.action.DeepCopy()
	records.SetActionStatus(next, write.Status, r.s.Now)
	r.crash("before " + write.Why)
	err := r.client.Status().Update(ctx, next)
	r.crash("after " + write.Why)
	if err != nil {
		// A conflict may be with this very write, sent again beneath.
		current := &v1alpha1.Action{}
		if e := r.reader.Get(ctx, client.ObjectKeyFromObject(r.action), current); e != nil || current.Status.Observation == nil || current.Status.Observation.ID != id {
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return nil, nil
			}
			return nil, fmt.Errorf("%s: %w", write.Why, err)
		}
		next = current
	}
	r.tellAction(next, before, write)
	return next, nil
}

// observation is one look that this process makes.
type observation struct {
	*passes
	step     flow.Observe
	executor *v1alpha1.Executor
	action   *v1alpha1.Action
	id       string
}

func (x *observation) run(ctx context.Context) {
	log := ctrl.LoggerFrom(ctx).WithValues("action", x.action.Name, "executor", x.executor.Name, "attempt", x.step.Attempt)
	answer, message := x.ask(ctx)
	log.V(1).Info("Asked what became of an effect", "answer", answer)
	if err := x.answered(context.WithoutCancel(ctx), answer, message); err != nil {
		log.Error(err, "What was answered could not be put on record, so that it counts as unknown", "answer", answer)
	}
}

// ask asks, unless what the beginning rested on is not so any more. Whatever goes wrong, the answer is unknown.
func (x *observation) ask(ctx context.Context) (answer flow.Answer, message string) {
	finished := false
	defer func() {
		switch r := recover(); {
		case r != nil:
			ctrl.LoggerFrom(ctx).Error(fmt.Errorf("a %T, which may hold a key", r), "An observer panicked")
			answer, message = flow.AnswerUnknown, "the observer panicked"
		case !finished:
			answer, message = flow.AnswerUnknown, "the observer ended without an answer"
		}
	}()
	world, _, err := x.worlds.world(ctx, x.action.Namespace)
	why := "what holds in the namespace could not be read"
	if err == nil {
		why = x.step.Overdue(world)
	}
	if why != "" {
		finished = true
		return flow.AnswerUnknown, "nobody was asked: " + why
	}
	ctx, cancel := context.WithTimeout(ctx, x.step.Observer.Timeout)
	defer cancel()
	x.crash("before look")
	answer, message = x.executions.executors.Look(ctx, x.executor, x.action, x.step.Key, x.step.Attempt, x.step.Token)
	x.crash("after look")
	finished = true
	return answer, message
}

// answered puts the answer on record. If it says by then that the answer was lost, that stands.
func (x *observation) answered(ctx context.Context, answer flow.Answer, message string) error {
	ctx, cancel := context.WithTimeout(ctx, flow.ObservationGrace)
	defer cancel()
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 64, Cap: 2 * time.Second}
	current := x.action
	for {
		s := flow.Snapshot{Now: x.clock.Now(), Action: flow.ActionRead{Presence: flow.Fresh, Action: records.Action(current)}}
		write, ours := flow.Answered(s, x.id, answer, message)
		if !ours {
			return nil // it is written, or was declared lost
		}
		next := current.DeepCopy()
		records.SetActionStatus(next, write.Status, s.Now)
		x.crash("before " + write.Why)
		err := x.client.Status().Update(ctx, next)
		x.crash("after " + write.Why)
		if err == nil {
			x.worlds.observer.ActionWritten(observe.ActionWrite{
				Object: next, Before: s.Action.Status, After: write.Status, Why: write.Why, Time: s.Now, Events: timeline.Since(s.Action.Timeline, write.Status.Timeline),
			})
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff.Step()):
		}
		again := &v1alpha1.Action{}
		if e := x.reader.Get(ctx, client.ObjectKeyFromObject(current), again); e == nil && again.UID == current.UID {
			current = again
		} else if apierrors.IsNotFound(e) || e == nil {
			return nil
		}
	}
}

// resolve makes the Resolution that an observer's answer becomes, unless it is there.
func (r *pass) resolve(ctx context.Context, step flow.Resolve) error {
	o := &v1alpha1.Resolution{
		Spec: v1alpha1.ResolutionSpec{
			EffectRef: v1alpha1.ObjectReference{Name: step.EffectName, UID: types.UID(step.EffectUID)}, Attempt: step.Attempt, ActionType: step.ActionType,
			Result: v1alpha1.ResolutionNotExecuted, ReceiptRef: v1alpha1.ReceiptReference{Name: receipt.Name(r.namespace, step.Quoted.Seq), Seq: step.Quoted.Seq, Hash: step.Quoted.Hash},
			Reason: step.Reason, Evidence: step.Evidence, Observer: step.Observer, Resolver: r.identity,
		},
	}
	if step.State == effect.Committed {
		o.Spec.Result = v1alpha1.ResolutionCommitted
	}
	base := fmt.Sprintf("%s.%d.%s", step.EffectName, step.Attempt, action.Speaker(r.identity))
	for try := 1; try <= resolutionTries; try++ {
		next := o.DeepCopy()
		next.ObjectMeta = metav1.ObjectMeta{Namespace: r.namespace, Name: base}
		if try > 1 {
			next.Name = fmt.Sprintf("%s.%d", base, try)
		}
		r.crash("before statement")
		err := r.client.Create(ctx, next)
		r.crash("after statement")
		if err == nil {
			break
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("say what an Executor saw: %w", err)
		}
		existing := &v1alpha1.Resolution{}
		if err := r.reader.Get(ctx, client.ObjectKeyFromObject(next), existing); err != nil {
			return fmt.Errorf("read what has the name of a Resolution: %w", client.IgnoreNotFound(err))
		}
		// Ours, if its answer was lost, or another operator's of the same look; or one that is yet to be judged, and stands if it counts.
		if existing.Spec.Evidence == step.Evidence || !records.Resolution(existing).Judged {
			break
		}
	}
	r.s.Stated = true
	return nil
}
