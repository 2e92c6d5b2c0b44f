package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/decision"
)

// pair are two actions about which people are asked at the same time: one that is approved, and one that is presented with
// what was said about it.
type pair struct {
	first, second             *client.Call
	approved, other           *v1alpha1.Action // as they were when people were asked
	firstRemote, secondRemote *remote
}

// mutated: G1. An approval binds to one hash. It is presented for an action that differs in nothing but that.
func mutated(ctx context.Context, s *stage) (any, error) {
	p, err := s.pair(ctx, "approved", "mutated", func(ctx context.Context) (*client.Call, error) {
		return s.propose(ctx, "mutated", *s.plan.Mutated)
	})
	if err != nil {
		return nil, err
	}
	s.control = true
	if err := s.approve(ctx, p.approved, s.plan.Vectors[0].Approvals); err != nil {
		return nil, err
	}
	s.control = false
	stolen := approvalOf(p.other)
	stolen.ActionHash = p.approved.Status.ActionHash
	if err := s.refusedFor(ctx, p, stolen); err != nil {
		return nil, err
	}
	// Before the first is executed: afterwards it is the effect, which is the same, that keeps the second from it.
	if err := s.denied(ctx, p); err != nil {
		return nil, err
	}
	if err := s.commits(ctx, p.first, p.firstRemote); err != nil {
		return nil, err
	}
	return map[string]any{"mutatedArguments": argumentsOf(*s.plan.Mutated)}, s.calls(p.secondRemote, 0, p.other.Name)
}

// replayed: G2. Two actions of the same content have the same hash. What was said about the first is spent by it, and is
// presented for the second, word for word.
func replayed(ctx context.Context, s *stage) (any, error) {
	p, err := s.pair(ctx, "first", "second", func(ctx context.Context) (*client.Call, error) {
		return s.propose(ctx, "second", s.plan.Vectors[0])
	})
	if err != nil {
		return nil, err
	}
	if p.approved.Status.ActionHash != p.other.Status.ActionHash {
		return nil, fmt.Errorf("two proposals of the same content have the hashes %s and %s", p.approved.Status.ActionHash, p.other.Status.ActionHash)
	}
	s.control = true
	if err := s.approve(ctx, p.approved, s.plan.Vectors[0].Approvals); err != nil {
		return nil, err
	}
	if err := s.commits(ctx, p.first, p.firstRemote); err != nil {
		return nil, err
	}
	s.control = false
	again := approvalOf(p.approved)
	again.ActionRef.Name = p.other.Name
	if err := s.refusedFor(ctx, p, again); err != nil {
		return nil, err
	}
	accepted, verdict, err := s.answer(ctx, s.approvers[0], approvalOf(p.approved))
	if err != nil {
		return nil, err
	}
	// Whichever the operator looks at first: who says it, or what it is about.
	names := []string{v1alpha1.ReasonDuplicateApprover, v1alpha1.ReasonActionFinished}
	if accepted || !slices.Contains(names, verdict) {
		return nil, s.fail(fmt.Sprintf("approving %s once more is refused: %s or %s", p.approved.Name, names[0], names[1]), "accepted: %t, %s", accepted, verdict)
	}
	if err := s.denied(ctx, p); err != nil {
		return nil, err
	}
	return nil, s.calls(p.firstRemote, 1, p.approved.Name)
}

// denied lets somebody say no to the second action, by its own hash, and then tries to execute it: what was said about the first is
// no yes to it, however late one looks. That the no is accepted is a control: the second is one that people are asked about.
func (s *stage) denied(ctx context.Context, p *pair) error {
	no := approvalOf(p.other)
	no.Decision = v1alpha1.Denied
	accepted, verdict, err := s.answer(ctx, s.approvers[0], no)
	if err != nil {
		return err
	}
	if !accepted {
		s.control = true
		return s.fail("a no to "+p.other.Name+" is accepted", "%s", verdict)
	}
	execute, err := s.command(p.secondRemote, Commit)
	if err != nil {
		return err
	}
	o, err := s.execute(ctx, p.second, execute)
	if err != nil {
		return err
	}
	if err := s.calls(p.secondRemote, 0, o.Name); err != nil {
		return err
	}
	return s.ends(ctx, o, v1alpha1.ActionDenied, decision.ApprovalDenied, decision.Denied)
}

// pair proposes two actions and waits until people are asked about both.
func (s *stage) pair(ctx context.Context, first, second string, proposeSecond func(context.Context) (*client.Call, error)) (p *pair, err error) {
	p = &pair{}
	s.control = true // that people are asked at all
	defer func() { s.control = false }()
	for _, step := range []func() error{
		func() (err error) { p.firstRemote, err = s.remoteFor(first); return err },
		func() (err error) { p.secondRemote, err = s.remoteFor(second); return err },
		func() (err error) { p.first, err = s.propose(ctx, first, s.plan.Vectors[0]); return err },
		func() (err error) { p.second, err = proposeSecond(ctx); return err },
		func() (err error) { p.approved, err = s.asked(ctx, p.first.Action().Name); return err },
		func() (err error) { p.other, err = s.asked(ctx, p.second.Action().Name); return err },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	for _, o := range []*v1alpha1.Action{p.approved, p.other} {
		if o.Status.State != v1alpha1.ActionAwaitingApproval {
			return nil, s.fail("people are asked about "+o.Name, "%s", standing(o))
		}
	}
	return p, nil
}

// refusedFor lets everybody who said yes to the first action present it for the second. Each is refused as a mismatch, and the
// second waits as before.
func (s *stage) refusedFor(ctx context.Context, p *pair, spec v1alpha1.ApprovalSpec) error {
	expected := fmt.Sprintf("the approval of %s, presented for %s, is refused: %s", p.approved.Name, p.other.Name, v1alpha1.ReasonMismatch)
	for _, approver := range s.approvers[:s.plan.Vectors[0].Approvals] {
		accepted, verdict, err := s.answer(ctx, approver, spec)
		if err != nil {
			return err
		}
		if accepted || verdict != v1alpha1.ReasonMismatch {
			return s.fail(expected, "accepted: %t, %s; %s", accepted, verdict, s.whatHappens(ctx, p))
		}
	}
	o, err := s.action(ctx, p.other.Name)
	if err != nil {
		return err
	}
	if o.Status.State != v1alpha1.ActionAwaitingApproval || o.Status.Approval == nil || o.Status.Approval.Counted != 0 {
		return s.fail("nothing counts for "+o.Name+", and people are still asked", "%s; %s", standing(o), s.whatHappens(ctx, p))
	}
	return nil
}

// whatHappens executes the second action, if it comes to that: what was accepted wrongly is worst if somebody acts on it.
func (s *stage) whatHappens(ctx context.Context, p *pair) string {
	bounded, cancel := context.WithTimeout(ctx, afterwards)
	defer cancel()
	execute, err := s.command(p.secondRemote, Commit)
	if err == nil {
		_, err = p.second.Execute(bounded, execute)
	}
	n, countErr := p.secondRemote.calls()
	if err = errors.Join(err, countErr); err != nil {
		return fmt.Sprintf("it was executed %s (%v)", times(n), err)
	}
	return "it was executed " + times(n)
}

// commits executes an action, and checks that it is committed. It is a control: approvals that are never good for anything refuse
// nothing.
func (s *stage) commits(ctx context.Context, call *client.Call, r *remote) error {
	before := s.control
	s.control = true
	defer func() { s.control = before }()
	execute, err := s.command(r, Commit)
	if err != nil {
		return err
	}
	o, err := s.execute(ctx, call, execute)
	if err != nil {
		return err
	}
	if err := s.ends(ctx, o, v1alpha1.ActionCommitted, "", decision.Committed); err != nil {
		return err
	}
	return s.calls(r, 1, o.Name)
}
