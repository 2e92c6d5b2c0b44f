package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

func (a *app) receiptsCommand() *cobra.Command {
	cmd := a.receiptsListCommand()
	list := cmd.RunE
	cmd.Use = "receipts"
	cmd.Short = "List, verify and export the evidence"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return list(cmd, args)
	}
	cmd.Args = nil
	listing := a.receiptsListCommand()
	cmd.AddCommand(listing, a.receiptsVerifyCommand(), a.receiptsExportCommand(), a.receiptsHeadCommand(), a.receiptsSchemaCommand())
	return cmd
}

const receiptsListLong = `List the receipts of the namespace.

With --effect, tell the story of one effect instead: every attempt, who proposed it, who approved it, what was reported, who
resolved it with what evidence, and what is known now. KEY is an effect key, or the name of an Effect. A receipt of a schema or
kind that this version does not know is refused, and its seq named: a story that leaves something out is another story.`

func (a *app) receiptsListCommand() *cobra.Command {
	var kind, effect string
	var last int
	var everywhere bool
	objects := newObjectFlags()
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List receipts, or tell the story of one effect",
		Long:    receiptsListLong,
		Example: "  kubectl ctrlrun receipts -n payments --last 20\n  kubectl ctrlrun receipts -n payments --effect refund:txn_1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kind, err := oneOf("kind", kind, receipt.Kinds())
			if err != nil {
				return err
			}
			story := outputFlag{format: *objects.print.OutputFormat}
			telling := cmd.Flags().Changed("effect")
			switch {
			case telling && (kind != "" || last != 0 || everywhere):
				return exit.Errorf(exit.Usage, "--effect tells the whole story of one effect: it does not go with --kind, --last or -A")
			case everywhere && last != 0:
				return exit.Errorf(exit.Usage, "--last is of one chain: give -n NAMESPACE instead of -A")
			case telling && effect == "":
				return exit.Errorf(exit.Usage, "--effect needs an effect key, or the name of an Effect")
			case telling:
				err = story.check()
			default:
				err = objects.check()
			}
			if err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if telling {
				return a.tellEffect(cmd.Context(), s, effect, story)
			}
			fields := kube.MatchingFields{}
			if kind != "" {
				fields["spec.kind"] = kind
			}
			list := &v1alpha1.ReceiptList{}
			namespace := s.Namespace()
			if everywhere {
				namespace = metav1.NamespaceAll
			}
			err = s.eachReceiptOf(cmd.Context(), namespace, func(r *v1alpha1.Receipt) error {
				list.Items = append(list.Items, *r)
				if last > 0 && len(list.Items) > last {
					list.Items = list.Items[1:]
				}
				return nil
			}, fields)
			if err != nil {
				return err
			}
			if !objects.table() {
				return objects.object(a, s.kube.Scheme(), list)
			}
			if len(list.Items) == 0 {
				return a.empty(cmd.Context(), s, everywhere, len(fields) > 0, "no receipts")
			}
			columns := receiptColumns{wide: objects.wide(), namespace: everywhere}
			a.printReceipts(list.Items, columns)
			return nil
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only of this kind: "+strings.Join(receipt.Kinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(receipt.Kinds(), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringVar(&effect, "effect", "", "tell the story of the effect of this `KEY`, or name (-o json or yaml)")
	cmd.Flags().IntVar(&last, "last", 0, "only the last N")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "of all namespaces")
	objects.addTo(cmd)
	return cmd
}

// notExecuted is what a person says of an effect that did not happen. For machines the result of a resolution is failed, as that
// of an action whose executor said so.
const notExecuted = "not executed"

// resultWord is the result of a receipt for people, as one word.
func resultWord(kind, result string) string {
	if kind == receipt.KindResolution && result == string(decision.Failed) {
		return "not-executed"
	}
	return result
}

// eachReceipt reads the receipts of the namespace in the order of their names, which is the order of the chain.
func (s *session) eachReceipt(ctx context.Context, each func(*v1alpha1.Receipt) error, opts ...kube.ListOption) error {
	return s.eachReceiptOf(ctx, s.Namespace(), each, opts...)
}

func (s *session) eachReceiptOf(ctx context.Context, namespace string, each func(*v1alpha1.Receipt) error, opts ...kube.ListOption) error {
	var page v1alpha1.ReceiptList
	return s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			if err := each(&page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}, append(opts, kube.InNamespace(namespace))...)
}

// receiptColumns are what a table of receipts has beside what every one has.
type receiptColumns struct{ wide, namespace bool }

func (a *app) printReceipts(receipts []v1alpha1.Receipt, columns receiptColumns) {
	header := []string{"SEQ", "KIND", "RESULT", "REASON", "TYPE", "AGENT", "EFFECT", "ATTEMPT", "AGE"}
	if columns.namespace {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if columns.wide {
		header = append(header, "ACTION", "AUTHORITY", "EXECUTION", "WOULD-HAVE", "HASH")
	}
	t := a.table(header...)
	for i := range receipts {
		spec := receipts[i].Spec
		attempt := ""
		if spec.Attempt > 0 {
			attempt = fmt.Sprint(spec.Attempt)
		}
		cells := []string{
			fmt.Sprint(spec.Seq), spec.Kind, orDash(resultWord(spec.Kind, spec.Result)), orDash(spec.Reason), orDash(spec.ActionType), orDash(spec.Agent),
			orDash(spec.EffectName), orDash(attempt), ago(receipts[i].CreationTimestamp),
		}
		if columns.namespace {
			cells = append([]string{receipts[i].Namespace}, cells...)
		}
		if columns.wide {
			cells = append(cells, orDash(spec.ActionName))
			cells = append(cells, documentCells(records.Entry(&receipts[i]))...)
			cells = append(cells, spec.Hash)
		}
		t.row(cells...)
	}
	t.flush()
}

// documentCells are the columns AUTHORITY, EXECUTION and WOULD-HAVE, which stand in the document only. Each is one word.
func documentCells(e receipt.Entry) []string {
	d, err := receipt.Parse(e)
	if err != nil {
		return []string{"<unreadable>", "<unreadable>", "<unreadable>"}
	}
	authority, wouldHave := "", ""
	if by := d.Authority; by != nil {
		authority = by.Kind + "/" + by.Name
	}
	if w := d.WouldHave; w != nil {
		wouldHave = cmp.Or(w.BlockedReason, "run")
	}
	return []string{orDash(authority), orDash(string(d.Execution)), orDash(wouldHave)}
}

func (a *app) receiptsHeadCommand() *cobra.Command {
	var everywhere bool
	cmd := &cobra.Command{
		Use:   "head",
		Short: "Print the head of the chain, to be kept somewhere else",
		Long: "Print the head of the namespace's chain as SEQ:HASH. Whoever keeps it outside of the cluster can later prove, with\n" +
			"receipts verify --head, that the chain up to it is still the same.\n\n" +
			"-A prints the heads of all chains, one a line, as NAMESPACE=SEQ:HASH, which is what --head takes of several chains.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if everywhere {
				return a.printHeads(cmd.Context(), s)
			}
			ledger, err := s.ledger(cmd.Context())
			if err != nil {
				return err
			}
			if ledger == nil {
				if err := s.namespaceThere(cmd.Context()); err != nil {
					return err
				}
				return exit.Errorf(exit.Failure, "namespace %s has no ledger yet: it begins with the first receipt", s.Namespace())
			}
			a.println(headOf(ledger).String())
			return nil
		},
	}
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "of all chains of the cluster")
	return cmd
}

// printHeads prints the head of every chain that a Ledger knows, by name.
func (a *app) printHeads(ctx context.Context, s *session) error {
	var page v1alpha1.LedgerList
	heads := 0
	err := s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			if head := headOf(&page.Items[i]); head.Seq > 0 {
				heads++
				a.println(page.Items[i].Name + "=" + head.String())
			}
		}
		return nil
	})
	if err == nil && heads == 0 {
		a.note("there is no chain in this cluster yet: a chain begins with the first receipt")
	}
	return err
}

func headOf(ledger *v1alpha1.Ledger) receipt.Link {
	if ledger.Status == nil || ledger.Status.Seq == 0 {
		return receipt.Start()
	}
	return receipt.Link{Seq: ledger.Status.Seq, Hash: ledger.Status.Hash}
}

// ledger of the namespace, or nil if there is none. Ledgers are cluster-scoped: a viewer of one namespace does not see them.
func (s *session) ledger(ctx context.Context) (*v1alpha1.Ledger, error) {
	return s.ledgerOf(ctx, s.Namespace())
}

func (s *session) ledgerOf(ctx context.Context, namespace string) (*v1alpha1.Ledger, error) {
	ledger := &v1alpha1.Ledger{}
	err := s.kube.Get(ctx, kube.ObjectKey{Name: namespace}, ledger)
	switch {
	case err == nil:
		return ledger, nil
	case apierrors.IsForbidden(err):
		return nil, exit.With(exit.Refused, fmt.Errorf("the ledger is not visible to you: ledgers are cluster-scoped, ask for a ClusterRoleBinding to ctrlrun-viewer: %w", err))
	case apierrors.IsNotFound(err) && !missingKind(err):
		return nil, nil
	}
	return nil, explain(err)
}

// againstHeads adds to a report what the heads say.
func againstHeads(report receipt.Report, heads map[string]receipt.Link, found map[int64]string) receipt.Report {
	for _, whose := range sortedKeys(heads) {
		head := heads[whose]
		hash, ok := found[head.Seq]
		switch {
		case ok && hash == head.Hash:
			continue
		case head.Seq > report.Head.Seq:
			report.BreakCount++
			report.Breaks = append(report.Breaks, receipt.Break{Name: receipt.HeadMismatch, Seq: head.Seq,
				Detail: fmt.Sprintf("the chain ends with receipt %d, before %s, %s", report.Head.Seq, whose, head)})
			if report.Verdict == receipt.Intact {
				report.Verdict = receipt.Short
			}
		default:
			report.BreakCount++
			report.Breaks = append(report.Breaks, receipt.Break{Name: receipt.HeadMismatch, Seq: head.Seq,
				Detail: fmt.Sprintf("receipt %d has the hash %q, but %s is %s", head.Seq, hash, whose, head)})
			if report.Verdict != receipt.Unreadable {
				report.Verdict = receipt.Broken
			}
		}
	}
	return report
}
