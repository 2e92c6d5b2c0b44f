// Package protocol tests what an operator does about a governed action, from the proposal to the receipt, on a real
// kube-apiserver and etcd and as real users.
package protocol

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

var (
	ctx = context.Background()
	env *testenv.Environment
	// operator is the one that runs for all specs. A spec that needs another, or none, stops it and starts it again.
	operator *testenv.Operator
	clock    = &testenv.Clock{}
)

func TestProtocol(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "protocol")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter), textlogger.Verbosity(2))))

	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	operator = startOperator(controllers.Options{})
	DeferCleanup(func() { _ = operator.Stop() })
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
})

// startOperator starts an operator in this process, without leader election, on the tests' clock.
func startOperator(o controllers.Options) *testenv.Operator {
	GinkgoHelper()
	o.Namespace, o.MetricsAddress, o.ProbeAddress = testenv.SystemNamespace, "0", "0"
	if o.Clock == nil {
		o.Clock = clock
	}
	started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS = -1
		return controllers.New(cfg, o)
	})
	Expect(err).NotTo(HaveOccurred())
	return started
}
