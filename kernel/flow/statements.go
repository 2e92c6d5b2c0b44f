package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

// Verdict is what the condition Accepted of a statement says. The zero Verdict says nothing yet.
type Verdict struct {
	Accepted bool
	Reason   string
	Message  string
	// RulesHash of an approval that was spent: the rules it was accepted under.
	RulesHash string
}

// Given reports whether there is a verdict.
func (v Verdict) Given() bool { return v.Reason != "" }

func refused(reason, format string, args ...any) Verdict {
	return Verdict{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func accepted(format string, args ...any) Verdict {
	return Verdict{Accepted: true, Reason: "Accepted", Message: fmt.Sprintf(format, args...)}
}

// JudgeAnswer is the verdict on one approval, given the action of the name it says, nil if there is none. What admits is the
// count in the action's own pass; this tells the person.
func JudgeAnswer(w World, a *Action, answer approval.Answer, all []approval.Answer) Verdict {
	if a == nil {
		return refused("ActionNotFound", "There is no Action of that name. It may be finished and gone; its receipt says how.")
	}
	if a.UID != answer.ActionUID {
		return refused(string(approval.Mismatch), "It names the Action with uid %s; %s has uid %s and is another one. An approval is for one Action and does not fit the next. Read the Action again: kubectl ctrlrun approve %s", answer.ActionUID, a.Name, a.UID, a.Name)
	}
	if a.Execution != nil {
		for _, spent := range a.Execution.Approvals {
			if spent.UID == answer.UID {
				v := accepted("It was spent by the admission of %s.", a.Name)
				v.RulesHash = spent.RulesHash
				return v
			}
		}
	}
	q, asked := questionOf(w, a)
	if !asked {
		switch {
		case a.State.Terminal():
			return refused("ActionFinished", "%s is over: %s.", a.Name, a.State)
		case a.Execution != nil, a.State == Claimable:
			return refused("NotRequired", "The policy allows %s without asking anybody.", a.Name)
		}
		return Verdict{} // not decided yet
	}
	pinned := q
	q = asksNow(w, a, q)
	tally := q.Count(all)
	refusal, counted := tally.Refusals[answer.UID]
	if !counted {
		return Verdict{}
	}
	switch refusal {
	case approval.Counts:
	case approval.Mismatch:
		return refused(string(refusal), "It names %s; %s is %s. Nothing was approved. Read the Action again: kubectl ctrlrun approve %s", describe(answer.ActionType, answer.Hash, answer.Key), a.Name, describe(a.Type, a.Hash, q.Key), a.Name)
	case approval.Expired:
		return refused(string(refusal), "It came after %s, when the question had expired.", a.Ask.Expiration.UTC().Format(time.RFC3339))
	case approval.SelfApproval:
		return refused(string(refusal), "%s asked for this action and cannot answer for it. Somebody else has to.", answer.Approver)
	case approval.DuplicateApprover:
		return refused(string(refusal), "%s has approved it already; one person counts once.", answer.Approver)
	case approval.MadeWithoutAdmission:
		return refused(string(refusal), "%s Make it again.", notVouched("It", w.AdmissionSince))
	case approval.NotEntitled:
		if pinned.Judge(answer) == approval.Counts {
			return Verdict{} // the policy asks others now, and may not tomorrow; meanwhile the Action says that it does not count
		}
		if answer.Entitlement == approval.Unentitled {
			return refused(string(refusal), "%s may not approve %s, by that name and with the groups that the approval names; of somebody in more than 64 groups it names none. Somebody who may has to answer.", answer.Approver, a.Type)
		}
		known := "is in none of these"
		if len(answer.Groups) == 0 {
			known = "is in none that is known: of somebody in more than 64 groups, or in one whose name has more than 256 characters, none is"
		}
		return refused(string(refusal), "Whoever answers has to be in %s; %s %s. Somebody who is has to answer.", groupNames(pinned.Groups), answer.Approver, known)
	default:
		return refused(string(refusal), "It does not count.")
	}
	if !answer.Approved {
		if a.Execution != nil {
			return refused("ActionFinished", "%s was admitted before this came.", a.Name)
		}
		if a.State == Denied && a.Reason == decision.ApprovalDenied {
			return accepted("%s is denied by it.", a.Name)
		}
		if a.State.Terminal() {
			return refused("ActionFinished", "%s was over before this came: %s.", a.Name, a.State)
		}
		return Verdict{} // the action's pass turns it into a denial, or was faster
	}
	for _, approved := range tally.Approved {
		if approved.UID != answer.UID {
			continue
		}
		if a.Execution != nil || a.State.Terminal() {
			return refused("ActionFinished", "%s was over, or admitted without it, before this could count: %s.", a.Name, a.State)
		}
		return accepted("It counts: %d of %d.", len(tally.Approved), q.Required)
	}
	if a.State == AwaitingApproval {
		return Verdict{} // the action's pass has yet to count, and the policy may ask for this one too
	}
	return refused("NotRequired", "%d of %d people had approved it already.", len(tally.Approved), q.Required)
}

// Unchecked is the uid of an approval that counts and about whose speaker nobody has asked yet, "" if there is none. A verdict
// that another one was enough, or that this one counts, is given when there is none.
func Unchecked(w World, a *Action, all []approval.Answer) string {
	if a == nil || a.Execution != nil || a.State.Terminal() {
		return ""
	}
	q, asked := questionOf(w, a)
	if !asked {
		return ""
	}
	for _, answer := range asksNow(w, a, q).Count(all).Approved {
		if answer.Entitlement == approval.Unchecked {
			return answer.UID
		}
	}
	return ""
}

// asksNow is the question with the groups that the policy asks by now, of an action that is not over.
func asksNow(w World, a *Action, q approval.Question) approval.Question {
	if a.Execution == nil && !a.State.Terminal() && w.Policies != nil {
		q.Groups = groupsAsked(a.Ask, w.Policies.Entry(a.Type))
	}
	return q
}

// notVouched says why a statement does not count that is not newer than admissionSince. It may have been made before the gap:
// what was said then cannot be told from what was forged in it.
func notVouched(what string, admissionSince time.Time) string {
	return fmt.Sprintf("%s was created before %s, from when on statements count again: the admission policies had been away or were other ones, so nobody can vouch for what was made until then.", what, admissionSince.UTC().Format(time.RFC3339))
}

// groupNames is lists of groups for people, of each of which somebody has to be in one.
func groupNames(lists [][]string) string {
	var out []string
	for _, list := range lists {
		out = append(out, "one of the groups "+strings.Join(list, ", "))
	}
	return strings.Join(out, " and in ")
}

func describe(kind, hash string, key *string) string {
	effect := "no effect key"
	if key != nil {
		effect = fmt.Sprintf("effect key %q", *key)
	}
	return fmt.Sprintf("type %q, hash %s, %s", kind, hash, effect)
}

// JudgeClaim is the verdict on one claim. A refusal is for good, so the action must have been read after the claim: one that
// is older may not have become claimable yet.
func JudgeClaim(a *Action, c Claim, admissionSince time.Time) Verdict {
	if a == nil || a.UID != c.ActionUID {
		return refused("ActionNotFound", "There is no Action of that name with uid %s.", c.ActionUID)
	}
	if c.Continuation != nil {
		return judgeContinuation(a, c, admissionSince)
	}
	if x := a.Execution; x != nil {
		if x.Claim != nil && x.Claim.UID == c.UID {
			return accepted("Its process was admitted. It has until %s.", x.Lease.UTC().Format(time.RFC3339))
		}
		return refused("AnotherWasFirst", "Another process was admitted for %s. Do not execute anything.", a.Name)
	}
	if a.State.Terminal() {
		return refused("ActionFinished", "%s is over: %s (%s). Do not execute anything.", a.Name, a.State, a.Reason)
	}
	switch reason := ClaimCounts(a, c, admissionSince); reason {
	case "":
		return Verdict{} // the action's pass admits it, or an older one
	case "NotTheAgent":
		return refused(reason, "%s proposed %s; only that identity may execute it.", a.Agent, a.Name)
	case "Withdrawn":
		return refused(reason, "Its own process has said that it will not execute. Claim again.")
	case "MadeWithoutAdmission":
		return refused(reason, "%s Claim again.", notVouched("It", admissionSince))
	case "Expired":
		return refused(reason, "It came after %s, when %s could not be claimed any more.", a.ClaimExpiration.UTC().Format(time.RFC3339), a.Name)
	case "NotClaimable":
		return refused(reason, "%s is %s, and what it quotes is not the present claimableTime. Read the Action and claim again.", a.Name, a.State)
	default:
		return refused(reason, "It does not count.")
	}
}

// JudgeOutcome is the verdict on one outcome. One that counts gets none: its Action says it.
func JudgeOutcome(a *Action, o Outcome) Verdict {
	if a == nil || a.UID != o.ActionUID {
		return refused("ActionNotFound", "There is no Action of that name with uid %s.", o.ActionUID)
	}
	lock := func(claimID string) bool { return o.Name == LockName(a.UID, claimID, a.Agent) }
	if a.Execution == nil {
		withdrew := a.Reason == decision.Withdrawn && lock(a.ClaimID) && o.ClaimID == a.ClaimID
		if !a.State.Terminal() || withdrew {
			return Verdict{}
		}
		return refused("NotAdmitted", "%s was never admitted, so there is nothing to report.", a.Name)
	}
	admitted := a.claimIDs()
	switch {
	case slices.ContainsFunc(admitted, func(id string) bool { return o.Name == "late."+LockName(a.UID, id, a.Agent) }):
		return refused("LateReport", "The lease had been declared lapsed before it came. It settles nothing, and is shown to whoever resolves the effect.")
	case !slices.ContainsFunc(admitted, lock):
		return refused("NotAdmitted", "Another process was admitted for %s. A process that was not has nothing to report.", a.Name)
	case o.LeaseLapsed:
		return Verdict{}
	case o.Reporter != a.Agent:
		return refused("NotTheAgent", "%s was admitted to %s. This report ended the attempt, but says nothing about it.", a.Name, a.Agent)
	}
	return Verdict{}
}

// refusedStatements are what was said about the action and does not count, as far as this pass has seen it: the oldest of
// them, and how many there are. What has a verdict is counted by it. An answer that was good enough, and only came to
// nothing because the action ended otherwise, is none of them.
func refusedStatements(s Snapshot) ([]receipt.Refusal, int64) {
	a, since := s.Action.Action, s.World.AdmissionSince
	var all []receipt.Refusal
	add := func(reason string, r receipt.Refusal) {
		if stored := r.UID != "" && !r.Time.IsZero(); stored && reason != "" {
			r.Reason = snake(reason)
			all = append(all, r)
		}
	}
	refusals := answerRefusals(s.World, a, s.Answers.Answers)
	for _, answer := range s.Answers.Answers {
		add(refusals[answer.UID], receipt.Refusal{Kind: "approval", Name: answer.Name, UID: answer.UID, Speaker: answer.Approver, Time: answer.Created})
	}
	for _, c := range s.Claims.Claims {
		if v := JudgeClaim(a, c, since); v.Given() && !v.Accepted {
			add(v.Reason, receipt.Refusal{Kind: "claim", Name: c.Name, UID: c.UID, Speaker: c.Claimant, Time: c.Created})
		}
	}
	for _, o := range []*Outcome{s.Lock.Outcome, s.Late} {
		if o == nil {
			continue
		}
		if v := JudgeOutcome(a, *o); v.Given() && !v.Accepted {
			add(v.Reason, receipt.Refusal{Kind: "outcome", Name: o.Name, UID: o.UID, Speaker: o.Reporter, Time: o.Created})
		}
	}
	slices.SortFunc(all, func(a, b receipt.Refusal) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), receipt.MaxRefused)], int64(len(all))
}

// answerRefusals are the reasons of the answers that do not count, by uid. All are counted at once: there may be many.
func answerRefusals(w World, a *Action, answers []approval.Answer) map[string]string {
	var tally approval.Tally
	if q, asked := questionOf(w, a); asked {
		tally = q.Count(answers)
	}
	reasons := map[string]string{}
	for _, answer := range answers {
		spent := a.Execution != nil && slices.ContainsFunc(a.Execution.Approvals, func(x approval.Answer) bool { return x.UID == answer.UID })
		switch refusal, counted := tally.Refusals[answer.UID]; {
		case spent, answer.Accepted:
		case answer.Refused != "":
			reasons[answer.UID] = answer.Refused
		case a.UID != answer.ActionUID:
			reasons[answer.UID] = string(approval.Mismatch)
		case !counted:
			reasons[answer.UID] = string(approval.NotRequired) // nobody was asked
		default:
			reasons[answer.UID] = string(refusal)
		}
	}
	return reasons
}

// questionOf is what people are asked about an action, as it stands in its status.
func questionOf(w World, a *Action) (approval.Question, bool) {
	if a.Ask == nil {
		return approval.Question{}, false
	}
	q := approval.Question{
		ActionUID: a.UID, ActionType: a.Type, Hash: a.Hash, Agent: a.Agent, User: a.User,
		Expiration: a.Ask.Expiration, AdmissionSince: w.AdmissionSince, People: w.People, Groups: groupsAsked(a.Ask, nil),
		// The policy may ask more people by now than it did when the question was pinned.
		Required: max(a.Ask.Required, a.Ask.Counted),
	}
	if a.Effect != nil {
		q.Key = &a.Effect.Key
	}
	return q, true
}
