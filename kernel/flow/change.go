package flow

import (
	"fmt"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

const observedChange = "In observe mode nobody is asked, so no change of policies is applied. Set mode: Enforce in the Settings, or let somebody with the verb govern change it."

// Unaskable says why nobody can be asked about a change of policies while the world is as it is, whatever the change: its Action would
// be denied for a lack that somebody else has to mend. It is asked once they have. The reason is "" where people are asked, and where a
// policy denies this change: that is an answer, which the Action puts on record.
func Unaskable(w World, proposal action.Proposal) (decision.Reason, string) {
	if w.Observe {
		return decision.PolicyChangeUnapproved, observedChange
	}
	e, err := w.Policies.Evaluate(proposal)
	if err != nil {
		return decision.ResourceError, fmt.Sprintf("Nobody can be asked: %v.", err)
	}
	switch e.Reason {
	case decision.UnknownAction:
		return e.Reason, "No ActionPolicy of this namespace says who is asked about changes. Let somebody with the verb govern add the action " + policy.ChangeAction + " with decision: approve to one. Until then nobody is asked."
	case decision.PolicyInvalid, decision.PolicyConflict, decision.EffectKeyError, decision.PolicyChangeUnapproved:
		return e.Reason, e.Message
	}
	return "", ""
}
