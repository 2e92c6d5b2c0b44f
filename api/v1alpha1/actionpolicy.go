package v1alpha1

import (
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ActionPolicy says how much autonomy each action has in its namespace: allow, approve or deny, by the first rule that
// matches. An action no policy names is denied.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=actionpolicies,shortName=apol,categories=ctrlrun
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Actions",type=integer,JSONPath=`.status.actionCount`
// +kubebuilder:printcolumn:name="Warnings",type=integer,JSONPath=`.status.warningCount`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Rules",type=string,priority=1,JSONPath=`.status.rulesHash`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ActionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy. Keys it does not know are refused, not ignored.
	Spec ActionPolicySpec `json:"spec"`
	// status is written by the operator: whether the policy is valid and in force.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status ActionPolicyStatus `json:"status,omitempty"`
}

// ActionPolicySpec is, key for key, what a ctrlrun policy document holds.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ActionPolicySpec struct {
	// version is free text, recorded in receipts and never interpreted: a Git revision, a change number.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=128
	Version *string `json:"version,omitempty"`
	// actions maps an action type, matched exactly, to its entry. Several policies of a namespace form a union; an action
	// defined differently twice is denied.
	// +kubebuilder:validation:MaxProperties=64
	Actions map[string]ActionEntry `json:"actions"`

	// Raw is the spec as the apiserver sent it, so that the operator judges what is stored, not what this Go type keeps of
	// it. It is not part of the API.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the exact bytes beside the typed fields. It never refuses what the typed fields cannot hold: one
// malformed policy must not stop the operator from reading the others; the kernel judges Raw.
func (s *ActionPolicySpec) UnmarshalJSON(data []byte) error {
	type plain ActionPolicySpec
	var p plain
	_ = json.Unmarshal(data, &p)
	*s = ActionPolicySpec(p)
	s.Raw = append([]byte(nil), data...)
	return nil
}

// ActionEntry says who may do one action: exactly one of decision and rules.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.decision) != has(self.rules)",message="give either decision or rules, not both and not neither"
type ActionEntry struct {
	// decision for every proposal of this action: allow, approve or deny.
	// +optional
	// +nullable
	Decision *PolicyDecision `json:"decision,omitempty"`
	// rules are tried from top to bottom; the first that matches decides. If none matches the action is denied.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Rules []ActionRule `json:"rules,omitempty"`
	// effect is the template of the effect key, such as "refund:{payment_id}". Two proposals with the same key are the same
	// effect, and at most one of them is executed at a time. Without it there is no protection against duplicates.
	// +optional
	// +nullable
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^([^{}]|\{[A-Za-z_][A-Za-z0-9_]*\})+$`
	Effect *string `json:"effect,omitempty"`
	// resource is the template of the resource, such as "payment:{payment_id}". It overrides the resource an agent names,
	// and is part of the hash.
	// +optional
	// +nullable
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^([^{}]|\{[A-Za-z_][A-Za-z0-9_]*\})+$`
	Resource *string `json:"resource,omitempty"`
	// mcp holds options of the MCP gateway for this action.
	// +optional
	// +nullable
	MCP *MCPOptions `json:"mcp,omitempty"`
	// approvalTTLSeconds bounds how long an approval request may be answered, and how long an approved action may wait to
	// be claimed. Default: the namespace's Settings.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	ApprovalTTLSeconds *int64 `json:"approvalTTLSeconds,omitempty"`
	// approvalsRequired is how many different people must say yes. Default 1.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	ApprovalsRequired *int64 `json:"approvalsRequired,omitempty"`
	// approverGroups are groups of which an approver has to be in one, beside the right to approve. They are pinned when
	// people are asked. Default: whoever may approve is asked.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	ApproverGroups []string `json:"approverGroups,omitempty"`
	// maxAttempts is how many attempts of one effect may be executed, the first included. Default: no limit.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxAttempts *int64 `json:"maxAttempts,omitempty"`
	// resolutionsRequired is how many different people must say the same of an effect that nobody knows of before it is
	// settled. It is pinned with each attempt. Default 1.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	ResolutionsRequired *int64 `json:"resolutionsRequired,omitempty"`
}

// PolicyDecision is allow, approve or deny.
// +kubebuilder:validation:Enum=allow;approve;deny
type PolicyDecision string

// ActionRule decides if its conditions hold.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ActionRule struct {
	// when maps "<argument>_<operator>" to an operand; all must hold. Operators: eq neq lt lte gt gte in. An argument that
	// is missing makes its condition false, neq included. A rule without when always matches.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	When *apiextensionsv1.JSON `json:"when,omitempty"`
	// decision if the rule matches: allow, approve or deny.
	Decision PolicyDecision `json:"decision"`
}

// MCPOptions are the options of the MCP gateway for one action.
//
// +kubebuilder:pruning:PreserveUnknownFields
type MCPOptions struct {
	// not_executed_on_error: an error result of the tool means that nothing was executed.
	// +optional
	// +nullable
	NotExecutedOnError *bool `json:"not_executed_on_error,omitempty"`
}

// ActionPolicyStatus is the operator's judgement.
type ActionPolicyStatus struct {
	// observedGeneration is the generation this status speaks of. The policy of that generation is in force; -1: none yet.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready (valid and in force), Stalled (invalid: only an edit helps).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// rulesHash is the hash of the actions, so that two clusters can be compared.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	RulesHash string `json:"rulesHash,omitempty"`
	// actionCount is how many actions the policy names.
	// +optional
	ActionCount int64 `json:"actionCount"`
	// warningCount is how many warnings there are.
	// +optional
	WarningCount int64 `json:"warningCount"`
	// warnings are valid but suspicious: a write without an effect template, a rule that never matches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=512
	Warnings []string `json:"warnings,omitempty"`
	// effectTemplates are the effect templates last in force, by action, so that a change of one can be warned about.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	EffectTemplates map[string]string `json:"effectTemplates,omitempty"`
}

// ActionPolicyList is a list of ActionPolicy.
// +kubebuilder:object:root=true
type ActionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ActionPolicy `json:"items"`
}
