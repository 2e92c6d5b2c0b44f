package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/policy"
)

const (
	// ClaimFresh is how long after an action's creation its own claimID still says that somebody is there.
	ClaimFresh = 30 * time.Second
	// LapseGrace is how long after the end of a lease it is declared lapsed, at the earliest.
	LapseGrace = 10 * time.Second
	// holdGrace is how long a hold lasts before it is written down: most are over before anybody reads them.
	holdGrace = 5 * time.Second
)

// pass is one decision about an action that is not admitted: what this pass computed.
type pass struct {
	Snapshot
	a          *Action
	evaluation policy.Evaluation
	authority  *authority.Result // nil: nothing is required
	mode       Mode
	executor   *Executor // of the operator; nil: the agent executes
	observer   *Executor // that may be able to look; nil: none
	required   int       // people; 0: nobody is asked
	question   approval.Question
	tally      approval.Tally
	claimID    string
	claim      *effect.Ref
	// In observe mode: the first reason for which the action would not have run, that people would have been asked, and why
	// its effect is not reserved for it.
	blocked    decision.Reason
	asks       bool
	unreserved decision.Reason
}

// would notes in observe mode why the action would not have run. The first reason is the one that would have ended it.
func (p *pass) would(reason decision.Reason) {
	if p.blocked == "" {
		p.blocked = reason
	}
}

// refuseReservation ends an action whose effect it cannot have. In observe mode it goes on without: whatever it does then, the
// record stays as it is.
func (p *pass) refuseReservation(reason decision.Reason, message string) Step {
	if !p.World.Observe || p.mode == OperatorMode {
		return p.end(Blocked, reason, message)
	}
	p.would(reason)
	p.unreserved = reason
	return nil
}

// decide goes through the checks in their order, afresh in every pass, until one of them answers.
func decide(s Snapshot) Step {
	p := &pass{Snapshot: s, a: s.Action.Action}
	for _, check := range []func() Step{
		p.holds,
		p.statement,
		p.withdrawn,
		p.evaluate,
		p.executable,
		p.unchanged,
		p.deadline,
		p.known,
		p.approved,
		p.claimed,
		p.reserved,
	} {
		if step := check(); step != nil {
			return step
		}
	}
	return p.admit()
}

// holds answers while nothing can be decided at all: nothing is denied for it.
func (p *pass) holds() Step {
	if len(p.World.Holds) == 0 {
		return nil
	}
	return p.hold(p.World.Holds[0])
}

func (p *pass) hold(h Hold) Step {
	if due := h.Since.Add(holdGrace); p.Now.Before(due) {
		return Wait{Until: due, Why: string(h.Reason)}
	}
	status := p.a.Status
	status.Reason, status.Message = h.Reason, h.Message
	return p.write(status, WhyHold, Wait{Why: string(h.Reason)})
}

// statement answers for an action that nobody vouched for.
func (p *pass) statement() Step {
	if !p.a.Created.After(p.World.AdmissionSince) || p.a.Agent == "" {
		return p.end(Blocked, decision.MadeWithoutAdmission, notVouched("This Action", p.World.AdmissionSince)+" Nothing was executed. Propose it again.")
	}
	return nil
}

// withdrawn answers for an action whose own process has already reported: it will not execute.
func (p *pass) withdrawn() Step {
	lock := p.Lock.Outcome
	if lock == nil || p.a.ClaimID == "" || lock.ClaimID != p.a.ClaimID || lock.ActionUID != p.a.UID {
		return nil
	}
	if lock.Result == ReportNotExecuted {
		return p.end(Blocked, decision.Withdrawn, "The process that proposed it gave up before it was admitted. Nothing was executed. Propose it again if it is still wanted.")
	}
	return p.end(Blocked, decision.Withdrawn, fmt.Sprintf("The process that proposed it reported %s before it was admitted, so it was never allowed to execute. Find out what it did before anybody proposes this again.", lock.Result))
}

// evaluate asks the policy, and answers for what it denies.
func (p *pass) evaluate() Step {
	a := p.a
	proposal, refusal, message := p.proposal()
	if refusal != "" {
		return p.end(Denied, refusal, message)
	}
	if longest := p.World.Limits.MaxLease; a.Lease > longest {
		return p.end(Denied, decision.LeaseTooLong, fmt.Sprintf("The lease of %s is longer than the %s this namespace's Settings allow. Propose it again with a shorter spec.leaseDurationSeconds.", a.Lease, longest))
	}
	evaluation, err := p.World.Policies.Evaluate(proposal)
	if err != nil {
		if tooLarge := action.CheckSize(proposal.Arguments); tooLarge != nil {
			return p.end(Denied, decision.ArgumentsTooLarge, fmt.Sprintf("This action cannot be hashed: %v.", tooLarge))
		}
		return p.end(Denied, decision.ResourceError, fmt.Sprintf("The resource of this action cannot be computed: %v. Give the missing argument, or correct the policy's resource template.", err))
	}
	p.evaluation = evaluation
	p.authorised(&p.evaluation)
	evaluation = p.evaluation
	if key := evaluation.EffectKey; key != nil && p.Effect.Presence != Unread {
		if p.Effect = p.Effect.named(action.EffectName(*key)); p.Effect.Presence == Unread {
			p.Holder = ActionRead{}
		}
	}
	p.mode = AgentMode
	if p.World.Executors.name(a.Type) {
		p.mode = OperatorMode
	}
	switch {
	case a.Type == policy.ChangeAction && p.World.Observe:
		return p.end(Denied, decision.PolicyChangeUnapproved, observedChange)
	case evaluation.Decision == decision.Deny && p.World.Observe && p.observable(evaluation):
		p.would(blockedBy(evaluation.Reason))
	case evaluation.Decision == decision.Deny:
		return p.end(Denied, evaluation.Reason, evaluation.Message)
	case evaluation.Decision == decision.Approve && p.World.Observe:
		p.asks = true
	case evaluation.Decision == decision.Approve:
		p.required = evaluation.Entry.Approvals()
	case evaluation.Decision != decision.Allow:
		return p.end(Denied, decision.PolicyInvalid, fmt.Sprintf("The policy answered %q, which is no decision. Correct the policy.", evaluation.Decision))
	}
	return nil
}

// authorised asks the grants and delegations, where they are required. What cannot be computed is denied before; where they
// refuse, policy counts for nothing: no answer of it is told to somebody who may not ask.
func (p *pass) authorised(e *policy.Evaluation) {
	if e.Reason == decision.ArgumentsTooLarge || e.Reason == decision.EffectKeyError {
		return
	}
	if until := p.a.Expires; until != nil && p.Now.After(*until) {
		e.Decision, e.Reason, e.Policy = decision.Deny, decision.PrincipalExpired, nil
		e.Message = fmt.Sprintf("The credential of %s ended at %s, as its spec.principal.expiresTime says, and it was not admitted by then. Nothing was executed. Propose it again with a credential that holds.", p.a.Agent, until.UTC().Format(time.RFC3339))
		return
	}
	if !p.World.Required {
		return
	}
	result := p.World.Authority.Evaluate(e.Proposal, p.Now)
	p.authority = &result
	if !result.Passed {
		e.Decision, e.Reason, e.Message, e.Policy = decision.Deny, result.Reason, result.Message, nil
	}
}

// authorityOf is what the action's status says of it.
func authorityOf(r *authority.Result) *Authority {
	if r == nil || !r.Passed {
		return nil
	}
	return &Authority{Ref: r.Ref, Root: r.Root.Name, BreakGlass: r.BreakGlass}
}

// observable reports whether an action that is denied runs in observe mode. One whose key or whose hash cannot be computed does
// not, for there is nothing to record it under; nor does one that the operator executes and that names no effect.
func (p *pass) observable(e policy.Evaluation) bool {
	return e.Reason != decision.EffectKeyError && e.Reason != decision.ArgumentsTooLarge && (p.mode == AgentMode || e.EffectKey != nil)
}

// blockedBy is the word for a denial among those of what would have kept an action from running: a rule has none of its own.
func blockedBy(reason decision.Reason) decision.Reason {
	switch {
	case reason == decision.PlainDecision, strings.HasPrefix(string(reason), "rule["):
		return decision.PolicyDenied
	}
	return reason
}

// proposal reads what is stored; it gives a reason where that cannot be hashed.
func (p *pass) proposal() (action.Proposal, decision.Reason, string) {
	a := p.a
	raw := a.Arguments
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	value, err := canonical.Parse(raw)
	if err != nil {
		pointer := ""
		if c := (*canonical.Error)(nil); errors.As(err, &c) {
			pointer = c.Pointer
		}
		return action.Proposal{}, decision.UnrepresentableArgument, fmt.Sprintf("The argument at %q cannot be hashed: %v. Use integers in minor units, or strings, and propose it again.", "/spec/arguments"+pointer, err)
	}
	arguments, isObject := value.(map[string]any)
	if !isObject {
		return action.Proposal{}, decision.UnrepresentableArgument, `The value at "/spec/arguments" is not an object. Give the arguments by name and propose it again.`
	}
	if pointer, ok := action.CheckStored(arguments); !ok {
		return action.Proposal{}, decision.UnrepresentableArgument, fmt.Sprintf("The number at %q does not fit into 64 bits, so the apiserver does not keep it exactly. Use a string and propose it again.", "/spec/arguments"+pointer)
	}
	proposal := action.Proposal{Name: a.Type, Arguments: arguments, Principal: action.Principal{Agent: a.Agent, User: a.User}, Resource: a.Resource, Environment: p.World.Environment}
	if err := proposal.Validate(); err != nil {
		return action.Proposal{}, decision.UnrepresentableArgument, fmt.Sprintf("This action cannot be hashed: %v. Correct it and propose it again.", err)
	}
	return proposal, "", ""
}

// unchanged answers for an action that would now be another one than the one people were shown.
func (p *pass) unchanged() Step {
	a, now := p.a, p.effectRef()
	sameEffect := a.Effect == nil || (now != nil && a.Effect.Key == now.Key)
	if pinned := a.Ask != nil || a.ClaimableTime != nil; pinned && a.Effect == nil && now != nil {
		sameEffect = false
	}
	if a.Ask != nil || a.ClaimableTime != nil {
		if step := p.sameExecutor(); step != nil {
			return step
		}
	}
	if (a.Hash == "" || a.Hash == p.evaluation.Hash) && sameEffect {
		return nil
	}
	return p.end(Blocked, decision.ProposalChanged, "Since it was first decided, the policy's templates or the namespace's environment changed, so that this would now be another action than the one that was shown. Nothing was executed. Propose it again.")
}

// deadline answers for an action that came too late to be reserved. One that is reserved already is not late.
func (p *pass) deadline() Step {
	a := p.a
	if a.NotAfter == nil || p.Now.Before(*a.NotAfter) {
		return nil
	}
	if key := p.evaluation.EffectKey; key != nil {
		if p.Effect.Presence == Unread || p.Effect.Presence == Cached {
			return Read{Object: TheEffect, Name: action.EffectName(*key)}
		}
		if p.holdsReservation() {
			return nil
		}
	}
	return p.end(Expired, decision.NotAfter, fmt.Sprintf("It was not to be executed after %s, and was not reserved by then. Nothing was executed.", a.NotAfter.UTC().Format(time.RFC3339)))
}

// known spares people a question whose answer cannot matter: the effect has happened, nobody knows, or its attempts are
// used up. It is a courtesy; what guards the effect is the reservation.
func (p *pass) known() Step {
	if p.required == 0 || p.a.Ask != nil || p.evaluation.EffectKey == nil {
		return nil
	}
	if p.Effect.Presence == Unread || p.Effect.Presence == Cached {
		return Read{Object: TheEffect, Name: action.EffectName(*p.evaluation.EffectKey)}
	}
	if p.Effect.Presence == Absent || p.holdsReservation() {
		return nil
	}
	return p.refusedBy(p.Effect.Record)
}

// approved answers until the required people have said yes to exactly what this pass computed.
func (p *pass) approved() Step {
	a := p.a
	if a.Ask == nil {
		if p.required == 0 { // in observe mode nobody is asked
			return nil
		}
		return p.pin()
	}
	p.required = max(p.required, a.Ask.Required)
	p.question = approval.Question{
		ActionUID: a.UID, ActionType: a.Type, Hash: p.evaluation.Hash, Key: p.evaluation.EffectKey,
		Agent: a.Agent, User: a.User,
		Expiration: a.Ask.Expiration, AdmissionSince: p.World.AdmissionSince, Required: p.required,
		People: p.World.People, Groups: groupsAsked(a.Ask, p.evaluation.Entry),
	}
	p.tally = p.question.Count(p.Answers.Answers)
	if p.World.Observe {
		return p.wouldAnswer()
	}
	for i := range p.tally.Approved {
		if a := &p.tally.Approved[i]; a.RulesHash == "" {
			a.RulesHash = p.World.RulesHash // this pass is the first to accept it
		}
	}
	if no := p.tally.Denied; no != nil {
		message := fmt.Sprintf("%s denied it", no.Approver)
		if no.Reason != "" {
			message += fmt.Sprintf(": %q", no.Reason)
		}
		return p.end(Denied, decision.ApprovalDenied, message+". Nothing was executed.")
	}
	if p.evaluation.Decision == decision.Allow {
		// The policy allows it now: nobody's yes is needed. What was said is spent all the same, and on record; and whoever
		// was asked and said no is heard.
		p.required = 0
		return nil
	}
	if p.tally.Sufficient(p.question) {
		if a.ClaimableTime != nil {
			return nil // asked again when they are spent
		}
		// No process is told to come that could not be admitted then, in this pass or in any that forgot what this one was told.
		return p.entitled()
	}
	if p.Now.After(a.Ask.Expiration) {
		if p.Answers.Presence != Fresh {
			return Read{Object: TheAnswers}
		}
		return p.end(Expired, decision.ApprovalExpired, fmt.Sprintf("%d of %d people approved it before %s. Nothing was executed. Propose it again if it is still wanted.", len(p.tally.Approved), p.required, a.Ask.Expiration.UTC().Format(time.RFC3339)))
	}
	if len(p.tally.Approved) > a.Ask.Counted {
		// Whoever said yes since looked at what is there now.
		if step := p.preconditionsStand(); step != nil {
			return step
		}
	}
	status := p.decided(AwaitingApproval)
	ask := *a.Ask
	ask.Counted = len(p.tally.Approved)
	status.Ask = &ask
	status.ClaimableTime, status.ClaimExpiration = nil, nil
	status.Message = p.waitingForPeople(ask.Counted)
	return p.write(status, WhyWait, p.waits(a.Ask.Expiration, "approval"))
}

// wouldAnswer notes in observe mode what people said before it was switched to: they are asked no longer, what they said is not
// spent, and their no stops nothing.
func (p *pass) wouldAnswer() Step {
	question, tally := p.question, p.tally
	p.required, p.tally = 0, approval.Tally{}
	if p.asks {
		question.Required = max(question.Required, p.evaluation.Entry.Approvals())
	}
	switch {
	case tally.Denied != nil:
		p.would(decision.ApprovalDenied)
	case !p.asks:
	case tally.Sufficient(question):
		p.asks = false
	case p.Now.After(question.Expiration):
		p.would(decision.ApprovalExpired)
	default:
		p.would(decision.ApprovalRequired)
	}
	return nil
}

// waits until that time is over, or what lets the principal propose is: nobody is asked for what nobody may do any more.
func (p *pass) waits(until time.Time, why string) Wait {
	if r := p.authority; r != nil && r.Until != nil && r.Until.Before(until) {
		until = *r.Until
	}
	if e := p.a.Expires; e != nil && e.Before(until) {
		until = *e
	}
	return Wait{Until: until.Add(time.Millisecond), Why: why}
}

// pin writes what people are asked. It is written once: nobody can say yes to something that changes afterwards.
func (p *pass) pin() Step {
	ttl := p.approvalTTL()
	status := p.decided(AwaitingApproval)
	status.Ask = &Ask{Required: p.required, Groups: p.evaluation.Entry.ApproverGroups, Requested: p.Now, Expiration: p.Now.Add(ttl)}
	status.ClaimableTime, status.ClaimExpiration = nil, nil
	if step := p.fingerprinted(&status); step != nil {
		return step
	}
	status.Message = p.waitingForPeople(0)
	return p.writes(status, WhyPin)
}

// groupsAsked are the groups that were pinned when people were asked, and those that the policy names now: an approver has to
// be in one of each.
func groupsAsked(ask *Ask, entry *policy.Entry) [][]string {
	var groups [][]string
	if len(ask.Groups) > 0 {
		groups = append(groups, ask.Groups)
	}
	if entry != nil && len(entry.ApproverGroups) > 0 && !slices.Equal(entry.ApproverGroups, ask.Groups) {
		groups = append(groups, entry.ApproverGroups)
	}
	return groups
}

func (p *pass) waitingForPeople(counted int) string {
	message := fmt.Sprintf("%s asks for approval: %d of %d so far. To answer: kubectl ctrlrun approve %s -n %s", p.evaluation.Reason, counted, p.required, p.a.Name, p.World.Namespace)
	if names := p.unentitled(); len(names) > 0 {
		message += ". Not counted: " + strings.Join(names, ", ")
	}
	ask := p.a.Ask
	if ask == nil {
		ask = &Ask{}
	}
	if groups := groupsAsked(ask, p.evaluation.Entry); len(groups) > 0 {
		message += ". Whoever answers has to be in " + groupNames(groups)
	}
	return message
}

// unentitled are those who said yes and are not asked, or may not be any more, in an order that does not change.
func (p *pass) unentitled() []string {
	var names []string
	for _, a := range p.Answers.Answers {
		switch {
		case !a.Approved || p.tally.Refusals[a.UID] != approval.NotEntitled:
		case a.Entitlement == approval.Unentitled:
			names = append(names, fmt.Sprintf("%s, who may not approve %s any more", a.Approver, a.ActionType))
		default:
			names = append(names, fmt.Sprintf("%s, who was in none of the groups that are asked", a.Approver))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const shown = 3
	if more := len(names) - shown; more > 0 {
		names = append(names[:shown], fmt.Sprintf("and %d more", more))
	}
	return names
}

func (p *pass) approvalTTL() time.Duration {
	if e := p.evaluation.Entry; e != nil && e.ApprovalTTLSeconds > 0 { // in observe mode none may count
		return time.Duration(e.ApprovalTTLSeconds) * time.Second
	}
	return p.World.Limits.ApprovalTTL
}

// claimed answers until a process says that it is there. A lease must not start while the agent is gone.
func (p *pass) claimed() Step {
	a := p.a
	if p.mode == OperatorMode {
		return nil
	}
	waited := p.waited()
	if !waited && a.ClaimID != "" && !p.Now.After(a.Created.Add(ClaimFresh)) {
		p.claimID = a.ClaimID
		return nil
	}
	if a.ClaimableTime == nil {
		status := p.decided(Claimable)
		now, until := p.Now, p.Now.Add(p.approvalTTL())
		status.ClaimableTime, status.ClaimExpiration = &now, &until
		p.counted(&status)
		if step := p.fingerprinted(&status); step != nil {
			return step
		}
		status.Message = p.waitingForClaim()
		return p.writes(status, WhyClaimable)
	}
	if c := p.firstClaim(); c != nil {
		p.claimID, p.claim = c.ClaimID, &effect.Ref{Name: c.Name, UID: c.UID}
		return nil
	}
	if p.Now.After(*a.ClaimExpiration) {
		if p.Claims.Presence != Fresh {
			return Read{Object: TheClaims}
		}
		return p.end(Expired, decision.NotClaimed, fmt.Sprintf("It was allowed, but no process claimed it before %s. Nothing was executed. Propose it again if it is still wanted.", a.ClaimExpiration.UTC().Format(time.RFC3339)))
	}
	status := p.decided(Claimable)
	p.counted(&status)
	status.Message = p.waitingForClaim()
	return p.write(status, WhyWait, p.waits(*a.ClaimExpiration, "claim"))
}

func (p *pass) waitingForClaim() string {
	return fmt.Sprintf("It may be executed. Nothing is reserved yet: it waits for a process that says it is there. To execute it: kubectl ctrlrun claim %s -n %s", p.a.Name, p.World.Namespace)
}

// firstClaim is the oldest claim that was made by the proposer, for this decision, under admission.
func (p *pass) firstClaim() *Claim {
	var valid []Claim
	for _, c := range p.Claims.Claims {
		if ClaimCounts(p.a, c, p.World.AdmissionSince) == "" {
			valid = append(valid, c)
		}
	}
	if len(valid) == 0 {
		return nil
	}
	first := slices.MinFunc(valid, func(a, b Claim) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.UID, b.UID))
	})
	return &first
}

// ClaimCounts says why a claim does not count for an action, in the words of the condition Accepted; "" if it does.
func ClaimCounts(a *Action, c Claim, admissionSince time.Time) string {
	switch {
	case c.ActionUID != a.UID:
		return "Mismatch"
	case c.Continuation != nil:
		return "NotSuspended"
	case c.Claimant != a.Agent:
		return "NotTheAgent"
	case c.Withdrawn:
		return "Withdrawn"
	case !c.Created.After(admissionSince):
		return "MadeWithoutAdmission"
	case a.ClaimableTime == nil || !c.ClaimableTime.Equal(*a.ClaimableTime):
		return "NotClaimable"
	case a.ClaimExpiration != nil && c.Created.After(*a.ClaimExpiration):
		return "Expired"
	}
	return ""
}

// decided is the status in the given state with everything this pass computed.
func (p *pass) decided(state State) Status {
	status := p.a.Status
	e := p.evaluation
	status.State, status.Reason, status.Message = state, "", ""
	status.Hash, status.Decision, status.DecisionReason, status.Policy = e.Hash, e.Decision, e.Reason, e.Policy
	status.Resource, status.Environment, status.RulesHash = e.Proposal.Resource, e.Proposal.Environment, p.World.RulesHash
	status.Authority = authorityOf(p.authority)
	status.Executor = p.executor.ref()
	status.Effect = p.effectRef()
	return status
}

func (p *pass) counted(status *Status) {
	if status.Ask == nil {
		return
	}
	ask := *status.Ask
	ask.Counted = len(p.tally.Approved)
	status.Ask = &ask
}

func (p *pass) effectRef() *EffectRef {
	key := p.evaluation.EffectKey
	if key == nil {
		return nil
	}
	return &EffectRef{Name: action.EffectName(*key), Key: *key}
}

// write gives the status to be written, or what to do if it is written already.
func (p *pass) write(status Status, why string, otherwise Step) Step {
	status.Message = clip(status.Message)
	if p.a.FirstSeq != nil && sameStatus(p.a.Status, status) {
		return otherwise
	}
	return p.writes(status, why)
}

// sameStatus compares what a waiting status may change.
func sameStatus(a, b Status) bool {
	counted := func(s Status) int {
		if s.Ask == nil {
			return -1
		}
		return s.Ask.Counted
	}
	same := func(a, b *time.Time) bool { return (a == nil) == (b == nil) && (a == nil || a.Equal(*b)) }
	return a.State == b.State && a.Reason == b.Reason && a.Message == b.Message && a.Hash == b.Hash &&
		a.Decision == b.Decision && a.DecisionReason == b.DecisionReason && sameRef(a.Executor, b.Executor) && counted(a) == counted(b) && same(a.ClaimableTime, b.ClaimableTime)
}

// end is the terminal status of an action that was never admitted. Its receipt comes afterwards, whatever happens to this
// process: the terminal state is what keeps any other pass from admitting it.
func (p *pass) end(state State, reason decision.Reason, message string) Step {
	status := p.a.Status
	if e := p.evaluation; e.Hash != "" && (status.Hash == "" || status.Hash == e.Hash) && reason != decision.ProposalChanged && reason != decision.ExecutorChanged {
		status = p.decided(state)
		if p.a.Effect != nil {
			status.Effect = p.a.Effect
		}
	}
	if reason.OfPrecondition() {
		p.rechecked(&status)
	}
	status.State, status.Reason, status.Message = state, reason, clip(message)
	now := p.Now
	status.FinishTime = &now
	if state == Denied && status.Decision == "" {
		status.Decision, status.DecisionReason = decision.Deny, reason
	}
	return p.writes(status, WhyEnd)
}

// maxMessage is how many bytes a message may have. What is compared with a stored message must be what would be stored.
const maxMessage = 1024

// clip shortens a message without cutting a character.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// writes is the write of a status. The first one notes a seq that the receipt of this action is never before.
func (p *pass) writes(status Status, why string) WriteAction {
	if status.FirstSeq == nil {
		seq := p.World.VerifiedSeq
		status.FirstSeq = &seq
	}
	return WriteAction{Name: p.a.Name, UID: p.a.UID, Status: status, Why: why, tally: p.tally, authority: p.authority, unreserved: p.unreserved}
}
