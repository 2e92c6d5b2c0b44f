package verify

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/test/testenv"
)

// apiserver sends a request to the apiserver, as the administrator, and gives the status code of the answer, or 0.
type apiserver func(request *http.Request, body []byte) int

// between stands between verify and the apiserver. It passes everything on, as the administrator, but for the request to create a
// namespace: create says what becomes of it. Its answer is lost. The result is the kubeconfig for it.
func between(namespace string, create func(send apiserver, request *http.Request, body []byte)) string {
	GinkgoHelper()
	config := env.AdminConfig()
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	send := func(request *http.Request, body []byte) int {
		again := request.Clone(context.Background())
		again.RequestURI, again.Body, again.ContentLength = "", io.NopCloser(bytes.NewReader(body)), int64(len(body))
		again.URL.Scheme, again.URL.Host, again.Host = target.Scheme, target.Host, target.Host
		response, err := transport.RoundTrip(again)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces" {
			proxy.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			create(send, r, body)
		}
		panic(http.ErrAbortHandler)
	}))
	DeferCleanup(server.Close)
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(testenv.WriteKubeconfig(path, &rest.Config{Host: server.URL}, "between", namespace)).To(Succeed())
	return path
}

// immortal stands between verify and the apiserver, and keeps the token of the ServiceAccount leaver good when it is gone: whoever has
// it is still taken for it. Everybody else is who they are. The result is the kubeconfig for it.
func immortal(namespace string) string {
	GinkgoHelper()
	config := env.AdminConfig()
	asAdmin, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	asThemselves, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	Expect(err).NotTo(HaveOccurred())
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	var dead atomic.Bool // the ServiceAccount is gone
	token := regexp.MustCompile(`"sub":"system:serviceaccount:([^:]+):leaver"`)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			bearer, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !has {
				if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/serviceaccounts/leaver") {
					dead.Store(true)
				}
				return asAdmin.RoundTrip(r)
			}
			claims, _ := base64.RawURLEncoding.DecodeString(strings.Split(bearer, ".")[1])
			of := token.FindSubmatch(claims)
			if of == nil || !dead.Load() {
				return asThemselves.RoundTrip(r)
			}
			r.Header.Del("Authorization")
			r.Header.Set("Impersonate-User", "system:serviceaccount:"+string(of[1])+":leaver")
			return asAdmin.RoundTrip(r)
		}),
	}
	server := httptest.NewServer(proxy)
	DeferCleanup(server.Close)
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(testenv.WriteKubeconfig(path, &rest.Config{Host: server.URL}, "immortal", namespace)).To(Succeed())
	return path
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var _ = Describe("verify when the answer to the creation of its namespace is lost", func() {
	// run is a run that comes no further.
	run := func(ctx context.Context, create func(send apiserver, request *http.Request, body []byte)) outcome {
		GinkgoHelper()
		ns := namespaceWith(ctx, nil, allowOnly)
		cmd := command(admin(), ns, "--only", "G6")
		cmd.Env = append(cmd.Env, "KUBECONFIG="+between(ns, create))
		o := complete(ctx, cmd)
		Expect(o.code).To(Equal(3), o.String())
		Expect(o.stdout).To(BeEmpty())
		Expect(o.scratch()).NotTo(BeEmpty())
		Expect(o.stderr).To(And(ContainSubstring("there is no verdict"),
			ContainSubstring("it is not known whether the scratch namespace "+o.scratch()+" was created")))
		return o
	}

	It("removes the namespace that comes later", func(ctx SpecContext) {
		came := make(chan int, 1)
		o := run(ctx, func(send apiserver, request *http.Request, body []byte) {
			time.AfterFunc(3*time.Second, func() { came <- send(request, body) })
		})
		Expect(came).To(Receive(Equal(http.StatusCreated)))
		Expect(gone(ctx, o.scratch())).To(BeTrue())
		Expect(o.stderr).NotTo(ContainSubstring("kubectl delete namespace"))
	}, SpecTimeout(2*time.Minute))

	It("says the name of the one that may still come", func(ctx SpecContext) {
		o := run(ctx, func(apiserver, *http.Request, []byte) {})
		Expect(o.stderr).To(And(ContainSubstring("it may still come"), ContainSubstring("kubectl delete namespace "+o.scratch())))
	}, SpecTimeout(2*time.Minute))

	It("leaves one of the same name that is somebody else's", func(ctx SpecContext) {
		label := regexp.MustCompile(`(?s)(ctrlrun\.dev/scratch-run.{1,3}?)[a-z0-9]{20}`)
		taken := make(chan int, 2)
		o := run(ctx, func(send apiserver, request *http.Request, body []byte) {
			taken <- send(request, label.ReplaceAll(body, []byte("${1}somebodyelsesveryown")))
			taken <- send(request, body)
		})
		Expect(taken).To(Receive(Equal(http.StatusCreated)))
		Expect(taken).To(Receive(Equal(http.StatusConflict)))
		there := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.scratch()}}
		Expect(gone(ctx, there.Name)).To(BeFalse())
		Expect(o.stderr).NotTo(ContainSubstring("kubectl delete namespace"))
		Expect(env.Admin().Delete(ctx, there)).To(Succeed())
		Eventually(ctx, func() bool { return gone(ctx, there.Name) }).WithTimeout(30 * time.Second).Should(BeTrue())
	}, SpecTimeout(2*time.Minute))
})
