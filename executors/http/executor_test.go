package httpexec

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/effect"
)

const token = "5f1c2a30-6f5e-8d7c-9f53-0c2a4b7d1e90"

func ptr[T any](v T) *T { return &v }

// spec is one that is valid, changed.
func spec(url string, changes ...func(*v1alpha1.HTTPExecutor)) *v1alpha1.HTTPExecutor {
	s := &v1alpha1.HTTPExecutor{Method: "POST", URL: url, TimeoutSeconds: 10, Committed: []int32{200, 201}, NotExecuted: []int32{409}}
	for _, change := range changes {
		change(s)
	}
	return s
}

func header1(name, value string) func(*v1alpha1.HTTPExecutor) {
	return func(s *v1alpha1.HTTPExecutor) {
		s.Headers = append(s.Headers, v1alpha1.HTTPHeader{Name: name, Value: &value})
	}
}

func secretHeader(name, prefix, secret, key string) func(*v1alpha1.HTTPExecutor) {
	return func(s *v1alpha1.HTTPExecutor) {
		from := &v1alpha1.HTTPHeaderSource{SecretKeyRef: v1alpha1.KeyReference{Name: secret, Key: key}}
		if prefix != "" {
			from.Prefix = &prefix
		}
		s.Headers = append(s.Headers, v1alpha1.HTTPHeader{Name: name, ValueFrom: from})
	}
}

func ca(source v1alpha1.CASource) func(*v1alpha1.HTTPExecutor) {
	return func(s *v1alpha1.HTTPExecutor) { s.CAFrom = &source }
}

func executor(t testing.TB, s *v1alpha1.HTTPExecutor) *Executor {
	t.Helper()
	e, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func call(arguments string) executors.Call {
	return executors.Call{Arguments: []byte(arguments), Token: token}
}

func TestSpecs(t *testing.T) {
	const url = "https://api.example.com/v1/refunds"
	set := func(change func(*v1alpha1.HTTPExecutor)) *v1alpha1.HTTPExecutor { return spec(url, change) }
	for name, tt := range map[string]struct {
		spec *v1alpha1.HTTPExecutor
		want string // in the refusal; empty: none
	}{
		"plain":                        {spec(url), ""},
		"no path":                      {spec("http://api.example.com"), ""},
		"an address and a port":        {spec("http://[::1]:8080/x"), ""},
		"placeholders in the path":     {spec("https://api.example.com/v1/{a}/x-{b}.json/"), ""},
		"placeholders in the query":    {spec("https://api.example.com/v1?a={a}&b=x{b}y&c&d="), ""},
		"percent-encoded text":         {spec("https://api.example.com/a%20b?c=%26"), ""},
		"no spec":                      {nil, "missing"},
		"another method":               {set(func(s *v1alpha1.HTTPExecutor) { s.Method = "GET" }), "method"},
		"a method in small letters":    {set(func(s *v1alpha1.HTTPExecutor) { s.Method = "post" }), "method"},
		"no URL":                       {spec(""), "begins with"},
		"another scheme":               {spec("ftp://api.example.com/"), "begins with"},
		"a scheme in capitals":         {spec("HTTPS://api.example.com/"), "begins with"},
		"a placeholder for the scheme": {spec("{scheme}://api.example.com/"), "begins with"},
		"a placeholder in the host":    {spec("https://{region}.example.com/"), "literal"},
		"a placeholder as the host":    {spec("https://{host}/"), "literal"},
		"a placeholder for the port":   {spec("https://api.example.com:{port}/"), "literal"},
		"no host":                      {spec("https:///x"), "host"},
		"a host that is not ASCII":     {spec("https://bücher.example/"), "host"},
		"a host with an escape":        {spec("https://api%2eexample.com/"), "host"},
		"a zone":                       {spec("https://[fe80::1%25eth0]/"), "host"},
		"a user":                       {spec("https://user:password@api.example.com/"), "user"},
		"a user of a host":             {spec("https://api.example.com@evil.example/"), "user"},
		"port 0":                       {spec("https://api.example.com:0/"), "port"},
		"port 65536":                   {spec("https://api.example.com:65536/"), "port"},
		"an empty port":                {spec("https://api.example.com:/"), "host"},
		"a fragment":                   {spec("https://api.example.com/#a"), "fragment"},
		"a fragment without path":      {spec("https://api.example.com#a"), "fragment"},
		"dots in the path":             {spec("https://api.example.com/a/../b"), ".."},
		"dots with a parameter":        {spec("https://api.example.com/a/..;x/b"), ".."},
		"dots that are encoded":        {spec("https://api.example.com/a/%2e%2E/b"), ".."},
		"a dot in the path":            {spec("https://api.example.com/a/./b"), ".."},
		"a space":                      {spec("https://api.example.com/a b"), "percent-encoded"},
		"a line break":                 {spec("https://api.example.com/a\r\nHost: b"), "percent-encoded"},
		"a backslash":                  {spec(`https://api.example.com/a\b`), "percent-encoded"},
		"a backslash after the host":   {spec(`https://api.example.com\b/`), "host"},
		"a wrong escape":               {spec("https://api.example.com/a%2"), "percent-encoded"},
		"an argument within an escape": {spec("https://api.example.com/a%2{a}"), "percent-encoded"},
		"an open brace":                {spec("https://api.example.com/{a"), "never closed"},
		"no name in braces":            {spec("https://api.example.com/{}"), "placeholder"},
		"a parameter's name":           {spec("https://api.example.com/?{a}=b"), "name of a parameter"},
		"an open brace in the query":   {spec("https://api.example.com/?a={"), "never closed"},
		"a space in the query":         {spec("https://api.example.com/?a=b c"), "percent-encoded"},
		"a space in a parameter":       {spec("https://api.example.com/?a b=c"), "percent-encoded"},

		"a header":                     {set(header1("X-Account", "a {b}")), ""},
		"a header from a Secret":       {set(secretHeader("Authorization", "Bearer ", "s", "k")), ""},
		"a header without name":        {set(header1("", "x")), "name of a header"},
		"a header with a colon":        {set(header1("X:", "x")), "name of a header"},
		"a placeholder in a name":      {set(header1("X-{a}", "x")), "name of a header"},
		"Host":                         {set(header1("host", "x")), "not for a spec"},
		"Content-Length":               {set(header1("content-length", "1")), "not for a spec"},
		"Content-Length by underscore": {set(header1("Content_Length", "1")), "not for a spec"},
		"Content-Type":                 {set(header1("Content-Type", "x")), "not for a spec"},
		"Content-Encoding":             {set(header1("Content-Encoding", "gzip")), "not for a spec"},
		"Transfer-Encoding":            {set(header1("Transfer-Encoding", "chunked")), "not for a spec"},
		"Connection":                   {set(header1("Connection", "keep-alive")), "not for a spec"},
		"Ctrlrun-Continuation":         {set(header1("ctrlrun-continuation", "x")), "not for a spec"},
		"Idempotency-Key":              {set(header1("IDEMPOTENCY-KEY", "x")), "not for a spec"},
		"Expect":                       {set(header1("Expect", "100-continue")), "not for a spec"},
		"Upgrade":                      {set(header1("Upgrade", "h2c")), "not for a spec"},
		"TE":                           {set(header1("TE", "trailers")), "not for a spec"},
		"Trailer":                      {set(header1("Trailer", "X")), "not for a spec"},
		"Proxy-Authorization":          {set(secretHeader("proxy-authorization", "", "s", "k")), "not for a spec"},
		"a header twice":               {spec(url, header1("X-A", "1"), header1("x-a", "2")), "twice"},
		"an empty value":               {set(header1("X-A", "")), "empty"},
		"a line break in a value":      {set(header1("X-A", "1\r\nHost: x")), "cannot be sent"},
		"a value that is not ASCII":    {set(header1("X-A", "é")), "cannot be sent"},
		"a space before a value":       {set(header1("X-A", " {a}")), "space"},
		"a brace in a value":           {set(header1("X-A", `{"a":1}`)), "placeholder"},
		"a line break in a prefix":     {set(secretHeader("X-A", "a\n", "s", "k")), "cannot be sent"},
		"a Secret without key":         {set(secretHeader("X-A", "", "s", "")), "without key"},
		"value and valueFrom": {set(func(s *v1alpha1.HTTPExecutor) {
			s.Headers = []v1alpha1.HTTPHeader{{Name: "X-A", Value: ptr("x"), ValueFrom: &v1alpha1.HTTPHeaderSource{}}}
		}), "either value"},
		"neither": {set(func(s *v1alpha1.HTTPExecutor) { s.Headers = []v1alpha1.HTTPHeader{{Name: "X-A"}} }), "either value"},

		"certificates":              {set(ca(v1alpha1.CASource{ConfigMapKeyRef: &v1alpha1.KeyReference{Name: "c", Key: "k"}})), ""},
		"certificates without TLS":  {spec("http://a/", ca(v1alpha1.CASource{SecretKeyRef: &v1alpha1.KeyReference{Name: "c", Key: "k"}})), "without https"},
		"certificates from nowhere": {set(ca(v1alpha1.CASource{})), "either secretKeyRef"},
		"certificates from two": {set(ca(v1alpha1.CASource{
			SecretKeyRef: &v1alpha1.KeyReference{Name: "c", Key: "k"}, ConfigMapKeyRef: &v1alpha1.KeyReference{Name: "c", Key: "k"},
		})), "either secretKeyRef"},
		"certificates without name": {set(ca(v1alpha1.CASource{SecretKeyRef: &v1alpha1.KeyReference{Key: "k"}})), "without name"},

		"no time":                 {set(func(s *v1alpha1.HTTPExecutor) { s.TimeoutSeconds = 0 }), "timeoutSeconds"},
		"too much time":           {set(func(s *v1alpha1.HTTPExecutor) { s.TimeoutSeconds = 3601 }), "timeoutSeconds"},
		"never committed":         {set(func(s *v1alpha1.HTTPExecutor) { s.Committed = nil }), "committed is empty"},
		"committed by a redirect": {set(func(s *v1alpha1.HTTPExecutor) { s.Committed = []int32{302} }), "committed lists 302"},
		"committed by a hint":     {set(func(s *v1alpha1.HTTPExecutor) { s.Committed = []int32{103} }), "committed lists 103"},
		"a status twice":          {set(func(s *v1alpha1.HTTPExecutor) { s.Committed = []int32{200, 200} }), "twice"},
		"a status as both":        {set(func(s *v1alpha1.HTTPExecutor) { s.NotExecuted = []int32{200} }), "notExecuted lists 200"},
		"not executed by a 503":   {set(func(s *v1alpha1.HTTPExecutor) { s.NotExecuted = []int32{503} }), "notExecuted lists 503"},
		"nothing promised":        {set(func(s *v1alpha1.HTTPExecutor) { s.NotExecuted = nil }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tt.spec)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want a refusal with %q", err, tt.want)
			}
		})
	}
}

func TestReferences(t *testing.T) {
	e := executor(t, spec("https://a/",
		ca(v1alpha1.CASource{ConfigMapKeyRef: &v1alpha1.KeyReference{Name: "roots", Key: "ca.crt"}}),
		secretHeader("Authorization", "Bearer ", "provider", "token"),
		header1("X-Account", "7"),
		secretHeader("X-Token", "", "provider", "token"),
		secretHeader("X-User", "", "provider", "user"),
	))
	want := []Reference{{ConfigMap, "roots", "ca.crt"}, {Secret, "provider", "token"}, {Secret, "provider", "user"}}
	if got := e.References(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestArgumentsAreEscapedForTheirPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		url, arguments, want string
		refused              string
	}{
		"as they are":                {"http://h/a/{x}?q={y}", `{"x":"txn_1","y":500}`, "http://h/a/txn_1?q=500", ""},
		"no placeholders":            {"http://h/a//b/?c&d=&e=%20", `{}`, "http://h/a//b/?c&d=&e=%20", ""},
		"no path":                    {"http://h", `{}`, "http://h/", ""},
		"an empty query":             {"http://h/?", `{}`, "http://h/?", ""},
		"a question mark in a path":  {"http://h/{x}", `{"x":"a?b=c"}`, "http://h/a%3Fb=c", ""},
		"a fragment in a path":       {"http://h/{x}", `{"x":"a#b"}`, "http://h/a%23b", ""},
		"an escape in a path":        {"http://h/{x}", `{"x":"a%2Fb"}`, "http://h/a%252Fb", ""},
		"a line break in a path":     {"http://h/{x}", `{"x":"a\r\nb"}`, "", "line break"},
		"a NUL in a path":            {"http://h/{x}", `{"x":"a\u0000"}`, "", "control character"},
		"a line break in a query":    {"http://h/?q={x}", `{"x":"a\r\nb"}`, "http://h/?q=a%0D%0Ab", ""},
		"more than ASCII in a path":  {"http://h/{x}", `{"x":"ü 東"}`, "http://h/%C3%BC%20%E6%9D%B1", ""},
		"three dots":                 {"http://h/{x}", `{"x":"..."}`, "http://h/...", ""},
		"dots within a segment":      {"http://h/v{x}", `{"x":".."}`, "http://h/v..", ""},
		"a slash in a path":          {"http://h/{x}", `{"x":"a/b"}`, "", "slash"},
		"a backslash in a path":      {"http://h/{x}", `{"x":"a\\b"}`, "", "slash"},
		"a dot":                      {"http://h/{x}/b", `{"x":"."}`, "", "another path"},
		"two dots":                   {"http://h/{x}/b", `{"x":".."}`, "", "another path"},
		"two dots by two arguments":  {"http://h/{x}{y}/b", `{"x":".","y":"."}`, "", "another path"},
		"two dots by half":           {"http://h/.{x}/b", `{"x":"."}`, "", "another path"},
		"two dots by an escape":      {"http://h/%2e{x}/b", `{"x":"."}`, "", "another path"},
		"two dots and a parameter":   {"http://h/{x}/b", `{"x":"..;a=b"}`, "", "another path"},
		"a dot and a semicolon":      {"http://h/{x}/b", `{"x":".;"}`, "", "another path"},
		"a parameter of a segment":   {"http://h/{x}/b", `{"x":"a;b=c"}`, "http://h/a%3Bb=c/b", ""},
		"dots as an escape":          {"http://h/{x}/b", `{"x":"%2e%2e"}`, "http://h/%252e%252e/b", ""},
		"a second parameter":         {"http://h/?q={x}&r=1", `{"x":"a&r=2"}`, "http://h/?q=a%26r%3D2&r=1", ""},
		"a semicolon":                {"http://h/?q={x}", `{"x":"a;r=2"}`, "http://h/?q=a%3Br%3D2", ""},
		"a space and a plus sign":    {"http://h/?q={x}", `{"x":"a b+c"}`, "http://h/?q=a%20b%2Bc", ""},
		"a fragment in a query":      {"http://h/?q={x}", `{"x":"a#b"}`, "http://h/?q=a%23b", ""},
		"a slash in a query":         {"http://h/?q={x}", `{"x":"../a"}`, "http://h/?q=..%2Fa", ""},
		"braces in an argument":      {"http://h/?q={x}", `{"x":"{y}","y":"z"}`, "http://h/?q=%7By%7D", ""},
		"an argument that is empty":  {"http://h/{x}/b", `{"x":""}`, "", "empty string"},
		"an argument that is not":    {"http://h/{x}/b", `{}`, "", "does not have"},
		"an argument that is a bool": {"http://h/{x}/b", `{"x":true}`, "", "a bool"},
		"an argument that is null":   {"http://h/?q={x}", `{"x":null}`, "", "null"},
		"an argument that is a list": {"http://h/?q={x}", `{"x":["a"]}`, "", "a list"},
		"an argument without end":    {"http://h/?q={x}", `{"x":"` + strings.Repeat("x", 5000) + `"}`, "", "4096"},
		"arguments without end":      {"http://h/?q={x}{x}{x}{x}&r={x}{x}&s={x}{x}&t={x}{x}&u={x}{x}&v={x}{x}&w={x}{x}", `{"x":"` + strings.Repeat("x", 1000) + `"}`, "http://h/?q=" + strings.Repeat("x", 4000) + rest("rstuvw"), ""},
		"a URL without end":          {"http://h/{x}?q={x}&r={x}&s={x}&t={x}", `{"x":"` + strings.Repeat("x", 4000) + `"}`, "", "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			request, _, err := executor(t, spec(tt.url)).request(call(tt.arguments), nil)
			switch {
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("%v, want a refusal with %q", err, tt.refused)
			case tt.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.refused == "" && request.URL.String() != tt.want:
				t.Errorf("got %s, want %s", request.URL, tt.want)
			}
		})
	}
}

func rest(names string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "&%c=%s", name, strings.Repeat("x", 2000))
	}
	return b.String()
}

func TestHeaderValues(t *testing.T) {
	provider := Reference{Secret, "provider", "token"}
	for name, tt := range map[string]struct {
		header    func(*v1alpha1.HTTPExecutor)
		arguments string
		values    Values
		want      string
		refused   string
	}{
		"literal":                      {header1("X-A", "a, b; c=\"d\""), `{}`, nil, "a, b; c=\"d\"", ""},
		"an argument":                  {header1("X-A", "ref {x}/{y}"), `{"x":"a b","y":-7}`, nil, "ref a b/-7", ""},
		"a line break":                 {header1("X-A", "{x}"), `{"x":"a\r\nX-B: c"}`, nil, "", "line break"},
		"a line feed":                  {header1("X-A", "{x}"), `{"x":"a\nb"}`, nil, "", "line break"},
		"a NUL":                        {header1("X-A", "{x}"), `{"x":"a\u0000b"}`, nil, "", "another character"},
		"a tab":                        {header1("X-A", "{x}"), `{"x":"a\tb"}`, nil, "", "another character"},
		"a delete":                     {header1("X-A", "{x}"), `{"x":"a\u007fb"}`, nil, "", "another character"},
		"a line break by its low byte": {header1("X-A", "{x}"), `{"x":"a\u010ab"}`, nil, "", "another character"},
		"a space before":               {header1("X-A", "{x}"), `{"x":" a"}`, nil, "", "space"},
		"a space behind":               {header1("X-A", "{x}"), `{"x":"a "}`, nil, "", "space"},
		"an empty argument":            {header1("X-A", "{x}"), `{"x":""}`, nil, "", "empty"},
		"a secret":                     {secretHeader("X-A", "Bearer ", "provider", "token"), `{}`, Values{provider: []byte("s3cr3t")}, "Bearer s3cr3t", ""},
		"a secret is literal":          {secretHeader("X-A", "", "provider", "token"), `{"x":"y"}`, Values{provider: []byte("{x}")}, "{x}", ""},
		"a secret that is missing":     {secretHeader("X-A", "", "provider", "token"), `{}`, Values{{ConfigMap, "provider", "token"}: []byte("x")}, "", "missing"},
		"a secret that is empty":       {secretHeader("X-A", "", "provider", "token"), `{}`, Values{provider: nil}, "", "empty"},
		"a secret with a line break":   {secretHeader("X-A", "", "provider", "token"), `{}`, Values{provider: []byte("s3cr3t\n")}, "", "line break"},
	} {
		t.Run(name, func(t *testing.T) {
			request, _, err := executor(t, spec("http://h/", tt.header)).request(call(tt.arguments), tt.values)
			switch {
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "s3cr3t")):
				t.Errorf("%v, want a refusal with %q and without the secret", err, tt.refused)
			case tt.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.refused == "" && request.Header.Get("X-A") != tt.want:
				t.Errorf("got %q, want %q", request.Header.Get("X-A"), tt.want)
			}
		})
	}
}

// What a provider gets: the bytes that were approved, once, and the token of the attempt.
func TestWhatIsSent(t *testing.T) {
	const arguments = `{"amount":500,"payment_id":"txn_1"}`
	var got *http.Request
	var body []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, ` { "refund": "re_1", "amount": 500 } `)
	}))
	defer server.Close()
	e := executor(t, spec(server.URL+"/v1/{payment_id}?amount={amount}",
		ca(v1alpha1.CASource{SecretKeyRef: &v1alpha1.KeyReference{Name: "roots", Key: "ca.crt"}}),
		secretHeader("Authorization", "Bearer ", "provider", "token"),
		header1("X-Payment", "{payment_id}"),
	))
	result := e.Execute(t.Context(), call(arguments), Values{
		{Secret, "roots", "ca.crt"}:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		{Secret, "provider", "token"}: []byte("s3cr3t"),
	})
	if result.State != effect.Committed || string(result.Output) != `{"amount":500,"refund":"re_1"}` || result.Error != "" {
		t.Fatalf("%s, output %s, %s", result.State, result.Output, result.Error)
	}
	if string(body) != arguments {
		t.Errorf("the body is %s", body)
	}
	if got.Method != "POST" || got.RequestURI != "/v1/txn_1?amount=500" || got.Proto != "HTTP/1.1" || !got.Close {
		t.Errorf("%s %s %s, close %t", got.Method, got.RequestURI, got.Proto, got.Close)
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"35"}, "Idempotency-Key": {token}, "Authorization": {"Bearer s3cr3t"},
		"X-Payment": {"txn_1"}, "User-Agent": {"ctrlrun-operator"}, "Connection": {"close"},
	}
	if !reflect.DeepEqual(got.Header, want) {
		t.Errorf("headers %v, want %v", got.Header, want)
	}
}

func TestOutcomes(t *testing.T) {
	big := `"` + strings.Repeat("x", executors.MaxOutput-2) + `"`
	for name, tt := range map[string]struct {
		answer string
		state  effect.State
		output string
	}{
		"committed":                    {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}", effect.Committed, `{"a":1}`},
		"committed, no body":           {"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", effect.Committed, ""},
		"committed, HTTP/1.0":          {"HTTP/1.0 200 OK\r\n\r\n{\"a\":1}", effect.Committed, `{"a":1}`},
		"committed, chunks":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n", effect.Committed, `{"a":1}`},
		"committed, after hints":       {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", effect.Committed, `{}`},
		"committed, text":              {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone", effect.Committed, ""},
		"committed, a fraction":        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\":0.5}", effect.Committed, ""},
		"committed, a large number":    {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n12345678901234567890", effect.Committed, ""},
		"committed, as much as fits":   {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big), effect.Committed, big},
		"committed, more than fits":    {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s ", len(big)+1, big), effect.Committed, ""},
		"not executed":                 {"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}", effect.Failed, ""},
		"not executed, cut off":        {"HTTP/1.1 409 Conflict\r\nContent-Length: 20\r\n\r\n{}", effect.Ambiguous, ""},
		"not executed, head cut off":   {"HTTP/1.1 409 Conflict\r\nContent-Le", effect.Ambiguous, ""},
		"not executed, a chunk less":   {"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", effect.Ambiguous, ""},
		"not executed, a broken chunk": {"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", effect.Ambiguous, ""},
		"committed, cut off":           {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\":1}", effect.Ambiguous, ""},
		"committed, two lengths":       {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", effect.Ambiguous, ""},
		"committed, a status line":     {"HTTP/1.1 200 OK\r\n", effect.Ambiguous, ""},
		"another success":              {"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, ""},
		"a redirect":                   {"HTTP/1.1 303 See Other\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, ""},
		"unauthorized":                 {"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, ""},
		"too many":                     {"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, ""},
		"an error":                     {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, ""},
		"unavailable":                  {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, ""},
		"another protocol":             {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", effect.Ambiguous, ""},
		"another version":              {"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", effect.Ambiguous, ""},
		"a status of four digits":      {"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\n{}", effect.Ambiguous, ""},
		"garbage":                      {"\x00\x01\x02 s3cr3t \r\n\r\n", effect.Ambiguous, ""},
		"nothing":                      {"", effect.Ambiguous, ""},
		"only hints":                   {"HTTP/1.1 103 Early Hints\r\n\r\n", effect.Ambiguous, ""},
	} {
		t.Run(name, func(t *testing.T) {
			result := execute(t, answering(t, tt.answer), spec)
			if result.State != tt.state || string(result.Output) != tt.output {
				t.Errorf("%s, output %q (%s); want %s, %q", result.State, result.Output, result.Error, tt.state, tt.output)
			}
			if (result.State == effect.Committed) != (result.Error == "") {
				t.Errorf("%s with the sentence %q", result.State, result.Error)
			}
			discreet(t, result.Error)
		})
	}
}

// Nor is it a continuation, which is on record as well.
func TestSecretsAreNoContinuation(t *testing.T) {
	for continuation, want := range map[string]string{"x-s3cr3t-x": "", "x-s3cr-x": "x-s3cr-x"} {
		result := execute(t, answering(t, "HTTP/1.1 202 Accepted\r\nCtrlrun-Continuation: "+continuation+"\r\nContent-Length: 2\r\n\r\n{}"), spec)
		if result.State != effect.Ambiguous || result.Continuation != want {
			t.Errorf("%s: %s, continuation %q", continuation, result.State, result.Continuation)
		}
		discreet(t, result.Error)
	}
}

// A provider that answers with what it got must not have a secret recorded.
func TestSecretsAreNoOutput(t *testing.T) {
	for answer, want := range map[string]string{
		`{"authorization":"s3cr3t"}`:              "",
		`{"authorization":"Bearer \u00733cr3t."}`: "",
		`{"authorization":"s3cr"}`:                `{"authorization":"s3cr"}`,
	} {
		result := execute(t, answering(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)), spec)
		if result.State != effect.Committed || string(result.Output) != want {
			t.Errorf("%s: %s, output %s", answer, result.State, result.Output)
		}
	}
}

// A 202 is what its Executor lists it as, unless it comes with a continuation: then the provider asks back.
func TestAskedBack(t *testing.T) {
	accepted := func(url string, _ ...func(*v1alpha1.HTTPExecutor)) *v1alpha1.HTTPExecutor {
		return spec(url, func(s *v1alpha1.HTTPExecutor) { s.Committed = []int32{202} })
	}
	for name, tc := range map[string]struct {
		answer       string
		state        effect.State
		continuation string
		output       string
	}{
		"without":            {"Content-Length: 0\r\n\r\n", effect.Committed, "", ""},
		"with":               {"Ctrlrun-Continuation: a~!b\r\nContent-Length: 9\r\n\r\n{ \"a\":1 }", effect.Ambiguous, "a~!b", `{"a":1}`},
		"with what is cut":   {"Ctrlrun-Continuation: abc\r\nContent-Length: 9\r\n\r\n{}", effect.Ambiguous, "abc", ""},
		"with no JSON":       {"Ctrlrun-Continuation: abc\r\nContent-Length: 2\r\n\r\nno", effect.Ambiguous, "abc", ""},
		"with two":           {"Ctrlrun-Continuation: abc\r\nCtrlrun-Continuation: abc\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, "", ""},
		"with an empty one":  {"Ctrlrun-Continuation: \r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, "", ""},
		"with a blank in it": {"Ctrlrun-Continuation: a b\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, "", ""},
		"with a long one":    {"Ctrlrun-Continuation: " + strings.Repeat("x", 1025) + "\r\nContent-Length: 0\r\n\r\n", effect.Ambiguous, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			result := execute(t, answering(t, "HTTP/1.1 202 Accepted\r\n"+tc.answer), accepted)
			if result.State != tc.state || result.Continuation != tc.continuation || string(result.Output) != tc.output {
				t.Errorf("%s, continuation %q, output %s: %s", result.State, result.Continuation, result.Output, result.Error)
			}
		})
	}
}

// Whatever is wrong before there is a connection: no connection is made, and it is certain that nothing was executed.
func TestWhatCannotBeSentIsNotSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	url := "https://" + listener.Addr().String() + "/{x}"
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	roots := Reference{Secret, "roots", "ca.crt"}
	trusting := ca(v1alpha1.CASource{SecretKeyRef: &v1alpha1.KeyReference{Name: "roots", Key: "ca.crt"}})
	for name, tt := range map[string]struct {
		call   executors.Call
		values Values
		want   string
	}{
		"no such argument":              {call(`{}`), nil, "does not have"},
		"a slash":                       {call(`{"x":"a1b2c3/"}`), nil, "slash"},
		"no object":                     {call(`[]`), nil, "no object"},
		"no JSON":                       {call(`{"x":"a1b2c3"`), nil, "canonical JSON"},
		"no token":                      {executors.Call{Arguments: []byte(`{"x":"y"}`)}, nil, "token"},
		"a token of two lines":          {executors.Call{Arguments: []byte(`{"x":"y"}`), Token: "a\nb"}, nil, "token"},
		"no certificates":               {call(`{"x":"y"}`), nil, "missing"},
		"certificates not in PEM":       {call(`{"x":"y"}`), Values{roots: []byte("a1b2c3")}, "no certificate"},
		"a key among certificates":      {call(`{"x":"y"}`), Values{roots: []byte("-----BEGIN PRIVATE KEY-----\nYTFiMmMz\n-----END PRIVATE KEY-----\n")}, "something else"},
		"a certificate by another name": {call(`{"x":"y"}`), Values{roots: pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: server.Certificate().Raw})}, "something else"},
		"a broken certificate":          {call(`{"x":"y"}`), Values{roots: []byte("-----BEGIN CERTIFICATE-----\nYTFiMmMz\n-----END CERTIFICATE-----\n")}, "something else"},
	} {
		t.Run(name, func(t *testing.T) {
			result := executor(t, spec(url, trusting)).Execute(t.Context(), tt.call, tt.values)
			if result.State != effect.Failed || !strings.Contains(result.Error, tt.want) {
				t.Errorf("%s: %s; want Failed with %q", result.State, result.Error, tt.want)
			}
			if strings.Contains(result.Error, "a1b2c3") {
				t.Errorf("the sentence holds what it is about: %s", result.Error)
			}
		})
	}
	// Connections are accepted in their order, so the first is the test's own.
	own, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	first, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if first.RemoteAddr().String() != own.LocalAddr().String() {
		t.Error("a connection was made")
	}
}

// An execution that is given up, by a lease or a shutdown, proves nothing, whatever it waits for.
func TestGivingUpIsUnknown(t *testing.T) {
	address := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	for _, scheme := range []string{"http", "https"} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		result := executor(t, spec(scheme+"://"+address)).Execute(ctx, call(`{}`), nil)
		if result.State != effect.Ambiguous {
			t.Errorf("%s: %s: %s", scheme, result.State, result.Error)
		}
	}
}

// answering is the address of a server that reads a request, says the answer and closes the connection.
func answering(t testing.TB, answer string) string {
	return serve(t, func(conn net.Conn) {
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		_, _ = io.WriteString(conn, answer)
	})
}

func serve(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// execute with a secret and an argument that no sentence may hold.
func execute(t testing.TB, address string, of func(string, ...func(*v1alpha1.HTTPExecutor)) *v1alpha1.HTTPExecutor) executors.Result {
	t.Helper()
	s := of("http://" + address + "/{x}")
	secretHeader("Authorization", "", "provider", "token")(s)
	values := Values{{Secret, "provider", "token"}: []byte("s3cr3t")}
	return executor(t, s).Execute(t.Context(), call(`{"x":"a1b2c3"}`), values)
}

func discreet(t testing.TB, sentence string) {
	t.Helper()
	for _, private := range []string{"s3cr3t", "a1b2c3", token} {
		if strings.Contains(sentence, private) {
			t.Errorf("the sentence holds %s: %s", private, sentence)
		}
	}
}
