package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/remote"
)

// positiveControl shows, before anything else, that the remote counts and the judge judges: in a namespace of its own an
// agent ignores the protocol and executes twice, and an answer is lost that no journal tells of. Exactly that must be found.
func (r *run) positiveControl(ctx context.Context, report *Report) error {
	ns, users, err := r.newNamespace(ctx)
	if err != nil {
		return err
	}
	const careless, unlucky = "control-twice", "control-lost"
	control, err := remote.Start(func(c remote.Call) remote.Behaviour {
		if c.Work == unlucky {
			return remote.ExecuteAndLose // and nobody records it
		}
		return remote.Execute
	})
	if err != nil {
		return err
	}
	defer control.Close() // nothing hangs there
	sdk, err := client.New(r.env.Config(users[0]), ns)
	if err != nil {
		return err
	}
	for work, times := range map[string]int{careless: 2, unlucky: 1} {
		i := item(work, "chaos.pay", work, 10, patience, control.URL())
		request := client.Proposal{ActionType: i.ActionType, Arguments: i.Arguments, LeaseDuration: i.Lease}
		_, err := sdk.Protect(ctx, request, func(ctx context.Context, x client.Execution) (_ any, err error) {
			for range times {
				err = remote.Send(ctx, i.Remote, remote.CallOf(x, 0, work))
			}
			return nil, err
		})
		var unknown *client.UnknownError
		if err != nil && !errors.As(err, &unknown) {
			return fmt.Errorf("the positive control %s: %w", work, err)
		}
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		left, err := r.unsettled(ctx, ns)
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("the positive control does not settle: %w", err)
	}
	state, err := judge.Collect(ctx, r.env.Admin(), ns, control.Executions())
	if err != nil {
		return err
	}
	report.Control = judge.Judge(state, nil)
	r.say("positive control: %d duplicate, %d unexplained", len(report.Control.Duplicates), len(report.Control.Unexplained))
	return nil
}

// fired reports whether the positive control was found out, and nothing else was found.
func fired(v judge.Verdict) bool {
	return len(v.Duplicates) == 1 && v.Duplicates[0].Rule == "executed more than once" && len(v.Unexplained) == 1 && len(v.Findings()) == 2
}
