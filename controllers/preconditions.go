package controllers

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/precondition"
)

// readPreconditions puts into the snapshot what the preconditions of the action name, as the apiserver holds it now. What is found
// there leaves this function as a hash only, and what went wrong as words of the operator's own: readers of the action need not have
// the right to read the objects, and an extension of the apiserver answers what it likes.
func (r *pass) readPreconditions(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, partsTimeout)
	defer cancel()
	read := flow.PreconditionsRead{Read: true}
	done, ok := r.parts.turn(bounded)
	if !ok {
		read.Trouble = "too many actions with preconditions are looked at"
		r.s.Preconditions = read
		return ctx.Err()
	}
	defer done()
	found := make([]precondition.Part, 0, len(r.s.Action.Preconditions))
	for _, ref := range r.s.Action.Preconditions {
		part, err := r.parts.read(bounded, r.namespace, r.action.Spec.Principal, ref)
		if err == nil {
			found = append(found, part)
			continue
		}
		if refused := refusedPart(""); errors.As(err, &refused) {
			read.Refusal = string(refused)
		} else {
			ctrl.LoggerFrom(ctx).Info("A precondition cannot be read at present", "precondition", ref.String(), "error", err.Error())
			read.Trouble = fmt.Sprintf("the apiserver does not answer for %s of %s", ref.Kind, ref.APIVersion)
		}
		r.s.Preconditions = read
		return ctx.Err()
	}
	var err error
	if read.Fingerprint, err = precondition.Fingerprint(found); err != nil {
		read.Refusal = "it has no canonical form"
	}
	r.s.Preconditions = read
	return nil
}
