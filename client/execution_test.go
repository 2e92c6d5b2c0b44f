package client

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// admittedWith is a call that was admitted just now for arguments as an apiserver stores them.
func admittedWith(arguments string) *Call {
	action := &v1alpha1.Action{Spec: v1alpha1.ActionSpec{
		ActionType: "stripe.refund", ClaimID: claimA, LeaseDurationSeconds: 300, Arguments: apiextensionsv1.JSON{Raw: []byte(arguments)},
	}}
	action.Status.State = v1alpha1.ActionAdmitted
	action.Status.Execution = &v1alpha1.ActionExecution{
		Mode: v1alpha1.ExecutionModeAgent, ClaimID: claimA, Token: "tok", LeaseExpirationTime: metav1.NewMicroTime(time.Now().Add(5 * time.Minute)),
	}
	return &Call{client: &Client{clock: newServerClock()}, claimID: claimA, action: action, asked: time.Now()}
}

func TestAnExecutionHasTheArgumentsThatWereHashed(t *testing.T) {
	x, err := admittedWith(`{ "n": 9223372036854775807, "list": [1, "a", null, true], "a": {"z": -1, "b": "<é>"} }`).execution()
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"a":{"b":"<é>","z":-1},"list":[1,"a",null,true],"n":9223372036854775807}`; string(x.CanonicalArguments) != want {
		t.Errorf("canonical %s, want %s", x.CanonicalArguments, want)
	}
	want := map[string]any{
		"n": int64(math.MaxInt64), "list": []any{int64(1), "a", nil, true}, "a": map[string]any{"z": int64(-1), "b": "<é>"},
	}
	if !reflect.DeepEqual(x.Arguments, want) {
		t.Errorf("parsed %#v", x.Arguments)
	}
	if x.Token != "tok" || x.LeaseRemaining <= 4*time.Minute {
		t.Errorf("token %q, %s left", x.Token, x.LeaseRemaining)
	}
	if x, err = admittedWith(``).execution(); err != nil || string(x.CanonicalArguments) != "{}" || x.Arguments == nil || len(x.Arguments) != 0 {
		t.Errorf("without arguments: %s, %v, %v", x.CanonicalArguments, x.Arguments, err)
	}
}

// What cannot have been admitted as it stands is not executed rounded.
func TestArgumentsThatChangedInStorageAreNotExecuted(t *testing.T) {
	for name, arguments := range map[string]string{
		"beyond 64 bits": `{"n":9223372036854775808}`,
		"a fraction":     `{"n":1.5}`,
		"a list":         `[1]`,
		"twice":          `{"n":1,"n":2}`,
		"no JSON":        `{`,
	} {
		if x, err := admittedWith(arguments).execution(); err == nil {
			t.Errorf("%s: executed with %v", name, x.Arguments)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	type refund struct {
		PaymentID string `json:"payment_id"`
		Amount    int64  `json:"amount"`
		Note      string `json:"note,omitempty"`
	}
	decode := func(text string) (refund, error) {
		var r refund
		err := Execution{CanonicalArguments: []byte(text)}.Decode(&r)
		return r, err
	}
	got, err := decode(`{"amount":9223372036854775807,"payment_id":"txn_1"}`)
	if err != nil || got != (refund{PaymentID: "txn_1", Amount: math.MaxInt64}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, test := range map[string]struct{ text, says string }{
		"a field that people approved and the struct has not": {`{"amount":5,"currency":"JPY","payment_id":"x"}`, `"currency"`},
		"another case":                    {`{"AMOUNT":500,"amount":5,"payment_id":"x"}`, `"AMOUNT"`},
		"another type":                    {`{"amount":"5","payment_id":"x"}`, "amount"},
		"a number that the field has not": {`{"amount":-9223372036854775809,"payment_id":"x"}`, "amount"},
	} {
		if _, err := decode(test.text); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutAFunctionNothingIsProposed(t *testing.T) {
	if _, err := (&Client{}).Protect(context.Background(), Proposal{ActionType: "x"}, nil); err == nil {
		t.Error("it was proposed")
	}
	if _, err := admittedWith(`{}`).Execute(context.Background(), nil); err == nil {
		t.Error("it was executed")
	}
}
