package controllers

import (
	"net/http"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
)

func TestSkewIsHeldOnlyWhenItIsCertain(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 700_000_000, time.UTC)
	tests := map[string]struct {
		offset time.Duration // of the apiserver's clock
		took   time.Duration // the request
		held   bool
	}{
		"equal clocks":                                 {0, 10 * time.Millisecond, false},
		"a second and a half ahead":                    {1500 * time.Millisecond, 10 * time.Millisecond, false},
		"a second and a half behind":                   {-1500 * time.Millisecond, 10 * time.Millisecond, false},
		"four seconds ahead":                           {4 * time.Second, 10 * time.Millisecond, true},
		"four seconds behind":                          {-4 * time.Second, 10 * time.Millisecond, true},
		"a minute ahead, but the answer took too long": {time.Minute, 3 * time.Second, false},
		"within what a slow answer leaves open":        {3 * time.Second, 1900 * time.Millisecond, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := &skewGuard{changed: func() {}, detected: make(chan flow.Skew, 1)}
			g.observe(now, now.Add(test.took), now.Add(test.took/2+test.offset).Format(http.TimeFormat))
			if told := len(g.detected) == 1; told != test.held {
				t.Errorf("told %v, want %v", told, test.held)
			}
			if test.held {
				// The apiserver's offset is the other way round, and Date has whole seconds.
				if skew := <-g.detected; (skew.Ahead+test.offset).Abs() > skew.Bound || skew.Measured != now.Add(test.took) {
					t.Errorf("measured %+v, the apiserver is ahead by %s", skew, test.offset)
				}
			}
			if held := g.Hold() != nil; held != test.held {
				low, high, _ := g.Ahead()
				t.Errorf("held %v, want %v (ahead by %s to %s)", held, test.held, low, high)
			}
		})
	}
}

func TestSkewHoldEndsAndSaysSo(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	changed := 0
	g := &skewGuard{changed: func() { changed++ }}
	g.observe(now, now, now.Add(time.Hour).Format(http.TimeFormat))
	hold := g.Hold()
	if hold == nil || hold.Reason != decision.ClockSkew || !hold.Since.Equal(now) {
		t.Fatalf("hold %+v, want clock_skew since %s", hold, now)
	}
	g.observe(now.Add(time.Second), now.Add(time.Second), now.Add(time.Hour).Format(http.TimeFormat))
	if again := g.Hold(); again.Since != hold.Since || again.Message != hold.Message {
		t.Errorf("the hold changed to %+v: every status would be written again", again)
	}
	g.observe(now.Add(2*time.Second), now.Add(2*time.Second), now.Add(2*time.Second).Format(http.TimeFormat))
	if g.Hold() != nil || changed != 1 {
		t.Errorf("hold %v, told %d times; want none, once", g.Hold(), changed)
	}
}

func TestSkewNeedsADate(t *testing.T) {
	g := &skewGuard{changed: func() {}}
	g.observe(time.Now(), time.Now(), "")
	if _, _, measured := g.Ahead(); measured || g.Hold() != nil {
		t.Error("an answer without a Date measures nothing")
	}
}
