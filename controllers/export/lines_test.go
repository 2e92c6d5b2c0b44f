package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

const cluster = "5d1c1c4e-6a7e-4a58-9d5e-0b6d6c1b2a3f"

var at = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func actionWrite(events ...timeline.Event) observe.ActionWrite {
	return observe.ActionWrite{
		Object: &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "refund", UID: "0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d"}},
		After:  flow.Status{Effect: &flow.EffectRef{Name: "refund-1", Key: "refund:txn_1"}},
		Events: events,
		Time:   at,
	}
}

// chain makes appended receipts of one namespace.
type chain struct {
	head receipt.Link
}

func (c *chain) append(t *testing.T, d receipt.Document) observe.ReceiptAppend {
	t.Helper()
	d.Namespace, d.NamespaceUID, d.ClusterID, d.FinishedTime = "payments", "f1f1f1f1-0000-4000-8000-000000000001", cluster, at.Truncate(time.Millisecond)
	e, err := d.Entry(c.head)
	if err != nil {
		t.Fatal(err)
	}
	c.head = receipt.Link{Seq: e.Seq, Hash: e.Hash}
	d.Seq = e.Seq
	return observe.ReceiptAppend{Namespace: "payments", Entry: e, Document: d, Time: at}
}

func newChain() *chain { return &chain{head: receipt.Start()} }

func policyInForce(generation int64, filler string) receipt.Document {
	return receipt.Document{
		Kind: receipt.KindEvent, SubjectUID: "a0a0a0a0-0000-4000-8000-000000000001", Ordinal: generation, Event: string(timeline.PolicyInForce),
		Data: map[string]string{"name": "refunds", "generation": fmt.Sprint(generation), "version": "<\"é\">" + filler},
	}
}

func finish(t *testing.T, l *Lines) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if n := l.Dropped(); n != 0 {
		t.Fatalf("%d lines were dropped", n)
	}
}

func TestLinesOnStdout(t *testing.T) {
	var out bytes.Buffer
	l := NewStdout(&out, cluster, logr.Discard())
	l.ActionWritten(actionWrite(
		timeline.Event{Seq: 7, Time: at, Type: timeline.ApprovalGranted, Data: map[string]string{"approval": "refund.alice", "approver": "alice"}},
		timeline.Event{Seq: 8, Time: at, Type: timeline.ExecutionStarted},
	))
	held := actionWrite(timeline.Event{Seq: 1, Time: at, Type: timeline.ActionHeld, Data: map[string]string{"reason": "quota"}})
	held.After.Effect = nil
	l.ActionWritten(held)
	appended := newChain().append(t, policyInForce(3, ""))
	l.ReceiptAppended(appended)
	finish(t, l)

	line, err := receipt.Line(appended.Entry)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"action_id":"0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d","action_name":"refund","approval_id":"refund.alice","cluster_id":"` + cluster + `","data":{"approval":"refund.alice","approver":"alice"},"effect_key":"refund:txn_1","event_id":"0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d.7","namespace":"payments","ts":"2026-03-01T12:00:00.123Z","type":"APPROVAL_GRANTED"}`,
		`{"action_id":"0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d","action_name":"refund","approval_id":null,"cluster_id":"` + cluster + `","data":{},"effect_key":"refund:txn_1","event_id":"0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d.8","namespace":"payments","ts":"2026-03-01T12:00:00.123Z","type":"EXECUTION_STARTED"}`,
		`{"action_id":"0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d","action_name":"refund","approval_id":null,"cluster_id":"` + cluster + `","data":{"reason":"quota"},"effect_key":null,"event_id":"0b9f3a52-2f61-4a4e-8f9d-5f0c7a1b2c3d.1","namespace":"payments","ts":"2026-03-01T12:00:00.123Z","type":"ACTION_HELD"}`,
		string(line),
		`{"action_id":null,"action_name":null,"approval_id":null,"cluster_id":"` + cluster + `","data":{"generation":"3","name":"refunds","version":"<\"é\">"},"effect_key":null,"event_id":"payments.1","namespace":"payments","ts":"2026-03-01T12:00:00.123Z","type":"POLICY_IN_FORCE"}`,
	}
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, g, w)
		}
	}
}

// shortWriter takes n bytes of the first write and then everything.
type shortWriter struct {
	bytes.Buffer
	n int
}

func (w *shortWriter) Write(p []byte) (int, error) {
	if w.n > 0 {
		n, _ := w.Buffer.Write(p[:w.n])
		w.n = 0
		return n, io.ErrShortWrite
	}
	return w.Buffer.Write(p)
}

func TestLineAfterOneThatWasCutOffIsWhole(t *testing.T) {
	w := &shortWriter{n: 20}
	l := NewStdout(w, cluster, logr.Discard())
	l.ActionWritten(actionWrite(timeline.Event{Seq: 1, Type: timeline.ActionProposed}, timeline.Event{Seq: 2, Type: timeline.ActionHeld}))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(w.String(), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[1], `"type":"ACTION_HELD"}`) || !strings.HasPrefix(lines[1], "{") {
		t.Errorf("got %q", lines)
	}
	if l.Dropped() != 1 {
		t.Errorf("%d lines count as lost, want the one that was cut off", l.Dropped())
	}
}

func rotation() Rotation { return Rotation{Megabytes: MinMegabytes, Files: 2} }

func openDir(t *testing.T, dir string) *Lines {
	t.Helper()
	l, err := NewDirectory(dir, rotation(), cluster, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFilesOfADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "export")
	c := newChain()
	for i := range 3 { // each is an operator that starts, works and ends
		l := openDir(t, dir)
		l.ReceiptAppended(c.append(t, policyInForce(int64(i+1), "")))
		l.ActionWritten(actionWrite(timeline.Event{Seq: int64(i + 1), Time: at, Type: timeline.ActionProposed}))
		finish(t, l)
	}
	if n := strings.Count(content(t, filepath.Join(dir, "receipts.jsonl")), "\n"); n != 3 {
		t.Errorf("%d receipts", n)
	}
	if n := strings.Count(content(t, filepath.Join(dir, "events.jsonl")), "\n"); n != 6 {
		t.Errorf("%d events, want three of actions and three of receipts", n)
	}
	for _, name := range []string{"receipts.jsonl", "events.jsonl"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v (%v)", info.Mode(), err)
	}
}

// An operator that was killed within a write leaves half a line; the next does not write on at its end.
func TestHalfALineIsCutOff(t *testing.T) {
	for name, test := range map[string]struct{ left, want string }{
		"half a line":           {"{\"seq\":1}\n{\"seq\":2,\"ha", "{\"seq\":1}\n"},
		"nothing but half":      {"{\"seq\":1", ""},
		"whole lines":           {"{\"seq\":1}\n", "{\"seq\":1}\n"},
		"nothing":               {"", ""},
		"a half of many blocks": {"a\n" + strings.Repeat("x", 200<<10), "a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "receipts.jsonl")
			if err := os.WriteFile(path, []byte(test.left), 0o600); err != nil {
				t.Fatal(err)
			}
			l := openDir(t, dir)
			appended := newChain().append(t, policyInForce(1, ""))
			l.ReceiptAppended(appended)
			finish(t, l)
			line, err := receipt.Line(appended.Entry)
			if err != nil {
				t.Fatal(err)
			}
			if got := content(t, path); got != test.want+string(line)+"\n" {
				t.Errorf("got %.80q", got)
			}
		})
	}
}

// A write that fails within a line, as one on a full disk does, leaves half of it.
func TestWriteThatFailedIsMended(t *testing.T) {
	dir := t.TempDir()
	l := openDir(t, dir)
	f := l.to.(*directory).files[events]
	l.ActionWritten(actionWrite(timeline.Event{Seq: 1, Type: timeline.ActionProposed}))
	eventually(t, "it is written", func() bool { return strings.Contains(content(t, f.Filename), "ACTION_PROPOSED") })
	if _, err := f.Write([]byte(`{"event_id":`)); err != nil {
		t.Fatal(err)
	}
	f.torn = true
	l.ActionWritten(actionWrite(timeline.Event{Seq: 2, Type: timeline.ActionHeld}))
	finish(t, l)
	lines := strings.Split(content(t, f.Filename), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "ACTION_PROPOSED") || !strings.Contains(lines[1], "ACTION_HELD") || !strings.HasPrefix(lines[1], `{"action_id"`) {
		t.Errorf("got %q", lines)
	}
}

func TestDirectoriesThatAreRefused(t *testing.T) {
	root := t.TempDir()
	plainFile := filepath.Join(root, "file")
	if err := os.WriteFile(plainFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(root, "taken")
	holder := openDir(t, taken)
	blocked := filepath.Join(root, "blocked")
	if err := os.MkdirAll(filepath.Join(blocked, "events.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir      string
		rotation Rotation
		want     string
	}{
		"no name":                  {"", rotation(), "it has no name"},
		"below a file":             {filepath.Join(plainFile, "x"), rotation(), "cannot be made"},
		"another process's":        {taken, rotation(), "another process exports there"},
		"a file that is none":      {blocked, rotation(), "events.jsonl cannot be written to"},
		"files that are too small": {filepath.Join(root, "small"), Rotation{Megabytes: 1}, "too small"},
		"a negative number":        {filepath.Join(root, "few"), Rotation{Megabytes: 8, Files: -1}, "no number of files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewDirectory(test.dir, test.rotation, cluster, logr.Discard())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	finish(t, holder)
	finish(t, openDir(t, taken)) // it is free again
}

func TestUnwritableDirectoryIsRefused(t *testing.T) {
	if os.Geteuid() == 0 {
		// Permissions do not bind root; a directory of /proc refuses everybody.
		_, err := NewDirectory("/proc/self", rotation(), cluster, logr.Discard())
		if err == nil || !strings.Contains(err.Error(), "cannot be written to") {
			t.Errorf("got %v", err)
		}
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := NewDirectory(dir, rotation(), cluster, logr.Discard())
	if err == nil || !strings.Contains(err.Error(), "cannot be written to") {
		t.Errorf("got %v", err)
	}
}

// Rotated files together are the chain: no line is lost, torn or altered by a rotation, and no more are kept than asked.
func TestRotatedFilesVerify(t *testing.T) {
	dir := t.TempDir()
	l := openDir(t, dir)
	c := newChain()
	filler := strings.Repeat("x", 700<<10)
	for i := range 13 { // 9 MB: two rotations
		l.ReceiptAppended(c.append(t, policyInForce(int64(i+1), filler)))
		eventually(t, "it is taken", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiting) < 10 })
	}
	finish(t, l)
	files, err := filepath.Glob(filepath.Join(dir, "receipts*.jsonl"))
	if err != nil || len(files) != 3 {
		t.Fatalf("got %v (%v)", files, err)
	}
	var entries []receipt.Entry
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > MinMegabytes<<20 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v", f, info.Size(), info.Mode())
		}
		for line := range strings.Lines(content(t, f)) {
			e, err := receipt.ParseLine([]byte(strings.TrimSuffix(line, "\n")))
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b receipt.Entry) int { return int(a.Seq - b.Seq) })
	head := receipt.Start()
	for _, e := range entries {
		d, err := receipt.Parse(e)
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != head.Seq+1 || d.PrevHash != head.Hash {
			t.Fatalf("receipt %d does not follow %s", e.Seq, head)
		}
		head = receipt.Link{Seq: e.Seq, Hash: e.Hash}
	}
	if head != c.head {
		t.Errorf("the files end at %s, the chain at %s", head, c.head)
	}
}

func TestOpenRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, test := range map[string]struct {
		to   []string
		want string
	}{
		"something else":     {[]string{"syslog"}, "neither stdout nor dir:PATH"},
		"stdout with a path": {[]string{"stdout:x"}, "neither stdout nor dir:PATH"},
		"twice":              {[]string{"stdout", "stdout"}, "another stdout"},
		"two directories":    {[]string{"dir:" + t.TempDir(), "dir:" + t.TempDir()}, "another dir"},
		"no directory":       {[]string{"stdout", "dir:"}, "it has no name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(context.Background(), Options{To: test.to, Rotation: rotation(), Stdout: io.Discard, Log: logr.Discard()})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestSinksAreClosedTogether(t *testing.T) {
	s, err := Open(context.Background(), Options{To: []string{"stdout", "dir:" + t.TempDir()}, Rotation: rotation(), Stdout: hanging{}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range s.Observers() {
		o.ActionWritten(actionWrite(timeline.Event{Seq: 1, Type: timeline.ActionProposed}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if len(s.Observers()) != 2 || s.all[1].Dropped() != 0 {
		t.Error("a sink that hangs keeps another from what waits for it")
	}
}

// hanging is a reader that went away without closing.
type hanging struct{}

func (hanging) Write([]byte) (int, error) { select {} }
