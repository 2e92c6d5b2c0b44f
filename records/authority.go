package records

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/flow"
)

// Grant reads a Grant: what is stored, not what the typed fields keep of it.
func Grant(o *v1alpha1.Grant) (authority.GrantSource, []authority.Finding) {
	spec, err := CanonicalSpec(o.Spec.Raw, o.Spec)
	if err != nil {
		return authority.GrantSource{Name: o.Name, UID: string(o.UID), Generation: o.Generation, Problem: "spec: " + err.Error()}, []authority.Finding{{Message: err.Error()}}
	}
	return authority.NewGrantSource(o.Name, string(o.UID), o.Generation, spec)
}

// Delegation reads a Delegation with its verdict. One that was accepted, but made before that time, counts as refused.
func Delegation(o *v1alpha1.Delegation, admissionSince time.Time) authority.DelegationSource {
	created := o.CreationTimestamp.Time
	d := authority.DelegationSource{Name: o.Name, UID: string(o.UID), Created: created}
	spec, err := CanonicalSpec(o.Spec.Raw, o.Spec)
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

// BrokenGlass reports whether a Delegation opened an envelope for an emergency and has not been closed; until is its end. Whether it
// grants something depends on more: the envelope, and where authority is required.
func BrokenGlass(o *v1alpha1.Delegation, now time.Time) (until time.Time, open bool) {
	end := o.Spec.ExpirationTime
	if o.Spec.BreakGlass == nil || !*o.Spec.BreakGlass || end == nil || now.After(end.Time) {
		return time.Time{}, false
	}
	in := meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.AcceptedCondition)
	cut := meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.RevokedCondition)
	return end.Time, in && !cut
}

// Revocation reads a Revocation. It counts whenever it was made, and whatever its verdict says: it can only take away.
func Revocation(o *v1alpha1.Revocation) authority.Revocation {
	return authority.Revocation{Name: o.Name, DelegationName: o.Spec.DelegationRef.Name, DelegationUID: string(o.Spec.DelegationRef.UID), Revoker: o.Spec.Revoker}
}

// Authorities reads what grants of a namespace, each version of an object once: most changes are of one object, and reading all
// again costs more than uniting them. The zero value is ready. It is for one goroutine at a time.
type Authorities struct {
	read map[types.UID]readAuthority
}

// readAuthority is a Grant or a Delegation at one version.
type readAuthority struct {
	version    string
	since      time.Time
	grant      authority.GrantSource
	delegation authority.DelegationSource
}

// Documents are what the Grants, Delegations and Revocations of a namespace say, of which nothing is left out by whoever asks.
func (a *Authorities) Documents(grants []v1alpha1.Grant, delegations []v1alpha1.Delegation, revocations []v1alpha1.Revocation, maxDepth int, admissionSince time.Time) authority.Documents {
	documents := authority.Documents{MaxDepth: maxDepth}
	now := make(map[types.UID]readAuthority, len(grants)+len(delegations))
	for i := range grants {
		o := &grants[i]
		if !InForce(o) {
			continue
		}
		r, ok := a.read[o.UID]
		if !ok || r.version != o.ResourceVersion {
			r = readAuthority{version: o.ResourceVersion}
			r.grant, _ = Grant(o)
		}
		now[o.UID] = r
		documents.Grants = append(documents.Grants, r.grant)
	}
	for i := range delegations {
		o := &delegations[i]
		r, ok := a.read[o.UID]
		if !ok || r.version != o.ResourceVersion || !r.since.Equal(admissionSince) {
			r = readAuthority{version: o.ResourceVersion, since: admissionSince, delegation: Delegation(o, admissionSince)}
		}
		now[o.UID] = r
		documents.Delegations = append(documents.Delegations, r.delegation)
	}
	for i := range revocations {
		documents.Revocations = append(documents.Revocations, Revocation(&revocations[i]))
	}
	a.read = now
	return documents
}

// CanonicalSpec is the tree of a spec that came from the apiserver; one that was made here is written first.
func CanonicalSpec(raw []byte, spec any) (any, error) {
	raw, err := specBytes(raw, spec)
	if err != nil {
		return nil, err
	}
	return canonical.Parse(raw)
}

func specBytes(raw []byte, spec any) ([]byte, error) {
	if raw != nil {
		return raw, nil
	}
	return json.Marshal(spec)
}
