package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/grammar"
	"ctrlrun.dev/operator/records"
)

const revokeLong = `Cut delegations, each with everything below it, at once and for good. There is no way back but another Delegation.

  NAME                   that one
  --under KIND/NAME      every one below a Grant or a Delegation, however deep; not the named one itself
  --created-by AGENT     every one that AGENT made; with --for USER only those it made on behalf of USER
  --agent NAME           everything of one agent: every one that is for NAME, and every one that NAME made

What was refused at its creation grants nothing and is left out. A Grant is not revoked: it is edited where it is kept; with
--agent those that still name the agent are listed.

It shows what would be cut, asks, and creates one Revocation for each, those nearest to their Grants first. It can be started
again after whatever stopped it: what was revoked already is counted, and is no error. One that is refused does not stop the
others. A search that finds nothing exits 1.`

// revoking is the command line of revoke.
type revoking struct {
	name      string
	under     string
	createdBy string
	user      string
	agent     string
	reason    string
	yes       bool
	dryRun    string
	objects   *objectFlags
}

func (a *app) revokeCommand() *cobra.Command {
	r := &revoking{objects: newObjectFlags()}
	cmd := &cobra.Command{
		Use:   "revoke NAME | --under KIND/NAME | --created-by AGENT | --agent NAME",
		Short: "Cut delegations and everything below them",
		Long:  revokeLong,
		Example: "  kubectl ctrlrun revoke refunds-helper --reason \"its token leaked\"\n  kubectl ctrlrun revoke --under Grant/refunds --dry-run=client\n" +
			"  kubectl ctrlrun revoke --agent system:serviceaccount:payments:refund-agent --yes",
		ValidArgsFunction: a.completeDelegations(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(args); err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.revoke(cmd.Context(), s, r)
		},
	}
	cmd.Flags().StringVar(&r.under, "under", "", "every delegation below this Grant/NAME or Delegation/NAME")
	cmd.Flags().StringVar(&r.createdBy, "created-by", "", "every delegation that this agent made")
	cmd.Flags().StringVar(&r.user, "for", "", "with --created-by: only those made on behalf of this user")
	cmd.Flags().StringVar(&r.agent, "agent", "", "every delegation that is for this agent or was made by it")
	cmd.Flags().StringVar(&r.reason, "reason", "", "why, in your own words; kept in the receipt")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	addDryRun(cmd, &r.dryRun, "client: show what would be revoked, and revoke nothing; with -o yaml the Revocations")
	r.objects.addTo(cmd)
	return cmd
}

func (r *revoking) check(args []string) error {
	switch {
	case len(args) > 1:
		return exit.Errorf(exit.Usage, "name one delegation; for several give --under, --created-by or --agent")
	case len(args) == 1 && r.under != "":
		return exit.Errorf(exit.Usage, "give a NAME or --under: --under cuts what is below, and not the named one itself")
	case len(args) == 1 && r.createdBy != "":
		return exit.Errorf(exit.Usage, "give a NAME or --created-by: a name says which one, whoever made it")
	case len(args) == 1 && r.agent != "":
		return exit.Errorf(exit.Usage, "give a NAME or --agent: a name says which one, whomever it is for")
	case r.under != "" && r.createdBy != "":
		return exit.Errorf(exit.Usage, "give --under or --created-by, one after the other: their union and what is in both are two different things")
	case r.under != "" && r.agent != "":
		return exit.Errorf(exit.Usage, "give --under or --agent, one after the other: their union and what is in both are two different things")
	case r.createdBy != "" && r.agent != "":
		return exit.Errorf(exit.Usage, "give --created-by or --agent: --agent has what it created already")
	case r.user != "" && r.createdBy == "":
		return exit.Errorf(exit.Usage, "--for goes with --created-by: it says on whose behalf the agent delegated")
	case len(args) == 0 && r.under == "" && r.createdBy == "" && r.agent == "":
		return exit.Errorf(exit.Usage, "say what to revoke: the NAME of a delegation, --under, --created-by or --agent")
	}
	if len(args) == 1 {
		ref, err := parseRef(args[0])
		if err != nil {
			return err
		}
		if ref.Kind == authority.KindGrant {
			return exit.Errorf(exit.Usage, "%s is a grant, and grants are not revoked: edit or delete it; revoke --under %s cuts what was handed on", ref, ref)
		}
		r.name = ref.Name
	}
	if r.under != "" {
		if _, err := parseRef(r.under); err != nil {
			return fmt.Errorf("--under: %w", err)
		}
	}
	if err := checkDryRun(r.dryRun); err != nil {
		return err
	}
	if err := checkLength("--reason", r.reason, maxReason); err != nil {
		return usage(err)
	}
	return r.objects.check()
}

// search is what was asked for, in words.
func (r *revoking) search(under authority.Ref) string {
	switch {
	case r.under != "":
		return "below " + under.String()
	case r.createdBy != "" && r.user != "":
		return fmt.Sprintf("created by %s for %s", r.createdBy, r.user)
	case r.createdBy != "":
		return "created by " + r.createdBy
	}
	return fmt.Sprintf("for %s or created by it", r.agent)
}

// chosen are the delegations of a search, those nearest to their grants first: what is cut there is cut at once with all below.
type chosen struct {
	todo    []*v1alpha1.Delegation
	already []*v1alpha1.Delegation
	refused int // they grant nothing
}

func (x *authorities) choose(r *revoking, under authority.Ref) chosen {
	var below []authority.Ref
	if r.under != "" {
		below = x.set.Below(under)
	}
	var found chosen
	depth := map[string]int{}
	for _, v := range x.set.Standing(time.Time{}) {
		o := x.delegations[v.Ref.Name]
		if v.Ref.Kind != authority.KindDelegation || o == nil {
			continue
		}
		depth[o.Name] = v.Depth
		by, subject := o.Spec.Delegator, o.Spec.Subject.Agent
		switch {
		case r.name != "" && o.Name != r.name,
			r.under != "" && !slices.Contains(below, v.Ref),
			r.createdBy != "" && by.Agent != r.createdBy,
			r.user != "" && (by.User == nil || *by.User != r.user),
			r.agent != "" && by.Agent != r.agent && (subject == nil || *subject != r.agent):
		case refused(o.Status.Conditions) != nil:
			found.refused++
		case x.revoked(o):
			found.already = append(found.already, o)
		default:
			found.todo = append(found.todo, o)
		}
	}
	slices.SortStableFunc(found.todo, func(a, b *v1alpha1.Delegation) int {
		return cmp.Or(cmp.Compare(depth[a.Name], depth[b.Name]), strings.Compare(a.Name, b.Name))
	})
	return found
}

func (a *app) revoke(ctx context.Context, s *session, r *revoking) error {
	if err := s.namespaceThere(ctx); err != nil {
		return err
	}
	found, err := s.authorities(ctx, v1alpha1.DefaultMaxDelegationDepth) // the depth decides nothing here
	if err != nil {
		return err
	}
	var under authority.Ref
	if r.under != "" {
		if under, err = parseRef(r.under); err != nil {
			return err
		}
		if under, err = found.resolve(under, s.Namespace()); err != nil {
			return err
		}
	}
	all := found.choose(r, under)
	if len(all.todo)+len(all.already) == 0 {
		return r.nothing(all, found, under, s.Namespace())
	}
	if r.agent != "" {
		a.noteGrants(found, r.agent)
	}
	if len(all.todo) == 0 {
		a.note("%s", alreadyText(r, all))
		return nil
	}
	missing, err := s.mayRevoke(ctx, all.todo)
	if err != nil {
		return err
	}
	a.showRevocations(s, r, found, all, missing)
	if len(missing) == len(all.todo) {
		return exit.Errorf(exit.Refused, "you may not revoke %s in namespace %s: you lack %s", all.todo[0].Name, s.Namespace(), missing[all.todo[0].Name])
	}
	if r.dryRun == dryRunClient {
		return a.printRevocations(s, r, all.todo)
	}
	if !r.yes {
		if err := a.confirm(fmt.Sprintf("Revoke %s, for good?", plural(len(all.todo), "delegation")), "--yes"); err != nil {
			return err
		}
	}
	return a.sendRevocations(ctx, s, r, all, missing)
}

// nothing is the error of a search that found nothing to cut.
func (r *revoking) nothing(all chosen, found *authorities, under authority.Ref, namespace string) error {
	switch {
	case r.name != "" && found.delegations[r.name] != nil:
		return exit.Errorf(exit.Failure, "delegation %s was refused at its creation (%s) and grants nothing: there is nothing to revoke",
			r.name, refused(found.delegations[r.name].Status.Conditions).Reason)
	case r.name != "" && found.grants[r.name] != nil:
		return exit.Errorf(exit.Failure, "there is no delegation %q in namespace %s, but a grant of that name: edit or delete it; revoke --under Grant/%[1]s cuts what was handed on", r.name, namespace)
	case r.name != "":
		return exit.Errorf(exit.Failure, "there is no delegation %q in namespace %s; kubectl ctrlrun grants shows those there are", r.name, namespace)
	}
	text := fmt.Sprintf("no delegation %s in namespace %s", r.search(under), namespace)
	if all.refused > 0 {
		text += fmt.Sprintf(" but %d that were refused at their creation and grant nothing", all.refused)
	}
	if grants := found.naming(r.agent); len(grants) > 0 {
		text += fmt.Sprintf("; grants are not revoked, and these still name it: %s", strings.Join(grants, ", "))
	}
	return exit.Errorf(exit.Failure, "%s", text)
}

// naming are the grants that an agent may propose by.
func (x *authorities) naming(agent string) []string {
	var names []string
	for _, name := range sortedKeys(x.grants) {
		if agent != "" && patternMatches(grammar.KindSubject, x.grants[name].Spec.Subject.Agent, agent) {
			names = append(names, "Grant/"+name)
		}
	}
	return names
}

func (a *app) noteGrants(found *authorities, agent string) {
	if grants := found.naming(agent); len(grants) > 0 {
		a.note("grants are not revoked, and these still let %s propose: %s; edit them where they are kept", displayLine(agent), displayLine(strings.Join(grants, ", ")))
	}
}

func alreadyText(r *revoking, all chosen) string {
	if r.name != "" {
		return r.name + " was revoked already"
	}
	return fmt.Sprintf("%s: %s", plural(len(all.already), "delegation"), "revoked already")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// mayRevoke says of each that may not be revoked which right is missing. Who may revoke all is asked once.
func (s *session) mayRevoke(ctx context.Context, todo []*v1alpha1.Delegation) (map[string]string, error) {
	missing := map[string]string{}
	may := func(verb, resource, name string) (bool, error) {
		return s.may(ctx, authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Name: name})
	}
	creates, err := may("create", "revocations", "")
	if err != nil {
		return nil, err
	}
	every, err := may("revoke", "delegations", "")
	if err != nil {
		return nil, err
	}
	for _, o := range todo {
		if !creates {
			missing[o.Name] = "create on revocations"
			continue
		}
		one := every
		if !one {
			if one, err = may("revoke", "delegations", o.Name); err != nil {
				return nil, err
			}
		}
		if !one {
			missing[o.Name] = "revoke on delegations/" + o.Name
		}
	}
	return missing, nil
}

// showRevocations shows on stderr what is cut: stdout is for the answer.
func (a *app) showRevocations(s *session, r *revoking, found *authorities, all chosen, missing map[string]string) {
	f := a.fieldsOn(a.streams.ErrOut)
	f.row("Cluster", s.cluster)
	f.row("Namespace", s.Namespace())
	f.row("You", s.user.Username)
	f.row("Reason", r.reason)
	f.gap()
	f.flush()
	t := a.tableOn(a.streams.ErrOut, "REVOKE", "PARENT", "FOR", "MADE BY", "ALSO CUT", "YOU MAY")
	chosenToo := map[string]bool{}
	for _, o := range all.todo {
		chosenToo[o.Name] = true
	}
	for _, o := range all.todo {
		others := 0
		for _, ref := range found.set.Below(authority.Ref{Kind: authority.KindDelegation, Name: o.Name}) {
			if below := found.delegations[ref.Name]; below != nil && !chosenToo[ref.Name] && refused(below.Status.Conditions) == nil && !found.revoked(below) {
				others++
			}
		}
		may := "yes"
		if lack := missing[o.Name]; lack != "" {
			may = "no, you lack " + lack
		}
		t.row(o.Name, parentOf(o).String(), subjectText(o.Spec.Subject), principalText(o.Spec.Delegator.Agent, o.Spec.Delegator.User), plural(others, "delegation")+" below", may)
	}
	t.flush()
	if len(all.already) > 0 {
		a.note("%s", alreadyText(r, all))
	}
}

func newRevocation(o *v1alpha1.Delegation, reason, username string) *v1alpha1.Revocation {
	revocation := &v1alpha1.Revocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: client.StatementName(o.Name, username)},
		Spec:       v1alpha1.RevocationSpec{DelegationRef: v1alpha1.ObjectReference{Name: o.Name, UID: o.UID}, Revoker: username},
	}
	if reason != "" {
		revocation.Spec.Reason = &reason
	}
	return revocation
}

func (a *app) printRevocations(s *session, r *revoking, todo []*v1alpha1.Delegation) error {
	list := &v1alpha1.RevocationList{}
	for _, o := range todo {
		list.Items = append(list.Items, *newRevocation(o, r.reason, s.user.Username))
	}
	if !r.objects.table() {
		return r.objects.object(a, s.kube.Scheme(), list)
	}
	for _, o := range todo {
		a.println("would revoke:", o.Name)
	}
	a.note("nothing was revoked: this is a dry run")
	return nil
}

// sendRevocations creates all of them before it waits for any verdict: they cut from when the operator sees them. If this
// process dies in between, what was created stays, and whoever starts it again goes on with the rest.
func (a *app) sendRevocations(ctx context.Context, s *session, r *revoking, all chosen, missing map[string]string) error {
	var created []*v1alpha1.Revocation
	failures := &failed{}
	for _, o := range all.todo {
		if lack := missing[o.Name]; lack != "" {
			failures.add(o.Name, exit.Errorf(exit.Refused, "you may not revoke it: you lack %s", lack))
			continue
		}
		revocation := newRevocation(o, r.reason, s.user.Username)
		own := func(existing kube.Object) bool {
			have := existing.(*v1alpha1.Revocation)
			return have.Spec.DelegationRef == revocation.Spec.DelegationRef && refused(have.Status.Conditions) == nil
		}
		if err := s.CreateStatement(ctx, revocation, revocation.Name, own); err != nil {
			failures.add(o.Name, stated(err))
			continue
		}
		created = append(created, revocation)
	}
	list := &v1alpha1.RevocationList{}
	timeout := acceptTimeout
	for _, revocation := range created {
		name := revocation.Spec.DelegationRef.Name
		judged, err := a.waitJudged(ctx, s, revocation, timeout)
		if exit.Of(err) == exit.Waiting {
			timeout = time.Second // nobody judges: the rest is not waited for as long again
		}
		if err != nil {
			failures.add(name, err)
			continue
		}
		list.Items = append(list.Items, *judged.(*v1alpha1.Revocation))
		if r.objects.table() {
			a.println("revoked:", name)
		}
	}
	if !r.objects.table() && len(list.Items) > 0 {
		if err := r.objects.object(a, s.kube.Scheme(), list); err != nil {
			return err
		}
	}
	if r.name == "" {
		a.note("%d revoked now, %d already", len(list.Items), len(all.already))
	}
	return failures.err(r.name != "")
}

// failed are the errors of some of many.
type failed struct {
	lines []string
	code  exit.Code
	mixed bool
}

func (f *failed) add(name string, err error) {
	code := exit.Of(err)
	f.mixed = f.mixed || len(f.lines) > 0 && code != f.code
	f.code = code
	f.lines = append(f.lines, fmt.Sprintf("%s: %v", name, err))
}

// err has the code of all of them, or 1 if they differ.
func (f *failed) err(single bool) error {
	if len(f.lines) == 0 {
		return nil
	}
	code := f.code
	if f.mixed {
		code = exit.Failure
	}
	if single {
		return exit.Errorf(code, "%s", f.lines[0])
	}
	return exit.Errorf(code, "not revoked, or not known to be:\n%s", strings.Join(f.lines, "\n"))
}

// completeDelegations offers what can be revoked.
func (a *app) completeDelegations() completer {
	return a.completeNames(func(ctx context.Context, s *session) ([]string, error) {
		var list v1alpha1.DelegationList
		if err := s.kube.List(ctx, &list, kube.InNamespace(s.Namespace()), kube.Limit(records.PageSize)); err != nil {
			return nil, err
		}
		var names []string
		for i := range list.Items {
			if o := &list.Items[i]; refused(o.Status.Conditions) == nil && !(&authorities{}).revoked(o) {
				names = append(names, o.Name+"\t"+subjectText(o.Spec.Subject))
			}
		}
		return names, nil
	})
}
