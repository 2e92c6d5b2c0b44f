// Package proposals tests changes of policies and grants that people approve, on a real kube-apiserver and etcd, as real users with real
// RBAC: who may write directly, who is asked, what is written when, and what an operator that dies in between leaves.
package proposals

import (
	"bytes"
	"context"
	"io"
	"sync"
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
	logged   = &log{}
)

func TestProposals(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "proposals")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.MultiWriter(GinkgoWriter, logged)), textlogger.Verbosity(2))))

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
	o.Clock = clock
	started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS = -1
		return controllers.New(cfg, o)
	})
	Expect(err).NotTo(HaveOccurred())
	return started
}

// log is what the operators say.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Since is what was said since there were that many bytes.
func (l *log) Since(from int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()[from:]
}

func (l *log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Len()
}
