package metrics

import "github.com/prometheus/client_golang/prometheus"

// Type is what kind of metric one is.
type Type string

// The types there are.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Definition is one metric as a scrape shows it and docs/metrics.md promises it.
type Definition struct {
	Name   string
	Type   Type
	Labels []string
	// Help says what it is, and what to do about it.
	Help string
	// buckets of a histogram, in seconds.
	buckets []float64
}

// Names of the metrics.
const (
	actions               = "ctrlrun_actions"
	actionsHeld           = "ctrlrun_actions_held"
	actionsFinished       = "ctrlrun_actions_finished_total"
	effects               = "ctrlrun_effects"
	effectTransitions     = "ctrlrun_effect_transitions_total"
	effectsAmbiguous      = "ctrlrun_effects_ambiguous_total"
	effectAmbiguousOldest = "ctrlrun_effects_ambiguous_oldest_seconds"
	approvalsWaiting      = "ctrlrun_approvals_waiting"
	approvalWaitingOldest = "ctrlrun_approvals_waiting_oldest_seconds"
	approvals             = "ctrlrun_approvals_total"
	leasesLapsed          = "ctrlrun_leases_lapsed_total"
	proposalToAdmitted    = "ctrlrun_proposal_to_admitted_seconds"
	decisionSeconds       = "ctrlrun_decision_seconds"
	receiptLag            = "ctrlrun_receipt_lag_seconds"
	receiptMissingOldest  = "ctrlrun_receipts_missing_oldest_seconds"
	receiptsAppended      = "ctrlrun_receipts_appended_total"
	chainSeq              = "ctrlrun_chain_seq"
	namespaceHeld         = "ctrlrun_namespace_held"
	admissionHeld         = "ctrlrun_admission_held"
	freshnessAge          = "ctrlrun_freshness_age_seconds"
	clockOffset           = "ctrlrun_clock_offset_seconds"
	clockOffsetBound      = "ctrlrun_clock_offset_bound_seconds"
	sinkDropped           = "ctrlrun_sink_dropped_total"
	buildInfo             = "ctrlrun_build_info"
)

const (
	minute = 60.0
	hour   = 60 * minute
	day    = 24 * hour
)

// Definitions is every metric of the operator's own, in the order in which they are explained.
func Definitions() []Definition {
	// A creationTimestamp has whole seconds, so what is measured from a proposal on is up to a second too long: finer
	// buckets would be an invention.
	fromProposal := []float64{1, 1.5, 2, 3, 5, 10, 30, minute, 5 * minute, 15 * minute, hour, 4 * hour, day, 7 * day}
	fromEnd := []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, minute, 5 * minute, 15 * minute, hour, 4 * hour}
	return []Definition{
		{Name: actions, Type: Gauge, Labels: []string{"state"}, Help: "Actions that are not finished: no receipt yet. kubectl ctrlrun actions -A --state STATE lists those of a state, and those that finished in it lately."},
		{Name: actionsHeld, Type: Gauge, Labels: []string{"reason"}, Help: "Actions that are held. Nothing is denied; they go on when the cause is gone. What to do for each reason: docs/runbooks."},
		{Name: actionsFinished, Type: Counter, Labels: []string{"state", "decision", "reason"}, Help: "Actions that were finished: they ended and have a receipt. Many denied or blocked for one reason: look at the policies, or at the agent that goes on asking."},
		{Name: effects, Type: Gauge, Labels: []string{"state"}, Help: "Effects that are not settled. Those that are Ambiguous wait for a person: kubectl ctrlrun effects -A --state Ambiguous."},
		{Name: effectTransitions, Type: Counter, Labels: []string{"state"}, Help: "Effects that came into a state. Reservations that mostly end Failed cost attempts: look at what the executors report."},
		{Name: effectsAmbiguous, Type: Counter, Labels: []string{"cause"}, Help: "Effects that became Ambiguous. Find the cause before the next one: docs/runbooks/CtrlrunEffectsAmbiguousBurst.md."},
		{Name: effectAmbiguousOldest, Type: Gauge, Help: "How long the oldest Ambiguous effect has been so; 0: there is none. Nobody may try it again until it is resolved: kubectl ctrlrun resolve."},
		{Name: approvalsWaiting, Type: Gauge, Help: "Actions that wait for people. Answer: kubectl ctrlrun approve."},
		{Name: approvalWaitingOldest, Type: Gauge, Help: "How long the oldest Action has waited for people; 0: there is none. It expires after approvalTTLSeconds."},
		{Name: approvals, Type: Counter, Labels: []string{"result"}, Help: "Answers of people, and questions that nobody answered in time. Many expired: ask other people, or give them more time (approvalTTLSeconds)."},
		{Name: leasesLapsed, Type: Counter, Help: "Executions that did not report before their lease was over, so that nobody knows what happened. Look at the executors' logs, and at spec.leaseDurationSeconds."},
		{Name: proposalToAdmitted, Type: Histogram, buckets: fromProposal, Help: "Seconds from a proposal to its admission, waits for people and claims included. Up to one second too long: creation times have whole seconds."},
		{Name: decisionSeconds, Type: Histogram, buckets: fromProposal, Help: "Seconds from a proposal to the first decision of a policy. Up to one second too long: creation times have whole seconds. If it grows, look for holds, then at the load of the apiserver."},
		{Name: receiptLag, Type: Histogram, buckets: fromEnd, Help: "Seconds from the end of an action, or of its effect, to its receipt. If it grows, look at the load of the apiserver."},
		{Name: receiptMissingOldest, Type: Gauge, Help: "How long the oldest action without a receipt has been over, or its lease has; 0: there is none. If it grows, look whether the ledger holds: kubectl get ledgers."},
		{Name: receiptsAppended, Type: Counter, Labels: []string{"kind"}, Help: "Receipts that were appended. Verify a chain: kubectl ctrlrun receipts verify -n NAMESPACE."},
		{Name: chainSeq, Type: Gauge, Labels: []string{"namespace"}, Help: "Seq of the last receipt of a chain, as this operator knows it. It never shrinks, unless a person accepted a shorter chain."},
		{Name: namespaceHeld, Type: Gauge, Labels: []string{"namespace", "reason"}, Help: "1 for each namespace in which nothing is decided, as this operator knows it. What to do for each reason: docs/runbooks."},
		{Name: admissionHeld, Type: Gauge, Help: "1: the admission policies are not in force, and nothing is decided in any namespace. Install them: kubectl apply --server-side --force-conflicts -k config/admission."},
		{Name: freshnessAge, Type: Gauge, Help: "Seconds since the caches were last proved equal to the apiserver. From 10 on nothing is decided: look whether the apiserver answers."},
		{Name: clockOffset, Type: Gauge, Help: "How far the clock of this machine is ahead of the apiserver's, as the middle of what was measured. Off by more than 2 nothing is decided: correct the time of the node."},
		{Name: clockOffsetBound, Type: Gauge, Help: "How far the real offset of the clock can be from ctrlrun_clock_offset_seconds, either way."},
		{Name: sinkDropped, Type: Counter, Labels: []string{"sink"}, Help: "Receipts and events that an export could not take. Nothing is lost in the cluster: write it again with kubectl ctrlrun receipts export."},
		{Name: buildInfo, Type: Gauge, Labels: []string{"version"}, Help: "1, with the version of the operator. Two versions at once: a rollout goes on, or is stuck."},
	}
}

// definition finds one by its name, which is one of the constants above.
func definition(name string) Definition {
	for _, d := range Definitions() {
		if d.Name == name {
			return d
		}
	}
	panic("no definition of " + name)
}

func counter(name string) *prometheus.CounterVec {
	d := definition(name)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func histogram(name string) prometheus.Histogram {
	d := definition(name)
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.buckets})
}
