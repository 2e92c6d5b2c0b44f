package chaos

import (
	"context"
	"fmt"
	"time"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/desk"
	"ctrlrun.dev/operator/test/testenv"
)

// person is somebody whose connection goes through the proxy.
func (r *run) person(name string) (*client.Client, error) {
	connection, err := r.proxy.Listen(name, r.env.Config(testenv.User{Name: name}))
	if err != nil {
		return nil, err
	}
	connection.QPS = -1
	return client.New(connection, r.namespace)
}

// look has a person do something every so often until ctx is done. What fails is looked at again; the last error is in the
// report.
func (r *run) look(ctx context.Context, name string, every time.Duration, do func(context.Context) error) {
	for pause(ctx, time.Now().Add(every)) {
		bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := do(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.trouble(name, err)
		}
	}
}

func (r *run) trouble(person string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles[person] = fmt.Sprintf("%.1fs: %v", time.Since(r.began).Seconds(), err)
}

// approver answers whatever asks for approval. Nearly always it says yes. Bob takes his time, so that what asks two people
// has one answer for a while.
func (r *run) approver(ctx context.Context, name string, c *client.Client) {
	every := 400 * time.Millisecond
	if name == "bob" {
		every = 3 * time.Second
	}
	answered := map[string]bool{}
	r.look(ctx, name, every, func(ctx context.Context) error {
		list := &v1alpha1.ActionList{}
		if err := c.Kube().List(ctx, list, kube.InNamespace(r.namespace), kube.MatchingFields{"status.state": string(v1alpha1.ActionAwaitingApproval)}); err != nil {
			return err
		}
		for i := range list.Items {
			a := &list.Items[i]
			if answered[string(a.UID)] || a.Status.Approval == nil || a.Status.Effect == nil {
				continue
			}
			if err := r.answer(ctx, name, c, a); err != nil {
				return err
			}
			answered[string(a.UID)] = true
		}
		return nil
	})
}

func (r *run) answer(ctx context.Context, name string, c *client.Client, a *v1alpha1.Action) error {
	approval := &v1alpha1.Approval{Spec: v1alpha1.ApprovalSpec{
		ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash,
		EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved, Approver: name,
	}}
	if r.dice.of("answer", name, a.Name).IntN(100) < 4 {
		approval.Spec.Decision = v1alpha1.Denied
	}
	approval.Namespace = r.namespace
	return c.CreateStatement(ctx, approval, client.StatementName(a.Name, name), func(existing kube.Object) bool {
		spec := existing.(*v1alpha1.Approval).Spec
		return spec.ActionRef.UID == a.UID && spec.ActionHash == a.Status.ActionHash
	})
}

// oncall finds out at the remote what happened to what is Ambiguous, and says so. Some of it is left as it is, and what a
// sleeper executed until that has reported too late.
func (r *run) oncall(ctx context.Context, name string, c *client.Client) {
	resolved := map[string]bool{}
	r.look(ctx, name, 2*time.Second, func(ctx context.Context) error {
		list := &v1alpha1.EffectList{}
		if err := c.Kube().List(ctx, list, kube.InNamespace(r.namespace), kube.MatchingFields{"status.state": string(v1alpha1.EffectAmbiguous)}); err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			attempt := fmt.Sprintf("%s %d", e.Spec.Key, e.Status.Attempt)
			if resolved[attempt] || r.dice.of("resolve", attempt).IntN(100) < 25 || r.sleptOver(e) {
				continue
			}
			done, err := r.resolve(ctx, name, c, e)
			if err != nil {
				return err
			}
			resolved[attempt] = done
		}
		return nil
	})
}

// sleptOver reports whether a sleeper holds an effect and has yet to wake up.
func (r *run) sleptOver(e *v1alpha1.Effect) bool {
	holder := e.Status.Holder
	if holder == nil {
		return false
	}
	p, _, found := r.desk.Find(func(p desk.Progress) bool { return p.ActionUID == string(holder.UID) })
	return found && sleeps(p.Agent) && p.Stage != desk.StageEnded
}

// resolve answers the receipt that says that an attempt is Ambiguous, once it is there.
func (r *run) resolve(ctx context.Context, name string, c *client.Client, e *v1alpha1.Effect) (done bool, err error) {
	receipts := &v1alpha1.ReceiptList{}
	if err := c.Kube().List(ctx, receipts, kube.InNamespace(r.namespace), kube.MatchingFields{"spec.effectName": e.Name}); err != nil {
		return false, err
	}
	var quoted *v1alpha1.Receipt
	for i := range receipts.Items {
		if s := receipts.Items[i].Spec; s.Result == "ambiguous" && s.Attempt == e.Status.Attempt {
			quoted = &receipts.Items[i]
		}
	}
	if quoted == nil {
		return false, nil
	}
	resolution := &v1alpha1.Resolution{Spec: v1alpha1.ResolutionSpec{
		EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType,
		Result: v1alpha1.ResolutionNotExecuted, ReceiptRef: v1alpha1.ReceiptReference{Name: quoted.Name, Hash: quoted.Spec.Hash},
		Reason: "looked at what the remote did", Evidence: r.remote.URL(), Resolver: name,
	}}
	if r.remote.Executed(r.namespace, e.Spec.Key, e.Status.Attempt) {
		resolution.Spec.Result = v1alpha1.ResolutionCommitted
	}
	resolution.Namespace = r.namespace
	subject := fmt.Sprintf("%s.%d", e.Name, e.Status.Attempt)
	err = c.CreateStatement(ctx, resolution, client.StatementName(subject, name), func(existing kube.Object) bool {
		return existing.(*v1alpha1.Resolution).Spec.ReceiptRef.Hash == quoted.Spec.Hash
	})
	if err == nil && resolution.Spec.Result == v1alpha1.ResolutionNotExecuted {
		r.proposeAgain(e)
	}
	return err == nil, err
}

// proposeAgain is another proposal for an effect that a person found not to have happened.
func (r *run) proposeAgain(e *v1alpha1.Effect) {
	if holder := e.Status.Holder; holder != nil {
		if _, item, found := r.desk.Find(func(p desk.Progress) bool { return p.ActionUID == string(holder.UID) }); found {
			r.desk.Add(again(item, r.count()))
		}
	}
}
