package export

import (
	"context"
	"io"
	"testing"

	"github.com/go-logr/logr"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// What work that waits pays for one write that is observed. The sinks work meanwhile, in goroutines of their own.
func BenchmarkObserver(b *testing.B) {
	write := finished(decision.Committed)
	write.Events = []timeline.Event{{Seq: 3, Time: at, Type: timeline.ExecutionCommitted}, {Seq: 4, Time: at, Type: timeline.ExecutionAmbiguous}}
	appended := observe.ReceiptAppend{Entry: receipt.Entry{Document: string(make([]byte, 1500))}, Document: *write.Receipt}
	traces, err := NewSpans(context.Background(), Traces{Endpoint: "127.0.0.1:1"}, cluster, logr.Discard())
	if err != nil {
		b.Fatal(err)
	}
	for name, o := range map[string]Sink{
		"stdout":            NewStdout(io.Discard, cluster, logr.Discard()),
		"otlp":              traces,
		"kubernetes-events": NewKubernetesEvents(&notebook{}, NotableEvents, logr.Discard()),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o.ActionWritten(write)
				o.ReceiptAppended(appended)
			}
		})
	}
}
