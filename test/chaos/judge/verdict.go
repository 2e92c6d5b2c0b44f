package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/chaos/remote"
)

// Finding is one thing that must not be.
type Finding struct {
	// Rule that is broken, in a few words; the same words for the same rule.
	Rule      string `json:"rule"`
	Action    string `json:"action,omitempty"`
	EffectKey string `json:"effectKey,omitempty"`
	Attempt   int64  `json:"attempt,omitempty"`
	Detail    string `json:"detail"`
}

// Verdict is the answer to the five questions, and what it rests on.
type Verdict struct {
	Namespace string `json:"namespace"`

	Actions    int            `json:"actions"`
	States     map[string]int `json:"states"`
	Effects    int            `json:"effects"`
	Attempts   int            `json:"attempts"`
	Receipts   int            `json:"receipts"`
	Executions int            `json:"executions"`
	Injections int            `json:"injections"`
	// Approved is how many Actions were admitted because people approved them.
	Approved int `json:"approved"`
	// Ambiguous is how many attempts were so at one time, Explained of them by which kind of injection, Resolved by a person.
	Ambiguous int            `json:"ambiguous"`
	Explained map[string]int `json:"explained"`
	Resolved  int            `json:"resolved"`

	Duplicates  []Finding `json:"duplicates"`
	Lost        []Finding `json:"lost"`
	WrongFailed []Finding `json:"wrongFailed"`
	Chain       []Finding `json:"chain"`
	Unexplained []Finding `json:"unexplained"`
}

// OK reports whether nothing was found.
func (v Verdict) OK() bool { return len(v.Findings()) == 0 }

// Findings are all of them.
func (v Verdict) Findings() []Finding {
	return slices.Concat(v.Duplicates, v.Lost, v.WrongFailed, v.Chain, v.Unexplained)
}

// Judge judges a state by the injections into it.
func Judge(s State, injections []Injection) Verdict {
	all := attempts(s)
	ordered := inOrder(all)
	v := Verdict{
		Namespace: s.Namespace, Actions: len(s.Actions), States: map[string]int{}, Effects: len(s.Effects), Attempts: len(all),
		Receipts: len(s.Receipts), Executions: len(s.Executions), Injections: len(injections), Explained: map[string]int{},
	}
	for i := range s.Actions {
		v.States[string(s.Actions[i].Status.State)]++
		if e := s.Actions[i].Status.Execution; e != nil && len(e.Approvals) > 0 {
			v.Approved++
		}
	}
	executions := map[attemptID][]remote.Execution{}
	for _, e := range s.Executions {
		id := idOf(e.EffectKey, e.ActionUID, e.Attempt)
		executions[id] = append(executions[id], e)
	}
	v.Duplicates = findings(twice(ordered, executions), perKey(ordered, executions), unadmitted(all, s.Executions))
	v.Lost = findings(unfinished(s), misreported(s), unacknowledged(s), unaccounted(all, s.Executions))
	v.WrongFailed = findings(wrongFailed(ordered, executions))
	v.Chain = findings(chain(s))
	v.Unexplained = findings()
	for _, a := range ordered {
		if !a.ambiguous {
			continue
		}
		v.Ambiguous++
		if a.resolved {
			v.Resolved++
		}
		kind, why := explain(s.Namespace, *a, injections)
		if kind == "" {
			v.Unexplained = append(v.Unexplained, a.finding("an Ambiguous attempt that no injection explains", "%s since %s: %s",
				cmp.Or(string(a.cause), "no cause"), a.since.Format(time.RFC3339), why))
			continue
		}
		v.Explained[kind]++
	}
	return v
}

// findings is a list of all of them: an empty one is [] for programs, and not null.
func findings(lists ...[]Finding) []Finding {
	return append([]Finding{}, slices.Concat(lists...)...)
}

func (a *attempt) finding(rule, format string, args ...any) Finding {
	return Finding{Rule: rule, Action: a.action, EffectKey: a.id.key, Attempt: a.id.number, Detail: fmt.Sprintf(format, args...)}
}

func findingOf(e remote.Execution, rule, detail string) Finding {
	return Finding{Rule: rule, Action: e.Action, EffectKey: e.EffectKey, Attempt: e.Attempt, Detail: detail}
}

// twice: an attempt that was executed or admitted more than once.
func twice(all []*attempt, executions map[attemptID][]remote.Execution) []Finding {
	var found []Finding
	for _, a := range all {
		if done := executions[a.id]; len(done) > 1 {
			found = append(found, a.finding("executed more than once", "%s", who(done)))
		}
		if len(a.admitted) > 1 {
			found = append(found, a.finding("two Actions were admitted for one attempt", "%+v", a.admitted))
		}
	}
	for id, done := range executions {
		if known := slices.ContainsFunc(all, func(a *attempt) bool { return a.id == id }); !known && len(done) > 1 {
			found = append(found, findingOf(done[0], "executed more than once", who(done)))
		}
	}
	return found
}

func who(done []remote.Execution) string {
	text := fmt.Sprintf("%d executions:", len(done))
	for _, e := range done {
		text += fmt.Sprintf(" [%s process %d work %s action %s claim %s token %s]",
			e.Time.Format(time.RFC3339Nano), e.Process, e.Work, e.Action, e.ClaimID, e.Token)
	}
	return text
}

// perKey: a key that was committed or executed in more than one attempt.
func perKey(all []*attempt, executions map[attemptID][]remote.Execution) []Finding {
	var found []Finding
	committed, executed := map[string]int64{}, map[string]int64{}
	for _, a := range all {
		if first, again := committed[a.id.key]; again && a.committed {
			found = append(found, a.finding("committed in two attempts", "attempt %d was committed before", first))
		}
		if first, again := executed[a.id.key]; again && len(executions[a.id]) > 0 {
			found = append(found, a.finding("executed in two attempts", "attempt %d was executed before", first))
		}
		if a.committed {
			committed[a.id.key] = a.id.number
		}
		if len(executions[a.id]) > 0 {
			executed[a.id.key] = a.id.number
		}
	}
	return found
}

// unadmitted: an execution by whoever was not admitted for it.
func unadmitted(all map[attemptID]*attempt, executions []remote.Execution) []Finding {
	var found []Finding
	for _, e := range executions {
		a := all[idOf(e.EffectKey, e.ActionUID, e.Attempt)]
		if a == nil || !slices.Contains(a.admitted, admission{action: e.Action, uid: e.ActionUID, token: e.Token, claimID: e.ClaimID}) {
			found = append(found, findingOf(e, "executed without admission", who([]remote.Execution{e})))
		}
	}
	return found
}

// unfinished: an Action that has not ended, or whose end has no receipt.
func unfinished(s State) []Finding {
	receipts := map[string]int{}
	for i := range s.Receipts {
		if d, err := receipt.Parse(records.Entry(&s.Receipts[i])); err == nil && d.Kind == receipt.KindAction {
			receipts[d.ActionUID]++
		}
	}
	var found []Finding
	for i := range s.Actions {
		a := &s.Actions[i]
		finding := Finding{Action: a.Name, Detail: fmt.Sprintf("it is %s, %s: %s", a.Status.State, a.Status.Reason, a.Status.Message)}
		if a.Status.Effect != nil {
			finding.EffectKey, finding.Attempt = a.Status.Effect.Key, a.Status.Effect.Attempt
		}
		switch n := receipts[string(a.UID)]; {
		case a.Status.ReceiptRef == nil || !a.Status.State.Terminal():
			finding.Rule = "an Action that did not finish"
		case n == 0:
			finding.Rule = "a finished Action without a receipt"
		case n > 1:
			finding.Rule = "an Action with several receipts"
		default:
			continue
		}
		found = append(found, finding)
	}
	for i := range s.Effects {
		e := &s.Effects[i]
		if e.Status == nil || e.Status.State == v1alpha1.EffectReserved || e.Status.State == v1alpha1.EffectExecuting {
			found = append(found, Finding{Rule: "an Effect that did not settle", EffectKey: e.Spec.Key, Detail: fmt.Sprintf("%+v", e.Status)})
		}
	}
	return found
}

// ends are the states that reports of an admitted process lead to.
var ends = map[v1alpha1.OutcomeResult]v1alpha1.ActionState{
	v1alpha1.OutcomeCommitted: v1alpha1.ActionCommitted, v1alpha1.OutcomeNotExecuted: v1alpha1.ActionFailed, v1alpha1.OutcomeUnknown: v1alpha1.ActionAmbiguous,
}

// misreported: a report that counts, of an Action that ended otherwise.
func misreported(s State) []Finding {
	outcomes := map[string]*v1alpha1.Outcome{}
	for i := range s.Outcomes {
		outcomes[s.Outcomes[i].Name] = &s.Outcomes[i]
	}
	var found []Finding
	for i := range s.Actions {
		a := &s.Actions[i]
		if a.Status.Execution == nil {
			continue
		}
		o := outcomes[client.LockName(a, a.Status.Execution.ClaimID, a.Spec.Principal.Agent)]
		if o == nil || o.Spec.Reporter != a.Spec.Principal.Agent || meta.IsStatusConditionFalse(o.Status.Conditions, v1alpha1.AcceptedCondition) {
			continue
		}
		if want := ends[o.Spec.Result]; client.EndOf(a) != want {
			found = append(found, Finding{Rule: "a report that the record contradicts", Action: a.Name,
				Detail: fmt.Sprintf("%s reported %s; the Action is %s, %s", o.Spec.Reporter, o.Spec.Result, a.Status.State, a.Status.Reason)})
		}
	}
	return found
}

// unacknowledged: an agent was told that its report is stored, and it is not there.
func unacknowledged(s State) []Finding {
	var found []Finding
	for _, k := range s.Acknowledged {
		if !slices.ContainsFunc(s.Outcomes, func(o v1alpha1.Outcome) bool {
			return string(o.Spec.ActionRef.UID) == k.ActionUID && o.Spec.ClaimID == k.ClaimID && o.Spec.Result == k.Result
		}) {
			found = append(found, Finding{Rule: "a stored report that is gone", Action: k.Action, Detail: fmt.Sprintf("%s by claim %s", k.Result, k.ClaimID)})
		}
	}
	return found
}

// unaccounted: an execution of which the record knows nothing.
func unaccounted(all map[attemptID]*attempt, executions []remote.Execution) []Finding {
	var found []Finding
	for _, e := range executions {
		a := all[idOf(e.EffectKey, e.ActionUID, e.Attempt)]
		if a == nil || !a.committed && !a.failed && !a.ambiguous {
			found = append(found, findingOf(e, "an execution that no record accounts for", who([]remote.Execution{e})))
		}
	}
	return found
}

// wrongFailed: on record as not done, and done.
func wrongFailed(all []*attempt, executions map[attemptID][]remote.Execution) []Finding {
	var found []Finding
	for _, a := range all {
		if a.failed && len(executions[a.id]) > 0 {
			found = append(found, a.finding("Failed, but executed", "%s", who(executions[a.id])))
		}
	}
	return found
}

// enough is what a report must have been held up for before its lease lapses. The shortest lease is 30 seconds; an agent
// starts only with a third of it left, and the operator waits another 10 before it declares the lapse. So a report has 20
// seconds at least; half of them are left to the machine.
const enough = 10 * time.Second

// near is how long after a hold-up an agent may still find nobody to tell that it gives up: the SDK pauses for up to six seconds
// between two tries.
const near = 10 * time.Second

// explain is the kind of injection that explains an Ambiguous attempt, or why none does.
func explain(namespace string, a attempt, injections []Injection) (kind, why string) {
	var heldUp, most time.Duration
	about := 0
	for _, i := range injections {
		if !i.about(namespace, a) {
			continue
		}
		about++
		if i.Time.After(a.since) || a.cause == "" || !slices.Contains(i.Causes, a.cause) {
			continue
		}
		if a.cause != v1alpha1.CauseLeaseLapsed || i.HoldUp == Forever {
			return i.Kind, ""
		}
		d := a.heldUp(i)
		if d > most {
			kind, most = i.Kind, d
		}
		heldUp += d
	}
	if a.cause == v1alpha1.CauseLeaseLapsed && heldUp >= enough {
		return kind, ""
	}
	return "", fmt.Sprintf("%d injections into this attempt, which can have held its report up for %s", about, heldUp)
}

// heldUp is for how long an injection kept the report of an attempt back. What was before its admission is no part of that,
// unless its agent could not say then that it gives up: that is so while it is held up, and shortly after.
func (a *attempt) heldUp(i Injection) time.Duration {
	from, end := i.Time, i.end()
	switch {
	case a.abandoned() && (from.After(a.left) || end.Add(near).Before(a.left)):
		return 0
	case !a.abandoned() && from.Before(a.admittedSince):
		from = a.admittedSince
	}
	return max(0, end.Sub(from))
}
