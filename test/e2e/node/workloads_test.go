package node

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// finished is the condition by which a Job has ended, if it has.
func finished(j *batchv1.Job) batchv1.JobConditionType {
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c.Type
		}
	}
	return ""
}

var _ = Describe("workloads", func() {
	It("ends a Job as its program's exit code says", func(ctx context.Context) {
		ns := namespace(ctx)
		good, bad := job(ns, "good", "exit 0"), job(ns, "bad", "exit 3")
		create(ctx, good)
		create(ctx, bad)
		Eventually(ctx, func(g Gomega) {
			g.Expect(finished(get(ctx, good)(g))).To(Equal(batchv1.JobComplete))
			g.Expect(finished(get(ctx, bad)(g))).To(Equal(batchv1.JobFailed))
		}).Should(Succeed())
		Expect(good.Status.Succeeded).To(BeEquivalentTo(1))
		Expect(bad.Status.Failed).To(BeEquivalentTo(1))
		pods := &corev1.PodList{}
		Expect(env.Admin().List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{batchv1.JobNameLabel: "bad"})).To(Succeed())
		Expect(pods.Items).To(HaveLen(1))
		Expect(exit(&pods.Items[0])).To(And(HaveField("ExitCode", BeEquivalentTo(3)), HaveField("Reason", "Error")))
	}, SpecTimeout(2*time.Minute))

	It("runs a CronJob when it is due", func(ctx context.Context) {
		ns := namespace(ctx)
		cron := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "due"},
			Spec: batchv1.CronJobSpec{
				Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent,
				JobTemplate: batchv1.JobTemplateSpec{Spec: job(ns, "", "echo due").Spec},
			},
		}
		create(ctx, cron)
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, cron)(g).Status.LastSuccessfulTime).NotTo(BeNil())
		}).WithTimeout(90 * time.Second).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("keeps a Deployment's pods running and replaces them", func(ctx context.Context) {
		ns := namespace(ctx)
		labels := map[string]string{"app": "agent"}
		template := script(ns, "exec sleep 1000").Spec
		template.RestartPolicy, template.TerminationGracePeriodSeconds = corev1.RestartPolicyAlways, new(int64(0))
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "agent"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
			},
		}
		create(ctx, deployment)
		pods := &corev1.PodList{}
		ready := func(g Gomega) {
			g.Expect(env.Admin().List(ctx, pods, client.InNamespace(ns))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(2))
			for _, p := range pods.Items {
				g.Expect(p.DeletionTimestamp).To(BeNil())
				g.Expect(p.Status.Conditions).To(ContainElement(And(
					HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
			}
		}
		Eventually(ctx, ready).Should(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, deployment)(g).Status.AvailableReplicas).To(BeEquivalentTo(2))
		}).Should(Succeed())

		gone := pods.Items[0].DeepCopy()
		Expect(env.Admin().Delete(ctx, gone)).To(Succeed())
		Eventually(ctx, func() bool { return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(gone), gone)) }).Should(BeTrue())
		Eventually(ctx, ready).Should(Succeed())
		Expect(env.Admin().Delete(ctx, deployment)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Admin().List(ctx, pods, client.InNamespace(ns))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty(), "the garbage collector takes what the Deployment owned")
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))
})
