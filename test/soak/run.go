package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"ctrlrun.dev/operator/test/testenv"
)

// options of a soak.
type options struct {
	// duration of the load.
	duration time.Duration
	// rate is how many actions all agents together begin a second, at most: an agent that is busy takes no turn.
	rate int
	// keep is for how long finished Actions are kept.
	keep time.Duration
	// seed of the order in which the mix is dealt.
	seed uint64
	// progress takes a line now and then.
	progress io.Writer
}

// warmUp is how much of the load is left out of the trends: caches fill, the heap finds its size, and where finished Actions are
// deleted soon, as many go as come. Never more than half.
func (o options) warmUp() time.Duration {
	return min(max(o.duration/5, 2*o.keep), o.duration/2)
}

// rest is for how long nothing happens before the operator is looked at without load.
const rest = 5 * time.Second

// soak runs the positive control, then the load, and reports what came of it. An error means that there is no answer.
func soak(ctx context.Context, env *testenv.Environment, o options) (report, error) {
	r := report{Seed: o.seed, Rate: o.rate, Agents: agents, Keep: seconds(o.keep), WarmUp: seconds(o.warmUp())}
	operator, err := env.StartOperatorProcess()
	if err != nil {
		return r, err
	}
	starting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := operator.WaitReady(starting); err != nil {
		return r, err
	}
	say(o.progress, "positive control")
	if r.Control, err = controlled(ctx, env, o); err != nil {
		return r, err
	}
	s, err := newScene(ctx, env, "soak", o.keep)
	if err != nil {
		return r, err
	}
	defer s.close()
	l := &load{scene: s, options: o, sampler: newSampler(operator, func() int { return int(s.finished.Load()) })}
	if r.Before, err = l.atRest(ctx); err != nil {
		return r, err
	}
	r.Started = time.Now()
	if err := l.run(ctx); err != nil {
		return r, err
	}
	r.Ended, r.Load, r.Samples = time.Now(), seconds(l.took), l.sampler.samples
	if r.After, err = l.atRest(ctx); err != nil {
		return r, err
	}
	state, verdict, err := s.judge(ctx)
	if err != nil {
		return r, err
	}
	r.conclude(verdict, tally(state, s.dealt.all()))
	return r, nil
}

// controlled is the positive control, in a namespace and with a journal of its own.
func controlled(ctx context.Context, env *testenv.Environment, o options) (control, error) {
	s, err := newScene(ctx, env, "soak-control", o.keep)
	if err != nil {
		return control{}, err
	}
	defer s.close()
	if err := env.WaitForAdmission(ctx); err != nil {
		return control{}, err
	}
	return positive(ctx, s)
}

func say(to io.Writer, format string, args ...any) { fmt.Fprintf(to, format+"\n", args...) }

// load is what agents and people do in a scene, and what the operator needs for it.
type load struct {
	scene   *scene
	options options
	sampler *sampler
	// took is how long turns were given.
	took time.Duration
}

// atRest looks at the operator after nothing has happened for a while.
func (l *load) atRest(ctx context.Context) (sample, error) {
	select {
	case <-ctx.Done():
		return sample{}, ctx.Err()
	case <-time.After(rest):
	}
	return l.sampler.take(ctx)
}

// run returns when all that was begun in the time of the load is done. Whatever fails ends all of it.
func (l *load) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	present, dismiss := context.WithCancel(ctx)
	defer dismiss()
	loaded, ended := context.WithCancel(ctx)
	defer ended()
	people, measuring, working := group{fail: fail}, group{fail: fail}, group{fail: fail}

	people.start(func() error { return l.scene.approver.approve(present) })
	people.start(func() error { return l.scene.oncall.resolve(present, l.scene.remote, l.scene.payments.again) })
	measuring.start(func() error { return l.sampler.run(loaded) })
	measuring.start(func() error { return l.tell(loaded) })
	turns, cards := make(chan struct{}), newDeck(l.options.seed)
	for _, a := range l.scene.agents {
		working.start(func() error { return a.work(ctx, &working, cards, turns) })
	}
	l.pace(ctx, turns)
	ended()
	measuring.wait()
	say(l.options.progress, "waiting for what is under way")
	working.wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := l.scene.await(ctx, l.scene.unfinished, l.scene.unresolved); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	dismiss()
	people.wait()
	return context.Cause(ctx)
}

// pace gives turns for as long as the load lasts. One that nobody takes at once is gone.
func (l *load) pace(ctx context.Context, turns chan<- struct{}) {
	defer close(turns)
	began := time.Now()
	defer func() { l.took = time.Since(began) }()
	end := time.After(l.options.duration)
	tick := time.NewTicker(time.Second / time.Duration(l.options.rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-tick.C:
		}
		select {
		case turns <- struct{}{}:
		default:
		}
	}
}

// tell says now and then how far it is.
func (l *load) tell(ctx context.Context) error {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			say(l.options.progress, "%s: %d actions finished", time.Since(began).Round(time.Second), l.scene.finished.Load())
		}
	}
}

// group is what runs at the same time and fails as one.
type group struct {
	fail context.CancelCauseFunc
	all  sync.WaitGroup
}

func (g *group) start(f func() error) {
	g.all.Go(func() {
		if err := f(); err != nil {
			g.fail(err)
		}
	})
}

func (g *group) wait() { g.all.Wait() }
