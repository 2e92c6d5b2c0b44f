package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
)

// endedAs is an Action that has ended, without an effect: nothing is asked of an apiserver about it.
func endedAs(state v1alpha1.ActionState, outcome v1alpha1.ActionState, reason decision.Reason) *v1alpha1.Action {
	action := &v1alpha1.Action{}
	action.Name, action.Status.State, action.Status.Outcome, action.Status.Reason = "refund", state, outcome, string(reason)
	return action
}

// An observed Action is judged by what it did, and one that does not say so is never taken for done.
func TestTheEndOfAnExecutionIsWhatItDid(t *testing.T) {
	const committed, unknown, failed = "committed", "unknown", "failed"
	for name, test := range map[string]struct {
		state, outcome v1alpha1.ActionState
		want           string
		says           string
	}{
		"committed":            {v1alpha1.ActionCommitted, "", committed, ""},
		"failed":               {v1alpha1.ActionFailed, "", failed, "is Failed"},
		"ambiguous":            {v1alpha1.ActionAmbiguous, "", unknown, "ended Ambiguous"},
		"observed, committed":  {v1alpha1.ActionObserved, v1alpha1.ActionCommitted, committed, ""},
		"observed, failed":     {v1alpha1.ActionObserved, v1alpha1.ActionFailed, failed, "is Observed, Failed"},
		"observed, ambiguous":  {v1alpha1.ActionObserved, v1alpha1.ActionAmbiguous, unknown, "ended Ambiguous"},
		"observed, not saying": {v1alpha1.ActionObserved, "", unknown, "ended Ambiguous"},
		"a word of tomorrow":   {"Paused", "", unknown, "ended Ambiguous"},
	} {
		t.Run(name, func(t *testing.T) {
			err := endOfExecution(endedAs(test.state, test.outcome, ""), io.EOF)
			var unknownEnd *UnknownError
			var failedEnd *FailedError
			got := committed
			switch {
			case errors.As(err, &unknownEnd):
				got = unknown
			case errors.As(err, &failedEnd):
				got = failed
			}
			if got != test.want || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %s: %v", got, err)
			}
			if err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("what the function returned is lost: %v", err)
			}
			if errors.Is(err, ErrAmbiguous) != (test.want == unknown) {
				t.Errorf("%v is ErrAmbiguous: %t", err, errors.Is(err, ErrAmbiguous))
			}
		})
	}
}

// Each end without this call has its own error, an *EndedError too.
func TestEachEndHasItsError(t *testing.T) {
	for name, test := range map[string]struct {
		action *v1alpha1.Action
		is     func(error) bool
	}{
		"denied by a rule":      {endedAs(v1alpha1.ActionDenied, "", decision.Rule(2)), as(func(e *DeniedError) bool { return e.Reason == "rule[2]" })},
		"denied by a person":    {endedAs(v1alpha1.ActionDenied, "", decision.ApprovalDenied), as(func(e *DeniedError) bool { return e.Reason == "approval_denied" })},
		"expired":               {endedAs(v1alpha1.ActionExpired, "", decision.NotAfter), as(func(e *ExpiredError) bool { return e.Reason == "not_after" })},
		"a duplicate":           {endedAs(v1alpha1.ActionBlocked, "", decision.Duplicate), as(func(e *DuplicateError) bool { return e.State == v1alpha1.EffectCommitted })},
		"in progress":           {endedAs(v1alpha1.ActionBlocked, "", decision.InProgress), as(func(e *DuplicateError) bool { return e.State == v1alpha1.EffectExecuting })},
		"ambiguous":             {endedAs(v1alpha1.ActionBlocked, "", decision.AmbiguousEffect), as(func(e *AmbiguousError) bool { return true })},
		"blocked otherwise":     {endedAs(v1alpha1.ActionBlocked, "", decision.AttemptCeiling), as(func(e *BlockedError) bool { return e.Reason == "attempt_ceiling" })},
		"committed before":      {endedAs(v1alpha1.ActionCommitted, "", ""), as(func(e *DuplicateError) bool { return e.State == v1alpha1.EffectCommitted })},
		"failed before":         {endedAs(v1alpha1.ActionFailed, "", ""), as(func(e *FailedError) bool { return e.Returned == nil })},
		"ambiguous before":      {endedAs(v1alpha1.ActionAmbiguous, "", decision.LeaseLapsed), as(func(e *AmbiguousError) bool { return true })},
		"observed, committed":   {endedAs(v1alpha1.ActionObserved, v1alpha1.ActionCommitted, ""), as(func(e *DuplicateError) bool { return true })},
		"observed, not saying":  {endedAs(v1alpha1.ActionObserved, "", ""), as(func(e *AmbiguousError) bool { return true })},
		"a state of tomorrow":   {endedAs("Suspended", "", ""), as(func(e *BlockedError) bool { return true })},
		"a duplicate, not here": {endedAs(v1alpha1.ActionDenied, "", decision.Duplicate), as(func(e *DeniedError) bool { return true })},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Client{}).refusedBy(context.Background(), test.action)
			var ended *EndedError
			if !errors.As(err, &ended) || ended.Action != test.action || !test.is(err) {
				t.Errorf("got %T: %v", err, err)
			}
			wantAmbiguous := strings.Contains(name, "ambiguous") || strings.Contains(name, "not saying")
			if errors.Is(err, ErrAmbiguous) != wantAmbiguous {
				t.Errorf("%T is ErrAmbiguous: %t", err, !wantAmbiguous)
			}
		})
	}
}

// as finds an error of a type, and asks it.
func as[T error](ask func(T) bool) func(error) bool {
	return func(err error) bool {
		var found T
		return errors.As(err, &found) && ask(found)
	}
}

func TestWhoWaitsForPeopleIsTold(t *testing.T) {
	action := endedAs(v1alpha1.ActionAwaitingApproval, "", "")
	until := time.Unix(1_900_000_000, 0)
	action.Status.Approval = &v1alpha1.ActionApproval{Required: 2, Counted: 1, ExpirationTime: metav1.NewTime(until)}
	call := &Call{action: action}
	err := call.stillWaiting(context.DeadlineExceeded)
	var asked *ApprovalRequiredError
	if !errors.As(err, &asked) || asked.Required != 2 || asked.Counted != 1 || !asked.ExpirationTime.Equal(until) {
		t.Fatalf("got %v", err)
	}
	var waiting *WaitingError
	if !errors.As(err, &waiting) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it is no WaitingError of its context: %v", err)
	}
	waiting.Withdrawn = true
	if !strings.Contains(err.Error(), "it was withdrawn and nothing was executed") {
		t.Errorf("it does not say so: %v", err)
	}
	action.Status.State = v1alpha1.ActionClaimable
	if err := call.stillWaiting(context.Canceled); errors.As(err, &asked) {
		t.Errorf("nobody is asked any more: %v", err)
	}
}

// The operator executes what has an Executor, also if the proposal carried a claimID.
func TestOnlyWhoWasAdmittedExecutes(t *testing.T) {
	for name, test := range map[string]struct {
		execution *v1alpha1.ActionExecution
		want      bool
	}{
		"nobody":                              {nil, false},
		"this process":                        {&v1alpha1.ActionExecution{Mode: v1alpha1.ExecutionModeAgent, ClaimID: claimA}, true},
		"another process":                     {&v1alpha1.ActionExecution{Mode: v1alpha1.ExecutionModeAgent, ClaimID: claimB}, false},
		"the operator":                        {&v1alpha1.ActionExecution{Mode: v1alpha1.ExecutionModeOperator}, false},
		"the operator, with this one's claim": {&v1alpha1.ActionExecution{Mode: v1alpha1.ExecutionModeOperator, ClaimID: claimA}, false},
		"somebody of tomorrow":                {&v1alpha1.ActionExecution{Mode: "Gateway", ClaimID: claimA}, false},
	} {
		t.Run(name, func(t *testing.T) {
			call := &Call{claimID: claimA, action: &v1alpha1.Action{}}
			call.action.Status.Execution = test.execution
			if got := call.admitted(call.action); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// An error that a program made of no words, as of a flag that was left out, says nothing.
func TestErrorsOfNoWordsSayNothing(t *testing.T) {
	end := &EndedError{Action: endedAs(v1alpha1.ActionFailed, "", "")}
	for want, err := range map[string]error{
		"action refund is Failed":                    &FailedError{EndedError: end, Returned: NotExecuted(errors.New(""))},
		"action refund is Failed: EOF":               &FailedError{EndedError: end, Returned: NotExecuted(io.EOF)},
		"the outcome of action refund is unknown: x": &UnknownError{Action: end.Action, Why: "x", Returned: errors.New("")},
		"the outcome of action refund is unknown: x: y: EOF": &UnknownError{
			Action: end.Action, Why: "x", Err: errors.New("y"), Returned: io.EOF,
		},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
