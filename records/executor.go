package records

import (
	"errors"
	"fmt"
	"time"

	kjson "sigs.k8s.io/json"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/flow"
)

// executorSchema names the layout of what the hash of an Executor is of.
const executorSchema = "ctrlrun.executor/v1"

// Executor reads an Executor: what is stored, not what the typed fields keep of it. check says what else is wrong with it.
func Executor(o *v1alpha1.Executor, check func(*v1alpha1.Executor) error) flow.Executor {
	x := flow.Executor{Name: o.Name, Types: o.Spec.ActionTypes}
	x.OnlyObserves = o.Spec.HTTP == nil && o.Spec.Job == nil && o.Spec.Kubernetes == nil && o.Spec.Observe != nil
	if look := o.Spec.Observe; look != nil {
		x.Observes = &flow.Observer{Eager: look.Eager != nil && *look.Eager, Timeout: lookTimeout(look)}
	}
	hash, err := executorHash(o)
	if err == nil {
		x.Hash = hash
		err = judgeExecutor(o)
	}
	if err == nil {
		err = check(o)
	}
	if err != nil {
		x.Invalid = err.Error()
	}
	return x
}

// lookTimeout of an observer that has neither way is 0: it is not valid.
func lookTimeout(o *v1alpha1.ExecutorObserve) time.Duration {
	switch {
	case o.HTTP != nil:
		return time.Duration(o.HTTP.TimeoutSeconds) * time.Second
	case o.Job != nil:
		return time.Duration(o.Job.TimeoutSeconds) * time.Second
	}
	return 0
}

// ExecutorHash is the hash of how an Executor executes, "" if it has none.
func ExecutorHash(o *v1alpha1.Executor) string {
	hash, err := executorHash(o)
	if err != nil {
		return ""
	}
	return hash
}

func executorHash(o *v1alpha1.Executor) (string, error) {
	raw, err := specBytes(o.Spec.Raw, o.Spec)
	if err != nil {
		return "", fmt.Errorf("spec: %w", err)
	}
	spec, err := canonical.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("spec: %w", err)
	}
	return canonical.Hash(map[string]any{"schema": executorSchema, "spec": spec})
}

// judgeExecutor finds what admission refuses and a stored object can have all the same: it was stored before.
func judgeExecutor(o *v1alpha1.Executor) error {
	raw, err := specBytes(o.Spec.Raw, o.Spec)
	if err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	type plain v1alpha1.ExecutorSpec
	// encoding/json takes a key in other letters for the same one, and the last of them counts: people would read another spec than is executed.
	unknown, err := kjson.UnmarshalStrict(raw, &plain{})
	if err = errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	ways := 0
	for _, given := range []bool{o.Spec.HTTP != nil, o.Spec.Job != nil, o.Spec.Kubernetes != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 && (ways != 0 || o.Spec.Observe == nil) {
		return fmt.Errorf("spec: it has %d of http, job and kubernetes; give exactly one, or observe alone", ways)
	}
	if look := o.Spec.Observe; look != nil && (look.HTTP == nil) == (look.Job == nil) {
		return fmt.Errorf("spec.observe: give either http or job")
	}
	if len(o.Spec.ActionTypes) == 0 || o.Spec.ServiceAccountName == "" {
		return fmt.Errorf("spec: it needs actionTypes and serviceAccountName")
	}
	for i, t := range o.Spec.ActionTypes {
		if flow.OperatorsOwn(t) {
			return fmt.Errorf("spec.actionTypes[%d]: %s is proposed and carried out by the operator itself", i, t)
		}
	}
	return nil
}
