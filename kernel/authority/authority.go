// Package authority answers who may propose what.
//
// A Grant, which a team keeps in Git, says that some principals may propose some actions, under limits. It never says
// whether the action is allowed: that is the policy's, and the stricter of the two counts. A Delegation hands a part of a
// grant on, or of another delegation, and only ever narrows: it has to be within its parent in every dimension, when it is
// judged at its creation and again whenever it is used, because the parent may have changed. What a parent limits and the
// delegation leaves out is refused, not inherited. A Revocation cuts a delegation and everything below it.
//
// A grant of type BreakGlass is an envelope: it lets nobody propose anything, and people whom admission lets pass may open
// it, which is a delegation with a reason and an early end.
//
// Nothing here reads a clock or an object. The shell turns objects into sources, unites them in a Set, and asks the Set.
// Every answer is independent of the order in which the sources were given.
package authority

import (
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/grammar"
)

// Kind is that of the object that carries authority.
type Kind string

const (
	KindGrant      Kind = "Grant"
	KindDelegation Kind = "Delegation"
)

// Ref names a grant or a delegation. The two have separate name spaces.
type Ref struct {
	Kind Kind
	Name string
}

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String is kind and name, such as Grant/head-of-finance. Where the first of several is named, it is the first by this
// text, code point by code point.
func (r Ref) String() string {
	if r.IsZero() {
		return ""
	}
	return string(r.Kind) + "/" + r.Name
}

func (r Ref) compare(o Ref) int { return strings.Compare(r.String(), o.String()) }

// Dimension is one of the ways in which a grant is limited.
type Dimension string

// The dimensions, in the order in which containment is looked at.
const (
	DimensionSubject      Dimension = "subject"
	DimensionActions      Dimension = "actions"
	DimensionResources    Dimension = "resources"
	DimensionConstraints  Dimension = "constraints"
	DimensionEnvironments Dimension = "environments"
	DimensionExpiration   Dimension = "expires_at"
)

// Dimensions are all of them, in the order in which containment is looked at.
func Dimensions() []Dimension {
	return []Dimension{DimensionSubject, DimensionActions, DimensionResources, DimensionConstraints, DimensionEnvironments, DimensionExpiration}
}

// Subject says whose proposals a grant is about. What is nil does not matter, save that one of the two is there.
type Subject struct {
	// Agent is a pattern for the agent; nil is any agent.
	Agent *grammar.Pattern
	// User is a pattern for the human on whose behalf the agent acts; nil is any, and none. If it is there, an agent
	// that acts for nobody does not match.
	User *grammar.Pattern
}

// Match reports whether p is such a principal.
func (s Subject) Match(p action.Principal) bool {
	if s.Agent != nil && !s.Agent.Match(p.Agent) {
		return false
	}
	return s.User == nil || p.User != nil && s.User.Match(*p.User)
}

// Type says what a grant is for.
type Type string

const (
	// Standard lets its subject propose.
	Standard Type = "Standard"
	// BreakGlass lets nobody propose; it is an envelope that can be opened by a delegation.
	BreakGlass Type = "BreakGlass"
)

// Grant is the content of a grant, or of a delegation. The zero Grant has no actions, so it is about nothing.
type Grant struct {
	Subject Subject
	// Actions are patterns, one of which the action's name matches.
	Actions []grammar.Pattern
	// Resources are patterns, one of which the resource matches; without any, every action matches, also one without
	// resource.
	Resources []grammar.Pattern
	// Constraints are conditions on the arguments, all of which hold.
	Constraints grammar.Conditions
	// Environments are exact names; without any, every environment matches.
	Environments []string
	// Expiration is the last moment at which it counts; nil is never.
	Expiration *time.Time
	// Delegable says that its subject may delegate. An envelope has false here, and counts as delegable all the same.
	Delegable bool
	Type      Type
	// MaxDuration is how long a delegation that opens an envelope may last from its creation; 0 for other grants.
	MaxDuration time.Duration
}

// expired reports whether g no longer counts. At the very moment it still does.
func (g *Grant) expired(now time.Time) bool { return g.Expiration != nil && now.After(*g.Expiration) }

// delegable says whether there may be delegations below g. That an envelope's are lawful is a rule of reading, not a value
// stored in it.
func (g *Grant) delegable() bool { return g.Delegable || g.Type == BreakGlass }

// mismatch is the first dimension of the shape of g that p is outside of; "" if g is about p. The shape is who, what,
// on what and where. The constraints and the expiration are not part of it: what fails there has a reason of its own.
func (g *Grant) mismatch(p action.Proposal) Dimension {
	switch {
	case !g.Subject.Match(p.Principal):
		return DimensionSubject
	case !anyMatch(g.Actions, p.Name):
		return DimensionActions
	case len(g.Resources) > 0 && (p.Resource == nil || !anyMatch(g.Resources, *p.Resource)):
		return DimensionResources
	case len(g.Environments) > 0 && !slices.Contains(g.Environments, p.Environment):
		return DimensionEnvironments
	}
	return ""
}

// Match reports whether g by itself lets p be proposed at now: its shape, its constraints and its expiration. What a
// delegation's parents say is the Set's to know.
func (g *Grant) Match(p action.Proposal, now time.Time) bool {
	return g.mismatch(p) == "" && !g.expired(now) && g.Constraints.Match(p.Arguments)
}

func anyMatch(patterns []grammar.Pattern, value string) bool {
	return slices.ContainsFunc(patterns, func(p grammar.Pattern) bool { return p.Match(value) })
}

// Delegation is the content of a delegation: a grant that somebody made out of a part of another one.
type Delegation struct {
	Grant
	Parent Ref
	// BreakGlass says that it opens an envelope, which is so exactly if its parent is one.
	BreakGlass bool
	// Reason is for people; whoever opens an envelope gives one.
	Reason string
	// Delegator is who made it, as the apiserver authenticated them.
	Delegator action.Principal
	// DelegatorExpires is the last moment of the delegator's credential; nil: they did not say.
	DelegatorExpires *time.Time
}

// Refusal is why a delegation was refused at its creation; "" if it was not. Its words and the reasons of evaluation have
// nothing in common.
type Refusal string

const (
	// Malformed: the content is not that of a delegation, so none of the other questions can be asked.
	Malformed Refusal = "malformed"
	// PrincipalExpired: the credential of whoever delegates is over.
	PrincipalExpired Refusal = "principal_expired"
	// UnknownParent: the parent is no valid Grant and no accepted Delegation.
	UnknownParent Refusal = "unknown_parent"
	// BreakGlassMismatch: it says that it opens an envelope and the parent is none, or the other way round.
	BreakGlassMismatch Refusal = "break_glass_mismatch"
	// ParentNotDelegable: the parent may not be delegated.
	ParentNotDelegable Refusal = "parent_not_delegable"
	// ParentNotValid: the parent, or something above it, is revoked, expired, gone, or no longer within its own parent.
	ParentNotValid Refusal = "parent_not_valid"
	// NotTheSubject: whoever delegates is not whom the parent is for.
	NotTheSubject Refusal = "not_the_subject"
	// MaxDepth: it would be further below its root than the settings allow.
	MaxDepth Refusal = "max_depth"
	// Containment: it is wider than its parent in the dimension that is named.
	Containment Refusal = "containment"
	// BreakGlassTooLong: it would keep an envelope open for longer than the envelope allows.
	BreakGlassTooLong Refusal = "break_glass_too_long"
)

// Refusals are all of them, in the order in which they are looked for.
func Refusals() []Refusal {
	return []Refusal{Malformed, PrincipalExpired, UnknownParent, BreakGlassMismatch, ParentNotDelegable, ParentNotValid, NotTheSubject, MaxDepth, Containment, BreakGlassTooLong}
}

// Condition is the CamelCase form a Kubernetes condition carries.
func (r Refusal) Condition() string { return decision.Reason(r).Condition() }
