package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

const (
	// namespace is where actions are governed: all receipts are links of its one chain.
	namespace = "payments"
	// rulesInForce allow small refunds and ask about larger ones.
	rulesInForce = `{"version":"git-3f2c1a","actions":{"stripe.refund":{"effect":"refund:{payment_id}","resource":"payment:{payment_id}","rules":[
		{"when":{"amount_gte":0,"amount_lte":50000},"decision":"allow"},
		{"when":{"amount_gte":0,"amount_lte":500000},"decision":"approve"},
		{"decision":"deny"}]}}}`
)

// binary is an operator to measure.
type binary struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
}

// parseBinary reads [NAME=]PATH [ARGS...].
func parseBinary(text string) (binary, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return binary{}, errors.New("an operator is [NAME=]PATH [ARGS...]")
	}
	b := binary{Name: "operator", Path: words[0], Args: words[1:]}
	if name, path, found := strings.Cut(words[0], "="); found {
		b.Name, b.Path = name, path
	}
	if _, err := os.Stat(b.Path); err != nil {
		return binary{}, fmt.Errorf("operator %s: %w; `make build` puts one at bin/ctrlrun-operator", b.Name, err)
	}
	return b, nil
}

// scene is a control plane with everybody who takes part. None of them is of system:masters, whom the apiserver's priority
// and fairness does not bind: only who prepares the scene is.
type scene struct {
	env      *testenv.Environment
	operator *testenv.OperatorProcess // nil: none runs
	counters map[string]*counter
	meter    *meter
	profiler *profiler // nil: nobody asked for profiles
	agents   []*agent
	sdks     []*sdkAgent
	creators []*creator
	approver *approver
}

// newScene makes as many clients of each kind as will ever act at once.
func newScene(ctx context.Context, env *testenv.Environment, clients int) (*scene, error) {
	s := &scene{env: env, counters: map[string]*counter{"agents": newCounter(), "approver": newCounter(), "floor": newCounter()}}
	for _, name := range []string{namespace, floorNamespace} {
		if err := env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, err
		}
	}
	if err := createFloor(ctx, env); err != nil {
		return nil, err
	}
	if err := s.allow(ctx, namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ctrlrun-agent"},
		authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "actions", Verb: "create"}); err != nil {
		return nil, err
	}
	if err := s.allow(ctx, floorNamespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: floorRole},
		authorizationv1.ResourceAttributes{Group: floorGroup, Resource: floorResource, Verb: "create"}); err != nil {
		return nil, err
	}
	if err := s.people(ctx); err != nil {
		return nil, err
	}
	for i := range clients {
		if err := s.hire(i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// allow binds a role to all ServiceAccounts of a namespace, and returns when it is granted.
func (s *scene) allow(ctx context.Context, namespace string, role rbacv1.RoleRef, what authorizationv1.ResourceAttributes) error {
	group := "system:serviceaccounts:" + namespace
	if err := s.env.Admin().Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bench"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		RoleRef:    role,
	}); err != nil {
		return err
	}
	what.Namespace = namespace
	return s.env.WaitForAccess(ctx, account(namespace, 0), what)
}

func account(namespace string, i int) testenv.User {
	return testenv.ServiceAccountUser(namespace, fmt.Sprintf("agent-%02d", i))
}

// people are who approves, and who reads the apiserver's metrics.
func (s *scene) people(ctx context.Context) error {
	apiserver, err := newWeb(s.env.Config(testenv.User{Name: "prometheus", Groups: []string{"system:monitoring"}}))
	if err != nil {
		return err
	}
	s.meter = &meter{apiserver: apiserver, counters: s.counters, processes: s.processes}
	alice := testenv.User{Name: "alice@example.com", Groups: []string{"payments-leads"}}
	if err := s.env.Grant(ctx, namespace, "ctrlrun-approver", alice); err != nil {
		return err
	}
	c, err := s.client(s.counted("approver", alice))
	s.approver = &approver{client: c, user: alice.Name}
	return err
}

// hire makes one client of each kind.
func (s *scene) hire(i int) error {
	user := account(namespace, i)
	c, err := s.client(s.counted("agents", user))
	if err != nil {
		return err
	}
	s.agents = append(s.agents, &agent{client: c, user: user.Name})
	sdk, err := newSDKAgent(s.counted("agents", user))
	if err != nil {
		return err
	}
	s.sdks = append(s.sdks, sdk)
	raw, err := newWeb(s.counted("floor", account(floorNamespace, i)))
	if err != nil {
		return err
	}
	s.creators = append(s.creators, &creator{web: raw})
	return nil
}

// counted is a connection as a user, whose requests are counted.
func (s *scene) counted(who string, u testenv.User) *rest.Config {
	cfg := s.env.Config(u)
	cfg.Wrap(s.counters[who].wrap)
	return cfg
}

func (s *scene) client(cfg *rest.Config) (kube.WithWatch, error) {
	return kube.NewWithWatch(cfg, kube.Options{Scheme: s.env.Scheme, Mapper: s.env.Admin().RESTMapper()})
}

// processes are those whose processor time is measured, by name.
func (s *scene) processes() (map[string]int, error) {
	found, err := children("etcd", "kube-apiserver")
	if err != nil {
		return nil, err
	}
	all := map[string]int{"clients": os.Getpid()}
	maps.Copy(all, found)
	if s.operator != nil {
		all["operator"] = s.operator.PID()
	}
	return all, nil
}

// restore takes the cluster back, and returns when it takes statements again. For some seconds after its start an apiserver
// refuses them, since it has not read the schema yet that MutatingAdmissionPolicies need.
func (s *scene) restore(ctx context.Context, to *testenv.Snapshot) error {
	if err := s.env.Restore(ctx, to); err != nil {
		return err
	}
	for who, statements := range map[kube.Client][]kube.Object{
		s.agents[0].client: {&v1alpha1.Action{}, &v1alpha1.Claim{}, &v1alpha1.Outcome{}},
		s.approver.client:  {&v1alpha1.Approval{}},
	} {
		for _, o := range statements {
			o.SetNamespace(namespace)
			o.SetName("probe")
			if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
				err := who.Create(ctx, o.DeepCopyObject().(kube.Object), kube.DryRunAll)
				// It lacks everything, so what refuses it is what would judge a real one.
				return apierrors.IsInvalid(err) || apierrors.IsForbidden(err), nil
			}); err != nil {
				return fmt.Errorf("waiting until the apiserver takes a %T: %w", o, err)
			}
		}
	}
	return nil
}

// start runs an operator and returns when it is ready, and how long that took.
func (s *scene) start(ctx context.Context, b binary) (time.Duration, error) {
	began := time.Now()
	if err := s.launch(b); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := s.operator.WaitReady(ctx)
	return time.Since(began), err
}

// launch runs an operator with the flags it is shipped with, but for the addresses.
func (s *scene) launch(b binary) error {
	probes, err := freeAddress()
	if err != nil {
		return err
	}
	metrics, err := freeAddress()
	if err != nil {
		return err
	}
	p, err := s.env.StartProcess(testenv.Command{Path: b.Path, Args: append([]string{
		"--kubeconfig=" + s.env.Kubeconfig(testenv.OperatorUser()),
		"--namespace=" + testenv.SystemNamespace,
		"--health-probe-bind-address=" + probes,
		"--metrics-bind-address=" + metrics,
	}, b.Args...)})
	if err != nil {
		return err
	}
	s.operator = &testenv.OperatorProcess{Process: p, Ready: "http://" + probes + "/readyz", Metrics: "http://" + metrics + "/metrics"}
	return nil
}

func (s *scene) stop() error {
	p := s.operator
	s.operator = nil
	return p.Stop()
}

// freeAddress is a loopback address nobody listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
