package main

import (
	"math"
	"time"
)

// point is one value of something, at a time since the load began.
type point struct {
	at    time.Duration
	value float64
}

// trend is how a series of points moves: the line of least squares, and what the figures at both ends were. It says nothing
// about what came before the warm-up, which is left out of it.
type trend struct {
	// PerHour is the slope; PerHourLow and PerHourHigh are the ends of its confidence interval of 95 %.
	PerHour     float64 `json:"per_hour"`
	PerHourLow  float64 `json:"per_hour_low"`
	PerHourHigh float64 `json:"per_hour_high"`
	// FirstQuarter and LastQuarter are the means of those parts of the points.
	FirstQuarter float64 `json:"first_quarter_mean"`
	LastQuarter  float64 `json:"last_quarter_mean"`
	Max          float64 `json:"max"`
	// Blocks is how many means the line was laid through; with fewer than minBlocks there is no line.
	Blocks int `json:"blocks"`
	// Span is the time from the first point to the last.
	Span seconds `json:"span_seconds"`
}

// Memory of a process goes up and down like a saw, by garbage collection, so that neighbouring points depend on each other: a
// confidence computed from all of them would be far too narrow. The line is therefore laid through the means of consecutive
// blocks, each long enough for several collections.
const (
	maxBlocks = 20
	minBlocks = 8
)

// student975 is the 97.5 % quantile of Student's distribution, by degrees of freedom from 1: what makes an interval of 95 %.
var student975 = [maxBlocks - 2]float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
}

// trendOf looks at the points after the warm-up. Without a line the slope and its interval are zero.
func trendOf(points []point, warmUp time.Duration) trend {
	for len(points) > 0 && points[0].at < warmUp {
		points = points[1:]
	}
	if len(points) == 0 {
		return trend{}
	}
	quarter := max(1, len(points)/4)
	t := trend{
		FirstQuarter: mean(points[:quarter]).value,
		LastQuarter:  mean(points[len(points)-quarter:]).value,
		Span:         seconds(points[len(points)-1].at - points[0].at),
	}
	for _, p := range points {
		t.Max = max(t.Max, p.value)
	}
	blocks := blocksOf(points)
	t.Blocks = len(blocks)
	if len(blocks) < minBlocks {
		return t
	}
	slope, deviation := line(blocks)
	t.PerHour = slope
	reach := student975[len(blocks)-3] * deviation
	t.PerHourLow, t.PerHourHigh = slope-reach, slope+reach
	return t
}

// blocksOf are the means of consecutive parts of the points, as equal in number as they can be.
func blocksOf(points []point) []point {
	n := min(maxBlocks, len(points))
	blocks := make([]point, 0, n)
	for i := range n {
		blocks = append(blocks, mean(points[i*len(points)/n:(i+1)*len(points)/n]))
	}
	return blocks
}

func mean(points []point) point {
	var at, value float64
	for _, p := range points {
		at += float64(p.at)
		value += p.value
	}
	n := float64(len(points))
	return point{at: time.Duration(at / n), value: value / n}
}

// line is the slope of the line of least squares, an hour, and the standard deviation of that slope. Points that were all
// taken at one time have none.
func line(points []point) (slope, deviation float64) {
	centre := mean(points)
	var xx, xy float64
	for _, p := range points {
		x := (p.at - centre.at).Hours()
		xx += x * x
		xy += x * (p.value - centre.value)
	}
	if xx == 0 {
		return 0, math.Inf(1)
	}
	slope = xy / xx
	var residual float64
	for _, p := range points {
		off := p.value - centre.value - slope*(p.at-centre.at).Hours()
		residual += off * off
	}
	return slope, math.Sqrt(residual / float64(len(points)-2) / xx)
}

// What it takes to call a growth clear. The slope alone would call a drift of two goroutines over a day one, if it is steady
// enough; the quarters alone would take one busy moment for one.
const (
	growthShare = 0.10
	growthCount = 10
	// growthSpan is the shortest time that is judged: less shows how something starts, not how it goes on.
	growthSpan = 5 * time.Minute
)

// verdict on whether something grew.
type verdict string

const (
	flat     verdict = "no clear growth"
	growing  verdict = "grew"
	unjudged verdict = "too short to judge"
)

// growth is the rule that goroutines are judged by: they grew if the whole confidence interval of the slope is above zero, and
// the mean of the last quarter is above that of the first by more than a tenth and by more than ten.
func growth(t trend) verdict {
	if t.Blocks < minBlocks || time.Duration(t.Span) < growthSpan {
		return unjudged
	}
	more := t.LastQuarter - t.FirstQuarter
	if t.PerHourLow > 0 && more > growthCount && more > growthShare*t.FirstQuarter {
		return growing
	}
	return flat
}
