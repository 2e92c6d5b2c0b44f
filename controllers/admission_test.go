package controllers

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"ctrlrun.dev/operator/kernel/decision"
)

// TestAcceptedProbeIsRemembered proves that what no uid or generation tells of is not forgotten before admission is proved
// again: the apiserver took what it must refuse, with policies that are stored as they should be.
func TestAcceptedProbeIsRemembered(t *testing.T) {
	tests := map[string]struct {
		causes   []error
		unproven bool
	}{
		"a policy that is missing shows in uids":       {[]error{gap("a policy is missing")}, false},
		"a probe that was accepted does not":           {[]error{&gapError{message: "accepted", accepted: true}}, true},
		"it is remembered through whatever comes next": {[]error{&gapError{message: "accepted", accepted: true}, gap("a policy is missing")}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			told := 0
			g := &admissionGuard{log: logr.Discard(), changed: func() { told++ }}
			g.accept(time.Unix(100, 0), "record")
			for _, cause := range test.causes {
				g.lose(cause)
			}
			if hold := g.Hold(); hold == nil || hold.Reason != decision.AdmissionMissing {
				t.Fatalf("hold %+v, want admission_missing", hold)
			}
			if g.unproven != test.unproven {
				t.Errorf("unproven %v, want %v", g.unproven, test.unproven)
			}
			g.accept(time.Unix(200, 0), "record")
			if g.unproven || g.Hold() != nil || !g.Since().Equal(time.Unix(200, 0)) {
				t.Errorf("after the proof: unproven %v, hold %v, since %s", g.unproven, g.Hold(), g.Since())
			}
		})
	}
}

// TestOnlyAPolicyProves proves which answers to a probe count: the refusal by the policy itself, and nothing else.
func TestOnlyAPolicyProves(t *testing.T) {
	var evidence *gapError
	if err := refusedByPolicy(nil, "ctrlrun-actions"); !errors.As(err, &evidence) || !evidence.accepted {
		t.Errorf("an accepted probe: %v", err)
	}
	evidence = nil
	if err := refusedByPolicy(errors.New("connection refused"), "ctrlrun-actions"); err == nil || errors.As(err, &evidence) {
		t.Errorf("an apiserver that is away is no proof and no gap: %v", err)
	}
}
