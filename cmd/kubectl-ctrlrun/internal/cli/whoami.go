package cli

import (
	"sort"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"

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
			return out.print(a, who, func() {
				t := a.fields()
				t.row("You", who.Username)
				t.row("Groups", strings.Join(who.Groups, ", "))
				t.row("Speaker", who.Speaker)
				t.row("Cluster", who.Cluster)
				t.row("Namespace", who.Namespace)
				t.row("You may", orNothing(who.May))
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
