package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// found opens the namespace's chain, puts its policy into force and measures how large an action is.
func (s *scene) found(ctx context.Context, b binary, r *result) error {
	if _, err := s.start(ctx, b); err != nil {
		return err
	}
	if err := s.env.Policy(ctx, namespace, policy); err != nil {
		return err
	}
	if err := s.env.WaitForAdmission(ctx); err != nil {
		return err
	}
	first := s.agents[:1]
	err := s.attended(ctx, first, allowPath, func(ctx context.Context) error { return exactly(ctx, first, 1) })
	if err != nil {
		return err
	}
	if r.ActionBytes, err = s.actionSize(ctx); err != nil {
		return err
	}
	body, err := sized(r.ActionBytes)
	if err != nil {
		return err
	}
	for _, c := range s.creators {
		c.body = body
	}
	return s.stop()
}

// actionSize is how many bytes the finished action is as JSON, without managedFields: nobody sends those.
func (s *scene) actionSize(ctx context.Context) (int, error) {
	list := &v1alpha1.ActionList{}
	if err := s.agents[0].client.List(ctx, list, kube.InNamespace(namespace)); err != nil {
		return 0, err
	}
	if len(list.Items) != 1 {
		return 0, fmt.Errorf("there are %d actions, not one", len(list.Items))
	}
	o := list.Items[0]
	o.ManagedFields = nil
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Action"))
	text, err := json.Marshal(o)
	return len(text), err
}

// visits measures all blocks. Each repetition begins with the same cluster for each operator, and the operators take turns
// in going first.
func (s *scene) visits(ctx context.Context, o options, r *result) error {
	fresh, err := s.env.Snapshot()
	if err != nil {
		return err
	}
	for n := range o.repetitions {
		operators := slices.Clone(o.operators)
		if n%2 == 1 {
			slices.Reverse(operators)
		}
		for _, b := range operators {
			if err := s.env.Restore(ctx, fresh); err != nil {
				return err
			}
			if err := s.visit(ctx, place{operator: b, repetition: n}, o, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scene) visit(ctx context.Context, at place, o options, r *result) error {
	if _, err := s.start(ctx, at.operator); err != nil {
		return err
	}
	if err := s.warmUp(ctx, at); err != nil {
		return err
	}
	for _, clients := range o.clients {
		blocks, err := s.series(ctx, at, clients, o.loads, o.phases)
		if err != nil {
			return err
		}
		r.Blocks = append(r.Blocks, blocks...)
		for _, b := range blocks {
			fmt.Fprintln(os.Stderr, b.line())
		}
	}
	return s.stop()
}

// warmUp lets the control plane and the operator meet every kind of object once.
func (s *scene) warmUp(ctx context.Context, at place) error {
	few := min(8, len(s.agents))
	for _, load := range []string{floorLoad, approveLoad} {
		if _, err := s.measure(ctx, at, few, load, phases{window: 3 * time.Second}); err != nil {
			return err
		}
	}
	return nil
}
