// Package ledger writes the chains: one per namespace, appended to at its end and nowhere else.
//
// A Chain is this process's contiguous, verified view of one. It reads receipts from the apiserver itself, never from a
// cache, because the absence of a receipt is what an append rests on. The rule is the kernel's: a receipt is created only
// at head+1, and only if its identity is nowhere in what was folded. Two writers therefore meet in the apiserver, at one
// name, and the loser folds the winner's receipt in and looks again.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

const (
	// foldLimit is how many receipts a Chain keeps the identities of. An older floor is folded again from the apiserver.
	foldLimit = 20000
	// headTrust is how long a head that was seen is believed to be still there before an append looks again: a cluster
	// restored to an earlier point must not get a receipt behind a gap.
	headTrust = 2 * time.Second
	// listFrom is from how many receipts on a fold is read by a list instead of one by one.
	listFrom = 100
)

// ErrBroken says that the chain contradicts itself, or what is remembered of it. Nothing may be appended.
var ErrBroken = errors.New("the chain is broken")

// ErrTaken says that another writer appended first.
var ErrTaken = errors.New("that seq is taken")

// Chain is one namespace's chain as far as this process has folded it. It is safe for concurrent use.
type Chain struct {
	name string
	// base is the head a person accepted when the chain was broken. What is before it is looked at, not verified.
	base   receipt.Link
	reader client.Reader
	writer client.Writer

	// appending lets one append of this process at a time reach the apiserver: a second one would only lose there.
	appending sync.Mutex

	mu       sync.Mutex
	fold     *receipt.Fold
	headSeen time.Time
	// ended is when the chain was last seen to end with the head: nothing stood after it, or it was appended just then.
	// behind: something stands after it.
	ended  time.Time
	behind bool
	last   receipt.Entry // the newest entry folded, if any
	rules  flow.RulesOnRecord
}

// NewChain starts at a head that was checked. base is the head the chain's epoch began with, the zero Link if it was never
// broken.
func NewChain(name string, from, base receipt.Link, reader client.Reader, writer client.Writer) *Chain {
	return &Chain{name: name, base: base, reader: reader, writer: writer, fold: receipt.NewFold(from)}
}

// Follow makes the chain keep up what its receipts say of the objects that decide. rules is what they say up to the head.
func (c *Chain) Follow(rules flow.RulesOnRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules = rules
}

// Rules are what the receipts up to the head say of the objects that decide.
func (c *Chain) Rules() (flow.RulesOnRecord, receipt.Link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.rules), c.fold.Head()
}

// Head is the last receipt this process has folded.
func (c *Chain) Head() receipt.Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fold.Head()
}

// Find looks for an identity that is certainly not at or before floor. It folds the chain to its end first, unless it did so
// just now: a receipt that is there all the same is met by the append, which then folds it in. So where many are appended at
// once, each costs its own create and no read.
func (c *Chain) Find(ctx context.Context, id receipt.Identity, floor int64) (head receipt.Link, found *receipt.Document, at receipt.Link, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.headStillThere(ctx); err != nil {
		return receipt.Link{}, nil, receipt.Link{}, err
	}
	if floor := max(floor, c.base.Seq); floor < c.fold.From().Seq {
		if err := c.refold(ctx, floor); err != nil {
			return receipt.Link{}, nil, receipt.Link{}, err
		}
	}
	if c.behind || time.Since(c.ended) >= headTrust {
		if err := c.extend(ctx); err != nil {
			return receipt.Link{}, nil, receipt.Link{}, err
		}
	}
	link, ok := c.fold.Find(id)
	if !ok && floor < c.base.Seq {
		if link, ok, err = c.before(ctx, id, floor); err != nil {
			return receipt.Link{}, nil, receipt.Link{}, err
		}
	}
	if !ok {
		return c.fold.Head(), nil, receipt.Link{}, nil
	}
	entry := c.last
	if entry.Link() != link {
		if entry, ok, err = Get(ctx, c.reader, c.name, link.Seq); err != nil {
			return receipt.Link{}, nil, receipt.Link{}, err
		}
		if !ok || entry.Link() != link {
			return receipt.Link{}, nil, receipt.Link{}, fmt.Errorf("%w: receipt %s is not there any more", ErrBroken, link)
		}
	}
	document, err := receipt.Parse(entry)
	if err != nil {
		return receipt.Link{}, nil, receipt.Link{}, err
	}
	return c.fold.Head(), &document, link, nil
}

// Append creates the receipt after head. ErrTaken: another writer was faster, fold and look again. Any other error leaves
// open whether it was written: fold and look again as well.
func (c *Chain) Append(ctx context.Context, head receipt.Link, document receipt.Document) (receipt.Link, receipt.Document, error) {
	c.appending.Lock()
	defer c.appending.Unlock()
	if c.Head().Seq > head.Seq {
		return receipt.Link{}, document, ErrTaken
	}
	entry, err := document.Entry(head)
	if err != nil {
		document = document.Reduced(err)
		if entry, err = document.Entry(head); err != nil {
			return receipt.Link{}, document, err
		}
	}
	// If we die right here, or the response is lost, the next fold finds the receipt by its identity.
	err = c.writer.Create(ctx, records.Receipt(c.name, entry, document))
	switch {
	case apierrors.IsAlreadyExists(err):
		c.mu.Lock()
		c.behind = true
		c.mu.Unlock()
		return receipt.Link{}, document, ErrTaken
	case err != nil:
		return receipt.Link{}, document, fmt.Errorf("append receipt %d: %w", entry.Seq, err)
	}
	document.Seq, document.PrevHash = entry.Seq, head.Hash
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fold.Head() == head {
		if err := c.add(entry); err != nil {
			return receipt.Link{}, document, err
		}
		c.ended = time.Now()
	}
	return entry.Link(), document, nil
}

// Extend folds the chain to its end.
func (c *Chain) Extend(ctx context.Context) (receipt.Link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.headStillThere(ctx); err != nil {
		return receipt.Link{}, err
	}
	err := c.extend(ctx)
	return c.fold.Head(), err
}

// Stands looks whether the head is still there, unless it was seen just now. A cluster that was restored to an earlier point
// has forgotten what was executed since; that its chain is shorter is how it shows.
func (c *Chain) Stands(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headStillThere(ctx)
}

// Look is Stands, and looks although the head was seen just now.
func (c *Chain) Look(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headSeen = time.Time{}
	return c.headStillThere(ctx)
}

// headStillThere looks at the head itself, unless it was seen just now.
func (c *Chain) headStillThere(ctx context.Context) error {
	head := c.fold.Head()
	if head.Seq == 0 || time.Since(c.headSeen) < headTrust {
		return nil
	}
	entry, ok, err := Get(ctx, c.reader, c.name, head.Seq)
	switch {
	case err != nil:
		return err
	case !ok || entry.Hash != head.Hash:
		return fmt.Errorf("%w: receipt %s is not there any more", ErrBroken, head)
	}
	c.headSeen = time.Now()
	return nil
}

func (c *Chain) extend(ctx context.Context) error {
	for {
		entry, ok, err := Get(ctx, c.reader, c.name, c.fold.Head().Seq+1)
		if err != nil {
			return err
		}
		if !ok {
			c.ended, c.behind = time.Now(), false
			return nil
		}
		if err := c.add(entry); err != nil {
			return err
		}
	}
}

func (c *Chain) add(entry receipt.Entry) error {
	if c.fold.Head().Seq-c.fold.From().Seq >= foldLimit {
		c.fold = receipt.NewFold(c.fold.Head())
	}
	if err := c.fold.Add(entry); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	c.last, c.headSeen = entry, time.Now()
	if id, err := receipt.IdentityOf(entry); err == nil && id.Kind == receipt.KindEvent && c.rules != nil {
		if document, err := receipt.Parse(entry); err == nil { // else it is of a later release, and about something else
			c.rules.Add(document)
		}
	}
	return nil
}

// refold starts again at an earlier point, and must come by the head that was folded before.
func (c *Chain) refold(ctx context.Context, floor int64) error {
	known := c.fold.Head()
	fold := receipt.NewFold(receipt.Start())
	add := func(entry receipt.Entry) error {
		switch {
		case entry.Seq > known.Seq, entry.Seq < floor:
			return nil
		case entry.Seq == floor:
			fold = receipt.NewFold(entry.Link())
			return nil
		}
		if err := fold.Add(entry); err != nil {
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		return nil
	}
	var err error
	if known.Seq-floor > listFrom {
		err = c.list(ctx, add)
	} else {
		err = c.each(ctx, max(floor, 1), known.Seq, add)
	}
	switch {
	case err != nil:
		return err
	case fold.From().Seq != floor:
		return fmt.Errorf("%w: receipt %d is missing", ErrBroken, floor)
	case fold.Head() != known:
		return fmt.Errorf("%w: receipt %d is %s, where %s is remembered", ErrBroken, fold.Head().Seq, fold.Head().Hash, known)
	}
	c.fold = fold
	return nil
}

// before looks for an identity in what a person accepted without its being verifiable.
func (c *Chain) before(ctx context.Context, id receipt.Identity, floor int64) (receipt.Link, bool, error) {
	var found receipt.Link
	err := c.list(ctx, func(entry receipt.Entry) error {
		if entry.Seq <= floor || entry.Seq > c.base.Seq {
			return nil
		}
		if have, err := receipt.IdentityOf(entry); err == nil && have == id {
			found = entry.Link()
		}
		return nil
	})
	return found, found.Seq > 0, err
}

// each reads the receipts from first to last, one by one.
func (c *Chain) each(ctx context.Context, first, last int64, do func(receipt.Entry) error) error {
	for seq := first; seq <= last; seq++ {
		entry, ok, err := Get(ctx, c.reader, c.name, seq)
		if err == nil && !ok {
			err = fmt.Errorf("%w: receipt %d is missing", ErrBroken, seq)
		}
		if err == nil {
			err = do(entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads all receipts, in the order of their names, which is that of their seqs.
func (c *Chain) list(ctx context.Context, do func(receipt.Entry) error) error {
	page := &v1alpha1.ReceiptList{}
	return records.EachPage(ctx, c.reader, page, func() error {
		for i := range page.Items {
			if err := do(records.Entry(&page.Items[i])); err != nil {
				return err
			}
		}
		return nil
	}, client.InNamespace(c.name), client.Limit(200))
}

// Get reads one receipt from the apiserver.
func Get(ctx context.Context, reader client.Reader, chain string, seq int64) (receipt.Entry, bool, error) {
	o := &v1alpha1.Receipt{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: chain, Name: receipt.Name(chain, seq)}, o)
	switch {
	case apierrors.IsNotFound(err):
		return receipt.Entry{}, false, nil
	case err != nil:
		return receipt.Entry{}, false, fmt.Errorf("read receipt %d: %w", seq, err)
	}
	return records.Entry(o), true, nil
}
