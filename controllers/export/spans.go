package export

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// spanIDs makes the ids of a span from what it is about, so that who knows an action's uid knows its trace, what is exported
// twice is one span, and what follows an action days later still hangs on it.
type spanIDs struct{}

// about is the key of the context under which a span's own ids are.
type about struct{}

type idPair struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements sdktrace.IDGenerator.
func (spanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ids := ctx.Value(about{}).(idPair)
	return ids.trace, ids.span
}

// NewSpanID implements sdktrace.IDGenerator.
func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(about{}).(idPair).span
}

// idsOf gives the ids for a subject. The trace of one that is named by a uid has the digits of that uid.
func idsOf(subject, what string) idPair {
	sum := sha256.Sum256([]byte(what + "\x00" + subject))
	ids := idPair{span: trace.SpanID(sum[:8]), trace: trace.TraceID(sum[8:24])}
	if id, err := uuid.Parse(subject); err == nil && id != uuid.Nil {
		ids.trace = trace.TraceID(id)
	}
	return ids
}

// spans makes spans of what happened. It is used by one goroutine.
type spans struct {
	tracer    trace.Tracer
	arguments ArgumentValues
}

// ArgumentValues says whether the values of arguments and claims leave the cluster in traces.
type ArgumentValues int

const (
	// HideArguments: they do not.
	HideArguments ArgumentValues = iota
	// ShowArguments: they do.
	ShowArguments
)

// The spans of the vocabulary.
const (
	actionSpan   = "action"
	resolvedSpan = "resolved"
	receiptSpan  = "receipt"
)

// parent is the span that proposed the action, as it says itself: W3C trace context in annotations. What is malformed counts
// as absent.
func parent(annotations map[string]string) context.Context {
	p := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	return p.Extract(context.Background(), propagation.MapCarrier(annotations))
}

// action is the one span of a finished action.
func (s *spans) action(w observe.ActionWrite, events []timeline.Event) {
	d := w.Receipt
	start, end, last := d.ProposedTime, d.FinishedTime, timeline.End(d.Ended(), d.Reason)
	for _, e := range events {
		switch e.Type {
		case timeline.ActionProposed:
			start = e.Time
		case last:
			end = e.Time
		}
	}
	if end.Before(start) {
		end = start
	}
	ctx := context.WithValue(parent(w.Object.Annotations), about{}, idsOf(string(w.Object.UID), actionSpan))
	_, span := s.tracer.Start(ctx, d.ActionType, trace.WithTimestamp(start), trace.WithAttributes(s.actionAttributes(w)...))
	for _, e := range events {
		span.AddEvent(string(e.Type), trace.WithTimestamp(e.Time), trace.WithAttributes(flattened(e.Data)...))
	}
	switch ended := d.Ended(); ended {
	case decision.Committed:
		span.SetStatus(codes.Ok, "")
	case decision.Failed, decision.Ambiguous:
		span.SetStatus(codes.Error, string(ended))
	}
	span.End(trace.WithTimestamp(end))
}

// resolved is a span without duration, below that of the action, whose own has ended long ago.
func (s *spans) resolved(w observe.ActionWrite, e timeline.Event) {
	ctx := parent(w.Object.Annotations)
	action := idsOf(string(w.Object.UID), actionSpan)
	traceID := action.trace
	if remote := trace.SpanContextFromContext(ctx); remote.IsValid() {
		traceID = remote.TraceID()
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: action.span, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
	attributes := append(flattened(e.Data),
		attribute.String("ctrlrun.action_id", string(w.Object.UID)),
		attribute.String("ctrlrun.action.name", w.Object.Name),
		attribute.String("ctrlrun.namespace", w.Object.Namespace),
	)
	if w.After.Effect != nil {
		attributes = append(attributes, attribute.String("ctrlrun.effect_key", w.After.Effect.Key))
	}
	s.instant(ctx, idsOf(string(w.Object.UID), resolvedSpan), string(e.Type), e.Time, attributes)
}

// withoutAction is a span without duration for a receipt that is about no action.
func (s *spans) withoutAction(d receipt.Document) {
	name := d.Event
	attributes := flattened(d.Data)
	switch d.Kind {
	case receipt.KindStatusMissing:
		name = string(timeline.ExecutionAmbiguous)
		attributes = append(attributes,
			attribute.String("ctrlrun.effect_key", d.EffectKey), attribute.Int64("ctrlrun.attempt", d.Attempt),
			attribute.String("ctrlrun.reason", string(d.Reason)))
	case receipt.KindLedgerAccepted:
		name = d.Kind
		attributes = append(attributes, attribute.String("ctrlrun.acceptor", d.Acceptor))
	}
	attributes = append(attributes,
		attribute.String("ctrlrun.namespace", d.Namespace),
		attribute.String("ctrlrun.receipt_id", receipt.Name(d.Namespace, d.Seq)))
	s.instant(context.Background(), idsOf(d.NamespaceUID+"/"+receipt.Name(d.Namespace, d.Seq), receiptSpan), name, d.FinishedTime, attributes)
}

func (s *spans) instant(ctx context.Context, ids idPair, name string, at time.Time, attributes []attribute.KeyValue) {
	ctx = context.WithValue(ctx, about{}, ids)
	_, span := s.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(at))
}

// actionAttributes describe the action and how it ended. What it has not, it has no attribute for.
func (s *spans) actionAttributes(w observe.ActionWrite) []attribute.KeyValue {
	d := w.Receipt
	var out []attribute.KeyValue
	text := func(key, value string) {
		if value != "" {
			out = append(out, attribute.String(key, value))
		}
	}
	text("ctrlrun.action_id", d.ActionUID)
	text("ctrlrun.action.name", d.ActionName)
	text("ctrlrun.action.type", d.ActionType)
	text("ctrlrun.action_hash", d.ActionHash)
	text("ctrlrun.namespace", d.Namespace)
	text("ctrlrun.environment", d.Environment)
	text("ctrlrun.resource", d.Resource)
	text("ctrlrun.decision", string(d.Decision))
	text("ctrlrun.decision_reason", d.DecisionReason)
	text("ctrlrun.effect_key", d.EffectKey)
	text("ctrlrun.result", string(d.Result))
	text("ctrlrun.reason", string(d.Reason))
	text("ctrlrun.execution", string(d.Execution))
	if d.Attempt > 0 {
		out = append(out, attribute.Int64("ctrlrun.attempt", d.Attempt))
	}
	if by := d.Authority; by != nil {
		text("ctrlrun.authority.kind", by.Kind)
		text("ctrlrun.authority.name", by.Name)
		text("ctrlrun.authority.root", by.Root)
		out = append(out, attribute.Bool("ctrlrun.authority.break_glass", by.BreakGlass))
	}
	if would := d.WouldHave; would != nil {
		text("ctrlrun.would_have.decision", string(would.Decision))
		text("ctrlrun.would_have.reason", would.Reason)
		text("ctrlrun.would_have.blocked_reason", would.BlockedReason)
	}
	if link := w.After.Receipt; link != nil {
		text("ctrlrun.receipt_id", receipt.Name(d.Namespace, link.Seq))
	}
	if len(d.Approvals) > 0 {
		var ids, approvers []string
		for _, a := range d.Approvals {
			ids, approvers = append(ids, a.Name), append(approvers, a.Approver)
		}
		out = append(out, attribute.StringSlice("ctrlrun.approval_id", ids), attribute.StringSlice("ctrlrun.approver", approvers))
	}
	if p := d.Principal; p != nil {
		text("ctrlrun.principal.agent", p.Agent)
		text("ctrlrun.principal.user", p.User)
		if len(p.Claims) > 0 {
			out = append(out, attribute.StringSlice("ctrlrun.principal.claim_names", slices.Sorted(maps.Keys(p.Claims))))
		}
		if s.arguments == ShowArguments {
			text("ctrlrun.principal.claims", canonicalText(p.Claims))
		}
	}
	if s.arguments == ShowArguments {
		text("ctrlrun.arguments", canonicalText(d.Arguments))
	}
	return out
}

// canonicalText is "" for what is absent or has no canonical form.
func canonicalText(m map[string]any) string {
	if m == nil {
		return ""
	}
	b, err := canonical.Encode(m)
	if err != nil {
		return ""
	}
	return string(b)
}

func flattened(data map[string]string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(data)+4)
	for _, k := range slices.Sorted(maps.Keys(data)) {
		out = append(out, attribute.String("ctrlrun."+k, strings.ToValidUTF8(data[k], "")))
	}
	return out
}

// collector keeps the spans that ended, until they are taken. It is used by one goroutine.
type collector struct{ ended []sdktrace.ReadOnlySpan }

// OnStart implements sdktrace.SpanProcessor.
func (c *collector) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (c *collector) OnEnd(s sdktrace.ReadOnlySpan) { c.ended = append(c.ended, s) }

// Shutdown implements sdktrace.SpanProcessor.
func (c *collector) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (c *collector) ForceFlush(context.Context) error { return nil }

func (c *collector) take() []sdktrace.ReadOnlySpan {
	ended := c.ended
	c.ended = nil
	return ended
}
