package verify

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
)

// renewedToken: G14. Whoever tries again is another request to the remote, and says so by another token.
func renewedToken(ctx context.Context, s *stage) (any, error) {
	a, err := s.attempts("", s.plan.Vectors[0])
	if err != nil {
		return nil, err
	}
	var seen client.Execution
	a.see = func(x client.Execution) { seen = x }
	s.control = true
	first, err := a.first(ctx, NotExecuted)
	if err != nil {
		return nil, err
	}
	if err := s.ends(ctx, first, v1alpha1.ActionFailed, "", decision.Failed); err != nil {
		return nil, err
	}
	if err := s.record(ctx, first, v1alpha1.EffectFailed, 1); err != nil {
		return nil, err
	}
	s.control = false
	one, err := s.token(ctx, first, seen, 1)
	if err != nil {
		return nil, err
	}
	second, err := a.again(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.admitted(second); err != nil {
		return nil, err
	}
	two, err := s.token(ctx, second, seen, 2)
	if err != nil {
		return nil, err
	}
	if one == two {
		return nil, s.fail("the second attempt has another token than the first", "both have %s", one)
	}
	s.control = true
	if err := s.ends(ctx, second, v1alpha1.ActionCommitted, "", decision.Committed); err != nil {
		return nil, err
	}
	return map[string]any{"tokens": []string{one, two}}, s.record(ctx, second, v1alpha1.EffectCommitted, 2)
}

// token is that of an attempt, as whoever executes is given it. The Action, the record of the effect and the receipt say the same, and
// it is the one that anybody derives from key and attempt of the receipt.
func (s *stage) token(ctx context.Context, o *v1alpha1.Action, x client.Execution, attempt int64) (string, error) {
	document, err := s.receipt(ctx, o, "action "+o.Name+" ends")
	if err != nil {
		return "", err
	}
	record := &v1alpha1.Effect{}
	if o.Status.Effect == nil {
		return "", s.fail("action "+o.Name+" names its effect", "it names none")
	}
	if err := s.viewer.kube().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: o.Status.Effect.Name}, record); err != nil {
		return "", fmt.Errorf("read effect %s: %w", o.Status.Effect.Name, err)
	}
	before := s.control
	s.control = true
	defer func() { s.control = before }()
	read := map[string]string{"the Action": o.Status.Execution.Token, "the receipt": document.Token}
	if record.Status != nil {
		read["the record of the effect"] = record.Status.Token
	}
	for _, where := range []string{"the Action", "the receipt", "the record of the effect"} {
		if read[where] != x.Token || x.Token == "" {
			return "", s.fail(fmt.Sprintf("%s has the token of whoever executes %s, %s", where, o.Name, x.Token), "it has %q", read[where])
		}
	}
	s.control = before
	derived, err := effect.Token(document.EffectKey, big.NewInt(attempt))
	if err != nil {
		return "", fmt.Errorf("the token of %s: %w", o.Name, err)
	}
	if document.Attempt != attempt || derived != x.Token {
		return "", s.fail(fmt.Sprintf("%s is attempt %d, with the token derived from that and its key, %s", o.Name, attempt, derived),
			"it is attempt %d, with %s", document.Attempt, x.Token)
	}
	return x.Token, nil
}

// ceiling: G15. When an effect was attempted as often as its policy says, and never executed, nobody attempts it once more.
func ceiling(ctx context.Context, s *stage) (any, error) {
	v, most := s.plan.Vectors[0], s.plan.Ceiling
	r, err := s.remoteFor("attempts")
	if err != nil {
		return nil, err
	}
	// Each call of the remote is an execution that was admitted: that it did not execute is what each reports.
	execute := func(context.Context, client.Execution) (any, error) {
		if err := r.call(); err != nil {
			return nil, err
		}
		return nil, client.NotExecuted(errors.New("verify: it is not executed, on purpose"))
	}
	calls := make([]*client.Call, most+1)
	propose := func(i int) (err error) {
		if calls[i] != nil {
			return nil
		}
		calls[i], err = s.propose(ctx, fmt.Sprintf("attempt-%d", i+1), v)
		if err != nil {
			return err
		}
		return s.settle(ctx, calls[i].Action().Name, v)
	}
	s.control = true
	var last *v1alpha1.Action
	for i := range most {
		// Where people are asked all of them are approved beforehand: it is the reservation that has to refuse the last.
		for j := i; j <= most && (j == i || v.Approvals > 0); j++ {
			if err := propose(j); err != nil {
				return nil, err
			}
		}
		if last, err = s.execute(ctx, calls[i], execute); err != nil {
			return nil, err
		}
		if err := s.ends(ctx, last, v1alpha1.ActionFailed, "", decision.Failed); err != nil {
			return nil, err
		}
		if err := s.record(ctx, last, v1alpha1.EffectFailed, int64(i+1)); err != nil {
			return nil, err
		}
	}
	if err := s.calls(r, most, "the effect"); err != nil {
		return nil, err
	}
	s.control = false
	if err := propose(most); err != nil {
		return nil, err
	}
	beyond, err := s.execute(ctx, calls[most], execute)
	if err != nil {
		return nil, err
	}
	if err := s.calls(r, most, "the effect"); err != nil {
		return nil, err
	}
	if err := s.ends(ctx, beyond, v1alpha1.ActionBlocked, decision.AttemptCeiling, decision.Blocked); err != nil {
		return nil, err
	}
	return map[string]any{"attempts": most}, s.record(ctx, last, v1alpha1.EffectFailed, int64(most))
}
