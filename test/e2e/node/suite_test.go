// Package node tests the node for tests, as those who write a Job, a CronJob or a Deployment see it; and then what needs one and
// the controllers of a cluster: the end of namespaces, garbage collection and quotas, with the operator running.
package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/test/testenv"
)

const (
	// shell is the image of most pods here: the programs of the system and nothing else.
	shell = "shell"
	// kubectl is an image whose containers talk to the apiserver.
	kubectl = "kubectl:latest"
)

var (
	env      *testenv.Environment
	hostDir  string // below it are the volumes that claims get
	operator *testenv.Operator
	clock    = &testenv.Clock{} // the operator's
)

func TestNode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "node")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter))))
	hostDir = GinkgoT().TempDir()
	binaries, err := testenv.Binaries()
	Expect(err).NotTo(HaveOccurred())
	env, err = testenv.Start(ctx, testenv.Options{Workloads: &testenv.Workloads{
		Images: map[string]testenv.Image{
			shell:   {},
			kubectl: {Entrypoint: []string{filepath.Join(binaries, "kubectl")}, Files: []string{filepath.Join(binaries, "controlplane")}, HostNetwork: true},
		},
		HostDirs: []string{hostDir},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	operator, err = env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS = -1
		return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(operator.Stop()).To(Succeed()) })
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
}, NodeTimeout(3*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) {
	if env == nil || !report.Failed() {
		return
	}
	for _, name := range []string{"ctrlrun-node", "kube-controller-manager"} {
		log, err := os.ReadFile(filepath.Join(env.Dir, name+".log"))
		Expect(err).NotTo(HaveOccurred())
		GinkgoWriter.Printf("the end of the log of %s:\n%s\n", name, log[max(0, len(log)-5000):])
	}
})

// namespace makes one that pods can be made in.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	Eventually(ctx, func() error {
		return env.Admin().Get(ctx, client.ObjectKey{Namespace: ns, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed())
	return ns
}

// script is a pod with one container that runs it.
func script(ns, text string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "pod-"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "main", Image: shell, Command: []string{"sh", "-c", text}}},
		},
	}
}

// job is a Job of such a pod.
func job(ns, name, text string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: script(ns, text).Spec}},
	}
}

// create makes an object.
func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
}

// get reads an object again.
func get[T client.Object](ctx context.Context, o T) func(Gomega) T {
	return func(g Gomega) T {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		return o
	}
}

// ended waits until a pod has.
func ended(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		get(ctx, pod)(g)
		g.Expect(pod.Status.Phase).To(BeElementOf(corev1.PodSucceeded, corev1.PodFailed), "%+v", pod.Status)
	}).Should(Succeed())
	return pod
}

// exit is how the only container of a pod ended.
func exit(pod *corev1.Pod) corev1.ContainerStateTerminated {
	GinkgoHelper()
	Expect(pod.Status.ContainerStatuses).To(HaveLen(1))
	end := pod.Status.ContainerStatuses[0].State.Terminated
	Expect(end).NotTo(BeNil(), "%+v", pod.Status)
	return *end
}

// logs are what kubectl logs prints.
func logs(ctx context.Context, pod *corev1.Pod, args ...string) string {
	GinkgoHelper()
	all := append([]string{"--kubeconfig=" + env.Kubeconfig(admin), "--namespace=" + pod.Namespace, "logs", pod.Name}, args...)
	out, err := exec.CommandContext(ctx, env.Kubectl(), all...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// printed runs a pod to its end, which must be a good one, and gives what it printed.
func printed(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	create(ctx, pod)
	ended(ctx, pod)
	Expect(pod.Status.Reason).To(BeEmpty(), pod.Status.Message)
	text := logs(ctx, pod)
	Expect(exit(pod).ExitCode).To(BeZero(), text)
	return strings.TrimSpace(text)
}

// admin has a kubeconfig.
var admin = testenv.User{Name: "admin@example.com", Groups: []string{"system:masters"}}
