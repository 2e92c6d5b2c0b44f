package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/records"
)

const delegateLong = `Hand a part of a Grant, or of a Delegation, on to one agent.

-f has the terms, as the spec of a Delegation or bare: subject, actions, resources, constraints, environments, expirationTime,
delegable. What the parent limits is limited again in them: a dimension that is left out is refused, not inherited.

It shows the terms beside the parent's, dimension by dimension, and judges them as the operator will: what would be refused is
named and not created. Then it asks, creates the Delegation, waits until the operator has accepted it, and prints its name, its
parent, and how many steps it is below its Grant. Started again with the same terms it finds the Delegation that is there.

--for says on behalf of whom you delegate, and needs the verb represent: a parent with a user is handed on by its agent for
that user. --break-glass opens a Grant of type BreakGlass and needs the verb breakglass on it.`

// delegating is the command line of delegate.
type delegating struct {
	parent     string
	file       string
	name       string
	user       string
	reason     string
	breakGlass bool
	yes        bool
	dryRun     string
	objects    *objectFlags
}

func (a *app) delegateCommand() *cobra.Command {
	d := &delegating{objects: newObjectFlags()}
	cmd := &cobra.Command{
		Use:   "delegate --parent NAME -f FILE",
		Short: "Hand a part of a grant on to an agent",
		Long:  delegateLong,
		Example: "  kubectl ctrlrun delegate --parent Grant/refunds -f helper.yaml --name refunds-helper\n" +
			"  kubectl ctrlrun delegate --parent emergency -f now.yaml --break-glass --reason \"INC-7: the queue is stuck\"",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parent, err := d.check()
			if err != nil {
				return err
			}
			terms, err := a.readTerms(d.file)
			if err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.delegate(cmd.Context(), s, d, parent, terms)
		},
	}
	cmd.Flags().StringVar(&d.parent, "parent", "", "what is handed on: Grant/NAME, Delegation/NAME, or a NAME that only one of the two has")
	cmd.Flags().StringVarP(&d.file, "filename", "f", "", "the terms (YAML or JSON), or - for stdin")
	cmd.Flags().StringVar(&d.name, "name", "", "name of the Delegation (default: made of the parent's and the agent's)")
	cmd.Flags().StringVar(&d.user, "for", "", "the user on whose behalf you delegate; needs the verb represent on users.ctrlrun.dev")
	cmd.Flags().BoolVar(&d.breakGlass, "break-glass", false, "open a grant of type BreakGlass; needs --reason")
	cmd.Flags().StringVar(&d.reason, "reason", "", "why, in your own words; kept in the receipt")
	cmd.Flags().BoolVar(&d.yes, "yes", false, "do not ask")
	addDryRun(cmd, &d.dryRun, "client: print the Delegation instead of creating it")
	d.objects.addTo(cmd)
	_ = cmd.MarkFlagRequired("parent")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func addDryRun(cmd *cobra.Command, value *string, usage string) {
	cmd.Flags().StringVar(value, "dry-run", "none", usage)
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunClient
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", dryRunClient}, cobra.ShellCompDirectiveNoFileComp))
}

func checkDryRun(value string) error {
	if value != "none" && value != dryRunClient {
		return exit.Errorf(exit.Usage, "--dry-run is none or client, not %q", value)
	}
	return nil
}

func (d *delegating) check() (authority.Ref, error) {
	parent, err := parseRef(d.parent)
	switch {
	case err != nil:
		return parent, fmt.Errorf("--parent: %w", err)
	case d.breakGlass && strings.TrimSpace(d.reason) == "":
		return parent, exit.Errorf(exit.Usage, "--break-glass needs --reason: what is the emergency?")
	case d.breakGlass && parent.Kind == authority.KindDelegation:
		return parent, exit.Errorf(exit.Usage, "--break-glass opens a grant, and %s is none", parent)
	case d.breakGlass:
		parent.Kind = authority.KindGrant
	}
	return parent, usage(errors.Join(checkDryRun(d.dryRun), checkLength("--reason", d.reason, maxReason), d.objects.check()))
}

// readTerms reads what is handed on: a canonical object.
func (a *app) readTerms(path string) (map[string]any, error) {
	data, err := a.readInput(path)
	if err != nil {
		return nil, err
	}
	broken := func(err error) (map[string]any, error) {
		return nil, usage(fmt.Errorf("%s: %w", inputName(path), err))
	}
	// JSON is YAML, but for duplicate keys and long numbers the canonical reader is the stricter of the two.
	text := json.RawMessage(data)
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		root, err := documentRoot(data)
		if err != nil {
			return broken(err)
		}
		for _, node := range []*yaml.Node{member(root, "expirationTime"), member(member(root, "spec"), "expirationTime")} {
			if node != nil && node.ShortTag() == "!!timestamp" {
				node.Tag = "!!str" // a time without quotes is the same text
			}
		}
		if text, err = jsonOf(root); err != nil {
			return broken(err)
		}
	}
	value, err := canonical.Parse(text)
	if err != nil {
		return broken(err)
	}
	terms, ok := value.(map[string]any)
	if !ok {
		return broken(fmt.Errorf("terms are a mapping with subject and actions"))
	}
	if spec, ok := terms["spec"]; ok {
		for _, key := range sortedKeys(terms) {
			if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec"}, key) {
				return broken(fmt.Errorf("%s stands beside spec: indent it below spec, or remove it", key))
			}
		}
		if terms, ok = spec.(map[string]any); !ok {
			return broken(fmt.Errorf("spec is a mapping with subject and actions"))
		}
	}
	for key, instead := range map[string]string{
		"parentRef": "--parent names it", "delegator": "it is you, and --for whom you act for", "breakGlass": "--break-glass says it", "reason": "--reason says it",
	} {
		if _, given := terms[key]; given {
			return nil, fmt.Errorf("%s: %s is no part of the terms: remove it; %s", inputName(path), key, instead)
		}
	}
	return terms, nil
}

// newDelegation is the object that is created, without a name. Findings in the terms are one error that lists them.
func newDelegation(namespace string, d *delegating, parent authority.Ref, terms map[string]any, username string) (*v1alpha1.Delegation, error) {
	spec := map[string]any{"parentRef": map[string]any{"kind": string(parent.Kind), "name": parent.Name}}
	for key, value := range terms {
		spec[key] = value
	}
	delegator := map[string]any{"agent": username}
	if d.user != "" {
		delegator["user"] = d.user
	}
	spec["delegator"] = delegator
	if d.breakGlass {
		spec["breakGlass"] = true
	}
	if d.reason != "" {
		spec["reason"] = d.reason
	}
	if _, findings := authority.ParseDelegation(spec); len(findings) > 0 {
		var lines []string
		for _, finding := range findings {
			lines = append(lines, finding.String())
		}
		return nil, fmt.Errorf("the terms in %s are not valid:\n%s", inputName(d.file), strings.Join(lines, "\n"))
	}
	text, err := canonical.Encode(spec)
	if err != nil {
		return nil, err
	}
	object := &v1alpha1.Delegation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	if err := json.Unmarshal(text, &object.Spec); err != nil {
		return nil, err
	}
	object.Spec.Raw = nil // what is judged is what will be stored
	return object, nil
}

// delegationName is made of the parent's and the agent's names, so that people recognise it. It leaves room for a number.
func delegationName(parent authority.Ref, agent string) string {
	const most = 45
	cut := func(s string) string { return strings.Trim(s[:min(len(s), most)], "-.") }
	return cut(parent.Name) + "." + cut(action.Speaker(agent))
}

func (a *app) delegate(ctx context.Context, s *session, d *delegating, parent authority.Ref, terms map[string]any) error {
	if err := s.namespaceThere(ctx); err != nil {
		return err
	}
	ruled, err := s.ruling(ctx)
	if err != nil {
		return err
	}
	found, unreadable := s.authorities(ctx, ruled.MaxDepth)
	switch {
	case unreadable == nil:
		if parent, err = found.resolve(parent, s.Namespace()); err != nil {
			return err
		}
	case exit.Of(unreadable) != exit.Refused:
		return unreadable
	case parent.Kind == "":
		return exit.Errorf(exit.Usage, "--parent %s: you may not read grants and delegations, so say which it is: Grant/%[1]s or Delegation/%[1]s", parent.Name)
	}
	object, err := newDelegation(s.Namespace(), d, parent, terms, s.user.Username)
	if err != nil {
		return err
	}
	object.Name = d.name
	if d.name == "" {
		object.Name = delegationName(parent, orNone(object.Spec.Subject.Agent))
	}
	missing, err := s.mayDelegate(ctx, d, parent)
	if err != nil {
		return err
	}
	var judged *authority.Judgement
	if found != nil {
		j := found.judge(object, time.Now())
		judged = &j
	}
	a.showDelegation(s, found, ruled, object, parent, judged, missing)
	if missing != "" {
		return exit.Errorf(exit.Refused, "you may not delegate this in namespace %s: you lack %s", s.Namespace(), missing)
	}
	// The depth is the one thing that is judged by the Settings: who may not read them leaves it to the operator.
	if judged != nil && !judged.Accepted() && (judged.Refusal != authority.MaxDepth || !ruled.unread) {
		return fmt.Errorf("nothing was created, for it would be refused: %s: %s", judgedReason(*judged), judged.Message)
	}
	if d.dryRun == dryRunClient {
		if d.objects.table() {
			*d.objects.print.OutputFormat = "yaml"
		}
		return d.objects.object(a, s.kube.Scheme(), object)
	}
	if err := a.refuseVoid(ctx, s); err != nil {
		return err
	}
	if !d.yes {
		question := "Hand on exactly this?"
		if d.breakGlass {
			question = "BREAK GLASS, and hand on exactly this?"
		}
		if err := a.confirm(question, "--yes"); err != nil {
			return err
		}
	}
	s.awaitSeen(ctx, parent)
	return a.sendDelegation(ctx, s, d, object, parent)
}

// awaitSeen waits a little until the operator has seen a Grant as it is now: a refusal for one that it has not seen yet is final
// as every other. Who may not read it, or whose operator says nothing, goes on: the verdict is the operator's.
func (s *session) awaitSeen(ctx context.Context, parent authority.Ref) {
	if parent.Kind != authority.KindGrant {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	for {
		var grant v1alpha1.Grant
		if err := s.kube.Get(ctx, s.key(parent.Name), &grant); err != nil || grant.Status.ObservedGeneration == grant.Generation {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// judgedReason is the machine word of a refusal, with the dimension if it is about one.
func judgedReason(j authority.Judgement) string {
	if j.Dimension == "" {
		return j.Refusal.Condition()
	}
	return fmt.Sprintf("%s (%s)", j.Refusal.Condition(), j.Dimension)
}

// judge is what the operator will say of a delegation that is not created yet.
func (x *authorities) judge(o *v1alpha1.Delegation, now time.Time) authority.Judgement {
	future := o.DeepCopy()
	future.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second)) // the apiserver stamps whole seconds
	return x.set.Judge(records.Delegation(future, time.Time{}), now)
}

// mayDelegate says which right is missing; "" if none is.
func (s *session) mayDelegate(ctx context.Context, d *delegating, parent authority.Ref) (string, error) {
	needed := []authorizationv1.ResourceAttributes{{Verb: "create", Resource: "delegations"}}
	if d.breakGlass {
		needed = append(needed, authorizationv1.ResourceAttributes{Verb: "breakglass", Resource: "grants", Name: parent.Name})
	}
	if d.user != "" {
		needed = append(needed, authorizationv1.ResourceAttributes{Verb: "represent", Resource: "users", Name: d.user})
	}
	for _, right := range needed {
		ok, err := s.may(ctx, right)
		if err != nil {
			return "", err
		}
		if !ok {
			return strings.TrimSuffix(right.Verb+" on "+right.Resource+"/"+right.Name, "/"), nil
		}
	}
	return "", nil
}

// showDelegation shows on stderr what is handed on: stdout is for the answer.
func (a *app) showDelegation(s *session, found *authorities, ruled ruling, o *v1alpha1.Delegation, parent authority.Ref, judged *authority.Judgement, missing string) {
	f := a.fieldsOn(a.streams.ErrOut)
	f.row("Cluster", s.cluster)
	f.row("Namespace", s.Namespace())
	f.row("You", principalText(s.user.Username, o.Spec.Delegator.User))
	f.row("You may", verdict{allowed: missing == "", missing: missing}.String())
	if o.Spec.BreakGlass != nil && *o.Spec.BreakGlass {
		f.row("BREAK GLASS", "this opens "+parent.String()+" for an emergency; it is on record, and said loudly")
	}
	f.row("Name", o.Name)
	if o.Spec.Reason != nil {
		f.row("Reason", *o.Spec.Reason)
	}
	f.gap()
	f.flush()
	t := a.tableOn(a.streams.ErrOut, "DIMENSION", strings.ToUpper(string(parent.Kind))+" "+parent.Name, "HANDED ON")
	for _, line := range beside(found, parent, o) {
		t.row(line[:]...)
	}
	t.flush()
	f = a.fieldsOn(a.streams.ErrOut)
	f.gap()
	f.row("Verdict", judgementText(judged, ruled))
	f.flush()
}

// beside is each dimension with what the parent says and what is handed on.
func beside(found *authorities, parent authority.Ref, o *v1alpha1.Delegation) [][3]string {
	const unseen = "not visible to you"
	own := func(t v1alpha1.GrantTerms, delegable string) []string {
		return []string{subjectText(t.Subject), orAny(t.Actions), orAny(t.Resources), constraintsText(t), orAny(t.Environments), expiresText(t), delegable}
	}
	theirs := []string{unseen, unseen, unseen, unseen, unseen, unseen, unseen}
	if found != nil {
		theirs = []string{"-", "-", "-", "-", "-", "-", "-"}
		if found.has(parent) {
			terms := found.terms(parent)
			theirs = own(terms, delegableText(terms))
			if grant := found.grants[parent.Name]; parent.Kind == authority.KindGrant && grant.Spec.MaxDurationSeconds != nil {
				theirs[5] = fmt.Sprintf("%s after it is opened", time.Duration(*grant.Spec.MaxDurationSeconds)*time.Second)
				theirs[6] = "can be opened"
			}
		}
	}
	var lines [][3]string
	for i, mine := range own(o.Spec.GrantTerms, delegableText(o.Spec.GrantTerms)) {
		lines = append(lines, [3]string{[]string{"subject", "actions", "resources", "constraints", "environments", "expires", "delegable"}[i], theirs[i], mine})
	}
	return lines
}

func judgementText(j *authority.Judgement, ruled ruling) string {
	if j == nil {
		return "not known before it is created: you may not read grants and delegations"
	}
	if j.Accepted() {
		text := "it will be accepted. " + j.Message
		if ruled.unread {
			text += fmt.Sprintf("\nYou may not read the Settings: a depth of %d is taken as the limit", ruled.MaxDepth)
		}
		return text
	}
	return "it will be refused, " + judgedReason(*j) + ". " + j.Message
}

func (a *app) sendDelegation(ctx context.Context, s *session, d *delegating, o *v1alpha1.Delegation, parent authority.Ref) error {
	said, err := saidBy(o)
	if err != nil {
		return err
	}
	var taken error
	own := func(existing kube.Object) bool {
		have := existing.(*v1alpha1.Delegation)
		same := sameDelegation(said, have)
		switch {
		case d.name == "":
			return same
		case !same:
			taken = exit.Errorf(exit.Failure, "there is a Delegation %s already, and it says something else, was refused or revoked: choose another --name", d.name)
		}
		return true
	}
	if err := s.CreateStatement(ctx, o, o.Name, own); err != nil {
		return stated(err)
	}
	if taken != nil {
		return taken
	}
	judged, err := a.waitJudged(ctx, s, o, acceptTimeout)
	if err != nil {
		return err
	}
	if !d.objects.table() {
		return d.objects.object(a, s.kube.Scheme(), judged)
	}
	depth := judged.(*v1alpha1.Delegation).Status.Depth
	a.println("delegated:", o.Name, "below", parent.String(), "depth", fmt.Sprint(depth))
	a.note("to end it: kubectl ctrlrun revoke %s -n %s", o.Name, s.Namespace())
	return nil
}

// saidBy is what a delegation says, without what the apiserver stamps beside the names.
func saidBy(o *v1alpha1.Delegation) (any, error) {
	value, err := records.CanonicalSpec(o.Spec.Raw, o.Spec)
	if err != nil {
		return nil, err
	}
	if spec, ok := value.(map[string]any); ok {
		if delegator, ok := spec["delegator"].(map[string]any); ok {
			delete(delegator, "claims")
		}
	}
	return value, nil
}

// sameDelegation reports whether existing says that, and holds or may yet.
func sameDelegation(said any, existing *v1alpha1.Delegation) bool {
	have, err := saidBy(existing)
	return err == nil && canonical.Equal(said, have) && refused(existing.Status.Conditions) == nil && !(&authorities{}).revoked(existing)
}
