package flow_test

import (
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// When somebody is asked what became of an effect, and what comes of the answer.
func TestObserving(t *testing.T) {
	lookout := flow.Executor{Name: "lookout", Hash: executorHash, Types: []string{"stripe.refund"}, OnlyObserves: true, Observes: &flow.Observer{Timeout: 10 * time.Second}}
	invalid, blind := lookout, lookout
	invalid.Invalid, blind.Observes = "spec.observe: no", nil
	holder := anAction("a0").Admitted(1).Ended(flow.Ambiguous, decision.LeaseLapsed).Receipted(5).Obj()
	second := anAction("a0").Admitted(2).Ended(flow.Ambiguous, decision.LeaseLapsed).Receipted(5).Obj()
	unfinished := anAction("a0").Admitted(1).Obj()
	record := func(cause effect.Cause) *effect.Record {
		return aRecord(anAction("a0").Obj()).Settled(effect.Ambiguous, cause).Obj()
	}
	lapsed := record(effect.LeaseLapsed)
	two := record(effect.LeaseLapsed)
	two.Status.ResolutionsRequired = 2
	next := *record(effect.LeaseLapsed)
	status := *next.Status
	status.Attempt, next.Status = 2, &status
	looked := func(answer flow.Answer) *flow.Observation {
		o := &flow.Observation{Executor: flow.ExecutorRef{Name: "lookout", Hash: executorHash}, Attempt: 1, EffectUID: "effect-uid", Moment: flow.Blocking, ID: "id", Started: noon, Expiration: noon.Add(25 * time.Second), Answer: answer}
		if answer != "" {
			at := noon
			o.Finished = &at
		}
		return o
	}
	const asks, blocked = "observe Blocking 1", "end a1: Blocked ambiguous"
	for name, tc := range map[string]struct {
		by     flow.Executor
		record *effect.Record
		seen   *flow.Observation
		holder *flow.Action
		change func(*flow.Snapshot)
		want   string
	}{
		"it is asked":                         {lookout, lapsed, nil, holder, nil, asks},
		"whatever made it ambiguous":          {lookout, record(effect.ExecutorLost), nil, holder, nil, asks},
		"nobody observes":                     {blind, lapsed, nil, holder, nil, blocked},
		"it is not valid":                     {invalid, lapsed, nil, holder, nil, "end a1: Denied executor_invalid"},
		"the record was lost":                 {lookout, record(effect.StatusMissing), nil, holder, nil, blocked},
		"two people are asked":                {lookout, two, nil, holder, nil, blocked},
		"two people are asked by now":         {lookout, lapsed, nil, holder, func(s *flow.Snapshot) { s.World.Policies = aPolicy(askingTwo) }, blocked},
		"while the holder is not finished":    {lookout, lapsed, nil, unfinished, nil, "wait a1: Pending waiting_for_holder"},
		"while it holds":                      {lookout, lapsed, nil, holder, hold(decision.ClockSkew, noon.Add(-time.Minute)), "hold a1: Pending clock_skew"},
		"while it has not answered":           {lookout, lapsed, looked(""), holder, nil, "wait until 12:00:25 for observation"},
		"whoever asked died":                  {lookout, lapsed, looked(""), holder, func(s *flow.Snapshot) { s.Now = noon.Add(25 * time.Second) }, "observed a1: Pending"},
		"it does not know":                    {lookout, lapsed, looked(flow.AnswerUnknown), holder, nil, blocked},
		"it was asked for an earlier attempt": {lookout, &next, looked(flow.AnswerUnknown), holder, nil, blocked},
		"it says that it happened":            {lookout, lapsed, looked(flow.AnswerCommitted), holder, nil, "resolve 1: Committed by lookout quoting 5"},
		"it says that it did not":             {lookout, lapsed, looked(flow.AnswerNotExecuted), holder, nil, "resolve 1: Failed by lookout quoting 5"},
		"what it said is on its way":          {lookout, lapsed, looked(flow.AnswerCommitted), holder, func(s *flow.Snapshot) { s.Stated = true }, "wait until 12:01:00 for resolution"},
		"what it said did not settle it":      {lookout, lapsed, looked(flow.AnswerCommitted), holder, func(s *flow.Snapshot) { *s.Action.Observation.Finished = noon.Add(-time.Minute) }, blocked},
		"what it said of an earlier attempt":  {lookout, &next, looked(flow.AnswerNotExecuted), second, nil, blocked},
		"it is gone, and what it said is not": {flow.Executor{Name: "other"}, lapsed, looked(flow.AnswerCommitted), holder, nil, "resolve 1: Committed by lookout quoting 5"},
		"somebody else has settled it":        {lookout, aRecord(anAction("a0").Obj()).Settled(effect.Committed, "").Obj(), looked(flow.AnswerNotExecuted), holder, nil, "end a1: Blocked duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			a := anAction("a1").Obj()
			a.Observation = tc.seen
			b := aPass(a).Read().Effect(flow.Fresh, tc.record).Holder(flow.Fresh, tc.holder).Executors(tc.by)
			if tc.change != nil {
				b.With(tc.change)
			}
			expect(t, b, tc.want)
		})
	}
}

// An executor that does not know is asked about right away, if it is to be: after the receipt, once, and never of one that was lost.
func TestObservingEagerly(t *testing.T) {
	eager := flow.Executor{Name: "lookout", Hash: executorHash, Types: []string{"stripe.refund"}, OnlyObserves: true, Observes: &flow.Observer{Eager: true, Timeout: 10 * time.Second}}
	patient := eager
	patient.Observes = &flow.Observer{Timeout: 10 * time.Second}
	seen := func(moment flow.Moment, answer flow.Answer) *flow.Observation {
		at := noon
		return &flow.Observation{Executor: flow.ExecutorRef{Name: "lookout"}, Attempt: 1, EffectUID: "effect-uid", Moment: moment, Started: noon, Expiration: noon.Add(25 * time.Second), Answer: answer, Finished: &at}
	}
	const finishes = "finish a1: Ambiguous reported_unknown"
	for name, tc := range map[string]struct {
		by    flow.Executor
		cause effect.Cause
		seen  *flow.Observation
		want  string
	}{
		"it is eager":                  {eager, effect.ReportedUnknown, nil, "observe Eager 1"},
		"it is not":                    {patient, effect.ReportedUnknown, nil, finishes},
		"its lease lapsed":             {eager, effect.LeaseLapsed, nil, finishes},
		"its executor was lost":        {eager, effect.ExecutorLost, nil, finishes},
		"its report does not count":    {eager, effect.OutcomeNotAccepted, nil, finishes},
		"its record was lost":          {eager, effect.StatusMissing, nil, finishes},
		"it asked when it was blocked": {eager, effect.ReportedUnknown, seen(flow.Blocking, flow.AnswerNotExecuted), finishes},
		"it asked, and nobody knows":   {eager, effect.ReportedUnknown, seen(flow.Eager, flow.AnswerUnknown), finishes},
		"it asked, and it happened":    {eager, effect.ReportedUnknown, seen(flow.Eager, flow.AnswerCommitted), "resolve 1: Committed by lookout quoting 7"},
	} {
		t.Run(name, func(t *testing.T) {
			a := anAction("a1").Admitted(1).Obj()
			a.Observation = tc.seen
			r := aRecord(anAction("a1").Obj()).Settled(effect.Ambiguous, tc.cause).Obj()
			id := receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}
			found := &receipt.Document{Result: decision.Ambiguous, Reason: decision.ReportedUnknown}
			expect(t, aPass(a).Read().Effect(flow.Fresh, r).Executors(tc.by).Chain(id, found), tc.want)
		})
	}
}

// Only whoever asked answers, and once.
func TestAnswered(t *testing.T) {
	a := anAction("a1").Obj()
	s := aPass(a).Obj()
	if _, ours := flow.Answered(s, "id", flow.AnswerCommitted, ""); ours {
		t.Error("nobody asked, and it is answered")
	}
	a.Observation = &flow.Observation{ID: "id"}
	s = aPass(a).Obj()
	if _, ours := flow.Answered(s, "other", flow.AnswerCommitted, ""); ours {
		t.Error("somebody else answers")
	}
	write, ours := flow.Answered(s, "id", flow.AnswerCommitted, "")
	if !ours || write.Status.Observation.Answer != flow.AnswerCommitted || write.Status.Observation.Finished == nil || a.Observation.Answer != "" {
		t.Errorf("the answer is %+v", write.Status.Observation)
	}
	a.Observation = write.Status.Observation
	if _, ours := flow.Answered(aPass(a).Obj(), "id", flow.AnswerNotExecuted, ""); ours {
		t.Error("it is answered twice")
	}
}
