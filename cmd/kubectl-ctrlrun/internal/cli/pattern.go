package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/grammar"
)

func (a *app) patternCommand() *cobra.Command {
	return group("pattern", "Try the pattern grammar of grants and roles",
		a.patternOperation("match", "PATTERN VALUE", "Say whether a pattern matches a value",
			func(kind grammar.PatternKind, pattern grammar.Pattern, value string) (bool, error) {
				return pattern.Match(value), nil
			}),
		a.patternOperation("contains", "PARENT CHILD", "Say whether everything the child pattern matches, the parent matches too",
			func(kind grammar.PatternKind, parent grammar.Pattern, value string) (bool, error) {
				child, err := grammar.ParsePattern(kind, value)
				if err != nil {
					return false, err
				}
				return parent.Contains(child), nil
			}),
	)
}

// patternOperation prints true or false and exits 0 for both: false is an answer, not a failure.
func (a *app) patternOperation(name, args, short string, apply func(grammar.PatternKind, grammar.Pattern, string) (bool, error)) *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:     name + " --kind action|resource|subject " + args,
		Short:   short,
		Example: fmt.Sprintf("  kubectl ctrlrun pattern %s --kind action 'stripe.*' stripe.refund", name),
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			k, err := grammar.ParseKind(kind)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			pattern, err := grammar.ParsePattern(k, args[0])
			if err != nil {
				return err
			}
			ok, err := apply(k, pattern, args[1])
			if err != nil {
				return err
			}
			a.println(ok)
			return nil
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "what the pattern is for: action, resource or subject")
	_ = cmd.MarkFlagRequired("kind")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions([]string{"action", "resource", "subject"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
