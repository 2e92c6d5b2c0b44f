package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
)

const inspectionSchema = "ctrlrun.dev/inspection/v1alpha1"

// inspection is everything that is known of one action: the answer of inspect -o json. docs/inspection.md has its schema.
type inspection struct {
	Schema string `json:"schema"`
	// Action is null if it is gone.
	Action *v1alpha1.Action `json:"action"`
	// Receipt is the document of the action's end; null while it has not ended, or if it is not there although it should be.
	Receipt json.RawMessage `json:"receipt"`
	// Effect is null without an effect key.
	Effect *v1alpha1.Effect `json:"effect"`
	// Approvals are all that name this action, or its hash, whether they count or not.
	Approvals []v1alpha1.Approval `json:"approvals"`
	// Resolutions are all of the present attempt of an effect that is Ambiguous: who has said what so far.
	Resolutions []v1alpha1.Resolution `json:"resolutions"`
	Events      []inspectedEvent      `json:"events"`
	// Reduced says that the events were made from the receipt, because the action is gone.
	Reduced bool `json:"reduced"`
	// Hidden names the members that are null or empty because whoever asks may not read them.
	Hidden []string `json:"hidden"`
}

type inspectedEvent struct {
	Seq  int64             `json:"seq"`
	Time string            `json:"time"`
	Type string            `json:"type"`
	Data map[string]string `json:"data"`
}

// newInspection knows nothing yet.
func newInspection() *inspection {
	return &inspection{Schema: inspectionSchema, Receipt: json.RawMessage("null"), Approvals: []v1alpha1.Approval{}, Resolutions: []v1alpha1.Resolution{}, Events: []inspectedEvent{}, Hidden: []string{}}
}

// hide notes that a member could not be read, if that is what err says.
func (x *inspection) hide(member string, err error) error {
	if exit.Of(err) != exit.Refused {
		return explain(err)
	}
	x.Hidden = append(x.Hidden, member)
	return nil
}

// lostReceipt is the name of the receipt that the action refers to and that is not there, or "".
func (x *inspection) lostReceipt() string {
	if x.Action == nil || x.Action.Status.ReceiptRef == nil || string(x.Receipt) != "null" || slices.Contains(x.Hidden, "receipt") {
		return ""
	}
	return x.Action.Status.ReceiptRef.Name
}

// inspectAction collects what is known of an Action that is there.
func (s *session) inspectAction(ctx context.Context, action *v1alpha1.Action) (*inspection, error) {
	x := newInspection()
	x.Action = action
	x.Events = eventsOf(action)
	if ref := action.Status.Effect; ref != nil {
		if err := s.inspectedEffect(ctx, x, ref.Name); err != nil {
			return nil, err
		}
	}
	if ref := action.Status.ReceiptRef; ref != nil {
		var object v1alpha1.Receipt
		err := s.kube.Get(ctx, s.key(ref.Name), &object)
		switch {
		case err == nil:
			x.Receipt = rawDocument(&object)
		case apierrors.IsNotFound(err) && !missingKind(err): // whoever looks into that needs the rest all the more
		default:
			if err := x.hide("receipt", err); err != nil {
				return nil, err
			}
		}
	}
	err := s.inspectedApprovals(ctx, x, func(a *v1alpha1.Approval) bool {
		return a.Spec.ActionRef.UID == action.UID || action.Status.ActionHash != "" && a.Spec.ActionHash == action.Status.ActionHash
	})
	return x, err
}

func (s *session) inspectedEffect(ctx context.Context, x *inspection, name string) error {
	effect := &v1alpha1.Effect{}
	err := s.kube.Get(ctx, s.key(name), effect)
	switch {
	case err == nil:
		return s.inspectedSaid(ctx, x, effect)
	case apierrors.IsNotFound(err) && !missingKind(err): // nothing was reserved
		return nil
	}
	return x.hide("effect", err)
}

// inspectedSaid adds an effect, and what people have said of it so far.
func (s *session) inspectedSaid(ctx context.Context, x *inspection, effect *v1alpha1.Effect) error {
	x.Effect = effect
	said, err := s.saidOf(ctx, effect)
	x.Resolutions = append(x.Resolutions, said...)
	return x.hide("resolutions", err)
}

// inspectedApprovals looks at every approval: one of another action with the same content has the same hash.
func (s *session) inspectedApprovals(ctx context.Context, x *inspection, about func(*v1alpha1.Approval) bool) error {
	var page v1alpha1.ApprovalList
	err := s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			if about(&page.Items[i]) {
				x.Approvals = append(x.Approvals, *page.Items[i].DeepCopy())
			}
		}
		return nil
	}, kube.InNamespace(s.Namespace()))
	return x.hide("approvals", err)
}

// inspectReceipt collects what is known of an action that is gone: its receipt, and what happened to its effect later.
func (s *session) inspectReceipt(ctx context.Context, object *v1alpha1.Receipt) (*inspection, error) {
	x := newInspection()
	x.Receipt, x.Reduced = rawDocument(object), true
	document, err := receipt.Parse(records.Entry(object))
	if err != nil {
		return nil, uninterpreted(object, err)
	}
	var later []receipt.Document
	if name := object.Spec.EffectName; name != "" {
		if err := s.inspectedEffect(ctx, x, name); err != nil {
			return nil, err
		}
		if later, err = s.resolutionsAfter(ctx, object); err != nil {
			return nil, err
		}
	}
	x.Events = reducedEvents(document, later)
	err = s.inspectedApprovals(ctx, x, func(a *v1alpha1.Approval) bool {
		return string(a.Spec.ActionRef.UID) == document.ActionUID || document.ActionHash != "" && a.Spec.ActionHash == document.ActionHash
	})
	return x, err
}

// resolutionsAfter are the resolutions of the attempt that a receipt is about.
func (s *session) resolutionsAfter(ctx context.Context, object *v1alpha1.Receipt) ([]receipt.Document, error) {
	var found []receipt.Document
	err := s.eachReceipt(ctx, func(r *v1alpha1.Receipt) error {
		if r.Spec.Kind != receipt.KindResolution || r.Spec.Attempt != object.Spec.Attempt || r.Spec.Seq < object.Spec.Seq {
			return nil
		}
		document, err := receipt.Parse(records.Entry(r))
		if err != nil {
			return uninterpreted(r, err)
		}
		found = append(found, document)
		return nil
	}, kube.MatchingFields{"spec.effectName": object.Spec.EffectName})
	return found, err
}

// rawDocument is the document of a receipt as JSON. One that is no JSON is given as text, so that it is seen.
func rawDocument(r *v1alpha1.Receipt) json.RawMessage {
	if json.Valid([]byte(r.Spec.Document)) {
		return json.RawMessage(r.Spec.Document)
	}
	text, err := json.Marshal(r.Spec.Document)
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}

func eventsOf(action *v1alpha1.Action) []inspectedEvent {
	events := []inspectedEvent{}
	for _, e := range action.Status.Timeline {
		data := make(map[string]string, len(e.Data))
		for k, v := range e.Data {
			data[k] = string(v)
		}
		events = append(events, inspectedEvent{Seq: e.Seq, Time: e.Time.UTC().Format(metav1.RFC3339Micro), Type: e.Type, Data: data})
	}
	return events
}

// reducedEvents are the events a receipt has a time for. When the policy was asked, or a claim was waited for, is not in it.
func reducedEvents(d receipt.Document, resolutions []receipt.Document) []inspectedEvent {
	all := []timeline.Event{{Time: d.ProposedTime, Type: timeline.ActionProposed, Data: map[string]string{"action_type": d.ActionType, "agent": agentOf(d)}}}
	for _, a := range d.Approvals {
		all = append(all, timeline.Event{Time: a.Time, Type: timeline.ApprovalGranted, Data: map[string]string{"approval": a.Name, "approver": a.Approver}})
	}
	for _, r := range d.Refused {
		if r.Kind == "approval" {
			all = append(all, timeline.Event{Time: r.Time, Type: timeline.ApprovalInvalidated,
				Data: map[string]string{"approval": r.Name, "approver": r.Speaker, "reason": r.Reason}})
		}
	}
	if !d.AdmittedTime.IsZero() {
		attempt := ""
		if d.Attempt > 0 {
			attempt = strconv.FormatInt(d.Attempt, 10)
		}
		all = append(all, timeline.Event{Time: d.AdmittedTime, Type: timeline.ExecutionStarted, Data: map[string]string{"attempt": attempt, "claim_id": d.ClaimID}})
	}
	slices.SortStableFunc(all, func(a, b timeline.Event) int { return a.Time.Compare(b.Time) })
	end := timeline.Event{Time: d.FinishedTime, Type: timeline.End(d.Ended(), d.Reason), Data: map[string]string{"reason": string(d.Reason)}}
	if end.Type == timeline.EffectReservationRefused {
		end.Data["effect_key"] = d.EffectKey
	}
	all = append(all, end)
	for _, r := range resolutions {
		all = append(all, timeline.Event{Time: r.FinishedTime, Type: timeline.EffectResolved, Data: map[string]string{
			"resolved_by": timeline.ResolvedBy(r.Observer), "resolver": byObserver(r.Resolver, r.Observer), "resolution": r.ResolutionName, "result": string(r.Result),
		}})
	}
	events := []inspectedEvent{}
	for _, e := range timeline.Append(nil, all...) {
		events = append(events, inspectedEvent{Seq: e.Seq, Time: e.Time.UTC().Format(receipt.TimeLayout), Type: string(e.Type), Data: e.Data})
	}
	return events
}

func agentOf(d receipt.Document) string {
	if d.Principal == nil {
		return ""
	}
	return d.Principal.Agent
}

// printEvents writes a timeline, one event a line: number, time, type, and what it says as k=v.
func (a *app) printEvents(events []inspectedEvent) {
	if len(events) == 0 {
		return
	}
	a.println()
	t := a.lines()
	for _, e := range events {
		var words []string
		for _, key := range sortedKeys(e.Data) {
			value := e.Data[key]
			if e.Type == string(timeline.EffectResolved) && key == "result" {
				value = resultWord(receipt.KindResolution, value)
			}
			if value != "" {
				words = append(words, key+"="+word(value))
			}
		}
		t.row(fmt.Sprint(e.Seq), e.Time, e.Type, strings.Join(words, " "))
	}
	t.flush()
}

// word quotes a value that would not be read as one word.
func word(value string) string {
	if strings.ContainsAny(value, " =\"\\") {
		return strconv.Quote(value)
	}
	return value
}

// approvalRows says of each approval what it says, and what became of it.
func approvalRows(t fields, x *inspection) {
	spent := map[string]bool{}
	if x.Action != nil && x.Action.Status.Execution != nil {
		for _, approval := range x.Action.Status.Execution.Approvals {
			spent[string(approval.UID)] = true
		}
	}
	for i := range x.Approvals {
		approval := &x.Approvals[i]
		verb := "granted"
		if approval.Spec.Decision == v1alpha1.Denied {
			verb = "denied"
		}
		text := fmt.Sprintf("%s by %s", verb, approval.Spec.Approver)
		accepted := meta.FindStatusCondition(approval.Status.Conditions, v1alpha1.AcceptedCondition)
		switch {
		case spent[string(approval.UID)]:
			text += ", consumed"
		case accepted == nil:
			text += ", not judged yet"
		case accepted.Status == metav1.ConditionFalse:
			text += ", does not count: " + accepted.Reason
		}
		if x.Action != nil && approval.Spec.ActionRef.UID != x.Action.UID {
			text += ", for action " + approval.Spec.ActionRef.Name
		}
		if approval.Spec.Reason != "" {
			text += fmt.Sprintf(" (%s)", approval.Spec.Reason)
		}
		t.row("Approval", approval.Name+", "+text)
	}
}

// forPrograms is the inspection with kinds, and without what only the apiserver's own bookkeeping needs.
func (x *inspection) forPrograms(scheme *runtime.Scheme) (*inspection, error) {
	var objects []kube.Object
	if x.Action != nil {
		objects = append(objects, x.Action)
	}
	if x.Effect != nil {
		objects = append(objects, x.Effect)
	}
	for i := range x.Approvals {
		objects = append(objects, &x.Approvals[i])
	}
	for i := range x.Resolutions {
		objects = append(objects, &x.Resolutions[i])
	}
	for _, object := range objects {
		object.SetManagedFields(nil)
		if err := setKinds(scheme, object); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// endOf is what an action's receipt says that people have to see. It is read leniently: also a document that cannot be
// interpreted is shown as far as it can be.
type endOf struct {
	Result    string     `json:"result"`
	Execution string     `json:"execution"`
	Time      *time.Time `json:"finished_time"`
	WouldHave *struct {
		Decision      string `json:"decision"`
		Reason        string `json:"reason"`
		BlockedReason string `json:"blocked_reason"`
	} `json:"would_have"`
	Authority *struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		BreakGlass bool   `json:"break_glass"`
		Root       string `json:"root"`
	} `json:"authority"`
}

// end reads it; the zero endOf if there is none.
func (x *inspection) end() endOf {
	var e endOf
	if err := json.Unmarshal(x.Receipt, &e); err != nil {
		return endOf{}
	}
	return e
}

// resultText is how it ended: of an observed action also what was executed.
func (e endOf) resultText() string {
	text := e.Result
	if text != "" && e.Execution != "" {
		text += ", " + e.Execution
	}
	if text != "" && e.Time != nil {
		text += ", " + e.Time.UTC().Format(time.RFC3339)
	}
	return text
}

func (e endOf) wouldHaveText() string {
	if e.WouldHave == nil {
		return ""
	}
	return wouldHaveText(e.WouldHave.Decision, e.WouldHave.Reason, e.WouldHave.BlockedReason)
}

func (e endOf) authorityText() string {
	if e.Authority == nil {
		return ""
	}
	return authorityText(e.Authority.Kind, e.Authority.Name, e.Authority.Root, e.Authority.BreakGlass)
}

// wouldHaveText is what enforce mode would have done with an observed action.
func wouldHaveText(decision, reason, blocked string) string {
	if blocked == "" {
		return fmt.Sprintf("run (%s, %s)", decision, reason)
	}
	return fmt.Sprintf("stopped at %s (%s, %s)", blocked, decision, reason)
}

// authorityText is what let a principal propose an action; "" if nothing is named.
func authorityText(kind, name, root string, breakGlass bool) string {
	if name == "" {
		return ""
	}
	text := kind + " " + name
	if root != "" && (kind != receipt.AuthorityGrant || root != name) {
		text += ", from Grant " + root
	}
	if breakGlass {
		text += ", break glass"
	}
	return text
}
