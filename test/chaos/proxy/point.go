package proxy

import (
	"encoding/json"
	"strings"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// Points of the protocol: KIND.STEP. The steps of Actions and Effects, and "lapse", are named as controllers.Options.Crash
// names them; its "receipt" and "event" are PointAppend and PointAppendEvent.
const (
	PointPropose         = "Action.propose"
	PointPin             = "Action.pin"
	PointClaimable       = "Action.claimable"
	PointWait            = "Action.wait" // news for who waits: votes, another policy, the end of a hold
	PointHold            = "Action.hold"
	PointAdmit           = "Action.admit"
	PointEnd             = "Action.end"    // the terminal state of an Action that was not admitted
	PointFinish          = "Action.finish" // receiptRef, and for one that was admitted its terminal state
	PointResolved        = "Action.resolved"
	PointReserve         = "Effect.reserve"
	PointRenew           = "Effect.renew"
	PointBegin           = "Effect.begin"
	PointRelease         = "Effect.release"
	PointSettle          = "Effect.settle"
	PointLost            = "Effect.lost"
	PointNoteLate        = "Effect.late"
	PointResolve         = "Effect.resolve"
	PointApprove         = "Approval.create"
	PointClaim           = "Claim.create"
	PointReport          = "Outcome.report"
	PointReportLate      = "Outcome.late" // what an executor leaves whose lease was declared over
	PointLapse           = "Outcome.lapse"
	PointAppend          = "Receipt.append"
	PointAppendEvent     = "Receipt.event"
	PointCreateLedger    = "Ledger.create"
	PointOpenLedger      = "Ledger.open"
	PointCheckpoint      = "Ledger.checkpoint" // any write of its status once the chain has begun
	PointJudgeApproval   = "Approval.judge"
	PointJudgeClaim      = "Claim.judge"
	PointJudgeOutcome    = "Outcome.judge"
	PointJudgeResolution = "Resolution.judge"
)

var kinds = map[string]string{
	"actions":           "Action",
	"actionpolicies":    "ActionPolicy",
	"approvals":         "Approval",
	"claims":            "Claim",
	"effects":           "Effect",
	"ledgeracceptances": "LedgerAcceptance",
	"ledgers":           "Ledger",
	"outcomes":          "Outcome",
	"receipts":          "Receipt",
	"resolutions":       "Resolution",
	"settings":          "Settings",
}

// PointOf names what a request does, by its path and its body alone. Where two writes differ only in what was stored before,
// the timeline in the body tells them apart.
//
// What has no constant is named after its kind and verb ("Action.list", "Action.delete", "ActionPolicy.status"), and what is
// none of this product's kinds after its resource ("leases.update"). A dry run of the operator, which tests whether admission
// refuses it, is KIND.probe; its two canaries are Action.canary and Effect.canary.
func PointOf(r Request) string {
	if r.Resource == "" {
		return "nonresource." + r.Verb
	}
	kind, ours := kinds[r.Resource]
	if r.Group != v1alpha1.GroupVersion.Group || !ours {
		return strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/") + "." + r.Verb
	}
	return kind + "." + step(kind, r)
}

func step(kind string, r Request) string {
	switch {
	case r.DryRun:
		return "probe"
	case r.Verb == "update" && r.Subresource == "status":
		return statusStep(kind, r.Body)
	case r.Verb == "update" && kind == "Effect":
		return effectUpdate(r.Body)
	case r.Verb == "create":
		return createStep(kind, r.Body)
	}
	return r.Verb
}

func createStep(kind string, body []byte) string {
	switch kind {
	case "Action":
		return ifReadable(body, func(o *v1alpha1.Action) string { return unlessCanary(o.Labels, "propose") })
	case "Effect":
		return ifReadable(body, effectCreate)
	case "Outcome":
		return ifReadable(body, outcomeCreate)
	case "Receipt":
		return ifReadable(body, receiptCreate)
	}
	return "create"
}

func statusStep(kind string, body []byte) string {
	switch kind {
	case "Action":
		return ifReadable(body, actionStatus)
	case "Ledger":
		return ifReadable(body, ledgerStatus)
	case "Approval", "Claim", "Outcome", "Resolution", "LedgerAcceptance":
		return "judge"
	}
	return "status"
}

// unreadable is the step of a body that is not what its path says.
const unreadable = "unreadable"

func ifReadable[T any](body []byte, step func(*T) string) string {
	o := new(T)
	if err := json.Unmarshal(body, o); err != nil {
		return unreadable
	}
	return step(o)
}

func unlessCanary(labels map[string]string, step string) string {
	if labels[v1alpha1.CanaryLabel] != "" {
		return "canary"
	}
	return step
}

func actionStatus(o *v1alpha1.Action) string {
	s := o.Status
	switch {
	case s.ReceiptRef != nil && resolved(s):
		return "resolved"
	case s.ReceiptRef != nil:
		return "finish"
	case s.State.Terminal():
		return "end"
	case s.Execution != nil:
		return "admit"
	case s.Reason == string(decision.WaitingForHolder):
		return "wait"
	case s.Reason != "":
		return "hold"
	case s.State == v1alpha1.ActionAwaitingApproval && lastTold(s) == timeline.ApprovalRequested:
		return "pin"
	case s.State == v1alpha1.ActionClaimable && lastTold(s) == timeline.ActionClaimable:
		return "claimable"
	}
	return "wait"
}

func resolved(s v1alpha1.ActionStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ResolvedCondition {
			return true
		}
	}
	return false
}

// lastTold is the newest event of the timeline but for answers that do not count, of which any write may tell. Every write
// that makes a state anew tells of it; what only changes a state tells of something else.
func lastTold(s v1alpha1.ActionStatus) timeline.Type {
	for i := len(s.Timeline) - 1; i >= 0; i-- {
		if told := timeline.Type(s.Timeline[i].Type); told != timeline.ApprovalInvalidated {
			return told
		}
	}
	return ""
}

func effectCreate(o *v1alpha1.Effect) string {
	if o.Status != nil && o.Status.State == v1alpha1.EffectAmbiguous {
		return "lost"
	}
	return unlessCanary(o.Labels, "reserve")
}

func effectUpdate(body []byte) string { return ifReadable(body, effectStatus) }

func effectStatus(o *v1alpha1.Effect) string {
	s := o.Status
	switch {
	case s == nil:
		return "update"
	case s.State == v1alpha1.EffectExecuting && s.Nonce != "":
		return "begin"
	case s.State == v1alpha1.EffectExecuting, s.State == v1alpha1.EffectReserved:
		return "renew"
	case len(s.History) == 0:
		return "update"
	}
	switch s.History[len(s.History)-1].Result {
	case effect.NeverBegan:
		return "release"
	case effect.ResolvedCommitted, effect.ResolvedNotExecuted:
		return "resolve"
	case effect.BecameAmbiguous:
		return becameAmbiguous(s)
	}
	return "settle"
}

func becameAmbiguous(s *v1alpha1.EffectStatus) string {
	switch {
	case s.LateOutcomeRef != nil:
		return "late"
	case s.Cause == v1alpha1.CauseStatusMissing:
		return "lost"
	}
	return "settle"
}

func outcomeCreate(o *v1alpha1.Outcome) string {
	switch {
	case o.Spec.Reason == v1alpha1.OutcomeReasonLeaseLapsed:
		return "lapse"
	case strings.HasPrefix(o.Name, "late."):
		return "late"
	}
	return "report"
}

func receiptCreate(o *v1alpha1.Receipt) string {
	if o.Spec.Kind == receipt.KindEvent {
		return "event"
	}
	return "append"
}

func ledgerStatus(o *v1alpha1.Ledger) string {
	if o.Status == nil || o.Status.Seq == 0 {
		return "open"
	}
	return "checkpoint"
}
