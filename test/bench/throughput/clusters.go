package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// cluster is what operators find when they are started: the manifests they belong to, a policy, and finished actions.
type cluster struct {
	// like is the name of an action that ran through: the others are copies of it.
	like string
	// levels are snapshots by how many finished actions there are.
	levels map[int]*testenv.Snapshot
}

// clusters by manifests.
type clusters map[string]*cluster

// bare is a kustomize directory with two namespaces and nothing of this product. Every operator brings its own manifests.
func bare() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "ctrlrun-bench-"); err != nil {
		return "", err
	}
	text := ""
	for _, name := range []string{namespace, floorNamespace} {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name)
	}
	return dir, errors.Join(
		os.WriteFile(filepath.Join(dir, "namespaces.yaml"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [namespaces.yaml]\n"), 0o600),
	)
}

// clusters makes one for each of the manifests. An action of the first operator says how large a raw create is.
func (s *scene) clusters(ctx context.Context, o options, r *result) (clusters, error) {
	empty, err := s.env.Snapshot()
	if err != nil {
		return nil, err
	}
	all := clusters{}
	for i, b := range o.operators {
		if all[b.Manifests] != nil {
			continue
		}
		if i > 0 {
			if err := s.env.Restore(ctx, empty); err != nil {
				return nil, err
			}
		}
		action, err := s.found(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("with the manifests of %s: %w", b.Name, err)
		}
		if i == 0 {
			if r.ActionBytes, err = s.weigh(action); err != nil {
				return nil, err
			}
		}
		c := &cluster{like: action.Name}
		if all[b.Manifests] = c; !o.measures(governedSection) {
			o.existing = nil
		}
		if err := s.fill(ctx, c, o.existing); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// found installs, opens the namespace's chain, puts its policy into force and lets one action run through.
func (s *scene) found(ctx context.Context, b binary) (*v1alpha1.Action, error) {
	if err := s.install(ctx, b.Manifests); err != nil {
		return nil, err
	}
	if _, err := s.start(ctx, b); err != nil {
		return nil, err
	}
	if err := s.env.Policy(ctx, namespace, rulesInForce); err != nil {
		return nil, err
	}
	if err := s.env.WaitForAdmission(ctx); err != nil {
		return nil, err
	}
	if err := s.taken(ctx); err != nil {
		return nil, err
	}
	one := s.agents[:1]
	if err := s.attended(ctx, one, allowPath, func(ctx context.Context) error { return exactly(ctx, one, 1) }); err != nil {
		return nil, err
	}
	list := &v1alpha1.ActionList{}
	if err := s.agents[0].client.List(ctx, list, kube.InNamespace(namespace)); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there are %d actions, not one", len(list.Items))
	}
	return &list.Items[0], s.stop()
}

// weigh makes raw creates as large as an action is as JSON, without managedFields: nobody sends those.
func (s *scene) weigh(a *v1alpha1.Action) (int, error) {
	o := a.DeepCopy()
	o.ManagedFields = nil
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Action"))
	text, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	body, err := sized(len(text))
	for _, c := range s.creators {
		c.body = body
	}
	return len(text), err
}

// fresh is the level of a cluster in which nothing but that one action happened.
const fresh = 0

// fill makes the levels, each from the one before. The apiserver is suspended meanwhile: nobody has to hear of what is written.
func (s *scene) fill(ctx context.Context, c *cluster, levels []int) (err error) {
	resume, err := s.env.SuspendAPIServer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resume()) }()
	to, err := s.store()
	if err != nil {
		return err
	}
	c.levels = map[int]*testenv.Snapshot{}
	existing := fresh
	for _, level := range slices.Concat([]int{fresh}, levels) {
		if c.levels[level] != nil {
			continue
		}
		began := time.Now()
		if level > existing {
			if err := finishedActions(ctx, to, c.like, level-existing); err != nil {
				return err
			}
			existing = level
		}
		if c.levels[level], err = s.env.Snapshot(); err != nil {
			return err
		}
		if level > fresh {
			progress("%d finished actions were written within %.0f s", level, time.Since(began).Seconds())
		}
	}
	return nil
}
