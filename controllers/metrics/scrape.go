package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

// scrapeTimeout bounds a scrape that comes before the caches are filled: it is answered without what they hold.
const scrapeTimeout = 2 * time.Second

// collectCaches tells what waits.
func (m *Metrics) collectCaches(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	// Nothing is changed below, and copying everything that waits for each scrape would cost more than all the rest.
	unfinished := &v1alpha1.ActionList{}
	if err := m.cache.List(ctx, unfinished, client.UnsafeDisableDeepCopy); err == nil {
		m.collectActions(to, unfinished.Items)
	}
	open := &v1alpha1.EffectList{}
	if err := m.cache.List(ctx, open, client.UnsafeDisableDeepCopy); err == nil {
		m.collectEffects(to, open.Items)
	}
	delegations := &v1alpha1.DelegationList{}
	if err := m.cache.List(ctx, delegations, client.UnsafeDisableDeepCopy); err == nil {
		m.collectEmergencies(to, delegations.Items)
	}
}

// collectEmergencies shows the namespaces that have some, and no others.
func (m *Metrics) collectEmergencies(to chan<- prometheus.Metric, items []v1alpha1.Delegation) {
	open := map[string]float64{}
	for i := range items {
		if _, yes := records.BrokenGlass(&items[i], m.clock()); yes {
			open[items[i].Namespace]++
		}
	}
	each(to, m.breakGlassOpen, open)
}

func (m *Metrics) collectActions(to chan<- prometheus.Metric, items []v1alpha1.Action) {
	states, held := zero(actionStates()), zero(holds())
	var waiting, over oldest
	for i := range items {
		o := &items[i]
		if o.Labels[v1alpha1.CanaryLabel] != "" || o.Status.ReceiptRef != nil {
			continue
		}
		state := flow.State(o.Status.State)
		if state == "" {
			state = flow.Pending
		}
		states[word(state, actionStates())]++
		if why := word(decision.Reason(o.Status.Reason), holds()); why != noWord && why != other && !state.Terminal() {
			held[why]++
		}
		switch {
		case state == flow.AwaitingApproval && o.Status.Approval != nil:
			waiting.add(o.Status.Approval.RequestTime.Time)
		case state == flow.Admitted && o.Status.Execution != nil:
			over.add(o.Status.Execution.LeaseExpirationTime.Time)
		case state.Terminal() && o.Status.FinishTime != nil:
			over.add(o.Status.FinishTime.Time)
		}
	}
	each(to, m.actions, states)
	each(to, m.actionsHeld, held)
	show(to, m.approvalsWaiting, states[string(flow.AwaitingApproval)])
	show(to, m.approvalWaitingOldest, waiting.age(m.clock()))
	show(to, m.receiptMissingOldest, over.age(m.clock()))
}

func (m *Metrics) collectEffects(to chan<- prometheus.Metric, items []v1alpha1.Effect) {
	states := zero(unsettled())
	var ambiguous oldest
	for i := range items {
		o := &items[i]
		if o.Labels[v1alpha1.CanaryLabel] != "" {
			continue
		}
		if o.Status == nil {
			// It lost its status: the next write makes it Ambiguous.
			states[string(effect.Ambiguous)]++
			continue
		}
		state := effect.State(o.Status.State)
		if _, ok := states[string(state)]; !ok {
			continue
		}
		states[string(state)]++
		if state == effect.Ambiguous {
			ambiguous.add(o.Status.LastTransitionTime.Time)
		}
	}
	each(to, m.effects, states)
	show(to, m.effectAmbiguousOldest, ambiguous.age(m.clock()))
}

// collectGuards tells what may forbid deciding.
func (m *Metrics) collectGuards(to chan<- prometheus.Metric) {
	g := m.guards
	if g.AdmissionHeld != nil {
		held := 0.0
		if _, yes := g.AdmissionHeld(); yes {
			held = 1
		}
		show(to, m.admissionHeld, held)
	}
	if g.Freshness != nil {
		show(to, m.freshnessAge, seconds(g.Freshness()))
	}
	if g.ClockOffset != nil {
		if low, high, measured := g.ClockOffset(); measured {
			show(to, m.clockOffset, (low + (high-low)/2).Seconds())
			show(to, m.clockOffsetBound, ((high - low) / 2).Seconds())
		}
	}
	if g.Chains != nil {
		for namespace, seq := range g.Chains() {
			// Every namespace of a cluster may be open; those without a receipt do not use the product.
			if seq > 0 {
				show(to, m.chainSeq, float64(seq), namespace)
			}
		}
	}
	if g.HeldNamespaces != nil {
		for namespace, why := range g.HeldNamespaces() {
			show(to, m.namespaceHeld, 1, namespace, word(decision.Reason(why), holds()))
		}
	}
	if g.Version != "" {
		show(to, m.buildInfo, 1, g.Version)
	}
}

// oldest of several times.
type oldest struct{ time time.Time }

func (o *oldest) add(t time.Time) {
	if !t.IsZero() && (o.time.IsZero() || t.Before(o.time)) {
		o.time = t
	}
}

// age is 0 if there was no time, or none that has come yet.
func (o *oldest) age(now time.Time) float64 {
	if o.time.IsZero() {
		return 0
	}
	return seconds(now.Sub(o.time))
}

// zero counts nothing for each word, so that a word that nothing has is shown as 0.
func zero[W ~string](words []W) map[string]float64 {
	counts := make(map[string]float64, len(words))
	for _, w := range words {
		counts[string(w)] = 0
	}
	return counts
}

func each(to chan<- prometheus.Metric, gauge *prometheus.Desc, values map[string]float64) {
	for label, value := range values {
		show(to, gauge, value, label)
	}
}

// show makes a scrape fail for labels that a gauge does not have: whoever scrapes must not end the operator.
func show(to chan<- prometheus.Metric, gauge *prometheus.Desc, value float64, labels ...string) {
	shown, err := prometheus.NewConstMetric(gauge, prometheus.GaugeValue, value, labels...)
	if err != nil {
		shown = prometheus.NewInvalidMetric(gauge, err)
	}
	to <- shown
}
