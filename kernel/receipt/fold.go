package receipt

import (
	"fmt"

	"ctrlrun.dev/operator/kernel/canonical"
)

// Fold is the part of a chain that was read contiguously and verified: its head, and which identity has which receipt. It
// is the proof an append rests on, so it takes nothing that would leave a doubt. It is not safe for concurrent use.
type Fold struct {
	from  Link
	head  Link
	found map[Identity]Link
	ids   []Identity // of receipt from.Seq+1, from.Seq+2, ...
}

// NewFold starts a fold behind from, which the caller has verified or trusts. Start folds the whole chain.
func NewFold(from Link) *Fold {
	return &Fold{from: from, head: from, found: map[Identity]Link{}}
}

// Head is the last receipt folded, or From if there is none.
func (f *Fold) Head() Link { return f.head }

// From is where the fold started. Find knows nothing of receipts up to it.
func (f *Fold) From() Link { return f.from }

// Find says which receipt after From has the identity.
func (f *Fold) Find(id Identity) (Link, bool) {
	l, ok := f.found[id]
	return l, ok
}

// Add folds in the receipt after the head. The error is a *FoldError. A receipt that is in the fold already, with the same
// hash and content, changes nothing and is no error: a repeated read proves the same.
func (f *Fold) Add(e Entry) error {
	refuse := func(r Reason, format string, args ...any) error {
		return &FoldError{Reason: r, Seq: e.Seq, Head: f.head, Detail: fmt.Sprintf(format, args...)}
	}
	if sum := canonical.Sum([]byte(e.Document)); sum != e.Hash {
		return refuse(Altered, "the document hashes to %s, not to the stored %q", sum, e.Hash)
	}
	doc, err := open(e.Document)
	if err != nil {
		return refuse(Altered, "%v", err)
	}
	if seq, ok := integer(doc["seq"]); !ok || seq != e.Seq {
		return refuse(Altered, "the document does not say seq %d", e.Seq)
	}
	switch {
	case e.Seq < f.from.Seq, e.Seq < 1:
		return refuse(BeforeStart, "the fold starts after %s", f.from)
	case e.Seq <= f.head.Seq:
		if known := f.at(e.Seq); known != e.Link() {
			return refuse(Fork, "another receipt stands there: %s", known.Hash)
		}
		return nil
	case e.Seq != f.head.Seq+1:
		return refuse(Gap, "the next receipt is %d", f.head.Seq+1)
	}
	if prev, _ := doc["prev_hash"].(string); prev != f.head.Hash {
		return refuse(Fork, "its previous hash is %q", prev)
	}
	id, err := identity(doc)
	if err != nil {
		return refuse(Unidentified, "%v", err)
	}
	if first, ok := f.found[id]; ok {
		return refuse(SecondReceipt, "%s has receipt %d already", id, first.Seq)
	}
	f.head = e.Link()
	f.found[id] = f.head
	f.ids = append(f.ids, id)
	return nil
}

// at is the receipt of a seq from From to Head.
func (f *Fold) at(seq int64) Link {
	if seq == f.from.Seq {
		return f.from
	}
	return f.found[f.ids[seq-f.from.Seq-1]]
}
