package client

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
)

func admittedAction(lease time.Duration, until time.Time) *v1alpha1.Action {
	return &v1alpha1.Action{
		Spec: v1alpha1.ActionSpec{LeaseDurationSeconds: int64(lease / time.Second)},
		Status: v1alpha1.ActionStatus{
			State:     v1alpha1.ActionAdmitted,
			Execution: &v1alpha1.ActionExecution{LeaseExpirationTime: metav1.NewMicroTime(until)},
		},
	}
}

func TestTheSmallerRemainderOfTheLeaseCounts(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const lease = 300 * time.Second
	for name, test := range map[string]struct {
		until     time.Time
		serverNow time.Time
		asked     time.Time
		want      time.Duration
		start     bool
	}{
		"both clocks agree":                            {now.Add(lease), now, now, lease, true},
		"the apiserver's clock leaves less":            {now.Add(40 * time.Second), now, now, 40 * time.Second, false},
		"the machine was suspended":                    {now.Add(lease), now, now.Add(-250 * time.Second), 50 * time.Second, false},
		"the machine's wall clock is an hour behind":   {now.Add(time.Hour + lease), now.Add(time.Hour), now, lease, true},
		"the operator's clock is an hour ahead":        {now.Add(time.Hour + lease), now, now, lease, true},
		"a third is enough":                            {now.Add(100 * time.Second), now, now, 100 * time.Second, true},
		"less than a third is not":                     {now.Add(99 * time.Second), now, now, 99 * time.Second, false},
		"over":                                         {now.Add(-time.Second), now, now, 0, false},
		"asked so long ago that the duration has gone": {now.Add(lease), now, now.Add(-time.Hour), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			action := admittedAction(lease, test.until)
			got := remainingLease(action, test.serverNow, test.asked, now)
			if got != test.want {
				t.Errorf("remaining %s, want %s", got, test.want)
			}
			if enoughLease(action, got) != test.start {
				t.Errorf("starts: %t, want %t", !test.start, test.start)
			}
		})
	}
}

func TestNobodyStartsWithoutAnAdmission(t *testing.T) {
	action := &v1alpha1.Action{Spec: v1alpha1.ActionSpec{LeaseDurationSeconds: 300}}
	remaining := remainingLease(action, time.Now(), time.Now(), time.Now())
	if remaining != 0 || enoughLease(action, remaining) {
		t.Errorf("an action that is not admitted has a lease of %s", remaining)
	}
}
