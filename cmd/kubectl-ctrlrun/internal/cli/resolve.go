package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

const resolveLong = `Say what really happened to an ambiguous effect, after you found out.

It shows the effect, the attempt, who held it, a late report if there is one, and the receipt your statement answers. Then it
asks, creates a Resolution, and waits until the operator has accepted it.

  --committed       it happened; the effect is never attempted again
  --not-executed    it did not happen; another attempt may be made. This needs --evidence, such as a link to the
                    provider's record

-f resolves several, from a YAML list:

  - effect: refund-txn-1-abcdefghijklmnopqrst    # or key: refund:txn_1
    result: NotExecuted                          # or Committed
    reason: no such refund in the provider's log of that day
    evidence: https://provider.example/log/42
    attempt: 1                                   # optional; another attempt is refused`

// resolving is one answer to one effect.
type resolving struct {
	effect   string
	attempt  int64 // 0: whichever is ambiguous now
	result   v1alpha1.ResolutionResult
	reason   string
	evidence string
}

func (a *app) resolveCommand() *cobra.Command {
	var r resolving
	var key, file string
	var committed, notExecuted, yes bool
	cmd := &cobra.Command{
		Use:   "resolve EFFECT --committed|--not-executed --reason TEXT [--evidence URL]",
		Short: "Say what really happened to an ambiguous effect",
		Long:  resolveLong,
		Example: "  kubectl ctrlrun resolve --key refund:txn_1 --not-executed --reason \"not in the provider's log\" --evidence https://...\n" +
			"  kubectl ctrlrun resolve -f answers.yaml --yes",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeEffects(v1alpha1.EffectAmbiguous),
		RunE: func(cmd *cobra.Command, args []string) error {
			answers, err := a.resolutionsOf(file, args, key, committed, notExecuted, r)
			if err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, answer := range answers {
				if err := a.resolve(cmd.Context(), s, answer, yes); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the effect key, instead of the effect's name")
	cmd.Flags().BoolVar(&committed, "committed", false, "it happened")
	cmd.Flags().BoolVar(&notExecuted, "not-executed", false, "it did not happen; needs --evidence")
	cmd.Flags().StringVar(&r.reason, "reason", "", "how you know, in your own words; kept in the receipt")
	cmd.Flags().StringVar(&r.evidence, "evidence", "", "where it can be seen, such as a link to the provider's record")
	cmd.Flags().Int64Var(&r.attempt, "attempt", 0, "the attempt you looked into; another is refused")
	cmd.Flags().StringVarP(&file, "filename", "f", "", "a YAML list of answers, or - for stdin")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// resolutionsOf are the answers of a command line or of a file, all of them checked before the first is sent.
func (a *app) resolutionsOf(file string, args []string, key string, committed, notExecuted bool, r resolving) ([]resolving, error) {
	if file != "" {
		if len(args) > 0 || key != "" || committed || notExecuted {
			return nil, exit.Errorf(exit.Usage, "-f has the answers: give no effect and no result beside it")
		}
		data, err := a.readInput(file)
		if err != nil {
			return nil, err
		}
		answers, err := parseResolutions(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", inputName(file), err)
		}
		return answers, nil
	}
	if (len(args) == 1) == (key != "") {
		return nil, exit.Errorf(exit.Usage, "give the name of the effect, or --key KEY")
	}
	if committed == notExecuted {
		return nil, exit.Errorf(exit.Usage, "say either --committed or --not-executed")
	}
	r.result = v1alpha1.ResolutionCommitted
	if notExecuted {
		r.result = v1alpha1.ResolutionNotExecuted
	}
	if key != "" {
		r.effect = action.EffectName(key)
	} else {
		r.effect = objectName(args[0])
	}
	return []resolving{r}, usage(r.check())
}

func (r resolving) check() error {
	switch {
	case r.reason == "":
		return fmt.Errorf("%s: a reason is needed: how do you know?", r.effect)
	case r.result == v1alpha1.ResolutionNotExecuted && r.evidence == "":
		return fmt.Errorf("%s: NotExecuted frees the effect for another attempt, so it needs evidence, such as a link to the provider's record", r.effect)
	}
	return nil
}

func parseResolutions(data []byte) ([]resolving, error) {
	root, err := documentRoot(data)
	if err != nil {
		return nil, err
	}
	if root.Kind != yaml.SequenceNode || len(root.Content) == 0 {
		return nil, fmt.Errorf("line %d: expected a list of answers", root.Line)
	}
	var answers []resolving
	for _, node := range root.Content {
		if err := onlyKeys(node, "effect", "key", "attempt", "result", "reason", "evidence"); err != nil {
			return nil, err
		}
		var line struct {
			Effect, Key, Result, Reason, Evidence string
			Attempt                               int64
		}
		if err := node.Decode(&line); err != nil {
			return nil, err
		}
		r := resolving{effect: line.Effect, attempt: line.Attempt, reason: line.Reason, evidence: line.Evidence}
		if (line.Effect == "") == (line.Key == "") {
			return nil, fmt.Errorf("line %d: give either effect or key", node.Line)
		}
		if line.Key != "" {
			r.effect = action.EffectName(line.Key)
		}
		r.result = v1alpha1.ResolutionResult(line.Result)
		if r.result != v1alpha1.ResolutionCommitted && r.result != v1alpha1.ResolutionNotExecuted {
			return nil, fmt.Errorf("line %d: result is Committed or NotExecuted, not %q", node.Line, line.Result)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", node.Line, err)
		}
		answers = append(answers, r)
	}
	return answers, nil
}

func (a *app) resolve(ctx context.Context, s *session, r resolving, yes bool) error {
	effect := &v1alpha1.Effect{}
	err := s.kube.Get(ctx, s.key(r.effect), effect)
	if apierrors.IsNotFound(err) && !missingKind(err) {
		return exit.Errorf(exit.Failure, "there is no effect %q in namespace %s", r.effect, s.Namespace())
	}
	if err != nil {
		return explain(err)
	}
	status := effectStatus(effect)
	if status.State != v1alpha1.EffectAmbiguous {
		return exit.Errorf(exit.Failure, "effect %s is %s, not Ambiguous: there is nothing to resolve", effect.Name, status.State)
	}
	if r.attempt != 0 && r.attempt != status.Attempt {
		return exit.Errorf(exit.Failure, "effect %s is at attempt %d, not %d: look into it again", effect.Name, status.Attempt, r.attempt)
	}
	quoted, err := s.ambiguousReceipt(ctx, effect)
	if err != nil {
		return err
	}
	may, err := s.mayOn(ctx, "resolve", quoted.Spec.ActionType)
	if err != nil {
		return err
	}
	a.showEffect(s, effect, quoted, may, r)
	if !may.allowed {
		return exit.Errorf(exit.Refused, "you may not resolve %s in namespace %s: you lack %s; see kubectl ctrlrun who-can resolve %s",
			quoted.Spec.ActionType, s.Namespace(), may.missing, quoted.Spec.ActionType)
	}
	if !yes {
		if err := a.confirm(fmt.Sprintf("State that attempt %d is %s?", status.Attempt, r.result), "--yes"); err != nil {
			return err
		}
	}
	return a.sendResolution(ctx, s, effect, quoted, r)
}

// ambiguousReceipt is the receipt that says the present attempt is ambiguous, the latest if there are several. A Resolution
// quotes its hash: one can only resolve what one could have read.
func (s *session) ambiguousReceipt(ctx context.Context, effect *v1alpha1.Effect) (*v1alpha1.Receipt, error) {
	receipts, err := s.receiptsOf(ctx, effect.Name)
	if err != nil {
		return nil, err
	}
	for i := len(receipts) - 1; i >= 0; i-- {
		spec := receipts[i].Spec
		ambiguous := spec.Kind == receipt.KindStatusMissing || spec.Kind == receipt.KindAction && spec.Result == string(decision.Ambiguous)
		if ambiguous && spec.Attempt == effectStatus(effect).Attempt {
			return &receipts[i], nil
		}
	}
	return nil, exit.Errorf(exit.Waiting, "effect %s is Ambiguous, but the receipt that says so is not written yet: try again in a moment", effect.Name)
}

func (a *app) showEffect(s *session, effect *v1alpha1.Effect, quoted *v1alpha1.Receipt, may verdict, r resolving) {
	t := a.fieldsOn(a.streams.ErrOut)
	t.row("Cluster", s.cluster)
	t.row("Namespace", s.Namespace())
	t.row("You", s.user.Username)
	t.row("You may", may.String())
	t.gap()
	effectRows(t, effect)
	t.row("Receipt", fmt.Sprintf("%s %s", quoted.Name, quoted.Spec.Hash))
	t.row("You state", string(r.result)+": "+r.reason)
	t.row("Evidence given", r.evidence)
	t.flush()
}

func (a *app) sendResolution(ctx context.Context, s *session, effect *v1alpha1.Effect, quoted *v1alpha1.Receipt, r resolving) error {
	attempt := effectStatus(effect).Attempt
	resolution := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: effect.Namespace},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef:  v1alpha1.ObjectReference{Name: effect.Name, UID: effect.UID},
			Attempt:    attempt,
			ActionType: quoted.Spec.ActionType,
			Result:     r.result,
			ReceiptRef: v1alpha1.ReceiptReference{Name: quoted.Name, Hash: quoted.Spec.Hash},
			Reason:     r.reason,
			Evidence:   r.evidence,
			Resolver:   s.user.Username,
		},
	}
	own := func(existing kube.Object) bool {
		have := existing.(*v1alpha1.Resolution).Spec
		return have.EffectRef == resolution.Spec.EffectRef && have.ReceiptRef == resolution.Spec.ReceiptRef && have.Result == resolution.Spec.Result
	}
	name := client.StatementName(fmt.Sprintf("%s.%d", effect.Name, attempt), s.user.Username)
	if err := s.CreateStatement(ctx, resolution, name, own); err != nil {
		return stated(err)
	}
	if err := a.waitAccepted(ctx, s, resolution, acceptTimeout); err != nil {
		return err
	}
	a.println("resolved:", effect.Name, string(r.result))
	return nil
}
