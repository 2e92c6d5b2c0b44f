package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one that was started here. The start time makes the identity: process ids are used again.
type process struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

const (
	supervisor   = "supervisor"
	operatorName = "ctrlrun-operator"
)

func (p place) pids() string { return filepath.Join(p.run, "pids") }

// record writes down a process that is running now.
func (p place) record(name string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("%s (process %d): %w", name, pid, err)
	}
	data, err := json.Marshal(process{Name: name, PID: pid, Start: start})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.pids(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.pids(), name), append(data, '\n'), 0o600)
}

// recorded returns what was written down and is still running, the supervisor first.
func (p place) recorded() ([]process, error) {
	entries, err := os.ReadDir(p.pids())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []process
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(p.pids(), e.Name()))
		if err != nil {
			return nil, err
		}
		var one process
		if err := json.Unmarshal(data, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(p.pids(), e.Name()), err)
		}
		switch {
		case !one.running():
		case one.Name == supervisor:
			all = append([]process{one}, all...)
		default:
			all = append(all, one)
		}
	}
	return all, nil
}

func (p process) running() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// stop asks the process to end, and kills it if it has not ended in time.
func (p process) stop(timeout time.Duration) error {
	for _, step := range []struct {
		signal  syscall.Signal
		timeout time.Duration
	}{{syscall.SIGTERM, timeout}, {syscall.SIGKILL, 5 * time.Second}} {
		if !p.running() {
			return nil
		}
		if err := syscall.Kill(p.PID, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping %s (process %d): %w", p.Name, p.PID, err)
		}
		for deadline := time.Now().Add(step.timeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if !p.running() {
				return nil
			}
		}
	}
	return fmt.Errorf("%s (process %d) does not end", p.Name, p.PID)
}

var errGone = errors.New("no such process")

// startTime identifies one run of a process id: on Linux the boot and the clock ticks since then, elsewhere what ps says.
// A process that has ended and waits for its parent to notice counts as gone.
func startTime(pid int) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
		state, start, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		if err != nil || start == "" || strings.HasPrefix(state, "Z") {
			return "", errGone
		}
		return strings.TrimSpace(start), nil
	}
	state, fields, err := stat(pid)
	if err != nil {
		return "", err
	}
	if state == "Z" || state == "X" {
		return "", errGone
	}
	return strings.TrimSpace(string(boot)) + " " + fields[19], nil
}

// stat reads /proc/PID/stat from its third field on: the state, the parent, and at index 19 the start time. The second field
// is a name in parentheses that may hold anything, so the third is found from the last parenthesis.
func stat(pid int) (state string, fields []string, err error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", nil, errGone
	}
	fields = strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return "", nil, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	return fields[0], fields, nil
}

// children returns the processes that this one started, by the name of their binary.
func children() (map[string]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return childrenByPS()
	}
	found := map[string]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		_, fields, err := stat(pid)
		if err != nil || fields[1] != strconv.Itoa(os.Getpid()) {
			continue // not ours, or it ended while we were looking
		}
		name, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if err == nil {
			found[strings.TrimSpace(string(name))] = pid
		}
	}
	return found, nil
}

func childrenByPS() (map[string]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,comm=").Output()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	found := map[string]int{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		pid, err := strconv.Atoi(f[0])
		if err != nil {
			return nil, err
		}
		found[filepath.Base(f[2])] = pid
	}
	return found, nil
}
