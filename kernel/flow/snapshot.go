package flow

import (
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/precondition"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// State is where an action stands.
type State string

const (
	Pending          State = "Pending"
	AwaitingApproval State = "AwaitingApproval"
	Claimable        State = "Claimable"
	Admitted         State = "Admitted"
	Committed        State = "Committed"
	Failed           State = "Failed"
	Ambiguous        State = "Ambiguous"
	Observed         State = "Observed"
	Denied           State = "Denied"
	Blocked          State = "Blocked"
	Expired          State = "Expired"
)

// Terminal reports whether s never changes again.
func (s State) Terminal() bool {
	switch s {
	case Committed, Failed, Ambiguous, Observed, Denied, Blocked, Expired:
		return true
	}
	return false
}

// Mode is who executes.
type Mode string

const (
	AgentMode    Mode = "Agent"
	OperatorMode Mode = "Operator"
)

// Action is one proposal and what was concluded about it so far.
type Action struct {
	Name, UID string
	Created   time.Time

	Type      string
	Arguments []byte // the JSON that is stored; empty is {}
	Resource  *string
	Agent     string
	User      *string
	Claims    map[string]any // what the apiserver vouched for beside the name; canonical values
	// Expires is the last moment of the agent's credential; nil: it did not say.
	Expires  *time.Time
	ClaimID  string
	Lease    time.Duration
	NotAfter *time.Time
	// Preconditions name what has to be, when the effect is reserved, what it was when the action began to wait.
	Preconditions []precondition.Ref

	Status
}

// Status is what was concluded about an action. A write of it replaces the whole.
type Status struct {
	State          State
	Reason         decision.Reason
	Message        string
	FirstSeq       *int64 // nil: no status was ever written
	Hash           string
	Decision       decision.Decision
	DecisionReason decision.Reason
	Resource       *string // that was hashed
	Environment    string
	Policy         *policy.Ref
	// Authority is what lets its principal propose it; nil: nothing is required, or nothing does.
	Authority *Authority
	// RulesHash is of everything that decides in the namespace, as it was at the decision.
	RulesHash string
	// Executor executes it for the operator; nil: its agent does, or nobody got that far.
	Executor        *ExecutorRef
	Effect          *EffectRef
	Ask             *Ask
	ClaimableTime   *time.Time
	ClaimExpiration *time.Time
	// Fingerprints of what the preconditions name; nil: it names none, or did not get that far.
	Fingerprints *Fingerprints
	Execution    *Execution
	Receipt      *receipt.Link
	FinishTime   *time.Time
	// WouldHave is written by an admission in observe mode, and marks it: nothing was enforced.
	WouldHave *WouldHave
	// Outcome is how an observed action ended: Committed, Failed or Ambiguous. Its state is Observed.
	Outcome State
	// Suspension is how the record of its effect says that its executor asked back, as it was last told; nil: it did not.
	Suspension *effect.Suspension
	// Observation is the one look that was made for this action; nil: none.
	Observation *Observation
	// Resolved is set once a resolution settled the effect of this ambiguous action.
	Resolved *Resolved
	// Timeline is what happened to it, for people. Next writes it; nothing is decided by it.
	Timeline []timeline.Event
}

// Authority names the grant or delegation by which an action was proposed, and the grant its chain begins at.
type Authority struct {
	authority.Ref
	Root       string
	BreakGlass bool
}

// EffectRef is the effect an action wants to cause, and the attempt it was admitted for.
type EffectRef struct {
	Name, Key string
	Attempt   int64
}

// Ask is what people were asked. All of it but Counted is written once.
type Ask struct {
	Required int
	// Groups of which an approver has to be in one; nil: whoever may approve is asked.
	Groups     []string
	Counted    int
	Requested  time.Time
	Expiration time.Time
}

// Fingerprints are of what the preconditions of an action name. Both are written once; "" is not written yet, or never.
type Fingerprints struct {
	// AtRequest: when the action began to wait, for people or for a claim.
	AtRequest string
	// AtRecheck: right before its effect was reserved, or would have been.
	AtRecheck string
}

// Execution names the one process that may execute.
type Execution struct {
	Mode      Mode
	ClaimID   string
	Claim     *effect.Ref // the Claim object that carried the id; nil: the action did
	Token     string
	Lease     time.Time
	Admitted  time.Time
	Approvals []approval.Answer
}

// WouldHave is what enforce mode would have done with an observed action.
type WouldHave struct {
	Decision decision.Decision
	Reason   decision.Reason
	// Blocked is the first reason, in the order of the checks, for which it would not have run, or not yet; "": it would have.
	Blocked decision.Reason
}

// Ended is how the action ended: its state, or of an observed one what it did. An observed one that does not say so ended as
// nobody knows.
func (s Status) Ended() State {
	switch {
	case s.State != Observed:
		return s.State
	case s.Outcome == "":
		return Ambiguous
	}
	return s.Outcome
}

// Reserves reports whether the action was admitted with an attempt of an effect. One that names no effect key was not; nor was
// one in observe mode whose reservation was refused.
func (s Status) Reserves() bool { return s.Execution != nil && s.Effect != nil && s.Effect.Attempt > 0 }

// Resolved names the resolution that settled an ambiguous action's effect.
type Resolved struct {
	Name, Resolver string
	// Observer is what looked, where no person is the source; "": a person said it.
	Observer string
	State    effect.State
}

// Finished reports whether nothing is left to do: it is over, and its receipt is in the chain.
func (a *Action) Finished() bool { return a.Receipt != nil }

// EndedUnadmitted reports whether the action is over and nobody was ever allowed to execute it.
func (a *Action) EndedUnadmitted() bool { return a.State.Terminal() && a.Execution == nil }

// Claim is a process saying that it is here.
type Claim struct {
	Name, UID     string
	ActionUID     string
	ClaimID       string
	ClaimableTime time.Time
	Claimant      string
	Created       time.Time
	// Withdrawn: its own process has reported already, so it will not execute.
	Withdrawn bool
	// Continuation is what it presents to go on after an executor asked back; nil: it wants to begin.
	Continuation *Continuation
}

// Outcome is a report. LeaseLapsed marks the one by which the operator ends an attempt.
type Outcome struct {
	Name, UID   string
	ActionUID   string
	ClaimID     string
	Result      OutcomeResult
	LeaseLapsed bool
	Reporter    string
	Error       string
	Output      string // JSON
	// Continuation is what an executor that asks back wants to be presented.
	Continuation string
	Created      time.Time
}

// OutcomeResult is what a report states.
type OutcomeResult string

const (
	ReportCommitted   OutcomeResult = "Committed"
	ReportNotExecuted OutcomeResult = "NotExecuted"
	ReportUnknown     OutcomeResult = "Unknown"
	// ReportAskedBack: it is not over. Somebody goes on with it, or nobody knows.
	ReportAskedBack OutcomeResult = "AskedBack"
)

// Resolution is a statement about an ambiguous effect.
type Resolution struct {
	Name, UID  string
	EffectUID  string
	Attempt    int64
	ActionType string
	State      effect.State // Committed, or Failed for not executed
	QuotedName string
	QuotedHash string
	Resolver   string
	// Observer is what looked, where a program and not a person is the source; "": a person said it.
	Observer         string
	Reason, Evidence string
	Created          time.Time
	Judged           bool // has its verdict already
	// Told is what it was told while it had none.
	Told string
}

// Presence says what is known of an object.
type Presence int

const (
	// Unread: nobody looked.
	Unread Presence = iota
	// Cached: it was seen in a cache. It exists or did, and it may have changed since.
	Cached
	// Fresh: the apiserver gave it in this pass.
	Fresh
	// Absent: the apiserver said in this pass that there is none, or that the name belongs to another uid. A cache never
	// says this.
	Absent
)

// ActionRead is an action as far as it is known.
type ActionRead struct {
	Presence
	*Action
}

// EffectRead is an effect as far as it is known.
type EffectRead struct {
	Presence
	*effect.Record
}

// named is what is known of the effect of that name. In one pass the name can change: the policy gives another key now, or
// the action turns out to be admitted for the key of an earlier one.
func (e EffectRead) named(name string) EffectRead {
	if e.Record != nil && e.Record.Name != name {
		return EffectRead{}
	}
	return e
}

// OutcomeRead is an outcome as far as it is known.
type OutcomeRead struct {
	Presence
	*Outcome
}

// AnswersRead are the approvals of an action: all that a cache holds, or all there are.
type AnswersRead struct {
	Presence
	Answers []approval.Answer
}

// ClaimsRead are the claims of an action, likewise.
type ClaimsRead struct {
	Presence
	Claims []Claim
}

// PreconditionsRead is what the apiserver said in this pass about what the preconditions name.
type PreconditionsRead struct {
	Read bool
	// Fingerprint of all of it; "": Refusal or Trouble says why there is none.
	Fingerprint string
	// Refusal says in a sentence what is certainly not there, cannot be hashed, or may not be read.
	Refusal string
	// Trouble says why nobody knows: the apiserver did not answer. It is asked again.
	Trouble string
}

// ChainRead is what a fold of the chain said about one identity.
type ChainRead struct {
	// Read is false until a fold answered for Identity.
	Read     bool
	Identity receipt.Identity
	// Head is where the fold ended: the next receipt goes to the seq after it.
	Head receipt.Link
	// Found is the receipt of that identity, nil if there is none up to Head.
	Found *receipt.Document
	// FoundLink is its place.
	FoundLink receipt.Link
}

func (c ChainRead) answers(id receipt.Identity) bool { return c.Read && c.Identity == id }

// KeyRead is everything of a namespace that may know about one effect: all unfinished actions, and the receipts of that
// effect. Read only when its record was lost.
type KeyRead struct {
	Read     bool
	Actions  []Action
	Receipts []receipt.Document
}

// Hold is a reason to decide nothing for now. Since is when it began, by the same clock as Now.
type Hold struct {
	Reason  decision.Reason
	Message string
	Since   time.Time
}

// Limits are the numbers of a namespace's settings.
type Limits struct {
	ApprovalTTL time.Duration
	MaxLease    time.Duration
	FinishedTTL time.Duration
}

// World is what holds for everything in one namespace.
type World struct {
	ClusterID      string
	Namespace      string
	NamespaceUID   string
	Environment    string
	Epoch          int64
	AdmissionSince time.Time
	Limits         Limits
	Policies       *policy.Set
	// Authority holds the grants and delegations. Where Required is false they decide nothing.
	Authority *authority.Set
	Required  bool
	// Observe: everything is decided, and nothing is enforced.
	Observe bool
	// Operator is who this operator is to the apiserver.
	Operator string
	// People says which names are one person.
	People *approval.People
	// Executors are what the operator itself executes.
	Executors Executors
	// RulesHash is of everything that decides here: Policies, Authority, Limits and Environment.
	RulesHash string
	// Accepted is the head a person accepted when the present epoch began, and when; the zero value: the chain was never
	// broken.
	Accepted     receipt.Link
	AcceptedTime time.Time
	// VerifiedSeq is a seq of the chain that this process has verified: a floor for what is yet to be appended.
	VerifiedSeq int64
	Holds       []Hold
}

// Floor is a seq before which a receipt certainly is not. A seq that was noted before a person accepted another head counts
// receipts that are lost, so it says nothing about those that took their place.
func (w World) Floor(seq int64, noted time.Time) int64 {
	if !w.AcceptedTime.IsZero() && !noted.After(w.AcceptedTime) {
		return min(seq, w.Accepted.Seq)
	}
	return seq
}

// QuotedRead is a receipt a resolution quotes.
type QuotedRead struct {
	Name string
	// Entry is nil if there is no such receipt.
	Entry *receipt.Entry
}

// Snapshot is one look at the world, with one subject: an action, or an effect. Everything Next may consider is in it,
// time included, so that the same snapshot always gives the same step.
type Snapshot struct {
	Now   time.Time
	World World

	// Action is the subject; or Effect is, and Action stays Unread.
	Action ActionRead
	Effect EffectRead
	// EffectName and EffectKey name the subject effect where there may be no record of it.
	EffectName, EffectKey string

	// Holder is the action that the record's holder names.
	Holder  ActionRead
	Answers AnswersRead
	// Preconditions of the subject action.
	Preconditions PreconditionsRead
	Claims        ClaimsRead
	// Lock is the outcome that bears the one name which ends the attempt: of the admitted claim, or before that of the
	// action's own.
	Lock OutcomeRead
	// Late is a report that lost against the lock.
	Late  *Outcome
	Chain ChainRead
	Key   KeyRead

	// Resolutions of the subject effect: those a cache holds, or, if ResolutionsListed, all there are.
	Resolutions       []Resolution
	ResolutionsListed bool
	// Stated: the Resolution of this action's observation is there.
	Stated bool
	// Quoted are the receipts that were looked at because a resolution quotes them.
	Quoted []QuotedRead
}
