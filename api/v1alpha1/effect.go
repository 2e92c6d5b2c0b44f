package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Effect is the record of one logical effect in its namespace: refund txn_1, delete namespace x. Its name is computed from
// the key, so that creating it is the reservation: the apiserver lets exactly one creation succeed. It is never deleted,
// and its rules hold against the operator too.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=effects,shortName=eff,categories=ctrlrun
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="!oldSelf.hasValue() || self.spec == oldSelf.value().spec",message="the key of an Effect never changes"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || !has(self.status) || self.status.state != 'Failed'",message="an Effect is never created Failed: that would free its key"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="!oldSelf.hasValue() || !has(oldSelf.value().status) || has(self.status)",message="the status of an Effect is never removed"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="!oldSelf.hasValue() || has(oldSelf.value().status) || !has(self.status) || (self.status.state == 'Ambiguous' && has(self.status.cause) && self.status.cause == 'StatusMissing')",message="an Effect whose status was lost can only become Ambiguous with cause StatusMissing"
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.spec.key`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.attempt`
// +kubebuilder:printcolumn:name="Cause",type=string,JSONPath=`.status.cause`
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.status.holder.name`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.lastTransitionTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Late Outcome",type=string,priority=1,JSONPath=`.status.lateOutcomeRef.name`
// +kubebuilder:printcolumn:name="Token",type=string,priority=1,JSONPath=`.status.token`
// +kubebuilder:printcolumn:name="Lease",type=string,priority=1,JSONPath=`.status.leaseExpirationTime`
type Effect struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the effect. It never changes.
	Spec EffectSpec `json:"spec"`
	// status is the record. It is part of the object, not a subresource, so that one request creates both.
	// +optional
	Status *EffectStatus `json:"status,omitempty"`
}

// EffectSpec names the effect.
type EffectSpec struct {
	// key of the effect, in full.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Key string `json:"key"`
}

// EffectState is what is known of the effect.
// +kubebuilder:validation:Enum=Reserved;Executing;Committed;Failed;Ambiguous
type EffectState string

const (
	// EffectReserved: taken for one Action that the operator will execute.
	EffectReserved EffectState = "Reserved"
	// EffectExecuting: one admitted process may be executing it.
	EffectExecuting EffectState = "Executing"
	// EffectCommitted: it happened. Final.
	EffectCommitted EffectState = "Committed"
	// EffectFailed: the last attempt did not happen. A new Action may try again.
	EffectFailed EffectState = "Failed"
	// EffectAmbiguous: nobody knows whether it happened. Only a Resolution moves it on.
	EffectAmbiguous EffectState = "Ambiguous"
)

// EffectCause is why an Effect is Ambiguous.
// +kubebuilder:validation:Enum=LeaseLapsed;ReportedUnknown;ExecutorLost;StatusMissing;OutcomeNotAccepted
type EffectCause string

const (
	// CauseLeaseLapsed: no report before the lease was over.
	CauseLeaseLapsed EffectCause = "LeaseLapsed"
	// CauseReportedUnknown: the executor itself does not know.
	CauseReportedUnknown EffectCause = "ReportedUnknown"
	// CauseExecutorLost: the operator's executor died while it acted.
	CauseExecutorLost EffectCause = "ExecutorLost"
	// CauseStatusMissing: the record lost its status, or was lost itself, as a restore can do.
	CauseStatusMissing EffectCause = "StatusMissing"
	// CauseOutcomeNotAccepted: somebody else's Outcome held the lock.
	CauseOutcomeNotAccepted EffectCause = "OutcomeNotAccepted"
)

// EffectStatus is the record.
//
// +kubebuilder:validation:XValidation:rule="(has(self.holder) && has(self.token)) || (has(self.cause) && self.cause == 'StatusMissing')",message="holder and token are required"
// +kubebuilder:validation:XValidation:rule="self.state != 'Ambiguous' || has(self.cause)",message="an Ambiguous effect has a cause"
// +kubebuilder:validation:XValidation:rule="!has(self.cause) || self.state in ['Ambiguous','Committed','Failed']",message="only an effect that is or was Ambiguous has a cause"
// +kubebuilder:validation:XValidation:rule="!has(self.resolution) || self.state in ['Committed','Failed']",message="only a settled effect has a resolution"
// +kubebuilder:validation:XValidation:rule="!(self.state in ['Reserved','Executing']) || !(has(self.output) || has(self.error))",message="an attempt that is not over has neither output nor error"
// +kubebuilder:validation:XValidation:rule="self.state != oldSelf.state || (self.attempt == oldSelf.attempt && has(self.holder) == has(oldSelf.holder) && (!has(self.holder) || self.holder == oldSelf.holder) && has(self.token) == has(oldSelf.token) && (!has(self.token) || self.token == oldSelf.token) && has(self.nonce) == has(oldSelf.nonce) && (!has(self.nonce) || self.nonce == oldSelf.nonce || (self.state == 'Executing' && has(self.suspension) && has(oldSelf.suspension) && self.suspension != oldSelf.suspension)) && has(self.leaseExpirationTime) == has(oldSelf.leaseExpirationTime) && (!has(self.leaseExpirationTime) || self.leaseExpirationTime == oldSelf.leaseExpirationTime || (self.state == 'Executing' && has(self.suspension) && self.leaseExpirationTime == self.suspension.expirationTime && (!has(oldSelf.suspension) || self.suspension.round == oldSelf.suspension.round + 1))) && has(self.output) == has(oldSelf.output) && (!has(self.output) || self.output == oldSelf.output) && has(self.error) == has(oldSelf.error) && (!has(self.error) || self.error == oldSelf.error) && has(self.resolution) == has(oldSelf.resolution) && (!has(self.resolution) || self.resolution == oldSelf.resolution) && has(self.loss) == has(oldSelf.loss) && (!has(self.loss) || self.loss == oldSelf.loss) && has(self.resolutionsRequired) == has(oldSelf.resolutionsRequired) && (!has(self.resolutionsRequired) || self.resolutionsRequired == oldSelf.resolutionsRequired))",message="attempt, holder, token, nonce, lease, output, error, resolution and resolutionsRequired change only with the state, and nonce and lease when an executor asks back or is gone on with"
// +kubebuilder:validation:XValidation:rule="(has(self.suspension) == has(oldSelf.suspension) && (!has(self.suspension) || self.suspension == oldSelf.suspension)) || (self.state == 'Executing' && oldSelf.state == 'Executing' && has(self.suspension) && (has(oldSelf.suspension) || self.suspension.round == 1)) || (oldSelf.state == 'Failed' && self.state != 'Failed' && !has(self.suspension))",message="an executor asks back while it is executing, for the first time in round 1, and a new attempt has nothing of it"
// +kubebuilder:validation:XValidation:rule="!has(self.suspension) || !has(oldSelf.suspension) || (self.suspension.round == oldSelf.suspension.round && (has(self.nonce) == has(oldSelf.nonce) && (!has(self.nonce) || self.nonce == oldSelf.nonce) || (has(self.suspension.continued) ? size(self.suspension.continued) : 0) > (has(oldSelf.suspension.continued) ? size(oldSelf.suspension.continued) : 0))) || (self.suspension.round == oldSelf.suspension.round + 1 && has(oldSelf.suspension.continued) && has(self.suspension.continued) && size(oldSelf.suspension.continued) == oldSelf.suspension.round && self.suspension.continued == oldSelf.suspension.continued && has(self.nonce) == has(oldSelf.nonce) && (!has(self.nonce) || self.nonce == oldSelf.nonce))",message="an executor asks back again once somebody has gone on, and only who goes on has another nonce"
// +kubebuilder:validation:XValidation:rule="!(oldSelf.state == 'Executing' && has(oldSelf.suspension) && self.state == 'Failed') || (size(self.history) > 0 && self.history[size(self.history) - 1].result == 'not_executed')",message="an attempt whose executor asked back had begun"
// +kubebuilder:validation:XValidation:rule="oldSelf.state != 'Failed' || self.state == 'Failed' || (self.attempt == oldSelf.attempt + 1 && has(self.holder) && has(self.token) && (!has(oldSelf.holder) || self.holder.uid != oldSelf.holder.uid) && !has(self.resolution) && !has(self.cause) && !has(self.lateOutcomeRef))",message="a new attempt has the next number, another holder, and nothing of the last one"
// +kubebuilder:validation:XValidation:rule="oldSelf.state == 'Failed' || (self.attempt == oldSelf.attempt && has(self.holder) == has(oldSelf.holder) && (!has(self.holder) || self.holder == oldSelf.holder) && has(self.token) == has(oldSelf.token) && (!has(self.token) || self.token == oldSelf.token) && has(self.resolutionsRequired) == has(oldSelf.resolutionsRequired) && (!has(self.resolutionsRequired) || self.resolutionsRequired == oldSelf.resolutionsRequired))",message="an attempt keeps its number, holder, token and resolutionsRequired"
// +kubebuilder:validation:XValidation:rule="!(oldSelf.state == 'Ambiguous' && self.state in ['Committed','Failed']) || has(self.resolution)",message="an Ambiguous effect moves on only by a Resolution"
// +kubebuilder:validation:XValidation:rule="!(oldSelf.state in ['Reserved','Executing']) || !has(self.resolution)",message="only an Ambiguous effect is resolved"
// +kubebuilder:validation:XValidation:rule="oldSelf.state != 'Ambiguous' || !has(self.resolution) || !has(self.resolutionsRequired) || self.resolutionsRequired < 2 || (has(self.resolution.resolvers) && size(self.resolution.resolvers) >= self.resolutionsRequired)",message="as many people as the attempt asked for have to say the same"
type EffectStatus struct {
	// state is the one word.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || (oldSelf == 'Failed' && self in ['Reserved','Executing']) || (oldSelf == 'Reserved' && self in ['Executing','Failed']) || (oldSelf == 'Executing' && self in ['Committed','Failed','Ambiguous']) || (oldSelf == 'Ambiguous' && self in ['Committed','Failed'])",message="no such transition of an Effect"
	State EffectState `json:"state"`
	// attempt counts from 1; a new Action for a Failed effect is the next attempt.
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`
	// startedAttempts is how many attempts were admitted and not provably never begun: what maxAttempts counts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartedAttempts int64 `json:"startedAttempts"`
	// actionType of the holder.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ActionType string `json:"actionType,omitempty"`
	// holder is the Action this attempt belongs to.
	// +optional
	Holder *EffectHolder `json:"holder,omitempty"`
	// nonce of the operator process that began executing; operator mode only.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Nonce string `json:"nonce,omitempty"`
	// token of this attempt, for the remote: the same key and attempt give the same token.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token,omitempty"`
	// leaseExpirationTime: an attempt not reported by then becomes Ambiguous.
	// +optional
	LeaseExpirationTime *metav1.MicroTime `json:"leaseExpirationTime,omitempty"`
	// cause is why the effect is, or was, Ambiguous in this attempt.
	// +optional
	Cause EffectCause `json:"cause,omitempty"`
	// lastTransitionTime is when the state last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// outcomeRef is the Outcome that ended the attempt.
	// +optional
	OutcomeRef *ObjectReference `json:"outcomeRef,omitempty"`
	// lateOutcomeRef is a report that came after the lease had been declared lapsed. It settles nothing; whoever resolves
	// should read it.
	// +optional
	LateOutcomeRef *LateOutcome `json:"lateOutcomeRef,omitempty"`
	// output of an executor of the operator, JSON as text. An agent's is in its Outcome.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Output string `json:"output,omitempty"`
	// error of an executor of the operator. An agent's is in its Outcome.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`
	// resolution that settled an Ambiguous attempt.
	// +optional
	Resolution *EffectResolution `json:"resolution,omitempty"`
	// loss: this record stands for one whose status, or which itself, was lost.
	// +optional
	Loss *EffectLoss `json:"loss,omitempty"`
	// resolutionsRequired is how many different people had to say the same of this attempt if nobody knew how it ended, when it
	// was reserved, or when the record was found lost. A policy that asks for more by then counts; one that asks for less does not.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	ResolutionsRequired int64 `json:"resolutionsRequired,omitempty"`
	// suspension is the last time the executor of this attempt asked back.
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`
	// history of earlier and present attempts, the newest last, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	History []EffectHistory `json:"history,omitempty"`
}

// Suspension is the last time that an executor asked back instead of ending its attempt.
//
// +kubebuilder:validation:XValidation:rule="!has(self.continued) || size(self.continued) <= self.round",message="somebody goes on once a round"
// +kubebuilder:validation:XValidation:rule="self.round == oldSelf.round ? (self.continuation == oldSelf.continuation && self.time == oldSelf.time && self.expirationTime == oldSelf.expirationTime && has(self.question) == has(oldSelf.question) && (!has(self.question) || self.question == oldSelf.question) && has(self.outcomeRef) == has(oldSelf.outcomeRef) && (!has(self.outcomeRef) || self.outcomeRef == oldSelf.outcomeRef)) : (self.round > oldSelf.round)",message="a round is written once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.continued) || (has(self.continued) && size(self.continued) >= size(oldSelf.continued) && oldSelf.continued.all(i, t, self.continued[i] == t))",message="who went on is written once"
type Suspension struct {
	// round counts how often the executor asked back, from 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Round int64 `json:"round"`
	// continuation is what whoever goes on has to present. The executor made it up.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Continuation string `json:"continuation"`
	// question is what it asks, JSON as text, if it fits 4 KiB. An agent's longer one is in its Outcome.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Question string `json:"question,omitempty"`
	// time it asked.
	Time metav1.MicroTime `json:"time"`
	// expirationTime: an attempt that nobody has gone on with and ended by then becomes Ambiguous, unless it is asked back again.
	ExpirationTime metav1.MicroTime `json:"expirationTime"`
	// outcomeRef is the Outcome by which an agent asked back.
	// +optional
	OutcomeRef *ObjectReference `json:"outcomeRef,omitempty"`
	// continued are the processes that went on, one a round, in order. While there are fewer than rounds, it waits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Continued []SuspensionContinued `json:"continued,omitempty"`
}

// SuspensionContinued is a process that went on after a round.
type SuspensionContinued struct {
	// claimRef is its Claim.
	ClaimRef ObjectReference `json:"claimRef"`
	// claimID of the process. An agent that goes on may execute as soon as its Action says so.
	// +kubebuilder:validation:MaxLength=64
	ClaimID string `json:"claimID"`
	// inputHash of the canonical answer it brings.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	InputHash string `json:"inputHash,omitempty"`
	// time it went on.
	Time metav1.MicroTime `json:"time"`
}

// EffectHolder is the Action that holds an attempt.
type EffectHolder struct {
	// name of the Action.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the Action.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// agent that proposed it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Agent string `json:"agent,omitempty"`
	// user on whose behalf.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	User string `json:"user,omitempty"`
}

// LateOutcome is a report that settles nothing.
type LateOutcome struct {
	// name of the Outcome.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// result it stated.
	Result OutcomeResult `json:"result"`
}

// EffectResolution is the Resolution that settled an Ambiguous attempt: the last that was needed for it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.observer) || !has(self.resolvers)",message="what a program saw is no agreement of people"
// +kubebuilder:validation:XValidation:rule="!has(self.resolvers) || self.resolvers.all(a, self.resolvers.exists_one(b, a.resolver == b.resolver))",message="nobody is counted twice"
type EffectResolution struct {
	// name of the Resolution.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the Resolution.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// resolver who made it.
	// +kubebuilder:validation:MaxLength=512
	Resolver string `json:"resolver"`
	// quotedSeq is the seq of the receipt the Resolution quotes: its own receipt comes later.
	// +optional
	QuotedSeq int64 `json:"quotedSeq,omitempty"`
	// quotedHash is the hash of that receipt.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	QuotedHash string `json:"quotedHash,omitempty"`
	// observer is what looked, where no person is the source.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Observer string `json:"observer,omitempty"`
	// reason the resolver gave.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// evidence the resolver gave.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Evidence string `json:"evidence,omitempty"`
	// resolvers are all people whose Resolutions were needed, in the order in which they said the same, where one was not enough.
	// The last of them is this one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Resolvers []EffectResolver `json:"resolvers,omitempty"`
}

// EffectResolver is one of several people who settled an Ambiguous attempt together, and what they said.
type EffectResolver struct {
	// name of the Resolution.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the Resolution.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// resolver who made it.
	// +kubebuilder:validation:MaxLength=512
	Resolver string `json:"resolver"`
	// quotedSeq is the seq of the receipt the Resolution quotes.
	// +optional
	QuotedSeq int64 `json:"quotedSeq,omitempty"`
	// quotedHash is the hash of that receipt.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	QuotedHash string `json:"quotedHash,omitempty"`
	// reason the resolver gave.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// evidence the resolver gave.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Evidence string `json:"evidence,omitempty"`
}

// EffectLoss says which loss of the record its Ambiguous state stands for.
type EffectLoss struct {
	// ordinal counts the losses of this effect, from 1.
	// +kubebuilder:validation:Minimum=1
	Ordinal int64 `json:"ordinal"`
	// seq of the chain not above its head when the loss was recorded: the receipt of the loss is later.
	// +kubebuilder:validation:Minimum=0
	Seq int64 `json:"seq"`
}

// EffectHistory is one attempt, in a line.
type EffectHistory struct {
	// attempt number.
	Attempt int64 `json:"attempt"`
	// action that held it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Action string `json:"action,omitempty"`
	// result: committed, not_executed, never_began, ambiguous, resolved_committed or resolved_not_executed.
	// +kubebuilder:validation:MaxLength=64
	Result string `json:"result"`
	// approvals that were spent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=253
	Approvals []string `json:"approvals,omitempty"`
	// resolution that settled it, if one did.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Resolution string `json:"resolution,omitempty"`
	// resolutions that settled it together, where one was not enough.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=253
	Resolutions []string `json:"resolutions,omitempty"`
}

// EffectList is a list of Effect.
// +kubebuilder:object:root=true
type EffectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Effect `json:"items"`
}
