package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// TB is what this package needs of a test: *testing.T, *testing.B and Ginkgo's GinkgoT() have it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// Namespace creates a namespace with a name of its own and fails the test if that fails. It is not deleted: nothing here
// would finish its termination, and the environment goes away as a whole.
func (e *Environment) Namespace(t TB, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	if err := e.admin.Create(context.Background(), ns); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	return ns.Name
}

// RecreateNamespace deletes a namespace and creates one of the same name, with another uid. Nothing here empties a namespace
// and finishes its termination, so this finishes it, after empty has deleted what should not be there any more.
func (e *Environment) RecreateNamespace(ctx context.Context, name string, empty func()) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := e.admin.Delete(ctx, ns); err != nil {
		return err
	}
	empty()
	if err := e.admin.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil {
		return err
	}
	ns.Spec.Finalizers = nil
	if err := e.admin.SubResource("finalize").Update(ctx, ns); err != nil {
		return fmt.Errorf("finishing the termination of namespace %s: %w", name, err)
	}
	err := poll(ctx, 10*time.Second, func(ctx context.Context) (bool, error) {
		err := e.admin.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of namespace %s: %w", name, err)
	}
	return e.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// Policy creates an ActionPolicy named payments with the given spec, in JSON, and returns when an operator, which must be
// running, has judged it.
func (e *Environment) Policy(ctx context.Context, namespace, spec string) error {
	p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "payments"}}
	if err := json.Unmarshal([]byte(spec), &p.Spec); err != nil {
		return err
	}
	if err := e.admin.Create(ctx, p); err != nil {
		return err
	}
	err := poll(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		err := e.admin.Get(ctx, client.ObjectKeyFromObject(p), p)
		return p.Status.ObservedGeneration == p.Generation, err
	})
	if err != nil {
		return fmt.Errorf("waiting for an operator to judge the policy of %s: %w", namespace, err)
	}
	return nil
}

// Grant binds a ClusterRole to users, in a namespace or, if that is empty, in the whole cluster. It returns when the
// apiserver's authorizer, which learns of it by a watch, grants every rule of the role.
func (e *Environment) Grant(ctx context.Context, namespace, clusterRole string, users ...User) error {
	role := &rbacv1.ClusterRole{}
	if err := e.admin.Get(ctx, client.ObjectKey{Name: clusterRole}, role); err != nil {
		return err
	}
	if len(role.Rules) == 0 {
		return fmt.Errorf("ClusterRole %s has no rules; aggregated ones stay empty here", clusterRole)
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole}
	return e.bind(ctx, namespace, ref, role.Rules, users)
}

// Allow gives one user rules of a Role made for the purpose, in a namespace or, if that is empty, in the whole cluster. It
// returns when they are granted.
func (e *Environment) Allow(ctx context.Context, namespace string, u User, rules ...rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{GenerateName: "testenv-", Namespace: namespace}
	var role client.Object = &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	kind := "Role"
	if namespace == "" {
		role, kind = &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, "ClusterRole"
	}
	if err := e.admin.Create(ctx, role); err != nil {
		return err
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role.GetName()}
	return e.bind(ctx, namespace, ref, rules, []User{u})
}

func (e *Environment) bind(ctx context.Context, namespace string, ref rbacv1.RoleRef, rules []rbacv1.PolicyRule, users []User) error {
	var subjects []rbacv1.Subject
	for _, u := range users {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u.Name})
	}
	meta := metav1.ObjectMeta{GenerateName: "testenv-", Namespace: namespace}
	var binding client.Object = &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}
	if namespace == "" {
		binding = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}
	}
	if err := e.admin.Create(ctx, binding); err != nil {
		return err
	}
	for _, u := range users {
		for _, a := range attributes(namespace, rules) {
			if err := e.WaitForAccess(ctx, u, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// WaitForAccess returns when the apiserver's authorizer grants something to a user.
func (e *Environment) WaitForAccess(ctx context.Context, u User, a authorizationv1.ResourceAttributes) error {
	err := poll(ctx, 10*time.Second, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Name, Groups: u.Groups, ResourceAttributes: &a,
		}}
		err := e.admin.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("waiting until %s may %s %s.%s/%s: %w", u.Name, a.Verb, a.Resource, a.Group, a.Name, err)
	}
	return nil
}

// attributes lists one question for each thing the rules allow; a wildcard is asked for as itself.
func attributes(namespace string, rules []rbacv1.PolicyRule) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					resource, subresource, _ := strings.Cut(resource, "/")
					for _, name := range names {
						all = append(all, authorizationv1.ResourceAttributes{
							Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
						})
					}
				}
			}
		}
	}
	return all
}
