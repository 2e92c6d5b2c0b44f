package explore

import (
	"fmt"
	"slices"
	"time"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// Scenario is a small world, what may happen in it, and how far it is followed.
type Scenario struct {
	Name string
	// About says what it is for.
	About string

	Actions  []Proposal
	Policies []Policy // in force one after the other
	Answers  []Answer // each is given at most once
	Ticks    []time.Duration
	// Retention is how long finished actions are kept; 0: for ever.
	Retention time.Duration

	Second      bool // a second process of the proposer claims as well
	GiveUp      bool // processes give up before they start
	NotExecuted bool // processes start and do not act
	Unknown     bool // processes report that they do not know
	Rival       bool // another agent claims, and takes the name of the lock
	Gap         bool // admission is away once, and people forge and delete meanwhile
	Drops       int32
	Resolutions []Resolution
	Executor    bool // the operator executes, with two workers
	// People are names of one person each.
	People [][]string
	// Unentitled is an approver whose right to approve is taken away once, and given back once.
	Unentitled string

	// Passes is how many are under way at once.
	Passes int
	// Stale is how many objects a pass sees otherwise than they are, when it begins.
	Stale int
	// Pauses lets the world move before each read but the first of a pass.
	Pauses bool
	// Short ends a pass with its write, answered or not: another one goes on. That is far fewer states.
	Short bool
	// Conflicts lets a pass go on after a refused write. Without it such a pass is over.
	Conflicts bool

	// Depth and States bound the search; 0: no bound.
	Depth  int
	States int
}

// Proposal is an action that an agent may propose.
type Proposal struct {
	Agent string
	// Claim says that the proposing process is there.
	Claim     bool
	Arguments string
	NotAfter  time.Duration
	// Expires is how long its agent's credential holds; 0: it does not say.
	Expires time.Duration
}

// Policy is one that is in force, with what holds beside it.
type Policy struct {
	Text     string
	Decision decision.Decision
	Required int
	// Resolutions is how many people have to say the same of an ambiguous effect; 0 is 1.
	Resolutions int
	// Authority is required unless it is nil.
	Authority *Authority
	// Observe: nothing is enforced.
	Observe bool
	set     *policy.Set
	granted *authority.Set
}

// Authority is who may propose. Lets says what that comes to for the agents of the scenario; Next is not asked for it.
type Authority struct {
	Lets        bool
	Grants      map[string]string // JSON by name
	Delegations []Delegation
	Revoked     []string // delegations
}

// Delegation is one, and whether it has its verdict, which is yes.
type Delegation struct {
	Name, Text string
	Accepted   bool
}

// Answer is what a person may say to an action. Wrong is what it names otherwise than it is: hash, key, type, or nothing.
type Answer struct {
	Action   int
	Approver string
	Denied   bool
	Wrong    string
}

// Resolution is what a person, erin if it does not say, may say of an ambiguous effect: the truth, unless they err, which
// they do only where others have to say the same. Wrong is what is wrong with it all the same: hash, self, evidence, or nothing.
type Resolution struct {
	By    string
	Errs  bool
	Wrong string
}

func (r Resolution) by() string {
	switch {
	case r.Wrong == "self":
		return alice
	case r.By == "":
		return erin
	}
	return r.By
}

// latest is how much time may pass in a scenario: what follows from it still fits into a state's milliseconds.
const latest = 7 * 24 * time.Hour

// check says why a scenario cannot be explored.
func (s Scenario) check() error {
	switch {
	case len(s.Actions) > maxActions:
		return s.refuse("has %d actions, a state holds %d", len(s.Actions), maxActions)
	case len(s.Answers) > maxAnswers:
		return s.refuse("has %d answers, a state holds %d", len(s.Answers), maxAnswers)
	case len(s.Resolutions) > maxResolutions:
		return s.refuse("has %d resolutions, a state holds %d", len(s.Resolutions), maxResolutions)
	case s.Passes > maxPasses:
		return s.refuse("has %d passes under way, a state holds %d", s.Passes, maxPasses)
	case len(s.Policies) == 0:
		return s.refuse("has no policy")
	}
	if s.Unentitled != "" && !slices.ContainsFunc(s.Answers, func(a Answer) bool { return a.Approver == s.Unentitled }) {
		return s.refuse("takes the right to approve from %s, who answers nothing", s.Unentitled)
	}
	for _, a := range s.Answers {
		if a.Action < 0 || a.Action >= len(s.Actions) {
			return s.refuse("has an answer to action %d, and %d actions", a.Action, len(s.Actions))
		}
		if !slices.Contains([]string{"", "hash", "key", "type"}, a.Wrong) {
			return s.refuse("has an answer that is wrong in its %s; it may be in hash, key or type", a.Wrong)
		}
	}
	for _, r := range s.Resolutions {
		if !slices.Contains([]string{"", "hash", "self", "evidence"}, r.Wrong) {
			return s.refuse("has a resolution that is wrong in its %s; it may be in hash, self or evidence", r.Wrong)
		}
	}
	times := append([]time.Duration{s.Retention}, s.Ticks...)
	for _, a := range s.Actions {
		times = append(times, a.NotAfter, a.Expires)
	}
	var total time.Duration
	for _, d := range times {
		if total += d; d < 0 || d > latest || total > latest {
			return s.refuse("takes longer than %s, or less than no time", latest)
		}
	}
	return nil
}

func (s Scenario) refuse(format string, args ...any) error {
	return fmt.Errorf("scenario %q "+format, append([]any{s.Name}, args...)...)
}

const (
	alice, bob        = "alice-bot", "bob-bot"
	carol, dave, erin = "carol", "dave", "erin"
	refund            = `{"amount":100,"payment_id":"txn_1"}`
)

func refunds(n int) []Proposal {
	var all []Proposal
	for range n {
		all = append(all, Proposal{Agent: alice, Claim: true, Arguments: refund})
	}
	return all
}

func allow() Policy {
	return Policy{Text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow"}}`, Decision: decision.Allow}
}

func allowWithoutKey() Policy {
	return Policy{Text: `{"stripe.refund":{"decision":"allow"}}`, Decision: decision.Allow}
}

func allowOnce() Policy {
	return Policy{Text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow","maxAttempts":1}}`, Decision: decision.Allow}
}

func allowOtherKey() Policy {
	return Policy{Text: `{"stripe.refund":{"effect":"refund2:{payment_id}","decision":"allow"}}`, Decision: decision.Allow}
}

func deny() Policy {
	return Policy{Text: `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"deny"}}`, Decision: decision.Deny}
}

func approve(people int) Policy {
	return Policy{Text: fmt.Sprintf(`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"approve","approvalsRequired":%d}}`, people), Decision: decision.Approve, Required: people}
}

func resolvedBy(people int) Policy {
	return Policy{Text: fmt.Sprintf(`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow","resolutionsRequired":%d}}`, people), Decision: decision.Allow, Resolutions: people}
}

// parsed is the policy as the kernel reads it. Its generation says later which one decided.
func (p Policy) parsed(generation int64) (Policy, error) {
	v, err := canonical.Parse([]byte(p.Text))
	if err != nil {
		return p, err
	}
	source, findings := policy.NewSource("refunds", "v1", generation, v)
	if policy.HasErrors(findings) {
		return p, fmt.Errorf("policy %s: %v", p.Text, findings)
	}
	p.set = policy.NewSet([]policy.Source{source}).InNamespace("payments")
	if p.Authority != nil {
		p.granted, err = p.Authority.parsed()
	}
	return p, err
}

// parsed is the authority as the kernel reads it.
func (a Authority) parsed() (*authority.Set, error) {
	d := authority.Documents{MaxDepth: authority.DefaultMaxDepth}
	for name, text := range a.Grants {
		v, err := canonical.Parse([]byte(text))
		if err != nil {
			return nil, err
		}
		source, findings := authority.NewGrantSource(name, name+"-uid", 1, v)
		if len(findings) > 0 {
			return nil, fmt.Errorf("grant %s: %v", text, findings)
		}
		d.Grants = append(d.Grants, source)
	}
	for _, one := range a.Delegations {
		v, err := canonical.Parse([]byte(one.Text))
		if err != nil {
			return nil, err
		}
		source, findings := authority.NewDelegationSource(one.Name, one.Name+"-uid", start.Add(-time.Minute), v)
		if len(findings) > 0 {
			return nil, fmt.Errorf("delegation %s: %v", one.Text, findings)
		}
		source.Accepted = one.Accepted
		d.Delegations = append(d.Delegations, source)
	}
	for _, name := range a.Revoked {
		d.Revocations = append(d.Revocations, authority.Revocation{Name: name + "." + erin, DelegationName: name, DelegationUID: name + "-uid", Revoker: erin})
	}
	return authority.NewSet(d), nil
}

// with is the policy under that authority.
func (p Policy) with(a Authority) Policy {
	p.Authority = &a
	return p
}

// observed is the policy in observe mode.
func (p Policy) observed() Policy {
	p.Observe = true
	return p
}

// granted lets the agents propose refunds of up to that amount.
func granted(most int) Authority {
	return Authority{Lets: most >= 100, Grants: map[string]string{
		"refunds": fmt.Sprintf(`{"subject":{"agent":"alice-*"},"actions":["stripe.refund"],"constraints":{"amount_lte":%d}}`, most),
	}}
}

// delegated hands a grant on twice: to whoever reads this, and from there to the agent.
func delegated(accepted bool, revoked ...string) Authority {
	return Authority{
		Lets:   accepted && len(revoked) == 0,
		Grants: map[string]string{"refunds": `{"subject":{"agent":"lead-bot"},"actions":["stripe.*"],"expirationTime":"2027-07-01T12:00:00Z","delegable":true}`},
		Delegations: []Delegation{
			{Name: "to-team", Accepted: true, Text: `{"subject":{"agent":"team-bot"},"actions":["stripe.*"],"expirationTime":"2027-07-01T12:00:00Z","delegable":true,"parentRef":{"kind":"Grant","name":"refunds"},"delegator":{"agent":"lead-bot"}}`},
			{Name: "to-alice", Accepted: accepted, Text: `{"subject":{"agent":"alice-bot"},"actions":["stripe.refund"],"expirationTime":"2027-07-01T12:00:00Z","parentRef":{"kind":"Delegation","name":"to-team"},"delegator":{"agent":"team-bot"}}`},
		},
		Revoked: revoked,
	}
}

const (
	lease        = 5 * time.Minute
	claimOver    = 40 * time.Second       // an action's own claim is too old
	leaseOver    = lease + 20*time.Second // one has lapsed
	questionOver = 1000 * time.Second     // so has an approval's
)

// wantedFor says of proposals for how long they are wanted, as those that the operator executes have to.
func wantedFor(d time.Duration, proposals []Proposal) []Proposal {
	for i := range proposals {
		proposals[i].NotAfter = d
	}
	return proposals
}
