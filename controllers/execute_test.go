package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

type stoppedClock time.Time

func (c stoppedClock) Now() time.Time         { return time.Time(c) }
func (stoppedClock) Changed() <-chan struct{} { return nil }

// A machine that was suspended may not have counted that time: the monotonic clock says that it is early, and the one that leases are
// judged by does not.
func TestNothingIsExecutedTooLate(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		before time.Duration
		acts   bool
	}{
		"in time":  {time.Minute, true},
		"just not": {0, false},
		"too late": {-time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			acted := false
			x := &execution{
				passes: &passes{clock: stoppedClock(now), crash: func(string) {}},
				step:   flow.Begin{Before: now.Add(c.before), Lease: now.Add(2 * time.Minute)},
				action: &v1alpha1.Action{}, send: now.Add(time.Minute),
				act: func(context.Context, *v1alpha1.Action, *flow.Going) effect.Settlement {
					acted = true
					return effect.Settlement{State: effect.Committed}
				},
			}
			got := x.execute(t.Context())
			switch {
			case acted != c.acts:
				t.Errorf("it acted: %t", acted)
			case !c.acts && (got.State != effect.Failed || !strings.Contains(got.Error, "too long to begin")):
				t.Errorf("it says %+v", got)
			}
		})
	}
}
