package records

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/policy"
)

// Proposed is the spec that a PolicyProposal proposes, nil if it proposes a deletion.
func Proposed(o *v1alpha1.PolicyProposal) []byte {
	if o.Spec.Delete || o.Spec.Content == nil {
		return nil
	}
	return o.Spec.Content.Raw
}

// ContentHash is the hash of a spec of an ActionPolicy or a Grant, as it was written or as it is stored: they differ by what the
// apiserver fills in.
func ContentHash(kind v1alpha1.ProposalTargetKind, spec []byte) (string, error) {
	value, err := WholeContent(kind, spec)
	if err != nil {
		return "", err
	}
	return policy.ContentHash(string(kind), value)
}

// WholeContent is a spec of an ActionPolicy or a Grant as canonical values, with what the apiserver fills in.
func WholeContent(kind v1alpha1.ProposalTargetKind, spec []byte) (any, error) {
	value, err := canonical.Parse(spec)
	if err != nil {
		return nil, err
	}
	if m, ok := value.(map[string]any); ok && kind == v1alpha1.TargetGrant && m["grantType"] == nil {
		m["grantType"] = string(v1alpha1.GrantStandard)
	}
	return value, nil
}

// ContentProblems are what is wrong with proposed content before anybody is asked about it; the apiserver may find more.
func ContentProblems(kind v1alpha1.ProposalTargetKind, name string, content []byte) (problems []string) {
	switch kind {
	case v1alpha1.TargetActionPolicy:
		o := &v1alpha1.ActionPolicy{}
		o.Name, o.Spec.Raw = name, content
		_, findings := Policy(o)
		for _, f := range findings {
			if !f.Warning {
				problems = append(problems, "spec.content."+f.String())
			}
		}
	case v1alpha1.TargetGrant:
		o := &v1alpha1.Grant{}
		o.Name, o.Spec.Raw = name, content
		_, findings := Grant(o)
		for _, f := range findings {
			problems = append(problems, "spec.content."+f.String())
		}
	default:
		problems = append(problems, fmt.Sprintf("spec.targetRef.kind: %q cannot be proposed to be changed", kind))
	}
	return problems
}

// Target is what an object, as the apiserver has it, is to a change; nil: it is not there. One that is being deleted decides nothing
// any more, so it is not there either.
func Target(o *unstructured.Unstructured) (policy.Target, error) {
	if o == nil || !InForce(o) {
		return policy.Target{}, nil
	}
	spec, err := json.Marshal(o.Object["spec"])
	if err != nil {
		return policy.Target{}, fmt.Errorf("read the spec of %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	hash, err := ContentHash(v1alpha1.ProposalTargetKind(o.GetKind()), spec)
	if err != nil {
		hash = canonical.Sum(spec) // what is stored has no canonical form; it is not what anybody proposes
	}
	return policy.Target{Present: true, UID: string(o.GetUID()), Generation: o.GetGeneration(), Hash: hash}, nil
}

// Change is what people are asked by a question about a proposal.
func Change(o *v1alpha1.PolicyProposal, q *v1alpha1.ProposalQuestion) policy.Change {
	return policy.Change{
		Kind: string(o.Spec.TargetRef.Kind), Name: o.Spec.TargetRef.Name, From: q.From, To: q.To,
		TargetUID: string(q.TargetUID), TargetGeneration: q.TargetGeneration,
		Proposal: o.Name, ProposalUID: string(o.UID), Generation: q.Generation,
	}
}

// QuestionName is the name of the Action that asks about a generation of a proposal for that time. Nobody else's Action is taken
// for it, whatever its name.
func QuestionName(proposal string, uid types.UID, generation, round int64) string {
	if len(proposal) > 60 {
		proposal = proposal[:60]
	}
	id := string(uid)
	return fmt.Sprintf("%s-%s-%d-%d", strings.TrimRight(proposal, "-."), id[:min(8, len(id))], generation, round)
}
