package controllers

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
)

const (
	someUID   = "0a1b2c3d-0000-4000-8000-000000000001"
	someClaim = "0a1b2c3d-0000-4000-8000-000000000002"
)

func someClaims() *v1alpha1.IdentityClaims {
	return &v1alpha1.IdentityClaims{Groups: []string{"a", "b c"}, PodName: "agent-0", PodUID: "uid", NodeName: "node", CredentialID: "JTI=1"}
}

func someStatus() v1alpha1.StatementStatus {
	return v1alpha1.StatementStatus{Conditions: []metav1.Condition{{Type: v1alpha1.AcceptedCondition, Status: metav1.ConditionFalse, Reason: "LateReport", Message: "It came too late."}}}
}

func someMeta(prefix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "payments", Name: prefix + someUID + "." + someClaim + ".speaker", UID: types.UID(someUID), ResourceVersion: "7", Labels: map[string]string{"team": "x"}}
}

func someOutcome(prefix, output, text string) *v1alpha1.Outcome {
	o := &v1alpha1.Outcome{TypeMeta: metav1.TypeMeta{Kind: "Outcome", APIVersion: "ctrlrun.dev/v1alpha1"}, ObjectMeta: someMeta(prefix), Status: someStatus()}
	o.Spec = v1alpha1.OutcomeSpec{
		ActionRef: v1alpha1.ObjectReference{Name: "refund-1", UID: someUID}, ClaimID: someClaim, Result: v1alpha1.OutcomeUnknown,
		Reason: v1alpha1.OutcomeReasonLeaseLapsed, Error: text, Reporter: "agent", Claims: someClaims(),
	}
	if output != "" {
		o.Spec.Output = &apiextensionsv1.JSON{Raw: []byte(output)}
	}
	return o
}

// What comes out of the cache is what the apiserver gave, but for what is cut on purpose.
func TestStatementsStayWhole(t *testing.T) {
	short := &shorten{}
	approval := &v1alpha1.Approval{ObjectMeta: someMeta(""), Spec: v1alpha1.ApprovalSpec{
		ActionRef: v1alpha1.ObjectReference{Name: "refund-1", UID: someUID}, ActionType: "stripe.refund", ActionHash: "sha256:1", EffectKey: new("refund:1"),
		Decision: v1alpha1.Approved, Approver: "alice", Reason: "ok", Claims: someClaims(),
	}, Status: v1alpha1.ApprovalStatus{StatementStatus: someStatus(), RulesHash: "sha256:2"}}
	claim := &v1alpha1.Claim{ObjectMeta: someMeta(""), Spec: v1alpha1.ClaimSpec{
		ActionRef: v1alpha1.ObjectReference{Name: "refund-1", UID: someUID}, ClaimID: someClaim, Claimant: "agent", Claims: someClaims(),
	}, Status: someStatus()}
	elsewhere := someOutcome("", "", "")
	elsewhere.Name = "a name that says nothing"
	for name, c := range map[string]struct {
		o    runtime.Object
		make func(any) (any, error)
	}{
		"an outcome":                        {someOutcome("", `{"id":1}`, "no"), short.outcome},
		"a late one":                        {someOutcome("late.", "", ""), short.outcome},
		"one as long as is kept":            {someOutcome("", `"`+strings.Repeat("x", longest-3)+`"`, "n"), short.outcome},
		"one whose name says nothing of it": {elsewhere, short.outcome},
		"an approval":                       {approval, short.approval},
		"a claim":                           {claim, short.claim},
		"something of another kind":         {&v1alpha1.Action{ObjectMeta: someMeta("")}, short.outcome},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.o.DeepCopyObject()
			for range 2 { // a transform may see an object again
				made, err := c.make(c.o)
				if err != nil || !reflect.DeepEqual(made, before) {
					t.Fatalf("%v\nwas\n%s\nis\n%s", err, text(t, before), text(t, made))
				}
			}
		})
	}
}

func TestLongOutcomesAreCut(t *testing.T) {
	for name, o := range map[string]*v1alpha1.Outcome{
		"output":             someOutcome("", `"`+strings.Repeat("x", longest)+`"`, ""),
		"error":              someOutcome("", "", strings.Repeat("x", longest+1)),
		"both together":      someOutcome("", `"`+strings.Repeat("x", longest/2)+`"`, strings.Repeat("x", longest/2)),
		"an output of 1 MiB": someOutcome("", `"`+strings.Repeat("x", 1<<20)+`"`, ""),
	} {
		t.Run(name, func(t *testing.T) {
			want := o.DeepCopy()
			want.Spec.Output, want.Spec.Error = &apiextensionsv1.JSON{}, ""
			short := &shorten{}
			for range 2 {
				if _, err := short.outcome(o); err != nil || !isCut(o) || !reflect.DeepEqual(o, want) {
					t.Fatalf("%v: %s", err, text(t, o))
				}
			}
			if !isCut(o.DeepCopy()) {
				t.Error("a copy does not say that it is cut")
			}
		})
	}
	for _, output := range []string{"", `null`, `""`, `{}`, `0`} {
		o := &v1alpha1.Outcome{}
		raw := `{"spec":{"output":` + output + `}}`
		if output == "" {
			raw = `{"spec":{}}`
		}
		if err := json.Unmarshal([]byte(raw), o); err != nil {
			t.Fatal(err)
		}
		if isCut(o) {
			t.Errorf("what an apiserver gives, %s, looks as if it were cut", raw)
		}
	}
}

func TestStatementsShareWhatTheySayAlike(t *testing.T) {
	short := &shorten{}
	one, other := someOutcome("", "", ""), someOutcome("late.", "", "")
	other.Namespace, other.Spec.Reporter = strings.Clone(one.Namespace), strings.Clone(one.Spec.Reporter)
	for _, o := range []*v1alpha1.Outcome{one, other} {
		if _, err := short.outcome(o); err != nil {
			t.Fatal(err)
		}
	}
	same := func(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }
	if !same(one.Namespace, other.Namespace) || !same(one.Spec.Reporter, other.Spec.Reporter) || one.Spec.Claims != other.Spec.Claims {
		t.Error("they do not share what they say alike")
	}
	if !same(string(other.Spec.ActionRef.UID), other.Name[len("late."):]) || !same(other.Spec.ClaimID, other.Name[len("late.")+len(someUID)+1:]) {
		t.Error("what the name says is there twice")
	}
	different := someOutcome("", "", "")
	different.Spec.Claims.Groups = []string{"a", "b", "c"}
	if _, err := short.outcome(different); err != nil {
		t.Fatal(err)
	}
	if different.Spec.Claims == one.Spec.Claims {
		t.Error("two speakers were taken for one")
	}
}

func TestWhatIsSharedIsBounded(t *testing.T) {
	short := &shorten{}
	for i := range 3 * mostKnown {
		want := fmt.Sprintf("speaker-%d", i)
		if got := short.text(want); got != want {
			t.Fatalf("%q became %q", want, got)
		}
	}
	if len(short.texts.by) > mostKnown {
		t.Errorf("%d texts are remembered", len(short.texts.by))
	}
}

func text(t *testing.T, o any) string {
	t.Helper()
	b, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}
