package client

import (
	"errors"
	"strings"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// An observed Action is judged by what it did, and one that does not say so is never taken for done.
func TestTheResultOfAnExecutionIsWhatItDid(t *testing.T) {
	const committed, unknown, ended = "committed", "unknown", "ended"
	for name, test := range map[string]struct {
		state, outcome v1alpha1.ActionState
		want           string
		says           string
	}{
		"committed":            {v1alpha1.ActionCommitted, "", committed, ""},
		"failed":               {v1alpha1.ActionFailed, "", ended, "is Failed"},
		"ambiguous":            {v1alpha1.ActionAmbiguous, "", unknown, "ended Ambiguous"},
		"observed, committed":  {v1alpha1.ActionObserved, v1alpha1.ActionCommitted, committed, ""},
		"observed, failed":     {v1alpha1.ActionObserved, v1alpha1.ActionFailed, ended, "is Observed, Failed"},
		"observed, ambiguous":  {v1alpha1.ActionObserved, v1alpha1.ActionAmbiguous, unknown, "ended Ambiguous"},
		"observed, not saying": {v1alpha1.ActionObserved, "", unknown, "ended Ambiguous"},
	} {
		t.Run(name, func(t *testing.T) {
			action := &v1alpha1.Action{}
			action.Name, action.Status.State, action.Status.Outcome = "refund", test.state, test.outcome
			err := endOfExecution(action, nil)
			var unknownEnd *UnknownError
			var end *EndedError
			got := committed
			switch {
			case errors.As(err, &unknownEnd):
				got = unknown
			case errors.As(err, &end):
				got = ended
			}
			if got != test.want || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %s: %v", got, err)
			}
			if !action.Status.State.Terminal() {
				t.Errorf("%s is no end", test.state)
			}
		})
	}
}
