package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
)

func TestOutputsThatCannotBeStoredAreLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want string
		ok   bool
	}{
		"an object, made canonical": {`{ "b": 1, "a": "x" }`, `{"a":"x","b":1}`, true},
		"a string":                  {`"done"`, `"done"`, true},
		"nothing":                   {``, ``, false},
		"text":                      {`refunded!`, ``, false},
		"a fraction":                {`{"rate":0.5}`, ``, false},
		"a number beyond 64 bits":   {`{"n":123456789012345678901}`, ``, false},
		"too large":                 {`"` + strings.Repeat("x", maxOutput) + `"`, ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := storableOutput([]byte(test.in))
			if ok != test.ok || ok && string(got) != test.want {
				t.Errorf("got %q, %t", got, ok)
			}
		})
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no") }

// What a function returns beside its error changes nothing about how it ended.
func TestOutputsThatCannotBeWrittenAreNone(t *testing.T) {
	loop := map[string]any{}
	loop["self"] = loop
	for name, test := range map[string]struct {
		in   any
		want string
	}{
		"nothing":               {nil, ""},
		"a nil of some type":    {(*int)(nil), ""},
		"raw and empty":         {json.RawMessage(nil), ""},
		"a struct":              {struct{ ID string }{"<re_1>"}, "{\"ID\":\"<re_1>\"}\n"},
		"a channel":             {make(chan int), ""},
		"itself":                {loop, ""},
		"not a number":          {math.NaN(), ""},
		"what panics":           {panics{}, ""},
		"raw, and not JSON":     {json.RawMessage("refunded!"), ""},
		"raw, and JSON already": {json.RawMessage(`{"a":1}`), "{\"a\":1}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encodeOutput(test.in); string(got) != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestErrorsAreCutAtACharacter(t *testing.T) {
	if got := cut("short", maxError); got != "short" {
		t.Errorf("a short text became %q", got)
	}
	for n := range 8 {
		got := cut("aé東𝄞", n)
		if len(got) > n || !utf8.ValidString(got) {
			t.Errorf("cut to %d: %q", n, got)
		}
	}
}

// The name is a lock: it must be the one the operator creates for the same attempt, and no other attempt's.
func TestLockName(t *testing.T) {
	action := &v1alpha1.Action{}
	action.UID = types.UID("5f1c0000-0000-4000-8000-000000000001")
	got := LockName(action, claimA, "system:serviceaccount:payments:refund-agent")
	want := "5f1c0000-0000-4000-8000-000000000001." + claimA + ".system-serviceaccount-payments-refund-agent"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Whoever was first, the caller gets back what the function said.
func TestALostReportKeepsWhatWasReturned(t *testing.T) {
	const me, other = "system:serviceaccount:payments:refund-agent", "system:serviceaccount:payments:somebody"
	for name, first := range map[string]v1alpha1.OutcomeSpec{
		"to another reporter": {Reporter: other, Result: v1alpha1.OutcomeNotExecuted},
		"to another result":   {Reporter: me, Result: v1alpha1.OutcomeCommitted},
	} {
		t.Run(name, func(t *testing.T) {
			call := &Call{action: &v1alpha1.Action{}, said: judge(NotExecuted(io.EOF))}
			err := call.lostLock(context.Background(), call.outcome(call.said, me), &v1alpha1.Outcome{Spec: first}, me)
			var unknown *UnknownError
			if !errors.As(err, &unknown) || !errors.Is(unknown.Returned, io.EOF) {
				t.Errorf("got %v", err)
			}
			if IsNotExecuted(err) {
				t.Error("it is taken for not executed, which is not what is on record")
			}
		})
	}
}
