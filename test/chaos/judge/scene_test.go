package judge

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/chaos/remote"
)

const agent = "system:serviceaccount:payments:refund-agent"

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// scene is a state as the operator leaves it: every helper adds what belongs together.
type scene struct {
	t *testing.T
	State
	head receipt.Link
}

func newScene(t *testing.T) *scene {
	return &scene{t: t, head: receipt.Start(), State: State{Namespace: "payments", NamespaceUID: "namespace-uid", ClusterID: "cluster-uid"}}
}

// attempt is an Action that was admitted for an attempt and ended so, with its receipt, Effect and report.
func (s *scene) attempt(key string, number int64, result decision.Result, reason decision.Reason) *v1alpha1.Action {
	s.t.Helper()
	return s.admitted(key, number, result, reason, nil)
}

// observed is an attempt that was admitted in observe mode, and would have been denied.
func (s *scene) observed(key string, number int64, result decision.Result, reason decision.Reason) *v1alpha1.Action {
	s.t.Helper()
	return s.admitted(key, number, result, reason, &receipt.WouldHave{Decision: decision.Deny, Reason: "decision", BlockedReason: "policy_denied"})
}

func (s *scene) admitted(key string, number int64, result decision.Result, reason decision.Reason, would *receipt.WouldHave) *v1alpha1.Action {
	s.t.Helper()
	uid := fmt.Sprintf("uid-%d", len(s.Actions)+1)
	a := v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: fmt.Sprintf("%s.%d", key, number), UID: types.UID(uid)},
		Spec: v1alpha1.ActionSpec{
			ActionType: "pay", Principal: v1alpha1.Principal{Agent: agent},
			Arguments: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"work":"work-%s"}`, uid)},
		},
		Status: v1alpha1.ActionStatus{
			State: map[decision.Result]v1alpha1.ActionState{
				decision.Committed: v1alpha1.ActionCommitted, decision.Failed: v1alpha1.ActionFailed, decision.Ambiguous: v1alpha1.ActionAmbiguous,
			}[result],
			Effect:    &v1alpha1.ActionEffect{Name: action.EffectName(key), Key: key, Attempt: number},
			Execution: &v1alpha1.ActionExecution{ClaimID: "claim-" + uid, Token: "token-" + uid},
		},
	}
	ended := a.Status.State
	written, execution := result, decision.Result("")
	if would != nil {
		a.Status.State, a.Status.Outcome = v1alpha1.ActionObserved, ended
		written, execution = decision.Observed, result
	}
	link := s.receipt(receipt.Document{
		Kind: receipt.KindAction, SubjectUID: uid, ActionName: a.Name, ActionUID: uid, ActionType: "pay", Principal: &receipt.Principal{Agent: agent},
		EffectKey: key, EffectName: a.Status.Effect.Name, EffectUID: "effect-" + key, Attempt: number, Token: a.Status.Execution.Token,
		Result: written, Execution: execution, WouldHave: would, Reason: reason, Arguments: map[string]any{"n": big.NewInt(1)}, ActionHash: receipt.Genesis, Environment: "production",
		Decision: decision.Allow, DecisionReason: "decision", Policy: &receipt.Policy{Name: "p", RulesHash: receipt.Genesis}, RulesHash: receipt.Genesis,
		ExecutorMode: receipt.ModeAgent, ClaimID: a.Status.Execution.ClaimID, Reporter: agent, ProposedTime: noon, AdmittedTime: noon,
	})
	a.Status.ReceiptRef = &v1alpha1.ReceiptReference{Name: receipt.Name("payments", link.Seq), Seq: link.Seq, Hash: link.Hash}
	s.effect(key, &v1alpha1.EffectStatus{
		State: v1alpha1.EffectState(ended), Attempt: number, Token: a.Status.Execution.Token,
		Cause: causes[string(reason)], Holder: &v1alpha1.EffectHolder{Name: a.Name, UID: a.UID, Agent: agent}, LastTransitionTime: metav1.NewTime(noon),
	})
	s.Actions = append(s.Actions, a)
	if reason != decision.LeaseLapsed {
		s.report(&a, map[decision.Result]v1alpha1.OutcomeResult{
			decision.Committed: v1alpha1.OutcomeCommitted, decision.Failed: v1alpha1.OutcomeNotExecuted, decision.Ambiguous: v1alpha1.OutcomeUnknown,
		}[result])
	}
	return &s.Actions[len(s.Actions)-1]
}

// receipt appends one to the chain.
func (s *scene) receipt(d receipt.Document) receipt.Link {
	s.t.Helper()
	d.ClusterID, d.Namespace, d.NamespaceUID, d.FinishedTime = s.ClusterID, s.Namespace, s.NamespaceUID, noon
	e, err := d.Entry(s.head)
	if err != nil {
		s.t.Fatal(err)
	}
	d.Seq = e.Seq
	s.Receipts = append(s.Receipts, *records.Receipt("payments", e, d))
	s.head = e.Link()
	return s.head
}

// effect replaces the record of a key.
func (s *scene) effect(key string, status *v1alpha1.EffectStatus) {
	e := v1alpha1.Effect{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: action.EffectName(key), UID: types.UID("effect-" + key)},
		Spec:       v1alpha1.EffectSpec{Key: key}, Status: status,
	}
	for i := range s.Effects {
		if s.Effects[i].Spec.Key == key {
			s.Effects[i] = e
			return
		}
	}
	s.Effects = append(s.Effects, e)
}

func (s *scene) report(a *v1alpha1.Action, result v1alpha1.OutcomeResult) {
	s.Outcomes = append(s.Outcomes, v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: client.LockName(a, a.Status.Execution.ClaimID, agent)},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Status.Execution.ClaimID, Result: result, Reporter: agent,
		},
	})
	s.Acknowledged = append(s.Acknowledged, Acknowledged{Action: a.Name, ActionUID: string(a.UID), ClaimID: a.Status.Execution.ClaimID, Result: result})
}

// execute is what the remote did for an Action.
func (s *scene) execute(a *v1alpha1.Action) {
	s.Executions = append(s.Executions, remote.Execution{Time: noon, Call: remote.Call{
		EffectKey: a.Status.Effect.Key, Attempt: a.Status.Effect.Attempt, Token: a.Status.Execution.Token, Namespace: "payments",
		Action: a.Name, ActionUID: string(a.UID), ClaimID: a.Status.Execution.ClaimID, Process: 7, Work: workOf(a),
	}})
}

// healthy is a run as it should be: one key was committed, one failed and was committed by the next attempt, one is
// Ambiguous because its agent was killed, one because an answer was lost.
func healthy(t *testing.T) (*scene, []Injection) {
	s := newScene(t)
	s.execute(s.attempt("a", 1, decision.Committed, ""))
	s.attempt("b", 1, decision.Failed, "")
	s.execute(s.attempt("b", 2, decision.Committed, ""))
	killed := s.attempt("c", 1, decision.Ambiguous, decision.LeaseLapsed)
	lost := s.attempt("d", 1, decision.Ambiguous, decision.ReportedUnknown)
	s.execute(lost)
	before := noon.Add(-time.Second)
	return s, []Injection{
		{Time: before, Kind: "kill", Namespace: "payments", ActionUID: string(killed.UID), Causes: []v1alpha1.EffectCause{v1alpha1.CauseLeaseLapsed}, HoldUp: Forever},
		{Time: before, Kind: "lost-answer", Namespace: "payments", EffectKey: "d", Attempt: 1, Causes: []v1alpha1.EffectCause{v1alpha1.CauseReportedUnknown}},
	}
}
