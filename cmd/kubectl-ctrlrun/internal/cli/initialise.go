package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

const initLong = `Write a first policy and the two Roles it needs, to be read, edited and applied.

The policy lets small refunds pass, asks a person about larger ones and denies the rest. The Role for agents may propose,
claim and report; the Role for approvers may answer for the types it names, and for nothing else. Bind them to your own
people: nobody gets them by default.`

// starter is the file init writes. NAMESPACE is replaced.
const starter = `# A first policy. kubectl ctrlrun lint -f FILE checks it; kubectl explain actionpolicy.spec describes it.
apiVersion: ctrlrun.dev/v1alpha1
kind: ActionPolicy
metadata:
  name: first
  namespace: NAMESPACE
spec:
  version: "1"
  actions:
    # One refund of one payment is one effect: its key keeps every other attempt from executing it again.
    stripe.refund:
      effect: "refund:{payment_id}"
      resource: "payment:{payment_id}"
      rules:
      - when: {amount_gte: 1, amount_lte: 50000}
        decision: allow
      - when: {amount_gte: 1, amount_lte: 500000}
        decision: approve
      - decision: deny
---
# For agents: propose, claim, report. Bind it to the ServiceAccount of the agent.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: ctrlrun-agent
  namespace: NAMESPACE
rules:
- apiGroups: [ctrlrun.dev]
  resources: [actions]
  verbs: [create, get, list, watch]
- apiGroups: [ctrlrun.dev]
  resources: [claims, outcomes]
  verbs: [create, get]
- apiGroups: [ctrlrun.dev]
  resources: [actionpolicies, effects]
  verbs: [get, list]
---
# For people: answer for refunds, and for nothing else.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: ctrlrun-approver
  namespace: NAMESPACE
rules:
- apiGroups: [ctrlrun.dev]
  resources: [approvals]
  verbs: [create, get, list, watch]
- apiGroups: [ctrlrun.dev]
  resources: [actiontypes]
  resourceNames: [stripe.refund]
  verbs: [approve]
- apiGroups: [ctrlrun.dev]
  resources: [actions, actionpolicies, effects, receipts]
  verbs: [get, list, watch]
`

func (a *app) initCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Write a first policy and the two Roles it needs",
		Long:    initLong,
		Example: "  kubectl ctrlrun init -n payments\n  kubectl apply --server-side -f ctrlrun.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			namespace, _, err := a.config.ToRawKubeConfigLoader().Namespace()
			if err != nil || namespace == "" {
				namespace = "default"
			}
			text := strings.ReplaceAll(starter, "NAMESPACE", namespace)
			if file == "-" {
				_, err := fmt.Fprint(a.streams.Out, text)
				return err
			}
			if err := writeNew(file, text); err != nil {
				return err
			}
			a.println("wrote", file)
			a.note("read and edit it, then: kubectl ctrlrun lint -f %[1]s && kubectl apply --server-side -f %[1]s", file)
			a.note("bind the Roles: kubectl create rolebinding -n %[1]s agent --role ctrlrun-agent --serviceaccount %[1]s:AGENT", namespace)
			a.note("                kubectl create rolebinding -n %s approvers --role ctrlrun-approver --user PERSON", namespace)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "ctrlrun.yaml", "the file to write, or - for stdout")
	return cmd
}

// writeNew creates a file, and never overwrites one.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return exit.Errorf(exit.Failure, "%s is there already and was not changed: name another with -f, or print with -f -", path)
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
