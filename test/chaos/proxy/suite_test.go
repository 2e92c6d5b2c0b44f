package proxy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/test/testenv"
)

var env *testenv.Environment

func TestProxy(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "fault-injecting proxy")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter), textlogger.Verbosity(2))))
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
}, NodeTimeout(2*time.Minute))

// setting is a namespace, and a client of it behind a proxy of its own.
type setting struct {
	ns    string
	user  testenv.User
	proxy *Proxy
	// config is the client's connection, through the proxy.
	config *rest.Config
	kube   kubernetes.Interface
}

// nothing injects nothing.
var nothing = InjectorFunc(func(context.Context, Request) Fault { return Forward() })

// once injects a fault into the first request of a point.
func once(point string, f Fault) Injector {
	return InjectorFunc(func(_ context.Context, r Request) Fault {
		if r.Point == point && r.N == 1 {
			return f
		}
		return Forward()
	})
}

func newSetting(ctx context.Context, injector Injector) *setting {
	GinkgoHelper()
	s := &setting{ns: env.Namespace(GinkgoT(), nil)}
	s.user = testenv.User{Name: "worker-of-" + s.ns}
	Expect(env.Allow(ctx, s.ns, s.user, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	})).To(Succeed())
	s.proxy = start(injector)
	s.config = listen(s.proxy, "worker", env.Config(s.user))
	s.kube = kubernetes.NewForConfigOrDie(s.config)
	return s
}

func start(injector Injector) *Proxy {
	p := New(injector)
	DeferCleanup(func() error {
		_, err := p.Close()
		return err
	})
	return p
}

func listen(p *Proxy, client string, upstream *rest.Config) *rest.Config {
	GinkgoHelper()
	config, err := p.Listen(client, upstream)
	Expect(err).NotTo(HaveOccurred())
	return config
}

var names atomic.Int64

// create makes a ConfigMap of a new name through the proxy.
func (s *setting) create(ctx context.Context) (name string, err error) {
	name = fmt.Sprintf("thing-%d", names.Add(1))
	_, err = s.kube.CoreV1().ConfigMaps(s.ns).Create(ctx, configMap(name), metav1.CreateOptions{})
	return name, err
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// exists asks the apiserver itself.
func (s *setting) exists(ctx context.Context, name string) bool {
	GinkgoHelper()
	_, err := kubernetes.NewForConfigOrDie(env.Config(s.user)).CoreV1().ConfigMaps(s.ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	return true
}

// count is how often something happened, by the proxy's statistics.
func (s *setting) count(kind Kind, point string) int {
	for _, c := range s.proxy.Stats() {
		if c.Kind == kind && c.Point == point {
			return c.N
		}
	}
	return 0
}

// noStatus expects an error that is no answer of an apiserver.
func noStatus(err error) {
	GinkgoHelper()
	Expect(err).To(HaveOccurred())
	Expect(apierrors.ReasonForError(err)).To(Equal(metav1.StatusReasonUnknown), "%v", err)
}

// wasReset expects an error by which a connection was reset, and not just closed.
func wasReset(err error) {
	GinkgoHelper()
	noStatus(err)
	Expect(utilnet.IsConnectionReset(err)).To(BeTrue(), "%v", err)
}

// heard keeps what After was told.
type heard struct {
	mu       sync.Mutex
	statuses []int
}

func (h *heard) hear(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses = append(h.statuses, status)
}

func (h *heard) all() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]int(nil), h.statuses...)
}
