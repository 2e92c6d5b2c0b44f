// Package records translates between custom resources and the values of the kernel. It holds no rule: what a field means is
// said by the kernel, and what is written is what the kernel answered.
package records

import (
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/precondition"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

var decisions = map[decision.Decision]v1alpha1.ActionDecision{
	decision.Allow:   v1alpha1.DecisionAllow,
	decision.Approve: v1alpha1.DecisionRequireApproval,
	decision.Deny:    v1alpha1.DecisionDeny,
}

// Action reads an Action.
func Action(o *v1alpha1.Action) *flow.Action {
	a := &flow.Action{
		Name:      o.Name,
		UID:       string(o.UID),
		Created:   o.CreationTimestamp.Time,
		Type:      o.Spec.ActionType,
		Arguments: o.Spec.Arguments.Raw,
		Resource:  o.Spec.Resource,
		Agent:     o.Spec.Principal.Agent,
		User:      o.Spec.Principal.User,
		Claims:    claims(o.Spec.Principal.Claims),
		ClaimID:   o.Spec.ClaimID,
		Lease:     time.Duration(o.Spec.LeaseDurationSeconds) * time.Second,
	}
	if o.Spec.NotAfter != nil {
		a.NotAfter = &o.Spec.NotAfter.Time
	}
	if e := o.Spec.Principal.ExpiresTime; e != nil {
		a.Expires = &e.Time
	}
	for _, p := range o.Spec.Preconditions {
		a.Preconditions = append(a.Preconditions, precondition.Ref{APIVersion: p.APIVersion, Kind: p.Kind, Name: p.Name, Pointer: p.Pointer})
	}
	a.Status = status(&o.Status)
	return a
}

func claims(c *v1alpha1.IdentityClaims) map[string]any {
	if c == nil {
		return nil
	}
	m := map[string]any{}
	if len(c.Groups) > 0 {
		groups := make([]any, len(c.Groups))
		for i, g := range c.Groups {
			groups[i] = g
		}
		m["groups"] = groups
	}
	for key, value := range map[string]string{"pod_name": c.PodName, "pod_uid": c.PodUID, "node_name": c.NodeName, "credential_id": c.CredentialID} {
		if value != "" {
			m[key] = value
		}
	}
	return m
}

func status(s *v1alpha1.ActionStatus) flow.Status {
	out := flow.Status{
		State:          flow.State(s.State),
		Reason:         decision.Reason(s.Reason),
		Message:        s.Message,
		FirstSeq:       s.FirstSeq,
		Hash:           s.ActionHash,
		DecisionReason: decision.Reason(s.DecisionReason),
		Resource:       s.Resource,
		Environment:    s.Environment,
		RulesHash:      s.RulesHash,
	}
	for _, e := range s.Timeline {
		event := timeline.Event{Seq: e.Seq, Time: e.Time.Time, Type: timeline.Type(e.Type), Data: make(map[string]string, len(e.Data))}
		for k, v := range e.Data {
			event.Data[k] = string(v)
		}
		out.Timeline = append(out.Timeline, event)
	}
	if out.State == "" {
		out.State = flow.Pending
	}
	for k, v := range decisions {
		if v == s.Decision {
			out.Decision = k
		}
	}
	if p := s.PolicyRef; p != nil {
		out.Policy = &policy.Ref{Name: p.Name, Generation: p.Generation, RulesHash: p.RulesHash, Version: p.Version}
	}
	if by := s.Authority; by != nil {
		out.Authority = &flow.Authority{Ref: authority.Ref{Kind: authority.Kind(by.Kind), Name: by.Name}, Root: by.Root, BreakGlass: by.BreakGlass}
	}
	if x := s.Executor; x != nil {
		out.Executor = &flow.ExecutorRef{Name: x.Name, Hash: x.Hash}
	}
	if e := s.Effect; e != nil {
		out.Effect = &flow.EffectRef{Name: e.Name, Key: e.Key, Attempt: e.Attempt}
	}
	if p := s.Approval; p != nil {
		out.Ask = &flow.Ask{Required: int(p.Required), Groups: p.ApproverGroups, Counted: int(p.Counted), Requested: p.RequestTime.Time, Expiration: p.ExpirationTime.Time}
	}
	if p := s.Preconditions; p != nil {
		out.Fingerprints = &flow.Fingerprints{AtRequest: p.AtRequest, AtRecheck: p.AtRecheck}
	}
	if s.ClaimableTime != nil {
		out.ClaimableTime = &s.ClaimableTime.Time
	}
	if s.ClaimExpirationTime != nil {
		out.ClaimExpiration = &s.ClaimExpirationTime.Time
	}
	if x := s.Execution; x != nil {
		out.Execution = &flow.Execution{Mode: flow.Mode(x.Mode), ClaimID: x.ClaimID, Token: x.Token, Lease: x.LeaseExpirationTime.Time, Admitted: x.AdmissionTime.Time}
		if x.ClaimRef != nil {
			out.Execution.Claim = &effect.Ref{Name: x.ClaimRef.Name, UID: string(x.ClaimRef.UID)}
		}
		for _, p := range x.Approvals {
			out.Execution.Approvals = append(out.Execution.Approvals, approval.Answer{Name: p.Name, UID: string(p.UID), Approver: p.Approver, Groups: p.Groups, Created: p.Time.Time, Reason: p.Reason, RulesHash: p.RulesHash, Approved: true})
		}
	}
	if r := s.ReceiptRef; r != nil {
		out.Receipt = &receipt.Link{Seq: r.Seq, Hash: r.Hash}
	}
	if s.FinishTime != nil {
		out.FinishTime = &s.FinishTime.Time
	}
	if w := s.WouldHave; w != nil {
		out.WouldHave = &flow.WouldHave{Reason: decision.Reason(w.Reason), Blocked: decision.Reason(w.BlockedReason)}
		for k, v := range decisions {
			if v == w.Decision {
				out.WouldHave.Decision = k
			}
		}
	}
	out.Suspension = suspension(s.Suspension)
	if x := s.Observation; x != nil {
		out.Observation = &flow.Observation{
			Executor: flow.ExecutorRef{Name: x.Executor.Name, Hash: x.Executor.Hash}, EffectUID: string(x.EffectUID), Attempt: x.Attempt, Moment: flow.Moment(x.Moment),
			ID: x.ID, Started: x.StartTime.Time, Expiration: x.ExpirationTime.Time, Answer: flow.Answer(x.Answer), Message: x.Message,
		}
		if x.FinishTime != nil {
			out.Observation.Finished = &x.FinishTime.Time
		}
	}
	out.Outcome = flow.State(s.Outcome)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ResolvedCondition); c != nil && c.Status == metav1.ConditionTrue {
		out.Resolved = &flow.Resolved{}
	}
	return out
}

// SetActionStatus writes what the kernel concluded into an Action.
func SetActionStatus(o *v1alpha1.Action, s flow.Status, now time.Time) {
	old := o.Status
	n := v1alpha1.ActionStatus{
		State:          v1alpha1.ActionState(s.State),
		Reason:         string(s.Reason),
		Message:        Clip(s.Message, 1024),
		Conditions:     old.Conditions,
		FirstSeq:       s.FirstSeq,
		ActionHash:     s.Hash,
		Decision:       decisions[s.Decision],
		DecisionReason: string(s.DecisionReason),
		Resource:       s.Resource,
		Environment:    s.Environment,
		RulesHash:      s.RulesHash,
	}
	for _, e := range s.Timeline {
		event := v1alpha1.TimelineEvent{Seq: e.Seq, Time: metav1.NewMicroTime(e.Time), Type: string(e.Type)}
		if len(e.Data) > 0 {
			event.Data = make(map[string]v1alpha1.TimelineText, len(e.Data))
		}
		for k, v := range e.Data {
			event.Data[k] = v1alpha1.TimelineText(v)
		}
		n.Timeline = append(n.Timeline, event)
	}
	if p := s.Policy; p != nil {
		n.PolicyRef = &v1alpha1.PolicyReference{Name: p.Name, Generation: p.Generation, RulesHash: p.RulesHash, Version: p.Version}
	}
	if by := s.Authority; by != nil {
		n.Authority = &v1alpha1.AuthorityReference{Kind: v1alpha1.ParentKind(by.Kind), Name: by.Name, Root: by.Root, BreakGlass: by.BreakGlass}
	}
	if x := s.Executor; x != nil {
		n.Executor = &v1alpha1.ExecutorReference{Name: x.Name, Hash: x.Hash}
	}
	if e := s.Effect; e != nil {
		n.Effect = &v1alpha1.ActionEffect{Name: e.Name, Key: e.Key, Attempt: e.Attempt}
	}
	if a := s.Ask; a != nil {
		n.Approval = &v1alpha1.ActionApproval{
			Required: int64(a.Required), ApproverGroups: a.Groups, Counted: int64(a.Counted), Votes: fmt.Sprintf("%d/%d", a.Counted, a.Required),
			RequestTime: metav1.NewTime(a.Requested), ExpirationTime: metav1.NewTime(a.Expiration),
		}
	}
	if f := s.Fingerprints; f != nil {
		n.Preconditions = &v1alpha1.ActionPreconditions{AtRequest: f.AtRequest, AtRecheck: f.AtRecheck}
	}
	n.ClaimableTime, n.ClaimExpirationTime = micro(s.ClaimableTime), micro(s.ClaimExpiration)
	if x := s.Execution; x != nil {
		n.Execution = &v1alpha1.ActionExecution{Mode: v1alpha1.ExecutionMode(x.Mode), ClaimID: x.ClaimID, Token: x.Token, LeaseExpirationTime: metav1.NewMicroTime(x.Lease), AdmissionTime: metav1.NewMicroTime(x.Admitted)}
		if x.Claim != nil {
			n.Execution.ClaimRef = &v1alpha1.ObjectReference{Name: x.Claim.Name, UID: types.UID(x.Claim.UID)}
		}
		for _, a := range x.Approvals {
			n.Execution.Approvals = append(n.Execution.Approvals, v1alpha1.SpentApproval{Name: a.Name, UID: types.UID(a.UID), Approver: a.Approver, Groups: a.Groups, Time: metav1.NewTime(a.Created), Reason: a.Reason, RulesHash: a.RulesHash})
		}
	}
	if r := s.Receipt; r != nil {
		n.ReceiptRef = &v1alpha1.ReceiptReference{Name: receipt.Name(o.Namespace, r.Seq), Seq: r.Seq, Hash: r.Hash}
	}
	if w := s.WouldHave; w != nil {
		n.WouldHave = &v1alpha1.ActionWouldHave{Decision: decisions[w.Decision], Reason: string(w.Reason), BlockedReason: string(w.Blocked)}
	}
	n.Suspension = suspensionStatus(s.Suspension)
	if x := s.Observation; x != nil {
		n.Observation = &v1alpha1.ActionObservation{
			Executor: v1alpha1.ExecutorReference{Name: x.Executor.Name, Hash: x.Executor.Hash}, EffectUID: types.UID(x.EffectUID), Attempt: x.Attempt, Moment: string(x.Moment),
			ID: x.ID, StartTime: metav1.NewMicroTime(x.Started), ExpirationTime: metav1.NewMicroTime(x.Expiration),
			Answer: v1alpha1.ObservationAnswer(x.Answer), Message: Clip(x.Message, 1024), FinishTime: micro(x.Finished),
		}
	}
	n.Outcome = v1alpha1.ActionState(s.Outcome)
	if s.FinishTime != nil {
		t := metav1.NewTime(*s.FinishTime)
		n.FinishTime = &t
	}
	switch {
	case s.State == flow.AwaitingApproval && s.Ask != nil:
		n.ExpirationTime = &n.Approval.ExpirationTime
	case s.State == flow.Claimable && s.ClaimExpiration != nil:
		t := metav1.NewTime(*s.ClaimExpiration)
		n.ExpirationTime = &t
	case s.State == flow.Admitted && s.Execution != nil:
		t := metav1.NewTime(s.Execution.Lease)
		n.ExpirationTime = &t
	}
	setActionConditions(&n, s, o.Generation, now)
	o.Status = n
}

// setActionConditions sets all conditions of an Action, every time.
func setActionConditions(n *v1alpha1.ActionStatus, s flow.Status, generation int64, now time.Time) {
	set := conditionSetter(&n.Conditions, generation, now)

	decided, reason := metav1.ConditionFalse, "Waiting"
	switch {
	case s.Execution != nil, s.State == flow.Claimable, s.State == flow.Denied:
		decided, reason = metav1.ConditionTrue, orElse(s.DecisionReason.Condition(), string(s.State))
	case s.State.Terminal():
		decided, reason = metav1.ConditionTrue, orElse(s.Reason.Condition(), string(s.State))
	case s.State == flow.AwaitingApproval:
		reason = string(flow.AwaitingApproval)
	case s.Reason != "":
		reason = s.Reason.Condition()
	}
	set(v1alpha1.DecidedCondition, decided, reason, n.Message)

	switch {
	case s.Execution != nil:
		set(v1alpha1.AdmittedCondition, metav1.ConditionTrue, "Admitted", "One process was admitted to execute it.")
	case s.State.Terminal():
		set(v1alpha1.AdmittedCondition, metav1.ConditionFalse, orElse(s.Reason.Condition(), string(s.State)), "It ended without being admitted: nobody was allowed to execute it.")
	default:
		set(v1alpha1.AdmittedCondition, metav1.ConditionFalse, orElse(s.Reason.Condition(), string(s.State)), "Nobody may execute it yet.")
	}

	if s.Receipt != nil {
		set(v1alpha1.FinishedCondition, metav1.ConditionTrue, string(s.State), fmt.Sprintf("It is over. Receipt %d proves it.", s.Receipt.Seq))
	} else {
		set(v1alpha1.FinishedCondition, metav1.ConditionFalse, orElse(s.Reason.Condition(), string(s.State)), "It is not over, or its receipt is yet to be written.")
	}
	if r := s.Resolved; r != nil && r.Name != "" {
		set(v1alpha1.ResolvedCondition, metav1.ConditionTrue, string(r.State), fmt.Sprintf("%s resolved its effect: %s (Resolution %s).", r.Resolver, r.State, r.Name))
	}
}

// conditionSetter sets conditions with times of the given clock, which tests move.
func conditionSetter(conditions *[]metav1.Condition, generation int64, now time.Time) func(kind string, status metav1.ConditionStatus, reason, message string) {
	return func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)})
	}
}

// SetCondition sets one condition.
func SetCondition(conditions *[]metav1.Condition, generation int64, now time.Time, kind string, status bool, reason, message string) {
	value := metav1.ConditionFalse
	if status {
		value = metav1.ConditionTrue
	}
	conditionSetter(conditions, generation, now)(kind, value, reason, Clip(message, 1024))
}

// SetOpen sets a condition of which nobody can say yet whether it holds.
func SetOpen(conditions *[]metav1.Condition, generation int64, now time.Time, kind, reason, message string) {
	conditionSetter(conditions, generation, now)(kind, metav1.ConditionUnknown, reason, Clip(message, 1024))
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func micro(t *time.Time) *metav1.MicroTime {
	if t == nil {
		return nil
	}
	m := metav1.NewMicroTime(*t)
	return &m
}

// Clip shortens a text to n bytes without cutting a character.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	cut := n - len("…")
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + "…"
}

// RawJSON is the text of a free-form value, "" if there is none.
func RawJSON(j *apiextensionsv1.JSON) string {
	if j == nil {
		return ""
	}
	return string(j.Raw)
}
