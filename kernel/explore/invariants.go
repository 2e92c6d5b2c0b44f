package explore

import (
	"errors"
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
)

// The invariants, by the names under which they are found broken.
const (
	invariantOneAdmission = "I1 at most one admission per key and attempt"
	invariantAfterFailed  = "I2 a new attempt only after Failed"
	invariantSpentOnce    = "I3 an approval is spent once, on what it names"
	invariantAuthorised   = "I4 admitted implies allowed or approved"
	invariantAmbiguous    = "I5 Ambiguous is left only by a Resolution"
	invariantFailed       = "I6 Failed only if not executed"
	invariantReceipt      = "I7 one receipt per finished action, in one chain"
	invariantRefuse       = "I8 what is malformed or denied is never admitted"
	invariantRest         = "I9 everything finishes"
	invariantOneExecutor  = "I10 at most one executor per admission"
	invariantAdmittedOnce = "I11 an action is admitted at most once"
	invariantAdmission    = "I12 no statement made without admission counts"

	// What the invariants are for, and what they do not say.
	invariantExecutedOnce = "the remote is called once per key"
	invariantReport       = "a report that holds the lock decides"
	invariantVerdict      = "a valid resolution is not refused, an invalid one does not count"
	invariantItself       = "no action blocks itself"
	invariantLease        = "no admission after its lease"
	invariantOthers       = "no action settles another's record"
	invariantObserved     = "what is observed is marked at its admission, and ends so"
	invariantAPI          = "no write is one that the API refuses"
)

// notModelled is no invariant: the explorer does not know what an answer of Next means, and gives up.
const notModelled = "an answer that the explorer does not know"

// Violation is an invariant that does not hold.
type Violation struct{ Invariant, Detail string }

func (v *Violation) String() string { return v.Invariant + ": " + v.Detail }

func (x *explorer) fail(invariant, format string, args ...any) {
	if x.violation == nil {
		x.violation = &Violation{invariant, fmt.Sprintf(format, args...)}
	}
}

// check holds a state against the invariants that can be seen in it.
func (x *explorer) check(s *state) {
	spent := map[string]string{}
	for i, v := range s.actions {
		a := x.action(v)
		if a == nil {
			continue
		}
		if e := a.Execution; e != nil && a.Effect != nil {
			for j := range i {
				b := x.action(s.actions[j])
				if b != nil && a.Reserves() && b.Reserves() && b.Effect.Key == a.Effect.Key && b.Effect.Attempt == a.Effect.Attempt {
					x.fail(invariantOneAdmission, "%s and %s are admitted for attempt %d of %s", b.Name, a.Name, a.Effect.Attempt, a.Effect.Key)
				}
			}
			for _, y := range e.Approvals {
				if other := spent[y.UID]; other != "" {
					x.fail(invariantSpentOnce, "%s is spent on %s and %s", y.UID, other, a.Name)
				}
				spent[y.UID] = a.Name
			}
		}
		n := 0
		for k := range perAction {
			if s.processes[i*perAction+k]&started != 0 {
				n++
			}
		}
		if n > 1 {
			x.fail(invariantOneExecutor, "%d processes of %s", n, a.Name)
		}
		x.checkReport(s, i, a)
		x.checkFailedAction(s, i, a)
		x.checkObserved(s, a)
	}
	if s.workers[0]&s.workers[1]&acted != 0 {
		x.fail(invariantOneExecutor, "two workers act")
	}
	for _, v := range s.effects {
		if r := x.record(v); r != nil {
			if n := x.executions(s, r.Key); n > 1 {
				x.fail(invariantExecutedOnce, "%d times for %s", n, r.Key)
			}
			x.checkFailed(s, r)
		}
	}
	x.checkReceipts(s)
}

// checkReport: what the admitted process said, in time or not, is how its action ended, unless the record was lost.
func (x *explorer) checkReport(s *state, i int, a *flow.Action) {
	if a.Execution == nil || !a.Finished() || s.dropped > 0 {
		return
	}
	for k := range perAction {
		p := i*perAction + k
		if a.Execution.ClaimID != claimID(p) || s.outcomes[p] <= 0 {
			continue
		}
		o := x.outcomes.get(s.outcomes[p])
		if o.Forged || o.LeaseLapsed || o.Reporter != a.Agent || !o.Created.After(at(s.since)) {
			continue
		}
		if want := map[flow.OutcomeResult]flow.State{flow.ReportCommitted: flow.Committed, flow.ReportNotExecuted: flow.Failed, flow.ReportUnknown: flow.Ambiguous}[o.Result]; a.Ended() != want {
			x.fail(invariantReport, "%s was reported %s, and is %s", a.Name, o.Result, a.Ended())
		}
	}
}

// checkObserved: an action that was admitted in observe mode, and no other, is marked as that, ends as that, whatever the mode
// is by then, and so says its receipt, with how it was executed.
func (x *explorer) checkObserved(s *state, a *flow.Action) {
	marked := a.WouldHave != nil
	switch {
	case marked && a.Execution == nil:
		x.fail(invariantObserved, "%s is marked, and not admitted", a.Name)
	case marked != (a.State == flow.Observed) && a.State.Terminal():
		x.fail(invariantObserved, "%s is %s, and marked as observed: %t", a.Name, a.State, marked)
	case a.State == flow.Observed && a.Outcome != flow.Committed && a.Outcome != flow.Failed && a.Outcome != flow.Ambiguous:
		x.fail(invariantObserved, "%s is over, and did %q", a.Name, a.Outcome)
	}
	if !a.Finished() || !marked {
		return
	}
	c := x.chains.find(s.chain, receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}, 0)
	if c == 0 {
		return // I7 says so
	}
	if d := x.chains.get(c).document; string(d.Execution) != strings.ToLower(string(a.Outcome)) || d.WouldHave == nil {
		x.fail(invariantObserved, "%s did %s, its receipt says %q and marks it: %t", a.Name, a.Outcome, d.Execution, d.WouldHave != nil)
	}
}

// checkFailedAction is I6 for what an action says of itself.
func (x *explorer) checkFailedAction(s *state, i int, a *flow.Action) {
	switch {
	case a.Ended() != flow.Failed:
		return
	case a.Execution == nil:
		x.fail(invariantFailed, "%s is Failed, and was never admitted", a.Name)
		return
	case a.Execution.Mode != flow.AgentMode, s.fate[i] == retired:
		return
	}
	for k := range perAction {
		if p := i*perAction + k; a.Execution.ClaimID == claimID(p) && s.outcomes[p] > 0 {
			if o := x.outcomes.get(s.outcomes[p]); o.Result == flow.ReportNotExecuted && o.Reporter == a.Agent {
				return
			}
		}
	}
	for _, id := range s.resolutions {
		if id > 0 && a.Effect != nil && x.resolutions.get(id).State == effect.Failed && x.resolutions.get(id).Attempt == a.Effect.Attempt {
			return
		}
	}
	x.fail(invariantFailed, "%s is Failed, and nobody stated that it was not executed", a.Name)
}

// checkFailed is I6: of a failed attempt it was stated by whom it was admitted to, or by a person, that nothing was
// executed; or nobody was ever admitted for it, or no executor began.
func (x *explorer) checkFailed(s *state, r *effect.Record) {
	if r.Status == nil || r.Status.State != effect.Failed || r.Status.Resolution != nil {
		return
	}
	holder, place := (*flow.Action)(nil), 0
	for i, v := range s.actions {
		if a := x.action(v); a != nil && a.Execution != nil && a.Effect != nil && a.Effect.Key == r.Key && a.Effect.Attempt == r.Status.Attempt {
			holder, place = a, i
		}
	}
	history := r.Status.History
	neverBegan := len(history) > 0 && history[len(history)-1].Result == effect.NeverBegan
	switch {
	case neverBegan && holder != nil && holder.Execution.Mode == flow.AgentMode:
		x.fail(invariantFailed, "attempt %d of %s never began, but %s is admitted for it", r.Status.Attempt, r.Key, holder.Name)
	case neverBegan && r.Status.Nonce != "":
		x.fail(invariantFailed, "attempt %d of %s never began, but %s did", r.Status.Attempt, r.Key, r.Status.Nonce)
	case neverBegan:
	case holder == nil:
		x.fail(invariantFailed, "nobody was admitted for attempt %d of %s", r.Status.Attempt, r.Key)
	case holder.Execution.Mode == flow.OperatorMode:
		if s.workers[0]&acted|s.workers[1]&acted != 0 {
			x.fail(invariantFailed, "a worker acted, and %s is failed", r.Key)
		}
	case s.fate[place] == retired:
		// and so is what was said about it
	default:
		for k := range perAction {
			p := place*perAction + k
			if claimID(p) != holder.Execution.ClaimID {
				continue
			}
			if s.outcomes[p] <= 0 {
				x.fail(invariantFailed, "nobody stated that attempt %d of %s was not executed", r.Status.Attempt, r.Key)
				return
			}
			o := x.outcomes.get(s.outcomes[p])
			if o.Forged {
				x.fail(invariantAdmission, "attempt %d of %s is failed by %s", r.Status.Attempt, r.Key, o.Name)
			}
			if o.Result != flow.ReportNotExecuted || o.Reporter != holder.Agent {
				x.fail(invariantFailed, "of attempt %d of %s it is said %s by %s", r.Status.Attempt, r.Key, o.Result, o.Reporter)
			}
		}
	}
}

// checkReceipts is I7. That the chain is linear and has no gap is looked at when something is appended.
func (x *explorer) checkReceipts(s *state) {
	for c := s.chain; c != 0; c = x.chains.get(c).before {
		d := &x.chains.get(c).document
		for b := x.chains.get(c).before; b != 0; b = x.chains.get(b).before {
			if x.chains.get(b).document.Identity() == d.Identity() {
				x.fail(invariantReceipt, "two receipts of %s", d.Identity())
			}
		}
		if d.Kind != receipt.KindAction {
			continue
		}
		a := x.action(s.actions[placeOf(d.SubjectUID)-1])
		unadmitted := d.Result == decision.Denied || d.Result == decision.Blocked
		if unadmitted != (a.Execution == nil) {
			x.fail(invariantReceipt, "the receipt of %s says %s, and it is admitted: %t", a.Name, d.Result, a.Execution != nil)
		}
		if a.Finished() && (a.Receipt.Seq != d.Seq || !unadmitted && string(d.Result) != strings.ToLower(string(a.State))) {
			x.fail(invariantReceipt, "%s is %s, its receipt %d says %s", a.Name, a.State, d.Seq, d.Result)
		}
	}
	for _, v := range s.actions {
		a := x.action(v)
		if a == nil || !a.Finished() {
			continue
		}
		if x.chains.find(s.chain, receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}, 0) == 0 {
			x.fail(invariantReceipt, "%s is finished without one", a.Name)
		}
	}
}

// wroteAction looks at one change of an action: what it may change at all, and, if it admits, at what that rests on.
func (x *explorer) wroteAction(s *state, p *pass, old, next *flow.Action, why string) {
	if old.Execution != nil && (next.Execution == nil || !next.Execution.Admitted.Equal(old.Execution.Admitted) || next.Execution.ClaimID != old.Execution.ClaimID) || old.State.Terminal() && next.Execution != nil && old.Execution == nil {
		x.fail(invariantAdmittedOnce, "%s %s: %s becomes %s", why, old.Name, old.State, next.State)
	}
	if was, is := old.WouldHave, next.WouldHave; old.Execution != nil && ((was == nil) != (is == nil) || was != nil && *was != *is) {
		x.fail(invariantObserved, "%s %s: what enforcing would have done changes after its admission", why, old.Name)
	}
	if old.Execution == nil && next.Execution != nil {
		x.admitted(s, p, next)
	}
	if bad := refusedByAPI(old, next); bad != "" && x.Unguarded == nil {
		x.fail(invariantAPI, "%s %s: %s", why, old.Name, bad)
	}
}

// admitted is I4, I8 and I12 for one admission.
func (x *explorer) admitted(s *state, p *pass, a *flow.Action) {
	if a.Hash != x.hashOf(a) {
		x.fail(invariantRefuse, "%s is admitted with hash %s, which is not its own", a.Name, a.Hash)
		return
	}
	if a.Effect != nil {
		r := x.recordOf(s, a)
		switch {
		case r == nil, !a.Reserves() && a.WouldHave == nil:
			x.fail(invariantOneAdmission, "%s is admitted without a record", a.Name)
			return
		case r.Key != a.Effect.Key:
			x.fail(invariantRefuse, "%s is admitted for a record of %s", a.Name, r.Key)
		}
	}
	if !a.Execution.Admitted.Before(a.Execution.Lease) {
		x.fail(invariantLease, "%s is admitted at %s, its lease was over at %s", a.Name, a.Execution.Admitted, a.Execution.Lease)
	}
	if c := a.Execution.Claim; c != nil {
		for _, id := range s.claims {
			if id <= 0 || x.claims.get(id).UID != c.UID {
				continue
			}
			made := x.claims.get(id)
			switch {
			case made.Forged:
				x.fail(invariantAdmission, "%s is admitted by a claim that was made without admission", a.Name)
			case made.Claimant != a.Agent:
				x.fail(invariantOneExecutor, "%s is admitted for %s, who did not propose it", a.Name, made.Claimant)
			case made.ClaimID != a.Execution.ClaimID:
				x.fail(invariantOneExecutor, "%s is admitted for %s by the claim of %s", a.Name, a.Execution.ClaimID, made.ClaimID)
			}
		}
	} else if a.Execution.Mode == flow.AgentMode && a.Execution.ClaimID != a.ClaimID {
		x.fail(invariantOneExecutor, "%s is admitted for %q without its claim", a.Name, a.Execution.ClaimID)
	}
	if s.unvouched&(1<<placeOf(a.UID)) != 0 {
		x.fail(invariantAdmission, "%s was proposed without admission, and is admitted", a.Name)
	}
	rule := x.policies[p.rules]
	switch marked := a.WouldHave != nil; {
	case marked != rule.Observe:
		x.fail(invariantObserved, "%s is admitted, marked as observed: %t, by a pass that observes: %t", a.Name, marked, rule.Observe)
		return
	case marked:
		x.observed(s, a)
		return
	}
	for _, y := range a.Execution.Approvals {
		k := slices.IndexFunc(s.answers[:], func(id int32) bool { return id > 0 && x.answers.get(id).UID == y.UID })
		if k >= 0 && p.entitled[k] != approval.Entitled {
			x.fail(invariantAuthorised, "%s by %s is spent on %s, and the pass that spends it was not told that %s may approve", y.UID, y.Approver, a.Name, y.Approver)
		}
	}
	if until := a.Expires; until != nil && a.Execution.Admitted.After(*until) {
		x.fail(invariantAuthorised, "%s is admitted, and the credential of %s was over", a.Name, a.Agent)
	}
	switch {
	case rule.Authority == nil:
	case !rule.Authority.Lets:
		x.fail(invariantAuthorised, "%s is admitted by a pass for which nothing lets %s propose it", a.Name, a.Agent)
		return
	case a.Authority == nil:
		x.fail(invariantAuthorised, "%s is admitted and does not say by which authority", a.Name)
	}
	if a.Policy == nil {
		x.fail(invariantAuthorised, "%s is admitted by no policy", a.Name)
		return
	}
	if generation := a.Policy.Generation - 1; generation != int64(p.rules) {
		x.fail(invariantAuthorised, "%s is admitted by policy %d, and the pass that admits it has policy %d", a.Name, generation, p.rules)
		return
	}
	switch rule.Decision {
	case decision.Allow:
	case decision.Approve:
		x.approved(s, a, rule.Required)
	default:
		x.fail(invariantRefuse, "%s is admitted, and denied by %s", a.Name, rule.Text)
	}
	for k, id := range s.answers {
		if !p.denied[k] || id <= 0 {
			continue
		}
		no := x.answers.get(id)
		if no.ActionUID == a.UID && !no.Forged && x.namesThis(no, a) && x.person(no.Approver) != x.person(a.Agent) && a.Ask != nil && !no.Created.After(a.Ask.Expiration) && no.Created.After(at(s.since)) {
			x.fail(invariantAuthorised, "%s had denied %s before the pass that admitted it", no.Approver, a.Name)
		}
	}
}

// observed looks at an admission in observe mode: it spends nothing, and has what it reserved, or nothing.
func (x *explorer) observed(s *state, a *flow.Action) {
	e := a.Execution
	switch {
	case len(e.Approvals) > 0:
		x.fail(invariantObserved, "%s spends approvals, and nobody had to be asked", a.Name)
	case !a.Reserves():
		if e.Token != "" {
			x.fail(invariantObserved, "%s has token %s and no attempt", a.Name, e.Token)
		}
	default:
		if r := x.recordOf(s, a); s.dropped == 0 && (r.Status == nil || r.Status.Holder == nil || r.Status.Holder.UID != a.UID || r.Status.Attempt != a.Effect.Attempt || r.Status.Token != e.Token) {
			x.fail(invariantObserved, "%s has attempt %d and token %s, which it did not reserve", a.Name, a.Effect.Attempt, e.Token)
		}
	}
}

// person is the first name of whoever has that name.
func (x *explorer) person(name string) string {
	for _, names := range x.People {
		if slices.Contains(names, name) {
			return names[0]
		}
	}
	return name
}

func (x *explorer) namesThis(y *answerMade, a *flow.Action) bool {
	return y.ActionUID == a.UID && y.ActionType == a.Type && y.Hash == a.Hash && (y.Key == nil) == (a.Effect == nil) && (y.Key == nil || *y.Key == a.Effect.Key)
}

func (x *explorer) approved(s *state, a *flow.Action, required int) {
	if a.Ask == nil {
		x.fail(invariantAuthorised, "%s is admitted, and nobody was asked", a.Name)
		return
	}
	approvers := map[string]bool{}
	for _, y := range a.Execution.Approvals {
		k := slices.IndexFunc(s.answers[:], func(id int32) bool { return id > 0 && x.answers.get(id).UID == y.UID })
		if k < 0 {
			x.fail(invariantAuthorised, "nobody gave %s", y.UID)
			return
		}
		truth := x.answers.get(s.answers[k])
		switch {
		case truth.Forged:
			x.fail(invariantAdmission, "%s is admitted by an approval that was made without admission", a.Name)
		case !x.namesThis(truth, a):
			x.fail(invariantSpentOnce, "%s names %s, %s, %s; it is spent on %s", y.UID, truth.ActionUID, truth.ActionType, truth.Hash, a.Name)
		case !truth.Approved, x.person(truth.Approver) == x.person(a.Agent), truth.Created.After(a.Ask.Expiration):
			x.fail(invariantAuthorised, "%s by %s does not count for %s", y.UID, truth.Approver, a.Name)
		}
		approvers[x.person(truth.Approver)] = true
	}
	if need := max(required, a.Ask.Required); len(approvers) < need {
		x.fail(invariantAuthorised, "%d people approved %s, %d are required", len(approvers), a.Name, need)
	}
}

func (x *explorer) hashOf(a *flow.Action) string {
	key := string(a.Arguments) + " " + a.Agent
	if hash, ok := x.hashes[key]; ok {
		return hash
	}
	hash := "no hash"
	if p, err := proposed(a); err == nil {
		if h, err := p.Hash(); err == nil {
			hash = h
		}
	}
	x.hashes[key] = hash
	return hash
}

// proposed is what an action says, as it is hashed and decided.
func proposed(a *flow.Action) (action.Proposal, error) {
	v, err := canonical.Parse(a.Arguments)
	if err != nil {
		return action.Proposal{}, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return action.Proposal{}, errors.New("the arguments are no object")
	}
	return action.Proposal{Name: a.Type, Arguments: m, Principal: action.Principal{Agent: a.Agent, User: a.User}, Environment: "production"}, nil
}

// edges are the changes of state that the Effect's own rules allow within an attempt.
var edges = map[effect.State][]effect.State{
	effect.Reserved:  {effect.Executing, effect.Failed},
	effect.Executing: {effect.Committed, effect.Failed, effect.Ambiguous},
	effect.Ambiguous: {effect.Committed, effect.Failed},
	effect.Failed:    {effect.Reserved, effect.Executing},
}

// wroteEffect looks at one change of a record.
func (x *explorer) wroteEffect(s *state, p *pass, old, next *effect.Record, why string) {
	n := next.Status
	if why == flow.WhySettle && old != nil && old.Status != nil && n.Attempt == old.Status.Attempt && (old.Status.Holder == nil || int(p.subject) != placeOf(old.Status.Holder.UID)) {
		x.fail(invariantOthers, "a pass over a%d settles attempt %d of %s, which %s holds", p.subject, old.Status.Attempt, old.Key, old.Status.HolderName())
	}
	if why == flow.WhyReserve && !slices.ContainsFunc(x.policies, func(rule Policy) bool { return max(1, rule.Resolutions) == n.ResolutionsRequired }) {
		x.fail(invariantAmbiguous, "%s: attempt %d says that %d people have to say the same, and no policy does", why, n.Attempt, n.ResolutionsRequired)
	}
	if old == nil {
		if n.State != effect.Reserved && n.State != effect.Executing && n.Cause != effect.StatusMissing || n.Attempt != 1 && n.Cause != effect.StatusMissing {
			x.fail(invariantAPI, "a record is created %s, attempt %d", n.State, n.Attempt)
		}
		return
	}
	if old.Status == nil {
		if n.State != effect.Ambiguous || n.Cause != effect.StatusMissing {
			x.fail(invariantAPI, "a record without status becomes %s", n.State)
		}
		return
	}
	o := old.Status
	if n.Attempt == o.Attempt && n.Holder != nil && o.Holder != nil && n.Holder.UID != o.Holder.UID {
		x.fail(invariantAfterFailed, "%s: attempt %d passes from %s to %s", why, o.Attempt, o.Holder.Name, n.Holder.Name)
	}
	if why == flow.WhyRenew && o.State != effect.Failed || n.Attempt != o.Attempt && (o.State != effect.Failed || n.Attempt != o.Attempt+1 || why != flow.WhyRenew) {
		x.fail(invariantAfterFailed, "%s: attempt %d, %s, becomes attempt %d", why, o.Attempt, o.State, n.Attempt)
		return
	}
	if by := o.Resolution; by != nil && n.Attempt != o.Attempt {
		if x.chains.find(s.chain, receipt.Identity{Kind: receipt.KindResolution, SubjectUID: next.UID, Ordinal: o.Attempt}, 0) == 0 {
			x.fail(invariantReceipt, "attempt %d of %s was resolved by %s, and is renewed without a receipt of that", o.Attempt, next.Key, by.Name)
		}
	}
	if n.Attempt == o.Attempt && o.State == effect.Ambiguous && n.State != effect.Ambiguous {
		x.left(s, p, next)
	}
	switch {
	case why == flow.WhyRenew && !slices.ContainsFunc(x.policies, func(rule Policy) bool { return max(1, rule.Resolutions) == n.ResolutionsRequired }):
		x.fail(invariantAmbiguous, "%s: attempt %d says that %d people have to say the same, and no policy does", why, n.Attempt, n.ResolutionsRequired)
	case n.Attempt == o.Attempt && n.ResolutionsRequired != o.ResolutionsRequired:
		x.fail(invariantAPI, "%s: attempt %d asked for %d people, and asks for %d", why, n.Attempt, o.ResolutionsRequired, n.ResolutionsRequired)
	}
	if n.State != o.State && !slices.Contains(edges[o.State], n.State) || n.Attempt == o.Attempt && (n.Holder == nil) != (o.Holder == nil) {
		x.fail(invariantAPI, "%s: %s becomes %s", why, o.State, n.State)
	}
}

// left is I5 for a record that is no longer Ambiguous: as many different people as its attempt asked for, and as the policy of
// the pass asks for, have said so. Where that is more than one, none of them had taken it back; one alone settles it with their
// first word.
func (x *explorer) left(s *state, p *pass, next *effect.Record) {
	n := next.Status
	if n.Resolution == nil {
		x.fail(invariantAmbiguous, "attempt %d of %s becomes %s by nobody", n.Attempt, next.Key, n.State)
		return
	}
	need := max(1, n.ResolutionsRequired, x.policies[p.rules].Resolutions)
	people := map[string]bool{}
	for k, id := range s.resolutions {
		if id <= 0 || !n.Resolution.Counts(x.resolutions.get(id).UID) {
			continue
		}
		r := x.resolutions.get(id)
		switch {
		case x.Resolutions[k].Wrong != "":
			x.fail(invariantVerdict, "%s counts, and is wrong in its %s", r.Name, x.Resolutions[k].Wrong)
		case r.Attempt != n.Attempt || r.State != n.State || r.EffectUID != next.UID:
			x.fail(invariantAmbiguous, "%s says attempt %d is %s; attempt %d becomes %s", r.Name, r.Attempt, r.State, n.Attempt, n.State)
		case p.takenBack[k] && need > 1:
			x.fail(invariantAmbiguous, "%s counts, and %s had taken it back before the pass that counts it", r.Name, r.Resolver)
		}
		people[x.person(r.Resolver)] = true
	}
	if len(people) < need {
		x.fail(invariantAmbiguous, "%d people said that attempt %d of %s is %s, %d have to", len(people), n.Attempt, next.Key, n.State, need)
	}
}

// word reports whether b is a later word of whoever said a.
func (x *explorer) word(a, b *flow.Resolution) bool {
	if a.UID == b.UID || a.Attempt != b.Attempt || a.EffectUID != b.EffectUID || x.person(a.Resolver) != x.person(b.Resolver) {
		return false
	}
	return b.Created.After(a.Created) || b.Created.Equal(a.Created) && b.Name > a.Name
}

// takenBack are the resolutions whose makers have said otherwise since.
func (x *explorer) takenBack(s *state) (back [maxResolutions]bool) {
	for k, id := range s.resolutions {
		for l, other := range s.resolutions {
			if id > 0 && other > 0 && x.Resolutions[l].Wrong == "" {
				a, b := x.resolutions.get(id), x.resolutions.get(other)
				back[k] = back[k] || a.State != b.State && x.word(a, b)
			}
		}
	}
	return back
}

// wroteVerdict: a resolution that answers what is the case now must not be refused for something that was the case earlier.
func (x *explorer) wroteVerdict(s *state, k int, st *step) {
	r := x.resolutions.get(s.resolutions[k])
	if st.value != refuses {
		if x.Resolutions[k].Wrong != "" {
			x.fail(invariantVerdict, "%s is told %s, and is wrong in its %s", r.Name, st.why, x.Resolutions[k].Wrong)
		}
		return
	}
	if x.saidOnce(s, k, st.why) {
		return
	}
	for _, v := range s.effects {
		e := x.record(v)
		if e == nil || e.UID != r.EffectUID || e.Status == nil || e.Status.State != effect.Ambiguous || e.Status.Attempt != r.Attempt || x.Resolutions[k].Wrong != "" || !r.Created.After(at(s.since)) {
			continue
		}
		for c := s.chain; c != 0; c = x.chains.get(c).before {
			entry := x.chains.get(c).entry
			if entry.Hash == r.QuotedHash && (e.Status.Loss == nil || entry.Seq > e.Status.Loss.Seq) {
				x.fail(invariantVerdict, "%s is refused as %s, but attempt %d is ambiguous and receipt %d says so", r.Name, st.why, r.Attempt, entry.Seq)
			}
		}
	}
}

// saidOnce reports whether a resolution may be refused because whoever made it has said the same before, or otherwise since.
func (x *explorer) saidOnce(s *state, k int, why string) bool {
	r := x.resolutions.get(s.resolutions[k])
	for l, id := range s.resolutions {
		if id <= 0 || x.Resolutions[l].Wrong != "" {
			continue
		}
		switch other := x.resolutions.get(id); {
		case why == "DuplicateResolver" && other.State == r.State && x.word(other, r), why == "Superseded" && other.State != r.State && x.word(r, other):
			return true
		}
	}
	return false
}

// refusedByAPI is what the rules of the Action's schema say, as far as they concern what is written.
func refusedByAPI(old, next *flow.Action) string {
	switch {
	case old.Hash != "" && next.Hash != old.Hash:
		return "the hash is written once"
	case old.FirstSeq != nil && (next.FirstSeq == nil || *next.FirstSeq != *old.FirstSeq):
		return "firstSeq is written once"
	case old.Ask != nil && (next.Ask == nil || next.Ask.Required != old.Ask.Required || !next.Ask.Expiration.Equal(old.Ask.Expiration) || !next.Ask.Requested.Equal(old.Ask.Requested)):
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
