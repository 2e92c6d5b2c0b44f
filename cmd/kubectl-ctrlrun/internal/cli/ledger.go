package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
)

const ledgerAcceptLong = `Accept a head of a namespace's chain, after a restore or a recreated namespace made it go back.

Until somebody does, the namespace holds: nothing is admitted. What you accept is what the chain is from now on, so look
first: kubectl ctrlrun receipts verify -n NAMESPACE. A namespace that was deleted and made again begins with the empty chain:
--head 0:` + receipt.Genesis + `. It leaves a receipt with your name, and needs the verb govern on ledgers.`

func (a *app) ledgerCommand() *cobra.Command {
	return group("ledger", "Accept the head of a chain after a restore", a.ledgerAcceptCommand())
}

func (a *app) ledgerAcceptCommand() *cobra.Command {
	var head, reason, uid string
	var yes bool
	cmd := &cobra.Command{
		Use:     "accept NAMESPACE --head SEQ:HASH --reason TEXT",
		Short:   "Accept the head of a namespace's chain",
		Long:    ledgerAcceptLong,
		Example: "  kubectl ctrlrun ledger accept payments --head 41:sha256:9f86... --reason \"restored the backup of Monday\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			link, err := receipt.ParseLink(head)
			if err != nil {
				return usage(fmt.Errorf("--head: %w", err))
			}
			if reason == "" {
				return exit.Errorf(exit.Usage, "--reason is empty: what happened?")
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if err := s.refuseUnheld(cmd.Context(), args[0]); err != nil {
				return err
			}
			if err := a.refuseVoid(cmd.Context(), s); err != nil {
				return err
			}
			if !yes {
				question := fmt.Sprintf("%s accepts %s as the head of the chain of %s in %s.", s.user.Username, link, args[0], s.cluster)
				if err := a.confirm(question, "--yes"); err != nil {
					return err
				}
			}
			namespace, err := s.namespaceUID(cmd.Context(), args[0], uid)
			if err != nil {
				return err
			}
			return a.acceptLedger(cmd.Context(), s, namespace, link, reason)
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "the head to accept, as SEQ:HASH")
	cmd.Flags().StringVar(&reason, "reason", "", "what happened, in your own words; kept in the receipt")
	cmd.Flags().StringVar(&uid, "namespace-uid", "", "uid of the namespace, for those who may not read it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	_ = cmd.MarkFlagRequired("head")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// refuseUnheld stops an acceptance that cannot count before it leaves a trace: of a ledger that holds nothing, or by somebody
// who may not govern ledgers. What cannot be seen is left to the operator.
func (s *session) refuseUnheld(ctx context.Context, namespace string) error {
	may, err := s.may(ctx, authorizationv1.ResourceAttributes{Verb: "govern", Resource: "ledgers", Name: namespace})
	if err != nil {
		return err
	}
	if !may {
		return exit.Errorf(exit.Refused, "you may not accept a head of the ledger of %s: you lack govern on ledgers", namespace)
	}
	ledger, err := s.ledgerOf(ctx, namespace)
	if err != nil || ledger == nil || ledger.Status == nil || !meta.IsStatusConditionTrue(ledger.Status.Conditions, v1alpha1.ReadyCondition) {
		return nil
	}
	return exit.Errorf(exit.Failure, "%s: the ledger of %s is Ready, so there is nothing to accept and nothing was sent", v1alpha1.ReasonLedgerNotHeld, namespace)
}

// namespaceUID names the namespace as it is now: a head is not accepted for one that was deleted and made again since.
func (s *session) namespaceUID(ctx context.Context, name, given string) (v1alpha1.ObjectReference, error) {
	if given != "" {
		return v1alpha1.ObjectReference{Name: name, UID: types.UID(given)}, nil
	}
	var namespace corev1.Namespace
	if err := s.kube.Get(ctx, kube.ObjectKey{Name: name}, &namespace); err != nil {
		return v1alpha1.ObjectReference{}, explain(err)
	}
	return v1alpha1.ObjectReference{Name: name, UID: namespace.UID}, nil
}

func (a *app) acceptLedger(ctx context.Context, s *session, namespace v1alpha1.ObjectReference, head receipt.Link, reason string) error {
	acceptance := &v1alpha1.LedgerAcceptance{
		Spec: v1alpha1.LedgerAcceptanceSpec{
			Ledger: namespace.Name, NamespaceUID: namespace.UID, Seq: head.Seq, Hash: head.Hash, Reason: reason, AcceptedBy: s.user.Username,
		},
	}
	// An acceptance is about one moment: an earlier one of the same head that counted already is never taken for this one.
	own := func(existing kube.Object) bool {
		have := existing.(*v1alpha1.LedgerAcceptance)
		return have.Spec.AcceptedBy == s.user.Username && len(have.Status.Conditions) == 0 && have.Spec.NamespaceUID == namespace.UID && have.Spec.Seq == head.Seq &&
			have.Spec.Hash == head.Hash && have.Spec.Reason == reason
	}
	if err := s.CreateStatement(ctx, acceptance, client.StatementName(namespace.Name, s.user.Username), own); err != nil {
		return stated(err)
	}
	if err := a.waitAccepted(ctx, s, acceptance, acceptTimeout); err != nil {
		return err
	}
	a.println("accepted:", namespace.Name, head.String())
	return nil
}
