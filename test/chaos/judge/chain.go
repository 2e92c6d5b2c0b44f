package judge

import (
	"cmp"
	"fmt"
	"slices"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/records"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
)

// chain verifies the receipts as `kubectl ctrlrun receipts verify` does: their bytes and links, the copies beside them, what
// Actions refer to and what Effects say. Nothing moves any more, so nothing has to be read again. It also folds the chain,
// which refuses a second receipt of one identity.
func chain(s State) []Finding {
	receipts := slices.SortedFunc(slices.Values(s.Receipts), func(a, b v1alpha1.Receipt) int { return cmp.Compare(a.Spec.Seq, b.Spec.Seq) })
	var entries []receipt.Entry
	for i := range receipts {
		entries = append(entries, records.Entry(&receipts[i]))
	}
	var found []Finding
	broken := func(b receipt.Break) {
		found = append(found, Finding{Rule: b.Name, Detail: fmt.Sprintf("receipt %d: %s", b.Seq, b.Detail)})
	}
	report := receipt.Verify(entries, receipt.Options{Head: headOf(s.Ledger)})
	for _, b := range report.Breaks {
		broken(b)
	}
	cross := crossCheck(s, receipts)
	for i := range receipts {
		stored := receipt.Stored{Name: receipts[i].Name, Entry: entries[i], Columns: columnsOf(&receipts[i])}
		if err := cross.Add(stored, receipt.DigestOf(entries[i])); err != nil {
			found = append(found, Finding{Rule: "unreadable", Detail: err.Error()})
		}
	}
	holdEffects(s, cross)
	for _, b := range cross.Breaks() {
		broken(b)
	}
	if report.Verdict == receipt.Intact {
		found = append(found, refold(entries)...)
	}
	return found
}

func headOf(ledger *v1alpha1.Ledger) *receipt.Link {
	if ledger == nil || ledger.Status == nil || ledger.Status.Seq == 0 {
		return nil
	}
	return &receipt.Link{Seq: ledger.Status.Seq, Hash: ledger.Status.Hash}
}

func columnsOf(o *v1alpha1.Receipt) receipt.Columns {
	return receipt.Columns{
		Kind: o.Spec.Kind, Result: o.Spec.Result, Reason: o.Spec.Reason, ActionType: o.Spec.ActionType, ActionName: o.Spec.ActionName,
		Agent: o.Spec.Agent, EffectName: o.Spec.EffectName, Attempt: o.Spec.Attempt,
	}
}

// crossCheck knows what the Actions refer to.
func crossCheck(s State, receipts []v1alpha1.Receipt) *receipt.CrossCheck {
	cross := receipt.NewCrossCheck(receipt.Place{Namespace: s.Namespace, NamespaceUID: s.NamespaceUID, ClusterID: s.ClusterID})
	for i := range s.Actions {
		a := &s.Actions[i]
		ref := a.Status.ReceiptRef
		if ref == nil {
			continue
		}
		r := receipt.Reference{ActionName: a.Name, ActionUID: string(a.UID), Name: ref.Name, Link: receipt.Link{Seq: ref.Seq, Hash: ref.Hash}}
		switch a.Status.State {
		case v1alpha1.ActionCommitted:
			r.Result = decision.Committed
		case v1alpha1.ActionFailed:
			r.Result = decision.Failed
		}
		cross.Refer(r)
	}
	return cross
}

// holdEffects holds the Effects against the receipts, those too that receipts name and that are not there.
func holdEffects(s State, cross *receipt.CrossCheck) {
	there := map[string]bool{}
	for i := range s.Effects {
		e := &s.Effects[i]
		there[e.Name] = true
		if e.Status == nil {
			continue // it counts as Ambiguous, and is a finding of its own
		}
		if doubt := cross.Judge(recordOf(e)); doubt != (receipt.Doubt{}) {
			cross.Contradicted(doubt)
		}
	}
	for _, name := range cross.EffectNames() {
		if there[name] {
			continue
		}
		if doubt := cross.Judge(receipt.Record{Name: name, Absent: true}); doubt != (receipt.Doubt{}) {
			cross.Contradicted(doubt)
		}
	}
}

func recordOf(o *v1alpha1.Effect) receipt.Record {
	status := o.Status
	r := receipt.Record{
		Name: o.Name, UID: string(o.UID), Attempt: status.Attempt, Changed: status.LastTransitionTime.Time,
		Result: map[v1alpha1.EffectState]decision.Result{
			v1alpha1.EffectCommitted: decision.Committed, v1alpha1.EffectFailed: decision.Failed, v1alpha1.EffectAmbiguous: decision.Ambiguous,
		}[status.State],
		Lost: status.State == v1alpha1.EffectAmbiguous && status.Cause == v1alpha1.CauseStatusMissing,
	}
	if status.Holder != nil {
		r.HolderName, r.HolderUID = status.Holder.Name, string(status.Holder.UID)
	}
	if n := len(status.History); n > 0 && status.State == v1alpha1.EffectFailed {
		r.NeverBegan = status.History[n-1].Attempt == status.Attempt && status.History[n-1].Result == effect.NeverBegan
	}
	if status.Resolution != nil {
		r.Resolution = status.Resolution.Name
	}
	return r
}

// refold adds the receipts one by one, as whoever appends does.
func refold(entries []receipt.Entry) []Finding {
	fold := receipt.NewFold(receipt.Start())
	for _, e := range entries {
		if err := fold.Add(e); err != nil {
			return []Finding{{Rule: "the chain does not fold", Detail: err.Error()}}
		}
	}
	return nil
}
