package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Client speaks for one identity in one namespace. It is safe for concurrent use.
type Client struct {
	kube      kube.WithWatch
	clock     *serverClock
	namespace string

	mu   sync.Mutex
	user *authenticationv1.UserInfo

	policies policies
}

// New makes a client. The identity is that of config: what the apiserver takes it for is what is proposed and reported.
func New(config *rest.Config, namespace string) (*Client, error) {
	if namespace == "" {
		return nil, fmt.Errorf("a client needs a namespace: actions, policies and effects belong to one")
	}
	clock := newServerClock()
	config = rest.CopyConfig(config)
	if config.QPS == 0 {
		// The default of 5 a second is less than one busy agent needs; the apiserver has its own fairness.
		config.QPS, config.Burst = 50, 100
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return clock.observe(next) })
	scheme := newScheme()
	k, err := kube.NewWithWatch(config, kube.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, err
	}
	return &Client{kube: k, clock: clock, namespace: namespace}, nil
}

// Namespace of the client.
func (c *Client) Namespace() string { return c.namespace }

// Kube is the connection of the client, for reading what the SDK has no words for.
func (c *Client) Kube() kube.WithWatch { return c.kube }

// Whoami is who the apiserver takes this client for. It is asked once.
func (c *Client) Whoami(ctx context.Context) (authenticationv1.UserInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user != nil {
		return *c.user, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.kube.Create(ctx, review); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("ask the apiserver who this is: %w", err)
	}
	c.user = &review.Status.UserInfo
	return *c.user, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		// Registering compiled-in types fails only if two of them claim one name, which the tests would see.
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// newMapper knows the few resources that are used, so that a client starts without reading the whole discovery.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(gv schema.GroupVersion, scope meta.RESTScope, kind, plural, singular string) {
		mapper.AddSpecific(gv.WithKind(kind), gv.WithResource(plural), gv.WithResource(singular), scope)
	}
	ours := v1alpha1.GroupVersion
	for kind, names := range map[string][2]string{
		"ActionPolicy": {"actionpolicies", "actionpolicy"},
		"Settings":     {"settings", "settings"},
		"Action":       {"actions", "action"},
		"Approval":     {"approvals", "approval"},
		"Claim":        {"claims", "claim"},
		"Outcome":      {"outcomes", "outcome"},
		"Effect":       {"effects", "effect"},
		"Resolution":   {"resolutions", "resolution"},
		"Receipt":      {"receipts", "receipt"},
		"Grant":        {"grants", "grant"},
		"Delegation":   {"delegations", "delegation"},
		"Revocation":   {"revocations", "revocation"},
		"Executor":     {"executors", "executor"},

		"PolicyProposal": {"policyproposals", "policyproposal"},
	} {
		add(ours, meta.RESTScopeNamespace, kind, names[0], names[1])
	}
	add(ours, meta.RESTScopeRoot, "Ledger", "ledgers", "ledger")
	add(ours, meta.RESTScopeRoot, "LedgerAcceptance", "ledgeracceptances", "ledgeracceptance")
	add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Namespace", "namespaces", "namespace")
	add(authenticationv1.SchemeGroupVersion, meta.RESTScopeRoot, "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview")
	add(authorizationv1.SchemeGroupVersion, meta.RESTScopeRoot, "SelfSubjectAccessReview", "selfsubjectaccessreviews", "selfsubjectaccessreview")
	add(authorizationv1.SchemeGroupVersion, meta.RESTScopeRoot, "SelfSubjectRulesReview", "selfsubjectrulesreviews", "selfsubjectrulesreview")
	add(rbacv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Role", "roles", "role")
	add(rbacv1.SchemeGroupVersion, meta.RESTScopeNamespace, "RoleBinding", "rolebindings", "rolebinding")
	add(rbacv1.SchemeGroupVersion, meta.RESTScopeRoot, "ClusterRole", "clusterroles", "clusterrole")
	add(rbacv1.SchemeGroupVersion, meta.RESTScopeRoot, "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding")
	return mapper
}
