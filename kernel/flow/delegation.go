package flow

import (
	"strconv"
	"time"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// The receipts about one delegation. Its uid and one of these are their identity: there is one verdict and one end of it, however
// many operators write it and however many people revoke it.
const (
	delegationJudged  = 1
	delegationRevoked = 2
)

// DelegationDocument is the receipt of a verdict on a delegation.
func DelegationDocument(s Snapshot, d authority.DelegationSource, j authority.Judgement) receipt.Document {
	doc := base(s, receipt.KindEvent, d.UID, delegationJudged)
	data := map[string]string{
		"delegation": d.Name, "parent": d.Delegation.Parent.String(),
		"delegator": d.Delegation.Delegator.Agent, "user": deref(d.Delegation.Delegator.User),
	}
	if !j.Accepted() {
		doc.Event = string(timeline.DelegationRejected)
		data["reason"], data["dimension"] = string(j.Refusal), string(j.Dimension)
		doc.Data = filled(data)
		return doc
	}
	doc.Event = string(timeline.DelegationCreated)
	data["reason"], data["depth"], data["parent_uid"] = d.Delegation.Reason, strconv.Itoa(j.Depth), j.ParentUID
	if e := d.Delegation.Expiration; e != nil {
		data["expires"] = stamp(*e)
	}
	if d.Delegation.BreakGlass {
		data["break_glass"] = "true"
	}
	doc.Data = filled(data)
	return doc
}

// MadeWithoutAdmission is the refusal of a delegation that nobody vouched for.
const MadeWithoutAdmission authority.Refusal = "made_without_admission"

// JudgeDelegation gives the verdict on a new delegation. One that was made while nobody checked who makes what is refused.
func JudgeDelegation(s Snapshot, d authority.DelegationSource) authority.Judgement {
	if !d.Created.After(s.World.AdmissionSince) {
		return authority.Judgement{Refusal: MadeWithoutAdmission, Message: notVouched("This Delegation", s.World.AdmissionSince) + " It grants nothing. Make it again."}
	}
	return s.World.Authority.Judge(d, s.Now)
}

// DelegationVerdict reads the verdict back from its receipt, which decides: whoever wrote it, receipt and status agree.
func DelegationVerdict(d receipt.Document) (refusal, dimension, parentUID string, depth int64) {
	if d.Event == string(timeline.DelegationRejected) {
		return d.Data["reason"], d.Data["dimension"], "", 0
	}
	depth, _ = strconv.ParseInt(d.Data["depth"], 10, 64)
	return "", "", d.Data["parent_uid"], depth
}

// RevocationDocument is the receipt of the end of a delegation.
func RevocationDocument(s Snapshot, r authority.Revocation, reason string) receipt.Document {
	doc := base(s, receipt.KindEvent, r.DelegationUID, delegationRevoked)
	doc.Event = string(timeline.DelegationRevoked)
	doc.Data = filled(map[string]string{"delegation": r.DelegationName, "revoker": r.Revoker, "revocation": r.Name, "reason": reason})
	return doc
}

// DelegationStands reports whether a delegation with that verdict counts: it was accepted, and made while it was checked who
// makes what. The status of one that is older may be forged.
func DelegationStands(accepted bool, created, admissionSince time.Time) bool {
	return accepted && created.After(admissionSince)
}
