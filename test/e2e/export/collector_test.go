package export

import (
	"context"
	"encoding/hex"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector takes traces by OTLP over gRPC on loopback.
type collector struct {
	coltrace.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []*otlp.Span
}

func startCollector() *collector {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	c := &collector{address: l.Addr().String()}
	server := grpc.NewServer()
	coltrace.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // ends with Stop
	DeferCleanup(server.Stop)
	return c
}

// Export implements the collector's service.
func (c *collector) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

// of is the span of an action, by the attribute that names it.
func (c *collector) of(uid string) *otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if text(s, "ctrlrun.action_id") == uid {
			return s
		}
	}
	return nil
}

func (c *collector) named(name string) []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*otlp.Span
	for _, s := range c.spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

func text(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func ids(s *otlp.Span) (trace, parent string) {
	return hex.EncodeToString(s.TraceId), hex.EncodeToString(s.ParentSpanId)
}
