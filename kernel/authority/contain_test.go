package authority_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/grammar"
)

var (
	cases = flag.Int("authority.cases", 1_000_000, "generated pairs of grants, three of which are one chain")
	sets  = flag.Int("authority.sets", 8_000, "generated sets that are compared with the reference")
	seed  = flag.Uint64("authority.seed", 20270301, "seed of the generated cases")
)

// pool is the material of generated grants: small, so that things are often within one another and often match.
type pool struct {
	agents, users, actions, resources patternPool
	conditions                        []grammar.Conditions
	// within are, for each of the conditions, those that are within it.
	within [][]int
}

type patternPool struct {
	list []grammar.Pattern
	// within are, for each pattern, those that are within it; matches are names that it matches.
	within  [][]int
	matches [][]string
	names   []string
	// literals are the patterns of one name, literalsWithin those of them within each pattern.
	literals       []int
	literalsWithin [][]int
}

func newPatterns(t testing.TB, kind grammar.PatternKind, names []string, texts ...string) patternPool {
	p := patternPool{names: names}
	for _, text := range texts {
		one, err := grammar.ParsePattern(kind, text)
		if err != nil {
			t.Fatal(err)
		}
		p.list = append(p.list, one)
	}
	for i, one := range p.list {
		if one.Literal() {
			p.literals = append(p.literals, i)
		}
	}
	for _, parent := range p.list {
		var within, literals []int
		for i, c := range p.list {
			if parent.Contains(c) {
				within = append(within, i)
				if c.Literal() {
					literals = append(literals, i)
				}
			}
		}
		p.within = append(p.within, within)
		p.literalsWithin = append(p.literalsWithin, literals)
		p.matches = append(p.matches, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !parent.Match(n) }))
	}
	return p
}

// names are all names of up to three segments.
func names(segments []string, separator string) []string {
	out := slices.Clone(segments)
	for _, a := range segments {
		for _, b := range segments {
			out = append(out, a+separator+b)
			for _, c := range segments {
				out = append(out, a+separator+b+separator+c)
			}
		}
	}
	return out
}

func newPool(t testing.TB) *pool {
	segments := []string{"", "a", "ab", "abc", "b"}
	subjects := []string{"*", "a", "a*", "ab", "ab*", "abc", "b"}
	p := &pool{
		agents: newPatterns(t, grammar.KindSubject, segments[1:], subjects...),
		users:  newPatterns(t, grammar.KindSubject, segments[1:], subjects...),
		actions: newPatterns(t, grammar.KindAction, names(segments, "."),
			"*", "**", "a", "a*", "ab", "b", "a.*", "a.**", "a.a", "a.a*", "a.ab", "a.b", "ab.**", "a*.a", "a*.*", "*.*", "a.*.b", "a.a.**", "a.a.a", "a.a.ab*", "b.**", "*.a"),
		resources: newPatterns(t, grammar.KindResource, names(segments, ":"), "*", "**", "a:*", "a:**", "a:a", "a:a*", "a:ab*", "a:ab", "b:*", "a:a:**", "a:b:b", "*:*", "*:a*"),
	}
	number := func(n int) []any { return []any{n, n + 1} }
	var mappings []map[string]any
	add := func(m map[string]any) { mappings = append(mappings, m) }
	for n := range 4 {
		for _, op := range []string{"lt", "lte", "gt", "gte", "eq", "neq"} {
			add(map[string]any{"n_" + op: n})
			add(map[string]any{"n_" + op: n, "c_in": []any{"x", "y"}})
			add(map[string]any{"n_" + op: n, "n_gte": 1})
		}
		add(map[string]any{"n_in": number(n)})
		add(map[string]any{"n_in": append(number(n), "1", true)})
		add(map[string]any{"n_in": number(n)[:1], "c_eq": "x"})
	}
	for _, v := range []any{"x", "y", true, []any{"x"}, nil, 1} {
		add(map[string]any{"c_eq": v})
		add(map[string]any{"c_neq": v})
		add(map[string]any{"c_in": []any{v, "x"}})
	}
	add(map[string]any{"c_in": []any{}})
	p.conditions = []grammar.Conditions{{}}
	for _, m := range mappings {
		c, err := grammar.ParseConditions(m)
		if err != nil {
			t.Fatal(err)
		}
		p.conditions = append(p.conditions, c)
	}
	for _, parent := range p.conditions {
		var within []int
		for i, c := range p.conditions {
			if parent.Contains(c) {
				within = append(within, i)
			}
		}
		p.within = append(p.within, within)
	}
	return p
}

// made is a grant with the material it is made of, so that another can be made within it.
type made struct {
	grant                    authority.Grant
	agent, user, conditions  int // -1 is none
	actions, resources, envs []int
}

var environmentNames = []string{"x", "y", "z"}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func (p *pool) random(r *rand.Rand) made {
	m := p.choose(r)
	m.build(p)
	return m
}

func (p *pool) choose(r *rand.Rand) made {
	m := made{user: -1, conditions: r.IntN(len(p.conditions))}
	if r.IntN(2) == 0 {
		m.user = r.IntN(len(p.users.list))
	}
	if r.IntN(3) == 0 {
		m.conditions = 0
	}
	for range 1 + r.IntN(3) {
		m.actions = append(m.actions, r.IntN(len(p.actions.list)))
	}
	if r.IntN(2) == 0 {
		for range 1 + r.IntN(2) {
			m.resources = append(m.resources, r.IntN(len(p.resources.list)))
		}
	}
	if r.IntN(2) == 0 {
		for range 1 + r.IntN(3) {
			m.envs = append(m.envs, r.IntN(len(environmentNames)))
		}
	}
	m.agent = r.IntN(len(p.agents.list))
	if r.IntN(5) == 0 && m.user >= 0 {
		m.agent = -1
	}
	if r.IntN(2) == 0 {
		m.grant.Expiration = moment(r.IntN(6))
	}
	return m
}

func moment(hours int) *time.Time {
	t := t0.Add(time.Duration(hours-2) * time.Hour)
	return &t
}

func (m *made) build(p *pool) {
	m.grant = authority.Grant{Type: authority.Standard, Constraints: p.conditions[m.conditions], Expiration: m.grant.Expiration}
	if m.agent >= 0 {
		m.grant.Subject.Agent = &p.agents.list[m.agent]
	}
	if m.user >= 0 {
		m.grant.Subject.User = &p.users.list[m.user]
	}
	for _, i := range m.actions {
		m.grant.Actions = append(m.grant.Actions, p.actions.list[i])
	}
	for _, i := range m.resources {
		m.grant.Resources = append(m.grant.Resources, p.resources.list[i])
	}
	for _, i := range m.envs {
		m.grant.Environments = append(m.grant.Environments, environmentNames[i])
	}
}

// narrower is a grant within m in most dimensions, and often in all.
func (p *pool) narrower(r *rand.Rand, m made) made {
	out := p.choose(r)
	const slip = 20
	if r.IntN(slip) > 0 {
		out.agent = pick(r, p.agents.literals)
	}
	if r.IntN(slip) > 0 {
		literals := p.users.literals
		if m.user >= 0 {
			literals = p.users.literalsWithin[m.user]
		}
		out.user = pick(r, literals)
		if m.user < 0 && r.IntN(2) == 0 {
			out.user = -1
		}
	}
	if r.IntN(slip) > 0 {
		out.actions = nil
		for range 1 + r.IntN(2) {
			out.actions = append(out.actions, pick(r, p.actions.within[pick(r, m.actions)]))
		}
	}
	if r.IntN(slip) > 0 && len(m.resources) > 0 {
		out.resources = []int{pick(r, p.resources.within[pick(r, m.resources)])}
	}
	if r.IntN(slip) > 0 {
		out.conditions = pick(r, p.within[m.conditions])
	}
	if r.IntN(slip) > 0 && len(m.envs) > 0 {
		out.envs = []int{pick(r, m.envs)}
	}
	e := out.grant.Expiration
	if m.grant.Expiration != nil && r.IntN(slip) > 0 && (e == nil || e.After(*m.grant.Expiration)) {
		e = m.grant.Expiration
	}
	out.grant.Expiration = e
	out.build(p)
	return out
}

var argumentValues = map[string][]any{
	"n": {canonical.Clone(0), canonical.Clone(1), canonical.Clone(2), canonical.Clone(3), canonical.Clone(4), "1", true},
	"c": {"x", "x", "y", true, []any{"x"}, nil, canonical.Clone(1)},
}

// proposal is one that m often matches.
func (p *pool) proposal(r *rand.Rand, m made) action.Proposal {
	out := action.Proposal{Name: pick(r, p.actions.names), Arguments: map[string]any{}, Environment: pick(r, environmentNames)}
	out.Principal.Agent = p.agent(r, m)
	if user := m.grant.Subject.User; user != nil && r.IntN(20) > 0 {
		name := pick(r, p.users.matches[m.user])
		out.Principal.User = &name
	} else if r.IntN(3) > 0 {
		name := pick(r, p.users.names)
		out.Principal.User = &name
	}
	if r.IntN(20) > 0 {
		out.Name = pick(r, p.actions.matches[pick(r, m.actions)])
	}
	if len(m.resources) > 0 && r.IntN(20) > 0 {
		name := pick(r, p.resources.matches[pick(r, m.resources)])
		out.Resource = &name
	} else if r.IntN(2) > 0 {
		name := pick(r, p.resources.names)
		out.Resource = &name
	}
	if len(m.envs) > 0 && r.IntN(20) > 0 {
		out.Environment = environmentNames[pick(r, m.envs)]
	}
	// A few tries find arguments within most constraints.
	for range 4 {
		for _, name := range []string{"n", "c"} {
			delete(out.Arguments, name)
			if r.IntN(8) > 0 {
				out.Arguments[name] = pick(r, argumentValues[name])
			}
		}
		if m.grant.Constraints.Match(out.Arguments) {
			break
		}
	}
	return out
}

// agent is one that m is for, most of the time.
func (p *pool) agent(r *rand.Rand, m made) string {
	if m.agent >= 0 && r.IntN(20) > 0 {
		return pick(r, p.agents.matches[m.agent])
	}
	return pick(r, p.agents.names)
}

// Containment is reflexive for whatever can be a child, transitive, and sound: whatever a child within its parent lets pass,
// the parent lets pass, were it for that agent. Which agent a child is for is all that a delegation may choose.
func TestContainmentProperties(t *testing.T) {
	p := newPool(t)
	var contained, chained, matched, matchedAll, refused int
	dimensions := map[authority.Dimension]int{}
	const workers = 2
	type tally struct {
		contained, chained, matched, matchedAll, refused int
		dimensions                                       map[authority.Dimension]int
		failure                                          string
	}
	results := make(chan tally, workers)
	for worker := range workers {
		go func() {
			r := rand.New(rand.NewPCG(*seed, uint64(worker)))
			c := tally{dimensions: map[authority.Dimension]int{}}
			fail := func(format string, args ...any) {
				if c.failure == "" {
					c.failure = fmt.Sprintf(format, args...)
				}
			}
			for range *cases / 3 / workers {
				a := p.random(r)
				b := p.narrower(r, a)
				d := p.narrower(r, b)
				concrete := func(g authority.Grant) bool {
					return g.Subject.Agent != nil && g.Subject.Agent.Literal() && (g.Subject.User == nil || g.Subject.User.Literal())
				}
				if dimension, ok := authority.Contains(b.grant, b.grant); ok != concrete(b.grant) {
					fail("a grant contains itself: %t in %q: %+v", ok, dimension, b.grant)
				}
				dimension, ab := authority.Contains(a.grant, b.grant)
				_, bd := authority.Contains(b.grant, d.grant)
				_, ad := authority.Contains(a.grant, d.grant)
				if ab != (dimension == "") {
					fail("contained %t in %q", ab, dimension)
				}
				for _, within := range [...]bool{ab, bd, ad} {
					if within {
						c.contained++
					} else {
						c.refused++
					}
				}
				if !ab {
					c.dimensions[dimension]++
				}
				if ab && bd {
					c.chained++
					if !ad {
						fail("not transitive:\n%+v\n%+v\n%+v", a.grant, b.grant, d.grant)
					}
				}
				q := p.proposal(r, d)
				now := t0.Add(time.Duration(r.IntN(4)-2) * time.Hour)
				if bd && d.grant.Match(q, now) {
					c.matched++
					lifted := q
					lifted.Principal.Agent = p.lift(b)
					if !b.grant.Match(lifted, now) {
						fail("not sound: %+v\nlets pass what\n%+v\ndoes not: %+v", d.grant, b.grant, q)
					}
					lifted.Principal.Agent = p.lift(a)
					if ab {
						c.matchedAll++
						if !a.grant.Match(lifted, now) {
							fail("not sound over two steps:\n%+v\n%+v\n%+v\n%+v", a.grant, b.grant, d.grant, q)
						}
					}
				}
			}
			results <- c
		}()
	}
	for range workers {
		c := <-results
		if c.failure != "" {
			t.Error(c.failure)
		}
		contained, chained, matched, matchedAll, refused = contained+c.contained, chained+c.chained, matched+c.matched, matchedAll+c.matchedAll, refused+c.refused
		for d, n := range c.dimensions {
			dimensions[d] += n
		}
	}
	t.Logf("%d pairs: %d contained, %d over two steps, %d refused, %d proposals matched below, %d over two steps; refused in %v", *cases, contained, chained, refused, matched, matchedAll, dimensions)
	// What is never generated is never tested.
	for name, n := range map[string]int{"contained pairs": contained / 3, "contained chains": chained, "matching proposals": matched, "matching proposals over two steps": matchedAll} {
		if n < *cases/30 {
			t.Errorf("of %d chains only %d are %s", *cases/3, n, name)
		}
	}
	for _, d := range authority.Dimensions() {
		if dimensions[d] < *cases/3000 {
			t.Errorf("of %d chains only %d are refused in %s", *cases/3, dimensions[d], d)
		}
	}
}

// lift is an agent that m is for.
func (p *pool) lift(m made) string {
	if m.agent < 0 {
		return "anybody"
	}
	return p.agents.matches[m.agent][0]
}

// On all names of the pool, containment of patterns is what it means, neither more nor less: nothing that could be handed on is
// refused for being hard to compare.
func TestPatternContainmentIsExact(t *testing.T) {
	p := newPool(t)
	for kind, pp := range map[string]patternPool{"agents": p.agents, "actions": p.actions, "resources": p.resources} {
		pairs := 0
		for i, parent := range pp.list {
			for j, c := range pp.list {
				subset := !slices.ContainsFunc(pp.matches[j], func(n string) bool { return !parent.Match(n) })
				contained := slices.Contains(pp.within[i], j)
				if contained {
					pairs++
				}
				if contained && !subset {
					t.Errorf("%s: %s is within %s, and is not", kind, c, parent)
				}
				if !contained && subset {
					t.Errorf("%s: %s is a subset of %s, and not within it", kind, c, parent)
				}
			}
		}
		if pairs < 2*len(pp.list) {
			t.Errorf("%s: only %d pairs are contained", kind, pairs)
		}
	}
}
