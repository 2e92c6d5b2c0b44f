package desk

import (
	"context"
	"slices"
	"testing"
)

func open(t *testing.T, heard func(Progress)) (*Desk, Client) {
	t.Helper()
	d, err := Open(func(_ context.Context, p Progress) { heard(p) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Shut() })
	return d, Client{URL: d.URL(), Agent: "one"}
}

func inFlight(d *Desk, agent string) (works []string) {
	for _, p := range d.InFlight(agent) {
		works = append(works, p.Work+" "+string(p.Stage))
	}
	return works
}

func TestTheDeskKnowsWhoDoesWhat(t *testing.T) {
	var heard []Progress
	d, c := open(t, func(p Progress) { heard = append(heard, p) })
	take := func(want string) {
		t.Helper()
		if item, found, err := c.Take(t.Context()); err != nil || item.Work != want || found != (want != "") {
			t.Errorf("took %q, %t, %v; want %q", item.Work, found, err, want)
		}
	}
	tell := func(work string, stage Stage) {
		t.Helper()
		if err := c.Tell(t.Context(), Progress{Work: work, Stage: stage, ActionUID: "uid-" + work}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(agent string, want ...string) {
		t.Helper()
		if got := inFlight(d, agent); !slices.Equal(got, want) {
			t.Errorf("in flight of %q: %v, want %v", agent, got, want)
		}
	}
	take("")
	d.Add(Item{Work: "a"}, Item{Work: "b"})
	take("a")
	take("b")
	expect("one", "a given", "b given")
	expect("two")
	tell("a", StageAdmitted)
	expect("", "a admitted", "b given")
	if len(heard) != 1 || heard[0].Work != "a" || heard[0].Agent != "one" {
		t.Errorf("heard %+v", heard)
	}
	tell("b", StageEnded)
	expect("one", "a admitted")
	d.Dead("one")
	expect("one")
	tell("a", StageExecuted) // what a process said before it died, heard late
	expect("one")
	if p, _, found := d.Find(func(p Progress) bool { return p.ActionUID == "uid-a" }); !found || p.Stage != StageAdmitted {
		t.Errorf("of a dead agent's work: %+v, %t", p, found)
	}
	d.Add(Item{Work: "c"})
	d.Close()
	d.Add(Item{Work: "d"})
	all, a := d.Given(func(string) bool { return true }), d.Given(func(work string) bool { return work == "a" })
	if d.Waiting() != 1 || all != 2 || a != 1 {
		t.Errorf("%d waiting, %d given, of them %d named a", d.Waiting(), all, a)
	}
	take("c")
	take("")
}

func TestWorkThatIsForSomebody(t *testing.T) {
	d, _ := open(t, func(Progress) {})
	d.Add(Item{Work: "a", For: "sleeper"}, Item{Work: "b", For: "agent"}, Item{Work: "c", For: "sleeper"})
	for _, test := range []struct{ agent, want string }{
		{"agent-1", "b"}, {"agent-2", ""}, {"sleeper-1", "a"}, {"sleeper-2", "c"}, {"sleeper-1", ""},
	} {
		item, _, err := Client{URL: d.URL(), Agent: test.agent}.Take(t.Context())
		if err != nil || item.Work != test.want {
			t.Errorf("%s took %q, %v; want %q", test.agent, item.Work, err, test.want)
		}
	}
}
