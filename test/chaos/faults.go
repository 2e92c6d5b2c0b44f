package chaos

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/desk"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/proxy"
	"ctrlrun.dev/operator/test/testenv"
)

// mood is whether faults are injected.
type mood string

const (
	calm mood = "calm"
	// rough: requests fail.
	rough mood = "rough"
	// deadly: operators are killed and stopped at their writes, too.
	deadly mood = "deadly"
	// crashing: they are killed and stopped, and no request fails.
	crashing mood = "crashing"
)

// faults decides what goes wrong with each request. It is the Injector of the proxy.
type faults struct {
	*run

	mu     sync.Mutex
	mood   mood
	writer string // the operator that wrote last
}

func (f *faults) set(m mood) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mood = m
}

// are reports whether the mood is one of these.
func (f *faults) are(moods ...mood) bool { return slices.Contains(moods, f.now()) }

func (f *faults) now() mood {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mood
}

func (f *faults) wrote(operator string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writer = operator
}

// leader is the operator that wrote last.
func (f *faults) leader() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writer
}

// Inject implements proxy.Injector. Whatever goes wrong is on record before it does.
func (f *faults) Inject(_ context.Context, r proxy.Request) proxy.Fault {
	m := f.now()
	if m == calm {
		return proxy.Forward()
	}
	op := f.operators[r.Client]
	switch {
	case op == nil && m == crashing:
		return proxy.Forward()
	case op == nil:
		return f.toSpeaker(r)
	case r.Write() && r.Namespace == f.namespace:
		f.wrote(r.Client)
	}
	if (m == deadly || m == crashing) && r.Write() && r.Namespace == f.namespace {
		if c, found := f.crashes.take(r.Point); found {
			return f.crash(op, r, c)
		}
	}
	if m == crashing {
		return proxy.Forward()
	}
	if f.giveUp(r) {
		return f.recorded(r, "refuse", proxy.Refuse(http.StatusInternalServerError, 0), subject(r))
	}
	return f.toOperator(r)
}

// pauseOf is how long an operator stands still at a write: mostly a moment, sometimes longer than a pass may last.
func (f *faults) pauseOf(r proxy.Request) time.Duration {
	roll := f.dice.of("pause", r.Client, r.Point, r.N)
	if roll.IntN(5) == 0 {
		return between(roll, 11*time.Second, 14*time.Second)
	}
	return between(roll, 500*time.Millisecond, 3*time.Second)
}

// crash ends or stops an operator at a write, or has that done once the write is made. It explains nothing: whatever becomes of an operator, no attempt may be
// Ambiguous because of it.
func (f *faults) crash(op *operator, r proxy.Request, c crash) proxy.Fault {
	i := subject(r)
	i.Kind = "operator " + string(c.How) + " " + string(c.When)
	i.Point, i.Process = r.Point, r.Client
	if err := f.journal.Record(i); err != nil {
		f.crashes.missed(c)
		f.fail(err)
		return proxy.Forward()
	}
	pause := f.pauseOf(r)
	do := op.kill
	if c.How == stop {
		do = func() error { return op.pause(pause) }
	}
	switch {
	case c.When == afterWrite:
		return proxy.Forward().After(func(status int) { f.carryOut(c, status, do) })
	case c.How == kill:
		return proxy.Reset().Before(func() { f.carryOut(c, http.StatusOK, do) })
	}
	// It stands still with the write on its way, which lands when it goes on.
	f.carryOut(c, http.StatusOK, do)
	return proxy.Stall(pause)
}

// carryOut ends or stops an operator, unless the write before was not made.
func (f *faults) carryOut(c crash, status int, do func() error) {
	if status < 200 || status > 299 {
		f.crashes.missed(c)
		return
	}
	if err := do(); err != nil {
		f.crashes.missed(c)
		f.note(err)
		return
	}
	f.crashes.carriedOut(c)
}

// giveUp reports whether a request is the admission of an Action whose agent is about to give up. It is refused until the
// agent has: so an attempt is left that was reserved and never admitted.
func (f *faults) giveUp(r proxy.Request) bool {
	if r.Point != proxy.PointAdmit {
		return false
	}
	for _, p := range f.desk.InFlight("") {
		if p.Action == r.Name {
			_, item, found := f.desk.Find(func(known desk.Progress) bool { return known.Work == p.Work })
			return found && item.Patience == impatience
		}
	}
	return false
}

// share is how much of what is sent goes wrong, in percent.
const (
	shareOfWrites  = 8
	shareOfReads   = 2
	shareOfWatches = 6
)

// toOperator is what goes wrong with a request of an operator.
func (f *faults) toOperator(r proxy.Request) proxy.Fault {
	kind, fault, _ := f.draw(r)
	if kind == "" {
		return proxy.Forward()
	}
	return f.recorded(r, kind, fault, subject(r))
}

// toSpeaker is what goes wrong with a request of an agent or a person. It may keep an agent from reporting in time: then it
// is on record for the piece of work it was about, or, where that cannot be told, for all that the process has in hand.
func (f *faults) toSpeaker(r proxy.Request) proxy.Fault {
	kind, fault, holdUp := f.draw(r)
	if kind == "" {
		return proxy.Forward()
	}
	return f.recorded(r, kind, fault, f.hinders(r, holdUp)...)
}

func (f *faults) recorded(r proxy.Request, kind string, fault proxy.Fault, about ...judge.Injection) proxy.Fault {
	if len(about) == 0 {
		about = []judge.Injection{{}}
	}
	for i := range about {
		about[i].Kind, about[i].Point, about[i].Process = kind, r.Point, r.Client
	}
	if err := f.journal.Record(about...); err != nil {
		f.fail(err)
		return proxy.Forward()
	}
	return fault
}

// draw is what goes wrong with a request, if anything, and for how long it holds up who sent it. The SDK repeats what has
// no answer, at first after a tenth of a second and each time after twice as long: two seconds each cover that.
func (f *faults) draw(r proxy.Request) (kind string, fault proxy.Fault, holdUp time.Duration) {
	roll := f.dice.of("fault", r.Client, r.Point, r.N)
	x := roll.IntN(100)
	repeat := 2 * time.Second
	switch {
	case r.Verb == "watch" && x < shareOfWatches:
		after := between(roll, 100*time.Millisecond, 15*time.Second)
		if roll.IntN(2) == 0 {
			return "watch cut", proxy.Cut(after), repeat
		}
		return "watch torn off", proxy.Tear(after), repeat
	case r.Verb == "watch":
		return "", fault, 0
	case r.Write() && x < shareOfWrites:
		return f.drawWrite(r, roll.IntN(9), between(roll, 200*time.Millisecond, 5*time.Second), repeat)
	case !r.Write() && x < shareOfReads:
		return f.drawRead(roll.IntN(4), between(roll, 200*time.Millisecond, 3*time.Second), repeat)
	}
	return "", fault, 0
}

func (f *faults) drawWrite(r proxy.Request, which int, d, repeat time.Duration) (string, proxy.Fault, time.Duration) {
	switch which {
	case 0, 1:
		return "lost response", proxy.LoseResponse(), repeat
	case 2:
		return "late", proxy.Late(d), repeat
	case 7: // later than a pass may last
		return "late", proxy.Late(3 * d), repeat
	case 3:
		return "stall", proxy.Stall(d), d + repeat
	case 4:
		return "reset", proxy.Reset(), repeat
	case 5:
		return "429", proxy.Refuse(http.StatusTooManyRequests, time.Second), time.Second + repeat
	case 6:
		if r.Verb == "update" { // an apiserver gives no conflict for a create but "exists already", which would be a lie
			return "409", proxy.Refuse(http.StatusConflict, 0), repeat
		}
	}
	return "500", proxy.Refuse(http.StatusInternalServerError, 0), repeat
}

func (f *faults) drawRead(which int, d, repeat time.Duration) (string, proxy.Fault, time.Duration) {
	switch which {
	case 0:
		return "429", proxy.Refuse(http.StatusTooManyRequests, time.Second), time.Second + repeat
	case 1:
		return "stall", proxy.Stall(d), d + repeat
	case 2:
		return "reset", proxy.Reset(), repeat
	}
	return "500", proxy.Refuse(http.StatusInternalServerError, 0), repeat
}

// body is what is read of a request's body.
type body struct {
	Spec struct {
		ActionRef v1alpha1.ObjectReference `json:"actionRef"`
		Key       string                   `json:"key"`
		Arguments struct {
			Work string `json:"work"`
		} `json:"arguments"`
	} `json:"spec"`
	Status struct {
		Attempt int64 `json:"attempt"`
	} `json:"status"`
}

func bodyOf(r proxy.Request) body {
	var b body
	_ = json.Unmarshal(r.Body, &b) // what has no such fields names nothing
	return b
}

// subject is what a request of an operator is about, as far as it says so.
func subject(r proxy.Request) judge.Injection {
	b := bodyOf(r)
	i := judge.Injection{Namespace: r.Namespace, ActionUID: string(b.Spec.ActionRef.UID), EffectKey: b.Spec.Key, Attempt: b.Status.Attempt}
	if r.Resource == "actions" {
		i.Action = r.Name
	}
	return i
}

// lapse is the one cause to which it leads that an agent is held up.
var lapse = []v1alpha1.EffectCause{v1alpha1.CauseLeaseLapsed}

// names reports whether a request, such as a watch, is about one piece of work: by its Action, or by a statement about that.
func (f *faults) names(r proxy.Request, p desk.Progress) bool {
	if r.Name == "" || p.Action == "" {
		return false
	}
	switch r.Resource {
	case "actions":
		return r.Name == p.Action
	case "outcomes":
		return strings.HasPrefix(strings.TrimPrefix(r.Name, "late."), p.ActionUID+".")
	case "claims": // a second one has a number behind its name
		return slices.ContainsFunc(f.agentUsers, func(u testenv.User) bool {
			return strings.HasPrefix(r.Name+".", client.StatementName(p.Action, u.Name)+".")
		})
	}
	return false
}

// hinders is which pieces of work a request's fault holds up.
func (f *faults) hinders(r proxy.Request, holdUp time.Duration) []judge.Injection {
	if f.agents[r.Client] == nil {
		return nil
	}
	b := bodyOf(r)
	of := func(p desk.Progress) judge.Injection {
		return judge.Injection{Namespace: f.namespace, Work: p.Work, ActionUID: p.ActionUID, EffectKey: p.EffectKey, Attempt: p.Attempt, Causes: lapse, HoldUp: holdUp}
	}
	if b.Spec.Arguments.Work != "" {
		return []judge.Injection{of(desk.Progress{Work: b.Spec.Arguments.Work})}
	}
	uid := string(b.Spec.ActionRef.UID)
	about, _, known := f.desk.Find(func(p desk.Progress) bool {
		return p.Agent == r.Client && (uid != "" && p.ActionUID == uid || uid == "" && f.names(r, p))
	})
	if known {
		return []judge.Injection{of(about)}
	}
	var all []judge.Injection
	for _, p := range f.desk.InFlight(r.Client) {
		all = append(all, of(p))
	}
	return all
}
