package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/records"
)

// actionRows writes everything that is hashed of an Action, the rule that decided, and how it stands. The text of the rule
// may be empty, and so may be that of the Executor.
func actionRows(t fields, action *v1alpha1.Action, ruleText, executorText string) {
	t.row("Action", action.Name)
	t.row("Type", action.Spec.ActionType)
	t.row("Agent", action.Spec.Principal.Agent)
	if user := action.Spec.Principal.User; user != nil {
		t.row("On behalf of", *user)
	}
	resource := action.Spec.Resource
	if action.Status.ActionHash != "" {
		resource = action.Status.Resource
	}
	t.row("Resource", orNone(resource))
	t.row("Environment", action.Status.Environment)
	t.row("Arguments", prettyJSON(action.Spec.Arguments.Raw))
	if effect := action.Status.Effect; effect != nil {
		t.row("Effect", effect.Name)
		t.row("Effect key", effect.Key)
		if effect.Attempt > 0 {
			t.row("Attempt", fmt.Sprint(effect.Attempt))
		}
	} else if action.Status.ActionHash != "" {
		t.row("Effect", "<none>: nothing keeps this action from running twice")
	}
	t.row("Rests on", restsOn(action))
	if by := action.Status.Executor; by != nil {
		t.row("Executed by", strings.TrimSuffix(fmt.Sprintf("the operator, by Executor %s\n%s\n%s", by.Name, by.Hash, executorText), "\n"))
	}
	t.row("Hash", action.Status.ActionHash)
	if by := action.Status.Authority; by != nil {
		t.row("Authority", authorityText(string(by.Kind), by.Name, by.Root, by.BreakGlass))
		if by.BreakGlass {
			t.row("BREAK GLASS", "somebody opened Grant "+by.Root+" for an emergency, and this rests on that: kubectl ctrlrun grants says who and why")
		}
	}
	t.row("Rule", strings.TrimSuffix(ruleOf(action)+"\n"+ruleText, "\n"))
	if approval := action.Status.Approval; approval != nil {
		t.row("Votes", votes(action))
		if groups := action.Status.Approval.ApproverGroups; len(groups) > 0 {
			t.row("Approvers", "people of "+strings.Join(groups, ", "))
		}
		t.row("Asked", ago(approval.RequestTime)+" ago")
		if action.Status.State == v1alpha1.ActionAwaitingApproval {
			t.row("Expires", until(approval.ExpirationTime.Time))
		}
	}
}

// restsOn are the preconditions, a line each, and what became of them. What they hold is in no Action: whoever wants to know looks at
// the object.
func restsOn(action *v1alpha1.Action) string {
	refs := records.Action(action).Preconditions
	if len(refs) == 0 {
		return ""
	}
	var lines []string
	for _, ref := range refs {
		lines = append(lines, ref.String())
	}
	note := "noted when it begins to wait, compared with each approval and right before its effect is reserved"
	if p := action.Status.Preconditions; p != nil {
		switch {
		case p.AtRecheck == "":
			note = "noted, compared with each approval and right before its effect is reserved"
		case p.AtRequest == "":
			note = "read right before its effect was reserved; it had not waited, so there was nothing to compare with"
		case p.AtRequest == p.AtRecheck:
			note = "right before its effect was reserved it was what it was when it began to wait"
		default:
			note = "when it was compared last it was ANOTHER than when it began to wait"
		}
	}
	return strings.Join(append(lines, "("+note+")"), "\n")
}

func ruleOf(action *v1alpha1.Action) string {
	if action.Status.DecisionReason == "" {
		return ""
	}
	text := fmt.Sprintf("%s, %s", action.Status.Decision, action.Status.DecisionReason)
	ref := action.Status.PolicyRef
	if ref == nil {
		return text
	}
	text += fmt.Sprintf(" of ActionPolicy %s, generation %d", ref.Name, ref.Generation)
	if ref.Version != "" {
		text += ", version " + ref.Version
	}
	return text
}

// ruleText is the rule itself, if the policy can be read and is still the one that decided.
func (s *session) ruleText(ctx context.Context, action *v1alpha1.Action) string {
	ref := action.Status.PolicyRef
	if ref == nil {
		return ""
	}
	var policy v1alpha1.ActionPolicy
	if err := s.kube.Get(ctx, s.key(ref.Name), &policy); err != nil || policy.Generation != ref.Generation {
		return ""
	}
	var index int
	entry := policy.Spec.Actions[action.Spec.ActionType]
	if _, err := fmt.Sscanf(action.Status.DecisionReason, "rule[%d]", &index); err != nil || index < 0 || index >= len(entry.Rules) {
		return ""
	}
	text, err := json.Marshal(entry.Rules[index])
	if err != nil {
		return ""
	}
	return string(text)
}

// executorText is how the operator executes an Action. An Executor that is not the one of the Action's status is not shown for it.
func (s *session) executorText(ctx context.Context, action *v1alpha1.Action) string {
	ref := action.Status.Executor
	if ref == nil {
		return ""
	}
	var executor v1alpha1.Executor
	if err := s.kube.Get(ctx, s.key(ref.Name), &executor); err != nil {
		return "It cannot be shown: " + err.Error()
	}
	if records.ExecutorHash(&executor) != ref.Hash {
		return "It is another one by now, so this action will not be executed."
	}
	text, err := yaml.JSONToYAML(executor.Spec.Raw)
	if err != nil {
		return "It cannot be shown: " + err.Error()
	}
	return strings.TrimSuffix(string(text), "\n")
}

// checkedHash recomputes the hash from what is shown. A person approves what is on the screen, so the hash they send must be
// the hash of that and not only of what a status says.
func checkedHash(action *v1alpha1.Action) (string, error) {
	proposal, err := client.KernelProposal(action, v1alpha1.DefaultEnvironment)
	if err != nil {
		return "", err
	}
	hash, err := proposal.Hash()
	if err != nil {
		return "", err
	}
	if hash != action.Status.ActionHash {
		return "", fmt.Errorf("the action that is stored has the hash %s, but its status says %s: do not approve it, and tell whoever runs the operator", hash, action.Status.ActionHash)
	}
	return hash, nil
}

// prettyJSON lays JSON out for reading; what cannot be parsed is shown as it is.
func prettyJSON(raw []byte) string {
	if len(raw) == 0 {
		return "{}"
	}
	text := raw
	if value, err := canonical.Parse(raw); err == nil {
		if encoded, err := canonical.Encode(value); err == nil {
			text = encoded
		}
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}

func votes(action *v1alpha1.Action) string {
	approval := action.Status.Approval
	if approval == nil {
		return ""
	}
	if approval.Votes != "" {
		return approval.Votes
	}
	return fmt.Sprintf("%d/%d", approval.Counted, approval.Required)
}

func ago(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// whenAndAgo is a time as it stands in receipts, and how long ago that is.
func whenAndAgo(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s, %s ago", t.UTC().Format(time.RFC3339), ago(metav1.NewTime(t)))
}

// leaseText is until when an execution had to be reported, and how long that is as long as it matters.
func leaseText(action *v1alpha1.Action, now time.Time) string {
	execution := action.Status.Execution
	if execution == nil || execution.LeaseExpirationTime.IsZero() {
		return ""
	}
	text := execution.LeaseExpirationTime.UTC().Format(time.RFC3339)
	if action.Status.State != v1alpha1.ActionAdmitted {
		return text
	}
	if left := execution.LeaseExpirationTime.Sub(now); left > 0 {
		return text + ", in " + duration.HumanDuration(left)
	}
	return text + ": it is over, and nobody has reported"
}

func until(t time.Time) string {
	left := time.Until(t)
	if left <= 0 {
		return "now: it is over"
	}
	return "in " + duration.HumanDuration(left)
}

// objectName takes NAME, and KIND/NAME as `-o name` prints it.
func objectName(arg string) string {
	if i := strings.LastIndex(arg, "/"); i >= 0 {
		return arg[i+1:]
	}
	return arg
}
