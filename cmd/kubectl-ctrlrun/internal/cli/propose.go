package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

const proposeLong = `Propose an action, and leave its execution to a later claim. One whose type has an Executor is executed by the operator: it needs
--not-after, and then wait says how it ended.

` + argumentsHelp + `

It prints the name of the action. With --wait it waits for the decision and exits by it: 0 it can be claimed, or the operator
executes it; 5 people are asked, 3 denied, 4 its effect is committed already, 6 its effect is ambiguous.

` + traceHelp

func (a *app) proposeCommand() *cobra.Command {
	p := &proposing{}
	objects := newObjectFlags()
	var waiting bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "propose TYPE [k=v | k:=json]...",
		Short:   "Propose an action, and leave its execution to a claim",
		Long:    proposeLong,
		Example: "  kubectl ctrlrun propose stripe.refund payment_id=txn_1 amount:=500 --wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := objects.check(); err != nil {
				return err
			}
			req, err := a.request(p, args)
			if err != nil {
				return err
			}
			req.Unclaimed = true
			req.Trace = traceOf(os.Getenv)
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			a.warnObserving(cmd.Context(), s, listScope(s, false))
			call, err := s.Propose(cmd.Context(), req)
			if err != nil {
				return coded(err)
			}
			object := call.Action()
			var end error
			if waiting {
				object, end = a.waitDecided(cmd.Context(), s, object, timeout)
			}
			if !objects.table() {
				if err := objects.object(a, s.kube.Scheme(), object); err != nil {
					return err
				}
				return end
			}
			a.println(object.Name)
			return end
		},
	}
	p.addTo(cmd)
	cmd.Flags().BoolVar(&waiting, "wait", false, "wait for the decision")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	objects.addTo(cmd)
	return cmd
}

// waitDecided waits until an Action has been decided, and says by the error how.
func (a *app) waitDecided(ctx context.Context, s *session, object *v1alpha1.Action, timeout time.Duration) (*v1alpha1.Action, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	silence := time.NewTimer(client.SilentAfter)
	defer silence.Stop()
	updates := s.Follow(ctx, object)
	for {
		select {
		case <-silence.C:
			if client.Untouched(object) {
				a.note("%s", silentNote)
			}
		case update, open := <-updates:
			if !open {
				return object, coded(&client.WaitingError{Action: object, Err: ctx.Err()})
			}
			if update.Err != nil {
				return object, explain(update.Err)
			}
			object = update.Object.(*v1alpha1.Action)
			switch object.Status.State {
			case v1alpha1.ActionPending, "":
				continue
			case v1alpha1.ActionClaimable, v1alpha1.ActionAdmitted:
				return object, nil
			case v1alpha1.ActionAwaitingApproval:
				return object, exit.Errorf(exit.Waiting, "action %s waits for approval (%s); when it is given: %s", object.Name, votes(object), goOnCommandLine(object))
			}
			return object, ended(object)
		}
	}
}
