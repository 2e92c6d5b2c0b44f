// Package pool executes admitted actions by their Executors: so many at a time, so many a minute, and as the ServiceAccount that each
// Executor names.
package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	httpexec "ctrlrun.dev/operator/executors/http"
	jobexec "ctrlrun.dev/operator/executors/job"
	kubeexec "ctrlrun.dev/operator/executors/kubernetes"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

const (
	// defaultConcurrent is how many executions of an Executor run at a time if it does not say.
	defaultConcurrent = 4
	// window is what maxPerMinute counts in.
	window = time.Minute
	// patience is how long after it asked last somebody still waits: whoever does asks every few seconds.
	patience = time.Minute
)

// Pool executes. The zero value is not usable.
type Pool struct {
	identities *identities

	mu    sync.Mutex
	lanes map[types.UID]*lane // by Executor
}

// lane is what one Executor is doing.
type lane struct {
	most, perMinute int // perMinute 0: no bound
	running         int
	started         []time.Time // within the last minute, if that is bounded
	waiting         []waiter
	timer           bool // somebody will be told when the oldest start is a minute ago
}

type waiter struct {
	action types.UID
	freed  func()
	asked  time.Time
}

// New makes a pool for an operator that talks to its apiserver by config. It takes tokens of other ServiceAccounts by it, and does
// nothing else as the operator.
func New(config *rest.Config) (*Pool, error) {
	ids, err := newIdentities(config)
	if err != nil {
		return nil, err
	}
	return &Pool{identities: ids, lanes: map[types.UID]*lane{}}, nil
}

// Check says what is wrong with how an Executor executes and observes, and nil if nothing is.
func (*Pool) Check(o *v1alpha1.Executor) error {
	if o.Spec.Observe != nil {
		if _, err := sight(o); err != nil {
			return err
		}
		if o.Spec.HTTP == nil && o.Spec.Job == nil && o.Spec.Kubernetes == nil {
			return nil
		}
	}
	_, err := way(o)
	return err
}

// Look asks an Executor for an action what became of an attempt, as its ServiceAccount.
func (p *Pool) Look(ctx context.Context, o *v1alpha1.Executor, a *v1alpha1.Action, key string, attempt int64, token string) (flow.Answer, string) {
	if o.Spec.Observe == nil {
		return flow.AnswerUnknown, "the Executor does not observe"
	}
	ask, err := sight(o)
	if err != nil {
		return flow.AnswerUnknown, "the Executor is not valid: " + err.Error()
	}
	as, err := p.identities.of(ctx, o)
	if err != nil {
		return flow.AnswerUnknown, err.Error()
	}
	return ask(ctx, executors.Look{
		Namespace: a.Namespace, ActionName: a.Name, ActionUID: string(a.UID), EffectKey: key, Attempt: attempt, Token: token,
	}, as)
}

// asker asks as a ServiceAccount.
type asker func(ctx context.Context, look executors.Look, as *identity) (flow.Answer, string)

// sight is how an Executor that observes does so.
func sight(o *v1alpha1.Executor) (asker, error) {
	switch spec := o.Spec.Observe; {
	case (spec.HTTP == nil) == (spec.Job == nil):
		return nil, fmt.Errorf("spec.observe: give either http or job")
	case spec.Job != nil:
		x, err := jobexec.NewObserver(spec.Job, o.Spec.ServiceAccountName)
		if err != nil {
			return nil, fmt.Errorf("spec.observe.job: %w", err)
		}
		return func(ctx context.Context, look executors.Look, as *identity) (flow.Answer, string) {
			return x.Ask(ctx, look, as.config)
		}, nil
	}
	x, err := httpexec.NewObserver(o.Spec.Observe.HTTP)
	if err != nil {
		return nil, fmt.Errorf("spec.observe.http: %w", err)
	}
	return func(ctx context.Context, look executors.Look, as *identity) (flow.Answer, string) {
		values := httpexec.Values{}
		for _, ref := range x.References() {
			value, err := as.value(ctx, ref.Kind == httpexec.Secret, ref.Name, ref.Key)
			if err != nil {
				return flow.AnswerUnknown, err.Error()
			}
			values[ref] = value
		}
		return x.Ask(ctx, look, values)
	}, nil
}

// runner executes a call as a ServiceAccount.
type runner func(ctx context.Context, call executors.Call, as *identity) executors.Result

// way is how an Executor executes.
func way(o *v1alpha1.Executor) (runner, error) {
	switch spec := o.Spec; {
	case spec.HTTP != nil:
		x, err := httpexec.New(spec.HTTP)
		if err != nil {
			return nil, fmt.Errorf("spec.http: %w", err)
		}
		return func(ctx context.Context, call executors.Call, as *identity) executors.Result {
			values := httpexec.Values{}
			for _, ref := range x.References() {
				value, err := as.value(ctx, ref.Kind == httpexec.Secret, ref.Name, ref.Key)
				if err != nil {
					return executors.NotExecuted(err.Error())
				}
				values[ref] = value
			}
			return x.Execute(ctx, call, values)
		}, nil
	case spec.Kubernetes != nil:
		x, err := kubeexec.New(spec.Kubernetes, o.Namespace)
		if err != nil {
			return nil, fmt.Errorf("spec.kubernetes: %w", err)
		}
		return func(ctx context.Context, call executors.Call, as *identity) executors.Result {
			return x.Execute(ctx, call, as.config)
		}, nil
	case spec.Job != nil:
		x, err := jobexec.New(spec.Job, spec.ServiceAccountName)
		if err != nil {
			return nil, fmt.Errorf("spec.job: %w", err)
		}
		return func(ctx context.Context, call executors.Call, as *identity) executors.Result {
			return x.Execute(ctx, call, as.config)
		}, nil
	}
	return nil, fmt.Errorf("spec: it has none of http, job and kubernetes")
}

// Slot takes one of the executions an Executor may run at a time, for an action. run executes it, for as long as its context lasts at
// the most, and release, which is called once, gives the slot back. If there is none now both are nil, and freed is called once there
// may be.
func (p *Pool) Slot(o *v1alpha1.Executor, action types.UID, freed func()) (run func(context.Context, *v1alpha1.Action, *flow.Going) effect.Settlement, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	l := p.lanes[o.UID]
	if l == nil {
		for uid, other := range p.lanes { // of Executors that are gone, most likely
			if other.idle(now) {
				delete(p.lanes, uid)
			}
		}
		l = &lane{most: defaultConcurrent}
		if n := o.Spec.MaxConcurrent; n != nil {
			l.most = int(*n)
		}
		if n := o.Spec.MaxPerMinute; n != nil {
			l.perMinute = int(*n)
		}
		p.lanes[o.UID] = l
	}
	free := l.free(now) > 0
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return free && w.action == action || w.gone(now) })
	if !free {
		l.wait(waiter{action, freed, now})
		if l.running < l.most && !l.timer {
			l.timer = true
			time.AfterFunc(l.started[0].Add(window).Sub(now), func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				l.timer = false
				l.tell(time.Now())
			})
		}
		return nil, nil
	}
	if l.perMinute > 0 {
		l.started = append(l.started, now)
	}
	l.running++
	run = func(ctx context.Context, a *v1alpha1.Action, going *flow.Going) effect.Settlement {
		r := p.run(ctx, o, a, going)
		s := effect.Settlement{State: r.State, Stated: r.Stated, Error: r.Error, Output: string(r.Output)}
		if r.Continuation != "" {
			s.Asked, s.Output = &effect.Asked{Continuation: r.Continuation, Question: string(r.Output)}, ""
		}
		return s
	}
	return run, func() { p.release(o.UID) }
}

func (w waiter) gone(now time.Time) bool { return now.Sub(w.asked) > patience }

// free is how many may begin now.
func (l *lane) free(now time.Time) int {
	n := l.most - l.running
	if l.perMinute > 0 {
		for len(l.started) > 0 && !now.Before(l.started[0].Add(window)) {
			l.started = l.started[1:]
		}
		n = min(n, l.perMinute-len(l.started))
	}
	return n
}

// idle reports whether nothing has to be remembered of it.
func (l *lane) idle(now time.Time) bool {
	l.free(now)
	return l.running == 0 && len(l.started) == 0 && !slices.ContainsFunc(l.waiting, func(w waiter) bool { return !w.gone(now) })
}

func (l *lane) wait(w waiter) {
	for i := range l.waiting {
		if l.waiting[i].action == w.action {
			l.waiting[i] = w
			return
		}
	}
	l.waiting = append(l.waiting, w)
}

// tell tells as many as may begin now, those first who have waited the longest.
func (l *lane) tell(now time.Time) {
	for n := l.free(now); n > 0 && len(l.waiting) > 0; {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		if !next.gone(now) {
			next.freed()
			n--
		}
	}
}

// release gives a slot back.
func (p *Pool) release(executor types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.lanes[executor], time.Now()
	l.running--
	l.tell(now)
	if l.idle(now) {
		delete(p.lanes, executor)
	}
}

func (p *Pool) run(ctx context.Context, o *v1alpha1.Executor, a *v1alpha1.Action, going *flow.Going) executors.Result {
	execute, err := way(o)
	if err != nil {
		return executors.NotExecuted("The Executor is not valid: " + err.Error())
	}
	call, err := callOf(a)
	if err != nil {
		return executors.NotExecuted(err.Error())
	}
	call.Going = going
	as, err := p.identities.of(ctx, o)
	if err != nil {
		return executors.NotExecuted(err.Error())
	}
	return execute(ctx, call, as)
}

func callOf(a *v1alpha1.Action) (executors.Call, error) {
	raw := a.Spec.Arguments.Raw
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	value, err := canonical.Parse(raw)
	if err != nil {
		return executors.Call{}, fmt.Errorf("the stored arguments have no canonical form: %w", err)
	}
	arguments, err := canonical.Encode(value)
	if err != nil {
		return executors.Call{}, fmt.Errorf("the stored arguments have no canonical form: %w", err)
	}
	if a.Status.Effect == nil || a.Status.Execution == nil {
		return executors.Call{}, fmt.Errorf("the action is not admitted with an effect")
	}
	return executors.Call{
		Namespace: a.Namespace, ActionName: a.Name, ActionUID: string(a.UID), ActionType: a.Spec.ActionType, Arguments: arguments,
		EffectKey: a.Status.Effect.Key, Attempt: a.Status.Effect.Attempt, Token: a.Status.Execution.Token,
	}, nil
}
