package oversight

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/test/testenv"
)

// extension is an extension of the apiserver, on the loopback interface, that serves one group with the kind Order.
type extension struct {
	group      string
	gets       atomic.Int64 // of an order
	discovered atomic.Int64 // by the operator
	// hangs says whether the operator is answered when it asks what is served.
	hangs atomic.Bool
}

// extend serves a group. Orders are given by get.
func (s *scene) extend(get http.HandlerFunc) *extension {
	GinkgoHelper()
	e := &extension{group: strings.ReplaceAll(unique("ext"), "_", "") + "." + s.ns + ".example"}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/orders/"):
			e.gets.Add(1)
			get(w, r)
		case r.URL.Path == "/apis/"+e.group+"/v1":
			if strings.Contains(r.Header.Get("X-Remote-User"), "ctrlrun-operator") {
				e.discovered.Add(1)
				if e.hangs.Load() {
					<-r.Context().Done()
					return
				}
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[{"name":"orders","singularName":"order","namespaced":true,"kind":"Order","verbs":["get"]}]}`, e.group)
		default:
			http.NotFound(w, r)
		}
	}))
	server.StartTLS()
	DeferCleanup(func() { server.CloseClientConnections(); go server.Close() })
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	port, err := strconv.ParseInt(text, 10, 64)
	Expect(err).NotTo(HaveOccurred())
	Expect(env.Admin().Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "orders"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})).To(Succeed())
	api := apiService(e.group, map[string]any{"namespace": s.ns, "name": "orders", "port": port})
	Expect(env.Admin().Create(ctx, api)).To(Succeed())
	DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Admin().Delete(ctx, api))).To(Succeed()) })
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(api), api)).To(Succeed())
		conditions, _, _ := unstructured.NestedSlice(api.Object, "status", "conditions")
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Available"), HaveKeyWithValue("status", "True"))))
	}).Should(Succeed())
	return e
}

func apiService(group string, service map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1." + group},
		"spec": map[string]any{
			"group": group, "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10), "insecureSkipTLSVerify": true, "service": service,
		},
	}}
}

func (e *extension) order() v1alpha1.Precondition {
	return v1alpha1.Precondition{APIVersion: e.group + "/v1", Kind: "Order", Name: "o1", Pointer: "/spec"}
}

func (s *scene) mayGetOrders(e *extension) {
	GinkgoHelper()
	for _, u := range []testenv.User{s.agent, testenv.OperatorUser()} {
		Expect(env.Allow(ctx, s.ns, u, rbacv1.PolicyRule{APIGroups: []string{e.group}, Resources: []string{"orders"}, Verbs: []string{"get"}})).To(Succeed())
	}
}

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// held waits until an Action is held because nobody answers what it rests on.
func (s *scene) held(a *v1alpha1.Action) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func(g Gomega) {
		o = s.get(a)
		g.Expect(o.Status.Reason).To(Equal(string(decision.PreconditionUnavailable)), "%s: %s", o.Status.State, o.Status.Message)
		g.Expect(o.Status.State.Terminal()).To(BeFalse(), o.Status.Message)
	}).Should(Succeed())
	return o
}

var _ = Describe("An extension of the apiserver that an Action rests on", func() {
	var s *scene
	BeforeEach(func() { s = newScene(one) })

	It("keeps nobody waiting but those who name it while it hangs, when it is asked what it serves too", func() {
		e := s.extend(hangs)
		e.hangs.Store(true)
		other := newScene(allowed)
		other.limits(map[string]string{"max": "100"}, other.agent, testenv.OperatorUser())
		// By an agent without any right there: twice as many as the operator works on at once.
		for range 16 {
			s.resting(v1alpha1.Precondition{APIVersion: e.group + "/v1", Kind: "Nothing", Name: "o1", Pointer: "/spec"})
		}
		Eventually(e.discovered.Load).Should(BeNumerically(">=", 1))
		plain, resting := other.propose(kind), other.resting(maxOfLimits())
		other.reaches(plain, v1alpha1.ActionClaimable)
		other.reaches(resting, v1alpha1.ActionClaimable)
		// It was asked by as many as were worked on then, and since then by one at a time.
		Expect(e.discovered.Load()).To(BeNumerically("<", 16))
	})

	It("holds those who name it while it hangs, and says so", func() {
		s.mayGetOrders(s.extend(func(http.ResponseWriter, *http.Request) {})) // another one, that answers nonsense
		e := newScene(one).extend(hangs)
		s.mayGetOrders(e)
		o := s.held(s.resting(e.order()))
		Expect(o.Status.Message).To(ContainSubstring("the apiserver does not answer for Order of " + e.group + "/v1"))
	})

	It("is not asked again and again when it always fails otherwise, and what it says is nowhere", func() {
		var n atomic.Int64
		e := s.extend(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "request %d: row 4711 of the backend is hunter2", n.Add(1))
		})
		s.mayGetOrders(e)
		o := s.held(s.resting(e.order()))
		from := e.gets.Load()
		Consistently(e.gets.Load).WithTimeout(8 * time.Second).WithPolling(time.Second).Should(BeNumerically("<=", from+1))
		o = s.get(o)
		Expect(fmt.Sprint(o.Status)).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("4711")))
	})

	It("may cut an answer off, and nothing is denied for that", func() {
		var whole atomic.Bool
		e := s.extend(func(w http.ResponseWriter, r *http.Request) {
			text := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Order","metadata":{"name":"o1","namespace":%q,"uid":"u1"},"spec":{"n":1}}`, strings.Split(r.URL.Path, "/")[2], s.ns)
			w.Header().Set("Content-Type", "application/json")
			if !whole.Load() {
				w.Header().Set("Content-Length", strconv.Itoa(len(text)))
				_, _ = w.Write([]byte(text[:10]))
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write([]byte(text))
		})
		s.mayGetOrders(e)
		a := s.held(s.resting(e.order()))
		whole.Store(true)
		s.reaches(a, v1alpha1.ActionAwaitingApproval)
	})

	It("serves a kind from when it says so", func() {
		e := s.extend(hangs)
		s.mayGetOrders(e)
		unknown := s.resting(v1alpha1.Precondition{APIVersion: e.group + "/v1", Kind: "Invoice", Name: "o1", Pointer: "/spec"})
		Expect(s.reaches(unknown, v1alpha1.ActionDenied).Status.Message).To(ContainSubstring("knows no kind Invoice"))
		s.held(s.resting(e.order()))
	})

	It("holds an Action with a claim whose answer takes longer than a pass may last", func() {
		s.policy(allowed)
		var slow atomic.Bool
		e := s.extend(func(w http.ResponseWriter, r *http.Request) {
			if slow.Load() {
				<-r.Context().Done() // until nobody waits for it any more
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"%s/v1","kind":"Order","metadata":{"name":"o1","namespace":%q,"uid":"u1"},"spec":{"n":1}}`, strings.Split(r.URL.Path, "/")[2], s.ns)
		})
		s.mayGetOrders(e)
		a := s.reaches(s.resting(e.order()), v1alpha1.ActionClaimable)
		slow.Store(true)
		s.claim(a)
		Expect(s.held(a).Status.State).To(Equal(v1alpha1.ActionClaimable))
		slow.Store(false)
		s.reaches(a, v1alpha1.ActionAdmitted)
	})

	It("has numbers that are refused where the apiserver does not give them exactly", func() {
		e := s.extend(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"%s/v1","kind":"Order","metadata":{"name":"o1","namespace":%q,"uid":"u1"},"spec":{"n":18446744073709551615}}`, strings.Split(r.URL.Path, "/")[2], s.ns)
		})
		s.mayGetOrders(e)
		Expect(s.reaches(s.resting(e.order()), v1alpha1.ActionDenied).Status.Message).To(ContainSubstring("a number that is no 64-bit integer"))
	})
})
