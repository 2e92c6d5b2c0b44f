package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const (
	// longestLine is how much of a line without an end is kept together.
	longestLine = 16 << 10
	// fullLog is how much of one run of a container is kept; kubelets rotate at this size.
	fullLog = 10 << 20
)

// containerLog is the file that takes what one run of a container prints, each line with the time before it.
type containerLog struct {
	path string
	now  func() time.Time

	mu      sync.Mutex
	file    *os.File
	line    []byte
	written int
	changed chan struct{} // closed at the next change
	closed  bool
}

func newLog(path string) (*containerLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &containerLog{path: path, now: time.Now, file: file, changed: make(chan struct{})}, nil
}

// Write takes what a container prints. It fails only if the file does.
func (l *containerLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = append(l.line, text...)
	for {
		end := bytes.IndexByte(l.line, '\n')
		switch {
		case end < 0 && len(l.line) < longestLine:
			return len(text), nil
		case end < 0 || end > longestLine:
			end = longestLine
		}
		rest := bytes.TrimPrefix(l.line[end:], []byte("\n"))
		if err := l.flush(l.line[:end]); err != nil {
			return 0, err
		}
		l.line = slices.Clone(rest)
	}
}

// flush writes one line. What is more than a full log is dropped, which the last line says.
func (l *containerLog) flush(line []byte) error {
	if l.written > fullLog {
		return nil
	}
	l.written += len(line) + 1
	if l.written > fullLog {
		line = fmt.Appendf(nil, "the log is full: what follows is not kept")
	}
	_, err := fmt.Fprintf(l.file, "%s %s\n", l.now().UTC().Format(time.RFC3339Nano), line)
	l.wake()
	return err
}

func (l *containerLog) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// close keeps what is there of a last line and says that nothing more will come.
func (l *containerLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if len(l.line) > 0 {
		err = l.flush(l.line)
	}
	l.closed = true
	l.wake()
	return errors.Join(err, l.file.Close())
}

// state is a channel that is closed at the next change, and whether there will be one.
func (l *containerLog) state() (changed <-chan struct{}, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed, l.closed
}

// tail is the end of the log, as a termination message: at most so many lines, and bytes.
func (l *containerLog) tail(lines, size int) (string, error) {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return "", err
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		_, line, _ = strings.Cut(line, " ")
		all = append(all, line)
	}
	end := strings.Join(all[max(0, len(all)-lines):], "")
	return end[max(0, len(end)-size):], nil
}

// read is the log as it was asked for.
func (l *containerLog) read(ctx context.Context, o api.ContainerLogOpts) (io.ReadCloser, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return nil, errdefs.AsNotFound(err)
	}
	reader, writer := io.Pipe()
	go func() {
		defer file.Close() // it was only read
		writer.CloseWithError(l.copy(ctx, writer, file, o))
	}()
	return reader, nil
}

func (l *containerLog) copy(ctx context.Context, to io.Writer, file *os.File, o api.ContainerLogOpts) error {
	since := o.SinceTime
	if o.SinceSeconds > 0 {
		since = l.now().Add(-time.Duration(o.SinceSeconds) * time.Second)
	}
	if o.LimitBytes > 0 {
		to = &atMost{to: to, left: o.LimitBytes}
	}
	lines := bufio.NewReader(file)
	var kept []string // while the tail is not known yet
	partial := ""
	for tailing := o.Tail > 0; ; {
		changed, closed := l.state()
		for {
			text, err := lines.ReadString('\n')
			partial += text
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			line := partial
			partial = ""
			stamp, content, _ := strings.Cut(line, " ")
			at, err := time.Parse(time.RFC3339Nano, stamp)
			if err != nil {
				return err
			}
			if at.Before(since) {
				continue
			}
			if !o.Timestamps {
				line = content
			}
			if tailing {
				kept = append(kept, line)
				kept = kept[max(0, len(kept)-o.Tail):]
				continue
			}
			if _, err := io.WriteString(to, line); err != nil {
				return done(err)
			}
		}
		if tailing {
			tailing = false
			if _, err := io.WriteString(to, strings.Join(kept, "")); err != nil {
				return done(err)
			}
		}
		if closed || !o.Follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// errEnough ends a copy that was limited.
var errEnough = errors.New("enough")

func done(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

type atMost struct {
	to   io.Writer
	left int
}

func (a *atMost) Write(text []byte) (int, error) {
	n, err := a.to.Write(text[:min(a.left, len(text))])
	a.left -= n
	if err == nil && n < len(text) {
		err = errEnough
	}
	return n, err
}
