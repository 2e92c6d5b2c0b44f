package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SettingsName is the one name a Settings object may have.
const SettingsName = "default"

// Settings are a namespace's options. There is at most one, named "default"; without it the defaults hold. Weakening them
// needs the verb govern.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=settings,singular=settings
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="a namespace has one Settings object, and it is named default"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Authority",type=string,JSONPath=`.spec.authority`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Settings struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec are the options.
	// +optional
	// +kubebuilder:default={}
	Spec SettingsSpec `json:"spec,omitempty"`
	// status is written by the operator.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status SettingsStatus `json:"status,omitempty"`
}

// Mode is what the operator does with its decisions.
// +kubebuilder:validation:Enum=Enforce;Observe
type Mode string

const (
	// ModeEnforce refuses what is not allowed.
	ModeEnforce Mode = "Enforce"
	// ModeObserve decides everything, writes down what enforcing would have done, and lets everything run.
	ModeObserve Mode = "Observe"
)

// AuthorityMode is whether principals need a grant.
// +kubebuilder:validation:Enum=NotRequired;Required
type AuthorityMode string

const (
	// AuthorityNotRequired lets every principal propose what policy allows.
	AuthorityNotRequired AuthorityMode = "NotRequired"
	// AuthorityRequired refuses every principal that no Grant or Delegation lets propose, whatever policy says. Without any
	// Grant everybody is refused.
	AuthorityRequired AuthorityMode = "Required"
)

// PolicyChanges is who may change the ActionPolicies and Grants of a namespace.
// +kubebuilder:validation:Enum=Free;Proposed
type PolicyChanges string

const (
	// PolicyChangesFree lets whoever RBAC lets write them change them.
	PolicyChangesFree PolicyChanges = "Free"
	// PolicyChangesProposed refuses every change by somebody without the verb govern. Everybody else makes a PolicyProposal,
	// which people approve.
	PolicyChangesProposed PolicyChanges = "Proposed"
)

// Defaults of Settings.
const (
	DefaultApprovalTTLSeconds = 900
	DefaultMaxLeaseSeconds    = 86400
	DefaultFinishedTTLSeconds = 86400
	DefaultMaxDelegationDepth = 3
)

// SettingsSpec are the options of a namespace. All are optional.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SettingsSpec struct {
	// mode: Enforce refuses what is not allowed; Observe only writes down what enforcing would have done. To observe takes the
	// verb govern.
	// +optional
	// +nullable
	// +kubebuilder:default=Enforce
	Mode *Mode `json:"mode,omitempty"`
	// authority: NotRequired lets every principal propose what policy allows; Required asks for a Grant as well.
	// +optional
	// +nullable
	// +kubebuilder:default=NotRequired
	Authority *AuthorityMode `json:"authority,omitempty"`
	// policyChanges: Free lets whoever may write ActionPolicies and Grants change them; Proposed asks for the verb govern on them
	// as well, and everybody else makes a PolicyProposal that people approve. To go back to Free takes the verb govern.
	// +optional
	// +nullable
	// +kubebuilder:default=Free
	PolicyChanges *PolicyChanges `json:"policyChanges,omitempty"`
	// approvalTTLSeconds bounds how long an approval request may be answered, and then how long the approved action may wait
	// to be claimed, unless the action's policy says otherwise.
	// +optional
	// +nullable
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	ApprovalTTLSeconds *int64 `json:"approvalTTLSeconds,omitempty"`
	// maxLeaseSeconds is the longest lease an action may ask for.
	// +optional
	// +nullable
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=604800
	MaxLeaseSeconds *int64 `json:"maxLeaseSeconds,omitempty"`
	// finishedTTLSeconds is how long a finished Action and its statements are kept. Effects and receipts stay.
	// +optional
	// +nullable
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	FinishedTTLSeconds *int64 `json:"finishedTTLSeconds,omitempty"`
	// identityAliases are lists of user names, each of one person, who is nobody else by another of them: none of them approves
	// what another asked for, and together they count once.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	IdentityAliases []IdentityAlias `json:"identityAliases,omitempty"`
	// maxDelegationDepth is how many Delegations may hang below a Grant, one under the other; 0: none.
	// +optional
	// +nullable
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	MaxDelegationDepth *int64 `json:"maxDelegationDepth,omitempty"`
}

// IdentityAlias are the user names of one person.
// +listType=atomic
// +kubebuilder:validation:MinItems=2
// +kubebuilder:validation:MaxItems=8
// +kubebuilder:validation:items:MinLength=1
// +kubebuilder:validation:items:MaxLength=512
type IdentityAlias []string

// SettingsStatus is the operator's judgement.
type SettingsStatus struct {
	// observedGeneration is the generation in force; -1: none yet.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready, Stalled, and Enforcing, which is False while the mode is Observe.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SettingsList is a list of Settings.
// +kubebuilder:object:root=true
type SettingsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Settings `json:"items"`
}
