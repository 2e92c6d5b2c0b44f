package flow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// verdict is what Accepted says: "" nothing yet, "+" in front of what is accepted.
func verdict(t *testing.T, v flow.Verdict) string {
	t.Helper()
	if v.Given() && v.Message == "" {
		t.Errorf("the verdict %q has no message", v.Reason)
	}
	if v.Accepted {
		return "+" + v.Reason
	}
	return v.Reason
}

func TestJudgeAnswer(t *testing.T) {
	since := aWorld().AdmissionSince
	asked := anAction("a1").Asked(1).Obj()
	yes := anApproval(asked).Obj()
	no := anApproval(asked).Denied().Obj()
	first, second := anApproval(asked).By(dave).At(noon.Add(-1)).Obj(), anApproval(asked).At(noon.Add(1)).Obj()
	spent := anAction("a1").Asked(1).Admitted(1).Obj()
	spent.Execution.Approvals = []approval.Answer{yes}
	expired := anAction("a1").Asked(1).Ended(flow.Expired, decision.ApprovalExpired).Obj()
	denied := anAction("a1").Asked(1).Ended(flow.Denied, decision.ApprovalDenied).Obj()
	twice := yes
	twice.UID, twice.Created = "again", noon.Add(1)
	for name, tc := range map[string]struct {
		action *flow.Action
		answer approval.Answer
		others []approval.Answer
		want   string
	}{
		"there is no such action":               {nil, yes, nil, "ActionNotFound"},
		"the name has another uid":              {anAction("a1").UID("other").Asked(1).Obj(), yes, nil, "Mismatch"},
		"not decided yet":                       {anAction("a1").Obj(), yes, nil, ""},
		"nobody was asked, it is over":          {anAction("a1").Ended(flow.Denied, decision.PlainDecision).Obj(), yes, nil, "ActionFinished"},
		"nobody was asked, it was admitted":     {anAction("a1").Admitted(1).Obj(), yes, nil, "NotRequired"},
		"nobody was asked, it waits for claim":  {anAction("a1").Claimable(noon).Obj(), yes, nil, "NotRequired"},
		"it counts":                             {asked, yes, nil, "+Accepted"},
		"another hash":                          {asked, anApproval(asked).Hash("sha256:2").Obj(), nil, "Mismatch"},
		"by the agent":                          {asked, anApproval(asked).By(alice).Obj(), nil, "SelfApproval"},
		"too late":                              {asked, anApproval(asked).At(asked.Ask.Expiration.Add(1)).Obj(), nil, "Expired"},
		"made without admission":                {asked, anApproval(asked).At(since).Obj(), nil, "MadeWithoutAdmission"},
		"by who said it already":                {anAction("a1").Asked(2).Obj(), twice, []approval.Answer{yes}, "DuplicateApprover"},
		"more than were asked, not counted yet": {asked, second, []approval.Answer{first}, ""},
		"more than were asked":                  {anAction("a1").Asked(1).Claimable(noon).Obj(), second, []approval.Answer{first}, "NotRequired"},
		"the second of two":                     {anAction("a1").Asked(2).Obj(), second, []approval.Answer{first}, "+Accepted"},
		"it was spent":                          {spent, yes, nil, "+Accepted"},
		"admitted without it":                   {spent, first, []approval.Answer{yes}, "ActionFinished"},
		"it expired before":                     {expired, yes, nil, "ActionFinished"},
		"a no, on its way":                      {asked, no, nil, ""},
		"a no that denied it":                   {denied, no, nil, "+Accepted"},
		"a no, after it expired":                {expired, no, nil, "ActionFinished"},
		"a no, after it was admitted":           {spent, anApproval(asked).By(dave).Denied().Obj(), []approval.Answer{yes}, "ActionFinished"},
		"a no of another hash":                  {asked, anApproval(asked).Denied().Hash("sha256:2").Obj(), nil, "Mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdict(t, flow.JudgeAnswer(flow.World{AdmissionSince: since}, tc.action, tc.answer, append(tc.others, tc.answer))); got != tc.want {
				t.Errorf("the verdict is %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("a list that does not have it yet says nothing", func(t *testing.T) {
		if got := verdict(t, flow.JudgeAnswer(flow.World{AdmissionSince: since}, asked, yes, nil)); got != "" {
			t.Errorf("the verdict is %q", got)
		}
	})
}

func TestJudgeClaim(t *testing.T) {
	since := aWorld().AdmissionSince
	claimable := anAction("a1").Claimable(noon).Obj()
	claim := aClaim(claimable, "c").Obj()
	admitted := anAction("a1").Claimable(noon).Admitted(1).Obj()
	by := claimed(claim)
	for name, tc := range map[string]struct {
		action *flow.Action
		claim  flow.Claim
		want   string
	}{
		"there is no such action":             {nil, claim, "ActionNotFound"},
		"the name has another uid":            {claimable, aClaim(claimable, "c").OfAction("other").Obj(), "ActionNotFound"},
		"its process was admitted":            {by, claim, "+Accepted"},
		"another process was admitted":        {admitted, claim, "AnotherWasFirst"},
		"it is over":                          {anAction("a1").Claimable(noon).Ended(flow.Expired, decision.NotClaimed).Obj(), claim, "ActionFinished"},
		"it counts, so far":                   {claimable, claim, ""},
		"by another":                          {claimable, aClaim(claimable, "c").By(bob).Obj(), "NotTheAgent"},
		"made without admission":              {claimable, aClaim(claimable, "c").At(since).Obj(), "MadeWithoutAdmission"},
		"after the end":                       {claimable, aClaim(claimable, "c").At(noon.Add(15*time.Minute + 1)).Obj(), "Expired"},
		"of an earlier decision":              {claimable, aClaim(claimable, "c").Quoting(noon.Add(-1)).Obj(), "NotClaimable"},
		"of a time it never became claimable": {claimable, aClaim(claimable, "c").Quoting(noon.Add(1)).Obj(), "NotClaimable"},
		"it is not claimable":                 {anAction("a1").Obj(), claim, "NotClaimable"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdict(t, flow.JudgeClaim(tc.action, tc.claim, since)); got != tc.want {
				t.Errorf("the verdict is %q, want %q", got, tc.want)
			}
		})
	}
}

func claimed(c flow.Claim) *flow.Action {
	a := anAction("a1").Claimable(noon).Admitted(1).Obj()
	a.Execution.ClaimID, a.Execution.Claim = c.ClaimID, refTo(c)
	return a
}

func TestJudgeOutcome(t *testing.T) {
	admitted := anAction("a1").Admitted(1).Obj()
	waiting := anAction("a1").Obj()
	blocked := anAction("a1").Ended(flow.Blocked, decision.Duplicate).Obj()
	report := anOutcome(admitted, flow.ReportCommitted).Obj()
	other := *report
	other.Name, other.ClaimID = flow.LockName(admitted.UID, "other", alice), "other"
	late := *report
	late.Name = "late." + late.Name
	for name, tc := range map[string]struct {
		action  *flow.Action
		outcome *flow.Outcome
		want    string
	}{
		"there is no such action":            {nil, report, "ActionNotFound"},
		"the name has another uid":           {anAction("a1").UID("other").Admitted(1).Obj(), report, "ActionNotFound"},
		"it counts":                          {admitted, report, ""},
		"the operator's own":                 {admitted, anOutcome(admitted, flow.ReportUnknown).Lapsed().Obj(), ""},
		"by another, under that name":        {admitted, anOutcome(admitted, flow.ReportCommitted).By(bob).Obj(), "NotTheAgent"},
		"of another process":                 {admitted, &other, "NotAdmitted"},
		"too late":                           {admitted, &late, "LateReport"},
		"not admitted yet: it gives up":      {waiting, anOutcome(waiting, flow.ReportNotExecuted).Obj(), ""},
		"not admitted yet, another claim":    {waiting, &other, ""},
		"never admitted: it gave up":         {anAction("a1").Ended(flow.Blocked, decision.Withdrawn).Obj(), anOutcome(blocked, flow.ReportNotExecuted).Obj(), ""},
		"never admitted, for another reason": {blocked, anOutcome(blocked, flow.ReportNotExecuted).Obj(), "NotAdmitted"},
		"never admitted, another claim":      {blocked, &other, "NotAdmitted"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdict(t, flow.JudgeOutcome(tc.action, *tc.outcome)); got != tc.want {
				t.Errorf("the verdict is %q, want %q", got, tc.want)
			}
		})
	}
}

// A receipt lists what did not count, and nothing that did: an answer that was good enough, and came to nothing because the
// action ended otherwise, is not refused afterwards.
func TestRefusedStatementsOnAReceipt(t *testing.T) {
	refused := func(t *testing.T, a *flow.Action, since time.Time, answers ...approval.Answer) string {
		t.Helper()
		s := aPass(a).Policy(approving).Answers(flow.Cached, answers...).With(func(s *flow.Snapshot) {
			s.World.AdmissionSince = since
			s.Chain = flow.ChainRead{Read: true, Identity: receipt.Identity{Kind: receipt.KindAction, SubjectUID: a.UID}, Head: receipt.Start()}
		})
		step, ok := flow.Next(s.Obj()).(flow.Append)
		if !ok {
			t.Fatalf("the step is %#v", flow.Next(s.Obj()))
		}
		var names []string
		for _, r := range step.Document.Refused {
			names = append(names, r.Speaker+" "+r.Reason)
		}
		return fmt.Sprintf("%d: %s", step.Document.RefusedCount, strings.Join(names, ", "))
	}
	ended := func(state flow.State, reason decision.Reason) *flow.Action {
		a := anAction("a1").Asked(1).Obj()
		a.State, a.Reason, a.FinishTime = state, reason, &a.Created
		return a
	}
	yes := anApproval(anAction("a1").Asked(1).Obj()).Obj()
	since := noon.Add(-time.Hour)
	accepted := yes
	accepted.Accepted = true
	for name, tc := range map[string]struct {
		action *flow.Action
		since  time.Time
		answer approval.Answer
		want   string
	}{
		"it counted, and nobody claimed":                 {ended(flow.Expired, decision.NotClaimed), since, yes, "0: "},
		"it counted, and the effect had happened":        {ended(flow.Blocked, decision.Duplicate), since, yes, "0: "},
		"it was accepted, and admission went away":       {ended(flow.Blocked, decision.MadeWithoutAdmission), noon.Add(time.Hour), accepted, "0: "},
		"it was made before statements count again":      {ended(flow.Blocked, decision.MadeWithoutAdmission), noon.Add(time.Hour), yes, "1: carol made_without_admission"},
		"its verdict stands, whatever would be said now": {ended(flow.Expired, decision.NotClaimed), since, func() approval.Answer { a := yes; a.Refused = "SelfApproval"; return a }(), "1: carol self_approval"},
		"another hash":     {ended(flow.Expired, decision.ApprovalExpired), since, func() approval.Answer { a := yes; a.Hash = "sha256:another"; return a }(), "1: carol mismatch"},
		"nobody was asked": {func() *flow.Action { a := ended(flow.Blocked, decision.Duplicate); a.Ask = nil; return a }(), since, yes, "1: carol not_required"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refused(t, tc.action, tc.since, tc.answer); got != tc.want {
				t.Errorf("refused are %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("many, of which the oldest are listed", func(t *testing.T) {
		var answers []approval.Answer
		for i := range 5000 {
			a := yes
			a.Name, a.UID, a.Created = fmt.Sprintf("a%d", i), fmt.Sprintf("uid-%d", i), noon.Add(time.Duration(i+1)*time.Millisecond)
			answers = append(answers, a)
		}
		got := refused(t, ended(flow.Expired, decision.NotClaimed), since, answers...)
		if want := "4999: " + strings.TrimSuffix(strings.Repeat("carol duplicate_approver, ", receipt.MaxRefused), ", "); got != want {
			t.Errorf("refused are %s, want %s", got, want)
		}
	})
}
