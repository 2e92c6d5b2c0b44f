package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/kernel/decision"
)

const evaluateLong = `Say what a policy decides about an action, without a cluster.

The answer is the decision, the reason for it, the effect key, the resource and the action's hash, exactly as the operator
would compute them. It exits 0 whenever it prints an answer, also for deny. Several policies are taken as the union they
would be in one namespace.`

// evaluation is the answer of evaluate: always all five members, null written out.
type evaluation struct {
	Decision   decision.Decision `json:"decision"`
	Reason     decision.Reason   `json:"reason"`
	EffectKey  *string           `json:"effectKey"`
	Resource   *string           `json:"resource"`
	ActionHash string            `json:"actionHash"`
}

func (a *app) evaluateCommand() *cobra.Command {
	var policies []string
	var file string
	var out outputFlag
	cmd := &cobra.Command{
		Use:     "evaluate --policy FILE --action FILE",
		Short:   "Say what a policy decides about an action",
		Long:    evaluateLong,
		Example: "  kubectl ctrlrun evaluate --policy payments.yaml --action action.json -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if err := onceStdin(append([]string{file}, policies...)...); err != nil {
				return err
			}
			answer, message, err := a.evaluate(policies, file)
			if err != nil {
				return err
			}
			return out.print(a, answer, func() { a.printEvaluation(answer, message) })
		},
	}
	cmd.Flags().StringArrayVar(&policies, "policy", nil, "a policy document or ActionPolicy manifest, or - for stdin; may be repeated")
	cmd.Flags().StringVar(&file, "action", "", "the action document (JSON), or - for stdin")
	out.addTo(cmd)
	_ = cmd.MarkFlagRequired("policy")
	_ = cmd.MarkFlagRequired("action")
	return cmd
}

func (a *app) evaluate(policies []string, file string) (evaluation, string, error) {
	files, err := a.readPolicies(policies, named)
	if err != nil {
		return evaluation{}, "", err
	}
	set, err := policySet(files)
	if err != nil {
		return evaluation{}, "", err
	}
	proposal, err := a.readAction(file)
	if err != nil {
		return evaluation{}, "", err
	}
	result, err := set.Evaluate(proposal)
	if err != nil {
		return evaluation{}, "", fmt.Errorf("no action can be built from %s: %w", inputName(file), err)
	}
	return evaluation{
		Decision:   result.Decision,
		Reason:     result.Reason,
		EffectKey:  result.EffectKey,
		Resource:   result.Proposal.Resource,
		ActionHash: result.Hash,
	}, result.Message, nil
}

func (a *app) printEvaluation(e evaluation, message string) {
	t := a.fields()
	t.row("Decision", string(e.Decision))
	t.row("Reason", string(e.Reason))
	t.row("Effect key", orNone(e.EffectKey))
	t.row("Resource", orNone(e.Resource))
	t.row("Action hash", e.ActionHash)
	t.row("", message)
	t.flush()
}
