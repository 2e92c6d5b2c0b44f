package main

import (
	"context"
	"errors"
	"slices"
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
	// done is how many operations were done within the window. One that was only partly in it counts by that part.
	done   float64
	length time.Duration
}

// closedLoop lets each client do one operation at a time until what was begun within the window is done. Load is on from
// before the window until after it: operations that only finish while others have stopped would be too fast. A window is
// made longer until as many operations have ended in it as there are clients: the latencies of fewer say nothing.
func closedLoop[C client](ctx context.Context, clients []C, p phases) (load, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &window{warm: time.Now().Add(p.warm), length: p.window, last: make([]time.Time, len(clients))}
	errs := make([]error, len(clients))
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for errs[i] == nil && w.wanted() {
				var s sample
				if s, errs[i] = clients[i].once(ctx); errs[i] == nil {
					w.add(i, s)
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

// window collects the operations of all clients. They begin together, so it opens when each has ended its first one.
type window struct {
	warm   time.Time
	length time.Duration

	mu       sync.Mutex
	from, to time.Time   // zero: it is not open yet
	last     []time.Time // when each client ended its last operation
	inside   int
	samples  []sample
}

// wanted reports whether another operation is to be begun: somebody is still at one from before the end of the window.
func (w *window) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.from.IsZero() || earliest(w.last).Before(w.to)
}

func (w *window) add(client int, s sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, s)
	w.last[client] = s.ended
	if w.from.IsZero() {
		w.open(s.ended)
		return
	}
	if !s.ended.After(w.from) || s.ended.After(w.to) && w.inside >= len(w.last) {
		return
	}
	w.inside++
	w.to = latest(w.to, s.ended)
}

// open opens it unless somebody has not ended an operation yet.
func (w *window) open(now time.Time) {
	if earliest(w.last).IsZero() {
		return
	}
	w.from = latest(w.warm, now)
	w.to = w.from.Add(w.length)
}

func earliest(all []time.Time) time.Time { return slices.MinFunc(all, time.Time.Compare) }

func latest(all ...time.Time) time.Time { return slices.MaxFunc(all, time.Time.Compare) }

func (w *window) load() load {
	l := load{all: len(w.samples), length: w.to.Sub(w.from)}
	for _, s := range w.samples {
		l.done += s.share(w.from, w.to)
		if s.ended.After(w.from) && !s.ended.After(w.to) {
			l.window = append(l.window, s)
		}
	}
	return l
}

// share is the part of the operation that lies between two moments. Counting whole operations would make the rate jump by
// as many as there are clients, since they tend to end together.
func (s sample) share(from, to time.Time) float64 {
	begun, done := latest(s.began, from), s.ended
	if to.Before(done) {
		done = to
	}
	return float64(max(0, done.Sub(begun))) / float64(max(1, whole(s)))
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

// rate is how many operations were done in a second.
func (l load) rate() float64 { return l.done / l.length.Seconds() }

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
