package testenv

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// DoomedBuilder is a Builder of an operator that says at which points of its work it is: it calls crash there.
type DoomedBuilder func(cfg *rest.Config, crash func(point string)) (Runnable, error)

// StartDoomed builds an operator as OperatorUser and runs it until it comes to a point, where it ends as a killed process does:
// nothing of it goes on, no request of it is sent any more, nothing is cleaned up. The channel is closed then. One that has not
// come there when the test is over is told to stop.
func (e *Environment) StartDoomed(t TB, point string, build DoomedBuilder) (died <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	crash, died := dies(point, cancel)
	cfg := e.Config(OperatorUser())
	// A manager that is told to stop lets its controllers go on for as long as something else of it has not ended.
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return living{next, died} })
	r, err := build(cfg, crash)
	if err != nil {
		t.Fatalf("building an operator that ends %s: %v", point, err)
	}
	go func() { _ = r.Start(ctx) }() // nobody waits for it: what came to the point never ends
	return died
}

// living lets requests through until its process is dead.
type living struct {
	next http.RoundTripper
	died <-chan struct{}
}

var errDead = errors.New("the process that would send this is dead")

func (l living) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-l.died:
		return nil, errDead
	default:
		return l.next.RoundTrip(r)
	}
}

// dies gives the function that ends an operator where it comes to a point.
func dies(point string, cancel context.CancelFunc) (crash func(string), died <-chan struct{}) {
	var once sync.Once
	c := make(chan struct{})
	return func(at string) {
		if at != point {
			return
		}
		once.Do(func() {
			cancel()
			close(c)
			select {} // this goroutine is as dead as the process, and so is each that comes here after it
		})
	}, c
}

// Pause stops an operator where it comes to a point of its work, once, until it is let go: a process that was suspended, or
// whose node was, and that does not know it. Whatever else of it comes there meanwhile waits as well.
type Pause struct {
	// Reached is closed when the operator has come to the point.
	Reached chan struct{}

	point  string
	once   sync.Once
	resume func()
	going  chan struct{}
}

// PauseAt is a Pause that ends with the test at the latest.
func PauseAt(t TB, point string) *Pause {
	p := &Pause{Reached: make(chan struct{}), point: point, going: make(chan struct{})}
	p.resume = sync.OnceFunc(func() { close(p.going) })
	t.Cleanup(p.resume)
	return p
}

// At is what the operator is to call with each point that it comes to.
func (p *Pause) At(point string) {
	if point != p.point {
		return
	}
	p.once.Do(func() {
		close(p.Reached)
		<-p.going
	})
}

// Resume lets the operator go on. It can be called twice.
func (p *Pause) Resume() { p.resume() }
