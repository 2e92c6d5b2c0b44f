package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/chaos/judge"
)

// alone lets every operator work at once, each on everything.
const alone = "--leader-elect=false"

// misfortune is something that goes wrong with everybody at once.
type misfortune struct {
	name string
	do   func(context.Context, *rand.Rand) error
}

// storm lets things go wrong for so long, and longer until all work was given out. First the operators take turns by their
// lease, and the leader is stopped for longer than that; then both lead, all the time, and are killed and stopped at their
// writes. Two thirds of the work are kept for that.
func (r *run) storm(ctx context.Context, length time.Duration) error {
	items := plan(r.dice, r.Actions, r.remote.URL())
	third := len(items) / 3
	r.faults.set(rough)
	r.storms.Go(func() { r.feed(r.stormy, items[:third], length*3/10) })
	r.background(ctx, "torn watches", 4*time.Second, r.tearWatches)
	r.background(ctx, "policy edits", 8*time.Second, r.editPolicy)
	r.background(ctx, "partitions", 13*time.Second, r.partition)
	if err := r.takeTurns(ctx, length/3); err != nil {
		return err
	}
	r.say("both operators lead from now on")
	for _, name := range r.operatorNames() {
		if err := r.operators[name].replace(alone); err != nil {
			return err
		}
	}
	r.faults.set(deadly)
	r.storms.Go(func() { r.feed(r.stormy, items[third:], length*6/10) })
	r.background(ctx, "quota", 30*time.Second, r.exceedQuota)
	return r.suffer(ctx, length*2/3)
}

// longestTurns bounds how long the operators take turns.
const longestTurns = 4 * time.Minute

// takeTurns stops leaders for a time, and longer until one was overtaken: one takeover may be slow on a busy machine.
func (r *run) takeTurns(ctx context.Context, length time.Duration) error {
	start := time.Now()
	for {
		if err := r.within(ctx, "leader overlap", r.overlapLeaders); err != nil {
			return err
		}
		if enoughTurns(r.overlaps.Load(), time.Since(start), length) {
			break
		}
		if !pause(ctx, time.Now().Add(10*time.Second)) {
			return ctx.Err()
		}
	}
	if !pause(ctx, start.Add(length)) {
		return ctx.Err()
	}
	return nil
}

// enoughTurns reports whether the operators have taken turns for long enough, after so many of them were overtaken.
func enoughTurns(overlaps int64, taken, length time.Duration) bool {
	const nextTurn = 10*time.Second + takeover/2
	return overlaps > 0 && taken+nextTurn > length || taken >= max(length, longestTurns)
}

// betweenOutages is how often there is one in a long storm.
const betweenOutages = 90 * time.Second

// suffer has one outage after the other, evenly over the time, and each kind at least once. It goes on until all work was
// given out: what is done in calm weather proves little.
func (r *run) suffer(ctx context.Context, length time.Duration) error {
	start, i := time.Now(), 0
	next := func() error {
		outages := []misfortune{{"apiserver killed", r.killAPIServer}, {"etcd killed", r.killEtcd}, {"etcd without space", r.fillEtcd}}
		o := outages[i%len(outages)]
		i++
		return r.within(ctx, o.name, o.do)
	}
	n := max(3, int(length/betweenOutages))
	for i < n {
		if !pause(ctx, start.Add(length*time.Duration(i+1)/time.Duration(n+1))) {
			return ctx.Err()
		}
		if err := next(); err != nil {
			return err
		}
	}
	if !pause(ctx, start.Add(length)) {
		return ctx.Err()
	}
	bound := time.Now().Add(max(3*length, longestStorm))
	for !r.givenOut(ctx, time.Now().Add(betweenOutages)) && time.Now().Before(bound) && ctx.Err() == nil {
		if err := next(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// longestStorm bounds how much longer a storm lasts than it has to. A run fails if work was left until after it.
const longestStorm = 6 * time.Minute

// givenOut waits until a time at most, and reports whether all work was given out.
func (r *run) givenOut(ctx context.Context, until time.Time) bool {
	for r.desk.Given(planned) < r.Actions {
		if time.Now().After(until) || !pause(ctx, time.Now().Add(200*time.Millisecond)) {
			return false
		}
	}
	return true
}

// pause waits until a time, and reports whether ctx was not done before.
func pause(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// background does something again and again until the storm is over, every so often and a bit.
func (r *run) background(ctx context.Context, name string, every time.Duration, do func(context.Context, *rand.Rand) error) {
	r.storms.Go(func() {
		for i := 0; ; i++ {
			roll := r.dice.of("background", name, i)
			if !pause(ctx, time.Now().Add(between(roll, every/2, every*3/2))) || r.stormy.Err() != nil {
				return
			}
			if err := do(r.stormy, roll); err != nil && r.stormy.Err() == nil {
				r.say("%s: %v", name, err) // an outage may be in its way: the next time is soon
			}
		}
	})
}

// within does something whose failure is one of the harness.
func (r *run) within(ctx context.Context, name string, do func(context.Context, *rand.Rand) error) error {
	r.say("%s", name)
	if err := do(ctx, r.dice.of(name, r.count())); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// cached are the kinds an operator keeps caches of.
var cached = []string{"actions", "effects", "outcomes", "claims", "approvals", "resolutions", "actionpolicies"}

// tearWatches lets one kind of an operator's caches lag behind the others.
func (r *run) tearWatches(ctx context.Context, roll *rand.Rand) error {
	name, kind := r.anyOperator(roll), cached[roll.IntN(len(cached))]
	if err := r.journal.Record(judge.Injection{Kind: "watch held", Point: kind, Process: name}); err != nil {
		return err
	}
	release := r.proxy.Hold(name, kind)
	defer release()
	pause(ctx, time.Now().Add(between(roll, time.Second, 9*time.Second)))
	return nil
}

// partition cuts an operator or an agent off.
func (r *run) partition(ctx context.Context, roll *rand.Rand) error {
	d := between(roll, time.Second, 5*time.Second)
	name := r.anyOperator(roll)
	cut := func() error {
		heal := r.proxy.Partition(name)
		defer heal()
		pause(ctx, time.Now().Add(d))
		return nil
	}
	if roll.IntN(3) > 0 {
		if err := r.journal.Record(judge.Injection{Kind: "partition", Process: name}); err != nil {
			return err
		}
		return cut()
	}
	name = r.anyAgent(roll)
	// What it takes in hand meanwhile is held up as well: that it cannot propose before it is healed.
	r.hold(name, "partition", "", d+6*time.Second, cut)
	return nil
}

// editPolicy changes the version of the policy, which is an event on record, and nothing that it decides.
func (r *run) editPolicy(ctx context.Context, _ *rand.Rand) error {
	patch := fmt.Appendf(nil, `{"spec":{"version":"%d"}}`, r.count())
	p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "payments"}}
	if err := r.journal.Record(judge.Injection{Kind: "policy edit", Namespace: r.namespace}); err != nil {
		return err
	}
	return r.env.Admin().Patch(ctx, p, kube.RawPatch(types.MergePatchType, patch))
}

// exceedQuota refuses new Effects for a while. There is no controller that counts, so the quota says itself what is used.
func (r *run) exceedQuota(ctx context.Context, roll *rand.Rand) error {
	if err := r.journal.Record(judge.Injection{Kind: "quota", Namespace: r.namespace}); err != nil {
		return err
	}
	none := corev1.ResourceList{"count/effects.ctrlrun.dev": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "chaos"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
	}
	if err := r.env.Admin().Create(ctx, quota); err != nil {
		return err
	}
	defer r.removeQuota()
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	if err := r.env.Admin().Status().Update(ctx, quota); err != nil {
		return err
	}
	pause(ctx, time.Now().Add(between(roll, 8*time.Second, 12*time.Second)))
	return nil
}

// removeQuota takes the quota away, however long the apiserver is away itself.
func (r *run) removeQuota() {
	r.note(wait.PollUntilContextTimeout(context.Background(), 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "chaos"}}
		return kube.IgnoreNotFound(r.env.Admin().Delete(ctx, quota)) == nil, nil
	}))
}

const (
	// leaderLease is that of controller-runtime: nobody takes over from a leader that is stopped before.
	leaderLease = 15 * time.Second
	// takeover is how long another operator has to lead after the leader was stopped.
	takeover = time.Minute
)

// overlapLeaders stops the leader until its lease is over and the other has written in its place, and lets it go on then: it
// does not know that it leads no more.
func (r *run) overlapLeaders(ctx context.Context, _ *rand.Rand) error {
	leader := ""
	changed := func(context.Context) (bool, error) { return r.faults.leader() != leader, nil }
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, changed); err != nil {
		return fmt.Errorf("no operator writes: %w", err)
	}
	leader = r.faults.leader()
	if err := r.journal.Record(judge.Injection{Kind: "leader stopped", Process: leader}); err != nil {
		return err
	}
	resume, err := r.operators[leader].suspend()
	if err != nil {
		return err
	}
	defer resume()
	stopped := time.Now()
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, takeover, true, changed); err != nil {
		r.say("nobody took over from %s within %s", leader, takeover)
		return ctx.Err()
	}
	after := time.Since(stopped).Round(time.Second)
	if after < leaderLease/2 {
		r.say("%s had not led any more", leader) // what it wrote last was of the time before it was overtaken
		return nil
	}
	r.say("%s took over from %s, which goes on after %s", r.faults.leader(), leader, after)
	r.overlaps.Add(1)
	return nil
}

const (
	// longestOutage bounds how long one takes, on any machine. When it is over is on record.
	longestOutage = 5 * time.Minute
	// longestRepeat is how long, at most, the SDK pauses before it tries again what had no answer.
	longestRepeat = 6 * time.Second
)

// outage puts on record that everything in hand is held up. What is taken in hand during the outage is admitted only after
// it, so that this is all of it.
func (r *run) outage(kind string) error {
	all := []judge.Injection{{Kind: kind}}
	for _, p := range r.desk.InFlight("") {
		all = append(all, judge.Injection{
			Kind: kind, Process: p.Agent, Namespace: r.namespace, Work: p.Work, ActionUID: p.ActionUID, EffectKey: p.EffectKey, Attempt: p.Attempt,
			Causes: lapse, HoldUp: longestOutage,
		})
	}
	return r.journal.Record(all...)
}

// during causes an outage and repairs it after a moment.
func (r *run) during(ctx context.Context, kind string, roll *rand.Rand, cause func(context.Context) (func(context.Context) error, error)) error {
	if err := r.outage(kind); err != nil {
		return err
	}
	repair, err := cause(ctx)
	if err != nil {
		return err
	}
	pause(ctx, time.Now().Add(between(roll, 500*time.Millisecond, 3*time.Second)))
	if err := repair(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return r.journal.Over(kind, time.Now().Add(longestRepeat))
}

func (r *run) killAPIServer(ctx context.Context, roll *rand.Rand) error {
	return r.during(ctx, "apiserver killed", roll, r.env.KillAPIServer)
}

func (r *run) killEtcd(ctx context.Context, roll *rand.Rand) error {
	return r.during(ctx, "etcd killed", roll, r.env.KillEtcd)
}

func (r *run) fillEtcd(ctx context.Context, roll *rand.Rand) error {
	return r.during(ctx, "etcd without space", roll, r.env.RaiseNoSpace)
}
