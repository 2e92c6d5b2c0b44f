package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
)

// nextEffect looks after a record for its own sake: a reservation nobody will use, a lost record, an ambiguous one that a
// person resolves.
func nextEffect(s Snapshot) Step {
	if s.Effect.Presence == Unread {
		return Read{Object: TheEffect, Name: s.EffectName}
	}
	if s.Effect.Presence == Absent || s.Effect.Status == nil {
		key := s.EffectKey
		if s.Effect.Record != nil {
			key = s.Effect.Key
		}
		if key == "" {
			return notFound(s) // nothing ever named this effect
		}
		return lost(s, s.EffectName, key)
	}
	record := *s.Effect.Record
	switch record.Status.State {
	case effect.Reserved, effect.Executing:
		return watchHolder(s, record)
	case effect.Ambiguous:
		return ambiguous(s, record)
	}
	return resolved(s, record)
}

// notFound judges resolutions of an effect that nothing knows of.
func notFound(s Snapshot) Step {
	for _, r := range sortedResolutions(s.Resolutions) {
		if !r.Judged {
			return Judge{Name: r.Name, UID: r.UID, Reason: "EffectNotFound", Message: fmt.Sprintf("There is no Effect %s, so there is nothing to resolve. To see what there is: kubectl ctrlrun effects -n %s", s.EffectName, s.World.Namespace)}
		}
	}
	return Done{}
}

// watchHolder releases a reservation that nobody will use. The action's own pass does everything else.
func watchHolder(s Snapshot, record effect.Record) Step {
	if s.Holder.Presence == Unread {
		return Read{Object: TheHolder, Name: record.Status.Holder.Name}
	}
	if step := releaseOrphan(s, &record); step != nil {
		return step
	}
	return refuseEarly(s, Wait{Why: "holder"})
}

// releaseOrphan frees a reservation whose holder provably never began: it ended without being admitted, it was admitted for
// another effect or attempt, or it is gone, and a record of an admitted action cannot go. All of this only ever becomes
// true, so it may come from a cache, but for gone, which only the apiserver's own answer says.
func releaseOrphan(s Snapshot, record *effect.Record) Step {
	status := record.Status
	if status.State != effect.Reserved && status.State != effect.Executing {
		return nil
	}
	holder := s.Holder.Action
	gone := s.Holder.Presence == Absent
	switch {
	case gone && held(s, decision.AdmissionMissing):
		// Whoever may delete can delete an action that was admitted, now. Once admission is back this proves nothing; see
		// below.
		return Wait{Why: string(decision.AdmissionMissing)}
	case gone && status.State == effect.Executing && (status.Suspension != nil || !status.Transition.After(s.World.AdmissionSince)):
		// It was reserved before admission was away. In that gap anybody with the right to delete could have deleted an
		// action that was admitted, so this proves nothing. (Reserved does: whoever executes begins on the record itself.)
		if !s.Key.Read {
			return Read{Object: TheKey, Name: record.Name}
		}
		next, err := status.Settle(effect.Settlement{State: effect.Ambiguous, Cause: effect.StatusMissing, Now: s.Now})
		if err != nil {
			return nil
		}
		next.Loss = nextLoss(s, record)
		return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhyLost}
	case gone, holder != nil && holder.EndedUnadmitted(), holder != nil && holder.Execution != nil && !admittedFor(holder, record):
		next, err := status.Release(s.Now)
		if err != nil {
			return nil
		}
		return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhyRelease}
	}
	return nil
}

func admittedFor(a *Action, record *effect.Record) bool {
	return a.Execution != nil && a.Effect != nil && a.Effect.Name == record.Name && a.Effect.Attempt == record.Status.Attempt
}

// lost is the procedure for a record that lost its status, or is gone. First whatever might still be admitted for it is
// ended; then the record becomes Ambiguous with the highest attempt anybody knows of, so that no attempt number, and no
// token, is ever used twice.
func lost(s Snapshot, name, key string) Step {
	if !s.Key.Read {
		return Read{Object: TheKey, Name: name}
	}
	var highest int64
	var holder *effect.Holder
	var kind, token string
	for i := range s.Key.Actions {
		a := &s.Key.Actions[i]
		if a.Effect != nil && a.Effect.Name == name && a.Effect.Key == key && a.Execution != nil {
			if a.Effect.Attempt > highest {
				highest, kind, token = a.Effect.Attempt, a.Type, a.Execution.Token
				holder = &effect.Holder{Name: a.Name, UID: a.UID, Agent: a.Agent, User: deref(a.User)}
			}
			continue
		}
		if a.Execution == nil && !a.State.Terminal() && wants(s, a, key) {
			p := &pass{Snapshot: s, a: a}
			return p.end(Blocked, decision.StatusMissing, fmt.Sprintf("The record of effect %q lost its status, as a restore can do, so nobody knows whether it happened. Nothing was executed for this Action. See: kubectl ctrlrun inspect --key %q -n %s", key, key, s.World.Namespace))
		}
	}
	for _, d := range s.Key.Receipts {
		if d.EffectKey == key && d.Attempt > highest {
			highest, kind, token, holder = d.Attempt, d.ActionType, d.Token, nil
			if d.ActionUID != "" {
				holder = &effect.Holder{Name: d.ActionName, UID: d.ActionUID}
				if d.Principal != nil {
					holder.Agent, holder.User = d.Principal.Agent, d.Principal.User
				}
			}
		}
	}
	attempt := max(highest, 1)
	if record := s.Effect.Record; record != nil && mayBeResolved(s.Key.Receipts, record.UID, attempt) {
		// A person may have resolved that attempt before the loss, and an attempt has one receipt of a resolution, which may
		// be on its way to the chain still. So this gets a number of its own, which nobody was or will be admitted for.
		attempt, token = attempt+1, ""
	}
	// What was pinned with the attempt is lost with the record. What the policies want now is pinned in its place, so that it does
	// not get easier from here on. Where they cannot be read nothing is: what they want by then counts.
	required, known := resolutionsOf(s.World, kind)
	if !known {
		required = 0
	}
	status := effect.Lost(attempt, holder, kind, token, highest, *nextLoss(s, s.Effect.Record), required, s.Now)
	return WriteEffect{Name: name, Key: key, Status: status, Create: s.Effect.Presence == Absent, Why: WhyLost}
}

// mayBeResolved reports whether a resolution of that attempt can ever have counted: it quotes a receipt that says ambiguous.
func mayBeResolved(receipts []receipt.Document, effectUID string, attempt int64) bool {
	return slices.ContainsFunc(receipts, func(d receipt.Document) bool {
		return d.EffectUID == effectUID && d.Attempt == attempt && d.Ended() == decision.Ambiguous
	})
}

// nextLoss numbers this loss of the record after those the chain has receipts of. Its seq is that of the last receipt which
// was listed: a receipt of this very number that was on its way then stands behind it, so the fold from there finds it.
func nextLoss(s Snapshot, record *effect.Record) *effect.Loss {
	loss := &effect.Loss{Ordinal: 1}
	for _, d := range s.Key.Receipts {
		loss.Seq = max(loss.Seq, d.Seq)
		if record != nil && d.Kind == receipt.KindStatusMissing && d.SubjectUID == record.UID {
			loss.Ordinal = max(loss.Ordinal, d.Ordinal+1)
		}
	}
	return loss
}

// wants reports whether an action that is not admitted would take that key: as it says, or as the policy says now.
func wants(s Snapshot, a *Action, key string) bool {
	if a.Effect != nil {
		return a.Effect.Key == key
	}
	p := &pass{Snapshot: s, a: a}
	proposal, refusal, _ := p.proposal()
	if refusal != "" {
		return false
	}
	evaluation, err := s.World.Policies.Evaluate(proposal)
	return err == nil && evaluation.EffectKey != nil && *evaluation.EffectKey == key
}

// ambiguous waits for a person, after the record's own loss is on record.
func ambiguous(s Snapshot, record effect.Record) Step {
	if record.Status.Loss != nil && record.Status.Cause == effect.StatusMissing {
		if step := receiptOfLoss(s, record); step != nil {
			return step
		}
	}
	if held(s, decision.AdmissionMissing) {
		// Anybody may have made what there is to read, now.
		return Wait{Why: string(decision.AdmissionMissing)}
	}
	if s.Late != nil && record.Status.Late == nil && lateCounts(s, record) {
		next := *record.Status
		next.Late = &effect.Late{Name: s.Late.Name, Result: string(s.Late.Result)}
		return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhyLate}
	}
	return resolve(s, record)
}

// lateCounts reports whether a report that came too late is one of the holder's own, or of the executor that began for it.
func lateCounts(s Snapshot, record effect.Record) bool {
	holder := record.Status.Holder
	if holder == nil || s.Late.ActionUID != holder.UID || !s.Late.Created.After(s.World.AdmissionSince) {
		return false
	}
	if nonce := record.Status.Nonce; nonce != "" {
		return s.Late.ClaimID == nonce && s.Late.Reporter == s.World.Operator
	}
	return s.Late.Reporter == holder.Agent
}

// judge says why a resolution does not count, before its quoted receipt is looked at.
func judge(s Snapshot, record effect.Record, r Resolution) (reason, message string) {
	status := record.Status
	switch {
	case r.EffectUID != record.UID, r.Attempt != status.Attempt, r.ActionType != status.ActionType && status.ActionType != "":
		return "Mismatch", fmt.Sprintf("It names effect uid %s, attempt %d, type %q; the record is uid %s, attempt %d, type %q. Read the effect again: kubectl ctrlrun inspect --key %q", r.EffectUID, r.Attempt, r.ActionType, record.UID, status.Attempt, status.ActionType, record.Key)
	case !r.Created.After(s.World.AdmissionSince):
		return "MadeWithoutAdmission", notVouched("It", s.World.AdmissionSince) + " Make it again."
	case r.Resolver == "":
		return "SelfResolution", "Nobody knows who said it. Somebody else has to."
	case r.Observer == "" && status.Holder != nil && (s.World.People.Same(r.Resolver, status.Holder.Agent) || (status.Holder.User != "" && s.World.People.Same(r.Resolver, status.Holder.User))):
		return "SelfResolution", fmt.Sprintf("%s asked for this action and cannot say what became of it. Somebody else has to.", r.Resolver)
	case r.State == effect.Failed && r.Evidence == "":
		return "EvidenceMissing", "NotExecuted frees the key for another attempt. Say in spec.evidence how you know."
	}
	return "", ""
}

// judgeQuoted says why the receipt it quotes is not the one to be answered.
func judgeQuoted(s Snapshot, record effect.Record, r Resolution, entry *receipt.Entry) (reason, message string) {
	again := fmt.Sprintf(" Read the effect and quote the receipt that is shown: kubectl ctrlrun inspect --key %q -n %s", record.Key, s.World.Namespace)
	if entry == nil || entry.Hash != r.QuotedHash {
		return "Mismatch", fmt.Sprintf("There is no receipt %s with hash %s.", r.QuotedName, r.QuotedHash) + again
	}
	d, err := receipt.Parse(*entry)
	if err != nil {
		return "Mismatch", fmt.Sprintf("The receipt %s cannot be read: %v.", r.QuotedName, err) + again
	}
	aboutIt := d.EffectKey == record.Key && d.Attempt == record.Status.Attempt && d.Ended() == decision.Ambiguous
	switch {
	case !aboutIt, d.Kind == receipt.KindStatusMissing && d.SubjectUID != record.UID, d.Kind != receipt.KindStatusMissing && d.Kind != receipt.KindAction:
		return "Mismatch", fmt.Sprintf("The receipt %s does not say that attempt %d of effect %q is ambiguous.", r.QuotedName, record.Status.Attempt, record.Key) + again
	case record.Status.Loss != nil && d.Seq <= record.Status.Loss.Seq:
		return "Mismatch", fmt.Sprintf("The receipt %s is older than the loss of this record.", r.QuotedName) + again
	}
	return "", ""
}

// resolved brings a settled resolution on record: its receipt, its own verdict, a word on the action it was about. A record
// that no resolution settled needs nothing.
func resolved(s Snapshot, record effect.Record) Step {
	resolution := record.Status.Resolution
	if resolution != nil {
		if step := chainHold(s); step != nil {
			return step
		}
		id := receipt.Identity{Kind: receipt.KindResolution, SubjectUID: record.UID, Ordinal: record.Status.Attempt}
		if !s.Chain.answers(id) {
			return Read{Object: TheChain, Identity: id, Floor: s.World.Floor(resolution.QuotedSeq, record.Status.Transition)}
		}
		if s.Chain.Found == nil {
			return Append{Head: s.Chain.Head, Document: resolutionDocument(s, record)}
		}
	}
	for _, r := range sortedResolutions(s.Resolutions) {
		switch {
		case r.Judged:
		case resolution != nil && resolution.Counts(r.UID):
			return Judge{Name: r.Name, UID: r.UID, Accepted: true, Reason: "Accepted", Message: fmt.Sprintf("It settled attempt %d of effect %q%s: %s. Receipt %d.", record.Status.Attempt, record.Key, withOthers(resolution, r), record.Status.State, s.Chain.FoundLink.Seq)}
		case resolution != nil && r.Attempt == record.Status.Attempt && len(resolution.Agreed) > 0 && r.State != record.Status.State:
			return refuse(s, r, "Outvoted", fmt.Sprintf("%s said otherwise, and that settled this attempt: %s.", listed(resolution.By()), record.Status.State))
		case resolution != nil && r.Attempt == record.Status.Attempt:
			return refuse(s, r, "AnotherWasFirst", fmt.Sprintf("%s by %s settled this attempt already: %s.", resolution.Name, listed(resolution.By()), record.Status.State))
		default:
			if step := settledEarlier(s, record, r); step != nil {
				return step
			}
			return refuse(s, r, "NotAmbiguous", fmt.Sprintf("The effect is %s in attempt %d; only an Ambiguous one is resolved.", record.Status.State, record.Status.Attempt))
		}
	}
	if resolution != nil {
		// Last: an Action that has been told may be deleted, with its statements, as soon as it is time.
		if step := tellHolder(s, record); step != nil {
			return step
		}
	}
	return Done{}
}

// refuseEarly judges resolutions of an effect that is not ambiguous yet.
func refuseEarly(s Snapshot, otherwise Step) Step {
	for _, r := range sortedResolutions(s.Resolutions) {
		if !r.Judged {
			if step := settledEarlier(s, *s.Effect.Record, r); step != nil {
				return step
			}
			return refuse(s, r, "NotAmbiguous", fmt.Sprintf("The effect is %s; only an Ambiguous one is resolved.", s.Effect.Status.State))
		}
	}
	return otherwise
}

// settledEarlier answers for a resolution of an attempt that was settled by one: the record may have gone on to the next
// attempt before the verdict was written. That attempt's resolution is on record, for a renewal waits for it.
func settledEarlier(s Snapshot, record effect.Record, r Resolution) Step {
	if r.EffectUID != record.UID {
		return nil
	}
	for _, line := range record.Status.History {
		switch {
		case line.Attempt != r.Attempt || line.Attempt == record.Status.Attempt || line.Resolution == "":
		case line.Resolution == r.Name, slices.Contains(line.Agreed, r.Name):
			return Judge{Name: r.Name, UID: r.UID, Accepted: true, Reason: "Accepted", Message: fmt.Sprintf("It settled attempt %d of effect %q, which has gone on since.", r.Attempt, record.Key)}
		case len(line.Agreed) > 0 && (r.State == effect.Committed) != (line.Result == effect.ResolvedCommitted):
			return refuse(s, r, "Outvoted", fmt.Sprintf("%s say otherwise, and that settled attempt %d.", listed(line.Agreed), r.Attempt))
		default:
			return refuse(s, r, "AnotherWasFirst", fmt.Sprintf("%s settled attempt %d already.", line.Resolution, r.Attempt))
		}
	}
	return nil
}

// refuse is the verdict against a resolution. What speaks against one need not be so for ever: a cache that has the
// resolution may not have the record it answers yet. So it is given only on what the apiserver itself says.
func refuse(s Snapshot, r Resolution, reason, message string) Step {
	if s.Effect.Presence != Fresh {
		return Read{Object: TheEffect, Name: s.Effect.Name}
	}
	return Judge{Name: r.Name, UID: r.UID, Reason: reason, Message: message}
}

// tellHolder marks the action whose attempt was resolved, if it is still there. It is news, not evidence.
func tellHolder(s Snapshot, record effect.Record) Step {
	holder := record.Status.Holder
	if holder == nil {
		return nil
	}
	if s.Holder.Presence == Unread || s.Holder.Presence == Cached {
		return Read{Object: TheHolder, Name: holder.Name}
	}
	a := s.Holder.Action
	if s.Holder.Presence == Absent || a.Resolved != nil || !admittedFor(a, &record) {
		return nil
	}
	if !a.Finished() {
		return Wait{Why: "holder"} // its own receipt is there, for the resolution quotes it; the rest follows
	}
	if a.Ended() != Ambiguous {
		return nil
	}
	status := a.Status
	by := record.Status.Resolution
	status.Resolved = &Resolved{Name: by.Name, Resolver: inShort(by), Observer: by.Observer, State: record.Status.State}
	what := "it was not executed"
	if record.Status.State == effect.Committed {
		what = "it happened"
	}
	status.Message = clip(fmt.Sprintf("Nobody knew whether it happened (%s) until %s looked: %s. Resolution %s.", a.Reason, listed(by.By()), what, by.Name))
	return WriteAction{Name: a.Name, UID: a.UID, Status: status, Why: WhyResolved}
}

func receiptOfLoss(s Snapshot, record effect.Record) Step {
	if step := chainHold(s); step != nil {
		return step
	}
	id := receipt.Identity{Kind: receipt.KindStatusMissing, SubjectUID: record.UID, Ordinal: record.Status.Loss.Ordinal}
	if !s.Chain.answers(id) {
		return Read{Object: TheChain, Identity: id, Floor: s.World.Floor(record.Status.Loss.Seq, record.Status.Transition)}
	}
	if s.Chain.Found != nil {
		return nil
	}
	d := aboutEffect(s, record, id)
	d.Result, d.Reason = decision.Ambiguous, decision.StatusMissing
	d.Message = fmt.Sprintf("The record of effect %q lost its status or was gone. Attempt %d is the highest anybody knows of; nobody knows whether it happened.", record.Key, record.Status.Attempt)
	return Append{Head: s.Chain.Head, Document: d}
}

func resolutionDocument(s Snapshot, record effect.Record) receipt.Document {
	r := record.Status.Resolution
	d := aboutEffect(s, record, receipt.Identity{Kind: receipt.KindResolution, SubjectUID: record.UID, Ordinal: record.Status.Attempt})
	d.Result = decision.Failed
	if record.Status.State == effect.Committed {
		d.Result = decision.Committed
	}
	d.Message = fmt.Sprintf("%s resolved attempt %d of effect %q: %s.", capital(listed(r.By())), record.Status.Attempt, record.Key, d.Result)
	d.Resolver, d.ResolutionName, d.ResolutionUID, d.Observer = r.Resolver, r.Name, r.UID, r.Observer
	d.Evidence, d.Statement = r.Evidence, r.Reason
	d.Resolves = receipt.Link{Seq: r.QuotedSeq, Hash: r.QuotedHash}
	for _, a := range r.Agreed {
		d.Resolvers = append(d.Resolvers, receipt.Resolver{
			Resolver: a.Resolver, Name: a.Name, UID: a.UID, Statement: a.Reason, Evidence: a.Evidence, Resolves: receipt.Link{Seq: a.QuotedSeq, Hash: a.QuotedHash},
		})
	}
	return d
}

// capital begins a sentence with what may be the name of a person, which is written as it is, or a program.
func capital(by string) string {
	if rest, is := strings.CutPrefix(by, "program "); is {
		return "Program " + rest
	}
	return by
}

func aboutEffect(s Snapshot, record effect.Record, id receipt.Identity) receipt.Document {
	d := base(s, id.Kind, id.SubjectUID, id.Ordinal)
	d.EffectName, d.EffectKey, d.EffectUID = record.Name, record.Key, record.UID
	d.Attempt, d.Token, d.ActionType = record.Status.Attempt, record.Status.Token, record.Status.ActionType
	if h := record.Status.Holder; h != nil {
		d.ActionName, d.ActionUID = h.Name, h.UID
		d.Principal = &receipt.Principal{Agent: h.Agent, User: h.User}
	}
	return d
}

func sortedResolutions(list []Resolution) []Resolution {
	return slices.SortedFunc(slices.Values(list), func(a, b Resolution) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.UID, b.UID))
	})
}

// LockName is the one name under which an attempt is ended: by its executor, or by the operator when the lease is over.
func LockName(actionUID, claimID, proposer string) string {
	return actionUID + "." + claimID + "." + action.Speaker(proposer)
}
