package receipt

import (
	"cmp"
	"fmt"
	"slices"
)

// Names of breaks, a closed list.
const (
	ContentAltered = "content_altered"
	LinkBroken     = "link_broken"
	Missing        = "missing"
	HeadMismatch   = "head_mismatch"
	Unchained      = "unchained"
	HashMissing    = "hash_missing"
)

// maxNamedMissing bounds how many missing receipts are reported one by one; after that each gap is one break. A seq is a
// number anybody can write into a file, and a gap up to 2^63 must not become as many breaks.
const maxNamedMissing = 10_000

// maxNamedUnread bounds how many unreadable parts a Report names. All of them are counted.
const maxNamedUnread = 1000

// Break is one thing that is wrong with a chain, and where. Seq is 0 for Unchained, which has no place.
type Break struct {
	Name    string
	Seq     int64
	Through int64  // of one Missing that stands for a whole gap: the last receipt of it; else 0
	Detail  string // for people
}

// Verdict is the judgement over a whole verification.
type Verdict string

const (
	// Intact: no break, and if a head was given, the chain contains it.
	Intact Verdict = "intact"
	// Broken: there is at least one break.
	Broken Verdict = "broken"
	// Unreadable: a part of the input could not be read, so nobody can say what it held. Breaks of the rest are reported.
	Unreadable Verdict = "unreadable"
	// Short: what is there is intact, but the chain ends before the head that was given: receipts were cut off at the end.
	// The one break is the HeadMismatch that says so.
	Short Verdict = "short"
)

// ExitCode is the exit status of a command that verifies: 0 intact, 1 broken, 2 unreadable, 3 short.
func (v Verdict) ExitCode() int {
	switch v {
	case Intact:
		return 0
	case Unreadable:
		return 2
	case Short:
		return 3
	case Broken:
	}
	return 1
}

// Options say what a chain is verified against. The zero value is a whole chain and no known head.
type Options struct {
	// From is the receipt after which a partial file begins. Receipts up to it are checked for their own content only,
	// and the one at From itself must be the one named. The zero Link is Start.
	From Link
	// Head is a receipt that once was the last one, as noted somewhere else. The chain has to contain it and may go on after
	// it, as every chain does. Without it, receipts cut off at the end cannot be missed.
	Head *Link
	// Each, if it is set, takes every break as soon as it is found, by seq. Report then has only those that can be said at
	// the end, HeadMismatch and Unchained, and memory does not grow with what is wrong.
	Each func(Break)
}

// Unread is a part of the input that could not be read.
type Unread struct {
	Where  string // as the caller names it, for example a file and a line
	Detail string
}

// Report is what a verification found.
type Report struct {
	Verdict     Verdict
	Breaks      []Break // by seq; HeadMismatch and Unchained last; without those that Options.Each took
	BreakCount  int     // with them
	Unread      []Unread
	UnreadCount int  // also of those that are not named in Unread
	Unchained   int  // receipts without a seq
	Count       int  // seqs after Options.From that a receipt was found for
	Head        Link // last receipt found; Options.From if there is none
}

// Verify judges receipts in any order: of several files, with lines moved or repeated. It does not change entries.
func Verify(entries []Entry, opts Options) Report {
	v := NewVerifier(opts)
	for _, e := range BySeq(entries) {
		// Cannot fail: sorted.
		_ = v.Add(e)
	}
	return v.Report()
}

// BySeq is a sorted copy, in the order a Verifier takes. Receipts of one seq are ordered by content, so that a report does
// not depend on the order of lines.
func BySeq(entries []Entry) []Entry {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Document, b.Document))
	})
	return sorted
}

// Verifier judges a stream of receipts that comes ordered by seq. It keeps the breaks and the hashes of two places, and
// none of the documents. It is not safe for concurrent use.
type Verifier struct {
	from Link
	head *Link

	here     place
	linkable map[string]struct{} // hashes a receipt at here may name as the previous one
	passed   bool                // the receipt that head names was there

	each       func(Break)
	count      int
	named      int // missing receipts reported one by one
	unchained  int
	unread     []Unread
	unreadable int
	breaks     []Break
	reported   int
	said       []string // names of breaks reported at here
}

// place is what was added at one seq: one receipt, unless somebody tampered or several files disagree.
type place struct {
	seq    int64
	rows   map[row]struct{}
	hashes map[string]struct{} // what the next receipt may link to
	first  string              // the hash added first
	intact int                 // rows whose content is not altered
}

type row struct{ stored, computed string }

// hash is what the rest of the chain is held against: the stored hash, so that an altered document breaks only itself; if
// there is none, that of the content, so that the next receipt still vouches for it.
func (r row) hash() string { return cmp.Or(r.stored, r.computed) }

// NewVerifier starts a verification.
func NewVerifier(opts Options) *Verifier {
	from := opts.From
	if from == (Link{}) {
		from = Start()
	}
	return &Verifier{
		from:     from,
		head:     opts.Head,
		passed:   opts.Head != nil && *opts.Head == from,
		each:     opts.Each,
		here:     place{rows: map[row]struct{}{}, hashes: map[string]struct{}{}},
		linkable: map[string]struct{}{from.Hash: {}},
	}
}

// Unreadable records that a part of the input could not be read, and why.
func (v *Verifier) Unreadable(where string, err error) {
	v.unreadable++
	if len(v.unread) < maxNamedUnread {
		v.unread = append(v.unread, Unread{Where: where, Detail: err.Error()})
	}
}

// Add judges one receipt. Seqs must not decrease; else the error is an *OrderError and the receipt is not judged.
// Receipts without a seq may come at any time.
func (v *Verifier) Add(e Entry) error { return v.AddDigest(DigestOf(e)) }

// AddDigest is Add for whoever has to keep receipts until they are in order, and keeps their digests instead.
func (v *Verifier) AddDigest(d Digest) error {
	if d.Seq < 1 {
		v.unchained++
		return nil
	}
	if d.Seq < v.here.seq {
		return &OrderError{Seq: d.Seq, After: v.here.seq}
	}
	if d.Seq > v.here.seq {
		v.advance(d.Seq)
	}
	r := row{stored: d.Stored, computed: d.Computed}
	if _, repeated := v.here.rows[r]; repeated {
		return nil
	}
	v.judge(d, r)
	if len(v.here.rows) == 0 {
		v.here.first = r.hash()
	}
	v.here.rows[r] = struct{}{}
	v.here.hashes[r.hash()] = struct{}{}
	if v.head != nil && *v.head == (Link{Seq: d.Seq, Hash: r.hash()}) {
		v.passed = true
	}
	return nil
}

// advance moves to a later seq and reports what is missing in between.
func (v *Verifier) advance(seq int64) {
	end := v.end()
	if end.Seq > v.from.Seq {
		v.linkable, v.here.hashes = v.here.hashes, v.linkable
	}
	clear(v.here.rows)
	clear(v.here.hashes)
	v.here.seq, v.here.first, v.here.intact = seq, "", 0
	v.said = v.said[:0]
	if seq <= v.from.Seq {
		return
	}
	v.count++
	for absent := end.Seq + 1; absent < seq; absent++ {
		more := seq - 1 - absent
		if v.named++; v.named >= maxNamedMissing && more > 0 {
			v.add(Break{Name: Missing, Seq: absent, Through: seq - 1,
				Detail: fmt.Sprintf("there is no receipt %d, nor the %d after it up to %d", absent, more, seq-1)})
			return
		}
		v.report(Missing, absent, "there is no receipt %d", absent)
	}
}

// end is the last receipt after from, or from.
func (v *Verifier) end() Link {
	if v.here.seq > v.from.Seq {
		return Link{Seq: v.here.seq, Hash: v.here.first}
	}
	return v.from
}

// judge reports what is wrong with one receipt and its link.
func (v *Verifier) judge(d Digest, r row) {
	intact := d.Fault == ""
	switch r.stored {
	case r.computed:
	case "":
		v.report(HashMissing, d.Seq, "no hash is stored; the document hashes to %s", r.computed)
	default:
		intact = false
		v.report(ContentAltered, d.Seq, "the document hashes to %s, the stored hash is %q", r.computed, r.stored)
	}
	if d.Fault != "" {
		v.report(ContentAltered, d.Seq, "%s", d.Fault)
	}
	if d.Linked {
		v.judgeLink(d.Seq, r, d.Prev)
	}
	if !intact {
		return
	}
	if v.here.intact++; v.here.intact > 1 {
		v.report(LinkBroken, d.Seq, "%d different receipts with this seq are intact; a chain has one", v.here.intact)
	}
}

func (v *Verifier) judgeLink(seq int64, r row, prev string) {
	switch {
	case seq < v.from.Seq:
	case seq == v.from.Seq:
		if r.hash() != v.from.Hash {
			v.report(LinkBroken, seq, "its hash is %q, but the chain is to be continued from %s", r.hash(), v.from)
		}
	default:
		if _, ok := v.linkable[prev]; !ok {
			v.report(LinkBroken, seq, "its previous hash %q is not that of the receipt before", prev)
		}
	}
}

// report adds a break. One name is said once for one seq, with the first detail.
func (v *Verifier) report(name string, seq int64, format string, args ...any) {
	if seq == v.here.seq {
		if slices.Contains(v.said, name) {
			return
		}
		v.said = append(v.said, name)
	}
	v.add(Break{Name: name, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}

func (v *Verifier) add(b Break) {
	v.reported++
	if v.each != nil {
		v.each(b)
		return
	}
	v.breaks = append(v.breaks, b)
}

// Report is the judgement over what was added so far.
func (v *Verifier) Report() Report {
	r := Report{
		Verdict:     Intact,
		Breaks:      slices.Clone(v.breaks),
		Unread:      slices.Clone(v.unread),
		UnreadCount: v.unreadable,
		Unchained:   v.unchained,
		Count:       v.count,
		Head:        v.end(),
	}
	short := false
	if detail := v.headMismatch(r.Head); detail != "" {
		short = r.Head.Seq < v.head.Seq
		r.Breaks = append(r.Breaks, Break{Name: HeadMismatch, Seq: v.head.Seq, Detail: detail})
	}
	if v.unchained > 0 {
		r.Breaks = append(r.Breaks, Break{Name: Unchained, Detail: fmt.Sprintf("receipts without a seq: %d", v.unchained)})
	}
	r.BreakCount = v.reported + len(r.Breaks) - len(v.breaks)
	switch {
	case r.UnreadCount > 0:
		r.Verdict = Unreadable
	case short && r.BreakCount == 1:
		r.Verdict = Short
	case r.BreakCount > 0:
		r.Verdict = Broken
	}
	return r
}

// headMismatch says how the chain contradicts the head that was given; "" if it contains it.
func (v *Verifier) headMismatch(end Link) string {
	switch {
	case v.head == nil, v.passed:
		return ""
	case end.Seq < v.head.Seq:
		return fmt.Sprintf("the chain ends with receipt %d, before the head %s", end.Seq, v.head)
	case v.head.Seq < v.from.Seq:
		return fmt.Sprintf("the chain is verified from receipt %d on, and the head %s is before it", v.from.Seq+1, v.head)
	case v.head.Seq == end.Seq:
		return fmt.Sprintf("the last receipt has the hash %q, the head is %s", end.Hash, v.head)
	}
	return fmt.Sprintf("receipt %d is not the one of the head %s; the chain goes on to receipt %d", v.head.Seq, v.head, end.Seq)
}
