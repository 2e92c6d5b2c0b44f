package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFlagsThatAreChosenHereAreRefused(t *testing.T) {
	for flag, refused := range map[string]bool{
		"--export=dir:/tmp/x": false, "--export": false, "dir:/tmp/x": false, "--v=2": false, "--namespaces": false,
		"--namespace=x": true, "--namespace": true, "--kubeconfig=x": true, "--metrics-bind-address=:1": true,
		"--health-probe-bind-address": true, "--export=a\nb": true,
	} {
		if err := checkFlags([]string{"--v=2", flag}); (err != nil) != refused {
			t.Errorf("%q: %v", flag, err)
		}
	}
}

func TestTheNodeIsNotTheOperatorsFlag(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for file, text := range map[string]string{good: "shell: {}\nagent: {entrypoint: [agent], hostNetwork: true}\n", bad: "agent: {entrypont: [agent]}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, rest, err := takeNode([]string{"--v=2", "--node=" + good, "--node-name=x"})
	if err != nil || table != good || !slices.Equal(rest, []string{"--v=2", "--node-name=x"}) {
		t.Errorf("got %q, %q, %v", table, rest, err)
	}
	for _, flags := range [][]string{{"--node"}, {"--node="}, {"--node=" + bad}, {"--node=" + good + "x"}, {"--node=" + good, "--node=" + good}} {
		if table, _, err := takeNode(flags); err == nil {
			t.Errorf("%q: got %q", flags, table)
		}
	}
}

func TestWhatIsSaidIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	if lines, err := said(file); err != nil || lines != nil {
		t.Errorf("of a file that is not there: %q, %v", lines, err)
	}
	for _, want := range [][]string{{"--export=dir:/a b", "--v=2"}, nil, {"one"}} {
		if err := say(file, want...); err != nil {
			t.Fatal(err)
		}
		if lines, err := said(file); err != nil || !slices.Equal(lines, want) {
			t.Errorf("said %q, %v, want %q", lines, err, want)
		}
	}
}

// child makes a process of its own out of this test: a supervisor that answers one request as it was told.
const child = "LOCAL_TEST_ANSWER"

func TestSupervisorThatAnswers(t *testing.T) {
	answer, isChild := os.LookupEnv(child)
	if !isChild {
		t.Skip("runs as a child of the tests below")
	}
	p := newPlace(os.Getenv("LOCAL_TEST_ROOT"))
	again := make(chan os.Signal, 1)
	signal.Notify(again, restart)
	if err := say(p.ready(), "server", "binaries", "metrics"); err != nil {
		t.Fatal(err)
	}
	<-again
	if answer == "ends" {
		return
	}
	if err := say(p.restarted(), answer); err != nil {
		t.Fatal(err)
	}
	<-again // until it is killed
}

// supervise starts such a supervisor, without any operator, and returns when it takes requests.
func supervise(t *testing.T, answer string) place {
	t.Helper()
	p := newPlace(t.TempDir())
	if err := os.MkdirAll(p.run, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSupervisorThatAnswers$")
	cmd.Env = append(os.Environ(), child+"="+answer, "LOCAL_TEST_ROOT="+p.root)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	if err := p.record(supervisor, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := p.waitReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUpStartsAnOperatorThatEndedAgain(t *testing.T) {
	for answer, want := range map[string]string{"": "", "a flag is unknown": "did not start: a flag is unknown", "ends": "ended; the logs are in"} {
		p := supervise(t, answer)
		err := up(t.Context(), p, []string{"--export=dir:/tmp/x"})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("answered %q: %v, want %q", answer, err, want)
		}
		if flags, err := said(p.flags()); err != nil || !slices.Equal(flags, []string{"--export=dir:/tmp/x"}) {
			t.Errorf("the operator would get the flags %q, %v", flags, err)
		}
	}
}

func TestUpLeavesAnOperatorThatRuns(t *testing.T) {
	p := supervise(t, "not to be asked")
	if err := p.record(operatorName, sleeper(t).Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := say(p.flags(), "--v=2"); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--v=2"}} {
		if err := up(t.Context(), p, flags); err != nil {
			t.Errorf("up %q: %v", flags, err)
		}
	}
	if err := up(t.Context(), p, []string{"--v=3"}); err == nil || !strings.Contains(err.Error(), "not to be asked") {
		t.Errorf("with other flags: %v, want that it is started again", err)
	}
}
