package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

func status(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"code":%d}`, reason, code)
}

// What proves that nothing was stored is a list, and whatever is not on it proves nothing.
func TestRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		want bool
	}{
		"unauthorized":                        {401, status(401, "Unauthorized"), true},
		"forbidden":                           {403, status(403, "Forbidden"), true},
		"not found":                           {404, status(404, "NotFound"), true},
		"conflict":                            {409, status(409, "Conflict"), true},
		"invalid":                             {422, status(422, "Invalid"), true},
		"bad request":                         {400, status(400, "BadRequest"), true},
		"method not allowed":                  {405, status(405, "MethodNotAllowed"), true},
		"not acceptable":                      {406, status(406, "NotAcceptable"), true},
		"too large":                           {413, status(413, "RequestEntityTooLarge"), true},
		"media type":                          {415, status(415, "UnsupportedMediaType"), true},
		"already exists":                      {409, status(409, "AlreadyExists"), false},
		"gone":                                {410, status(410, "Gone"), false},
		"expired":                             {410, status(410, "Expired"), false},
		"too many requests":                   {429, status(429, "TooManyRequests"), false},
		"internal error":                      {500, status(500, "InternalError"), false},
		"unavailable":                         {503, status(503, "ServiceUnavailable"), false},
		"timeout":                             {504, status(504, "Timeout"), false},
		"server timeout":                      {500, status(500, "ServerTimeout"), false},
		"a timeout under another code":        {409, status(409, "Timeout"), false},
		"a conflict under another code":       {500, status(409, "Conflict"), false},
		"a conflict that says 500":            {409, status(500, "Conflict"), false},
		"no reason":                           {403, status(403, ""), false},
		"a reason nobody knows":               {422, status(422, "Whatever"), false},
		"a page of a proxy":                   {403, "<html>Forbidden</html>", false},
		"nothing":                             {404, "", false},
		"half a Status":                       {409, status(409, "Conflict")[:60], false},
		"another kind":                        {409, strings.Replace(status(409, "Conflict"), `"Status"`, `"Stat"`, 1), false},
		"a Status that is none of Kubernetes": {409, strings.Replace(status(409, "Conflict"), `"v1"`, `"v2"`, 1), false},
		"success":                             {409, strings.Replace(status(409, "Conflict"), `"Failure"`, `"Success"`, 1), false},
		"a redirect":                          {307, status(307, "Conflict"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := (Answer{Code: c.code, Body: []byte(c.body)}).Refusal(); got != c.want {
				t.Errorf("a proof that nothing was stored: %v, want %v", got, c.want)
			}
		})
	}
}

// A server that asks for another try, answers with a redirect, or hangs up gets one request, and no more.
func TestSentOnce(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"retry later": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"unavailable": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		},
		"hangs up": func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = c.Close()
			}
		},
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var requests, connections atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				answer(w, r)
			}))
			server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					connections.Add(1)
				}
			}
			server.Start()
			defer server.Close()
			w, err := NewWriter(&rest.Config{Host: server.URL, BearerToken: "t"})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				got, err := w.Send(t.Context(), Request{Method: http.MethodPatch, Path: []string{"api", "v1"}, ContentType: "application/json", Body: []byte("{}")})
				if err == nil && got.OK() {
					t.Errorf("it is said to have been done: %+v", got)
				}
				if _, refused := got.Refusal(); refused {
					t.Error("it is said to prove something")
				}
			}
			if requests.Load() != 2 || connections.Load() != 2 {
				t.Errorf("%d requests on %d connections for two writes", requests.Load(), connections.Load())
			}
		})
	}
}

// The object's name comes from an argument, and an error is stored and shown.
func TestErrorsDoNotSayWhatTheActionChose(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	w, err := NewWriter(&rest.Config{Host: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Send(t.Context(), Request{Method: http.MethodDelete, Path: []string{"api", "v1", "pods", "confidential"}})
	if err == nil || strings.Contains(err.Error(), "confidential") {
		t.Errorf("the error is %v", err)
	}
}
