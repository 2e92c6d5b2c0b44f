package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// proof is another package's way to say that nothing happened, or that something may have.
type proof struct {
	error
	nothing bool
}

func (p proof) NotExecuted() bool { return p.nothing }
func (p proof) Unwrap() error     { return p.error }

// Only who says it for certain is believed, whatever is wrapped around it; and nobody is who is joined with a failure that does not.
func TestIsNotExecuted(t *testing.T) {
	certain := NotExecuted(io.EOF)
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                                   {nil, false},
		"any error":                             {io.EOF, false},
		"cancelled":                             {context.Canceled, false},
		"the lease is over":                     {context.DeadlineExceeded, false},
		"said":                                  {certain, true},
		"said with nothing more to say":         {NotExecuted(nil), true},
		"wrapped":                               {fmt.Errorf("refund: %w", certain), true},
		"wrapped twice, by net/http":            {fmt.Errorf("refund: %w", &url.Error{Op: "Post", URL: "x", Err: certain}), true},
		"quoted, not wrapped":                   {fmt.Errorf("refund: %v", certain), false},
		"said by another package":               {proof{io.EOF, true}, true},
		"denied by another package":             {proof{io.EOF, false}, false},
		"denied around it":                      {proof{certain, false}, false},
		"denied within it":                      {NotExecuted(proof{io.EOF, false}), true},
		"joined with another failure":           {errors.Join(certain, io.EOF), false},
		"joined with another failure before it": {errors.Join(io.EOF, certain), false},
		"formatted with another failure":        {fmt.Errorf("%w, then %w", certain, io.EOF), false},
		"joined, wrapped":                       {fmt.Errorf("refund: %w", errors.Join(certain, io.EOF)), false},
		"joined with nothing":                   {errors.Join(certain, nil), true},
		"both parts say so":                     {errors.Join(certain, fmt.Errorf("again: %w", NotExecuted(nil))), true},
		"the whole join says so":                {NotExecuted(errors.Join(io.EOF, io.ErrClosedPipe)), true},
		"of nothing":                            {manyErrors{}, false},
		"an unknown end that was said so":       {&UnknownError{Action: &v1alpha1.Action{}, Returned: certain}, false},
		"a failed action of another call":       {&FailedError{EndedError: &EndedError{Action: &v1alpha1.Action{}}, Returned: certain}, false},
		"a denied action of another call":       {&DeniedError{EndedError: &EndedError{Action: &v1alpha1.Action{}}}, false},
		"an action of another call, withdrawn":  {&WaitingError{Action: &v1alpha1.Action{}, Withdrawn: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsNotExecuted(test.err); got != test.want {
				t.Errorf("got %t", got)
			}
			want := v1alpha1.OutcomeUnknown
			switch {
			case test.err == nil:
				want = v1alpha1.OutcomeCommitted
			case test.want:
				want = v1alpha1.OutcomeNotExecuted
			}
			if got := ResultOf(test.err); got != want {
				t.Errorf("it is reported as %s, want %s", got, want)
			}
		})
	}
}

type manyErrors []error

func (manyErrors) Error() string     { return "many" }
func (e manyErrors) Unwrap() []error { return e }

func TestNotExecutedKeepsItsError(t *testing.T) {
	err := NotExecuted(io.EOF)
	if !errors.Is(err, io.EOF) || err.Error() != "EOF" {
		t.Errorf("got %v", err)
	}
	if err := NotExecuted(nil); err == nil || err.Error() == "" {
		t.Errorf("without an error it says %v: nil would be committed", err)
	}
}
