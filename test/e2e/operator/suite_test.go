// Package operator tests the built operator as processes that are killed, suspended and replaced, on a real kube-apiserver
// and etcd. Time is the machine's: nothing here moves a clock.
package operator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

var env *testenv.Environment

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "operator processes")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
}, NodeTimeout(2*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) {
	if env == nil || !report.Failed() {
		return
	}
	log, err := env.OperatorLog()
	Expect(err).NotTo(HaveOccurred())
	GinkgoWriter.Printf("the end of the operators' log:\n%s\n", log)
})

// alone lets every operator work at once, each on everything.
const alone = "--leader-elect=false"

// start runs an operator until the spec is over, and returns when it is ready.
func start(ctx context.Context, args ...string) *testenv.OperatorProcess {
	GinkgoHelper()
	p, err := env.StartOperatorProcess(args...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Stop)
	Expect(p.WaitReady(ctx)).To(Succeed())
	return p
}

// alive expects that an operator runs.
func alive(p *testenv.OperatorProcess) {
	GinkgoHelper()
	Expect(p.Done()).NotTo(BeClosed(), "the operator ended")
}

// answer is the status code of a GET.
func answer(ctx context.Context, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func healthz(p *testenv.OperatorProcess) string {
	return strings.TrimSuffix(p.Ready, "/readyz") + "/healthz"
}

// scene is a namespace whose policy allows small refunds and asks people about large ones.
type scene struct {
	ns                      string
	agent, approver, oncall testenv.User
	sdk                     *client.Client
}

// newScene makes a scene; an operator has to run, and to judge its policy.
func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := &scene{
		ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent"),
		approver: testenv.User{Name: "alice"}, oncall: testenv.User{Name: "oncall"},
	}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-approver", s.approver)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-resolver", s.oncall)).To(Succeed())
	Expect(env.Policy(ctx, ns, `{"actions":{"stripe.refund":{"effect":"refund:{payment_id}","rules":[
		{"when":{"amount_gte":0,"amount_lte":500},"decision":"allow"},{"decision":"approve"}]}}}`)).To(Succeed())
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
	var err error
	s.sdk, err = client.New(env.Config(s.agent), ns)
	Expect(err).NotTo(HaveOccurred())
	return s
}

func refund(payment string, amount int) client.Proposal {
	return client.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": payment, "amount": amount}}
}

func payment(n int) string { return fmt.Sprintf("txn_%d", n) }

// propose makes an Action that this process wants to execute.
func (s *scene) propose(ctx context.Context, r client.Proposal) *client.Call {
	GinkgoHelper()
	call, err := s.sdk.Propose(ctx, r)
	Expect(err).NotTo(HaveOccurred())
	return call
}

// admitted proposes and waits until this process may execute.
func (s *scene) admitted(ctx context.Context, r client.Proposal) *client.Call {
	GinkgoHelper()
	call := s.propose(ctx, r)
	Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
	return call
}

func (s *scene) actions(ctx context.Context) []v1alpha1.Action {
	GinkgoHelper()
	list := &v1alpha1.ActionList{}
	Expect(env.Admin().List(ctx, list, kube.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

func (s *scene) effect(ctx context.Context, payment string) *v1alpha1.Effect {
	GinkgoHelper()
	o := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.ns, Name: action.EffectName("refund:" + payment)}, o)).To(Succeed())
	return o
}

func (s *scene) receipts(ctx context.Context) []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, kube.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

// reaches waits until an Action is in a state, and, if that is terminal, has its receipt.
func (s *scene) reaches(ctx context.Context, call *client.Call, state v1alpha1.ActionState, reason ...string) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{}
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, kube.ObjectKeyFromObject(call.Action()), o)).To(Succeed())
		g.Expect(o.Status.State).To(Equal(state), o.Status.Message)
		g.Expect(!state.Terminal() || o.Status.ReceiptRef != nil).To(BeTrue(), "it has no receipt yet")
	}).Should(Succeed())
	if len(reason) > 0 {
		Expect(o.Status.Reason).To(Equal(reason[0]), o.Status.Message)
	}
	return o
}

// accepted waits until a statement counts.
func accepted[T kube.Object](ctx context.Context, o T, conditions func(T) []metav1.Condition) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, kube.ObjectKeyFromObject(o), o)).To(Succeed())
		c := meta.FindStatusCondition(conditions(o), v1alpha1.AcceptedCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(metav1.ConditionTrue), c.Message)
	}).Should(Succeed())
}

// chainHolds verifies the whole chain, that so many of its receipts are not about policies, and that nothing has two.
func (s *scene) chainHolds(ctx context.Context, receipts int) {
	GinkgoHelper()
	var entries []receipt.Entry
	others := 0
	seen := map[receipt.Identity]int64{}
	for _, r := range s.receipts(ctx) {
		e := records.Entry(&r)
		id, err := receipt.IdentityOf(e)
		Expect(err).NotTo(HaveOccurred())
		Expect(seen).NotTo(HaveKey(id), "a second receipt of %s at %d", id, e.Seq)
		seen[id] = e.Seq
		if id.Kind != receipt.KindEvent {
			others++
		}
		entries = append(entries, e)
	}
	Expect(receipt.Verify(entries, receipt.Options{}).Breaks).To(BeEmpty())
	Expect(others).To(Equal(receipts))
}
