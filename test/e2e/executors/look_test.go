package executors

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	jobexec "ctrlrun.dev/operator/executors/job"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

// seen is what came of a look.
type seen struct {
	answer flow.Answer
	why    string
}

// look asks for the action of a shop what became of the attempt before, for at most so many seconds.
func (s *shop) look(ctx context.Context, seconds int32) (actor, <-chan seen) {
	GinkgoHelper()
	spec := &v1alpha1.JobObserver{TimeoutSeconds: seconds}
	Expect(json.Unmarshal([]byte(s.pod), &spec.Template.Spec)).To(Succeed())
	o, err := jobexec.NewObserver(spec, "runner")
	Expect(err).NotTo(HaveOccurred())
	all := make(chan seen, 1)
	go func() {
		answer, why := o.Ask(ctx, executors.Look{
			Namespace: s.namespace, ActionName: s.call.ActionName, ActionUID: s.call.ActionUID, EffectKey: s.call.EffectKey, Attempt: 1, Token: "its-token",
		}, s.config)
		all <- seen{answer, why}
	}()
	return actor{namespace: s.namespace, name: "ctrlrun-look-" + s.call.ActionUID}, all
}

// learns waits for what came of a look.
func (s *shop) learns(all <-chan seen) seen {
	GinkgoHelper()
	var got seen
	Eventually(all).Should(Receive(&got))
	for _, private := range []string{confidential, "its-token", "not_sure"} {
		Expect(got.why).NotTo(ContainSubstring(private))
	}
	return got
}

// unknown expects that a look settled nothing, and why.
func (s *shop) unknown(all <-chan seen, why string) {
	GinkgoHelper()
	got := s.learns(all)
	Expect(got.answer).To(Equal(flow.AnswerUnknown), got.why)
	Expect(got.why).To(ContainSubstring(why))
}

var _ = Describe("The job that looks", func() {
	var s *shop
	BeforeEach(func(ctx SpecContext) { s = newShop(ctx, jobRules()...) })

	It("is given the question, and its answer is read; the same action then executes", func(ctx SpecContext) {
		cluster, all := s.look(ctx, 600)
		j := cluster.job(ctx)
		Expect(*j.Spec.ActiveDeadlineSeconds).To(BeNumerically("~", 569, 3), "what 600 s leave without 30")
		Expect(j.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Action"), HaveField("UID", BeEquivalentTo(s.call.ActionUID)))))
		var secret corev1.Secret
		Eventually(func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(j), &secret)).To(Succeed())
			g.Expect(secret.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Job"), HaveField("UID", j.UID))))
		}).Should(Succeed(), "the Secret goes with the Job")
		Expect(secret.Data).To(HaveLen(3))
		Expect(string(secret.Data["question.json"])).To(Equal(`{"attempt":1,"effect_key":"refund:` + confidential + `","token":"its-token"}`))
		cluster.exit(ctx, cluster.run(ctx, j), 0, "Completed", `{"answer": "not_executed"}`)
		Expect(s.learns(all)).To(Equal(seen{flow.AnswerNotExecuted, ""}))
		Eventually(func() error { return env.Admin().Get(ctx, client.ObjectKeyFromObject(&secret), &corev1.Secret{}) }).Should(MatchError(ContainSubstring("not found")))

		results := s.start(ctx)
		s.cluster.exit(ctx, s.cluster.run(ctx, s.cluster.job(ctx)), 0, "Completed", "")
		Expect(s.end(results)).To(HaveField("State", effect.Committed))
		Expect(s.jobs(ctx)).To(HaveLen(2))
	})

	It("looks for an action that has executed", func(ctx SpecContext) {
		results := s.start(ctx)
		s.cluster.exit(ctx, s.cluster.run(ctx, s.cluster.job(ctx)), 3, "Error", "")
		Expect(s.end(results)).To(HaveField("State", effect.Ambiguous))
		cluster, all := s.look(ctx, 600)
		cluster.exit(ctx, cluster.run(ctx, cluster.job(ctx)), 0, "Completed", `{"answer":"committed"}`)
		Expect(s.learns(all)).To(Equal(seen{flow.AnswerCommitted, ""}))
	})

	Describe("settles nothing", func() {
		DescribeTable("by what it says", func(ctx SpecContext, code int, reason, message, why string) {
			cluster, all := s.look(ctx, 600)
			cluster.exit(ctx, cluster.run(ctx, cluster.job(ctx)), int32(code), reason, message)
			s.unknown(all, why)
		},
			Entry("if it failed", 1, "Error", `{"answer":"committed"}`, "exited with 1"),
			Entry("if that is not an answer", 0, "Completed", `{"answer":"committed","but":"not_sure"}`, "something else than"),
			Entry("if that is nothing", 0, "Completed", "", "something else than"),
			Entry("if it does not know", 0, "Completed", `{"answer":"unknown"}`, "does not know"),
		)

		It("by a Job that failed without a pod, which proves that nothing was run", func(ctx SpecContext) {
			cluster, all := s.look(ctx, 600)
			cluster.fail(ctx, cluster.job(ctx), 0)
			s.unknown(all, "without having made a pod")
		})

		It("by a Job that may not be made", func(ctx SpecContext) {
			s = newShop(ctx, rule("batch", "jobs", "get"), rule("", "pods", "list", "watch"), rule("", "secrets", "create", "delete"))
			_, all := s.look(ctx, 600)
			s.unknown(all, "refused the Job: Forbidden")
			Expect(s.jobs(ctx)).To(BeEmpty())
		})

		It("by a Job that is deleted", func(ctx SpecContext) {
			cluster, all := s.look(ctx, 600)
			j := cluster.job(ctx)
			cluster.run(ctx, j)
			Expect(env.Admin().Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			s.unknown(all, "was deleted")
		})

		It("by two pods", func(ctx SpecContext) {
			cluster, all := s.look(ctx, 600)
			j := cluster.job(ctx)
			cluster.run(ctx, j)
			cluster.exit(ctx, cluster.run(ctx, j), 0, "Completed", `{"answer":"not_executed"}`)
			s.unknown(all, "more than one pod")
		})

		It("by a pod that does not end in time", func(ctx SpecContext) {
			cluster, all := s.look(ctx, 10)
			j := cluster.job(ctx)
			Expect(*j.Spec.ActiveDeadlineSeconds).To(BeNumerically("<=", 9))
			cluster.run(ctx, j)
			s.unknown(all, "had not ended")
		})

		It("by what has its name already", func(ctx SpecContext) {
			Expect(env.Admin().Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ctrlrun-look-" + s.call.ActionUID},
				StringData: map[string]string{"question.json": "{}"},
			})).To(Succeed())
			_, all := s.look(ctx, 600)
			s.unknown(all, "a Secret of this look already")
			Expect(s.jobs(ctx)).To(BeEmpty())
		})
	})
})
