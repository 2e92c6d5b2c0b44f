package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// attemptID names an attempt. An Action without an effect key is an attempt of its own, with number 0.
type attemptID struct {
	key    string
	number int64
}

func idOf(key, actionUID string, number int64) attemptID {
	if key == "" {
		return attemptID{key: "action " + actionUID}
	}
	return attemptID{key: key, number: number}
}

// attempt is what is on record about one attempt.
type attempt struct {
	id attemptID
	// admitted are the Actions that were admitted for it, the first of them since.
	admitted      []admission
	admittedSince time.Time
	// left is when its agent gave it up and could not say so; zero: it did not.
	left time.Time
	// action, actionUID and work of the last of them, or of its holder.
	action, actionUID, work string

	// committed, failed: how it ended, at last. Both are false while it goes on or is Ambiguous.
	committed, failed bool
	// ambiguous: it was so at one time, for this cause, since this time.
	ambiguous bool
	cause     v1alpha1.EffectCause
	since     time.Time
	// resolved: a person said how it ended.
	resolved bool
}

type admission struct {
	action, uid, token, claimID string
}

var causes = map[string]v1alpha1.EffectCause{
	string(decision.LeaseLapsed):        v1alpha1.CauseLeaseLapsed,
	string(decision.ReportedUnknown):    v1alpha1.CauseReportedUnknown,
	string(decision.ExecutorLost):       v1alpha1.CauseExecutorLost,
	string(decision.StatusMissing):      v1alpha1.CauseStatusMissing,
	string(decision.OutcomeNotAccepted): v1alpha1.CauseOutcomeNotAccepted,
}

// attempts gathers every attempt that Actions, receipts and Effects tell of.
func attempts(s State) map[attemptID]*attempt {
	all := map[attemptID]*attempt{}
	get := func(id attemptID) *attempt {
		if all[id] == nil {
			all[id] = &attempt{id: id}
		}
		return all[id]
	}
	work := map[string]string{}
	for i := range s.Actions {
		a := &s.Actions[i]
		work[string(a.UID)] = workOf(a)
		if a.Status.Execution == nil {
			continue
		}
		key, number := "", int64(0)
		if a.Status.Effect != nil {
			key, number = a.Status.Effect.Key, a.Status.Effect.Attempt
		}
		at := get(idOf(key, string(a.UID), number))
		at.admit(admission{action: a.Name, uid: string(a.UID), token: a.Status.Execution.Token, claimID: a.Status.Execution.ClaimID},
			a.Status.Execution.AdmissionTime.Time)
	}
	for i := range s.Receipts {
		if d, err := receipt.Parse(records.Entry(&s.Receipts[i])); err == nil {
			learnReceipt(get, d)
		}
	}
	for i := range s.Effects {
		learnEffect(get, &s.Effects[i])
	}
	for _, at := range all {
		at.work, at.left = work[at.actionUID], s.Left[at.actionUID]
	}
	return all
}

func (a *attempt) admit(new admission, since time.Time) {
	if a.admittedSince.IsZero() || since.Before(a.admittedSince) {
		a.admittedSince = since
	}
	if !slices.ContainsFunc(a.admitted, func(known admission) bool { return known.uid == new.uid }) {
		a.admitted = append(a.admitted, new)
	}
	a.action, a.actionUID = new.action, new.uid
}

// abandoned: its agent was gone before it was admitted.
func (a *attempt) abandoned() bool { return !a.left.IsZero() && a.left.Before(a.admittedSince) }

func (a *attempt) unknown(cause v1alpha1.EffectCause, since time.Time) {
	if !a.ambiguous {
		a.ambiguous, a.cause, a.since = true, cause, since
	}
}

func learnReceipt(get func(attemptID) *attempt, d receipt.Document) {
	ended := d.Kind == receipt.KindAction && d.ExecutorMode != ""
	if !ended && d.Kind != receipt.KindResolution && d.Kind != receipt.KindStatusMissing {
		return
	}
	at := get(idOf(d.EffectKey, d.ActionUID, d.Attempt))
	if ended {
		at.admit(admission{action: d.ActionName, uid: d.ActionUID, token: d.Token, claimID: d.ClaimID}, d.AdmittedTime)
	}
	at.resolved = at.resolved || d.Kind == receipt.KindResolution
	switch d.Ended() { // of an observed action what it did
	case decision.Committed:
		at.committed = true
	case decision.Failed:
		at.failed = true
	case decision.Ambiguous:
		at.unknown(causes[string(d.Reason)], d.FinishedTime)
	}
}

// learnEffect adds what only the record says: attempts that are not finished, and those that never began.
func learnEffect(get func(attemptID) *attempt, e *v1alpha1.Effect) {
	if e.Status == nil {
		return
	}
	at := get(attemptID{key: e.Spec.Key, number: e.Status.Attempt})
	if h := e.Status.Holder; h != nil && at.actionUID == "" {
		at.action, at.actionUID = h.Name, string(h.UID)
	}
	switch e.Status.State {
	case v1alpha1.EffectCommitted:
		at.committed = true
	case v1alpha1.EffectFailed:
		at.failed = true
	case v1alpha1.EffectAmbiguous:
		// Stored times have whole seconds.
		at.unknown(e.Status.Cause, e.Status.LastTransitionTime.Add(time.Second))
	}
	for _, h := range e.Status.History {
		before := get(attemptID{key: e.Spec.Key, number: h.Attempt})
		switch h.Result {
		case effect.NeverBegan, effect.NotExecuted, effect.ResolvedNotExecuted:
			before.failed = true
		case effect.DidCommit, effect.ResolvedCommitted:
			before.committed = true
		}
	}
}

// inOrder are the attempts by key and number.
func inOrder(all map[attemptID]*attempt) []*attempt {
	return slices.SortedFunc(maps.Values(all), func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.id.key, b.id.key), cmp.Compare(a.id.number, b.id.number))
	})
}
