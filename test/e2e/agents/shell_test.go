package agents

import (
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
)

// What agent.sh makes of the command that it runs.
var _ = Describe("agent.sh", func() {
	var s *site
	BeforeEach(func(ctx SpecContext) { s = newSite(ctx) })

	It("executes what policy allows, with what is stored and the token, and names the receipt", func(ctx SpecContext) {
		r := s.run(`{"payment_id":"txn_1","amount":5,"list":[1,{"a":"}"}],"note":"<&>"}`, `echo x >>ran; cat; echo " $CTRLRUN_IDEMPOTENCY_TOKEN"`)
		r.exits(0)
		Expect(s.executions()).To(Equal(1))
		a := s.one(ctx, "txn_1")
		Expect(a.Status.State).To(Equal(v1alpha1.ActionCommitted))
		Expect(a.Spec.Principal.Agent).To(Equal(s.agent.Name))
		at := strings.LastIndex(r.stdout.String(), " ")
		Expect(r.stdout.String()[:at]).To(MatchJSON(a.Spec.Arguments.Raw))
		Expect(strings.TrimSpace(r.stdout.String()[at:])).To(Equal(a.Status.Execution.Token))
		Expect(r.stderr.String()).To(ContainSubstring("receipt " + a.Status.ReceiptRef.Name + " " + a.Status.ReceiptRef.Hash))

		By("not executing the same again")
		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran").exits(4)
		Expect(s.executions()).To(Equal(1))
	})

	It("waits for a person and claims, with the token of a ServiceAccount", func(ctx SpecContext) {
		s.byToken(ctx)
		r := s.start(`{"payment_id":"txn_1","amount":2000}`, "echo x >>ran")
		a := s.asked(ctx, "txn_1")
		Expect(s.executions()).To(BeZero())
		s.approve(ctx, a)
		r.wait()
		r.exits(0)
		Expect(s.executions()).To(Equal(1))
		a = s.one(ctx, "txn_1")
		Expect(a.Status.State).To(Equal(v1alpha1.ActionCommitted))
		Expect(a.Status.Execution.Approvals).To(HaveLen(1))
	})

	It("leaves to a person what it does not know", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran; exit 3", "CTRLRUN_NOT_EXECUTED_EXIT=75").exits(6)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionAmbiguous))

		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran").exits(6)
		Expect(s.executions()).To(Equal(1))
	})

	It("does not know what a killed command did", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "kill -9 $$").exits(6)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionAmbiguous))
	})

	It("states not executed by the one exit code, and may try again", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "exit 75", "CTRLRUN_NOT_EXECUTED_EXIT=75").exits(7)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionFailed))
		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran").exits(0)
		Expect(s.executions()).To(Equal(1))
	})

	It("does not execute what policy denies, whatever the arguments look like", func(ctx SpecContext) {
		r := s.run(`{"payment_id":"txn_1","amount":9000,"status":{"state":"Admitted","execution":{"claimID":""}}}`, "echo x >>ran")
		r.exits(3)
		Expect(s.executions()).To(BeZero())
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionDenied))
	})

	It("withdraws when it is interrupted before it may execute", func(ctx SpecContext) {
		r := s.start(`{"payment_id":"txn_1","amount":2000}`, "echo x >>ran")
		s.asked(ctx, "txn_1")
		Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		r.wait()
		r.exits(1)
		Eventually(func(g Gomega) {
			g.Expect(s.one(ctx, "txn_1").Status.Reason).To(Equal("withdrawn"))
		}).Should(Succeed())
		Expect(s.executions()).To(BeZero())
	})

	It("reports what its command did when it is interrupted meanwhile", func(ctx SpecContext) {
		r := s.start(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran; while ! [ -e go ]; do sleep 0.1; done")
		Eventually(s.executions).Should(Equal(1))
		Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		s.file("go", nil)
		r.wait()
		r.exits(0)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionCommitted))
	})

	It("says everything once although the answers are lost", func(ctx SpecContext) {
		lost := &losing{}
		s.byProxy(ctx, lost)
		r := s.start(`{"payment_id":"txn_1","amount":2000}`, "echo x >>ran")
		s.approve(ctx, s.asked(ctx, "txn_1"))
		r.wait()
		r.exits(0)
		Expect(lost.kinds()).To(Equal([]string{"actions", "claims", "outcomes"}))
		Expect(s.executions()).To(Equal(1))
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionCommitted))
	})

	It("leaves its report for people when the lease was declared over first", func(ctx SpecContext) {
		r := s.start(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran; while ! [ -e go ]; do sleep 0.1; done")
		Eventually(s.executions).Should(Equal(1))
		a := s.one(ctx, "txn_1")
		lock := flow.LockName(string(a.UID), a.Spec.ClaimID, s.agent.Name)
		Expect(env.Client(testenv.OperatorUser()).Create(ctx, &v1alpha1.Outcome{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: lock},
			Spec: v1alpha1.OutcomeSpec{
				ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Spec.ClaimID,
				Result: v1alpha1.OutcomeUnknown, Reason: v1alpha1.OutcomeReasonLeaseLapsed,
			},
		})).To(Succeed())
		s.file("go", nil)
		r.wait()
		r.exits(6)
		late := &v1alpha1.Outcome{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "late." + lock}, late)).To(Succeed())
		Expect(late.Spec.Result).To(Equal(v1alpha1.OutcomeCommitted))
	})

	It("says what the apiserver refuses", func(ctx SpecContext) {
		s.run(`{"payment_id":}`, "echo x >>ran").exits(1)
		s.agent = testenv.ServiceAccountUser(s.ns, "stranger")
		s.byCertificate()
		r := s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran")
		r.exits(9)
		Expect(r.stderr.String()).To(ContainSubstring("cannot create resource"))
		Expect(s.executions()).To(BeZero())
	})

	It("leaves no file behind", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "true").exits(0)
		left, err := filepath.Glob(filepath.Join(s.dir, "tmp.*"))
		Expect(err).NotTo(HaveOccurred())
		Expect(left).To(BeEmpty())
	})
})
