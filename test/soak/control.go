package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/remote"
)

// step is one attempt of the positive control. Its injection is that its executor cannot know what it did.
type step struct {
	payment string
	// behaviour of the remote: one that loses the answer causes the injection, one that refuses does not.
	behaviour remote.Behaviour
	// recorded says when the injection is put on record: before it is caused, after that, or never.
	recorded recording
}

type recording int

const (
	never recording = iota
	before
	after
)

// controlSteps are made one after the other. Two of them must be reported:
//
//   - the second attempt of an effect, of which only the first was put on record, though it then ended well: a classifier that
//     asks for the effect's key alone would call it explained
//   - one that was put on record after it was caused
//
// The last one was on record before, so that a classifier that reports everything shows too.
func controlSteps() []step {
	return []step{
		{payment: "attempted-twice", behaviour: remote.Refuse, recorded: before},
		{payment: "attempted-twice", behaviour: remote.ExecuteAndLose, recorded: never},
		{payment: "recorded-late", behaviour: remote.ExecuteAndLose, recorded: after},
		{payment: "recorded", behaviour: remote.ExecuteAndLose, recorded: before},
	}
}

// control is what the positive control showed.
type control struct {
	// Fired: the classifier reported what nobody recorded, and nothing else.
	Fired bool `json:"fired"`
	// Expected are the attempts that had to be reported, Reported those that were. Explained is how many were not.
	Expected  []string `json:"expected"`
	Reported  []string `json:"reported"`
	Explained int      `json:"explained"`
	// Others are findings of another kind. There must be none.
	Others []judge.Finding `json:"others"`
}

// positive runs the control in a scene of its own.
func positive(ctx context.Context, s *scene) (control, error) {
	for _, next := range controlSteps() {
		if err := s.agents[0].take(ctx, next); err != nil {
			return control{}, fmt.Errorf("positive control: %s: %w", next.payment, err)
		}
	}
	if err := s.await(ctx, s.unfinished); err != nil {
		return control{}, err
	}
	_, verdict, err := s.judge(ctx)
	return controlOf(verdict), err
}

// take makes one attempt.
func (a *agent) take(ctx context.Context, next step) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	call, err := a.sdk.Propose(ctx, request(card{kind: clean, path: allowed}, next.payment))
	if err != nil {
		return err
	}
	var caused judge.Injection
	var unrecorded error
	_, err = call.Execute(ctx, func(ctx context.Context, x client.Execution) (any, error) {
		caused, _ = injection(x, card{kind: unknownException})
		if next.recorded == before {
			if unrecorded = a.scene.journal.Record(caused); unrecorded != nil {
				return nil, client.NotExecuted(unrecorded)
			}
		}
		return nil, a.call(ctx, x, next.behaviour)
	})
	if !expected(err) || unrecorded != nil {
		return errors.Join(err, unrecorded)
	}
	want := v1alpha1.ActionAmbiguous
	if next.behaviour == remote.Refuse {
		want = v1alpha1.ActionFailed
	}
	if got := call.Action().Status.State; got != want {
		return fmt.Errorf("the action is %s, not %s: there is nothing to classify", got, want)
	}
	if next.recorded == after {
		return a.scene.journal.Record(caused)
	}
	return nil
}

// controlOf compares the verdict with what it had to be.
func controlOf(v judge.Verdict) control {
	c := control{
		Expected: []string{attemptName("refund:attempted-twice", 2), attemptName("refund:recorded-late", 1)},
		Others:   slices.Concat(v.Duplicates, v.Lost, v.WrongFailed, v.Chain),
	}
	for _, f := range v.Unexplained {
		c.Reported = append(c.Reported, attemptName(f.EffectKey, f.Attempt))
	}
	for _, n := range v.Explained {
		c.Explained += n
	}
	slices.Sort(c.Reported)
	c.Fired = slices.Equal(c.Expected, c.Reported) && c.Explained == 1 && len(c.Others) == 0
	return c
}

func attemptName(key string, attempt int64) string { return fmt.Sprintf("%s attempt %d", key, attempt) }
