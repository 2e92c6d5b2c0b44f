package proxy

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/test/testenv"
)

func kubernetesFor(config *rest.Config) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(config)
}

var _ = Describe("without a fault", func() {
	It("a client without credentials is who its listener is for", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		Expect(s.config.Host).To(HavePrefix("http://127.0.0.1:"))
		Expect(s.config.CertData).To(BeEmpty())
		review, err := s.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.UserInfo.Username).To(Equal(s.user.Name))
	})

	It("headers pass in both directions", func(ctx context.Context) {
		const date = "Mon, 02 Jan 2006 15:04:05 GMT"
		upstream := env.AdminConfig()
		upstream.Wrap(tapped(func(response *http.Response) { response.Header.Set("Date", date) }))
		p := start(nothing)
		config := listen(p, "admin", upstream)
		config.Impersonate = rest.ImpersonationConfig{UserName: "somebody-else"}
		var headers http.Header
		config.Wrap(tapped(func(response *http.Response) { headers = response.Header }))
		review, err := kubernetesFor(config).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.UserInfo.Username).To(Equal("somebody-else"))
		Expect(headers.Values("Date")).To(Equal([]string{date}))
		Expect(headers.Get("X-Kubernetes-Pf-Flowschema-Uid")).NotTo(BeEmpty())
	})

	It("a process gets there by a kubeconfig", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		name, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(testenv.WriteKubeconfig(kubeconfig, s.config, "worker", s.ns)).To(Succeed())
		out, err := exec.CommandContext(ctx, env.Kubectl(), "--kubeconfig="+kubeconfig, "get", "configmaps", "-o", "name").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(ContainSubstring("configmap/" + name))
	})

	It("an error of the apiserver is the apiserver's", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		_, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring("nodes is forbidden: User \"" + s.user.Name + "\"")))
	})

	It("two clients of one name are refused", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		_, err := s.proxy.Listen("worker", env.Config(s.user))
		Expect(err).To(MatchError(ContainSubstring("counted as one")))
	})
})

// tap shows each response to a function.
type tap struct {
	next http.RoundTripper
	see  func(*http.Response)
}

func tapped(see func(*http.Response)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &tap{next: next, see: see} }
}

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil {
		t.see(response)
	}
	return response, err
}

func (t *tap) WrappedRoundTripper() http.RoundTripper { return t.next }

var _ = Describe("a partition", func() {
	It("resets everything of a client until it is healed, and nothing of another", func(ctx context.Context) {
		s := newSetting(ctx, nothing)
		other := *s
		other.kube = kubernetesFor(listen(s.proxy, "other", env.Config(s.user)))
		w, others := s.watch(ctx), other.watch(ctx)
		heal := s.proxy.Partition("worker")
		Eventually(w.ResultChan()).Should(BeClosed())
		name, err := s.create(ctx)
		noStatus(err)
		Expect(s.exists(ctx, name)).To(BeFalse())
		// client-go repeats a GET that is reset, for seconds.
		response, err := http.Get(s.config.Host + "/version")
		if err == nil {
			_ = response.Body.Close()
		}
		Expect(err).To(HaveOccurred())
		name, err = other.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.exists(ctx, name)).To(BeTrue())
		Eventually(others.ResultChan()).Should(Receive())
		heal()
		heal() // it counts once
		_, err = s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.count(KindPartition, "worker")).To(Equal(1))
	})

	It("takes a request that waits for its answer, and the write lands", func(ctx context.Context) {
		var s *setting
		var h heard
		s = newSetting(ctx, InjectorFunc(func(_ context.Context, r Request) Fault {
			if r.Point != createConfigMap {
				return Forward()
			}
			return Forward().After(func(int) { s.proxy.Partition("worker") }).After(h.hear)
		}))
		name, err := s.create(ctx)
		noStatus(err)
		Expect(s.exists(ctx, name)).To(BeTrue())
		Eventually(h.all).Should(Equal([]int{http.StatusCreated}))
	})
})

var _ = Describe("closing", func() {
	It("leaves no goroutine, whatever was under way", func(ctx context.Context) {
		ns := env.Namespace(GinkgoT(), nil)
		before := gleak.Goroutines()
		p := New(InjectorFunc(func(_ context.Context, r Request) Fault {
			switch {
			case r.Verb == "watch" && r.N == 1:
				return Cut(time.Hour)
			case r.Point == "secrets.create":
				return Late(time.Hour)
			case r.Point == "serviceaccounts.create":
				return Stall(time.Hour)
			}
			return Forward()
		}))
		config, err := p.Listen("admin", env.AdminConfig())
		Expect(err).NotTo(HaveOccurred())
		p.Hold("admin", "configmaps")
		var watches []io.ReadCloser
		for _, path := range []string{"configmaps?watch=1", "secrets?watch=1", "configmaps?watch=1"} {
			response, err := http.Get(config.Host + "/api/v1/namespaces/" + ns + "/" + path)
			Expect(err).NotTo(HaveOccurred())
			watches = append(watches, response.Body)
			Expect(response.StatusCode).To(Equal(http.StatusOK))
		}
		post := func(resource string) error {
			response, err := http.Post(config.Host+"/api/v1/namespaces/"+ns+"/"+resource, "application/json", strings.NewReader(`{"metadata":{"name":"x"}}`))
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			return err
		}
		Expect(post("secrets")).NotTo(Succeed())
		stalled := make(chan error, 1)
		go func() { stalled <- post("serviceaccounts") }()
		Eventually(p.Stats).Should(ContainElement(Count{Kind: KindStall, Point: "serviceaccounts.create", N: 1}))

		dropped, err := p.Close()
		Expect(err).NotTo(HaveOccurred())
		Expect(dropped).To(HaveLen(1))
		Eventually(stalled).Should(Receive(HaveOccurred()))
		// The client's own goroutines end with its connections.
		for _, w := range watches {
			_, err := io.Copy(io.Discard, w)
			Expect(err).To(HaveOccurred())
			Expect(w.Close()).To(Succeed())
		}
		http.DefaultClient.CloseIdleConnections()
		Eventually(gleak.Goroutines).Should(Not(gleak.HaveLeaked(before)))
		_, err = p.Listen("late", env.AdminConfig())
		Expect(err).To(MatchError(ContainSubstring("closed")))
		_, err = p.Close()
		Expect(err).NotTo(HaveOccurred())
	})

	It("carries through what was forwarded", func(ctx context.Context) {
		var h heard
		reached, proceed := make(chan struct{}), make(chan struct{})
		s := newSetting(ctx, once(createConfigMap, Forward().Before(func() {
			close(reached)
			<-proceed
		}).After(h.hear)))
		go func() { _, _ = s.create(ctx) }()
		Eventually(reached).Should(BeClosed())
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = s.proxy.Close()
		}()
		Consistently(closed).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		close(proceed)
		Eventually(closed).Should(BeClosed())
		Expect(h.all()).To(Equal([]int{http.StatusCreated}))
	})
})
