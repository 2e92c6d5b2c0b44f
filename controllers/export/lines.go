package export

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/go-logr/logr"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/receipt"
)

// stream is which of the two kinds of lines a line is.
type stream string

const (
	receipts stream = "receipts"
	events   stream = "events"
)

// record is what becomes a line: a receipt or an event.
type record struct {
	receipt *receipt.Entry
	event   *Event
}

func (r record) line() (stream, []byte, error) {
	if r.receipt != nil {
		line, err := receipt.Line(*r.receipt)
		return receipts, line, err
	}
	line, err := r.event.Line()
	return events, line, err
}

// destination is where lines go. Only the worker of one queue uses it.
type destination interface {
	// write takes one line with its line end, whole or not at all.
	write(s stream, line []byte) error
	// flush follows each batch.
	flush() error
	close() error
}

// Lines writes receipts and events as JSON lines.
type Lines struct {
	*Queue[record]
	to        destination
	clusterID string
}

// lineLimits: what waits at 100 finished actions a second for some ten seconds, in memory that an operator has.
func lineLimits() Limits {
	return Limits{Items: 16384, Bytes: 16 << 20, Batch: 1024, Linger: 200 * time.Millisecond}
}

func newLines(name, clusterID string, to destination, log logr.Logger) *Lines {
	l := &Lines{to: to, clusterID: clusterID}
	l.Queue = NewQueue(name, lineLimits(), l.writeAll, log)
	return l
}

// NewStdout writes all lines to one stream, such as the process's standard output. A receipt's line has the key document,
// an event's has the key event_id.
func NewStdout(w io.Writer, clusterID string, log logr.Logger) *Lines {
	return newLines("stdout", clusterID, &plain{w: w}, log)
}

// ActionWritten implements observe.Observer.
func (l *Lines) ActionWritten(w observe.ActionWrite) {
	for _, e := range eventsOf(l.clusterID, w) {
		l.putEvent(e)
	}
}

// EffectWritten implements observe.Observer. What happens to an effect is in the events of the action that holds it.
func (l *Lines) EffectWritten(observe.EffectWrite) {}

// ReceiptAppended implements observe.Observer.
func (l *Lines) ReceiptAppended(a observe.ReceiptAppend) {
	l.Put(record{receipt: &a.Entry}, len(a.Entry.Document)+256)
	if a.Document.Kind == receipt.KindEvent {
		l.putEvent(eventOf(a.Document))
	}
}

func (l *Lines) putEvent(e Event) {
	size := 512 + len(e.EffectKey)
	for k, v := range e.Data {
		size += len(k) + len(v)
	}
	l.Put(record{event: &e}, size)
}

// Close writes what waits, for as long as ctx lasts. A destination whose writer hangs stays open.
func (l *Lines) Close(ctx context.Context) error {
	if err := l.Queue.Close(ctx); err != nil {
		return err
	}
	return l.to.close()
}

// writeAll goes on after a line that could not be written: a later one may fit where that did not.
func (l *Lines) writeAll(_ context.Context, batch []record) (int, error) {
	var errs []error
	written := 0
	for _, r := range batch {
		s, line, err := r.line()
		if err == nil {
			err = l.to.write(s, append(line, '\n'))
		}
		if err == nil {
			written++
			continue
		}
		if len(errs) < 3 {
			errs = append(errs, err)
		}
	}
	if err := l.to.flush(); err != nil {
		errs = append(errs, err)
	}
	return written, errors.Join(errs...)
}

// plain is a stream that is written to as it is.
type plain struct {
	w io.Writer
	// torn: the last line was cut off, so the next begins with a line end.
	torn bool
}

func (p *plain) write(_ stream, line []byte) error {
	if p.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := p.w.Write(line)
	if n > 0 {
		p.torn = n < len(line)
	}
	return err
}

func (p *plain) flush() error { return nil }
func (p *plain) close() error { return nil }
