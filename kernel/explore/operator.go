package explore

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// seen is an object as a pass has it.
type seen struct {
	presence flow.Presence
	version  int32
}

// pass is what one pass of an operator has read, by numbers. It is everything that Next is shown, but for the time.
type pass struct {
	subject int8 // 1.. an action; -1.. an effect
	action  seen
	effect  seen
	record  int8 // the effect's place, from 1
	holder  seen
	held    int8 // the holder's place, from 1

	answered flow.Presence
	answers  [maxAnswers]int32
	// entitled is what the apiserver said in this pass of whom an answer is from.
	entitled [maxAnswers]approval.Entitlement
	claimed  flow.Presence
	claims   [claimsOf]int32
	withdrew [claimsOf]bool

	locked flow.Presence
	lock   int32
	late   int32

	folded   bool
	identity int32
	chain    int32
	receipt  int32

	listed      bool
	others      [maxActions]int32
	listedChain int32

	quoted [maxResolutions]int32 // names
	quotes [maxResolutions]int32 // chains that end with them

	resolutions [maxResolutions]int32
	judged      [maxResolutions]int32
	told        [maxResolutions]int32 // what they were told while they had no verdict
	// stated says that all resolutions there are were listed.
	stated bool

	rules int32
	// read says that something was read from the apiserver already.
	read bool
	// denied are the denials that were there when the pass began.
	denied [maxAnswers]bool
	// takenBack are the resolutions that whoever made them had taken back when the pass began.
	takenBack [maxResolutions]bool
}

type kind int8

const (
	waits kind = iota
	reads
	writesAction
	writesEffect
	lapses
	appends
	judges
)

// What a verdict says.
const (
	accepts int32 = 1 + iota
	refuses
	leavesOpen // it is none: what is missing for one
)

// step is what Next answered, by numbers.
type step struct {
	kind     kind
	object   flow.Object
	why      string
	target   int8  // the place of an action, effect, process or resolution
	guard    int32 // the version that was read
	value    int32 // what is written
	create   bool
	identity int32
	floor    int64
	name     int32
	until    int32 // milliseconds; 0: until something changes
	// broken is an invariant that this very step breaks.
	broken, detail string
}

// standing is a pass before its step.
type standing struct {
	pass pass
	step int32
}

// question is everything Next is asked with.
type question struct {
	pass             pass
	now, since       int32
	admission, chain int32
}

// next is what Next answers to a pass. It is asked once for each different question.
func (x *explorer) next(s *state, p *pass) int32 {
	q := question{*p, s.clock, s.since, s.admission, int32(x.chains.length(s.chain))}
	key := q.digest()
	if id, ok := x.answered[key]; ok {
		return id
	}
	snapshot := x.snapshot(q)
	id := x.steps.id(x.translate(p, snapshot, x.ask(snapshot)))
	x.answered[key] = id
	return id
}

// digest is of all that Next is shown.
func (q *question) digest() digest {
	d := digest{0xA4093822299F31D0, 0x082EFA98EC4E6C89}
	p := &q.pass
	for _, o := range [...]seen{p.action, p.effect, p.holder} {
		d.add(int32(o.presence)<<24 | o.version)
	}
	flags := int32(p.subject)&255 | int32(p.record)<<8 | int32(p.held)<<12 | int32(p.answered)<<16 | int32(p.claimed)<<18 | int32(p.locked)<<20
	for i, is := range [...]bool{p.folded, p.listed, p.stated} {
		if is {
			flags |= 1 << (22 + i)
		}
	}
	for i, is := range p.withdrew {
		if is {
			flags |= 1 << (25 + i)
		}
	}
	d.add(flags)
	d.addAll(p.answers[:])
	entitled := int32(0)
	for k, is := range p.entitled {
		entitled |= int32(is) << (2 * k)
	}
	d.add(entitled)
	d.addAll(p.claims[:])
	for _, v := range [...]int32{p.lock, p.late, p.rules, q.now, q.since, q.admission, q.chain} {
		d.add(v)
	}
	if p.folded {
		d.add(p.identity)
		d.add(p.chain)
		d.add(p.receipt)
	}
	if p.listed {
		d.addAll(p.others[:])
		d.add(p.listedChain)
	}
	if p.subject < 0 {
		d.addAll(p.quoted[:])
		d.addAll(p.quotes[:])
		d.addAll(p.resolutions[:])
		d.addAll(p.judged[:])
		d.addAll(p.told[:])
	}
	return d
}

func (x *explorer) snapshot(q question) flow.Snapshot {
	p := &q.pass
	s := flow.Snapshot{Now: at(q.now)}
	s.World = x.inForce(flow.World{
		ClusterID: "cluster", Namespace: "payments", NamespaceUID: "namespace", Environment: "production",
		AdmissionSince: at(q.since), VerifiedSeq: int64(q.chain), RulesHash: x.rulesHash[p.rules],
		Limits: x.limits(),
	}, x.policies[p.rules])
	if q.admission == away {
		s.World.Holds = []flow.Hold{{Reason: decision.AdmissionMissing, Message: "The admission policies are not in force.", Since: at(q.now)}}
	}
	if x.Executor {
		s.World.Executors = flow.Executors{{Name: "refunds", Hash: "sha256:" + strings.Repeat("e", 64), Types: []string{"stripe.refund"}}}
	}
	if p.subject < 0 {
		s.EffectName = x.names[-p.subject-1]
	} else {
		s.Action = flow.ActionRead{Presence: p.action.presence, Action: x.action(p.action.version)}
	}
	s.Effect = flow.EffectRead{Presence: p.effect.presence, Record: x.record(p.effect.version)}
	s.Holder = flow.ActionRead{Presence: p.holder.presence, Action: x.action(p.holder.version)}
	s.Answers.Presence, s.Claims.Presence = p.answered, p.claimed
	for k, id := range p.answers {
		if id > 0 {
			a := x.answers.get(id).Answer
			a.Entitlement = p.entitled[k]
			s.Answers.Answers = append(s.Answers.Answers, a)
		}
	}
	for i, id := range p.claims {
		if id > 0 {
			c := x.claims.get(id).Claim
			c.Withdrawn = p.withdrew[i]
			s.Claims.Claims = append(s.Claims.Claims, c)
		}
	}
	s.Lock.Presence = p.locked
	if p.lock > 0 {
		s.Lock.Outcome = &x.outcomes.get(p.lock).Outcome
	}
	if p.late > 0 {
		s.Late = &x.outcomes.get(p.late).Outcome
	}
	if p.folded {
		s.Chain = flow.ChainRead{Read: true, Identity: x.identities.get(p.identity), Head: x.chains.head(p.chain)}
		if p.receipt > 0 {
			d := x.chains.get(p.receipt).document
			s.Chain.Found, s.Chain.FoundLink = &d, x.chains.head(p.receipt)
		}
	}
	if p.listed {
		s.Key.Read = true
		for _, v := range p.others {
			if v > 0 {
				s.Key.Actions = append(s.Key.Actions, *x.action(v))
			}
		}
		name := x.names[p.record-1]
		var receipts []receipt.Document
		for c := p.listedChain; c != 0; c = x.chains.get(c).before {
			if d := x.chains.get(c).document; d.EffectName == name {
				receipts = append([]receipt.Document{d}, receipts...)
			}
		}
		s.Key.Receipts = receipts
	}
	for i, name := range p.quoted {
		if name == 0 {
			continue
		}
		quoted := flow.QuotedRead{Name: x.quotes.get(name)}
		if p.quotes[i] > 0 {
			e := x.chains.get(p.quotes[i]).entry
			quoted.Entry = &e
		}
		s.Quoted = append(s.Quoted, quoted)
	}
	s.ResolutionsListed = p.stated
	for i, id := range p.resolutions {
		if id > 0 {
			r := *x.resolutions.get(id)
			r.Judged = p.judged[i] != 0
			if p.told[i] != 0 {
				r.Told = x.quotes.get(p.told[i])
			}
			s.Resolutions = append(s.Resolutions, r)
		}
	}
	return s
}

// inForce puts into a world what is decided by.
func (x *explorer) inForce(w flow.World, p Policy) flow.World {
	w.Policies, w.Authority, w.Required, w.Observe, w.People = p.set, p.granted, p.Authority != nil, p.Observe, x.persons
	return w
}

func (x *explorer) limits() flow.Limits {
	return flow.Limits{ApprovalTTL: 15 * time.Minute, MaxLease: time.Hour, FinishedTTL: x.Retention}
}

// translate puts an answer of Next into numbers, and looks at what can be seen from it alone.
func (x *explorer) translate(p *pass, s flow.Snapshot, answer flow.Step) step {
	switch a := answer.(type) {
	case flow.Done:
		return step{kind: waits}
	case flow.Begin: // the workers do, whenever they can
		return step{kind: waits, until: max(1, since(a.Lease))}
	case flow.Wait:
		if a.Until.IsZero() {
			return step{kind: waits}
		}
		return step{kind: waits, until: max(1, since(a.Until))}
	case flow.Read:
		return x.translateRead(p, a)
	case flow.WriteAction:
		return x.translateAction(p, s, a)
	case flow.WriteEffect:
		place, status := x.place(a.Name), a.Status
		if place == 0 || status.Holder != nil && placeOf(status.Holder.UID) == 0 {
			return unknown("%s writes %s, held by %q", a.Why, a.Name, status.HolderName())
		}
		record := effect.Record{Name: a.Name, UID: uidOf(place), Key: a.Key, Status: &status}
		return step{kind: writesEffect, why: a.Why, target: place, guard: p.effect.version, value: x.records.id(record), create: a.Create}
	case flow.DeclareLapse:
		for i := range maxActions * perAction {
			if uid, claim := actionUID(i/perAction), claimID(i); uid == a.ActionUID && claim == a.ClaimID {
				return step{kind: lapses, target: int8(i + 1)}
			}
		}
		return step{kind: lapses, broken: invariantAPI, detail: "a lapse of nobody's attempt: " + a.ClaimID}
	case flow.Append:
		return x.translateAppend(a)
	case flow.Judge:
		for i, id := range p.resolutions {
			if id > 0 && x.resolutions.get(id).UID == a.UID {
				out := step{kind: judges, why: a.Reason, target: int8(i + 1), value: refuses}
				switch {
				case a.Open:
					out.value, out.name = leavesOpen, x.quotes.id(a.Message)
				case a.Accepted:
					out.value = accepts
				}
				return out
			}
		}
		return step{kind: judges, broken: invariantVerdict, detail: "a verdict on " + a.Name + ", which nobody made"}
	}
	return unknown("%T is no step", answer)
}

// unknown is an answer that has no place in the world: it is for the explorer to learn, or for Next to answer otherwise.
func unknown(format string, args ...any) step {
	return step{broken: notModelled, detail: fmt.Sprintf(format, args...)}
}

func (x *explorer) translateRead(p *pass, a flow.Read) step {
	out := step{kind: reads, object: a.Object, floor: a.Floor}
	known := true
	switch a.Object {
	case flow.TheAction, flow.TheAnswers, flow.TheClaims, flow.TheLock:
		known = p.subject > 0
	case flow.TheEntitlement:
		known, out.name = p.subject > 0, x.quotes.id(a.Name)
	case flow.TheHolder:
	case flow.TheChain:
		out.identity = x.identities.id(a.Identity)
	case flow.TheEffect, flow.TheKey, flow.TheResolutions:
		out.target = x.place(a.Name)
		known = out.target != 0
	case flow.TheQuoted:
		out.name = x.quotes.id(a.Name)
	default:
		known = false
	}
	if !known {
		return unknown("a pass over %d reads %s %s", p.subject, a.Object, a.Name)
	}
	return out
}

func (x *explorer) translateAction(p *pass, s flow.Snapshot, a flow.WriteAction) step {
	place := placeOf(a.UID)
	out := step{kind: writesAction, why: a.Why, target: int8(place)}
	switch {
	case place == 0:
	case p.subject == int8(place):
		out.guard = p.action.version
	case p.listed && p.others[place-1] != 0:
		out.guard = p.others[place-1]
	case int(p.held) == place:
		out.guard = p.holder.version
	}
	old := x.action(out.guard)
	if old == nil {
		return unknown("%s writes %s, which the pass has not read", a.Why, a.Name)
	}
	next := *old
	next.Status = a.Status
	next.Timeline = nil // nothing is decided by it
	if e := a.Status.Effect; e != nil && x.place(e.Name) == 0 {
		return unknown("%s of %s names the effect %s", a.Why, a.Name, e.Name)
	}
	out.value = x.actions.id(next)
	r := s.Effect.Record
	if a.Why == flow.WhyEnd && a.Status.Reason == decision.InProgress && r != nil && r.Status != nil && r.Status.Holder != nil && r.Status.Holder.UID == a.UID {
		out.broken, out.detail = invariantItself, a.Name+" holds what it is blocked by"
	}
	return out
}

// receiptAsked is a receipt after a chain. The same one is asked for with many snapshots, and takes long to write and read.
type receiptAsked struct{ head, document int32 }

func (x *explorer) translateAppend(a flow.Append) step {
	head, known := x.chains.link[a.Head]
	if !known {
		return step{kind: appends, broken: invariantReceipt, detail: fmt.Sprintf("a receipt of %s after %s, which is not in the chain", a.Document.Identity(), a.Head)}
	}
	if a.Document.Kind == receipt.KindAction && placeOf(a.Document.SubjectUID) == 0 {
		return unknown("a receipt of %s", a.Document.Identity())
	}
	asked := receiptAsked{head, x.documents.id(a.Document)}
	if id, ok := x.appended[asked]; ok {
		return step{kind: appends, guard: head, value: id}
	}
	entry, err := a.Document.Entry(a.Head)
	if err == nil {
		var d receipt.Document
		if d, err = receipt.Parse(entry); err == nil {
			id := x.chains.append(head, entry, d)
			x.appended[asked] = id
			return step{kind: appends, guard: head, value: id}
		}
	}
	return step{kind: appends, broken: invariantReceipt, detail: fmt.Sprintf("a receipt of %s that nobody can read: %v", a.Document.Identity(), err)}
}

// place is where the effect of that name stands, from 1; 0: no policy gives it.
func (x *explorer) place(name string) int8 {
	for i, known := range x.names {
		if known == name {
			return int8(i + 1)
		}
	}
	return 0
}

func uidOf(place int8) string { return fmt.Sprintf("effect-%d", place) }

func actionUID(i int) string { return actionUIDs[i] }

// actionUIDs are compared too often to be made each time.
var actionUIDs = [maxActions]string{"a1-uid", "a2-uid", "a3-uid"}

// placeOf is where the action of that uid stands, from 1; 0: there is none.
func placeOf(uid string) int {
	for i := range maxActions {
		if actionUID(i) == uid {
			return i + 1
		}
	}
	return 0
}

// claimID is that of a process.
func claimID(process int) string {
	return fmt.Sprintf("a%d-claim-%d", process/perAction+1, process%perAction+1)
}

func (x *explorer) action(v int32) *flow.Action {
	if v == 0 {
		return nil
	}
	return x.actions.get(x.versions.get(v).value)
}

func (x *explorer) record(v int32) *effect.Record {
	if v == 0 {
		return nil
	}
	return x.records.get(x.versions.get(v).value)
}

// recordOf is the record of the effect that an action wants, nil if there is none.
func (x *explorer) recordOf(s *state, a *flow.Action) *effect.Record {
	if place := x.place(a.Effect.Name); place != 0 {
		return x.record(s.effects[place-1])
	}
	return nil
}

// --- how a pass goes on --------------------------------------------------------------------------------------------------

// run goes on with a pass while the world stands still. It finds every point before which the world may go on.
func (x *explorer) run(s *state, p pass) {
	if p.rules < s.rules {
		newer := p
		newer.rules = s.rules
		x.walk(s, newer)
	}
	x.walk(s, p)
}

// longest is how many steps a pass may take without an end.
const longest = 64

func (x *explorer) walk(s *state, p pass) {
	for range longest {
		id := x.next(s, &p)
		st := x.steps.get(id)
		if st.broken != "" {
			x.fail(st.broken, "%s", st.detail)
			return
		}
		switch st.kind {
		case waits:
			return
		case reads:
			if x.Pauses && p.read {
				x.found(p, id)
			}
			p = x.read(s, p, &st)
		default:
			if x.lands(s, &st) {
				x.found(p, id)
				return
			}
			p = x.refused(s, p, &st)
		}
	}
	x.fail(invariantRest, "a pass over %d does not come to an end", p.subject)
}

// found notes where a pass stands. A short one is over after its write, so nothing is left of it but what an admission is held
// against.
func (x *explorer) found(p pass, step int32) {
	if st := x.steps.get(step); x.Short && st.kind != reads {
		was := p
		p = pass{subject: p.subject, denied: p.denied, takenBack: p.takenBack}
		switch st.why {
		case flow.WhyAdmit:
			p.rules, p.entitled = was.rules, was.entitled
		case flow.WhyResolve:
			p.rules = was.rules
		}
	}
	id := x.standings.id(standing{p, step})
	for _, known := range x.points {
		if known == id {
			return
		}
	}
	x.points = append(x.points, id)
}

// read gives a pass one thing as the apiserver has it.
func (x *explorer) read(s *state, p pass, st *step) pass {
	p.read = true
	switch st.object {
	case flow.TheAction:
		return x.readAction(s, p)
	case flow.TheEffect:
		return x.readEffect(s, p, st.target)
	case flow.TheHolder:
		return x.readHolder(s, p)
	case flow.TheAnswers:
		p.answered = flow.Fresh
		p.answers = [maxAnswers]int32{}
		for k, id := range s.answers {
			if id > 0 && x.answers.get(id).ActionUID == actionUID(int(p.subject-1)) {
				p.answers[k] = id
			}
		}
	case flow.TheEntitlement:
		for k, id := range p.answers {
			if id <= 0 || x.answers.get(id).UID != x.quotes.get(st.name) {
				continue
			}
			p.entitled[k] = approval.Entitled
			if s.right == taken && x.answers.get(id).Approver == x.Unentitled {
				p.entitled[k] = approval.Unentitled
			}
		}
	case flow.TheClaims:
		p.claimed = flow.Fresh
		for k := range claimsOf {
			p.claims[k] = max(0, s.claims[int(p.subject-1)*claimsOf+k])
		}
	case flow.TheLock:
		p.locked, p.lock = flow.Absent, 0
		if i := x.lockOf(p); i >= 0 && s.outcomes[i] > 0 {
			p.locked, p.lock = flow.Fresh, s.outcomes[i]
		}
	case flow.TheChain:
		p.folded, p.identity, p.chain = true, st.identity, s.chain
		p.receipt = x.chains.find(s.chain, x.identities.get(st.identity), st.floor)
	case flow.TheKey:
		p.listed, p.listedChain = true, s.chain
		for i, v := range s.actions {
			p.others[i] = 0
			if v != 0 && s.fate[i] == present && !x.action(v).Finished() {
				p.others[i] = v
			}
		}
		if p.record == 0 {
			p.record = st.target
		}
	case flow.TheResolutions:
		p.stated = true
		for k, id := range s.resolutions {
			p.resolutions[k], p.judged[k], p.told[k] = 0, 0, 0
			if id > 0 {
				p.resolutions[k], p.judged[k], p.told[k] = id, min(1, s.judged[k]), s.told[k]
			}
		}
	case flow.TheQuoted:
		i := slices.Index(p.quoted[:], 0)
		if i < 0 {
			x.fail(notModelled, "a pass over %d looks at more than %d receipts", p.subject, len(p.quoted))
			return p
		}
		p.quoted[i] = st.name
		for c := s.chain; c != 0; c = x.chains.get(c).before {
			if receipt.Name("payments", x.chains.get(c).entry.Seq) == x.quotes.get(st.name) {
				p.quotes[i] = c
			}
		}
	}
	return p
}

// lockOf is the process whose lock the subject's pass looks at; -1: none.
func (x *explorer) lockOf(p pass) int {
	a := x.action(p.action.version)
	claim := a.ClaimID
	if a.Execution != nil {
		claim = a.Execution.ClaimID
	}
	for k := range perAction {
		if i := int(p.subject-1)*perAction + k; claim == claimID(i) {
			return i
		}
	}
	return -1
}

func (x *explorer) readAction(s *state, p pass) pass {
	i := p.subject - 1
	if s.fate[i] != present {
		p.action.presence = flow.Absent
		return p
	}
	p.action = seen{flow.Fresh, s.actions[i]}
	return p
}

func (x *explorer) readEffect(s *state, p pass, place int8) pass {
	p.record, p.effect = place, seen{flow.Absent, 0}
	if v := s.effects[place-1]; v != 0 {
		p.effect = seen{flow.Fresh, v}
	}
	// Whatever was known of a holder was known of another version's.
	if p.holder.presence == flow.Absent || (p.held != 0 && x.holderOf(p.effect.version) != p.held) {
		p.holder, p.held = seen{}, 0
	}
	return p
}

// holderOf is the place of the action that holds a record, from 1.
func (x *explorer) holderOf(v int32) int8 {
	r := x.record(v)
	if r == nil || r.Status == nil || r.Status.Holder == nil {
		return 0
	}
	return int8(placeOf(r.Status.Holder.UID))
}

func (x *explorer) readHolder(s *state, p pass) pass {
	i := x.holderOf(p.effect.version)
	if i == 0 || s.fate[i-1] != present {
		p.holder, p.held = seen{presence: flow.Absent}, 0
		return p
	}
	p.holder, p.held = seen{flow.Fresh, s.actions[i-1]}, i
	return p
}

// refused gives a pass what it looks at after a write that was refused.
func (x *explorer) refused(s *state, p pass, st *step) pass {
	p.read = true
	switch st.kind {
	case writesAction:
		switch {
		case p.subject == st.target:
			return x.readAction(s, p)
		case p.listed && p.others[st.target-1] != 0:
			p.listed, p.others, p.listedChain = false, [maxActions]int32{}, 0
			return p
		}
		return x.readHolder(s, p)
	case writesEffect:
		return x.readEffect(s, p, st.target)
	case lapses:
		return x.read(s, p, &step{object: flow.TheLock})
	case appends:
		p.folded, p.identity, p.chain, p.receipt = false, 0, 0, 0
	case judges:
		// Somebody else gave a verdict, or, where several say what is missing, said something else.
		p.judged[st.target-1], p.told[st.target-1] = min(1, s.judged[st.target-1]), s.told[st.target-1]
	}
	return p
}

// accepted gives a pass what it knows after a write that landed and was answered.
func (x *explorer) accepted(s *state, p pass, st *step) pass {
	p.read = true
	switch st.kind {
	case writesAction:
		now := seen{flow.Fresh, s.actions[st.target-1]}
		switch {
		case p.subject == st.target:
			p.action = now
		case p.listed && p.others[st.target-1] != 0:
			p.others[st.target-1] = now.version
		default:
			p.holder = now
		}
	case writesEffect:
		p.record, p.effect = st.target, seen{flow.Fresh, s.effects[st.target-1]}
	case lapses:
		p.locked, p.lock = flow.Fresh, s.outcomes[st.target-1]
	case appends:
		p.folded, p.chain, p.receipt = true, s.chain, s.chain
		p.identity = x.identities.id(x.chains.get(s.chain).document.Identity())
	case judges:
		p.judged[st.target-1], p.told[st.target-1] = min(1, s.judged[st.target-1]), s.told[st.target-1]
	}
	return p
}

// --- how a pass begins ---------------------------------------------------------------------------------------------------

// begin gives every pass that an operator can begin now, with whatever its caches hold, by where it stands next.
func (x *explorer) begin(s *state) []int32 {
	key := s.worldHash()
	if known, ok := x.begun[key]; ok {
		return known
	}
	x.points = nil
	for i, v := range s.actions {
		if v != 0 {
			x.beginAction(s, i, x.Stale)
		}
	}
	for i, v := range s.effects {
		if v != 0 {
			x.beginEffect(s, i, x.Stale)
		}
	}
	found := x.points
	x.points = nil
	x.begun[key] = found
	return found
}

// views are the versions that a cache may hold: the present one, earlier ones, and none, with how stale each is.
func (x *explorer) views(v int32, stale int) []int32 {
	if stale <= 0 || v == 0 {
		return []int32{v}
	}
	return append(x.versions.seen(v), 0)
}

func cost(i int) int { return min(i, 1) }

// olderRules gives the pass with the rules in force, and with those before them.
func (x *explorer) olderRules(s *state, p pass, stale int) {
	p.rules = s.rules
	x.run(s, p)
	if stale > 0 && s.rules > 0 {
		p.rules = s.rules - 1
		x.run(s, p)
	}
}

func (x *explorer) beginAction(s *state, i, stale int) {
	for n, v := range x.views(s.actions[i], stale) {
		if v == 0 || x.action(v).Finished() {
			continue
		}
		p := pass{subject: int8(i + 1), action: seen{flow.Cached, v}, answered: flow.Cached, claimed: flow.Cached, denied: x.denials(s, i)}
		x.beginStatements(s, p, stale-cost(n))
	}
}

func (x *explorer) denials(s *state, i int) (denied [maxAnswers]bool) {
	for k, id := range s.answers {
		denied[k] = id > 0 && !x.answers.get(id).Approved && x.answers.get(id).ActionUID == actionUID(i)
	}
	return denied
}

// beginStatements gives each statement to the pass, or, as long as it may be stale, does not.
func (x *explorer) beginStatements(s *state, p pass, stale int) {
	i := int(p.subject - 1)
	var give []func(*pass)
	for k, id := range s.answers {
		if id > 0 && x.answers.get(id).ActionUID == actionUID(i) {
			give = append(give, func(p *pass) { p.answers[k] = id })
		}
	}
	for k := range claimsOf {
		if id := s.claims[i*claimsOf+k]; id > 0 {
			give = append(give, func(p *pass) { p.claims[k] = id })
			if k < perAction && s.outcomes[i*perAction+k] > 0 && x.outcomes.get(s.outcomes[i*perAction+k]).ClaimID == x.claims.get(id).ClaimID {
				give = append(give, func(p *pass) { p.withdrew[k] = p.claims[k] != 0 })
			}
		}
	}
	if l := x.lockOf(p); l >= 0 {
		if id := s.outcomes[l]; id > 0 {
			give = append(give, func(p *pass) { p.locked, p.lock = flow.Cached, id })
		}
		if id := s.lates[l]; id > 0 {
			give = append(give, func(p *pass) { p.late = id })
		}
	}
	eachView(p, give, stale, func(q pass, left int) { x.beginRecord(s, q, left) })
}

// eachView calls with the pass as a cache gives it everything but up to stale things, and with how stale it may still be.
func eachView(p pass, give []func(*pass), stale int, with func(q pass, left int)) {
	for missing := range uint(1) << len(give) {
		left := stale - bits.OnesCount(missing)
		if left < 0 {
			continue
		}
		q := p
		for k, g := range give {
			if missing&(1<<k) == 0 {
				g(&q)
			}
		}
		with(q, left)
	}
}

func (x *explorer) beginRecord(s *state, p pass, stale int) {
	a := x.action(p.action.version)
	if a.Effect == nil {
		x.olderRules(s, p, stale)
		return
	}
	place := x.place(a.Effect.Name)
	for n, v := range x.views(s.effects[place-1], stale) {
		q := p
		if v != 0 {
			q.record, q.effect = place, seen{flow.Cached, v}
		}
		x.beginHolder(s, q, stale-cost(n))
	}
}

// beginHolder gives the holder as a cache has it. Caches hold unfinished actions only.
func (x *explorer) beginHolder(s *state, p pass, stale int) {
	i := x.holderOf(p.effect.version)
	if i == 0 {
		x.olderRules(s, p, stale)
		return
	}
	for n, v := range x.views(s.actions[i-1], stale) {
		q := p
		if v != 0 && !x.action(v).Finished() && (s.fate[i-1] == present || stale > 0) {
			q.holder, q.held = seen{flow.Cached, v}, i
		}
		x.olderRules(s, q, stale-cost(n))
	}
}

func (x *explorer) beginEffect(s *state, i, stale int) {
	for n, v := range x.views(s.effects[i], stale) {
		p := pass{subject: -int8(i + 1), record: int8(i + 1), takenBack: x.takenBack(s)}
		if v != 0 {
			p.effect = seen{flow.Cached, v}
		}
		x.beginResolutions(s, p, stale-cost(n))
	}
}

func (x *explorer) beginResolutions(s *state, p pass, stale int) {
	var give []func(*pass)
	for k, id := range s.resolutions {
		if id > 0 {
			give = append(give, func(p *pass) { p.resolutions[k] = id })
			if s.judged[k] != 0 {
				give = append(give, func(p *pass) { p.judged[k] = 1 })
			}
			if s.told[k] != 0 {
				give = append(give, func(p *pass) { p.told[k] = s.told[k] })
			}
		}
	}
	if h := x.holderOf(p.effect.version); h != 0 {
		for k := range perAction {
			if id := s.lates[int(h-1)*perAction+k]; id > 0 {
				give = append(give, func(p *pass) { p.late = id })
			}
		}
	}
	eachView(p, give, stale, func(q pass, left int) { x.beginHolder(s, q, left) })
}

// answerMade is an answer, and whether it was forged in a time without admission.
type answerMade struct {
	approval.Answer
	Forged bool
}

// claimMade is a claim, likewise.
type claimMade struct {
	flow.Claim
	Forged bool
}

// outcomeMade is an outcome, likewise.
type outcomeMade struct {
	flow.Outcome
	Forged bool
}

func (x *explorer) describe(p *pass, st *step) string {
	var b strings.Builder
	switch {
	case p.subject > 0:
		fmt.Fprintf(&b, "pass over a%d: ", p.subject)
	default:
		fmt.Fprintf(&b, "pass over effect %d: ", -p.subject)
	}
	switch st.kind {
	case reads:
		fmt.Fprintf(&b, "read %s", st.object)
	case writesAction:
		a := x.actions.get(st.value)
		fmt.Fprintf(&b, "%s %s: %s %s", st.why, a.Name, a.State, a.Reason)
		if a.Execution != nil && a.Effect != nil {
			fmt.Fprintf(&b, " attempt %d, claim %s", a.Effect.Attempt, a.Execution.ClaimID)
		}
	case writesEffect:
		r := x.records.get(st.value)
		fmt.Fprintf(&b, "%s %s: %s, attempt %d, held by %s %s", st.why, r.Key, r.Status.State, r.Status.Attempt, r.Status.HolderName(), r.Status.Cause)
	case lapses:
		fmt.Fprintf(&b, "lapse of %s", claimID(int(st.target-1)))
	case appends:
		d := x.chains.get(st.value).document
		fmt.Fprintf(&b, "append receipt %d of %s: %s %s", d.Seq, d.Identity(), d.Result, d.Reason)
	case judges:
		fmt.Fprintf(&b, "judge resolution %d: %s", st.target, st.why)
	}
	return b.String()
}
