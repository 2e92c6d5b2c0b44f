package flow

import (
	"slices"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
)

// Retained is what matters for how long a finished action is kept.
type Retained struct {
	UID             string
	Finished        bool
	FinishTime      time.Time
	HolderUID       string // of its effect's present attempt
	EffectAmbiguous bool
}

// Retain says how long an action is still kept: for the given time, or, with keep, until something else changes. Neither
// means that it may go.
func Retain(r Retained, w World, now time.Time) (wait time.Duration, keep bool) {
	switch {
	case slices.ContainsFunc(w.Holds, func(h Hold) bool { return h.Reason == decision.ClockSkew }):
		return time.Minute, false // by a clock that is wrong everything is due
	case !r.Finished:
		return 0, true
	case r.EffectAmbiguous && r.HolderUID == r.UID:
		return 0, true // somebody has to find out what happened, from this
	}
	return max(0, r.FinishTime.Add(w.Limits.FinishedTTL).Sub(now)), false
}
