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

const claimLong = `Claim an action that you proposed, and with CMD execute it and report.

It waits while people are asked. Without a command it prints, as JSON, what an executor needs: claimID, token, the canonical
arguments, and how many seconds of the lease are left. You may then execute once, and must say how it ended:

  kubectl ctrlrun report NAME --claim-id ID --committed|--not-executed|--unknown

` + commandHelp

// permission is what claim prints: everything a script needs to execute once.
type permission struct {
	Action       string          `json:"action"`
	UID          string          `json:"uid"`
	ActionType   string          `json:"actionType"`
	ClaimID      string          `json:"claimID"`
	Token        string          `json:"token,omitempty"`
	EffectKey    string          `json:"effectKey,omitempty"`
	Attempt      int64           `json:"attempt,omitempty"`
	LeaseSeconds int64           `json:"leaseSeconds"`
	Arguments    json.RawMessage `json:"arguments"`
}

func (a *app) claimCommand() *cobra.Command {
	r := &running{}
	var out outputFlag
	var claimID string
	cmd := &cobra.Command{
		Use: "claim NAME [flags] [-- CMD [ARG...]]",
		// Cobra would put the flags at the end, where they are CMD's.
		DisableFlagsInUseLine: true,
		Short:                 "Claim a proposed action, and execute it",
		Long:                  claimLong,
		Example:               "  kubectl ctrlrun claim refund-txn-1-abcdefghijklmnopqrst -- ./refund.sh",
		ValidArgsFunction:     a.completeActions(v1alpha1.ActionClaimable, v1alpha1.ActionAwaitingApproval),
		RunE: func(cmd *cobra.Command, args []string) error {
			words, cmdline := split(cmd, args)
			if len(words) != 1 {
				return exit.Errorf(exit.Usage, "name one action to claim")
			}
			if err := errors.Join(r.check(cmd), out.check()); err != nil {
				return usage(err)
			}
			var execute client.Function
			if len(cmdline) > 0 {
				command, err := a.newCommand(r, cmdline)
				if err != nil {
					return err
				}
				execute = command.execute
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			a.warnObserving(cmd.Context(), s, listScope(s, false))
			call, err := s.Attach(cmd.Context(), objectName(words[0]), claimID)
			if err != nil {
				return coded(err)
			}
			call.Progress = a.narrate()
			ctx, cancel := context.WithTimeout(cmd.Context(), r.timeout)
			defer cancel()
			if execute != nil {
				_, err := call.Execute(ctx, execute)
				return coded(err)
			}
			return a.claim(ctx, call, &out)
		},
	}
	r.addTo(cmd)
	out.addTo(cmd)
	cmd.Flags().Lookup("output").Usage = "output format: json or yaml (default: json)"
	cmd.Flags().StringVar(&claimID, "claim-id", "", "the claimID of this process, a lower-case UUID (default: a new one)")
	return cmd
}

// claim waits for the permission and prints it. A permission that comes too late is given back at once.
func (a *app) claim(ctx context.Context, call *client.Call, out *outputFlag) error {
	x, err := call.Claim(ctx)
	if err != nil {
		return coded(err)
	}
	action := x.Action
	p := permission{
		Action: action.Name, UID: string(action.UID), ActionType: action.Spec.ActionType, ClaimID: call.ClaimID(),
		Token: x.Token, LeaseSeconds: int64(x.LeaseRemaining / time.Second), Arguments: x.CanonicalArguments,
	}
	if effect := action.Status.Effect; effect != nil {
		p.EffectKey, p.Attempt = effect.Key, effect.Attempt
	}
	if out.format == "" {
		out.format = "json"
	}
	return out.print(a, p, nil)
}
