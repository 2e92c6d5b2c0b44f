package export

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// gateway is a collector on loopback that speaks OTLP over gRPC.
type gateway struct {
	coltrace.UnimplementedTraceServiceServer
	address string

	mu       sync.Mutex
	requests int
	resource map[string]string
	spans    []*otlp.Span
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{address: l.Addr().String()}
	server := grpc.NewServer()
	coltrace.RegisterTraceServiceServer(server, g)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	return g
}

func (g *gateway) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests++
	for _, rs := range r.ResourceSpans {
		g.resource = texts(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			g.spans = append(g.spans, ss.Spans...)
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

func texts(attributes []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.Key] = "int"
		case *common.AnyValue_BoolValue:
			out[a.Key] = fmt.Sprint(v.BoolValue)
		case *common.AnyValue_ArrayValue:
			var all []string
			for _, one := range v.ArrayValue.Values {
				all = append(all, one.GetStringValue())
			}
			out[a.Key] = "[" + strings.Join(all, ",") + "]"
		}
	}
	return out
}

// finished is the write that finished a refund of txn_1.
func finished(result decision.Result, change ...func(*observe.ActionWrite)) observe.ActionWrite {
	w := actionWrite()
	w.After.Receipt = &receipt.Link{Seq: 42}
	w.After.Timeline = []timeline.Event{
		{Seq: 1, Time: at, Type: timeline.ActionProposed, Data: map[string]string{"agent": "bot"}},
		{Seq: 2, Time: at.Add(time.Second), Type: timeline.ApprovalConsumed, Data: map[string]string{"approval": "refund.alice", "approver": "alice"}},
		{Seq: 3, Time: at.Add(2 * time.Second), Type: timeline.ExecutionCommitted},
	}
	w.Receipt = &receipt.Document{
		Kind: receipt.KindAction, Namespace: "payments", ActionName: "refund", ActionUID: string(w.Object.UID), ActionType: "stripe.refund", ActionHash: "sha256:ab",
		Principal: &receipt.Principal{Agent: "bot", User: "carol", Claims: map[string]any{"pod": "bot-1", "groups": []any{"a"}}},
		EffectKey: "refund:txn_1", Attempt: 2, Result: result, Resource: "payment:txn_1",
		Arguments: map[string]any{"amount": 500, "iban": "secret"}, Environment: "production",
		Decision: decision.Approve, DecisionReason: "rule[1]",
		Approvals:    []receipt.Approval{{Approver: "alice", Name: "refund.alice", UID: "x"}, {Approver: "bob", Name: "refund.bob", UID: "y"}},
		ProposedTime: at, FinishedTime: at.Add(time.Minute),
	}
	for _, f := range change {
		f(&w)
	}
	return w
}

// sent gives what a collector gets of what is observed.
func sent(t *testing.T, traces Traces, observed func(observe.Observer)) *gateway {
	t.Helper()
	g := startGateway(t)
	traces.Endpoint = g.address
	s, err := NewSpans(context.Background(), traces, cluster, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	observed(s)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if s.Dropped() != 0 {
		t.Fatalf("%d spans were dropped", s.Dropped())
	}
	return g
}

func TestSpanOfAnAction(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=staging")
	g := sent(t, Traces{}, func(o observe.Observer) { o.ActionWritten(finished(decision.Committed)) })
	if len(g.spans) != 1 {
		t.Fatalf("%d spans", len(g.spans))
	}
	span := g.spans[0]
	want := map[string]string{
		"ctrlrun.action_id":             "0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d",
		"ctrlrun.action.name":           "refund",
		"ctrlrun.action.type":           "stripe.refund",
		"ctrlrun.action_hash":           "sha256:ab",
		"ctrlrun.namespace":             "payments",
		"ctrlrun.principal.agent":       "bot",
		"ctrlrun.principal.user":        "carol",
		"ctrlrun.principal.claim_names": "[groups,pod]",
		"ctrlrun.environment":           "production",
		"ctrlrun.resource":              "payment:txn_1",
		"ctrlrun.decision":              "approve",
		"ctrlrun.decision_reason":       "rule[1]",
		"ctrlrun.effect_key":            "refund:txn_1",
		"ctrlrun.attempt":               "int",
		"ctrlrun.result":                "committed",
		"ctrlrun.approval_id":           "[refund.alice,refund.bob]",
		"ctrlrun.approver":              "[alice,bob]",
		"ctrlrun.receipt_id":            "payments-000000000042",
	}
	got := texts(span.Attributes)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	for k := range got {
		if want[k] == "" {
			t.Errorf("attribute %s=%q is not among those that are documented", k, got[k])
		}
	}
	if span.Name != "stripe.refund" || span.StartTimeUnixNano != uint64(at.UnixNano()) || span.EndTimeUnixNano != uint64(at.Add(2*time.Second).UnixNano()) {
		t.Errorf("span %s from %d to %d", span.Name, span.StartTimeUnixNano, span.EndTimeUnixNano)
	}
	if id := hex.EncodeToString(span.TraceId); id != strings.ReplaceAll(string(finished(decision.Committed).Object.UID), "-", "") {
		t.Errorf("trace %s has not the digits of the action's uid", id)
	}
	var names []string
	for _, e := range span.Events {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []string{"ACTION_PROPOSED", "APPROVAL_CONSUMED", "EXECUTION_COMMITTED"}) {
		t.Errorf("events %v", names)
	}
	if a := texts(span.Events[1].Attributes); a["ctrlrun.approver"] != "alice" || span.Events[1].TimeUnixNano != uint64(at.Add(time.Second).UnixNano()) {
		t.Errorf("event %v", span.Events[1])
	}
	if g.resource["service.name"] != "ctrlrun-operator" || g.resource["k8s.cluster.uid"] != cluster || g.resource["deployment.environment"] != "staging" {
		t.Errorf("resource %v", g.resource)
	}
}

// What an action has beside that because authority is required, or because it was observed.
func TestSpanOfAnObservedAction(t *testing.T) {
	observed := func(execution decision.Result, last timeline.Type) func(*observe.ActionWrite) {
		return func(w *observe.ActionWrite) {
			w.Receipt.Execution = execution
			w.Receipt.WouldHave = &receipt.WouldHave{Decision: decision.Approve, Reason: "rule[1]", BlockedReason: "approval_required"}
			w.Receipt.Authority = &receipt.Authority{Kind: receipt.AuthorityDelegation, Name: "urgent", BreakGlass: true, Root: "refunds"}
			w.After.Timeline[2].Type = last
		}
	}
	for execution, tc := range map[decision.Result]struct {
		last   timeline.Type
		status otlp.Status_StatusCode
	}{
		decision.Committed: {timeline.ExecutionCommitted, otlp.Status_STATUS_CODE_OK},
		decision.Failed:    {timeline.ExecutionFailed, otlp.Status_STATUS_CODE_ERROR},
		decision.Ambiguous: {timeline.ExecutionAmbiguous, otlp.Status_STATUS_CODE_ERROR},
	} {
		span := sent(t, Traces{}, func(o observe.Observer) { o.ActionWritten(finished(decision.Observed, observed(execution, tc.last))) }).spans[0]
		got := texts(span.Attributes)
		for k, v := range map[string]string{
			"ctrlrun.result": "observed", "ctrlrun.execution": string(execution),
			"ctrlrun.would_have.decision": "approve", "ctrlrun.would_have.reason": "rule[1]", "ctrlrun.would_have.blocked_reason": "approval_required",
			"ctrlrun.authority.kind": "Delegation", "ctrlrun.authority.name": "urgent", "ctrlrun.authority.root": "refunds", "ctrlrun.authority.break_glass": "true",
		} {
			if got[k] != v {
				t.Errorf("%s: %s is %q, want %q", execution, k, got[k], v)
			}
		}
		// It ends with the event of its execution, not with the receipt.
		if span.Status.GetCode() != tc.status || span.EndTimeUnixNano != uint64(at.Add(2*time.Second).UnixNano()) {
			t.Errorf("%s: status %s, end %d", execution, span.Status.GetCode(), span.EndTimeUnixNano)
		}
	}
}

func TestSpanOfADelegation(t *testing.T) {
	d := receipt.Document{
		Kind: receipt.KindEvent, SubjectUID: "a0a0a0a0-0000-4000-8000-000000000001", Event: string(timeline.DelegationCreated),
		Data: map[string]string{"delegation": "task", "parent": "refunds", "depth": "1", "delegator": "alice"},
	}
	g := sent(t, Traces{}, func(o observe.Observer) { o.ReceiptAppended(newChain().append(t, d)) })
	s := g.spans[0]
	a := texts(s.Attributes)
	if len(g.spans) != 1 || s.Name != "DELEGATION_CREATED" || a["ctrlrun.delegation"] != "task" || a["ctrlrun.parent"] != "refunds" || a["ctrlrun.receipt_id"] != "payments-000000000001" {
		t.Errorf("%s %v", s.Name, a)
	}
}

func TestArgumentsAreOnlyInSpansIfAsked(t *testing.T) {
	holds := func(g *gateway, text string) bool { return strings.Contains(g.spans[0].String(), text) }
	write := func(o observe.Observer) { o.ActionWritten(finished(decision.Committed)) }
	if g := sent(t, Traces{}, write); holds(g, "secret") || holds(g, "bot-1") {
		t.Errorf("values of arguments or claims are in %s", g.spans[0])
	}
	g := sent(t, Traces{Arguments: ShowArguments}, write)
	if got := texts(g.spans[0].Attributes); got["ctrlrun.arguments"] != `{"amount":500,"iban":"secret"}` || got["ctrlrun.principal.claims"] != `{"groups":["a"],"pod":"bot-1"}` {
		t.Errorf("got %v", got)
	}
}

func TestStatusOfASpan(t *testing.T) {
	for result, want := range map[decision.Result]otlp.Status_StatusCode{
		decision.Committed: otlp.Status_STATUS_CODE_OK,
		decision.Failed:    otlp.Status_STATUS_CODE_ERROR,
		decision.Ambiguous: otlp.Status_STATUS_CODE_ERROR,
		decision.Denied:    otlp.Status_STATUS_CODE_UNSET,
		decision.Blocked:   otlp.Status_STATUS_CODE_UNSET,
		decision.Observed:  otlp.Status_STATUS_CODE_UNSET, // and how it ended is not said
	} {
		g := sent(t, Traces{}, func(o observe.Observer) { o.ActionWritten(finished(result)) })
		if got := g.spans[0].Status.GetCode(); got != want {
			t.Errorf("%s: %s, want %s", result, got, want)
		}
	}
}

const (
	remoteTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	remoteParent = "00-" + remoteTrace + "-00f067aa0ba902b7-"
)

func annotated(annotations map[string]string) func(*observe.ActionWrite) {
	return func(w *observe.ActionWrite) { w.Object.Annotations = annotations }
}

func TestProposersSpanIsTheParent(t *testing.T) {
	for name, test := range map[string]struct {
		annotations   map[string]string
		trace, parent string
		state         string
	}{
		"sampled":          {map[string]string{"traceparent": remoteParent + "01", "tracestate": "a=1"}, remoteTrace, "00f067aa0ba902b7", "a=1"},
		"not sampled":      {map[string]string{"traceparent": remoteParent + "00"}, remoteTrace, "00f067aa0ba902b7", ""},
		"malformed":        {map[string]string{"traceparent": "00-xyz", "tracestate": "a=1"}, "0b9f3a522f614a4e8f9d5f0c7a1b2c3d", "", ""},
		"malformed state":  {map[string]string{"traceparent": remoteParent + "01", "tracestate": "=;="}, remoteTrace, "00f067aa0ba902b7", ""},
		"none":             {nil, "0b9f3a522f614a4e8f9d5f0c7a1b2c3d", "", ""},
		"only baggage":     {map[string]string{"baggage": "k=v"}, "0b9f3a522f614a4e8f9d5f0c7a1b2c3d", "", ""},
		"enormous baggage": {map[string]string{"traceparent": remoteParent + "01", "baggage": strings.Repeat("k=v,", 50000)}, remoteTrace, "00f067aa0ba902b7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := sent(t, Traces{}, func(o observe.Observer) { o.ActionWritten(finished(decision.Committed, annotated(test.annotations))) })
			if len(g.spans) != 1 {
				t.Fatalf("%d spans", len(g.spans))
			}
			s := g.spans[0]
			if hex.EncodeToString(s.TraceId) != test.trace || hex.EncodeToString(s.ParentSpanId) != test.parent || s.TraceState != test.state {
				t.Errorf("trace %x, parent %x, state %q", s.TraceId, s.ParentSpanId, s.TraceState)
			}
			if strings.Contains(s.String(), "k=v") || texts(s.Attributes)["k"] != "" {
				t.Error("baggage is in the span")
			}
		})
	}
}

// What a person finds out days later hangs on the span of the action, which ended long ago.
func TestResolutionHangsOnTheActionsSpan(t *testing.T) {
	for name, annotations := range map[string]map[string]string{"own trace": nil, "proposer's trace": {"traceparent": remoteParent + "01"}} {
		t.Run(name, func(t *testing.T) {
			g := sent(t, Traces{}, func(o observe.Observer) {
				w := finished(decision.Ambiguous, annotated(annotations))
				o.ActionWritten(w)
				w.Receipt, w.Before = nil, flow.Status{Receipt: w.After.Receipt}
				w.Events = []timeline.Event{{Seq: 4, Time: at.Add(24 * time.Hour), Type: timeline.EffectResolved, Data: map[string]string{"resolver": "oncall", "result": "committed"}}}
				o.ActionWritten(w)
			})
			if len(g.spans) != 2 {
				t.Fatalf("%d spans", len(g.spans))
			}
			action, resolved := g.spans[0], g.spans[1]
			if resolved.Name != "EFFECT_RESOLVED" || string(resolved.TraceId) != string(action.TraceId) || string(resolved.ParentSpanId) != string(action.SpanId) {
				t.Errorf("%s: trace %x, parent %x; the action's is %x/%x", resolved.Name, resolved.TraceId, resolved.ParentSpanId, action.TraceId, action.SpanId)
			}
			if a := texts(resolved.Attributes); a["ctrlrun.resolver"] != "oncall" || a["ctrlrun.effect_key"] != "refund:txn_1" {
				t.Errorf("attributes %v", a)
			}
			if resolved.StartTimeUnixNano != resolved.EndTimeUnixNano || resolved.StartTimeUnixNano != uint64(at.Add(24*time.Hour).UnixNano()) {
				t.Error("it is not of one instant")
			}
		})
	}
}

func TestWritesThatDoNotFinishAreNoSpans(t *testing.T) {
	g := sent(t, Traces{}, func(o observe.Observer) {
		o.ActionWritten(actionWrite(timeline.Event{Seq: 1, Type: timeline.ActionProposed}))
		c := newChain()
		o.ReceiptAppended(c.append(t, policyInForce(4, "")))
	})
	if len(g.spans) != 1 {
		t.Fatalf("%d spans, want only that of the receipt without an action", len(g.spans))
	}
	s := g.spans[0]
	a := texts(s.Attributes)
	if s.Name != "POLICY_IN_FORCE" || a["ctrlrun.name"] != "refunds" || a["ctrlrun.receipt_id"] != "payments-000000000001" || s.StartTimeUnixNano != s.EndTimeUnixNano {
		t.Errorf("got %s %v", s.Name, a)
	}
}

func TestSpanExportedTwiceIsOne(t *testing.T) {
	g := sent(t, Traces{}, func(o observe.Observer) {
		o.ActionWritten(finished(decision.Committed))
		o.ActionWritten(finished(decision.Committed))
	})
	if string(g.spans[0].SpanId) != string(g.spans[1].SpanId) || string(g.spans[0].TraceId) != string(g.spans[1].TraceId) {
		t.Error("the same action has two ids")
	}
}

func TestSpansGoInBatches(t *testing.T) {
	g := sent(t, Traces{}, func(o observe.Observer) {
		for range 1000 {
			o.ActionWritten(finished(decision.Committed))
		}
	})
	if len(g.spans) != 1000 || g.requests > 10 {
		t.Errorf("%d spans in %d requests", len(g.spans), g.requests)
	}
}

// A collector that is not there loses spans, and nothing else: whoever observes never waits, and the end is not held up for
// longer than it may take.
func TestCollectorThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := NewSpans(context.Background(), Traces{Endpoint: address}, cluster, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 20000 {
		s.ActionWritten(finished(decision.Committed))
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("20000 writes took %s", took)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	start = time.Now()
	if err := s.Close(ctx); err == nil {
		t.Error("nothing was said to be lost")
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("closing took %s", took)
	}
	eventually(t, "all count as dropped", func() bool { return s.Dropped() == 20000 })
}

func TestEndpoints(t *testing.T) {
	for name, test := range map[string]struct {
		endpoint string
		env      map[string]string
		refused  string
	}{
		"host and port":             {"collector.tracing:4317", nil, ""},
		"loopback":                  {"[::1]:4317", nil, ""},
		"http":                      {"http://collector:4317", nil, ""},
		"https":                     {"https://collector:4317/", nil, ""},
		"environment":               {"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}, ""},
		"environment, traces":       {"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4317"}, ""},
		"nothing":                   {"", nil, "nobody says where to"},
		"no port":                   {"collector", nil, "is not HOST:PORT"},
		"no port in the URL":        {"http://collector", nil, "is not HOST:PORT"},
		"no host":                   {":4317", nil, "is not HOST:PORT"},
		"another scheme":            {"ftp://collector:4317", nil, "is not HOST:PORT"},
		"a path":                    {"http://collector:4318/v1/traces", nil, "has no path"},
		"a password":                {"http://u:p@collector:4317", nil, "has more than a host and a port"},
		"another protocol":          {"collector:4317", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "only grpc is spoken"},
		"another protocol of one":   {"collector:4317", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "only grpc is spoken"},
		"gRPC said in so many word": {"collector:4317", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			_, err := Traces{Endpoint: test.endpoint}.options()
			if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("got %v, want %q", err, test.refused)
			}
		})
	}
}

// Without TLS only the machine itself is spoken to, unless somebody writes http.
func TestPlaintextNeedsAWord(t *testing.T) {
	g := startGateway(t)
	_, port, err := net.SplitHostPort(g.address)
	if err != nil {
		t.Fatal(err)
	}
	// The environment is that of another collector.
	t.Setenv(endpointVariable, "http://other:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
	for endpoint, want := range map[string]bool{
		g.address:              true,
		"http://" + g.address:  true,
		"https://" + g.address: false, // the collector here speaks no TLS
		"0.0.0.0:" + port:      false, // the same collector by a name that is not loopback's
	} {
		s, err := NewSpans(context.Background(), Traces{Endpoint: endpoint}, cluster, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		s.ActionWritten(finished(decision.Committed))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err = s.Close(ctx)
		cancel()
		if arrived := err == nil && s.Dropped() == 0; arrived != want {
			t.Errorf("%s: arrived is %t (%v), want %t", endpoint, arrived, err, want)
		}
	}
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.8.8.8": true, "::1": true, "10.0.0.1": false, "collector": false, "localhost.example.com": false} {
		if loopback(host) != want {
			t.Errorf("%s: loopback is %t", host, !want)
		}
	}
}
