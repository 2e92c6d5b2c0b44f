package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

const inspectLong = `Show one action with its timeline, or one effect with all its attempts.

NAME is an action or an effect; action/NAME and effect/NAME say which, for both may have the same name. --key finds the
effect of a key. Of an action that is gone its receipt is shown, with the events a receipt has a time for.

-o json prints everything that is known of one action, ctrlrun.dev/inspection/v1alpha1: the action, its receipt, its effect,
every approval and the events. Of an effect it is the action that holds it. The other formats print the object as it is.`

func (a *app) inspectCommand() *cobra.Command {
	var key string
	objects := newObjectFlags()
	cmd := &cobra.Command{
		Use:               "inspect NAME | --key KEY",
		Short:             "Show one action, or an effect with all its attempts",
		Long:              inspectLong,
		Example:           "  kubectl ctrlrun inspect --key refund:txn_1 -n payments",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeActions(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (key != "") {
				return exit.Errorf(exit.Usage, "give the NAME of an action or effect, or --key KEY")
			}
			if err := objects.check(); err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if key != "" {
				err := a.inspectEffect(cmd.Context(), s, action.EffectName(key), objects)
				if isNoEffect(err) {
					return s.noEffect(cmd.Context(), action.EffectName(key), key)
				}
				return err
			}
			return a.inspectName(cmd.Context(), s, args[0], objects)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the effect key")
	objects.addTo(cmd)
	return cmd
}

const jsonFormat = "json"

func (a *app) inspectName(ctx context.Context, s *session, arg string, objects *objectFlags) error {
	kind, _, qualified := strings.Cut(arg, "/")
	name := objectName(arg)
	if qualified && strings.HasPrefix(kind, "eff") {
		if err := a.inspectEffect(ctx, s, name, objects); !isNoEffect(err) {
			return err
		}
		return s.noEffect(ctx, name, "")
	}
	object := &v1alpha1.Action{}
	err := s.kube.Get(ctx, s.key(name), object)
	if apierrors.IsNotFound(err) && !missingKind(err) {
		if !qualified {
			if err := a.inspectEffect(ctx, s, name, objects); !isNoEffect(err) {
				return err
			}
		}
		return a.inspectGone(ctx, s, name, objects)
	}
	if err != nil {
		return explain(err)
	}
	if objects.raw() {
		return objects.object(a, s.kube.Scheme(), object)
	}
	x, err := s.inspectAction(ctx, object)
	if err != nil {
		return err
	}
	if !objects.table() {
		return a.printInspection(s, x)
	}
	a.noteMissing(x)
	change := ""
	if object.Status.ReceiptRef == nil {
		change = changeRow(s.changeText(ctx, object))
	}
	a.printAction(x, change)
	a.printEvents(x.Events)
	if x.Effect == nil {
		return nil
	}
	a.println()
	return a.printEffect(ctx, s, x.Effect, object)
}

// raw reports whether the object is printed as it is.
func (o *objectFlags) raw() bool { return !o.table() && *o.print.OutputFormat != jsonFormat }

func (a *app) printInspection(s *session, x *inspection) error {
	x, err := x.forPrograms(s.kube.Scheme())
	if err != nil {
		return err
	}
	a.noteMissing(x)
	return (&outputFlag{format: jsonFormat}).print(a, x, nil)
}

// noteMissing says what is not in an inspection although it should be.
func (a *app) noteMissing(x *inspection) {
	for _, member := range x.Hidden {
		a.note("%s: %s", member, notVisible)
	}
	if name := x.lostReceipt(); name != "" {
		a.note("receipt %s, which the action names, is not there: see kubectl ctrlrun receipts verify -n %s", name, x.Action.Namespace)
	}
}

// inspectGone shows what the receipts remember of an Action that was deleted.
func (a *app) inspectGone(ctx context.Context, s *session, name string, objects *objectFlags) error {
	if err := s.namespaceThere(ctx); err != nil {
		return err
	}
	list := &v1alpha1.ReceiptList{}
	err := s.eachReceipt(ctx, func(r *v1alpha1.Receipt) error {
		list.Items = append(list.Items, *r)
		return nil
	}, kube.MatchingFields{"spec.actionName": name})
	switch {
	case err != nil:
		return exit.With(exit.Of(err), fmt.Errorf("there is no action and no effect %q in namespace %s; finished actions are deleted after a time, "+
			"and the receipts, which would tell, cannot be read: %w", name, s.Namespace(), err))
	case len(list.Items) == 0:
		return exit.Errorf(exit.Failure, "there is no action, no effect and no receipt of an action %q in namespace %s; for another namespace give -n NAMESPACE",
			name, s.Namespace())
	case objects.raw():
		return objects.object(a, s.kube.Scheme(), list)
	}
	last := lastEnd(list.Items)
	if last == nil {
		if !objects.table() {
			return exit.Errorf(exit.Failure, "action %q is gone, and no receipt of its end is in namespace %s", name, s.Namespace())
		}
		a.note("action %s is gone, and no receipt tells how it ended. What is known of it:", name)
		a.printReceipts(list.Items, receiptColumns{wide: objects.wide()})
		return nil
	}
	x, err := s.inspectReceipt(ctx, last)
	if err != nil {
		return err
	}
	if !objects.table() {
		return a.printInspection(s, x)
	}
	a.note("action %s is gone: finished actions are deleted after a time. Its receipts, and a reduced timeline made from them:", name)
	a.printReceipts(list.Items, receiptColumns{wide: objects.wide()})
	a.printGone(x)
	a.printEvents(x.Events)
	return nil
}

// printGone says of an Action that was deleted what the table of receipts has no column for.
func (a *app) printGone(x *inspection) {
	end := x.end()
	if end.Authority == nil && end.WouldHave == nil {
		return
	}
	a.println()
	t := a.fields()
	t.row("Authority", end.authorityText())
	t.row("Result", end.resultText())
	t.row("Would have", end.wouldHaveText())
	t.flush()
}

// lastEnd is the latest receipt of an action's end: a name can be given again once its Action is gone.
func lastEnd(receipts []v1alpha1.Receipt) *v1alpha1.Receipt {
	for i := range slices.Backward(receipts) {
		if receipts[i].Spec.Kind == receipt.KindAction {
			return &receipts[i]
		}
	}
	return nil
}

func (a *app) printAction(x *inspection, change string) {
	object := x.Action
	t := a.fields()
	actionRows(t, object, "", "")
	t.row("Change", change)
	t.row("State", string(object.Status.State))
	t.row("Reason", object.Status.Reason)
	t.row("Message", object.Status.Message)
	if resolved := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ResolvedCondition); resolved != nil && resolved.Status == metav1.ConditionTrue {
		t.row("Resolved", resolvedText(resolved))
	}
	approvalRows(t, x)
	if execution := object.Status.Execution; execution != nil {
		t.row("Executed by", fmt.Sprintf("%s, claim %s", execution.Mode, execution.ClaimID))
		t.row("Admitted", whenAndAgo(execution.AdmissionTime.Time))
		t.row("Lease until", leaseText(object, time.Now()))
		t.row("Token", execution.Token)
		for _, approval := range execution.Approvals {
			// What the admission spent is in the action itself, also for those who may not read approvals.
			t.row("Approved by", strings.TrimSpace(approval.Approver+" "+approval.Reason))
		}
	}
	if ref := object.Status.ReceiptRef; ref != nil {
		t.row("Receipt", fmt.Sprintf("%s %s", ref.Name, ref.Hash))
		t.row("Result", x.end().resultText())
		t.row("Would have", x.end().wouldHaveText())
	}
	t.flush()
}

// resolvedText is how the effect of an Action was resolved, in the words in which a person stated it.
func resolvedText(condition *metav1.Condition) string {
	return strings.Replace(condition.Message, ": "+string(v1alpha1.EffectFailed)+" (", ": "+notExecuted+" (", 1)
}

// noEffectError says that there is no Effect of a name. An Effect is never deleted, so nothing was ever admitted under its key.
type noEffectError struct{ name, key, namespace string }

func (e *noEffectError) Error() string {
	what := fmt.Sprintf("effect %q", e.name)
	if e.key != "" {
		what = fmt.Sprintf("effect with the key %q", e.key)
	}
	return fmt.Sprintf("there is no %s in namespace %s: nothing was ever admitted under it there; for another namespace give -n NAMESPACE, "+
		"and kubectl ctrlrun effects -A lists those of all", what, e.namespace)
}

// noEffect is the error for an effect that is not there, by the key if that is how it was named.
func (s *session) noEffect(ctx context.Context, name, key string) error {
	if err := s.namespaceThere(ctx); err != nil {
		return err
	}
	return &noEffectError{name: name, key: key, namespace: s.Namespace()}
}

func isNoEffect(err error) bool {
	var none *noEffectError
	return errors.As(err, &none)
}

func (a *app) inspectEffect(ctx context.Context, s *session, name string, objects *objectFlags) error {
	effect := &v1alpha1.Effect{}
	err := s.kube.Get(ctx, s.key(name), effect)
	if apierrors.IsNotFound(err) && !missingKind(err) {
		return &noEffectError{name: name, namespace: s.Namespace()}
	}
	if err != nil {
		return explain(err)
	}
	switch {
	case objects.raw():
		return objects.object(a, s.kube.Scheme(), runtime.Object(effect))
	case !objects.table():
		x, err := s.inspectHolder(ctx, effect)
		if err != nil {
			return err
		}
		return a.printInspection(s, x)
	}
	return a.printEffect(ctx, s, effect, nil)
}

// inspectHolder collects what is known of the action that holds an effect.
func (s *session) inspectHolder(ctx context.Context, effect *v1alpha1.Effect) (*inspection, error) {
	x := newInspection()
	if err := s.inspectedSaid(ctx, x, effect); err != nil {
		return nil, err
	}
	holder := effectStatus(effect).Holder
	if holder == nil {
		return x, nil
	}
	action := &v1alpha1.Action{}
	err := s.kube.Get(ctx, s.key(holder.Name), action)
	switch {
	case err == nil && action.UID == holder.UID:
		return s.inspectAction(ctx, action)
	case err != nil && (!apierrors.IsNotFound(err) || missingKind(err)):
		return x, x.hide("action", err)
	}
	receipts, err := s.receiptsOf(ctx, effect)
	if err != nil {
		return x, x.hide("receipt", err)
	}
	held := slices.DeleteFunc(receipts, func(r v1alpha1.Receipt) bool {
		return r.Spec.ActionName != holder.Name || r.Spec.Attempt != effectStatus(effect).Attempt
	})
	last := lastEnd(held)
	if last == nil {
		return x, nil
	}
	return s.inspectReceipt(ctx, last)
}

// printEffect shows an effect and everything that was ever tried for it: its own history, and the receipts, which remember
// the attempts that never began too. The arguments of shown, an Action or nil, stand above it already.
func (a *app) printEffect(ctx context.Context, s *session, effect *v1alpha1.Effect, shown *v1alpha1.Action) error {
	receipts, err := s.receiptsOf(ctx, effect)
	arguments := ""
	if holder := effectStatus(effect).Holder; shown == nil || holder == nil || holder.UID != shown.UID {
		arguments = s.argumentsOf(ctx, effect, receipts)
	}
	t := a.fields()
	effectRows(t, effect, arguments)
	t.flush()
	if history := effectStatus(effect).History; len(history) > 0 {
		a.println()
		h := a.table("ATTEMPT", "RESULT", "ACTION", "APPROVALS")
		for _, line := range history {
			h.row(fmt.Sprint(line.Attempt), line.Result, orDash(line.Action), orDash(strings.Join(line.Approvals, ", ")))
		}
		h.flush()
	}
	a.printSaid(ctx, s, effect)
	if err != nil {
		a.note("its receipts cannot be read: %s", oneLine(err.Error()))
		return nil
	}
	if len(receipts) > 0 {
		a.println()
		a.printReceipts(receipts, receiptColumns{})
	}
	if effectStatus(effect).State == v1alpha1.EffectAmbiguous {
		a.note("nobody knows whether it happened; find out, then run: %s", resolveCommandLine(effect.Name, effect.Namespace))
	}
	return nil
}

// printSaid shows who has said what of an effect that nobody knows of.
func (a *app) printSaid(ctx context.Context, s *session, effect *v1alpha1.Effect) {
	said, err := s.saidOf(ctx, effect)
	if err != nil {
		a.note("what people have said of it cannot be read: %s", oneLine(err.Error()))
	}
	if len(said) == 0 {
		return
	}
	a.println()
	t := a.table("RESOLVER", "SAYS", "COUNTS", "SINCE", "REASON", "EVIDENCE")
	for i := range said {
		spec := said[i].Spec
		t.row(byObserver(spec.Resolver, spec.Observer), statedWord(spec.Result), countsText(&said[i]), ago(said[i].CreationTimestamp), oneLine(spec.Reason), orDash(oneLine(spec.Evidence)))
	}
	t.flush()
	for i := range said {
		if c := meta.FindStatusCondition(said[i].Status.Conditions, v1alpha1.AcceptedCondition); c != nil && c.Status == metav1.ConditionUnknown {
			a.note("%s", oneLine(c.Message))
			return
		}
	}
}

// saidOf are the Resolutions of the present attempt of an effect that is Ambiguous, in the order in which they were made.
func (s *session) saidOf(ctx context.Context, effect *v1alpha1.Effect) ([]v1alpha1.Resolution, error) {
	status := effectStatus(effect)
	if status.State != v1alpha1.EffectAmbiguous {
		return nil, nil
	}
	var said []v1alpha1.Resolution
	var page v1alpha1.ResolutionList
	err := s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			if spec := page.Items[i].Spec; spec.Attempt == status.Attempt && spec.EffectRef.UID == effect.UID {
				said = append(said, *page.Items[i].DeepCopy())
			}
		}
		return nil
	}, kube.InNamespace(effect.Namespace), kube.MatchingFields{"spec.effectRef.name": effect.Name})
	slices.SortStableFunc(said, func(a, b v1alpha1.Resolution) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return said, err
}

// countsText is whether a Resolution counts.
func countsText(r *v1alpha1.Resolution) string {
	switch c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.AcceptedCondition); {
	case c == nil:
		return "not judged yet"
	case c.Status == metav1.ConditionUnknown:
		return "with others: " + c.Reason
	case c.Status == metav1.ConditionFalse:
		return "no: " + c.Reason
	}
	return "yes"
}

// saidText is what a Resolution says, on one line.
func saidText(r *v1alpha1.Resolution) string {
	text := statedWord(r.Spec.Result) + ": " + oneLine(r.Spec.Reason)
	if counts := countsText(r); strings.HasPrefix(counts, "no: ") {
		text += " (does not count: " + strings.TrimPrefix(counts, "no: ") + ")"
	}
	return text
}

// argumentsOf are those of the present attempt of an effect, laid out for reading: of the Action that holds it, or if that is
// gone, of a receipt of the attempt. "" if neither can be read.
func (s *session) argumentsOf(ctx context.Context, effect *v1alpha1.Effect, receipts []v1alpha1.Receipt) string {
	status := effectStatus(effect)
	if holder := status.Holder; holder != nil {
		object := &v1alpha1.Action{}
		if err := s.kube.Get(ctx, kube.ObjectKey{Namespace: effect.Namespace, Name: holder.Name}, object); err == nil && object.UID == holder.UID {
			return prettyJSON(object.Spec.Arguments.Raw)
		}
	}
	for i := range slices.Backward(receipts) {
		if receipts[i].Spec.Attempt != status.Attempt {
			continue
		}
		if arguments := recordedArguments(&receipts[i]); arguments != nil {
			return prettyJSON(arguments)
		}
	}
	return ""
}

// recordedArguments are the arguments that a receipt of an action has, or nil. One whose hash does not fit is not believed.
func recordedArguments(r *v1alpha1.Receipt) json.RawMessage {
	document, err := receipt.Parse(records.Entry(r))
	if err != nil || document.Arguments == nil || canonical.Sum([]byte(r.Spec.Document)) != r.Spec.Hash {
		return nil
	}
	arguments, err := canonical.Encode(document.Arguments)
	if err != nil {
		return nil
	}
	return arguments
}

// receiptsOf are the receipts of one effect, in the order of the chain.
func (s *session) receiptsOf(ctx context.Context, effect *v1alpha1.Effect) ([]v1alpha1.Receipt, error) {
	var receipts []v1alpha1.Receipt
	var page v1alpha1.ReceiptList
	err := s.eachPage(ctx, &page, func() error {
		receipts = append(receipts, page.Items...)
		return nil
	}, kube.InNamespace(effect.Namespace), kube.MatchingFields{"spec.effectName": effect.Name})
	return receipts, err
}
