package flow_test

import (
	"fmt"
	"slices"
	"strings"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// The invariants, by the names under which they are found broken.
const (
	invariantOneAdmission = "I1 at most one admission per key and attempt"
	invariantAfterFailed  = "I2 a new attempt only after Failed"
	invariantSpentOnce    = "I3 an approval is spent once, on what it names"
	invariantAuthorised   = "I4 admitted implies allowed or approved"
	invariantAmbiguous    = "I5 Ambiguous is left only by a Resolution"
	invariantFailed       = "I6 Failed only if not executed"
	invariantReceipt      = "I7 one receipt per finished action"
	invariantRefuse       = "I8 what is malformed or denied is never admitted"
	invariantRest         = "I9 everything finishes"
	invariantOneExecutor  = "I10 at most one executor per admission"
	invariantAdmittedOnce = "I11 an action is admitted at most once"
	invariantAdmission    = "I12 no statement made without admission counts"

	// What the invariants are for, and what they do not say.
	invariantExecutedOnce = "the remote is called once per key"
	invariantReport       = "a report that holds the lock decides"
	invariantVerdict      = "a valid resolution is not refused"
	invariantItself       = "no action blocks itself"
	invariantAPI          = "no write is one that the API refuses"
	invariantOthers       = "no action settles another's record"
	invariantObserved     = "what is observed is marked at its admission, and ends so"
	invariantTold         = "a timeline tells what happened, once"
)

// check looks at the whole state.
func (w *sim) check() {
	if w.violation != nil {
		return
	}
	admitted := map[string]string{}
	spent := map[string]string{}
	for _, object := range w.actions {
		a := object.now()
		if x := a.Execution; x != nil && a.Effect != nil {
			attempt := fmt.Sprintf("%s attempt %d", a.Effect.Key, a.Effect.Attempt)
			if other := admitted[attempt]; other != "" && a.Reserves() {
				w.fail(invariantOneAdmission, "%s and %s are admitted for %s", other, a.Name, attempt)
			}
			admitted[attempt] = a.Name
			for _, x := range x.Approvals {
				if other := spent[x.UID]; other != "" {
					w.fail(invariantSpentOnce, "%s is spent on %s and %s", x.UID, other, a.Name)
				}
				spent[x.UID] = a.Name
			}
		}
		w.checkExecutors(object)
		w.checkReport(a)
		w.checkObserved(a)
	}
	for key, n := range w.executions {
		if n > 1 && !strings.HasPrefix(key, "no key") {
			w.fail(invariantExecutedOnce, "%d times for %s", n, key)
		}
	}
	for _, e := range w.effects {
		w.checkFailed(e.now())
	}
	w.checkReceipts()
	for _, object := range w.actions {
		w.checkTimeline(object.now())
	}
}

// terminals are the events with which an action ends.
var terminals = map[flow.State][]timeline.Type{
	flow.Committed: {timeline.ExecutionCommitted},
	flow.Failed:    {timeline.ExecutionFailed},
	flow.Ambiguous: {timeline.ExecutionAmbiguous},
	flow.Denied:    {timeline.ActionDenied},
	flow.Blocked:   {timeline.ActionBlocked, timeline.EffectReservationRefused},
	flow.Expired:   {timeline.ActionExpired},
}

// checkTimeline holds the events against the state: it began with the proposal, ended once and as the state says, and was
// admitted once if it was.
func (w *sim) checkTimeline(a *flow.Action) {
	if len(a.Timeline) == 0 {
		if a.FirstSeq != nil {
			w.fail(invariantTold, "%s has a status and no timeline", a.Name)
		}
		return
	}
	if first := a.Timeline[0]; first.Type != timeline.ActionProposed || first.Seq != 1 {
		w.fail(invariantTold, "%s begins with %+v", a.Name, first)
	}
	started, consumed, refused := 0, 0, 0
	var ends []timeline.Type
	for i, e := range a.Timeline {
		if i > 0 && e.Seq <= a.Timeline[i-1].Seq {
			w.fail(invariantTold, "%s: event %d follows %d", a.Name, e.Seq, a.Timeline[i-1].Seq)
		}
		switch e.Type {
		case timeline.ExecutionStarted:
			started++
		case timeline.ApprovalConsumed:
			consumed++
		}
		if e.Type == timeline.EffectReservationRefused && a.WouldHave != nil {
			refused++ // and it went on without
			continue
		}
		for _, types := range terminals {
			if slices.Contains(types, e.Type) {
				ends = append(ends, e.Type)
			}
		}
	}
	if admitted := a.Execution != nil; admitted != (started == 1) || started > 1 {
		w.fail(invariantTold, "%s was started %d times, admitted: %t", a.Name, started, admitted)
	}
	if a.Execution != nil && consumed != len(a.Execution.Approvals) {
		w.fail(invariantTold, "%s consumed %d approvals, spent %d", a.Name, consumed, len(a.Execution.Approvals))
	}
	if without := a.WouldHave != nil && !a.Reserves(); without != (refused == 1) || refused > 1 {
		w.fail(invariantTold, "%s was refused its reservation %d times, and runs without: %t", a.Name, refused, without)
	}
	if a.State.Terminal() != (len(ends) == 1) || (len(ends) == 1 && !slices.Contains(terminals[a.Ended()], ends[0])) {
		w.fail(invariantTold, "%s is %s and ended with %v", a.Name, a.State, ends)
	}
}

// checkExecutors is I10.
func (w *sim) checkExecutors(object *versions[flow.Action]) {
	started := ""
	for _, p := range w.processes {
		if p.action != object || !p.started {
			continue
		}
		if started != "" {
			w.fail(invariantOneExecutor, "%s and %s of %s", started, p.name, object.name)
		}
		if started = p.name; p.agent != object.now().Agent {
			w.fail(invariantOneExecutor, "%s executes %s, which %s proposed", p.name, object.name, object.now().Agent)
		}
	}
}

// checkReport: what the admitted process said, in time or not, is how its action ended, unless the record was lost.
func (w *sim) checkReport(a *flow.Action) {
	if a.Execution == nil || !a.Finished() || w.dropped {
		return
	}
	lock := w.outcome(lockName(a))
	if lock == nil || lock.forged {
		return
	}
	o := lock.of
	if o.LeaseLapsed || o.Reporter != a.Agent || !o.Created.After(w.since) {
		return
	}
	if want := map[flow.OutcomeResult]flow.State{flow.ReportCommitted: flow.Committed, flow.ReportNotExecuted: flow.Failed, flow.ReportUnknown: flow.Ambiguous}[o.Result]; a.Ended() != want {
		w.fail(invariantReport, "%s was reported %s, and is %s", a.Name, o.Result, a.Ended())
	}
}

// checkObserved: an action that was admitted in observe mode, and no other, is marked as that, and ends as that.
func (w *sim) checkObserved(a *flow.Action) {
	marked := a.WouldHave != nil
	switch {
	case marked && a.Execution == nil:
		w.fail(invariantObserved, "%s is marked, and not admitted", a.Name)
	case marked != (a.State == flow.Observed) && a.State.Terminal():
		w.fail(invariantObserved, "%s is %s, and marked as observed: %t", a.Name, a.State, marked)
	case a.State == flow.Observed && !slices.Contains([]flow.State{flow.Committed, flow.Failed, flow.Ambiguous}, a.Outcome):
		w.fail(invariantObserved, "%s is over, and did %q", a.Name, a.Outcome)
	}
}

// checkFailed is I6: of a failed attempt it was stated by whom it was admitted to, or by a person, that nothing was
// executed; or nobody was ever admitted for it.
func (w *sim) checkFailed(r *effect.Record) {
	if r.Status == nil || r.Status.State != effect.Failed {
		return
	}
	var holder *flow.Action
	for _, object := range w.actions {
		if a := object.now(); a.Execution != nil && a.Effect != nil && a.Effect.Key == r.Key && a.Effect.Attempt == r.Status.Attempt {
			holder = a
		}
	}
	switch {
	case r.Status.Resolution != nil:
	case r.Status.History[len(r.Status.History)-1].Result == effect.NeverBegan:
		if holder != nil {
			w.fail(invariantFailed, "attempt %d of %s never began, but %s is admitted for it", r.Status.Attempt, r.Key, holder.Name)
		}
	case holder == nil:
		w.fail(invariantFailed, "nobody was admitted for attempt %d of %s", r.Status.Attempt, r.Key)
	default:
		if w.action(holder.UID).gone {
			return // and so is what was said about it
		}
		o := w.outcome(lockName(holder))
		if o != nil && o.forged {
			w.fail(invariantAdmission, "attempt %d of %s is failed by %s", r.Status.Attempt, r.Key, o.of.Name)
		}
		if o == nil || o.of.Result != flow.ReportNotExecuted || o.of.Reporter != holder.Agent || o.of.ClaimID != holder.Execution.ClaimID {
			w.fail(invariantFailed, "nobody stated that attempt %d of %s was not executed", r.Status.Attempt, r.Key)
		}
	}
}

// checkReceipts is I7. That the chain is linear and gapless is how it is appended to here: by one name for one seq.
func (w *sim) checkReceipts() {
	seen := map[receipt.Identity]bool{}
	for _, d := range w.documents {
		if seen[d.Identity()] {
			w.fail(invariantReceipt, "two receipts of %s", d.Identity())
		}
		seen[d.Identity()] = true
		if d.Kind != receipt.KindAction {
			continue
		}
		a := w.action(d.SubjectUID).now()
		unadmitted := d.Result == decision.Denied || d.Result == decision.Blocked
		if unadmitted != (a.Execution == nil) {
			w.fail(invariantReceipt, "the receipt of %s says %s, and its admission is %v", a.Name, d.Result, a.Execution)
		}
		if a.Finished() && (a.State == flow.Observed) != (string(d.Execution) == strings.ToLower(string(a.Outcome)) && d.Execution != "") {
			w.fail(invariantObserved, "%s did %q, its receipt %d says %q", a.Name, a.Outcome, d.Seq, d.Execution)
		}
		if a.Finished() && (a.Receipt.Seq != d.Seq || !unadmitted && string(d.Result) != strings.ToLower(string(a.State))) {
			w.fail(invariantReceipt, "%s is %s, its receipt %d says %s", a.Name, a.State, d.Seq, d.Result)
		}
	}
	for _, object := range w.actions {
		if a := object.now(); a.Finished() && !seen[receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}] {
			w.fail(invariantReceipt, "%s is finished without one", a.Name)
		}
	}
}

// wroteAction looks at one change of an action: what it may change at all, and, if it admits, at what that rests on.
func (w *sim) wroteAction(old, next *flow.Action, why string, by admitting) {
	if was, is := old.WouldHave, next.WouldHave; old.Execution != nil && ((was == nil) != (is == nil) || was != nil && *was != *is) {
		w.fail(invariantObserved, "%s %s: what enforcing would have done changes after its admission", why, old.Name)
	}
	if old.Execution != nil && (next.Execution == nil || next.Execution.Admitted != old.Execution.Admitted || next.Execution.ClaimID != old.Execution.ClaimID) || old.State.Terminal() && next.Execution != nil && old.Execution == nil {
		w.fail(invariantAdmittedOnce, "%s %s: %+v becomes %+v", why, old.Name, old.Execution, next.Execution)
	}
	if why == flow.WhyEnd && next.State == flow.Denied {
		w.happened["denied"]++
		if next.Reason.OfAuthority() {
			w.happened["denied by authority"]++
		}
	}
	if old.Execution == nil && next.Execution != nil {
		w.admitted(next, by)
	}
	if bad := refusedByAPI(old, next); bad != "" && w.mutation.unguarded == nil {
		w.fail(invariantAPI, "%s %s: %s", why, old.Name, bad)
	}
}

// admitting is what a pass knew by which an action is admitted: since when it ran, what was in force for it, and who may approve.
type admitting struct {
	began    int
	rule     rule
	entitled map[string]approval.Entitlement
}

// admitted is I4, I8 and I12 for one admission.
func (w *sim) admitted(a *flow.Action, by admitting) {
	proposal := action.Proposal{Name: a.Type, Principal: action.Principal{Agent: a.Agent, User: a.User}, Environment: "production"}
	arguments, ok := arguments(a.Arguments)
	proposal.Arguments = arguments
	if hash, err := proposal.Hash(); !ok || err != nil || hash != a.Hash {
		w.fail(invariantRefuse, "%s is admitted with hash %s, which is not that of %s", a.Name, a.Hash, a.Arguments)
		return
	}
	if e := w.effectOf(a); e == nil {
		w.fail(invariantRefuse, "%s is admitted without a record", a.Name)
	}
	if c := a.Execution.Claim; c != nil {
		w.happened["admitted by claim"]++
		for _, x := range w.claims {
			if x.of.UID == c.UID && x.forged {
				w.fail(invariantAdmission, "%s is admitted by a claim that was made without admission", a.Name)
			}
		}
	}
	if marked := a.WouldHave != nil; marked != by.rule.observe {
		w.fail(invariantObserved, "%s is admitted, marked as observed: %t, by a pass that observes: %t", a.Name, marked, by.rule.observe)
		return
	} else if marked {
		w.observed(a)
		return
	}
	if !a.Reserves() {
		w.fail(invariantOneAdmission, "%s is admitted for no attempt", a.Name)
	}
	for _, x := range a.Execution.Approvals {
		if by.entitled[x.UID] != approval.Entitled {
			w.fail(invariantAuthorised, "%s is spent on %s by a pass that was not told that %s may approve", x.UID, a.Name, x.Approver)
		}
	}
	if g := by.rule.grants; g != nil {
		w.happened["admitted by authority"]++
		if a.Authority == nil || !slices.Contains(g.lets, a.Agent) {
			w.fail(invariantAuthorised, "%s is admitted by a pass for which nothing lets %s propose it", a.Name, a.Agent)
		}
	}
	if a.Policy == nil || a.Policy.Generation-1 != int64(by.rule.policy) {
		w.fail(invariantAuthorised, "%s is admitted by %+v, and the pass that admits it has policy %d", a.Name, a.Policy, by.rule.policy)
		return
	}
	rule := policies()[by.rule.policy]
	switch rule.decision {
	case decision.Allow:
		return
	case decision.Deny:
		w.fail(invariantRefuse, "%s is admitted, and denied by %s", a.Name, rule.text)
		return
	}
	w.happened["admitted by approval"]++
	approvers := map[string]bool{}
	for _, x := range a.Execution.Approvals {
		i := slices.IndexFunc(w.approvals, func(s *said[approval.Answer]) bool { return s.of.UID == x.UID })
		switch {
		case i < 0:
			w.fail(invariantAuthorised, "nobody gave %s", x.UID)
			return
		case w.approvals[i].forged:
			w.fail(invariantAdmission, "%s is admitted by an approval that was made without admission", a.Name)
		}
		truth := w.approvals[i].of
		switch {
		case truth.ActionUID != a.UID, truth.Hash != a.Hash, truth.Key == nil || *truth.Key != a.Effect.Key:
			w.fail(invariantSpentOnce, "%s names %s, %s; it is spent on %s, %s", x.UID, truth.ActionUID, truth.Hash, a.UID, a.Hash)
		case !truth.Approved, truth.Approver == a.Agent, truth.Created.After(a.Ask.Expiration):
			w.fail(invariantAuthorised, "%s by %s does not count for %s", x.UID, truth.Approver, a.Name)
		}
		approvers[truth.Approver] = true
	}
	if len(approvers) < max(rule.required, a.Ask.Required) {
		w.fail(invariantAuthorised, "%d people approved %s, %d are required", len(approvers), a.Name, rule.required)
	}
	for _, x := range w.approvals {
		no := x.of
		if no.ActionUID == a.UID && !no.Approved && !x.forged && no.Hash == a.Hash && no.Approver != a.Agent && x.at < by.began && !no.Created.After(a.Ask.Expiration) && no.Created.After(w.since) {
			w.fail(invariantAuthorised, "%s had denied %s before the pass that admitted it", no.Approver, a.Name)
		}
	}
}

// observed looks at an admission in observe mode: it spends nothing, and has what it reserved, or nothing.
func (w *sim) observed(a *flow.Action) {
	w.happened["observed"]++
	if len(a.Execution.Approvals) > 0 {
		w.fail(invariantObserved, "%s spends approvals, and nobody had to be asked", a.Name)
	}
	if !a.Reserves() {
		w.happened["observed without a reservation"]++
		if a.Execution.Token != "" {
			w.fail(invariantObserved, "%s has token %s and no attempt", a.Name, a.Execution.Token)
		}
		return
	}
	s := w.effectOf(a).now().Status
	if !w.dropped && (s == nil || s.Holder == nil || s.Holder.UID != a.UID || s.Attempt != a.Effect.Attempt || s.Token != a.Execution.Token) {
		w.fail(invariantObserved, "%s has attempt %d and token %s, which it did not reserve", a.Name, a.Effect.Attempt, a.Execution.Token)
	}
}

// wroteEffect looks at one change of a record, by a pass over that action, "" over the record.
func (w *sim) wroteEffect(old, next *effect.Record, why, by string) {
	n := next.Status
	if why == flow.WhySettle && old != nil && old.Status != nil && n.Attempt == old.Status.Attempt && (old.Status.Holder == nil || old.Status.Holder.UID != by) {
		w.fail(invariantOthers, "a pass over %s settles attempt %d of %s, which %s holds", by, n.Attempt, next.Key, old.Status.HolderName())
	}
	if old == nil {
		if n.State != effect.Reserved && n.State != effect.Executing && n.Cause != effect.StatusMissing || n.Attempt != 1 && n.Cause != effect.StatusMissing {
			w.fail(invariantAPI, "a record is created %s, attempt %d", n.State, n.Attempt)
		}
		return
	}
	if old.Status == nil {
		if w.mutation.unguarded == nil && (n.State != effect.Ambiguous || n.Cause != effect.StatusMissing) {
			w.fail(invariantAPI, "a record without status becomes %s", n.State)
		}
		return
	}
	o := old.Status
	if n.Attempt == o.Attempt && n.Holder != nil && o.Holder != nil && n.Holder.UID != o.Holder.UID {
		w.fail(invariantAfterFailed, "%s: attempt %d passes from %s to %s", why, o.Attempt, o.Holder.Name, n.Holder.Name)
	}
	if why == flow.WhyRenew && o.State != effect.Failed || n.Attempt != o.Attempt && (o.State != effect.Failed || n.Attempt != o.Attempt+1 || why != flow.WhyRenew) {
		w.fail(invariantAfterFailed, "%s: attempt %d, %s, becomes attempt %d", why, o.Attempt, o.State, n.Attempt)
		return
	}
	if n.Attempt == o.Attempt && o.State == effect.Ambiguous && n.State != effect.Ambiguous {
		by := n.Resolution
		ok := by != nil && slices.ContainsFunc(w.resolutions, func(r *said[flow.Resolution]) bool {
			return r.of.UID == by.UID && !r.forged && r.of.Attempt == n.Attempt && r.of.State == n.State && r.of.Resolver == erin && r.of.EffectUID == next.UID
		})
		if !ok {
			w.fail(invariantAmbiguous, "%s: attempt %d of %s becomes %s by %+v", why, n.Attempt, next.Key, n.State, by)
		}
	}
	allowed := map[effect.State][]effect.State{
		effect.Reserved:  {effect.Executing, effect.Failed},
		effect.Executing: {effect.Committed, effect.Failed, effect.Ambiguous},
		effect.Ambiguous: {effect.Committed, effect.Failed},
		effect.Failed:    {effect.Reserved, effect.Executing},
	}
	if n.State != o.State && !slices.Contains(allowed[o.State], n.State) || n.Attempt == o.Attempt && (n.Holder == nil) != (o.Holder == nil) {
		w.fail(invariantAPI, "%s: %s becomes %s", why, o.State, n.State)
	}
}

// refusedByAPI is what the rules of the Action's schema say, as far as they concern what is written.
func refusedByAPI(old, next *flow.Action) string {
	switch {
	case old.Hash != "" && next.Hash != old.Hash:
		return "the hash is written once"
	case old.FirstSeq != nil && (next.FirstSeq == nil || *next.FirstSeq != *old.FirstSeq):
		return "firstSeq is written once"
	case old.Ask != nil && (next.Ask == nil || next.Ask.Required != old.Ask.Required || next.Ask.Expiration != old.Ask.Expiration || next.Ask.Requested != old.Ask.Requested):
		return "what people were asked is written once"
	case old.Effect != nil && (next.Effect == nil || next.Effect.Key != old.Effect.Key || old.Effect.Attempt != 0 && next.Effect.Attempt != old.Effect.Attempt):
		return "the effect is written once"
	case old.State.Terminal() && (next.State != old.State || next.Reason != old.Reason):
		return "a terminal state never changes"
	case old.Receipt != nil && (next.Receipt == nil || *next.Receipt != *old.Receipt):
		return "receiptRef is written once"
	case next.Receipt != nil && !next.State.Terminal():
		return "only a finished action has a receipt"
	case (next.Execution != nil) != slices.Contains([]flow.State{flow.Admitted, flow.Committed, flow.Failed, flow.Ambiguous, flow.Observed}, next.State):
		return "execution is present exactly from Admitted on"
	}
	return ""
}

// judged: a resolution that answers what is the case now must not be refused for something that was the case earlier.
func (w *sim) judged(r *flow.Resolution, step flow.Judge) {
	if step.Accepted {
		return
	}
	for _, e := range w.effects {
		s := e.now().Status
		if e.uid != r.EffectUID || s == nil || s.State != effect.Ambiguous || s.Attempt != r.Attempt || r.Resolver != erin || !r.Created.After(w.since) || r.State == effect.Failed && r.Evidence == "" {
			continue
		}
		for _, entry := range w.entries {
			if entry.Hash == r.QuotedHash && (s.Loss == nil || entry.Seq > s.Loss.Seq) {
				w.fail(invariantVerdict, "%s is refused as %s, but attempt %d is ambiguous and receipt %d says so", r.Name, step.Reason, r.Attempt, entry.Seq)
			}
		}
	}
}

// checkAtRest is I9, at the end of a recovery.
func (w *sim) checkAtRest() {
	for _, object := range w.actions {
		if a := object.now(); !a.Finished() && !object.gone {
			w.fail(invariantRest, "%s is %s (%s: %s)", a.Name, a.State, a.Reason, a.Message)
		}
	}
	for _, e := range w.effects {
		s := e.now().Status
		switch {
		case s == nil:
			w.fail(invariantRest, "the record of %s has no status", e.now().Key)
		case s.State == effect.Reserved || s.State == effect.Executing:
			w.fail(invariantRest, "%s is %s, held by %s", e.now().Key, s.State, s.HolderName())
		}
		for _, v := range e.all {
			if v.Status == nil || v.Status.Resolution == nil || w.dropped {
				continue
			}
			by := v.Status.Resolution
			if !slices.ContainsFunc(w.documents, func(d receipt.Document) bool { return d.Kind == receipt.KindResolution && d.ResolutionUID == by.UID }) {
				w.fail(invariantRest, "the resolution %s of attempt %d of %s has no receipt", by.Name, v.Status.Attempt, v.Key)
			}
		}
		if s != nil && s.Resolution != nil && !slices.ContainsFunc(w.documents, func(d receipt.Document) bool {
			return d.Kind == receipt.KindResolution && d.ResolutionUID == s.Resolution.UID
		}) {
			w.fail(invariantRest, "the resolution %s of attempt %d of %s has no receipt", s.Resolution.Name, s.Attempt, e.now().Key)
		}
	}
	for _, r := range w.resolutions {
		if !r.judged && !r.gone {
			w.fail(invariantRest, "the resolution %s has no verdict", r.of.Name)
		}
	}
}

func arguments(json []byte) (map[string]any, bool) {
	v, err := canonical.Parse(json)
	m, ok := v.(map[string]any)
	return m, err == nil && ok
}
