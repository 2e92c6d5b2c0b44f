package client

import (
	"regexp"
	"strings"
)

// TraceContext is the W3C trace context of whoever proposes: the values of the headers traceparent, tracestate and baggage.
// It becomes annotations of the Action under these names, and the operator's span of the Action hangs below that span. It is
// no part of the action: nothing is hashed, decided or approved by it.
type TraceContext struct {
	Parent, State, Baggage string
}

// Bounds of what is taken over; whatever is longer or malformed is left out, because no action is refused for its trace.
const (
	maxTraceState = 512
	maxBaggage    = 8192
)

// annotations of a context; nil without a well-formed parent, which the rest means nothing without.
func (t TraceContext) annotations() map[string]string {
	parent := strings.TrimSpace(t.Parent)
	form := regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)
	if len(parent) > 128 || !form.MatchString(parent) || strings.HasPrefix(parent, "ff-") ||
		parent[3:35] == strings.Repeat("0", 32) || parent[36:52] == strings.Repeat("0", 16) {
		return nil
	}
	out := map[string]string{"traceparent": parent}
	if s := strings.TrimSpace(t.State); s != "" && len(s) <= maxTraceState {
		out["tracestate"] = s
	}
	if s := strings.TrimSpace(t.Baggage); s != "" && len(s) <= maxBaggage {
		out["baggage"] = s
	}
	return out
}
