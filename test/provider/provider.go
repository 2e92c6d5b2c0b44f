// Package provider is a provider for tests: a server of HTTP on TCP and TLS of 127.0.0.1, which goes wrong in every way that a real
// one does, and counts what it really did.
//
// It executes whatever request it reads to its end, unless the fault comes before, as if nobody had told it of idempotency keys: a
// request that arrives twice is executed twice. An execution is counted by its key before the provider answers, so the count is the
// truth that a record is compared with.
package provider

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Provider has one endpoint for each Fault that it was asked for.
type Provider struct {
	t         testing.TB
	authority authority
	done      chan struct{}
	close     sync.Once
	handlers  sync.WaitGroup

	mu        sync.Mutex
	endpoints map[endpoint]*server
	executed  map[string]int
}

type endpoint struct {
	fault Fault
	tls   bool
}

type server struct {
	listener    io.Closer
	address     string
	connections atomic.Int64
	written     atomic.Int64
}

// New is a provider until Close, at the latest until the end of the test.
func New(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{t: t, authority: newAuthority(t), done: make(chan struct{}), endpoints: map[endpoint]*server{}, executed: map[string]int{}}
	t.Cleanup(p.Close)
	return p
}

// Close ends the provider. What it has not executed by then it never will, so counts are final.
func (p *Provider) Close() {
	p.close.Do(func() {
		close(p.done)
		p.mu.Lock()
		for _, s := range p.endpoints {
			s.listener.Close()
		}
		p.mu.Unlock()
	})
	p.handlers.Wait()
}

// URL is where requests meet that fault, without a path. Faults of TLS are met by TLS alone.
func (p *Provider) URL(fault Fault, secure bool) string {
	p.t.Helper()
	address := p.at(fault, secure || fault.NeedsTLS()).address
	if secure || fault.NeedsTLS() {
		return "https://" + address
	}
	return "http://" + address
}

// Connections is how many connections there were to that endpoint.
func (p *Provider) Connections(fault Fault, secure bool) int64 {
	return p.at(fault, secure || fault.NeedsTLS()).connections.Load()
}

// Written is how many bytes that endpoint has answered, below TLS.
func (p *Provider) Written(fault Fault, secure bool) int64 {
	return p.at(fault, secure || fault.NeedsTLS()).written.Load()
}

// Executions is how often it acted on requests with that key.
func (p *Provider) Executions(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.executed[key]
}

// Certificates are those that sign the provider's, in PEM.
func (p *Provider) Certificates() []byte { return p.authority.pem }

// Roots are those that sign the provider's.
func (p *Provider) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.authority.certificate)
	return pool
}

func (p *Provider) execute(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.executed[key]++
}

func (p *Provider) at(fault Fault, secure bool) *server {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	at := endpoint{fault, secure}
	if s, ok := p.endpoints[at]; ok {
		return s
	}
	s, err := p.listen(at)
	if err != nil {
		p.t.Fatalf("no endpoint for %s: %v", fault, err)
	}
	p.endpoints[at] = s
	return s
}

func (p *Provider) listen(at endpoint) (*server, error) {
	switch at.fault {
	case NobodyListens, NobodyAccepts:
		return quiet(at.fault == NobodyAccepts)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, address: listener.Addr().String()}
	var config *tls.Config
	if at.tls {
		if config, err = p.authority.server(at.fault); err != nil {
			listener.Close()
			return nil, err
		}
	}
	p.handlers.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			p.handlers.Go(func() { p.serve(s, at.fault, conn, config) })
		}
	})
	return s, nil
}

// quiet is a socket that is bound and does not listen, so that connections are refused and nobody else has its port; or one that
// listens with a full backlog, so that connections are not answered at all.
func quiet(full bool) (*server, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		s.Close()
		return nil, err
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		s.Close()
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
	if !full {
		return &server{listener: s, address: address}, nil
	}
	if err := syscall.Listen(fd, 0); err != nil {
		s.Close()
		return nil, err
	}
	// Fill it until a connection is not answered: the kernel lets one or two in.
	for {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return &server{listener: s, address: address}, nil
		}
		s.waiting = append(s.waiting, conn)
	}
}

type socket struct {
	fd      int
	waiting []net.Conn
}

func (s *socket) Close() error {
	for _, conn := range s.waiting {
		conn.Close()
	}
	return syscall.Close(s.fd)
}

// serve is one connection.
func (p *Provider) serve(s *server, fault Fault, raw net.Conn, config *tls.Config) {
	counted := &counting{Conn: raw, written: &s.written}
	// Whatever it waits for ends with the test.
	over := make(chan struct{})
	defer close(over)
	p.handlers.Go(func() {
		select {
		case <-over:
		case <-p.done:
		}
		raw.Close()
	})
	var conn net.Conn = counted
	switch fault {
	case ResetAtOnce:
		reset(raw)
		return
	case SilentHandshake:
		_, _ = io.Copy(io.Discard, raw)
		return
	case ResetInHandshake:
		_, _ = raw.Read(make([]byte, 1))
		reset(raw)
		return
	case PlainText:
		_, _ = raw.Read(make([]byte, 1))
		_, _ = io.WriteString(raw, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		return
	}
	if config != nil {
		secured := tls.Server(counted, config)
		if secured.Handshake() != nil {
			return
		}
		conn = secured
	}
	if fault == ResetBeforeRead {
		await(raw)
		reset(raw)
		return
	}
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	if fault == ResetAfterHead {
		reset(raw)
		return
	}
	if _, err := io.Copy(io.Discard, request.Body); err != nil {
		return
	}
	if !fault.Refuses() {
		p.execute(request.Header.Get("Idempotency-Key"))
	}
	p.answer(fault, raw, conn)
}

// await returns when something can be read, without reading it.
func await(conn net.Conn) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
}

// reset closes a connection by RST: what was sent and not read is lost on both sides.
func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// counting counts what is written.
type counting struct {
	net.Conn
	written *atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// answer is what comes after the request was read, and executed if it is a fault of those that come after.
func (p *Provider) answer(fault Fault, raw, conn net.Conn) {
	say := func(format string, args ...any) bool {
		_, err := fmt.Fprintf(conn, format, args...)
		return err == nil
	}
	const done = `{"refund":"re_1"}`
	switch fault {
	case None:
		say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(done), done)
	case Refused:
		say("HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}")
	case RefusedCutOff:
		say("HTTP/1.1 409 Conflict\r\nContent-Length: 200\r\n\r\n{}")
	case ResetAfterActing:
		reset(raw)
	case ClosedAfterActing:
	case HangAfterActing:
		_, _ = io.Copy(io.Discard, conn)
	case HalfHead:
		say("HTTP/1.1 200 OK\r\nContent-Le")
	case HalfBody:
		say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n%s", done)
	case HangInBody:
		say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n%s", done)
		_, _ = io.Copy(io.Discard, conn)
	case ResetInBody:
		say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n%s", done)
		reset(raw)
	case Slow:
		for _, c := range "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" {
			if !say("%c", c) {
				return
			}
		}
	case Dripping:
		say("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
		p.drip(func() bool { return say(" ") })
	case Interim:
		for range 20 {
			say("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
		}
		say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
	case InterimFlood:
		for say("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n") {
		}
	case EndlessHead:
		say("HTTP/1.1 200 OK\r\n")
		for say("X-Filler: %s\r\n", strings.Repeat("x", 1000)) {
		}
	case Garbage:
		say("\x00\x01\x02 what do you want\r\n\r\n")
	case NotHTTP:
		say("220 mail.example.com ESMTP\r\n")
	case BadStatus:
		say("HTTP/1.1 OK 200\r\nContent-Length: 0\r\n\r\n")
	case TwoLengths:
		say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}")
	case LengthTooLong:
		say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(done)+10, done)
	case LengthTooShort:
		say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}%s", done)
	case BrokenChunk:
		say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n%s\r\nxyz\r\n0\r\n\r\n", done)
	case MissingChunk:
		say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n%s\r\n", done)
	case Huge:
		p.huge(conn)
	default:
		status := fault.Status()
		say("HTTP/1.1 %d %s\r\nLocation: http://127.0.0.1:1/\r\nWWW-Authenticate: Bearer\r\nContent-Length: 2\r\n\r\n{}", status, http.StatusText(status))
	}
}

// drip repeats until the peer is gone. Its pace is what the fault is.
func (p *Provider) drip(again func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for again() {
		select {
		case <-tick.C:
		case <-p.done:
			return
		}
	}
}

// HugeSize is the size of the answer of Huge, in bytes.
const HugeSize = 1 << 30

func (p *Provider) huge(conn net.Conn) {
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", HugeSize); err != nil {
		return
	}
	piece := make([]byte, 64<<10)
	for range HugeSize / len(piece) {
		if _, err := conn.Write(piece); err != nil {
			return
		}
	}
}

// authority signs the provider's certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := certificate("provider CA", time.Hour)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{parsed, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func certificate(name string, valid time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(valid),
	}
}

// server is what a server that has that fault speaks TLS with.
func (a authority) server(fault Fault) (*tls.Config, error) {
	valid := time.Hour
	if fault == ExpiredCertificate {
		valid = -time.Minute
	}
	template := certificate("provider", valid)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	if fault == WrongCertificate {
		template.IPAddresses, template.DNSNames = nil, []string{"another.example.com"}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, signing := a.certificate, a.key
	if fault == UnknownAuthority {
		signer, signing = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, key.Public(), signing)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	switch fault {
	case NoCommonProtocol:
		config.NextProtos = []string{"acme-tls/1"}
	case ClientCertificate:
		config.ClientAuth = tls.RequireAnyClientCert
	}
	return config, nil
}
