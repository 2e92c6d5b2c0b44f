package records

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
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
