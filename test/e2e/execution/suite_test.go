// Package execution tests what the operator executes itself: by whom it may be configured, what is sent, that it is sent once, and
// how it ends when anything goes wrong; on a real kube-apiserver and etcd, against a provider on a real socket.
package execution

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/executors/pool"
	"ctrlrun.dev/operator/test/testenv"
)

var (
	ctx = context.Background()
	env *testenv.Environment
	// operator is the one that runs for all specs. A spec that needs another, or none, stops it and starts it again.
	operator *testenv.Operator
	clock    = &testenv.Clock{}
)

func TestExecution(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "execution")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(20 * time.Second)
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

// options of an operator that executes, in this process, without leader election, on the tests' clock.
func options(cfg *rest.Config, o controllers.Options) (controllers.Options, error) {
	executors, err := pool.New(cfg)
	o.Namespace, o.MetricsAddress, o.ProbeAddress, o.Clock, o.Executors = testenv.SystemNamespace, "0", "0", clock, executors
	return o, err
}

func startOperator(o controllers.Options) *testenv.Operator {
	GinkgoHelper()
	return startOperatorBehind(nil, o)
}

// startOperatorBehind starts one whose requests go through a transport.
func startOperatorBehind(wire transport.WrapperFunc, o controllers.Options) *testenv.Operator {
	GinkgoHelper()
	started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS = -1
		if wire != nil {
			cfg.Wrap(wire)
		}
		o, err := options(cfg, o)
		if err != nil {
			return nil, err
		}
		return controllers.New(cfg, o)
	})
	Expect(err).NotTo(HaveOccurred())
	return started
}

// withoutOperator stops the operator of the suite for one spec.
func withoutOperator() {
	GinkgoHelper()
	Expect(operator.Stop()).To(Succeed())
	DeferCleanup(func() {
		_ = operator.Stop()
		operator = startOperator(controllers.Options{})
	})
}
