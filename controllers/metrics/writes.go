package metrics

import (
	"time"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/timeline"
)

// ActionWritten implements observe.Observer.
func (m *Metrics) ActionWritten(w observe.ActionWrite) {
	before, after := w.Before, w.After
	if before.Decision == "" && after.Decision != "" {
		m.decisionSeconds.Observe(seconds(w.Time.Sub(w.Object.CreationTimestamp.Time)))
	}
	if before.Execution == nil && after.Execution != nil {
		m.proposalToAdmitted.Observe(seconds(after.Execution.Admitted.Sub(w.Object.CreationTimestamp.Time)))
	}
	// An action without an effect lapses too, so it is the action that tells.
	if before.Ended() != flow.Ambiguous && after.Ended() == flow.Ambiguous && after.Reason == decision.LeaseLapsed {
		m.leasesLapsed.WithLabelValues().Inc()
	}
	if before.Receipt == nil && after.Receipt != nil {
		m.actionsFinished.WithLabelValues(word(after.State, actionStates()), word(after.Decision, decisions()), reason(after.Reason)).Inc()
		if would := after.WouldHave; would != nil {
			m.actionsObserved.WithLabelValues(reason(would.Blocked), word(after.Outcome, outcomes())).Inc()
		}
	}
	for _, e := range w.Events {
		if result, ok := approvalResult(e.Type); ok {
			m.approvals.WithLabelValues(result).Inc()
		}
	}
}

// approvalResult is what an event says about an answer of people, if it is about one.
func approvalResult(t timeline.Type) (result string, ok bool) {
	switch t {
	case timeline.ApprovalGranted:
		return granted, true
	case timeline.ApprovalDenied:
		return denied, true
	case timeline.ApprovalExpired:
		return expired, true
	case timeline.ApprovalInvalidated:
		return invalidated, true
	}
	return "", false
}

// EffectWritten implements observe.Observer.
func (m *Metrics) EffectWritten(w observe.EffectWrite) {
	// A write can leave the state as it is: a late report is noted. A renewal is a new attempt from Failed.
	if w.Before != nil && w.Before.State == w.After.State && w.Before.Attempt == w.After.Attempt {
		return
	}
	m.effectTransitions.WithLabelValues(word(w.After.State, effectStates())).Inc()
	if w.After.State == effect.Ambiguous {
		m.effectsAmbiguous.WithLabelValues(word(w.After.Cause, causes())).Inc()
	}
}

// ReceiptAppended implements observe.Observer.
func (m *Metrics) ReceiptAppended(w observe.ReceiptAppend) {
	m.receiptsAppended.WithLabelValues(word(w.Document.Kind, receiptKinds())).Inc()
	if w.Lag > 0 {
		m.receiptLag.Observe(w.Lag.Seconds())
	}
}

// seconds of a duration that two clocks measured: never less than none.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
