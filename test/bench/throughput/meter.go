package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// request is a kind of request to the apiserver, as its own metrics count it.
type request struct{ Verb, Resource, Code string }

// String is for example "PUT actions/status 409". A code of success is left out.
func (r request) String() string {
	if strings.HasPrefix(r.Code, "2") {
		return r.Verb + " " + r.Resource
	}
	return r.Verb + " " + r.Resource + " " + r.Code
}

// requests counts them.
type requests map[request]float64

// since is what was added.
func (r requests) since(before requests) requests {
	added := requests{}
	for k, n := range r {
		if d := n - before[k]; d != 0 {
			added[k] = d
		}
	}
	return added
}

// reading is what was used until a moment.
type reading struct {
	requests  requests
	processor map[string]time.Duration
	ours      map[string]requests
}

// meter reads what the apiserver was asked, and the processor time of everybody who takes part.
type meter struct {
	apiserver *web
	counters  map[string]*counter
	// processes by name, as they are now: a restored control plane has new ones.
	processes func() (map[string]int, error)
}

// begin reads it before a block. Reading the apiserver's metrics takes processor time of it: begin looks at processor times
// after that and end before it, so that no block pays for its own measurement.
func (m *meter) begin(ctx context.Context) (r reading, err error) {
	if err := m.count(ctx, &r); err != nil {
		return r, err
	}
	r.processor, err = m.times()
	return r, err
}

// end reads it after a block.
func (m *meter) end(ctx context.Context) (r reading, err error) {
	if r.processor, err = m.times(); err != nil {
		return r, err
	}
	return r, m.count(ctx, &r)
}

// count reads what was asked of the apiserver.
func (m *meter) count(ctx context.Context, r *reading) error {
	text, err := m.apiserver.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return fmt.Errorf("read the apiserver's metrics: %w", err)
	}
	if r.requests, err = parseRequests(text); err != nil {
		return err
	}
	r.ours = map[string]requests{}
	for who, c := range m.counters {
		r.ours[who] = c.read()
	}
	return nil
}

// times are the processor times of everybody.
func (m *meter) times() (map[string]time.Duration, error) {
	processes, err := m.processes()
	if err != nil {
		return nil, err
	}
	times := map[string]time.Duration{}
	for name, pid := range processes {
		if times[name], err = processorTime(pid); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// cost is what a block used, each divided by its operations.
type cost struct {
	// Processor is milliseconds by process.
	Processor map[string]float64 `json:"processorMs"`
	// Requests by who made them: those that this process counted itself, and the rest, which are the operator's and, few, the
	// apiserver's own. A watch is counted when it ends.
	Requests map[string]map[string]float64 `json:"requests"`
}

// others are whoever made the requests that this process did not.
const others = "operator"

func costOf(before, after reading, operations int) cost {
	n := float64(max(1, operations))
	c := cost{Processor: map[string]float64{}, Requests: map[string]map[string]float64{}}
	for name, t := range after.processor {
		c.Processor[name] = milliseconds(t-before.processor[name]) / n
	}
	rest := after.requests.since(before.requests)
	for who, made := range after.ours {
		made = made.since(before.ours[who])
		c.Requests[who] = made.per(n)
		for k, d := range made {
			rest[k] -= d
		}
	}
	// Whoever sends a request and the apiserver do not count it at the same moment.
	maps.DeleteFunc(rest, func(_ request, d float64) bool { return d <= 0 })
	c.Requests[others] = rest.per(n)
	return c
}

// per is for one operation. What happens less than once in two hundred is left out.
func (r requests) per(n float64) map[string]float64 {
	each := map[string]float64{}
	for k, d := range r {
		if d/n >= 0.005 {
			each[k.String()] += d / n
		}
	}
	return each
}

// parseRequests reads apiserver_request_total.
func parseRequests(text []byte) (requests, error) {
	r := requests{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !found {
			continue
		}
		labels, value, found := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("the apiserver's metrics have a line that cannot be read: %q", lines.Text())
		}
		l := parseLabels(labels)
		if l["dry_run"] != "" || l["resource"] == "" {
			continue // probes, and what is no resource: /metrics, /readyz
		}
		k := request{Verb: l["verb"], Resource: l["resource"], Code: l["code"]}
		if l["subresource"] != "" {
			k.Resource += "/" + l["subresource"]
		}
		r[k] += n
	}
	if len(r) == 0 {
		return nil, errors.New("the apiserver's metrics have no apiserver_request_total")
	}
	return r, lines.Err()
}

// parseLabels reads a="x",b="y". No value of that metric has a quote or a comma in it.
func parseLabels(text string) map[string]string {
	labels := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		labels[name] = strings.Trim(value, `"`)
	}
	return labels
}

// counter counts the requests of some clients of this process, in the apiserver's words.
type counter struct {
	mu   sync.Mutex
	made requests
}

func newCounter() *counter { return &counter{made: requests{}} }

func (c *counter) read() requests {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.made)
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil {
			k := requestOf(r)
			k.Code = strconv.Itoa(response.StatusCode)
			c.mu.Lock()
			c.made[k]++
			c.mu.Unlock()
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// requestOf names a request as the apiserver does.
func requestOf(r *http.Request) request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	version := 3 // apis, group, version
	if parts[0] == "api" {
		version = 2
	}
	parts = parts[min(len(parts), version):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	k := request{Verb: r.Method}
	if r.URL.Query().Get("watch") != "" {
		k.Verb = "WATCH"
	}
	switch len(parts) {
	case 0:
	case 1:
		k.Resource = parts[0]
		if k.Verb == http.MethodGet {
			k.Verb = "LIST"
		}
	case 2:
		k.Resource = parts[0]
	default:
		k.Resource = parts[0] + "/" + parts[2]
	}
	return k
}

// web speaks HTTP to the apiserver as one user, without what a client of Kubernetes adds to it.
type web struct {
	http *http.Client
	host string
}

func newWeb(cfg *rest.Config) (*web, error) {
	c, err := rest.HTTPClientFor(cfg)
	return &web{http: c, host: strings.TrimSuffix(cfg.Host, "/")}, err
}

// do sends one request and returns the body of the answer, which is an error unless it is one of success.
func (w *web) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := w.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer[:min(len(answer), 500)])
	}
	return answer, nil
}

// tick is the unit of processor times in /proc. It is a hundredth of a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// processorTime is the time a process has spent on processors until now, its threads that have ended included.
func processorTime(pid int) (time.Duration, error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	user, err := strconv.ParseInt(f[13], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(f[14], 10, 64)
	return time.Duration(user+system) * tick, err
}

// stat is /proc/PID/stat by field, the second without its parentheses.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// A name may hold blanks and parentheses, so what is around it is found first.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return nil, fmt.Errorf("/proc/%d/stat has no name", pid)
	}
	fields := append([]string{strconv.Itoa(pid), string(text[open+1 : end])}, strings.Fields(string(text[end+1:]))...)
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// children of this process by name. etcd and kube-apiserver are, and nobody else knows their ids.
func children(names ...string) (map[string]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(file))
		if err != nil {
			continue
		}
		fields, err := stat(pid)
		if err != nil {
			continue // it has ended meanwhile
		}
		if slices.Contains(names, fields[1]) && fields[3] == strconv.Itoa(os.Getpid()) && fields[2] != "Z" {
			found[fields[1]] = pid
		}
	}
	for _, name := range names {
		if found[name] == 0 {
			return nil, fmt.Errorf("this process has no child %s in /proc", name)
		}
	}
	return found, nil
}

// memory is what a process has resident now, and had at most, in megabytes.
type memory struct {
	Resident float64 `json:"residentMB"`
	Peak     float64 `json:"peakMB"`
}

func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*float64{"VmRSS": &m.Resident, "VmHWM": &m.Peak}[name]
		if into == nil {
			continue
		}
		kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return memory{}, fmt.Errorf("/proc/%d/status: %q: %w", pid, line, err)
		}
		*into = kilobytes / 1024
	}
	if m.Resident == 0 {
		return memory{}, fmt.Errorf("/proc/%d/status does not say what is resident", pid)
	}
	return m, nil
}
