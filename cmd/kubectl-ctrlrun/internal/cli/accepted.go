package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// acceptTimeout is how long a person waits to hear whether their statement counts.
const acceptTimeout = 30 * time.Second

// waitAccepted waits until the operator has judged a statement. A statement that is refused is an error with the reason.
func (a *app) waitAccepted(whole context.Context, s *session, statement kube.Object, timeout time.Duration) error {
	_, err := a.waitJudged(whole, s, statement, timeout)
	return err
}

// waitJudged is waitAccepted that gives the statement as it was judged.
func (a *app) waitJudged(whole context.Context, s *session, statement kube.Object, timeout time.Duration) (kube.Object, error) {
	ctx, cancel := context.WithTimeout(whole, timeout)
	defer cancel()
	silence := time.NewTimer(client.SilentAfter)
	defer silence.Stop()
	updates := s.Follow(ctx, statement)
	for {
		select {
		case <-silence.C:
			a.note("%s", s.silence(ctx))
		case update, open := <-updates:
			if !open {
				return nil, exit.Errorf(exit.Waiting, "%s was created, but nobody has judged it for %s: %s", statement.GetName(), timeout, s.silence(whole))
			}
			if apierrors.IsForbidden(update.Err) {
				return nil, exit.Errorf(exit.Waiting, "%s was created, but you may not read whether it counts: %w", statement.GetName(), update.Err)
			}
			if update.Err != nil {
				return nil, explain(update.Err)
			}
			condition := meta.FindStatusCondition(conditionsOf(update.Object), v1alpha1.AcceptedCondition)
			if condition == nil {
				continue
			}
			if condition.Status == metav1.ConditionUnknown {
				return nil, &openError{condition.Message}
			}
			if condition.Status == metav1.ConditionTrue {
				return update.Object, nil
			}
			return nil, exit.With(codeOfRefusal(condition.Reason), fmt.Errorf("%s does not count: %s: %s", statement.GetName(), condition.Reason, condition.Message))
		}
	}
}

// openError says that a statement was taken up, and that it takes something else before it has its verdict.
type openError struct{ missing string }

func (e *openError) Error() string { return e.missing }

func conditionsOf(statement kube.Object) []metav1.Condition {
	switch s := statement.(type) {
	case *v1alpha1.Approval:
		return s.Status.Conditions
	case *v1alpha1.Claim:
		return s.Status.Conditions
	case *v1alpha1.Outcome:
		return s.Status.Conditions
	case *v1alpha1.Resolution:
		return s.Status.Conditions
	case *v1alpha1.LedgerAcceptance:
		return s.Status.Conditions
	case *v1alpha1.Delegation:
		return s.Status.Conditions
	case *v1alpha1.Revocation:
		return s.Status.Conditions
	}
	return nil
}

func codeOfRefusal(reason string) exit.Code {
	switch reason {
	case v1alpha1.ReasonAnotherWasFirst:
		return exit.Waiting
	case v1alpha1.ReasonExpired:
		return exit.Expired
	case v1alpha1.ReasonSelfApproval, v1alpha1.ReasonSelfResolution, v1alpha1.ReasonNotTheAgent, v1alpha1.ReasonNotEntitled:
		return exit.Refused
	}
	return exit.Failure
}

// stated turns the error of creating a statement into advice.
func stated(err error) error {
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		return exit.With(exit.Refused, err)
	}
	return explain(err)
}
