package metrics

import "github.com/prometheus/client_golang/prometheus"

const (
	minute = 60.0
	hour   = 60 * minute
	day    = 24 * hour
)

// defined is every metric of the operator's own, as a scrape shows it and docs/metrics.md promises it. A help says what it
// is, and what to do about it.
type defined struct {
	// Computed on each scrape.
	gauges []*prometheus.Desc

	actions               *prometheus.Desc
	actionsHeld           *prometheus.Desc
	effects               *prometheus.Desc
	effectAmbiguousOldest *prometheus.Desc
	approvalsWaiting      *prometheus.Desc
	approvalWaitingOldest *prometheus.Desc
	receiptMissingOldest  *prometheus.Desc
	chainSeq              *prometheus.Desc
	namespaceHeld         *prometheus.Desc
	breakGlassOpen        *prometheus.Desc
	admissionHeld         *prometheus.Desc
	freshnessAge          *prometheus.Desc
	clockOffset           *prometheus.Desc
	clockOffsetBound      *prometheus.Desc
	buildInfo             *prometheus.Desc

	// Counted by each write.
	counted []prometheus.Collector

	actionsFinished    *prometheus.CounterVec
	actionsObserved    *prometheus.CounterVec
	effectTransitions  *prometheus.CounterVec
	effectsAmbiguous   *prometheus.CounterVec
	approvals          *prometheus.CounterVec
	leasesLapsed       *prometheus.CounterVec
	receiptsAppended   *prometheus.CounterVec
	sinkDropped        *prometheus.CounterVec
	proposalToAdmitted prometheus.Histogram
	decisionSeconds    prometheus.Histogram
	receiptLag         prometheus.Histogram
}

// define defines them in the order in which they are explained.
func define() *defined {
	// A creationTimestamp has whole seconds, so what is measured from a proposal on is up to a second too long: finer
	// buckets would be an invention.
	fromProposal := []float64{1, 1.5, 2, 3, 5, 10, 30, minute, 5 * minute, 15 * minute, hour, 4 * hour, day, 7 * day}
	fromEnd := []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, minute, 5 * minute, 15 * minute, hour, 4 * hour}
	d := &defined{}
	d.actions = d.gauge("ctrlrun_actions", "Actions that are not finished: no receipt yet. kubectl ctrlrun actions -A --state STATE lists those of a state, and those that finished in it lately.", "state")
	d.actionsHeld = d.gauge("ctrlrun_actions_held", "Actions that are held. Nothing is denied; they go on when the cause is gone. What to do for each reason: docs/runbooks.", "reason")
	d.actionsFinished = d.counter("ctrlrun_actions_finished_total", "Actions that were finished: they ended and have a receipt. Many denied or blocked for one reason: look at the policies, or at the agent that goes on asking.", "state", "decision", "reason")
	d.actionsObserved = d.counter("ctrlrun_actions_observed_total", "Actions that ran in observe mode, by what would have kept them from running (none: nothing) and how they ended. Before the namespace enforces: kubectl ctrlrun stats -n NAMESPACE.", "blocked_reason", "outcome")
	d.effects = d.gauge("ctrlrun_effects", "Effects that are not settled. Those that are Ambiguous wait for a person: kubectl ctrlrun effects -A --state Ambiguous.", "state")
	d.effectTransitions = d.counter("ctrlrun_effect_transitions_total", "Effects that came into a state. Reservations that mostly end Failed cost attempts: look at what the executors report.", "state")
	d.effectsAmbiguous = d.counter("ctrlrun_effects_ambiguous_total", "Effects that became Ambiguous. Find the cause before the next one: docs/runbooks/CtrlrunEffectsAmbiguousBurst.md.", "cause")
	d.effectAmbiguousOldest = d.gauge("ctrlrun_effects_ambiguous_oldest_seconds", "How long the oldest Ambiguous effect has been so; 0: there is none. Nobody may try it again until it is resolved: kubectl ctrlrun resolve.")
	d.approvalsWaiting = d.gauge("ctrlrun_approvals_waiting", "Actions that wait for people. Answer: kubectl ctrlrun approve.")
	d.approvalWaitingOldest = d.gauge("ctrlrun_approvals_waiting_oldest_seconds", "How long the oldest Action has waited for people; 0: there is none. It expires after approvalTTLSeconds.")
	d.approvals = d.counter("ctrlrun_approvals_total", "Answers of people, and questions that nobody answered in time. Many expired: ask other people, or give them more time (approvalTTLSeconds).", "result")
	d.leasesLapsed = d.counter("ctrlrun_leases_lapsed_total", "Executions that did not report before their lease was over, so that nobody knows what happened. Look at the executors' logs, and at spec.leaseDurationSeconds.")
	d.proposalToAdmitted = d.histogram("ctrlrun_proposal_to_admitted_seconds", "Seconds from a proposal to its admission, waits for people and claims included. Up to one second too long: creation times have whole seconds.", fromProposal)
	d.decisionSeconds = d.histogram("ctrlrun_decision_seconds", "Seconds from a proposal to the first decision of a policy. Up to one second too long: creation times have whole seconds. If it grows, look for holds, then at the load of the apiserver.", fromProposal)
	d.receiptLag = d.histogram("ctrlrun_receipt_lag_seconds", "Seconds from the end of an action, or of its effect, to its receipt. If it grows, look at the load of the apiserver.", fromEnd)
	d.receiptMissingOldest = d.gauge("ctrlrun_receipts_missing_oldest_seconds", "How long the oldest action without a receipt has been over, or its lease has; 0: there is none. If it grows, look whether the ledger holds: kubectl get ledgers.")
	d.receiptsAppended = d.counter("ctrlrun_receipts_appended_total", "Receipts that were appended. Verify a chain: kubectl ctrlrun receipts verify -n NAMESPACE.", "kind")
	d.chainSeq = d.gauge("ctrlrun_chain_seq", "Seq of the last receipt of a chain, as this operator knows it. It never shrinks, unless a person accepted a shorter chain.", "namespace")
	d.namespaceHeld = d.gauge("ctrlrun_namespace_held", "1 for each namespace in which nothing is decided, as this operator knows it. What to do for each reason: docs/runbooks.", "namespace", "reason")
	d.breakGlassOpen = d.gauge("ctrlrun_break_glass_open", "Envelopes that somebody opened for an emergency, and that have neither ended nor been revoked. Who, why and until when: kubectl ctrlrun grants -n NAMESPACE.", "namespace")
	d.admissionHeld = d.gauge("ctrlrun_admission_held", "1: the admission policies are not in force, and nothing is decided in any namespace. Install them: kubectl apply --server-side --force-conflicts -k config/admission.")
	d.freshnessAge = d.gauge("ctrlrun_freshness_age_seconds", "Seconds since the caches were last proved equal to the apiserver. From 10 on nothing is decided: look whether the apiserver answers.")
	d.clockOffset = d.gauge("ctrlrun_clock_offset_seconds", "How far the clock of this machine is ahead of the apiserver's, as the middle of what was measured. Off by more than 2 nothing is decided: correct the time of the node.")
	d.clockOffsetBound = d.gauge("ctrlrun_clock_offset_bound_seconds", "How far the real offset of the clock can be from ctrlrun_clock_offset_seconds, either way.")
	d.sinkDropped = d.counter("ctrlrun_sink_dropped_total", "Receipts and events that an export could not take. Nothing is lost in the cluster: write it again with kubectl ctrlrun receipts export.", "sink")
	d.buildInfo = d.gauge("ctrlrun_build_info", "1, with the version of the operator. Two versions at once: a rollout goes on, or is stuck.", "version")
	return d
}

func (d *defined) gauge(name, help string, labels ...string) *prometheus.Desc {
	g := prometheus.NewDesc(name, help, labels, nil)
	d.gauges = append(d.gauges, g)
	return g
}

func (d *defined) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	d.counted = append(d.counted, c)
	return c
}

// histogram of seconds.
func (d *defined) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	d.counted = append(d.counted, h)
	return h
}
