package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/approval"
)

const approveLong = `Say yes to one exact action.

It shows the cluster, who you are and whether you may, the exact action with its hash, the rule that asks for you, the votes
so far and until when you can answer. The hash is computed from what is shown. Then it asks, creates an Approval, and waits
until the operator has accepted it; a refused approval is a non-zero exit.

Of a change of policies (ctrlrun.policy.change) it shows what would be another line, if what is proposed and what is in force
have the hashes that the action names; else it says so and does not approve.

--yes does not ask, and needs --hash: the hash of what you read elsewhere. --dry-run=client -o yaml prints the Approval for
somebody without this plugin to apply.`

const denyLong = `Say no to one exact action. One no is enough. It works like approve.`

// answering is the command line of approve and deny.
type answering struct {
	decision v1alpha1.ApprovalDecision
	verb     string
	reason   string
	hash     string
	yes      bool
	dryRun   string
	approver string
	objects  *objectFlags
}

func (a *app) approveCommand() *cobra.Command {
	return a.answerCommand(&answering{decision: v1alpha1.Approved, verb: "approve"}, "Say yes to one exact action", approveLong)
}

func (a *app) denyCommand() *cobra.Command {
	return a.answerCommand(&answering{decision: v1alpha1.Denied, verb: "deny"}, "Say no to one exact action", denyLong)
}

func (a *app) answerCommand(answer *answering, short, long string) *cobra.Command {
	answer.objects = newObjectFlags()
	cmd := &cobra.Command{
		Use:               answer.verb + " NAME",
		Short:             short,
		Long:              long,
		Example:           fmt.Sprintf("  kubectl ctrlrun %[1]s refund-txn-1-abcdefghijklmnopqrst -n payments\n  kubectl ctrlrun %[1]s NAME --yes --hash sha256:... --reason \"checked with the customer\"", answer.verb),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeActions(v1alpha1.ActionAwaitingApproval),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := answer.check(); err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.answer(cmd.Context(), s, answer, objectName(args[0]))
		},
	}
	cmd.Flags().StringVar(&answer.reason, "reason", "", "why, in your own words; kept in the receipt")
	cmd.Flags().StringVar(&answer.hash, "hash", "", "the hash of the action you read; any other is refused")
	cmd.Flags().BoolVar(&answer.yes, "yes", false, "do not ask; needs --hash")
	cmd.Flags().StringVar(&answer.dryRun, "dry-run", "none", "client: print the Approval instead of creating it")
	cmd.Flags().StringVar(&answer.approver, "approver", "", "with --dry-run=client: the user name of whoever will apply it, instead of yours")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunClient
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", dryRunClient}, cobra.ShellCompDirectiveNoFileComp))
	answer.objects.addTo(cmd)
	return cmd
}

const dryRunClient = "client"

func (x *answering) check() error {
	switch {
	case x.dryRun != "none" && x.dryRun != dryRunClient:
		return exit.Errorf(exit.Usage, "--dry-run is none or client, not %q", x.dryRun)
	case x.yes && x.hash == "" && x.dryRun == "none":
		return exit.Errorf(exit.Usage, "--yes needs --hash: without looking, say what you looked at")
	case x.approver != "" && x.dryRun != dryRunClient:
		return exit.Errorf(exit.Usage, "--approver goes with --dry-run=client: the apiserver does not let you answer for somebody else")
	}
	return x.objects.check()
}

func (a *app) answer(ctx context.Context, s *session, answer *answering, name string) error {
	action, err := s.action(ctx, name)
	if err != nil {
		return err
	}
	if err := answerable(action); err != nil {
		return err
	}
	hash, err := checkedHash(action)
	if err != nil {
		return err
	}
	if answer.hash != "" && answer.hash != hash {
		return exit.Errorf(exit.Failure, "action %s has the hash %s, not the %s you gave: read it again", name, hash, answer.hash)
	}
	approval := newApproval(action, hash, answer, s.user.Username)
	if answer.dryRun == dryRunClient {
		return a.printApproval(s, answer, approval)
	}
	if err := a.refuseVoid(ctx, s); err != nil {
		return err
	}
	may, err := s.mayOn(ctx, answer.verb, action.Spec.ActionType)
	if err != nil {
		return err
	}
	change, unseen := s.changeText(ctx, action)
	a.showQuestion(ctx, s, action, may, changeRow(change, unseen))
	if !may.allowed {
		return exit.Errorf(exit.Refused, "you may not %s %s in namespace %s: you lack %s; see kubectl ctrlrun who-can approve %s",
			answer.verb, action.Spec.ActionType, s.Namespace(), may.missing, action.Spec.ActionType)
	}
	if unseen != nil && answer.decision == v1alpha1.Approved && !answer.yes {
		return exit.Errorf(exit.Failure, "what would be approved is not on the screen, for %w", unseen)
	}
	if !answer.yes {
		if err := a.confirm(strings.ToUpper(answer.verb[:1])+answer.verb[1:]+" exactly this?", "--yes --hash "+hash); err != nil {
			return err
		}
	}
	return a.sendAnswer(ctx, s, answer, approval)
}

// answerable says whether anybody is asked about an Action, and if not, what to do.
func answerable(action *v1alpha1.Action) error {
	switch state := action.Status.State; {
	case state == v1alpha1.ActionAwaitingApproval:
		return nil
	case state.Terminal():
		return exit.Errorf(exit.Failure, "action %s is %s: it asks nobody any more; a new attempt is a new action", action.Name, state)
	case state == v1alpha1.ActionClaimable, state == v1alpha1.ActionAdmitted:
		return exit.Errorf(exit.Failure, "action %s is %s: it has what it needs and asks nobody any more", action.Name, state)
	}
	if client.Untouched(action) {
		return exit.Errorf(exit.Waiting, "action %s has not been decided yet: %s", action.Name, silentNote)
	}
	return exit.Errorf(exit.Waiting, "action %s does not ask anybody yet: it is held, %s: %s", action.Name, action.Status.Reason, action.Status.Message)
}

func newApproval(action *v1alpha1.Action, hash string, answer *answering, username string) *v1alpha1.Approval {
	approver := username
	if answer.approver != "" {
		approver = answer.approver
	}
	approval := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: action.Namespace, Name: client.StatementName(action.Name, approver)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef:  v1alpha1.ObjectReference{Name: action.Name, UID: action.UID},
			ActionType: action.Spec.ActionType,
			ActionHash: hash,
			Decision:   answer.decision,
			Reason:     answer.reason,
			Approver:   approver,
		},
	}
	if effect := action.Status.Effect; effect != nil {
		approval.Spec.EffectKey = &effect.Key
	}
	return approval
}

func (a *app) printApproval(s *session, answer *answering, approval *v1alpha1.Approval) error {
	if answer.objects.table() {
		*answer.objects.print.OutputFormat = "yaml"
	}
	return answer.objects.object(a, s.kube.Scheme(), approval)
}

// showQuestion shows on stderr what is asked: stdout is for the answer.
func (a *app) showQuestion(ctx context.Context, s *session, action *v1alpha1.Action, may verdict, change string) {
	t := a.fieldsOn(a.streams.ErrOut)
	t.row("Cluster", s.cluster)
	t.row("Namespace", s.Namespace())
	t.row("You", s.user.Username)
	t.row("You may", s.mayAnswer(ctx, action, may))
	t.gap()
	actionRows(t, action, s.ruleText(ctx, action), s.executorText(ctx, action))
	t.row("Change", change)
	t.flush()
}

// changeRow is the change, or why it is not shown.
func changeRow(change string, unseen error) string {
	if unseen != nil {
		return "NOT SHOWN: " + unseen.Error()
	}
	return change
}

// mayAnswer says whether an answer of this person would count. The operator decides; this only saves them a refusal.
func (s *session) mayAnswer(ctx context.Context, action *v1alpha1.Action, may verdict) string {
	if !may.allowed {
		return may.String()
	}
	var people *approval.People // who has several names; of Settings that may not be read, nobody
	if ruled, err := s.ruling(ctx); err == nil {
		people = ruled.People
	}
	but := wontCount(action, s.user.Username, s.user.Groups, people)
	if but == "" {
		return may.String()
	}
	return may.String() + ", but " + but
}

// wontCount says why somebody's yes to an action does not count although they have the right, or nothing.
func wontCount(action *v1alpha1.Action, name string, groups []string, people *approval.People) string {
	if asks := action.Spec.Principal.Agent; people.Same(asks, name) {
		return "you are the one who asks" + byAnotherName(asks, name) + ": your own yes does not count"
	}
	if user := action.Spec.Principal.User; user != nil && people.Same(*user, name) {
		return "it is asked on your behalf" + byAnotherName(*user, name) + ": your own yes does not count"
	}
	if ask := action.Status.Approval; ask != nil && len(ask.ApproverGroups) > 0 && !slices.ContainsFunc(ask.ApproverGroups, func(g string) bool { return slices.Contains(groups, g) }) {
		return "only people of " + strings.Join(ask.ApproverGroups, ", ") + " are asked, and you are in none of these: your yes does not count"
	}
	return ""
}

func byAnotherName(there, here string) string {
	if there == here {
		return ""
	}
	return ", as " + there
}

func (a *app) sendAnswer(ctx context.Context, s *session, answer *answering, approval *v1alpha1.Approval) error {
	own := func(existing kube.Object) bool {
		have := existing.(*v1alpha1.Approval).Spec
		return have.Approver == s.user.Username && have.ActionRef == approval.Spec.ActionRef && have.ActionHash == approval.Spec.ActionHash && have.Decision == approval.Spec.Decision
	}
	var before *v1alpha1.ActionApproval
	if action, err := s.action(ctx, approval.Spec.ActionRef.Name); err == nil {
		before = action.Status.Approval
	}
	if err := s.CreateStatement(ctx, approval, approval.Name, own); err != nil {
		return stated(err)
	}
	if err := a.waitAccepted(ctx, s, approval, acceptTimeout); err != nil {
		return err
	}
	if !answer.objects.table() {
		return answer.objects.object(a, s.kube.Scheme(), approval)
	}
	a.println(map[v1alpha1.ApprovalDecision]string{v1alpha1.Approved: "approved:", v1alpha1.Denied: "denied:"}[answer.decision], approval.Name)
	if action, err := s.counted(ctx, approval.Spec.ActionRef.Name, before); err == nil {
		a.note("%s", oneLine(afterAnswer(action)))
	}
	return nil
}

// countTimeout is how long the vote that was just accepted is awaited in the Action.
const countTimeout = 3 * time.Second

// counted reads the Action once the votes are others than before, or it goes on otherwise.
func (s *session) counted(ctx context.Context, name string, before *v1alpha1.ActionApproval) (*v1alpha1.Action, error) {
	deadline := time.Now().Add(countTimeout)
	for {
		action, err := s.action(ctx, name)
		if err != nil || action.Status.State != v1alpha1.ActionAwaitingApproval || before == nil || action.Status.Approval == nil ||
			action.Status.Approval.Counted != before.Counted || time.Now().After(deadline) {
			return action, err
		}
		select {
		case <-ctx.Done():
			return action, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func afterAnswer(action *v1alpha1.Action) string {
	switch action.Status.State {
	case v1alpha1.ActionAwaitingApproval:
		return fmt.Sprintf("votes %s: it waits for more people", votes(action))
	case v1alpha1.ActionClaimable:
		return "the agent can now execute it: " + claimCommandLine(action)
	}
	text := fmt.Sprintf("action %s is %s", action.Name, action.Status.State)
	if action.Status.State.Terminal() && action.Status.Message != "" {
		text += ": " + action.Status.Message
	}
	return text
}
