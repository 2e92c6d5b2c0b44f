package flow_test

import (
	"flag"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// The simulation is a seeded random walk over a small world: an apiserver that keeps every version of every object,
// operators that are passes over flow.Next and nothing else, and agents, people and accidents around them. It does to the
// code that ships what a cluster does to it, and more often:
//
//   - a pass sees every object at any earlier version, each at another one, or not yet at all; only what it reads anew is
//     current, and only such a read says that something is absent
//   - a write is answered, or lands unanswered, or lands much later, or never; a pass may end at any point, and several
//     run at once, so that this is any number of operators, paused for as long as one likes
//   - two processes of one identity for each action, a rival, approvals that are valid, denied, forged, or one's own
//   - policies, grants and modes that change, a right to approve that comes and goes, clocks that jump, actions that are deleted, records that lose their status, an admission gap
//
// After every change the invariants are checked, and at the end of a run everything has to come to rest. All is derived
// from the seed: a run that failed is done again with its trace.

var (
	simulationRuns = flag.Int("simulation.runs", 2000, "seeds the simulation tries")
	simulationSeed = flag.Int64("simulation.seed", 0, "the one seed to try, with its trace")
)

func TestSimulation(t *testing.T) {
	if *simulationSeed != 0 {
		w := newSim(*simulationSeed, nil)
		w.tracing = true
		w.run()
		t.Logf("seed %d\n%s", w.seed, w.story())
		if w.violation != nil {
			t.Errorf("%s", w.violation)
		}
		return
	}
	total := map[string]int{}
	var mu sync.Mutex
	failed := explore(int64(*simulationRuns), nil, func(w *sim) bool {
		mu.Lock()
		defer mu.Unlock()
		for what, n := range w.happened {
			total[what] += n
		}
		return w.violation == nil
	})
	if failed != nil {
		t.Fatalf("seed %d: %s\n%s", failed.seed, failed.violation, failed.story())
	}
	// A walk that gets nowhere proves nothing.
	for _, what := range mustHappen {
		if total[what] < *simulationRuns/200 {
			t.Errorf("%q happened %d times in %d runs", what, total[what], *simulationRuns)
		}
	}
	t.Logf("%d runs: %v", *simulationRuns, total)
}

var mustHappen = []string{
	"pin", "wait", "claimable", "admit", "end", "finish", "reserve", "renew", "release", "settle", "lost", "late", "resolve", "resolved",
	"lapse", "append", "judge", "executed", "conflict", "landed late", "deleted", "dropped", "gap", "denied", "admitted by approval", "admitted by claim",
	"denied by authority", "admitted by authority", "observed", "observed without a reservation", "unentitled",
}

// explore runs the seeds from 1, on all processors. It gives the run of the smallest seed for which good was false, done
// once more with its trace.
func explore(runs int64, m *mutation, good func(*sim) bool) *sim {
	var next, bad atomic.Int64
	bad.Store(runs + 1)
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for seed := next.Add(1); seed <= runs && seed < bad.Load(); seed = next.Add(1) {
				w := newSim(seed, m)
				w.run()
				if good(w) {
					continue
				}
				for {
					now := bad.Load()
					if seed >= now || bad.CompareAndSwap(now, seed) {
						break
					}
				}
			}
		})
	}
	wait.Wait()
	if bad.Load() > runs {
		return nil
	}
	w := newSim(bad.Load(), m)
	w.tracing = true
	w.run()
	return w
}

const (
	alice, bob        = "alice-bot", "bob-bot"
	carol, dave, erin = "carol", "dave", "erin"
)

// versions is one object as the apiserver keeps it: every version it had, the last one being current.
type versions[T any] struct {
	name, uid string
	all       []*T
	gone      bool
}

func (v *versions[T]) now() *T      { return v.all[len(v.all)-1] }
func (v *versions[T]) version() int { return len(v.all) - 1 }

// said is an immutable statement.
type said[T any] struct {
	of     *T
	at     int // step of the walk
	forged bool
	gone   bool
	judged bool
}

// process is one process of an agent. It acts at the moment it starts, if it acts at all.
type process struct {
	name, agent, claimID string
	action               *versions[flow.Action]
	claimed              bool
	started, acted, dead bool
}

// write is a request on its way to the apiserver. land says whether it took effect; a guarded write whose object changed
// meanwhile never does.
type write struct {
	what string
	land func() bool
}

type sim struct {
	seed     int64
	rng      *rand.Rand
	mutation *mutation
	tracing  bool
	trace    []string
	happened map[string]int

	step  int
	uids  int
	clock time.Time
	since time.Time
	rules []rule // the last one is in force
	// unentitled are those who may not approve at present.
	unentitled map[string]bool

	actions     []*versions[flow.Action]
	effects     []*versions[effect.Record]
	approvals   []*said[approval.Answer]
	claims      []*said[flow.Claim]
	outcomes    []*said[flow.Outcome]
	resolutions []*said[flow.Resolution]
	entries     []receipt.Entry
	documents   []receipt.Document

	processes []*process
	passes    []*pass
	pool      []write

	executions map[string]int    // by effect key: what the remote counts
	admissions map[string]string // key and attempt: who was admitted
	dropped    bool
	deleted    map[string]bool // actions that were deleted in an admission gap

	violation *violation
}

type violation struct{ invariant, detail string }

func (v *violation) String() string { return v.invariant + ": " + v.detail }

func newSim(seed int64, m *mutation) *sim {
	if m == nil {
		m = &mutation{}
	}
	start := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	w := &sim{
		seed: seed, rng: rand.New(rand.NewSource(seed)), mutation: m, happened: map[string]int{},
		clock: start, since: start.Add(-time.Hour),
		executions: map[string]int{}, admissions: map[string]string{}, deleted: map[string]bool{}, unentitled: map[string]bool{},
	}
	w.rules = []rule{w.rule()}
	return w
}

// rule is what is in force: a policy by its index, who may propose, and whether it is enforced.
type rule struct {
	policy  int
	grants  *granted // nil: nothing is required
	observe bool
}

// granted are the agents that a set of grants and delegations lets propose.
type granted struct {
	set  *authority.Set
	lets []string
}

// grantings are what may be granted: everybody, alice alone, alice by a delegation, the same revoked, nobody.
var grantings = sync.OnceValue(func() []*granted {
	parse := func(text string) any {
		v, err := canonical.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		return v
	}
	grant := func(text string) authority.Documents {
		g, findings := authority.NewGrantSource("refunds", "refunds-uid", 1, parse(text))
		if len(findings) > 0 {
			panic(fmt.Sprint(findings))
		}
		return authority.Documents{MaxDepth: authority.DefaultMaxDepth, Grants: []authority.GrantSource{g}}
	}
	handed := grant(`{"subject":{"agent":"lead-bot"},"actions":["stripe.*"],"expirationTime":"2030-01-01T00:00:00Z","delegable":true}`)
	d, findings := authority.NewDelegationSource("to-alice", "to-alice-uid", noon.Add(-time.Hour), parse(`{"subject":{"agent":"alice-bot"},"actions":["stripe.refund"],"expirationTime":"2030-01-01T00:00:00Z","parentRef":{"kind":"Grant","name":"refunds"},"delegator":{"agent":"lead-bot"}}`))
	if len(findings) > 0 {
		panic(fmt.Sprint(findings))
	}
	d.Accepted = true
	handed.Delegations = []authority.DelegationSource{d}
	cut := handed
	cut.Revocations = []authority.Revocation{{Name: "to-alice." + erin, DelegationName: "to-alice", DelegationUID: "to-alice-uid", Revoker: erin}}
	return []*granted{
		{authority.NewSet(grant(`{"subject":{"agent":"*"},"actions":["stripe.*"]}`)), []string{alice, bob}},
		{authority.NewSet(grant(`{"subject":{"agent":"alice-bot"},"actions":["stripe.*"]}`)), []string{alice}},
		{authority.NewSet(handed), []string{alice}},
		{authority.NewSet(cut), nil},
		{authority.NewSet(grant(`{"subject":{"agent":"*"},"actions":["stripe.*"],"constraints":{"amount_lte":99}}`)), nil},
	}
})

func (w *sim) rule() rule {
	r := rule{policy: w.rng.Intn(len(policies())), observe: w.percent(10)}
	if w.percent(25) {
		r.grants = grantings()[w.rng.Intn(len(grantings()))]
	}
	return r
}

func (r rule) String() string {
	s := policies()[r.policy].text
	if r.grants != nil {
		s += fmt.Sprintf(", granted to %q", r.grants.lets)
	}
	if r.observe {
		s += ", observed"
	}
	return s
}

// say puts a line into the trace.
func (w *sim) say(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%3d  %s  %s", w.step, w.clock.Format("15:04:05"), fmt.Sprintf(format, args...)))
	}
}

func (w *sim) story() string { return strings.Join(w.trace, "\n") }

func (w *sim) fail(invariant, format string, args ...any) {
	if w.violation == nil {
		w.violation = &violation{invariant, fmt.Sprintf(format, args...)}
		w.say("VIOLATION %s", w.violation)
	}
}

func (w *sim) percent(n int) bool { return w.rng.Intn(100) < n }

func (w *sim) uid(kind string) string {
	w.uids++
	return fmt.Sprintf("%s-%d", kind, w.uids)
}

func pick[T any](w *sim, from []T, want func(T) bool) (out T, ok bool) {
	n := 0
	for _, x := range from {
		if want(x) {
			if n++; w.rng.Intn(n) == 0 {
				out, ok = x, true
			}
		}
	}
	return out, ok
}

// run is one walk, and the recovery after it.
func (w *sim) run() {
	w.propose()
	steps := 60 + w.rng.Intn(80)
	for w.step = 1; w.step <= steps && w.violation == nil; w.step++ {
		w.event()
		w.check()
	}
	if w.violation == nil {
		w.recover()
	}
}

// events are what can happen, each with how often it does.
var events = []struct {
	name   string
	weight int
	happen func(*sim)
}{
	{"an operator", 480, (*sim).operate},
	{"an agent", 150, (*sim).agents},
	{"a late write", 60, (*sim).landLater},
	{"an answer", 90, (*sim).answer},
	{"a proposal", 40, (*sim).propose},
	{"time", 60, (*sim).time},
	{"a policy", 25, (*sim).edit},
	{"a right", 10, (*sim).entitle},
	{"a rival", 15, (*sim).rival},
	{"a resolution", 70, (*sim).resolve},
	{"a deletion", 20, (*sim).retain},
	{"a loss", 5, (*sim).drop},
	{"a gap", 3, (*sim).gap},
	{"a crash", 10, (*sim).crash},
}

// event is one thing that happens in the world.
func (w *sim) event() {
	total := 0
	for _, e := range events {
		total += w.weight(e.name, e.weight)
	}
	n := w.rng.Intn(total)
	for _, e := range events {
		if n -= w.weight(e.name, e.weight); n < 0 {
			e.happen(w)
			return
		}
	}
}

func (w *sim) weight(name string, weight int) int {
	if w.mutation.often == name {
		return weight * 5
	}
	return weight
}

// --- agents and people -------------------------------------------------------------------------------------------------

func (w *sim) propose() {
	if len(w.actions) >= 4 {
		return
	}
	agent := alice
	if w.percent(25) {
		agent = bob
	}
	uid := w.uid("action")
	b := anAction("a" + uid[len("action-"):]).UID(uid).By(agent).At(w.clock).Args(`{"amount":100,"payment_id":"txn_1"}`)
	if w.percent(3) {
		b.Args(`{"amount":1.5,"payment_id":"txn_1"}`)
	}
	if w.percent(10) {
		b.NotAfter(w.clock.Add(time.Duration(w.rng.Intn(600)) * time.Second))
	}
	own := ""
	if w.percent(85) {
		own = w.uid("claim")
	}
	a := b.Claim(own).Obj()
	object := &versions[flow.Action]{name: a.Name, uid: a.UID, all: []*flow.Action{a}}
	w.actions = append(w.actions, object)
	w.processes = append(w.processes,
		&process{name: "first process", agent: agent, claimID: own, action: object, dead: own == ""},
		&process{name: "second process", agent: agent, claimID: w.uid("claim"), action: object})
	w.say("%s proposes %s, claim %q", agent, a.Name, own)
}

func (w *sim) agents() {
	alive := func(p *process) bool { return !p.dead }
	busy := func(p *process) bool {
		a := p.action.now()
		return alive(p) && (p.started || a.Execution != nil || a.ClaimableTime != nil && !p.claimed)
	}
	p, ok := pick(w, w.processes, busy)
	if !ok || w.percent(20) {
		p, ok = pick(w, w.processes, alive)
	}
	if ok {
		w.agent(p)
	}
}

// agent is one step of a process: it claims, starts, reports, gives up or dies.
func (w *sim) agent(p *process) {
	a := p.action.now()
	switch {
	case p.action.gone, w.percent(4):
		w.say("%s of %s dies", p.name, a.Name)
		p.dead = true
	case p.started:
		p.dead = true
		switch {
		case w.percent(15):
			w.say("%s of %s dies without a word", p.name, a.Name)
		case w.percent(15):
			w.report(p, flow.ReportUnknown)
		case p.acted:
			w.report(p, flow.ReportCommitted)
		default:
			w.report(p, flow.ReportNotExecuted)
		}
	case a.Execution != nil && a.Execution.ClaimID != p.claimID, a.EndedUnadmitted():
		p.dead = true
	case a.Execution != nil && w.clock.Before(a.Execution.Lease):
		p.started, p.acted = true, w.percent(75)
		w.say("%s of %s starts, acts: %t", p.name, a.Name, p.acted)
		if p.acted {
			w.happened["executed"]++
			if a.Reserves() || a.WouldHave == nil { // in observe mode it is executed though it could not have its effect
				w.executions[keyOf(a)]++
			}
		}
	case a.Execution != nil, w.percent(5):
		p.dead = true
		w.report(p, flow.ReportNotExecuted)
	case a.ClaimableTime != nil && !p.claimed:
		p.claimed = true
		w.claim(p.action, p.agent, p.claimID, false)
	}
}

func keyOf(a *flow.Action) string {
	if a.Effect == nil {
		return "no key of " + a.Name
	}
	return a.Effect.Key
}

func (w *sim) claim(object *versions[flow.Action], agent, claimID string, forged bool) {
	a := object.now()
	c := &flow.Claim{Name: w.uid("c"), UID: w.uid("claim-object"), ActionUID: a.UID, ClaimID: claimID, Claimant: agent, Created: w.clock}
	if a.ClaimableTime != nil {
		c.ClaimableTime = *a.ClaimableTime
	}
	w.say("%s claims %s with %s", agent, a.Name, claimID)
	w.claims = append(w.claims, &said[flow.Claim]{of: c, at: w.step, forged: forged})
}

// report creates the outcome of a process, or, if the lock is taken, leaves the late one.
func (w *sim) report(p *process, result flow.OutcomeResult) {
	a := p.action.now()
	name := flow.LockName(a.UID, p.claimID, p.agent)
	if w.outcome(name) != nil {
		name = "late." + name
	}
	w.create(flow.Outcome{Name: name, ActionUID: a.UID, ClaimID: p.claimID, Result: result, Reporter: p.agent}, false)
}

// create is the CREATE of an outcome; false: the name is taken.
func (w *sim) create(o flow.Outcome, forged bool) bool {
	if w.outcome(o.Name) != nil {
		return false
	}
	o.UID, o.Created = w.uid("outcome"), w.clock
	w.say("%s reports %s as %s, lapsed: %t", o.Reporter, o.Result, o.Name, o.LeaseLapsed)
	w.outcomes = append(w.outcomes, &said[flow.Outcome]{of: &o, at: w.step, forged: forged})
	return true
}

func (w *sim) outcome(name string) *said[flow.Outcome] {
	for _, o := range w.outcomes {
		if o.of.Name == name && !o.gone {
			return o
		}
	}
	return nil
}

// rival is another agent who claims and reports for an action that is not its own.
func (w *sim) rival() {
	object, ok := pick(w, w.actions, func(a *versions[flow.Action]) bool { return !a.gone && !a.now().State.Terminal() })
	if !ok {
		return
	}
	a := object.now()
	rival := bob
	if a.Agent == bob {
		rival = alice
	}
	if x := a.Execution; x != nil && w.percent(50) {
		w.create(flow.Outcome{Name: flow.LockName(a.UID, x.ClaimID, a.Agent), ActionUID: a.UID, ClaimID: x.ClaimID, Result: flow.ReportNotExecuted, Reporter: rival}, false)
		return
	}
	p := &process{name: "a rival's process", agent: rival, claimID: w.uid("claim"), action: object, claimed: true}
	w.processes = append(w.processes, p)
	w.claim(object, rival, p.claimID, false)
}

// answer is a person's approval: valid, a denial, of another hash, or by who asked.
func (w *sim) answer() {
	object, ok := pick(w, w.actions, func(a *versions[flow.Action]) bool { return !a.gone && a.now().Ask != nil && !a.now().Finished() })
	if !ok {
		return
	}
	a := object.now()
	x := anApproval(a).By([]string{carol, dave, carol, dave, a.Agent}[w.rng.Intn(5)]).At(w.clock)
	switch {
	case w.percent(25):
		x.Denied()
	case w.percent(15):
		x.Hash("sha256:another")
	}
	w.approve(x.Obj(), false)
}

func (w *sim) approve(x approval.Answer, forged bool) {
	x.UID = w.uid("approval")
	x.Name, x.Entitlement = x.UID, approval.Unchecked
	w.say("%s answers %s: approved %t, hash %s", x.Approver, x.ActionUID, x.Approved, x.Hash)
	w.approvals = append(w.approvals, &said[approval.Answer]{of: &x, at: w.step, forged: forged})
}

// resolve is a person who says what happened to an ambiguous effect: the truth, once no process can start any more. Some
// quote nothing that exists, are the agent, or give no evidence.
func (w *sim) resolve() {
	e, ok := pick(w, w.effects, func(e *versions[effect.Record]) bool { return e.now().Status != nil })
	if !ok || slices.ContainsFunc(w.resolutions, func(r *said[flow.Resolution]) bool { return !r.judged && !r.gone }) {
		return
	}
	record := e.now()
	var quoted *receipt.Document
	for i, d := range w.documents {
		if d.EffectKey == record.Key && d.Attempt == record.Status.Attempt && d.Result == "ambiguous" {
			quoted = &w.documents[i]
		}
	}
	if record.Status.State != effect.Ambiguous && w.percent(80) || quoted == nil {
		return
	}
	for _, p := range w.processes {
		if a := p.action.now(); !p.dead && !p.action.gone && a.Execution != nil && a.Execution.ClaimID == p.claimID && keyOf(a) == record.Key {
			return
		}
	}
	r := &flow.Resolution{
		Name: w.uid("r"), UID: w.uid("resolution"), EffectUID: record.UID, Attempt: record.Status.Attempt, ActionType: record.Status.ActionType,
		State: effect.Failed, QuotedName: receipt.Name("payments", quoted.Seq), QuotedHash: w.entries[quoted.Seq-1].Hash,
		Resolver: erin, Evidence: "https://provider.example/txn_1", Created: w.clock,
	}
	if w.executions[record.Key] > 0 {
		r.State = effect.Committed
	}
	switch {
	case w.percent(5):
		r.QuotedHash = "sha256:another"
	case w.percent(5) && record.Status.Holder != nil:
		r.Resolver = record.Status.Holder.Agent
	case w.percent(5):
		r.Evidence = ""
	}
	w.say("%s resolves attempt %d of %s: %s, quoting receipt %d", r.Resolver, r.Attempt, record.Key, r.State, quoted.Seq)
	w.resolutions = append(w.resolutions, &said[flow.Resolution]{of: r, at: w.step})
}

// --- accidents ---------------------------------------------------------------------------------------------------------

func (w *sim) time() {
	d := []time.Duration{1, 1, 7, 7, 40, 40, 320, 1000, 5000}[w.rng.Intn(9)] * time.Second
	w.clock = w.clock.Add(d)
	w.say("%s pass", d)
}

func (w *sim) edit() {
	r := w.rule()
	switch last := w.rules[len(w.rules)-1]; {
	case w.percent(30): // the policy stays, and what is beside it changes
		r.policy = last.policy
	case w.percent(30):
		r.grants, r.observe = last.grants, last.observe
	}
	w.rules = append(w.rules, r)
	w.say("the policy is now: %s", r)
}

// entitle takes somebody's right to approve, or gives it back.
func (w *sim) entitle() {
	who := []string{carol, dave}[w.rng.Intn(2)]
	w.unentitled[who] = !w.unentitled[who]
	w.say("%s may approve: %t", who, !w.unentitled[who])
}

// retain deletes a finished action whose time is over, its statements first.
func (w *sim) retain() {
	object, ok := pick(w, w.actions, func(a *versions[flow.Action]) bool { return !a.gone && a.now().Finished() })
	if !ok {
		return
	}
	a := object.now()
	view := flow.Retained{UID: a.UID, Finished: true, FinishTime: *a.FinishTime}
	if e := w.effectOf(a); e != nil && e.now().Status != nil && e.now().Status.Holder != nil {
		view.HolderUID, view.EffectAmbiguous = e.now().Status.Holder.UID, e.now().Status.State == effect.Ambiguous
	}
	if wait, keep := flow.Retain(view, w.world(nil), w.clock); wait > 0 || keep {
		return
	}
	w.happened["deleted"]++
	w.say("%s and its statements are deleted", a.Name)
	forget(w.approvals, func(x *approval.Answer) bool { return x.ActionUID == a.UID })
	forget(w.claims, func(x *flow.Claim) bool { return x.ActionUID == a.UID })
	forget(w.outcomes, func(x *flow.Outcome) bool { return x.ActionUID == a.UID })
	object.gone = true
}

func forget[T any](all []*said[T], which func(*T) bool) {
	for _, x := range all {
		x.gone = x.gone || which(x.of)
	}
}

func (w *sim) effectOf(a *flow.Action) *versions[effect.Record] {
	if a.Effect == nil {
		return nil
	}
	return w.effect(a.Effect.Name)
}

func (w *sim) effect(name string) *versions[effect.Record] {
	for _, e := range w.effects {
		if e.name == name {
			return e
		}
	}
	return nil
}

func (w *sim) action(uid string) *versions[flow.Action] {
	for _, a := range w.actions {
		if a.uid == uid {
			return a
		}
	}
	return nil
}

// drop is a restore that loses the status of a record.
func (w *sim) drop() {
	e, ok := pick(w, w.effects, func(e *versions[effect.Record]) bool { return e.now().Status != nil })
	if !ok || len(w.deleted) > 0 {
		return
	}
	w.dropped = true
	w.happened["dropped"]++
	w.say("the record of %s loses its status", e.now().Key)
	bare := *e.now()
	bare.Status = nil
	e.all = append(e.all, &bare)
}

func (w *sim) crash() {
	if len(w.passes) > 0 {
		w.say("the operators crash")
		w.passes = nil
	}
}

// gap is a time without admission, in which anybody who may create or delete can do it in any name. Operators noticed it.
func (w *sim) gap() {
	w.happened["gap"]++
	w.say("admission is away, and back")
	for _, object := range w.actions {
		a := object.now()
		if object.gone || a.Finished() {
			continue
		}
		if a.Ask != nil {
			w.approve(anApproval(a).By(carol).At(w.clock).Obj(), true)
		}
		if a.State == flow.Claimable {
			p := &process{name: "a forger's process", agent: a.Agent, claimID: w.uid("claim"), action: object, claimed: true}
			w.processes = append(w.processes, p)
			w.claim(object, a.Agent, p.claimID, true)
		}
		if x := a.Execution; x != nil && w.percent(50) {
			w.create(flow.Outcome{Name: flow.LockName(a.UID, x.ClaimID, a.Agent), ActionUID: a.UID, ClaimID: x.ClaimID, Result: flow.ReportNotExecuted, Reporter: a.Agent}, true)
		}
		if !w.dropped && w.percent(30) {
			w.say("somebody deletes %s", a.Name)
			object.gone, w.deleted[a.UID] = true, true
		}
	}
	w.since = w.clock
	w.clock = w.clock.Add(time.Second)
}
