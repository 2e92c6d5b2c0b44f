package main

import (
	"context"
	"fmt"
	"strings"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

// changedAmount: a person says yes to 2,000.00, and every way to make 5,000.00 of it is refused.
func (d *demo) changedAmount(ctx context.Context) error {
	const key = "refund:txn_2"
	name := action.EffectName(key)
	d.tell(`A refund of 2,000.00 needs a person.`)
	r, err := d.agent.types(ctx, "kubectl ctrlrun propose stripe.refund payment_id=txn_2 amount:=200000 --wait")
	if err != nil {
		return err
	}
	expect(d, "the action waits for approval: exit code 5", r.code, 5)
	asked, err := d.reaches(ctx, name, v1alpha1.ActionAwaitingApproval)
	if err != nil {
		return err
	}
	if err := d.alice.typesForTable(ctx, "kubectl ctrlrun pending", "AGENT", "REASON"); err != nil {
		return err
	}
	r, err = d.alice.types(ctx, "kubectl ctrlrun approve %s --yes \\\n--hash %s \\\n--reason 'the customer is right'", name, asked.Status.ActionHash)
	if err != nil {
		return err
	}
	expect(d, "her yes counts", r.code, 0)
	if _, err := d.reaches(ctx, name, v1alpha1.ActionClaimable); err != nil {
		return err
	}
	if err := d.editApproved(ctx, name); err != nil {
		return err
	}
	if err := d.copyApproval(ctx, name); err != nil {
		return err
	}

	d.tell(`What alice said yes to is still there, unchanged.`)
	if r, err = d.agent.types(ctx, "kubectl ctrlrun claim %s -- refund", name); err != nil {
		return err
	}
	done, err := d.ended(ctx, name)
	if err != nil {
		return err
	}
	expect(d, "the action is Committed", done.Status.State, v1alpha1.ActionCommitted)
	expect(d, "exit code 0", r.code, 0)
	expect(d, "the provider got one call", d.provider.callsFor("txn_2"), 1)
	expect(d, "and paid what was approved", d.provider.paidFor("txn_2"), "re_2 200000")
	return nil
}

// editApproved: nobody changes an Action, not even who may do everything.
func (d *demo) editApproved(ctx context.Context, name string) error {
	edit := fmt.Sprintf("kubectl patch action %s --type=merge \\\n-p '{\"spec\":{\"arguments\":{\"amount\":500000}}}'", name)
	d.tell(`The agent would like the approved action to say 5,000.00.`)
	r, err := d.agent.types(ctx, "%s", edit)
	if err != nil {
		return err
	}
	d.byServer("RBAC: the Role of an agent has no update and no patch")
	expect(d, "the agent may not", r.code != 0 && strings.Contains(r.output, "cannot patch resource"), true)

	d.tell(`An administrator may do everything, and cannot do this.`)
	if r, err = d.admin.types(ctx, "%s", edit); err != nil {
		return err
	}
	d.byServer("the rule of the kind Action itself: what was said is never changed")
	expect(d, "nobody changes an action", r.code != 0 && strings.Contains(r.output, "an Action never changes"), true)
	return nil
}

// copyApproval: a yes binds to a hash, and another action has another.
func (d *demo) copyApproval(ctx context.Context, name string) error {
	d.tell(`So it proposes 5,000.00 as a new action, and a script with alice's rights copies her yes to it: with the name and the uid of
		the new action, all that identifies it.`)
	r, err := d.agent.types(ctx, "kubectl ctrlrun propose stripe.refund payment_id=txn_2 amount:=500000 --wait")
	if err != nil {
		return err
	}
	expect(d, "the new action waits for an answer of its own: exit code 5", r.code, 5)
	other := name + ".2"
	larger, err := d.reaches(ctx, other, v1alpha1.ActionAwaitingApproval)
	if err != nil {
		return err
	}
	approved, err := d.reaches(ctx, name, v1alpha1.ActionClaimable)
	if err != nil {
		return err
	}
	speaker := action.Speaker(d.alice.user.Name)
	r, err = d.alice.types(ctx, "kubectl get approval %s.%s -o yaml |\nsed -e /resourceVersion/d -e s/%s/\\&.2/ \\\n"+
		"-e s/%s/%s/ |\nkubectl create -f -", name, speaker, name, approved.UID, larger.UID)
	if err != nil {
		return err
	}
	expect(d, "she may say it", r.code, 0)
	if err := d.mismatch(ctx, other+"."+speaker); err != nil {
		return err
	}
	if larger, err = d.reaches(ctx, other, v1alpha1.ActionAwaitingApproval); err != nil {
		return err
	}
	expect(d, "the 5,000.00 still have no vote", larger.Status.Approval.Counted, 0)

	d.tell(`Alice reads what is really asked of her, and says no.`)
	r, err = d.alice.typesLong(ctx, 3, "kubectl ctrlrun deny %s --yes \\\n--hash %s \\\n--reason 'we agreed on 2,000.00'", other, larger.Status.ActionHash)
	if err != nil {
		return err
	}
	expect(d, "her no counts", r.code, 0)
	if larger, err = d.ended(ctx, other); err != nil {
		return err
	}
	expect(d, "the 5,000.00 are denied", ending(larger), "Denied approval_denied")
	return nil
}

// mismatch shows what the operator says of an Approval that was copied.
func (d *demo) mismatch(ctx context.Context, approval string) error {
	verdict, err := d.verdict(ctx, approval)
	if err != nil {
		return err
	}
	_, err = d.alice.types(ctx, "kubectl get approval %s \\\n-o jsonpath='{.status.conditions[?(@.type==\"Accepted\")].message}'", approval)
	if err != nil {
		return err
	}
	d.say("")
	d.refused("REFUSED", fmt.Sprintf("by the operator, Accepted=%s, reason %s: %s", verdict.Status, verdict.Reason, approval))
	expect(d, "the copy does not count", string(verdict.Status)+" "+verdict.Reason, "False Mismatch")
	return nil
}

// byServer shows that the apiserver refused a request, and by what.
func (d *demo) byServer(by string) {
	d.say("")
	d.refused("REFUSED", "by the apiserver, "+by)
}
