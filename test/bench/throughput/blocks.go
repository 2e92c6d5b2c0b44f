package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// block is one measurement: some clients in a closed loop for a while.
type block struct {
	// Load is floor, allow, approve or sdk: raw creates, or whole lives of actions by one path or another kind of agent.
	Load     string `json:"load"`
	Clients  int    `json:"clients"`
	Operator string `json:"operator"`
	// Existing is how many finished actions the namespace had before the operator was started.
	Existing   int     `json:"existing"`
	Repetition int     `json:"repetition"`
	Operations int     `json:"operations"`
	PerSecond  float64 `json:"perSecond"`
	// Whole is the latency of a raw create, or from a proposal to its receipt, in milliseconds; Admitted is that from a
	// proposal to its admission, as the agent sees it.
	Whole    quantiles  `json:"wholeMs"`
	Admitted *quantiles `json:"admittedMs,omitempty"`
	Cost     cost       `json:"cost"`
	// FloorPerSecond and FloorMs are those of the two blocks of raw creates beside a governed one.
	FloorPerSecond float64    `json:"floorPerSecond,omitempty"`
	FloorMs        *quantiles `json:"floorMs,omitempty"`
	// ToFloor is PerSecond by FloorPerSecond, AdmittedToFloor is that of the medians, and ProcessorToFloor that of the
	// processor time of everything but the clients.
	ToFloor          float64 `json:"toFloor,omitempty"`
	AdmittedToFloor  float64 `json:"admittedToFloor,omitempty"`
	ProcessorToFloor float64 `json:"processorToFloor,omitempty"`
}

const (
	floorLoad   = "floor"
	allowLoad   = "allow"
	approveLoad = "approve"
	sdkLoad     = "sdk"
)

// place is where and when blocks are measured.
type place struct {
	operator   binary
	existing   int
	repetition int
}

// series measures loads one after the other, each between two blocks of raw creates: what disturbs the machine for a while
// disturbs both.
func (s *scene) series(ctx context.Context, at place, clients int, loads []string, p phases) ([]block, error) {
	before, err := s.block(ctx, at, clients, floorLoad, p)
	if err != nil {
		return nil, err
	}
	all := []block{before}
	for _, load := range loads {
		governed, err := s.block(ctx, at, clients, load, p)
		if err != nil {
			return nil, err
		}
		after, err := s.block(ctx, at, clients, floorLoad, p)
		if err != nil {
			return nil, err
		}
		governed.compare(before, after)
		all = append(all, governed, after)
		before = after
	}
	return all, nil
}

func (b *block) compare(before, after block) {
	b.FloorPerSecond = (before.PerSecond + after.PerSecond) / 2
	b.FloorMs = &quantiles{
		P50: (before.Whole.P50 + after.Whole.P50) / 2,
		P99: (before.Whole.P99 + after.Whole.P99) / 2,
		Max: max(before.Whole.Max, after.Whole.Max),
	}
	b.ToFloor = b.PerSecond / b.FloorPerSecond
	b.AdmittedToFloor = b.Admitted.P50 / b.FloorMs.P50
	b.ProcessorToFloor = b.Cost.ofCluster() / ((before.Cost.ofCluster() + after.Cost.ofCluster()) / 2)
}

// block measures one.
func (s *scene) block(ctx context.Context, at place, clients int, name string, p phases) (block, error) {
	b := block{Load: name, Clients: clients, Operator: at.operator.Name, Existing: at.existing, Repetition: at.repetition}
	done, used, err := s.profiled(ctx, b, p)
	if err != nil {
		return b, fmt.Errorf("%s with %d clients: %w", name, clients, err)
	}
	b.Operations, b.PerSecond, b.Whole, b.Cost = done.all, done.rate(), done.latencies(whole), used
	if name != floorLoad {
		admitted := done.latencies(untilAdmitted)
		b.Admitted = &admitted
	}
	return b, nil
}

// profiled is apply, and writes a profile if it is asked to.
func (s *scene) profiled(ctx context.Context, b block, p phases) (load, cost, error) {
	if s.profiler == nil || b.Load == floorLoad {
		return s.apply(ctx, b.Clients, b.Load, p)
	}
	profile := s.profiler.during(ctx, b, p)
	done, used, err := s.apply(ctx, b.Clients, b.Load, p)
	return done, used, errors.Join(err, <-profile)
}

// apply puts a load on, and reads the meter before and after it.
func (s *scene) apply(ctx context.Context, clients int, name string, p phases) (load, cost, error) {
	switch name {
	case floorLoad:
		return metered(ctx, s.meter, s.creators[:clients], p)
	case sdkLoad:
		return metered(ctx, s.meter, s.sdks[:clients], p)
	case allowLoad:
		return s.governed(ctx, clients, allowPath, p)
	case approveLoad:
		return s.governed(ctx, clients, approvePath, p)
	}
	return load{}, cost{}, fmt.Errorf("there is no load %q", name)
}

func (s *scene) governed(ctx context.Context, clients int, path path, p phases) (done load, used cost, err error) {
	err = s.attended(ctx, s.agents[:clients], path, func(ctx context.Context) error {
		done, used, err = metered(ctx, s.meter, s.agents[:clients], p)
		return err
	})
	return done, used, err
}

// attended does something while the agents watch their actions and the approver theirs.
func (s *scene) attended(ctx context.Context, agents []*agent, path path, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, a := range agents {
		a.path, a.lease = path, agentLease
		if err := a.open(ctx); err != nil {
			return err
		}
		defer a.close()
	}
	answering := make(chan error, 1)
	go func() {
		err := s.approver.answer(ctx)
		if err != nil {
			cancel(fmt.Errorf("the approver could not go on: %w", err))
		}
		answering <- err
	}()
	err := do(ctx)
	cancel(nil)
	return errors.Join(<-answering, err)
}

// agentLease is longer than any measurement.
const agentLease = 4 * time.Hour

func metered[C client](ctx context.Context, m *meter, clients []C, p phases) (load, cost, error) {
	before, err := m.begin(ctx)
	if err != nil {
		return load{}, cost{}, err
	}
	done, err := closedLoop(ctx, clients, p)
	if err != nil {
		return load{}, cost{}, err
	}
	after, err := m.end(ctx)
	return done, costOf(before, after, done.all), err
}
