package cli

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/decision"
)

// codeOf is the exit code for how an Action stands.
func codeOf(action *v1alpha1.Action) exit.Code {
	switch client.EndOf(action) {
	case v1alpha1.ActionCommitted:
		return exit.Done
	case v1alpha1.ActionFailed:
		return exit.NotExecuted
	case v1alpha1.ActionAmbiguous:
		return exit.Unknown
	case v1alpha1.ActionDenied:
		return exit.Denied
	case v1alpha1.ActionExpired:
		return exit.Expired
	case v1alpha1.ActionBlocked:
		return codeOfBlocked(decision.Reason(action.Status.Reason))
	}
	return exit.Waiting
}

func codeOfBlocked(reason decision.Reason) exit.Code {
	switch reason {
	case decision.Duplicate:
		return exit.AlreadyCommitted
	case decision.AmbiguousEffect:
		return exit.Unknown
	case decision.InProgress:
		return exit.Waiting
	}
	return exit.Failure
}

// coded gives an error of a call its exit code, and says what to do next. The call did not execute, or nobody knows: also an
// Action that is Committed was executed by somebody else, or before.
func coded(err error) error {
	var ended *client.EndedError
	var elsewhere *client.ElsewhereError
	var waiting *client.WaitingError
	var lease *client.LeaseError
	var unknown *client.UnknownError
	var stranger *client.NotAgentError
	var uncounted *client.StatementError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return exit.With(exit.Unknown, fmt.Errorf("%w\ndo not try again%s", err, adviceForUnknown(err, unknown.Action)))
	case errors.As(err, &ended) && client.EndOf(ended.Action) == v1alpha1.ActionCommitted:
		return exit.With(exit.AlreadyCommitted, fmt.Errorf("%w\nit was executed before: do not execute it again", err))
	case errors.As(err, &stranger):
		return exit.With(exit.Refused, err)
	case errors.As(err, &uncounted):
		return exit.With(codeOfRefusal(uncounted.Reason), err)
	case errors.As(err, &ended):
		return exit.With(codeOf(ended.Action), fmt.Errorf("%w%s", err, nextForEnded(ended.Action)))
	case errors.As(err, &elsewhere):
		return exit.With(exit.Waiting, fmt.Errorf("%w\nto see how it ends: %s", err, waitCommandLine(elsewhere.Action)))
	case errors.As(err, &lease):
		return exit.With(exit.NotExecuted, fmt.Errorf("%w\npropose again, with a longer --lease if this happens often", err))
	case errors.As(err, &waiting) && waiting.Withdrawn:
		return exit.With(exit.Failure, err)
	case errors.As(err, &waiting):
		return exit.With(exit.Waiting, err)
	}
	return explain(err)
}

// adviceForUnknown is what to do next, unless err says it already in the operator's own words.
func adviceForUnknown(err error, action *v1alpha1.Action) string {
	if strings.Contains(err.Error(), "kubectl ctrlrun resolve ") {
		return ""
	}
	return ": " + nextForUnknown(action)
}

func nextForUnknown(action *v1alpha1.Action) string {
	if effect := action.Status.Effect; effect != nil && ambiguous(action) {
		return "find out what happened, then run: " + resolveCommandLine(effect.Name, action.Namespace)
	}
	return fmt.Sprintf("find out what happened; kubectl ctrlrun inspect %s -n %s shows what is known", action.Name, action.Namespace)
}

// ambiguous reports whether the effect of an Action waits for a person: it ended so, or found it so.
func ambiguous(action *v1alpha1.Action) bool {
	switch action.Status.State {
	case v1alpha1.ActionObserved:
		// Only one that had the effect for itself left it ambiguous.
		return action.Status.Outcome == v1alpha1.ActionAmbiguous && action.Status.Effect != nil && action.Status.Effect.Attempt > 0 &&
			!meta.IsStatusConditionTrue(action.Status.Conditions, v1alpha1.ResolvedCondition)
	case v1alpha1.ActionAmbiguous:
		return !meta.IsStatusConditionTrue(action.Status.Conditions, v1alpha1.ResolvedCondition)
	case v1alpha1.ActionBlocked:
		return decision.Reason(action.Status.Reason) == decision.AmbiguousEffect
	}
	return false
}

// resolveForms are the two answers with what each of them needs.
const resolveForms = "--committed --reason TEXT, or --not-executed --reason TEXT --evidence URL"

func resolveCommandLine(effect, namespace string) string {
	return fmt.Sprintf("kubectl ctrlrun resolve %s -n %s %s", effect, namespace, resolveForms)
}

// goOnCommandLine is how whoever proposed an Action goes on with it once it is allowed.
func goOnCommandLine(action *v1alpha1.Action) string {
	if action.Status.Executor != nil {
		return waitCommandLine(action)
	}
	return claimCommandLine(action)
}

func waitCommandLine(action *v1alpha1.Action) string {
	return fmt.Sprintf("kubectl ctrlrun wait %s -n %s", action.Name, action.Namespace)
}

func claimCommandLine(action *v1alpha1.Action) string {
	return fmt.Sprintf("kubectl ctrlrun claim %s -n %s -- CMD", action.Name, action.Namespace)
}

// nextForEnded is what the operator's own message does not say already.
func nextForEnded(action *v1alpha1.Action) string {
	said := action.Status.Message
	switch codeOf(action) {
	case exit.NotExecuted, exit.Failure:
		if !strings.Contains(said, "othing was executed") {
			return "\nnothing was executed"
		}
	case exit.Unknown:
		if !strings.Contains(said, "resolve") {
			return "\n" + nextForUnknown(action)
		}
	}
	return ""
}

// ended is the error for an Action that was found in some state, or nil if it is committed.
func ended(action *v1alpha1.Action) error {
	if client.EndOf(action) == v1alpha1.ActionCommitted {
		return nil
	}
	if action.Status.State.Terminal() {
		return coded(&client.EndedError{Action: action})
	}
	return coded(&client.WaitingError{Action: action})
}
