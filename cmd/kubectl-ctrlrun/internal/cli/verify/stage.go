package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/guarantees"
	"ctrlrun.dev/operator/kernel/receipt"
)

const (
	// patience is how long one step may take that an operator that runs does in a moment.
	patience = 30 * time.Second
	// silence is how long the operator may say nothing at all.
	silence = 15 * time.Second
	// afterwards is how long something is looked at that must not go on.
	afterwards = 10 * time.Second
)

// finding says that a guarantee does not hold, or that its control does not work.
type finding struct{ reason, expected, observed string }

func (f *finding) Error() string { return "expected: " + f.expected + "; observed: " + f.observed }

// controlFailed is the reason of a guarantee whose control does not work: that something is refused says nothing then.
const controlFailed = "control failed"

// SilentError says that the operator does not answer, or holds everything.
type SilentError struct{ What string }

func (e *SilentError) Error() string { return e.What }

// silent is a SilentError, unless the wait was ended from outside.
func silent(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &SilentError{What: what}
}

// stage is where one scenario plays. It remembers the actions for the counterexample.
type stage struct {
	*scratch
	plan    guarantees.Plan
	run     *run
	control bool // what is being done is the control
	names   []string
	answers int // that were given
	leaver  *identity
}

// fail is the finding that something is not as it should be.
func (s *stage) fail(expected, format string, args ...any) error {
	f := &finding{reason: s.plan.Guarantee.Invariant + ": not so", expected: expected, observed: fmt.Sprintf(format, args...)}
	if s.control {
		f.reason = controlFailed
	}
	return f
}

// name is that of an Action of this scenario.
func (s *stage) name(part string) string {
	name := strings.ToLower(string(s.plan.Guarantee.ID)) + "-" + part
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
	return name
}

// request is what the agent proposes.
func (s *stage) request(part string, v guarantees.Vector) client.Proposal {
	resource := ""
	if v.Resource != nil {
		resource = *v.Resource
	}
	return client.Proposal{
		ActionType: v.ActionType, Arguments: v.Arguments, Resource: resource, Name: s.name(part), LeaseDuration: s.run.lease(),
	}
}

// propose creates an Action in the agent's own name.
func (s *stage) propose(ctx context.Context, part string, v guarantees.Vector) (*client.Call, error) {
	return s.agent.Propose(ctx, s.request(part, v))
}

// action reads an Action as the viewer.
func (s *stage) action(ctx context.Context, name string) (*v1alpha1.Action, error) {
	o := &v1alpha1.Action{}
	if err := s.viewer.kube().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: name}, o); err != nil {
		return nil, fmt.Errorf("read action %s: %w", name, err)
	}
	return o, nil
}

// await waits until an Action is as it should be. One that the operator has looked at and that does not become so is a finding.
func (s *stage) await(ctx context.Context, name, expected string, is func(*v1alpha1.Action) bool) (*v1alpha1.Action, error) {
	for deadline := time.Now().Add(patience); ; {
		o, err := s.action(ctx, name)
		if err != nil {
			return nil, err
		}
		if is(o) {
			return o, nil
		}
		if o.Status.State.Terminal() && o.Status.ReceiptRef != nil {
			return nil, s.fail(expected, "%s", standing(o))
		}
		if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return nil, s.stuck(ctx, o, expected)
		}
	}
}

// stuck says what it means that an Action does not go on.
func (s *stage) stuck(ctx context.Context, o *v1alpha1.Action, expected string) error {
	if client.Untouched(o) || o.Status.State == v1alpha1.ActionPending {
		return silent(ctx, fmt.Sprintf("action %s is not decided: %s", o.Name, standing(o)))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.fail(expected, "after %s %s", patience, standing(o))
}

// standing is how an Action stands, for people.
func standing(o *v1alpha1.Action) string {
	text := fmt.Sprintf("action %s is %s", o.Name, o.Status.State)
	if o.Status.Reason != "" {
		text += " (" + o.Status.Reason + ")"
	}
	if o.Status.Message != "" {
		text += ": " + strings.ReplaceAll(o.Status.Message, "\n", " ")
	}
	return text
}

// settle gives an Action what it needs before a process may execute it: if the policy asks people, their approval. An Action that
// ended before anybody was asked needs nothing.
func (s *stage) settle(ctx context.Context, name string, v guarantees.Vector) error {
	if v.Approvals == 0 {
		return nil
	}
	o, err := s.asked(ctx, name)
	if err != nil || o.Status.State.Terminal() {
		return err
	}
	return s.approve(ctx, o, v.Approvals)
}

// asked waits until people are asked, or it is over.
func (s *stage) asked(ctx context.Context, name string) (*v1alpha1.Action, error) {
	return s.await(ctx, name, "people are asked", func(o *v1alpha1.Action) bool {
		return o.Status.State == v1alpha1.ActionAwaitingApproval || o.Status.State.Terminal()
	})
}

// approve lets n people say yes to an Action as it is. Each has to be accepted.
func (s *stage) approve(ctx context.Context, o *v1alpha1.Action, n int) error {
	for _, approver := range s.approvers[:n] {
		accepted, verdict, err := s.answer(ctx, approver, approvalOf(o))
		if err != nil {
			return err
		}
		if !accepted {
			return s.fail("the approval of "+o.Name+" is accepted", "%s", verdict)
		}
	}
	return nil
}

// approvalOf is the approval of an Action by what its status says.
func approvalOf(o *v1alpha1.Action) v1alpha1.ApprovalSpec {
	spec := v1alpha1.ApprovalSpec{
		ActionRef: v1alpha1.ObjectReference{Name: o.Name, UID: o.UID}, ActionType: o.Spec.ActionType,
		ActionHash: o.Status.ActionHash, Decision: v1alpha1.Approved,
	}
	if o.Status.Effect != nil {
		spec.EffectKey = &o.Status.Effect.Key
	}
	return spec
}

// answer states an approval and waits for the verdict: whether it is accepted, and the reason.
func (s *stage) answer(ctx context.Context, approver *identity, spec v1alpha1.ApprovalSpec) (accepted bool, verdict string, err error) {
	// No two answers have the same reason, so that one whose response was lost is told from one that says the same.
	s.answers++
	spec.Approver, spec.Reason = approver.username, fmt.Sprintf("verify, answer %d", s.answers)
	approval := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace}, Spec: spec}
	name := client.StatementName(spec.ActionRef.Name, approver.username)
	own := func(existing kube.Object) bool {
		there, ok := existing.(*v1alpha1.Approval)
		return ok && there.Spec.Reason == spec.Reason
	}
	if err := approver.CreateStatement(ctx, approval, name, own); err != nil {
		return false, "", fmt.Errorf("approve %s: %w", spec.ActionRef.Name, err)
	}
	for deadline := time.Now().Add(patience); ; {
		if err := approver.kube().Get(ctx, kube.ObjectKeyFromObject(approval), approval); err != nil {
			return false, "", fmt.Errorf("read the verdict about approval %s: %w", approval.Name, err)
		}
		if c := meta.FindStatusCondition(approval.Status.Conditions, v1alpha1.AcceptedCondition); c != nil {
			return c.Status == metav1.ConditionTrue, c.Reason, nil
		}
		if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return false, "", silent(ctx, fmt.Sprintf("approval %s has not been judged for %s", approval.Name, patience))
		}
	}
}

// execute waits until this process is admitted, executes, reports, and waits for the receipt. It gives the Action as it ended.
func (s *stage) execute(ctx context.Context, call *client.Call, execute client.Function) (*v1alpha1.Action, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := call.Execute(bounded, execute)
	var waiting *client.WaitingError
	if errors.As(err, &waiting) {
		return nil, s.stuck(ctx, waiting.Action, "it is admitted, or refused")
	}
	var ended *client.EndedError
	var unknown *client.UnknownError
	if err != nil && !errors.As(err, &ended) && !errors.As(err, &unknown) {
		return nil, fmt.Errorf("execute %s: %w", call.Action().Name, err)
	}
	return s.over(ctx, call.Action().Name)
}

// over waits for the end of an Action, with its receipt.
func (s *stage) over(ctx context.Context, name string) (*v1alpha1.Action, error) {
	return s.await(ctx, name, "it ends with a receipt", func(o *v1alpha1.Action) bool { return o.Status.ReceiptRef != nil })
}

// ends checks how an Action ended: its state, the reason if one is named, and what its receipt says.
func (s *stage) ends(ctx context.Context, o *v1alpha1.Action, state v1alpha1.ActionState, reason decision.Reason, result decision.Result) error {
	expected := fmt.Sprintf("action %s is %s", o.Name, state)
	if reason != "" {
		expected += " (" + string(reason) + ")"
	}
	if o.Status.State != state || reason != "" && o.Status.Reason != string(reason) {
		return s.fail(expected, "%s", standing(o))
	}
	document, err := s.receipt(ctx, o, expected)
	if err != nil {
		return err
	}
	if document.Result != result {
		return s.fail(fmt.Sprintf("the receipt of %s says %s", o.Name, result), "it says %s", document.Result)
	}
	return nil
}

// receipt is that of an Action that ended.
func (s *stage) receipt(ctx context.Context, o *v1alpha1.Action, expected string) (receipt.Document, error) {
	if o.Status.ReceiptRef == nil {
		return receipt.Document{}, s.fail(expected+", with a receipt", "it has none")
	}
	stored := &v1alpha1.Receipt{}
	if err := s.viewer.kube().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: o.Status.ReceiptRef.Name}, stored); err != nil {
		return receipt.Document{}, fmt.Errorf("read the receipt of %s: %w", o.Name, err)
	}
	document, err := receipt.Parse(receipt.Entry{Seq: stored.Spec.Seq, Hash: stored.Spec.Hash, Document: stored.Spec.Document})
	if err != nil {
		return receipt.Document{}, fmt.Errorf("the receipt of %s: %w", o.Name, err)
	}
	return document, nil
}

// admitted checks that an Action was executed at all: if it never was, how it ended says nothing.
func (s *stage) admitted(o *v1alpha1.Action) error {
	if o.Status.Execution != nil {
		return nil
	}
	before := s.control
	s.control = true
	defer func() { s.control = before }()
	return s.fail("action "+o.Name+" is admitted and executed", "%s", standing(o))
}

// record checks the record of an Action's effect: its state, the attempt, and whose it is.
func (s *stage) record(ctx context.Context, o *v1alpha1.Action, state v1alpha1.EffectState, attempt int64) error {
	if o.Status.Effect == nil {
		return s.fail("action "+o.Name+" names its effect", "it names none")
	}
	effect := &v1alpha1.Effect{}
	if err := s.viewer.kube().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: o.Status.Effect.Name}, effect); err != nil {
		return fmt.Errorf("read effect %s: %w", o.Status.Effect.Name, err)
	}
	got := effectOf(effect)
	want := Effect{Name: effect.Name, Key: effect.Spec.Key, State: string(state), Attempt: attempt, Holder: o.Name}
	if got != want {
		return s.fail(fmt.Sprintf("effect %s is %s, attempt %d, held by %s", want.Name, want.State, want.Attempt, want.Holder),
			"it is %s, attempt %d, held by %s", got.State, got.Attempt, got.Holder)
	}
	return nil
}

func effectOf(o *v1alpha1.Effect) Effect {
	e := Effect{Name: o.Name, Key: o.Spec.Key}
	if o.Status != nil {
		e.State, e.Attempt = string(o.Status.State), o.Status.Attempt
		if o.Status.Holder != nil {
			e.Holder = o.Status.Holder.Name
		}
	}
	return e
}

// calls checks how often the remote was called.
func (s *stage) calls(r *remote, want int, what string) error {
	n, err := r.calls()
	if err != nil {
		return err
	}
	if n != want {
		return s.fail(fmt.Sprintf("%s was executed %s", what, times(want)), "%s", times(n))
	}
	return nil
}

func times(n int) string {
	return map[bool]string{true: "once", false: fmt.Sprintf("%d times", n)}[n == 1]
}

// counterexample collects the records of the scenario's actions. What cannot be read is left out: the finding stands all the same.
func (s *stage) counterexample(ctx context.Context, f *finding) *Counterexample {
	c := &Counterexample{Expected: f.expected, Observed: f.observed, Receipts: []json.RawMessage{}, Events: []Event{}, Effects: []Effect{}}
	var effects []string
	for _, name := range s.names {
		receipts := &v1alpha1.ReceiptList{}
		if err := s.viewer.kube().List(ctx, receipts, kube.InNamespace(s.namespace), kube.MatchingFields{"spec.actionName": name}); err == nil {
			for i := range receipts.Items {
				if document := []byte(receipts.Items[i].Spec.Document); json.Valid(document) {
					c.Receipts = append(c.Receipts, document)
				}
			}
		}
		o, err := s.action(ctx, name)
		if err != nil {
			continue
		}
		for _, e := range o.Status.Timeline {
			data := map[string]string{}
			for k, v := range e.Data {
				data[k] = string(v)
			}
			c.Events = append(c.Events, Event{Action: name, Seq: e.Seq, Time: e.Time.Time, Type: e.Type, Data: data})
		}
		if ref := o.Status.Effect; ref != nil && !slices.Contains(effects, ref.Name) {
			effects = append(effects, ref.Name)
		}
	}
	for _, name := range effects {
		o := &v1alpha1.Effect{}
		if err := s.viewer.kube().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: name}, o); err == nil {
			c.Effects = append(c.Effects, effectOf(o))
		}
	}
	return c
}

// absent checks that nothing of an Action is there: no object, and no receipt.
func (s *stage) absent(ctx context.Context, name string) error {
	_, err := s.action(ctx, name)
	if err == nil {
		return s.fail("there is no action "+name, "there is one")
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	receipts := &v1alpha1.ReceiptList{}
	if err := s.viewer.kube().List(ctx, receipts, kube.InNamespace(s.namespace), kube.MatchingFields{"spec.actionName": name}); err != nil {
		return fmt.Errorf("list the receipts of %s: %w", name, err)
	}
	if len(receipts.Items) > 0 {
		return s.fail("there is no receipt of "+name, "there is receipt %s", receipts.Items[0].Name)
	}
	return nil
}
