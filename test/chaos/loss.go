package chaos

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/remote"
)

// lostRecords is how many are lost: enough for every way to crash at the write that makes them anew.
const lostRecords = 16

// loseRecords deletes records of what was done, in a namespace of its own, while nothing forbids it. The operators make them
// anew as Ambiguous, and are killed and stopped while they do. Statements made meanwhile do not count, so this comes last,
// and in long runs alone: it is the one write of the protocol that nothing else leads to.
func (r *run) loseRecords(ctx context.Context, report *Report) error {
	if r.Length != Long {
		return nil
	}
	r.say("losing %d records", lostRecords)
	ns, users, err := r.newNamespace(ctx)
	if err != nil {
		return err
	}
	sdk, err := client.New(r.env.Config(users[0]), ns)
	if err != nil {
		return err
	}
	server, err := remote.Start(nil)
	if err != nil {
		return err
	}
	defer server.Close() // nothing hangs there
	var lost []*v1alpha1.Action
	for n := range lostRecords {
		i := item(fmt.Sprintf("lost-%d", n), "chaos.pay", fmt.Sprintf("lost-%d", n), 10, patience, server.URL())
		r, err := sdk.Protect(ctx, client.Proposal{ActionType: i.ActionType, Arguments: i.Arguments, LeaseDuration: i.Lease},
			func(ctx context.Context, x client.Execution) (any, error) {
				return nil, remote.Send(ctx, i.Remote, remote.CallOf(x, 0, i.Work))
			})
		if err != nil {
			return err
		}
		lost = append(lost, r.Action)
	}
	r.namespace = ns
	r.faults.set(crashing)
	if err := r.eraseEffects(ctx, lost); err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second, settleTime, true, func(ctx context.Context) (bool, error) {
		return r.allMadeAnew(ctx, lost)
	})
	r.faults.set(calm)
	if err != nil {
		return fmt.Errorf("the lost records are not made anew, each with one receipt: %w", err)
	}
	state, err := judge.Collect(ctx, r.env.Admin(), ns, server.Executions())
	if err != nil {
		return err
	}
	verdict := judge.Judge(state, r.journal.Injections())
	report.Loss = &verdict
	plugin, err := r.pluginVerifies(ctx, ns)
	report.Plugins = append(report.Plugins, plugin)
	return err
}

// eraseEffects takes away what keeps records, and the records.
func (r *run) eraseEffects(ctx context.Context, lost []*v1alpha1.Action) error {
	closeGap := r.env.AdmissionGap(r.t, "ctrlrun-records-kept")
	for _, a := range lost {
		err := r.journal.Record(judge.Injection{
			Kind: "record deleted", Namespace: a.Namespace, ActionUID: string(a.UID), EffectKey: a.Status.Effect.Key, Attempt: a.Status.Effect.Attempt,
			Causes: []v1alpha1.EffectCause{v1alpha1.CauseStatusMissing},
		})
		if err != nil {
			return err
		}
		e := &v1alpha1.Effect{}
		e.Namespace, e.Name = a.Namespace, a.Status.Effect.Name
		// The apiserver learns by a watch that nothing forbids it any more.
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			return kube.IgnoreNotFound(r.env.Admin().Delete(ctx, e)) == nil, nil
		})
		if err != nil {
			return fmt.Errorf("deleting effect %s: %w", e.Name, err)
		}
	}
	closeGap()
	return nil
}

// allMadeAnew reports whether every lost record is there again, is Ambiguous, and has its receipt. Two receipts of one are an
// error.
func (r *run) allMadeAnew(ctx context.Context, lost []*v1alpha1.Action) (bool, error) {
	receipts := &v1alpha1.ReceiptList{}
	if err := r.env.Admin().List(ctx, receipts, kube.InNamespace(r.namespace)); err != nil {
		return false, err
	}
	losses, err := lossReceipts(receipts.Items)
	if err != nil {
		return false, err
	}
	for _, a := range lost {
		e := &v1alpha1.Effect{}
		err := r.env.Admin().Get(ctx, kube.ObjectKey{Namespace: a.Namespace, Name: a.Status.Effect.Name}, e)
		if err != nil {
			return false, kube.IgnoreNotFound(err)
		}
		if e.Status == nil || e.Status.Cause != v1alpha1.CauseStatusMissing || !losses[string(e.UID)] {
			return false, nil
		}
	}
	return true, nil
}

// lossReceipts is which Effects, by uid, have a receipt that says that their record was lost.
func lossReceipts(receipts []v1alpha1.Receipt) (map[string]bool, error) {
	losses := map[string]bool{}
	for i := range receipts {
		d, err := receipt.Parse(records.Entry(&receipts[i]))
		if err != nil {
			return nil, fmt.Errorf("receipt %s: %w", receipts[i].Name, err)
		}
		if d.Kind != receipt.KindStatusMissing {
			continue
		}
		if losses[d.SubjectUID] {
			return nil, fmt.Errorf("effect %s has several receipts that its record was lost", d.EffectKey)
		}
		losses[d.SubjectUID] = true
	}
	return losses, nil
}
