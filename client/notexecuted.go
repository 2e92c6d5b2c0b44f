package client

// NotExecuted wraps an error of a Function to say that for certain nothing happened: the request was never sent, or the other side
// promises that a refusal of this kind changed nothing. It frees the effect for another attempt, so in doubt leave err as it is. err may
// be nil, if there is nothing more to say.
func NotExecuted(err error) error { return &notExecutedError{err} }

type notExecutedError struct{ err error }

func (e *notExecutedError) Error() string {
	if e.err == nil {
		return "not executed"
	}
	return e.err.Error()
}

func (e *notExecutedError) Unwrap() error { return e.err }

func (e *notExecutedError) NotExecuted() bool { return true }

// IsNotExecuted reports whether err says that for certain nothing happened: it, or an error that it wraps, has a method
//
//	NotExecuted() bool
//
// that returns true. The outermost error with that method decides, so a wrapper that knows of something that did happen can say false.
// Of several errors that are joined into one, each has to say so: one that is not about the execution proves nothing about it, but one
// that is may mean that something was sent.
func IsNotExecuted(err error) bool {
	for err != nil {
		if e, ok := err.(interface{ NotExecuted() bool }); ok {
			return e.NotExecuted()
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return allNotExecuted(e.Unwrap())
		default:
			return false
		}
	}
	return false
}

func allNotExecuted(errs []error) bool {
	for _, err := range errs {
		if !IsNotExecuted(err) {
			return false
		}
	}
	return len(errs) > 0
}
