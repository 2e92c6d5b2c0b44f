package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// restart is how an operator takes up what is admitted when it starts.
type restart struct {
	Operator string `json:"operator"`
	InFlight int    `json:"inFlight"`
	// Reported says when the reports came: "before" the operator was started, or "after" it was ready.
	Reported string `json:"reported"`
	// ReadySeconds is from the start of the process until it is ready; only where reports come after that.
	ReadySeconds float64 `json:"readySeconds,omitempty"`
	// ReportedSeconds is how long it took to send all reports.
	ReportedSeconds float64 `json:"reportedSeconds"`
	// SettledSeconds is until all have a receipt: from the start of the process, or from the first report.
	SettledSeconds float64 `json:"settledSeconds"`
	Memory         memory  `json:"memory"`
}

// inFlight makes a cluster with so many admitted actions, and gives it with them.
func (s *scene) inFlight(ctx context.Context, b binary, from *testenv.Snapshot, n int) (*testenv.Snapshot, []v1alpha1.Action, error) {
	if err := s.restore(ctx, from); err != nil {
		return nil, nil, err
	}
	if _, err := s.start(ctx, b); err != nil {
		return nil, nil, err
	}
	first, err := s.agents[0].admitted(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.stop(); err != nil {
		return nil, nil, err
	}
	to, err := s.store()
	if err != nil {
		return nil, nil, err
	}
	resume, err := s.env.SuspendAPIServer()
	if err != nil {
		return nil, nil, err
	}
	actions, err := admittedActions(ctx, to, first, n-1)
	if err := errors.Join(err, resume()); err != nil {
		return nil, nil, err
	}
	snapshot, err := s.env.Snapshot()
	return snapshot, actions, err
}

// admitted proposes an action and leaves it at that.
func (a *agent) admitted(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a.path, a.lease = allowPath, agentLease
	if err := a.open(ctx); err != nil {
		return "", err
	}
	defer a.close()
	proposed, err := a.propose(ctx)
	if err != nil {
		return "", err
	}
	for {
		action, err := a.next(ctx)
		if err != nil {
			return "", err
		}
		if action.Name == proposed.Name && action.Status.State == v1alpha1.ActionAdmitted {
			return action.Name, nil
		}
	}
}

// restarts measures both orders: the reports after the operator, and the operator after the reports.
func (s *scene) restarts(ctx context.Context, o options, from clusters, r *result) error {
	for _, b := range o.operators {
		cluster, actions, err := s.inFlight(ctx, b, from[b.Manifests].levels[fresh], o.inFlight)
		if err != nil {
			return err
		}
		for _, measure := range []func(context.Context, binary, []v1alpha1.Action) (restart, error){s.reportAfter, s.reportBefore} {
			if err := s.restore(ctx, cluster); err != nil {
				return err
			}
			found, err := measure(ctx, b, actions)
			if err != nil {
				return err
			}
			if found.Memory, err = memoryOf(s.operator.PID()); err != nil {
				return err
			}
			if err := s.stop(); err != nil {
				return err
			}
			r.Restarts = append(r.Restarts, found)
			progress("%s: %d in flight, reported %s the start: settled in %.1f s", b.Name, found.InFlight, found.Reported, found.SettledSeconds)
		}
	}
	return nil
}

func (s *scene) reportAfter(ctx context.Context, b binary, actions []v1alpha1.Action) (restart, error) {
	r := restart{Operator: b.Name, InFlight: len(actions), Reported: "after"}
	ready, err := s.start(ctx, b)
	if err != nil {
		return r, err
	}
	r.ReadySeconds = ready.Seconds()
	began := time.Now()
	settled, err := s.agents[0].settled(ctx, actions, func(ctx context.Context) error {
		err := s.agents[0].reportAll(ctx, actions)
		r.ReportedSeconds = time.Since(began).Seconds()
		return err
	})
	r.SettledSeconds = settled.Seconds()
	return r, err
}

func (s *scene) reportBefore(ctx context.Context, b binary, actions []v1alpha1.Action) (restart, error) {
	r := restart{Operator: b.Name, InFlight: len(actions), Reported: "before"}
	began := time.Now()
	if err := s.agents[0].reportAll(ctx, actions); err != nil {
		return r, err
	}
	r.ReportedSeconds = time.Since(began).Seconds()
	settled, err := s.agents[0].settled(ctx, actions, func(context.Context) error { return s.launch(b) })
	r.SettledSeconds = settled.Seconds()
	return r, err
}

// reporters is how many reports are sent at once.
const reporters = 32

// reportAll reports actions that this agent proposed.
func (a *agent) reportAll(ctx context.Context, actions []v1alpha1.Action) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	todo := make(chan *v1alpha1.Action, len(actions))
	for i := range actions {
		todo <- &actions[i]
	}
	close(todo)
	errs := make([]error, reporters)
	var group sync.WaitGroup
	for i := range reporters {
		group.Go(func() {
			for action := range todo {
				if errs[i] = a.report(ctx, action); errs[i] != nil {
					cancel()
					return
				}
			}
		})
	}
	group.Wait()
	return first(errs)
}

// settled begins something and returns how long after that the agent sees the last of the actions finished.
func (a *agent) settled(ctx context.Context, actions []v1alpha1.Action, begin func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	if err := a.open(ctx); err != nil {
		return 0, err
	}
	defer a.close()
	began := time.Now()
	begun := make(chan error, 1)
	go func() {
		err := begin(ctx)
		if err != nil {
			cancel()
		}
		begun <- err
	}()
	finished := map[types.UID]bool{}
	for len(finished) < len(actions) {
		action, err := a.next(ctx)
		if err == nil && action.Status.ReceiptRef != nil {
			err = committed(action)
			finished[action.UID] = true
		}
		if err != nil {
			cancel()
			return 0, fmt.Errorf("%d of %d actions are finished: %w", len(finished), len(actions), first([]error{<-begun, err}))
		}
	}
	return time.Since(began), <-begun
}
