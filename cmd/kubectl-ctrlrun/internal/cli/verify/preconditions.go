package verify

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/guarantees"
	"ctrlrun.dev/operator/kernel/receipt"
)

// moved: G16. Two actions rest on the first policy of the scratch namespace being as it is. It is for the first, which is the control.
// Of the second it is another when a process comes with everybody's yes. Nothing but the version of the policy changes, which decides
// nothing, so that it is the precondition that refuses.
func moved(ctx context.Context, s *stage) (any, error) {
	policy := s.run.Policies[0]
	on := v1alpha1.Precondition{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ActionPolicy", Name: policy.Name, Pointer: "/metadata/generation",
	}
	if err := s.stays(ctx, on); err != nil {
		return nil, err
	}
	v := s.plan.Vectors[1]
	q, err := s.promised(ctx, "moved", v, on)
	if err != nil {
		return nil, err
	}
	if err := s.ask(ctx, []Policy{another(policy)}, s.group); err != nil {
		return nil, err
	}
	execute, err := s.command(q.remote, Commit)
	if err != nil {
		return nil, err
	}
	o, err := s.execute(ctx, q.call, execute)
	if err != nil {
		return nil, err
	}
	if err := s.ask(ctx, []Policy{policy}, s.group); err != nil {
		return nil, err
	}
	if err := s.calls(q.remote, 0, o.Name); err != nil {
		return nil, err
	}
	if err := s.ends(ctx, o, v1alpha1.ActionBlocked, decision.PreconditionChanged, decision.Blocked); err != nil {
		return nil, err
	}
	if err := s.tells(ctx, o, true); err != nil {
		return nil, err
	}
	return map[string]any{"precondition": named(on)}, s.unreserved(ctx, o, v)
}

// another is a policy that decides the same, and is written differently.
func another(p Policy) Policy {
	p.Version = map[bool]string{false: "ctrlrun-verify", true: "ctrlrun-verify-2"}[p.Version == "ctrlrun-verify"]
	return p
}

// named is a precondition as people name it.
func named(p v1alpha1.Precondition) string {
	return fmt.Sprintf("%s/%s/%s#%s", p.APIVersion, p.Kind, p.Name, p.Pointer)
}

// stays executes an action while what it rests on is as it was. It is a control: where every precondition refuses, or none is
// compared, that one which moved refuses says nothing.
func (s *stage) stays(ctx context.Context, on v1alpha1.Precondition) error {
	s.control = true
	defer func() { s.control = false }()
	q, err := s.promised(ctx, "stays", s.plan.Vectors[0], on)
	if err != nil {
		return err
	}
	if err := s.commits(ctx, q.call, q.remote); err != nil {
		return err
	}
	o, err := s.over(ctx, q.o.Name)
	if err != nil {
		return err
	}
	return s.tells(ctx, o, false)
}

// promised proposes an action that rests on something, and lets everybody who is needed say yes: a process may come. It is a control.
func (s *stage) promised(ctx context.Context, part string, v guarantees.Vector, on v1alpha1.Precondition) (*question, error) {
	before := s.control
	s.control = true
	defer func() { s.control = before }()
	q, err := s.question(ctx, part, v, on)
	if err != nil {
		return nil, err
	}
	if err := s.takes(ctx, q, s.approvers[:v.Approvals]...); err != nil {
		return nil, err
	}
	expected := "action " + q.o.Name + " waits for a process"
	o, err := s.await(ctx, q.o.Name, expected, func(o *v1alpha1.Action) bool { return o.Status.State == v1alpha1.ActionClaimable })
	if err == nil {
		q.o = o
	}
	return q, err
}

// tells checks what a receipt says of the one precondition: what was compared, whether it had moved, and that no approval was spent if
// it had.
func (s *stage) tells(ctx context.Context, o *v1alpha1.Action, moved bool) error {
	expected := map[bool]string{
		false: fmt.Sprintf("the receipt of %s says one fingerprint of 1 precondition, twice, and who approved", o.Name),
		true:  fmt.Sprintf("the receipt of %s says two fingerprints of 1 precondition, and nobody's approval", o.Name),
	}[moved]
	document, err := s.receipt(ctx, o, expected)
	if err != nil {
		return err
	}
	if !told(document, moved) {
		return s.fail(expected, "it says %q and %q, of %d, and %d approvals", document.PreconditionAtRequest, document.PreconditionAtRecheck,
			len(document.Preconditions), len(document.Approvals))
	}
	return nil
}

// told reports whether a receipt says of one precondition that it moved, or did not, and of approvals what follows.
func told(d receipt.Document, moved bool) bool {
	compared := len(d.Preconditions) == 1 && d.PreconditionAtRequest != "" && d.PreconditionAtRecheck != ""
	return compared && (d.PreconditionAtRequest != d.PreconditionAtRecheck) == moved && (len(d.Approvals) == 0) == moved
}

// unreserved checks that the effect of an Action, if it has any, has no record: nobody reserved it, so another may.
func (s *stage) unreserved(ctx context.Context, o *v1alpha1.Action, v guarantees.Vector) error {
	if v.EffectKey == nil {
		return nil
	}
	name := action.EffectName(*v.EffectKey)
	effect := &v1alpha1.Effect{}
	err := s.viewer.kube().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: name}, effect)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read effect %s: %w", name, err)
	}
	e := effectOf(effect)
	return s.fail("the effect of "+o.Name+" is not reserved", "it is %s, attempt %d, held by %s", e.State, e.Attempt, e.Holder)
}
