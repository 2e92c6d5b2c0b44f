package cli

import (
	"testing"
	"time"
)

// TestCounting proves that a statement is held back until its time of creation, which has whole seconds, is after the gap.
func TestCounting(t *testing.T) {
	since := time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC)
	for name, test := range map[string]struct {
		known admission
		now   time.Time
		want  bool
	}{
		"nothing is known":          {admission{}, since, true},
		"missing":                   {admission{missing: "gone", counts: since.Add(-time.Hour)}, since, false},
		"before":                    {admission{counts: since}, since.Add(-time.Second), false},
		"in the same second":        {admission{counts: since}, since.Add(999 * time.Millisecond), false},
		"in the next second":        {admission{counts: since}, since.Add(time.Second), true},
		"in the middle of a second": {admission{counts: since.Add(500 * time.Millisecond)}, since.Add(900 * time.Millisecond), false},
	} {
		if got := test.known.counting(test.now); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
