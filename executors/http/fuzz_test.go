package httpexec

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
	"unicode/utf8"

	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
)

var (
	// promised and happened are answers that begin as those of a listed status do, after any interim answers.
	promised = regexp.MustCompile(`(?:^|\n)HTTP/1\.[0-9] +409`)
	happened = regexp.MustCompile(`(?:^|\n)HTTP/1\.[0-9] +20[01]`)
)

// Whatever a peer answers, only the status lines that are listed settle anything, and nothing that was sent is in the sentence.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.0 409 Conflict\r\n\r\nno", "HTTP/1.1 409 Conflict\r\nContent-Length: 9\r\n\r\nno",
		"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Trailer: a\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 500 HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 202 Accepted\r\nCtrlrun-Continuation: a\r\n\r\n", "HTTP/2.0 409 Conflict\r\n\r\n", "HTTP/1.1 409\r\n\r\n",
		"HTTP/1.1 200 OK\r\n X: folded\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n409",
	} {
		f.Add([]byte(seed))
	}
	var answer atomic.Pointer[[]byte]
	address := serve(f, func(conn net.Conn) {
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		_, _ = conn.Write(*answer.Load())
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		answer.Store(&data)
		result := execute(t, address, spec)
		switch result.State {
		case effect.Failed:
			if !promised.Match(data) {
				t.Errorf("Failed by the answer %q: %s", data, result.Error)
			}
		case effect.Committed:
			if !happened.Match(data) {
				t.Errorf("Committed by the answer %q", data)
			}
		case effect.Ambiguous:
		default:
			t.Errorf("it is %q", result.State)
		}
		if result.Output != nil {
			value, err := canonical.Parse(result.Output)
			if err != nil || len(result.Output) > executors.MaxOutput {
				t.Errorf("the output of %d bytes: %v", len(result.Output), err)
			}
			if again, err := canonical.Encode(value); err != nil || !bytes.Equal(again, result.Output) {
				t.Errorf("the output %s is not canonical", result.Output)
			}
		}
		discreet(t, result.Error)
	})
}

// Whatever an argument is, the request goes to the same host, its path has the same segments and its query the same parameters, and
// where the argument stands it is read as itself; or nothing is sent.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{
		"txn_1", ".", "..", "...", "a/b", `a\b`, "a?b", "a#b", "a&b=c", "a;b", "..;a", "a b+c", "%2e%2e", "%2F", "%", "a\r\nHost: b", "\x00", "ü東", "{y}", "@evil.example", ":80",
	} {
		f.Add(seed)
	}
	e, err := New(spec("http://api.example.com:8080/v1/{x}/pre{x}.json/end?a=1&q={x}&r=pre{x}", header1("X-A", "pre {x}")))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if value == "" || !utf8.ValidString(value) {
			t.Skip()
		}
		arguments, err := canonical.Encode(map[string]any{"x": value})
		if err != nil {
			t.Skip()
		}
		filled, err := e.target.fill(map[string]any{"x": value})
		if err != nil {
			name, _, _ := strings.Cut(value, ";")
			if len(value) < 100 && !strings.ContainsAny(value, `/\`) && !strings.ContainsFunc(value, unicode.IsControl) && name != "." && name != ".." {
				t.Errorf("%q is refused: %v", value, err)
			}
			return
		}
		read, err := url.Parse(filled.String())
		if err != nil {
			t.Fatalf("%s: %v", filled, err)
		}
		if read.Host != "api.example.com:8080" || read.User != nil || read.Fragment != "" {
			t.Errorf("%s is for %s", filled, read.Host)
		}
		want := []string{"", "v1", value, "pre" + value + ".json", "end"}
		segments := strings.Split(read.EscapedPath(), "/")
		if len(segments) != len(want) {
			t.Fatalf("%s has %d segments", filled, len(segments))
		}
		for i, segment := range segments {
			if decoded, err := url.PathUnescape(segment); err != nil || decoded != want[i] {
				t.Errorf("segment %d of %s is %q (%v), want %q", i, filled, decoded, err, want[i])
			}
		}
		query, err := url.ParseQuery(read.RawQuery)
		if err != nil || len(query) != 3 || query.Get("a") != "1" || query.Get("q") != value || query.Get("r") != "pre"+value {
			t.Errorf("the query of %s is %v (%v)", filled, query, err)
		}

		// On the wire too: what is written is one request, and read as it was meant.
		request, _, err := e.request(executors.Call{Arguments: arguments, Token: token}, nil)
		if err != nil {
			return // by the header, which is stricter
		}
		var wire bytes.Buffer
		if err := request.Write(&wire); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		reader := bufio.NewReader(&wire)
		got, err := http.ReadRequest(reader)
		if err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil || !bytes.Equal(body, arguments) || reader.Buffered() > 0 {
			t.Errorf("the body is %q (%v), and %d bytes follow", body, err, reader.Buffered())
		}
		if got.RequestURI != filled.RequestURI() || got.Host != "api.example.com:8080" || got.Header.Get("X-A") != "pre "+value || len(got.Header) != 5 {
			t.Errorf("it is read as %s at %s with %v", got.RequestURI, got.Host, got.Header)
		}
	})
}
