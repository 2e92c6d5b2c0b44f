package verify

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/guarantees"
)

// unknownAction: G6. What no policy names is denied, and leaves a receipt. Where a grant is required and none covers it, that is the
// reason: it is asked first.
func unknownAction(ctx context.Context, s *stage) (any, error) {
	r, err := s.remoteFor("absent")
	if err != nil {
		return nil, err
	}
	execute, err := s.command(r, Commit)
	if err != nil {
		return nil, err
	}
	call, err := s.propose(ctx, "absent", guarantees.Vector{ActionType: s.run.absent, Arguments: map[string]any{}})
	if err != nil {
		return nil, err
	}
	o, err := s.execute(ctx, call, execute)
	if err != nil {
		return nil, err
	}
	if err := s.ends(ctx, o, v1alpha1.ActionDenied, s.plan.RefusedBy, decision.Denied); err != nil {
		return nil, err
	}
	if err := s.calls(r, 0, "the unknown action"); err != nil {
		return nil, err
	}
	s.control = true
	req := s.request("listed", s.plan.Vectors[0])
	req.Unclaimed = true
	if call, err = s.agent.Propose(ctx, req); err != nil {
		return nil, err
	}
	o, err = s.await(ctx, call.Action().Name, "it is decided", func(o *v1alpha1.Action) bool { return o.Status.DecisionReason != "" })
	if err != nil {
		return nil, err
	}
	if want := s.plan.Vectors[0].Reason; o.Status.DecisionReason != string(want) {
		return nil, s.fail(fmt.Sprintf("%s is decided by %s", s.plan.Vectors[0].ActionType, want), "%s, by %s", standing(o), o.Status.DecisionReason)
	}
	return map[string]any{"absentActionType": s.run.absent, "refusedBy": s.plan.RefusedBy}, nil
}

// identityPolicy is the admission policy that says who proposes.
const identityPolicy = "ctrlrun-actions"

// noPrincipal: G7. Nobody proposes in another's name, nor without any.
func noPrincipal(ctx context.Context, s *stage) (any, error) {
	v := s.plan.Vectors[0]
	forged, anonymous := s.proposal("forged", v, s.rival.username), s.proposal("anonymous", v, s.rival.username)
	err := s.agent.kube().Create(ctx, forged)
	switch {
	case err == nil:
		return nil, s.fail("an action that names another agent is refused by "+identityPolicy, "it was created, as proposed by %s", s.rival.username)
	case !client.Refused(err):
		return nil, err
	case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+identityPolicy+"'"):
		return nil, s.fail("an action that names another agent is refused by "+identityPolicy, "it is refused by something else: %v", err)
	}
	nobody, err := s.as("")
	if err != nil {
		return nil, err
	}
	err = nobody.kube().Create(ctx, anonymous)
	switch {
	case err == nil:
		return nil, s.fail("an action of somebody who is not authenticated is refused", "it was created")
	case !apierrors.IsUnauthorized(err) && !client.Refused(err):
		return nil, err
	}
	for _, o := range []*v1alpha1.Action{forged, anonymous} {
		if err := s.absent(ctx, o.Name); err != nil {
			return nil, err
		}
	}
	r, err := s.remoteFor("own")
	if err != nil {
		return nil, err
	}
	s.control = true
	own := s.proposal("own", v, s.agent.username)
	if err := s.agent.kube().Create(ctx, own); err != nil {
		if client.Refused(err) {
			return nil, s.fail("the same action in the agent's own name is taken", "it is refused: %v", err)
		}
		return nil, err
	}
	if err := s.settle(ctx, own.Name, v); err != nil {
		return nil, err
	}
	call, err := s.agent.Attach(ctx, own.Name, "")
	if err != nil {
		return nil, err
	}
	return nil, s.commits(ctx, call, r)
}

// proposal is an Action as anybody could write it, in the name of an agent. It waits for a Claim.
func (s *stage) proposal(part string, v guarantees.Vector, agent string) *v1alpha1.Action {
	return &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name(part)},
		Spec: v1alpha1.ActionSpec{
			ActionType: v.ActionType, Arguments: apiextensionsv1.JSON{Raw: argumentsOf(v)}, Resource: v.Resource,
			Principal: v1alpha1.Principal{Agent: agent}, LeaseDurationSeconds: int64(s.run.lease().Seconds()),
		},
	}
}
