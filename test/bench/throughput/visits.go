package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// found opens the namespace's chain, puts its policy into force and lets one action run through. It gives that action, which
// says how large others are and what they look like when they are finished.
func (s *scene) found(ctx context.Context, b binary) (*v1alpha1.Action, error) {
	if _, err := s.start(ctx, b); err != nil {
		return nil, err
	}
	if err := s.env.Policy(ctx, namespace, rulesInForce); err != nil {
		return nil, err
	}
	if err := s.env.WaitForAdmission(ctx); err != nil {
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

// sizeOf is how many bytes an action is as JSON, without managedFields: nobody sends those.
func sizeOf(a *v1alpha1.Action) (int, error) {
	o := a.DeepCopy()
	o.ManagedFields = nil
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Action"))
	text, err := json.Marshal(o)
	return len(text), err
}

// weigh makes raw creates as large as an action.
func (s *scene) weigh(size int) error {
	body, err := sized(size)
	if err != nil {
		return err
	}
	for _, c := range s.creators {
		c.body = body
	}
	return nil
}

// visit is one operator on one cluster: it begins with what a snapshot holds.
type visit struct {
	Operator   string `json:"operator"`
	Existing   int    `json:"existing"`
	Repetition int    `json:"repetition"`
	// ReadySeconds is from the start of the process until it is ready.
	ReadySeconds float64 `json:"readySeconds"`
	// CalmSeconds is from then until it has taken up what exists, and CalmProcessorSeconds what that took of a processor.
	CalmSeconds          float64 `json:"calmSeconds"`
	CalmProcessorSeconds float64 `json:"calmProcessorSeconds"`
	// Idle is the operator's memory before it had anything to do, Busy that after all blocks.
	Idle memory `json:"idle"`
	Busy memory `json:"busy"`
}

// fills are snapshots of the cluster by how many finished actions it holds.
type fills map[int]*testenv.Snapshot

// fill makes them, each from the one before. The apiserver is suspended meanwhile: nobody has to hear of what is written.
func (s *scene) fill(ctx context.Context, fresh *testenv.Snapshot, like string, levels []int) (_ fills, err error) {
	all := fills{0: fresh}
	to, err := s.store()
	if err != nil {
		return nil, err
	}
	resume, err := s.env.SuspendAPIServer()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resume()) }()
	existing := 0
	for _, level := range slices.Sorted(slices.Values(levels)) {
		if level == 0 {
			continue
		}
		began := time.Now()
		if err := finishedActions(ctx, to, like, level-existing); err != nil {
			return nil, err
		}
		existing = level
		if all[level], err = s.env.Snapshot(); err != nil {
			return nil, err
		}
		progress("%d finished actions were written in %.0f s", level, time.Since(began).Seconds())
	}
	return all, nil
}

// visits measures all blocks. Each repetition begins with the same clusters for each operator, and the operators take turns
// in going first.
func (s *scene) visits(ctx context.Context, o options, from fills, r *result) error {
	for n := range o.repetitions {
		operators := slices.Clone(o.operators)
		if n%2 == 1 {
			slices.Reverse(operators)
		}
		for _, existing := range o.existing {
			for _, b := range operators {
				if err := s.restore(ctx, from[existing]); err != nil {
					return err
				}
				if err := s.visit(ctx, place{operator: b, existing: existing, repetition: n}, o, r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *scene) visit(ctx context.Context, at place, o options, r *result) error {
	v := visit{Operator: at.operator.Name, Existing: at.existing, Repetition: at.repetition}
	ready, err := s.start(ctx, at.operator)
	if err != nil {
		return err
	}
	v.ReadySeconds = ready.Seconds()
	began := time.Now()
	used, err := s.calm(ctx)
	if err != nil {
		return err
	}
	v.CalmSeconds, v.CalmProcessorSeconds = time.Since(began).Seconds(), used.Seconds()
	if v.Idle, err = memoryOf(s.operator.PID()); err != nil {
		return err
	}
	if err := s.warmUp(ctx, at); err != nil {
		return err
	}
	for _, clients := range o.clients {
		blocks, err := s.series(ctx, at, clients, o.loadsAt(at), o.phases)
		if err != nil {
			return err
		}
		r.Blocks = append(r.Blocks, blocks...)
		for _, b := range blocks {
			progress("%s", b.line())
		}
	}
	if v.Busy, err = memoryOf(s.operator.PID()); err != nil {
		return err
	}
	r.Visits = append(r.Visits, v)
	return s.stop()
}

// calm returns when the operator has nothing to do any more, and the processor time of it until then. What exists is looked
// at once after a start; what is measured here is what comes after that.
func (s *scene) calm(ctx context.Context) (time.Duration, error) {
	const quiet, seconds = 100 * time.Millisecond, 3
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	used, err := processorTime(s.operator.PID())
	for n := 0; n < seconds && err == nil; {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the operator does not calm down: %w", ctx.Err())
		case <-time.After(time.Second):
		}
		before := used
		if used, err = processorTime(s.operator.PID()); used-before < quiet {
			n++
			continue
		}
		n = 0
	}
	return used, err
}

// loadsAt leaves the SDK to the emptiest cluster: what its agents ask beyond the others does not depend on what exists.
func (o options) loadsAt(at place) []string {
	return slices.DeleteFunc(slices.Clone(o.loads), func(load string) bool { return load == sdkLoad && at.existing > slices.Min(o.existing) })
}

// warmUp lets the control plane and the operator meet every kind of object once, and every client connect.
func (s *scene) warmUp(ctx context.Context, at place) error {
	for _, load := range []string{floorLoad, allowLoad, approveLoad} {
		if _, err := s.block(ctx, at, len(s.agents), load, phases{window: 2 * time.Second}); err != nil {
			return err
		}
	}
	return nil
}
