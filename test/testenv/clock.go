package testenv

import (
	"sync"
	"time"
)

// Clock is the machine's clock, moved. The zero value is the machine's. It is a controllers.Clock.
type Clock struct {
	mu      sync.Mutex
	offset  time.Duration
	waiters []chan struct{}
}

// Now is the machine's time and by how much the clock was moved.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// Changed is told of each move. Each operator gets a channel of its own.
func (c *Clock) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := make(chan struct{}, 1)
	c.waiters = append(c.waiters, w)
	return w
}

// Advance moves the clock, until the test is over.
func (c *Clock) Advance(t TB, d time.Duration) {
	c.move(d)
	t.Cleanup(func() { c.move(-d) })
}

func (c *Clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
	for _, w := range c.waiters {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}
