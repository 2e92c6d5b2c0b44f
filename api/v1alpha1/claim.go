package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Claim is an agent's statement "I am here and execute this Action now", after a wait: for people, or, with a continuation, after its
// executor asked back.
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
	// claimableTime is the Action's status.claimableTime, quoted: the claim is later than the decision. With a continuation it is the
	// Action's status.suspension.time.
	ClaimableTime metav1.MicroTime `json:"claimableTime"`
	// continuation: this process goes on with an attempt whose executor asked back.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Continuation *ClaimContinuation `json:"continuation,omitempty"`
	// claimant is the authenticated user name of whoever created this Claim. Stamped.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Claimant string `json:"claimant,omitempty"`
	// claims are what the apiserver knew about the claimant at creation. Stamped.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// ClaimContinuation is what a process presents to go on. Of all that name the present round and fit, the oldest is taken, once.
type ClaimContinuation struct {
	// round is status.suspension.round of the Action.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Round int64 `json:"round"`
	// continuation is status.suspension.continuation of the Action.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Continuation string `json:"continuation"`
	// actionHash of the Action, computed from the arguments that this process would use: they may not be other ones by now.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	ActionHash string `json:"actionHash"`
	// input is the answer for an Executor of the operator, any JSON value without fractions, at most 16 KiB. People who approved the
	// Action have not seen it.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XPreserveUnknownFields
	Input *apiextensionsv1.JSON `json:"input,omitempty"`
}

// ClaimList is a list of Claim.
// +kubebuilder:object:root=true
type ClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Claim `json:"items"`
}
