package v1alpha1

import (
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Grant says which principals may propose which actions in its namespace. It decides only where Settings require authority;
// there a principal without a grant is refused, whatever policy says. A grant never allows more than policy does.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=grants
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.subject.agent`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.subject.user`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.grantType`
// +kubebuilder:printcolumn:name="Delegable",type=boolean,JSONPath=`.spec.delegable`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expirationTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Expired",type=string,JSONPath=`.status.conditions[?(@.type=='Expired')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Grant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the grant. Keys it does not know are refused, not ignored.
	Spec GrantSpec `json:"spec"`
	// status is written by the operator: whether the grant is valid and in force.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status GrantStatus `json:"status,omitempty"`
}

// GrantType is what a grant is for.
// +kubebuilder:validation:Enum=Standard;BreakGlass
type GrantType string

const (
	// GrantStandard lets its subject propose.
	GrantStandard GrantType = "Standard"
	// GrantBreakGlass lets nobody propose by itself. It is the envelope that a Delegation for an emergency has to fit in.
	GrantBreakGlass GrantType = "BreakGlass"
)

// GrantSpec says who may propose what, where and until when. Every dimension that is left out is unlimited.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.delegable) || !self.delegable || has(self.expirationTime)",message="a delegable grant needs expirationTime: what is handed on has to end"
// +kubebuilder:validation:XValidation:rule="(has(self.grantType) && self.grantType == 'BreakGlass') == has(self.maxDurationSeconds)",message="a grant of type BreakGlass needs maxDurationSeconds, and no other may have it"
// +kubebuilder:validation:XValidation:rule="!has(self.grantType) || self.grantType != 'BreakGlass' || (!has(self.delegable) && !has(self.expirationTime))",message="a grant of type BreakGlass has neither delegable nor expirationTime: it is opened by a Delegation, which has an end"
type GrantSpec struct {
	GrantTerms `json:",inline"`
	// grantType: Standard, or BreakGlass for an envelope that is opened in an emergency.
	// +optional
	// +nullable
	// +kubebuilder:default=Standard
	GrantType *GrantType `json:"grantType,omitempty"`
	// maxDurationSeconds bounds how long a Delegation that opens this BreakGlass grant lasts; at most four hours.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=14400
	MaxDurationSeconds *int64 `json:"maxDurationSeconds,omitempty"`

	// Raw is the spec as the apiserver sent it: what is judged. It is not part of the API.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the exact bytes beside the typed fields, and refuses nothing: the kernel judges Raw.
func (s *GrantSpec) UnmarshalJSON(data []byte) error {
	type plain GrantSpec
	var p plain
	_ = json.Unmarshal(data, &p)
	*s = GrantSpec(p)
	s.Raw = append([]byte(nil), data...)
	return nil
}

// GrantTerms are what a Grant and a Delegation have in common.
type GrantTerms struct {
	// subject is who may propose.
	Subject GrantSubject `json:"subject"`
	// actions are patterns of action types: stripe.refund, stripe.*, stripe.**.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Actions []string `json:"actions"`
	// resources are patterns of resources, such as payment:EU-*. An action without a resource is outside of them.
	// Default: any, and none.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	Resources []string `json:"resources,omitempty"`
	// constraints map "<argument>_<operator>" to an operand, as when does in a policy; all must hold.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Constraints *apiextensionsv1.JSON `json:"constraints,omitempty"`
	// environments are exact names. Default: any.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Environments []string `json:"environments,omitempty"`
	// expirationTime is the last moment it holds. Default: never.
	// +optional
	// +nullable
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
	// delegable lets the subject hand on what is here or less, by a Delegation. Default false.
	// +optional
	// +nullable
	Delegable *bool `json:"delegable,omitempty"`
}

// GrantSubject matches principals. At least one of agent and user is given.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.agent) || has(self.user)",message="give agent, user or both: a subject that names nobody would be everybody"
type GrantSubject struct {
	// agent is a user name, such as system:serviceaccount:payments:refund-agent; a * at its end stands for any characters.
	// Left out: any agent.
	// +optional
	// +nullable
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Agent *string `json:"agent,omitempty"`
	// user on whose behalf the agent acts, likewise. Given, an agent that acts for itself does not match. Left out: anybody,
	// and nobody.
	// +optional
	// +nullable
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	User *string `json:"user,omitempty"`
}

// GrantStatus is the operator's judgement.
type GrantStatus struct {
	// observedGeneration is the generation this status speaks of; -1: none yet.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready (valid and in force), Stalled (invalid: only an edit helps), Expired. A grant that has expired stays
	// Ready: it is as it was written.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GrantList is a list of Grant.
// +kubebuilder:object:root=true
type GrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Grant `json:"items"`
}
