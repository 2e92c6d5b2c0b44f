// Package agents tests the agents of config/samples/agents that speak plain REST, as processes on a real kube-apiserver: with the
// token of a ServiceAccount, with nothing at hand but what they say they need, and with a provider that counts what it is asked for.
package agents

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/test/testenv"
)

var (
	env *testenv.Environment
	// clock is the operator's. The agents and the apiserver have the machine's.
	clock = &testenv.Clock{}
	// python is the interpreter itself, for what is on the PATH may be a script that looks for it.
	python string
)

func TestAgents(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "agents")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter))))
	for _, tool := range []string{"bash", "curl", "python3"} {
		_, err := exec.LookPath(tool)
		Expect(err).NotTo(HaveOccurred(), tool+" is missing: install it, for the agents that speak plain REST are tested with it")
	}
	out, err := exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output()
	Expect(err).NotTo(HaveOccurred())
	python = strings.TrimSpace(string(out))
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	_, err = env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS, cfg.Burst = 500, 1000
		return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
}, NodeTimeout(2*time.Minute))
