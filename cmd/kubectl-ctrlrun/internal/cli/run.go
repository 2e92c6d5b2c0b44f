package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// actionObject is the Action as the API has it, beside the kernel's package of the same name.
type actionObject = v1alpha1.Action

const runLong = `Propose an action, wait until it may be executed, execute it once, and report how it ended.

` + argumentsHelp + `

` + commandHelp + `

If people are asked it waits for them, and claims the action when they have said yes. Interrupted or timed out before it was
admitted, it withdraws the action. If the same action of yours already waits, it stops and names claim.

` + traceHelp + `

Exit code 0: committed. 3: denied. 4: the effect is committed already. 5: in progress or waiting elsewhere. 6: unknown, do
not try again. 7: not executed. 8: expired. 9: refused by admission or RBAC.`

func (a *app) runCommand() *cobra.Command {
	p, r := &proposing{}, &running{}
	cmd := &cobra.Command{
		Use: "run TYPE [k=v | k:=json]... [flags] -- CMD [ARG...]",
		// Cobra would put the flags at the end, where they are CMD's.
		DisableFlagsInUseLine: true,
		Short:                 "Propose, execute once, and report",
		Long:                  runLong,
		Example: "  kubectl ctrlrun run stripe.refund payment_id=txn_1 amount:=500 -- ./refund.sh\n" +
			"  kubectl ctrlrun run stripe.refund payment_id=txn_1 amount:=500 --not-executed-exit 75 -- ./refund.sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			words, cmdline := split(cmd, args)
			if err := r.check(cmd); err != nil {
				return err
			}
			req, err := a.request(p, words)
			if err != nil {
				return err
			}
			req.Trace = traceOf(os.Getenv)
			command, err := a.newCommand(r, cmdline)
			if err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			a.warnObserving(cmd.Context(), s, listScope(s, false))
			if err := s.refuseTwin(cmd.Context(), req); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), r.timeout)
			defer cancel()
			req.Progress = a.narrate()
			_, err = s.Protect(ctx, req, command.execute)
			return coded(err)
		},
	}
	p.addTo(cmd)
	r.addTo(cmd)
	return cmd
}

// split cuts the words before -- from the command after it.
func split(cmd *cobra.Command, args []string) (words, cmdline []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

// refuseTwin stops a second proposal of what already waits for people or for a claim: the person would be asked twice about
// one thing, and the answer to one would not count for the other. Somebody who may not list actions is not stopped.
func (s *session) refuseTwin(ctx context.Context, req client.Proposal) error {
	arguments, err := client.CanonicalArguments(req.Arguments)
	if err != nil {
		return usage(err)
	}
	mine := &v1alpha1.ActionSpec{ActionType: req.ActionType, Principal: v1alpha1.Principal{Agent: s.user.Username}}
	mine.Arguments.Raw = arguments
	if req.Resource != "" {
		mine.Resource = &req.Resource
	}
	if req.User != "" {
		mine.Principal.User = &req.User
	}
	for _, state := range []v1alpha1.ActionState{v1alpha1.ActionAwaitingApproval, v1alpha1.ActionClaimable} {
		var list v1alpha1.ActionList
		err := s.kube.List(ctx, &list, kube.InNamespace(s.Namespace()), kube.MatchingFields{
			"status.state": string(state), "spec.principal.agent": s.user.Username, "spec.actionType": req.ActionType,
		})
		if err != nil {
			return nil
		}
		for i := range list.Items {
			twin := &list.Items[i]
			if client.SameProposal(mine, &twin.Spec) {
				return exit.Errorf(exit.Waiting, "action %s proposes exactly this already and is %s: %s", twin.Name, state, nextForTwin(twin))
			}
		}
	}
	return nil
}

func nextForTwin(twin *v1alpha1.Action) string {
	claim := claimCommandLine(twin)
	if twin.Status.State == v1alpha1.ActionClaimable {
		return "execute it with: " + claim
	}
	return fmt.Sprintf("votes %s; to execute it once it is approved: %s", votes(twin), claim)
}
