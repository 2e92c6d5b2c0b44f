package pods

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"

	. "github.com/onsi/ginkgo/v2"
)

// call is one request that reached the provider as a whole.
type call struct{ path, token, body string }

// provider is what the agents act on: a real HTTP server on the loopback interface that acts on every request, and counts.
type provider struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string][]call // by payment or day
	held  map[string]chan struct{}
}

func newProvider() *provider {
	p := &provider{calls: map[string][]call{}, held: map[string]chan struct{}{}}
	p.Server = httptest.NewServer(p)
	DeferCleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var of struct {
		Payment string `json:"payment_id"`
		Day     string `json:"day"`
	}
	if err != nil || json.Unmarshal(body, &of) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	what := of.Payment + of.Day
	p.mu.Lock()
	p.calls[what] = append(p.calls[what], call{r.URL.Path, r.Header.Get("Idempotency-Key"), string(body)})
	held := p.held[what]
	p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}
	fmt.Fprintf(w, `{"id":%q}`, "re_"+what)
}

// of are the calls for a payment or a day.
func (p *provider) of(what string) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]call(nil), p.calls[what]...)
}

// hold lets the provider act on a payment and answer when it is released.
func (p *provider) hold(what string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.held[what] = gate
	release = sync.OnceFunc(func() { close(gate) })
	DeferCleanup(release)
	return release
}
