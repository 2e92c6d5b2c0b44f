package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Approval is a person's statement "yes" or "no" about the exact hash of one Action. It is spent by that Action's admission
// and can never be presented for another.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=approvals,shortName=appr,categories=ctrlrun
// +kubebuilder:selectablefield:JSONPath=`.spec.actionRef.uid`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.actionRef.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.actionType`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.spec.decision`
// +kubebuilder:printcolumn:name="Approver",type=string,JSONPath=`.spec.approver`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Hash",type=string,priority=1,JSONPath=`.spec.actionHash`
type Approval struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement. It never changes.
	Spec ApprovalSpec `json:"spec"`
	// status says whether it counts.
	// +optional
	Status ApprovalStatus `json:"status,omitempty"`
}

// ApprovalDecision is yes or no.
// +kubebuilder:validation:Enum=Approved;Denied
type ApprovalDecision string

const (
	// Approved says yes.
	Approved ApprovalDecision = "Approved"
	// Denied says no; one is enough.
	Denied ApprovalDecision = "Denied"
)

// ApprovalSpec binds an answer to exactly what was read.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an Approval never changes"
type ApprovalSpec struct {
	// actionRef is the Action, by name and uid.
	// +kubebuilder:pruning:PreserveUnknownFields
	ActionRef ObjectReference `json:"actionRef"`
	// actionType of that Action. The right to approve is checked against it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ActionType string `json:"actionType"`
	// actionHash that was read: status.actionHash of the Action.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	ActionHash string `json:"actionHash"`
	// effectKey that was read: status.effect.key of the Action. Absent exactly when the Action has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	EffectKey *string `json:"effectKey,omitempty"`
	// decision: Approved or Denied.
	Decision ApprovalDecision `json:"decision"`
	// reason in the approver's own words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// approver is the authenticated user name of whoever created this Approval. Stamped.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Approver string `json:"approver,omitempty"`
	// claims are what the apiserver knew about the approver at creation. Stamped.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// ApprovalStatus says whether an approval counts, and by which rules it was accepted.
type ApprovalStatus struct {
	StatementStatus `json:",inline"`
	// rulesHash of everything that decided in the namespace when the approval was accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	RulesHash string `json:"rulesHash,omitempty"`
}

// StatementStatus says whether a statement counts.
type StatementStatus struct {
	// conditions: Accepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApprovalList is a list of Approval.
// +kubebuilder:object:root=true
type ApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Approval `json:"items"`
}
