package observe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"ctrlrun.dev/operator/controllers/observe"
)

// listener remembers what it hears, and may panic at it.
type listener struct {
	heard  []string
	panics bool
}

func (l *listener) hear(what string) {
	if l.panics {
		panic("no")
	}
	l.heard = append(l.heard, what)
}

func (l *listener) ActionWritten(w observe.ActionWrite)     { l.hear("action " + w.Why) }
func (l *listener) EffectWritten(w observe.EffectWrite)     { l.hear("effect " + w.Why) }
func (l *listener) ReceiptAppended(w observe.ReceiptAppend) { l.hear("receipt " + w.Namespace) }

// TestObserverThatPanics: the write stands, the others hear of it all the same, and the log says who it was.
func TestObserverThatPanics(t *testing.T) {
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	before, after := &listener{}, &listener{}
	all := observe.All(log, before, &listener{panics: true}, after)
	all.ActionWritten(observe.ActionWrite{Why: "decide"})
	all.EffectWritten(observe.EffectWrite{Why: "reserve"})
	all.ReceiptAppended(observe.ReceiptAppend{Namespace: "payments"})
	want := []string{"action decide", "effect reserve", "receipt payments"}
	for _, l := range []*listener{before, after} {
		if !slices.Equal(l.heard, want) {
			t.Errorf("heard %q, want %q", l.heard, want)
		}
	}
	if len(logged) != len(want) || !strings.Contains(logged[0], `"observer"="*observe_test.listener"`) {
		t.Errorf("logged %q", logged)
	}
}
