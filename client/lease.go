package client

import (
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// minimumLeaseShare is how much of the lease must be left for an execution to start.
const minimumLeaseShare = 3

// remainingLease is how long an admitted process may still act: the smaller of what the apiserver's clock leaves of the
// lease and what the machine's monotonic clock leaves of its duration since the process asked for it. The first is wrong if
// the clocks differ, the second is right on any clock, because the lease cannot have begun before it was asked for.
func remainingLease(action *v1alpha1.Action, serverNow, asked, now time.Time) time.Duration {
	if action.Status.Execution == nil {
		return 0
	}
	byServer := action.Status.Execution.LeaseExpirationTime.Sub(serverNow)
	byDuration := leaseDuration(action) - now.Sub(asked)
	return max(0, min(byServer, byDuration))
}

func leaseDuration(action *v1alpha1.Action) time.Duration {
	return time.Duration(action.Spec.LeaseDurationSeconds) * time.Second
}

// enoughLease reports whether an execution may still start.
func enoughLease(action *v1alpha1.Action, remaining time.Duration) bool {
	return remaining*minimumLeaseShare >= leaseDuration(action)
}
