package flow

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// told is the timeline of an action with what a write of its status says. It is derived from the difference the write
// makes, in this one place, so that no write can be without its events and none has events of another.
func told(s Snapshot, w WriteAction) []timeline.Event {
	before := s.subjectOf(w)
	if before == nil {
		return w.Status.Timeline
	}
	t := telling{s: s, before: before, after: w.Status, tally: w.tally, authority: w.authority, unreserved: w.unreserved}
	t.proposed()
	t.held()
	t.authorised()
	t.evaluated()
	t.people()
	t.preconditions()
	t.claimable()
	t.admitted()
	t.suspended()
	t.observed()
	t.ended()
	t.resolved()
	return timeline.Append(before.Timeline, t.events...)
}

// subjectOf is the action whose status is written, as it was read.
func (s Snapshot) subjectOf(w WriteAction) *Action {
	for _, a := range []*Action{s.Action.Action, s.Holder.Action} {
		if a != nil && a.UID == w.UID {
			return a
		}
	}
	for i := range s.Key.Actions {
		if s.Key.Actions[i].UID == w.UID {
			return &s.Key.Actions[i]
		}
	}
	return nil
}

// telling is what is told of one write.
type telling struct {
	s      Snapshot
	before *Action
	after  Status
	tally  approval.Tally
	// authority is what the grants and delegations said.
	authority *authority.Result
	// unreserved is why an observed action has no reservation.
	unreserved decision.Reason
	events     []timeline.Event
}

func (t *telling) add(kind timeline.Type, data map[string]string) {
	t.addAt(t.s.Now, kind, data)
}

func (t *telling) addAt(at time.Time, kind timeline.Type, data map[string]string) {
	t.events = append(t.events, timeline.Event{Time: at, Type: kind, Data: data})
}

func (t *telling) proposed() {
	if len(t.before.Timeline) == 0 {
		t.addAt(t.before.Created, timeline.ActionProposed, map[string]string{"action_type": t.before.Type, "agent": t.before.Agent})
	}
}

// held tells of a reason to decide nothing for now.
func (t *telling) held() {
	if !t.after.State.Terminal() && t.after.Reason != "" && t.after.Reason != t.before.Reason {
		t.add(timeline.ActionHeld, map[string]string{"reason": string(t.after.Reason)})
	}
}

// authorised tells by what the action may be proposed, when that is another one than before, or why it may not.
func (t *telling) authorised() {
	r := t.authority
	if r == nil || t.after.Hash == "" {
		return
	}
	if !r.Passed {
		if said := t.after.Reason == r.Reason || t.after.DecisionReason == r.Reason; said && t.before.DecisionReason != r.Reason {
			t.add(timeline.AuthorityDenied, authorityData(r))
		}
		return
	}
	if was, now := t.before.Status.Authority, t.after.Authority; now != nil && (was == nil || *was != *now) {
		t.add(timeline.AuthorityResolved, authorityData(r))
	}
}

// authorityData is what is told of an answer of the grants and delegations.
func authorityData(r *authority.Result) map[string]string {
	data := map[string]string{
		"reason": string(r.Reason), "dimension": string(r.Dimension),
		"missing_parent": r.MissingParent.String(), "expired_parent": r.ExpiredParent.String(), "cycle_at": r.CycleAt.String(),
	}
	switch {
	case r.Ref.Kind == authority.KindDelegation:
		data["delegation"], data["grant"], data["depth"] = r.Ref.Name, r.Root.Name, strconv.Itoa(r.Depth)
	case !r.Ref.IsZero():
		data["grant"] = r.Ref.Name
	}
	if r.DepthExceeded {
		data["depth_exceeded"] = "true"
	}
	if r.BreakGlass {
		data["break_glass"] = "true"
	}
	return filled(data)
}

// evaluated tells of each answer of the policies that is another one than before. What is denied before it can be hashed was
// not shown to them.
func (t *telling) evaluated() {
	a, b := t.before.Status, t.after
	if b.Hash == "" || b.Decision == "" || b.DecisionReason.OfAuthority() || b.DecisionReason == decision.PrincipalExpired || (a.Decision == b.Decision && a.DecisionReason == b.DecisionReason) {
		return
	}
	t.add(timeline.PolicyEvaluated, map[string]string{"decision": string(b.Decision), "reason": string(b.DecisionReason), "rules_hash": b.RulesHash})
}

func (t *telling) people() {
	ask := t.after.Ask
	if ask == nil {
		return
	}
	if t.before.Ask == nil {
		t.add(timeline.ApprovalRequested, map[string]string{"required": strconv.Itoa(ask.Required), "expires": stamp(ask.Expiration)})
	}
	for _, a := range t.s.Answers.Answers {
		if refusal := t.tally.Refusals[a.UID]; refusal != approval.Counts && !t.knows(timeline.ApprovalInvalidated, a.Name) {
			t.add(timeline.ApprovalInvalidated, map[string]string{"reason": snake(string(refusal)), "approval": a.Name, "approver": a.Approver})
		}
	}
	for _, a := range t.tally.Approved {
		if !t.knows(timeline.ApprovalGranted, a.Name) {
			t.add(timeline.ApprovalGranted, answered(a))
		}
	}
	if no := t.tally.Denied; no != nil && t.after.Reason == decision.ApprovalDenied {
		t.add(timeline.ApprovalDenied, answered(*no))
	}
	if t.after.Reason == decision.ApprovalExpired && t.after.State == Expired {
		t.add(timeline.ApprovalExpired, map[string]string{"expires": stamp(ask.Expiration)})
		t.add(timeline.ApprovalInvalidated, map[string]string{"reason": "expired"})
	}
}

// preconditions tells that what people said does not count, because what they were shown is not there any more.
func (t *telling) preconditions() {
	if t.after.Ask == nil || !t.after.Reason.OfPrecondition() || !t.after.State.Terminal() || t.before.State.Terminal() {
		return
	}
	data := map[string]string{"reason": string(t.after.Reason)}
	if f := t.after.Fingerprints; f != nil {
		data["at_request"], data["at_recheck"] = f.AtRequest, f.AtRecheck
	}
	t.add(timeline.ApprovalInvalidated, filled(data))
}

// maxInvalidated is how many approvals that do not count are told of. Anybody who may approve can make many.
const maxInvalidated = 8

// knows reports whether the timeline says this of that approval already, or as many times as it may be said.
func (t *telling) knows(kind timeline.Type, name string) bool {
	said := 0
	for _, e := range slices.Concat(t.before.Timeline, t.events) {
		if e.Type != kind {
			continue
		}
		if e.Data["approval"] == name {
			return true
		}
		said++
	}
	if kind == timeline.ApprovalInvalidated {
		return said >= maxInvalidated
	}
	// Where events were dropped, what was said of those that counted before is not all there any more.
	n := len(t.before.Timeline)
	dropped := n > 0 && t.before.Timeline[n-1].Seq > int64(n)
	return dropped && t.before.Ask != nil && t.after.Ask.Counted <= t.before.Ask.Counted
}

func (t *telling) claimable() {
	now, then := t.after.ClaimableTime, t.before.ClaimableTime
	if t.after.State != Claimable || now == nil || (then != nil && then.Equal(*now)) {
		return
	}
	data := map[string]string{}
	if until := t.after.ClaimExpiration; until != nil {
		data["expires"] = stamp(*until)
	}
	t.add(timeline.ActionClaimable, data)
}

func (t *telling) admitted() {
	x := t.after.Execution
	if x == nil || t.before.Execution != nil {
		return
	}
	for _, a := range x.Approvals {
		t.add(timeline.ApprovalConsumed, answered(a))
	}
	attempt := ""
	if e := t.after.Effect; e != nil && e.Attempt > 0 {
		attempt = strconv.FormatInt(e.Attempt, 10)
		t.add(timeline.EffectReserved, map[string]string{"effect_key": e.Key, "attempt": attempt})
	} else if e != nil && t.unreserved != "" {
		t.add(timeline.EffectReservationRefused, map[string]string{"reason": string(t.unreserved), "effect_key": e.Key})
	}
	if x.Mode == AgentMode {
		t.add(timeline.ExecutionStarted, map[string]string{"claim_id": x.ClaimID, "attempt": attempt})
	}
}

// suspended tells that an executor asked back, and that somebody went on. Of rounds that came faster than they could be told, each is told
// that somebody went on after it.
func (t *telling) suspended() {
	was, now := t.before.Suspension, t.after.Suspension
	if now == nil {
		return
	}
	if was == nil {
		was = &effect.Suspension{}
	}
	resumed := func(from, to int) {
		for i := from; i < to; i++ {
			x := now.Continued[i]
			t.add(timeline.ExecutionResumed, filled(map[string]string{"round": strconv.Itoa(i + 1), "claim": x.Claim.Name, "claim_id": x.ClaimID, "input_hash": x.InputHash}))
		}
	}
	before := min(len(now.Continued), int(now.Round)-1)
	resumed(len(was.Continued), before)
	if now.Round != was.Round {
		t.add(timeline.ExecutionSuspended, map[string]string{"round": strconv.FormatInt(now.Round, 10), "expires": stamp(now.Expiration)})
	}
	resumed(max(before, len(was.Continued)), len(now.Continued))
}

func (t *telling) ended() {
	if t.before.State.Terminal() || !t.after.State.Terminal() {
		return
	}
	end := timeline.End(resultOf(t.after.Ended()), t.after.Reason)
	data := map[string]string{"reason": string(t.after.Reason)}
	if e := t.after.Effect; e != nil && end == timeline.EffectReservationRefused {
		data["effect_key"] = e.Key
	}
	t.add(end, data)
}

// observed tells that somebody is asked what became of an effect, and what they said.
func (t *telling) observed() {
	was, now := t.before.Observation, t.after.Observation
	if now == nil {
		return
	}
	data := map[string]string{"executor": now.Executor.Name, "attempt": strconv.FormatInt(now.Attempt, 10), "moment": strings.ToLower(string(now.Moment))}
	switch {
	case was == nil:
		t.add(timeline.ReconciliationStarted, data)
	case was.Answer == "" && now.Answer != "":
		data["answer"] = snake(string(now.Answer))
		t.add(timeline.ReconciliationResolved, data)
	}
}

func (t *telling) resolved() {
	r := t.after.Resolved
	if r == nil || t.before.Resolved != nil {
		return
	}
	t.add(timeline.EffectResolved, map[string]string{"resolved_by": timeline.ResolvedBy(r.Observer), "resolver": r.Resolver, "resolution": r.Name, "result": strings.ToLower(string(r.State))})
}

func answered(a approval.Answer) map[string]string {
	return map[string]string{"approval": a.Name, "approver": a.Approver}
}

// stamp writes a time into data as receipts write it.
func stamp(t time.Time) string { return t.UTC().Format(receipt.TimeLayout) }

// snake turns a word of a condition into one of a document: SelfApproval, self_approval.
func snake(word string) string {
	var b strings.Builder
	for i, r := range word {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
