package cli

import (
	"context"
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
			report := client.Report{Error: text}
			chosen := 0
			for result, given := range map[v1alpha1.OutcomeResult]bool{
				v1alpha1.OutcomeCommitted: committed, v1alpha1.OutcomeNotExecuted: notExecuted, v1alpha1.OutcomeUnknown: unknown,
			} {
				if given {
					report.Result = result
					chosen++
				}
			}
			if chosen != 1 {
				return exit.Errorf(exit.Usage, "say one of --committed, --not-executed and --unknown")
			}
			if output != "" {
				data, err := a.readInput(output)
				if err != nil {
					return err
				}
				report.Output = data
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			call, err := s.Attach(cmd.Context(), objectName(args[0]), claimID)
			if err != nil {
				return coded(err)
			}
			if err := call.Report(cmd.Context(), report); err != nil {
				return coded(err)
			}
			return a.waitSettled(cmd.Context(), call)
		},
	}
	cmd.Flags().StringVar(&claimID, "claim-id", "", "the claimID of the process that executed")
	cmd.Flags().BoolVar(&committed, "committed", false, "it happened")
	cmd.Flags().BoolVar(&notExecuted, "not-executed", false, "for certain nothing happened")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "neither is certain")
	cmd.Flags().StringVar(&output, "output-file", "", "a JSON file to keep in the Outcome, at most 16 KiB, or - for stdin")
	cmd.Flags().StringVar(&text, "error", "", "what went wrong, in words")
	_ = cmd.MarkFlagRequired("claim-id")
	return cmd
}

// settleTimeout is how long a report is waited on before the outcome counts as unknown to the caller.
const settleTimeout = 30 * time.Second

func (a *app) waitSettled(ctx context.Context, call *client.Call) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	action, err := call.WaitFinished(ctx)
	var uncounted *client.StatementError
	if errors.As(err, &uncounted) {
		return coded(err)
	}
	if err != nil {
		return coded(&client.UnknownError{Action: action, Why: "it was reported, but the operator has not settled it", Err: err})
	}
	if err := ended(action); err != nil {
		return err
	}
	a.println(displayLine(string(action.Status.State)+":"), action.Name, action.Status.ReceiptRef.Name)
	return nil
}
