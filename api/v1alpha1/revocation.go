package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Revocation cuts a Delegation and everything below it, at once and for good.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=revocations
// +kubebuilder:printcolumn:name="Delegation",type=string,JSONPath=`.spec.delegationRef.name`
// +kubebuilder:printcolumn:name="Revoker",type=string,JSONPath=`.spec.revoker`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Revocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement. It never changes.
	Spec RevocationSpec `json:"spec"`
	// status says whether it counts. It cuts from the moment it is seen, whether or not this is written yet.
	// +optional
	Status RevocationStatus `json:"status,omitempty"`
}

// RevocationStatus is the operator's judgement.
type RevocationStatus struct {
	StatementStatus `json:",inline"`
	// firstSeq is a seq of the chain not above its head when this status was first written: the receipt about this Revocation is
	// never before it. Written once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="firstSeq is written once"
	FirstSeq *int64 `json:"firstSeq,omitempty"`
	// receiptRef is the receipt that says that the Delegation was revoked, by this Revocation or by one before it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="receiptRef is written once"
	ReceiptRef *ReceiptReference `json:"receiptRef,omitempty"`
}

// RevocationSpec names the Delegation.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Revocation never changes, and is never taken back"
type RevocationSpec struct {
	// delegationRef is the Delegation, by name and uid.
	// +kubebuilder:pruning:PreserveUnknownFields
	DelegationRef ObjectReference `json:"delegationRef"`
	// reason in the revoker's own words.
	// +optional
	// +nullable
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason *string `json:"reason,omitempty"`
	// revoker is the authenticated user name of whoever created this Revocation. Stamped.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Revoker string `json:"revoker,omitempty"`
	// claims are what the apiserver knew about the revoker at creation. Stamped.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// RevocationList is a list of Revocation.
// +kubebuilder:object:root=true
type RevocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Revocation `json:"items"`
}
