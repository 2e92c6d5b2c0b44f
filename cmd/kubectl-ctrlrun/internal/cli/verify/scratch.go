package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
)

const (
	// namePrefix begins the name of every scratch namespace.
	namePrefix = "ctrlrun-verify-"
	// ScratchLabel is on every scratch namespace, so that one that a killed process left behind is found.
	ScratchLabel = "ctrlrun.dev/scratch"
	// RunLabel tells the scratch namespace of one run from everything else that has its name.
	RunLabel = "ctrlrun.dev/scratch-run"
	// tokenSeconds is how long the tokens of its ServiceAccounts are good for.
	tokenSeconds = 3600
	// removePatience bounds the search for it where that is needed, then the request that removes it, and then the wait until it is gone.
	removePatience = 20 * time.Second
)

// identity is somebody who acts in the scratch namespace.
type identity struct {
	*client.Client
	username string
	token    string
}

func (i *identity) kube() kube.WithWatch { return i.Client.Kube() }

// scratch is the namespace everything happens in, and who is there.
type scratch struct {
	namespace string
	id        string       // of this run, in RunLabel
	uid       types.UID    // "" until it is known which namespace is this run's
	unsure    bool         // the request to create it had no answer that says whether it is there, or will be
	config    *rest.Config // of whoever runs this
	admin     kube.Client  // likewise

	ahead time.Duration // of the cluster's clock, in whole seconds
	group string        // of everybody who acts here

	agent, rival, viewer, tamperer *identity
	approvers                      []*identity
	// Other names of the agent and of the first approver, where there are names of one person.
	agentAlias, approverAlias *identity
	// grants are the specs of the copies, by name.
	grants map[string]map[string]any
}

// now is the time by the cluster's clock, or up to a second before it.
func (s *scratch) now() time.Time { return time.Now().Add(s.ahead) }

// newAdmin is a client for what the SDK has no words for: it knows ServiceAccounts.
func newAdmin(config *rest.Config, sdk kube.Client) (kube.Client, error) {
	accounts := meta.NewDefaultRESTMapper(nil)
	accounts.AddSpecific(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
		corev1.SchemeGroupVersion.WithResource("serviceaccount"), meta.RESTScopeNamespace)
	return kube.New(config, kube.Options{Scheme: sdk.Scheme(), Mapper: meta.MultiRESTMapper{sdk.RESTMapper(), accounts}})
}

// in runs body in a scratch namespace, and removes the namespace however body ends: with an error, interrupted, or by a panic, which
// becomes an error. That the namespace could not be removed is told by remove, which never fails.
func in(ctx context.Context, create func(context.Context) error, remove func(context.Context), body func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("this is a mistake of verify itself: panic: %v\n%s", r, debug.Stack())
		}
	}()
	// Before the create: its response may be lost, or the interruption may come right behind it.
	defer func() { remove(context.WithoutCancel(ctx)) }()
	if err := create(ctx); err != nil {
		return err
	}
	return body(ctx)
}

// create makes the namespace.
func (s *scratch) create(ctx context.Context, environment string) error {
	labels := map[string]string{ScratchLabel: "verify", RunLabel: s.id}
	if environment != v1alpha1.DefaultEnvironment {
		labels[v1alpha1.EnvironmentLabel] = environment
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: labels}}
	if err := s.admin.Create(ctx, namespace); err != nil {
		s.unsure = !refused(err)
		return setup("create the scratch namespace "+s.namespace, err)
	}
	s.uid = namespace.UID
	s.ahead, s.group = time.Until(namespace.CreationTimestamp.Time), "system:serviceaccounts:"+s.namespace
	return nil
}

// refused reports whether an answer says that nothing was created, and nothing will be. That the name is taken does not: it may be by
// an earlier attempt at the same request, whose answer was lost.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsAlreadyExists(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// LeftBehindError says that the scratch namespace could not be removed, and what to do.
type LeftBehindError struct {
	Namespace string
	Err       error
}

func (e *LeftBehindError) Error() string {
	return fmt.Sprintf("the scratch namespace could not be removed: %v\nremove it: kubectl delete namespace %s", e.Err, e.Namespace)
}

// Unwrap gives errors.As the cause.
func (e *LeftBehindError) Unwrap() error { return e.Err }

// find looks for the namespace where the request to create it had no clear answer: it may be there, come later, or never come. One of
// the same name without the label of this run is somebody else's, and none of this run can come beside it.
func (s *scratch) find(ctx context.Context) error {
	for deadline := time.Now().Add(removePatience); ; {
		namespace := &corev1.Namespace{}
		err := s.admin.Get(ctx, kube.ObjectKey{Name: s.namespace}, namespace)
		if err == nil {
			if namespace.Labels[RunLabel] == s.id {
				s.uid = namespace.UID
			}
			return nil
		}
		if !apierrors.IsForbidden(err) && time.Now().Before(deadline) && pause(ctx, 250*time.Millisecond) {
			continue
		}
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("the request to create it had no answer, and %s later it is not there; it may still come", removePatience)
		}
		return &LeftBehindError{Namespace: s.namespace, Err: err}
	}
}

// remove deletes the namespace of this run, and no other, and waits for its end. It says whether the namespace is gone, and what to do
// if it could not be deleted.
func (s *scratch) remove(ctx context.Context) (gone bool, err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	ctx, cancel := context.WithTimeout(ctx, 3*removePatience)
	defer cancel()
	if s.unsure {
		if err := s.find(ctx); err != nil {
			return false, err
		}
	}
	if s.uid == "" {
		return true, nil
	}
	deadline := time.Now().Add(removePatience)
	for {
		err = s.admin.Delete(ctx, namespace, kube.Preconditions{UID: &s.uid})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || time.Now().After(deadline) || !pause(ctx, 500*time.Millisecond) {
			break
		}
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, &LeftBehindError{Namespace: s.namespace, Err: err}
	}
	for deadline := time.Now().Add(removePatience); time.Now().Before(deadline); {
		err := s.admin.Get(ctx, kube.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) || err == nil && namespace.UID != s.uid {
			return true, nil
		}
		if apierrors.IsForbidden(err) || !pause(ctx, 250*time.Millisecond) {
			return false, nil
		}
	}
	return false, nil
}

// pause waits, unless ctx is done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// setup gives an error of preparing its meaning: what may not be done is the caller's to get a right for.
func setup(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return unusable("you may not %s: %w; docs/verify.md has a ClusterRole with all that verify needs", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// rights are what is asked for before anything is created. A right is asked for in the namespace that does not exist yet, so a
// ClusterRole has to give it.
func (s *scratch) rights() []authorizationv1.ResourceAttributes {
	ours := v1alpha1.GroupVersion.Group
	return []authorizationv1.ResourceAttributes{
		{Verb: "create", Resource: "namespaces"},
		{Verb: "get", Resource: "namespaces", Name: s.namespace},
		{Verb: "delete", Resource: "namespaces", Name: s.namespace},
		{Verb: "create", Resource: "serviceaccounts", Namespace: s.namespace},
		{Verb: "delete", Resource: "serviceaccounts", Namespace: s.namespace},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: s.namespace},
		{Verb: "create", Group: rbacv1.GroupName, Resource: "roles", Namespace: s.namespace},
		{Verb: "create", Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: s.namespace},
		{Verb: "delete", Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: s.namespace},
		{Verb: "create", Group: ours, Resource: "actionpolicies", Namespace: s.namespace},
		{Verb: "get", Group: ours, Resource: "actionpolicies", Namespace: s.namespace},
		{Verb: "update", Group: ours, Resource: "actionpolicies", Namespace: s.namespace},
		{Verb: "create", Group: ours, Resource: "settings", Namespace: s.namespace},
		{Verb: "get", Group: ours, Resource: "settings", Namespace: s.namespace},
		{Verb: "update", Group: ours, Resource: "settings", Namespace: s.namespace},
		{Verb: "create", Group: ours, Resource: "grants", Namespace: s.namespace},
		// Nobody may give a Role what they may not do.
		{Verb: "get", Group: ours, Resource: "receipts", Namespace: s.namespace},
		{Verb: "update", Group: ours, Resource: "receipts", Namespace: s.namespace},
		{Verb: "delete", Group: ours, Resource: "receipts", Namespace: s.namespace},
	}
}

// mayCreate asks for every right that is needed, and names all that are missing.
func (s *scratch) mayCreate(ctx context.Context) error {
	var missing []error
	for _, a := range s.rights() {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		if err := s.admin.Create(ctx, review); err != nil {
			return fmt.Errorf("ask what you may do: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, fmt.Errorf("  %s %s", a.Verb, resourceOf(a)))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return unusable("verify makes a scratch namespace, and in it ServiceAccounts with roles and tokens; for that you lack, in the whole cluster:\n%w\n"+
		"docs/verify.md has a ClusterRole with all that is needed", errors.Join(missing...))
}

func resourceOf(a authorizationv1.ResourceAttributes) string {
	text := a.Resource
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Group != "" {
		text += "." + a.Group
	}
	return text
}

const (
	agentRole    = "ctrlrun-agent"
	approverRole = "ctrlrun-approver"
)

// people makes everybody who acts, with the shipped roles.
func (s *scratch) people(ctx context.Context, approvers int, aliased bool) error {
	tamper := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "tamperer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"receipts"}, Verbs: []string{"get", "update", "delete"}}},
	}
	if err := s.admin.Create(ctx, tamper); err != nil {
		return setup("create a Role for somebody who tampers with receipts", err)
	}
	for _, who := range []struct {
		name, kind, role string
		into             **identity
		probe            authorizationv1.ResourceAttributes
	}{
		{"agent", "ClusterRole", agentRole, &s.agent, authorizationv1.ResourceAttributes{Verb: "create", Resource: "actions"}},
		{"rival", "ClusterRole", agentRole, &s.rival, authorizationv1.ResourceAttributes{Verb: "create", Resource: "actions"}},
		{"viewer", "ClusterRole", "ctrlrun-viewer", &s.viewer, authorizationv1.ResourceAttributes{Verb: "list", Resource: "receipts"}},
		{"tamperer", "Role", tamper.Name, &s.tamperer, authorizationv1.ResourceAttributes{Verb: "update", Resource: "receipts"}},
	} {
		i, err := s.person(ctx, who.name, who.kind, who.role, who.probe)
		if err != nil {
			return err
		}
		*who.into = i
	}
	for n := range approvers {
		i, err := s.approver(ctx, fmt.Sprintf("approver-%d", n+1))
		if err != nil {
			return err
		}
		s.approvers = append(s.approvers, i)
	}
	if !aliased || approvers == 0 {
		return nil
	}
	var err error
	if s.agentAlias, err = s.approver(ctx, "agent-alias"); err != nil {
		return err
	}
	s.approverAlias, err = s.approver(ctx, "approver-1-alias")
	return err
}

// aliases are the names here that are one person.
func (s *scratch) aliases() []v1alpha1.IdentityAlias {
	if s.agentAlias == nil {
		return nil
	}
	return []v1alpha1.IdentityAlias{{s.agent.username, s.agentAlias.username}, {s.approvers[0].username, s.approverAlias.username}}
}

// approver is a person who may approve everything.
func (s *scratch) approver(ctx context.Context, name string) (*identity, error) {
	return s.person(ctx, name, "ClusterRole", approverRole, mayApprove(""))
}

// mayApprove is the right to approve a type of action.
func mayApprove(actionType string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "approve", Resource: "actiontypes", Name: actionType}
}

// person makes a ServiceAccount, gives it a role and a token, and returns when the apiserver knows of the role.
func (s *scratch) person(ctx context.Context, name, kind, role string, probe authorizationv1.ResourceAttributes) (*identity, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.admin.Create(ctx, account); err != nil {
		return nil, setup("create the ServiceAccount "+name, err)
	}
	if err := s.bind(ctx, name, name, kind, role); err != nil {
		return nil, err
	}
	lifetime := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}}
	if err := s.admin.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, setup("get a token of the ServiceAccount "+name, err)
	}
	i, err := s.as(request.Status.Token)
	if err != nil {
		return nil, err
	}
	user, err := i.Whoami(ctx)
	if err != nil {
		return nil, err
	}
	i.username = user.Username
	return i, i.granted(ctx, s.namespace, probe)
}

// bind gives a role to a ServiceAccount.
func (s *scratch) bind(ctx context.Context, binding, account, kind, role string) error {
	o := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: binding},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
	if err := s.admin.Create(ctx, o); err != nil {
		return setup(fmt.Sprintf("bind the %s %s to the ServiceAccount %s", kind, role, account), err)
	}
	return nil
}

// as is whoever has the token; without one it is nobody.
func (s *scratch) as(token string) (*identity, error) {
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken, config.UserAgent = token, s.config.UserAgent
	config.QPS, config.Burst = s.config.QPS, s.config.Burst
	c, err := client.New(config, s.namespace)
	return &identity{Client: c, token: token}, err
}

// granted returns when the apiserver, which learns of bindings by a watch, grants something.
func (i *identity) granted(ctx context.Context, namespace string, a authorizationv1.ResourceAttributes) error {
	ok, err := i.until(ctx, namespace, a, true)
	if err == nil && !ok {
		err = fmt.Errorf("%s was given a role and still may not %s %s", i.username, a.Verb, resourceOf(a))
	}
	return err
}

// until waits until somebody may do something, or may not. False: that did not come.
func (i *identity) until(ctx context.Context, namespace string, a authorizationv1.ResourceAttributes, may bool) (bool, error) {
	for deadline := time.Now().Add(patience); ; {
		now, err := i.may(ctx, namespace, a)
		if err != nil {
			return false, err
		}
		if now == may {
			return true, nil
		}
		if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return false, ctx.Err()
		}
	}
}

// may asks whether somebody may do something at this moment.
func (i *identity) may(ctx context.Context, namespace string, a authorizationv1.ResourceAttributes) (bool, error) {
	a.Group, a.Namespace = v1alpha1.GroupVersion.Group, namespace
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	if err := i.kube().Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask what %s may do: %w", i.username, err)
	}
	return review.Status.Allowed, nil
}

// rules creates the policies, Settings and grants, and returns when the operator says that they are in force.
func (s *scratch) rules(ctx context.Context, policies []Policy, settings *Settings, grants []Grant) error {
	var objects []kube.Object
	for _, p := range policies {
		o, err := p.object(s.namespace, s.group)
		if err != nil {
			return err
		}
		if err := s.admin.Create(ctx, o); err != nil {
			if apierrors.IsInvalid(err) {
				return unusable("the cluster refuses the policy %s: %w", p.Origin, err)
			}
			return setup("create a policy in the scratch namespace", err)
		}
		objects = append(objects, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: p.Name}})
	}
	if settings != nil {
		o := settings.object(s.namespace, s.aliases())
		if err := s.admin.Create(ctx, o); err != nil {
			return setup("create Settings in the scratch namespace", err)
		}
		objects = append(objects, o)
	}
	s.grants = map[string]map[string]any{}
	for _, g := range grants {
		if !g.Copied {
			continue
		}
		s.grants[g.Name] = g.copied(s.agent.username, s.now())
		o, err := s.grant(ctx, g.Name, s.grants[g.Name])
		if err != nil {
			return err
		}
		objects = append(objects, o)
	}
	for _, o := range objects {
		if err := s.inForce(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// grant creates a Grant. It is not in force yet.
func (s *scratch) grant(ctx context.Context, name string, spec map[string]any) (*v1alpha1.Grant, error) {
	o, err := object("Grant", s.namespace, name, spec)
	if err != nil {
		return nil, fmt.Errorf("grant %s: %w", name, err)
	}
	if err := s.admin.Create(ctx, o); err != nil {
		if apierrors.IsInvalid(err) {
			return nil, unusable("the cluster refuses the grant %s: %w", name, err)
		}
		return nil, setup("create a Grant in the scratch namespace", err)
	}
	return &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, nil
}

// ask writes the policies anew, with that group asked wherever groups are, or with none beside those that they name.
func (s *scratch) ask(ctx context.Context, policies []Policy, group string) error {
	for _, p := range policies {
		o, err := p.object(s.namespace, group)
		if err != nil {
			return err
		}
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(o.GroupVersionKind())
		if err := s.admin.Get(ctx, kube.ObjectKeyFromObject(o), stored); err != nil {
			return fmt.Errorf("read the policy %s of the scratch namespace: %w", p.Name, err)
		}
		o.SetResourceVersion(stored.GetResourceVersion())
		if err := s.admin.Update(ctx, o); err != nil {
			return setup("update a policy in the scratch namespace", err)
		}
		if err := s.inForce(ctx, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: p.Name}}); err != nil {
			return err
		}
	}
	return nil
}

// inForce waits for the operator's judgement. It is also how one learns whether an operator is there at all.
func (s *scratch) inForce(ctx context.Context, o kube.Object) error {
	for deadline := time.Now().Add(silence); ; {
		if err := s.viewer.kube().Get(ctx, kube.ObjectKeyFromObject(o), o); err != nil {
			return fmt.Errorf("read what the operator says of %s: %w", o.GetName(), err)
		}
		observed, conditions := judged(o)
		if observed == o.GetGeneration() {
			if stalled := meta.FindStatusCondition(conditions, v1alpha1.StalledCondition); stalled != nil && stalled.Status == metav1.ConditionTrue {
				return unusable("the operator does not take %s: %s: %s", o.GetName(), stalled.Reason, stalled.Message)
			}
			return nil
		}
		if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return silent(ctx, fmt.Sprintf("%s has not been judged for %s", o.GetName(), silence))
		}
	}
}

func judged(o kube.Object) (int64, []metav1.Condition) {
	switch o := o.(type) {
	case *v1alpha1.ActionPolicy:
		return o.Status.ObservedGeneration, o.Status.Conditions
	case *v1alpha1.Grant:
		return o.Status.ObservedGeneration, o.Status.Conditions
	case *v1alpha1.Settings:
		return o.Status.ObservedGeneration, o.Status.Conditions
	}
	return 0, nil
}

// newName is that of a new scratch namespace. It is random, as the id of a run is, and nothing else.
func newName() string { return namePrefix + rand.String(8) }

func newID() string { return rand.String(20) }
