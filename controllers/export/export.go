package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-logr/logr"

	"ctrlrun.dev/operator/controllers/observe"
)

// Options say what is exported.
type Options struct {
	// To lists where receipts and events go as lines: stdout, or dir:PATH. Each once.
	To []string
	// Rotation of the files of dir:PATH.
	Rotation Rotation
	// Traces go out if it is not nil.
	Traces *Traces
	// ClusterID is the uid of the namespace kube-system.
	ClusterID string
	// Stdout is where stdout is.
	Stdout io.Writer
	Log    logr.Logger
}

// Sinks are everything an operator exports to.
type Sinks struct{ all []Sink }

// Sink is an observer that exports.
type Sink interface {
	observe.Observer
	// Name of the sink, in logs and metrics: stdout, files, otlp or kubernetes-events.
	Name() string
	// Dropped is how much never reached it, and OnDrop calls f for each.
	Dropped() uint64
	OnDrop(f func(sink string))
	// Close gives it what waits, for as long as ctx lasts.
	Close(ctx context.Context) error
}

var (
	_ Sink = (*Lines)(nil)
	_ Sink = (*Spans)(nil)
	_ Sink = (*KubernetesEvents)(nil)
)

// Open makes the sinks, and refuses what cannot work from the start on: whoever asks for an export has to learn at once that
// there is none. An error leaves nothing open.
func Open(ctx context.Context, o Options) (_ *Sinks, err error) {
	s := &Sinks{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	seen := map[string]bool{}
	for _, to := range o.To {
		kind, path, _ := strings.Cut(to, ":")
		if seen[kind] {
			return nil, fmt.Errorf("export to %s: there is another %s already; give one", to, kind)
		}
		seen[kind] = true
		switch {
		case to == "stdout":
			s.all = append(s.all, NewStdout(o.Stdout, o.ClusterID, o.Log))
		case kind == "dir":
			lines, err := NewDirectory(path, o.Rotation, o.ClusterID, o.Log)
			if err != nil {
				return nil, err
			}
			s.all = append(s.all, lines)
		default:
			return nil, fmt.Errorf("export to %q: it is neither stdout nor dir:PATH", to)
		}
	}
	if o.Traces != nil {
		spans, err := NewSpans(ctx, *o.Traces, o.ClusterID, o.Log)
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, spans)
	}
	return s, nil
}

// Observers are what has to be told of writes.
func (s *Sinks) Observers() []observe.Observer {
	var out []observe.Observer
	for _, one := range s.all {
		out = append(out, one)
	}
	return out
}

// Close gives every sink what waits for it, all at once and for as long as ctx lasts. It follows the last write.
func (s *Sinks) Close(ctx context.Context) error {
	errs := make([]error, len(s.all))
	var wait sync.WaitGroup
	for i, one := range s.all {
		wait.Go(func() { errs[i] = one.Close(ctx) })
	}
	wait.Wait()
	return errors.Join(errs...)
}
