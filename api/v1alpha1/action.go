package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Action is an agent's statement "I want to do exactly this". The operator decides, and admits at most one process to
// execute it. Nobody may execute an Action that is not Admitted with a claimID of their own.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=actions,shortName=act,categories=ctrlrun
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:selectablefield:JSONPath=`.status.receiptRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.actionType`
// +kubebuilder:selectablefield:JSONPath=`.spec.principal.agent`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 100",message="the name of an Action has at most 100 characters: names of its statements are built from it"
// +kubebuilder:validation:XValidation:rule="has(self.status) || !has(oldSelf.status)",message="the status of an Action is never removed"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.actionType`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.principal.agent`
// +kubebuilder:printcolumn:name="Votes",type=string,JSONPath=`.status.approval.votes`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expirationTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Hash",type=string,priority=1,JSONPath=`.status.actionHash`
// +kubebuilder:printcolumn:name="Key",type=string,priority=1,JSONPath=`.status.effect.key`
// +kubebuilder:printcolumn:name="Token",type=string,priority=1,JSONPath=`.status.execution.token`
// +kubebuilder:printcolumn:name="Lease",type=string,priority=1,JSONPath=`.status.execution.leaseExpirationTime`
type Action struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is proposed. It never changes.
	Spec ActionSpec `json:"spec"`
	// status is what the operator concluded.
	// +optional
	// +kubebuilder:default={state: Pending}
	Status ActionStatus `json:"status,omitempty"`
}

// ActionSpec is the exact proposal.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an Action never changes: propose a new one"
type ActionSpec struct {
	// actionType names what is done, such as "stripe.refund". It is matched exactly against the policies.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ActionType string `json:"actionType"`
	// arguments, an object of strings, integers, booleans, nulls, lists and objects. No fractions: use minor units or a
	// string. At most 64 KiB and 32 levels.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XPreserveUnknownFields
	Arguments apiextensionsv1.JSON `json:"arguments,omitempty"`
	// resource acted on, "type:id". A resource template of the policy overrides it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Resource *string `json:"resource,omitempty"`
	// principal is who proposes. It is stamped by the apiserver and cannot be chosen.
	// +optional
	Principal Principal `json:"principal,omitempty"`
	// claimID says "this process is here and executes if allowed": a random lower-case UUID, one per process and call. It
	// admits by itself only within 30 seconds of the Action's creation. Without it, and after waiting for an approval, a
	// Claim is needed.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	ClaimID string `json:"claimID,omitempty"`
	// leaseDurationSeconds is how long the executing process has before its effect becomes Ambiguous. It is never extended.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=604800
	LeaseDurationSeconds int64 `json:"leaseDurationSeconds,omitempty"`
	// notAfter: an Action that is not reserved by then is Expired, and one that the operator executes and has not begun by then is
	// Failed, so that a restored backup does not act.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// preconditions are parts of Kubernetes objects that have to be, when the effect is reserved, what they were when the Action
	// began to wait. They narrow a window and close none: what changes afterwards is not noticed. Recorded, never hashed.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:XValidation:rule="!(self.apiVersion == 'v1' && self.kind == 'Secret')",message="a Secret is no precondition: the fingerprint of a short secret can be guessed"
	Preconditions []Precondition `json:"preconditions,omitempty"`
}

// Precondition names one part of one object of the Action's namespace, or of a cluster-scoped one. The agent has to have the right
// to get that object, and so has the operator.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Precondition struct {
	// apiVersion of the object, such as "apps/v1".
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+$`
	APIVersion string `json:"apiVersion"`
	// kind of the object, such as "Deployment".
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`
	// name of the object.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._:@-]*[A-Za-z0-9])?$`
	Name string `json:"name"`
	// pointer to the part, a JSON pointer (RFC 6901) such as "/spec/replicas".
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(/([^/~[:cntrl:]]|~[01])*)+$`
	Pointer string `json:"pointer"`
}

// Principal is who proposes, and on whose behalf.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Principal struct {
	// agent is the authenticated user name of whoever created the Action.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Agent string `json:"agent,omitempty"`
	// user on whose behalf the agent acts. Needs the verb represent on this name of the virtual resource users.ctrlrun.dev.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	User *string `json:"user,omitempty"`
	// expiresTime is the last moment of the agent's credential, as the agent says. It only narrows: what is not admitted by then
	// is refused. Recorded, never hashed.
	// +optional
	// +nullable
	ExpiresTime *metav1.Time `json:"expiresTime,omitempty"`
	// claims are what the apiserver knew about the agent at creation. Recorded, never hashed.
	// +optional
	Claims *IdentityClaims `json:"claims,omitempty"`
}

// ActionState is where an Action stands. Terminal states never change.
// +kubebuilder:validation:Enum=Pending;AwaitingApproval;Claimable;Admitted;Committed;Failed;Ambiguous;Observed;Denied;Blocked;Expired
type ActionState string

const (
	// ActionPending: not decided yet, or held; reason says why.
	ActionPending ActionState = "Pending"
	// ActionAwaitingApproval: people are asked for this exact hash.
	ActionAwaitingApproval ActionState = "AwaitingApproval"
	// ActionClaimable: decided for; waiting for a process that says it is here.
	ActionClaimable ActionState = "Claimable"
	// ActionAdmitted: the process that holds execution.claimID may execute, once.
	ActionAdmitted ActionState = "Admitted"
	// ActionCommitted: the effect happened, as stated by its executor.
	ActionCommitted ActionState = "Committed"
	// ActionFailed: nothing happened, as stated by its executor.
	ActionFailed ActionState = "Failed"
	// ActionAmbiguous: nobody knows; a person resolves the effect.
	ActionAmbiguous ActionState = "Ambiguous"
	// ActionObserved: it ran in observe mode.
	ActionObserved ActionState = "Observed"
	// ActionDenied: policy or a person said no. Nothing was executed.
	ActionDenied ActionState = "Denied"
	// ActionBlocked: allowed, but its effect or the system refused it. Nothing was executed.
	ActionBlocked ActionState = "Blocked"
	// ActionExpired: out of time before it was admitted. Nothing was executed.
	ActionExpired ActionState = "Expired"
)

// Terminal reports whether s is final.
func (s ActionState) Terminal() bool {
	switch s {
	case ActionCommitted, ActionFailed, ActionAmbiguous, ActionObserved, ActionDenied, ActionBlocked, ActionExpired:
		return true
	}
	return false
}

// ActionStatus is what the operator concluded. What is said of one field stands at that field: the apiserver looks up a field
// of a large object anew each time a rule names it.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.actionHash) || has(self.actionHash)",message="actionHash is written once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.firstSeq) || has(self.firstSeq)",message="firstSeq is written once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approval) || has(self.approval)",message="what people were asked is written once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.effect) || has(self.effect)",message="the effect is written once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.wouldHave) || has(self.wouldHave)",message="wouldHave is written once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.preconditions) || has(self.preconditions)",message="a fingerprint is written once"
// +kubebuilder:validation:XValidation:rule="has(self.outcome) == (self.state == 'Observed')",message="outcome is present exactly when Observed"
// +kubebuilder:validation:XValidation:rule="!has(self.wouldHave) || has(oldSelf.wouldHave) || !has(oldSelf.execution)",message="wouldHave is written by the admission"
// +kubebuilder:validation:XValidation:rule="self.state != 'Observed' || has(self.wouldHave)",message="only an Action that was admitted in observe mode is Observed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.observation) || has(self.observation)",message="an observation is written once"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.observation) || !has(self.observation) || !has(self.observation.answer)",message="an observation begins before it is answered"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.suspension) || has(self.suspension)",message="a suspension stays on record"
// +kubebuilder:validation:XValidation:rule="!has(self.suspension) || self.state in ['Admitted','Committed','Failed','Ambiguous','Observed']",message="only an executor that was admitted asks back"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.receiptRef) || has(self.receiptRef)",message="receiptRef is written once"
// +kubebuilder:validation:XValidation:rule="has(self.execution) == (self.state in ['Admitted','Committed','Failed','Ambiguous','Observed'])",message="execution is present exactly from Admitted on"
// +kubebuilder:validation:XValidation:rule="!has(self.receiptRef) || self.state in ['Committed','Failed','Ambiguous','Observed','Denied','Blocked','Expired']",message="only a finished Action has a receipt"
// +kubebuilder:validation:XValidation:rule="!(oldSelf.state in ['Committed','Failed','Ambiguous','Observed','Denied','Blocked','Expired']) || (has(self.reason) == has(oldSelf.reason) && (!has(self.reason) || self.reason == oldSelf.reason))",message="the reason of a terminal state never changes"
type ActionStatus struct {
	// state is the one word for people and selectors. Conditions carry the rest.
	// +optional
	// +kubebuilder:default=Pending
	// +kubebuilder:validation:XValidation:rule="!(oldSelf in ['Committed','Failed','Ambiguous','Observed','Denied','Blocked','Expired']) || self == oldSelf",message="a terminal state never changes"
	// +kubebuilder:validation:XValidation:rule="oldSelf != 'Admitted' || self in ['Admitted','Committed','Failed','Ambiguous','Observed']",message="an admitted Action ends Committed, Failed, Ambiguous or Observed"
	// +kubebuilder:validation:XValidation:rule="oldSelf in ['Admitted','Committed','Failed','Ambiguous','Observed'] || !(self in ['Committed','Failed','Ambiguous','Observed'])",message="only an admitted Action has an outcome"
	State ActionState `json:"state,omitempty"`
	// reason is a machine word of a closed list: why it is in this state.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message says what happened, why, and what to do now.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// conditions: Decided, Admitted, Finished, and Resolved once a Resolution settled its effect.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// firstSeq is a seq of the chain not above its head when this status was first written: the receipt of this Action is
	// never before it. Written once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="firstSeq is written once"
	FirstSeq *int64 `json:"firstSeq,omitempty"`
	// actionHash of the canonical action: what an approval binds to.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="actionHash is written once"
	ActionHash string `json:"actionHash,omitempty"`
	// decision of the policy: Allow, RequireApproval or Deny.
	// +optional
	// +kubebuilder:validation:Enum=Allow;RequireApproval;Deny
	Decision ActionDecision `json:"decision,omitempty"`
	// decisionReason is the rule that decided, such as "rule[1]".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DecisionReason string `json:"decisionReason,omitempty"`
	// resource that was hashed: the policy's, or else the agent's.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Resource *string `json:"resource,omitempty"`
	// environment that was hashed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Environment string `json:"environment,omitempty"`
	// policyRef is the policy that decided.
	// +optional
	PolicyRef *PolicyReference `json:"policyRef,omitempty"`
	// rulesHash is the hash of everything that decides in the namespace, as it was at the decision: the parsed actions of all
	// policies, the settings and the environment.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	RulesHash string `json:"rulesHash,omitempty"`
	// authority is the Grant or Delegation that lets its principal propose it. Absent: Settings require none, or there is none.
	// +optional
	Authority *AuthorityReference `json:"authority,omitempty"`
	// executor executes it for the operator, once it is admitted. Absent: its agent does. Pinned when people are asked: an action
	// of which the Executor changed since ends Blocked, or, if it was admitted, Failed (executor_changed).
	// +optional
	Executor *ExecutorReference `json:"executor,omitempty"`
	// effect is the logical effect this Action wants to cause. Absent: its policy names none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.key == oldSelf.key && self.name == oldSelf.name && (!has(oldSelf.attempt) || (has(self.attempt) && self.attempt == oldSelf.attempt))",message="the effect is written once"
	Effect *ActionEffect `json:"effect,omitempty"`
	// approval is what people are asked. Pinned once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.required == oldSelf.required && self.requestTime == oldSelf.requestTime && self.expirationTime == oldSelf.expirationTime && has(self.approverGroups) == has(oldSelf.approverGroups) && (!has(self.approverGroups) || self.approverGroups == oldSelf.approverGroups)",message="what people were asked is written once"
	Approval *ActionApproval `json:"approval,omitempty"`
	// preconditions are the fingerprints of what spec.preconditions name.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(oldSelf.atRequest) || (has(self.atRequest) && self.atRequest == oldSelf.atRequest)) && (!has(oldSelf.atRecheck) || (has(self.atRecheck) && self.atRecheck == oldSelf.atRecheck))",message="a fingerprint is written once"
	Preconditions *ActionPreconditions `json:"preconditions,omitempty"`
	// expirationTime is when the wait of the present state ends: of people's answer, of a Claim, or of the lease.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
	// claimableTime is when this Action became Claimable. A Claim quotes it.
	// +optional
	ClaimableTime *metav1.MicroTime `json:"claimableTime,omitempty"`
	// claimExpirationTime is until when a Claim may be made; an Action unclaimed by then is Expired.
	// +optional
	ClaimExpirationTime *metav1.MicroTime `json:"claimExpirationTime,omitempty"`
	// execution is who may execute. Written once, by the write that admits.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an Action is admitted once: execution never changes"
	Execution *ActionExecution `json:"execution,omitempty"`
	// wouldHave is what enforcing would have done. Written by the admission, and only while the mode is Observe.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="wouldHave is written once"
	WouldHave *ActionWouldHave `json:"wouldHave,omitempty"`
	// outcome is how an Observed Action ended: Committed, Failed or Ambiguous.
	// +optional
	// +kubebuilder:validation:Enum=Committed;Failed;Ambiguous
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="outcome is written once"
	Outcome ActionState `json:"outcome,omitempty"`
	// suspension is how its executor asked back, as the Effect says: whoever goes on needs what is in it.
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`
	// observation is the one look that was made for this Action at what became of an effect nobody knew of. Its start is written before
	// anybody is asked, and its answer once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.id == oldSelf.id && self.executor == oldSelf.executor && self.attempt == oldSelf.attempt && self.effectUID == oldSelf.effectUID && self.moment == oldSelf.moment && self.startTime == oldSelf.startTime && self.expirationTime == oldSelf.expirationTime",message="an observation begins once"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.answer) || self == oldSelf",message="an observation is answered once"
	Observation *ActionObservation `json:"observation,omitempty"`
	// receiptRef is the proof. Present: the Action is finished.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="receiptRef is written once"
	ReceiptRef *ReceiptReference `json:"receiptRef,omitempty"`
	// finishTime is when the terminal state was written.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
	// timeline is what happened to it, in order. Of more than 32 events those in the middle are left out; their numbers are
	// missing. It is for people: nothing is decided by it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Timeline []TimelineEvent `json:"timeline,omitempty"`
}

// ObservationAnswer is what an observer says.
// +kubebuilder:validation:Enum=Committed;NotExecuted;Unknown
type ObservationAnswer string

// ActionObservation is a look at what became of an effect.
//
// +kubebuilder:validation:XValidation:rule="has(self.answer) == has(self.finishTime)",message="an answer has its time"
type ActionObservation struct {
	// executor that was asked.
	Executor ExecutorReference `json:"executor"`
	// effectUID is the uid of the Effect that was asked about.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	EffectUID types.UID `json:"effectUID"`
	// attempt that was asked about.
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`
	// moment: Blocking, when this Action met what nobody knew of; or Eager, when its own attempt had just ended so.
	// +kubebuilder:validation:Enum=Blocking;Eager
	Moment string `json:"moment"`
	// id is known to the one process that asks.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// startTime is when it began.
	StartTime metav1.MicroTime `json:"startTime"`
	// expirationTime: an answer that is not here by then is lost, which is Unknown.
	ExpirationTime metav1.MicroTime `json:"expirationTime"`
	// answer: Committed, NotExecuted or Unknown.
	// +optional
	Answer ObservationAnswer `json:"answer,omitempty"`
	// message says why it is Unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// finishTime is when the answer was written.
	// +optional
	FinishTime *metav1.MicroTime `json:"finishTime,omitempty"`
}

// TimelineEvent is one thing that happened to an Action.
type TimelineEvent struct {
	// seq counts the events of this Action from 1.
	// +kubebuilder:validation:Minimum=1
	Seq int64 `json:"seq"`
	// time by the operator's clock; of the proposal, by the apiserver's.
	Time metav1.MicroTime `json:"time"`
	// type is a word of the closed vocabulary, such as EXECUTION_COMMITTED.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Z_]+$`
	Type string `json:"type"`
	// data of the event, by snake_case key.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Data map[string]TimelineText `json:"data,omitempty"`
}

// TimelineText is one value of an event's data.
// +kubebuilder:validation:MaxLength=256
type TimelineText string

// ActionDecision is what the policy said.
type ActionDecision string

// The decisions of a policy.
const (
	DecisionAllow           ActionDecision = "Allow"
	DecisionRequireApproval ActionDecision = "RequireApproval"
	DecisionDeny            ActionDecision = "Deny"
)

// PolicyReference names the policy that decided, as it was then.
type PolicyReference struct {
	// name of the ActionPolicy.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// generation of it that decided.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// rulesHash of that generation.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	RulesHash string `json:"rulesHash,omitempty"`
	// version, as the policy says it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`
}

// ExecutorReference names an Executor, and how it executes.
type ExecutorReference struct {
	// name of the Executor.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// hash of its spec.
	// +kubebuilder:validation:MaxLength=71
	Hash string `json:"hash"`
}

// AuthorityReference names what lets a principal propose.
type AuthorityReference struct {
	// kind: Grant or Delegation.
	Kind ParentKind `json:"kind"`
	// name of it.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// root is the name of the Grant that its chain begins at: of a Grant, its own.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Root string `json:"root,omitempty"`
	// breakGlass says that it rests on a BreakGlass grant that was opened for an emergency.
	// +optional
	BreakGlass bool `json:"breakGlass,omitempty"`
}

// ActionEffect names the effect and, once admitted, the attempt.
type ActionEffect struct {
	// name of the Effect.
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name"`
	// key of the effect.
	// +kubebuilder:validation:MaxLength=4096
	Key string `json:"key"`
	// attempt this Action was admitted for.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt,omitempty"`
}

// ActionApproval is what people are asked, and how many said yes.
type ActionApproval struct {
	// required is how many different people must approve: the larger of this and what the policy says by then.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Required int64 `json:"required"`
	// approverGroups are groups of which an approver has to be in one. Absent: whoever may approve is asked.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	ApproverGroups []string `json:"approverGroups,omitempty"`
	// counted is how many approvals count so far.
	// +optional
	Counted int64 `json:"counted"`
	// votes is counted/required, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Votes string `json:"votes,omitempty"`
	// requestTime is when they were asked.
	RequestTime metav1.Time `json:"requestTime"`
	// expirationTime is until when an answer counts.
	ExpirationTime metav1.Time `json:"expirationTime"`
}

// ExecutionMode is who executes.
// +kubebuilder:validation:Enum=Agent;Operator
type ExecutionMode string

const (
	// ExecutionModeAgent: the agent executes and reports by an Outcome.
	ExecutionModeAgent ExecutionMode = "Agent"
	// ExecutionModeOperator: the operator executes by an Executor.
	ExecutionModeOperator ExecutionMode = "Operator"
)

// ActionExecution names the one process that may execute.
type ActionExecution struct {
	// mode: Agent or Operator.
	Mode ExecutionMode `json:"mode"`
	// claimID of the process that may execute. Whoever holds another must not.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClaimID string `json:"claimID,omitempty"`
	// claimRef is the Claim that carried it; absent if the Action did.
	// +optional
	ClaimRef *ObjectReference `json:"claimRef,omitempty"`
	// token to send along as idempotency key: the same for one effect and attempt, another for the next. Absent without an
	// effect.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token,omitempty"`
	// leaseExpirationTime: an attempt not reported by then becomes Ambiguous.
	LeaseExpirationTime metav1.MicroTime `json:"leaseExpirationTime"`
	// admissionTime is when it was admitted, by the operator's clock.
	AdmissionTime metav1.MicroTime `json:"admissionTime"`
	// approvals that were spent by this admission.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Approvals []SpentApproval `json:"approvals,omitempty"`
}

// SpentApproval is one approval that counted for an admission.
type SpentApproval struct {
	// name of the Approval.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the Approval.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// approver who said yes.
	// +kubebuilder:validation:MaxLength=512
	Approver string `json:"approver"`
	// groups of the approver at that time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Groups []string `json:"groups,omitempty"`
	// time of the approval.
	Time metav1.Time `json:"time"`
	// reason the approver gave.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// rulesHash of everything that decided in the namespace when the approval was accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	RulesHash string `json:"rulesHash,omitempty"`
}

// ActionPreconditions are fingerprints: SHA-256 over the named parts in canonical form. What the parts hold is nowhere written.
type ActionPreconditions struct {
	// atRequest is what they were when the Action began to wait, for people or for a Claim. Absent: it did not wait.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	AtRequest string `json:"atRequest,omitempty"`
	// atRecheck is what they were right before its effect was reserved, or would have been.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	AtRecheck string `json:"atRecheck,omitempty"`
}

// ActionWouldHave is what enforcing would have done with an observed Action.
type ActionWouldHave struct {
	// decision that would have counted: Allow, RequireApproval or Deny.
	// +kubebuilder:validation:Enum=Allow;RequireApproval;Deny
	Decision ActionDecision `json:"decision"`
	// reason of that decision.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// blockedReason is the first reason for which it would not have run, or not yet. Absent: it would have run.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BlockedReason string `json:"blockedReason,omitempty"`
}

// ActionList is a list of Action.
// +kubebuilder:object:root=true
type ActionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Action `json:"items"`
}
