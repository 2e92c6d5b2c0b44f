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

// DelegationOver says since when a delegation grants nothing, for good: it was refused, revoked, or it ends. The times are those at
// which its status began to say so; nil: it does not.
func DelegationOver(refused, revoked, expiration *time.Time) (over time.Time, ends bool) {
	for _, t := range []*time.Time{refused, revoked, expiration} {
		if t != nil && (!ends || t.Before(over)) {
			over, ends = *t, true
		}
	}
	return over, ends
}

// neededAgain is how long a statement that something needs is kept at least before it is asked for again.
const neededAgain = 10 * time.Second

// RetainStatement says how long a statement is still kept that changes nothing since a time. What something that is there needs is
// kept with it; nothing is deleted while nothing may be decided. Zero means that it may go.
func RetainStatement(over time.Time, needed bool, w World, now time.Time) time.Duration {
	switch {
	case len(w.Holds) > 0:
		return time.Minute
	case needed:
		return max(w.Limits.FinishedTTL, neededAgain)
	}
	return max(0, over.Add(w.Limits.FinishedTTL).Sub(now))
}
