package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output may be written while it is read.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// box is a sandbox with a shell.
func box(script string) sandbox {
	return sandbox{argv: []string{"sh", "-c", script}, env: map[string]string{"PATH": defaultPath}, hostname: "box", user: user{uid: 1, gid: 2}}
}

// start starts a sandbox, whose processes end with the test.
func start(t *testing.T, s sandbox) (*process, *output) {
	t.Helper()
	out := &output{}
	p, err := s.start(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.kill(); err != nil {
			t.Error(err)
		}
	})
	return p, out
}

// await fails the test if it takes long.
func await(t *testing.T, p *process) ending {
	t.Helper()
	select {
	case <-p.done:
		return p.end
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		return ending{}
	}
}

func TestThereIsASandbox(t *testing.T) {
	if err := Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNothingRunsWithoutBubblewrap(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Check(t.Context()); err == nil || err.Error() != Install {
		t.Errorf("got %v, want %q", err, Install)
	}
	if _, err := box("true").start(&output{}); err == nil || err.Error() != Install {
		t.Errorf("got %v, want %q", err, Install)
	}
}

func TestNothingRunsWhereBubblewrapFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, bubblewrap), []byte("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Check(ctx); err == nil || !strings.Contains(err.Error(), "No permissions to create new namespace") {
		t.Errorf("got %v, want what bubblewrap says", err)
	}
}

func TestHowAProgramEnds(t *testing.T) {
	for name, test := range map[string]struct {
		argv  []string
		code  int32
		start string // a part of why it did not
	}{
		"well":                        {argv: []string{"true"}},
		"as bubblewrap does":          {argv: []string{"sh", "-c", "exit 1"}, code: 1},
		"by a signal":                 {argv: []string{"sh", "-c", "sh -c 'kill -KILL $$'; exit $?"}, code: 137},
		"before it started":           {argv: []string{"/no/such/program"}, code: 128, start: "/no/such/program"},
		"before it started, unlisted": {argv: []string{os.Args[0]}, code: 128, start: "No such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := box("")
			s.argv = test.argv
			p, out := start(t, s)
			end := await(t, p)
			if end.exitCode != test.code || (end.startError == "") != (test.start == "") || !strings.Contains(end.startError, test.start) {
				t.Errorf("it ended with %+v: %s", end, out)
			}
		})
	}
}

func TestASandboxHasWhatItIsGiven(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"listed": "listed", "mounted": "mounted", "secret": "secret"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := box(`id -u; id -g; hostname; pwd; echo "$WORD"; env | cut -d= -f1 | sort | xargs
		cat ` + filepath.Join(dir, "listed") + ` /below/mounted; echo; ls ` + dir + `; cat /proc/1/cmdline | tr "\0" " " | grep -c WORD`)
	s.env["WORD"], s.dir, s.files = "a word", "/usr", []string{filepath.Join(dir, "listed")}
	s.mounts = []mount{{from: filepath.Join(dir, "mounted"), to: "/below/mounted", readOnly: true}}
	t.Setenv("HOST_SECRET", "x")
	p, out := start(t, s)
	await(t, p)
	// PWD is the shell's own.
	want := "1\n2\nbox\n/usr\na word\nPATH PWD WORD\nlistedmounted\nlisted\n"
	if got := out.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatAContainerStartedEndsWithIt(t *testing.T) {
	dir := t.TempDir()
	s := box(`trap "" TERM; (trap "" TERM; while :; do sleep 0.05; done) & (trap "" TERM; while :; do sleep 0.05; done) & touch /dir/ready; wait; wait`)
	s.mounts = []mount{{from: dir, to: "/dir"}}
	p, _ := start(t, s)
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not start")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := p.terminate(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
		t.Fatal("it ended when asked to, which it does not handle")
	default:
	}
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	if end := await(t, p); end.exitCode != 137 {
		t.Errorf("it ended with %+v", end)
	}
	if err := syscall.Kill(p.pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", p.pid, err)
	}
	// Ending what has ended is nothing.
	if err := errors.Join(p.terminate(), p.kill()); err != nil {
		t.Error(err)
	}
}

func TestTheFilterKnowsThisMachine(t *testing.T) {
	program, err := filter()
	if err != nil {
		t.Fatal(err)
	}
	// Eight bytes each: seven around two for each call.
	if want := 8 * (7 + 2*len(denied)); len(program) != want {
		t.Errorf("%d bytes, want %d", len(program), want)
	}
	s := box("unshare --user true 2>&1; echo; grep ^Seccomp: /proc/self/status")
	s.filtered = true
	p, out := start(t, s)
	await(t, p)
	if got := out.String(); !strings.Contains(got, "Operation not permitted") || !strings.HasSuffix(got, "Seccomp:\t2\n") {
		t.Errorf("got %q", got)
	}
}
