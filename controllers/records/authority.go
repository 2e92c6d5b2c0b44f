package records

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/flow"
)

// Grant reads a Grant: what is stored, not what the typed fields keep of it.
func Grant(o *v1alpha1.Grant) (authority.GrantSource, []authority.Finding) {
	spec, err := canonicalSpec(o.Spec.Raw, o.Spec)
	if err != nil {
		return authority.GrantSource{Name: o.Name, UID: string(o.UID), Generation: o.Generation, Problem: "spec: " + err.Error()}, []authority.Finding{{Message: err.Error()}}
	}
	return authority.NewGrantSource(o.Name, string(o.UID), o.Generation, spec)
}

// Delegation reads a Delegation with its verdict. One that was accepted, but made before that time, counts as refused.
func Delegation(o *v1alpha1.Delegation, admissionSince time.Time) authority.DelegationSource {
	created := o.CreationTimestamp.Time
	d := authority.DelegationSource{Name: o.Name, UID: string(o.UID), Created: created}
	spec, err := canonicalSpec(o.Spec.Raw, o.Spec)
	if err != nil {
		d.Problem = "spec: " + err.Error()
	} else {
		d, _ = authority.NewDelegationSource(o.Name, string(o.UID), created, spec)
	}
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)
	if c == nil {
		return d
	}
	d.ParentUID = string(o.Status.ParentUID)
	d.Revoked = meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.RevokedCondition)
	switch given := c.Status == metav1.ConditionTrue; {
	case flow.DelegationStands(given, created, admissionSince):
		d.Accepted = true
	case given:
		d.Refused = flow.MadeWithoutAdmission.Condition()
	default:
		d.Refused = c.Reason
	}
	return d
}

// Revocation reads a Revocation.
func Revocation(o *v1alpha1.Revocation) authority.Revocation {
	return authority.Revocation{Name: o.Name, DelegationName: o.Spec.DelegationRef.Name, DelegationUID: string(o.Spec.DelegationRef.UID), Revoker: o.Spec.Revoker}
}

// canonicalSpec is the tree of a spec that came from the apiserver; one that was made here is written first.
func canonicalSpec(raw []byte, spec any) (any, error) {
	if raw == nil {
		var err error
		if raw, err = json.Marshal(spec); err != nil {
			return nil, err
		}
	}
	return canonical.Parse(raw)
}
