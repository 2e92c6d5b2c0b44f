package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

// contextLines are shown around what changes.
const contextLines = 3

// changeText is what an Action that asks about a change of policies would change, for people: its arguments are hashes. It is
// shown only if what is there has exactly those hashes; else the error says what does not. "": it asks about something else.
func (s *session) changeText(ctx context.Context, a *v1alpha1.Action) (string, error) {
	if a.Spec.ActionType != policy.ChangeAction {
		return "", nil
	}
	change, err := policy.ReadChange(a.Spec.Arguments.Raw)
	if err != nil {
		return "", err
	}
	after, reason, err := s.proposedContent(ctx, change)
	if err != nil {
		return "", err
	}
	before, err := s.presentContent(ctx, change)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s %s %s, as PolicyProposal %s of %s, generation %d, says", change.Operation(), change.Kind, change.Name, change.Proposal, orNone(a.Spec.Principal.User), change.Generation)
	if reason != "" {
		text += fmt.Sprintf(": %q", reason)
	}
	return text + "\n" + strings.Join(lineDiff(before, after), "\n"), nil
}

// proposedContent is what the target would become, and why.
func (s *session) proposedContent(ctx context.Context, change policy.Change) (lines []string, reason string, err error) {
	o := &v1alpha1.PolicyProposal{}
	if err := s.kube.Get(ctx, s.key(change.Proposal), o); err != nil {
		return nil, "", fmt.Errorf("what is proposed cannot be shown: %w", explain(err))
	}
	if string(o.UID) != change.ProposalUID || o.Generation != change.Generation {
		return nil, "", fmt.Errorf("PolicyProposal %s was edited or made anew since this was asked, so what it says now is not what this is about; wait for the next question", change.Proposal)
	}
	kind := v1alpha1.ProposalTargetKind(change.Kind)
	if o.Spec.TargetRef.Kind != kind || o.Spec.TargetRef.Name != change.Name || o.Spec.Delete != (change.To == "") {
		return nil, "", fmt.Errorf("PolicyProposal %s is not about the %s %s of this action", change.Proposal, change.Kind, change.Name)
	}
	if o.Spec.Delete {
		return nil, o.Spec.Reason, nil
	}
	lines, err = contentOf(kind, records.Proposed(o), change.To)
	if err != nil {
		return nil, "", fmt.Errorf("the content of PolicyProposal %s: %w", change.Proposal, err)
	}
	return lines, o.Spec.Reason, nil
}

// presentContent is what the target is.
func (s *session) presentContent(ctx context.Context, change policy.Change) ([]string, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(change.Kind))
	err := s.kube.Get(ctx, s.key(change.Name), o)
	if apierrors.IsNotFound(err) && !missingKind(err) {
		if change.From != "" {
			return nil, fmt.Errorf("%s %s is gone since this was asked; wait for the next question", change.Kind, change.Name)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("what is in force cannot be shown: %w", explain(err))
	}
	target, err := records.Target(o)
	if err != nil {
		return nil, err
	}
	if !change.Stands(target) {
		return nil, fmt.Errorf("%s %s is not what it was when this was asked; wait for the next question", change.Kind, change.Name)
	}
	if !target.Present {
		return nil, nil
	}
	spec, err := json.Marshal(o.Object["spec"])
	if err != nil {
		return nil, err
	}
	return contentOf(v1alpha1.ProposalTargetKind(change.Kind), spec, change.From)
}

// contentOf is a spec as lines of JSON, if it has that hash. Not YAML: there a text of several lines looks like keys.
func contentOf(kind v1alpha1.ProposalTargetKind, spec []byte, hash string) ([]string, error) {
	have, err := records.ContentHash(kind, spec)
	if err != nil {
		return nil, err
	}
	if have != hash {
		return nil, fmt.Errorf("it has the hash %s, and the action names %s: do not approve it, and tell whoever runs the operator", have, hash)
	}
	value, err := records.WholeContent(kind, spec)
	if err != nil {
		return nil, err
	}
	encoded, err := canonical.Encode(value)
	if err != nil {
		return nil, err
	}
	return strings.Split(prettyJSON(encoded), "\n"), nil
}

// mostCompared bounds the table by which two texts are compared; what is larger is shown as gone and come.
const mostCompared = 4_000_000

// lineDiff is what changes between two texts, line by line, with a few lines around it.
func lineDiff(before, after []string) []string {
	if len(before)*len(after) > mostCompared {
		var all []string
		for _, line := range before {
			all = append(all, "- "+line)
		}
		for _, line := range after {
			all = append(all, "+ "+line)
		}
		return all
	}
	// common[i][j] is how many lines the rests from i and j have in common, in order.
	common := make([][]int, len(before)+1)
	for i := range common {
		common[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if before[i] == after[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var all []string
	for i, j := 0, 0; i < len(before) || j < len(after); {
		switch {
		case i < len(before) && j < len(after) && before[i] == after[j]:
			all = append(all, "  "+before[i])
			i, j = i+1, j+1
		case j == len(after) || (i < len(before) && common[i+1][j] >= common[i][j+1]):
			all = append(all, "- "+before[i])
			i++
		default:
			all = append(all, "+ "+after[j])
			j++
		}
	}
	return aroundChanges(all)
}

// aroundChanges leaves out what is far from any change, but not what a change is in: by its indentation.
func aroundChanges(all []string) []string {
	near := make([]bool, len(all))
	for i, line := range all {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		for n := max(0, i-contextLines); n <= min(len(all)-1, i+contextLines); n++ {
			near[n] = true
		}
		for n, depth := i-1, indentation(line); n >= 0 && depth > 0; n-- {
			if d := indentation(all[n]); d < depth {
				near[n], depth = true, d
			}
		}
	}
	var out []string
	for i, line := range all {
		switch {
		case near[i]:
			out = append(out, line)
		case i == 0 || near[i-1]:
			out = append(out, "  ...")
		}
	}
	return out
}

// indentation of a line behind its mark.
func indentation(line string) int { return len(line) - 2 - len(strings.TrimLeft(line[2:], " ")) }
