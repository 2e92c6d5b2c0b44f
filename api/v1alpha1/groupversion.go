// Package v1alpha1 holds the kinds of the ctrlrun.dev API.
//
// The API has one idea. Whatever a person or an agent says is an immutable object that they CREATE, a statement: Action,
// Approval, Claim, Outcome, Resolution, LedgerAcceptance. Whatever the operator concludes is written by the operator alone:
// Effect, Receipt, Ledger, and every status. What a team configures, ActionPolicy, Grant, Executor, PolicyProposal and Settings, lives in
// Git. Of it the operator writes the status, and of ActionPolicy and Grant what people approved by a PolicyProposal.
//
// +kubebuilder:object:generate=true
// +groupName=ctrlrun.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "ctrlrun.dev", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ActionPolicy{}, &ActionPolicyList{},
		&Settings{}, &SettingsList{},
		&Grant{}, &GrantList{},
		&PolicyProposal{}, &PolicyProposalList{},
		&Executor{}, &ExecutorList{},
		&Delegation{}, &DelegationList{},
		&Revocation{}, &RevocationList{},
		&Action{}, &ActionList{},
		&Approval{}, &ApprovalList{},
		&Claim{}, &ClaimList{},
		&Outcome{}, &OutcomeList{},
		&Effect{}, &EffectList{},
		&Resolution{}, &ResolutionList{},
		&Receipt{}, &ReceiptList{},
		&Ledger{}, &LedgerList{},
		&LedgerAcceptance{}, &LedgerAcceptanceList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds of this package.
var AddToScheme = schemeBuilder.AddToScheme
