package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

// authorities are the grants, delegations and revocations of a namespace, and what the operator makes of them.
type authorities struct {
	grants      map[string]*v1alpha1.Grant
	delegations map[string]*v1alpha1.Delegation
	// revocations in the order of their names. Each counts, whatever its verdict says.
	revocations []v1alpha1.Revocation
	// unread are the kinds that could not be read; without them what is said here may be wrong.
	unread []string
	set    *authority.Set
}

// authorities reads them. Who may not read grants and delegations gets an error; who may not read revocations learns of them
// from the delegations' own status.
func (s *session) authorities(ctx context.Context, maxDepth int) (*authorities, error) {
	grants, delegations, revocations := &v1alpha1.GrantList{}, &v1alpha1.DelegationList{}, &v1alpha1.RevocationList{}
	for _, list := range []kube.ObjectList{grants, delegations} {
		if err := s.kube.List(ctx, list, kube.InNamespace(s.Namespace())); err != nil {
			return nil, explain(err)
		}
	}
	var unread []string
	if err := s.kube.List(ctx, revocations, kube.InNamespace(s.Namespace())); apierrors.IsForbidden(err) {
		unread = append(unread, "revocations")
	} else if err != nil {
		return nil, explain(err)
	}
	found := unite(grants.Items, delegations.Items, revocations.Items, maxDepth, s.admission(ctx).counts)
	found.unread = unread
	return found, nil
}

// unite makes of objects what the operator makes of them. What was accepted before since does not count: its status may be
// forged.
func unite(grants []v1alpha1.Grant, delegations []v1alpha1.Delegation, revocations []v1alpha1.Revocation, maxDepth int, since time.Time) *authorities {
	slices.SortFunc(revocations, func(a, b v1alpha1.Revocation) int { return strings.Compare(a.Name, b.Name) })
	found := &authorities{
		grants: map[string]*v1alpha1.Grant{}, delegations: map[string]*v1alpha1.Delegation{}, revocations: revocations,
		set: authority.NewSet(new(records.Authorities).Documents(grants, delegations, revocations, maxDepth, since)),
	}
	for i := range grants {
		if o := &grants[i]; records.InForce(o) {
			found.grants[o.Name] = o
		}
	}
	for i := range delegations {
		found.delegations[delegations[i].Name] = &delegations[i]
	}
	return found
}

// refused is the verdict that a statement does not count; nil if it has none, or counts.
func refused(conditions []metav1.Condition) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, v1alpha1.AcceptedCondition); c != nil && c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}

// terms are what a grant or a delegation says.
func (x *authorities) terms(ref authority.Ref) v1alpha1.GrantTerms {
	if o := x.grants[ref.Name]; ref.Kind == authority.KindGrant && o != nil {
		return o.Spec.GrantTerms
	}
	if o := x.delegations[ref.Name]; ref.Kind == authority.KindDelegation && o != nil {
		return o.Spec.GrantTerms
	}
	return v1alpha1.GrantTerms{}
}

func (x *authorities) has(ref authority.Ref) bool {
	return ref.Kind == authority.KindGrant && x.grants[ref.Name] != nil || ref.Kind == authority.KindDelegation && x.delegations[ref.Name] != nil
}

// parent is what a delegation hangs below; the zero Ref of a grant.
func (x *authorities) parent(ref authority.Ref) authority.Ref {
	if o := x.delegations[ref.Name]; ref.Kind == authority.KindDelegation && o != nil {
		return parentOf(o)
	}
	return authority.Ref{}
}

func parentOf(o *v1alpha1.Delegation) authority.Ref {
	return authority.Ref{Kind: authority.Kind(o.Spec.ParentRef.Kind), Name: o.Spec.ParentRef.Name}
}

// revocation is the one that cut a delegation itself; nil if there is none.
func (x *authorities) revocation(o *v1alpha1.Delegation) *v1alpha1.Revocation {
	for i := range x.revocations {
		if ref := x.revocations[i].Spec.DelegationRef; ref.Name == o.Name && ref.UID == o.UID {
			return &x.revocations[i]
		}
	}
	return nil
}

// revoked reports whether a delegation itself was revoked.
func (x *authorities) revoked(o *v1alpha1.Delegation) bool {
	return x.revocation(o) != nil || meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.RevokedCondition)
}

// cut is the nearest revocation at or above ref; nil if none is there.
func (x *authorities) cut(ref authority.Ref) *v1alpha1.Revocation {
	seen := map[authority.Ref]bool{}
	for ref.Kind == authority.KindDelegation && !seen[ref] && x.has(ref) {
		seen[ref] = true
		if r := x.revocation(x.delegations[ref.Name]); r != nil {
			return r
		}
		ref = x.parent(ref)
	}
	return nil
}

// ref takes KIND/NAME, as -o name prints it too. Of a plain name the kind is empty.
func parseRef(arg string) (authority.Ref, error) {
	kind, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		kind, name = "", arg
	}
	if name == "" || strings.Contains(name, "/") {
		return authority.Ref{}, exit.Errorf(exit.Usage, "%q names neither a grant nor a delegation: write Grant/NAME or Delegation/NAME", arg)
	}
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	switch {
	case !qualified:
		return authority.Ref{Name: name}, nil
	case kind == "grant" || kind == "grants":
		return authority.Ref{Kind: authority.KindGrant, Name: name}, nil
	case kind == "delegation" || kind == "delegations":
		return authority.Ref{Kind: authority.KindDelegation, Name: name}, nil
	}
	return authority.Ref{}, exit.Errorf(exit.Usage, "%q is neither a grant nor a delegation: write Grant/NAME or Delegation/NAME", arg)
}

// resolve gives a plain name its kind.
func (x *authorities) resolve(ref authority.Ref, namespace string) (authority.Ref, error) {
	if ref.Kind != "" {
		return ref, nil
	}
	grant, delegation := authority.Ref{Kind: authority.KindGrant, Name: ref.Name}, authority.Ref{Kind: authority.KindDelegation, Name: ref.Name}
	switch {
	case x.has(grant) && x.has(delegation):
		return ref, exit.Errorf(exit.Usage, "%q is a grant and a delegation: write %s or %s", ref.Name, grant, delegation)
	case x.has(grant):
		return grant, nil
	case x.has(delegation):
		return delegation, nil
	}
	return ref, exit.Errorf(exit.Failure, "there is no grant and no delegation %q in namespace %s; kubectl ctrlrun grants shows those there are", ref.Name, namespace)
}

// ruling is what the Settings of a namespace say.
type ruling struct {
	records.Ruling
	unread bool // they may not be read, and the defaults are taken
}

func (r ruling) authorityText() string {
	switch {
	case r.unread:
		return "not visible to you: if the Settings say Required, only what is in force here lets anybody propose"
	case r.Required:
		return "Required: only what is in force here lets anybody propose"
	}
	return "NotRequired: everybody may propose what policy allows, and what is here decides nothing"
}

func (s *session) ruling(ctx context.Context) (ruling, error) {
	settings := &v1alpha1.Settings{}
	err := s.kube.Get(ctx, s.key(v1alpha1.SettingsName), settings)
	if err != nil && !apierrors.IsForbidden(err) && (!apierrors.IsNotFound(err) || missingKind(err)) {
		return ruling{}, explain(err)
	}
	return ruling{Ruling: records.Settings(settings), unread: apierrors.IsForbidden(err)}, nil
}

// environment of the namespace, and whether it is known: who may not read the namespace is told the default.
func (s *session) environment(ctx context.Context) (name string, known bool, err error) {
	var namespace corev1.Namespace
	err = s.kube.Get(ctx, kube.ObjectKey{Name: s.Namespace()}, &namespace)
	switch {
	case apierrors.IsForbidden(err):
		return v1alpha1.DefaultEnvironment, false, nil
	case apierrors.IsNotFound(err):
		return "", false, exit.Errorf(exit.Failure, "there is no namespace %q in this cluster: check -n and --context", s.Namespace())
	case err != nil:
		return "", false, explain(err)
	}
	return records.Environment(&namespace), true, nil
}

// How a grant or a delegation stands, for programs.
const (
	standsInForce    = "InForce"
	standsEnvelope   = "Envelope"
	standsExpired    = "Expired"
	standsRevoked    = "Revoked"
	standsBroken     = "Broken"
	standsRefused    = "Refused"
	standsNotJudged  = "NotJudged"
	standsInvalid    = "Invalid"
	standsUnreadable = "Unreadable"
)

// standing is a verdict of Set.Standing in one word, and in a few for people.
func (x *authorities) standing(v authority.Verdict) (state, text string) {
	switch {
	case v.Reason == decision.AuthorityUnreadable:
		return standsUnreadable, "UNREADABLE: it makes everything denied"
	case v.Inert == authority.Invalid:
		return standsInvalid, "invalid"
	case v.Inert == authority.Envelope:
		return standsEnvelope, "envelope, lets nobody propose until it is opened"
	case v.Inert == authority.NotJudged:
		return standsNotJudged, "no verdict yet"
	case v.Inert == authority.Refused:
		return standsRefused, "refused " + x.refusal(v.Ref)
	case v.Passed && v.BreakGlass:
		return standsInForce, "in force, BREAK GLASS"
	case v.Passed:
		return standsInForce, "in force"
	case v.Reason == decision.AuthorityExpired:
		return standsExpired, "expired"
	case v.Reason == decision.AuthorityRevoked:
		text = "revoked"
		if r := x.cut(v.Ref); r != nil {
			text += " by " + r.Spec.Revoker
			if r.Spec.DelegationRef.Name != v.Ref.Name {
				text += " (Delegation/" + r.Spec.DelegationRef.Name + ")"
			}
		}
		return standsRevoked, text
	case !v.MissingParent.IsZero():
		return standsBroken, fmt.Sprintf("broken: %s is not there or does not hold", v.MissingParent)
	case !v.ExpiredParent.IsZero():
		return standsBroken, fmt.Sprintf("broken: %s has expired", v.ExpiredParent)
	case v.Dimension != "":
		return standsBroken, fmt.Sprintf("broken: wider than its parent (%s)", v.Dimension)
	case v.DepthExceeded:
		return standsBroken, "broken: too far below its grant"
	}
	return standsBroken, "broken: what is above it may not be delegated any more"
}

// refusal is why a delegation was refused, in the word of its condition.
func (x *authorities) refusal(ref authority.Ref) string {
	o := x.delegations[ref.Name]
	if o == nil {
		return ""
	}
	if c := refused(o.Status.Conditions); c != nil {
		return c.Reason
	}
	return flow.MadeWithoutAdmission.Condition()
}

func subjectText(s v1alpha1.GrantSubject) string {
	text := "any agent"
	if s.Agent != nil {
		text = *s.Agent
	}
	if s.User != nil {
		text += " for " + *s.User
	}
	return text
}

func principalText(agent string, user *string) string {
	if user == nil {
		return agent
	}
	return agent + " for " + *user
}

func orAny(list []string) string {
	if len(list) == 0 {
		return "any"
	}
	return strings.Join(list, ", ")
}

func constraintsText(t v1alpha1.GrantTerms) string {
	if t.Constraints == nil || len(t.Constraints.Raw) == 0 {
		return "none"
	}
	value, err := canonical.Parse(t.Constraints.Raw)
	m, ok := value.(map[string]any)
	if err != nil || !ok {
		return string(t.Constraints.Raw)
	}
	var parts []string
	for _, key := range sortedKeys(m) {
		operand, err := canonical.Encode(m[key])
		if err != nil {
			return string(t.Constraints.Raw)
		}
		parts = append(parts, key+": "+string(operand))
	}
	return strings.Join(parts, ", ")
}

func expiresText(t v1alpha1.GrantTerms) string {
	if t.ExpirationTime == nil {
		return "never"
	}
	return t.ExpirationTime.UTC().Format(time.RFC3339)
}

func delegableText(t v1alpha1.GrantTerms) string {
	if t.Delegable != nil && *t.Delegable {
		return "yes"
	}
	return "no"
}
