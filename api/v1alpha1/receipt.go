package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Receipt is one link of its namespace's chain of evidence. Its name is the chain and the 12-digit seq, so that the
// apiserver lets the chain grow at one end only.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=receipts,shortName=rcpt
// +kubebuilder:selectablefield:JSONPath=`.spec.effectName`
// +kubebuilder:selectablefield:JSONPath=`.spec.kind`
// +kubebuilder:selectablefield:JSONPath=`.spec.actionName`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="a Receipt never changes"
// +kubebuilder:printcolumn:name="Seq",type=integer,JSONPath=`.spec.seq`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.spec.result`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.actionType`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agent`
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.effectName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Hash",type=string,priority=1,JSONPath=`.spec.hash`
type Receipt struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the receipt. It never changes.
	Spec ReceiptSpec `json:"spec"`
}

// ReceiptSpec is the document that was hashed, and what columns and selectors need of it.
type ReceiptSpec struct {
	// seq is its place in the chain, from 1.
	// +kubebuilder:validation:Minimum=1
	Seq int64 `json:"seq"`
	// hash is the SHA-256 of document.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Hash string `json:"hash"`
	// document is the exact canonical JSON that was hashed. seq and prev_hash are inside it. Only this string is proof;
	// the fields beside it are copies.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1048576
	Document string `json:"document"`
	// kind of the document: action, resolution, status-missing, ledger-accepted, event.
	// +kubebuilder:validation:MaxLength=64
	Kind string `json:"kind"`
	// result of an action, or of a resolution.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Result string `json:"result,omitempty"`
	// reason of that result.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// actionType of the action.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ActionType string `json:"actionType,omitempty"`
	// actionName is the name of the Action.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ActionName string `json:"actionName,omitempty"`
	// agent that proposed it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Agent string `json:"agent,omitempty"`
	// effectName is the name of the Effect.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	EffectName string `json:"effectName,omitempty"`
	// attempt of the effect.
	// +optional
	Attempt int64 `json:"attempt,omitempty"`
}

// ReceiptList is a list of Receipt.
// +kubebuilder:object:root=true
type ReceiptList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Receipt `json:"items"`
}
