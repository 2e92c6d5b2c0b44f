package controllers

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
)

// Clock is what leases, expiries and deadlines are judged by. Tests move it.
type Clock interface {
	Now() time.Time
	// Changed gives a value when the clock jumped, so that whatever waits looks again. It may be nil: it never jumps.
	Changed() <-chan struct{}
}

type systemClock struct{}

func (systemClock) Now() time.Time           { return time.Now() }
func (systemClock) Changed() <-chan struct{} { return nil }

// maxSkew is how far this machine's clock may be from the apiserver's before nothing is decided by it.
const maxSkew = 2 * time.Second

// skewGuard measures this machine's clock against the Date header of the apiserver's responses. It sees every response, and
// costs no request.
type skewGuard struct {
	changed func()
	// detected gets a measurement when a skew begins. A skew that nobody has taken off yet is the one to be told of.
	detected chan flow.Skew

	mu    sync.Mutex
	since time.Time // when the skew was first seen; zero: none
	low   time.Duration
	high  time.Duration
	seen  bool
}

// wrap puts the guard in the way of all responses.
func (g *skewGuard) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		sent := time.Now()
		response, err := next.RoundTrip(r)
		if err == nil {
			g.observe(sent, time.Now(), response.Header.Get("Date"))
		}
		return response, err
	})
}

// observe bounds the offset of the apiserver's clock. Date has whole seconds and was written between sent and received.
func (g *skewGuard) observe(sent, received time.Time, date string) {
	server, err := http.ParseTime(date)
	if err != nil || received.Sub(sent) > maxSkew {
		return // a slow answer bounds nothing
	}
	low, high := server.Sub(received), server.Add(time.Second).Sub(sent)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.low, g.high, g.seen = low, high, true
	skewed := low > maxSkew || high < -maxSkew
	switch {
	case skewed && g.since.IsZero():
		g.since = received
		select {
		case g.detected <- flow.Skew{Ahead: -(low + high) / 2, Bound: (high - low) / 2, Threshold: maxSkew, Measured: received}:
		default:
		}
	case !skewed && !g.since.IsZero():
		g.since = time.Time{}
		g.changed()
	}
}

// Hold implements guard.
func (g *skewGuard) Hold() *flow.Hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.since.IsZero() {
		return nil
	}
	// The measured offset is for Ahead: a message that changes with every measurement would rewrite every status.
	return &flow.Hold{Reason: decision.ClockSkew, Since: g.since, Message: fmt.Sprintf("The operator's clock differs from the apiserver's by more than %s. Nothing is decided by it. Correct the time of the node the operator runs on.", maxSkew)}
}

// Ahead bounds how far this machine's clock is ahead of the apiserver's, as last measured.
func (g *skewGuard) Ahead() (low, high time.Duration, measured bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return -g.high, -g.low, g.seen
}
