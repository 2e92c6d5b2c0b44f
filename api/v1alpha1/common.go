package v1alpha1

import "k8s.io/apimachinery/pkg/types"

const (
	// EnvironmentLabel on a Namespace names the environment of every action in it. Without it the environment is
	// DefaultEnvironment. It is part of the action's hash: an approval for staging does not fit production.
	EnvironmentLabel = "ctrlrun.dev/environment"
	// DefaultEnvironment is the environment of a namespace that names none.
	DefaultEnvironment = "production"
	// CanaryLabel marks the two objects in the operator's own namespace that only exist to probe admission.
	CanaryLabel = "ctrlrun.dev/canary"
	// AllowUninstallAnnotation on a CRD permits its deletion, which deletes every record of that kind.
	AllowUninstallAnnotation = "ctrlrun.dev/allow-uninstall"
)

// Condition types. Every condition of a kind is always present once its status is written.
const (
	// AcceptedCondition, on every statement but the Action: True if it counts, False with a reason if it does not. Unknown, of a
	// Resolution alone, if others have to say the same first.
	AcceptedCondition = "Accepted"
	// DecidedCondition, on an Action: whether policy, and the people it asks, have decided.
	DecidedCondition = "Decided"
	// AdmittedCondition, on an Action: whether one process may execute it, or has.
	AdmittedCondition = "Admitted"
	// FinishedCondition, on an Action: whether it has a terminal state and a receipt.
	FinishedCondition = "Finished"
	// ResolvedCondition, on an Action that ended Ambiguous: a Resolution settled its effect later.
	ResolvedCondition = "Resolved"
	// ReadyCondition, on configuration: it is valid and in force.
	ReadyCondition = "Ready"
	// AdmissionInForceCondition, on the Ledger of the operator's own namespace: whether statements that are made now count.
	AdmissionInForceCondition = "AdmissionInForce"
	// EnforcingCondition, on Settings: whether what is not allowed is refused. False: it is only observed.
	EnforcingCondition = "Enforcing"
	// StalledCondition, on configuration: it is invalid, and only an edit helps.
	StalledCondition = "Stalled"
)

// Reasons of the Accepted condition. A reason other than Accepted says why a statement does not count.
const (
	ReasonAccepted             = "Accepted"
	ReasonMismatch             = "Mismatch"
	ReasonExpired              = "Expired"
	ReasonSelfApproval         = "SelfApproval"
	ReasonDuplicateApprover    = "DuplicateApprover"
	ReasonNotRequired          = "NotRequired"
	ReasonNotEntitled          = "NotEntitled"
	ReasonActionFinished       = "ActionFinished"
	ReasonActionNotFound       = "ActionNotFound"
	ReasonMadeWithoutAdmission = "MadeWithoutAdmission"
	ReasonEffectNotFound       = "EffectNotFound"
	ReasonNotAmbiguous         = "NotAmbiguous"
	ReasonSelfResolution       = "SelfResolution"
	ReasonAnotherWasFirst      = "AnotherWasFirst"
	ReasonNotClaimable         = "NotClaimable"
	ReasonNotAdmitted          = "NotAdmitted"
	ReasonNotTheAgent          = "NotTheAgent"
	ReasonLateReport           = "LateReport"
	ReasonEvidenceMissing      = "EvidenceMissing"
	ReasonWithdrawn            = "Withdrawn"
	ReasonLedgerNotHeld        = "LedgerNotHeld"
	// ReasonPeopleRequired: a program looked, and people have to say what happened: more than one has to, or the record was lost.
	ReasonPeopleRequired    = "PeopleRequired"
	ReasonDuplicateResolver = "DuplicateResolver"
	ReasonSuperseded        = "Superseded"
	ReasonOutvoted          = "Outvoted"
)

// Reasons for which the Accepted condition of a Resolution is Unknown: it has no verdict yet, and its message says what is missing.
const (
	ReasonMorePeopleRequired = "MorePeopleRequired"
	ReasonPolicyInvalid      = "PolicyInvalid"
)

// ObjectReference names one object of a known kind by name and uid. A name can be used again; a uid cannot.
type ObjectReference struct {
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the object. A statement about another object of the same name does not count.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
}

// ReceiptReference names one receipt of the namespace's chain.
type ReceiptReference struct {
	// name of the Receipt.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// seq is its place in the chain, from 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Seq int64 `json:"seq,omitempty"`
	// hash of its document: "sha256:" and 64 lower-case hexadecimal digits.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Hash string `json:"hash"`
}

// IdentityClaims is what the apiserver knew about a speaker beyond the user name. It is stamped at creation, recorded in
// receipts, and never part of a hash.
//
// +kubebuilder:pruning:PreserveUnknownFields
type IdentityClaims struct {
	// groups of the speaker, in the apiserver's order. At most 64; a speaker with more has none here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Groups []string `json:"groups,omitempty"`
	// podName of a speaker that used a pod-bound token.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName,omitempty"`
	// podUID of that pod.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID,omitempty"`
	// nodeName of that pod's node, if it was scheduled.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
	// credentialID of the token, for the apiserver's audit log.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	CredentialID string `json:"credentialID,omitempty"`
}
