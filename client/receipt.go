package client

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
)

// Receipt is what an agent needs to prove what became of its action. Name, Seq and Hash are what the operator wrote into
// Action.status.receiptRef; they are empty while the Action has no receipt, and for an Action that ended before it was admitted the
// receipt is written a moment after the end.
type Receipt struct {
	// Action as it was last seen, or nil if none was made.
	Action *v1alpha1.Action
	// Name of the Receipt: the chain and the seq.
	Name string
	// Seq is its place in the chain, from 1.
	Seq int64
	// Hash of the document: "sha256:" and 64 hexadecimal digits.
	Hash string
	// Document is the canonical JSON that has that hash. Nil if it could not be read: see Unread.
	Document []byte
	// Unread is why there is no Document: most often that the agent has no right to get receipts, which the role ctrlrun-agent does
	// not give. Name and Hash prove the same to whoever may read it.
	Unread error
}

// receiptWindow bounds how long a read of a receipt is repeated. Without it there is still its name and hash.
const receiptWindow = 5 * time.Second

// known is the receipt as far as the Action says it.
func (call *Call) known() Receipt {
	r := Receipt{Action: call.action}
	if ref := call.action.Status.ReceiptRef; ref != nil {
		r.Name, r.Seq, r.Hash = ref.Name, ref.Seq, ref.Hash
	}
	return r
}

// receipt is the receipt with its document, if the agent may read it. Nothing that goes wrong here changes what happened.
func (call *Call) receipt(ctx context.Context) Receipt {
	r := call.known()
	var stored v1alpha1.Receipt
	r.Unread = repeat(ctx, receiptWindow, transient, func(ctx context.Context) error {
		return call.client.kube.Get(ctx, types.NamespacedName{Namespace: call.action.Namespace, Name: r.Name}, &stored)
	})
	if r.Unread != nil {
		return r
	}
	document := []byte(stored.Spec.Document)
	if hash := canonical.Sum(document); hash != r.Hash {
		r.Unread = fmt.Errorf("the receipt %s has the hash %s, and action %s names %s: it was altered", r.Name, hash, call.action.Name, r.Hash)
		return r
	}
	r.Document = document
	return r
}
