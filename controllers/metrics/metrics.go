// Package metrics counts what the operator writes, and computes on each scrape what waits.
//
// Counters and histograms hear of writes as an observer does, so each replica counts what it did itself: add them up.
// Gauges are computed from the operator's caches and guards when somebody scrapes, so each replica tells what it sees:
// take the largest. What cannot be read is left out rather than shown as 0.
//
// No label ever has a value that somebody who proposes actions can choose, but the name of a namespace: no action types,
// agents, people or keys.
package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/controllers/observe"
)

// Guards are what the operator knows of itself. A func that is nil leaves its metrics out.
type Guards struct {
	// AdmissionHeld reports whether the admission policies are missing, and why.
	AdmissionHeld func() (reason string, held bool)
	// Freshness is how long ago the caches were last proved equal to the apiserver.
	Freshness func() time.Duration
	// ClockOffset bounds how far this machine's clock is ahead of the apiserver's; measured is false before the first answer.
	ClockOffset func() (low, high time.Duration, measured bool)
	// Chains gives the seq of the last receipt of each chain that is open.
	Chains func() map[string]int64
	// HeldNamespaces gives the reason of each namespace that holds for a reason of its own.
	HeldNamespaces func() map[string]string
	// Version of the operator; empty: not known.
	Version string
}

// Metrics of one operator. It may be registered with one registry; several operators of one process need one each.
type Metrics struct {
	cache  client.Reader
	clock  func() time.Time
	guards Guards
	sinks  []string
	*defined
}

var (
	_ observe.Observer     = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// New makes the metrics of an operator. The cache holds the unfinished Actions and the unsettled Effects, and clock is what
// ages are judged by. The sinks are all names that SinkDropped will be given.
func New(cache client.Reader, clock func() time.Time, guards Guards, sinks ...string) *Metrics {
	m := &Metrics{cache: cache, clock: clock, guards: guards, sinks: sinks, defined: define()}
	// A counter that begins with its first increment hides that increment from increase() and rate().
	for _, state := range effectStates() {
		m.effectTransitions.WithLabelValues(string(state))
	}
	for _, cause := range causes() {
		m.effectsAmbiguous.WithLabelValues(string(cause))
	}
	for _, result := range []string{granted, denied, expired, invalidated} {
		m.approvals.WithLabelValues(result)
	}
	for _, kind := range receiptKinds() {
		m.receiptsAppended.WithLabelValues(kind)
	}
	for _, sink := range sinks {
		m.sinkDropped.WithLabelValues(sink)
	}
	m.leasesLapsed.WithLabelValues()
	return m
}

// Register makes a scrape of that registry show these metrics. It fails, and changes nothing, if those of another operator
// are registered there already.
func (m *Metrics) Register(r prometheus.Registerer) error {
	if err := r.Register(m); err != nil {
		return fmt.Errorf("register the metrics of the operator (each of several needs a registry of its own): %w", err)
	}
	return nil
}

// SinkDropped counts one receipt or event that the sink of that name could not take.
func (m *Metrics) SinkDropped(sink string) {
	m.sinkDropped.WithLabelValues(word(sink, m.sinks)).Inc()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, g := range m.gauges {
		to <- g
	}
	for _, c := range m.counted {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.counted {
		c.Collect(to)
	}
	m.collectCaches(to)
	m.collectGuards(to)
}
