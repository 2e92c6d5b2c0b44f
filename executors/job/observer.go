package jobexec

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

// longestMessage is what a kubelet keeps of a termination message, in bytes. One as long may be the rest of a longer one.
const longestMessage = 4096

// Observer asks by a Job what became of an attempt. It may be used for many looks at a time.
type Observer struct{ executor *Executor }

// NewObserver reads a spec of an Executor that acts as a ServiceAccount. Its template is held to what New holds one to.
func NewObserver(spec *v1alpha1.JobObserver, serviceAccountName string) (*Observer, error) {
	if spec.TimeoutSeconds < 10 || spec.TimeoutSeconds > 600 {
		return nil, fmt.Errorf("timeoutSeconds is %d; it is 10 to 600", spec.TimeoutSeconds)
	}
	e, err := New(&v1alpha1.JobExecutor{Template: spec.Template, TimeoutSeconds: spec.TimeoutSeconds}, serviceAccountName)
	if err != nil {
		return nil, err
	}
	return &Observer{executor: e}, nil
}

// Ask runs the Job, and reads what its container says as it exits with 0. config is as Execute takes it. Whatever else happens is unknown;
// the text, which holds nothing of the question and nothing of the answer, says why.
func (o *Observer) Ask(ctx context.Context, look executors.Look, config *rest.Config) (flow.Answer, string) {
	r, err := lookOf(look)
	if err != nil {
		return flow.AnswerUnknown, "nothing was run: the question has no canonical form"
	}
	ctx, cancel := context.WithTimeout(ctx, o.executor.timeout)
	defer cancel()
	return said(o.executor.run(ctx, r, config))
}

// said is the answer of a Job that ended. That nothing was run is no answer.
func said(end ending) (flow.Answer, string) {
	switch {
	case end.State != effect.Committed:
		return flow.AnswerUnknown, end.Error
	case end.message == nil:
		return flow.AnswerUnknown, "the container exited with 0, and what it said is not known"
	case len(*end.message) >= longestMessage:
		return flow.AnswerUnknown, "the answer is too long"
	}
	return executors.Said([]byte(*end.message))
}
