package records

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
)

// InForce reports whether an ActionPolicy, a Grant or Settings that are there decide: Settings until they are gone, the others
// until somebody deletes them, whatever finalizer they wait for.
func InForce(o metav1.Object) bool {
	_, settings := o.(*v1alpha1.Settings)
	return settings || o.GetDeletionTimestamp() == nil
}

// Environment is that of every action in a namespace.
func Environment(ns *corev1.Namespace) string {
	if e := ns.Labels[v1alpha1.EnvironmentLabel]; e != "" {
		return e
	}
	return v1alpha1.DefaultEnvironment
}

// Ruling is what the Settings of a namespace say, with the default of everything they leave out.
type Ruling struct {
	Limits  flow.Limits
	Observe bool
	// Required: nobody proposes without a grant.
	Required bool
	MaxDepth int
	// People are the names that are one person's; nil: none is said to have several.
	People *approval.People
}

// Settings reads Settings. A namespace without any is as one with empty ones.
func Settings(o *v1alpha1.Settings) Ruling {
	spec := o.Spec
	number := func(v *int64, otherwise int64) int64 {
		if v != nil {
			return *v
		}
		return otherwise
	}
	seconds := func(v *int64, otherwise int64) time.Duration {
		return time.Duration(number(v, otherwise)) * time.Second
	}
	return Ruling{
		Limits: flow.Limits{
			ApprovalTTL: seconds(spec.ApprovalTTLSeconds, v1alpha1.DefaultApprovalTTLSeconds),
			MaxLease:    seconds(spec.MaxLeaseSeconds, v1alpha1.DefaultMaxLeaseSeconds),
			FinishedTTL: seconds(spec.FinishedTTLSeconds, v1alpha1.DefaultFinishedTTLSeconds),
		},
		Observe:  spec.Mode != nil && *spec.Mode == v1alpha1.ModeObserve,
		Required: spec.Authority != nil && *spec.Authority == v1alpha1.AuthorityRequired,
		MaxDepth: int(number(spec.MaxDelegationDepth, v1alpha1.DefaultMaxDelegationDepth)),
		People:   people(spec.IdentityAliases),
	}
}

func people[Names ~[]string](aliases []Names) *approval.People {
	var all [][]string
	for _, names := range aliases {
		if len(names) > 0 {
			all = append(all, names)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return approval.NewPeople(all)
}

// Policy reads an ActionPolicy: what is stored, not what the typed fields keep of it. Of one that has no canonical form nothing
// can be trusted, and every action it names is denied.
func Policy(o *v1alpha1.ActionPolicy) (policy.Source, []policy.Finding) {
	version := ""
	if o.Spec.Version != nil {
		version = *o.Spec.Version
	}
	raw, err := specBytes(o.Spec.Raw, o.Spec)
	if err == nil {
		var value any
		if value, err = canonical.Parse(raw); err == nil {
			spec, _ := value.(map[string]any)
			return policy.NewSource(o.Name, version, o.Generation, spec["actions"])
		}
	}
	source := policy.Source{Name: o.Name, Version: version, Generation: o.Generation, Invalid: map[string]string{}}
	for _, name := range looseNames(raw) {
		source.Invalid[name] = "spec: " + err.Error()
	}
	return source, []policy.Finding{{Message: err.Error()}}
}

// looseNames reads the action names of a spec that has no canonical form.
func looseNames(raw []byte) []string {
	var spec struct {
		Actions map[string]json.RawMessage `json:"actions"`
	}
	_ = json.Unmarshal(raw, &spec)
	names := make([]string, 0, len(spec.Actions))
	for name := range spec.Actions {
		names = append(names, name)
	}
	return names
}
