package cli

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

func standing(state v1alpha1.ActionState, reason string) *v1alpha1.Action {
	return &v1alpha1.Action{Status: v1alpha1.ActionStatus{State: state, Reason: reason}}
}

func TestExitCodesOfEnds(t *testing.T) {
	for name, test := range map[string]struct {
		action *v1alpha1.Action
		want   exit.Code
	}{
		"committed":               {standing(v1alpha1.ActionCommitted, ""), 0},
		"denied":                  {standing(v1alpha1.ActionDenied, "rule[2]"), 3},
		"committed already":       {standing(v1alpha1.ActionBlocked, "duplicate"), 4},
		"in progress":             {standing(v1alpha1.ActionBlocked, "in_progress"), 5},
		"awaiting approval":       {standing(v1alpha1.ActionAwaitingApproval, ""), 5},
		"admitted":                {standing(v1alpha1.ActionAdmitted, ""), 5},
		"ambiguous":               {standing(v1alpha1.ActionAmbiguous, "lease_lapsed"), 6},
		"blocked by an ambiguous": {standing(v1alpha1.ActionBlocked, "ambiguous"), 6},
		"failed":                  {standing(v1alpha1.ActionFailed, ""), 7},
		"expired":                 {standing(v1alpha1.ActionExpired, "approval_expired"), 8},
		"withdrawn":               {standing(v1alpha1.ActionBlocked, "withdrawn"), 1},
		"out of attempts":         {standing(v1alpha1.ActionBlocked, "attempt_ceiling"), 1},
		"no state yet":            {standing("", ""), 5},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exit.Of(ended(test.action)); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
		})
	}
}

// An Action that was observed did what it did, whatever enforcing would have done with it.
func TestExitCodesOfObservedActions(t *testing.T) {
	for outcome, want := range map[v1alpha1.ActionState]exit.Code{
		v1alpha1.ActionCommitted: exit.Done, v1alpha1.ActionFailed: exit.NotExecuted, v1alpha1.ActionAmbiguous: exit.Unknown, "": exit.Unknown,
	} {
		action := standing(v1alpha1.ActionObserved, "")
		action.Status.Outcome = outcome
		if got := exit.Of(ended(action)); got != want {
			t.Errorf("outcome %q exits %d, want %d", outcome, got, want)
		}
		if outcome != v1alpha1.ActionCommitted {
			continue
		}
		if got := exit.Of(coded(&client.EndedError{Action: action})); got != exit.AlreadyCommitted {
			t.Errorf("a claim of one that is over exits %d", got)
		}
	}
}

func TestExitCodesOfCalls(t *testing.T) {
	action := standing(v1alpha1.ActionAdmitted, "")
	for name, test := range map[string]struct {
		err  error
		want exit.Code
	}{
		"done":                          {nil, 0},
		"unknown":                       {&client.UnknownError{Action: action}, 6},
		"unknown beside another error":  {errors.Join(errors.New("x"), &client.UnknownError{Action: action}), 6},
		"unknown, because it was ended": {&client.UnknownError{Action: action, Err: &client.EndedError{Action: standing(v1alpha1.ActionCommitted, "")}}, 6},
		"admitted elsewhere":            {&client.ElsewhereError{Action: action}, 5},
		"still waiting":                 {&client.WaitingError{Action: action}, 5},
		"withdrawn":                     {&client.WaitingError{Action: action, Withdrawn: true}, 1},
		"too late":                      {&client.LeaseError{Action: action}, 7},
		"refused":                       {&client.RefusedError{What: "x", Err: errors.New("y")}, 9},
		"committed before, by another":  {&client.EndedError{Action: standing(v1alpha1.ActionCommitted, "")}, 4},
		"proposed by another":           {&client.NotAgentError{Action: action}, 9},
		"a claim that does not count":   {&client.StatementError{Action: action, Reason: v1alpha1.ReasonNotClaimable}, 1},
		"a report by another":           {&client.StatementError{Action: action, Reason: v1alpha1.ReasonNotTheAgent}, 9},
		"a report that lost":            {&client.UnknownError{Action: action, Err: &client.StatementError{}}, 6},
		"another claim":                 {&client.NotAdmittedError{Action: action}, 1},
		"gone":                          {&client.GoneError{Name: "x"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exit.Of(coded(test.err)); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
		})
	}
}

// An end that nobody knows must never look like success, whatever state the Action seems to have.
func TestUnknownNeverExitsZero(t *testing.T) {
	for _, state := range []v1alpha1.ActionState{"", v1alpha1.ActionCommitted, v1alpha1.ActionAdmitted, v1alpha1.ActionObserved} {
		if code := exit.Of(coded(&client.UnknownError{Action: standing(state, "")})); code != exit.Unknown {
			t.Errorf("unknown with state %q exits %d", state, code)
		}
	}
}

// resolve refuses what is not Ambiguous, so advice must not send anybody there.
func TestResolveIsAdvisedOnlyForAnAmbiguousEffect(t *testing.T) {
	for name, test := range map[string]struct {
		state    v1alpha1.ActionState
		reason   string
		resolved bool
		outcome  v1alpha1.ActionState
		attempt  int64
		want     bool
	}{
		"ambiguous":               {state: v1alpha1.ActionAmbiguous, want: true},
		"resolved since":          {state: v1alpha1.ActionAmbiguous, resolved: true},
		"blocked by an ambiguous": {state: v1alpha1.ActionBlocked, reason: "ambiguous", want: true},
		"admitted":                {state: v1alpha1.ActionAdmitted},
		"committed":               {state: v1alpha1.ActionCommitted},
		"failed":                  {state: v1alpha1.ActionFailed},
		"observed":                {state: v1alpha1.ActionObserved},
		"observed, nobody knows":  {state: v1alpha1.ActionObserved, outcome: v1alpha1.ActionAmbiguous, attempt: 1, want: true},
		"observed without effect": {state: v1alpha1.ActionObserved, outcome: v1alpha1.ActionAmbiguous},
		"observed and committed":  {state: v1alpha1.ActionObserved, outcome: v1alpha1.ActionCommitted, attempt: 1},
	} {
		t.Run(name, func(t *testing.T) {
			action := standing(test.state, test.reason)
			action.Status.Effect, action.Status.Outcome = &v1alpha1.ActionEffect{Name: "refund-1", Attempt: test.attempt}, test.outcome
			if test.resolved {
				action.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ResolvedCondition, Status: metav1.ConditionTrue}}
			}
			err := coded(&client.UnknownError{Action: action})
			if got := strings.Contains(err.Error(), "kubectl ctrlrun resolve"); got != test.want {
				t.Errorf("advises resolve: %t, want %t: %v", got, test.want, err)
			}
		})
	}
}

// What the operator executes is never claimed, so whoever proposed it is not sent to claim it.
func TestWhatTheOperatorExecutesIsWaitedFor(t *testing.T) {
	action := standing(v1alpha1.ActionAwaitingApproval, "")
	action.Name, action.Namespace = "refund-1", "payments"
	if got, want := goOnCommandLine(action), "kubectl ctrlrun claim refund-1 -n payments -- CMD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	action.Status.Executor = &v1alpha1.ExecutorReference{Name: "refunds"}
	const wait = "kubectl ctrlrun wait refund-1 -n payments"
	if got := goOnCommandLine(action); got != wait {
		t.Errorf("got %q, want %q", got, wait)
	}
	if err := coded(&client.ElsewhereError{Action: action}); !strings.Contains(err.Error(), wait) {
		t.Errorf("%v does not name %q", err, wait)
	}
}
