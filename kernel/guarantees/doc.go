// Package guarantees says what `kubectl ctrlrun verify` promises to check, and prepares each check from a policy alone: which
// of its actions to drive, with which arguments, and which checks it gives no occasion for.
//
// Nothing here runs anything. The same policy gives the same plan: there is no randomness, actions are taken by name in the
// order of their bytes, and every vector is evaluated by the policy itself before anybody uses it.
package guarantees
