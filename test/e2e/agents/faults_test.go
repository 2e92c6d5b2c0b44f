package agents

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/test/chaos/proxy"
)

// losing carries out the first create of each kind and loses the answer.
type losing struct {
	mu   sync.Mutex
	lost []string
}

func (l *losing) Inject(_ context.Context, r proxy.Request) proxy.Fault {
	if r.Verb != "create" || r.Group != "ctrlrun.dev" || r.N != 1 {
		return proxy.Forward()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, r.Resource)
	return proxy.LoseResponse()
}

func (l *losing) kinds() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lost...)
}

// busy answers the first requests of every sort with what an apiserver says that is overloaded, restarts or goes away.
func busy(_ context.Context, r proxy.Request) proxy.Fault {
	switch {
	case r.Group != "ctrlrun.dev":
		return proxy.Forward()
	case r.N == 1:
		return proxy.Refuse(http.StatusTooManyRequests, time.Second)
	case r.N == 2:
		return proxy.Reset()
	case r.N == 3:
		return proxy.Refuse(http.StatusServiceUnavailable, 0)
	case r.Resource == "outcomes" && r.N == 4:
		// It has just started and knows no Role yet.
		return proxy.Refuse(http.StatusForbidden, 0)
	}
	return proxy.Forward()
}

// byClock connects to an apiserver whose clock seems to be off by d.
func (s *site) byClock(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	cfg, err := s.tokenConfig(ctx)
	Expect(err).NotTo(HaveOccurred())
	target, err := url.Parse(cfg.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			date, err := http.ParseTime(r.Header.Get("Date"))
			r.Header.Set("Date", date.Add(d).UTC().Format(http.TimeFormat))
			return err
		},
	})
	DeferCleanup(server.Close)
	s.connection = []string{"CTRLRUN_SERVER=" + server.URL, "CTRLRUN_TOKEN_FILE=" + s.file("token", []byte(cfg.BearerToken))}
}
