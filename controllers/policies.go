package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

// policyCache parses each generation of a policy once.
type policyCache struct {
	cache client.Reader

	mu     sync.Mutex
	parsed map[types.NamespacedName]parsedPolicy
	sets   map[string]madeSet // by namespace
}

type parsedPolicy struct {
	uid        types.UID
	generation int64
	source     policy.Source
	findings   []policy.Finding
}

// set is the union of a namespace's policies. A pass asks for it at every step, so it is made once for what it is made of.
func (c *policyCache) set(ctx context.Context, namespace string) (*policy.Set, error) {
	list := &v1alpha1.ActionPolicyList{}
	if err := c.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	var sources []policy.Source
	var versions []string
	for i := range list.Items {
		o := &list.Items[i] // shared with the cache: read, never written
		if !records.InForce(o) {
			continue
		}
		sources = append(sources, c.parse(o).source)
		versions = append(versions, fmt.Sprintf("%s/%d", o.UID, o.Generation))
	}
	slices.Sort(versions)
	made := strings.Join(versions, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.sets[namespace]; ok && known.of == made {
		return known.set, nil
	}
	set := policy.NewSet(sources).InNamespace(namespace)
	c.sets[namespace] = madeSet{of: made, set: set}
	return set, nil
}

// madeSet is a set, and what it was made of. hash is that of the set with limits and environment.
type madeSet struct {
	of  string
	set *policy.Set

	limits      flow.Limits
	environment string
	authority   *authority.Set // nil: none is required
	observe     bool
	people      string
	executors   string
	hash        string
}

// hash of everything that decides in a namespace, computed once for what it is made of.
func (c *policyCache) hash(world flow.World) (string, error) {
	required, executors := world.Authority, world.Executors.Key()
	if !world.Required {
		required = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.sets[world.Namespace]
	ours := ok && known.set == world.Policies
	if ours && known.hash != "" && known.limits == world.Limits && known.environment == world.Environment && known.authority == required && known.observe == world.Observe && known.people == world.People.Key() && known.executors == executors {
		return known.hash, nil
	}
	hash, err := flow.RulesHash(world)
	if err != nil {
		return "", fmt.Errorf("hash the rules of namespace %s: %w", world.Namespace, err)
	}
	if ours {
		known.limits, known.environment, known.authority, known.observe, known.people, known.executors, known.hash = world.Limits, world.Environment, required, world.Observe, world.People.Key(), executors, hash
		c.sets[world.Namespace] = known
	}
	return hash, nil
}

// parse judges what is stored, not what the typed fields keep of it.
func (c *policyCache) parse(o *v1alpha1.ActionPolicy) parsedPolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if p, ok := c.parsed[key]; ok && p.uid == o.UID && p.generation == o.Generation {
		return p
	}
	p := parsedPolicy{uid: o.UID, generation: o.Generation}
	p.source, p.findings = records.Policy(o)
	c.parsed[key] = p
	return p
}

func (c *policyCache) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.parsed, key)
	delete(c.sets, key.Namespace)
}
