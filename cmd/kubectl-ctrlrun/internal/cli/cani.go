package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

func (a *app) canICommand() *cobra.Command {
	return &cobra.Command{
		Use:   "can-i VERB TYPE",
		Short: "Say whether you may propose, approve or resolve an action type",
		Long: "Say whether you may do something with an action type in the namespace: " + strings.Join(rightVerbs, ", ") + ".\n\n" +
			"For approve and resolve this asks for the type and for its dotted prefixes, as the apiserver does when you answer.\n" +
			"kubectl auth can-i always says no here: it does not know virtual resources.\n\nExit code 0: yes. 9: no.",
		Example:           "  kubectl ctrlrun can-i approve stripe.refund -n payments",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.FixedCompletions(rightVerbs, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, actionType := args[0], args[1]
			if !slices.Contains(rightVerbs, verb) {
				return exit.Errorf(exit.Usage, "unknown verb %q: use %s", verb, strings.Join(rightVerbs, ", "))
			}
			if err := checkType(actionType); err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if err := s.namespaceThere(cmd.Context()); err != nil {
				return err
			}
			answer, err := s.mayOn(cmd.Context(), verb, actionType)
			if err != nil {
				return err
			}
			if !answer.allowed {
				a.println("no")
				return exit.Errorf(exit.Refused, "%s may not %s %s in namespace %s: %s is missing", s.user.Username, verb, actionType, s.Namespace(), answer.missing)
			}
			a.println("yes")
			if answer.by != "" {
				a.note("by %s", answer.by)
			}
			return nil
		},
	}
}
