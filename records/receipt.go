package records

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
)

// Receipt is the object that stores an entry of the chain. The fields beside the document are copies for columns.
func Receipt(chain string, e receipt.Entry, d receipt.Document) *v1alpha1.Receipt {
	c := d.Columns()
	return &v1alpha1.Receipt{
		ObjectMeta: metav1.ObjectMeta{Namespace: chain, Name: receipt.Name(chain, e.Seq)},
		Spec: v1alpha1.ReceiptSpec{
			Seq: e.Seq, Hash: e.Hash, Document: e.Document, Kind: c.Kind,
			Result: c.Result, Reason: c.Reason, ActionType: c.ActionType, ActionName: c.ActionName, Agent: c.Agent,
			EffectName: c.EffectName, Attempt: c.Attempt,
		},
	}
}

// Entry reads a Receipt.
func Entry(o *v1alpha1.Receipt) receipt.Entry {
	return receipt.Entry{Seq: o.Spec.Seq, Hash: o.Spec.Hash, Document: o.Spec.Document}
}

// Stored is a Receipt as it is held against the rest of what is stored.
func Stored(o *v1alpha1.Receipt) receipt.Stored {
	return receipt.Stored{Name: o.Name, Entry: Entry(o), Columns: receipt.Columns{
		Kind: o.Spec.Kind, Result: o.Spec.Result, Reason: o.Spec.Reason, ActionType: o.Spec.ActionType, ActionName: o.Spec.ActionName,
		Agent: o.Spec.Agent, EffectName: o.Spec.EffectName, Attempt: o.Spec.Attempt,
	}}
}

// Reference is what an Action says of its receipt; false if it names none.
func Reference(o *v1alpha1.Action) (receipt.Reference, bool) {
	ref := o.Status.ReceiptRef
	if ref == nil {
		return receipt.Reference{}, false
	}
	r := receipt.Reference{
		ActionName: o.Name, ActionUID: string(o.UID), Name: ref.Name, Link: receipt.Link{Seq: ref.Seq, Hash: ref.Hash},
		Finished: o.CreationTimestamp.Time,
	}
	if o.Status.FinishTime != nil {
		r.Finished = o.Status.FinishTime.Time
	}
	switch o.Status.State {
	case v1alpha1.ActionCommitted:
		r.Result = decision.Committed
	case v1alpha1.ActionFailed:
		r.Result = decision.Failed
	}
	return r, true
}

// EffectSays is what an Effect says that receipts have to tell too. One without status says nothing, and has to be left out.
func EffectSays(o *v1alpha1.Effect) receipt.Record {
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
