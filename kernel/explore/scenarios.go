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
			Name: "operators", About: "three requests of operators on their way at once",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse,
			NotExecuted: true, Unknown: true, Passes: 3, Stale: 2, Short: true,
		},
		{
			Name: "one", About: "one action, and passes that go on after their writes, answered or refused, and stand before their reads",
			Actions: refunds(1), Policies: []Policy{allow()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 2, Pauses: true, Conflicts: true,
		},
		{
			Name: "whole passes", About: "the same with two actions that want one effect",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 2, Pauses: true, Conflicts: true, States: 300000,
		},
		{
			Name: "one at a time", About: "one whole pass at a time over two actions, while all else goes on; the effect is resolved",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse, NotExecuted: true, Unknown: true,
			Resolutions: []Resolution{{}}, Passes: 1, Stale: 1, Pauses: true, Conflicts: true, States: 200000,
		},
		{
			Name: "three", About: "three actions want one effect, one after the other",
			Actions: refunds(3), Policies: []Policy{allow()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "ceiling", About: "two actions want one effect that may be tried once",
			Actions: refunds(2), Policies: []Policy{allowOnce()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "odd", About: "arguments that cannot be hashed, another agent, and an action that is wanted for a minute",
			Actions:  []Proposal{{Agent: alice, Claim: true, Arguments: `{"amount":1.5,"payment_id":"txn_1"}`}, {Agent: bob, Claim: true, Arguments: refund, NotAfter: time.Minute}},
			Policies: []Policy{allow()}, Ticks: lapse, NotExecuted: true, Passes: 2, Stale: 2, Short: true,
		},
		{
			Name: "no key", About: "an action without an effect key, which has no record; a rival",
			Actions: refunds(1), Policies: []Policy{allowWithoutKey()}, Ticks: lapse,
			Rival: true, Second: true, NotExecuted: true, Unknown: true, Passes: 2, Stale: 2, Short: true,
		},
		{
			Name: "people", About: "two people are asked; one says yes twice, one says yes and no",
			Actions: refunds(1), Policies: []Policy{approve(2)}, Ticks: []time.Duration{questionOver},
			Answers: []Answer{{Approver: carol}, {Approver: carol}, {Approver: dave}, {Approver: dave, Denied: true}},
			Passes:  2, Stale: 2, Short: true,
		},
		{
			Name: "another", About: "people approve another hash, key and type; the agent approves; somebody comes too late",
			Actions: refunds(1), Policies: []Policy{approve(1)}, Ticks: []time.Duration{questionOver},
			Answers: []Answer{{Approver: carol, Wrong: "hash"}, {Approver: dave, Wrong: "key"}, {Approver: erin, Wrong: "type"}, {Approver: alice}, {Approver: carol}},
			Passes:  2, Stale: 1, Short: true,
		},
		{
			Name: "claims", About: "two actions that people approve, two processes for each, one effect",
			Actions: refunds(2), Policies: []Policy{approve(1)}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}, {Action: 1, Approver: carol}},
			Second:  true, NotExecuted: true, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "rival", About: "another agent claims, and takes the name of the lock; processes do not know, or give up",
			Actions: refunds(1), Policies: []Policy{allow()}, Ticks: []time.Duration{claimOver, leaseOver},
			Rival: true, Second: true, GiveUp: true, Unknown: true, NotExecuted: true, Passes: 2, Stale: 2, Short: true, States: 200000,
		},
		{
			Name: "resolve", About: "an effect that nobody knows of is resolved, rightly and wrongly, and tried again",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse, NotExecuted: true, Unknown: true,
			Resolutions: []Resolution{{}, {Wrong: "hash"}}, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "resolvers", About: "two people have to say the same of an effect; one says it by two names",
			Actions: refunds(1), Policies: []Policy{resolvedBy(2)}, Ticks: lapse, Unknown: true, People: [][]string{{carol, "c.jones"}},
			Resolutions: []Resolution{{By: carol}, {By: "c.jones"}, {By: dave}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "disputed", About: "two people have to say the same; both err, and one takes it back; by then the policy would ask one",
			Actions: refunds(1), Policies: []Policy{resolvedBy(2), resolvedBy(1)}, Ticks: lapse, Unknown: true,
			Resolutions: []Resolution{{By: carol, Errs: true}, {By: carol}, {By: dave, Errs: true}}, Passes: 2, Stale: 1, Short: true, States: 150000,
		},
		{
			Name: "more resolvers", About: "one person has to say what happened, then two",
			Actions: refunds(1), Policies: []Policy{resolvedBy(1), resolvedBy(2)}, Unknown: true,
			Resolutions: []Resolution{{By: carol}, {By: dave}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "edits", About: "the policy allows, then asks, then wants another key, then denies",
			Actions: refunds(2), Policies: []Policy{allow(), approve(1), allowOtherKey(), deny()}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}}, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "one edited", About: "the same with one action, which gets further",
			Actions: refunds(1), Policies: []Policy{allow(), approve(1), allowOtherKey(), deny()}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}}, Passes: 2, Stale: 1, Short: true, States: 150000,
		},
		{
			Name: "more people", About: "the policy asks one person, then two",
			Actions: refunds(1), Policies: []Policy{approve(1), approve(2)}, Ticks: []time.Duration{questionOver},
			Answers: []Answer{{Approver: carol}, {Approver: dave}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "retention", About: "finished actions and what was said about them are deleted",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: []time.Duration{leaseOver, leaseOver}, Retention: 5 * time.Minute,
			NotExecuted: true, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "loss", About: "a record loses its status, as a restore does it",
			Actions: refunds(2), Policies: []Policy{allow()}, Drops: 1,
			NotExecuted: true, Resolutions: []Resolution{{}}, Passes: 2, Stale: 1, Short: true, States: 250000,
		},
		{
			Name: "gap", About: "admission is away for a time; people propose, approve and report in others' names, and delete",
			Actions: refunds(1), Policies: []Policy{approve(1)}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}}, Gap: true, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "gap and rest", About: "admission is away while two actions want one effect, and somebody deletes",
			Actions: refunds(2), Policies: []Policy{allow()}, Ticks: lapse, Gap: true, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "gap and claims", About: "admission is away while an action waits for a claim, and somebody claims it",
			Actions: []Proposal{{Agent: alice, Arguments: refund}}, Policies: []Policy{allow()}, Ticks: lapse,
			Second: true, Gap: true, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "grants", About: "what an agent may propose is granted, narrowed, and granted again where the policy denies; its credential ends",
			Actions:  []Proposal{{Agent: alice, Arguments: refund, Expires: time.Minute}},
			Policies: []Policy{allow().with(granted(100)), allow().with(granted(50)), deny().with(granted(100))}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 2, Short: true,
		},
		{
			Name: "delegation", About: "a delegation of a delegation gets its verdict, and the one above it is revoked, while people are asked",
			Actions: refunds(1), Policies: []Policy{approve(1).with(delegated(false)), approve(1).with(delegated(true)), approve(1).with(delegated(true, "to-team"))}, Ticks: lapse,
			Answers: []Answer{{Approver: carol}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "whole authority", About: "the same, by whole passes, of an action that nobody has to approve",
			Actions: refunds(1), Policies: []Policy{allow().with(delegated(false)), allow().with(delegated(true)), allow().with(delegated(true, "to-team"))},
			NotExecuted: true, Passes: 2, Stale: 1, Pauses: true, Conflicts: true,
		},
		{
			Name: "entitlement", About: "the right to approve is taken from who approved, and given back; somebody else approves",
			Actions: refunds(1), Policies: []Policy{approve(1)}, Ticks: []time.Duration{questionOver}, Unentitled: carol,
			Answers: []Answer{{Approver: carol}, {Approver: dave}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "persons", About: "two people are asked; one answers by two names, and who asks by another one",
			Actions: refunds(1), Policies: []Policy{approve(2)}, Ticks: []time.Duration{questionOver}, People: [][]string{{carol, "c.jones"}, {alice, "alice"}},
			Answers: []Answer{{Approver: carol}, {Approver: "c.jones"}, {Approver: "alice"}, {Approver: dave}}, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "observe", About: "two actions want one effect while it is enforced, observed, and enforced again",
			Actions: refunds(2), Policies: []Policy{allow(), allow().observed(), allow()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 1, Short: true, States: 200000,
		},
		{
			Name: "one observed", About: "the same with one action, which gets further",
			Actions: refunds(1), Policies: []Policy{allow(), allow().observed(), allow()}, Ticks: lapse,
			NotExecuted: true, Unknown: true, Passes: 2, Stale: 2, Short: true,
		},
		{
			Name: "observed refusals", About: "what neither authority nor the policy lets pass runs while it is observed, and not before or after",
			Actions: refunds(1), Policies: []Policy{deny(), allow().with(granted(50)).observed(), deny().with(granted(100)).observed(), deny()}, Ticks: lapse,
			NotExecuted: true, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "observed people", About: "people are asked, then it is observed, then they are asked again; one says yes, one no",
			Actions: refunds(1), Policies: []Policy{approve(1), approve(1).observed(), approve(1)}, Ticks: []time.Duration{questionOver},
			Answers: []Answer{{Approver: carol}, {Approver: dave, Denied: true}}, Passes: 2, Stale: 1, Short: true, States: 150000,
		},
		{
			Name: "observed executor", About: "the operator executes what is observed, and then what is enforced",
			Actions: wantedFor(12*time.Hour, refunds(2)), Policies: []Policy{deny().observed(), allow()}, Ticks: lapse, Executor: true, Passes: 2, Stale: 1, Short: true,
		},
		{
			Name: "observed retention", About: "what was observed without its effect is deleted, while another action has the effect",
			Actions: refunds(2), Policies: []Policy{allow(), allow().observed()}, Ticks: []time.Duration{leaseOver, leaseOver}, Retention: 5 * time.Minute,
			NotExecuted: true, Passes: 2, Stale: 1, Short: true, States: 100000,
		},
		{
			Name: "observed loss", About: "a record loses its status while it is observed, and after that",
			Actions: refunds(2), Policies: []Policy{allow().observed(), allow()}, Drops: 1,
			NotExecuted: true, Resolutions: []Resolution{{}}, Passes: 2, Stale: 1, Short: true, States: 100000,
		},
		{
			Name: "executor", About: "the operator executes, with two workers",
			Actions: wantedFor(12*time.Hour, refunds(2)), Policies: []Policy{allow()}, Ticks: lapse, Executor: true, Passes: 2, Stale: 3, Short: true,
		},
	}
}
