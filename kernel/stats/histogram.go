package stats

import (
	"math"
	"time"
)

const (
	// growth is how much wider each bucket is than the one before: a quantile is off by at most half of it.
	growth = 1.04
	// shortest is the upper end of the first bucket, in seconds.
	shortest = 0.1
	// buckets reach up to 0.1 s times 1.04^480, which is more than a hundred days. A wait that is longer counts as that.
	buckets = 480
)

// histogram counts durations in buckets that grow geometrically, so that quantiles need no list of what was measured.
type histogram struct {
	counts [buckets + 1]int64
	total  int64
}

// add counts a duration. One below zero, which clocks that differ can make of a quick answer, is zero.
func (h *histogram) add(d time.Duration) {
	i := 0
	if s := d.Seconds(); s > shortest {
		i = min(int(math.Ceil(math.Log(s/shortest)/math.Log(growth))), buckets)
	}
	h.counts[i]++
	h.total++
}

// quantile is the middle of the bucket that holds the q-th part of what was counted.
func (h *histogram) quantile(q float64) float64 {
	rank := int64(math.Ceil(q * float64(h.total)))
	var seen int64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return round(shortest * math.Pow(growth, float64(i)-0.5))
		}
	}
	return 0
}

func (h *histogram) describe() *Waiting {
	if h.total == 0 {
		return nil
	}
	return &Waiting{Median: h.quantile(0.5), P95: h.quantile(0.95)}
}

// round keeps tenths: more would claim what the buckets do not know.
func round(seconds float64) float64 { return math.Round(seconds*10) / 10 }
