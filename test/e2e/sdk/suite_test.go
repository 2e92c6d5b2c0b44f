// Package sdk tests package client as an agent uses it: around functions that end in every way, in processes that are killed, in what
// looks like a pod, and by the example of its documentation, on a real kube-apiserver and etcd.
package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

var (
	env   *testenv.Environment
	clock = &testenv.Clock{}
	// provider is the system the effects happen in.
	provider *remote
)

// TestMain starts one control plane and one operator for the specs and for the example, which runs after them. The test binary is also
// the agent of some specs: a process of its own.
func TestMain(m *testing.M) {
	if as := os.Getenv(agentEnv); as != "" {
		if err := runAgent(as); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter), textlogger.Verbosity(2))))
	env, err = testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	operator, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS = -1
		return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, operator.Stop()) }()
	if err := env.WaitForAdmission(ctx); err != nil {
		return 1, err
	}
	provider = newRemote()
	defer provider.Close()
	// Who runs the example is somebody with a kubeconfig.
	s, err := makeScene(ctx, "payments")
	if err != nil {
		return 1, err
	}
	if err := os.Setenv(clientcmd.RecommendedConfigPathEnvVar, env.KubeconfigIn(s.agent, s.ns)); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func TestSDK(t *testing.T) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RegisterFailHandler(Fail)
	RunSpecs(t, "sdk")
}

// remote counts the requests for each payment, by their token.
type remote struct {
	*httptest.Server
	mu     sync.Mutex
	tokens map[string][]string
}

func newRemote() *remote {
	r := &remote{tokens: map[string][]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		payment := strings.TrimPrefix(q.URL.Path, "/refunds/")
		r.tokens[payment] = append(r.tokens[payment], q.Header.Get("Idempotency-Key"))
	}))
	return r
}

// asked gives the tokens of the requests for a payment.
func (r *remote) asked(payment string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.tokens[payment]...)
}

// refund asks the provider. A repeated request has the token of the first.
func refund(ctx context.Context, paymentID string, _ int64, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL+"/refunds/"+paymentID, nil)
	if err != nil {
		return "", client.NotExecuted(err)
	}
	request.Header.Set("Idempotency-Key", token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	return "re_" + paymentID, response.Body.Close()
}

// scene is a namespace whose policy allows small refunds, asks people about larger ones, and denies large ones.
type scene struct {
	ns              string
	agent, approver testenv.User
	sdk             *client.Client
}

const (
	allowed = 100
	asked   = 2000
	denied  = 9000
)

func makeScene(ctx context.Context, ns string) (*scene, error) {
	err := env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	if err != nil {
		return nil, err
	}
	s := &scene{ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent"), approver: testenv.User{Name: "alice"}}
	err = errors.Join(
		env.Grant(ctx, ns, "ctrlrun-agent", s.agent),
		env.Grant(ctx, ns, "ctrlrun-approver", s.approver),
		env.Policy(ctx, ns, `{"actions":{"stripe.refund":{"effect":"refund:{payment_id}","rules":[
			{"when":{"amount_gte":0,"amount_lte":1000},"decision":"allow"},
			{"when":{"amount_gte":0,"amount_lte":5000},"decision":"approve"},
			{"decision":"deny"}]}}}`),
	)
	if err != nil {
		return nil, err
	}
	s.sdk, err = client.New(env.Config(s.agent), ns)
	return s, err
}

func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	s, err := makeScene(ctx, "sdk-"+uuid.NewString()[:8])
	Expect(err).NotTo(HaveOccurred())
	return s
}

// mayReadReceipts lets the agent read what proves its actions.
func (s *scene) mayReadReceipts(ctx context.Context) {
	GinkgoHelper()
	Expect(env.Allow(ctx, s.ns, s.agent, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"receipts"}, Verbs: []string{"get"},
	})).To(Succeed())
}

func proposal(payment string, amount int) client.Proposal {
	return client.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": payment, "amount": amount}}
}

func unique() string { return "txn_" + uuid.NewString()[:8] }

// returns is a function that does nothing but to end so.
func returns(output any, err error) client.Function {
	return func(context.Context, client.Execution) (any, error) { return output, err }
}

func never(context.Context, client.Execution) (any, error) {
	defer GinkgoRecover()
	Fail("it was executed")
	return nil, nil
}

// approve says yes to an Action, as a person would.
func (s *scene) approve(ctx context.Context, a *v1alpha1.Action) error {
	return env.Client(s.approver).Create(ctx, &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(s.approver.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType,
			ActionHash: a.Status.ActionHash, EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved,
		},
	})
}

// whenAsked runs f once, when people are asked about the Action of a call.
func whenAsked(f func(*v1alpha1.Action)) client.Progress {
	var once sync.Once
	return func(_ client.Stage, a *v1alpha1.Action) {
		if a.Status.State == v1alpha1.ActionAwaitingApproval {
			once.Do(func() { f(a) })
		}
	}
}

func (s *scene) get(ctx context.Context, name string) *v1alpha1.Action {
	GinkgoHelper()
	a := &v1alpha1.Action{}
	Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.ns, Name: name}, a)).To(Succeed())
	return a
}

func (s *scene) effect(ctx context.Context, payment string) *v1alpha1.Effect {
	GinkgoHelper()
	e := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.ns, Name: action.EffectName("refund:" + payment)}, e)).To(Succeed())
	return e
}

// outcome is the report of an Action.
func (s *scene) outcome(ctx context.Context, a *v1alpha1.Action) *v1alpha1.Outcome {
	GinkgoHelper()
	o := &v1alpha1.Outcome{}
	name := client.LockName(a, a.Status.Execution.ClaimID, s.agent.Name)
	Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.ns, Name: name}, o)).To(Succeed())
	return o
}
