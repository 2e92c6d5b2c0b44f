package explore_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/explore"
)

// mustReach are writes, ends and verdicts that the scenarios come to, together: else what they prove is less than they say.
var mustReach = []string{
	"pin", "wait", "claimable", "admit", "end", "finish", "resolved", "reserve", "renew", "release", "settle", "lost", "late", "resolve", "lapse",
	"receipt of action", "receipt of resolution", "receipt of status-missing",
	"Committed ", "Failed ", "Failed never_began", "Ambiguous lease_lapsed", "Ambiguous reported_unknown", "Ambiguous outcome_not_accepted", "Ambiguous status_missing", "Ambiguous executor_lost",
	"Denied approval_denied", "Denied unrepresentable_argument", "Expired not_after", "Denied decision", "Expired approval_expired", "Expired not_claimed",
	"Blocked duplicate", "Blocked in_progress", "Blocked ambiguous", "Blocked not_admitted", "Blocked proposal_changed", "Blocked attempt_ceiling", "Blocked status_missing", "Blocked made_without_admission", "Blocked withdrawn",
	"verdict Accepted", "verdict Mismatch", "verdict MorePeopleRequired", "verdict DuplicateResolver", "verdict Superseded",
	"Denied no_authority", "Denied authority_constraint", "Denied authority_revoked", "Denied principal_expired", "admitted by a Grant", "admitted by a Delegation",
	"Observed ", "Observed reported_unknown", "Observed lease_lapsed", "observed ", "observed without a reservation",
	"observed duplicate", "observed in_progress", "observed policy_denied", "observed authority_constraint", "observed approval_required", "observed approval_denied",
}

// Every state of every scenario, as far as its bounds go, keeps the invariants.
func TestScenarios(t *testing.T) {
	var mu sync.Mutex
	reached, states := map[string]int{}, 0
	t.Run("explore", func(t *testing.T) {
		for _, s := range explore.Scenarios() {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				r, err := explore.Explore(s, explore.Options{States: budget})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d states, %d transitions, depth %d, exhausted: %t, %d recoveries", r.States, r.Transitions, r.Depth, r.Exhausted, r.Recovered)
				if budget == 0 && s.States == 0 && !r.Exhausted {
					t.Error("it has no bound, and there is a further state")
				}
				if r.Violation != nil {
					t.Errorf("%s\n%s", r.Violation, strings.Join(r.Trace, "\n"))
				}
				mu.Lock()
				defer mu.Unlock()
				states += r.States
				for what, n := range r.Reached {
					reached[what] += n
				}
			})
		}
	})
	t.Logf("%d states; %v", states, reached)
	if budget != 0 {
		return // too few states to come to everything
	}
	if states < 1_000_000 {
		t.Errorf("%d states are fewer than a million", states)
	}
	for _, what := range mustReach {
		if reached[what] == 0 {
			t.Errorf("%q is never reached; reached are %q", what, slices.Sorted(maps.Keys(reached)))
		}
	}
}

// A violation is told by the events that lead to it, writes numbered, and no order of fewer events leads to one.
func TestTrace(t *testing.T) {
	fault := explore.Options{Unguarded: map[string]bool{"admit": true}}
	scenario := explore.Scenarios()[0]
	r, err := explore.Explore(scenario, fault)
	if err != nil {
		t.Fatal(err)
	}
	if r.Violation == nil || !strings.HasPrefix(r.Violation.Invariant, "I11 ") {
		t.Fatalf("found is %v, want I11", r.Violation)
	}
	story := strings.Join(r.Trace, "\n")
	for _, part := range []string{"proposes a1", "W1, and the pass is over: pass over a1: reserve", "W4, and the pass is over: pass over a1: admit"} {
		if !strings.Contains(story, part) {
			t.Errorf("the trace lacks %q:\n%s", part, story)
		}
	}
	fault.Depth = r.Depth
	if r, err = explore.Explore(scenario, fault); err != nil || r.Violation != nil {
		t.Errorf("there is a shorter one: %v, %v", r.Violation, err)
	}
}

// The same scenario gives the same figures: a counterexample can be looked at again.
func TestExploreIsDeterministic(t *testing.T) {
	first, err := explore.Explore(explore.Scenarios()[1], explore.Options{States: 3000})
	if err != nil {
		t.Fatal(err)
	}
	second, err := explore.Explore(explore.Scenarios()[1], explore.Options{States: 3000})
	if err != nil {
		t.Fatal(err)
	}
	if first.States != second.States || first.Transitions != second.Transitions || first.Depth != second.Depth || first.Asked != second.Asked || !maps.Equal(first.Reached, second.Reached) {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

func authority(grant string) *explore.Authority {
	return &explore.Authority{Grants: map[string]string{"g": grant}}
}

func TestScenariosThatDoNotFit(t *testing.T) {
	keyed := func(template string) explore.Policy {
		return explore.Policy{Text: `{"stripe.refund":{"effect":"` + template + `","decision":"allow"}}`}
	}
	for name, c := range map[string]struct {
		change func(*explore.Scenario)
		want   string
	}{
		"no policy":            {func(s *explore.Scenario) { s.Policies = nil }, "has no policy"},
		"a policy is wrong":    {func(s *explore.Scenario) { s.Policies[0].Text = `{"stripe.refund":{"decision":"perhaps"}}` }, "perhaps"},
		"too many passes":      {func(s *explore.Scenario) { s.Passes = 4 }, "4 passes"},
		"too many actions":     {func(s *explore.Scenario) { s.Actions = make([]explore.Proposal, 4) }, "4 actions"},
		"too many answers":     {func(s *explore.Scenario) { s.Answers = make([]explore.Answer, 6) }, "6 answers"},
		"too many resolutions": {func(s *explore.Scenario) { s.Resolutions = make([]explore.Resolution, 4) }, "4 resolutions"},
		"too many effects":     {func(s *explore.Scenario) { s.Policies = append(s.Policies, keyed("b"), keyed("c")) }, "3 effects"},
		"an answer to nothing": {func(s *explore.Scenario) { s.Answers = []explore.Answer{{Action: 2}} }, "action 2"},
		"a right nobody uses":  {func(s *explore.Scenario) { s.Unentitled = "carol" }, "carol, who answers nothing"},
		"a grant is wrong":     {func(s *explore.Scenario) { s.Policies[0].Authority = authority(`{"actions":[]}`) }, "actions"},
		"a grant is no JSON":   {func(s *explore.Scenario) { s.Policies[0].Authority = authority(`{`) }, "double quotes"},
		"a delegation is wrong": {func(s *explore.Scenario) {
			s.Policies[0].Authority = &explore.Authority{Delegations: []explore.Delegation{{Name: "d", Text: `{"actions":[]}`}}}
		}, "delegation"},
		"a wrong answer":         {func(s *explore.Scenario) { s.Answers = []explore.Answer{{Wrong: "hsah"}} }, "hsah"},
		"a wrong resolution":     {func(s *explore.Scenario) { s.Resolutions = []explore.Resolution{{Wrong: "slef"}} }, "slef"},
		"a clock that goes on":   {func(s *explore.Scenario) { s.Ticks = []time.Duration{100 * time.Hour, 100 * time.Hour} }, "longer than"},
		"a clock that overruns":  {func(s *explore.Scenario) { s.Retention = math.MaxInt64 }, "longer than"},
		"a clock that goes back": {func(s *explore.Scenario) { s.Ticks = []time.Duration{-time.Second} }, "less than no time"},
	} {
		t.Run(name, func(t *testing.T) {
			s := explore.Scenarios()[0]
			c.change(&s)
			if _, err := explore.Explore(s, explore.Options{States: 10}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it is not refused for %q: %v", c.want, err)
			}
		})
	}
}
