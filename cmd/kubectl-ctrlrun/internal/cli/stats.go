package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/stats"
	"ctrlrun.dev/operator/records"
)

const statsLong = `Count how actions ended, from the receipts: by result, by reason, by action type or agent, and what people answered.

--since counts what finished from then on, inclusive. It takes a time with an offset, such as 2026-03-01T00:00:00Z, or how long
ago: 30m, 12h, 7d.

Actions that ran in observe mode are counted by what enforcing would have done: denied them, asked people, blocked them, or let
them run; and by how they ended.

Actions that wait have no receipt. They are counted apart, from the Actions themselves, and the effects that are ambiguous now
from the Effects. -o json prints the same numbers, as
ctrlrun.dev/stats/v1alpha1.`

const statsSchema = "ctrlrun.dev/stats/v1alpha1"

// statistics is the answer of stats.
type statistics struct {
	Schema string `json:"schema"`
	// Namespace that was counted; null with -A.
	Namespace *string    `json:"namespace"`
	Since     *time.Time `json:"since"`
	First     *time.Time `json:"firstFinishedTime"`
	Last      *time.Time `json:"lastFinishedTime"`
	stats.Report
	// Waiting: unfinished actions by state, now, whatever --since says; null if they are not visible.
	Waiting map[v1alpha1.ActionState]int64 `json:"waiting"`
	// AmbiguousEffects nobody has resolved, now, whatever --since says; null if they are not visible.
	AmbiguousEffects *int64 `json:"ambiguousEffects"`
}

func (a *app) statsCommand() *cobra.Command {
	var since, by string
	var everywhere bool
	var out outputFlag
	words := []string{string(stats.ByType), string(stats.ByAgent)}
	cmd := &cobra.Command{
		Use:     "stats",
		Short:   "Count how actions ended",
		Long:    statsLong,
		Example: "  kubectl ctrlrun stats --since 7d\n  kubectl ctrlrun stats -A --by agent -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			from, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			rows, err := oneOf("--by", by, words)
			if err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			where := listScope(s, everywhere)
			a.warnObserving(cmd.Context(), s, where)
			answer, err := a.stats(cmd.Context(), s, stats.Options{Since: from, By: stats.By(rows)}, where)
			if err != nil {
				return err
			}
			return out.print(a, answer, func() { a.printStats(answer, scope(s, everywhere)) })
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only what finished from then on: "+sinceForms)
	cmd.Flags().StringVar(&by, "by", string(stats.ByType), "what the table is by: "+strings.Join(words, ", "))
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "of all namespaces")
	out.addTo(cmd)
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const sinceForms = "a time with an offset such as 2026-03-01T00:00:00Z, or <n>m, <n>h, <n>d"

var agoForm = regexp.MustCompile(`^([0-9]{1,9})([mhd])$`)

// parseSince reads the value of --since; "" is the zero time, from which on everything counts.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	parts := agoForm.FindStringSubmatch(text)
	if parts == nil {
		return time.Time{}, exit.Errorf(exit.Usage, "--since %q is not a time: use %s", text, sinceForms)
	}
	// Nine digits fit, and in seconds even of days.
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return time.Time{}, exit.Errorf(exit.Usage, "--since %q: %w", text, err)
	}
	unit := map[string]int64{"m": 60, "h": 60 * 60, "d": 24 * 60 * 60}[parts[2]]
	return time.Unix(now.Unix()-n*unit, int64(now.Nanosecond())), nil
}

// listScope are the options of a list: of one namespace, or of all.
func listScope(s *session, everywhere bool) []kube.ListOption {
	if everywhere {
		return nil
	}
	return []kube.ListOption{kube.InNamespace(s.Namespace())}
}

// stats reads the receipts page by page, so that what is held does not grow with their number.
func (a *app) stats(ctx context.Context, s *session, options stats.Options, where []kube.ListOption) (*statistics, error) {
	if len(where) > 0 {
		if err := s.namespaceThere(ctx); err != nil {
			return nil, err
		}
	}
	counter := stats.New(options)
	var page v1alpha1.ReceiptList
	if err := s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			document, err := receipt.Parse(records.Entry(&page.Items[i]))
			if err != nil {
				return uninterpreted(&page.Items[i], err)
			}
			counter.Add(document)
		}
		return nil
	}, where...); err != nil {
		return nil, err
	}
	answer := &statistics{Schema: statsSchema, Since: orNil(options.Since), Report: counter.Report()}
	answer.First, answer.Last = orNil(answer.Report.First), orNil(answer.Report.Last)
	if len(where) > 0 {
		namespace := s.Namespace()
		answer.Namespace = &namespace
	}
	open, err := s.ambiguousEffects(ctx, where)
	switch {
	case err == nil:
		answer.AmbiguousEffects = &open
	case exit.Of(err) == exit.Refused:
		a.note("the effects are %s, so that nobody can say here how many are ambiguous now", notVisible)
	default:
		return nil, err
	}
	waiting, err := s.waiting(ctx, where)
	if exit.Of(err) == exit.Refused {
		a.note("the actions are %s, so that nobody can say here how many wait", notVisible)
		return answer, nil
	}
	answer.Waiting = waiting
	return answer, err
}

// uninterpreted is the error for a receipt that cannot be interpreted. An answer that leaves some out would be a wrong one.
func uninterpreted(r *v1alpha1.Receipt, err error) error {
	var parse *receipt.ParseError
	if errors.As(err, &parse) && (parse.Reason == receipt.UnknownSchema || parse.Reason == receipt.UnknownKind) {
		return exit.Errorf(exit.Failure, "namespace %s, %w\na newer version wrote it: use the kubectl-ctrlrun of that version", r.Namespace, err)
	}
	return exit.Errorf(exit.Failure, "namespace %s, %w\nsee kubectl ctrlrun receipts verify -n %s", r.Namespace, err, r.Namespace)
}

// waitingStates are the states of unfinished actions, in the order in which an action goes through them.
var waitingStates = []v1alpha1.ActionState{
	v1alpha1.ActionPending, v1alpha1.ActionAwaitingApproval, v1alpha1.ActionClaimable, v1alpha1.ActionAdmitted,
}

// waiting counts the actions that have not ended, by state.
func (s *session) waiting(ctx context.Context, where []kube.ListOption) (map[v1alpha1.ActionState]int64, error) {
	counts := map[v1alpha1.ActionState]int64{}
	for _, state := range waitingStates {
		counts[state] = 0
		var page v1alpha1.ActionList
		opts := append([]kube.ListOption{notCanary, kube.MatchingFields{"status.state": string(state)}}, where...)
		if err := s.eachPage(ctx, &page, func() error {
			counts[state] += int64(len(page.Items))
			return nil
		}, opts...); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// ambiguousEffects counts the effects that wait for somebody to find out.
func (s *session) ambiguousEffects(ctx context.Context, where []kube.ListOption) (int64, error) {
	var n int64
	var page v1alpha1.EffectList
	err := s.eachPage(ctx, &page, func() error {
		n += int64(len(page.Items))
		return nil
	}, append([]kube.ListOption{notCanary, kube.MatchingFields{"status.state": string(v1alpha1.EffectAmbiguous)}}, where...)...)
	return n, err
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (a *app) printStats(answer *statistics, where string) {
	a.println(displayLine(answer.period(where)))
	a.println()
	t := a.fields()
	t.row("Actions", fmt.Sprint(answer.Actions))
	for _, word := range answer.words() {
		t.row("  "+word, line(fmt.Sprint(answer.Results[word]), answer.reasons(word)))
	}
	answer.observedRows(t)
	t.row("Lost records", nonZero(answer.LostRecords))
	t.row("Resolutions", line(fmt.Sprint(answer.Resolutions.Committed+answer.Resolutions.NotExecuted),
		map[string]int64{"committed": answer.Resolutions.Committed, "not executed": answer.Resolutions.NotExecuted}))
	t.row("Ambiguous now", answer.ambiguousLine())
	approvals := answer.Approvals
	t.row("Approvals", fmt.Sprintf("%d granted, %d denied, %d expired, %d did not count", approvals.Granted, approvals.Denied, approvals.Expired, approvals.Invalidated))
	if waits := approvals.Seconds; waits != nil {
		t.row("Time to approve", fmt.Sprintf("median %s, 95%% within %s", span(waits.Median), span(waits.P95)))
	}
	t.flush()
	a.printStatsRows(answer)
	a.println()
	if answer.Observed.Actions > 0 {
		a.println("Observed actions ran, whatever enforcing would have done; what observe mode refuses too is denied or blocked above.")
	}
	a.println("Not counted: actions that have not ended, which have no receipt. " + answer.waitingLine())
}

// observedRows say what enforcing would have done with the actions that ran in observe mode.
func (s *statistics) observedRows(t fields) {
	o := s.Observed
	if o.Actions == 0 {
		return
	}
	of := func(share stats.Share) string {
		return line(fmt.Sprintf("%d of %d, %g%%", share.Actions, o.Actions, share.Percent), share.Reasons)
	}
	t.row("Would have run", fmt.Sprintf("%d of %d", o.WouldHaveRun, o.Actions))
	t.row("Would have been denied", of(o.WouldHaveBeenDenied))
	t.row("Would have needed approval", of(o.WouldHaveNeededApproval))
	t.row("Would have been blocked", of(o.WouldHaveBeenBlocked))
	t.row("Observed ended", line(fmt.Sprint(o.Actions), o.Executions))
	if n := o.Executions["ambiguous"]; n > 0 {
		t.row("Observed ambiguous", line(fmt.Sprint(n), o.Ambiguous))
	}
}

func (s *statistics) period(where string) string {
	text := "Receipts of " + where
	if s.Namespace == nil {
		text = "Receipts of all namespaces"
	}
	if s.Since != nil {
		text += " since " + s.Since.Format(time.RFC3339)
	}
	if s.First == nil {
		return text + ": none"
	}
	return fmt.Sprintf("%s: %d, finished from %s to %s", text, s.Receipts, s.First.Format(time.RFC3339), s.Last.Format(time.RFC3339))
}

// words are the results in the order of how an action may end; those this version has no order for come last.
func (s *statistics) words() []string {
	words := []string{"committed", "failed", "ambiguous", "denied", "expired", "blocked"}
	for _, word := range slices.Sorted(maps.Keys(s.Results)) {
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// reasons of a result.
func (s *statistics) reasons(word string) map[string]int64 {
	switch word {
	case "denied":
		return s.Denied
	case "expired":
		return s.Expired
	case "blocked":
		return s.Blocked
	case "ambiguous":
		return s.Ambiguous
	}
	return nil
}

// line is a number and what it is made of, the most first.
func line(total string, parts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(parts[b], parts[a]), cmp.Compare(a, b))
	})
	var texts []string
	for _, name := range names {
		if parts[name] > 0 {
			texts = append(texts, fmt.Sprintf("%s %d", name, parts[name]))
		}
	}
	if len(texts) == 0 {
		return total
	}
	return fmt.Sprintf("%s  (%s)", total, strings.Join(texts, ", "))
}

func nonZero(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func span(seconds float64) string {
	if seconds < 1 {
		return "1s"
	}
	return duration.HumanDuration(time.Duration(seconds * float64(time.Second)))
}

func (a *app) printStatsRows(answer *statistics) {
	if len(answer.Rows) == 0 {
		return
	}
	a.println()
	t := a.table(strings.ToUpper(string(answer.By)), "ACTIONS", "COMMITTED", "FAILED", "AMBIGUOUS", "DENIED", "EXPIRED", "BLOCKED", "OBSERVED")
	rows := answer.Rows
	if answer.Others != nil {
		rows = append(slices.Clone(rows), *answer.Others)
	}
	for _, row := range rows {
		t.row(row.Name, fmt.Sprint(row.Actions), fmt.Sprint(row.Committed), fmt.Sprint(row.Failed), fmt.Sprint(row.Ambiguous),
			fmt.Sprint(row.Denied), fmt.Sprint(row.Expired), fmt.Sprint(row.Blocked), fmt.Sprint(row.Observed))
	}
	t.flush()
}

// ambiguousLine tells what is open now from what once was.
func (s *statistics) ambiguousLine() string {
	if s.AmbiguousEffects == nil {
		return notVisible
	}
	text := count(int(*s.AmbiguousEffects), "effect")
	if *s.AmbiguousEffects > 0 {
		text += " to be resolved: kubectl ctrlrun effects --state Ambiguous"
	}
	return text
}

func (s *statistics) waitingLine() string {
	if s.Waiting == nil {
		return "How many there are is " + notVisible + "."
	}
	var total int64
	var parts []string
	for _, state := range waitingStates {
		if n := s.Waiting[state]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if total == 0 {
		return "There are none now."
	}
	return fmt.Sprintf("Now there are %d: %s.", total, strings.Join(parts, ", "))
}
