package verify

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/guarantees"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

// Policy is one policy to be verified.
type Policy struct {
	// Name of the object that is made of it in the scratch namespace.
	Name string `json:"name"`
	// Origin is where it is from: NAMESPACE/NAME, or a file.
	Origin     string `json:"origin"`
	Version    string `json:"version"`
	Generation int64  `json:"generation"`
	RulesHash  string `json:"rulesHash"`
	// Count is how many actions it names.
	Count int `json:"actions"`

	actions any
	source  policy.Source
}

// NewPolicy judges a policy as the operator would. Actions are canonical values. One that is not valid is an *UnusableError.
func NewPolicy(name, origin, version string, generation int64, actions any) (Policy, error) {
	source, findings := policy.NewSource(name, version, generation, actions)
	if policy.HasErrors(findings) {
		for _, f := range findings {
			if !f.Warning {
				return Policy{}, unusable("the policy %s is not valid, and denies every action it names: spec.%s", origin, f)
			}
		}
	}
	return Policy{
		Name: name, Origin: origin, Version: version, Generation: generation, RulesHash: source.RulesHash, Count: len(source.Actions),
		actions: actions, source: source,
	}, nil
}

// Sources are policies as members of a set. Two that contradict each other are an *UnusableError.
func Sources(policies []Policy) ([]policy.Source, error) {
	var sources []policy.Source
	for _, p := range policies {
		sources = append(sources, p.source)
	}
	if conflicts := policy.NewSet(sources).Conflicts(); len(conflicts) > 0 {
		return nil, unusable("two policies define the action %s differently, which denies it: make the entries equal, or remove one", conflicts[0])
	}
	return sources, nil
}

// object is the policy as it is created in the scratch namespace: what is written, not what Go types keep of it. Where groups are
// asked, the given one is asked as well; "" leaves them as they are.
func (p Policy) object(namespace, group string) (*unstructured.Unstructured, error) {
	o, err := object("ActionPolicy", namespace, p.Name, map[string]any{"actions": p.asking(group)})
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.Origin, err)
	}
	if p.Version != "" {
		err = unstructured.SetNestedField(o.Object, p.Version, "spec", "version")
	}
	return o, err
}

// approverGroups is the key of an entry that names groups.
const approverGroups = "approverGroups"

// asking are the actions with one group more where groups are asked. Where there are as many as there may be, it takes the place of
// the last.
func (p Policy) asking(group string) any {
	actions, _ := canonical.Clone(p.actions).(map[string]any)
	for _, e := range actions {
		entry, _ := e.(map[string]any)
		groups, _ := entry[approverGroups].([]any)
		if group == "" || len(groups) == 0 {
			continue
		}
		entry[approverGroups] = append(groups[:min(len(groups), policy.MaxApproverGroups-1)], group)
	}
	if actions == nil {
		return p.actions
	}
	return actions
}

// object is an object with a spec that is a canonical value.
func object(kind, namespace, name string, value map[string]any) (*unstructured.Unstructured, error) {
	text, err := canonical.Encode(value)
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o, nil
}

// Grant is one Grant of the namespace.
type Grant struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Expiration is the last moment it holds; nil: it never ends.
	Expiration *time.Time `json:"expirationTime"`
	// Copied: false for one of type BreakGlass, which lets nobody propose.
	Copied bool `json:"copied"`

	document guarantees.GrantDocument
}

// NewGrant judges a Grant as the operator would. One that is not valid is an *UnusableError.
func NewGrant(o *v1alpha1.Grant) (Grant, error) {
	source, findings := records.Grant(o)
	if len(findings) > 0 {
		return Grant{}, unusable("the grant %s/%s is not valid, and lets nobody propose: spec.%s", o.Namespace, o.Name, findings[0])
	}
	spec, err := records.CanonicalSpec(o.Spec.Raw, o.Spec)
	if err != nil {
		return Grant{}, unusable("the grant %s/%s is not valid, and lets nobody propose: spec: %w", o.Namespace, o.Name, err)
	}
	g := Grant{Name: o.Name, Generation: o.Generation, Expiration: source.Grant.Expiration, document: guarantees.GrantDocument{Name: o.Name, Spec: spec}}
	g.Copied = !g.document.Envelope()
	return g, nil
}

const (
	// soon is how far off the end of a grant has to be so that nothing in a run happens after it.
	soon = time.Hour
	// later is how long the copy of a grant holds that ends sooner.
	later = 2 * time.Hour
)

// copied is the spec of the copy of a grant: it is for the agent, and holds for the time of a run.
func (g Grant) copied(agent string, now time.Time) map[string]any {
	var until *time.Time
	if g.Expiration != nil && g.Expiration.Before(now.Add(soon)) {
		end := now.Add(later)
		until = &end
	}
	return g.document.For(agent, until)
}

// Settings are those of the namespace, as far as they decide anything in the time a run takes.
type Settings struct {
	ApprovalTTLSeconds int64 `json:"approvalTTLSeconds"`
	MaxLeaseSeconds    int64 `json:"maxLeaseSeconds"`
	// Authority is whether principals need a grant.
	Authority          v1alpha1.AuthorityMode `json:"authority"`
	MaxDelegationDepth int64                  `json:"maxDelegationDepth"`
	// IdentityAliases is how many lists of names of one person there are.
	IdentityAliases int `json:"identityAliases"`
	// PolicyChanges is who may change policies and grants. The copy lets whoever RBAC lets, until G21, which is the last.
	PolicyChanges v1alpha1.PolicyChanges `json:"policyChanges"`
}

// required reports whether principals need a grant.
func (s *Settings) required() bool { return s != nil && s.Authority == v1alpha1.AuthorityRequired }

// proposed reports whether policies change by proposals only.
func (s *Settings) proposed() bool {
	return s != nil && s.PolicyChanges == v1alpha1.PolicyChangesProposed
}

// aliased reports whether there are names that are one person.
func (s *Settings) aliased() bool { return s != nil && s.IdentityAliases > 0 }

// keepSeconds is how long what is finished stays in the scratch namespace. That of the user's Settings may be 0, and then there
// would be nothing left to look at.
const keepSeconds = 86400

// NewSettings are those of an object.
func NewSettings(o *v1alpha1.Settings) *Settings {
	s := &Settings{
		ApprovalTTLSeconds: v1alpha1.DefaultApprovalTTLSeconds, MaxLeaseSeconds: v1alpha1.DefaultMaxLeaseSeconds,
		Authority: v1alpha1.AuthorityNotRequired, MaxDelegationDepth: v1alpha1.DefaultMaxDelegationDepth, IdentityAliases: len(o.Spec.IdentityAliases),
		PolicyChanges: v1alpha1.PolicyChangesFree,
	}
	if o.Spec.ApprovalTTLSeconds != nil {
		s.ApprovalTTLSeconds = *o.Spec.ApprovalTTLSeconds
	}
	if o.Spec.MaxLeaseSeconds != nil {
		s.MaxLeaseSeconds = *o.Spec.MaxLeaseSeconds
	}
	if o.Spec.Authority != nil {
		s.Authority = *o.Spec.Authority
	}
	if o.Spec.MaxDelegationDepth != nil {
		s.MaxDelegationDepth = *o.Spec.MaxDelegationDepth
	}
	if o.Spec.PolicyChanges != nil {
		s.PolicyChanges = *o.Spec.PolicyChanges
	}
	return s
}

// object is the copy of the Settings, with the names of people in the scratch namespace that are one person. More depth than the
// default takes a right that is not needed for one step.
func (s *Settings) object(namespace string, aliases []v1alpha1.IdentityAlias) *v1alpha1.Settings {
	keep, depth := int64(keepSeconds), min(s.MaxDelegationDepth, v1alpha1.DefaultMaxDelegationDepth)
	return &v1alpha1.Settings{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SettingsName},
		Spec: v1alpha1.SettingsSpec{
			ApprovalTTLSeconds: &s.ApprovalTTLSeconds, MaxLeaseSeconds: &s.MaxLeaseSeconds, FinishedTTLSeconds: &keep,
			Authority: &s.Authority, MaxDelegationDepth: &depth, IdentityAliases: aliases,
		},
	}
}
