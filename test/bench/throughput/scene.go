package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
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
	// Manifests are those it belongs to: an operator holds everything unless it finds the admission policies it was built with.
	Manifests string `json:"-"`
}

// parseBinary reads [NAME=]PATH [manifests=DIR] [ARGS...].
func parseBinary(text, root string) (binary, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return binary{}, errors.New("an operator is [NAME=]PATH [manifests=DIR] [ARGS...]")
	}
	b := binary{Name: "operator", Path: words[0], Manifests: filepath.Join(root, "config", "local")}
	if name, path, found := strings.Cut(words[0], "="); found {
		b.Name, b.Path = name, path
	}
	b.Args = words[1:]
	if len(b.Args) > 0 {
		if dir, found := strings.CutPrefix(b.Args[0], "manifests="); found {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return binary{}, err
			}
			b.Manifests, b.Args = dir, b.Args[1:]
		}
	}
	for _, path := range []string{b.Path, b.Manifests} {
		if _, err := os.Stat(path); err != nil {
			return binary{}, fmt.Errorf("operator %s: %w; `make build` puts one at bin/ctrlrun-operator", b.Name, err)
		}
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

// newScene starts a control plane, still without this product, and makes as many clients of each kind as will ever act at
// once.
func newScene(ctx context.Context, env *testenv.Environment, clients int) (*scene, error) {
	s := &scene{env: env, counters: map[string]*counter{"agents": newCounter(), "approver": newCounter(), "floor": newCounter()}}
	if err := createFloor(ctx, env); err != nil {
		return nil, err
	}
	if err := s.allow(ctx, floorNamespace, "Role", floorRole, authorizationv1.ResourceAttributes{Group: floorGroup, Resource: floorResource, Verb: "create"}); err != nil {
		return nil, err
	}
	apiserver, err := newWeb(s.env.Config(testenv.User{Name: "prometheus", Groups: []string{"system:monitoring"}}))
	if err != nil {
		return nil, err
	}
	s.meter = &meter{apiserver: apiserver, counters: s.counters, processes: s.processes}
	c, err := s.client(s.counted("approver", alice))
	if err != nil {
		return nil, err
	}
	s.approver = &approver{client: c, user: alice.Name}
	for i := range clients {
		if err := s.hire(i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// alice is who approves.
var alice = testenv.User{Name: "alice@example.com", Groups: []string{"payments-leads"}}

// install puts an operator's manifests onto the cluster, and gives everybody what the shipped roles allow.
func (s *scene) install(ctx context.Context, manifests string) error {
	if err := s.env.Apply(ctx, manifests); err != nil {
		return err
	}
	if err := s.allow(ctx, namespace, "ClusterRole", "ctrlrun-agent", authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "actions", Verb: "create"}); err != nil {
		return err
	}
	return s.env.Grant(ctx, namespace, "ctrlrun-approver", alice)
}

// allow binds a role to all ServiceAccounts of a namespace, and returns when it is granted.
func (s *scene) allow(ctx context.Context, namespace, kind, role string, what authorizationv1.ResourceAttributes) error {
	if err := s.env.Admin().Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bench"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}); err != nil {
		return err
	}
	what.Namespace = namespace
	return s.env.WaitForAccess(ctx, account(namespace, 0), what)
}

func account(namespace string, i int) testenv.User {
	return testenv.ServiceAccountUser(namespace, fmt.Sprintf("agent-%02d", i))
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
	if err := s.taken(ctx); err != nil {
		return err
	}
	return s.cached(ctx)
}

// cached returns when the apiserver holds all records in its watch cache. An operator that starts together with an apiserver
// waits for that; what is measured here is one that starts alone.
func (s *scene) cached(ctx context.Context) error {
	for _, list := range []kube.ObjectList{&v1alpha1.ActionList{}, &v1alpha1.EffectList{}, &v1alpha1.OutcomeList{}, &v1alpha1.ReceiptList{}, &v1alpha1.ApprovalList{}, &v1alpha1.ClaimList{}} {
		gvk, err := s.env.Admin().GroupVersionKindFor(list)
		if err != nil {
			return err
		}
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		mapping, err := s.env.Admin().RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return err
		}
		// The first request about a resource begins it.
		if err := s.env.Admin().List(ctx, list, kube.Limit(1)); err != nil {
			return err
		}
		done := fmt.Sprintf("apiserver_watch_cache_initializations_total{group=%q,resource=%q}", gvk.Group, mapping.Resource.Resource)
		if err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 5*patience, true, func(ctx context.Context) (bool, error) {
			text, err := s.meter.apiserver.do(ctx, http.MethodGet, "/metrics", nil)
			return bytes.Contains(text, []byte(done)), err
		}); err != nil {
			return fmt.Errorf("waiting until the apiserver has %s in its watch cache: %w", mapping.Resource.Resource, err)
		}
	}
	return nil
}

// taken returns when the apiserver takes statements.
func (s *scene) taken(ctx context.Context) error {
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
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	if err := s.operator.WaitReady(ctx); err != nil {
		return 0, fmt.Errorf("operator %s: %w; if it says that admission failed: was it built with the manifests in %s? Its log ends with:\n%s", b.Name, err, b.Manifests, s.log(b))
	}
	return time.Since(began), nil
}

// log is the end of what processes of a binary have logged, without the lines that only say that a probe failed.
func (s *scene) log(b binary) string {
	const enough = 20
	text, err := os.ReadFile(filepath.Join(s.env.Dir, filepath.Base(b.Path)+".log"))
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.Contains(line, "healthz check failed") })
	return strings.Join(lines[max(0, len(lines)-enough):], "\n")
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
