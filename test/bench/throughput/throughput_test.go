package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

func TestQuantiles(t *testing.T) {
	var hundred []time.Duration
	for i := 100; i >= 1; i-- {
		hundred = append(hundred, time.Duration(i)*time.Millisecond)
	}
	for name, test := range map[string]struct {
		of   []time.Duration
		want quantiles
	}{
		"nothing":          {nil, quantiles{}},
		"one value is all": {[]time.Duration{time.Second}, quantiles{P50: 1000, P99: 1000, Max: 1000}},
		"of a hundred":     {hundred, quantiles{P50: 50, P99: 99, Max: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, quantilesOf(test.of)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	got := spreadOf([]float64{2, 4, 6})
	if diff := cmp.Diff(spread{Mean: 4, StdDev: 2, Min: 2, Max: 6, N: 3}, got); diff != "" {
		t.Error(diff)
	}
	if one := spreadOf([]float64{7}); one.StdDev != 0 || one.Mean != 7 {
		t.Errorf("of one value: %+v", one)
	}
}

// steady is a client whose operations take so long.
type steady time.Duration

func (s steady) once(context.Context) (sample, error) {
	began := time.Now()
	time.Sleep(time.Duration(s))
	return sample{began: began, ended: time.Now()}, nil
}

func TestAWindowHasTheLengthThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := closedLoop(t.Context(), []steady{steady(5 * time.Millisecond), steady(5 * time.Millisecond)}, phases{warm: 100 * time.Millisecond, window: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if l.length != 200*time.Millisecond || len(l.window) != 80 || l.all <= 80 {
			t.Errorf("%d of %d operations ended within %s, want 80 of more in 200 ms", len(l.window), l.all, l.length)
		}
	})
}

func TestAWindowIsMadeLongerUntilEnoughEnded(t *testing.T) {
	const slow = 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		l, err := closedLoop(t.Context(), []steady{steady(slow), steady(slow)}, phases{window: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.window) != 2 || l.length != slow || l.rate() != 40 {
			t.Errorf("%d operations in %s, %g a second, want 2 in the time they took", len(l.window), l.length, l.rate())
		}
	})
}

// Clients that begin together end together: whole operations in a short window would be 8 or 16.
func TestTheRateDoesNotDependOnWhereAWindowEnds(t *testing.T) {
	for _, warm := range []time.Duration{0, 150 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l, err := closedLoop(t.Context(), slices.Repeat([]steady{steady(100 * time.Millisecond)}, 8), phases{warm: warm, window: 130 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if rate := l.rate(); math.Abs(rate-80) > 0.1 {
				t.Errorf("%g a second after %s, want 80", rate, warm)
			}
		})
	}
}

// sharing is a client of a server that serves all its clients by turns, a millisecond each: the fewer, the faster.
type sharing struct {
	server chan struct{}
	after  time.Duration // before its first operation, so that not all are equally far
}

func (c *sharing) once(context.Context) (sample, error) {
	s := sample{began: time.Now()}
	time.Sleep(c.after)
	c.after = 0
	for range 10 {
		c.server <- struct{}{}
		time.Sleep(time.Millisecond)
		<-c.server
	}
	s.ended = time.Now()
	return s, nil
}

func TestLoadStaysOnUntilWhatCountsIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := make(chan struct{}, 1)
		var clients []*sharing
		for i := range 8 {
			clients = append(clients, &sharing{server: server, after: time.Duration(i) * 10 * time.Millisecond})
		}
		l, err := closedLoop(t.Context(), clients, phases{warm: 400 * time.Millisecond, window: 90 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if rate := l.rate(); math.Abs(rate-100) > 2 {
			t.Errorf("%g a second, and the server does 100", rate)
		}
	})
}

// failing fails, and waiting waits to be told.
type failing struct{}

var errRefused = errors.New("refused")

func (failing) once(context.Context) (sample, error) { return sample{}, errRefused }

type waiting struct{}

func (waiting) once(ctx context.Context) (sample, error) {
	<-ctx.Done()
	return sample{}, ctx.Err()
}

func TestTheErrorThatEndsALoopIsTheFirstOne(t *testing.T) {
	_, err := closedLoop(t.Context(), []client{waiting{}, failing{}, waiting{}}, phases{window: time.Minute})
	if !errors.Is(err, errRefused) {
		t.Errorf("the error is %v, want that of the client that failed", err)
	}
}

// watched hands out watches, and keeps for how long each was asked for.
type watched struct {
	kube.WithWatch
	watches  []*watch.FakeWatcher
	contexts []context.Context
}

func (*watched) List(context.Context, kube.ObjectList, ...kube.ListOption) error { return nil }

func (w *watched) Watch(ctx context.Context, _ kube.ObjectList, _ ...kube.ListOption) (watch.Interface, error) {
	w.contexts = append(w.contexts, ctx)
	w.watches = append(w.watches, watch.NewFakeWithChanSize(1, false))
	return w.watches[len(w.watches)-1], nil
}

// A busy apiserver ends watches. The next one is for all operations to come, not only for the one that noticed.
func TestAWatchThatIsBegunAgainOutlivesItsOperation(t *testing.T) {
	w := &watched{}
	a := &agent{client: w}
	if err := a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.watches[0].Stop()
	operation, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if _, err := a.next(operation); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("waiting for nothing gives %v", err)
	}
	if len(w.contexts) != 2 || w.contexts[1].Err() != nil {
		t.Fatalf("of %d watches, want 2, the last ended with its operation: %v", len(w.contexts), w.contexts[len(w.contexts)-1].Err())
	}
	w.watches[1].Add(&v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Name: "refund-1"}})
	if action, err := a.next(t.Context()); err != nil || action.Name != "refund-1" {
		t.Errorf("the next operation sees %v: %v", action, err)
	}
}

const metricsText = `# HELP apiserver_request_total Counter of apiserver requests
apiserver_request_total{code="200",component="apiserver",dry_run="",group="ctrlrun.dev",resource="actions",scope="resource",subresource="status",verb="PUT",version="v1alpha1"} 12
apiserver_request_total{code="409",component="apiserver",dry_run="",group="ctrlrun.dev",resource="actions",scope="resource",subresource="status",verb="PUT",version="v1alpha1"} 3
apiserver_request_total{code="403",component="apiserver",dry_run="All",group="ctrlrun.dev",resource="actions",scope="resource",subresource="",verb="POST",version="v1alpha1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/metrics",verb="GET",version=""} 5
apiserver_requests_other{verb="GET"} 1
`

func TestParseRequests(t *testing.T) {
	got, err := parseRequests([]byte(metricsText))
	if err != nil {
		t.Fatal(err)
	}
	want := requests{{Verb: "PUT", Resource: "actions/status", Code: "200"}: 12, {Verb: "PUT", Resource: "actions/status", Code: "409"}: 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := parseRequests([]byte("something_else 1\n")); err == nil {
		t.Error("metrics without requests are taken for none made")
	}
}

func TestRequestOfIsInTheWordsOfTheAPIServer(t *testing.T) {
	for path, want := range map[string]string{
		"GET /apis/ctrlrun.dev/v1alpha1/namespaces/payments/actions":            "LIST actions",
		"GET /apis/ctrlrun.dev/v1alpha1/namespaces/payments/actions?watch=true": "WATCH actions",
		"GET /apis/ctrlrun.dev/v1alpha1/namespaces/payments/actions/refund-1":   "GET actions",
		"POST /apis/ctrlrun.dev/v1alpha1/namespaces/payments/outcomes":          "POST outcomes",
		"PUT /apis/ctrlrun.dev/v1alpha1/namespaces/payments/actions/one/status": "PUT actions/status",
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews":                "POST selfsubjectreviews",
		"GET /apis/ctrlrun.dev/v1alpha1/ledgers/payments":                       "GET ledgers",
		"POST /apis/floor.example.com/v1/namespaces/floor/records?timeout=1m0s": "POST records",
		"GET /api/v1/namespaces/payments":                                       "GET namespaces",
		"GET /api/v1/namespaces/payments/events":                                "LIST events",
	} {
		method, url, _ := strings.Cut(path, " ")
		r, err := http.NewRequest(method, "https://127.0.0.1"+url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := requestOf(r); got.Verb+" "+got.Resource != want {
			t.Errorf("%s is %s %s, want %s", path, got.Verb, got.Resource, want)
		}
	}
}

func TestCostLeavesTheOperatorWhatNobodyElseMade(t *testing.T) {
	post := request{Verb: "POST", Resource: "actions", Code: "201"}
	put := request{Verb: "PUT", Resource: "actions/status", Code: "409"}
	before := reading{requests: requests{post: 5, put: 1}, processor: map[string]time.Duration{"etcd": time.Second}, ours: map[string]requests{"agents": {post: 5}}}
	after := reading{requests: requests{post: 15, put: 6}, processor: map[string]time.Duration{"etcd": 2 * time.Second}, ours: map[string]requests{"agents": {post: 15}}}
	got := costOf(before, after, 10)
	want := cost{
		Processor: map[string]float64{"etcd": 100},
		Requests:  map[string]map[string]float64{"agents": {"POST actions": 1}, others: {"PUT actions/status 409": 0.5}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if writes, reads, conflicts := got.ofOperator(); writes != 0 || reads != 0 || conflicts != 0.5 {
		t.Errorf("the operator made %g writes, %g reads and %g conflicts", writes, reads, conflicts)
	}
}

// Whoever asks for metrics makes their owner work. Here the owner is this process.
func TestABlockDoesNotPayForItsMeasurement(t *testing.T) {
	const work = 200 * time.Millisecond
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		spend(t, work)
		_, _ = io.WriteString(w, metricsText)
	}))
	defer owner.Close()
	m := &meter{apiserver: &web{http: owner.Client(), host: owner.URL}, processes: func() (map[string]int, error) {
		return map[string]int{"owner": os.Getpid()}, nil
	}}
	before, err := m.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spend(t, work)
	after, err := m.end(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if used := costOf(before, after, 1).Processor["owner"]; used < milliseconds(work) || used > 1.5*milliseconds(work) {
		t.Errorf("the block is charged %g ms, and used %s", used, work)
	}
}

// spend takes so much processor time.
func spend(t *testing.T, d time.Duration) {
	began, err := processorTime(os.Getpid())
	now := began
	for err == nil && now-began < d {
		now, err = processorTime(os.Getpid())
	}
	if err != nil {
		t.Error(err)
	}
}

func TestOwnProcessIsMeasured(t *testing.T) {
	before, err := processorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began, x := time.Now(), 1.0; time.Since(began) < 200*time.Millisecond; {
		x = math.Sqrt(x + 1)
	}
	after, err := processorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after <= before {
		t.Errorf("processor time went from %s to %s in 200 ms of work", before, after)
	}
	m, err := memoryOf(os.Getpid())
	if err != nil || m.Resident < 1 || m.Peak < m.Resident {
		t.Errorf("memory is %+v: %v", m, err)
	}
}

func TestARecordIsAsLargeAsAsked(t *testing.T) {
	body, err := sized(3189)
	if err != nil {
		t.Fatal(err)
	}
	if len(body) != 3189 || !json.Valid(body) || strings.Count(string(body), mark) != 1 || len(mark) != 36 {
		t.Errorf("the body has %d bytes", len(body))
	}
	if _, err := sized(10); err == nil {
		t.Error("a body of 10 bytes is possible")
	}
}

func TestRanges(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown key":            "figures:\n- {name: a, means: b, max: 1, typical: 2}\n",
		"a figure without a bound":  "figures:\n- {name: a, means: b}\n",
		"a figure without a reason": "figures:\n- {name: a, max: 1}\n",
		"a figure that is twice":    "figures:\n- {name: a, means: b, max: 1}\n- {name: a, means: b, min: 1}\n",
		"a target beyond the limit": "figures:\n- {name: a, means: b, max: 1, target: 2}\n",
		"a target of no direction":  "figures:\n- {name: a, means: b, min: 1, max: 3, target: 2}\n",
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ranges.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readRanges(path); err == nil {
				t.Error("it is taken")
			}
		})
	}
	least, most := 0.1, 4.0
	spec := &ranges{Figures: []bounds{{Name: "ratio", Means: "m", Min: &least}, {Name: "factor", Means: "m", Max: &most}, {Name: "absent", Means: "m", Max: &most}}}
	run := func(ratio, factor float64) *result {
		return &result{Figures: map[string]map[string]spread{"operator": {"ratio": {Mean: ratio, N: 1}, "factor": {Mean: factor, N: 1}}}}
	}
	if err := spec.check(io.Discard, run(0.1, 4)); err != nil {
		t.Errorf("what is within the ranges fails: %v", err)
	}
	for name, r := range map[string]*result{"ratio": run(0.09, 1), "factor": run(1, 4.1)} {
		if err := spec.check(io.Discard, r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s outside of its range gives %v", name, err)
		}
	}
}

func TestATargetIsSaidToBeMissedAndFailsNothing(t *testing.T) {
	limit, target := 0.03, 0.1
	most, few := 20.0, 10.0
	spec := &ranges{Figures: []bounds{{Name: "ratio", Means: "m", Min: &limit, Target: &target}, {Name: "factor", Means: "m", Max: &most, Target: &few}}}
	for name, test := range map[string]struct {
		ratio, factor float64
		want          []string
	}{
		"reached": {0.1, 10, []string{"0.1 reached", "10 reached"}},
		"missed":  {0.05, 11, []string{"0.1 missed", "10 missed"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			figures := map[string]spread{"ratio": {Mean: test.ratio, N: 1}, "factor": {Mean: test.factor, N: 1}}
			if err := spec.check(&out, &result{Figures: map[string]map[string]spread{"operator": figures}}); err != nil {
				t.Errorf("it fails: %v", err)
			}
			for _, text := range test.want {
				if !strings.Contains(out.String(), text) {
					t.Errorf("it does not say %q:\n%s", text, out.String())
				}
			}
		})
	}
}

// The ranges of this repository are as the tool writes them, and what is recorded there would pass.
func TestRangesHoldWhatIsRecorded(t *testing.T) {
	const path = "../../../docs/benchmarks/ranges.yaml"
	spec, err := readRanges(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range spec.Figures {
		if b.Recorded != nil && b.outside(b.Recorded.Mean) != "" {
			t.Errorf("%s is recorded as %g, which is %s", b.Name, b.Recorded.Mean, b.outside(b.Recorded.Mean))
		}
	}
	again := filepath.Join(t.TempDir(), "ranges.yaml")
	if err := spec.write(again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(t, again), contents(t, path)); diff != "" {
		t.Error(diff)
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What a run did not measure must not look as if it had.
func TestARecordIsOfOneRun(t *testing.T) {
	dir, most := t.TempDir(), 5.0
	spec := &ranges{Figures: []bounds{
		{Name: "kernel.decide_allocs", Means: "m", Max: &most},
		{Name: "memory_mb.50000", Means: "m", Max: &most, Recorded: &spread{Mean: 4, N: 3}},
	}}
	o, err := parse([]string{"--quick", "--only", "kernel", "--operator", os.Args[0] + " manifests=" + dir + " --concurrency=16"}, dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := newResult(o)
	r.Kernel = []timing{{Name: deciding, ProcessorNsPerOp: 9000, AllocsPerOp: 3}}
	r.conclude()
	if err := r.record(dir, filepath.Join(dir, "ranges.yaml"), spec); err != nil {
		t.Fatal(err)
	}
	if got := spec.Figures[0].Recorded; got == nil || got.Mean != 3 {
		t.Errorf("what was measured is recorded as %+v", got)
	}
	if got := spec.Figures[1].Recorded; got != nil {
		t.Errorf("an earlier run's %+v is kept", got)
	}
	for _, file := range []string{"results.json", "figures.md"} {
		for _, flag := range []string{"--only=kernel", "--window=3s", "--concurrency=16"} {
			if !strings.Contains(contents(t, filepath.Join(dir, file)), flag) {
				t.Errorf("%s does not say %s", file, flag)
			}
		}
	}
}

func TestRecordedRangesAreReadAgain(t *testing.T) {
	least := 0.1
	spec := &ranges{Figures: []bounds{{Name: "ratio", Means: "m", Min: &least}}}
	spec.note(map[string]spread{"ratio": {Mean: 0.123456, StdDev: 0.01, Min: 0.1, Max: 0.2, N: 3}})
	path := filepath.Join(t.TempDir(), "ranges.yaml")
	if err := spec.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readRanges(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, got); diff != "" || got.Figures[0].Recorded.Mean != 0.123 {
		t.Errorf("recorded %+v: %s", got.Figures[0].Recorded, diff)
	}
}

// aRun has everything that figures and charts are made of.
func aRun() *result {
	r := &result{Operators: []binary{{Name: "operator"}}}
	for _, existing := range []int{0, 50_000} {
		for _, clients := range []int{1, 64} {
			for repetition := range 2 {
				rate := float64(clients+repetition) - float64(existing)/100_000
				block := func(load string, apiserver float64) block {
					return block{Operator: "operator", Load: load, Clients: clients, Existing: existing, Repetition: repetition, PerSecond: rate, Whole: quantiles{P50: 3, P99: 9},
						Cost: cost{Processor: map[string]float64{"operator": 1, "etcd": 1, "kube-apiserver": apiserver, "clients": 100}}}
				}
				before, after := block(floorLoad, 2), block(floorLoad, 6)
				after.PerSecond, after.Whole.P50 = 3*rate, 1
				r.Blocks = append(r.Blocks, before)
				for _, load := range []string{allowLoad, approveLoad} {
					b := block(load, 10)
					b.Admitted = &quantiles{P50: 5, P99: 7}
					b.Cost.Requests = map[string]map[string]float64{others: {"POST effects": 1, "PUT actions/status": 2, "PUT actions/status 409": 0.5, "DELETE effects 403": 1, "PUT actions/status 500": 1, "GET effects 404": 1, "PUT leases": 1}}
					b.compare(before, after)
					r.Blocks = append(r.Blocks, b, after)
				}
			}
		}
	}
	r.Visits = []visit{{Operator: "operator", Existing: 50_000, Busy: memory{Peak: 180}}, {Operator: "another", Existing: 50_000, Busy: memory{Peak: 900}}}
	r.Restarts = []restart{{Operator: "operator", Reported: "before", InFlight: 5000, SettledSeconds: 25}}
	r.Kernel = []timing{{Name: deciding, NsPerOp: 90_000, ProcessorNsPerOp: 9000, AllocsPerOp: 50}}
	return r
}

func TestFigures(t *testing.T) {
	r := aRun()
	r.conclude()
	got := map[string]float64{}
	for name, s := range r.Figures["operator"] {
		got[name] = s.Mean
	}
	for name, want := range map[string]float64{
		"allow.to_floor.64":                    0.5,
		"approve.to_floor.1":                   0.5,
		"allow.admitted_to_floor.1":            2.5,
		"allow.processor_to_floor.64":          2,
		"allow.operator_writes.64":             3,
		"allow.operator_reads.64":              1,
		"allow.operator_conflicts.64":          0.5,
		"allow.to_fresh.50000.64":              (63.5/64 + 64.5/65) / 2,
		"memory_mb.50000":                      180,
		"restart_seconds.reported_before.5000": 25,
		"kernel.decide_us":                     9,
		"kernel.decide_allocs":                 50,
	} {
		if math.Abs(got[name]-want) > 1e-9 {
			t.Errorf("%s is %g, want %g", name, got[name], want)
		}
	}
	if _, there := got["floor.to_floor.1"]; there {
		t.Error("the floor is compared with itself")
	}
}

func TestChartsAreDrawn(t *testing.T) {
	charts := aRun().charts()
	if len(charts) != 3 {
		t.Fatalf("there are %d charts", len(charts))
	}
	for name, c := range charts {
		text, err := c.svg()
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(text, &struct{}{}); err != nil {
			t.Errorf("%s is no XML: %v", name, err)
		}
		for _, bad := range []string{"NaN", "Inf", "ZgotmplZ"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %s in it", name, bad)
			}
		}
		if got, want := strings.Count(string(text), "<circle"), len(c.places)*len(c.curves); got != want {
			t.Errorf("%s has %d dots, want %d", name, got, want)
		}
	}
	partial := aRun()
	partial.Blocks = partial.Blocks[:2]
	if _, err := partial.charts()["throughput"].svg(); err == nil {
		t.Error("what was not measured is drawn")
	}
	broken := chart{title: "t", places: []string{"1"}, curves: []curve{{name: "c"}}, scale: logarithmic}
	if _, err := broken.svg(); err == nil {
		t.Error("a curve without points is drawn")
	}
}

func TestScalesHoldWhatTheyAreMadeFor(t *testing.T) {
	for name, s := range map[string]scale{"linear": linear(73), "logarithmic": logarithmic(3, 840)} {
		if s.place(73) > 1 || s.place(73) < 0 || len(s.ticks) < 3 || s.place(s.ticks[len(s.ticks)-1]) < s.place(73) {
			t.Errorf("%s places 73 at %g of ticks %v", name, s.place(73), s.ticks)
		}
	}
	if one := logarithmic(10, 10); math.IsNaN(one.place(10)) {
		t.Error("a single value has no place")
	}
}

// finishedLife is what etcd would hold of one action.
func finishedLife(t *testing.T) *life {
	t.Helper()
	const id = "6f1c7a52-0b7e-4a4e-9c55-0d5f3a1b2c3d"
	hash := "sha256:" + strings.Repeat("ab", 32)
	resource := "payment:" + id
	l := &life{}
	l.action.Name, l.action.UID, l.action.Spec.ClaimID = "refund-"+id, "11111111-0b7e-4a4e-9c55-0d5f3a1b2c3d", "22222222-0b7e-4a4e-9c55-0d5f3a1b2c3d"
	l.action.Spec.ActionType, l.action.Spec.Arguments.Raw = "stripe.refund", []byte(`{"payment_id":"`+id+`","amount":2000}`)
	l.action.Status.ActionHash, l.action.Status.Resource, l.action.Status.Environment = hash, &resource, "production"
	l.effect.Name, l.effect.UID, l.effect.Spec.Key = "refund-6f1c7a52-aaaaaaaaaaaaaaaaaaaa", "33333333-0b7e-4a4e-9c55-0d5f3a1b2c3d", "refund:"+id
	l.effect.Status = &v1alpha1.EffectStatus{Token: "44444444-0b7e-4a4e-9c55-0d5f3a1b2c3d"}
	text, err := json.Marshal(l.action)
	if err != nil {
		t.Fatal(err)
	}
	l.objects = []entry{{key: "/registry/ctrlrun.dev/actions/payments/" + l.action.Name, value: string(text)}}
	d := receipt.Document{
		Kind: receipt.KindAction, SubjectUID: string(l.action.UID), ClusterID: "c", Namespace: namespace, NamespaceUID: "n", FinishedTime: time.Unix(1, 0),
		ActionName: l.action.Name, ActionUID: string(l.action.UID), ActionType: "stripe.refund", ActionHash: hash, Resource: resource, Environment: "production",
		Principal: &receipt.Principal{Agent: "a"}, Arguments: map[string]any{"payment_id": id}, EffectKey: l.effect.Spec.Key, EffectName: l.effect.Name,
		EffectUID: string(l.effect.UID), Attempt: 1, Token: l.effect.Status.Token, Result: decision.Committed, Decision: decision.Allow, DecisionReason: "rule[0]",
		ExecutorMode: receipt.ModeAgent, ClaimID: l.action.Spec.ClaimID, Reporter: "a", ProposedTime: time.Unix(0, 0), AdmittedTime: time.Unix(1, 0),
	}
	e, err := d.Entry(receipt.Start())
	if err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(records.Receipt(namespace, e, d)); err != nil {
		t.Fatal(err)
	}
	l.receipt = &entry{key: "/registry/ctrlrun.dev/receipts/payments/" + receipt.Name(namespace, 1), value: string(text)}
	return l
}

// The operator folds what it appends to: copies have to be links of one chain, and each its own action.
func TestCopiesOfALifeAreLinksOfAChain(t *testing.T) {
	l := finishedLife(t)
	fold, head := receipt.NewFold(receipt.Start()), receipt.Start()
	keys := map[string]bool{}
	for range 20 {
		c, change, err := l.another()
		if err != nil {
			t.Fatal(err)
		}
		link, next, err := l.linked(change, head)
		if err != nil {
			t.Fatal(err)
		}
		head = next
		o := &v1alpha1.Receipt{}
		if err := json.Unmarshal([]byte(link.value), o); err != nil {
			t.Fatal(err)
		}
		if err := fold.Add(records.Entry(o)); err != nil {
			t.Fatal(err)
		}
		d, err := receipt.Parse(records.Entry(o))
		if err != nil {
			t.Fatal(err)
		}
		a := &v1alpha1.Action{}
		if err := json.Unmarshal([]byte(c.objects[0].value), a); err != nil {
			t.Fatal(err)
		}
		if d.ActionUID != string(a.UID) || d.ActionName != a.Name || d.ActionHash != a.Status.ActionHash || o.Spec.ActionName != a.Name || !strings.HasSuffix(link.key, o.Name) {
			t.Errorf("the receipt %s is not about the action %s", link.key, a.Name)
		}
		if a.Status.ActionHash == l.action.Status.ActionHash {
			t.Error("another action has the same hash")
		}
		keys[c.objects[0].key], keys[d.EffectKey], keys[d.Token] = true, true, true
	}
	if len(keys) != 60 {
		t.Errorf("20 copies have %d names, keys and tokens, not three each", len(keys))
	}
}

func TestTheKernelIsMeasuredByItsLastRule(t *testing.T) {
	set, err := longPolicy(rules)
	if err != nil {
		t.Fatal(err)
	}
	e, err := set.Evaluate(proposal())
	if err != nil || e.Decision != decision.Allow || e.Reason != decision.Rule(rules-1) {
		t.Errorf("it is decided %s by %s: %v", e.Decision, e.Reason, err)
	}
}

func TestFlags(t *testing.T) {
	root := t.TempDir()
	manifests, older := filepath.Join(root, "config", "local"), filepath.Join(root, "older")
	for _, dir := range []string{manifests, older} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	here := filepath.Join(root, "operator")
	if err := os.WriteFile(here, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"--quick", "--existing", "0,500", "--operator", "old=" + here + " manifests=" + older, "--operator", "new=" + here + " --concurrency=16"}, root, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.repetitions != 1 || !cmp.Equal(o.existing, []int{0, 500}) {
		t.Errorf("what is given after --quick does not win: %+v", o)
	}
	if want := []binary{{Name: "old", Path: here, Args: []string{}, Manifests: older}, {Name: "new", Path: here, Args: []string{"--concurrency=16"}, Manifests: manifests}}; !cmp.Equal(want, o.operators) {
		t.Error(cmp.Diff(want, o.operators))
	}
	o.operators, o.profiles = nil, "profiles"
	again, err := parse(append(o.flags(), "--operator", here), root, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	again.operators = nil
	if diff := cmp.Diff(o, again, cmp.AllowUnexported(options{}, phases{})); diff != "" {
		t.Errorf("the flags of a run measure something else: %s", diff)
	}
	for name, args := range map[string][]string{
		"a name twice":         {"--operator", here, "--operator", here},
		"no such binary":       {"--operator", here + ".missing"},
		"no such manifests":    {"--operator", here + " manifests=" + root + "/missing"},
		"an unknown section":   {"--operator", here, "--only", "everything"},
		"an unknown load":      {"--operator", here, "--loads", "deny"},
		"no clients":           {"--operator", here, "--clients", "0"},
		"a word that is none":  {"--operator", here, "quick"},
		"no repetition at all": {"--operator", here, "--repetitions", "0"},
	} {
		if _, err := parse(args, root, io.Discard); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
