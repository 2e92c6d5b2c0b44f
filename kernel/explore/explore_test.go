package explore_test

import (
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/explore"
)

func TestScenarios(t *testing.T) {
	for _, s := range explore.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			began := time.Now()
			r, err := explore.Explore(s, explore.Options{States: 100000})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d transitions, depth %d, exhausted %t, %d recoveries, %d snapshots, %s", r.States, r.Transitions, r.Depth, r.Exhausted, r.Recovered, r.Asked, time.Since(began))
			if r.Violation != nil {
				t.Errorf("%s\n%s", r.Violation, strings.Join(r.Trace, "\n"))
			}
		})
	}
}
