package execution

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

const policy = `{
  "stripe.refund": {"effect": "refund:{payment_id}", "rules": [
    {"when": {"amount_gte": 0, "amount_lte": 500}, "decision": "allow"},
    {"when": {"amount_gte": 0, "amount_lte": 5000}, "decision": "approve"},
    {"decision": "deny"}]},
  "note.write": {"decision": "allow"}
}`

// scene is a namespace with a policy, a provider, and everybody who plays a part.
type scene struct {
	ns                             string
	agent, approver, oncall, admin testenv.User
	provider                       *provider
}

func newScene() *scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := &scene{
		ns:       ns,
		agent:    testenv.ServiceAccountUser(ns, "refund-agent"),
		approver: testenv.User{Name: "alice"},
		oncall:   testenv.User{Name: "oncall"},
		admin:    testenv.User{Name: "paula"},
		provider: newProvider(),
	}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-approver", s.approver)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-resolver", s.oncall)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", s.admin)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-operator-executors", testenv.OperatorUser())).To(Succeed())
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "refunds"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "provider"}, StringData: map[string]string{"token": "s3cr3t"}},
	} {
		Expect(env.Admin().Create(ctx, o)).To(Succeed())
	}
	s.may(s.admin, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"refunds"}, Verbs: []string{"create"}})
	s.may(testenv.ServiceAccountUser(ns, "refunds"), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"provider"}, Verbs: []string{"get"}})
	p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "payments"}}
	Expect(json.Unmarshal([]byte(`{"actions":`+policy+`}`), &p.Spec)).To(Succeed())
	Expect(env.Client(s.admin).Create(ctx, p)).To(Succeed())
	return s
}

// may gives a right in the namespace.
func (s *scene) may(u testenv.User, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	Expect(env.Allow(ctx, s.ns, u, rule)).To(Succeed())
}

// executor is one that refunds by HTTP.
func (s *scene) executor(name string, with ...func(*v1alpha1.ExecutorSpec)) *v1alpha1.Executor {
	prefix := "Bearer "
	o := &v1alpha1.Executor{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: v1alpha1.ExecutorSpec{
			ActionTypes: []string{"stripe.refund"}, ServiceAccountName: "refunds",
			HTTP: &v1alpha1.HTTPExecutor{
				Method: http.MethodPost, URL: s.provider.URL + "/payments/{payment_id}/refunds", TimeoutSeconds: 20,
				Headers:   []v1alpha1.HTTPHeader{{Name: "Authorization", ValueFrom: &v1alpha1.HTTPHeaderSource{Prefix: &prefix, SecretKeyRef: v1alpha1.KeyReference{Name: "provider", Key: "token"}}}},
				Committed: []int32{200, 201}, NotExecuted: []int32{422},
			},
		},
	}
	for _, f := range with {
		f(&o.Spec)
	}
	return o
}

// executes makes an Executor and returns when it is in force.
func (s *scene) executes(o *v1alpha1.Executor) *v1alpha1.Executor {
	GinkgoHelper()
	Expect(env.Client(s.admin).Create(ctx, o)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ReadyCondition)).To(BeTrue(), "%+v", o.Status.Conditions)
	}).Should(Succeed())
	return o
}

// ceases deletes an Executor.
func (s *scene) ceases(o *v1alpha1.Executor) {
	GinkgoHelper()
	Expect(env.Client(s.admin).Delete(ctx, o)).To(Succeed())
}

var counter atomic.Int64

// unique makes a value no other spec has.
func unique(prefix string) string { return fmt.Sprintf("%s_%d", prefix, counter.Add(1)) }

func (s *scene) refund(payment string, amount int, with ...func(*v1alpha1.Action)) *v1alpha1.Action {
	GinkgoHelper()
	until := metav1.NewTime(clock.Now().Add(24 * time.Hour).Truncate(time.Second))
	o := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "refund-"},
		Spec: v1alpha1.ActionSpec{
			ActionType: "stripe.refund", Arguments: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"payment_id":%q,  "amount":%d}`, payment, amount)},
			LeaseDurationSeconds: 60, NotAfter: &until,
		},
	}
	for _, f := range with {
		f(o)
	}
	Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	return o
}

// get reads an Action again.
func (s *scene) get(a *v1alpha1.Action) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{}
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), o)).To(Succeed())
	return o
}

// reaches waits until an Action is in a state, and, if that is terminal, finished.
func (s *scene) reaches(a *v1alpha1.Action, state v1alpha1.ActionState, reason string) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func(g Gomega) {
		o = s.get(a)
		g.Expect(o.Status.State).To(Equal(state), "reason %q: %s", o.Status.Reason, o.Status.Message)
		g.Expect(o.Status.Reason).To(Equal(reason), o.Status.Message) // a hold comes and goes
		g.Expect(!state.Terminal() || o.Status.ReceiptRef != nil).To(BeTrue(), "%s has no receipt yet", o.Name)
	}).Should(Succeed())
	return o
}

func (s *scene) effect(a *v1alpha1.Action) *v1alpha1.Effect {
	GinkgoHelper()
	o := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: a.Status.Effect.Name}, o)).To(Succeed())
	return o
}

func (s *scene) receipt(a *v1alpha1.Action) receipt.Document {
	GinkgoHelper()
	o := &v1alpha1.Receipt{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: a.Status.ReceiptRef.Name}, o)).To(Succeed())
	document, err := receipt.Parse(records.Entry(o))
	Expect(err).NotTo(HaveOccurred())
	return document
}

// approves says yes to what is asked now.
func (s *scene) approves(a *v1alpha1.Action) {
	GinkgoHelper()
	o := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + s.approver.Name},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash,
			EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved, Reason: "ok",
		},
	}
	Expect(env.Client(s.approver).Create(ctx, o)).To(Succeed())
}

func refused(err error, text string) {
	GinkgoHelper()
	Expect(err).To(HaveOccurred())
	Expect(apierrors.IsInvalid(err) || apierrors.IsForbidden(err)).To(BeTrue(), err.Error())
	Expect(err.Error()).To(ContainSubstring(text))
}

// provider is what the operator calls. It acts on every request that it reads, and counts by token what it did.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
	// answers say what is answered for a payment, after it acted; without one it answers 201.
	answers map[string]http.HandlerFunc
}

type request struct {
	Method, Path, Body string
	Header             http.Header
}

func newProvider() *provider {
	p := &provider{answers: map[string]http.HandlerFunc{}}
	p.Server = httptest.NewServer(p)
	DeferCleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	payment := strings.Split(r.URL.Path, "/")[2]
	p.mu.Lock()
	p.requests = append(p.requests, request{r.Method, r.URL.EscapedPath(), string(body), r.Header.Clone()})
	answer := p.answers[payment]
	p.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"re_%s"}`, payment)
}

// answer says what is answered for a payment.
func (p *provider) answer(payment string, h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[payment] = h
}

// of are the requests for a payment.
func (p *provider) of(payment string) []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []request
	for _, r := range p.requests {
		if strings.Contains(r.Path, "/"+payment+"/") {
			all = append(all, r)
		}
	}
	return all
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// closedPort is an address nobody listens on.
func closedPort() string {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(l.Close()).To(Succeed()) }()
	return "http://" + l.Addr().String()
}
