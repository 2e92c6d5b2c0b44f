package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"ctrlrun.dev/operator/test/chaos/desk"
)

const (
	// shortestLease is the shortest there is, so that leases lapse within a run.
	shortestLease = 30 * time.Second
	// patience of an agent that waits to be admitted: longer than any outage.
	patience = 90 * time.Second
	// impatience is that of one that gives up, on purpose, between its reservation and its admission.
	impatience = 4 * time.Second
)

// policy of the namespace. Payments up to 100 are allowed, larger ones ask one person, still larger ones are denied, and
// transfers ask two people. The version changes during a run, which is an event on record.
const policy = `{"version":"0","actions":{
	"chaos.pay":{"effect":"pay:{payment}","approvalTTLSeconds":60,"rules":[
		{"when":{"amount_lte":100},"decision":"allow"},{"when":{"amount_lte":1000},"decision":"approve"},{"decision":"deny"}]},
	"chaos.transfer":{"effect":"transfer:{payment}","decision":"approve","approvalsRequired":2,"approvalTTLSeconds":60}}}`

// dice are drawn from the seed and from what they are drawn for, so that the same seed does the same to the same thing
// however the processes happen to be scheduled.
type dice uint64

func (d dice) of(what ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, what...)
	return rand.New(rand.NewPCG(uint64(d), h.Sum64()))
}

// between draws a duration.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// plan is the work of a run: so many proposals, some of them rivals for one key.
func plan(d dice, actions int, remote string) []desk.Item {
	r := d.of("plan")
	var items []desk.Item
	add := func(kind, payment string, amount int, wait time.Duration) {
		items = append(items, item(fmt.Sprintf("w%04d", len(items)+1), kind, payment, amount, wait, remote))
		items[len(items)-1].For = ordinary
	}
	for n := 0; len(items) < actions; n++ {
		payment := fmt.Sprintf("p%04d", n)
		switch x := r.IntN(100); {
		case x < 41:
			add("chaos.pay", payment, 10, patience)
		case x < 45:
			add("chaos.pay", payment, 10, patience)
			items[len(items)-1].For = sleeper
		case x < 60: // rivals: several agents get them at once
			for range min(2+r.IntN(2), actions-len(items)) {
				add("chaos.pay", payment, 20, patience)
			}
		case x < 75:
			add("chaos.pay", payment, 500, patience)
		case x < 87:
			add("chaos.transfer", payment, 500, patience)
		case x < 93:
			add("chaos.pay", payment, 5000, patience)
		default:
			add("chaos.pay", payment, 30, impatience)
		}
	}
	return items
}

func item(work, kind, payment string, amount int, wait time.Duration, remote string) desk.Item {
	return desk.Item{
		Work: work, ActionType: kind, Arguments: map[string]any{"payment": payment, "amount": amount, "work": work},
		Lease: shortestLease, Patience: wait, Remote: remote,
	}
}

// planned reports whether a piece of work is of the plan, and no later proposal for the effect of another.
func planned(work string) bool { return !strings.Contains(work, ".") }

// again is another proposal for the effect of an item, after its attempt failed.
func again(i desk.Item, number int) desk.Item {
	next := item(fmt.Sprintf("%s.r%d", i.Work, number), i.ActionType, fmt.Sprint(i.Arguments["payment"]), 0, patience, i.Remote)
	next.Arguments["amount"], next.For = i.Arguments["amount"], i.For
	return next
}
