package explore

import (
	"fmt"
	"slices"
	"strings"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// Options say how a scenario is explored, beside what it says itself.
type Options struct {
	// Depth and States bound the search further; 0: only as the scenario says.
	Depth, States int
	// Unguarded are writes, by their name in the protocol, that the apiserver takes whatever is there: a fault, to see it found.
	Unguarded map[string]bool
	// Progress is told of each finished depth. It may be nil.
	Progress func(Result)
}

// Result is what an exploration came to.
type Result struct {
	Scenario    string
	States      int
	Transitions int
	// Depth is how many events the longest explored order has.
	Depth int
	// Exhausted says that there is no further state, whatever the bounds.
	Exhausted bool
	// Recovered is from how many states everything was seen to finish: all that were found. Many have it in common.
	Recovered int
	// Reached is how often what happened, by the names of writes and the reasons of ends: a search that gets nowhere proves
	// nothing.
	Reached map[string]int
	// Asked is how many different snapshots Next was asked with.
	Asked     int
	Violation *Violation
	// Trace is how the violation comes about, a line for each event; writes are numbered.
	Trace []string
}

// explorer is one exploration.
type explorer struct {
	Scenario
	Options
	policies  []Policy
	persons   *approval.People
	rulesHash []string

	actions     table[flow.Action]
	records     table[effect.Record]
	answers     table[answerMade]
	claims      table[claimMade]
	outcomes    table[outcomeMade]
	resolutions table[flow.Resolution]
	documents   table[receipt.Document] // as Next gives them: not in a chain yet
	appended    map[receiptAsked]int32
	chains      chains
	versions    versions
	identities  index[receipt.Identity]
	quotes      index[string]
	steps       index[step]
	standings   index[standing]
	names       []string // of effects, each at its place
	hashes      map[string]string

	answered map[digest]int32
	begun    map[digest][]int32
	points   []int32
	rests    map[digest]bool

	// ask is flow.Next.
	ask func(flow.Snapshot) flow.Step

	violation *Violation
	reached   map[string]int
	// recording makes a recovery note its writes in story.
	recording bool
	story     []string
}

func newExplorer(scenario Scenario, options Options) (*explorer, error) {
	if err := scenario.check(); err != nil {
		return nil, err
	}
	x := &explorer{
		Scenario: scenario, Options: options, ask: flow.Next,
		chains: newChains(), appended: map[receiptAsked]int32{},
		versions: newVersions(), identities: newIndex[receipt.Identity](), quotes: newIndex[string](), steps: newIndex[step](), standings: newIndex[standing](),
		hashes: map[string]string{}, answered: map[digest]int32{}, begun: map[digest][]int32{}, rests: map[digest]bool{}, reached: map[string]int{},
	}
	if len(scenario.People) > 0 {
		x.persons = approval.NewPeople(scenario.People)
	}
	broken := func(err error) { x.fail(notModelled, "a value without JSON: %v", err) }
	x.actions, x.records, x.answers = newTable[flow.Action](broken), newTable[effect.Record](broken), newTable[answerMade](broken)
	x.claims, x.outcomes, x.resolutions = newTable[claimMade](broken), newTable[outcomeMade](broken), newTable[flow.Resolution](broken)
	x.documents = newTable[receipt.Document](broken)
	for i, p := range scenario.Policies {
		parsed, err := p.parsed(int64(i + 1))
		if err != nil {
			return nil, err
		}
		hash, err := flow.RulesHash(x.inForce(flow.World{Limits: x.limits(), Environment: "production"}, parsed))
		if err != nil {
			return nil, err
		}
		x.policies, x.rulesHash = append(x.policies, parsed), append(x.rulesHash, hash)
	}
	if x.names = x.effectNames(); len(x.names) > maxEffects {
		return nil, scenario.refuse("has %d effects, a state holds %d", len(x.names), maxEffects)
	}
	return x, nil
}

// effectNames are those of all effects that its actions can want.
func (x *explorer) effectNames() []string {
	var names []string
	for _, p := range x.policies {
		for i, spec := range x.Actions {
			a := spec.action(i, 0)
			proposal, err := proposed(&a)
			if err != nil {
				continue // it has no canonical form, so it never gets a key
			}
			e, err := p.set.Evaluate(proposal)
			if err != nil || e.EffectKey == nil {
				continue
			}
			if name := action.EffectName(*e.EffectKey); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// origin is the state with which a scenario begins.
func origin() state { return state{since: -3600000} }

// successors gives every state that can follow, and how, always in the same order. It stops at a violation.
func (x *explorer) successors(s *state, out emit) {
	n := s.underWay()
	for i := range n {
		x.goOn(s, i, out)
		if x.violation != nil {
			return
		}
	}
	if n < x.Passes {
		for _, id := range x.begin(s) {
			next := *s
			next.add(id)
			out(next, func() string {
				st := x.standings.get(id)
				step := x.steps.get(st.step)
				return "begins, before its next step: " + x.describe(&st.pass, &step)
			})
		}
		if x.violation != nil {
			return
		}
	}
	x.events(s, func(next state, what func() string) { out(x.settled(next), what) })
}

// settled is the state without passes whose write can never land.
func (x *explorer) settled(s state) state {
	if x.Conflicts {
		return s
	}
	for i := s.underWay() - 1; i >= 0; i-- {
		st := x.steps.get(x.standings.get(s.passes[i]).step)
		if st.kind != reads && !x.lands(&s, &st) {
			s = s.without(i)
		}
	}
	return s
}

// goOn lets the i-th pass under way do its step.
func (x *explorer) goOn(s *state, i int, out emit) {
	standing := x.standings.get(s.passes[i])
	p, st := standing.pass, x.steps.get(standing.step)
	world, what := s.without(i), ""
	switch {
	case st.kind == reads:
		p, what = x.read(s, p, &st), "goes on: "
	case x.lands(s, &st):
		world = x.land(world, &p, &st)
		out(x.settled(world), func() string { return "WRITE, and the pass is over: " + x.describe(&p, &st) })
		if x.violation != nil || x.Short {
			return
		}
		p, what = x.accepted(&world, p, &st), "WRITE: "
	case x.Conflicts && !x.Short:
		p, what = x.refused(s, p, &st), "refused: "
	default:
		return
	}
	x.points = nil
	x.run(&world, p)
	points := x.points
	x.points = nil
	for _, id := range points {
		next := world
		next.add(id)
		out(x.settled(next), func() string { return what + x.describe(&standing.pass, &st) })
	}
}

// found is how a state was found: from which one, as which of those that follow it.
type found struct{ from, nth int32 }

// Explore looks at every state of a scenario, nearest first, until there is none left, a bound is reached, or an invariant does
// not hold. It refuses a scenario that does not fit into a state, and gives up where Next answers what has no place in one.
func Explore(scenario Scenario, options Options) (Result, error) {
	x, err := newExplorer(scenario, options)
	if err != nil {
		return Result{}, err
	}
	return x.explore()
}

func smaller(a, b int) int {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}

func (x *explorer) explore() (Result, error) {
	r := x.search()
	if v := r.Violation; v != nil && v.Invariant == notModelled {
		return Result{}, x.refuse("cannot be explored: %s\n%s", v, strings.Join(r.Trace, "\n"))
	}
	return r, nil
}

func (x *explorer) search() Result {
	depths, states := smaller(x.Scenario.Depth, x.Options.Depth), smaller(x.Scenario.States, x.Options.States)
	first := origin()
	known := newSet()
	known.add(first.hash())
	history := []found{{-1, 0}}
	frontier, places := []state{first}, []int32{0}
	r := Result{Scenario: x.Name, States: 1}
	finish := func() Result {
		r.Recovered, r.Asked, r.Reached, r.Violation = len(x.rests), len(x.answered), x.reached, x.violation
		return r
	}
	for len(frontier) > 0 && (depths == 0 || r.Depth < depths) {
		var next []state
		var nextPlaces []int32
		for i := range frontier {
			nth := int32(0)
			x.successors(&frontier[i], func(s state, _ func() string) {
				nth++
				r.Transitions++
				if r.Trace != nil {
					return
				}
				if x.violation == nil {
					if !known.add(s.hash()) {
						return
					}
					x.check(&s)
				}
				if x.violation != nil {
					r.Trace = x.tell(history, places[i], nth)
					return
				}
				if x.recover(s); x.violation != nil {
					r.Trace = append(x.tell(history, places[i], nth), x.recovery(s)...)
					return
				}
				r.States++
				history = append(history, found{places[i], nth})
				next, nextPlaces = append(next, s), append(nextPlaces, int32(len(history)-1))
			})
			if x.violation != nil {
				if r.Trace == nil {
					r.Trace = x.tell(history, places[i], -1)
				}
				return finish()
			}
			if states > 0 && r.States >= states {
				r.Depth++
				return finish()
			}
		}
		if len(next) > 0 {
			r.Depth++
		}
		frontier, places = next, nextPlaces
		if x.Progress != nil {
			x.Progress(finish())
		}
	}
	r.Exhausted = len(frontier) == 0
	return finish()
}

// tell gives the way to a state, or, if nth is -1, to where one was left when something that follows it broke.
func (x *explorer) tell(history []found, from, nth int32) []string {
	violation := x.violation
	defer func() { x.violation = violation }()
	way := []int32{nth}
	for at := from; history[at].from >= 0; at = history[at].from {
		way = append(way, history[at].nth)
	}
	var lines []string
	s, writes := origin(), 0
	for i := len(way) - 1; i >= 0; i-- {
		n, line, next := int32(0), "", s
		x.violation = nil
		x.successors(&s, func(t state, what func() string) {
			if n++; n == way[i] {
				line, next = what(), t
			}
		})
		switch {
		case line == "":
			lines = append(lines, "   then: "+violation.String())
			continue
		case len(line) > 5 && line[:5] == "WRITE":
			writes++
			line = fmt.Sprintf("W%d%s", writes, line[5:])
		}
		lines = append(lines, fmt.Sprintf("%2d %s  %s", len(way)-i, at(s.clock).Format("15:04:05"), line))
		s = next
	}
	return lines
}

// recovery gives the writes of a recovery that went wrong.
func (x *explorer) recovery(s state) []string {
	violation := x.violation
	x.violation, x.recording, x.story = nil, true, nil
	x.recover(s)
	x.violation, x.recording = violation, false
	return append([]string{"   then everybody is dead but one operator, which sees everything as it is:"}, x.story...)
}
