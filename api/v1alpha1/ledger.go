package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ledger is the operator's memory of one namespace's chain: its head, and the namespace it belongs to. It is cluster-scoped
// and named like the namespace, so that deleting or restoring a namespace does not take it along.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ledgers,scope=Cluster
// +kubebuilder:validation:XValidation:rule="has(self.status) || !has(oldSelf.status)",message="the status of a Ledger is never removed"
// +kubebuilder:printcolumn:name="Seq",type=integer,JSONPath=`.status.seq`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Hash",type=string,priority=1,JSONPath=`.status.hash`
type Ledger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the head and what belongs to it.
	// +optional
	Status *LedgerStatus `json:"status,omitempty"`
}

// LedgerStatus is the verified head of the chain.
//
// +kubebuilder:validation:XValidation:rule="self.epoch >= oldSelf.epoch",message="the epoch of a Ledger never goes back"
// +kubebuilder:validation:XValidation:rule="self.epoch > oldSelf.epoch || self.seq > oldSelf.seq || (self.seq == oldSelf.seq && self.hash == oldSelf.hash)",message="within an epoch the head of a chain only grows"
// +kubebuilder:validation:XValidation:rule="self.epoch > oldSelf.epoch || self.namespaceUID == oldSelf.namespaceUID",message="within an epoch a chain belongs to one namespace"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.admissionSince) || (has(self.admissionSince) && self.admissionSince >= oldSelf.admissionSince)",message="admissionSince never goes back"
type LedgerStatus struct {
	// epoch counts the accepted breaks of the chain.
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`
	// seq of the head: how many receipts the chain has.
	// +kubebuilder:validation:Minimum=0
	Seq int64 `json:"seq"`
	// hash of the head; of an empty chain 64 zeros.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Hash string `json:"hash"`
	// namespaceUID of the namespace whose chain this is.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	NamespaceUID types.UID `json:"namespaceUID"`
	// admissionSince: a statement counts only if it was created after this time. It moves when admission was away.
	// +optional
	AdmissionSince *metav1.MicroTime `json:"admissionSince,omitempty"`
	// admissionRecord is what the operator saw of its admission policies when admissionSince was set: if it is another now,
	// they were away or changed in between.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	AdmissionRecord string `json:"admissionRecord,omitempty"`
	// accepted is the head a person accepted when the present epoch began. Absent: the chain was never broken. What comes
	// before it is not verified any more.
	// +optional
	Accepted *AcceptedHead `json:"accepted,omitempty"`
	// rules are the objects that decide whose coming into force is on record, as the chain says it up to rulesSeq.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=512
	Rules []RuleOnRecord `json:"rules,omitempty"`
	// rulesSeq is the seq that rules were written for. If it is not that of the head, they are read from the chain again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RulesSeq *int64 `json:"rulesSeq,omitempty"`
	// checkpointTime is when the head was last written here.
	// +optional
	CheckpointTime metav1.Time `json:"checkpointTime,omitempty"`
	// conditions: Ready, False while the namespace holds.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RuleOnRecord is an object that decides, as the newest receipt about it says.
type RuleOnRecord struct {
	// kind: policy or settings.
	// +kubebuilder:validation:Enum=policy;settings;grant
	Kind string `json:"kind"`
	// name of the object.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the object.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// generation that came into force.
	// +kubebuilder:validation:Minimum=1
	Generation int64 `json:"generation"`
	// seq of the receipt that says so.
	// +kubebuilder:validation:Minimum=1
	Seq int64 `json:"seq"`
}

// AcceptedHead is the head of a chain that a person accepted.
type AcceptedHead struct {
	// seq of that head; 0: an empty chain.
	// +kubebuilder:validation:Minimum=0
	Seq int64 `json:"seq"`
	// hash of that head.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Hash string `json:"hash"`
	// time of the acceptance. Whatever refers to a later seq from before it refers to receipts that are lost.
	Time metav1.Time `json:"time"`
}

// LedgerList is a list of Ledger.
// +kubebuilder:object:root=true
type LedgerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Ledger `json:"items"`
}

// LedgerAcceptance is a person's statement "this is the head of that namespace's chain from now on", after a restore or a
// recreated namespace. It needs the verb govern on ledgers, and leaves a receipt.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ledgeracceptances,scope=Cluster
// +kubebuilder:printcolumn:name="Ledger",type=string,JSONPath=`.spec.ledger`
// +kubebuilder:printcolumn:name="Seq",type=integer,JSONPath=`.spec.seq`
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.acceptedBy`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Accepted')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LedgerAcceptance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the statement. It never changes.
	Spec LedgerAcceptanceSpec `json:"spec"`
	// status says whether it counts.
	// +optional
	Status StatementStatus `json:"status,omitempty"`
}

// LedgerAcceptanceSpec names the head that is accepted.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a LedgerAcceptance never changes"
type LedgerAcceptanceSpec struct {
	// ledger is the namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Ledger string `json:"ledger"`
	// namespaceUID of the namespace as it is now.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NamespaceUID types.UID `json:"namespaceUID"`
	// seq of the head that is accepted; 0: an empty chain.
	// +kubebuilder:validation:Minimum=0
	Seq int64 `json:"seq"`
	// hash of the head that is accepted.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Hash string `json:"hash"`
	// reason in the person's own words.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// acceptedBy is the authenticated user name of whoever created this. Stamped.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	AcceptedBy string `json:"acceptedBy,omitempty"`
	// claims are what the apiserver knew about that person at creation. Stamped.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// LedgerAcceptanceList is a list of LedgerAcceptance.
// +kubebuilder:object:root=true
type LedgerAcceptanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LedgerAcceptance `json:"items"`
}
