package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PolicyProposal says what an ActionPolicy or a Grant of its namespace should be. The operator writes that once the people whom
// the policies of the namespace ask have approved it: each revision is a question of its own, an Action of type
// ctrlrun.policy.change. Where Settings say policyChanges: Proposed, nobody without the verb govern changes them otherwise.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=policyproposals,shortName=pprop,categories=ctrlrun
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.status.actionRef.name`
// +kubebuilder:printcolumn:name="Proposer",type=string,priority=1,JSONPath=`.spec.proposer`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PolicyProposal struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the change. Keys it does not know are refused, not ignored.
	Spec PolicyProposalSpec `json:"spec"`
	// status is written by the operator: where the change stands.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status PolicyProposalStatus `json:"status,omitempty"`
}

// ProposalTargetKind is what can be proposed to be changed.
// +kubebuilder:validation:Enum=ActionPolicy;Grant
type ProposalTargetKind string

const (
	// TargetActionPolicy is an ActionPolicy.
	TargetActionPolicy ProposalTargetKind = "ActionPolicy"
	// TargetGrant is a Grant.
	TargetGrant ProposalTargetKind = "Grant"
)

// PolicyProposalSpec is a change of one object: what its spec becomes, or that it goes.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.content) != (has(self.delete) && self.delete)",message="give either content or delete: true, not both and not neither"
type PolicyProposalSpec struct {
	// targetRef is the object to change, in the same namespace. It need not exist.
	TargetRef ProposalTarget `json:"targetRef"`
	// content is what its spec becomes, whole: the spec of an ActionPolicy or of a Grant.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Content *apiextensionsv1.JSON `json:"content,omitempty"`
	// delete proposes that it is deleted.
	// +optional
	Delete bool `json:"delete,omitempty"`
	// reason for the people who are asked.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// proposer is the authenticated user name of whoever wrote this revision. Stamped: leave it out. It is asked on whose behalf
	// the change is, and whoever it is does not approve it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Proposer string `json:"proposer,omitempty"`
}

// ProposalTarget names an ActionPolicy or a Grant.
// +kubebuilder:pruning:PreserveUnknownFields
type ProposalTarget struct {
	// kind: ActionPolicy or Grant.
	Kind ProposalTargetKind `json:"kind"`
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ProposalState is where a proposal stands.
// +kubebuilder:validation:Enum=Pending;Asking;Applying;Withdrawing;Applied;Refused;Replaced
type ProposalState string

const (
	// ProposalPending: nobody was asked yet; the message says why.
	ProposalPending ProposalState = "Pending"
	// ProposalAsking: there is an Action, and people are asked, or about to be.
	ProposalAsking ProposalState = "Asking"
	// ProposalApplying: it was approved, and the operator may have written it.
	ProposalApplying ProposalState = "Applying"
	// ProposalWithdrawing: it is not written any more, and its Action is being ended.
	ProposalWithdrawing ProposalState = "Withdrawing"
	// ProposalApplied: it was approved and written, or was so already.
	ProposalApplied ProposalState = "Applied"
	// ProposalRefused: this revision is not applied. An edit asks again.
	ProposalRefused ProposalState = "Refused"
	// ProposalReplaced: it was applied, and the target is another one since.
	ProposalReplaced ProposalState = "Replaced"
)

// PolicyProposalStatus is what the operator made of it.
type PolicyProposalStatus struct {
	// observedGeneration is the generation this status speaks of; -1: none yet.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready (the target is as proposed), Stalled (only an edit helps).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// state: Pending, Asking, Applying, Withdrawing, Applied, Refused or Replaced.
	// +optional
	State ProposalState `json:"state,omitempty"`
	// question is what people are asked for this generation.
	// +optional
	Question *ProposalQuestion `json:"question,omitempty"`
	// actionRef is the Action by which they are asked.
	// +optional
	ActionRef *ObjectReference `json:"actionRef,omitempty"`
	// appliedHash is the hash of the content that was applied last; empty after a deletion.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	AppliedHash string `json:"appliedHash,omitempty"`
	// receiptRef is the receipt of the Action by which this generation was decided.
	// +optional
	ReceiptRef *ReceiptReference `json:"receiptRef,omitempty"`
}

// ProposalQuestion is one question about one generation. If the target changes before it is answered, the next round asks about
// what the target is then.
type ProposalQuestion struct {
	// generation of the proposal that is asked about.
	Generation int64 `json:"generation"`
	// round of that generation, from 1.
	Round int64 `json:"round"`
	// action is the name of the Action.
	// +kubebuilder:validation:MaxLength=253
	Action string `json:"action"`
	// from is the hash of what the target was; empty: there was none.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	From string `json:"from,omitempty"`
	// to is the hash of what it becomes; empty: it goes.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	To string `json:"to,omitempty"`
	// targetUID and targetGeneration are those of the target that was compared; empty: there was none.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	TargetUID types.UID `json:"targetUID,omitempty"`
	// +optional
	TargetGeneration int64 `json:"targetGeneration,omitempty"`
}

// PolicyProposalList is a list of PolicyProposal.
// +kubebuilder:object:root=true
type PolicyProposalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PolicyProposal `json:"items"`
}
