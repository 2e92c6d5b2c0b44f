package receipt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
)

// Names of contradictions between a chain and the objects around it in a cluster, a closed list. They are breaks as well,
// at the seq of the receipt that is contradicted.
const (
	// MirrorMismatch: a field beside the document is not what the document says.
	MirrorMismatch = "mirror_mismatch"
	// NameMismatch: the object is not named by the chain and its seq.
	NameMismatch = "name_mismatch"
	// OriginMismatch: the document belongs to another namespace or cluster than its epoch of this chain.
	OriginMismatch = "origin_mismatch"
	// ReferenceBroken: an Action refers to a receipt that is not there, or is another one than that of this Action.
	ReferenceBroken = "reference_broken"
	// EffectMismatch: an Effect is contradicted by the receipts of its key, or is missing, or has none although it should.
	EffectMismatch = "effect_mismatch"
)

// CrossCheck holds against a chain what the objects around it say. The operator goes on working meanwhile, so the order in
// which things are read matters: it writes the Effect, then the receipt, then the Action. Hence Actions are read before the
// receipts, and Effects after them; what is still in doubt then has to be read again, see Judge.
//
// Receipts whose content is altered prove nothing, and what they may be about is left alone: they are a break already. It
// is not safe for concurrent use.
type CrossCheck struct {
	place Place

	references map[int64][]*reference
	effects    map[string]*known
	epoch      int64
	stands     Place // what the first receipt of the epoch says
	began      int64 // its seq
	excused    int
	breaks     []Break
}

// Place is where a chain is, and what is remembered of it.
type Place struct {
	Namespace string
	// NamespaceUID and ClusterID as they are now; "" if they are not known.
	NamespaceUID, ClusterID string
	// Accepted is the head a person accepted last, and when; nil: the chain was never broken. What happened before that time
	// may refer to receipts after that head: they were lost, and a person knows it.
	Accepted *AcceptedHead
}

// AcceptedHead is a head that a person accepted.
type AcceptedHead struct {
	Seq  int64
	Time time.Time
}

// Reference is what a finished Action says about its receipt.
type Reference struct {
	ActionName string
	ActionUID  string
	Result     decision.Result // if it is Committed or Failed; else ""
	Finished   time.Time
	Name       string // of the receipt
	Link       Link
}

type reference struct {
	Reference
	met bool
	why string // why the receipt that is there is not the one
}

// Stored is a receipt as an object: its name, and the copies beside the document.
type Stored struct {
	Name    string
	Entry   Entry
	Columns Columns
}

// Record is what an Effect says.
type Record struct {
	Name    string
	Absent  bool
	UID     string
	Attempt int64
	// Result is how the attempt ended: Committed, Failed or Ambiguous; "" while it goes on.
	Result decision.Result
	// HolderUID and HolderName are the Action of the attempt, "" if it is not on record any more.
	HolderUID, HolderName string
	// Lost: it is Ambiguous because the record was lost. It says so itself, so it contradicts nothing.
	Lost bool
	// NeverBegan: the attempt ended without anybody being admitted for it, and so without a receipt.
	NeverBegan bool
	// Resolution is the name of the Resolution that settled it, or "".
	Resolution string
	Changed    time.Time
}

// Doubt is what speaks against an Effect. The zero Doubt: nothing.
type Doubt struct {
	Seq    int64
	Detail string
	// Pending: it has no receipt for what it says, which is a contradiction only if nobody is about to write it: if the
	// Action that holds the attempt is finished or gone, or the Resolution that settled it is judged or gone.
	Pending bool
}

// known is what the receipts say about one effect.
type known struct {
	seq     int64 // of the last one
	attempt int64 // the highest
	of      []about
	spoilt  bool // an altered receipt may be about it
}

// about is one receipt of the highest attempt.
type about struct {
	seq                            int64
	kind                           string
	result                         decision.Result
	effectUID, actionUID, actionOf string
}

// NewCrossCheck begins a check.
func NewCrossCheck(p Place) *CrossCheck {
	return &CrossCheck{place: p, references: map[int64][]*reference{}, effects: map[string]*known{}}
}

// Refer notes what an Action says. All Actions come before the first receipt is read.
func (c *CrossCheck) Refer(r Reference) {
	c.references[r.Link.Seq] = append(c.references[r.Link.Seq], &reference{Reference: r})
}

// Add takes a receipt, in the order of names, and its digest. The error is a *ParseError: the receipt cannot be interpreted,
// so nothing can be said about what it is about. It is verified by its bytes all the same.
func (c *CrossCheck) Add(s Stored, d Digest) error {
	seq := s.Entry.Seq
	if want := Name(c.place.Namespace, seq); s.Name != want {
		c.report(NameMismatch, seq, "it is stored as %s, its name would be %s", s.Name, want)
	}
	if d.Fault != "" || d.Stored != d.Computed {
		c.spoil(s.Columns.EffectName)
		if doc, err := Parse(s.Entry); err == nil {
			c.spoil(doc.EffectName)
		}
		c.meet(s.Entry, nil)
		return nil
	}
	doc, err := Parse(s.Entry)
	if err != nil {
		c.spoil(s.Columns.EffectName)
		c.meet(s.Entry, nil)
		return err
	}
	if want := doc.Columns(); s.Columns != want {
		c.report(MirrorMismatch, seq, "%s", differences(s.Columns, want))
	}
	if s.Name == Name(c.place.Namespace, seq) {
		c.belongs(doc)
	}
	c.meet(s.Entry, &doc)
	c.learn(doc)
	return nil
}

func (c *CrossCheck) report(name string, seq int64, format string, args ...any) {
	c.breaks = append(c.breaks, Break{Name: name, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}

// differences names the fields that are not what they should be.
func differences(got, want Columns) string {
	var out []string
	text := func(field, got, want string) {
		if got != want {
			out = append(out, fmt.Sprintf("%s is %q, the document says %q", field, got, want))
		}
	}
	text("kind", got.Kind, want.Kind)
	text("result", got.Result, want.Result)
	text("reason", got.Reason, want.Reason)
	text("actionType", got.ActionType, want.ActionType)
	text("actionName", got.ActionName, want.ActionName)
	text("agent", got.Agent, want.Agent)
	text("effectName", got.EffectName, want.EffectName)
	if got.Attempt != want.Attempt {
		out = append(out, fmt.Sprintf("attempt is %d, the document says %d", got.Attempt, want.Attempt))
	}
	return strings.Join(out, "; ")
}

// belongs checks where a document says it belongs. A chain may come from another cluster, or from an earlier namespace of
// the same name; but then a person accepted it, which begins an epoch, and within an epoch a chain stays where it is.
func (c *CrossCheck) belongs(doc Document) {
	here := Place{Namespace: doc.Namespace, NamespaceUID: doc.NamespaceUID, ClusterID: doc.ClusterID}
	switch {
	case doc.Namespace != c.place.Namespace:
		c.report(OriginMismatch, doc.Seq, "the document belongs to the chain %q", doc.Namespace)
	case doc.Epoch < c.epoch:
		c.report(OriginMismatch, doc.Seq, "the document is of epoch %d, after epoch %d had begun", doc.Epoch, c.epoch)
	case c.began == 0, doc.Epoch > c.epoch && doc.Kind == KindLedgerAccepted:
		c.epoch, c.stands, c.began = doc.Epoch, here, doc.Seq
	case doc.Epoch > c.epoch:
		c.report(OriginMismatch, doc.Seq, "the document is of epoch %d, but no receipt of an acceptance begins it", doc.Epoch)
		c.epoch, c.stands, c.began = doc.Epoch, here, doc.Seq
	case here != c.stands:
		c.report(OriginMismatch, doc.Seq, "the document belongs to namespace uid %s in cluster %s; since receipt %d the chain is that of %s in %s",
			doc.NamespaceUID, doc.ClusterID, c.began, c.stands.NamespaceUID, c.stands.ClusterID)
	}
}

// meet compares a receipt with the Actions that refer to it. doc is nil if only its stored hash can be compared.
func (c *CrossCheck) meet(e Entry, doc *Document) {
	for _, r := range c.references[e.Seq] {
		if r.met {
			continue
		}
		switch {
		case r.Name != Name(c.place.Namespace, e.Seq):
			r.why = fmt.Sprintf("receipt %d is not named %s", e.Seq, r.Name)
		case r.Link.Hash != e.Hash:
			r.why = fmt.Sprintf("receipt %d has the hash %q, not %s", e.Seq, e.Hash, r.Link.Hash)
		case doc != nil && (doc.Kind != KindAction || doc.ActionUID != r.ActionUID):
			r.why = fmt.Sprintf("receipt %d is one of kind %s about %s", e.Seq, doc.Kind, cmp.Or(doc.ActionName, doc.SubjectUID))
		case doc != nil && settles(doc.Result) != r.Result:
			r.why = fmt.Sprintf("receipt %d says %s, the Action says %s", e.Seq, doc.Result, cmp.Or(string(r.Result), "something else"))
		default:
			r.met, r.why = true, ""
		}
	}
}

// settles is the result if it says for certain whether something happened.
func settles(r decision.Result) decision.Result {
	if r == decision.Committed || r == decision.Failed {
		return r
	}
	return ""
}

// learn notes what a receipt says about its effect. Actions that were not admitted for an attempt say nothing about it, not
// even observed ones that were executed: these never had the effect. One that had it settled it as it ended.
func (c *CrossCheck) learn(doc Document) {
	ended := doc.Ended()
	if doc.EffectName == "" || doc.Attempt == 0 || settles(ended) == "" && ended != decision.Ambiguous {
		return
	}
	k := c.known(doc.EffectName)
	k.seq = max(k.seq, doc.Seq)
	if doc.Attempt > k.attempt {
		k.attempt, k.of = doc.Attempt, nil
	}
	if doc.Attempt == k.attempt {
		k.of = append(k.of, about{
			seq: doc.Seq, kind: doc.Kind, result: ended,
			effectUID: doc.EffectUID, actionUID: doc.ActionUID, actionOf: doc.ActionName,
		})
	}
}

func (c *CrossCheck) spoil(effectName string) {
	if effectName != "" {
		c.known(effectName).spoilt = true
	}
}

func (c *CrossCheck) known(effectName string) *known {
	k := c.effects[effectName]
	if k == nil {
		k = &known{}
		c.effects[effectName] = k
	}
	return k
}

// EffectNames are the effects that receipts say were attempted.
func (c *CrossCheck) EffectNames() []string {
	var names []string
	for name, k := range c.effects {
		if k.attempt > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Judge says what speaks against an Effect that was read after the receipts. Before a doubt is reported, the chain is read
// to its end once more, and then the Effect: a doubt that is still there then is a contradiction. It reports nothing.
func (c *CrossCheck) Judge(r Record) Doubt {
	k := c.effects[r.Name]
	if k == nil {
		k = &known{}
	}
	if k.spoilt {
		return Doubt{}
	}
	doubt := func(seq int64, format string, args ...any) Doubt {
		return Doubt{Seq: seq, Detail: fmt.Sprintf("effect %s: ", r.Name) + fmt.Sprintf(format, args...)}
	}
	switch {
	case r.Absent && k.attempt > 0:
		return doubt(k.seq, "there is no such Effect, but receipts say that attempt %d was made", k.attempt)
	case r.Absent:
		return Doubt{}
	case r.Attempt < k.attempt:
		return doubt(k.seq, "it is in attempt %d, but receipts say that attempt %d was made", r.Attempt, k.attempt)
	case r.Lost:
		return Doubt{}
	}
	var last *about
	var resolved, of bool
	if r.Attempt == k.attempt {
		for i := range k.of {
			a := &k.of[i]
			if a.kind == KindAction && r.HolderUID != "" && a.actionUID != r.HolderUID {
				if settles(a.result) != "" {
					return doubt(a.seq, "attempt %d is held by %s, but the receipt says that it was that of %s", r.Attempt, r.HolderName, a.actionOf)
				}
				continue // its record was lost meanwhile, and it says that nobody knows
			}
			resolved = resolved || a.kind == KindResolution
			of = of || a.kind != KindResolution
			last = a
		}
	}
	if last != nil && last.effectUID != "" && last.effectUID != r.UID {
		return doubt(last.seq, "its uid is %s, the receipt is about %s", r.UID, last.effectUID)
	}
	switch {
	case last != nil && last.result == decision.Ambiguous && r.Result != decision.Ambiguous && r.Resolution == "":
		return doubt(last.seq, "attempt %d is %s, but the receipt says ambiguous, and nobody resolved it", r.Attempt, inWords(r.Result))
	case last != nil && settles(last.result) != "" && r.Result != last.result:
		return doubt(last.seq, "attempt %d is %s, but the receipt says %s", r.Attempt, inWords(r.Result), last.result)
	}
	missing := r.Resolution != "" && !resolved || r.Resolution == "" && r.Result != "" && !r.NeverBegan && !of
	if !missing || c.place.Accepted != nil && !r.Changed.After(c.place.Accepted.Time) {
		return Doubt{}
	}
	d := doubt(k.seq, "attempt %d is %s, but no receipt says so", r.Attempt, inWords(r.Result))
	d.Pending = true
	return d
}

func inWords(r decision.Result) string { return cmp.Or(string(r), "in progress") }

// Contradicted reports a doubt that remained.
func (c *CrossCheck) Contradicted(d Doubt) { c.report(EffectMismatch, d.Seq, "%s", d.Detail) }

// Breaks are what was found, by seq, once everything was added.
func (c *CrossCheck) Breaks() []Break {
	breaks := slices.Clone(c.breaks)
	c.excused = 0
	for seq, references := range c.references {
		for _, r := range references {
			switch {
			case r.met:
			case c.place.Accepted != nil && seq > c.place.Accepted.Seq && !r.Finished.After(c.place.Accepted.Time):
				c.excused++
			default:
				breaks = append(breaks, Break{Name: ReferenceBroken, Seq: seq, Detail: fmt.Sprintf("action %s refers to %s, %s: %s",
					r.ActionName, r.Name, r.Link.Hash, cmp.Or(r.why, "there is no such receipt"))})
			}
		}
	}
	now := c.place
	if c.began > 0 && (now.NamespaceUID != "" && now.NamespaceUID != c.stands.NamespaceUID || now.ClusterID != "" && now.ClusterID != c.stands.ClusterID) {
		breaks = append(breaks, Break{Name: OriginMismatch, Seq: c.began, Detail: fmt.Sprintf(
			"since this receipt the chain is that of namespace uid %s in cluster %s; this is namespace uid %s in cluster %s, and nobody accepted the chain for it",
			c.stands.NamespaceUID, c.stands.ClusterID, cmp.Or(now.NamespaceUID, "(not known)"), cmp.Or(now.ClusterID, "(not known)"))})
	}
	slices.SortFunc(breaks, func(a, b Break) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Detail, b.Detail))
	})
	return breaks
}

// Excused is how many Actions refer to receipts that were lost before a person accepted the chain, once Breaks was asked.
func (c *CrossCheck) Excused() int { return c.excused }
