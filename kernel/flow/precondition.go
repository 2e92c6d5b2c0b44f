package flow

import (
	"fmt"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
)

// preconditionRetry is how long after the apiserver did not answer what the preconditions name is asked for again.
const preconditionRetry = 15 * time.Second

// fingerprinted notes what the preconditions name as the action begins to wait, or answers until that is known. It is noted once. An
// action that has waited already is compared with that, so that nobody is asked about a world that is not there any more.
func (p *pass) fingerprinted(status *Status) Step {
	if len(p.a.Preconditions) == 0 {
		return nil
	}
	if p.waited() {
		return p.preconditionsStand()
	}
	switch r := p.Preconditions; {
	case !r.Read:
		return Read{Object: ThePreconditions}
	case r.Fingerprint != "":
		status.Fingerprints = &Fingerprints{AtRequest: r.Fingerprint}
		return nil
	case p.World.Observe:
		return nil // said when it would be reserved
	}
	return p.unavailable(Denied)
}

// preconditionsStand answers until what the preconditions name was read in this pass, and unless it is what it was when the action
// began to wait. Nothing is reserved then, and no approval is spent. It narrows a window and closes none: between this read and
// the reservation, and from then on, anything may change unnoticed.
func (p *pass) preconditionsStand() Step {
	if len(p.a.Preconditions) == 0 {
		return nil
	}
	r := p.Preconditions
	if !r.Read {
		return Read{Object: ThePreconditions}
	}
	noted := p.a.Fingerprints
	switch {
	case p.waited() && (noted == nil || noted.AtRequest == "") && !p.World.Observe:
		// It was asked for by an operator that knew no preconditions, or while nothing was enforced, or the status lost them.
		return p.end(Blocked, decision.PreconditionMissing, "It names preconditions, and nobody noted what they were when it began to wait, so they cannot be compared. Nothing was executed. Propose it again.")
	case r.Fingerprint == "" && p.waited():
		return p.unavailable(Blocked)
	case r.Fingerprint == "":
		return p.unavailable(Denied)
	case p.waited() && (noted == nil || noted.AtRequest == ""):
		p.would(decision.PreconditionMissing)
	case noted != nil && noted.AtRequest != "" && noted.AtRequest != r.Fingerprint:
		if p.World.Observe {
			p.would(decision.PreconditionChanged)
			return nil
		}
		return p.end(Blocked, decision.PreconditionChanged, fmt.Sprintf("What its preconditions name (%s) is not what it was when it began to wait. Nothing was executed, and no approval was spent. Look at it as it is now; propose it again if it is still wanted.", p.preconditionNames()))
	}
	return nil
}

// waited reports whether the action has waited, for people or for a claim.
func (p *pass) waited() bool { return p.a.Ask != nil || p.a.ClaimableTime != nil }

// unavailable answers where nobody can say what the preconditions name: what certainly cannot be compared ends the action, and what
// is not answered is asked for again for as long as the action may wait.
func (p *pass) unavailable(state State) Step {
	r := p.Preconditions
	switch until := p.mayWait(); {
	case p.World.Observe:
		p.would(decision.PreconditionUnavailable)
		return nil
	case r.Trouble == "":
		return p.end(state, decision.PreconditionUnavailable, fmt.Sprintf("What its preconditions name cannot be compared: %s. Nothing was executed. Correct that, and propose it again.", r.Refusal))
	case p.holdsReservation():
		// Its effect is nobody else's meanwhile, and its lease goes on.
		return p.end(state, decision.PreconditionUnavailable, fmt.Sprintf("What its preconditions name cannot be compared: %s, and its effect was reserved already. Nothing was executed. Propose it again.", r.Trouble))
	case p.Now.After(until):
		return p.end(state, decision.PreconditionUnavailable, fmt.Sprintf("What its preconditions name could not be compared until %s: %s. Nothing was executed. Propose it again if it is still wanted.", until.UTC().Format(time.RFC3339), r.Trouble))
	}
	status := p.decided(p.a.State)
	status.Reason = decision.PreconditionUnavailable
	status.Message = fmt.Sprintf("What its preconditions name cannot be compared at present: %s. It is tried again.", r.Trouble)
	return p.write(status, WhyHold, Wait{Until: p.Now.Add(preconditionRetry), Why: string(decision.PreconditionUnavailable)})
}

// mayWait is until when the action may wait for what it waits for now.
func (p *pass) mayWait() time.Time {
	switch a := p.a; {
	case a.ClaimExpiration != nil:
		return *a.ClaimExpiration
	case a.Ask != nil:
		return a.Ask.Expiration
	default:
		return a.Created.Add(p.approvalTTL())
	}
}

// rechecked notes in a status what this pass compared.
func (p *pass) rechecked(status *Status) {
	if len(p.a.Preconditions) == 0 || p.Preconditions.Fingerprint == "" {
		return
	}
	var next Fingerprints
	if was := p.a.Fingerprints; was != nil {
		next = *was
	}
	next.AtRecheck = p.Preconditions.Fingerprint
	status.Fingerprints = &next
}

// preconditionNames are the first of them, for a message.
func (p *pass) preconditionNames() string {
	first := p.a.Preconditions[0].String()
	if more := len(p.a.Preconditions) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", first, more)
	}
	return first
}
