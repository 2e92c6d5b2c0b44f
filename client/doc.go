// Package client is the Go SDK for agents: propose an action, wait until it may be executed, execute it once, report how it
// ended, and keep the proof. The example of Client.Protect is a whole agent.
//
// Protect does all of it around one function. Its parts are for programs that cannot hand over a function:
//
//	Propose (or Attach)  creates the Action, or takes up one that is there
//	Call.Claim           waits, for people too, and gives the Execution: the permission to execute once
//	Call.Report          says how it ended; GiveUp says that it does not begin
//	Call.Wait            waits for the end and the Receipt
//
// What the package takes care of:
//
//   - A claimID is made for every call. An Action is admitted for one claimID, and only the process that holds it may
//     execute. A create that was answered "exists already" is read back: one's own claimID is one's own lost response,
//     anything else is somebody else's proposal and is never adopted.
//   - Nothing starts with less than a third of the lease left. The lease is measured on two clocks, the apiserver's and the
//     machine's monotonic one, and the smaller remainder counts. It is the deadline of the function's context.
//   - A call that will not start says so with an Outcome NotExecuted, so that nobody waits for it.
//   - Only two ends are certain: a nil error is Committed, and an error made by NotExecuted, or by whatever else has proof of
//     that, is Failed. Every other error, a panic and runtime.Goexit are reported as unknown, and the effect is Ambiguous.
//   - A report is sent on a context of its own and repeated until the apiserver has answered it: a caller who gives up does
//     not turn a known outcome into an unknown one. A process that is killed reports nothing; the end of its lease makes the
//     effect Ambiguous.
//   - What is executed is what is stored, not what the caller holds: Execution.Arguments is parsed from the canonical form of
//     the stored action, the same bytes that were hashed and approved.
//
// # Errors
//
// The result is never a guess. A nil error means that the effect is committed; every other end has a type for errors.As. Ask for
// ErrAmbiguous first: the other types say that this call executed nothing, or that nothing happened.
//
//	error                   what it says                                       what to do
//	ErrAmbiguous            nobody knows whether the effect happened           do not try again; a person resolves it
//	  UnknownError            by this call
//	  AmbiguousError          by an attempt before it
//	EndedError              the Action has ended, and this call committed nothing: one of AmbiguousError and
//	  DuplicateError          the effect is Committed or Executing elsewhere   Committed: take it as done; Executing: wait
//	  DeniedError             a rule or a person said no                       do not propose it again
//	  ExpiredError            its time was over before it was admitted         propose it again, if it is still wanted
//	  BlockedError            something else refused it: see the reason        by the reason
//	  FailedError             admitted, and for certain nothing happened       propose it again
//	WaitingError            ctx was done first; Withdrawn: it was told so      propose it again, if it is still wanted
//	  ApprovalRequiredError   people are asked                                 wait longer, or propose it Unclaimed
//	LeaseError              admitted too late to begin; that was reported      propose it again, with a longer lease
//	ElsewhereError          another process, or the operator, was admitted     leave it to them, or Wait
//	StatementError          a Claim or an Outcome does not count               by the reason
//	NotAgentError           somebody else proposed it                          act as the agent that did
//	NotAdmittedError        this process was not admitted: nothing to report   nothing
//	GoneError               the Action was deleted after its end               look in the receipts
//	NoNameError             every name for the Action is taken                 name it yourself
//	RefusedError            RBAC or an admission policy refused a statement    correct the rights or the proposal
//
// An error that is none of these is of the connection, or of arguments that cannot be stored: nothing was executed.
//
// In observe mode, where nothing is enforced, the Action is admitted although it would have been denied, asked about or
// blocked; it ends Observed, and EndOf says what it did. Only an Action that is Admitted may be executed, as ever.
package client
