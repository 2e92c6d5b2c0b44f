package cli

import (
	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
)

func (a *app) nameCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "name KEY",
		Short: "Print the effect name of an effect key",
		Long: "Print the name an effect key has in Kubernetes: the Effect is called so, and actions are called so with .2, .3 after it.\n\n" +
			"The rule is ctrlrun.effectname/v1; the same key has the same name everywhere.",
		Example: "  kubectl get effect $(kubectl ctrlrun name refund:txn_1)",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" {
				return exit.Errorf(exit.Failure, "an effect key is never empty")
			}
			a.println(action.EffectName(args[0]))
			return nil
		},
	}
}
