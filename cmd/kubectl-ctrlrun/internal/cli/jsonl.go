package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/canonical"
)

const jsonlFormat = "jsonl"

// effectLine is what somebody needs in order to find out what became of an effect: one line of `effects -o jsonl`. With
// result, reason and evidence added it is one line of `resolve -f`. A member that does not apply is left out.
type effectLine struct {
	Effect     string                 `json:"effect"`
	Key        string                 `json:"key"`
	Namespace  string                 `json:"namespace"`
	Attempt    int64                  `json:"attempt,omitempty"`
	ActionType string                 `json:"actionType,omitempty"`
	Action     string                 `json:"action,omitempty"`
	Agent      string                 `json:"agent,omitempty"`
	User       string                 `json:"user,omitempty"`
	State      v1alpha1.EffectState   `json:"state"`
	Cause      v1alpha1.EffectCause   `json:"cause,omitempty"`
	Since      string                 `json:"since,omitempty"`
	Token      string                 `json:"token,omitempty"`
	Receipt    string                 `json:"receipt,omitempty"`
	Hash       string                 `json:"receiptHash,omitempty"`
	Late       v1alpha1.OutcomeResult `json:"lateOutcome,omitempty"`
	// People is how many different people have to say the same, as the attempt says; left out where one is enough.
	People int64 `json:"resolutionsRequired,omitempty"`
	// Arguments of the attempt, as long as its Action or the receipt that says ambiguous can be read.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

func lineOf(effect *v1alpha1.Effect, quoted *quotedReceipt) effectLine {
	status := effectStatus(effect)
	line := effectLine{
		Effect: effect.Name, Key: effect.Spec.Key, Namespace: effect.Namespace, Attempt: status.Attempt, ActionType: status.ActionType,
		State: status.State, Cause: status.Cause, Token: status.Token,
	}
	if !status.LastTransitionTime.IsZero() {
		line.Since = status.LastTransitionTime.UTC().Format(time.RFC3339)
	}
	if holder := status.Holder; holder != nil {
		line.Action, line.Agent, line.User = holder.Name, holder.Agent, holder.User
	}
	if late := status.LateOutcomeRef; late != nil {
		line.Late = late.Result
	}
	if status.ResolutionsRequired > 1 {
		line.People = status.ResolutionsRequired
	}
	if quoted != nil {
		line.Receipt, line.Hash = quoted.ref.Name, quoted.ref.Hash
		if line.ActionType == "" {
			line.ActionType = quoted.actionType
		}
	}
	return line
}

// printEffectLines writes one line of JSON for each effect. An ambiguous effect whose receipt is not written yet has none in
// its line.
func (a *app) printEffectLines(ctx context.Context, s *session, effects []v1alpha1.Effect) error {
	quotes := s.quotes()
	for i := range effects {
		var quoted *quotedReceipt
		if effectStatus(&effects[i]).State == v1alpha1.EffectAmbiguous {
			var err error
			quoted, err = quotes.of(ctx, &effects[i])
			if err != nil && exit.Of(err) != exit.Waiting {
				return err
			}
		}
		line := lineOf(&effects[i], quoted)
		var err error
		if line.Arguments, err = quotes.argumentsOf(ctx, &effects[i], quoted); err != nil {
			return err
		}
		if err := a.printLine(line); err != nil {
			return err
		}
	}
	return nil
}

// printLine writes a value as one line of JSON. Keys may hold < > and &, which Go would write as \u003c; people compare them.
func (a *app) printLine(value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return err
	}
	_, err := a.streams.Out.Write(b.Bytes())
	return err
}

// quotedReceipt is what a Resolution takes from the receipt that says the attempt is ambiguous.
type quotedReceipt struct {
	ref        v1alpha1.ReceiptReference
	actionType string
	arguments  json.RawMessage // nil if they are not known
}

// quotes finds the ambiguous receipts of many effects. The Action of an ambiguous effect is kept and names its receipt, so one
// list of Actions answers for nearly all of them; to look for each effect among all receipts would be slow.
type quotes struct {
	session   *session
	read      map[string]bool // namespaces whose ambiguous Actions were read
	actions   map[types.UID]*v1alpha1.Action
	readAll   map[string]bool // namespaces whose Actions were all read, for their arguments
	arguments map[types.UID]json.RawMessage
}

func (s *session) quotes() *quotes {
	return &quotes{
		session: s, read: map[string]bool{}, actions: map[types.UID]*v1alpha1.Action{},
		readAll: map[string]bool{}, arguments: map[types.UID]json.RawMessage{},
	}
}

func (q *quotes) of(ctx context.Context, effect *v1alpha1.Effect) (*quotedReceipt, error) {
	if err := q.readActions(ctx, effect.Namespace); err != nil {
		return nil, err
	}
	status := effectStatus(effect)
	if status.Holder != nil && status.Loss == nil {
		action := q.actions[status.Holder.UID]
		if action != nil && action.Status.ReceiptRef != nil && action.Status.Effect != nil && action.Status.Effect.Attempt == status.Attempt {
			return &quotedReceipt{ref: *action.Status.ReceiptRef, actionType: action.Spec.ActionType, arguments: canonicalJSON(action.Spec.Arguments.Raw)}, nil
		}
	}
	found, err := q.session.ambiguousReceipt(ctx, effect)
	if err != nil {
		return nil, err
	}
	return &quotedReceipt{
		ref:        v1alpha1.ReceiptReference{Name: found.Name, Seq: found.Spec.Seq, Hash: found.Spec.Hash},
		actionType: found.Spec.ActionType, arguments: recordedArguments(found),
	}, nil
}

// argumentsOf are the arguments of the present attempt, or nil.
func (q *quotes) argumentsOf(ctx context.Context, effect *v1alpha1.Effect, quoted *quotedReceipt) (json.RawMessage, error) {
	if quoted != nil && quoted.arguments != nil {
		return quoted.arguments, nil
	}
	holder := effectStatus(effect).Holder
	if holder == nil {
		return nil, nil
	}
	if !q.readAll[effect.Namespace] {
		q.readAll[effect.Namespace] = true
		var page v1alpha1.ActionList
		err := q.session.eachPage(ctx, &page, func() error {
			for i := range page.Items {
				q.arguments[page.Items[i].UID] = canonicalJSON(page.Items[i].Spec.Arguments.Raw)
			}
			return nil
		}, kube.InNamespace(effect.Namespace), notCanary)
		if err != nil && exit.Of(err) != exit.Refused {
			return nil, err
		}
	}
	return q.arguments[holder.UID], nil
}

// canonicalJSON is JSON on one line, or nil if it has no canonical form.
func canonicalJSON(raw []byte) json.RawMessage {
	value, err := canonical.Parse(raw)
	if err != nil {
		return nil
	}
	text, err := canonical.Encode(value)
	if err != nil {
		return nil
	}
	return text
}

// readActions reads the ambiguous Actions of a namespace once. Somebody who may not read them is answered from the receipts.
func (q *quotes) readActions(ctx context.Context, namespace string) error {
	if q.read[namespace] {
		return nil
	}
	q.read[namespace] = true
	var page v1alpha1.ActionList
	err := q.session.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			q.actions[page.Items[i].UID] = page.Items[i].DeepCopy()
		}
		return nil
	}, kube.InNamespace(namespace), kube.MatchingFields{"status.state": string(v1alpha1.ActionAmbiguous)})
	if exit.Of(err) == exit.Refused {
		return nil
	}
	return err
}
