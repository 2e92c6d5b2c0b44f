package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// writeTimeout bounds a write that was forwarded: longer than the apiserver itself takes at most for a request.
const writeTimeout = 90 * time.Second

// Proxy stands before one apiserver, for any number of clients.
type Proxy struct {
	injector Injector
	stats    *stats
	// late ends the waiting of requests that are to land late.
	late     context.Context
	dropLate context.CancelFunc

	work sync.WaitGroup // servers and requests; none is added once closed

	mu      sync.Mutex
	clients map[string]*client
	gates   map[watched]*gate
	cuts    map[string]int // partitions in force, by client
	waiting int            // late requests that have not landed
	landed  chan struct{}  // closed and replaced when one has
	dropped []Request
	closed  bool
}

type watched struct{ client, resource string }

// New makes a proxy without clients.
func New(injector Injector) *Proxy {
	p := &Proxy{
		injector: injector, stats: newStats(), clients: map[string]*client{}, gates: map[watched]*gate{}, cuts: map[string]int{},
		landed: make(chan struct{}),
	}
	p.late, p.dropLate = context.WithCancel(context.Background())
	return p
}

// Listen starts a listener for a client that acts as the user of upstream, and gives the connection for the client: plain
// HTTP to a free port of the loopback interface, without credentials. It stays until Close, so a process that is started again
// can use it again.
func (p *Proxy) Listen(name string, upstream *rest.Config) (*rest.Config, error) {
	transport, err := rest.TransportFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	target, _, err := rest.DefaultServerUrlFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	c := newClient(p, name, target, transport)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, fmt.Errorf("listen for %s: the proxy is closed", name)
	case p.clients[name] != nil:
		return nil, fmt.Errorf("listen for %s: there is a client of that name already, and two would be counted as one", name)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	p.clients[name] = c
	p.work.Go(func() { c.served = c.server.Serve(listener) })
	return &rest.Config{Host: "http://" + listener.Addr().String(), QPS: upstream.QPS, Burst: upstream.Burst}, nil
}

// Hold keeps from a client all that its watches of a resource ("effects") bring, present and later ones, until released; then
// it gets all of it, in order. So the client's cache of that kind is older than its other caches. Lists are answered as ever:
// an informer that lists anew meanwhile is up to date. Holds add up. The watches are kept alive by reading ahead, in memory.
func (p *Proxy) Hold(client, resource string) (release func()) {
	g := p.gate(client, resource)
	g.update(func() { g.holds++ })
	p.stats.add(KindHold, PointOf(Request{Group: v1alpha1.GroupVersion.Group, Resource: resource, Verb: "watch"}))
	return sync.OnceFunc(func() { g.update(func() { g.holds-- }) })
}

func (p *Proxy) gate(client, resource string) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := watched{client, resource}
	if p.gates[key] == nil {
		p.gates[key] = newGate()
	}
	return p.gates[key]
}

// Partition resets everything of a client until it is healed, connections that are open now included. Writes that were
// forwarded before are carried through, and what is to land late lands. Partitions add up.
func (p *Proxy) Partition(client string) (heal func()) {
	p.stats.add(KindPartition, client)
	p.mu.Lock()
	p.cuts[client]++
	c := p.clients[client]
	p.mu.Unlock()
	if c != nil {
		c.resetAll()
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cuts[client]--
	})
}

func (p *Proxy) partitioned(client string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts[client] > 0
}

// Stats says how often each fault was injected at each point, and how many requests of each point there were. A fault counts
// when it is carried out. For a partition the point is the client.
func (p *Proxy) Stats() []Count { return p.stats.all() }

// Drain returns when every late request that there is now or meanwhile has landed.
func (p *Proxy) Drain(ctx context.Context) error {
	for {
		p.mu.Lock()
		waiting, landed := p.waiting, p.landed
		p.mu.Unlock()
		if waiting == 0 {
			return nil
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d late requests to land: %w", waiting, ctx.Err())
		}
	}
}

// Close closes all listeners and connections and returns when nothing runs any more. Late requests that are not due yet are
// dropped: their After hears Dropped, and they are returned. Those that are on their way, and other writes that were forwarded,
// are carried through first. It waits for an Injector and for the functions of a Fault that are being called. It can be called
// twice.
func (p *Proxy) Close() (dropped []Request, err error) {
	p.mu.Lock()
	p.closed = true
	clients := slices.Collect(maps.Values(p.clients))
	p.mu.Unlock()
	p.dropLate()
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.server.Close())
	}
	p.work.Wait()
	for _, c := range clients {
		if !errors.Is(c.served, http.ErrServerClosed) {
			errs = append(errs, fmt.Errorf("the listener of %s ended early: %w", c.name, c.served))
		}
		utilnet.CloseIdleConnectionsFor(c.transport)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped, errors.Join(errs...)
}

// begin admits a request, unless the proxy is closed. Then end must be called.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Add(1)
	}
	return !p.closed
}

func (p *Proxy) end() { p.work.Done() }

// later runs a request on its own that will land late. It must be called from a request that has begun.
func (p *Proxy) later(land func()) {
	p.mu.Lock()
	p.waiting++
	p.mu.Unlock()
	p.work.Go(func() {
		land()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting--
		close(p.landed)
		p.landed = make(chan struct{})
	})
}

func (p *Proxy) drop(r Request) {
	p.stats.add(KindDropped, r.Point)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = append(p.dropped, r)
}
