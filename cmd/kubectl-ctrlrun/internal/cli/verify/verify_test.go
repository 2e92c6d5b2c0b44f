package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/guarantees"
	"ctrlrun.dev/operator/kernel/receipt"
)

// The namespace is removed however it ends, with a context that still works.
func TestTheScratchNamespaceIsRemoved(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		create, body func(context.Context) error
		want         string
	}{
		"after the end":              {func(context.Context) error { return nil }, func(context.Context) error { return nil }, ""},
		"after an error":             {func(context.Context) error { return nil }, func(context.Context) error { return boom }, "boom"},
		"after a panic":              {func(context.Context) error { return nil }, func(context.Context) error { panic("ouch") }, "panic: ouch"},
		"after a create that failed": {func(context.Context) error { return boom }, func(context.Context) error { panic("not to be called") }, "boom"},
		"after an interruption":      {func(context.Context) error { return nil }, func(ctx context.Context) error { return ctx.Err() }, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			removed := 0
			err := in(ctx, test.create, func(ctx context.Context) {
				if ctx.Err() != nil {
					t.Error("removed with a context that is done")
				}
				removed++
			}, test.body)
			if removed != 1 {
				t.Errorf("removed %d times", removed)
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// example is a report with one guarantee of each status.
func example() *Report {
	text := func(s string) *string { return &s }
	r := &Report{
		Schema: Schema, Catalogue: guarantees.Catalogue, Version: "v1", Start: time.Unix(0, 0).UTC(), Finish: time.Unix(3, 0).UTC(),
		Namespace: "payments", Environment: "production", Policies: []Policy{{Name: "p", Origin: "payments/p\x1b[31m", Generation: 3, Count: 1}},
		Scratch: Scratch{Namespace: "ctrlrun-verify-abcdefgh", Ledger: "ctrlrun-verify-abcdefgh", Removed: true},
		Guarantees: []Result{
			{ID: guarantees.G3, Title: "duplicate effect refused", Status: Pass, ActionType: text("a.b"), Arguments: json.RawMessage(`{"x":"<&>"}`), Approvals: 2, duration: time.Second},
			{ID: guarantees.G5, Title: "ambiguous blocks a blind retry", Status: Fail, Reason: text("not so"), ActionType: text("a.b"), Arguments: json.RawMessage(`{}`),
				Counterexample: &Counterexample{
					Expected: "one", Observed: "two \x1b[31m", Receipts: []json.RawMessage{json.RawMessage(`{"seq":1}`)},
					Events:  []Event{{Action: "g5-first", Seq: 1, Time: time.Unix(1, 0), Type: "ACTION_PROPOSED", Data: map[string]string{"b": "2", "a": "1"}}},
					Effects: []Effect{{Name: "x", Key: "x:1", State: "Committed", Attempt: 2, Holder: "g5-first"}},
				}},
			{ID: guarantees.G1, Title: "mutated approval refused", Status: NotApplicable, Reason: text("no action requires approval"), Arguments: json.RawMessage("null")},
			{ID: guarantees.G7, Title: "no principal refused", Status: Skipped, Reason: text(notSelected), Arguments: json.RawMessage("null")},
		},
	}
	r.count()
	return r
}

func harmless(s string) string { return strings.ReplaceAll(s, "\x1b", `\x1b`) }

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteText(&b, harmless); err != nil {
		t.Fatal(err)
	}
	const want = `kubectl ctrlrun  v1, catalogue ctrlrun.dev/guarantees/v1alpha1
Policy           payments/p\x1b[31m generation 3, 1 actions, 
Settings         none, so the defaults
Environment      production
Scratch          namespace ctrlrun-verify-abcdefgh, removed; the Ledger ctrlrun-verify-abcdefgh stays, as every Ledger does

PASS G3   duplicate effect refused          a.b {"x":"<&>"}, approved by 2
FAIL G5   ambiguous blocks a blind retry    a.b {}: not so
          expected: one
          observed: two \x1b[31m
          receipt:  {"seq":1}
          event:    g5-first 1 1970-01-01T00:00:01Z ACTION_PROPOSED a=1 b=2
          effect:   x Committed, attempt 2, held by g5-first, key x:1
N/A  G1   mutated approval refused          no action requires approval
SKIP G7   no principal refused              not selected

1/2 declared guarantees pass. 1 not applicable: G1. 1 not selected: G7.
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestJUnitCountsWhatIsNotRun(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteJUnit(&b, harmless); err != nil {
		t.Fatal(err)
	}
	var read suites
	if err := xml.Unmarshal(b.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	s := read.Suites[0]
	if s.Tests != 4 || s.Failures != 1 || s.Skipped != 2 || s.Time != "3.000" || s.Timestamp != "1970-01-01T00:00:00" {
		t.Errorf("%+v", s)
	}
	if f := s.Cases[1].Failure; f == nil || f.Type != "G5" || f.Message != "not so" || !strings.Contains(f.Text, `observed: two \x1b[31m`) {
		t.Errorf("%+v", f)
	}
	if s.Cases[2].Skipped.Message != "no action requires approval" || s.Cases[3].Skipped.Message != notSelected || s.Cases[0].Skipped != nil {
		t.Errorf("%s", b.String())
	}
}

func TestExitCodes(t *testing.T) {
	for name, test := range map[string]struct {
		statuses []Status
		want     int
	}{
		"all pass":                   {[]Status{Pass, Pass}, Passed},
		"not applicable beside them": {[]Status{Pass, NotApplicable}, Passed},
		"skipped beside them":        {[]Status{Pass, Skipped}, Passed},
		"one fails":                  {[]Status{Pass, Fail, NotApplicable}, Failed},
		"nothing is applicable":      {[]Status{NotApplicable, NotApplicable}, Unusable},
		"nothing":                    {nil, Unusable},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Report{}
			for _, s := range test.statuses {
				r.Guarantees = append(r.Guarantees, Result{Status: s})
			}
			if r.count(); r.ExitCode() != test.want {
				t.Errorf("%d, want %d", r.ExitCode(), test.want)
			}
		})
	}
}

// A right that is missing is for the user to get; everything else is no verdict.
func TestWhatForbiddenMeans(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "x", errors.New("no"))
	var unusable *UnusableError
	if err := setup("create it", forbidden); !errors.As(err, &unusable) || !strings.Contains(err.Error(), "docs/verify.md") {
		t.Errorf("%v", err)
	}
	if err := setup("create it", errors.New("no")); errors.As(err, &unusable) {
		t.Errorf("%v", err)
	}
}

// Every guarantee of the catalogue is checked by something.
func TestEveryGuaranteeHasAScenario(t *testing.T) {
	all := scenarios()
	for _, g := range guarantees.All() {
		if all[g.ID] == nil {
			t.Errorf("%s has no scenario", g.ID)
		}
	}
	if len(all) != len(guarantees.All()) {
		t.Errorf("%d scenarios for %d guarantees", len(all), len(guarantees.All()))
	}
}

// Integers of policies are copied as they are, also those that a float cannot hold.
func TestPoliciesAreCopiedExactly(t *testing.T) {
	actions, err := canonical.Parse([]byte(`{"a.b":{"rules":[{"when":{"n_eq":9007199254740993},"decision":"allow"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPolicy("p", "payments/p", "7", 1, actions)
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.object("scratch")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `{"n_eq":9007199254740993}`) || !strings.Contains(string(text), `"version":"7"`) {
		t.Errorf("%s", text)
	}
}

func TestAPolicyThatIsNotValidIsRefused(t *testing.T) {
	actions, err := canonical.Parse([]byte(`{"a.b":{"decision":"maybe"}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewPolicy("p", "payments/p", "", 1, actions)
	var unusable *UnusableError
	if !errors.As(err, &unusable) || !strings.Contains(err.Error(), "payments/p") || !strings.Contains(err.Error(), "spec.actions") {
		t.Errorf("%v", err)
	}
}

// chain are n receipts as an operator writes them.
func chain(t *testing.T, n int) []receipt.Entry {
	t.Helper()
	head := receipt.Start()
	var entries []receipt.Entry
	for i := range n {
		d := receipt.Document{
			Kind: receipt.KindAction, SubjectUID: strconv.Itoa(i), ActionUID: strconv.Itoa(i), ActionName: "a", ActionType: "a.b", ClusterID: "c",
			Namespace: "n", NamespaceUID: "u", Principal: &receipt.Principal{Agent: "x"}, Environment: "production",
			Result: decision.Denied, Reason: decision.PlainDecision, Arguments: map[string]any{"x": "y"}, ProposedTime: time.Unix(1, 0), FinishedTime: time.Unix(2, 0),
		}
		e, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		entries, head = append(entries, e), receipt.Link{Seq: e.Seq, Hash: e.Hash}
	}
	return entries
}

// A verification that sees nothing, and one that always sees something, are both found out.
func TestAlteredReceiptsHaveToBeDetected(t *testing.T) {
	g11 := guarantees.All()[len(guarantees.All())-1]
	entries := chain(t, 4)
	for name, test := range map[string]struct {
		verify judge
		head   int
		reason string // "": it holds
	}{
		"the last":     {receipt.Verify, 3, ""},
		"in the midst": {receipt.Verify, 1, ""},
		"blind": {func(e []receipt.Entry, o receipt.Options) receipt.Report {
			return receipt.Report{Verdict: receipt.Intact}
		}, 3, g11.Invariant + ": not so"},
		"never content": {func(e []receipt.Entry, o receipt.Options) receipt.Report {
			return receipt.Report{Verdict: receipt.Broken}
		}, 3, controlFailed},
		"another name": {func(e []receipt.Entry, o receipt.Options) receipt.Report {
			r := receipt.Verify(e, o)
			for i := range r.Breaks {
				r.Breaks[i].Name = receipt.LinkBroken
			}
			return r
		}, 3, g11.Invariant + ": not so"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stage{plan: guarantees.Plan{Guarantee: g11}}
			members, err := s.detected(test.verify, entries, receipt.Link{Seq: entries[test.head].Seq, Hash: entries[test.head].Hash})
			var f *finding
			switch {
			case test.reason == "" && (err != nil || len(members) != 4):
				t.Errorf("%d alterations, %v", len(members), err)
			case test.reason != "" && (!errors.As(err, &f) || f.reason != test.reason):
				t.Errorf("%v, want %q", err, test.reason)
			}
		})
	}
}

// A process of a race reaches the cluster by the proxy of the kubeconfig.
func TestProxyOfAKubeconfig(t *testing.T) {
	for want, config := range map[string]*rest.Config{
		"":                          {Host: "https://cluster.example"},
		"http://proxy.example:3128": {Host: "https://cluster.example", Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:3128"})},
	} {
		if got, err := proxyOf(config); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// acting is how this test is started again as a command that executes an action.
const acting = "VERIFY_TEST_ACT"

func TestMain(m *testing.M) {
	if how := os.Getenv(acting); how != "" {
		dir, end, _ := strings.Cut(how, "|")
		code, err := Execute(dir, End(end))
		if err != nil {
			code = 99
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// Each call is counted, by whichever process, and how a command ends is what it was told.
func TestHowCommandsEnd(t *testing.T) {
	for end, want := range map[End]struct{ code, calls int }{
		Commit: {0, 1}, Timeout: {124, 1}, Crash: {1, 1}, Signal: {-1, 1}, NotExecuted: {75, 0},
	} {
		t.Run(string(end), func(t *testing.T) {
			r, err := newRemote(t.TempDir(), "remote")
			if err != nil {
				t.Fatal(err)
			}
			for i := 1; i <= 2; i++ {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), acting+"="+r.dir+"|"+string(end))
				err := cmd.Run()
				if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
					t.Fatal(err)
				}
				calls, err := r.calls()
				if err != nil || calls != i*want.calls || cmd.ProcessState.ExitCode() != want.code {
					t.Errorf("exit code %d and %d calls, %v; want %d and %d", cmd.ProcessState.ExitCode(), calls, err, want.code, i*want.calls)
				}
			}
		})
	}
	if _, err := ParseEnd("maybe"); err == nil {
		t.Error("maybe is taken for an end")
	}
}

// A remote that cannot be called executes nothing, and says so.
func TestAMissingRemoteIsNotExecuted(t *testing.T) {
	code, err := Execute(filepath.Join(t.TempDir(), "nowhere"), Commit)
	if err == nil || code != notExecutedExit {
		t.Errorf("exit code %s, %v", strconv.Itoa(code), err)
	}
}
