package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// proves reports whether an error proves that nothing was executed, as package client asks it.
func proves(err error) bool {
	var proof interface{ NotExecuted() bool }
	return errors.As(err, &proof) && proof.NotExecuted()
}

// post is a request that net/http would send again if it could: it has a key, and a body that can be had again.
func post(t *testing.T, ctx context.Context, url string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"amount":500}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", "token")
	return request
}

// closedPort is an address that nobody listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	return listener.Addr().String()
}

// serve runs handle for every connection to the address it returns, and counts them.
func serve(t *testing.T, handle func(net.Conn)) (string, *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var count atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return listener.Addr().String(), &count
}

// drop reads what was sent, and closes the connection without an answer.
func drop(conn net.Conn) {
	_, _ = http.ReadRequest(bufio.NewReader(conn))
}

func TestOnlyAConnectionThatWasNeverMadeIsAProof(t *testing.T) {
	dropping, _ := serve(t, drop)
	silent, _ := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	defer untrusted.Close()

	for name, tt := range map[string]struct {
		transport Transport
		url       string
		proof     bool
		is        error // in the chain, if not nil
	}{
		"nobody listens":                  {Transport{}, "http://" + closedPort(t), true, syscall.ECONNREFUSED},
		"nobody listens, TLS":             {Transport{}, "https://" + closedPort(t), true, syscall.ECONNREFUSED},
		"no such name":                    {Transport{}, "http://nobody.invalid", true, nil},
		"a certificate of a stranger":     {Transport{}, untrusted.URL, true, nil},
		"no TLS there":                    {Transport{}, "https://" + plain.Listener.Addr().String(), true, nil},
		"a handshake without end":         {Transport{ConnectTimeout: 50 * time.Millisecond}, "https://" + silent, true, context.DeadlineExceeded},
		"a proxy nobody listens at":       {Transport{Proxy: parse(t, "http://"+closedPort(t))}, plain.URL, true, syscall.ECONNREFUSED},
		"a proxy of TLS that has none":    {Transport{Proxy: parse(t, "https://"+plain.Listener.Addr().String())}, plain.URL, true, nil},
		"the connection is closed":        {Transport{}, "http://" + dropping, false, io.EOF},
		"a proxy closes the connection":   {Transport{Proxy: parse(t, "http://"+dropping)}, plain.URL, false, nil},
		"a proxy closes the tunnel":       {Transport{Proxy: parse(t, "http://"+dropping)}, untrusted.URL, false, nil},
		"a proxy refuses the tunnel":      {Transport{Proxy: parse(t, plain.URL)}, untrusted.URL, false, nil},
		"TLS to the server in the tunnel": {Transport{Proxy: parse(t, "http://"+tunnel(t, nil))}, untrusted.URL, false, nil},
		"another scheme":                  {Transport{}, "ftp://" + closedPort(t), false, nil},
		"no host":                         {Transport{}, "http:///refunds", false, nil},
		"a host that is not ASCII":        {Transport{}, "http://bücher.invalid", false, nil},
		"a proxy of another scheme":       {Transport{Proxy: parse(t, "socks5://"+closedPort(t))}, plain.URL, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := tt.transport.Client(10 * time.Second).Do(post(t, t.Context(), tt.url))
			if err == nil {
				response.Body.Close()
				t.Fatalf("status %d, want an error", response.StatusCode)
			}
			if got := proves(err); got != tt.proof {
				t.Errorf("%v: a proof: %t, want %t", err, got, tt.proof)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v: %v is not in its chain", err, tt.is)
			}
		})
	}
}

func parse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// tunnel is the address of a proxy that lets everything through, itself with TLS if there is a configuration.
func tunnel(t *testing.T, config *tls.Config) string {
	address, _ := serve(t, func(conn net.Conn) {
		if config != nil {
			conn = tls.Server(conn, config)
		}
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil || request.Method != http.MethodConnect {
			return
		}
		server, err := net.Dial("tcp", request.Host)
		if err != nil {
			return
		}
		defer server.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(server, conn) }()
		_, _ = io.Copy(conn, server)
	})
	return address
}

// A call that is given up while it connects is not looked at any more: its error is the caller's.
func TestGivingUpIsNoProof(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silent, _ := serve(t, func(conn net.Conn) {
		cancel()
		_, _ = io.Copy(io.Discard, conn)
	})
	_, err := (&Transport{}).RoundTrip(post(t, ctx, "https://"+silent))
	if !errors.Is(err, context.Canceled) || proves(err) {
		t.Errorf("%v: want the caller's cancellation, and no proof", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Transport{}).RoundTrip(post(t, done, "http://"+closedPort(t))); err == nil || proves(err) {
		t.Errorf("%v: want no proof from a context that was done before", err)
	}
}

// Within a context that ends, connecting ends before it, so that a peer that does not answer is one that was never connected to.
func TestConnectingLeavesTimeToSaySo(t *testing.T) {
	silent, _ := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, err := (&Transport{ConnectTimeout: time.Hour}).RoundTrip(post(t, ctx, "https://"+silent))
	if !proves(err) {
		t.Errorf("%v: want a proof", err)
	}
}

// The callbacks of a tls.Config are the caller's. What one panics with comes to the caller, as itself.
func TestPanicsAreTheCallers(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	defer func() {
		if got := recover(); got != "a callback" {
			t.Errorf("recovered %v", got)
		}
	}()
	config := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { panic("a callback") }}
	_, err := (&Transport{TLS: config}).RoundTrip(post(t, t.Context(), server.URL))
	t.Errorf("it returned, with %v", err)
}

// A redirect that was followed to where nobody listens would look as if nothing had been executed.
func TestRedirectsAreNotFollowed(t *testing.T) {
	nowhere := "http://" + closedPort(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.RedirectHandler(nowhere, status))
		response, err := (&Transport{}).Client(10 * time.Second).Do(post(t, t.Context(), server.URL))
		if err != nil || response.StatusCode != status {
			t.Errorf("%d: %v, want the redirect as the answer", status, err)
		} else {
			response.Body.Close()
		}
		// A client whose author forgot to say so.
		_, err = (&http.Client{Transport: &Transport{}}).Do(post(t, t.Context(), server.URL))
		if !errors.Is(err, errRedirected) || proves(err) {
			t.Errorf("%d: %v, want a refusal that proves nothing", status, err)
		}
		server.Close()
	}
}

func TestNothingIsSentTwice(t *testing.T) {
	address, connections := serve(t, drop)
	transport := &Transport{}
	for n := int64(1); n <= 3; n++ {
		if _, err := transport.RoundTrip(post(t, t.Context(), "http://"+address)); err == nil || proves(err) {
			t.Errorf("%v: want an error that proves nothing", err)
		}
		if got := connections.Load(); got != n {
			t.Errorf("%d connections for %d requests", got, n)
		}
	}
}

// Every request has its own connection, though the server would keep it.
func TestConnectionsAreNotReused(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s, close %t", r.Proto, r.Close)
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	// What HTTP/2 is asked for here is not listened to.
	client := (&Transport{TLS: &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}}).Client(10 * time.Second)
	for n := int64(1); n <= 3; n++ {
		response, err := client.Do(post(t, t.Context(), server.URL))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if want := "HTTP/1.1, close true"; string(body) != want || err != nil {
			t.Errorf("%q, %v: want %s", body, err, want)
		}
		if response.TLS == nil || len(response.TLS.PeerCertificates) == 0 {
			t.Error("the answer does not say with whom TLS was spoken")
		}
		if got := connections.Load(); got != n {
			t.Errorf("%d connections for %d requests", got, n)
		}
	}
}

// No proxy but the one that is given: one of the environment would answer for a server that is not there.
func TestTheEnvironmentChangesNothing(t *testing.T) {
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	for _, url := range []string{"http://nobody.invalid", "https://nobody.invalid"} {
		if _, err := (&Transport{}).RoundTrip(post(t, t.Context(), url)); !proves(err) {
			t.Errorf("%s: %v, want a proof", url, err)
		}
	}
}

func TestAGivenProxyIsUsed(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for scheme, want := range map[string][]string{"http": {"example.com"}, "https": {"", "example.com"}} { // TLS names no address
		var names []string
		config := &tls.Config{RootCAs: roots, ServerName: "example.com", VerifyConnection: func(state tls.ConnectionState) error {
			names = append(names, state.ServerName)
			return nil
		}}
		proxy := tunnel(t, nil)
		if scheme == "https" {
			proxy = tunnel(t, server.TLS)
		}
		response, err := (&Transport{TLS: config, Proxy: parse(t, scheme+"://"+proxy)}).RoundTrip(post(t, t.Context(), server.URL))
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		response.Body.Close()
		// A name in the configuration is the server's, not the proxy's.
		if response.StatusCode != http.StatusTeapot || !slices.Equal(names, want) {
			t.Errorf("%s: status %d, names %q, want %q", scheme, response.StatusCode, names, want)
		}
	}
}

// failing is a connection whose writes fail, after it was asked what is marked by then.
type failing struct {
	net.Conn
	write func() bool
	seen  *bool
}

func (f failing) Write([]byte) (int, error) {
	*f.seen = f.write()
	return 0, errors.New("nothing was written")
}

// The mark comes before the write: a write that fails, without a single byte by what it says, has offered what it was given.
func TestOfferedBeforeWritten(t *testing.T) {
	var marked bool
	w := &wire{}
	w.Conn = failing{write: w.offered.Load, seen: &marked}
	if _, err := w.Write([]byte("P")); err == nil {
		t.Fatal("the write did not fail")
	}
	if !marked || !w.offered.Load() {
		t.Errorf("marked at the write: %t, after it: %t", marked, w.offered.Load())
	}
	// And from then on nothing is claimed of this connection.
	err := w.connect(t.Context(), time.Second, peer{address: closedPort(t)})
	if err == nil || proves(err) {
		t.Errorf("%v: want an error that proves nothing", err)
	}
}

// closing is a body that says when it is closed.
type closing struct {
	io.Reader
	closed *bool
}

func (c closing) Close() error { *c.closed = true; return nil }

func TestBodiesAreClosed(t *testing.T) {
	for _, url := range []string{"http://" + closedPort(t), "ftp://127.0.0.1"} {
		var closed bool
		request := post(t, t.Context(), url)
		request.Body = closing{bytes.NewReader(nil), &closed}
		if _, err := (&Transport{}).RoundTrip(request); err == nil || !closed {
			t.Errorf("%s: closed %t, with %v", url, closed, err)
		}
	}
}

// The head of an answer is bounded, with all interim answers before it.
func TestHeadsAreBounded(t *testing.T) {
	for name, head := range map[string]string{
		"interim answers": "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n",
		"a long head":     "",
	} {
		address, _ := serve(t, func(conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				return
			}
			if head == "" {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			}
			for {
				piece := head
				if piece == "" {
					piece = "X-Header: " + strings.Repeat("x", 1000) + "\r\n"
				}
				if _, err := io.WriteString(conn, piece); err != nil {
					return
				}
			}
		})
		_, err := (&Transport{MaxResponseHeaderBytes: 10 << 10}).RoundTrip(post(t, t.Context(), "http://"+address))
		if err == nil || proves(err) {
			t.Errorf("%s: %v: want an error that proves nothing", name, err)
		}
	}
}
