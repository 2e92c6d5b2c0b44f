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
	Status StatementStatus `json:"status,omitempty"`
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
