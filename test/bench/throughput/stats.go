package main

import (
	"math"
	"slices"
	"time"
)

// quantiles of latencies, in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// quantilesOf sorts what it is given. Each quantile is one of the values: the smallest that so many are not above.
func quantilesOf(all []time.Duration) quantiles {
	if len(all) == 0 {
		return quantiles{}
	}
	slices.Sort(all)
	at := func(p float64) float64 {
		i := int(math.Ceil(p*float64(len(all)))) - 1
		return milliseconds(all[max(0, i)])
	}
	return quantiles{P50: at(0.5), P99: at(0.99), Max: at(1)}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// spread says what several measurements of one thing gave.
type spread struct {
	Mean float64 `json:"mean" yaml:"mean"`
	// StdDev is that of a sample; 0 with a single one.
	StdDev float64 `json:"stddev" yaml:"stddev"`
	Min    float64 `json:"min" yaml:"min"`
	Max    float64 `json:"max" yaml:"max"`
	N      int     `json:"runs" yaml:"runs"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	s := spread{Min: slices.Min(values), Max: slices.Max(values), N: len(values)}
	for _, v := range values {
		s.Mean += v / float64(len(values))
	}
	if len(values) == 1 {
		return s
	}
	for _, v := range values {
		s.StdDev += (v - s.Mean) * (v - s.Mean) / float64(len(values)-1)
	}
	s.StdDev = math.Sqrt(s.StdDev)
	return s
}
