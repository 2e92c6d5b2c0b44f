package explore

import (
	"slices"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// strange is a step that nobody knows.
type strange struct{ flow.Step }

// answering explores a scenario with a Next that answers otherwise.
func answering(t *testing.T, name string, otherwise func(flow.Snapshot, flow.Step) flow.Step) (Result, error) {
	t.Helper()
	all := Scenarios()
	x, err := newExplorer(all[slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })], Options{States: 20000})
	if err != nil {
		t.Fatal(err)
	}
	x.ask = func(s flow.Snapshot) flow.Step { return otherwise(s, flow.Next(s)) }
	return x.explore()
}

// What has no place in the world ends the exploration with an error.
func TestAnswersThatAreNotModelled(t *testing.T) {
	always := func(step flow.Step) func(flow.Snapshot, flow.Step) flow.Step {
		return func(flow.Snapshot, flow.Step) flow.Step { return step }
	}
	for name, c := range map[string]struct {
		otherwise func(flow.Snapshot, flow.Step) flow.Step
		want      string
	}{
		"a step":           {always(strange{}), "is no step"},
		"an object":        {always(flow.Read{Object: "TheMoon"}), "reads TheMoon"},
		"an effect":        {always(flow.Read{Object: flow.TheEffect, Name: "another"}), "reads effect another"},
		"an action":        {always(flow.WriteAction{Why: "end", UID: "a4-uid"}), "which the pass has not read"},
		"an action unread": {always(flow.WriteAction{Why: "end", UID: "a2-uid"}), "which the pass has not read"},
		"a subject":        {always(flow.Append{Head: receipt.Start(), Document: receipt.Document{Kind: receipt.KindAction, SubjectUID: "a4-uid"}}), "a receipt of"},
		"answers to no action": {func(s flow.Snapshot, step flow.Step) flow.Step {
			if s.Action.Action == nil {
				return flow.Read{Object: flow.TheAnswers}
			}
			return step
		}, "pass over -1 reads"},
		"a record's holder": {func(_ flow.Snapshot, step flow.Step) flow.Step {
			if write, ok := step.(flow.WriteEffect); ok && write.Status.Holder != nil {
				holder := *write.Status.Holder
				holder.UID, write.Status.Holder = "a4-uid", &holder
				return write
			}
			return step
		}, "held by"},
		"an action's effect": {func(_ flow.Snapshot, step flow.Step) flow.Step {
			if write, ok := step.(flow.WriteAction); ok && write.Status.Effect != nil {
				write.Status.Effect = &flow.EffectRef{Name: "another", Key: "another"}
				return write
			}
			return step
		}, "names the effect another"},
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := answering(t, "allow", c.otherwise); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error with %q: %v, %v", c.want, err, r.Violation)
			}
		})
	}
}

// An action that lacks what it has to rest on is a violation, told with its trace.
func TestAnswersThatLackSomething(t *testing.T) {
	lacking := func(why string, lack func(*flow.Status)) func(flow.Snapshot, flow.Step) flow.Step {
		return func(_ flow.Snapshot, step flow.Step) flow.Step {
			if write, ok := step.(flow.WriteAction); ok && write.Why == why {
				lack(&write.Status)
				return write
			}
			return step
		}
	}
	for name, c := range map[string]struct {
		otherwise func(flow.Snapshot, flow.Step) flow.Step
		scenario  string
		want      string
	}{
		"a question":       {lacking(flow.WhyAdmit, func(s *flow.Status) { s.Ask = nil }), "more people", invariantAuthorised},
		"a policy":         {lacking(flow.WhyAdmit, func(s *flow.Status) { s.Policy = nil }), "allow", invariantAuthorised},
		"an authority":     {lacking(flow.WhyAdmit, func(s *flow.Status) { s.Authority = nil }), "delegation", invariantAuthorised},
		"a mark":           {lacking(flow.WhyAdmit, func(s *flow.Status) { s.WouldHave = nil }), "one observed", invariantObserved},
		"how it went":      {lacking(flow.WhyFinish, func(s *flow.Status) { s.Outcome = "" }), "one observed", invariantObserved},
		"an attempt":       {lacking(flow.WhyAdmit, func(s *flow.Status) { s.Effect.Attempt = 0 }), "allow", invariantOneAdmission},
		"an execution":     {lacking(flow.WhyEnd, func(s *flow.Status) { s.State = flow.Failed }), "allow", invariantAPI},
		"a claimable time": {lacking(flow.WhyClaimable, func(s *flow.Status) { s.ClaimableTime = nil }), "gap and claims", invariantRest},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := answering(t, c.scenario, c.otherwise)
			if err != nil || r.Violation == nil || r.Violation.Invariant != c.want || len(r.Trace) < 2 {
				t.Errorf("want %q: %v, %v\n%s", c.want, err, r.Violation, strings.Join(r.Trace, "\n"))
			}
		})
	}
}
