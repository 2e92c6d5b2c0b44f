package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/grammar"
)

const grantsLong = `Show who may propose what in the namespace: every Grant, below it what was handed on, and how each stands.

--agent, --action and --user show what is about them, by the patterns of each, and what it hangs below. What a delegation
lets through is never more than what everything above it does. The state is what the operator goes by at every decision:

  in force, expired, revoked by whom, broken (its chain does not hold any more), refused REASON, no verdict yet, invalid,
  envelope (a grant of type BreakGlass that nobody opened), unreadable (then everything is denied to everybody)`

// grantsSchema names the answer of grants -o json: members are added, never renamed or removed.
const grantsSchema = "ctrlrun.dev/grants/v1alpha1"

type grantsAnswer struct {
	Schema    string `json:"schema"`
	Namespace string `json:"namespace"`
	// Authority is what the Settings say; null: they may not be read.
	Authority          *string `json:"authority"`
	MaxDelegationDepth *int    `json:"maxDelegationDepth"`
	// Unreadable is what makes everything be denied to everybody.
	Unreadable string      `json:"unreadable,omitempty"`
	Unread     []string    `json:"unread,omitempty"` // kinds that could not be read
	Items      []grantItem `json:"items"`
}

type grantItem struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	UID    string `json:"uid"`
	Parent string `json:"parent,omitempty"`
	Root   string `json:"root,omitempty"`
	Depth  int    `json:"depth"`
	// Matches says that it is about what was asked for, and not only above that.
	Matches            bool                  `json:"matches"`
	GrantType          string                `json:"grantType,omitempty"`
	MaxDurationSeconds int64                 `json:"maxDurationSeconds,omitempty"`
	Subject            v1alpha1.GrantSubject `json:"subject"`
	Actions            []string              `json:"actions"`
	Resources          []string              `json:"resources,omitempty"`
	Constraints        json.RawMessage       `json:"constraints,omitempty"`
	Environments       []string              `json:"environments,omitempty"`
	ExpirationTime     *time.Time            `json:"expirationTime,omitempty"`
	Delegable          bool                  `json:"delegable"`
	Delegator          *grantPrincipal       `json:"delegator,omitempty"`
	BreakGlass         bool                  `json:"breakGlass,omitempty"`
	Reason             string                `json:"reason,omitempty"`
	State              string                `json:"state"`
	// Until is when it ends by itself: its own expiration or that of what is above it, whichever is first.
	Until      *time.Time `json:"until,omitempty"`
	Refusal    string     `json:"refusal,omitempty"`
	RevokedBy  string     `json:"revokedBy,omitempty"`
	Revocation string     `json:"revocation,omitempty"`
	Message    string     `json:"message"`

	indent int
	text   string
	terms  v1alpha1.GrantTerms
}

type grantPrincipal struct {
	Agent string  `json:"agent"`
	User  *string `json:"user,omitempty"`
}

// grantFilter is what is asked for; empty: everything.
type grantFilter struct{ agent, action, user string }

func (a *app) grantsCommand() *cobra.Command {
	var filter grantFilter
	var format string
	cmd := &cobra.Command{
		Use:     "grants",
		Short:   "Show who may propose what, and what was handed on",
		Long:    grantsLong,
		Example: "  kubectl ctrlrun grants -n payments\n  kubectl ctrlrun grants --agent system:serviceaccount:payments:refund-agent --action stripe.refund",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wide := format == wideFormat
			out := outputFlag{format: format}
			if wide {
				out.format = ""
			}
			if err := out.check(); err != nil {
				return exit.Errorf(exit.Usage, "unknown output format %q: use json, yaml or wide", format)
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if err := s.namespaceThere(cmd.Context()); err != nil {
				return err
			}
			answer, ruled, err := s.grantsAnswer(cmd.Context(), filter)
			if err != nil {
				return err
			}
			for _, kind := range answer.Unread {
				a.note("you may not read %s: what was revoked is taken from the delegations' own status", kind)
			}
			return out.print(a, answer, func() { a.printGrants(answer, ruled, filter, wide) })
		},
	}
	cmd.Flags().StringVar(&filter.agent, "agent", "", "only what lets this agent propose")
	cmd.Flags().StringVar(&filter.action, "action", "", "only what is about this action type")
	cmd.Flags().StringVar(&filter.user, "user", "", "only what is for actions on behalf of this user")
	cmd.Flags().StringVarP(&format, "output", "o", "", "output format: json, yaml or wide (default: a table)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", wideFormat}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (s *session) grantsAnswer(ctx context.Context, filter grantFilter) (*grantsAnswer, ruling, error) {
	ruled, err := s.ruling(ctx)
	if err != nil {
		return nil, ruled, err
	}
	found, err := s.authorities(ctx, ruled.MaxDepth)
	if err != nil {
		return nil, ruled, err
	}
	answer := found.answer(filter, time.Now())
	answer.Namespace = s.Namespace()
	if !ruled.unread {
		mode := string(v1alpha1.AuthorityNotRequired)
		if ruled.Required {
			mode = string(v1alpha1.AuthorityRequired)
		}
		answer.Authority, answer.MaxDelegationDepth = &mode, &ruled.MaxDepth
	}
	return answer, ruled, nil
}

// answer is the tree: each after what it hangs below.
func (x *authorities) answer(filter grantFilter, now time.Time) *grantsAnswer {
	answer := &grantsAnswer{Schema: grantsSchema, Unread: x.unread, Items: []grantItem{}}
	verdicts := x.set.Standing(now)
	children := map[authority.Ref][]int{}
	wanted := map[authority.Ref]bool{}
	for i, v := range verdicts {
		children[x.parent(v.Ref)] = append(children[x.parent(v.Ref)], i)
		if state, _ := x.standing(v); state == standsUnreadable && answer.Unreadable == "" {
			answer.Unreadable = v.Ref.String()
		}
		if !filter.matches(x.terms(v.Ref)) {
			continue
		}
		for ref := v.Ref; !ref.IsZero() && !wanted[ref]; ref = x.parent(ref) {
			wanted[ref] = true
		}
	}
	shown := map[authority.Ref]bool{}
	var show func(i, indent int)
	show = func(i, indent int) {
		v := verdicts[i]
		if shown[v.Ref] || !wanted[v.Ref] {
			return
		}
		shown[v.Ref] = true
		item := x.item(v, filter)
		item.indent = indent
		answer.Items = append(answer.Items, item)
		for _, child := range children[v.Ref] {
			show(child, indent+1)
		}
	}
	// First those that hang below nothing that is there; then what is left, which is in cycles.
	for i, v := range verdicts {
		if !x.has(x.parent(v.Ref)) {
			show(i, 0)
		}
	}
	for i := range verdicts {
		show(i, 0)
	}
	return answer
}

func (x *authorities) item(v authority.Verdict, filter grantFilter) grantItem {
	terms := x.terms(v.Ref)
	item := grantItem{
		Kind: string(v.Ref.Kind), Name: v.Ref.Name, UID: v.UID, Parent: x.parent(v.Ref).String(), Root: v.Root.Name, Depth: v.Depth,
		Matches: filter.matches(terms), Subject: terms.Subject, Actions: terms.Actions, Resources: terms.Resources, Environments: terms.Environments,
		Delegable: terms.Delegable != nil && *terms.Delegable, BreakGlass: v.BreakGlass, Message: v.Message, terms: terms,
	}
	if item.Actions == nil {
		item.Actions = []string{}
	}
	if terms.Constraints != nil {
		item.Constraints = terms.Constraints.Raw
	}
	if terms.ExpirationTime != nil {
		item.ExpirationTime = orNil(terms.ExpirationTime.Time)
	}
	if v.Until != nil {
		item.Until = orNil(*v.Until)
	}
	item.State, item.text = x.standing(v)
	if item.State == standsRefused {
		item.Refusal = x.refusal(v.Ref)
	}
	if r := x.cut(v.Ref); r != nil {
		item.RevokedBy, item.Revocation = r.Spec.Revoker, r.Name
	}
	if o := x.grants[v.Ref.Name]; v.Ref.Kind == authority.KindGrant && o != nil {
		if o.Spec.GrantType != nil {
			item.GrantType = string(*o.Spec.GrantType)
		}
		if o.Spec.MaxDurationSeconds != nil {
			item.MaxDurationSeconds = *o.Spec.MaxDurationSeconds
		}
	}
	if o := x.delegations[v.Ref.Name]; v.Ref.Kind == authority.KindDelegation && o != nil {
		item.Delegator = &grantPrincipal{Agent: o.Spec.Delegator.Agent, User: o.Spec.Delegator.User}
		if o.Spec.Reason != nil {
			item.Reason = *o.Spec.Reason
		}
	}
	return item
}

// matches reports whether terms are about what was asked for. What cannot be read as a pattern is shown: nobody knows what it
// is about.
func (f grantFilter) matches(t v1alpha1.GrantTerms) bool {
	return (f.agent == "" || patternMatches(grammar.KindSubject, t.Subject.Agent, f.agent)) &&
		(f.user == "" || patternMatches(grammar.KindSubject, t.Subject.User, f.user)) &&
		(f.action == "" || slices.ContainsFunc(t.Actions, func(p string) bool { return patternMatches(grammar.KindAction, &p, f.action) }))
}

// patternMatches reports whether value is within a pattern; nil is any.
func patternMatches(kind grammar.PatternKind, text *string, value string) bool {
	if text == nil {
		return true
	}
	pattern, err := grammar.ParsePattern(kind, *text)
	return err != nil || pattern.Match(value)
}

func (a *app) printGrants(answer *grantsAnswer, ruled ruling, filter grantFilter, wide bool) {
	f := a.fields()
	f.row("Namespace", answer.Namespace)
	f.row("Authority", ruled.authorityText())
	if answer.Unreadable != "" {
		f.row("ATTENTION", answer.Unreadable+" cannot be used, so where authority is required everything is denied to everybody")
	}
	if len(answer.Items) == 0 {
		nothing := "there is no grant and no delegation"
		if filter != (grantFilter{}) {
			nothing = "no grant and no delegation is about that"
		}
		f.row("Grants", nothing)
		f.flush()
		return
	}
	f.gap()
	f.flush()
	header := []string{"NAME", "SUBJECT", "ACTIONS", "CONSTRAINTS", "ENVIRONMENTS", "EXPIRES", "STATE"}
	if wide {
		header = append(header, "RESOURCES", "DELEGABLE", "DELEGATOR")
	}
	t := a.table(header...)
	for _, item := range answer.Items {
		name := item.Kind + "/" + item.Name
		if item.indent == 0 && item.Parent != "" {
			name += " (below " + item.Parent + ")"
		}
		actions := strings.Join(item.Actions, ", ")
		if len(item.Resources) > 0 {
			actions += " on " + strings.Join(item.Resources, ", ")
		}
		expires := expiresText(item.terms)
		if item.MaxDurationSeconds > 0 {
			expires = fmt.Sprintf("%s after it is opened", time.Duration(item.MaxDurationSeconds)*time.Second)
		}
		row := []string{strings.Repeat("  ", item.indent) + name, subjectText(item.Subject), actions, constraintsText(item.terms), orAny(item.Environments), expires, item.text}
		if wide {
			delegator := "-"
			if item.Delegator != nil {
				delegator = principalText(item.Delegator.Agent, item.Delegator.User)
			}
			row = append(row, orAny(item.Resources), delegableText(item.terms), delegator)
		}
		t.row(row...)
	}
	t.flush()
}
