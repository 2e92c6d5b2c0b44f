package controllers

import (
	"context"
	"errors"
	"testing"
	"time"
)

// What admits or reserves is sent before the first of two times is over: that of the pass, and that of the proof of its caches. A cut
// that the caches do not hold yet is so known in time.
func TestAWriteIsAsOldAsWhatItRestsOn(t *testing.T) {
	began := time.Now().Add(time.Hour) // so that no deadline is over while this runs
	at := func(d time.Duration) time.Time { return began.Add(d) }
	for name, tc := range map[string]struct {
		proved, now, limit time.Time // no limit: it is too late
	}{
		"the pass ends first":          {at(time.Minute), at(time.Second), at(passLimit)},
		"the proof ends first":         {at(3 * time.Second), at(time.Second), at(3 * time.Second)},
		"at the end of the proof":      {at(3 * time.Second), at(3 * time.Second), at(3 * time.Second)},
		"after the end of the proof":   {at(3 * time.Second), at(3*time.Second + 1), time.Time{}},
		"after the end of the pass":    {at(time.Minute), at(passLimit + 1), time.Time{}},
		"nothing was ever proved":      {time.Time{}, at(time.Second), time.Time{}},
		"proved before the pass began": {at(-time.Second), at(0), time.Time{}},
	} {
		ctx, cancel, err := sentBy(context.Background(), began, tc.proved, tc.now)
		if tc.limit.IsZero() {
			if !errors.Is(err, errAgain) || ctx != nil {
				t.Errorf("%s: it may be sent: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if limit, _ := ctx.Deadline(); !limit.Equal(tc.limit) {
			t.Errorf("%s: it has to be sent %s after the beginning, want %s", name, limit.Sub(began), tc.limit.Sub(began))
		}
		cancel()
	}
}
