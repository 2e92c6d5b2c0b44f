package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

const resolveLong = `Say what really happened to an ambiguous effect, after you found out.

It shows the effect, the attempt, who held it, its arguments, a late report if there is one, and the receipt your statement answers. Then it
asks, creates a Resolution, and waits until the operator has accepted it.

  --committed       it happened; the effect is never attempted again
  --not-executed    it did not happen; another attempt may be made. This needs --evidence, such as a link to the
                    provider's record

Where the policy wants more than one person to say the same (resolutionsRequired), it waits for none of the others: your statement is
recorded, and the exit code is 5 until enough agree. Whoever errs says the other thing; of each person the last word counts.

-f answers for many at once. It takes the lines of "effects -o jsonl" with three members added to each,

  kubectl ctrlrun effects --state Ambiguous -o jsonl > todo.jsonl
  {"effect":"refund-txn-1-abcdefghijklmnopqrst", ..., "result":"not-executed","reason":"not in their log","evidence":"https://..."}

or a YAML list:

  - effect: refund-txn-1-abcdefghijklmnopqrst    # or key: refund:txn_1
    result: not-executed                         # or committed
    reason: no such refund in the provider's log of that day
    evidence: https://provider.example/log/42
    attempt: 1                                   # optional, as namespace; another attempt is refused

The whole file is checked before anything is stated. --dry-run=client shows what would be, and states nothing. It may be
started again after whatever stopped it: what is resolved already is reported, and is no error. An answer that is refused is
named, and makes the exit code other than 0; the rest is stated all the same.`

// resolving is one answer to one effect.
type resolving struct {
	line        int // of the file it stands in
	effect      string
	key         string
	namespace   string // "": the one of the session
	attempt     int64  // 0: whichever is ambiguous now
	receiptHash string // of the receipt that was looked into; "": whichever says ambiguous now
	result      v1alpha1.ResolutionResult
	reason      string
	evidence    string
}

// resolveMode says what becomes of answers that are in order.
type resolveMode int

const (
	resolveAsking  resolveMode = iota // they are stated after somebody said yes
	resolveUnasked                    // they are stated
	resolveDryRun                     // they are shown
)

func (a *app) resolveCommand() *cobra.Command {
	var r resolving
	var file, dryRun string
	var committed, notExecuted, yes bool
	cmd := &cobra.Command{
		Use:   "resolve EFFECT --committed --reason TEXT | --not-executed --reason TEXT --evidence URL",
		Short: "Say what really happened to an ambiguous effect",
		Long:  resolveLong,
		Example: "  kubectl ctrlrun resolve --key refund:txn_1 --not-executed --reason \"not in the provider's log\" --evidence https://...\n" +
			"  kubectl ctrlrun resolve -f todo.jsonl --dry-run=client\n  kubectl ctrlrun resolve -f todo.jsonl",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeEffects(v1alpha1.EffectAmbiguous),
		RunE: func(cmd *cobra.Command, args []string) error {
			mode, err := resolveModeOf(dryRun, yes)
			if err != nil {
				return err
			}
			if file != "" {
				if len(args) > 0 || r != (resolving{}) || committed || notExecuted {
					return exit.Errorf(exit.Usage, "-f has the answers: give no effect, no result and no reason beside it")
				}
				answers, err := a.readAnswers(file)
				if err != nil {
					return err
				}
				s, err := a.connect(cmd.Context())
				if err != nil {
					return err
				}
				return a.resolveFile(cmd.Context(), s, answers, mode)
			}
			answer, err := answerOfFlags(args, committed, notExecuted, r)
			if err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.resolve(cmd.Context(), s, answer, mode)
		},
	}
	cmd.Flags().StringVar(&r.key, "key", "", "the effect key, instead of the effect's name")
	cmd.Flags().BoolVar(&committed, "committed", false, "it happened")
	cmd.Flags().BoolVar(&notExecuted, "not-executed", false, "it did not happen; needs --evidence")
	cmd.Flags().StringVar(&r.reason, "reason", "", "how you know, in your own words; kept in the receipt")
	cmd.Flags().StringVar(&r.evidence, "evidence", "", "where it can be seen, such as a link to the provider's record")
	cmd.Flags().Int64Var(&r.attempt, "attempt", 0, "the attempt you looked into; another is refused")
	cmd.Flags().StringVarP(&file, "filename", "f", "", "a file of answers, or - for stdin")
	cmd.Flags().StringVar(&dryRun, "dry-run", "none", "client: show what would be stated, and state nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunClient
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", dryRunClient}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func resolveModeOf(dryRun string, yes bool) (resolveMode, error) {
	switch {
	case dryRun == dryRunClient:
		return resolveDryRun, nil
	case dryRun != "none":
		return 0, exit.Errorf(exit.Usage, "--dry-run is none or client, not %q", dryRun)
	case yes:
		return resolveUnasked, nil
	}
	return resolveAsking, nil
}

// answerOfFlags is the one answer of a command line.
func answerOfFlags(args []string, committed, notExecuted bool, r resolving) (resolving, error) {
	if (len(args) == 1) == (r.key != "") {
		return r, exit.Errorf(exit.Usage, "give the name of the effect, or --key KEY")
	}
	if committed == notExecuted {
		return r, exit.Errorf(exit.Usage, "say what happened: %s", resolveForms)
	}
	r.result = v1alpha1.ResolutionCommitted
	if notExecuted {
		r.result = v1alpha1.ResolutionNotExecuted
	}
	if r.key == "" {
		r.effect = objectName(args[0])
	}
	r, wrong := r.named(nil, nil)
	return r, usage(errors.Join(wrong...))
}

// problem is what is wrong with one member of an answer.
type problem struct {
	key string
	err error
}

// problems are everything that is wrong with what an answer says.
func (r resolving) problems() []problem {
	var found []problem
	if r.reason == "" {
		found = append(found, problem{"reason", fmt.Errorf("%s: a reason is needed: how do you know?", orDash(r.effect))})
	}
	if r.result == v1alpha1.ResolutionNotExecuted && r.evidence == "" {
		found = append(found, problem{"evidence", fmt.Errorf(
			"%s: NotExecuted frees the effect for another attempt, so it needs evidence, such as a link to the provider's record", orDash(r.effect))})
	}
	if err := checkLength("reason", r.reason, maxReason); err != nil {
		found = append(found, problem{"reason", err})
	}
	if err := checkLength("evidence", r.evidence, maxEvidence); err != nil {
		found = append(found, problem{"evidence", err})
	}
	return found
}

func (a *app) resolve(ctx context.Context, s *session, r resolving, mode resolveMode) error {
	effect := &v1alpha1.Effect{}
	err := s.kube.Get(ctx, s.key(r.effect), effect)
	if apierrors.IsNotFound(err) && !missingKind(err) {
		return s.noEffect(ctx, r.effect, r.key)
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
	if mode != resolveDryRun {
		if err := a.refuseVoid(ctx, s); err != nil {
			return err
		}
	}
	quoted, err := s.ambiguousReceipt(ctx, effect)
	if err != nil {
		return err
	}
	may, err := s.mayOn(ctx, "resolve", quoted.Spec.ActionType)
	if err != nil {
		return err
	}
	a.showEffect(ctx, s, effect, quoted, may, r)
	if !may.allowed {
		return exit.Errorf(exit.Refused, "you may not resolve %s in namespace %s: you lack %s; see kubectl ctrlrun who-can resolve %s",
			quoted.Spec.ActionType, s.Namespace(), may.missing, quoted.Spec.ActionType)
	}
	switch mode {
	case resolveDryRun:
		a.note("nothing was stated: this is a dry run")
		return nil
	case resolveAsking:
		if err := a.confirm(fmt.Sprintf("State that attempt %d was %s?", status.Attempt, statedWord(r.result)), "--yes"); err != nil {
			return err
		}
	}
	resolution, err := s.createResolution(ctx, effect, &quotedReceipt{
		ref: v1alpha1.ReceiptReference{Name: quoted.Name, Hash: quoted.Spec.Hash}, actionType: quoted.Spec.ActionType,
	}, r)
	if err != nil {
		return stated(err)
	}
	err = a.waitAccepted(ctx, s, resolution, acceptTimeout)
	var open *openError
	if errors.As(err, &open) {
		a.println("recorded:", effect.Name, string(r.result)+":", oneLine(open.missing))
		return exit.Errorf(exit.Waiting, "effect %s is not settled yet; who has said what so far: kubectl ctrlrun inspect effect/%s -n %s", effect.Name, effect.Name, effect.Namespace)
	}
	if err != nil {
		return err
	}
	a.println("resolved:", effect.Name, string(r.result))
	return nil
}

// ambiguousReceipt is the receipt that says the present attempt is ambiguous, the latest if there are several. A Resolution
// quotes its hash: one can only resolve what one could have read.
func (s *session) ambiguousReceipt(ctx context.Context, effect *v1alpha1.Effect) (*v1alpha1.Receipt, error) {
	receipts, err := s.receiptsOf(ctx, effect)
	if err != nil {
		return nil, err
	}
	if found := sayingAmbiguous(receipts, effectStatus(effect)); found != nil {
		return found, nil
	}
	return nil, exit.Errorf(exit.Waiting, "effect %s is Ambiguous, but the receipt that says so is not written yet: try again in a moment", effect.Name)
}

// sayingAmbiguous is the last of receipts that says that the present attempt is ambiguous, or nil. Once the record was lost, what
// was said before that is no answer any more.
func sayingAmbiguous(receipts []v1alpha1.Receipt, status v1alpha1.EffectStatus) *v1alpha1.Receipt {
	for i := range slices.Backward(receipts) {
		spec := receipts[i].Spec
		ambiguous := spec.Kind == receipt.KindStatusMissing || spec.Kind == receipt.KindAction && endedAmbiguous(&receipts[i])
		if ambiguous && spec.Attempt == status.Attempt && (status.Loss == nil || spec.Seq > status.Loss.Seq) {
			return &receipts[i]
		}
	}
	return nil
}

// endedAmbiguous reports whether an action ended so. Of an observed one only its document says how it ended.
func endedAmbiguous(r *v1alpha1.Receipt) bool {
	if r.Spec.Result != string(decision.Observed) {
		return r.Spec.Result == string(decision.Ambiguous)
	}
	document, err := receipt.Parse(records.Entry(r))
	return err == nil && document.Ended() == decision.Ambiguous
}

// byObserver is whoever said what became of an effect, for people: a person, or the program that looked and as whom it spoke.
func byObserver(resolver, observer string) string {
	if observer == "" {
		return resolver
	}
	return "program " + oneLine(observer) + " as " + resolver
}

// statedWord is what a resolver states, for people.
func statedWord(result v1alpha1.ResolutionResult) string {
	if result == v1alpha1.ResolutionNotExecuted {
		return notExecuted
	}
	return strings.ToLower(string(result))
}

func (a *app) showEffect(ctx context.Context, s *session, effect *v1alpha1.Effect, quoted *v1alpha1.Receipt, may verdict, r resolving) {
	t := a.fieldsOn(a.streams.ErrOut)
	t.row("Cluster", s.cluster)
	t.row("Namespace", s.Namespace())
	t.row("You", s.user.Username)
	t.row("You may", may.String())
	t.gap()
	effectRows(t, effect, s.argumentsOf(ctx, effect, []v1alpha1.Receipt{*quoted}))
	t.row("Receipt", fmt.Sprintf("%s %s", quoted.Name, quoted.Spec.Hash))
	if said, err := s.saidOf(ctx, effect); err == nil {
		for i := range said {
			t.row("Said", byObserver(said[i].Spec.Resolver, said[i].Spec.Observer)+": "+saidText(&said[i]))
		}
	}
	t.row("You state", statedWord(r.result)+": "+r.reason)
	t.row("Evidence given", r.evidence)
	t.flush()
}
