package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
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
	const want = `kubectl ctrlrun  v1, catalogue ctrlrun.dev/guarantees/v1alpha4
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

// After anything but a clear no the namespace may be there, or come.
func TestWhenANamespaceMayStillCome(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"forbidden":             {apierrors.NewForbidden(namespaces, "x", errors.New("no")), true},
		"not valid":             {apierrors.NewBadRequest("no"), true},
		"too many requests":     {apierrors.NewTooManyRequestsError("later"), true},
		"the name is taken":     {apierrors.NewAlreadyExists(namespaces, "x"), false},
		"the apiserver is slow": {apierrors.NewTimeoutError("slow", 1), false},
		"it is late":            {apierrors.NewServerTimeout(namespaces, "create", 1), false},
		"something is broken":   {apierrors.NewInternalError(errors.New("etcd")), false},
		"no answer":             {io.ErrUnexpectedEOF, false},
		"interrupted":           {context.Canceled, false},
	} {
		if got := refused(fmt.Errorf("create: %w", test.err)); got != test.want {
			t.Errorf("%s: refused: %t, want %t", name, got, test.want)
		}
	}
}

// Every guarantee of the catalogue that has a control is checked by something, and the others are applicable to no policy.
func TestEveryGuaranteeHasAScenario(t *testing.T) {
	p, err := NewPolicy("p", "payments/p", "7", 1, map[string]any{"a.b": map[string]any{"decision": "approve"}})
	if err != nil {
		t.Fatal(err)
	}
	sources, err := Sources([]Policy{p})
	if err != nil {
		t.Fatal(err)
	}
	plans, err := guarantees.Plans(sources, "production", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	all, checked := scenarios(), 0
	for i, g := range guarantees.All() {
		switch {
		case g.Control == "" && plans[i].NotApplicable == "":
			t.Errorf("%s has no control, and is applicable", g.ID)
		case g.Control != "":
			checked++
			if all[g.ID] == nil {
				t.Errorf("%s has no scenario", g.ID)
			}
		}
	}
	if len(all) != checked {
		t.Errorf("%d scenarios for %d guarantees", len(all), checked)
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
	o, err := p.object("scratch", "")
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

// Where groups are asked the one of the scratch namespace is asked too, and nowhere else.
func TestGroupsThatAreAsked(t *testing.T) {
	full := `"g1","g2","g3","g4","g5","g6","g7","g8","g9","g10","g11","g12","g13","g14","g15"`
	actions, err := canonical.Parse([]byte(`{"a.b":{"decision":"approve"},"c.d":{"decision":"approve","approverGroups":["finance"]},
		"e.f":{"decision":"approve","approverGroups":[` + full + `,"g16"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPolicy("p", "payments/p", "", 1, actions)
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string][]string{
		"":      {`"a.b":{"decision":"approve"}`, `"approverGroups":["finance"]`, `"approverGroups":[` + full + `,"g16"]`},
		"there": {`"a.b":{"decision":"approve"}`, `"approverGroups":["finance","there"]`, `"approverGroups":[` + full + `,"there"]`},
		"twice": {`"a.b":{"decision":"approve"}`, `"approverGroups":["finance","twice"]`, `"approverGroups":[` + full + `,"twice"]`},
	} {
		o, err := p.object("scratch", group)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(string(text), part) {
				t.Errorf("%q: %s has no %s", group, text, part)
			}
		}
	}
}

// A copy of a grant differs in whom it is for, and, if it ends too soon, in its end.
func TestGrantsAreCopied(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const terms = `"actions":["a.*"],"constraints":{"n_lte":9007199254740993},"resources":["r:*"],"environments":["staging"]`
	for name, test := range map[string]struct{ spec, want string }{
		"it never ends":   {`{"subject":{"agent":"x","user":"y"},` + terms + `}`, `{` + terms + `,"subject":{"agent":"it"}}`},
		"it ends later":   {`{"subject":{"user":"y"},"expirationTime":"2030-01-01T02:00:00+01:00","delegable":true,` + terms + `}`, `{"delegable":true,"expirationTime":"2030-01-01T02:00:00+01:00",` + terms + `,"subject":{"agent":"it"}}`},
		"it ends soon":    {`{"subject":{"agent":"*"},"expirationTime":"2030-01-01T00:59:59Z",` + terms + `}`, `{"expirationTime":"2030-01-01T02:00:00Z",` + terms + `,"subject":{"agent":"it"}}`},
		"it is long over": {`{"subject":{"agent":"*"},"expirationTime":"2020-01-01T00:00:00Z",` + terms + `}`, `{"expirationTime":"2030-01-01T02:00:00Z",` + terms + `,"subject":{"agent":"it"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "g"}}
			if err := json.Unmarshal([]byte(test.spec), &o.Spec); err != nil {
				t.Fatal(err)
			}
			g, err := NewGrant(o)
			if err != nil || !g.Copied {
				t.Fatalf("%v, copied: %t", err, g.Copied)
			}
			want, err := canonical.Parse([]byte(test.want))
			if err != nil {
				t.Fatal(err)
			}
			if got := g.copied("it", now); !canonical.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

func TestGrantsThatAreNotCopied(t *testing.T) {
	for spec, problem := range map[string]string{
		`{"grantType":"BreakGlass","maxDurationSeconds":600,"subject":{"agent":"*"},"actions":["**"]}`: "",
		`{"subject":{"agent":"*"},"actions":["a..b"]}`:                                                 "the grant payments/g is not valid, and lets nobody propose: spec.actions",
	} {
		o := &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "g"}}
		if err := json.Unmarshal([]byte(spec), &o.Spec); err != nil {
			t.Fatal(err)
		}
		g, err := NewGrant(o)
		var unusable *UnusableError
		switch {
		case problem == "" && (err != nil || g.Copied):
			t.Errorf("%v, copied: %t", err, g.Copied)
		case problem != "" && (!errors.As(err, &unusable) || !strings.HasPrefix(err.Error(), problem)):
			t.Errorf("%v, want %s", err, problem)
		}
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
	all := guarantees.All()
	g11 := all[slices.IndexFunc(all, func(g guarantees.Guarantee) bool { return g.ID == guarantees.G11 })]
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
	if how, pids, is := strings.Cut(os.Getenv(stalling), "|"); is {
		stall(how, pids)
	}
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

// stalling is how this test is started again as a process of a race that goes wrong: how, and the directory where each of them leaves
// its pid.
const stalling = "VERIFY_TEST_STALL"

const (
	deaf = "deaf" // it does not read what it is to do, and stays
	late = "late" // the one for action a is at the start, and stays; the other does not come
)

func stall(how, pids string) {
	if os.WriteFile(filepath.Join(pids, strconv.Itoa(os.Getpid())), nil, 0o600) != nil {
		os.Exit(99)
	}
	if how == late {
		var entry Entry
		if json.NewDecoder(os.Stdin).Decode(&entry) != nil || entry.Action != "a" {
			os.Exit(1)
		}
		fmt.Println(ready)
	}
	_ = os.Stdin.Close()
	time.Sleep(time.Minute)
}

// pidsIn are the processes that were started.
func pidsIn(t *testing.T, dir string) []int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// A race that cannot be held does not wait for those who came, nor leave one of them behind.
func TestProcessesOfARaceAreStopped(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, test := range map[string]struct {
		token     string
		processes int
		says      string
	}{
		late: {"t", 2, "did not come to the start"},
		deaf: {strings.Repeat("more than a pipe takes", 1<<16), 1, "what to do"},
	} {
		t.Run(how, func(t *testing.T) {
			pids := t.TempDir()
			t.Setenv(stalling, how+"|"+pids)
			s := &stage{
				scratch: &scratch{config: &rest.Config{Host: "https://cluster.example"}, agent: &identity{token: test.token}},
				run:     &run{Options: Options{Executable: self}},
			}
			begin := time.Now()
			err := s.contend(t.Context(), &remote{dir: t.TempDir()}, []string{"a", "b"})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			started := pidsIn(t, pids)
			if len(started) != test.processes {
				t.Errorf("%d processes, want %d", len(started), test.processes)
			}
			for _, pid := range started {
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("process %d is still there: %v", pid, err)
				}
			}
		})
	}
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

// A receipt says that a precondition moved if it has two fingerprints and no approvals, that it did not if it has one and some, and
// else neither.
func TestWhatAReceiptTellsOfAPrecondition(t *testing.T) {
	yes, one := []receipt.Approval{{}}, []receipt.Precondition{{}}
	for name, test := range map[string]struct {
		d             receipt.Document
		stayed, moved bool
	}{
		"it stayed":                      {receipt.Document{Preconditions: one, PreconditionAtRequest: "a", PreconditionAtRecheck: "a", Approvals: yes}, true, false},
		"it moved":                       {receipt.Document{Preconditions: one, PreconditionAtRequest: "a", PreconditionAtRecheck: "b"}, false, true},
		"it moved, and one was spent":    {receipt.Document{Preconditions: one, PreconditionAtRequest: "a", PreconditionAtRecheck: "b", Approvals: yes}, false, false},
		"it stayed, and none was spent":  {receipt.Document{Preconditions: one, PreconditionAtRequest: "a", PreconditionAtRecheck: "a"}, false, false},
		"it was never looked at again":   {receipt.Document{Preconditions: one, PreconditionAtRequest: "a"}, false, false},
		"nobody noted what it was":       {receipt.Document{Preconditions: one, PreconditionAtRecheck: "a", Approvals: yes}, false, false},
		"nothing is named":               {receipt.Document{PreconditionAtRequest: "a", PreconditionAtRecheck: "b"}, false, false},
		"nothing is named, nor compared": {receipt.Document{Approvals: yes}, false, false},
	} {
		if told(test.d, false) != test.stayed || told(test.d, true) != test.moved {
			t.Errorf("%s: stayed %t, moved %t", name, told(test.d, false), told(test.d, true))
		}
	}
}

// G16 changes a policy in nothing but its version, and always changes it.
func TestAnotherPolicyDecidesTheSame(t *testing.T) {
	for _, version := range []string{"", "7", "ctrlrun-verify", "ctrlrun-verify-2"} {
		p, err := NewPolicy("p", "payments/p", version, 1, map[string]any{"a.b": map[string]any{"decision": "approve"}})
		if err != nil {
			t.Fatal(err)
		}
		o := another(p)
		if o.Version == version || o.RulesHash != p.RulesHash || !reflect.DeepEqual(o.actions, p.actions) {
			t.Errorf("%q: %+v", version, o)
		}
	}
}
