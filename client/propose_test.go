package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ctrlrun.dev/operator/api/v1alpha1"
)

const (
	claimA = "00000000-0000-4000-8000-00000000000a"
	claimB = "00000000-0000-4000-8000-00000000000b"
)

func proposal(claimID, arguments string) *v1alpha1.Action {
	return &v1alpha1.Action{Spec: v1alpha1.ActionSpec{
		ActionType: "stripe.refund", ClaimID: claimID, Arguments: apiextensionsv1.JSON{Raw: []byte(arguments)},
		Principal: v1alpha1.Principal{Agent: "bot"},
	}}
}

func TestOnlyOnesOwnProposalIsTakenUp(t *testing.T) {
	const arguments = `{"amount":5}`
	for name, test := range map[string]struct {
		mine, existing *v1alpha1.Action
		unanswered     bool
		want           bool
	}{
		"own claimID":                                      {proposal(claimA, arguments), proposal(claimA, arguments), true, true},
		"another process, same content":                    {proposal(claimA, arguments), proposal(claimB, arguments), true, false},
		"unclaimed, after a lost response":                 {proposal("", arguments), proposal("", `{ "amount": 5 }`), true, true},
		"unclaimed, but nothing was lost":                  {proposal("", arguments), proposal("", arguments), false, false},
		"unclaimed, other content":                         {proposal("", arguments), proposal("", `{"amount":6}`), true, false},
		"unclaimed, while the other's process executes it": {proposal("", arguments), proposal(claimB, arguments), true, false},
		"claimed, while the other's is unclaimed":          {proposal(claimA, arguments), proposal("", arguments), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ownProposal(test.mine, test.existing, test.unanswered); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestSameProposal(t *testing.T) {
	base := func() *v1alpha1.ActionSpec { return &proposal(claimA, `{"a":1,"b":"x"}`).Spec }
	text := func(s string) *string { return &s }
	if other := base(); !SameProposal(base(), other) {
		t.Error("a proposal differs from itself")
	}
	reordered := base()
	reordered.Arguments.Raw = []byte(`{ "b":"x", "a":1 }`)
	reordered.ClaimID, reordered.LeaseDurationSeconds = claimB, 77
	if !SameProposal(base(), reordered) {
		t.Error("order, claim and lease are not content")
	}
	for name, change := range map[string]func(*v1alpha1.ActionSpec){
		"type":      func(s *v1alpha1.ActionSpec) { s.ActionType = "stripe.charge" },
		"argument":  func(s *v1alpha1.ActionSpec) { s.Arguments.Raw = []byte(`{"a":"1","b":"x"}`) },
		"resource":  func(s *v1alpha1.ActionSpec) { s.Resource = text("") },
		"agent":     func(s *v1alpha1.ActionSpec) { s.Principal.Agent = "bot2" },
		"user":      func(s *v1alpha1.ActionSpec) { s.Principal.User = text("alice") },
		"bad bytes": func(s *v1alpha1.ActionSpec) { s.Arguments.Raw = []byte(`{`) },
	} {
		other := base()
		change(other)
		if SameProposal(base(), other) {
			t.Errorf("another %s is taken for the same", name)
		}
	}
}

func TestCanonicalArguments(t *testing.T) {
	got, err := CanonicalArguments(map[string]any{"b": 1, "a": []string{"<é>"}, "c": int8(-3), "d": nil})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"a":["<é>"],"b":1,"c":-3,"d":null}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for name, value := range map[string]any{
		"a fraction":     1.5,
		"more than 64":   uint64(1 << 63),
		"not JSON":       make(chan int),
		"a lone invalid": map[string]any{"x": 0.1},
	} {
		if _, err := CanonicalArguments(map[string]any{"v": value}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if got, err := CanonicalArguments(nil); err != nil || string(got) != "{}" {
		t.Errorf("no arguments: %s, %v", got, err)
	}
}

func TestARequestIsRepeatedOnlyWhileItsFateIsUnknown(t *testing.T) {
	resource := schema.GroupResource{Group: "ctrlrun.dev", Resource: "actions"}
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"an answer":         {nil, 1},
		"refused":           {apierrors.NewForbidden(resource, "x", errors.New("no")), 1},
		"invalid":           {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), 1},
		"exists":            {apierrors.NewAlreadyExists(resource, "x"), 1},
		"server timeout":    {apierrors.NewServerTimeout(resource, "create", 1), 3},
		"too many requests": {apierrors.NewTooManyRequests("slow", 1), 3},
		"internal error":    {apierrors.NewInternalError(errors.New("etcd")), 3},
		"an unknown error":  {errors.New("something else"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := repeat(context.Background(), time.Minute, transient, func(context.Context) error {
				calls++
				if calls == 3 {
					return nil
				}
				return test.err
			})
			if calls != test.want {
				t.Errorf("%d calls, want %d (%v)", calls, test.want, err)
			}
		})
	}
}

// A report is also repeated, for a while, when the apiserver knows no rights yet; what admission refuses stays refused.
func TestAReportIsRepeatedWhileItsRightIsUnknown(t *testing.T) {
	outcomes := schema.GroupResource{Group: "ctrlrun.dev", Resource: "outcomes"}
	forbidden := apierrors.NewForbidden(outcomes, "x", errors.New("no"))
	for name, test := range map[string]struct {
		err         error
		again, late bool
	}{
		"no right":                    {forbidden, true, false},
		"unknown person":              {apierrors.NewUnauthorized("who?"), true, false},
		"refused by admission":        {apierrors.NewForbidden(outcomes, "x", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")), false, false},
		"what is there is unreadable": {&unreadableError{err: forbidden}, false, false},
		"invalid":                     {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), false, false},
		"no answer":                   {apierrors.NewInternalError(errors.New("etcd")), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				again := patiently()
				if got := again(test.err); got != test.again {
					t.Errorf("at first: again: %t, want %t", got, test.again)
				}
				time.Sleep(refusedWindow - time.Nanosecond)
				if got := again(test.err); got != test.again {
					t.Errorf("within the time: again: %t, want %t", got, test.again)
				}
				time.Sleep(time.Nanosecond)
				if got := again(test.err); got != test.late {
					t.Errorf("after it: again: %t, want %t", got, test.late)
				}
			})
		})
	}
}

func TestRepeatingEndsWithTheCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	err := repeat(ctx, time.Minute, transient, func(context.Context) error {
		calls++
		cancel()
		return apierrors.NewInternalError(errors.New("etcd"))
	})
	if err == nil || calls != 1 {
		t.Errorf("%d calls after the caller gave up, error %v", calls, err)
	}
}

func TestRefusals(t *testing.T) {
	resource := schema.GroupResource{Group: "ctrlrun.dev", Resource: "actions"}
	policy := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		Message: `actions.ctrlrun.dev "x" is forbidden: ValidatingAdmissionPolicy 'ctrlrun-statements' with binding 'b' denied request: no`,
	}}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"RBAC":               {apierrors.NewForbidden(resource, "x", errors.New("no")), true},
		"unknown person":     {apierrors.NewUnauthorized("who?"), true},
		"admission policy":   {policy, true},
		"wrapped":            {fmt.Errorf("create: %w", policy), true},
		"typed":              {&RefusedError{What: "x", Err: errors.New("y")}, true},
		"schema":             {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), false},
		"conflict":           {apierrors.NewAlreadyExists(resource, "x"), false},
		"none":               {nil, false},
		"somebody's message": {errors.New("ValidatingAdmissionPolicy 'x' says the moon"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Refused(test.err); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestNamesOfTypesFit(t *testing.T) {
	for in, want := range map[string]string{"stripe.refund": "stripe-refund", "A_B": "a-b", "...": "x"} {
		if got := typeName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := typeName(strings.Repeat("long.", 50)); len(got)+9 > maxName || strings.HasSuffix(got, "-") {
		t.Errorf("the name %q leaves no room for its suffix", got)
	}
}
