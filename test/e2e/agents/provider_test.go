package agents

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// call is one request that reached the provider as a whole.
type call struct{ path, token, body string }

// provider is the remote that the agents act on: a real HTTP server on the loopback interface that counts.
type provider struct {
	url string

	mu     sync.Mutex
	calls  []call
	answer http.HandlerFunc
}

func newProvider() *provider {
	p := &provider{answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"refund":"re_1"}`) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.calls = append(p.calls, call{path: r.URL.RequestURI(), token: r.Header.Get("Idempotency-Key"), body: string(body)})
		answer := p.answer
		p.mu.Unlock()
		answer(w, r)
	}))
	DeferCleanup(server.Close)
	p.url = server.URL + "/v1/refunds"
	return p
}

// answers is what the provider does about the requests that come now.
func (p *provider) answers(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = h
}

// seen are the calls for a payment.
func (p *provider) seen(payment string) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []call
	for _, c := range p.calls {
		if strings.Contains(c.body, fmt.Sprintf("%q", payment)) {
			found = append(found, c)
		}
	}
	return found
}

// blocks lets the provider answer only when it is released.
func (p *provider) blocks() (release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	p.answers(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, `{"refund":"re_1"}`)
	})
	DeferCleanup(release)
	return release
}

// hangsUp ends the connection when the request was read.
func hangsUp(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = connection.Close()
	}
}

// breaksOff says that it has done it and hangs up in the middle of saying so, after a number of bytes.
func breaksOff(after int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		answer := `{"refund":"` + strings.Repeat("x", 100_000)
		_, _ = fmt.Fprintf(connection, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer[:after])
		_ = connection.Close()
	}
}

// redirect sends whoever follows to the same place again.
func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// deaf is the URL of a provider that refuses connections: nobody listens on the port, and nobody else can.
func deaf() string {
	GinkgoHelper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return syscall.Close(socket) })
	Expect(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})).To(Succeed())
	address, err := syscall.Getsockname(socket)
	Expect(err).NotTo(HaveOccurred())
	return "http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(address.(*syscall.SockaddrInet4).Port)) + "/v1/refunds"
}

// unencrypted is the URL of a provider that breaks off the TLS handshake.
func unencrypted() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "this is no TLS\r\n")
			_ = connection.Close()
		}
	}()
	return "https://" + listener.Addr().String() + "/v1/refunds"
}
