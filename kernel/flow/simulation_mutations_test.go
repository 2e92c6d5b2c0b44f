package flow_test

import (
	"slices"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// mutation is a guard that is removed: in what Next is shown, in what it answers, or in the apiserver.
type mutation struct {
	// shown changes a snapshot before Next sees it.
	shown func(w *sim, s *flow.Snapshot)
	// answered changes the step.
	answered func(w *sim, s flow.Snapshot, step flow.Step) flow.Step
	// unguarded are writes that the apiserver takes whatever is there.
	unguarded map[string]bool
	// often is an event that is to happen more often, for what needs it is rare.
	often string
	// caught are the invariants of which one has to be found broken.
	caught []string
}

func (m *mutation) ask(w *sim, s flow.Snapshot) flow.Step {
	if m.shown != nil {
		m.shown(w, &s)
	}
	step := flow.Next(s)
	if m.answered != nil {
		step = m.answered(w, s, step)
	}
	return step
}

// mutations are the guards, each by what is done without it.
func mutations() map[string]*mutation {
	undecided := func(s *flow.Snapshot) bool { return s.Action.Action != nil && s.Action.Execution == nil }
	admitted := func(s *flow.Snapshot) bool { return s.Action.Action != nil && s.Action.Execution != nil }
	recorded := func(s *flow.Snapshot) bool { return s.Effect.Record != nil && s.Effect.Status != nil }
	return map[string]*mutation{
		"a holder that no cache has is gone": {
			caught: []string{invariantFailed, invariantExecutedOnce},
			shown: func(_ *sim, s *flow.Snapshot) {
				if recorded(s) && s.Holder.Presence == flow.Unread {
					s.Holder.Presence = flow.Absent
				}
			},
		},
		"orphans are not released": {
			caught: []string{invariantRest},
			answered: func(_ *sim, _ flow.Snapshot, step flow.Step) flow.Step {
				if write, ok := step.(flow.WriteEffect); ok && write.Why == flow.WhyRelease {
					return flow.Wait{}
				}
				return step
			},
		},
		"a failed attempt is renewed before its action is finished": {
			often:  "a proposal",
			caught: []string{invariantReport},
			shown: func(_ *sim, s *flow.Snapshot) {
				if undecided(s) && recorded(s) && s.Effect.Status.State == effect.Failed {
					s.Holder = flow.ActionRead{Presence: flow.Cached, Action: &flow.Action{Status: flow.Status{Receipt: &receipt.Link{}}}}
				}
			},
		},
		"a resolved attempt is renewed before its resolution is in the chain": {
			caught: []string{invariantRest},
			shown: func(_ *sim, s *flow.Snapshot) {
				if undecided(s) && recorded(s) && s.Effect.Status.Resolution != nil && !s.Chain.Read {
					id := receipt.Identity{Kind: receipt.KindResolution, SubjectUID: s.Effect.UID, Ordinal: s.Effect.Status.Attempt}
					s.Chain = flow.ChainRead{Read: true, Identity: id, Found: &receipt.Document{}}
				}
			},
		},
		"a lapse is declared by the clock, without the lock": {
			caught: []string{invariantReport, invariantFailed},
			shown: func(_ *sim, s *flow.Snapshot) {
				if admitted(s) && s.Lock.Outcome == nil && !s.Now.Before(s.Action.Execution.Lease.Add(flow.LapseGrace)) {
					o := flow.Outcome{Name: lockName(s.Action.Action), Result: flow.ReportUnknown, LeaseLapsed: true}
					s.Lock = flow.OutcomeRead{Presence: flow.Cached, Outcome: &o}
				}
			},
		},
		"a lapse frees the key": {
			caught: []string{invariantFailed, invariantExecutedOnce},
			answered: func(_ *sim, _ flow.Snapshot, step flow.Step) flow.Step {
				if write, ok := step.(flow.WriteEffect); ok && write.Status.State == effect.Ambiguous && write.Status.Cause == effect.LeaseLapsed {
					write.Status.State, write.Status.Cause = effect.Failed, ""
					return write
				}
				return step
			},
		},
		"a receipt is appended wherever the chain ends": {
			caught:    []string{invariantReceipt},
			unguarded: map[string]bool{"append": true},
		},
		"an admission overwrites": {
			caught:    []string{invariantAdmittedOnce},
			unguarded: map[string]bool{flow.WhyAdmit: true},
		},
		"a reservation overwrites": {
			caught:    []string{invariantAfterFailed},
			unguarded: map[string]bool{flow.WhyReserve: true},
		},
		"a renewal overwrites": {
			often:     "a proposal",
			caught:    []string{invariantAfterFailed, invariantFailed},
			unguarded: map[string]bool{flow.WhyRenew: true},
		},
		"an ambiguous attempt is renewed": {
			caught: []string{invariantAfterFailed},
			shown: func(_ *sim, s *flow.Snapshot) {
				if undecided(s) && recorded(s) && s.Effect.Status.State == effect.Ambiguous {
					record, status := *s.Effect.Record, *s.Effect.Status
					status.State, record.Status = effect.Failed, &status
					s.Effect.Record = &record
				}
			},
		},
		"an approval counts whatever its hash": {
			caught: []string{invariantSpentOnce},
			shown: func(_ *sim, s *flow.Snapshot) {
				s.Answers.Answers = slices.Clone(s.Answers.Answers)
				for i := range s.Answers.Answers {
					s.Answers.Answers[i].Hash = s.Action.Hash
				}
			},
		},
		"an approval counts whoever gives it": {
			caught: []string{invariantAuthorised},
			shown: func(_ *sim, s *flow.Snapshot) {
				s.Answers.Answers = slices.Clone(s.Answers.Answers)
				for i := range s.Answers.Answers {
					s.Answers.Answers[i].Approver = "somebody else" + s.Answers.Answers[i].Approver
				}
			},
		},
		"a denial that no cache has is overlooked": {
			caught: []string{invariantAuthorised},
			often:  "an answer",
			shown:  func(_ *sim, s *flow.Snapshot) { s.Answers.Presence = flow.Fresh },
		},
		"an approval counts however late": {
			caught: []string{invariantAuthorised},
			shown: func(_ *sim, s *flow.Snapshot) {
				s.Answers.Answers = slices.DeleteFunc(slices.Clone(s.Answers.Answers), func(a approval.Answer) bool { return !a.Approved })
				for i := range s.Answers.Answers {
					if s.Action.Ask != nil {
						s.Answers.Answers[i].Created = s.Action.Ask.Requested
					}
				}
			},
		},
		"authority is not asked": {
			caught: []string{invariantAuthorised},
			shown:  func(_ *sim, s *flow.Snapshot) { s.World.Required = false },
		},
		"the right to approve is not asked for again": {
			caught: []string{invariantAuthorised},
			shown: func(_ *sim, s *flow.Snapshot) {
				s.Answers.Answers = slices.Clone(s.Answers.Answers)
				for i := range s.Answers.Answers {
					s.Answers.Answers[i].Entitlement = approval.Entitled
				}
			},
		},
		"an observed admission is not marked": {
			caught: []string{invariantObserved, invariantOneAdmission},
			answered: func(_ *sim, _ flow.Snapshot, step flow.Step) flow.Step {
				if write, ok := step.(flow.WriteAction); ok && write.Why == flow.WhyAdmit {
					write.Status.WouldHave = nil
					return write
				}
				return step
			},
		},
		"an observed action settles the record of another's attempt": {
			often:  "a proposal",
			caught: []string{invariantOthers},
			shown: func(_ *sim, s *flow.Snapshot) {
				if admitted(s) && s.Action.WouldHave != nil && !s.Action.Reserves() && recorded(s) && s.Effect.Status.State == effect.Executing {
					a, e, status, holder := *s.Action.Action, *s.Action.Effect, *s.Effect.Status, effect.Holder{}
					e.Attempt = status.Attempt
					if status.Holder != nil {
						holder = *status.Holder
					}
					holder.UID = a.UID
					status.Holder, a.Effect = &holder, &e
					record := *s.Effect.Record
					record.Status, s.Action.Action, s.Effect.Record = &status, &a, &record
				}
			},
		},
		"what was said while admission was away counts": {
			caught: []string{invariantAdmission, invariantFailed},
			shown:  func(_ *sim, s *flow.Snapshot) { s.World.AdmissionSince = time.Time{} },
		},
		"anybody may claim": {
			caught: []string{invariantOneExecutor},
			shown: func(_ *sim, s *flow.Snapshot) {
				s.Claims.Claims = slices.Clone(s.Claims.Claims)
				for i := range s.Claims.Claims {
					s.Claims.Claims[i].Claimant = s.Action.Agent
				}
			},
		},
		"anybody may report": {
			caught: []string{invariantFailed},
			shown: func(_ *sim, s *flow.Snapshot) {
				if s.Lock.Outcome != nil {
					o := *s.Lock.Outcome
					o.Reporter, s.Lock.Outcome = s.Action.Agent, &o
				}
			},
		},
		"an action that is not admitted gets its receipt before its end": {
			caught: []string{invariantReceipt},
			answered: func(_ *sim, s flow.Snapshot, step flow.Step) flow.Step {
				write, ok := step.(flow.WriteAction)
				if !ok || write.Why != flow.WhyEnd || s.Action.Action == nil || write.UID != s.Action.UID {
					return step
				}
				ended := *s.Action.Action
				ended.Status = write.Status
				s.Action.Action = &ended
				if receipted := flow.Next(s); !isWriteAction(receipted) {
					return receipted
				}
				return step
			},
		},
		"an action ends as this pass sees it, not as its receipt says": {
			caught: []string{invariantReceipt, invariantReport},
			answered: func(_ *sim, s flow.Snapshot, step flow.Step) flow.Step {
				write, ok := step.(flow.WriteAction)
				if !ok || write.Why != flow.WhyFinish || !admitted(&s) {
					return step
				}
				s.Chain.Found, s.Lock.Presence = nil, flow.Fresh
				if own, ok := flow.Next(s).(flow.Append); ok && own.Document.Result != decision.Observed {
					write.Status.State = map[decision.Result]flow.State{decision.Committed: flow.Committed, decision.Failed: flow.Failed, decision.Ambiguous: flow.Ambiguous}[own.Document.Result]
				}
				return write
			},
		},
		"a lost record starts with attempt 1 again": {
			caught: []string{invariantOneAdmission, invariantReceipt, invariantRest},
			shown:  func(_ *sim, s *flow.Snapshot) { s.Key.Actions, s.Key.Receipts = nil, nil },
		},
		"a lost record takes the number of a resolved attempt": {
			caught: []string{invariantReceipt, invariantRest},
			shown: func(_ *sim, s *flow.Snapshot) {
				s.Key.Receipts = slices.Clone(s.Key.Receipts)
				for i := range s.Key.Receipts {
					s.Key.Receipts[i].EffectUID = ""
				}
			},
		},
		"a resolution is refused on what a cache says": {
			caught: []string{invariantVerdict},
			shown: func(_ *sim, s *flow.Snapshot) {
				if s.Action.Action == nil && s.Effect.Presence == flow.Cached {
					s.Effect.Presence = flow.Fresh
				}
			},
		},
	}
}

func isWriteAction(step flow.Step) bool {
	_, ok := step.(flow.WriteAction)
	return ok
}

// mutationRuns is how many seeds a mutation has; each is found within some hundred.
const mutationRuns int64 = 5000

// Each guard that is removed is missed, by the name of what it guards. So the simulation can fail, and says why.
func TestSimulationMissesEveryGuard(t *testing.T) {
	for name, m := range mutations() {
		t.Run(name, func(t *testing.T) {
			failed := explore(mutationRuns, m, func(w *sim) bool { return w.violation == nil })
			if failed == nil {
				t.Fatalf("nothing was found in %d runs", mutationRuns)
			}
			t.Logf("seed %d: %s", failed.seed, failed.violation)
			if !slices.Contains(m.caught, failed.violation.invariant) {
				t.Errorf("found as %q, want one of %q\n%s", failed.violation.invariant, m.caught, failed.story())
			}
		})
	}
}
