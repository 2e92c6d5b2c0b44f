package cli

import (
	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/kernel/effect"
)

const tokenLong = `Print the idempotency token of one attempt at one effect.

The token depends on nothing but the key and the attempt number, so a provider that honours it executes an attempt once even
if the request is sent twice. An attempt is a decimal number from 1, without a sign or leading zeros.`

func (a *app) tokenCommand() *cobra.Command {
	var key, attempt string
	cmd := &cobra.Command{
		Use:     "token --effect KEY --attempt N",
		Short:   "Print the idempotency token of an attempt",
		Long:    tokenLong,
		Example: "  kubectl ctrlrun token --effect refund:txn_1 --attempt 1",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			n, err := effect.ParseAttempt(attempt)
			if err != nil {
				return err
			}
			token, err := effect.Token(key, n)
			if err != nil {
				return err
			}
			a.println(token)
			return nil
		},
	}
	cmd.Flags().StringVar(&key, "effect", "", "the effect key")
	cmd.Flags().StringVar(&attempt, "attempt", "", "the number of the attempt, from 1")
	_ = cmd.MarkFlagRequired("effect")
	_ = cmd.MarkFlagRequired("attempt")
	return cmd
}
