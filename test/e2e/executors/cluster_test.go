package executors

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// actor plays, by hand and one step at a time, what is not there beside a kube-apiserver: the Job controller, the scheduler and a
// kubelet. It writes what they would write to the real API, as an administrator. No container runs.
type actor struct {
	namespace, name string
}

// job waits for the Job and returns it.
func (a actor) job(ctx context.Context) *batchv1.Job {
	GinkgoHelper()
	j := &batchv1.Job{}
	Eventually(func() error { return env.Admin().Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: a.name}, j) }).Should(Succeed(), "the Job is created")
	return j
}

// pod is made as the Job controller makes it.
func (a actor) pod(ctx context.Context, j *batchv1.Job) *corev1.Pod {
	GinkgoHelper()
	p := &corev1.Pod{ObjectMeta: *j.Spec.Template.ObjectMeta.DeepCopy(), Spec: *j.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.GenerateName = j.Namespace, j.Name+"-"
	p.Finalizers = []string{batchv1.JobTrackingFinalizer}
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	Expect(env.Admin().Create(ctx, p)).To(Succeed())
	return p
}

// bind gives a pod to a node, as the scheduler does.
func (a actor) bind(ctx context.Context, p *corev1.Pod) {
	GinkgoHelper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
	Expect(env.Admin().SubResource("binding").Create(ctx, p, binding)).To(Succeed())
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
}

// report writes a pod's status, as its kubelet does.
func (a actor) report(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	GinkgoHelper()
	p.Status.Phase = phase
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image, State: state}}
	Expect(env.Admin().Status().Update(ctx, p)).To(Succeed())
}

func (a actor) run(ctx context.Context, j *batchv1.Job) *corev1.Pod {
	GinkgoHelper()
	p := a.pod(ctx, j)
	a.bind(ctx, p)
	a.report(ctx, p, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
	return p
}

func (a actor) exit(ctx context.Context, p *corev1.Pod, code int32, reason, message string) {
	GinkgoHelper()
	phase := corev1.PodFailed
	if code == 0 {
		phase = corev1.PodSucceeded
	}
	a.report(ctx, p, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
	}})
}

// remove deletes a pod and takes away the finalizer by which the Job controller counts it.
func (a actor) remove(ctx context.Context, p *corev1.Pod) {
	GinkgoHelper()
	Expect(env.Admin().Delete(ctx, p, client.GracePeriodSeconds(0))).To(Succeed())
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
	p.Finalizers = nil
	Expect(env.Admin().Update(ctx, p)).To(Succeed())
}

// fail ends a Job as the Job controller does when it has counted its failed pods, or its deadline is over.
func (a actor) fail(ctx context.Context, j *batchv1.Job, failed int32) {
	GinkgoHelper()
	a.status(ctx, j, func(s *batchv1.JobStatus) {
		s.Failed = failed
		s.Conditions = []batchv1.JobCondition{condition(batchv1.JobFailureTarget), condition(batchv1.JobFailed)}
	})
}

// complete ends a Job as the Job controller does when its pod has succeeded.
func (a actor) complete(ctx context.Context, j *batchv1.Job) {
	GinkgoHelper()
	a.status(ctx, j, func(s *batchv1.JobStatus) {
		now := metav1.Now()
		s.Succeeded, s.CompletionTime = 1, &now
		s.Conditions = []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet), condition(batchv1.JobComplete)}
	})
}

func (a actor) status(ctx context.Context, j *batchv1.Job, change func(*batchv1.JobStatus)) {
	GinkgoHelper()
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(j), j)).To(Succeed())
	if j.Status.StartTime == nil {
		j.Status.StartTime = &metav1.Time{Time: time.Now().Add(-time.Second)}
	}
	change(&j.Status)
	Expect(env.Admin().Status().Update(ctx, j)).To(Succeed())
}

func condition(how batchv1.JobConditionType) batchv1.JobCondition {
	return batchv1.JobCondition{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
}
