package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"ctrlrun.dev/operator/test/testenv"
)

// sampleEvery is how often the operator is looked at.
const sampleEvery = 2 * time.Second

// sample is what the operator's process held at one time.
type sample struct {
	// At is the time since the load began; 0 before that.
	At seconds `json:"at_seconds"`
	// Resident is VmRSS of /proc: what the machine had to give. Heap are the bytes of objects that live or are not collected
	// yet, and NextGC is when they will be: without the saw of the collector, it follows what really lives.
	Resident float64 `json:"resident_bytes"`
	Heap     float64 `json:"heap_alloc_bytes"`
	NextGC   float64 `json:"next_gc_bytes"`
	// Goroutines of the process.
	Goroutines float64 `json:"goroutines"`
	// Finished actions until then, as agents saw them.
	Finished int `json:"finished_actions"`
}

// sampler looks at an operator from time to time.
type sampler struct {
	operator *testenv.OperatorProcess
	client   *http.Client
	began    time.Time
	finished func() int
	samples  []sample
}

func newSampler(operator *testenv.OperatorProcess, finished func() int) *sampler {
	return &sampler{operator: operator, client: &http.Client{Timeout: 30 * time.Second}, finished: finished}
}

// run takes samples until ctx is done. An operator that ends, or does not answer, ends it with an error: then there is nothing
// left to measure.
func (s *sampler) run(ctx context.Context) error {
	s.began = time.Now()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		one, err := s.take(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		s.samples = append(s.samples, one)
		select {
		case <-ctx.Done():
			return nil
		case <-s.operator.Done():
			return fmt.Errorf("the operator ended while it was under load")
		case <-tick.C:
		}
	}
}

// take looks once.
func (s *sampler) take(ctx context.Context) (sample, error) {
	one := sample{Finished: s.finished()}
	if !s.began.IsZero() {
		one.At = seconds(time.Since(s.began))
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.operator.PID()))
	if err != nil {
		return one, fmt.Errorf("read what the operator's process holds: %w", err)
	}
	if one.Resident, err = residentBytes(status); err != nil {
		return one, err
	}
	metrics, err := s.scrape(ctx)
	if err != nil {
		return one, fmt.Errorf("read the operator's metrics: %w", err)
	}
	for name, into := range map[string]*float64{
		"go_goroutines": &one.Goroutines, "go_memstats_heap_alloc_bytes": &one.Heap, "go_memstats_next_gc_bytes": &one.NextGC,
	} {
		if *into, err = metric(metrics, name); err != nil {
			return one, err
		}
	}
	return one, nil
}

func (s *sampler) scrape(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.operator.Metrics, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() // it was only read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", s.operator.Metrics, response.Status)
	}
	return io.ReadAll(response.Body)
}

// residentBytes finds VmRSS in a /proc/PID/status.
func residentBytes(status []byte) (float64, error) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		text, found := strings.CutPrefix(lines.Text(), "VmRSS:")
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 64)
		if err != nil {
			return 0, fmt.Errorf("VmRSS of the operator's process is %q: %w", text, err)
		}
		return kilobytes * 1024, nil
	}
	return 0, fmt.Errorf("the operator's process has no VmRSS: it has ended, or this is not Linux")
}

// metric finds a metric without labels in a scrape.
func metric(scrape []byte, name string) (float64, error) {
	for line := range bytes.Lines(scrape) {
		text, found := bytes.CutPrefix(line, []byte(name+" "))
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
		if err != nil || math.IsNaN(value) {
			return 0, fmt.Errorf("the operator's metric %s is %q, which is no number", name, bytes.TrimSpace(text))
		}
		return value, nil
	}
	return 0, fmt.Errorf("the operator serves no metric %s", name)
}

// points of one column.
func points(samples []sample, column func(sample) float64) []point {
	all := make([]point, len(samples))
	for i, s := range samples {
		all[i] = point{at: time.Duration(s.At), value: column(s)}
	}
	return all
}
