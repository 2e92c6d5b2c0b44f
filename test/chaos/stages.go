package chaos

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/chaos/desk"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/remote"
)

// sleeper begins the name of an agent that is stopped after it has executed, until its lease was declared over. It does one
// thing at a time: a process that sleeps between its admission and its execution may act when nobody expects it any more,
// which no record can prevent and only the remote could.
const sleeper = "sleeper"

// ordinary begins the name of every other agent.
const ordinary = "agent"

func sleeps(agent string) bool { return strings.HasPrefix(agent, sleeper) }

// nap is longer than the shortest lease, what the operator waits after it, and what it may be held up itself.
const nap = shortestLease + 30*time.Second

// heard is told of each stage of each agent before the agent goes on: the place to kill it there.
func (r *run) heard(_ context.Context, p desk.Progress) {
	switch p.Stage {
	case desk.StageReported:
		r.acknowledge(p)
	case desk.StageEnded:
		r.leave(p)
		r.retry(p)
	}
	if !r.faults.are(rough, deadly) {
		return
	}
	roll := r.dice.of("stage", p.Stage, p.Work)
	switch {
	case sleeps(p.Agent) && p.Stage == desk.StageExecuted && r.faults.are(deadly):
		r.hold(p.Agent, "agent stop", p.Stage, nap, func() error { return r.agents[p.Agent].pause(nap) })
	case sleeps(p.Agent):
	case p.Stage == desk.StageAdmitted && (r.kills.Load() == 0 || roll.IntN(100) < 2), p.Stage == desk.StageExecuted && roll.IntN(100) < 2,
		p.Stage == desk.StageProposed && roll.IntN(100) < 1:
		r.hold(p.Agent, "agent kill", p.Stage, judge.Forever, func() error { return r.killAgent(p.Agent) })
	}
}

func (r *run) killAgent(name string) error {
	err := r.agents[name].kill()
	if err == nil {
		r.kills.Add(1)
	}
	return err
}

// hold does something to an agent that keeps all it has in hand from being reported, after that is on record.
func (r *run) hold(agent, kind string, stage desk.Stage, holdUp time.Duration, do func() error) {
	var all []judge.Injection
	for _, p := range r.desk.InFlight(agent) {
		all = append(all, judge.Injection{
			Kind: kind, Point: string(stage), Process: agent, Namespace: r.namespace, ActionUID: p.ActionUID, Work: p.Work,
			EffectKey: p.EffectKey, Attempt: p.Attempt, Causes: lapse, HoldUp: holdUp,
		})
	}
	if err := r.journal.Record(all...); err != nil {
		r.fail(err)
		return
	}
	r.note(do())
}

// behave is what the remote does with a call, on record before it does it.
func (r *run) behave(c remote.Call) remote.Behaviour {
	if !r.faults.are(rough, deadly) {
		return remote.Execute
	}
	behaviour := remote.Execute
	switch x := r.dice.of("remote", c.Work).IntN(100); {
	case x < 12:
		return remote.Refuse // an answer, and no fault
	case x < 15:
		behaviour = remote.ExecuteAndLose
	case x < 18:
		behaviour = remote.Lose
	case x < 20:
		behaviour = remote.ExecuteAndHang
	}
	if behaviour == remote.Execute {
		return behaviour
	}
	i := judge.Injection{
		Kind: "remote " + string(behaviour), Point: string(desk.StageAdmitted), Namespace: c.Namespace, ActionUID: c.ActionUID, Work: c.Work,
		EffectKey: c.EffectKey, Attempt: c.Attempt, Causes: []v1alpha1.EffectCause{v1alpha1.CauseReportedUnknown},
	}
	if behaviour == remote.ExecuteAndHang {
		// The agent waits until its lease is over; its report may then be late as well.
		i.Causes, i.HoldUp = append(i.Causes, lapse...), shortestLease
	}
	if err := r.journal.Record(i); err != nil {
		r.fail(err)
		return remote.Execute
	}
	return behaviour
}

// acknowledge notes a report that an agent was told is stored.
func (r *run) acknowledge(p desk.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acknowledged = append(r.acknowledged, judge.Acknowledged{Action: p.Action, ActionUID: p.ActionUID, ClaimID: p.ClaimID, Result: p.Result})
}

// leave notes an agent that gave up an Action and could not say so.
func (r *run) leave(p desk.Progress) {
	if p.ActionUID == "" || !p.Unsaid {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[p.ActionUID] = time.Now()
}

// told is what agents told the desk that the judge has to know.
func (r *run) told() ([]judge.Acknowledged, map[string]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.acknowledged), maps.Clone(r.left)
}

// retry proposes again what failed for certain, most of the time.
func (r *run) retry(p desk.Progress) {
	_, item, found := r.desk.Find(func(known desk.Progress) bool { return known.Work == p.Work })
	if found && p.State == v1alpha1.ActionFailed && r.dice.of("retry", p.Work).IntN(100) < 80 {
		r.desk.Add(again(item, r.count()))
	}
}
