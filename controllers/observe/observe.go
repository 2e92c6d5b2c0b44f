// Package observe tells whoever watches what was written: metrics, exports, Kubernetes Events.
//
// An Observer hears of a write after the apiserver took it, never before, and cannot say no: whatever it does, the
// decision stands. What it misses while its process is dead is not repeated; the objects themselves are the record.
package observe

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// Observer hears of writes. It is called from many goroutines, in the way of work that waits, so it must not block and must
// not change what it is given.
type Observer interface {
	// ActionWritten follows each status that was written.
	ActionWritten(ActionWrite)
	// EffectWritten follows each record that was created or replaced.
	EffectWritten(EffectWrite)
	// ReceiptAppended follows each receipt.
	ReceiptAppended(ReceiptAppend)
}

// ActionWrite is a status of an Action that was written.
type ActionWrite struct {
	// Object as it is now. Shared: read only.
	Object *v1alpha1.Action
	Before flow.Status
	After  flow.Status
	// Why is the name of the write in the protocol.
	Why string
	// Events are those that this write added to the timeline.
	Events []timeline.Event
	// Receipt of the action, once this write finished it; else nil.
	Receipt *receipt.Document
	Time    time.Time
}

// EffectWrite is a record that was written.
type EffectWrite struct {
	// Object as it is now. Shared: read only.
	Object *v1alpha1.Effect
	// Before is nil for one that was created, or that had lost its status.
	Before *effect.Status
	After  effect.Status
	// Why is the name of the write in the protocol.
	Why  string
	Time time.Time
}

// ReceiptAppend is a receipt that was appended.
type ReceiptAppend struct {
	Namespace string
	Entry     receipt.Entry
	Document  receipt.Document
	// Lag is how long ago the thing it is about was over: its effect settled, its action ended unadmitted. 0: not known.
	Lag  time.Duration
	Time time.Time
}

// All tells several observers, in their order. One that panics is left out of that one write and the rest still hear of it.
func All(log logr.Logger, observers ...Observer) Observer {
	return &fan{log: log, observers: observers}
}

type fan struct {
	log       logr.Logger
	observers []Observer
}

func (f *fan) ActionWritten(w ActionWrite) {
	f.each(func(o Observer) { o.ActionWritten(w) })
}

func (f *fan) EffectWritten(w EffectWrite) {
	f.each(func(o Observer) { o.EffectWritten(w) })
}

func (f *fan) ReceiptAppended(w ReceiptAppend) {
	f.each(func(o Observer) { o.ReceiptAppended(w) })
}

func (f *fan) each(tell func(Observer)) {
	for _, o := range f.observers {
		func() {
			defer func() {
				if r := recover(); r != nil {
					f.log.Error(fmt.Errorf("%v", r), "An observer panicked; the write it was told of stands", "observer", fmt.Sprintf("%T", o))
				}
			}()
			tell(o)
		}()
	}
}
