package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

const reportLong = `Report how the execution of a claimed action ended, and wait for its receipt.

  --committed       it happened
  --not-executed    for certain nothing happened: the effect may be attempted again
  --unknown         neither is certain; a person resolves the effect

Only the process that was admitted reports: --claim-id is the one claim printed. It exits by how the action ends.`

func (a *app) reportCommand() *cobra.Command {
	var claimID, output, text string
	var committed, notExecuted, unknown bool
	cmd := &cobra.Command{
		Use:               "report NAME --claim-id ID --committed|--not-executed|--unknown",
		Short:             "Report how an execution ended",
		Long:              reportLong,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeActions(v1alpha1.ActionAdmitted),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := 0
			for _, given := range []bool{committed, notExecuted, unknown} {
				if given {
					chosen++
				}
			}
			if chosen != 1 {
				return exit.Errorf(exit.Usage, "say one of --committed, --not-executed and --unknown")
			}
			var end error
			switch {
			case committed && text != "":
				return exit.Errorf(exit.Usage, "--error says what went wrong, and --committed that nothing did")
			case notExecuted:
				end = client.NotExecuted(errors.New(text))
			case unknown:
				end = errors.New(text)
			}
			var data json.RawMessage
			if output != "" {
				var err error
				if data, err = a.readInput(output); err != nil {
					return err
				}
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			call, err := s.Attach(cmd.Context(), objectName(args[0]), claimID)
			if err != nil {
				return coded(err)
			}
			if err := call.Report(cmd.Context(), data, end); err != nil {
				return coded(err)
			}
			return a.waitSettled(cmd.Context(), call, settleTimeout)
		},
	}
	cmd.Flags().StringVar(&claimID, "claim-id", "", "the claimID of the process that executed")
	cmd.Flags().BoolVar(&committed, "committed", false, "it happened")
	cmd.Flags().BoolVar(&notExecuted, "not-executed", false, "for certain nothing happened")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "neither is certain")
	cmd.Flags().StringVar(&output, "output-file", "", "a JSON file to keep in the Outcome, at most 16 KiB, or - for stdin")
	cmd.Flags().StringVar(&text, "error", "", "what went wrong, in words; not with --committed")
	_ = cmd.MarkFlagRequired("claim-id")
	return cmd
}

// settleTimeout is how long a report is waited on before the outcome counts as unknown to the caller.
const settleTimeout = 30 * time.Second

// waitSettled waits for the receipt of an Action, and answers by how it ended.
func (a *app) waitSettled(ctx context.Context, call *client.Call, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	receipt, err := call.Wait(ctx)
	var uncounted *client.StatementError
	if errors.As(err, &uncounted) {
		return coded(uncounted)
	}
	if err != nil {
		return coded(err)
	}
	a.println(displayLine(string(receipt.Action.Status.State)+":"), receipt.Action.Name, receipt.Name)
	return nil
}
