package records_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/records"
)

var made = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func meta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), ResourceVersion: version, CreationTimestamp: metav1.NewTime(made)}
}

func grant(t *testing.T, name, version, agent string) v1alpha1.Grant {
	t.Helper()
	o := v1alpha1.Grant{ObjectMeta: meta(name, version)}
	if err := json.Unmarshal([]byte(`{"subject":{"agent":"`+agent+`"},"actions":["stripe.*"],"delegable":true}`), &o.Spec); err != nil {
		t.Fatal(err)
	}
	return o
}

func delegation(t *testing.T, name, version string, conditions ...metav1.Condition) v1alpha1.Delegation {
	t.Helper()
	o := v1alpha1.Delegation{ObjectMeta: meta(name, version)}
	spec := `{"parentRef":{"kind":"Grant","name":"g"},"delegator":{"agent":"a"},"subject":{"agent":"b"},"actions":["stripe.refund"]}`
	if err := json.Unmarshal([]byte(spec), &o.Spec); err != nil {
		t.Fatal(err)
	}
	o.Status.Conditions, o.Status.ParentUID = conditions, "g-uid"
	return o
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason}
}

func TestDelegationVerdict(t *testing.T) {
	yes := condition(v1alpha1.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	for name, test := range map[string]struct {
		conditions        []metav1.Condition
		since             time.Time
		accepted, revoked bool
		refused           string
	}{
		"no verdict":                     {nil, made.Add(-1), false, false, ""},
		"accepted":                       {[]metav1.Condition{yes}, made.Add(-1), true, false, ""},
		"accepted before admission":      {[]metav1.Condition{yes}, made, false, false, "MadeWithoutAdmission"},
		"refused":                        {[]metav1.Condition{condition(v1alpha1.AcceptedCondition, metav1.ConditionFalse, "WiderThanParent")}, made.Add(-1), false, false, "WiderThanParent"},
		"revoked":                        {[]metav1.Condition{yes, condition(v1alpha1.RevokedCondition, metav1.ConditionTrue, "Revoked")}, made.Add(-1), true, true, ""},
		"not revoked":                    {[]metav1.Condition{yes, condition(v1alpha1.RevokedCondition, metav1.ConditionFalse, "NotRevoked")}, made.Add(-1), true, false, ""},
		"a verdict that is not known of": {[]metav1.Condition{condition(v1alpha1.AcceptedCondition, metav1.ConditionUnknown, "Waits")}, made.Add(-1), false, false, "Waits"},
	} {
		o := delegation(t, "d", "1", test.conditions...)
		d := records.Delegation(&o, test.since)
		if d.Accepted != test.accepted || d.Revoked != test.revoked || d.Refused != test.refused || d.Problem != "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestWhatIsReadOnceIsReadAgainWhenItIsAnother proves that nothing of an older version, or of a verdict that does not stand any
// more, is kept.
func TestWhatIsReadOnceIsReadAgainWhenItIsAnother(t *testing.T) {
	accepted := condition(v1alpha1.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	revocations := []v1alpha1.Revocation{{ObjectMeta: meta("r", "1"), Spec: v1alpha1.RevocationSpec{Revoker: "eve"}}}
	deleted := grant(t, "gone", "1", "a")
	deleted.DeletionTimestamp = &metav1.Time{Time: made}
	type state struct {
		grants      []v1alpha1.Grant
		delegations []v1alpha1.Delegation
		since       time.Time
	}
	before := made.Add(-time.Second)
	var read records.Authorities
	for i, s := range []state{
		{[]v1alpha1.Grant{grant(t, "g", "1", "a"), deleted}, []v1alpha1.Delegation{delegation(t, "d", "1")}, before},
		{[]v1alpha1.Grant{grant(t, "g", "2", "other")}, []v1alpha1.Delegation{delegation(t, "d", "1")}, before},
		{[]v1alpha1.Grant{grant(t, "g", "2", "other")}, []v1alpha1.Delegation{delegation(t, "d", "2", accepted)}, before},
		{[]v1alpha1.Grant{grant(t, "g", "2", "other")}, []v1alpha1.Delegation{delegation(t, "d", "2", accepted)}, made},
		{nil, nil, made},
		{[]v1alpha1.Grant{grant(t, "g", "2", "other")}, nil, before},
	} {
		got := read.Documents(s.grants, s.delegations, revocations, 3, s.since)
		want := new(records.Authorities).Documents(s.grants, s.delegations, revocations, 3, s.since)
		if diff := cmp.Diff(authority.NewSet(want).Standing(made), authority.NewSet(got).Standing(made), cmp.AllowUnexported(authority.Verdict{})); diff != "" {
			t.Errorf("step %d (-read afresh +read before):\n%s", i, diff)
		}
		inForce := 0
		for j := range s.grants {
			if s.grants[j].DeletionTimestamp == nil {
				inForce++
			}
		}
		if len(got.Grants) != inForce || len(got.Delegations) != len(s.delegations) || len(got.Revocations) != 1 || got.MaxDepth != 3 {
			t.Errorf("step %d: %+v", i, got)
		}
	}
}
