package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

const watchConfigMaps = "configmaps.watch"

// cached is what an informer of a client has.
type cached struct {
	cache.SharedIndexInformer
	mu    sync.Mutex
	added []string // in the order the informer told of them
}

// caches starts informers of ConfigMaps and Secrets and returns when they are filled.
func (s *setting) caches(ctx context.Context) (configMaps, secrets *cached) {
	GinkgoHelper()
	factory := informers.NewSharedInformerFactoryWithOptions(s.kube, 0, informers.WithNamespace(s.ns))
	configMaps = &cached{SharedIndexInformer: factory.Core().V1().ConfigMaps().Informer()}
	secrets = &cached{SharedIndexInformer: factory.Core().V1().Secrets().Informer()}
	for _, c := range []*cached{configMaps, secrets} {
		_, err := c.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: c.add})
		Expect(err).NotTo(HaveOccurred())
	}
	running, stop := context.WithCancel(ctx)
	factory.Start(running.Done())
	DeferCleanup(func() {
		stop()
		factory.Shutdown()
	})
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, synced := range factory.WaitForCacheSync(bounded.Done()) {
		Expect(synced).To(BeTrue())
	}
	return configMaps, secrets
}

func (c *cached) add(o any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added = append(c.added, o.(metav1.Object).GetName())
}

func (c *cached) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.added...)
}

func (s *setting) createSecret(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := s.kube.CoreV1().Secrets(s.ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// watch begins a watch of ConfigMaps.
func (s *setting) watch(ctx context.Context) watch.Interface {
	GinkgoHelper()
	w, err := s.kube.CoreV1().ConfigMaps(s.ns).Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	return w
}

var _ = Describe("a watch", func() {
	It("brings an event when it happens", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		w := s.watch(ctx)
		for range 3 {
			name, err := s.create(ctx)
			Expect(err).NotTo(HaveOccurred())
			var event watch.Event
			Eventually(w.ResultChan()).WithTimeout(2 * time.Second).Should(Receive(&event))
			Expect(event.Type).To(Equal(watch.Added))
			Expect(event.Object.(*corev1.ConfigMap).Name).To(Equal(name))
		}
	})

	DescribeTable("ends when it is to, not before",
		func(ctx context.Context, f Fault, kind Kind) {
			s := newSetting(ctx, once(watchConfigMaps, f))
			began := time.Now()
			w := s.watch(ctx)
			name, err := s.create(ctx)
			Expect(err).NotTo(HaveOccurred())
			var event watch.Event
			Eventually(w.ResultChan()).Should(Receive(&event))
			Expect(event.Object.(*corev1.ConfigMap).Name).To(Equal(name))
			Eventually(w.ResultChan()).Should(BeClosed())
			Expect(time.Since(began)).To(BeNumerically(">=", time.Second))
			Expect(s.count(kind, watchConfigMaps)).To(Equal(1))
		},
		Entry("cut", Cut(time.Second), KindCut),
		Entry("torn", Tear(time.Second), KindTear),
	)

	DescribeTable("ends as if its time were over, or by a reset",
		func(ctx context.Context, f Fault, how types.GomegaMatcher) {
			s := newSetting(ctx, once(watchConfigMaps, f))
			response, err := http.Get(s.config.Host + "/api/v1/namespaces/" + s.ns + "/configmaps?watch=1")
			Expect(err).NotTo(HaveOccurred())
			defer func() { _ = response.Body.Close() }()
			_, err = io.Copy(io.Discard, response.Body)
			Expect(err).To(how)
		},
		Entry("cut", Cut(50*time.Millisecond), Not(HaveOccurred())),
		Entry("torn", Tear(50*time.Millisecond), MatchError(utilnet.IsConnectionReset, "a reset")),
	)

	DescribeTable("that ended is taken up again by an informer, which misses nothing",
		func(ctx context.Context, f Fault, kind Kind) {
			s := newSetting(ctx, InjectorFunc(func(_ context.Context, r Request) Fault {
				if r.Point == watchConfigMaps && r.N <= 3 {
					return f
				}
				return Forward()
			}))
			configMaps, _ := s.caches(ctx)
			want := s.someSince(ctx, func() bool { return s.count(kind, watchConfigMaps) >= 3 })
			Eventually(configMaps.names).Should(ContainElements(want))
			// The third may have brought everything before it ended; the next begins a moment later.
			Eventually(func() int { return s.count("", watchConfigMaps) }).Should(BeNumerically(">", 3))
		},
		Entry("cut", Cut(50*time.Millisecond), KindCut),
		Entry("torn", Tear(50*time.Millisecond), KindTear),
	)

	It("that was refused is begun again by an informer", func(ctx context.Context) {
		s := newSetting(ctx, once(watchConfigMaps, Refuse(500, 0)))
		configMaps, _ := s.caches(ctx)
		name, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(configMaps.names).Should(ContainElement(name))
		Expect(s.count(KindRefuse, watchConfigMaps)).To(Equal(1))
	})
})

// someSince makes ConfigMaps until something is true, and gives their names.
func (s *setting) someSince(ctx context.Context, enough func() bool) (names []string) {
	GinkgoHelper()
	Eventually(func() bool {
		name, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		names = append(names, name)
		return enough()
	}).Should(BeTrue())
	return names
}

var _ = Describe("a hold", func() {
	It("makes one cache older than the others, and then brings all of it in order", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		configMaps, secrets := s.caches(ctx)
		before := len(configMaps.names())
		release := s.proxy.Hold("worker", "configmaps")
		const n = 50
		var want []string
		for i := range n {
			name, err := s.create(ctx)
			Expect(err).NotTo(HaveOccurred())
			want = append(want, name)
			s.createSecret(ctx, fmt.Sprintf("secret-%d", i))
		}
		// What came later is there, what came before it is not.
		Eventually(secrets.names).Should(HaveLen(n))
		Expect(configMaps.names()).To(HaveLen(before))
		release()
		release() // it counts once
		Eventually(func() []string { return configMaps.names()[before:] }).Should(Equal(want))
		Expect(s.count(KindHold, watchConfigMaps)).To(Equal(1))
	})

	It("holds a watch that begins later, too, and does not keep a client from leaving", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		release := s.proxy.Hold("worker", "configmaps")
		leaving, leave := context.WithCancel(ctx)
		w := s.watch(leaving)
		name, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Consistently(w.ResultChan()).WithTimeout(300 * time.Millisecond).ShouldNot(Receive())
		leave()
		Eventually(w.ResultChan()).Should(BeClosed())

		second := s.watch(ctx)
		release()
		var event watch.Event
		Eventually(second.ResultChan()).Should(Receive(&event))
		Expect(event.Object.(*corev1.ConfigMap).Name).To(Equal(name))
	})

	It("is one client's own", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		other := *s
		other.kube = kubernetesFor(listen(s.proxy, "other", env.Config(s.user)))
		DeferCleanup(s.proxy.Hold("worker", "configmaps"))
		w := other.watch(ctx)
		_, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(w.ResultChan()).Should(Receive())
	})

	It("adds up", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		first, second := s.proxy.Hold("worker", "configmaps"), s.proxy.Hold("worker", "configmaps")
		w := s.watch(ctx)
		_, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		first()
		Consistently(w.ResultChan()).WithTimeout(200 * time.Millisecond).ShouldNot(Receive())
		second()
		Eventually(w.ResultChan()).Should(Receive())
	})

	It("gives way to a cut", func(ctx context.Context) {
		s := newSetting(ctx, once(watchConfigMaps, Cut(200*time.Millisecond)))
		DeferCleanup(s.proxy.Hold("worker", "configmaps"))
		w := s.watch(ctx)
		_, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(w.ResultChan()).Should(BeClosed())
	})
})
