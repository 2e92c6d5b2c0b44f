package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// series is a point every two seconds.
func series(n int, value func(i int) float64) []point {
	points := make([]point, n)
	for i := range points {
		points[i] = point{at: time.Duration(i) * 2 * time.Second, value: value(i)}
	}
	return points
}

func TestTrendFindsTheSlope(t *testing.T) {
	// 0.05 every 2 seconds is 90 an hour.
	got := trendOf(series(600, func(i int) float64 { return 100 + 0.05*float64(i) }), 0)
	if math.Abs(got.PerHour-90) > 1e-6 || math.Abs(got.PerHourLow-90) > 1e-3 || math.Abs(got.PerHourHigh-90) > 1e-3 {
		t.Errorf("a straight line has the slope %v (%v to %v), want 90 an hour", got.PerHour, got.PerHourLow, got.PerHourHigh)
	}
	if want := 100 + 0.05*149/2; math.Abs(got.FirstQuarter-want) > 1e-9 {
		t.Errorf("the first quarter has the mean %v, want %v", got.FirstQuarter, want)
	}
	if want := 100 + 0.05*(599-149.0/2); math.Abs(got.LastQuarter-want) > 1e-9 {
		t.Errorf("the last quarter has the mean %v, want %v", got.LastQuarter, want)
	}
	if want := 100 + 0.05*599; got.Max != want {
		t.Errorf("the maximum is %v, want %v", got.Max, want)
	}
}

// The interval has to contain the true slope about 95 times in 100. One that is too narrow calls noise a leak.
func TestTrendIntervalHoldsWhatItPromises(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const runs, slope = 400, 90.0
	held := 0
	for range runs {
		got := trendOf(series(300, func(i int) float64 {
			return 100 + slope*2*float64(i)/3600 + 5*random.NormFloat64()
		}), 0)
		if got.PerHourLow <= slope && slope <= got.PerHourHigh {
			held++
		}
	}
	if held < runs*90/100 || held > runs*99/100 {
		t.Errorf("the true slope was inside %d of %d intervals of 95 %%", held, runs)
	}
}

// Garbage collection makes a saw of memory: each point depends on the one before. Without blocks the interval of such a
// series is several times too narrow.
func TestTrendTakesNoSawForGrowth(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const runs = 200
	wrong := 0
	for range runs {
		level, length := 0.0, 5.0
		got := trendOf(series(600, func(int) float64 {
			level++
			if level > length {
				level, length = 0, 3+4*random.Float64()
			}
			return 100 + 10*level
		}), 0)
		if got.PerHourLow > 0 || got.PerHourHigh < 0 {
			wrong++
		}
	}
	if wrong > runs*12/100 {
		t.Errorf("a saw that goes nowhere has a slope in %d of %d runs", wrong, runs)
	}
}

func TestTrendLeavesTheWarmUpOut(t *testing.T) {
	got := trendOf(series(600, func(i int) float64 { return float64(min(i, 100)) }), 200*time.Second)
	if got.PerHour != 0 || got.FirstQuarter != 100 || got.Span != seconds(998*time.Second) {
		t.Errorf("what grew only while it warmed up has the trend %+v", got)
	}
}

func TestTrendOfTooLittle(t *testing.T) {
	if got := trendOf(nil, 0); got != (trend{}) {
		t.Errorf("nothing has the trend %+v", got)
	}
	got := trendOf(series(minBlocks-1, func(i int) float64 { return float64(i) }), 0)
	if got.PerHour != 0 || got.PerHourLow != 0 || got.PerHourHigh != 0 || got.LastQuarter != minBlocks-2 {
		t.Errorf("%d points have the trend %+v, want no line", minBlocks-1, got)
	}
}

func TestGrowth(t *testing.T) {
	noise := rand.New(rand.NewPCG(5, 6))
	for name, tc := range map[string]struct {
		points []point
		want   verdict
	}{
		"one goroutine is left behind by one action in a thousand": {
			points: series(600, func(i int) float64 { return 150 + 0.04*float64(i) + 3*noise.NormFloat64() }), want: growing,
		},
		"as many come as go": {
			points: series(600, func(int) float64 { return 150 + 10*noise.NormFloat64() }), want: flat,
		},
		"a steady drift that is small": {
			points: series(600, func(i int) float64 { return 150 + 0.01*float64(i) }), want: flat,
		},
		"ten more of very many": {
			points: series(600, func(i int) float64 { return 5000 + 0.05*float64(i) }), want: flat,
		},
		"one busy moment at the end": {
			points: series(600, func(i int) float64 {
				if i > 590 {
					return 1500
				}
				return 150 + 3*noise.NormFloat64()
			}), want: flat,
		},
		"fewer and fewer": {
			points: series(600, func(i int) float64 { return 500 - 0.5*float64(i) }), want: flat,
		},
		"growth, but for four minutes": {
			points: series(120, func(i int) float64 { return 150 + float64(i) }), want: unjudged,
		},
		"growth for five": {
			points: series(151, func(i int) float64 { return 150 + float64(i) }), want: growing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := growth(trendOf(tc.points, 0)); got != tc.want {
				t.Errorf("the verdict is %q, want %q: %+v", got, tc.want, trendOf(tc.points, 0))
			}
		})
	}
}
