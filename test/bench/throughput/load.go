package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// sample is one operation of a closed loop: a raw create, or the whole life of an action.
type sample struct {
	began, ended time.Time
	// admitted is when the agent saw that it may execute; zero for a raw create.
	admitted time.Time
}

// client does one operation after the other. It belongs to one goroutine.
type client interface {
	once(ctx context.Context) (sample, error)
}

// phases of a block: what is done while it warms up is not looked at.
type phases struct{ warm, window time.Duration }

// patience is how long one operation may take.
const patience = 2 * time.Minute

// load is what came of a closed loop.
type load struct {
	// window holds the operations that ended within the window, and all is how many there were, before and after it too.
	window []sample
	all    int
	length time.Duration
}

// closedLoop lets each client do one operation at a time until the window is over, and then finish what it has begun. A
// window is made longer until as many operations have ended in it as there are clients: fewer say nothing.
func closedLoop[C client](ctx context.Context, clients []C, p phases) (load, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from := time.Now().Add(p.warm)
	w := &window{from: from, to: from.Add(p.window), least: len(clients)}
	errs := make([]error, len(clients))
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for errs[i] == nil && w.open() {
				var s sample
				if s, errs[i] = clients[i].once(ctx); errs[i] == nil {
					w.add(s)
				}
			}
			if errs[i] != nil {
				cancel() // without one of them the figures mean nothing
			}
		})
	}
	group.Wait()
	if err := first(errs); err != nil {
		return load{}, err
	}
	return w.load(), nil
}

// window collects what ends within it.
type window struct {
	least int

	mu       sync.Mutex
	from, to time.Time
	inside   int
	samples  []sample
}

// open reports whether another operation is to be begun.
func (w *window) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over(time.Now())
}

// over: the time is up, and enough has ended within it.
func (w *window) over(now time.Time) bool { return now.After(w.to) && w.inside >= w.least }

func (w *window) add(s sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, s)
	if s.ended.Before(w.from) || w.over(s.ended) {
		return
	}
	w.inside++
	if s.ended.After(w.to) {
		w.to = s.ended
	}
}

func (w *window) load() load {
	l := load{all: len(w.samples), length: w.to.Sub(w.from)}
	for _, s := range w.samples {
		if !s.ended.Before(w.from) && !s.ended.After(w.to) {
			l.window = append(l.window, s)
		}
	}
	return l
}

// first is the error the others came of: once one client fails, the rest are cancelled.
func first(errs []error) error {
	var cancelled error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		cancelled = errors.Join(cancelled, err)
	}
	return cancelled
}

// exactly lets clients do n operations together, as fast as they can.
func exactly[C client](ctx context.Context, clients []C, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	errs := make([]error, len(clients))
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() {
			for errs[i] == nil && done.Add(1) <= int64(n) {
				if _, errs[i] = c.once(ctx); errs[i] != nil {
					cancel()
				}
			}
		})
	}
	group.Wait()
	return first(errs)
}

// rate is how many operations ended in a second.
func (l load) rate() float64 { return float64(len(l.window)) / l.length.Seconds() }

// latencies of a part of each operation.
func (l load) latencies(of func(sample) time.Duration) quantiles {
	all := make([]time.Duration, len(l.window))
	for i, s := range l.window {
		all[i] = of(s)
	}
	return quantilesOf(all)
}

func whole(s sample) time.Duration { return s.ended.Sub(s.began) }

func untilAdmitted(s sample) time.Duration { return s.admitted.Sub(s.began) }
