// Package agentsh tests config/samples/agents/agent.sh, the agent in plain REST, as a script on a real kube-apiserver: with a
// ServiceAccount's token and with a client certificate, and with nothing on its PATH but what it says it needs.
package agentsh

import (
	"context"
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

var env *testenv.Environment

func TestAgentScript(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "agent.sh")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter))))
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	_, err = env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS, cfg.Burst = 500, 1000
		return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0"})
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
}, NodeTimeout(2*time.Minute))
