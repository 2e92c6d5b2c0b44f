package remote

import (
	"context"
	"testing"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
)

func TestBehaviours(t *testing.T) {
	for behaviour, want := range map[Behaviour]struct {
		report v1alpha1.OutcomeResult
		done   int
	}{
		Execute:        {v1alpha1.OutcomeCommitted, 1},
		ExecuteAndLose: {v1alpha1.OutcomeUnknown, 1},
		ExecuteAndHang: {v1alpha1.OutcomeUnknown, 1},
		Lose:           {v1alpha1.OutcomeUnknown, 0},
		Refuse:         {v1alpha1.OutcomeNotExecuted, 0},
		"something":    {v1alpha1.OutcomeUnknown, 0},
	} {
		t.Run(string(behaviour), func(t *testing.T) {
			s, err := Start(func(Call) Behaviour { return behaviour })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			if behaviour == ExecuteAndHang {
				ctx, cancel = context.WithTimeout(context.Background(), 100*time.Millisecond)
			}
			defer cancel()
			call := Call{Namespace: "n", EffectKey: "refund:1", Attempt: 2}
			if err := Send(ctx, s.URL(), call); client.ResultOf(err) != want.report {
				t.Errorf("the agent reports %s (%v), want %s", client.ResultOf(err), err, want.report)
			}
			if got := len(s.Executions()); got != want.done {
				t.Errorf("done %d times, want %d", got, want.done)
			}
			if got := s.Executed("n", "refund:1", 2); got != (want.done > 0) {
				t.Errorf("Executed is %t", got)
			}
			if s.Executed("n", "refund:1", 1) || s.Executed("m", "refund:1", 2) {
				t.Error("another attempt or namespace counts as executed")
			}
		})
	}
}

// TestNothingIsMerged: the same attempt twice is two executions, or no duplicate would ever be seen.
func TestNothingIsMerged(t *testing.T) {
	s, err := Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	call := Call{Namespace: "n", EffectKey: "refund:1", Attempt: 1, Token: "t"}
	for range 2 {
		if err := Send(context.Background(), s.URL(), call); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(s.Executions()); got != 2 {
		t.Errorf("two calls were counted as %d", got)
	}
}

func TestARemoteThatIsGoneProvesNothing(t *testing.T) {
	s, err := Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	url := s.URL()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := client.ResultOf(Send(context.Background(), url, Call{})); got != v1alpha1.OutcomeUnknown {
		t.Errorf("got %s", got)
	}
}
