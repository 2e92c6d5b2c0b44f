package client

import (
	"context"
	"sync"
	"time"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

// policiesAge is how long policies are remembered to name Actions by. An old one may give an old name, and nothing else.
const policiesAge = time.Minute

// policies are those of the namespace, as they were read last.
type policies struct {
	mu   sync.Mutex
	set  *policy.Set
	read time.Time
}

// effectKey asks the namespace's policies for the key of an Action. It only makes a good name: without the right to read
// policies, or without a key, the Action gets another name and everything else is the same.
func (c *Client) effectKey(ctx context.Context, object *v1alpha1.Action) (string, bool) {
	// A key does not depend on the environment.
	proposal, err := KernelProposal(object, v1alpha1.DefaultEnvironment)
	if err != nil {
		return "", false
	}
	set := c.policies.recent()
	if set == nil || set.Entry(proposal.Name) == nil {
		if set, err = c.readPolicies(ctx); err != nil {
			return "", false
		}
	}
	result, err := set.Evaluate(proposal)
	if err != nil || result.EffectKey == nil {
		return "", false
	}
	return *result.EffectKey, true
}

func (c *Client) readPolicies(ctx context.Context) (*policy.Set, error) {
	began := time.Now()
	var list v1alpha1.ActionPolicyList
	if err := c.kube.List(ctx, &list, kube.InNamespace(c.namespace)); err != nil {
		return nil, err
	}
	var sources []policy.Source
	for i := range list.Items {
		if o := &list.Items[i]; records.InForce(o) {
			source, _ := records.Policy(o)
			sources = append(sources, source)
		}
	}
	set := policy.NewSet(sources)
	c.policies.mu.Lock()
	defer c.policies.mu.Unlock()
	c.policies.set, c.policies.read = set, began
	return set, nil
}

// recent are the policies as they are remembered, or nil.
func (p *policies) recent() *policy.Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.read) > policiesAge {
		return nil
	}
	return p.set
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
