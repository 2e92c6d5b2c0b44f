// Package exit holds the one table of exit codes of `kubectl ctrlrun`. A command never calls os.Exit: it returns an error,
// and Of turns that error into a code. Scripts rely on these numbers, so a number is never reused for something else.
package exit

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Code is a process exit code.
type Code int

const (
	// Done: the command did what it was asked; the effect is committed, the answer was accepted, the document is valid.
	Done Code = 0
	// Failure: an error, or an invalid document, or a broken chain. Nothing was executed.
	Failure Code = 1
	// Usage: the command line, or a file it names, cannot be read.
	Usage Code = 2
	// Denied: a policy or a person said no.
	Denied Code = 3
	// AlreadyCommitted: the effect is committed already, so this action was blocked.
	AlreadyCommitted Code = 4
	// Waiting: nothing is decided yet, or another action is in progress on this effect.
	Waiting Code = 5
	// Unknown: the effect is ambiguous, or nobody can tell how it ended.
	Unknown Code = 6
	// NotExecuted: the attempt failed: it was stated that nothing happened.
	NotExecuted Code = 7
	// Expired: the action ran out of time before it was admitted.
	Expired Code = 8
	// Refused: admission or RBAC refused the request.
	Refused Code = 9
	// Repair: a reliability contract asks for another round. Reserved, as the two below: contracts are not built yet.
	Repair Code = 10
	// Exhausted: a reliability contract has no round left.
	Exhausted Code = 11
	// Abstained: a reliability contract could not be decided from evidence.
	Abstained Code = 12
)

// Table is what `kubectl ctrlrun help exit-codes` prints, one line a code.
func Table() []string {
	return []string{
		"0   done, committed, accepted, valid",
		"1   error, invalid, broken; nothing was executed",
		"2   usage; a file that cannot be read",
		"3   denied",
		"4   blocked: the effect is committed already",
		"5   still waiting, or in progress",
		"6   ambiguous or unknown",
		"7   failed: not executed",
		"8   expired",
		"9   refused by admission or RBAC",
		"10  repair: reserved for reliability contracts, not built yet",
		"11  exhausted: reserved for reliability contracts, not built yet",
		"12  abstained: reserved for reliability contracts, not built yet",
	}
}

// Error is an error that knows its exit code.
type Error struct {
	Code Code
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error that ends the process with code.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// With gives err a code. A nil error stays nil.
func With(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Of is the code for err: its own if it carries one, Refused for a request the apiserver forbade, Failure for the rest.
// A command that was cancelled did not finish, whatever it was doing: Waiting, never Done.
func Of(err error) Code {
	if err == nil {
		return Done
	}
	var coded *Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	if apierrors.IsForbidden(err) {
		return Refused
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Waiting
	}
	return Failure
}
