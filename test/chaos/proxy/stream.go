package proxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// readAhead is how much of a watch is read before the client takes it, unless the watch is held: then it is all of it, for
// the apiserver ends a watch that nobody reads.
const readAhead = 64 << 10

var errTorn = errors.New("the watch was torn")

// gate is what the watches of one client for one kind pass. It guards their streams too.
type gate struct {
	mu      sync.Mutex
	changed *sync.Cond
	holds   int
}

func newGate() *gate {
	g := &gate{}
	g.changed = sync.NewCond(&g.mu)
	return g
}

func (g *gate) update(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	g.changed.Broadcast()
}

// stream is the body of a watch's answer on its way through a gate. Bytes are never reordered and never looked at.
type stream struct {
	gate *gate
	from io.ReadCloser
	stop []func() bool
	done chan struct{} // closed when nothing is read from upstream any more

	// Guarded by gate.mu.
	read   []byte
	ended  error // how upstream ended
	broken error // ends the stream now, whatever is held
}

// newStream lets a body through a gate until ctx is done.
func newStream(ctx context.Context, g *gate, from io.ReadCloser) *stream {
	s := &stream{gate: g, from: from, done: make(chan struct{})}
	s.stop = append(s.stop, context.AfterFunc(ctx, func() { s.breakOff(context.Cause(ctx)) }))
	go s.pump()
	return s
}

// breakAfter ends the stream after so long. then is called right before.
func (s *stream) breakAfter(d time.Duration, err error, then func()) {
	timer := time.AfterFunc(d, func() {
		then()
		s.breakOff(err)
	})
	s.stop = append(s.stop, timer.Stop)
}

func (s *stream) breakOff(err error) {
	s.gate.update(func() {
		if s.broken == nil {
			s.broken = err
		}
	})
}

func (s *stream) pump() {
	defer close(s.done)
	buffer := make([]byte, 32<<10)
	for {
		n, err := s.from.Read(buffer)
		s.gate.update(func() {
			s.read = append(s.read, buffer[:n]...)
			s.ended = err
		})
		if err != nil || !s.room() {
			return
		}
	}
}

// room waits until more may be read, and reports whether anybody wants it.
func (s *stream) room() bool {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	for s.broken == nil && s.gate.holds == 0 && len(s.read) >= readAhead {
		s.gate.changed.Wait()
	}
	return s.broken == nil
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	for {
		switch open := s.gate.holds == 0; {
		case s.broken != nil:
			return 0, s.broken
		case open && len(s.read) > 0:
			n := copy(p, s.read)
			s.read = s.read[n:]
			s.gate.changed.Broadcast()
			return n, nil
		case open && s.ended != nil:
			return 0, s.ended
		}
		s.gate.changed.Wait()
	}
}

// Close implements io.Closer. It returns when nothing is read from upstream any more.
func (s *stream) Close() error {
	for _, stop := range s.stop {
		stop()
	}
	s.breakOff(errTorn)
	err := s.from.Close()
	<-s.done
	return err
}
