package cli

import "ctrlrun.dev/operator/client"

const traceHelp = `If TRACEPARENT is set, as W3C trace context has it, the operator's span of the action hangs below that span. TRACESTATE and
BAGGAGE go along.`

// traceOf is the trace this process is a part of, by the variables of the environment that OpenTelemetry uses for it.
func traceOf(getenv func(string) string) client.TraceContext {
	return client.TraceContext{Parent: getenv("TRACEPARENT"), State: getenv("TRACESTATE"), Baggage: getenv("BAGGAGE")}
}
