// Package client is the Go SDK for agents: propose an action, wait until it may be executed, execute it once, report how it
// ended. The example of Client.Do is a whole agent.
//
// Do is Propose, WaitAdmitted and Report with the right order and the right cleanup. The parts exist for programs that
// cannot hand over a function.
//
// What the package takes care of:
//
//   - A claimID is made for every call. An Action is admitted for one claimID, and only the process that holds it may
//     execute. A create that was answered "exists already" is read back: one's own claimID is one's own lost response,
//     anything else is somebody else's proposal and is never adopted.
//   - Nothing starts with less than a third of the lease left. The lease is measured on two clocks, the apiserver's and the
//     machine's monotonic one, and the smaller remainder counts.
//   - A call that will not start says so with an Outcome NotExecuted, so that nobody waits for it.
//   - A report is sent on a context of its own and repeated until the apiserver has answered it: a caller who gives up does
//     not turn a known outcome into an unknown one.
//   - What was executed was what is stored, not what the caller holds: Execution.Arguments is the canonical form of the
//     stored action, the same bytes that were hashed and approved.
//
// In observe mode, where nothing is enforced, the Action is admitted although it would have been denied, asked about or
// blocked; it ends Observed, and EndOf says what it did. Only an Action that is Admitted may be executed, as ever.
//
// The result of Do is never a guess. A nil error means the effect is committed; every other end has a typed error, and an
// end that nobody knows is an *UnknownError.
package client
