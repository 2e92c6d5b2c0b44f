package cli

import (
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

// identity is the answer of whoami.
type identity struct {
	Username  string   `json:"username"`
	UID       string   `json:"uid,omitempty"`
	Groups    []string `json:"groups,omitempty"`
	Speaker   string   `json:"speaker"`
	Cluster   string   `json:"cluster"`
	Namespace string   `json:"namespace"`
	May       []string `json:"may"`
	// Approve and Resolve are the action types one may answer about, as Roles name them: types, prefixes such as stripe.*, or *
	// for every one.
	Approve []string `json:"approve"`
	Resolve []string `json:"resolve"`
}

func (a *app) whoamiCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Say who the cluster takes you for, and what you may do",
		Long: "Say who the cluster takes you for. That name stands in everything you state; its short form, the speaker, is part of the\n" +
			"names of your statements.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			who := identity{
				Username: s.user.Username, UID: s.user.UID, Groups: s.user.Groups, Speaker: action.Speaker(s.user.Username),
				Cluster: s.cluster, Namespace: s.Namespace(), May: []string{},
			}
			seen := map[string]bool{}
			for _, verb := range rightVerbs {
				resource := rights[verb].statement
				if seen[resource] {
					continue
				}
				seen[resource] = true
				ok, err := s.may(cmd.Context(), authorizationv1.ResourceAttributes{Verb: "create", Resource: resource})
				if err != nil {
					return err
				}
				if ok {
					who.May = append(who.May, "create "+resource)
				}
			}
			sort.Strings(who.May)
			if err := a.answerable(cmd.Context(), s, &who); err != nil {
				return err
			}
			return out.print(a, who, func() {
				t := a.fields()
				t.row("You", who.Username)
				t.row("Groups", strings.Join(who.Groups, ", "))
				t.row("Speaker", who.Speaker)
				t.row("Cluster", who.Cluster)
				t.row("Namespace", who.Namespace)
				t.row("You may", orNothing(who.May))
				t.row("You may approve", typesText(who.Approve))
				t.row("You may resolve", typesText(who.Resolve))
				t.flush()
			})
		},
	}
	out.addTo(cmd)
	return cmd
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing of ctrlrun: ask for the role ctrlrun-agent, ctrlrun-approver or ctrlrun-viewer"
	}
	return strings.Join(list, ", ")
}

// answerable lists the action types whose actions one may approve and whose effects one may resolve. Roles name them, so they
// are read from the rules; to make an answer, one must be allowed to create it as well.
func (a *app) answerable(ctx context.Context, s *session, who *identity) error {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: s.Namespace()}}
	if err := s.kube.Create(ctx, review); err != nil {
		return explain(err)
	}
	if review.Status.Incomplete {
		a.note("the cluster does not list all rights: ask kubectl ctrlrun can-i for one of them")
	}
	who.Approve, who.Resolve = []string{}, []string{}
	if slices.Contains(who.May, "create "+rights["approve"].statement) {
		who.Approve = typesIn(review.Status.ResourceRules, rights["approve"].verb)
	}
	if slices.Contains(who.May, "create "+rights["resolve"].statement) {
		who.Resolve = typesIn(review.Status.ResourceRules, rights["resolve"].verb)
	}
	return nil
}

// typesIn are the action types that rules give a verb on.
func typesIn(rules []authorizationv1.ResourceRule, verb string) []string {
	names := map[string]bool{}
	for _, rule := range rules {
		if !has(rule.APIGroups, v1alpha1.GroupVersion.Group) || !has(rule.Resources, typesResource) || !has(rule.Verbs, verb) {
			continue
		}
		if len(rule.ResourceNames) == 0 {
			return []string{wildcard}
		}
		for _, name := range rule.ResourceNames {
			names[name] = true
		}
	}
	return append([]string{}, sortedKeys(names)...)
}

const wildcard = "*"

func typesText(types []string) string {
	if slices.Equal(types, []string{wildcard}) {
		return "every action type"
	}
	return strings.Join(types, ", ")
}
