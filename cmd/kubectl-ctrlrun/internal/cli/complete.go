package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/records"
)

// completionTimeout bounds how long pressing tab may take.
const completionTimeout = 3 * time.Second

type completer = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeActions offers the Actions in one of the states, or all.
func (a *app) completeActions(states ...v1alpha1.ActionState) completer {
	return a.completeNames(func(ctx context.Context, s *session) ([]string, error) {
		var list v1alpha1.ActionList
		if err := s.kube.List(ctx, &list, kube.InNamespace(s.Namespace()), kube.Limit(records.PageSize)); err != nil {
			return nil, err
		}
		var names []string
		for _, action := range list.Items {
			for _, state := range states {
				if action.Status.State == state {
					names = append(names, action.Name+"\t"+action.Spec.ActionType)
				}
			}
			if len(states) == 0 {
				names = append(names, action.Name+"\t"+string(action.Status.State))
			}
		}
		return names, nil
	})
}

// completeEffects offers the Effects in a state.
func (a *app) completeEffects(state v1alpha1.EffectState) completer {
	return a.completeNames(func(ctx context.Context, s *session) ([]string, error) {
		var list v1alpha1.EffectList
		err := s.kube.List(ctx, &list, kube.InNamespace(s.Namespace()), kube.MatchingFields{"status.state": string(state)}, kube.Limit(records.PageSize))
		var names []string
		for _, effect := range list.Items {
			names = append(names, effect.Name+"\t"+effect.Spec.Key)
		}
		return names, err
	})
}

// completeNames completes the first argument. Without a cluster there is nothing to offer, and nothing to say.
func (a *app) completeNames(names func(context.Context, *session) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		s, err := a.connect(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, err := names(ctx, s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var matching []string
		for _, name := range all {
			if strings.HasPrefix(name, toComplete) {
				matching = append(matching, displayLine(strings.SplitN(name, "\t", 2)[0])+"\t"+displayLine(strings.SplitN(name, "\t", 2)[1]))
			}
		}
		return matching, cobra.ShellCompDirectiveNoFileComp
	}
}
