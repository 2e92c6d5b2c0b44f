package export

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// Traces says where spans go.
type Traces struct {
	// Endpoint of a collector that speaks OTLP over gRPC: HOST:PORT, http://HOST:PORT or https://HOST:PORT. Empty: the
	// environment's, by OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT.
	Endpoint string
	// Arguments: whether their values are in the spans.
	Arguments ArgumentValues
}

// sendLimit bounds one attempt to send a batch, repetitions included.
const sendLimit = 10 * time.Second

// Variables of the environment that say where a collector is and how it is spoken to.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// options are those of the client. Without a scheme, only the machine itself is spoken to without TLS.
func (t Traces) options() ([]otlptracegrpc.Option, error) {
	for _, name := range []string{protocolVariable, tracesProtocolVariable} {
		if p := os.Getenv(name); p != "" && p != "grpc" {
			return nil, fmt.Errorf("export traces: %s is %q, and only grpc is spoken; leave it out and give the collector's gRPC port", name, p)
		}
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithTimeout(sendLimit)}
	if t.Endpoint == "" {
		if os.Getenv(endpointVariable) == "" && os.Getenv(tracesEndpointVariable) == "" {
			return nil, fmt.Errorf("export traces: nobody says where to; give --otlp-endpoint or set %s", endpointVariable)
		}
		return options, nil
	}
	if host, port, err := net.SplitHostPort(t.Endpoint); err == nil && host != "" && port != "" && !strings.Contains(port, "/") {
		// With a scheme, or the environment's would say whether there is TLS.
		scheme := "https://"
		if loopback(host) {
			scheme = "http://"
		}
		return append(options, otlptracegrpc.WithEndpointURL(scheme+t.Endpoint)), nil
	}
	u, err := url.Parse(t.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Port() == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("export traces: %q is not HOST:PORT, http://HOST:PORT or https://HOST:PORT", t.Endpoint)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil:
		return nil, fmt.Errorf("export traces: %q has more than a host and a port; OTLP over gRPC has no path, and credentials go into OTEL_EXPORTER_OTLP_HEADERS", t.Endpoint)
	}
	return append(options, otlptracegrpc.WithEndpointURL(t.Endpoint)), nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// span is what becomes one: a finished action, an event that came after, or a receipt about no action.
type span struct {
	write    observe.ActionWrite
	resolved *timeline.Event
	receipt  *receipt.Document
}

// Spans sends traces to a collector.
type Spans struct {
	*Queue[span]
	make     spans
	provider *sdktrace.TracerProvider
	ended    *collector
	exporter sdktrace.SpanExporter
}

// NewSpans makes a sink for traces. It connects when there is something to send, so a collector may come and go.
func NewSpans(ctx context.Context, t Traces, clusterID string, log logr.Logger) (*Spans, error) {
	options, err := t.options()
	if err != nil {
		return nil, err
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "ctrlrun-operator"), attribute.String("k8s.cluster.uid", clusterID)),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("export traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	s := &Spans{ended: &collector{}, exporter: exporter}
	s.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(res),
		sdktrace.WithIDGenerator(spanIDs{}),
		// Also of an action whose proposer says that its trace is not sampled: an agent does not choose what is seen of it.
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: 16 << 10, AttributeCountLimit: 128, EventCountLimit: 128, LinkCountLimit: 1,
			AttributePerEventCountLimit: 32, AttributePerLinkCountLimit: 1,
		}),
		sdktrace.WithSpanProcessor(s.ended),
	)
	s.make = spans{tracer: s.provider.Tracer("ctrlrun.dev/operator"), arguments: t.Arguments}
	s.Queue = NewQueue("otlp", Limits{Items: 8192, Bytes: 16 << 20, Batch: 256, Linger: time.Second}, s.send, log)
	return s, nil
}

// ActionWritten implements observe.Observer.
func (s *Spans) ActionWritten(w observe.ActionWrite) {
	switch {
	case w.Receipt != nil:
		s.Put(span{write: w}, weight(w))
	case w.Before.Receipt != nil:
		for _, e := range w.Events {
			s.Put(span{write: w, resolved: &e}, weight(w))
		}
	}
}

// weight is about what an action takes in memory while it waits.
func weight(w observe.ActionWrite) int {
	size := 16<<10 + 2*len(w.Object.Spec.Arguments.Raw)
	for k, v := range w.Object.Annotations {
		size += len(k) + len(v) // the agent's to choose
	}
	if w.Receipt != nil {
		size += len(w.Receipt.Output) + len(w.Receipt.Error)
	}
	return size
}

// EffectWritten implements observe.Observer.
func (s *Spans) EffectWritten(observe.EffectWrite) {}

// ReceiptAppended implements observe.Observer.
func (s *Spans) ReceiptAppended(a observe.ReceiptAppend) {
	switch a.Document.Kind {
	case receipt.KindEvent, receipt.KindStatusMissing, receipt.KindLedgerAccepted:
		s.Put(span{receipt: &a.Document}, 4<<10)
	}
}

// Close sends what waits, for as long as ctx lasts.
func (s *Spans) Close(ctx context.Context) error {
	return errors.Join(s.Queue.Close(ctx), s.exporter.Shutdown(ctx))
}

func (s *Spans) send(ctx context.Context, batch []span) (int, error) {
	s.ended.take() // what a panic left
	for _, b := range batch {
		switch {
		case b.receipt != nil:
			s.make.withoutAction(*b.receipt)
		case b.resolved != nil:
			s.make.resolved(b.write, *b.resolved)
		default:
			s.make.action(b.write, b.write.After.Timeline)
		}
	}
	if err := s.exporter.ExportSpans(ctx, s.ended.take()); err != nil {
		return 0, err
	}
	return len(batch), nil
}
