// Package export tests what leaves the cluster, beside real actions on a real kube-apiserver and etcd: the built operator
// with the flags that export, a collector that speaks OTLP over gRPC, and sinks that do not work.
package export

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

var (
	ctx = context.Background()
	env *testenv.Environment
)

func TestExport(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "export")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter), textlogger.Verbosity(2))))
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
})

// stage is a namespace with a policy, an agent and a person who approves.
type stage struct {
	ns       string
	agent    testenv.User
	approver testenv.User
}

// policy allows small refunds, asks about larger ones and denies the rest.
const policy = `{"actions": {"stripe.refund": {"effect": "refund:{payment_id}", "rules": [
  {"when": {"amount_gte": 0, "amount_lte": 500}, "decision": "allow"},
  {"when": {"amount_gte": 0, "amount_lte": 5000}, "decision": "approve"},
  {"decision": "deny"}]}}}`

// newStage makes a stage; an operator has to run, and to judge its policy.
func newStage() *stage {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := &stage{ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent"), approver: testenv.User{Name: "alice", Groups: []string{"payments-leads"}}}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-approver", s.approver)).To(Succeed())
	Expect(env.Policy(ctx, ns, policy)).To(Succeed())
	return s
}

func request(payment string, amount int) client.Proposal {
	return client.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": payment, "amount": amount, "iban": "DE-private"}}
}

func (s *stage) sdk() *client.Client {
	GinkgoHelper()
	c, err := client.New(env.Config(s.agent), s.ns)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// do takes an action to its end, and returns it as it is then.
func (s *stage) do(c context.Context, req client.Proposal, end error) *v1alpha1.Action {
	GinkgoHelper()
	r, err := s.sdk().Protect(c, req, func(context.Context, client.Execution) (any, error) { return nil, end })
	if r.Action == nil || r.Action.Status.State == "" {
		Expect(err).NotTo(HaveOccurred())
	}
	return s.finished(r.Action)
}

// finished waits for the receipt of an action.
func (s *stage) finished(o *v1alpha1.Action) *v1alpha1.Action {
	GinkgoHelper()
	now := &v1alpha1.Action{}
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, kube.ObjectKeyFromObject(o), now)).To(Succeed())
		g.Expect(now.Status.ReceiptRef).NotTo(BeNil(), now.Status.Message)
	}).Should(Succeed())
	return now
}

// refusal is the answer of a person who read the action and says no.
func (s *stage) refusal(a *v1alpha1.Action) *v1alpha1.Approval {
	o := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(s.approver.Name)}}
	o.Spec = v1alpha1.ApprovalSpec{
		ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType,
		ActionHash: a.Status.ActionHash, Decision: v1alpha1.Denied, Reason: "not this one",
	}
	if a.Status.Effect != nil {
		o.Spec.EffectKey = &a.Status.Effect.Key
	}
	return o
}

// receiptLines are those of the cluster, as they are exported.
func (s *stage) receiptLines() []string {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, kube.InNamespace(s.ns))).To(Succeed())
	var out []string
	for i := range list.Items {
		line, err := receipt.Line(records.Entry(&list.Items[i]))
		Expect(err).NotTo(HaveOccurred())
		out = append(out, string(line))
	}
	return out
}

// plugin runs the built kubectl plugin as the agent.
func (s *stage) plugin(environment []string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(env.Root, "bin", "kubectl-ctrlrun"), append(args, "--kubeconfig="+env.KubeconfigIn(s.agent, s.ns))...)
	cmd.Env = append(cmd.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
