package flow_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// pass is one run of an operator over one subject, as the shell does it: what it was told to read, and which versions
// these are.
type pass struct {
	s       flow.Snapshot
	subject string
	began   int
	rules   int // index into sim.rules: never goes back
	fresh   bool
	action  int
	effect  int
	holder  int
	others  map[string]int
	// entitled is what this pass was told of those who approved.
	entitled map[string]approval.Entitlement
}

func (w *sim) operate() {
	if len(w.passes) < 3 && (len(w.passes) == 0 || w.percent(25)) {
		if p := w.begin(nil, false); p != nil {
			w.passes = append(w.passes, p)
		}
	}
	if len(w.passes) == 0 {
		return
	}
	i := w.rng.Intn(len(w.passes))
	p := w.passes[i]
	for over := false; ; {
		if _, over = w.advance(p); over {
			w.passes = slices.DeleteFunc(w.passes, func(x *pass) bool { return x == p })
		}
		if over || w.violation != nil || w.percent(35) {
			return
		}
	}
}

// see is an object as some cache has it: at any version it ever had, or not at all. It gives -1 for not at all.
func see[T any](w *sim, v *versions[T], fresh bool) int {
	switch {
	case fresh && v.gone:
		return -1
	case fresh, w.percent(60):
		return v.version()
	case w.percent(25):
		return -1
	}
	return w.rng.Intn(len(v.all))
}

// seen are those statements that a cache has.
func seen[T any](w *sim, all []*said[T], fresh bool, which func(*T) bool) []T {
	var out []T
	for _, x := range all {
		if which(x.of) && (fresh && !x.gone || !fresh && w.percent(75)) {
			out = append(out, *x.of)
		}
	}
	return out
}

// subject is what a pass is about: an action, or an effect.
type subject struct {
	action *versions[flow.Action]
	effect *versions[effect.Record]
}

// begin starts a pass about a subject, a random one if none is given.
func (w *sim) begin(about *subject, fresh bool) *pass {
	p := &pass{fresh: fresh, began: w.step, others: map[string]int{}, entitled: map[string]approval.Entitlement{}, action: -1, effect: -1, holder: -1}
	p.rules = max(0, len(w.rules)-1-w.rng.Intn(2))
	if about == nil {
		about = &subject{}
		if len(w.effects) > 0 && w.percent(30) {
			about.effect = w.effects[w.rng.Intn(len(w.effects))]
		} else {
			about.action = w.actions[w.rng.Intn(len(w.actions))]
		}
	}
	if e := about.effect; e != nil {
		p.subject = e.name
		p.s.EffectName, p.s.EffectKey = e.name, ""
		if i := see(w, e, fresh); i >= 0 {
			w.setEffect(p, e, i, flow.Cached)
		}
		for _, r := range w.resolutions {
			if r.of.EffectUID == e.uid && !r.gone && (fresh || w.percent(75)) {
				x := *r.of
				x.Judged = r.judged && (fresh || w.percent(50))
				p.s.Resolutions = append(p.s.Resolutions, x)
			}
		}
		w.fillHolder(p)
		if record := p.s.Effect.Record; record != nil && record.Status != nil && record.Status.Holder != nil {
			h := record.Status.Holder
			for _, o := range seen(w, w.outcomes, fresh, func(o *flow.Outcome) bool {
				return o.ActionUID == h.UID && o.Name == "late."+flow.LockName(h.UID, o.ClaimID, h.Agent)
			}) {
				p.s.Late = &o
			}
		}
		return p
	}
	i := see(w, about.action, fresh)
	if i < 0 || about.action.all[i].Finished() {
		return nil
	}
	p.subject = about.action.name
	w.setAction(p, about.action, i, flow.Cached)
	a := p.s.Action.Action
	if e := w.effectOf(a); e != nil {
		if i := see(w, e, fresh); i >= 0 {
			w.setEffect(p, e, i, flow.Cached)
		}
	}
	p.s.Answers = flow.AnswersRead{Presence: flow.Cached, Answers: seen(w, w.approvals, fresh, ofApproval(a))}
	p.s.Claims = flow.ClaimsRead{Presence: flow.Cached, Claims: seen(w, w.claims, fresh, ofClaim(a))}
	if name := lockName(a); name != "" {
		for _, o := range seen(w, w.outcomes, fresh, func(o *flow.Outcome) bool { return o.Name == name }) {
			p.s.Lock = flow.OutcomeRead{Presence: flow.Cached, Outcome: &o}
		}
		for _, o := range seen(w, w.outcomes, fresh, func(o *flow.Outcome) bool { return o.Name == "late."+name }) {
			p.s.Late = &o
		}
	}
	w.fillHolder(p)
	return p
}

func ofApproval(a *flow.Action) func(*approval.Answer) bool {
	return func(x *approval.Answer) bool { return x.ActionUID == a.UID }
}

func ofClaim(a *flow.Action) func(*flow.Claim) bool {
	return func(x *flow.Claim) bool { return x.ActionUID == a.UID }
}

func lockName(a *flow.Action) string {
	claimID := a.ClaimID
	if a.Execution != nil {
		claimID = a.Execution.ClaimID
	}
	if claimID == "" {
		return ""
	}
	return flow.LockName(a.UID, claimID, a.Agent)
}

// fillHolder gives the holder as a cache has it. Caches hold unfinished actions only.
func (w *sim) fillHolder(p *pass) {
	if r := p.s.Effect.Record; r != nil && r.Status != nil && r.Status.Holder != nil {
		if h := w.action(r.Status.Holder.UID); h != nil {
			if i := see(w, h, p.fresh); i >= 0 && !h.all[i].Finished() {
				w.setHolder(p, h, i, flow.Cached)
			}
		}
	}
}

func (w *sim) setAction(p *pass, a *versions[flow.Action], i int, presence flow.Presence) {
	p.action, p.s.Action = i, flow.ActionRead{Presence: presence, Action: a.all[i]}
}

func (w *sim) setHolder(p *pass, a *versions[flow.Action], i int, presence flow.Presence) {
	p.holder, p.s.Holder = i, flow.ActionRead{Presence: presence, Action: a.all[i]}
}

func (w *sim) setEffect(p *pass, e *versions[effect.Record], i int, presence flow.Presence) {
	p.effect, p.s.Effect = i, flow.EffectRead{Presence: presence, Record: e.all[i]}
}

func (w *sim) world(p *pass) flow.World {
	world := aWorld()
	world.AdmissionSince, world.VerifiedSeq = w.since, int64(w.rng.Intn(len(w.entries)+1))
	if p != nil {
		if p.fresh || w.percent(30) {
			p.rules = len(w.rules) - 1
		}
		rule := w.rules[p.rules]
		world.Policies, world.Observe = policies()[rule.policy].set, rule.observe
		if rule.grants != nil {
			world.Required, world.Authority = true, rule.grants.set
		}
	}
	return world
}

// advance asks for the next step of a pass and does it. It gives when to look again, the zero time for never, and whether
// the pass is over.
func (w *sim) advance(p *pass) (again time.Time, over bool) {
	p.s.Now, p.s.World = w.clock, w.world(p)
	switch step := w.mutation.ask(w, p.s).(type) {
	case flow.Done:
		return time.Time{}, true
	case flow.Wait:
		return step.Until, true
	case flow.Read:
		w.say("  pass over %s reads %s %s", p.subject, step.Object, step.Name)
		w.read(p, step)
		return time.Time{}, false
	default:
		return time.Time{}, w.write(p, step)
	}
}

func (w *sim) read(p *pass, step flow.Read) {
	switch step.Object {
	case flow.TheAction:
		w.readAction(p)
	case flow.TheEffect:
		w.readEffect(p, step.Name)
	case flow.TheHolder:
		w.readHolder(p)
	case flow.TheAnswers:
		p.s.Answers = flow.AnswersRead{Presence: flow.Fresh, Answers: seen(w, w.approvals, true, ofApproval(p.s.Action.Action))}
		for i := range p.s.Answers.Answers {
			p.s.Answers.Answers[i].Entitlement = p.entitled[p.s.Answers.Answers[i].UID]
		}
	case flow.TheEntitlement:
		for i := range p.s.Answers.Answers {
			if a := &p.s.Answers.Answers[i]; a.UID == step.Name {
				a.Entitlement = approval.Entitled
				if w.unentitled[a.Approver] {
					w.happened["unentitled"]++
					a.Entitlement = approval.Unentitled
				}
				p.entitled[a.UID] = a.Entitlement
			}
		}
	case flow.TheClaims:
		p.s.Claims = flow.ClaimsRead{Presence: flow.Fresh, Claims: seen(w, w.claims, true, ofClaim(p.s.Action.Action))}
	case flow.TheLock:
		w.readLock(p)
	case flow.TheChain:
		p.s.Chain = flow.ChainRead{Read: true, Identity: step.Identity, Head: w.head()}
		for i, d := range w.documents {
			if d.Identity() == step.Identity && d.Seq > step.Floor {
				p.s.Chain.Found, p.s.Chain.FoundLink = &d, w.entries[i].Link()
				break
			}
		}
	case flow.TheKey:
		p.s.Key, p.others = flow.KeyRead{Read: true}, map[string]int{}
		for _, a := range w.actions {
			if !a.gone && !a.now().Finished() {
				p.s.Key.Actions = append(p.s.Key.Actions, *a.now())
				p.others[a.uid] = a.version()
			}
		}
		for _, d := range w.documents {
			if d.EffectName == step.Name {
				p.s.Key.Receipts = append(p.s.Key.Receipts, d)
			}
		}
	case flow.TheQuoted:
		quoted := flow.QuotedRead{Name: step.Name}
		for i := range w.entries {
			if receipt.Name("payments", w.entries[i].Seq) == step.Name {
				quoted.Entry = &w.entries[i]
			}
		}
		p.s.Quoted = append(p.s.Quoted, quoted)
	}
}

func (w *sim) readAction(p *pass) {
	a := w.action(p.s.Action.UID)
	if a.gone {
		p.s.Action.Presence = flow.Absent
		return
	}
	w.setAction(p, a, a.version(), flow.Fresh)
}

func (w *sim) readEffect(p *pass, name string) {
	e := w.effect(name)
	if e == nil {
		p.effect, p.s.Effect = -1, flow.EffectRead{Presence: flow.Absent}
	} else {
		w.setEffect(p, e, e.version(), flow.Fresh)
	}
	h, r := p.s.Holder.Action, p.s.Effect.Record
	if p.s.Holder.Presence == flow.Absent || h != nil && (r == nil || r.Status == nil || r.Status.Holder == nil || r.Status.Holder.UID != h.UID) {
		p.holder, p.s.Holder = -1, flow.ActionRead{}
	}
}

func (w *sim) readHolder(p *pass) {
	h := w.action(p.s.Effect.Record.Status.Holder.UID)
	if h.gone {
		p.holder, p.s.Holder = -1, flow.ActionRead{Presence: flow.Absent}
		return
	}
	w.setHolder(p, h, h.version(), flow.Fresh)
}

func (w *sim) readLock(p *pass) {
	p.s.Lock = flow.OutcomeRead{Presence: flow.Absent}
	if o := w.outcome(lockName(p.s.Action.Action)); o != nil {
		p.s.Lock = flow.OutcomeRead{Presence: flow.Fresh, Outcome: o.of}
	}
}

func (w *sim) head() receipt.Link {
	if len(w.entries) == 0 {
		return receipt.Start()
	}
	return w.entries[len(w.entries)-1].Link()
}

// write sends a write. It is answered and the pass goes on, or the pass is over: the answer was lost, the write is still
// on its way, or it is lost itself.
func (w *sim) write(p *pass, step flow.Step) (over bool) {
	request, answered := w.request(p, step)
	fate := w.rng.Intn(100)
	if p.fresh {
		fate = 0
	}
	switch {
	case fate < 75:
		w.say("  pass over %s: %s", p.subject, request.what)
		landed := request.land()
		if !landed {
			w.happened["conflict"]++
			w.say("    refused: it changed meanwhile, or exists")
		}
		answered(landed)
		return false
	case fate < 83:
		w.say("  pass over %s: %s; its answer is lost", p.subject, request.what)
		request.land()
	case fate < 94:
		w.say("  pass over %s: %s; it is still on its way", p.subject, request.what)
		w.pool = append(w.pool, request)
	default:
		w.say("  pass over %s: %s; it is lost", p.subject, request.what)
	}
	return true
}

func (w *sim) landLater() {
	if len(w.pool) == 0 {
		return
	}
	i := w.rng.Intn(len(w.pool))
	request := w.pool[i]
	w.pool = slices.Delete(w.pool, i, i+1)
	landed := request.land()
	w.say("late, %s: landed %t", request.what, landed)
	if landed {
		w.happened["landed late"]++
	}
}

// request is the write of a step, and what the shell does with the answer.
func (w *sim) request(p *pass, step flow.Step) (write, func(landed bool)) {
	switch step := step.(type) {
	case flow.WriteAction:
		return w.requestAction(p, step)
	case flow.WriteEffect:
		return w.requestEffect(p, step)
	case flow.DeclareLapse:
		name := flow.LockName(step.ActionUID, step.ClaimID, step.Proposer)
		return write{"lapse " + name, func() bool {
			w.happened["lapse"]++
			return w.create(flow.Outcome{Name: name, ActionUID: step.ActionUID, ClaimID: step.ClaimID, Result: flow.ReportUnknown, LeaseLapsed: true, Reporter: "operator"}, false)
		}}, func(bool) { w.readLock(p) }
	case flow.Append:
		return w.requestAppend(p, step)
	case flow.Judge:
		return write{fmt.Sprintf("judge %s: accepted %t %s", step.Name, step.Accepted, step.Reason), func() bool {
				w.judge(step)
				return true
			}}, func(bool) {
				for i := range p.s.Resolutions {
					p.s.Resolutions[i].Judged = p.s.Resolutions[i].Judged || p.s.Resolutions[i].UID == step.UID
				}
			}
	}
	panic(fmt.Sprintf("unknown step %T", step))
}

func (w *sim) requestAction(p *pass, step flow.WriteAction) (write, func(bool)) {
	object := w.action(step.UID)
	role, read := "action", p.action
	switch {
	case p.s.Action.Action != nil && p.s.Action.UID == step.UID:
	case p.s.Key.Read && hasKey(p.others, step.UID):
		role, read = "other", p.others[step.UID]
	default:
		role, read = "holder", p.holder
	}
	if step.Why == flow.WhyEnd && step.Status.Reason == decision.InProgress && p.s.Effect.Record != nil && p.s.Effect.Status != nil && p.s.Effect.Status.Holder.UID == step.UID {
		w.fail(invariantItself, "%s holds what it is blocked by", step.Name)
	}
	by := admitting{p.began, w.rules[p.rules], maps.Clone(p.entitled)}
	land := func() bool {
		if object.gone || object.version() != read && !w.mutation.unguarded[step.Why] {
			return false
		}
		old := object.now()
		next := *old
		next.Status = step.Status
		object.all = append(object.all, &next)
		w.happened[step.Why]++
		w.wroteAction(old, &next, step.Why, by)
		return true
	}
	answered := func(landed bool) {
		switch {
		case role == "action" && landed:
			w.setAction(p, object, object.version(), flow.Fresh)
		case role == "action":
			w.readAction(p)
		case role == "holder" && landed:
			w.setHolder(p, object, object.version(), flow.Fresh)
		case role == "holder":
			w.readHolder(p)
		case landed:
			p.others[step.UID] = object.version()
			for i := range p.s.Key.Actions {
				if p.s.Key.Actions[i].UID == step.UID {
					p.s.Key.Actions[i] = *object.now()
				}
			}
		default:
			p.s.Key = flow.KeyRead{}
		}
	}
	return write{fmt.Sprintf("%s %s: %s %s", step.Why, step.Name, step.Status.State, step.Status.Reason), land}, answered
}

func hasKey(m map[string]int, key string) bool {
	_, ok := m[key]
	return ok
}

func (w *sim) requestEffect(p *pass, step flow.WriteEffect) (write, func(bool)) {
	read, by := p.effect, ""
	if p.s.Action.Action != nil {
		by = p.s.Action.UID
	}
	land := func() bool {
		object := w.effect(step.Name)
		switch {
		case step.Create && object == nil:
			object = &versions[effect.Record]{name: step.Name, uid: w.uid("effect")}
			w.effects = append(w.effects, object)
		case step.Create && !w.mutation.unguarded[step.Why], object == nil, !step.Create && object.version() != read && !w.mutation.unguarded[step.Why]:
			return false
		}
		status := step.Status
		next := &effect.Record{Name: step.Name, UID: object.uid, Key: step.Key, Status: &status}
		var old *effect.Record
		if len(object.all) > 0 {
			old = object.now()
		}
		object.all = append(object.all, next)
		w.happened[step.Why]++
		w.wroteEffect(old, next, step.Why, by)
		return true
	}
	answered := func(landed bool) {
		if !landed {
			w.readEffect(p, step.Name)
			return
		}
		e := w.effect(step.Name)
		w.setEffect(p, e, e.version(), flow.Fresh)
	}
	return write{fmt.Sprintf("%s %s: %s, attempt %d, cause %q", step.Why, step.Name, step.Status.State, step.Status.Attempt, step.Status.Cause), land}, answered
}

func (w *sim) requestAppend(p *pass, step flow.Append) (write, func(bool)) {
	land := func() bool {
		head := w.head()
		if head != step.Head && !w.mutation.unguarded["append"] {
			return false
		}
		entry, err := step.Document.Entry(head)
		if err != nil {
			w.fail("I7 a receipt that nobody can read", "%v", err)
			return false
		}
		document, err := receipt.Parse(entry)
		if err != nil {
			w.fail("I7 a receipt that nobody can read", "%v", err)
			return false
		}
		w.entries, w.documents = append(w.entries, entry), append(w.documents, document)
		w.happened["append"]++
		return true
	}
	answered := func(landed bool) {
		p.s.Chain = flow.ChainRead{}
		if landed {
			d := w.documents[len(w.documents)-1]
			p.s.Chain = flow.ChainRead{Read: true, Identity: d.Identity(), Head: w.head(), Found: &d, FoundLink: w.head()}
		}
	}
	d := step.Document
	return write{fmt.Sprintf("append receipt %d of %s: %s %s", step.Head.Seq+1, d.Identity(), d.Result, d.Reason), land}, answered
}

func (w *sim) judge(step flow.Judge) {
	w.happened["judge"]++
	for _, r := range w.resolutions {
		if r.of.UID == step.UID && !r.judged {
			r.judged = true
			w.judged(r.of, step)
		}
	}
}

// recover ends a run: whatever is on its way is lost, no agent lives, one operator reads everything anew, and the clock
// goes on as long as anybody waits for it. Then everything has to be at rest.
func (w *sim) recover() {
	w.say("recovery: agents are dead, one operator reads anew")
	w.pool, w.passes = nil, nil
	for range 40 {
		before, due := w.changes(), time.Time{}
		var subjects []subject
		for _, a := range w.actions {
			subjects = append(subjects, subject{action: a})
		}
		for _, e := range w.effects {
			subjects = append(subjects, subject{effect: e})
		}
		for _, about := range subjects {
			p := w.begin(&about, true)
			for range 64 {
				if p == nil || w.violation != nil {
					break
				}
				again, over := w.advance(p)
				w.check()
				if over {
					if !again.IsZero() && (due.IsZero() || again.Before(due)) {
						due = again
					}
					break
				}
			}
		}
		w.step++
		switch {
		case w.violation != nil:
			return
		case w.changes() != before:
		case due.IsZero():
			w.checkAtRest()
			return
		default:
			w.clock = due.Add(time.Second)
			w.say("the clock goes on to %s", w.clock.Format(time.TimeOnly))
		}
	}
	w.fail(invariantRest, "it goes on for ever")
}

// changes counts all writes.
func (w *sim) changes() int {
	n := len(w.entries) + len(w.outcomes)
	for _, a := range w.actions {
		n += len(a.all)
	}
	for _, e := range w.effects {
		n += len(e.all)
	}
	for _, r := range w.resolutions {
		if r.judged {
			n++
		}
	}
	return n
}
