package verify

import (
	"context"
	"encoding/json"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/guarantees"
)

// argumentsOf are the arguments of a vector as they are hashed.
func argumentsOf(v guarantees.Vector) json.RawMessage {
	text, err := canonical.Encode(v.Arguments)
	if err != nil {
		return json.RawMessage("null") // the policy evaluated them, so they have a canonical form
	}
	return text
}

// attempts are two actions for one effect, and the remote that both of them call.
type attempts struct {
	stage  *stage
	vector guarantees.Vector
	part   string
	remote *remote
	second *client.Call
	see    func(client.Execution) // each that is admitted; nil: nobody looks
}

func (s *stage) attempts(part string, v guarantees.Vector) (*attempts, error) {
	r, err := s.remoteFor(part)
	return &attempts{stage: s, vector: v, part: part, remote: r}, err
}

// first makes the first attempt. Where people are asked the second is proposed and approved beforehand: afterwards nobody would
// be asked any more, and it is the reservation that is to refuse it.
func (a *attempts) first(ctx context.Context, end End) (*v1alpha1.Action, error) {
	call, err := a.stage.propose(ctx, a.part+"first", a.vector)
	if err != nil {
		return nil, err
	}
	if a.vector.Approvals > 0 {
		if a.second, err = a.stage.propose(ctx, a.part+"second", a.vector); err != nil {
			return nil, err
		}
	}
	for _, c := range []*client.Call{call, a.second} {
		if c == nil {
			continue
		}
		if err := a.stage.settle(ctx, c.Action().Name, a.vector); err != nil {
			return nil, err
		}
	}
	return a.execute(ctx, call, end)
}

// again makes the second attempt.
func (a *attempts) again(ctx context.Context) (*v1alpha1.Action, error) {
	if a.second == nil {
		var err error
		if a.second, err = a.stage.propose(ctx, a.part+"second", a.vector); err != nil {
			return nil, err
		}
	}
	return a.execute(ctx, a.second, Commit)
}

func (a *attempts) execute(ctx context.Context, call *client.Call, end End) (*v1alpha1.Action, error) {
	execute, err := a.stage.command(a.remote, end)
	if err != nil {
		return nil, err
	}
	return a.stage.execute(ctx, call, func(ctx context.Context, x client.Execution) (any, error) {
		if a.see != nil {
			a.see(x)
		}
		return execute(ctx, x)
	})
}

// duplicate: G3. What is committed is not executed again.
func duplicate(ctx context.Context, s *stage) (any, error) {
	a, err := s.attempts("", s.plan.Vectors[0])
	if err != nil {
		return nil, err
	}
	s.control = true
	first, err := a.first(ctx, Commit)
	if err != nil {
		return nil, err
	}
	if err := s.ends(ctx, first, v1alpha1.ActionCommitted, "", decision.Committed); err != nil {
		return nil, err
	}
	if err := s.calls(a.remote, 1, "the first attempt"); err != nil {
		return nil, err
	}
	s.control = false
	second, err := a.again(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.calls(a.remote, 1, "the effect"); err != nil {
		return nil, err
	}
	if err := s.ends(ctx, second, v1alpha1.ActionBlocked, decision.Duplicate, decision.Blocked); err != nil {
		return nil, err
	}
	return nil, s.record(ctx, first, v1alpha1.EffectCommitted, 1)
}

// blindRetry: G5. The remote acted and the answer was lost: nobody tries again until somebody knows.
func blindRetry(ctx context.Context, s *stage) (any, error) {
	a, err := s.attempts("", s.plan.Vectors[0])
	if err != nil {
		return nil, err
	}
	first, err := a.first(ctx, Timeout)
	if err != nil {
		return nil, err
	}
	if err := s.admitted(first); err != nil {
		return nil, err
	}
	if err := s.ends(ctx, first, v1alpha1.ActionAmbiguous, decision.ReportedUnknown, decision.Ambiguous); err != nil {
		return nil, err
	}
	if err := s.record(ctx, first, v1alpha1.EffectAmbiguous, 1); err != nil {
		return nil, err
	}
	second, err := a.again(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.calls(a.remote, 1, "the effect"); err != nil {
		return nil, err
	}
	if err := s.ends(ctx, second, v1alpha1.ActionBlocked, decision.AmbiguousEffect, decision.Blocked); err != nil {
		return nil, err
	}
	if err := s.record(ctx, first, v1alpha1.EffectAmbiguous, 1); err != nil {
		return nil, err
	}
	s.control = true
	return nil, s.knownRetry(ctx)
}

// knownRetry is the control of G5: if it is certain that nothing happened, the retry goes through.
func (s *stage) knownRetry(ctx context.Context) error {
	a, err := s.attempts("control-", s.plan.Vectors[1])
	if err != nil {
		return err
	}
	first, err := a.first(ctx, NotExecuted)
	if err != nil {
		return err
	}
	if err := s.ends(ctx, first, v1alpha1.ActionFailed, "", decision.Failed); err != nil {
		return err
	}
	if err := s.record(ctx, first, v1alpha1.EffectFailed, 1); err != nil {
		return err
	}
	second, err := a.again(ctx)
	if err != nil {
		return err
	}
	if err := s.ends(ctx, second, v1alpha1.ActionCommitted, "", decision.Committed); err != nil {
		return err
	}
	if err := s.record(ctx, second, v1alpha1.EffectCommitted, 2); err != nil {
		return err
	}
	return s.calls(a.remote, 1, "the retry")
}

// row is one way an execution of G10 ends.
type row struct {
	Executor string `json:"executor"`
	Result   string `json:"result"`
	// Effect is the state of the record; empty without one.
	Effect string `json:"effect,omitempty"`
}

// unknownException: G10. Whatever an executor does not state as "not executed" may have happened.
func unknownException(ctx context.Context, s *stage) (any, error) {
	var rows []row
	for i, how := range []struct {
		name   string
		end    End
		state  v1alpha1.ActionState
		reason decision.Reason
		result decision.Result
		effect v1alpha1.EffectState
	}{
		{"timeout", Timeout, v1alpha1.ActionAmbiguous, decision.ReportedUnknown, decision.Ambiguous, v1alpha1.EffectAmbiguous},
		{"error", Crash, v1alpha1.ActionAmbiguous, decision.ReportedUnknown, decision.Ambiguous, v1alpha1.EffectAmbiguous},
		{"signal", Signal, v1alpha1.ActionAmbiguous, decision.ReportedUnknown, decision.Ambiguous, v1alpha1.EffectAmbiguous},
		{"panic", "", v1alpha1.ActionAmbiguous, decision.ReportedUnknown, decision.Ambiguous, v1alpha1.EffectAmbiguous},
		{"not-executed", NotExecuted, v1alpha1.ActionFailed, "", decision.Failed, v1alpha1.EffectFailed},
	} {
		s.control = how.end == NotExecuted
		v := s.plan.Vectors[i]
		r, err := s.remoteFor(how.name)
		if err != nil {
			return nil, err
		}
		call, err := s.propose(ctx, how.name, v)
		if err != nil {
			return nil, err
		}
		if err := s.settle(ctx, call.Action().Name, v); err != nil {
			return nil, err
		}
		var o *v1alpha1.Action
		if how.end == "" {
			o, err = s.panicking(ctx, call, r)
		} else {
			var execute client.Function
			if execute, err = s.command(r, how.end); err == nil {
				o, err = s.execute(ctx, call, execute)
			}
		}
		if err != nil {
			return nil, err
		}
		if err := s.admitted(o); err != nil {
			return nil, err
		}
		if err := s.ends(ctx, o, how.state, how.reason, how.result); err != nil {
			return nil, err
		}
		seen := row{Executor: how.name, Result: string(how.result)}
		if v.EffectKey != nil {
			if err := s.record(ctx, o, how.effect, 1); err != nil {
				return nil, err
			}
			seen.Effect = string(how.effect)
		}
		rows = append(rows, seen)
	}
	return map[string]any{"executors": rows}, nil
}

// panicking executes by a Go function that acts and then panics, as an agent's own code may.
func (s *stage) panicking(ctx context.Context, call *client.Call, r *remote) (o *v1alpha1.Action, err error) {
	const thrown = "verify: the executor panics on purpose"
	defer func() {
		switch p := recover(); p {
		case nil:
		case thrown:
			o, err = s.over(ctx, call.Action().Name)
		default:
			panic(p)
		}
	}()
	return s.execute(ctx, call, func(context.Context, client.Execution) (any, error) {
		if err := r.call(); err != nil {
			return nil, client.NotExecuted(err)
		}
		panic(thrown)
	})
}
