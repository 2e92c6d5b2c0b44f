package export

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Limits of what waits for a sink.
type Limits struct {
	// Items and Bytes that may wait; what comes on top of them is dropped. Bytes are the caller's estimate.
	Items, Bytes int
	// Batch is how many items the sink gets at most at once.
	Batch int
	// Linger is how long the first item waits for others to make up a batch.
	Linger time.Duration
}

// Take takes a batch and says how many of its items, from the first on, it took. The slice is its own; what the items point
// to is not.
type Take[T any] func(ctx context.Context, batch []T) (taken int, err error)

// Queue is what waits for one sink. Whoever puts something into it never waits.
//
// There is a goroutine while something waits and none otherwise, so a queue that is not used any more need not be closed.
type Queue[T any] struct {
	name   string
	limits Limits
	take   Take[T]
	log    logr.Logger
	ctx    context.Context // of the sink; ended when its time is over
	cancel context.CancelFunc
	hurry  chan struct{} // a batch is full, or the queue is closed

	mu      sync.Mutex
	waiting []weighed[T]
	bytes   int
	working bool
	closed  bool
	done    chan struct{} // closed by the last worker of a closed queue
	dropped uint64
	onDrop  func(sink string)
	failed  failure
}

type weighed[T any] struct {
	item  T
	bytes int
}

// failure is what was logged last about a sink, so that one that fails at every batch does not fill the log.
type failure struct {
	logged time.Time
	silent uint64 // batches that failed since
}

// logEvery bounds how often a sink that keeps failing is complained about.
const logEvery = time.Minute

// NewQueue makes a queue for a sink. The name is that of the sink in logs and metrics.
func NewQueue[T any](name string, limits Limits, take Take[T], log logr.Logger) *Queue[T] {
	limits.Batch = max(limits.Batch, 1)
	ctx, cancel := context.WithCancel(context.Background())
	return &Queue[T]{
		name: name, limits: limits, take: take, log: log, ctx: ctx, cancel: cancel,
		hurry: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Put hands an item over, or drops it if too much waits already.
func (q *Queue[T]) Put(item T, bytes int) {
	if !q.put(item, bytes) {
		q.count(1)
	}
}

func (q *Queue[T]) put(item T, bytes int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) >= q.limits.Items || q.bytes+bytes > q.limits.Bytes {
		return false
	}
	q.waiting = append(q.waiting, weighed[T]{item, bytes})
	q.bytes += bytes
	if !q.working {
		q.working = true
		go q.work()
	}
	if len(q.waiting) >= q.limits.Batch {
		q.wake()
	}
	return true
}

func (q *Queue[T]) wake() {
	select {
	case q.hurry <- struct{}{}:
	default:
	}
}

// Name of the sink, in logs and metrics.
func (q *Queue[T]) Name() string { return q.name }

// OnDrop calls f with the sink's name for each item that never reaches the sink, those of before included. It must not block.
func (q *Queue[T]) OnDrop(f func(sink string)) {
	q.mu.Lock()
	q.onDrop = f
	before := q.dropped
	q.mu.Unlock()
	for range before {
		f(q.name)
	}
}

// Dropped is how many items never reached the sink.
func (q *Queue[T]) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Close takes nothing more and returns when the sink has all that waited, or ctx ends: then the rest is dropped, and an
// error says how much. A sink that hangs is left behind.
func (q *Queue[T]) Close(ctx context.Context) error {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	if first && !q.working {
		close(q.done)
	}
	q.mu.Unlock()
	q.wake()
	defer q.cancel()
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	left := len(q.waiting)
	q.waiting, q.bytes = nil, 0
	q.mu.Unlock()
	q.count(left)
	return fmt.Errorf("the sink %s did not take everything in time: %d items are lost to it, and perhaps those it was working on: %w", q.name, left, ctx.Err())
}

// work hands over batch after batch, until nothing waits.
func (q *Queue[T]) work() {
	for {
		q.linger()
		batch := q.next()
		if batch == nil {
			return
		}
		taken, err := q.hand(batch)
		taken = min(max(taken, 0), len(batch))
		q.count(len(batch) - taken)
		q.complain(err, len(batch)-taken)
	}
}

// linger gives a batch time to fill.
func (q *Queue[T]) linger() {
	q.mu.Lock()
	now := q.closed || len(q.waiting) == 0 || len(q.waiting) >= q.limits.Batch
	q.mu.Unlock()
	if now || q.limits.Linger <= 0 {
		return
	}
	timer := time.NewTimer(q.limits.Linger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.hurry:
	}
}

// next takes a batch. nil: nothing waits, and this worker has ended.
func (q *Queue[T]) next() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.limits.Batch)
	if n == 0 {
		q.working, q.waiting = false, nil
		if q.closed {
			close(q.done)
		}
		return nil
	}
	batch := make([]T, n)
	for i := range batch {
		batch[i] = q.waiting[i].item
		q.bytes -= q.waiting[i].bytes
		q.waiting[i] = weighed[T]{} // what was handed over is not kept alive by what still waits
	}
	q.waiting = q.waiting[n:]
	return batch
}

func (q *Queue[T]) hand(batch []T) (taken int, err error) {
	defer func() {
		if r := recover(); r != nil {
			taken, err = 0, fmt.Errorf("it panicked: %v", r)
		}
	}()
	return q.take(q.ctx, batch)
}

func (q *Queue[T]) count(n int) {
	if n <= 0 {
		return
	}
	q.mu.Lock()
	q.dropped += uint64(n)
	f := q.onDrop
	q.mu.Unlock()
	if f == nil {
		return
	}
	for range n {
		f(q.name)
	}
}

func (q *Queue[T]) complain(err error, lost int) {
	if err == nil && lost == 0 {
		return
	}
	if err == nil {
		err = errors.New("it did not take everything")
	}
	q.mu.Lock()
	quiet := time.Since(q.failed.logged) < logEvery
	silent := q.failed.silent
	if quiet {
		q.failed.silent++
	}
	if !quiet {
		q.failed = failure{logged: time.Now()}
	}
	q.mu.Unlock()
	if quiet {
		return
	}
	q.log.Error(err, "A sink fails; nothing waits for it, and what it lost can be read from the cluster", "sink", q.name, "lost", lost, "failuresSinceLastMessage", silent)
}
