package receipt

import "fmt"

// Reason is the machine reason of this package's errors.
type Reason string

// Reasons of a FoldError.
const (
	// Gap: receipts between the head and this one were not folded.
	Gap Reason = "gap"
	// Fork: the receipt contradicts the fold. It does not link to the head, or another receipt stands at its seq.
	Fork Reason = "fork"
	// SecondReceipt: its identity has a receipt in the fold already.
	SecondReceipt Reason = "second_receipt"
	// Altered: the document does not have the stored hash, or does not say the seq it is stored under.
	Altered Reason = "altered"
	// Unidentified: the document has no readable identity, so nobody could say whether it is a second one.
	Unidentified Reason = "unidentified"
	// BeforeStart: the receipt stands before the start of the fold, which knows nothing about it.
	BeforeStart Reason = "before_start"
)

// Reasons of a ParseError.
const (
	// UnreadableDocument: it is not a JSON object in the strict sense of package canonical.
	UnreadableDocument Reason = "unreadable_document"
	// UnknownSchema: it is written in a schema this version does not know.
	UnknownSchema Reason = "unknown_schema"
	// UnknownKind: its kind is one this version does not know.
	UnknownKind Reason = "unknown_kind"
	// Malformed: a key is unknown, missing or has a value it cannot have.
	Malformed Reason = "malformed"
)

// FoldError is the error of Fold.Add. The fold is unchanged.
type FoldError struct {
	Reason Reason
	Seq    int64
	Head   Link // of the fold that refused
	Detail string
}

func (e *FoldError) Error() string {
	return fmt.Sprintf("receipt %d does not extend the chain with head %s: %s: %s", e.Seq, e.Head, e.Reason, e.Detail)
}

// ParseError is the error of Parse. Such a receipt can still be verified, by its bytes.
type ParseError struct {
	Seq    int64
	Reason Reason
	Detail string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("receipt %d cannot be interpreted: %s: %s", e.Seq, e.Reason, e.Detail)
}

// OrderError is the error of Verifier.Add for a receipt that comes too late.
type OrderError struct {
	Seq   int64
	After int64 // the seq that was added before
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("receipt %d was added after receipt %d; sort receipts by seq", e.Seq, e.After)
}
