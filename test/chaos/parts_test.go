package chaos

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
	for range 4 {
		for _, point := range writes {
			c.progress = progressForFrequent
			if _, found := c.take(point); !found {
				t.Errorf("nothing is done at %s", point)
			}
		}
	}
	for _, x := range c.coverage([]proxy.Count{{Point: proxy.PointAdmit, N: 7}, {Kind: proxy.KindLate, Point: proxy.PointAdmit, N: 3}}) {
		if x.KilledBefore != 1 || x.KilledAfter != 1 || x.StopBefore != 1 || x.StopAfter != 1 || x.total() != 4 {
			t.Errorf("after four times each: %+v", x)
		}
		if want := map[string]int{proxy.PointAdmit: 7}[x.Point]; x.Made != want {
			t.Errorf("%s was sent %d times, want %d", x.Point, x.Made, want)
		}
	}
	c.progress = progressForAgain
	if x, found := c.take(proxy.PointAdmit); !found || c.done[x] != 2 {
		t.Error("once all of them were done, none is done again")
	}
	if _, found := c.take(proxy.PointAdmit); found {
		t.Error("operators get nowhere between two crashes")
	}
	if _, found := c.take("Action.list"); found {
		t.Error("an operator is ended at what is no write of the protocol")
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
			Length: Long, Overlaps: 1, Crashes: []Coverage{{Point: proxy.PointAdmit, KilledAfter: 1}}, Verdict: judge.Verdict{Ambiguous: 1},
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
		"the plugin":                    func(r *Report) { r.Plugin.ExitCode = 1 },
		"something unsettled":           func(r *Report) { r.Unsettled = []string{"x"} },
		"nothing ambiguous":             func(r *Report) { r.Verdict.Ambiguous = 0 },
		"no overlap":                    func(r *Report) { r.Overlaps = 0 },
		"a write without a crash":       func(r *Report) { r.Crashes[0].KilledAfter = 0 },
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
