package export

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// taker is a sink that remembers what it took.
type taker struct {
	mu      sync.Mutex
	taken   []int
	batches []int
}

func (t *taker) take(_ context.Context, batch []int) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = append(t.taken, batch...)
	t.batches = append(t.batches, len(batch))
	return len(batch), nil
}

func (t *taker) numbers() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.taken)
}

func wide() Limits { return Limits{Items: 1000, Bytes: 1 << 20, Batch: 10} }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func closed[T any](t *testing.T, q *Queue[T]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := q.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestQueueKeepsOrderAndBatches(t *testing.T) {
	sink := &taker{}
	q := NewQueue("test", Limits{Items: 1000, Bytes: 1 << 20, Batch: 10, Linger: time.Hour}, sink.take, logr.Discard())
	var want []int
	for i := range 95 {
		q.Put(i, 1)
		want = append(want, i)
	}
	closed(t, q) // the last five would linger for an hour
	if got := sink.numbers(); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if slices.Max(sink.batches) > 10 {
		t.Errorf("a batch is larger than it may be: %v", sink.batches)
	}
	if q.Dropped() != 0 {
		t.Errorf("%d were dropped", q.Dropped())
	}
}

func TestQueueThatIsNotClosedLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	sink := &taker{}
	for range 50 {
		NewQueue("test", wide(), sink.take, logr.Discard()).Put(1, 1)
	}
	eventually(t, "all took theirs and ended", func() bool { return len(sink.numbers()) == 50 && runtime.NumGoroutine() <= before })
}

func TestQueueStartsAgainAfterItWasIdle(t *testing.T) {
	sink := &taker{}
	q := NewQueue("test", wide(), sink.take, logr.Discard())
	for i := range 20 {
		q.Put(i, 1)
		eventually(t, "it was taken", func() bool { return len(sink.numbers()) == i+1 })
	}
}

// A sink that hangs, fails or panics loses what it is given. Whoever puts never waits, and each loss is counted once.
func TestSinkThatDoesNotWork(t *testing.T) {
	release := make(chan struct{})
	for name, test := range map[string]struct {
		take Take[int]
		// lost of 5000 items, at least.
		lost uint64
	}{
		"hangs":  {func(context.Context, []int) (int, error) { <-release; return 0, nil }, 5000 - 1000 - 10},
		"errs":   {func(context.Context, []int) (int, error) { return 0, errors.New("no") }, 5000},
		"panics": {func(context.Context, []int) (int, error) { panic("no") }, 5000},
		"takes half": {func(_ context.Context, batch []int) (int, error) {
			return len(batch) / 2, errors.New("the other half")
		}, 2500},
		"says that it took more than there was": {func(context.Context, []int) (int, error) { return 1 << 30, nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var counted uint64
			q := NewQueue("test", wide(), test.take, logr.Discard())
			q.OnDrop(func(sink string) {
				mu.Lock()
				defer mu.Unlock()
				counted++
				if sink != "test" {
					t.Errorf("%q dropped it", sink)
				}
			})
			start := time.Now()
			for i := range 5000 {
				q.Put(i, 1)
				if name != "hangs" && i%500 == 499 {
					eventually(t, "it is not full", func() bool { q.mu.Lock(); defer q.mu.Unlock(); return len(q.waiting) == 0 })
				}
			}
			if took := time.Since(start); name == "hangs" && took > time.Second {
				t.Errorf("5000 puts took %s", took)
			}
			if name != "hangs" {
				closed(t, q)
			}
			mu.Lock()
			defer mu.Unlock()
			if q.Dropped() < test.lost || counted != q.Dropped() {
				t.Errorf("dropped %d, counted %d, want at least %d", q.Dropped(), counted, test.lost)
			}
		})
	}
	close(release)
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	q := NewQueue("test", Limits{Items: 1000, Bytes: 100, Batch: 1}, func(context.Context, []int) (int, error) { <-release; return 1, nil }, logr.Discard())
	for i := range 10 {
		q.Put(i, 30)
	}
	// One may be at the sink, three wait.
	if d := q.Dropped(); d != 6 && d != 7 {
		t.Errorf("%d of 10 were dropped", d)
	}
	q = NewQueue("test", Limits{Items: 1000, Bytes: 100, Batch: 1}, (&taker{}).take, logr.Discard())
	if q.Put(1, 101); q.Dropped() != 1 {
		t.Error("what is larger than all that may wait was taken")
	}
}

func TestCloseLeavesASinkThatHangs(t *testing.T) {
	began := make(chan context.Context, 1)
	release := make(chan struct{})
	defer close(release)
	q := NewQueue("test", Limits{Items: 1000, Bytes: 1000, Batch: 1}, func(ctx context.Context, _ []int) (int, error) {
		began <- ctx
		<-release
		return 1, nil
	}, logr.Discard())
	q.Put(1, 1)
	ctx := <-began
	q.Put(2, 1)
	q.Put(3, 1)
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := q.Close(short)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 items") {
		t.Errorf("got %v", err)
	}
	if ctx.Err() == nil {
		t.Error("the sink was not told that its time is over")
	}
	if q.Put(4, 1); q.Dropped() != 3 {
		t.Errorf("dropped %d, want the two that waited and the one that came later", q.Dropped())
	}
}

func TestCloseOfAQueueNothingWasPutInto(t *testing.T) {
	q := NewQueue("test", wide(), (&taker{}).take, logr.Discard())
	closed(t, q)
	closed(t, q)
}

func TestDropsOfBeforeAreCounted(t *testing.T) {
	q := NewQueue("test", Limits{}, (&taker{}).take, logr.Discard())
	q.Put(1, 1)
	q.Put(2, 1)
	n := 0
	if q.OnDrop(func(string) { n++ }); n != 2 {
		t.Errorf("counted %d of 2", n)
	}
}

func TestSinkThatKeepsFailingIsLoggedOnce(t *testing.T) {
	var mu sync.Mutex
	lines := 0
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines++
		if !strings.Contains(args, `"sink"="test"`) {
			t.Errorf("the log does not name the sink: %s", args)
		}
	}, funcr.Options{})
	q := NewQueue("test", Limits{Items: 100, Bytes: 100, Batch: 1}, func(context.Context, []int) (int, error) { return 0, errors.New("no") }, log)
	for i := range 50 {
		q.Put(i, 1)
	}
	closed(t, q)
	if lines != 1 {
		t.Errorf("%d lines for 50 failures at once", lines)
	}
}
