// Package tamper tests what is noticed of changes to the records that nobody can make while admission is in force: receipts
// and Ledgers rewritten or deleted by a cluster-admin, an etcd that was restored to an earlier point, a namespace that was
// deleted and made again. It runs on a real kube-apiserver and etcd, beside operators that stay, die and are replaced, and
// asks the built plugin what it sees. Time is the machine's.
package tamper

import (
	"context"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/test/testenv"
)

var (
	ctx = context.Background()
	env *testenv.Environment
	// operator is the one that runs. Whoever stops it starts another.
	operator *process

	// auditor reads everything, governor may accept heads besides, clerk only says so.
	auditor  = testenv.User{Name: "auditor@example.com"}
	governor = testenv.User{Name: "governor@example.com"}
	clerk    = testenv.User{Name: "clerk@example.com"}
)

func TestTamper(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "tampering and rollback")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter))))

	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	Expect(plugin()).To(BeAnExistingFile(), "`make build` puts it there")

	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{resource}, Verbs: verbs}
	}
	namespaces := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}}
	for _, err := range []error{
		env.Grant(ctx, "", "ctrlrun-viewer", auditor, governor, clerk),
		env.Allow(ctx, "", governor, namespaces, rule("ledgeracceptances", "create", "get", "list", "watch"), rule("ledgers", "govern")),
		env.Allow(ctx, "", clerk, namespaces, rule("ledgeracceptances", "create", "get", "list", "watch")),
	} {
		Expect(err).NotTo(HaveOccurred())
	}
	operator = startOperator()
	DeferCleanup(func() { Expect(operator.Stop()).To(Succeed()) })
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
})

// process is an operator that may end by itself, with an error that is expected.
type process struct {
	*testenv.Operator
	ended error // read after Done is closed
}

type runnable func(context.Context) error

func (r runnable) Start(ctx context.Context) error { return r(ctx) }

// startOperator starts an operator in this process, without leader election. It has seen nothing yet.
func startOperator(wrap ...func(http.RoundTripper) http.RoundTripper) *process {
	GinkgoHelper()
	p := &process{}
	started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS, cfg.Burst = 500, 1000
		for _, w := range wrap {
			cfg.Wrap(w)
		}
		manager, err := controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0"})
		return runnable(func(ctx context.Context) error {
			p.ended = manager.Start(ctx)
			return nil
		}), err
	})
	Expect(err).NotTo(HaveOccurred())
	p.Operator = started
	return p
}

// replaced stops the operator, does something while none runs, and starts one that remembers nothing.
func replaced(meanwhile func()) {
	GinkgoHelper()
	Expect(operator.Stop()).To(Succeed())
	meanwhile()
	operator = startOperator()
}

// admissionGap makes admission policies not enforced, and gives the function that has them enforced again and returns when
// statements count.
func admissionGap(bindings ...string) (closeGap func()) {
	GinkgoHelper()
	return env.AdmissionGap(GinkgoT(), bindings...)
}
