package tamper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// payments allows small refunds, asks people about larger ones and denies the rest.
const payments = `{"actions":{"stripe.refund":{"effect":"refund:{payment_id}","rules":[
	{"when":{"amount_gte":0,"amount_lte":500},"decision":"allow"},
	{"when":{"amount_gte":0,"amount_lte":5000},"decision":"approve"},
	{"decision":"deny"}]}}}`

// scene is a namespace with a policy, an agent, an approver and the provider that the agent pays at.
type scene struct {
	ns              string
	agent, approver testenv.User
	sdk             *client.Client

	mu   sync.Mutex
	paid map[string]int
}

var counter atomic.Int64

// payment makes an id no other payment has.
func payment() string { return fmt.Sprintf("txn_%d", counter.Add(1)) }

// newScene makes a scene; an operator has to run, and to judge its policy.
func newScene() *scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := &scene{ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent"), approver: testenv.User{Name: "alice@" + ns}, paid: map[string]int{}}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-approver", s.approver)).To(Succeed())
	Expect(env.Policy(ctx, ns, payments)).To(Succeed())
	var err error
	s.sdk, err = client.New(env.Config(s.agent), ns)
	Expect(err).NotTo(HaveOccurred())
	return s
}

// scenes makes several scenes at once, each as build says.
func scenes(n int, build func(s *scene)) []*scene {
	GinkgoHelper()
	all := make([]*scene, n)
	each(n, func(i int) {
		all[i] = newScene()
		build(all[i])
	})
	return all
}

// each does something n times at once.
func each(n int, do func(i int)) {
	GinkgoHelper()
	var wg sync.WaitGroup
	var done atomic.Int64
	for i := range n {
		wg.Go(func() {
			defer GinkgoRecover()
			do(i)
			done.Add(1)
		})
	}
	wg.Wait()
	Expect(int(done.Load())).To(Equal(n), "one of them failed")
}

func refund(id string, amount int) client.Proposal {
	return client.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": id, "amount": amount}}
}

// pay is what the agent does once it is admitted: the provider counts it.
func (s *scene) pay(id string) client.Function {
	return func(context.Context, client.Execution) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.paid[id]++
		return nil, nil
	}
}

// payments made for an id, as the provider counts them.
func (s *scene) payments(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paid[id]
}

// committed takes a small refund to its end.
func (s *scene) committed(id string) *v1alpha1.Action {
	GinkgoHelper()
	r, err := s.sdk.Protect(ctx, refund(id, 100), s.pay(id))
	Expect(err).NotTo(HaveOccurred())
	return r.Action
}

// approved takes a larger refund to its end: a person says yes.
func (s *scene) approved(id string) *v1alpha1.Action {
	GinkgoHelper()
	call, err := s.sdk.Propose(ctx, refund(id, 2000))
	Expect(err).NotTo(HaveOccurred())
	a := s.reaches(call.Action(), v1alpha1.ActionAwaitingApproval)
	yes := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(s.approver.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef:  v1alpha1.ObjectReference{Name: a.Name, UID: a.UID},
			ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash, EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved,
		},
	}
	Expect(env.Client(s.approver).Create(ctx, yes)).To(Succeed())
	Expect(call.Execute(ctx, s.pay(id))).Error().NotTo(HaveOccurred())
	return call.Action()
}

// denied proposes what the policy denies.
func (s *scene) denied() *v1alpha1.Action {
	GinkgoHelper()
	return s.reaches(s.proposed(payment(), 9000), v1alpha1.ActionDenied)
}

// proposed makes an Action that nobody waits for.
func (s *scene) proposed(id string, amount int) *v1alpha1.Action {
	GinkgoHelper()
	r := refund(id, amount)
	r.Unclaimed = true
	call, err := s.sdk.Propose(ctx, r)
	Expect(err).NotTo(HaveOccurred())
	return call.Action()
}

func (s *scene) get(a *v1alpha1.Action) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{}
	Expect(env.Admin().Get(ctx, kube.ObjectKeyFromObject(a), o)).To(Succeed())
	return o
}

// reaches waits until an Action is in a state, and, if that is terminal, has its receipt.
func (s *scene) reaches(a *v1alpha1.Action, state v1alpha1.ActionState, reason ...decision.Reason) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func(g Gomega) {
		o = s.get(a)
		g.Expect(o.Status.State).To(Equal(state), "reason %q: %s", o.Status.Reason, o.Status.Message)
		g.Expect(!state.Terminal() || o.Status.ReceiptRef != nil).To(BeTrue(), "%s has no receipt yet", o.Name)
	}).Should(Succeed())
	if len(reason) > 0 {
		Expect(o.Status.Reason).To(Equal(string(reason[0])), o.Status.Message)
	}
	return o
}

// receipts are the namespace's, by seq.
func (s *scene) receipts() []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, kube.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

func entries(all []v1alpha1.Receipt) []receipt.Entry {
	var entries []receipt.Entry
	for i := range all {
		entries = append(entries, records.Entry(&all[i]))
	}
	return entries
}

// head is the last receipt that is stored.
func (s *scene) head() receipt.Link {
	GinkgoHelper()
	all := entries(s.receipts())
	if len(all) == 0 {
		return receipt.Start()
	}
	return all[len(all)-1].Link()
}

// seqOf is the place of an Action's receipt.
func (s *scene) seqOf(a *v1alpha1.Action) int64 {
	GinkgoHelper()
	ref := s.get(a).Status.ReceiptRef
	Expect(ref).NotTo(BeNil())
	return ref.Seq
}

// intact verifies the whole chain, and that no identity has two receipts.
func (s *scene) intact() {
	GinkgoHelper()
	seen := map[receipt.Identity]int64{}
	all := entries(s.receipts())
	for _, e := range all {
		id, err := receipt.IdentityOf(e)
		Expect(err).NotTo(HaveOccurred())
		Expect(seen).NotTo(HaveKey(id), "a second receipt of %s at %d", id, e.Seq)
		seen[id] = e.Seq
	}
	Expect(receipt.Verify(all, receipt.Options{}).Breaks).To(BeEmpty())
}

// ledger reads the memory of the scene's chain.
func (s *scene) ledger() *v1alpha1.Ledger {
	GinkgoHelper()
	l := &v1alpha1.Ledger{}
	Expect(env.Admin().Get(ctx, kube.ObjectKey{Name: s.ns}, l)).To(Succeed())
	return l
}

// noted is the head as somebody keeps it who does not trust the cluster: the plugin prints it.
func (s *scene) noted() receipt.Link {
	GinkgoHelper()
	head := s.checkpointed()
	r := s.runs(auditor, "receipts", "head")
	Expect(r.code).To(Equal(0), "%s", r)
	Expect(strings.TrimSpace(r.stdout)).To(Equal(head.String()))
	return head
}

// checkpointed waits until the Ledger remembers the last receipt, and gives it.
func (s *scene) checkpointed() receipt.Link {
	GinkgoHelper()
	var head receipt.Link
	Eventually(func(g Gomega) {
		head = s.head()
		l := s.ledger()
		g.Expect(l.Status).NotTo(BeNil())
		g.Expect(receipt.Link{Seq: l.Status.Seq, Hash: l.Status.Hash}).To(Equal(head))
	}).Should(Succeed())
	return head
}

// holds waits until the namespace holds because of its chain, and says what is wrong and what to do, on an Action and on
// the Ledger.
func (s *scene) holds(a *v1alpha1.Action, because string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		got := s.get(a)
		g.Expect(got.Status.Reason).To(Equal(string(decision.LedgerRolledBack)), "%s %s", got.Status.State, got.Status.Message)
		g.Expect(got.Status.State).To(Equal(v1alpha1.ActionPending))
		g.Expect(got.Status.Message).To(ContainSubstring(because))
		g.Expect(got.Status.Message).To(ContainSubstring("kubectl ctrlrun ledger accept " + s.ns + " --head SEQ:HASH --reason"))
	}).Should(Succeed())
	s.heldByLedger(because)
}

func (s *scene) heldByLedger(because string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		l := &v1alpha1.Ledger{}
		g.Expect(env.Admin().Get(ctx, kube.ObjectKey{Name: s.ns}, l)).To(Succeed()) // it may have to be made again
		g.Expect(l.Status).NotTo(BeNil())
		c := meta.FindStatusCondition(l.Status.Conditions, v1alpha1.ReadyCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(c.Reason).To(Equal(decision.LedgerRolledBack.Condition()))
		g.Expect(c.Message).To(ContainSubstring(because))
		g.Expect(c.Message).To(ContainSubstring("kubectl ctrlrun ledger accept " + s.ns + " --head SEQ:HASH --reason"))
	}).Should(Succeed())
}

// uid of the namespace as it is now.
func (s *scene) uid() string {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(env.Admin().Get(ctx, kube.ObjectKey{Name: s.ns}, ns)).To(Succeed())
	return string(ns.UID)
}

func plugin() string { return filepath.Join(env.Root, "bin", "kubectl-ctrlrun") }

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string { return fmt.Sprintf("exit %d\n%s%s", r.code, r.stdout, r.stderr) }

// breaks are the lines of a verification, each `name seq`.
func (r result) breaks() []string {
	text := strings.TrimSpace(r.stdout)
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// runs the plugin as somebody in the scene's namespace.
func (s *scene) runs(u testenv.User, arguments ...string) result {
	GinkgoHelper()
	cmd := exec.Command(plugin(), arguments...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.KubeconfigIn(u, s.ns))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		Fail(err.Error())
	}
	r := result{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	AddReportEntry("kubectl ctrlrun "+strings.Join(arguments, " "), r, ReportEntryVisibilityFailureOrVerbose)
	return r
}

// verifies is what the plugin says of the chain in the cluster, and of its export without one.
func (s *scene) verifies(arguments ...string) (inCluster, offline result) {
	GinkgoHelper()
	inCluster = s.runs(auditor, append([]string{"receipts", "verify"}, arguments...)...)
	return inCluster, s.runs(auditor, append([]string{"receipts", "verify", "-f", s.exported()}, arguments...)...)
}

// exported is a file with the receipts as they are.
func (s *scene) exported() string {
	GinkgoHelper()
	r := s.runs(auditor, "receipts", "export")
	Expect(r.code).To(Equal(0), r.String())
	file := filepath.Join(GinkgoT().TempDir(), "receipts.jsonl")
	Expect(os.WriteFile(file, []byte(r.stdout), 0o600)).To(Succeed())
	return file
}

// accepts has a person accept a head with the plugin.
func (s *scene) accepts(u testenv.User, head receipt.Link, more ...string) result {
	GinkgoHelper()
	return s.runs(u, append([]string{"ledger", "accept", s.ns, "--head", head.String(), "--reason", "it was found out what happened", "--yes"}, more...)...)
}

// continues expects that a person's acceptance of a head was taken: a receipt that says so, and a new epoch.
func (s *scene) continues(head receipt.Link, epoch int64) {
	GinkgoHelper()
	l := s.ledger()
	Expect(l.Status.Epoch).To(Equal(epoch))
	Expect(string(l.Status.NamespaceUID)).To(Equal(s.uid()))
	Expect(l.Status.Accepted.Seq).To(Equal(head.Seq))
	Expect(l.Status.Accepted.Hash).To(Equal(head.Hash))
	var found []receipt.Document
	for _, e := range entries(s.receipts()) {
		if d, err := receipt.Parse(e); err == nil && d.Kind == receipt.KindLedgerAccepted && d.Epoch == epoch {
			found = append(found, d)
		}
	}
	Expect(found).To(HaveLen(1), "receipts of an acceptance that began epoch %d", epoch)
	d := found[0]
	Expect(d.Seq).To(Equal(head.Seq + 1))
	Expect(d.Acceptor).To(Equal(governor.Name))
	Expect(d.Accepted).To(Equal(head))
	Expect(d.Statement).To(Equal("it was found out what happened"))
	Eventually(func() bool { return meta.IsStatusConditionTrue(s.ledger().Status.Conditions, v1alpha1.ReadyCondition) }).Should(BeTrue())
}
