package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/chaos/desk"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/proxy"
	"ctrlrun.dev/operator/test/chaos/remote"
	"ctrlrun.dev/operator/test/testenv"
)

func TestASeedGivesTheSamePlan(t *testing.T) {
	one, same, other := plan(1, 200, "url"), plan(1, 200, "url"), plan(2, 200, "url")
	if !reflect.DeepEqual(one, same) {
		t.Error("the same seed gives another plan")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("another seed gives the same plan")
	}
	work, payments, kinds := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, i := range one {
		work[i.Work] = true
		payments[i.ActionType+i.Arguments["payment"].(string)]++
		kinds[i.ActionType+" "+i.Patience.String()+" "+i.For]++
	}
	rivals := 0
	for _, n := range payments {
		if n > 1 {
			rivals++
		}
	}
	if len(one) != 200 || len(work) != 200 || rivals == 0 || len(kinds) != 4 {
		t.Errorf("%d pieces of work, %d names, %d keys with rivals, kinds %v", len(one), len(work), rivals, kinds)
	}
}

func TestASeedGivesTheSameFaults(t *testing.T) {
	r := proxy.Request{Client: "operator-a", Verb: "update", Point: proxy.PointAdmit}
	draw := func(seed dice, n int) string {
		r.N = n
		kind, _, _ := (&faults{run: &run{dice: seed}}).draw(r)
		return kind
	}
	kinds := map[string]int{}
	for n := range 2000 {
		kind := draw(1, n)
		if draw(1, n) != kind {
			t.Fatalf("request %d meets %q, and then something else", n, kind)
		}
		kinds[kind]++
	}
	for _, want := range []string{"", "lost response", "late", "stall", "reset", "429", "409", "500"} {
		if kinds[want] == 0 {
			t.Errorf("nothing is ever %q: %v", want, kinds)
		}
	}
}

// TestEveryCrashComesUp: whoever waits long enough sees an operator killed and stopped on both sides of each write.
func TestEveryCrashComesUp(t *testing.T) {
	c := newCrashes(1)
	take := func(point string) {
		t.Helper()
		c.progress = progressForFrequent
		x, found := c.take(point)
		if !found {
			t.Errorf("nothing is done at %s", point)
			return
		}
		c.carriedOut(x)
	}
	for _, point := range required {
		take(point)
	}
	for round := range ways {
		for _, point := range writes {
			if round > 0 || !slices.Contains(required, point) {
				take(point)
			}
		}
	}
	for _, x := range c.coverage([]proxy.Count{{Point: proxy.PointAdmit, N: 7}, {Kind: proxy.KindLate, Point: proxy.PointAdmit, N: 3}}) {
		if x.KilledBefore != 1 || x.KilledAfter != 1 || x.StopBefore != 1 || x.StopAfter != 1 || len(x.missing()) != 0 {
			t.Errorf("after four times each: %+v", x)
		}
		if want := map[string]int{proxy.PointAdmit: 7}[x.Point]; x.Made != want {
			t.Errorf("%s was sent %d times, want %d", x.Point, x.Made, want)
		}
	}
	c.progress = progressForAgain
	if x, found := c.take(proxy.PointAdmit); !found || c.taken[x] != 2 {
		t.Error("once all of them were done, none is done again")
	}
	if _, found := c.take(proxy.PointAdmit); found {
		t.Error("operators get nowhere between two crashes")
	}
	if _, found := c.take("Action.list"); found {
		t.Error("an operator is ended at what is no write of the protocol")
	}
}

// TestNoCrashCountsBeforeItIsCarriedOut: one that failed, or whose write was refused, is up again, and the report knows of none.
func TestNoCrashCountsBeforeItIsCarriedOut(t *testing.T) {
	f := &faults{run: &run{Options: Options{Out: io.Discard}, crashes: newCrashes(1)}}
	f.crashes.todo = []crash{{proxy.PointAdmit, afterWrite, kill}}
	take := func() crash {
		t.Helper()
		f.crashes.progress = progressForRare
		x, found := f.crashes.take(proxy.PointAdmit)
		if !found {
			t.Fatal("it does not come up again")
		}
		return x
	}
	done := func() int { return f.crashes.done[f.crashes.todo[0]] }
	f.carryOut(take(), http.StatusConflict, func() error { t.Error("killed after a write that was not made"); return nil })
	f.carryOut(take(), proxy.Unanswered, func() error { t.Error("killed after a write that has no answer"); return nil })
	f.carryOut(take(), http.StatusOK, func() error { return errors.New("there is no process") })
	x := take()
	if done() != 0 {
		t.Errorf("%d are done, and none was", done())
	}
	f.carryOut(x, http.StatusCreated, func() error { return nil })
	if done() != 1 {
		t.Errorf("%d are done, and one was", done())
	}
}

// TestWhatIsRequiredComesFirst: however little time there is, and whatever else operators write, those come up. Then each
// write without a crash comes up after a few writes, frequent or not.
func TestWhatIsRequiredComesFirst(t *testing.T) {
	c := newCrashes(1)
	c.progress = progressForAgain
	if x, found := c.take(proxy.PointEnd); found {
		t.Errorf("%v comes before what is required", x)
	}
	for _, point := range required {
		for range progressForRare {
			c.take(point)
		}
		if c.at(point) != 1 {
			t.Errorf("%d at %s after %d writes", c.at(point), point, progressForRare)
		}
	}
	for range progressForRare {
		c.take(proxy.PointFinish)
	}
	if c.at(proxy.PointFinish) != 1 {
		t.Errorf("a frequent write that nothing was done at waits for more than %d writes", progressForRare)
	}
	for range progressForRare {
		c.take(proxy.PointFinish)
	}
	if c.at(proxy.PointFinish) != 1 {
		t.Error("a frequent write leaves no turn to others")
	}
}

// TestEnoughTurns: a slow takeover costs time, and not the run; without any it ends all the same.
func TestEnoughTurns(t *testing.T) {
	const length = 33 * time.Second
	for name, test := range map[string]struct {
		overlaps int64
		taken    time.Duration
		want     bool
	}{
		"one overtaken, no time for another": {1, 20 * time.Second, true},
		"none overtaken, the time is over":   {0, length + time.Second, false},
		"none overtaken after two tries":     {0, 2*takeover + 10*time.Second, false},
		"none overtaken for very long":       {0, longestTurns, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := enoughTurns(test.overlaps, test.taken, length); got != test.want {
				t.Errorf("enough is %t, want %t", got, test.want)
			}
		})
	}
	if enoughTurns(1, time.Minute, 10*time.Minute) {
		t.Error("a long storm has one turn only")
	}
}

// TestLossReceipts: each lost record has one, by the uid of what was made anew.
func TestLossReceipts(t *testing.T) {
	head := receipt.Start()
	store := func(kind, uid string) v1alpha1.Receipt {
		t.Helper()
		d := receipt.Document{
			Kind: kind, SubjectUID: uid, ClusterID: "cluster", Namespace: "payments", NamespaceUID: "namespace", EffectKey: "k", EffectName: "k",
			EffectUID: uid, Attempt: 1, Result: decision.Ambiguous, Reason: decision.StatusMissing, FinishedTime: time.Now(),
		}
		e, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		head, d.Seq = e.Link(), e.Seq
		return *records.Receipt("payments", e, d)
	}
	one, another := store(receipt.KindStatusMissing, "uid-1"), store(receipt.KindStatusMissing, "uid-2")
	losses, err := lossReceipts([]v1alpha1.Receipt{one, another})
	if err != nil || !losses["uid-1"] || !losses["uid-2"] || losses["uid-3"] {
		t.Errorf("receipts of %v, %v", losses, err)
	}
	if _, err := lossReceipts([]v1alpha1.Receipt{one, another, one}); err == nil {
		t.Error("two receipts of one record are none too many")
	}
	one.Spec.Document = "{}"
	if _, err := lossReceipts([]v1alpha1.Receipt{one}); err == nil {
		t.Error("a receipt that nobody can read is none")
	}
}

// TestWhoseFaultItIs: a fault is on record for the piece of work that it holds up, and for no other.
func TestWhoseFaultItIs(t *testing.T) {
	d, err := desk.Open(func(context.Context, desk.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Shut() })
	f := &faults{run: &run{
		desk: d, namespace: "payments", agents: map[string]*process{"agent-1": {}, "agent-2": {}}, agentUsers: []testenv.User{{Name: "robot"}},
	}}
	give(t, d, desk.Progress{Agent: "agent-1", Work: "a", Action: "pay-1", ActionUID: "uid-1", Stage: desk.StageProposed})
	give(t, d, desk.Progress{Agent: "agent-1", Work: "b", Stage: desk.StageGiven})
	give(t, d, desk.Progress{Agent: "agent-2", Work: "c", Action: "pay-3", ActionUID: "uid-3", Stage: desk.StageExecuted})
	give(t, d, desk.Progress{Agent: "agent-1", Work: "d", Action: "pay-4", ActionUID: "uid-4", Stage: desk.StageEnded})
	for name, test := range map[string]struct {
		r    proxy.Request
		want string
	}{
		"a proposal":            {proxy.Request{Client: "agent-1", Resource: "actions", Body: []byte(`{"spec":{"arguments":{"work":"b"}}}`)}, "b"},
		"a report":              {proxy.Request{Client: "agent-1", Resource: "outcomes", Body: []byte(`{"spec":{"actionRef":{"uid":"uid-1"}}}`)}, "a"},
		"a read of one's own":   {proxy.Request{Client: "agent-1", Resource: "actions", Name: "pay-1"}, "a"},
		"a read of another's":   {proxy.Request{Client: "agent-1", Resource: "actions", Name: "pay-3"}, "a b"},
		"a watch of all":        {proxy.Request{Client: "agent-1", Resource: "actions", Verb: "watch"}, "a b"},
		"a watch of one":        {proxy.Request{Client: "agent-1", Resource: "actions", Verb: "watch", Name: "pay-1"}, "a"},
		"a watch of a report":   {proxy.Request{Client: "agent-1", Resource: "outcomes", Verb: "watch", Name: "uid-1.claim.robot"}, "a"},
		"a watch of a claim":    {proxy.Request{Client: "agent-1", Resource: "claims", Verb: "watch", Name: "pay-1.robot.2"}, "a"},
		"a rival's claim":       {proxy.Request{Client: "agent-1", Resource: "claims", Verb: "watch", Name: "pay-1.2.robot"}, "a b"},
		"a request of a person": {proxy.Request{Client: "alice", Resource: "approvals", Body: []byte(`{"spec":{"actionRef":{"uid":"uid-1"}}}`)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, i := range f.hinders(test.r, time.Second) {
				if i.HoldUp != time.Second || !slices.Equal(i.Causes, lapse) || i.Namespace != "payments" {
					t.Errorf("on record as %+v", i)
				}
				got = append(got, i.Work)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("on record for %q, want %q", got, test.want)
			}
		})
	}
}

// give has a piece of work taken and told of, as an agent does.
func give(t *testing.T, d *desk.Desk, p desk.Progress) {
	t.Helper()
	c := desk.Client{URL: d.URL(), Agent: p.Agent}
	d.Add(desk.Item{Work: p.Work})
	if item, found, err := c.Take(t.Context()); err != nil || !found || item.Work != p.Work {
		t.Fatalf("took %+v, %t, %v", item, found, err)
	}
	if err := c.Tell(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// TestWhatMakesARunFail: every question of the judge, and what else a run must have shown.
func TestWhatMakesARunFail(t *testing.T) {
	healthy := func() *Report {
		return &Report{
			Length: Long, Wanted: 100, GivenInStorm: 90, Overlaps: 1, Killed: 1,
			Crashes: []Coverage{{Point: proxy.PointAdmit, KilledBefore: 1, KilledAfter: 1, StopBefore: 1, StopAfter: 1}, {proxy.PointWait, 4, 1, 1, 1, 1}},
			Verdict: judge.Verdict{Actions: 90, Executions: 1, Approved: 1, Ambiguous: resolvable, Resolved: 1}, Plugins: []Plugin{{}, {}},
			Control: judge.Verdict{Duplicates: []judge.Finding{{Rule: "executed more than once"}}, Unexplained: []judge.Finding{{}}},
		}
	}
	if p := healthy().Problems(); len(p) > 0 {
		t.Fatalf("a run as it should be has problems: %v", p)
	}
	one := []judge.Finding{{Rule: "x"}}
	for name, spoil := range map[string]func(*Report){
		"no duplicate in the control":   func(r *Report) { r.Control.Duplicates = nil },
		"no unexplained in the control": func(r *Report) { r.Control.Unexplained = nil },
		"something else in the control": func(r *Report) { r.Control.Lost = one },
		"a duplicate":                   func(r *Report) { r.Verdict.Duplicates = one },
		"something lost":                func(r *Report) { r.Verdict.Lost = one },
		"a wrong Failed":                func(r *Report) { r.Verdict.WrongFailed = one },
		"a broken chain":                func(r *Report) { r.Verdict.Chain = one },
		"an unexplained Ambiguous":      func(r *Report) { r.Verdict.Unexplained = one },
		"a broken chain of lost":        func(r *Report) { r.Loss = &judge.Verdict{Chain: one} },
		"the plugin":                    func(r *Report) { r.Plugins[1].ExitCode = 1 },
		"what the plugin may not see":   func(r *Report) { r.Plugins[0].Output = "not visible to you, and so not checked: the Ledger" },
		"work given out in calm":        func(r *Report) { r.GivenInStorm-- },
		"work that nobody proposed":     func(r *Report) { r.Verdict.Actions-- },
		"nothing executed":              func(r *Report) { r.Verdict.Executions = 0 },
		"nothing approved":              func(r *Report) { r.Verdict.Approved = 0 },
		"nothing resolved":              func(r *Report) { r.Verdict.Resolved = 0 },
		"no agent killed":               func(r *Report) { r.Killed = 0 },
		"something unsettled":           func(r *Report) { r.Unsettled = []string{"x"} },
		"nothing ambiguous":             func(r *Report) { r.Verdict.Ambiguous = 0 },
		"no overlap":                    func(r *Report) { r.Overlaps = 0 },
		"a write without a crash":       func(r *Report) { r.Crashes[1] = Coverage{Point: proxy.PointWait} },
		"a write without one of them":   func(r *Report) { r.Crashes[1].StopBefore = 0 },
		"a short run without a crash":   func(r *Report) { r.Length, r.Crashes[0] = Short, Coverage{Point: proxy.PointAdmit} },
	} {
		t.Run(name, func(t *testing.T) {
			r := healthy()
			spoil(r)
			if len(r.Problems()) != 1 {
				t.Errorf("problems: %v", r.Problems())
			}
			var out strings.Builder
			if err := r.Print(&out); err != nil || !strings.Contains(out.String(), "PROBLEM") {
				t.Errorf("printed %s, %v", out.String(), err)
			}
		})
	}
	short := healthy()
	short.Length, short.Crashes = Short, []Coverage{{Point: proxy.PointAdmit, KilledBefore: 1}, {Point: proxy.PointWait}}
	if p := short.Problems(); len(p) > 0 {
		t.Errorf("a short run that came to what it must has problems: %v", p)
	}
	if _, err := json.Marshal(healthy()); err != nil {
		t.Error(err)
	}
}

// TestTheRemoteIsRecordedBeforeItMisbehaves, and is no fault where it refuses, for that is an answer.
func TestTheRemoteIsRecordedBeforeItMisbehaves(t *testing.T) {
	r := &run{dice: 1, journal: judge.NewJournal(nil)}
	r.faults = &faults{run: r, mood: rough}
	seen := map[remote.Behaviour]int{}
	for n := range 1000 {
		before := len(r.journal.Injections())
		behaviour := r.behave(remote.Call{Work: strings.Repeat("w", n), EffectKey: "k", Attempt: 1})
		seen[behaviour]++
		want := 1
		if behaviour == remote.Execute || behaviour == remote.Refuse {
			want = 0
		}
		if got := len(r.journal.Injections()) - before; got != want {
			t.Fatalf("%s is on record %d times", behaviour, got)
		}
	}
	if len(seen) != 5 {
		t.Errorf("it did %v", seen)
	}
}
