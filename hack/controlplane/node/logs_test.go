package node

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// logged is a log whose clock goes on by a second with each line.
func logged(t *testing.T, texts ...string) *containerLog {
	t.Helper()
	l, err := newLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l.now = func() time.Time { now = now.Add(time.Second); return now }
	for _, text := range texts {
		write(t, l, text)
	}
	return l
}

func write(t *testing.T, l *containerLog, text string) {
	t.Helper()
	if n, err := l.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("writing %d bytes: %d, %v", len(text), n, err)
	}
}

func closed(t *testing.T, l *containerLog) *containerLog {
	t.Helper()
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	return l
}

func read(t *testing.T, l *containerLog, o api.ContainerLogOpts) string {
	t.Helper()
	r, err := l.read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogsAreReadAsTheyAreAskedFor(t *testing.T) {
	l := closed(t, logged(t, "one\nt", "wo\n", "\nfour"))
	for name, test := range map[string]struct {
		o    api.ContainerLogOpts
		want string
	}{
		"all":         {want: "one\ntwo\n\nfour\n"},
		"the end":     {o: api.ContainerLogOpts{Tail: 2}, want: "\nfour\n"},
		"more":        {o: api.ContainerLogOpts{Tail: 20}, want: "one\ntwo\n\nfour\n"},
		"some bytes":  {o: api.ContainerLogOpts{LimitBytes: 6}, want: "one\ntw"},
		"with times":  {o: api.ContainerLogOpts{Timestamps: true, Tail: 1}, want: "2026-01-01T00:00:04Z four\n"},
		"since":       {o: api.ContainerLogOpts{SinceTime: time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)}, want: "\nfour\n"},
		"the last 2s": {o: api.ContainerLogOpts{SinceSeconds: 2}, want: "\nfour\n"},
		"to its end":  {o: api.ContainerLogOpts{Follow: true}, want: "one\ntwo\n\nfour\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "the last 2s" {
				l.now = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC) }
			}
			if got := read(t, l, test.o); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestALogIsFollowed(t *testing.T) {
	l := logged(t, "one\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.read(ctx, api.ContainerLogOpts{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 4)
	if _, err := io.ReadFull(r, part); err != nil || string(part) != "one\n" {
		t.Fatalf("got %q, %v", part, err)
	}
	write(t, l, "two\nthr")
	if _, err := io.ReadFull(r, part); err != nil || string(part) != "two\n" {
		t.Fatalf("got %q, %v", part, err)
	}
	write(t, l, "ee")
	closed(t, l)
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "three\n" {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestALongLineAndALongLogHaveAnEnd(t *testing.T) {
	long := strings.Repeat("x", 2*longestLine+1)
	if got, want := read(t, closed(t, logged(t, long+"\nnext\n")), api.ContainerLogOpts{}), strings.Repeat("x", longestLine); !strings.HasPrefix(got, want+"\n"+want+"\nx\nnext\n") {
		t.Errorf("%d bytes in %d lines", len(got), strings.Count(got, "\n"))
	}
	l := logged(t)
	for range fullLog/longestLine + 2 {
		write(t, l, strings.Repeat("x", longestLine-1)+"\n")
	}
	got := read(t, closed(t, l), api.ContainerLogOpts{})
	if len(got) > fullLog+100 || !strings.HasSuffix(got, "\nthe log is full: what follows is not kept\n") {
		t.Errorf("%d bytes, and the end is %q", len(got), got[len(got)-100:])
	}
}

func TestTheEndOfALogIsATerminationMessage(t *testing.T) {
	l := closed(t, logged(t, "one\ntwo\nthree"))
	for _, test := range []struct {
		lines, size int
		want        string
	}{{2, 100, "two\nthree\n"}, {10, 100, "one\ntwo\nthree\n"}, {2, 4, "ree\n"}} {
		if got, err := l.tail(test.lines, test.size); err != nil || got != test.want {
			t.Errorf("tail(%d, %d) = %q, %v; want %q", test.lines, test.size, got, err, test.want)
		}
	}
}
