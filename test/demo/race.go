package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// race: three processes want the same refund at the same moment, and one makes it.
func (d *demo) race(ctx context.Context) error {
	const key = "refund:txn_3"
	const command = "kubectl ctrlrun run stripe.refund payment_id=txn_3 amount:=3000 -- refund"
	d.tell(`Two processes of the agent and one of its rival start at the same moment. The provider is slow: it answers when the other
		two have had their turn.`)
	d.provider.fail("txn_3", slow)
	racers := []*person{d.agent, d.agent, d.rival}
	var jobs []*job
	for _, p := range racers {
		jobs = append(jobs, p.start(ctx, command))
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, maxSlow, true, func(context.Context) (bool, error) {
		over := 0
		for _, j := range jobs {
			if j.ended() {
				over++
			}
		}
		return over >= 2, nil
	})
	// Whoever is still there gets an answer, or this would hang instead of failing.
	close(d.provider.release)
	codes := map[int]int{}
	for i, j := range jobs {
		r, waitErr := j.wait()
		err = errors.Join(err, waitErr)
		racers[i].prompt(command)
		racers[i].show(r)
		codes[r.code]++
	}
	if err != nil {
		return err
	}

	list := &v1alpha1.ActionList{}
	if err := d.env.Admin().List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	ends := map[string]int{}
	var losers []*v1alpha1.Action
	for _, a := range list.Items {
		if a.Status.Effect == nil || a.Status.Effect.Key != key {
			continue
		}
		finished, err := d.ended(ctx, a.Name)
		if err != nil {
			return err
		}
		if finished.Status.State == v1alpha1.ActionBlocked {
			losers = append(losers, finished)
		}
		ends[ending(finished)]++
	}
	record, err := d.record(ctx, key)
	if err != nil {
		return err
	}
	d.blocked(losers...)
	expect(d, "one process executed, two were told that it is in progress", fmt.Sprint(codes), "map[0:1 5:2]")
	expect(d, "one action is Committed, two are Blocked", fmt.Sprint(ends), "map[Blocked in_progress:2 Committed :1]")
	expect(d, "the record knows one attempt", record.StartedAttempts, 1)
	expect(d, "the provider got one call", d.provider.callsFor("txn_3"), 1)
	expect(d, "and paid once", d.provider.paidFor("txn_3"), "re_3 3000")
	return nil
}
