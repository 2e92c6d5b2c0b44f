package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"ctrlrun.dev/operator/kernel/effect"
)

const (
	// DefaultConnectTimeout bounds connecting where no other bound is given.
	DefaultConnectTimeout = 10 * time.Second
	// DefaultMaxResponseHeaderBytes bounds the head of an answer, with all interim answers, where no other bound is given.
	DefaultMaxResponseHeaderBytes = 1 << 20
)

// Transport sends each request once, on a connection of its own. The zero value is ready to use; it may be used for many requests
// at a time, and must not be changed meanwhile. No field changes what a failure means.
type Transport struct {
	// TLS configures TLS, to the server and to a proxy. Its NextProtos are not used, for HTTP/1.1 is spoken. Default: that of
	// crypto/tls.
	TLS *tls.Config
	// Proxy to send requests by, http or https. Default: none; the environment's is not used. A proxy that cannot be reached is a
	// connection that was never made; on one that is reached, nothing is claimed any more.
	Proxy *url.URL
	// ConnectTimeout bounds name resolution, TCP and TLS together. Default: DefaultConnectTimeout. It is never more than half of
	// the time that the context of the request leaves, since a context that ends meanwhile proves nothing.
	ConnectTimeout time.Duration
	// MaxResponseHeaderBytes bounds the head of an answer. Default: DefaultMaxResponseHeaderBytes.
	MaxResponseHeaderBytes int64
}

var _ http.RoundTripper = (*Transport)(nil)

// Client returns an http.Client that uses t and follows no redirect. The timeout bounds a call and the reading of its answer; it has
// no default, and 0 is none.
func (t *Transport) Client(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: t,
		Timeout:   timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// NeverConnectedError says that no connection was made for a request, so that not a byte of it was offered to one.
type NeverConnectedError struct {
	// Err is why.
	Err error
}

func (e *NeverConnectedError) Error() string {
	return fmt.Sprintf("no connection was made, so nothing was sent: %v (%T)", e.Err, e.Err)
}

// NotExecuted reports that for certain nothing was executed.
func (e *NeverConnectedError) NotExecuted() bool {
	return effect.NeverConnected.State() == effect.Failed
}

// Unwrap returns the error of the connection.
func (e *NeverConnectedError) Unwrap() error { return e.Err }

// errRedirected: a redirect that is followed is a second request, and its connection says nothing of the first.
var errRedirected = errors.New("a redirect is not followed: the request that was redirected may have been executed")

// errSecond: whatever would send a request again finds no connection to do so.
var errSecond = errors.New("a request has one connection, and it was used")

// RoundTrip sends the request. A *NeverConnectedError says that nothing was executed; of any other error nothing is known.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	to, err := t.peer(request)
	if err != nil {
		closeBody(request)
		return nil, err
	}
	w := &wire{}
	if err := w.connect(request.Context(), t.connectTimeout(request.Context()), to); err != nil {
		closeBody(request)
		return nil, err
	}
	response, err := t.once(w).RoundTrip(request)
	if err != nil {
		w.Close()
		return nil, err
	}
	if t.Proxy == nil {
		response.TLS = w.state
	}
	return response, nil
}

// once returns what speaks HTTP on w, one time.
func (t *Transport) once(w *wire) *http.Transport {
	var taken atomic.Bool
	take := func(context.Context, string, string) (net.Conn, error) {
		if !taken.CompareAndSwap(false, true) {
			return nil, errSecond
		}
		return w, nil
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	once := &http.Transport{
		DialContext:            take,
		DialTLSContext:         take,
		TLSClientConfig:        t.config(""), // of the server behind a proxy
		TLSHandshakeTimeout:    t.connectTimeout(context.Background()),
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		Protocols:              protocols,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: t.MaxResponseHeaderBytes,
	}
	if t.Proxy != nil {
		once.Proxy = http.ProxyURL(t.Proxy)
	}
	if once.MaxResponseHeaderBytes <= 0 {
		once.MaxResponseHeaderBytes = DefaultMaxResponseHeaderBytes
	}
	return once
}

// peer is whom a connection is made to: the server, or the proxy.
type peer struct {
	address string
	// tls is nil for a connection without.
	tls *tls.Config
}

func (t *Transport) peer(request *http.Request) (peer, error) {
	if request.Response != nil {
		return peer{}, errRedirected
	}
	if request.URL == nil {
		return peer{}, errors.New("the request has no URL")
	}
	server, err := t.peerOf(request.URL, "the URL")
	if err != nil || t.Proxy == nil {
		return server, err
	}
	return t.peerOf(t.Proxy, "the proxy's URL")
}

// peerOf: the messages do not hold the URL, for it may hold what nobody else should see.
func (t *Transport) peerOf(u *url.URL, what string) (peer, error) {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return peer{}, fmt.Errorf("%s names no host", what)
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r > '~' }) {
		return peer{}, fmt.Errorf("the host of %s is not written in ASCII", what)
	}
	switch u.Scheme {
	case "http":
		if port == "" {
			port = "80"
		}
		return peer{address: net.JoinHostPort(host, port)}, nil
	case "https":
		if port == "" {
			port = "443"
		}
		return peer{address: net.JoinHostPort(host, port), tls: t.config(host)}, nil
	}
	return peer{}, fmt.Errorf("the scheme of %s is %q, not http or https", what, u.Scheme)
}

// config is for HTTP/1.1 with that server, or with one that net/http names. A name in t.TLS is the server's, not a proxy's.
func (t *Transport) config(host string) *tls.Config {
	config := &tls.Config{}
	if t.TLS != nil {
		config = t.TLS.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	if host != "" && (config.ServerName == "" || t.Proxy != nil) {
		config.ServerName = host
	}
	return config
}

func (t *Transport) connectTimeout(ctx context.Context) time.Duration {
	timeout := t.ConnectTimeout
	if timeout <= 0 {
		timeout = DefaultConnectTimeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	return timeout
}

// closeBody: a RoundTripper closes the body of its request whatever happens.
func closeBody(request *http.Request) {
	if request.Body != nil {
		request.Body.Close()
	}
}

// wire is the connection of one request, as the application sees it: above TLS. It is never used for another.
type wire struct {
	net.Conn
	state *tls.ConnectionState
	// offered says that a byte was handed over for sending. It is set before, since a write that fails may have sent some, and
	// never cleared.
	offered atomic.Bool
}

// Write offers bytes to the peer.
func (w *wire) Write(p []byte) (int, error) {
	w.offered.Store(true)
	return w.Conn.Write(p)
}

// connect makes the connection. Here, and nowhere else, it can be claimed that nothing was executed: until it returns, nobody has
// a connection to write a request to.
func (w *wire) connect(ctx context.Context, timeout time.Duration, to peer) error {
	connecting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, state, err := dial(connecting, to)
	switch {
	case err == nil:
		w.Conn, w.state = conn, state
		return nil
	case ctx.Err() != nil || w.offered.Load():
		return err
	}
	return &NeverConnectedError{Err: err}
}

func dial(ctx context.Context, to peer) (net.Conn, *tls.ConnectionState, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.address)
	if err != nil || to.tls == nil {
		return conn, nil, err
	}
	// The records of the handshake are no bytes of the request, and crypto/tls sends no early data.
	secured := tls.Client(conn, to.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, nil, err
	}
	state := secured.ConnectionState()
	return secured, &state, nil
}
