package flow

import (
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
)

// Step is the one thing to do next. It is one of Read, Wait, Done, WriteAction, WriteEffect, Begin,
// DeclareLapse, Append, Judge, Observe, Resolve.
type Step interface{ step() }

// Object names what a Read asks for.
type Object string

const (
	// TheAction, by its name, uncached.
	TheAction Object = "action"
	// TheEffect, by its name, uncached.
	TheEffect Object = "effect"
	// TheHolder, the action that the record's holder names, uncached; another uid under that name is Absent.
	TheHolder Object = "holder"
	// TheAnswers, all approvals of the action, by a consistent list.
	TheAnswers Object = "approvals"
	// TheEntitlement, whether whoever gave the approval of that uid, with the groups of that time, may approve the action's type.
	TheEntitlement Object = "entitlement"
	// ThePreconditions, what the preconditions of the action name, uncached.
	ThePreconditions Object = "preconditions"
	// TheClaims, all claims of the action, by a consistent list.
	TheClaims Object = "claims"
	// TheLock, the outcome of that name, uncached.
	TheLock Object = "lock"
	// TheChain, folded from Floor until there is no further receipt, asking for Identity.
	TheChain Object = "chain"
	// TheKey, all unfinished actions of the namespace by a consistent list, and the receipts of the effect.
	TheKey Object = "key"
	// TheResolutions of the effect of that name, by a consistent list.
	TheResolutions Object = "resolutions"
	// TheQuoted, the receipt of that name.
	TheQuoted Object = "quoted receipt"
)

// Read asks for one thing to be read and put into the snapshot.
type Read struct {
	Object   Object
	Name     string
	Identity receipt.Identity // TheChain
	Floor    int64            // TheChain: a seq before which the identity certainly is not
}

// Wait says that nothing is to be done before Until, or before something changes. A zero Until waits for a change alone.
type Wait struct {
	Until time.Time
	Why   string
}

// Done says that nothing is left to do.
type Done struct{}

// WriteAction replaces the status of an action, guarded by the version that was read.
type WriteAction struct {
	Name, UID string
	Status    Status
	// Why is the name of the write in the protocol: hold, pin, wait, claimable, admit, end, finish, resolved, suspended, observe, observed.
	Why string
	// tally is what people had said when it was decided to write.
	tally approval.Tally
	// authority is what the grants and delegations said; nil: they were not asked.
	authority *authority.Result
	// unreserved is why the effect of an action in observe mode is not reserved for it, or nothing.
	unreserved decision.Reason
}

// WriteEffect creates the record, or replaces its status guarded by the version that was read.
type WriteEffect struct {
	Name, Key string
	Status    effect.Status
	Create    bool
	// Why is the name of the write in the protocol: reserve, renew, release, settle, suspend, continue, lost, late, resolve.
	Why string
}

// Begin lets the operator's own executor act: it replaces the status of the record, guarded by the version that was read, with
// one that has a nonce of this very process, and then executes, in the background. If somebody else began, it does not.
type Begin struct {
	EffectName string
	ActionType string
	Executor   ExecutorRef
	// Before is when it is too late to begin; Lease is when the lease is over.
	Before, Lease time.Time
	// Going is with what it goes on after it was asked back; nil: it begins. Of what was begun before, nothing proves that nothing was
	// executed but its executor's own statement.
	Going *Going
}

// DeclareLapse creates the outcome that ends an attempt whose lease is over. If the name is taken the executor was first.
type DeclareLapse struct {
	ActionName, ActionUID, ClaimID, Proposer string
}

// Append creates the receipt after Head. If that seq is taken, fold it in and ask again.
type Append struct {
	Head     receipt.Link
	Document receipt.Document
}

// Judge writes the verdict on a resolution, unless it has one already.
type Judge struct {
	Name, UID string
	Accepted  bool
	// Open: there is no verdict yet. Message says what is missing.
	Open    bool
	Reason  string
	Message string
}

func (Read) step()         {}
func (Wait) step()         {}
func (Done) step()         {}
func (WriteAction) step()  {}
func (WriteEffect) step()  {}
func (Begin) step()        {}
func (DeclareLapse) step() {}
func (Append) step()       {}
func (Judge) step()        {}

// The names of writes.
const (
	WhyHold      = "hold"
	WhyPin       = "pin"
	WhyWait      = "wait"
	WhyClaimable = "claimable"
	WhyAdmit     = "admit"
	WhyEnd       = "end"
	WhyFinish    = "finish"
	WhyResolved  = "resolved"
	WhyReserve   = "reserve"
	WhyRenew     = "renew"
	WhyRelease   = "release"
	WhyBegin     = "begin"
	WhySettle    = "settle"
	WhyLost      = "lost"
	WhyLate      = "late"
	WhyResolve   = "resolve"
	WhySuspend   = "suspend"
	WhyContinue  = "continue"
	WhySuspended = "suspended"
	WhyObserve   = "observe"
	WhyObserved  = "observed"
)
