package client

import (
	"net/http"
	"sync"
	"time"
)

// serverClock tells the apiserver's time from the Date of its responses. Leases are written in the operator's time, which
// is held to within two seconds of the apiserver's; the machine's own clock may be off by anything.
type serverClock struct {
	mu   sync.Mutex
	date time.Time // the apiserver's, when
	at   time.Time // this machine had not yet sent the request that was answered with it (monotonic)
}

func newServerClock() *serverClock { return &serverClock{} }

// now is the latest the apiserver's clock can show: Date is cut to seconds, and was read after the request was sent. Without
// any response it is the machine's time.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return time.Now()
	}
	return c.date.Add(time.Second + time.Since(c.at))
}

func (c *serverClock) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		sent := time.Now()
		resp, err := next.RoundTrip(req)
		if err != nil {
			return resp, err
		}
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			c.mu.Lock()
			c.date, c.at = date, sent
			c.mu.Unlock()
		}
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
