package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errLost = errors.New("the response is lost")

// client is the side of the proxy that one client process talks to.
type client struct {
	proxy     *Proxy
	name      string
	server    *http.Server
	forward   *httputil.ReverseProxy
	transport http.RoundTripper
	served    error // how the server ended; read when it has

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newClient(p *Proxy, name string, target *url.URL, transport http.RoundTripper) *client {
	c := &client{proxy: p, name: name, transport: transport, open: map[net.Conn]struct{}{}}
	c.forward = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		ModifyResponse: c.answered,
		ErrorHandler:   c.failed,
		ErrorLog:       log.New(io.Discard, "", 0), // of bodies that break off: the client is told by its connection
	}
	c.server = &http.Server{Handler: c, ConnContext: withConnection, ConnState: c.track, ReadHeaderTimeout: time.Minute}
	return c
}

type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// track knows the open connections. One that is opened during a partition is reset with its first request.
func (c *client) track(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.mu.Lock()
		c.open[conn] = struct{}{}
		c.mu.Unlock()
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		delete(c.open, conn)
		c.mu.Unlock()
	}
}

func (c *client) resetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		reset(conn)
	}
}

// reset closes a connection with a RST, so that the other side cannot take it for the end of an answer.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it fails on a connection that is closed already
	}
	_ = conn.Close()
}

// abort resets the connection a request came by and ends its handler.
func abort(ctx context.Context) {
	if conn, ok := ctx.Value(connectionKey{}).(net.Conn); ok {
		reset(conn)
	}
	panic(http.ErrAbortHandler)
}

// exchange is one request on its way.
type exchange struct {
	Request
	fault    Fault
	http     *http.Request // as it came, without its body
	reported bool
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

func (x *exchange) before() {
	for _, do := range x.fault.before {
		do()
	}
}

// report tells After, once.
func (x *exchange) report(status int) {
	if x.reported {
		return
	}
	x.reported = true
	for _, do := range x.fault.after {
		do(status)
	}
}

// outgoing is the request as it is forwarded. The body can be read again, as client-go's can: a transport repeats a request
// of which it knows that the apiserver has not looked at it.
func (x *exchange) outgoing(ctx context.Context) *http.Request {
	r := x.http.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(x.Body)), nil
	if len(x.Body) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.Body)), nil }
		r.Body, _ = r.GetBody()
	}
	return r
}

// ServeHTTP implements http.Handler.
func (c *client) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.proxy.begin() {
		abort(r.Context())
	}
	defer c.proxy.end()
	body, err := io.ReadAll(r.Body)
	if err != nil || c.proxy.partitioned(c.name) {
		abort(r.Context())
	}
	x := &exchange{Request: c.request(r, body), http: r}
	x.fault = c.fault(r.Context(), x.Request)
	switch x.fault.kind {
	case KindLate:
		c.count(x)
		c.proxy.later(func() { c.land(x) })
		abort(r.Context())
	case KindStall:
		c.count(x)
		c.stall(x)
	}
	x.before()
	switch x.fault.kind {
	case KindReset:
		c.count(x)
		abort(r.Context())
	case KindRefuse:
		c.count(x)
		refuse(w, x)
		return
	}
	c.send(w, x)
}

func (c *client) request(r *http.Request, body []byte) Request {
	request := parse(r)
	request.Client, request.Body = c.name, body
	request.Point = PointOf(request)
	request.N = c.proxy.stats.number(request)
	return request
}

func (c *client) fault(ctx context.Context, r Request) Fault {
	f := c.proxy.injector.Inject(ctx, r)
	if !f.fits(r.Verb) {
		c.proxy.stats.add(KindMisfit, r.Point)
		f.kind = ""
	}
	return f
}

func (c *client) count(x *exchange) { c.proxy.stats.add(x.fault.kind, x.Point) }

// send forwards a request and its answer. A write does not end with its client.
func (c *client) send(w http.ResponseWriter, x *exchange) {
	ctx := x.http.Context()
	if x.Write() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		defer cancel()
		ctx = bounded
	}
	c.forward.ServeHTTP(w, x.outgoing(ctx))
}

// stall holds a request up, and drops it if its client is gone by then.
func (c *client) stall(x *exchange) {
	ctx := x.http.Context()
	if sleep(ctx, x.fault.delay) {
		return
	}
	c.proxy.stats.add(KindDropped, x.Point)
	x.report(Dropped)
	abort(ctx)
}

// land forwards a request whose client was told that it failed.
func (c *client) land(x *exchange) {
	if !sleep(c.proxy.late, x.fault.delay) {
		c.proxy.drop(x.Request)
		x.report(Dropped)
		return
	}
	x.before()
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	c.forward.ServeHTTP(nobody{}, x.outgoing(ctx))
}

// sleep reports whether the time was over before ctx was.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// answered is called when the apiserver has answered and the client has not heard it.
func (c *client) answered(response *http.Response) error {
	x := exchangeOf(response.Request)
	if x.fault.kind == KindLoseResponse {
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
	}
	x.report(response.StatusCode)
	switch {
	case x.fault.kind == KindLoseResponse:
		c.count(x)
		return errLost
	case x.Verb == "watch" && response.StatusCode == http.StatusOK:
		response.Body = c.stream(x, response)
	}
	return nil
}

func (c *client) stream(x *exchange, response *http.Response) io.ReadCloser {
	ctx := response.Request.Context()
	s := newStream(ctx, c.proxy.gate(c.name, x.Resource), response.Body)
	switch x.fault.kind {
	case KindCut:
		s.breakAfter(x.fault.delay, io.EOF, func() { c.count(x) })
	case KindTear:
		s.breakAfter(x.fault.delay, errTorn, func() {
			c.count(x)
			if conn, ok := ctx.Value(connectionKey{}).(net.Conn); ok {
				reset(conn)
			}
		})
	}
	return s
}

// failed is called when the apiserver has not answered, or when nobody shall hear that it has.
func (c *client) failed(_ http.ResponseWriter, r *http.Request, _ error) {
	x := exchangeOf(r)
	x.report(Unanswered)
	if x.fault.kind != KindLate { // whose client was reset long ago
		abort(r.Context())
	}
}

// refuse answers as the apiserver would.
func refuse(w http.ResponseWriter, x *exchange) {
	const why = "refused by a fault injection"
	seconds := int(x.fault.delay / time.Second)
	resource := schema.GroupResource{Group: x.Group, Resource: x.Resource}
	// The verb is not HTTP's: of a POST, 409 would say that the object exists already.
	status := apierrors.NewGenericServerResponse(x.fault.status, x.Verb, resource, x.Name, why, seconds, false).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	if err != nil {
		abort(x.http.Context())
	}
	if seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(x.fault.status)
	_, _ = w.Write(body) // it fails where the client is gone
}

// nobody hears an answer.
type nobody struct{}

func (nobody) Header() http.Header         { return http.Header{} }
func (nobody) Write(b []byte) (int, error) { return len(b), nil }
func (nobody) WriteHeader(int)             {}
