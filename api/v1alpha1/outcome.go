package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is an executor's statement of what happened. Its name, made of the Action's uid, the claimID and the proposer, is
// a lock: whoever creates it first, the executor or the operator declaring a lapsed lease, ends the attempt.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=outcomes
// +kubebuilder:selectablefield:JSONPath=`.spec.actionRef.uid`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.reason) || self.spec.result == 'Unknown'",message="the reason LeaseLapsed goes with the result Unknown"
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.actionRef.name`
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.spec.result`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Reporter",type=string,JSONPath=`.spec.reporter`
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Outcome struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement. It never changes.
	Spec OutcomeSpec `json:"spec"`
	// status says why it does not count. An Outcome that counts has no status: its Action says it.
	// +optional
	Status StatementStatus `json:"status,omitempty"`
}

// OutcomeResult is what the executor knows.
// +kubebuilder:validation:Enum=Committed;NotExecuted;Unknown;AskedBack
type OutcomeResult string

const (
	// OutcomeCommitted: it happened.
	OutcomeCommitted OutcomeResult = "Committed"
	// OutcomeNotExecuted: nothing happened, for certain. It frees the key for another attempt.
	OutcomeNotExecuted OutcomeResult = "NotExecuted"
	// OutcomeUnknown: neither is certain.
	OutcomeUnknown OutcomeResult = "Unknown"
	// OutcomeAskedBack: it is not over. The executor asks something, and waits for a Claim with the continuation to go on with the
	// answer. If nobody does in time, or nothing is reserved for it, nobody knows.
	OutcomeAskedBack OutcomeResult = "AskedBack"
)

// OutcomeReasonLeaseLapsed marks the Outcome by which the operator ends an attempt whose lease is over.
const OutcomeReasonLeaseLapsed = "LeaseLapsed"

// OutcomeSpec is the report.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an Outcome never changes"
// +kubebuilder:validation:XValidation:rule="has(self.continuation) == (self.result == 'AskedBack')",message="a continuation goes with the result AskedBack, and only with it"
type OutcomeSpec struct {
	// actionRef is the Action, by name and uid.
	// +kubebuilder:pruning:PreserveUnknownFields
	ActionRef ObjectReference `json:"actionRef"`
	// claimID of the process that reports.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	ClaimID string `json:"claimID"`
	// result: Committed, NotExecuted, Unknown or AskedBack.
	Result OutcomeResult `json:"result"`
	// reason LeaseLapsed marks the operator's own Outcome for a lease that is over. Nobody else may set it.
	// +optional
	// +kubebuilder:validation:Enum=LeaseLapsed
	Reason string `json:"reason,omitempty"`
	// continuation is what whoever goes on after AskedBack has to present. The executor makes it up.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	Continuation string `json:"continuation,omitempty"`
	// output of the execution, any JSON value without fractions, at most 16 KiB. After AskedBack it is the question.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XPreserveUnknownFields
	Output *apiextensionsv1.JSON `json:"output,omitempty"`
	// error of the execution, in the executor's words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`
	// reporter is the authenticated user name of whoever created this Outcome. Stamped.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reporter string `json:"reporter,omitempty"`
	// claims are what the apiserver knew about the reporter at creation. Stamped.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// OutcomeList is a list of Outcome.
// +kubebuilder:object:root=true
type OutcomeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Outcome `json:"items"`
}
