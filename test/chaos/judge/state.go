package judge

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/chaos/remote"
)

// State is everything that is judged: one namespace after everything has settled.
type State struct {
	Namespace, NamespaceUID, ClusterID string

	Actions  []v1alpha1.Action
	Effects  []v1alpha1.Effect
	Receipts []v1alpha1.Receipt
	Outcomes []v1alpha1.Outcome
	// Ledger of the namespace, nil if there is none yet.
	Ledger *v1alpha1.Ledger

	// Executions of the remote, of this namespace.
	Executions []remote.Execution
	// Acknowledged are the reports whose storing an agent was told of.
	Acknowledged []Acknowledged
	// Left is when an agent gave up an Action, by uid, and could not say so: nobody is there to execute it any more.
	Left map[string]time.Time
}

// Acknowledged is a report that an agent was told is stored, and counts unless its Outcome says otherwise.
type Acknowledged struct {
	Action    string                 `json:"action"`
	ActionUID string                 `json:"actionUID"`
	ClaimID   string                 `json:"claimID"`
	Result    v1alpha1.OutcomeResult `json:"result"`
}

// Collect reads what is stored in a namespace, from the apiserver itself, and adds what the remote did for it.
func Collect(ctx context.Context, reader kube.Reader, namespace string, executions []remote.Execution) (State, error) {
	s := State{Namespace: namespace}
	actions, effects, receipts, outcomes := &v1alpha1.ActionList{}, &v1alpha1.EffectList{}, &v1alpha1.ReceiptList{}, &v1alpha1.OutcomeList{}
	for _, list := range []kube.ObjectList{actions, effects, receipts, outcomes} {
		if err := reader.List(ctx, list, kube.InNamespace(namespace)); err != nil {
			return s, fmt.Errorf("read %T of %s: %w", list, namespace, err)
		}
	}
	s.Actions, s.Effects, s.Receipts, s.Outcomes = actions.Items, effects.Items, receipts.Items, outcomes.Items
	for name, uid := range map[string]*string{namespace: &s.NamespaceUID, metav1.NamespaceSystem: &s.ClusterID} {
		o := &corev1.Namespace{}
		if err := reader.Get(ctx, kube.ObjectKey{Name: name}, o); err != nil {
			return s, err
		}
		*uid = string(o.UID)
	}
	ledger := &v1alpha1.Ledger{}
	err := reader.Get(ctx, kube.ObjectKey{Name: namespace}, ledger)
	if kube.IgnoreNotFound(err) != nil {
		return s, err
	}
	if err == nil {
		s.Ledger = ledger
	}
	for _, e := range executions {
		if e.Namespace == namespace {
			s.Executions = append(s.Executions, e)
		}
	}
	return s, nil
}

// workOf is the piece of work that an Action was proposed for: its argument "work", if it has one.
func workOf(a *v1alpha1.Action) string {
	var arguments struct {
		Work string `json:"work"`
	}
	// Arguments without one, or of another shape, are no error: then it has no name here.
	_ = json.Unmarshal(a.Spec.Arguments.Raw, &arguments)
	return arguments.Work
}
