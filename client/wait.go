package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Stage is a point of a call worth telling somebody about.
type Stage string

const (
	// StageProposed: the Action was created.
	StageProposed Stage = "Proposed"
	// StageSilent: nobody has looked at the Action for five seconds. The operator is missing, or very busy.
	StageSilent Stage = "Silent"
	// StageState: the state or reason of the Action changed.
	StageState Stage = "State"
	// StageClaimed: a Claim was made.
	StageClaimed Stage = "Claimed"
	// StageReported: the report was stored.
	StageReported Stage = "Reported"
)

// Progress is told about the stages of a call.
type Progress func(stage Stage, action *v1alpha1.Action)

// SilentAfter is how long an Action may be without a word from the operator before that is worth saying.
const SilentAfter = 5 * time.Second

// Untouched reports whether the operator has never written the status of an Action. It writes all conditions at once.
func Untouched(action *v1alpha1.Action) bool { return len(action.Status.Conditions) == 0 }

// waitAdmitted waits until this process is admitted. See Claim.
func (call *Call) waitAdmitted(ctx context.Context) error {
	if call.claimID == "" {
		return fmt.Errorf("action %s was proposed without a claimID, so this call cannot execute it: Attach to it", call.action.Name)
	}
	if err := call.agentOnly(ctx); err != nil {
		return err
	}
	return call.await(ctx, func(ctx context.Context, action *v1alpha1.Action) (bool, error) {
		switch state := stateOf(action); {
		case state == v1alpha1.ActionAdmitted:
			if !call.admitted(action) {
				return true, &ElsewhereError{Action: action}
			}
			return true, nil
		case state == v1alpha1.ActionClaimable:
			return false, call.claim(ctx, action)
		case state.Terminal():
			return true, call.client.refusedBy(ctx, action)
		}
		return false, nil
	})
}

// admitted reports whether an Action was admitted for this call: for its claimID, and not for an Executor of the operator.
func (call *Call) admitted(action *v1alpha1.Action) bool {
	execution := action.Status.Execution
	return execution != nil && execution.Mode == v1alpha1.ExecutionModeAgent && execution.ClaimID == call.claimID
}

// agentOnly refuses whoever did not propose the Action: nothing else they say about its execution can ever count. An Action
// without an agent has not been stamped yet, and says nothing.
func (call *Call) agentOnly(ctx context.Context) error {
	user, err := call.client.Whoami(ctx)
	if err != nil {
		return err
	}
	if agent := call.action.Spec.Principal.Agent; agent != "" && agent != user.Username {
		return &NotAgentError{Action: call.action, Username: user.Username}
	}
	return nil
}

// Wait waits until the Action has ended and has its receipt. A nil error means that its effect is committed; in observe mode, that what was
// done was reported committed. What else it ended as has its own error, as for Protect. When the end does not come before ctx is done it
// is a *WaitingError, or, if this call has reported, an *UnknownError.
func (call *Call) Wait(ctx context.Context) (Receipt, error) {
	err := call.await(ctx, func(_ context.Context, action *v1alpha1.Action) (bool, error) {
		return action.Status.ReceiptRef != nil, nil
	})
	var uncounted *StatementError
	switch {
	case err == nil:
		return call.receipt(ctx), call.end(ctx)
	case call.said.result == "":
		return call.known(), err
	case errors.As(err, &uncounted):
		return call.known(), &UnknownError{Action: call.action, Why: fmt.Sprintf("%s was reported in vain", call.said.result), Err: err, Returned: call.said.returned}
	}
	why := fmt.Sprintf("%s was reported, but the operator has not settled it", call.said.result)
	return call.known(), &UnknownError{Action: call.action, Why: why, Err: err, Returned: call.said.returned}
}

// doubtAfter is how long a statement of a call may be without consequence before somebody looks whether it counts. Most have one at once.
const doubtAfter = time.Second

// await follows the Action, from how it was last seen, until step says that it is done; and after a while beside it the last statement of
// this call: one that does not count would be waited on for nothing.
func (call *Call) await(ctx context.Context, step func(context.Context, *v1alpha1.Action) (bool, error)) error {
	said := ""
	see := func(action *v1alpha1.Action) (bool, error) {
		call.action = action
		if word := string(stateOf(action)) + " " + action.Status.Reason; word != said && !Untouched(action) {
			said = word
			call.tell(StageState, action)
		}
		return step(ctx, action)
	}
	if done, err := see(call.action); done || err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	updates := call.client.followFrom(following, call.action, call.action.ResourceVersion)
	var verdicts <-chan Update
	var judged kube.Object
	silence := time.NewTimer(SilentAfter)
	defer silence.Stop()
	doubt := time.NewTimer(doubtAfter)
	defer doubt.Stop()
	for {
		if call.statement != judged {
			judged, verdicts = call.statement, nil
			doubt.Reset(doubtAfter)
		}
		select {
		case <-doubt.C:
			if judged != nil {
				verdicts = call.client.Follow(following, judged)
			}
		case <-ctx.Done():
			return call.stillWaiting(ctx.Err())
		case <-silence.C:
			if Untouched(call.action) {
				call.tell(StageSilent, call.action)
			}
		case update, open := <-verdicts:
			if !open || update.Err != nil {
				// Who may not read their own statement waits for what the Action says.
				verdicts = nil
				continue
			}
			if done, err := call.refused(ctx, update.Object, step); done || err != nil {
				return err
			}
		case update, open := <-updates:
			if !open {
				return call.stillWaiting(ctx.Err())
			}
			if apierrors.IsNotFound(update.Err) {
				return &GoneError{Name: call.action.Name}
			}
			if update.Err != nil {
				return call.stillWaiting(update.Err)
			}
			if done, err := see(update.Object.(*v1alpha1.Action)); done || err != nil {
				return err
			}
		}
	}
}

// refused judges a statement of this call by its Accepted condition. One that does not count ends the wait, unless the Action
// as it is now says more: it has ended, or another process has it, or it can be claimed again.
func (call *Call) refused(ctx context.Context, statement kube.Object, step func(context.Context, *v1alpha1.Action) (bool, error)) (bool, error) {
	condition := acceptedCondition(statement)
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return false, nil
	}
	current := &v1alpha1.Action{}
	if err := call.client.kube.Get(ctx, kube.ObjectKeyFromObject(call.action), current); err != nil || current.UID != call.action.UID {
		return false, nil // the followed Action says so too
	}
	call.action = current
	before := call.statement
	if done, err := step(ctx, current); done || err != nil || call.statement != before {
		return done, err
	}
	kind := call.client.groupResource(statement).Resource
	return true, &StatementError{Action: current, Kind: kind, Name: statement.GetName(), Reason: condition.Reason, Message: condition.Message}
}

func acceptedCondition(statement kube.Object) *metav1.Condition {
	switch s := statement.(type) {
	case *v1alpha1.Claim:
		return meta.FindStatusCondition(s.Status.Conditions, v1alpha1.AcceptedCondition)
	case *v1alpha1.Outcome:
		return meta.FindStatusCondition(s.Status.Conditions, v1alpha1.AcceptedCondition)
	}
	return nil
}

// claim makes a Claim for the present claimableTime, once.
func (call *Call) claim(ctx context.Context, action *v1alpha1.Action) error {
	at := action.Status.ClaimableTime
	if at == nil || call.claimed.Equal(at) {
		return nil
	}
	user, err := call.client.Whoami(ctx)
	if err != nil {
		return err
	}
	claim := &v1alpha1.Claim{
		ObjectMeta: metav1.ObjectMeta{Namespace: action.Namespace},
		Spec: v1alpha1.ClaimSpec{
			ActionRef:     v1alpha1.ObjectReference{Name: action.Name, UID: action.UID},
			ClaimID:       call.claimID,
			ClaimableTime: *at,
			Claimant:      user.Username,
		},
	}
	call.asked = time.Now()
	err = call.client.CreateStatement(ctx, claim, StatementName(action.Name, user.Username), func(existing kube.Object) bool {
		spec := existing.(*v1alpha1.Claim).Spec
		return spec.ClaimID == call.claimID && spec.ClaimableTime.Equal(at) && spec.ActionRef.UID == action.UID
	})
	if err != nil {
		return err
	}
	call.claimed, call.statement = *at, claim
	call.tell(StageClaimed, action)
	return nil
}

// groupResource names the kind of an object in error messages.
func (c *Client) groupResource(object kube.Object) schema.GroupResource {
	gvk, err := c.kube.GroupVersionKindFor(object)
	if err != nil {
		return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "object"}
	}
	return schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}
}
