package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// result is everything a run found.
type result struct {
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Machine   machine   `json:"machine"`
	Operators []binary  `json:"operators"`
	// Flags say what was measured, defaults included.
	Flags []string `json:"flags"`
	// ActionBytes is the size of a finished action, and of a raw create.
	ActionBytes int       `json:"actionBytes,omitempty"`
	Blocks      []block   `json:"blocks,omitempty"`
	Visits      []visit   `json:"visits,omitempty"`
	Restarts    []restart `json:"restarts,omitempty"`
	Kernel      []timing  `json:"kernel,omitempty"`
	// Figures are what the blocks come to, by operator.
	Figures map[string]map[string]spread `json:"figures"`
}

// machine is what it ran on, and how busy that was with other things.
type machine struct {
	Processors int     `json:"processors"`
	Model      string  `json:"model"`
	MemoryMB   float64 `json:"memoryMB"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`
	// LoadBefore is the load average of the last minute before the run, which is the others' share.
	LoadBefore float64 `json:"loadBefore"`
}

func newResult(o options) *result {
	var operators []binary
	for _, b := range o.operators {
		b.Path = filepath.Base(b.Path) // where it lies on this machine says nothing to anybody else
		operators = append(operators, b)
	}
	return &result{
		Started: time.Now().UTC(), Machine: thisMachine(), Operators: operators, Flags: o.flags(),
	}
}

func thisMachine() machine {
	m := machine{Processors: runtime.NumCPU(), Go: runtime.Version(), LoadBefore: loadAverage()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.Model = field(text, "model name")
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		kilobytes, _ := strconv.ParseFloat(strings.TrimSuffix(field(text, "MemTotal"), " kB"), 64)
		m.MemoryMB = float64(int(kilobytes / 1024))
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = string(bytes.TrimSpace(text))
	}
	return m
}

// field is the value of the first line `name: value`.
func field(text []byte, name string) string {
	for line := range strings.Lines(string(text)) {
		key, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// loadAverage of the last minute; -1 where the system does not say.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	word, _, _ := strings.Cut(string(text), " ")
	average, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return -1
	}
	return average
}

func (r *result) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
