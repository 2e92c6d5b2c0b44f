// Package flow decides what is done next: the only place that composes the rules of the other kernel packages.
//
// Next looks at one Snapshot and answers with one Step: read this, write this, wait, nothing. The shell does that step and
// asks again. Being pure, Next can be run by a model checker exactly as it ships; and since it also chooses the reads, no
// second place decides anything by choosing what not to look at.
//
// # The order of writes
//
//	pin      Action    AwaitingApproval: what people are asked, written once
//	reserve  Effect    created, or a failed one renewed: the apiserver lets one of all succeed
//	admit    Action    Admitted, with attempt, token and lease copied from the record: the one write that lets a process act
//	         Outcome   by the agent; or, when the lease is over, by the operator under the very same name
//	settle   Effect    Committed, Failed or Ambiguous
//	receipt  Receipt   at the end of the chain
//	finish   Action    the terminal state, as the receipt says it
//
// Each write is taken only after a read that shows the one before. If the process dies after any of them, the next pass of
// any process goes on from there: what was written says where it stands. An action that ends without being admitted gets
// its terminal state first and its receipt afterwards, and whatever it had reserved is an orphan and is released.
//
// # Why stale reads are harmless
//
// Every precondition of a write but two is monotone: once true it stays true, so a cache that lags can only delay. The two
// that are not are absence, which is therefore concluded from the apiserver's own answer alone, and "this action is
// unfinished", which the guarded write of its status checks. A rule that is added must be asked the same question.
//
// Left open for later kinds: authority is asked between the effect key and the policy, and the stricter of both holds;
// contracts read the chain and need no step here.
package flow

// Next is the next step for the snapshot's subject.
func Next(s Snapshot) Step {
	step := next(s)
	if w, ok := step.(WriteAction); ok {
		w.Status.Timeline = told(s, w)
		return w
	}
	if o, ok := step.(Observe); ok {
		o.Status.Timeline = told(s, o.WriteAction)
		return o
	}
	return step
}

func next(s Snapshot) Step {
	if s.Action.Presence != Unread {
		return nextAction(s)
	}
	return nextEffect(s)
}

func nextAction(s Snapshot) Step {
	a := s.Action.Action
	switch {
	case s.Action.Presence == Absent || a == nil:
		return Done{}
	case a.Finished():
		return Done{}
	case a.Execution != nil:
		return afterAdmission(s)
	case a.State.Terminal():
		return receiptOfUnadmitted(s)
	}
	return decide(s)
}
