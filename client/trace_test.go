package client

import (
	"maps"
	"strings"
	"testing"
)

func TestTraceContextBecomesAnnotations(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, test := range map[string]struct {
		context TraceContext
		want    map[string]string
	}{
		"none":                        {TraceContext{}, nil},
		"a parent":                    {TraceContext{Parent: parent}, map[string]string{"traceparent": parent}},
		"everything":                  {TraceContext{Parent: parent, State: "a=1", Baggage: "k=v"}, map[string]string{"traceparent": parent, "tracestate": "a=1", "baggage": "k=v"}},
		"a later version with more":   {TraceContext{Parent: "01" + parent[2:] + "-more"}, map[string]string{"traceparent": "01" + parent[2:] + "-more"}},
		"blanks around":               {TraceContext{Parent: " " + parent + "\n"}, map[string]string{"traceparent": parent}},
		"state without a parent":      {TraceContext{State: "a=1", Baggage: "k=v"}, nil},
		"capital letters":             {TraceContext{Parent: strings.ToUpper(parent)}, nil},
		"no trace id":                 {TraceContext{Parent: "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"}, nil},
		"no span id":                  {TraceContext{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-" + strings.Repeat("0", 16) + "-01"}, nil},
		"a version there can't be":    {TraceContext{Parent: "ff" + parent[2:]}, nil},
		"something else":              {TraceContext{Parent: "hello"}, nil},
		"a parent that is too long":   {TraceContext{Parent: parent + "-" + strings.Repeat("x", 100)}, nil},
		"state and baggage too large": {TraceContext{Parent: parent, State: strings.Repeat("s", 513), Baggage: strings.Repeat("b", 8193)}, map[string]string{"traceparent": parent}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.context.annotations(); !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
