package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
)

// Executor is what executes actions of some types for the operator, instead of the agents that propose them, or only looks what became
// of what they executed.
type Executor struct {
	Name string
	// Hash of how it executes: what people approve with an action.
	Hash string
	// Types of actions, each by its full name.
	Types []string
	// Invalid says what is wrong with it; "": nothing.
	Invalid string
	// OnlyObserves: it executes nothing, agents do.
	OnlyObserves bool
	// Observes is how it looks what became of an attempt; nil: it does not.
	Observes *Observer
}

// ExecutorRef names an executor, and how it executes.
type ExecutorRef struct{ Name, Hash string }

func (x *Executor) ref() *ExecutorRef {
	if x == nil {
		return nil
	}
	return &ExecutorRef{x.Name, x.Hash}
}

func sameRef(a, b *ExecutorRef) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// OperatorsOwn reports whether actions of a type are proposed and carried out by the operator itself. No Executor executes them.
func OperatorsOwn(actionType string) bool { return strings.HasPrefix(actionType, "ctrlrun.") }

// Executors are those of a namespace, in any order.
type Executors []Executor

// of are those that name a type.
func (x Executors) of(actionType string) []Executor {
	if OperatorsOwn(actionType) {
		return nil
	}
	var named []Executor
	for _, e := range x {
		if slices.Contains(e.Types, actionType) {
			named = append(named, e)
		}
	}
	return named
}

// name reports whether any of them, valid or not, is to execute the type: then no agent does.
func (x Executors) name(actionType string) bool {
	return slices.ContainsFunc(x.of(actionType), func(e Executor) bool { return !e.OnlyObserves })
}

// Conflicts are the names of the others that name a type too which the named one does.
func (x Executors) Conflicts(name string) []string {
	var others []string
	for _, e := range x {
		if e.Name != name {
			continue
		}
		for _, t := range e.Types {
			for _, o := range x.of(t) {
				if o.Name != name && !slices.Contains(others, o.Name) {
					others = append(others, o.Name)
				}
			}
		}
	}
	slices.Sort(others)
	return others
}

// stand reports whether the one and only executor of a type still is the one that is meant.
func (x Executors) stand(actionType string, meant ExecutorRef) bool {
	named := x.of(actionType)
	return len(named) == 1 && named[0].Invalid == "" && named[0].Name == meant.Name && named[0].Hash == meant.Hash
}

// executable answers for what the operator is to execute and cannot. What is executed without the agent has to have an end that
// does not depend on the agent: a key that is taken once, and a time after which a restored copy of the action does nothing.
func (p *pass) executable() Step {
	named := p.World.Executors.of(p.a.Type)
	if len(named) == 0 {
		return nil
	}
	x := named[0]
	switch {
	case len(named) > 1:
		var names []string
		for _, e := range named {
			names = append(names, e.Name)
		}
		slices.Sort(names)
		return p.end(Denied, decision.ExecutorConflict, fmt.Sprintf("The Executors %s all name %s, and nobody said which is meant. Leave one.", listed(names), p.a.Type))
	case x.Invalid != "":
		return p.end(Denied, decision.ExecutorInvalid, fmt.Sprintf("The Executor %s, which names %s, is not valid: %s.", x.Name, p.a.Type, x.Invalid))
	case x.OnlyObserves:
		p.observer = &x
		return nil
	case p.evaluation.EffectKey == nil:
		return p.end(Denied, decision.ExecutorNeedsEffect, fmt.Sprintf("The Executor %s executes %s, and what it executes needs an effect key. Add an effect template to the policy.", x.Name, p.a.Type))
	case p.a.NotAfter == nil:
		return p.end(Denied, decision.ExecutorNeedsNotAfter, fmt.Sprintf("The Executor %s executes %s, and what it executes needs a time after which it is not wanted any more. Propose it again with spec.notAfter.", x.Name, p.a.Type))
	}
	p.executor, p.observer = &x, &x
	return nil
}

// sameExecutor answers for an action that would now be executed in another way than the one people were shown.
func (p *pass) sameExecutor() Step {
	was, now := p.a.Executor, p.executor.ref()
	switch {
	case sameRef(was, now):
		return nil
	case was == nil:
		return p.end(Blocked, decision.ExecutorChanged, fmt.Sprintf("Since it was first decided, the Executor %s has come to execute actions of its type. Nothing was executed. Propose it again.", now.Name))
	}
	return p.end(Blocked, decision.ExecutorChanged, executorChanged(was.Name)+" Propose it again.")
}

func executorChanged(name string) string {
	return fmt.Sprintf("The Executor %s, which was to execute it, is not there any more, or is another one now. Nothing was executed.", name)
}

// begin is what follows on an admission for an executor of the operator. Whoever begins and whoever releases replace the same
// version of the record: one of them does. Too late to begin is when less than a third of the lease is left, and when it is not wanted
// any more.
func begin(s Snapshot, record effect.Record) Step {
	a := s.Action.Action
	lease := record.Status.Lease
	before := lease.Add(-a.Lease / 3)
	if a.NotAfter != nil && a.NotAfter.Before(before) {
		before = *a.NotAfter
	}
	switch {
	case !s.Now.Before(before):
		if step := clockHold(s); step != nil {
			return step
		}
	case len(s.World.Holds) > 0:
		return Wait{Until: before, Why: string(s.World.Holds[0].Reason)}
	case a.Executor != nil && s.World.Executors.stand(a.Type, *a.Executor):
		return Begin{EffectName: record.Name, ActionType: a.Type, Executor: *a.Executor, Before: before, Lease: lease}
	}
	next, err := record.Status.Release(s.Now)
	if err != nil {
		return Read{Object: TheEffect, Name: record.Name}
	}
	return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhyRelease}
}

// Concluded is what the end of an execution proves. One that went on proves by itself nothing of what was sent before: that nothing was
// executed is then only what the other side states.
func (b Begin) Concluded(s effect.Settlement) effect.Settlement {
	if s.State == effect.Failed && b.Going != nil && !s.Stated {
		s.State = effect.Ambiguous
	}
	if s.State == effect.Ambiguous {
		s.Cause = effect.ReportedUnknown
	}
	return s
}

// Overdue says why what is begun must not be executed after all, when it took long to learn that it is; "" if it may.
func (b Begin) Overdue(w World, now time.Time) string {
	const long = "It took too long to begin, and by then "
	switch {
	case !now.Before(b.Before):
		return long + "less than a third of the lease was left, or it was not wanted any more."
	case len(w.Holds) > 0:
		return long + "the namespace was held: " + w.Holds[0].Message
	case !w.Executors.stand(b.ActionType, b.Executor):
		return long + "the Executor was not there any more, or another one."
	}
	return ""
}

// Key is the same for executors that decide the same.
func (x Executors) Key() string {
	var key strings.Builder
	rules := x.rules()
	for _, t := range slices.Sorted(maps.Keys(rules)) {
		fmt.Fprintf(&key, "%s=%s\n", t, rules[t])
	}
	return key.String()
}

// rules say of each type how it is executed.
func (x Executors) rules() map[string]any {
	rules := map[string]any{}
	for _, e := range x {
		for _, t := range e.Types {
			hash := e.Hash
			if len(x.of(t)) > 1 || e.Invalid != "" {
				hash = "" // nothing is executed
			}
			rules[t] = hash
		}
	}
	return rules
}
