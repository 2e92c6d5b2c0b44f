package client

import (
	"context"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

// effectKey asks the namespace's policies for the key of an Action. It only makes a good name: without the right to read
// policies, or without a key, the Action gets another name and everything else is the same.
func (c *Client) effectKey(ctx context.Context, object *v1alpha1.Action) (string, bool) {
	var list v1alpha1.ActionPolicyList
	if err := c.kube.List(ctx, &list, kube.InNamespace(c.namespace)); err != nil {
		return "", false
	}
	var sources []policy.Source
	for i := range list.Items {
		if o := &list.Items[i]; records.InForce(o) {
			source, _ := records.Policy(o)
			sources = append(sources, source)
		}
	}
	proposal, err := KernelProposal(object, c.environment(ctx))
	if err != nil {
		return "", false
	}
	result, err := policy.NewSet(sources).Evaluate(proposal)
	if err != nil || result.EffectKey == nil {
		return "", false
	}
	return *result.EffectKey, true
}

// environment of the namespace. Without the right to read it the default is taken: it is not part of a key.
func (c *Client) environment(ctx context.Context) string {
	var namespace corev1.Namespace
	if err := c.kube.Get(ctx, types.NamespacedName{Name: c.namespace}, &namespace); err != nil {
		return v1alpha1.DefaultEnvironment
	}
	return records.Environment(&namespace)
}

// KernelProposal is the kernel's form of an Action: what is hashed. Once the operator has decided, the resource and the
// environment are those it decided by.
func KernelProposal(object *v1alpha1.Action, environment string) (action.Proposal, error) {
	arguments := map[string]any{}
	if len(object.Spec.Arguments.Raw) > 0 {
		value, err := canonical.Parse(object.Spec.Arguments.Raw)
		if err != nil {
			return action.Proposal{}, err
		}
		var ok bool
		if arguments, ok = value.(map[string]any); !ok {
			return action.Proposal{}, &canonical.Error{Reason: "arguments is not an object"}
		}
	}
	proposal := action.Proposal{
		Name:        object.Spec.ActionType,
		Arguments:   arguments,
		Principal:   action.Principal{Agent: object.Spec.Principal.Agent, User: object.Spec.Principal.User},
		Resource:    object.Spec.Resource,
		Environment: environment,
	}
	if object.Status.Environment != "" {
		proposal.Environment = object.Status.Environment
	}
	if object.Status.ActionHash != "" {
		proposal.Resource = object.Status.Resource
	}
	return proposal, nil
}
