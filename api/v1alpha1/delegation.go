package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Delegation hands on a part of what its parent, a Grant or another Delegation, grants. It is judged once, when it is made,
// and its whole chain again at every decision: it never grants more than its parent does at that moment.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=delegations
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 100",message="the name of a Delegation has at most 100 characters: names of its Revocations are built from it"
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parentRef.name`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.subject.agent`
// +kubebuilder:printcolumn:name="Delegator",type=string,JSONPath=`.spec.delegator.agent`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expirationTime`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].reason`
// +kubebuilder:printcolumn:name="Revoked",type=string,JSONPath=`.status.conditions[?(@.type=='Revoked')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Delegation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement. It never changes.
	Spec DelegationSpec `json:"spec"`
	// status says whether it was accepted, and whether it was revoked.
	// +optional
	Status DelegationStatus `json:"status,omitempty"`
}

// DelegationSpec names the parent and what of it is handed on. What the parent limits is limited again: a dimension that is left
// out is not inherited but refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Delegation never changes: revoke it and make another"
// +kubebuilder:validation:XValidation:rule="!has(self.delegable) || !self.delegable || has(self.expirationTime)",message="a delegable Delegation needs expirationTime: what is handed on has to end"
// +kubebuilder:validation:XValidation:rule="!has(self.breakGlass) || !self.breakGlass || (has(self.reason) && has(self.expirationTime))",message="to open a BreakGlass grant takes a reason and an expirationTime"
type DelegationSpec struct {
	// parentRef is what is handed on.
	// +kubebuilder:pruning:PreserveUnknownFields
	ParentRef  ParentReference `json:"parentRef"`
	GrantTerms `json:",inline"`
	// breakGlass says that it opens a BreakGlass grant in an emergency. Needs the verb breakglass on that grant.
	// +optional
	// +nullable
	BreakGlass *bool `json:"breakGlass,omitempty"`
	// reason in the delegator's own words.
	// +optional
	// +nullable
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason *string `json:"reason,omitempty"`
	// delegator is who makes it: a principal the parent's subject matches. Stamped.
	// +optional
	Delegator Principal `json:"delegator,omitempty"`

	// Raw is the spec as the apiserver sent it: what is judged. It is not part of the API.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the exact bytes beside the typed fields, and refuses nothing: the kernel judges Raw.
func (s *DelegationSpec) UnmarshalJSON(data []byte) error {
	type plain DelegationSpec
	var p plain
	_ = json.Unmarshal(data, &p)
	*s = DelegationSpec(p)
	s.Raw = append([]byte(nil), data...)
	return nil
}

// ParentKind is what can be handed on.
// +kubebuilder:validation:Enum=Grant;Delegation
type ParentKind string

const (
	// ParentGrant is a Grant.
	ParentGrant ParentKind = "Grant"
	// ParentDelegation is another Delegation.
	ParentDelegation ParentKind = "Delegation"
)

// ParentReference names the parent of a Delegation in its namespace.
type ParentReference struct {
	// kind: Grant or Delegation.
	Kind ParentKind `json:"kind"`
	// name of the parent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RevokedCondition, on a Delegation: whether a Revocation names it. One that is below a revoked one is cut as well, without
// a word here.
const RevokedCondition = "Revoked"

// ExpiredCondition, on a Grant: whether its expirationTime is over.
const ExpiredCondition = "Expired"

// DelegationStatus is the operator's judgement.
type DelegationStatus struct {
	// conditions: Accepted, once and for all; Revoked.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=4
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// firstSeq is a seq of the chain not above its head when this status was first written: the receipt about this Delegation is
	// never before it. Written once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="firstSeq is written once"
	FirstSeq *int64 `json:"firstSeq,omitempty"`
	// receiptRef is the receipt that says it was accepted or refused, written before this status says so.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="receiptRef is written once"
	ReceiptRef *ReceiptReference `json:"receiptRef,omitempty"`
	// parentUID is the uid of the parent it was accepted under. It hangs below that one, and below no other of the same name.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	ParentUID types.UID `json:"parentUID,omitempty"`
	// depth is how many Delegations lay between it and its Grant when it was accepted, itself included. It decides nothing.
	// +optional
	Depth int64 `json:"depth,omitempty"`
	// dimension is in what it is wider than its parent, if it was refused for that.
	// +optional
	// +kubebuilder:validation:Enum=subject;actions;resources;constraints;environments;expires_at
	Dimension string `json:"dimension,omitempty"`
}

// DelegationList is a list of Delegation.
// +kubebuilder:object:root=true
type DelegationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Delegation `json:"items"`
}
