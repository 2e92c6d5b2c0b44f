package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

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

// visits measures all blocks. Each repetition begins with the same clusters for each operator, and the operators take turns
// in going first.
func (s *scene) visits(ctx context.Context, o options, from clusters, r *result) error {
	for n := range o.repetitions {
		operators := slices.Clone(o.operators)
		if n%2 == 1 {
			slices.Reverse(operators)
		}
		for _, existing := range o.existing {
			for _, b := range operators {
				if err := s.restore(ctx, from[b.Manifests].levels[existing]); err != nil {
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
