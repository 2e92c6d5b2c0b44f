package cli

import (
	"context"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// listing is the command line of actions and pending.
type listing struct {
	everywhere bool
	watch      bool
	state      string
	actionType string
	agent      string
	objects    *objectFlags
}

func (l *listing) addTo(cmd *cobra.Command) {
	l.objects = newObjectFlags()
	cmd.Flags().BoolVarP(&l.everywhere, "all-namespaces", "A", false, "of all namespaces")
	cmd.Flags().BoolVarP(&l.watch, "watch", "w", false, "go on and print every change")
	cmd.Flags().StringVar(&l.actionType, "type", "", "only this action type")
	cmd.Flags().StringVar(&l.agent, "agent", "", "only this agent")
	l.objects.addTo(cmd)
}

func (l *listing) options(s *session) []kube.ListOption {
	fields := kube.MatchingFields{}
	if l.state != "" {
		fields["status.state"] = l.state
	}
	if l.actionType != "" {
		fields["spec.actionType"] = l.actionType
	}
	if l.agent != "" {
		fields["spec.principal.agent"] = l.agent
	}
	opts := []kube.ListOption{fields, notCanary}
	if !l.everywhere {
		opts = append(opts, kube.InNamespace(s.Namespace()))
	}
	return opts
}

// notCanary leaves out what the operator only keeps to probe admission: it is nobody's action.
var notCanary = kube.MatchingLabelsSelector{Selector: notCanarySelector()}

func notCanarySelector() labels.Selector {
	// The requirement is a constant; it is refused only if the label's name is not one.
	absent, err := labels.NewRequirement(v1alpha1.CanaryLabel, selection.DoesNotExist, nil)
	if err != nil {
		panic(err)
	}
	return labels.NewSelector().Add(*absent)
}

// empty notes that a list is empty: of everything, or of what a filter lets through. A namespace that is not there is an error.
func (a *app) empty(ctx context.Context, s *session, everywhere, filtered bool, nothing string) error {
	if !everywhere {
		if err := s.namespaceThere(ctx); err != nil {
			return err
		}
	}
	if filtered {
		nothing = "none match"
	}
	a.note("%s in %s", nothing, scope(s, everywhere))
	return nil
}

// oneOf takes a word of a closed list in any case, or nothing: people type ambiguous.
func oneOf(what, word string, words []string) (string, error) {
	if word == "" {
		return "", nil
	}
	for _, known := range words {
		if strings.EqualFold(known, word) {
			return known, nil
		}
	}
	return "", exit.Errorf(exit.Usage, "unknown %s %q: use %s", what, word, strings.Join(words, ", "))
}

var actionStates = []string{
	"Pending", "AwaitingApproval", "Claimable", "Admitted", "Committed", "Failed", "Ambiguous", "Observed", "Denied", "Blocked", "Expired",
}

func (a *app) actionsCommand() *cobra.Command {
	l := &listing{}
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "List actions",
		Long:  "List actions that are not finished, and those that finished lately. Older ones are in the receipts.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if l.state, err = oneOf("state", l.state, actionStates); err != nil {
				return err
			}
			return a.listActions(cmd.Context(), l, l.state != "", "no actions")
		},
	}
	l.addTo(cmd)
	cmd.Flags().StringVar(&l.state, "state", "", "only in this state: "+strings.Join(actionStates, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(actionStates, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) pendingCommand() *cobra.Command {
	l := &listing{state: string(v1alpha1.ActionAwaitingApproval)}
	cmd := &cobra.Command{
		Use:     "pending",
		Short:   "List what waits for somebody's approval",
		Example: "  kubectl ctrlrun pending -A\n  kubectl ctrlrun pending -w",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listActions(cmd.Context(), l, false, "nothing waits for approval")
		},
	}
	l.addTo(cmd)
	return cmd
}

func (a *app) listActions(ctx context.Context, l *listing, filtered bool, nothing string) error {
	if err := l.objects.check(); err != nil {
		return err
	}
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var all v1alpha1.ActionList
	var page v1alpha1.ActionList
	if err := s.eachPage(ctx, &page, func() error {
		all.ListMeta = page.ListMeta
		all.Items = append(all.Items, page.Items...)
		return nil
	}, l.options(s)...); err != nil {
		return err
	}
	sort.SliceStable(all.Items, func(i, j int) bool {
		return all.Items[i].CreationTimestamp.Before(&all.Items[j].CreationTimestamp)
	})
	if !l.objects.table() {
		all.ListMeta = metav1.ListMeta{}
		return l.objects.object(a, s.kube.Scheme(), &all)
	}
	if len(all.Items) == 0 && !l.watch {
		return a.empty(ctx, s, l.everywhere, filtered || l.actionType != "" || l.agent != "", nothing)
	}
	t := a.table(l.header()...)
	for i := range all.Items {
		t.row(l.cells(&all.Items[i], string(all.Items[i].Status.State))...)
	}
	t.flush()
	if !l.watch {
		return nil
	}
	return a.watchActions(ctx, s, l, t, all.ResourceVersion)
}

func scope(s *session, everywhere bool) string {
	if everywhere {
		return "any namespace"
	}
	return "namespace " + s.Namespace()
}

func (l *listing) header() []string {
	header := []string{"NAME", "TYPE", "STATE", "REASON", "AGENT", "VOTES", "EXPIRES", "AGE"}
	if l.everywhere {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if l.objects.wide() {
		header = append(header, "HASH", "KEY")
	}
	return header
}

func (l *listing) cells(action *v1alpha1.Action, state string) []string {
	expires := "<none>"
	if t := expirationOf(action); t != nil && !action.Status.State.Terminal() {
		expires = until(t.Time)
	}
	cells := []string{
		action.Name, action.Spec.ActionType, state, orDash(action.Status.Reason), action.Spec.Principal.Agent,
		orDash(votes(action)), expires, ago(action.CreationTimestamp),
	}
	if l.everywhere {
		cells = append([]string{action.Namespace}, cells...)
	}
	if l.objects.wide() {
		key := ""
		if action.Status.Effect != nil {
			key = action.Status.Effect.Key
		}
		cells = append(cells, orDash(action.Status.ActionHash), orDash(key))
	}
	return cells
}

func expirationOf(action *v1alpha1.Action) *metav1.Time {
	if action.Status.ExpirationTime != nil {
		return action.Status.ExpirationTime
	}
	if action.Status.Approval != nil {
		return &action.Status.Approval.ExpirationTime
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// watchActions prints every change until it is interrupted. A watch that breaks off starts again where it was; if that is
// too long ago, from what there is now.
func (a *app) watchActions(ctx context.Context, s *session, l *listing, t table, version string) error {
	for ctx.Err() == nil {
		opts := append(l.options(s), &kube.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		events, err := s.kube.Watch(ctx, &v1alpha1.ActionList{}, opts...)
		if err != nil {
			return explain(err)
		}
		for event := range events.ResultChan() {
			action, ok := event.Object.(*v1alpha1.Action)
			if !ok {
				version = ""
				break
			}
			version = action.ResourceVersion
			state := string(action.Status.State)
			if event.Type == watch.Deleted {
				state = "(no longer here)"
			}
			t.row(l.cells(action, state)...)
			t.flush()
		}
		events.Stop()
		wait(ctx, time.Second)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
