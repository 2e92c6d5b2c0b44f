package flow

import (
	"fmt"

	"ctrlrun.dev/operator/kernel/receipt"
)

// LedgerView is what is known of a namespace's chain when it is opened, or looked at again.
type LedgerView struct {
	Namespace    string
	NamespaceUID string

	// Recorded is the head the Ledger remembers, for RecordedUID; nil: there is no Ledger.
	Recorded    *receipt.Link
	RecordedUID string
	// Held is what the Ledger says of an earlier hold that nobody has accepted yet, "" if it holds nothing.
	Held string
	// Remembered is the head this process remembers; nil: it has not seen this chain yet.
	Remembered *receipt.Link
	// HighestRef is the receiptRef with the highest seq of the Actions that finished in the present epoch.
	HighestRef receipt.Link

	// At gives the receipt hash stored at a seq, "" if there is none. Seq 0 is asked for never.
	At func(seq int64) (string, error)
}

// HowToAccept is what to do about a chain that does not fit.
func HowToAccept(namespace string) string {
	return fmt.Sprintf(" Nothing is decided in this namespace until a person accepts the chain as it is: kubectl ctrlrun ledger accept %s --head SEQ:HASH --reason ...", namespace)
}

// CheckLedger says why the namespace must hold, "" if its chain fits everything that is remembered of it. An error means
// that it could not be found out.
func CheckLedger(v LedgerView) (hold string, err error) {
	accept := HowToAccept(v.Namespace)
	if v.Recorded == nil && v.Remembered == nil {
		first, err := v.At(1)
		if err != nil {
			return "", err
		}
		if first != "" || v.HighestRef.Seq > 0 {
			return "The Ledger of this namespace is missing, but it has receipts or Actions that refer to some." + accept, nil
		}
		return "", nil
	}
	if v.Recorded != nil && v.RecordedUID != v.NamespaceUID {
		return fmt.Sprintf("The Ledger belongs to a namespace %s with uid %s; this one has uid %s: it was deleted and created again, or restored.", v.Namespace, v.RecordedUID, v.NamespaceUID) + accept, nil
	}
	if v.Held != "" {
		return v.Held, nil
	}
	if v.Recorded == nil {
		return "The Ledger of this namespace has disappeared." + accept, nil
	}
	for _, head := range []*receipt.Link{v.Recorded, v.Remembered} {
		if head == nil || head.Seq == 0 {
			continue
		}
		hash, err := v.At(head.Seq)
		switch {
		case err != nil:
			return "", err
		case hash == "":
			return fmt.Sprintf("Receipt %d is missing: the chain was longer than it is now. The cluster's state was restored to an earlier point, or receipts were deleted.", head.Seq) + accept, nil
		case hash != head.Hash:
			return fmt.Sprintf("Receipt %d is another one than it was: %s, where %s is remembered.", head.Seq, hash, head.Hash) + accept, nil
		}
	}
	if v.HighestRef.Seq > 0 {
		hash, err := v.At(v.HighestRef.Seq)
		if err != nil {
			return "", err
		}
		if hash == "" {
			return fmt.Sprintf("An Action refers to receipt %d, which is missing.", v.HighestRef.Seq) + accept, nil
		}
		if hash != v.HighestRef.Hash {
			return fmt.Sprintf("An Action refers to receipt %s, where %s is another one.", v.HighestRef, hash) + accept, nil
		}
	}
	return "", nil
}

// Acceptance is a person's statement that a head is the head from now on.
type Acceptance struct {
	Name, UID    string
	Namespace    string
	NamespaceUID string
	Head         receipt.Link
	Reason       string
	AcceptedBy   string
}

// JudgeAcceptance says why an acceptance does not count, in the words of the condition Accepted; "" if it does. held says
// whether the namespace holds, at gives stored receipts as in LedgerView.
func JudgeAcceptance(a Acceptance, namespaceUID string, held bool, at func(seq int64) (receipt.Entry, bool, error)) (reason, message string, err error) {
	switch {
	case !held:
		return "LedgerNotHeld", "The chain of this namespace fits everything that is remembered of it; there is nothing to accept.", nil
	case a.NamespaceUID != namespaceUID:
		return "Mismatch", fmt.Sprintf("It names namespace uid %s; the namespace has %s.", a.NamespaceUID, namespaceUID), nil
	case (a.Head.Seq == 0) != (a.Head.Hash == receipt.Genesis):
		return "Mismatch", "Seq 0 goes with the hash of 64 zeros, and only with it.", nil
	}
	if a.Head.Seq > 0 {
		entry, ok, err := at(a.Head.Seq)
		if err != nil {
			return "", "", err
		}
		if !ok || entry.Hash != a.Head.Hash {
			return "Mismatch", fmt.Sprintf("There is no receipt %s in the chain.", a.Head), nil
		}
	}
	next, ok, err := at(a.Head.Seq + 1)
	if err != nil {
		return "", "", err
	}
	if ok {
		// Our own receipt of this very acceptance may be there already: we died after writing it.
		if id, err := receipt.IdentityOf(next); err != nil || id != a.Identity() {
			return "Mismatch", fmt.Sprintf("The chain goes on after %s: accept its last receipt, or find out why it does.", a.Head), nil
		}
	}
	return "", "", nil
}

// Identity is that of its receipt.
func (a Acceptance) Identity() receipt.Identity {
	return receipt.Identity{Kind: receipt.KindLedgerAccepted, SubjectUID: a.UID}
}

// Document is the receipt of the acceptance: the first of the new epoch.
func (a Acceptance) Document(w World, s Snapshot) receipt.Document {
	w.Epoch++
	s.World = w
	d := base(s, receipt.KindLedgerAccepted, a.UID, 0)
	d.Acceptor, d.AcceptanceName, d.AcceptanceUID, d.Accepted, d.Statement = a.AcceptedBy, a.Name, a.UID, a.Head, a.Reason
	return d
}
