package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

// toldStory is the story of the example in docs/cli.md: an attempt that nobody knew the end of, and one that committed.
func toldStory(t *testing.T) (*story, []receipt.Entry) {
	t.Helper()
	const name, agent = "refund-txn-3-5hmiu43tei32ka76ypbe", "system:serviceaccount:payments:refund-agent"
	at := func(minute, second int) time.Time { return time.Date(2026, 11, 30, 12, minute, second, 0, time.UTC) }
	common := receipt.Document{
		Kind: receipt.KindAction, ClusterID: "c", Namespace: "payments", NamespaceUID: "n", Principal: &receipt.Principal{Agent: agent},
		ActionType: "stripe.refund", EffectKey: "refund:txn_3", EffectName: name, EffectUID: "e", Environment: "production",
		Policy: &receipt.Policy{Name: "payments", Version: "7", RulesHash: hash(7)}, ExecutorMode: receipt.ModeAgent, Reporter: agent,
	}
	first := common
	first.ActionName, first.ActionUID, first.SubjectUID, first.Attempt, first.Token = name, "a1", "a1", 1, "token-1"
	first.Decision, first.DecisionReason, first.Result, first.Reason = decision.Approve, "rule[1]", decision.Ambiguous, decision.ReportedUnknown
	first.ProposedTime, first.AdmittedTime, first.FinishedTime = at(0, 0), at(0, 21), at(0, 22)
	first.Approvals = []receipt.Approval{{Approver: "alice@example.com", Name: name + ".alice", UID: "p", Time: at(0, 20), Reason: "looked at the order"}}
	refused := common
	refused.ActionName, refused.ActionUID, refused.SubjectUID, refused.EffectUID = name+".2", "a2", "a2", ""
	refused.Decision, refused.DecisionReason, refused.Result, refused.Reason = decision.Allow, "rule[0]", decision.Blocked, decision.AmbiguousEffect
	refused.ExecutorMode, refused.Reporter, refused.ProposedTime, refused.FinishedTime = "", "", at(1, 0), at(1, 0)
	second := common
	second.ActionName, second.ActionUID, second.SubjectUID, second.Attempt, second.Token = name+".3", "a3", "a3", 2, "token-2"
	second.Decision, second.DecisionReason, second.Result = decision.Allow, "rule[0]", decision.Committed
	second.ProposedTime, second.AdmittedTime, second.FinishedTime = at(3, 9), at(3, 9), at(3, 10)

	told := &story{Namespace: "payments", Name: name, Key: "refund:txn_3", Attempts: []storyAttempt{}, Refused: []storyRefused{}}
	told.Now = &storyNow{State: "Committed", Attempt: 2, Since: orNil(at(3, 10)), Action: name + ".3"}
	var entries []receipt.Entry
	head := receipt.Link{Seq: 2, Hash: hash(2)}
	add := func(d receipt.Document) {
		t.Helper()
		e, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		read, err := receipt.Parse(e)
		if err != nil {
			t.Fatal(err)
		}
		told.add(read, e)
		entries = append(entries, e)
		head = e.Link()
	}
	add(first)
	add(refused)
	add(receipt.Document{
		Kind: receipt.KindResolution, SubjectUID: "e", Ordinal: 1, ClusterID: "c", Namespace: "payments", NamespaceUID: "n", FinishedTime: at(2, 0),
		ActionName: name, ActionUID: "a1", ActionType: "stripe.refund", Principal: first.Principal, EffectKey: "refund:txn_3", EffectName: name,
		EffectUID: "e", Attempt: 1, Token: "token-1", Result: decision.Failed, Statement: "not in the log", Evidence: "https://example.com/log",
		Resolver: "rita@example.com", ResolutionName: "r", ResolutionUID: "r", Resolves: entries[0].Link(),
	})
	add(second)
	return told, entries
}

func TestTheStoryReadsAsThePageShowsIt(t *testing.T) {
	told, _ := toldStory(t)
	var out bytes.Buffer
	a := &app{streams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}
	a.printStory(told)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "$ kubectl ctrlrun receipts --effect refund:txn_3\n")
	shown, _, found := strings.Cut(shown, "```")
	if !found || out.String() != shown {
		t.Errorf("printed\n%s\nthe page shows\n%s", out.String(), shown)
	}
}

// The members of -o json are a promise: this fails if one is renamed or goes.
func TestTheShapeOfAStory(t *testing.T) {
	told, _ := toldStory(t)
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	keys := func(v any) []string { return sortedKeys(v.(map[string]any)) }
	attempt := got["attempts"].([]any)[0].(map[string]any)
	events := attempt["events"].([]any)
	for name, test := range map[string]struct {
		got  []string
		want string
	}{
		"story":      {keys(got), "attempts key name namespace now refused"},
		"now":        {keys(got["now"]), "action attempt since state"},
		"attempt":    {keys(attempt), "actionName actionType actionUID admittedTime agent approvals attempt decision events policy policyVersion proposedTime rule token"},
		"approval":   {keys(attempt["approvals"].([]any)[0]), "approver name reason time"},
		"end":        {keys(events[0]), "hash kind reason reporter result seq time"},
		"resolution": {keys(events[1]), "evidence hash kind resolver resolves result seq statement time"},
		"refused":    {keys(got["refused"].([]any)[0]), "actionName agent reason result seq time"},
	} {
		if want := strings.Fields(test.want); !slices.Equal(test.got, want) {
			t.Errorf("%s has the members %q, want %q", name, test.got, want)
		}
	}
	empty, err := json.Marshal(&story{Attempts: []storyAttempt{}, Refused: []storyRefused{}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"namespace":"","key":"","name":"","now":null,"attempts":[],"refused":[]}`; string(empty) != want {
		t.Errorf("nothing is written as %s, want %s", empty, want)
	}
}

// Nobody reports a lapse: the operator concludes it. What came too late is told even if the receipt was written before.
func TestALapseIsNotToldAsAReport(t *testing.T) {
	const late = "late.a1.c1.agent"
	lapsed := storyEvent{Seq: 3, Kind: receipt.KindAction, Result: "ambiguous", Reason: "lease_lapsed", Reporter: "admin"}
	if text := lapsed.text(); strings.Contains(text, "admin") || !strings.Contains(text, "nobody reported") {
		t.Errorf("a lapse reads %q", text)
	}
	told := &story{
		Now:      &storyNow{State: "Ambiguous", Attempt: 2, LateOutcome: "Committed", LateOutcomeName: late},
		Attempts: []storyAttempt{{Attempt: 1, Events: []storyEvent{lapsed}}, {Attempt: 2, Events: []storyEvent{lapsed}}},
	}
	shown := func() string {
		var out bytes.Buffer
		(&app{streams: genericiooptions.IOStreams{Out: &out, ErrOut: &bytes.Buffer{}}}).printStory(told)
		return out.String()
	}
	if text := shown(); strings.Count(text, late) != 1 || !strings.Contains(text[strings.Index(text, "Attempt 2"):], "Committed: it came after the lease") {
		t.Errorf("the late report is told as\n%s", text)
	}
	told.Attempts[1].Events[0].LateOutcome = late
	if text := shown(); strings.Count(text, late) != 1 {
		t.Errorf("a late report that the receipt names is told as\n%s", text)
	}
}

func TestAnAlteredReceiptIsToldAsSuch(t *testing.T) {
	told, entries := toldStory(t)
	altered := entries[3]
	altered.Document = strings.Replace(altered.Document, `"result":"committed"`, `"result":"failed"`, 1)
	document, err := receipt.Parse(altered)
	if err != nil {
		t.Fatal(err)
	}
	if seqs := told.alteredSeqs(); len(seqs) > 0 {
		t.Fatalf("nothing is altered yet, but %v", seqs)
	}
	told.add(document, altered)
	if seqs := told.alteredSeqs(); !slices.Equal(seqs, []int64{6}) {
		t.Errorf("altered are %v, want 6", seqs)
	}
}

// Around a record that was lost two actions can have been admitted for one attempt. Neither tells the other's story.
func TestActionsOfOneAttemptAreToldApart(t *testing.T) {
	told := &story{}
	told.attempt(1, "a").ActionUID = "a"
	told.attempt(1, "b").ActionUID = "b"
	if len(told.Attempts) != 2 || told.attempt(1, "a") != &told.Attempts[0] || told.attempt(1, "b") != &told.Attempts[1] {
		t.Errorf("%+v", told.Attempts)
	}
	if told.attempt(1, "") != &told.Attempts[0] {
		t.Error("a receipt that names no action begins another attempt")
	}
}

// An observed action with the effect is an attempt of it; one without was executed all the same, and is not told as refused.
func TestObservedActionsInAStory(t *testing.T) {
	told := &story{Name: "e", Key: "refund:a", Attempts: []storyAttempt{}, Refused: []storyRefused{}}
	head := receipt.Start()
	add := func(d receipt.Document) {
		t.Helper()
		e, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		read, err := receipt.Parse(e)
		if err != nil {
			t.Fatal(err)
		}
		told.add(read, e)
		head = e.Link()
	}
	add(observedRefund())
	beside := observedRefund()
	beside.SubjectUID, beside.ActionUID, beside.ActionName, beside.EffectUID, beside.Attempt, beside.Token = "b", "b", "beside", "", 0, ""
	beside.Execution, beside.WouldHave = decision.Committed, &receipt.WouldHave{Decision: decision.Allow, Reason: "rule[0]", BlockedReason: "in_progress"}
	add(beside)
	if len(told.Attempts) != 1 || len(told.Refused) != 0 || len(told.Observed) != 1 {
		t.Fatalf("%+v", told)
	}
	var out bytes.Buffer
	(&app{streams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}).printStory(told)
	shown := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"Authority: Delegation urgent, from Grant refunds, break glass",
		"Would have: stopped at approval_required (approve, rule[1])",
		"Ended: 2026-03-01T12:00:00Z observed, failed, as reported by bot (receipt 1)",
		"Observed: 2026-03-01T12:00:00Z beside of bot: executed without the effect, committed; enforce mode would have stopped at in_progress (allow, rule[0]) (receipt 2)",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"authority":{"kind":"Delegation","name":"urgent","root":"refunds","breakGlass":true}`,
		`"wouldHave":{"decision":"approve","reason":"rule[1]","blockedReason":"approval_required"}`,
		`"result":"observed","execution":"failed"`,
		`"observed":[{"seq":2,`, `"execution":"committed","wouldHave":{"decision":"allow","reason":"rule[0]","blockedReason":"in_progress"}}]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	told.Observed[0].Altered = true
	if seqs := told.alteredSeqs(); !slices.Equal(seqs, []int64{2}) {
		t.Errorf("altered are %v, want 2", seqs)
	}
}
