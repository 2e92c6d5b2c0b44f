package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/guarantees"
	"ctrlrun.dev/operator/kernel/timeline"
)

// question is an action that people are asked about.
type question struct {
	call   *client.Call
	remote *remote
	o      *v1alpha1.Action
}

// question proposes an action and waits until people are asked, which is a control: where nobody is, no answer is refused. It names what
// it rests on, if it does.
func (s *stage) question(ctx context.Context, part string, v guarantees.Vector, restsOn ...v1alpha1.Precondition) (*question, error) {
	before := s.control
	s.control = true
	defer func() { s.control = before }()
	q := &question{}
	var err error
	if q.remote, err = s.remoteFor(part); err != nil {
		return nil, err
	}
	request := s.request(part, v)
	request.Preconditions = restsOn
	if q.call, err = s.agent.Propose(ctx, request); err != nil {
		return nil, err
	}
	if q.o, err = s.asked(ctx, q.call.Action().Name); err != nil {
		return nil, err
	}
	if q.o.Status.State != v1alpha1.ActionAwaitingApproval {
		return nil, s.fail("people are asked about "+q.o.Name, "%s", standing(q.o))
	}
	return q, nil
}

// takes lets somebody say yes, which has to count. It is a control.
func (s *stage) takes(ctx context.Context, q *question, who ...*identity) error {
	before := s.control
	s.control = true
	defer func() { s.control = before }()
	for _, i := range who {
		accepted, verdict, err := s.answer(ctx, i, approvalOf(q.o))
		if err != nil {
			return err
		}
		if !accepted {
			return s.fail(fmt.Sprintf("the approval of %s by %s is accepted", q.o.Name, i.username), "%s", verdict)
		}
	}
	return nil
}

// refuses lets somebody say yes, which has to be refused for that reason, and the action waits with as many approvals as before.
func (s *stage) refuses(ctx context.Context, q *question, who *identity, reason string, counted int64) error {
	accepted, verdict, err := s.answer(ctx, who, approvalOf(q.o))
	if err != nil {
		return err
	}
	if accepted || verdict != reason {
		return s.fail(fmt.Sprintf("the approval of %s by %s is refused: %s", q.o.Name, who.username, reason),
			"accepted: %t, %s; %s", accepted, verdict, s.thatHappens(ctx, q))
	}
	return s.waits(ctx, q, counted)
}

// waits checks that people are still asked, that so many are counted, and that nothing was executed.
func (s *stage) waits(ctx context.Context, q *question, counted int64) error {
	o, err := s.action(ctx, q.o.Name)
	if err != nil {
		return err
	}
	if o.Status.State != v1alpha1.ActionAwaitingApproval || o.Status.Approval == nil || o.Status.Approval.Counted != counted {
		return s.fail(fmt.Sprintf("%d people are counted for %s, and others are still asked", counted, o.Name), "%s; %s", standing(o), s.thatHappens(ctx, q))
	}
	return s.calls(q.remote, 0, o.Name)
}

// thatHappens executes an action that should wait, if it comes to that.
func (s *stage) thatHappens(ctx context.Context, q *question) string {
	return s.whatHappens(ctx, &pair{second: q.call, secondRemote: q.remote})
}

// invalidated reports whether a yes was counted out again because its speaker may not say it any more.
func invalidated(o *v1alpha1.Action) bool {
	return slices.ContainsFunc(o.Status.Timeline, func(e v1alpha1.TimelineEvent) bool {
		return e.Type == string(timeline.ApprovalInvalidated) && e.Data["reason"] == "not_entitled"
	})
}

// unentitled: G17. Somebody approves and loses the right before their yes is spent: it is not spent. And of groups that the policy
// names, somebody who is in none of them is not heard.
func unentitled(ctx context.Context, s *stage) (any, error) {
	v := s.plan.Vectors[0]
	dismissed, err := s.approver(ctx, "dismissed")
	if err != nil {
		return nil, err
	}
	q, err := s.question(ctx, "dismissed", v)
	if err != nil {
		return nil, err
	}
	if err := s.takes(ctx, q, append(slices.Clone(s.approvers[:v.Approvals-1]), dismissed)...); err != nil {
		return nil, err
	}
	if err := s.dismiss(ctx, dismissed, v.ActionType); err != nil {
		return nil, err
	}
	execute, err := s.command(q.remote, Commit)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	came := make(chan error, 1)
	go func() {
		_, err := q.call.Execute(bounded, execute)
		came <- err
	}()
	if err := s.counted(ctx, q, int64(v.Approvals-1)); err != nil {
		cancel()
		<-came
		return nil, err
	}
	// The control: the same action, with somebody who may in the place of who may not.
	if err := s.takes(ctx, q, s.approvers[v.Approvals-1]); err != nil {
		cancel()
		<-came
		return nil, err
	}
	err = <-came
	var uncounted *client.StatementError
	if err != nil && !errors.As(err, &uncounted) {
		return nil, fmt.Errorf("execute %s: %w", q.o.Name, err)
	}
	if uncounted != nil {
		// Who came before has to come again.
		err = s.commits(ctx, q.call, q.remote)
	} else {
		s.control = true
		err = s.calls(q.remote, 1, q.o.Name)
	}
	if err != nil {
		return nil, err
	}
	s.control = false
	return s.outsiders(ctx)
}

// everywhere is how long another apiserver, which the operator may ask, knows of a change later than this one.
const everywhere = time.Second

// dismiss takes the right to approve from somebody, and returns when every apiserver knows.
func (s *stage) dismiss(ctx context.Context, who *identity, actionType string) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "dismissed"}}
	if err := s.admin.Delete(ctx, binding); err != nil {
		return setup("delete the RoleBinding dismissed", err)
	}
	ok, err := who.until(ctx, s.namespace, mayApprove(actionType), false)
	if err == nil && !ok {
		err = fmt.Errorf("somebody whose only RoleBinding in a new namespace was deleted may still approve %s: something gives every ServiceAccount that right, so nobody can lose it", actionType)
	}
	if err == nil && !pause(ctx, everywhere) {
		err = ctx.Err()
	}
	return err
}

// counted waits until so many are counted, and one of them is not any more.
func (s *stage) counted(ctx context.Context, q *question, n int64) error {
	o, err := s.await(ctx, q.o.Name, "who lost the right to approve is not counted", func(o *v1alpha1.Action) bool {
		return o.Status.State == v1alpha1.ActionAwaitingApproval && invalidated(o)
	})
	if err != nil {
		return err
	}
	if o.Status.Approval == nil || o.Status.Approval.Counted != n {
		return s.fail(fmt.Sprintf("%d people are counted for %s", n, o.Name), "%s", standing(o))
	}
	return s.calls(q.remote, 0, o.Name)
}

// everybody are groups that every ServiceAccount is in.
func everybody(group string) bool {
	return group == "system:authenticated" || group == "system:serviceaccounts"
}

// outsiders is the second half of G17. Everywhere else the group of the scratch namespace is asked beside those of the policy; here
// it is not, so nobody who acts is in one that is.
func (s *stage) outsiders(ctx context.Context) (any, error) {
	groups := s.plan.Groups
	if len(groups) == 0 || slices.ContainsFunc(groups, everybody) {
		return map[string]any{"groups": "not driven: the action asks none, or one that everybody is in"}, nil
	}
	if err := s.ask(ctx, s.run.Policies, ""); err != nil {
		return nil, err
	}
	q, err := s.question(ctx, "outsider", s.plan.Vectors[1])
	if err != nil {
		return nil, err
	}
	if err := s.refuses(ctx, q, s.approvers[0], v1alpha1.ReasonNotEntitled, 0); err != nil {
		return nil, err
	}
	return map[string]any{"groups": groups}, s.ask(ctx, s.run.Policies, s.group)
}

// selfApproval: G18. The agent has the right to approve, and not what it asked for itself; nor by another name.
func selfApproval(ctx context.Context, s *stage) (any, error) {
	v := s.plan.Vectors[0]
	if err := s.bind(ctx, "agent-approves", "agent", "ClusterRole", approverRole); err != nil {
		return nil, err
	}
	if err := s.agent.granted(ctx, s.namespace, mayApprove(v.ActionType)); err != nil {
		return nil, err
	}
	q, err := s.question(ctx, "own", v)
	if err != nil {
		return nil, err
	}
	names := []string{"agent"}
	if err := s.refuses(ctx, q, s.agent, v1alpha1.ReasonSelfApproval, 0); err != nil {
		return nil, err
	}
	if s.agentAlias != nil {
		names = append(names, "another name of the agent")
		if err := s.refuses(ctx, q, s.agentAlias, v1alpha1.ReasonSelfApproval, 0); err != nil {
			return nil, err
		}
	}
	if err := s.takes(ctx, q, s.approvers[:v.Approvals]...); err != nil {
		return nil, err
	}
	return map[string]any{"refused": names}, s.commits(ctx, q.call, q.remote)
}

// countedOnce: G19. Where several people are asked, one of them is not two, however often or by whatever name they say yes.
func countedOnce(ctx context.Context, s *stage) (any, error) {
	v := s.plan.Vectors[0]
	q, err := s.question(ctx, "several", v)
	if err != nil {
		return nil, err
	}
	if err := s.takes(ctx, q, s.approvers[0]); err != nil {
		return nil, err
	}
	names := []string{"the same name"}
	if err := s.refuses(ctx, q, s.approvers[0], v1alpha1.ReasonDuplicateApprover, 1); err != nil {
		return nil, err
	}
	if s.approverAlias != nil {
		names = append(names, "another name")
		if err := s.refuses(ctx, q, s.approverAlias, v1alpha1.ReasonDuplicateApprover, 1); err != nil {
			return nil, err
		}
	}
	if err := s.takes(ctx, q, s.approvers[1:v.Approvals]...); err != nil {
		return nil, err
	}
	return map[string]any{"refused": names}, s.commits(ctx, q.call, q.remote)
}

// cached is how long an apiserver may take a token for good that it has seen; it is 10 seconds where nobody configured it.
const cached = 30 * time.Second

// leaves is the first half of G20, and its control: what somebody says counts, and then their ServiceAccount is deleted. It is played
// before everything else, for an apiserver takes a token that it has just seen for some seconds more.
func leaves(ctx context.Context, s *stage) (err error) {
	v := s.plan.Vectors[0]
	if s.leaver, err = s.approver(ctx, "leaver"); err != nil {
		return err
	}
	q, err := s.question(ctx, "before", v)
	if err != nil {
		return err
	}
	if err := s.takes(ctx, q, append(slices.Clone(s.approvers[:v.Approvals-1]), s.leaver)...); err != nil {
		return err
	}
	if err := s.commits(ctx, q.call, q.remote); err != nil {
		return err
	}
	if err := s.admin.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "leaver"}}); err != nil {
		return setup("delete the ServiceAccount leaver", err)
	}
	return nil
}

// revokedCredential: G20. The ServiceAccount of an approver is gone. Its token is refused, so nobody says anything with it any more.
func revokedCredential(ctx context.Context, s *stage) (any, error) {
	q, err := s.question(ctx, "after", s.plan.Vectors[1])
	if err != nil {
		return nil, err
	}
	if err := s.refused(ctx, s.leaver); err != nil {
		return nil, err
	}
	spec := approvalOf(q.o)
	spec.Approver, spec.Reason = s.leaver.username, "verify, with a token that was revoked"
	approval := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: client.StatementName(q.o.Name, s.leaver.username)}, Spec: spec}
	switch err := s.leaver.kube().Create(ctx, approval); {
	case err == nil:
		return nil, s.fail("an approval with a token that was revoked is refused", "it was created; %s", s.thatHappens(ctx, q))
	case !apierrors.IsUnauthorized(err):
		return nil, fmt.Errorf("approve with a token that was revoked: %w", err)
	}
	return nil, s.waits(ctx, q, 0)
}

// refused waits until the apiserver refuses somebody's token.
func (s *stage) refused(ctx context.Context, who *identity) error {
	for deadline := time.Now().Add(cached); ; {
		err := who.kube().Create(ctx, &authenticationv1.SelfSubjectReview{})
		if apierrors.IsUnauthorized(err) {
			return nil
		}
		if err != nil && ctx.Err() == nil && !client.Unreachable(err) {
			return fmt.Errorf("ask whether the token of a ServiceAccount that was deleted is refused: %w", err)
		}
		if time.Now().After(deadline) || !pause(ctx, 200*time.Millisecond) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return s.fail(fmt.Sprintf("the token of a ServiceAccount that was deleted is refused within %s", cached), "it is not")
		}
	}
}
