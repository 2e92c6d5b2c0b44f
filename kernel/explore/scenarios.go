package explore

import "time"

// Scenarios are the worlds that are explored, each for a few features, so that each can be followed far.
func Scenarios() []Scenario {
	lapse := []time.Duration{leaseOver}
	return []Scenario{
		{
			Name: "allow", About: "two actions want one effect; nobody is asked",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 3, Short: true,
		},
		{
			Name: "whole passes", About: "passes that go on after their writes, and stand before their reads",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 2, Pauses: true, Conflicts: true,
		},
		{
			Name: "three", About: "three actions want one effect, one after the other",
			Actions: refunds(3), Policies: []Policy{allow()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 2, Short: true,
		},
		{
			Name: "approve", About: "two people are asked; one says no, one is asked something else, the agent says yes",
			Actions: refunds(1), Policies: []Policy{approve(2)}, Ticks: []time.Duration{leaseOver, 1000 * time.Second},
			Answers: []Answer{{Approver: carol}, {Approver: dave}, {Approver: dave, Denied: true}, {Approver: alice}},
			Second:  true, Passes: 2, Stale: 2, Short: true,
		},
		{
			Name: "another", About: "an approval of another hash, key and type",
			Actions: refunds(1), Policies: []Policy{approve(1)}, Ticks: []time.Duration{1000 * time.Second},
			Answers: []Answer{{Approver: carol, Wrong: "hash"}, {Approver: dave, Wrong: "key"}, {Approver: erin, Wrong: "type"}},
			Second:  true, Passes: 2, Stale: 2, Short: true,
		},
		{
			Name: "claims", About: "two actions that people approve, two processes for each, one effect",
			Actions: refunds(2), Policies: []Policy{approve(1)}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}, {Action: 1, Approver: carol}},
			Second:  true, NotExecuted: true, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "rival", About: "another agent claims, and takes the name of the lock; processes do not know, or give up",
			Actions: refunds(1), Policies: []Policy{allow()}, Ticks: []time.Duration{claimOver, leaseOver},
			Rival: true, Second: true, GiveUp: true, Unknown: true, NotExecuted: true, Passes: 2, Stale: 3, Short: true,
		},
		{
			Name: "resolve", About: "an effect that nobody knows of is resolved, rightly and wrongly, and tried again",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse, NotExecuted: true, Unknown: true,
			Resolutions: []Resolution{{}, {Wrong: "hash"}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "edits", About: "the policy allows, then asks, then wants another key, then denies",
			Actions: refunds(2), Policies: []Policy{allow(), approve(1), allowOtherKey(), deny()}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "retention", About: "finished actions and what was said about them are deleted",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: []time.Duration{leaseOver, leaseOver}, Retention: 5 * time.Minute,
			NotExecuted: true, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "loss", About: "a record loses its status, as a restore does it",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse, Drops: 1,
			NotExecuted: true, Resolutions: []Resolution{{}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "gap", About: "admission is away for a time; people forge and delete",
			Actions: refunds(2), Policies: []Policy{approve(1)}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}}, Gap: true, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "executor", About: "the operator executes, with two workers",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse, Executor: true, Passes: 2, Stale: 2, Short: true,
		},
	}
}
