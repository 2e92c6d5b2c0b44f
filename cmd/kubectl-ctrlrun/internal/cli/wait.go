package cli

import (
	"time"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/api/v1alpha1"
)

const waitLong = `Wait until an action has ended and has its receipt. It exits by how it ended: 0 committed, 3 denied, 4 its effect was committed
before, 6 nobody knows, 7 not executed, 8 expired; and 5 if that does not come in time.

It claims nothing and reports nothing: it is for an action that the operator executes, by an Executor, and for one of somebody else.
Interrupted, it leaves the action as it is.`

func (a *app) waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until an action has ended",
		Long:  waitLong,
		Args:  cobra.ExactArgs(1),
		ValidArgsFunction: a.completeActions(
			v1alpha1.ActionPending, v1alpha1.ActionAwaitingApproval, v1alpha1.ActionClaimable, v1alpha1.ActionAdmitted),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			call, err := s.Attach(cmd.Context(), objectName(args[0]), "")
			if err != nil {
				return coded(err)
			}
			call.Progress = a.narrate()
			return a.waitSettled(cmd.Context(), call, timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Minute, "how long to wait for the end")
	return cmd
}
