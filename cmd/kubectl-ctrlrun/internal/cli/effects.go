package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

var effectStates = []string{"Reserved", "Executing", "Committed", "Failed", "Ambiguous"}

func (a *app) effectsCommand() *cobra.Command {
	var state string
	var everywhere bool
	objects := newObjectFlags()
	cmd := &cobra.Command{
		Use:   "effects",
		Short: "List effects and what is known of them",
		Long: "List effects and what is known of them.\n\n-o jsonl writes one line of JSON for each, with what one needs in order to find out what became of it: key, token, agent,\n" +
			"cause, receipt, arguments. Add result, reason and evidence to each line, and resolve -f takes them all at once.",
		Example: "  kubectl ctrlrun effects --state Ambiguous -A\n  kubectl ctrlrun effects --state Ambiguous -o jsonl > todo.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lines := *objects.print.OutputFormat == jsonlFormat
			if err := objects.check(); err != nil && !lines {
				return err
			}
			chosen, err := oneOf("state", state, effectStates)
			if err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			list, err := s.effects(cmd.Context(), chosen, everywhere)
			if err != nil {
				return err
			}
			if lines && len(list.Items) > 0 {
				return a.printEffectLines(cmd.Context(), s, list.Items)
			}
			if !lines && !objects.table() {
				return objects.object(a, s.kube.Scheme(), list)
			}
			if len(list.Items) == 0 {
				return a.empty(cmd.Context(), s, everywhere, chosen != "", "no effects")
			}
			a.printEffects(list.Items, everywhere, objects.wide())
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only in this state: "+strings.Join(effectStates, ", "))
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "of all namespaces")
	objects.addTo(cmd)
	cmd.Flags().Lookup("output").Usage += " Also jsonl: a line of JSON for each effect."
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(effectStates, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (s *session) effects(ctx context.Context, state string, everywhere bool) (*v1alpha1.EffectList, error) {
	opts := []kube.ListOption{notCanary}
	if state != "" {
		opts = append(opts, kube.MatchingFields{"status.state": state})
	}
	if !everywhere {
		opts = append(opts, kube.InNamespace(s.Namespace()))
	}
	all, page := &v1alpha1.EffectList{}, &v1alpha1.EffectList{}
	err := s.eachPage(ctx, page, func() error {
		all.Items = append(all.Items, page.Items...)
		return nil
	}, opts...)
	return all, err
}

func (a *app) printEffects(effects []v1alpha1.Effect, everywhere, wide bool) {
	header := []string{"NAME", "KEY", "STATE", "ATTEMPT", "CAUSE", "HOLDER", "SINCE", "AGE"}
	if everywhere {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if wide {
		header = append(header, "LATE OUTCOME", "TOKEN", "LEASE", "PEOPLE")
	}
	t := a.table(header...)
	for i := range effects {
		effect := &effects[i]
		status := effectStatus(effect)
		holder := ""
		if status.Holder != nil {
			holder = status.Holder.Name
		}
		cells := []string{
			effect.Name, effect.Spec.Key, string(status.State), fmt.Sprint(status.Attempt), orDash(string(status.Cause)),
			orDash(holder), ago(status.LastTransitionTime), ago(effect.CreationTimestamp),
		}
		if everywhere {
			cells = append([]string{effect.Namespace}, cells...)
		}
		if wide {
			late, lease, people := "", "", ""
			if n := status.ResolutionsRequired; n > 0 {
				people = fmt.Sprint(n)
			}
			if status.LateOutcomeRef != nil {
				late = string(status.LateOutcomeRef.Result)
			}
			if status.LeaseExpirationTime != nil {
				lease = status.LeaseExpirationTime.UTC().Format("2006-01-02T15:04:05Z")
			}
			cells = append(cells, orDash(late), orDash(status.Token), orDash(lease), orDash(people))
		}
		t.row(cells...)
	}
	t.flush()
}

// effectStatus is the record of an Effect. One whose record was lost counts as Ambiguous until the operator says so.
func effectStatus(effect *v1alpha1.Effect) v1alpha1.EffectStatus {
	if effect.Status == nil {
		return v1alpha1.EffectStatus{State: v1alpha1.EffectAmbiguous, Cause: v1alpha1.CauseStatusMissing}
	}
	return *effect.Status
}

// effectRows writes what is known of an Effect. The arguments of the attempt are not in it; "" if they are not known.
func effectRows(t fields, effect *v1alpha1.Effect, arguments string) {
	status := effectStatus(effect)
	t.row("Effect", effect.Name)
	t.row("Key", effect.Spec.Key)
	t.row("State", string(status.State)+", since "+ago(status.LastTransitionTime))
	t.row("Cause", string(status.Cause))
	t.row("Type", status.ActionType)
	t.row("Attempt", fmt.Sprint(status.Attempt))
	if holder := status.Holder; holder != nil {
		t.row("Holder", fmt.Sprintf("action %s of %s", holder.Name, holder.Agent))
	}
	t.row("Arguments", arguments)
	t.row("Token", status.Token)
	if status.LeaseExpirationTime != nil && slices.Contains([]v1alpha1.EffectState{v1alpha1.EffectReserved, v1alpha1.EffectExecuting}, status.State) {
		t.row("Lease ends", until(status.LeaseExpirationTime.Time))
	}
	if late := status.LateOutcomeRef; late != nil {
		t.row("Late outcome", fmt.Sprintf("%s: it came after the lease was declared over and settles nothing (%s)", late.Result, late.Name))
	}
	if n := status.ResolutionsRequired; n > 1 && status.Resolution == nil {
		t.row("Resolvers", fmt.Sprintf("%d people have to say the same, if nobody knows how it ended", n))
	}
	resolution := status.Resolution
	switch {
	case resolution == nil:
	case len(resolution.Resolvers) == 0:
		t.row("Resolved by", byObserver(resolution.Resolver, resolution.Observer))
		t.row("Reason", resolution.Reason)
		t.row("Evidence", resolution.Evidence)
	default:
		for _, one := range resolution.Resolvers {
			t.row("Resolved by", one.Resolver)
			t.row("Reason", one.Reason)
			t.row("Evidence", one.Evidence)
		}
	}
}
