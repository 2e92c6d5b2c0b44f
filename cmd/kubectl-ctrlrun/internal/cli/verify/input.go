package verify

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/policy"
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

// object is the policy as it is created in the scratch namespace: what is written, not what Go types keep of it.
func (p Policy) object(namespace string) (*unstructured.Unstructured, error) {
	text, err := canonical.Encode(map[string]any{"actions": p.actions})
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.Origin, err)
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(text, &spec); err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.Origin, err)
	}
	if p.Version != "" {
		spec["version"] = p.Version
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ActionPolicy"))
	o.SetNamespace(namespace)
	o.SetName(p.Name)
	return o, nil
}

// Settings are those of the namespace, as far as they decide anything in the time a run takes.
type Settings struct {
	ApprovalTTLSeconds int64 `json:"approvalTTLSeconds"`
	MaxLeaseSeconds    int64 `json:"maxLeaseSeconds"`
}

// keepSeconds is how long what is finished stays in the scratch namespace. That of the user's Settings may be 0, and then there
// would be nothing left to look at.
const keepSeconds = 86400

// NewSettings are those of an object.
func NewSettings(o *v1alpha1.Settings) *Settings {
	s := &Settings{ApprovalTTLSeconds: v1alpha1.DefaultApprovalTTLSeconds, MaxLeaseSeconds: v1alpha1.DefaultMaxLeaseSeconds}
	if o.Spec.ApprovalTTLSeconds != nil {
		s.ApprovalTTLSeconds = *o.Spec.ApprovalTTLSeconds
	}
	if o.Spec.MaxLeaseSeconds != nil {
		s.MaxLeaseSeconds = *o.Spec.MaxLeaseSeconds
	}
	return s
}

func (s *Settings) object(namespace string) *v1alpha1.Settings {
	keep := int64(keepSeconds)
	return &v1alpha1.Settings{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SettingsName},
		Spec:       v1alpha1.SettingsSpec{ApprovalTTLSeconds: &s.ApprovalTTLSeconds, MaxLeaseSeconds: &s.MaxLeaseSeconds, FinishedTTLSeconds: &keep},
	}
}
