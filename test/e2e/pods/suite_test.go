// Package pods tests what runs in pods: the agents of config/samples/agents as they are deployed, Jobs that the operator executes, and
// what it scales; on a real kube-apiserver with the controllers of a cluster and a node for tests, whose pods really run.
package pods

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/executors/pool"
	"ctrlrun.dev/operator/test/testenv"
)

// shell is an image with the programs of the system, and without a network.
const shell = "shell"

var (
	env *testenv.Environment
	// operator is the one that runs for all specs. A spec that needs another stops it and starts it again.
	operator *testenv.Operator
	// clock is the operator's. Pods and the apiserver have the machine's.
	clock = &testenv.Clock{}
)

func TestPods(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "pods")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter))))
	for _, tool := range []string{"/usr/bin/python3", "/usr/bin/curl"} {
		Expect(tool).To(BeAnExistingFile(), "install it: it is what the images of the agents are for")
	}
	var err error
	env, err = testenv.Start(ctx, testenv.Options{Workloads: &testenv.Workloads{Images: map[string]testenv.Image{
		"python:3-slim":          {HostNetwork: true},
		"curlimages/curl:8.15.0": {HostNetwork: true},
		shell:                    {},
	}}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	operator = startOperator()
	DeferCleanup(func() { _ = operator.Stop() })
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
}, NodeTimeout(3*time.Minute))

// startOperator starts one that executes, in this process, on the tests' clock.
func startOperator() *testenv.Operator {
	GinkgoHelper()
	started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS = -1
		executors, err := pool.New(cfg)
		if err != nil {
			return nil, err
		}
		return controllers.New(cfg, controllers.Options{
			Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock, Executors: executors,
		})
	})
	Expect(err).NotTo(HaveOccurred())
	return started
}

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
