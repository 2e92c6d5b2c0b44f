package main

import (
	"errors"
	"fmt"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
)

// TestUnsaid: only an agent that the Action still counts on is gone without a word.
func TestUnsaid(t *testing.T) {
	action := &v1alpha1.Action{}
	unavailable := errors.New("the apiserver is away")
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"it ended well":             {nil, false},
		"it could not say so":       {errors.Join(&client.WaitingError{Action: action}, fmt.Errorf("that could not be said: %w", unavailable)), true},
		"it withdrew":               {&client.WaitingError{Action: action, Withdrawn: true}, false},
		"the Action was denied":     {&client.EndedError{Action: action}, false},
		"another process has it":    {&client.ElsewhereError{Action: action}, false},
		"it gave up in time":        {&client.LeaseError{Action: action}, false},
		"it executed and waited on": {&client.UnknownError{Action: action, Err: &client.WaitingError{Action: action}}, false},
		"another error":             {unavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unsaid(test.err); got != test.want {
				t.Errorf("unsaid is %t, want %t", got, test.want)
			}
		})
	}
}
