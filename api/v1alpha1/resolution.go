package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Resolution is a statement of what really happened to an Ambiguous effect: a person's, or that of a program that looked. It quotes
// the receipt it answers: nobody resolves what they could not have read.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=resolutions
// +kubebuilder:selectablefield:JSONPath=`.spec.effectRef.name`
// +kubebuilder:validation:XValidation:rule="self.spec.result != 'NotExecuted' || has(self.spec.evidence)",message="NotExecuted frees the key for another attempt: it needs evidence, such as a link to the provider's record"
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.effectRef.name`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.spec.attempt`
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.spec.result`
// +kubebuilder:printcolumn:name="Resolver",type=string,JSONPath=`.spec.resolver`
// +kubebuilder:printcolumn:name="Observer",type=string,priority=1,JSONPath=`.spec.observer`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Resolution struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement. It never changes.
	Spec ResolutionSpec `json:"spec"`
	// status says whether it counts.
	// +optional
	Status StatementStatus `json:"status,omitempty"`
}

// ResolutionResult is what really happened.
// +kubebuilder:validation:Enum=Committed;NotExecuted
type ResolutionResult string

const (
	// ResolutionCommitted: it happened.
	ResolutionCommitted ResolutionResult = "Committed"
	// ResolutionNotExecuted: it did not happen; another attempt may be made.
	ResolutionNotExecuted ResolutionResult = "NotExecuted"
)

// ResolutionSpec names the effect, the attempt and the receipt it answers.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Resolution never changes"
type ResolutionSpec struct {
	// effectRef is the Effect, by name and uid.
	// +kubebuilder:pruning:PreserveUnknownFields
	EffectRef ObjectReference `json:"effectRef"`
	// attempt that is resolved.
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`
	// actionType of the effect. The right to resolve is checked against it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ActionType string `json:"actionType"`
	// result: Committed or NotExecuted.
	Result ResolutionResult `json:"result"`
	// receiptRef is the ambiguous receipt that was read, by name and hash.
	// +kubebuilder:pruning:PreserveUnknownFields
	ReceiptRef ReceiptReference `json:"receiptRef"`
	// reason in the resolver's own words.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// evidence, such as a link to the provider's record. Required for NotExecuted.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Evidence string `json:"evidence,omitempty"`
	// observer is what looked, where a program's look and not a person is the source, such as an Executor by its name. To make such
	// a Resolution takes the verb observe instead of resolve. It does not count where more than one person has to say it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Observer string `json:"observer,omitempty"`
	// resolver is the authenticated user name of whoever created this Resolution. Stamped.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Resolver string `json:"resolver,omitempty"`
	// claims are what the apiserver knew about the resolver at creation. Stamped.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// ResolutionList is a list of Resolution.
// +kubebuilder:object:root=true
type ResolutionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Resolution `json:"items"`
}
