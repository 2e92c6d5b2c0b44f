package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// sleeper starts a process that ends by itself only after the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // or it would stay a zombie
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	return cmd
}

func TestDownStopsWhatWasRecordedAndNothingElse(t *testing.T) {
	p := newPlace(t.TempDir())
	ours, parent, stranger := sleeper(t), sleeper(t), sleeper(t)
	for name, cmd := range map[string]*exec.Cmd{"etcd": ours, supervisor: parent} {
		if err := p.record(name, cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	// The id of a process that ended, in use again by somebody else: the start time differs.
	reused, err := json.Marshal(process{Name: "kube-apiserver", PID: stranger.Process.Pid, Start: "another time"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.pids(), "kube-apiserver"), reused, 0o600); err != nil {
		t.Fatal(err)
	}
	// One that has ended and whose id nobody uses.
	if err := os.WriteFile(filepath.Join(p.pids(), "ended"), []byte(`{"name":"ended","pid":4194303,"start":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(p.dir, "mine")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	running, err := p.recorded()
	if err != nil {
		t.Fatal(err)
	}
	if len(running) != 2 || running[0].Name != supervisor || running[1].Name != "etcd" {
		t.Errorf("recorded and running: %v, want the supervisor, then etcd", running)
	}
	if err := down(p); err != nil {
		t.Fatal(err)
	}
	for _, one := range running {
		if one.running() {
			t.Errorf("%s still runs", one.Name)
		}
	}
	if _, err := startTime(stranger.Process.Pid); err != nil {
		t.Errorf("the stranger was stopped: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file that is not ours: %v", err)
	}
	if _, err := os.Stat(p.run); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", p.run, err)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the trap is set
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	start, err := startTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	one := process{Name: "deaf", PID: cmd.Process.Pid, Start: start}
	if err := one.stop(100 * time.Millisecond); err != nil {
		t.Error(err)
	}
	if one.running() {
		t.Error("it still runs")
	}
}
