package authority

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/test/testenv"
)

// invalid are the constraints of a Grant that the apiserver takes and the operator does not: CEL sees no fraction that deep.
var invalid = fields{"constraints": fields{"terms_eq": fields{"ratio": 1.5}}}

// envelope is a Grant for emergencies.
func (s *scene) envelope(changes fields) fields {
	return s.refunds(fields{"grantType": "BreakGlass", "maxDurationSeconds": 3600, "delegable": nil, "expirationTime": nil, "subject": fields{"agent": "system:serviceaccount:" + s.ns + ":*"}}).with(changes)
}

// opening is a Delegation that opens one.
func (s *scene) opening(name string, to testenv.User, changes fields) fields {
	return s.part(grantRef(name), to, fields{"breakGlass": true, "reason": "the payment provider is down", "expirationTime": at(30 * time.Minute), "delegable": nil}).with(changes)
}

// ended waits until it is decided what becomes of an Action.
func (s *scene) ended(a *v1alpha1.Action) v1alpha1.ActionState {
	GinkgoHelper()
	var state v1alpha1.ActionState
	Eventually(func() v1alpha1.ActionState {
		state = s.get(a).Status.State
		return state
	}).ShouldNot(BeElementOf(v1alpha1.ActionState(""), v1alpha1.ActionPending))
	return state
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

// pause is a testenv.Pause that stops nothing before it is armed.
type pause struct {
	*testenv.Pause
	armed atomic.Bool
}

func pauseAt(point string) *pause { return &pause{Pause: testenv.PauseAt(GinkgoT(), point)} }

func (p *pause) At(point string) {
	if p.armed.Load() {
		p.Pause.At(point)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// errCut is what an operator gets for its requests after it was cut off.
var errCut = errors.New("this operator is dead")

// startCut starts an operator that dies at its first request that match picks: before that one reaches the apiserver, or, if
// it is answered, before the operator hears of it. None of its requests reaches the apiserver any more. It gives a channel
// that is closed then.
func startCut(answered bool, match func(method, path, body string) bool) (died chan struct{}) {
	GinkgoHelper()
	died = make(chan struct{})
	var once sync.Once
	var cut atomic.Bool
	started, err := startWrapped(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			var body []byte
			if r.Body != nil && r.Method != http.MethodGet {
				var err error
				if body, err = io.ReadAll(r.Body); err != nil {
					return nil, err
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			if cut.Load() {
				return nil, errCut
			}
			if !match(r.Method, r.URL.Path, string(body)) {
				return next.RoundTrip(r)
			}
			cut.Store(true)
			if answered {
				if response, err := next.RoundTrip(r); err == nil {
					_ = response.Body.Close()
				}
			}
			once.Do(func() { close(died) })
			return nil, errCut
		})
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(started.Stop)
	return died
}

// startWrapped starts an operator whose requests go through something.
func startWrapped(wrap func(http.RoundTripper) http.RoundTripper) (*testenv.Operator, error) {
	return env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS, cfg.Burst = 500, 1000
		cfg.Wrap(wrap)
		return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
	})
}

// etcd asks etcd itself, by its gateway for JSON, as somebody can who reaches it. Its address is among the arguments of the
// apiserver that serves this environment.
func etcd(call string, request, answer any) {
	GinkgoHelper()
	u, err := url.Parse(env.AdminConfig().Host)
	Expect(err).NotTo(HaveOccurred())
	port := u.Port()
	if port == "" {
		_, port, _ = strings.Cut(env.AdminConfig().Host, ":")
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	Expect(err).NotTo(HaveOccurred())
	address := ""
	for _, file := range files {
		line, _ := os.ReadFile(file) // one that has ended meanwhile says nothing
		arguments := strings.Split(string(line), "\x00")
		serves, at := false, ""
		for _, a := range arguments {
			serves = serves || a == "--secure-port="+port
			if v, ok := strings.CutPrefix(a, "--etcd-servers="); ok {
				at = v
			}
		}
		if serves && at != "" {
			address = at
		}
	}
	Expect(address).NotTo(BeEmpty(), "no kube-apiserver at port %s in /proc", port)
	body, err := json.Marshal(request)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.Post(strings.TrimSuffix(address, "/")+"/v3/kv/"+call, "application/json", bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close() // it was only read
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.StatusCode).To(Equal(http.StatusOK), "%s", text)
	Expect(json.Unmarshal(text, answer)).To(Succeed())
}

func (s *scene) etcdKey(resource, name string) []byte {
	return []byte("/registry/" + v1alpha1.GroupVersion.Group + "/" + resource + "/" + s.ns + "/" + name)
}

// rewritten changes what etcd stores of an object, behind the apiserver's back.
func (s *scene) rewritten(resource, name string, change func(map[string]any)) {
	GinkgoHelper()
	var found struct{ Kvs []struct{ Value []byte } }
	etcd("range", map[string]any{"key": s.etcdKey(resource, name)}, &found)
	Expect(found.Kvs).To(HaveLen(1))
	o := map[string]any{}
	Expect(json.Unmarshal(found.Kvs[0].Value, &o)).To(Succeed())
	change(o)
	value, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	etcd("put", map[string]any{"key": s.etcdKey(resource, name), "value": base64.StdEncoding.EncodeToString(value)}, &struct{}{})
}

// forgotten removes an object from etcd.
func (s *scene) forgotten(resource, name string) {
	GinkgoHelper()
	var gone struct{ Deleted string }
	etcd("deleterange", map[string]any{"key": s.etcdKey(resource, name)}, &gone)
	Expect(gone.Deleted).To(Equal("1"))
}
