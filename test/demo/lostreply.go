package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

// lostReply: the provider pays, its answer is lost, and the retry that would pay again does not happen.
func (d *demo) lostReply(ctx context.Context) error {
	const key = "refund:txn_1"
	const command = "kubectl ctrlrun run stripe.refund payment_id=txn_1 amount:=2000 -- refund"
	name := action.EffectName(key)
	d.tell(`The agent pays 20.00 back. The provider pays, and the connection breaks before its answer arrives.`)
	d.provider.fail("txn_1", replyLost)
	r, err := d.agent.types(ctx, command)
	if err != nil {
		return err
	}
	first, err := d.ended(ctx, name)
	if err != nil {
		return err
	}
	expect(d, "nobody knows whether it happened, so the action is Ambiguous", first.Status.State, v1alpha1.ActionAmbiguous)
	expect(d, "an unknown outcome is exit code 6, never 0", r.code, 6)

	d.tell(`It tries again, as agents do. The same refund has the same key, and the key is taken.`)
	if r, err = d.agent.types(ctx, command); err != nil {
		return err
	}
	retry, err := d.ended(ctx, name+".2")
	if err != nil {
		return err
	}
	d.blocked(retry)
	expect(d, "the retry is refused because the effect is ambiguous", ending(retry), "Blocked ambiguous")
	expect(d, "its exit code says unknown", r.code, 6)
	expect(d, "the provider got one call", d.provider.callsFor("txn_1"), 1)

	return d.resolveLostReply(ctx, key, name, command)
}

// resolveLostReply: only a person who looked can say what happened, and quotes the receipt of what they looked into.
func (d *demo) resolveLostReply(ctx context.Context, key, name, command string) error {
	d.tell(fmt.Sprintf(`Rosa looks at the provider's own list of payments, which says: %s for txn_1. It was paid. What she states quotes
		the hash of the receipt that says ambiguous.`, d.provider.paidFor("txn_1")))
	if err := d.rosa.typesForTable(ctx, "kubectl ctrlrun effects --state ambiguous", "HOLDER", "AGE"); err != nil {
		return err
	}
	r, err := d.rosa.types(ctx, "kubectl ctrlrun resolve --key %s --committed --yes \\\n--reason 're_1 is in the list of the provider'", key)
	if err != nil {
		return err
	}
	expect(d, "her statement is accepted", r.code, 0)
	stated := &v1alpha1.Resolution{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + ".1." + action.Speaker(d.rosa.user.Name)}}
	if err := d.until(ctx, stated, "there", func() bool { return true }); err != nil {
		return err
	}
	first, err := d.ended(ctx, name)
	if err != nil {
		return err
	}
	expect(d, "it quotes the ambiguous receipt", stated.Spec.ReceiptRef.Hash, first.Status.ReceiptRef.Hash)
	record, err := d.record(ctx, key)
	if err != nil {
		return err
	}
	expect(d, "the effect is Committed", record.State, v1alpha1.EffectCommitted)

	if r, err = d.agent.types(ctx, "%s", command); err != nil {
		return err
	}
	last, err := d.ended(ctx, name+".3")
	if err != nil {
		return err
	}
	d.blocked(last)
	expect(d, "another retry is a duplicate", ending(last), "Blocked duplicate")
	expect(d, "its exit code says committed already", r.code, 4)
	expect(d, "the provider still got one call", d.provider.callsFor("txn_1"), 1)
	expect(d, "and paid once", d.provider.paidFor("txn_1"), "re_1 2000")
	return nil
}

// ending is how an Action ended and why, in two words.
func ending(a *v1alpha1.Action) string {
	return string(a.Status.State) + " " + a.Status.Reason
}

// blocked shows that the operator did not admit Actions.
func (d *demo) blocked(actions ...*v1alpha1.Action) {
	d.say("")
	for _, a := range actions {
		d.refused("BLOCKED", fmt.Sprintf("by the operator, reason %s: %s", a.Status.Reason, a.Name))
	}
}
