package executors

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/executors"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, minimum: 0, maximum: 9}
              size: {type: string}
          status:
            type: object
            properties:
              replicas: {type: integer}
`

func create(ctx context.Context, manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &o.Object)).To(Succeed())
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
	return o
}

// What a refusal proves depends on who gives it: the kube-apiserver, for its own kinds and those of a CRD, or a server behind it.
var _ = Describe("The kubernetes executor, with kinds that are not of Kubernetes", func() {
	var d *desk
	BeforeEach(func(ctx SpecContext) { d = newDesk(ctx) })

	widget := func(ctx context.Context) *unstructured.Unstructured {
		GinkgoHelper()
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("example.com/v1")
		o.SetKind("Widget")
		o.SetNamespace(d.namespace)
		o.SetName("widget-" + confidential)
		Expect(unstructured.SetNestedField(o.Object, int64(1), "spec", "replicas")).To(Succeed())
		Eventually(func() error { return env.Admin().Create(ctx, o) }).Should(Succeed(), "the CRD is served")
		return o
	}

	It("believes a CRD's refusals if it may see that it is a CRD's", func(ctx SpecContext) {
		crd := create(ctx, widgets)
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin().Delete(ctx, crd)).To(Succeed()) })
		it := widget(ctx)
		Expect(env.Allow(ctx, d.namespace, serviceAccount(d.namespace),
			rule("example.com", "widgets", "get", "patch", "delete", "create"), rule("example.com", "widgets/scale", "get", "update"))).To(Succeed())
		named := map[string]any{"name": it.GetName(), "uid": string(it.GetUID()), "version": it.GetResourceVersion()}
		run := func(fields string, more map[string]any) executors.Result {
			GinkgoHelper()
			arguments := map[string]any{}
			for _, m := range []map[string]any{named, more} {
				for k, v := range m {
					arguments[k] = v
				}
			}
			d.writes.Store(0)
			all := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}
			Expect(json.Unmarshal([]byte(fields), &all)).To(Succeed())
			data, err := json.Marshal(all)
			Expect(err).NotTo(HaveOccurred())
			return d.execute(ctx, string(data), arguments)
		}
		const size = `{"operation": "Patch", "uid": "{uid}", "resourceVersion": "{version}", "template": {"spec": {"size": "{name}"}}}`
		read := func() *unstructured.Unstructured {
			GinkgoHelper()
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(it), it)).To(Succeed())
			return it
		}

		output(run(size, nil))
		output(run(scaleUp, nil))
		after := read().DeepCopy()
		Expect(after.Object["spec"]).To(Equal(map[string]any{"replicas": int64(5), "size": it.GetName()}))

		By("not being allowed to read the APIService")
		Expect(run(size, nil)).To(beUnknown("Conflict"), "the version is an old one")
		Expect(run(scaleUp, map[string]any{"replicas": 10})).To(beUnknown("Invalid"))
		Expect(run(scaleUp, map[string]any{"uid": "another"})).To(beNotExecuted("its uid"), "nothing was sent")

		By("being allowed to")
		Expect(env.Allow(ctx, "", serviceAccount(d.namespace), rule("apiregistration.k8s.io", "apiservices", "get"))).To(Succeed())
		Expect(run(size, nil)).To(beNotExecuted("Conflict"))
		Expect(run(scaleUp, map[string]any{"replicas": 10})).To(beNotExecuted("Invalid"))
		Expect(read()).To(Equal(after))
		output(run(`{"operation": "Delete", "uid": "{uid}"}`, nil))
	})

	It("believes no refusal of a server behind the kube-apiserver", func(ctx SpecContext) {
		var patches atomic.Int32
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPatch {
				patches.Add(1)
				w.WriteHeader(http.StatusConflict)
				_, _ = w.Write([]byte(statusBody(http.StatusConflict, "Conflict")))
				return
			}
			_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "behind.example.com/v1",
				APIResources: []metav1.APIResource{{Name: "things", SingularName: "thing", Kind: "Thing", Namespaced: true, Verbs: metav1.Verbs{"get", "patch"}}},
			})
		}))
		DeferCleanup(server.Close)
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		number, err := strconv.Atoi(port)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Admin().Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "behind"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: int32(number)}}},
		})).To(Succeed())
		service := create(ctx, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.behind.example.com}
spec:
  group: behind.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: `+d.namespace+`, name: behind, port: `+port+`}
`)
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin().Delete(ctx, service)).To(Succeed()) })
		Expect(env.Allow(ctx, d.namespace, serviceAccount(d.namespace), rule("behind.example.com", "things", "get", "patch"))).To(Succeed())
		Expect(env.Allow(ctx, "", serviceAccount(d.namespace), rule("apiregistration.k8s.io", "apiservices", "get"))).To(Succeed())
		Eventually(func() int32 {
			d.writes.Store(0)
			result := d.execute(ctx, `{"operation": "Patch", "apiVersion": "behind.example.com/v1", "kind": "Thing", "uid": "{uid}", "template": {"spec": {}}}`, nil)
			if patches.Load() > 0 {
				Expect(result).To(beUnknown("Conflict"))
			}
			return patches.Load()
		}).Should(BeEquivalentTo(1), "the server behind is available")
	})
})
