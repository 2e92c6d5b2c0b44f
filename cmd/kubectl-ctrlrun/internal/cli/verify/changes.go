package verify

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/guarantees"
)

const (
	// changesPolicy is the admission policy that keeps policies and grants where the Settings say that they change by proposals only.
	changesPolicy = "ctrlrun-policy-changes"
	// learning is how long the apiserver, which knows Settings by a watch, may take to go by what they say now.
	learning = 15 * time.Second
)

// unapprovedChange: G21. Somebody whom RBAC lets write policies changes one, which is the control. Then the Settings of the scratch
// namespace say that policies change by proposals only: it is refused, and so is an agent that asks the operator's own question. It is
// the last that is played: from there on verify itself, which need not govern, changes no policy any more.
func unapprovedChange(ctx context.Context, s *stage) (any, error) {
	policy := s.run.Policies[0]
	editor, err := s.editor(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.free(ctx, editor, another(policy)); err != nil {
		return nil, err
	}
	if err := s.onlyProposed(ctx); err != nil {
		return nil, err
	}
	if err := s.closed(ctx, editor, policy); err != nil {
		return nil, err
	}
	return map[string]any{"refusedBy": []string{changesPolicy, identityPolicy}}, s.reserved(ctx)
}

// editor is somebody whom RBAC lets update policies, and who may nothing else.
func (s *stage) editor(ctx context.Context) (*identity, error) {
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "editor"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"actionpolicies"}, Verbs: []string{"get", "update"}}},
	}
	if err := s.admin.Create(ctx, role); err != nil {
		return nil, setup("create a Role for somebody who changes policies", err)
	}
	return s.person(ctx, role.Name, "Role", role.Name, authorizationv1.ResourceAttributes{Verb: "update", Resource: "actionpolicies"})
}

// free checks that a policy is changed by somebody whom RBAC lets, and that the operator goes by it. It is a control: where nobody
// changes any, that a change is refused says nothing. So is that the agent proposes in its own name.
func (s *stage) free(ctx context.Context, editor *identity, p Policy) error {
	s.control = true
	defer func() { s.control = false }()
	_, refusal, err := s.change(ctx, editor, p)
	if err != nil {
		return err
	}
	if refusal != nil {
		return s.fail("a change of the policy "+p.Name+" is taken while the Settings do not say policyChanges: Proposed", "it is refused: %v", refusal)
	}
	if err := s.inForce(ctx, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: p.Name}}); err != nil {
		return err
	}
	o := s.proposal("own", guarantees.Vector{ActionType: s.run.absent, Arguments: map[string]any{}}, s.agent.username)
	err = s.agent.kube().Create(ctx, o)
	if client.Refused(err) {
		return s.fail("an action of a type that is nobody's is taken from the agent", "it is refused: %v", err)
	}
	return err
}

// onlyProposed lets the Settings of the scratch namespace say that policies change by proposals only. That strengthens them, which takes no
// right to govern.
func (s *stage) onlyProposed(ctx context.Context) error {
	o := &v1alpha1.Settings{}
	if err := s.admin.Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: v1alpha1.SettingsName}, o); err != nil {
		return setup("read the Settings of the scratch namespace", err)
	}
	proposed := v1alpha1.PolicyChangesProposed
	o.Spec.PolicyChanges = &proposed
	if err := s.admin.Update(ctx, o); err != nil {
		return setup("update the Settings of the scratch namespace", err)
	}
	return s.inForce(ctx, o)
}

// closed checks that a policy is not changed by somebody without the right to govern it, once the apiserver knows the Settings. Until
// then it is changed in nothing but its version.
func (s *stage) closed(ctx context.Context, editor *identity, p Policy) error {
	expected := fmt.Sprintf("a change of the policy %s is refused by %s within %s of policyChanges: Proposed", p.Name, changesPolicy, learning)
	for deadline := time.Now().Add(learning); ; {
		before, refusal, err := s.change(ctx, editor, p)
		switch {
		case err != nil:
			return err
		case refusal == nil:
			p = another(p)
			if time.Now().After(deadline) || !pause(ctx, 250*time.Millisecond) {
				return s.open(ctx, editor, p, expected)
			}
			continue
		case !strings.Contains(refusal.Error(), "ValidatingAdmissionPolicy '"+changesPolicy+"'"):
			return s.fail(expected, "it is refused by something else: %v", refusal)
		}
		after, err := s.stored(ctx, editor, p.Name)
		if err != nil {
			return err
		}
		if before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() {
			return s.fail("the policy "+p.Name+" is as it was before a change was refused", "it was generation %d, and is %d", before.GetGeneration(), after.GetGeneration())
		}
		return nil
	}
}

// open says that a policy is still changed, and by which right if it is by one.
func (s *stage) open(ctx context.Context, editor *identity, p Policy, expected string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	governs, err := editor.may(ctx, s.namespace, authorizationv1.ResourceAttributes{Verb: "govern", Resource: "actionpolicies", Name: p.Name})
	if err != nil {
		return err
	}
	how := map[bool]string{
		false: "who has not the verb govern on it",
		true:  "who was given no more than get and update, and has the verb govern on it: it is bound to more people than it should be",
	}[governs]
	return s.fail(expected, "it is taken from %s, %s", editor.username, how)
}

// stored is a policy of the scratch namespace as it is written.
func (s *stage) stored(ctx context.Context, who *identity, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ActionPolicy"))
	if err := who.kube().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: name}, o); err != nil {
		return nil, fmt.Errorf("read the policy %s of the scratch namespace: %w", name, err)
	}
	return o, nil
}

// change writes a policy as somebody else than whoever runs this, however often the operator writes its status meanwhile. It gives
// what was there before, and the refusal if it was refused.
func (s *stage) change(ctx context.Context, who *identity, p Policy) (before *unstructured.Unstructured, refusal, err error) {
	o, err := p.object(s.namespace, s.group)
	if err != nil {
		return nil, nil, err
	}
	for deadline := time.Now().Add(patience); ; {
		if before, err = s.stored(ctx, who, p.Name); err != nil {
			return nil, nil, err
		}
		o.SetResourceVersion(before.GetResourceVersion())
		err = who.kube().Update(ctx, o.DeepCopy())
		switch {
		case client.Refused(err):
			return before, err, nil
		case !apierrors.IsConflict(err) || time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond):
			return before, nil, err
		}
	}
}

// reserved checks that the agent cannot ask the question that only the operator asks.
func (s *stage) reserved(ctx context.Context) error {
	o := s.proposal("change", s.plan.Vectors[0], s.agent.username)
	expected := fmt.Sprintf("an action of type %s is refused by %s to whoever is not the operator", o.Spec.ActionType, identityPolicy)
	err := s.agent.kube().Create(ctx, o)
	switch {
	case err == nil:
		return s.fail(expected, "it was created")
	case !client.Refused(err):
		return err
	case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+identityPolicy+"'"):
		return s.fail(expected, "it is refused by something else: %v", err)
	}
	return s.absent(ctx, o.Name)
}
