package main

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

// replayedApproval: a yes is for one action and is spent by it, even if nothing came of it.
func (d *demo) replayedApproval(ctx context.Context) error {
	const key = "refund:txn_4"
	const refundOf = "stripe.refund payment_id=txn_4 amount:=300000"
	name := action.EffectName(key)
	retry := name + ".2"
	d.tell(fmt.Sprintf(`A refund of 3,000.00 is approved while the agent waits. This time the provider is down and says that nothing was paid.
		The agent's program states it, with the one exit code that means so: %d.`, nothingPaid))
	d.provider.fail("txn_4", maintenance)
	command := fmt.Sprintf("kubectl ctrlrun run %s \\\n--not-executed-exit %d -- refund", refundOf, nothingPaid)
	d.agent.prompt(command)
	waiting := d.agent.start(ctx, command)
	asked, err := d.reaches(ctx, name, v1alpha1.ActionAwaitingApproval)
	if err != nil {
		waiting.stop()
		d.answer(waiting.output.String())
		return err
	}
	if _, err := d.alice.typesLong(ctx, 2, "kubectl ctrlrun approve %s --yes \\\n--hash %s \\\n--reason 'as agreed'", name, asked.Status.ActionHash); err != nil {
		return err
	}
	r, err := waiting.wait()
	if err != nil {
		return err
	}
	d.say("")
	d.say("refund-agent, who waited:")
	d.agent.show(r)
	first, err := d.ended(ctx, name)
	if err != nil {
		return err
	}
	expect(d, "the action is Failed: for certain nothing happened", first.Status.State, v1alpha1.ActionFailed)
	expect(d, "exit code 7", r.code, 7)
	expect(d, "it spent alice's approval", len(first.Status.Execution.Approvals), 1)
	expect(d, "nothing was paid", d.provider.paidFor("txn_4"), "")

	d.tell(`So the refund may be tried again. But alice said yes to that action, and it is over.`)
	if r, err = d.agent.types(ctx, "kubectl ctrlrun propose %s --wait", refundOf); err != nil {
		return err
	}
	expect(d, "the retry asks again: exit code 5", r.code, 5)
	second, err := d.reaches(ctx, retry, v1alpha1.ActionAwaitingApproval)
	if err != nil {
		return err
	}
	expect(d, "it is the same action, hash and all", second.Status.ActionHash, first.Status.ActionHash)
	expect(d, "and inherits no vote", second.Status.Approval.Counted, 0)
	if err := d.replays(ctx, first, second); err != nil {
		return err
	}
	return d.approveAgain(ctx, key, first, second)
}

// replays sends the old approval again: by alice with the uid it was for, and by the agent, dressed up for the new action.
func (d *demo) replays(ctx context.Context, first, second *v1alpha1.Action) error {
	speaker := action.Speaker(d.alice.user.Name)
	resend := fmt.Sprintf("kubectl get approval %s.%s -o yaml |\nsed -e /resourceVersion/d -e s/%s/\\&.2/", first.Name, speaker, first.Name)
	d.tell(`Her old approval is sent again under the name of the new action. Even its hash is right; but it quotes the uid of the old one.`)
	r, err := d.alice.types(ctx, "%s |\nkubectl create -f -", resend)
	if err != nil {
		return err
	}
	expect(d, "she may say it", r.code, 0)
	if err := d.mismatch(ctx, second.Name+"."+speaker); err != nil {
		return err
	}

	d.tell(`The agent makes a copy that is right in everything, the uid too, as if alice had sent it.`)
	forge := fmt.Sprintf("%s \\\n-e s/%s/%s/ |\nkubectl create -f -", resend, first.UID, second.UID)
	if r, err = d.agent.types(ctx, "%s", forge); err != nil {
		return err
	}
	d.byServer("RBAC: the Role of an agent does not create approvals")
	expect(d, "the agent may not", r.code != 0 && strings.Contains(r.output, "cannot create resource \"approvals\""), true)

	d.tell(`And if somebody carelessly makes the agent an approver?`)
	if _, err := d.admin.types(ctx, "kubectl create rolebinding careless --role=refund-approver \\\n--serviceaccount=payments:refund-agent"); err != nil {
		return err
	}
	err = d.env.WaitForAccess(ctx, d.agent.user, authorizationv1.ResourceAttributes{
		Namespace: namespace, Group: v1alpha1.GroupVersion.Group, Verb: "create", Resource: "approvals",
	})
	if err != nil {
		return err
	}
	if r, err = d.agent.types(ctx, "%s", forge); err != nil {
		return err
	}
	d.byServer("ValidatingAdmissionPolicy ctrlrun-approvals: nobody speaks for somebody else")
	expect(d, "the agent is not alice", r.code != 0 && strings.Contains(r.output, "ValidatingAdmissionPolicy 'ctrlrun-approvals'"), true)
	now, err := d.reaches(ctx, second.Name, v1alpha1.ActionAwaitingApproval)
	if err != nil {
		return err
	}
	expect(d, "the retry still has no vote", now.Status.Approval.Counted, 0)
	expect(d, "the provider got no second call", d.provider.callsFor("txn_4"), 1)
	return nil
}

// approveAgain: the way that is open is to ask again.
func (d *demo) approveAgain(ctx context.Context, key string, first, second *v1alpha1.Action) error {
	d.tell(`Alice is asked again, and says yes again.`)
	r, err := d.alice.typesLong(ctx, 2, "kubectl ctrlrun approve %s --yes \\\n--hash %s \\\n--reason 'the provider is back'", second.Name, second.Status.ActionHash)
	if err != nil {
		return err
	}
	expect(d, "her new yes counts", r.code, 0)
	if r, err = d.agent.types(ctx, "kubectl ctrlrun claim %s -- refund", second.Name); err != nil {
		return err
	}
	done, err := d.ended(ctx, second.Name)
	if err != nil {
		return err
	}
	expect(d, "the action is Committed", done.Status.State, v1alpha1.ActionCommitted)
	expect(d, "exit code 0", r.code, 0)
	expect(d, "it is the second attempt of the effect", done.Status.Effect.Attempt, 2)
	tokens := strings.Join(d.provider.tokensFor("txn_4"), " ")
	expect(d, "each attempt brought a token of its own", tokens, first.Status.Execution.Token+" "+done.Status.Execution.Token)
	expect(d, "the provider paid once", d.provider.paidFor("txn_4"), "re_4 300000")
	record, err := d.record(ctx, key)
	if err != nil {
		return err
	}
	expect(d, "the effect is Committed", record.State, v1alpha1.EffectCommitted)
	return nil
}
