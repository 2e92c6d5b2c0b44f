package flow_test

import (
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
)

// What the operator is to execute, and what it refuses to.
func TestExecutors(t *testing.T) {
	refunds := flow.Executor{Name: "refunds", Hash: executorHash, Types: []string{"stripe.refund"}}
	another := refunds
	another.Hash = "sha256:" + strings.Repeat("a", 64)
	renamed, rival, broken, elsewhere := refunds, refunds, refunds, refunds
	renamed.Name, rival.Name, broken.Invalid, elsewhere.Types = "refunds-2", "rival", "spec.http.url: it has no scheme", []string{"iam.grant"}
	fresh := func() *snapshotBuilder {
		return aPass(anAction("a1").NotAfter(noon.Add(time.Hour)).Obj())
	}
	asked := anAction("a1").NotAfter(noon.Add(time.Hour)).Asked(1).Obj()
	asked.Executor = &flow.ExecutorRef{Name: "refunds", Hash: executorHash}
	answered := func(a *flow.Action) *snapshotBuilder {
		return aPass(a).Policy(approving).Answers(flow.Fresh, anApproval(a).Obj()).NoEffect().Read()
	}
	unasked := anAction("a1").NotAfter(noon.Add(time.Hour)).Asked(1).Obj()
	for name, tc := range map[string]struct {
		pass *snapshotBuilder
		want string
		says string
	}{
		"one executes it":                     {fresh().Executors(refunds), "reserve: Reserved 1", ""},
		"one executes other things":           {fresh().Executors(elsewhere), "reserve: Executing 1", ""},
		"two execute it":                      {fresh().Executors(rival, refunds), "end a1: Denied executor_conflict", "refunds and rival"},
		"it is not valid":                     {fresh().Executors(broken), "end a1: Denied executor_invalid", "no scheme"},
		"it is wanted for ever":               {aPass(anAction("a1").Obj()).Executors(refunds), "end a1: Denied executor_needs_not_after", "spec.notAfter"},
		"people are shown how it is executed": {fresh().Policy(approving).NoEffect().Executors(refunds), "pin a1: AwaitingApproval", ""},
		"approved, and as it was shown":       {answered(asked).Executors(refunds), "reserve: Reserved 1", ""},
		"approved, and executed otherwise":    {answered(asked).Executors(another), "end a1: Blocked executor_changed", "refunds"},
		"approved, and executed by another":   {answered(asked).Executors(renamed), "end a1: Blocked executor_changed", "refunds"},
		"approved, and left to the agent now": {answered(asked), "end a1: Blocked executor_changed", "refunds"},
		"approved for the agent to execute":   {answered(unasked).Executors(refunds), "end a1: Blocked executor_changed", "refunds"},
	} {
		t.Run(name, func(t *testing.T) {
			step := expect(t, tc.pass, tc.want)
			write, ok := step.(flow.WriteAction)
			if tc.says != "" && (!ok || !strings.Contains(write.Status.Message, tc.says)) {
				t.Errorf("the message %q does not say %q", write.Status.Message, tc.says)
			}
			if name == "people are shown how it is executed" {
				if want := (flow.ExecutorRef{Name: "refunds", Hash: executorHash}); write.Status.Executor == nil || *write.Status.Executor != want {
					t.Errorf("people are shown %+v, want %+v", write.Status.Executor, want)
				}
			}
		})
	}
	t.Run("what the operator itself proposes, no Executor executes", func(t *testing.T) {
		own := flow.Executor{Name: "own", Hash: executorHash, Types: []string{"ctrlrun.policy.change"}}
		a := anAction("a1").Obj()
		a.Type = "ctrlrun.policy.change"
		if write, ok := flow.Next(aPass(a).Executors(own).Obj()).(flow.WriteAction); ok && write.Status.Executor != nil {
			t.Errorf("it is executed by %+v", write.Status.Executor)
		}
	})
	t.Run("conflicts are told to both", func(t *testing.T) {
		all := flow.Executors{rival, refunds, elsewhere}
		for name, want := range map[string]string{"refunds": "rival", "rival": "refunds"} {
			if got := strings.Join(all.Conflicts(name), " "); name != "elsewhere" && got != want {
				t.Errorf("the conflicts of %s are %q, want %q", name, got, want)
			}
		}
	})
}

// What is begun and not acted on for long is looked at again.
func TestOverdue(t *testing.T) {
	refunds := flow.Executor{Name: "refunds", Hash: executorHash, Types: []string{"stripe.refund"}}
	begin := flow.Begin{ActionType: "stripe.refund", Executor: flow.ExecutorRef{Name: "refunds", Hash: executorHash}, Before: noon.Add(time.Minute)}
	in := func(x ...flow.Executor) flow.World { return flow.World{Executors: x} }
	holding := in(refunds)
	holding.Holds = []flow.Hold{{Reason: decision.NamespaceTerminating, Message: "The namespace is being deleted."}}
	for name, tc := range map[string]struct {
		world flow.World
		at    time.Time
		says  string
	}{
		"as it was":         {in(refunds), noon, ""},
		"too late":          {in(refunds), noon.Add(time.Minute), "less than a third"},
		"on hold":           {holding, noon, "being deleted"},
		"its executor gone": {in(), noon, "the Executor"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := begin.Overdue(tc.world, tc.at); (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
				t.Errorf("it says %q, want %q in it", got, tc.says)
			}
		})
	}
}
