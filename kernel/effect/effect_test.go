package effect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/effect"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// taken is what the named action brings to a reservation.
func taken(name string) effect.Take {
	return effect.Take{
		Holder: effect.Holder{Name: name, UID: name + "-uid", Agent: "alice", User: "carol"}, ActionType: "stripe.refund",
		Began: true, Token: name + "-token", Lease: noon.Add(time.Minute), Now: noon,
	}
}

// in is a record in the given state, after one attempt was made to come there.
func in(t *testing.T, state effect.State) effect.Status {
	t.Helper()
	take := taken("a1")
	take.Began = state != effect.Reserved
	s := effect.First(take)
	var err error
	switch state {
	case effect.Committed, effect.Failed:
		s, err = s.Settle(effect.Settlement{State: state, Now: noon})
	case effect.Ambiguous:
		s, err = s.Settle(effect.Settlement{State: state, Cause: effect.LeaseLapsed, Now: noon})
	}
	if err != nil || s.State != state {
		t.Fatalf("no record that is %s: %s, %v", state, s.State, err)
	}
	return s
}

var states = []effect.State{effect.Reserved, effect.Executing, effect.Committed, effect.Failed, effect.Ambiguous}

// Every operation in every state: where it is not named, it is refused.
func TestTransitions(t *testing.T) {
	settle := func(state effect.State, cause effect.Cause) func(effect.Status) (effect.Status, error) {
		return func(s effect.Status) (effect.Status, error) {
			return s.Settle(effect.Settlement{State: state, Cause: cause, Now: noon})
		}
	}
	resolve := func(state effect.State) func(effect.Status) (effect.Status, error) {
		return func(s effect.Status) (effect.Status, error) {
			return s.Resolve(effect.Resolution{Name: "r", State: state}, noon)
		}
	}
	for name, tc := range map[string]struct {
		do func(effect.Status) (effect.Status, error)
		// from says where it may be done, and where that leads.
		from map[effect.State]effect.State
	}{
		"renew":             {func(s effect.Status) (effect.Status, error) { return s.Renew(taken("a2")) }, map[effect.State]effect.State{effect.Failed: effect.Executing}},
		"begin":             {func(s effect.Status) (effect.Status, error) { return s.Begin("nonce", noon) }, map[effect.State]effect.State{effect.Reserved: effect.Executing}},
		"release":           {func(s effect.Status) (effect.Status, error) { return s.Release(noon) }, map[effect.State]effect.State{effect.Reserved: effect.Failed, effect.Executing: effect.Failed}},
		"settle committed":  {settle(effect.Committed, ""), map[effect.State]effect.State{effect.Executing: effect.Committed}},
		"settle failed":     {settle(effect.Failed, ""), map[effect.State]effect.State{effect.Executing: effect.Failed}},
		"settle ambiguous":  {settle(effect.Ambiguous, effect.ReportedUnknown), map[effect.State]effect.State{effect.Executing: effect.Ambiguous}},
		"settle reserved":   {settle(effect.Reserved, ""), nil},
		"settle executing":  {settle(effect.Executing, ""), nil},
		"settle nothing":    {settle("", ""), nil},
		"resolve committed": {resolve(effect.Committed), map[effect.State]effect.State{effect.Ambiguous: effect.Committed}},
		"resolve failed":    {resolve(effect.Failed), map[effect.State]effect.State{effect.Ambiguous: effect.Failed}},
		"resolve ambiguous": {resolve(effect.Ambiguous), nil},
		"resolve executing": {resolve(effect.Executing), nil},
	} {
		for _, state := range states {
			t.Run(fmt.Sprintf("%s, %s", name, state), func(t *testing.T) {
				before := in(t, state)
				next, err := tc.do(before)
				want, allowed := tc.from[state]
				switch {
				case !allowed && err == nil:
					t.Errorf("%s becomes %s, want a refusal", state, next.State)
				case allowed && (err != nil || next.State != want):
					t.Errorf("%s becomes %q (%v), want %s", state, next.State, err, want)
				case err != nil && next.State != "":
					t.Errorf("the refusal comes with a record that is %s", next.State)
				}
				if before.State != state {
					t.Errorf("the record that was given is now %s", before.State)
				}
			})
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, do := range map[string]func() error{
		"a renewal by the action that failed": func() error { _, err := in(t, effect.Failed).Renew(taken("a1")); return err },
		"a begin without nonce":               func() error { _, err := in(t, effect.Reserved).Begin("", noon); return err },
		"a begin at the end of the lease":     func() error { _, err := in(t, effect.Reserved).Begin("n", noon.Add(time.Minute)); return err },
		"an ambiguous end without cause": func() error {
			_, err := in(t, effect.Executing).Settle(effect.Settlement{State: effect.Ambiguous, Now: noon})
			return err
		},
		"a cause without an ambiguous end": func() error {
			_, err := in(t, effect.Executing).Settle(effect.Settlement{State: effect.Failed, Cause: effect.LeaseLapsed, Now: noon})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if do() == nil {
				t.Error("it is taken, want a refusal")
			}
		})
	}
	if _, err := in(t, effect.Reserved).Begin("n", noon.Add(time.Minute-1)); err != nil {
		t.Errorf("a begin just before the end of the lease is refused: %v", err)
	}
}

func TestFirstAttempt(t *testing.T) {
	take := taken("a1")
	s := effect.First(take)
	if s.Attempt != 1 || s.StartedAttempts != 0 || s.State != effect.Executing || *s.Holder != take.Holder || s.Token != take.Token || !s.Lease.Equal(take.Lease) || !s.Transition.Equal(noon) || s.ActionType != take.ActionType || len(s.History) != 0 {
		t.Errorf("the first attempt is %+v", s)
	}
	take.Began = false
	if s := effect.First(take); s.State != effect.Reserved {
		t.Errorf("an attempt that an executor begins later is %s, want Reserved", s.State)
	}
}

// A new attempt takes nothing over from the last one but what was counted and what is remembered.
func TestRenewalStartsClean(t *testing.T) {
	s := in(t, effect.Ambiguous)
	s.Late, s.Nonce, s.Loss = &effect.Late{Name: "late"}, "nonce", &effect.Loss{Ordinal: 1}
	s, err := s.Resolve(effect.Resolution{Name: "r", UID: "r-uid", Resolver: "erin", State: effect.Failed}, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if s.Resolution == nil || s.Resolution.Resolver != "erin" || s.Cause != effect.LeaseLapsed || !s.Transition.Equal(noon.Add(time.Hour)) {
		t.Errorf("the resolved record is %+v", s)
	}
	next, err := s.Renew(taken("a2"))
	if err != nil {
		t.Fatal(err)
	}
	if next.Attempt != 2 || next.StartedAttempts != 1 || next.Holder.Name != "a2" || next.Token != "a2-token" || len(next.History) != 2 {
		t.Errorf("the next attempt is %+v", next)
	}
	if next.Cause != "" || next.Resolution != nil || next.Late != nil || next.Nonce != "" || next.Outcome != nil || next.Loss != nil {
		t.Errorf("the next attempt has something of the last: %+v", next)
	}
}

// What counts against a ceiling are the attempts that may have begun.
func TestStartedAttempts(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(effect.Status) (effect.Status, error)
		want int64
		line string
	}{
		"released": {func(s effect.Status) (effect.Status, error) { return s.Release(noon) }, 0, effect.NeverBegan},
		"failed":   {func(s effect.Status) (effect.Status, error) { return s.Settle(effect.Settlement{State: effect.Failed}) }, 1, effect.NotExecuted},
		"committed": {func(s effect.Status) (effect.Status, error) {
			return s.Settle(effect.Settlement{State: effect.Committed})
		}, 1, effect.DidCommit},
		"ambiguous": {func(s effect.Status) (effect.Status, error) {
			return s.Settle(effect.Settlement{State: effect.Ambiguous, Cause: effect.ExecutorLost})
		}, 1, effect.BecameAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tc.end(effect.First(taken("a1")))
			if err != nil {
				t.Fatal(err)
			}
			if s.StartedAttempts != tc.want {
				t.Errorf("%d attempts started, want %d", s.StartedAttempts, tc.want)
			}
			want := effect.Line{Attempt: 1, Action: "a1", Result: tc.line}
			if len(s.History) != 1 || s.History[0].Attempt != want.Attempt || s.History[0].Action != want.Action || s.History[0].Result != want.Result {
				t.Errorf("the history is %+v, want %+v", s.History, want)
			}
		})
	}
}

func TestSettlementIsKept(t *testing.T) {
	s, err := effect.First(taken("a1")).Settle(effect.Settlement{
		State: effect.Ambiguous, Cause: effect.OutcomeNotAccepted, Outcome: &effect.Ref{Name: "o", UID: "o-uid"}, Approvals: []string{"x", "y"}, Now: noon.Add(time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Cause != effect.OutcomeNotAccepted || s.Outcome.UID != "o-uid" || !s.Transition.Equal(noon.Add(time.Second)) || !slices.Equal(s.History[0].Approvals, []string{"x", "y"}) || s.Token != "a1-token" || s.Holder.UID != "a1-uid" {
		t.Errorf("the settled record is %+v", s)
	}
}

// A record remembers so many lines, and no two records share them.
func TestHistory(t *testing.T) {
	s := effect.First(taken("a1"))
	var err error
	for i := 2; i <= effect.HistoryLimit+5; i++ {
		if s, err = s.Release(noon); err != nil {
			t.Fatal(err)
		}
		if s, err = s.Renew(taken(fmt.Sprintf("a%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.History) != effect.HistoryLimit || s.History[0].Attempt != 5 || s.History[effect.HistoryLimit-1].Attempt != effect.HistoryLimit+4 {
		t.Errorf("the history has %d lines, attempts %d to %d", len(s.History), s.History[0].Attempt, s.History[len(s.History)-1].Attempt)
	}
	failed, err := s.Settle(effect.Settlement{State: effect.Failed})
	if err != nil {
		t.Fatal(err)
	}
	committed, err := s.Settle(effect.Settlement{State: effect.Committed})
	if err != nil {
		t.Fatal(err)
	}
	last := effect.HistoryLimit - 1
	if failed.History[last].Result != effect.NotExecuted || committed.History[last].Result != effect.DidCommit {
		t.Errorf("two ends of one attempt share a line: %s, %s", failed.History[last].Result, committed.History[last].Result)
	}
}

func TestLostRecord(t *testing.T) {
	for name, holder := range map[string]*effect.Holder{"with a holder": {Name: "a1", UID: "u"}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			s := effect.Lost(3, holder, "stripe.refund", "token", 2, effect.Loss{Ordinal: 4, Seq: 7}, 2, noon)
			if s.State != effect.Ambiguous || s.Cause != effect.StatusMissing || s.Attempt != 3 || s.StartedAttempts != 2 || s.Loss.Ordinal != 4 || s.Loss.Seq != 7 || s.Token != "token" || (s.Holder == nil) != (holder == nil) {
				t.Errorf("the lost record is %+v", s)
			}
			if s.HolderName() == "" {
				t.Error("no message can name its holder")
			}
			// It is left like any other Ambiguous one, and another action can take the next attempt.
			s, err := s.Resolve(effect.Resolution{State: effect.Failed}, noon)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = s.Renew(taken("a9")); err != nil || s.Attempt != 4 {
				t.Errorf("the next attempt is %d (%v), want 4", s.Attempt, err)
			}
		})
	}
}

func TestHeldBy(t *testing.T) {
	status := effect.First(taken("a1"))
	bare := status
	bare.Holder = nil
	for name, tc := range map[string]struct {
		record  effect.Record
		uid     string
		attempt int64
		want    bool
	}{
		"by the holder":          {effect.Record{Status: &status}, "a1-uid", 1, true},
		"in another attempt":     {effect.Record{Status: &status}, "a1-uid", 2, false},
		"by another action":      {effect.Record{Status: &status}, "a2-uid", 1, false},
		"of a lost record":       {effect.Record{}, "a1-uid", 1, false},
		"of one without holder":  {effect.Record{Status: &bare}, "a1-uid", 1, false},
		"by nobody, of the same": {effect.Record{Status: &bare}, "", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.record.HeldBy(tc.uid, tc.attempt); got != tc.want {
				t.Errorf("HeldBy = %t, want %t", got, tc.want)
			}
		})
	}
}

// An attempt that is asked back about stays what it is; one goes on a round, and only while it waits.
func TestAskingBack(t *testing.T) {
	takenBy := taken("a2")
	asked, taken := effect.Asked{Continuation: "state"}, effect.Taken{Claim: effect.Ref{Name: "c", UID: "c-uid"}, ClaimID: "id", Time: noon}
	s := in(t, effect.Executing)
	if _, err := s.Continue(taken, "", noon); err == nil {
		t.Error("somebody goes on with what was not asked back about")
	}
	for round := int64(1); round <= effect.MaxRounds; round++ {
		next, err := s.Suspend(asked, nil, noon)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if next.State != effect.Executing || !next.Suspended() || next.Rounds() != round || next.Attempt != s.Attempt || next.Token != s.Token || !next.Lease.Equal(noon.Add(effect.RoundTime)) {
			t.Errorf("round %d: %+v", round, next)
		}
		for name, do := range map[string]func() error{
			"it is asked back about twice":              func() error { _, err := next.Suspend(asked, nil, noon); return err },
			"it is released":                            func() error { _, err := next.Release(noon); return err },
			"somebody without a claim goes on":          func() error { _, err := next.Continue(effect.Taken{ClaimID: "id"}, "", noon); return err },
			"an agent goes on with a nonce":             func() error { _, err := next.Continue(taken, "nonce", noon); return err },
			"somebody goes on after the lease":          func() error { _, err := next.Continue(taken, "", next.Lease); return err },
			"it is asked back about without a way on":   func() error { _, err := s.Suspend(effect.Asked{}, nil, noon); return err },
			"it is asked back about after its lease":    func() error { _, err := s.Suspend(asked, nil, s.Lease); return err },
			"one that is reserved is asked back about":  func() error { _, err := in(t, effect.Reserved).Suspend(asked, nil, noon); return err },
			"one that is Ambiguous is asked back about": func() error { _, err := in(t, effect.Ambiguous).Suspend(asked, nil, noon); return err },
		} {
			if do() == nil {
				t.Errorf("round %d: %s", round, name)
			}
		}
		if s, err = next.Continue(taken, "", noon); err != nil {
			t.Fatal(err)
		}
		if s.Suspended() || next.Suspension.Taken() != nil || int64(len(s.Suspension.Continued)) != round {
			t.Errorf("round %d, gone on: %+v", round, s.Suspension)
		}
		if _, err := s.Continue(taken, "", noon); err == nil {
			t.Errorf("round %d: two go on", round)
		}
	}
	if _, err := s.Suspend(asked, nil, noon); err == nil {
		t.Error("it is asked back about once more")
	}
	if _, err := s.Release(noon); err == nil {
		t.Error("what was asked back about is released as never begun")
	}
	s, err := s.Settle(effect.Settlement{State: effect.Failed, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.Renew(takenBy); err != nil || s.Suspension != nil {
		t.Errorf("the next attempt has something of it: %+v, %v", s.Suspension, err)
	}
}

// Who may not ask back has ended.
func TestEnd(t *testing.T) {
	s := in(t, effect.Executing)
	said := effect.Settlement{State: effect.Ambiguous, Cause: effect.ReportedUnknown, Error: "it was asked back", Asked: &effect.Asked{Continuation: "state", Question: strings.Repeat("x", effect.MaxQuestion+1)}, Now: noon}
	asked, suspended, err := s.End(said)
	if err != nil || !suspended || !asked.Suspended() || asked.Suspension.Question != "" {
		t.Errorf("%+v, %t, %v", asked.Suspension, suspended, err)
	}
	for name, c := range map[string]string{"none": "", "a blank": "a b", "a line": "a\n", "another script": "ä", "a long one": strings.Repeat("x", effect.MaxContinuation+1)} {
		said.Asked = &effect.Asked{Continuation: c}
		if after, suspended, err := s.End(said); err != nil || suspended || after.State != effect.Ambiguous || !strings.Contains(after.Error, "asked back, and is not waited for") {
			t.Errorf("%s: %s, %t, %v", name, after.State, suspended, err)
		}
	}
	said.Asked, said.Now = &effect.Asked{Continuation: "state"}, s.Lease
	if after, suspended, err := s.End(said); err != nil || suspended || after.State != effect.Ambiguous {
		t.Errorf("after its lease: %s, %t, %v", after.State, suspended, err)
	}
	said.Asked, said.State, said.Cause = nil, effect.Committed, ""
	if after, suspended, err := s.End(said); err != nil || suspended || after.State != effect.Committed {
		t.Errorf("without: %s, %t, %v", after.State, suspended, err)
	}
}

// An executor of the operator goes on under another nonce, so that what began before cannot end it.
func TestGoingOnTakesANonce(t *testing.T) {
	s, err := in(t, effect.Reserved).Begin("first", noon)
	if err == nil {
		s, err = s.Suspend(effect.Asked{Continuation: "state"}, nil, noon)
	}
	if err != nil {
		t.Fatal(err)
	}
	going := effect.Taken{Claim: effect.Ref{UID: "c-uid"}, ClaimID: "id"}
	for _, nonce := range []string{"", "first"} {
		if _, err := s.Continue(going, nonce, noon); err == nil {
			t.Errorf("it goes on under the nonce %q", nonce)
		}
	}
	if s, err = s.Continue(going, "second", noon); err != nil || s.Nonce != "second" {
		t.Errorf("the nonce is %q: %v", s.Nonce, err)
	}
}
