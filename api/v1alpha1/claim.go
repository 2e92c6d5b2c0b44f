package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Claim is an agent's statement "I am here and execute this Action now", after a wait.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=claims
// +kubebuilder:selectablefield:JSONPath=`.spec.actionRef.uid`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.actionRef.name`
// +kubebuilder:printcolumn:name="Claimant",type=string,JSONPath=`.spec.claimant`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Claim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement. It never changes.
	Spec ClaimSpec `json:"spec"`
	// status says whether it counts.
	// +optional
	Status StatementStatus `json:"status,omitempty"`
}

// ClaimSpec names the Action and the process.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Claim never changes"
type ClaimSpec struct {
	// actionRef is the Action, by name and uid.
	// +kubebuilder:pruning:PreserveUnknownFields
	ActionRef ObjectReference `json:"actionRef"`
	// claimID of the process: a random lower-case UUID, one per process and call.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	ClaimID string `json:"claimID"`
	// claimableTime is the Action's status.claimableTime, quoted: the claim is later than the decision.
	ClaimableTime metav1.MicroTime `json:"claimableTime"`
	// claimant is the authenticated user name of whoever created this Claim. Stamped.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Claimant string `json:"claimant,omitempty"`
	// claims are what the apiserver knew about the claimant at creation. Stamped.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// ClaimList is a list of Claim.
// +kubebuilder:object:root=true
type ClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Claim `json:"items"`
}
