package cli

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// While nobody can say who makes a statement, none ever counts. People are told so before they make one.
var _ = Describe("while the admission policies are missing", Ordered, func() {
	var s *cliStage
	ambiguous, asked := refundName("open"), refundName("asks")

	var governor testenv.User

	BeforeAll(func(ctx SpecContext) {
		s = newCLIStage()
		governor = testenv.User{Name: "root@" + s.namespace, Groups: []string{"system:masters"}}
		startOperator(ctx)
		Expect(s.run(s.agent, refund("open", "5", "--", "false")...).Code).To(Equal(6))
		Expect(s.run(s.agent, "propose", "stripe.refund", "payment_id=asks", "amount:=2000").Code).To(Equal(0))
		s.awaiting(asked)
	}, NodeTimeout(3*time.Minute))

	AfterEach(reportOperatorLog)

	statements := func(ctx context.Context) int {
		GinkgoHelper()
		var approvals v1alpha1.ApprovalList
		var resolutions v1alpha1.ResolutionList
		Expect(env.Admin().List(ctx, &approvals, client.InNamespace(s.namespace))).To(Succeed())
		Expect(env.Admin().List(ctx, &resolutions, client.InNamespace(s.namespace))).To(Succeed())
		return len(approvals.Items) + len(resolutions.Items)
	}

	It("refuses statements that would never count, and says what to do instead", func(ctx SpecContext) {
		withoutAdmission(ctx, s)
		Eventually(func(g Gomega) {
			ledger := &v1alpha1.Ledger{}
			g.Expect(env.Admin().Get(ctx, client.ObjectKey{Name: testenv.SystemNamespace}, ledger)).To(Succeed())
			g.Expect(meta.IsStatusConditionFalse(ledger.Status.Conditions, v1alpha1.AdmissionInForceCondition)).To(BeTrue())
		}).WithTimeout(time.Minute).Should(Succeed())
		Expect(s.run(s.agent, "propose", "stripe.refund", "payment_id=held", "amount:=5").Code).To(Equal(0))
		Eventually(func() string { return s.action(refundName("held")).Status.Reason }).WithTimeout(time.Minute).Should(Equal("admission_missing"))

		By("on the screen, also of somebody who does not see the Ledger")
		for _, u := range []testenv.User{s.view, s.resolver, s.approver} {
			screen := s.run(u)
			Expect(screen.Stdout).To(And(MatchRegexp(`Admission: +missing: `), MatchRegexp(`Next: +kubectl apply --server-side --force-conflicts -k config/admission `)), u.Name)
		}

		By("before anything is created")
		answers := s.write("answers.jsonl", []line{{"key": "refund:open", "result": "committed", "reason": "r"}})
		hash := s.action(asked).Status.ActionHash
		before := statements(ctx)
		for _, refused := range []cliResult{
			s.run(s.resolver, "resolve", ambiguous, "--committed", "--reason", "r", "--yes"),
			s.run(s.resolver, "resolve", "-f", answers, "--yes"),
			s.run(governor, "resolve", ambiguous, "--committed", "--reason", "r", "--yes"),
			s.run(s.approver, "approve", asked, "--yes", "--hash", hash),
			s.run(s.approver, "deny", asked, "--yes", "--hash", hash),
		} {
			Expect(refused.Code).To(Equal(5), refused.Stderr)
			Expect(refused.Stdout).To(BeEmpty())
			Expect(refused.Stderr).To(And(ContainSubstring("nothing was stated"), ContainSubstring("kubectl apply --server-side --force-conflicts -k config/admission")))
			Expect(refused.Stderr).NotTo(ContainSubstring("is it running"))
		}
		Expect(statements(ctx)).To(Equal(before))
		Expect(s.run(s.resolver, "resolve", "-f", filepath.Base(answers), "--dry-run=client").Code).To(Equal(0))
	}, SpecTimeout(4*time.Minute))

	It("takes them once the policies are back, after it has waited until they count", func(ctx SpecContext) {
		Eventually(func() string { return s.run(s.view).Stdout }).WithTimeout(time.Minute).Should(MatchRegexp(`Admission: +in force since 20`))
		resolved := s.run(governor, "resolve", ambiguous, "--committed", "--reason", "r", "--yes")
		Expect(resolved.Code).To(Equal(0), resolved.Stderr)
	}, SpecTimeout(3*time.Minute))
})
