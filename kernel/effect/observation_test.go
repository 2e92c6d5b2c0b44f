package effect_test

import (
	"testing"

	"ctrlrun.dev/operator/kernel/effect"
)

func TestOnlyARequestWithoutAConnectionFailed(t *testing.T) {
	for observed, want := range map[effect.Observation]effect.State{
		"never_connected":     effect.Failed,
		"after_request_sent":  effect.Ambiguous,
		"unreadable_response": effect.Ambiguous,
		"stream_ended_early":  effect.Ambiguous,
		"client_disconnected": effect.Ambiguous,
		"Never_Connected":     effect.Ambiguous,
		"connection_refused":  effect.Ambiguous,
		"":                    effect.Ambiguous,
	} {
		if got := observed.State(); got != want {
			t.Errorf("%q: %s, want %s", observed, got, want)
		}
	}
}

// The wire strings are stored and compared by others.
func TestObservationsAreWireStrings(t *testing.T) {
	got := []effect.Observation{effect.NeverConnected, effect.AfterRequestSent, effect.UnreadableResponse, effect.StreamEndedEarly, effect.ClientDisconnected}
	want := []effect.Observation{"never_connected", "after_request_sent", "unreadable_response", "stream_ended_early", "client_disconnected"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
