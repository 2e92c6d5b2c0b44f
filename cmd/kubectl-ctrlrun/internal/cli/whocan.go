package cli

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

const whoCanLong = `List who may approve or resolve an action type in the namespace, by the Roles and bindings you can read.

A person needs two rights: create on approvals (or resolutions), and the verb on the type, both are checked here. It says
which objects it could not read: then the list may be too short. Other authorizers of the cluster are not visible to it.`

func (a *app) whoCanCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "who-can approve|resolve TYPE",
		Short:             "List who may approve or resolve an action type",
		Long:              whoCanLong,
		Example:           "  kubectl ctrlrun who-can approve stripe.refund -n payments",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.FixedCompletions([]string{"approve", "resolve"}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, actionType := args[0], args[1]
			if verb != "approve" && verb != "resolve" {
				return exit.Errorf(exit.Usage, "who-can answers for approve and resolve, not %q", verb)
			}
			if err := checkType(actionType); err != nil {
				return err
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if err := s.namespaceThere(cmd.Context()); err != nil {
				return err
			}
			return a.whoCan(cmd.Context(), s, verb, actionType)
		},
	}
}

// able is somebody whom Roles let answer.
type able struct {
	Subject string   `json:"subject"`
	By      []string `json:"by"`
	// Create says that they may make the statement as well; without it the right to answer is of no use by itself.
	Create bool `json:"create"`
}

// able lists who may answer about an action type, and what could not be read.
func (s *session) able(ctx context.Context, verb, actionType string) (list []able, unread []string, nothing bool) {
	reader := rbacReader{session: s, roles: map[rbacv1.RoleRef][]rbacv1.PolicyRule{}}
	grants := reader.grants(ctx)
	by := map[string][]string{}
	create := map[string]bool{}
	for _, g := range grants {
		if grantsRule(g.rules, "create", rights[verb].statement, "") {
			create[g.subject] = true
		}
		for _, name := range candidates(actionType) {
			if grantsRule(g.rules, verb, typesResource, name) {
				by[g.subject] = append(by[g.subject], g.by)
				break
			}
		}
	}
	for _, subject := range sortedKeys(by) {
		sort.Strings(by[subject])
		list = append(list, able{Subject: subject, By: slices.Compact(by[subject]), Create: create[subject]})
	}
	return list, reader.unread, len(grants) == 0 && len(reader.unread) > 0
}

func (a *app) whoCan(ctx context.Context, s *session, verb, actionType string) error {
	people, unread, nothing := s.able(ctx, verb, actionType)
	for _, problem := range unread {
		a.note("cannot read %s: the list may be too short", displayLine(problem))
	}
	if nothing {
		return exit.Errorf(exit.Refused, "nothing could be read; ask somebody who may read roles and rolebindings in %s", s.Namespace())
	}
	if groups := s.askedGroups(ctx, actionType); verb == "approve" && len(groups) > 0 {
		a.note("of these, policy counts only people of %s", displayLine(strings.Join(groups, ", ")))
	}
	t := a.table("SUBJECT", "MAY "+strings.ToUpper(verb), "BY")
	for _, one := range people {
		answer := "yes"
		if !one.Create {
			answer = "only if another binding gives create on " + rights[verb].statement
		}
		t.row(one.Subject, answer, strings.Join(one.By, ", "))
	}
	if len(people) == 0 {
		return exit.Errorf(exit.Failure, "nobody that can be seen may %s %s in %s: bind a Role with the verb %s on %s.%s, resourceNames [%q]",
			verb, actionType, s.Namespace(), verb, typesResource, v1alpha1.GroupVersion.Group, actionType)
	}
	t.flush()
	return nil
}

// askedGroups are the groups of which the policies that may be read want an approver of that type to be in one.
func (s *session) askedGroups(ctx context.Context, actionType string) []string {
	var list v1alpha1.ActionPolicyList
	if err := s.kube.List(ctx, &list, kube.InNamespace(s.Namespace())); err != nil {
		return nil
	}
	for i := range list.Items {
		if groups := list.Items[i].Spec.Actions[actionType].ApproverGroups; len(groups) > 0 {
			return groups
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// grantsRule says whether rules give a verb on one of our resources. An empty name asks for the right on all of them, as a
// create needs it: resourceNames never apply to create.
func grantsRule(rules []rbacv1.PolicyRule, verb, resource, name string) bool {
	for _, rule := range rules {
		if has(rule.Verbs, verb) && has(rule.APIGroups, v1alpha1.GroupVersion.Group) && has(rule.Resources, resource) &&
			(len(rule.ResourceNames) == 0 || name != "" && slices.Contains(rule.ResourceNames, name)) {
			return true
		}
	}
	return false
}

func has(list []string, word string) bool {
	return slices.Contains(list, word) || slices.Contains(list, wildcard)
}

// grant is one subject's share of one role.
type grant struct {
	subject string
	by      string
	rules   []rbacv1.PolicyRule
}

// rbacReader reads what binds people in a namespace, and remembers what it could not read.
type rbacReader struct {
	session *session
	unread  []string
	roles   map[rbacv1.RoleRef][]rbacv1.PolicyRule
}

func (r *rbacReader) grants(ctx context.Context) []grant {
	var grants []grant
	var bindings rbacv1.RoleBindingList
	if r.list(ctx, "rolebindings", &bindings, kube.InNamespace(r.session.Namespace())) {
		for _, b := range bindings.Items {
			grants = append(grants, r.expand(ctx, "RoleBinding/"+b.Name, b.RoleRef, b.Subjects)...)
		}
	}
	var clusterBindings rbacv1.ClusterRoleBindingList
	if r.list(ctx, "clusterrolebindings", &clusterBindings) {
		for _, b := range clusterBindings.Items {
			grants = append(grants, r.expand(ctx, "ClusterRoleBinding/"+b.Name, b.RoleRef, b.Subjects)...)
		}
	}
	return grants
}

func (r *rbacReader) list(ctx context.Context, what string, list kube.ObjectList, opts ...kube.ListOption) bool {
	if err := r.session.kube.List(ctx, list, opts...); err != nil {
		r.note(what)
		return false
	}
	return true
}

func (r *rbacReader) note(what string) {
	if !slices.Contains(r.unread, what) {
		r.unread = append(r.unread, what)
	}
}

func (r *rbacReader) expand(ctx context.Context, binding string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) []grant {
	rules, ok := r.rules(ctx, ref)
	if !ok {
		return nil
	}
	var grants []grant
	for _, subject := range subjects {
		name := subject.Kind + " " + subject.Name
		if subject.Kind == rbacv1.ServiceAccountKind {
			name = fmt.Sprintf("User system:serviceaccount:%s:%s", subject.Namespace, subject.Name)
		}
		grants = append(grants, grant{subject: name, by: binding + " -> " + ref.Kind + "/" + ref.Name, rules: rules})
	}
	return grants
}

// rules of a role, read once. A role that is not there gives nothing; one that cannot be read is noted.
func (r *rbacReader) rules(ctx context.Context, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, bool) {
	if rules, known := r.roles[ref]; known {
		return rules, rules != nil
	}
	rules, err := r.readRules(ctx, ref)
	if err != nil && !apierrors.IsNotFound(err) {
		r.note(strings.ToLower(ref.Kind) + " " + ref.Name)
	}
	r.roles[ref] = rules
	return rules, rules != nil
}

func (r *rbacReader) readRules(ctx context.Context, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "Role" {
		var role rbacv1.Role
		err := r.session.kube.Get(ctx, r.session.key(ref.Name), &role)
		return role.Rules, err
	}
	var role rbacv1.ClusterRole
	err := r.session.kube.Get(ctx, kube.ObjectKey{Name: ref.Name}, &role)
	return role.Rules, err
}
