package executors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	kubeexec "ctrlrun.dev/operator/executors/kubernetes"
	"ctrlrun.dev/operator/kernel/effect"
)

// confidential is part of every name and value that an action chooses here, and may be in no error.
const confidential = "4711"

// desk is a namespace with a ServiceAccount that executes, and a Deployment it is about.
type desk struct {
	namespace string
	config    *rest.Config
	web       *appsv1.Deployment
	// writes counts the requests that were sent and are no reads.
	writes atomic.Int32
}

func newDesk(ctx context.Context) *desk {
	GinkgoHelper()
	d := &desk{namespace: env.Namespace(GinkgoT(), nil)}
	d.config = account(ctx, d.namespace, "executor",
		rule("apps", "deployments", "get", "create", "patch", "delete"),
		rule("apps", "deployments/scale", "get", "update"),
		rule("", "pods", "get", "patch", "delete"),
		rule("", "configmaps", "get", "create", "patch", "delete"),
	)
	d.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				d.writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	one := int32(1)
	d.web = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "web-" + confidential},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
	Expect(env.Admin().Create(ctx, d.web)).To(Succeed())
	return d
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// onWrite puts something between the executor and the apiserver, for writes alone.
func (d *desk) onWrite(f func(next http.RoundTripper, r *http.Request) (*http.Response, error)) {
	d.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return next.RoundTrip(r)
			}
			return f(next, r)
		})
	})
}

// The specs of the executors under test, in the fields that differ.
const (
	patchImage = `{"operation": "Patch", "uid": "{uid}", "template": {"metadata": {"annotations": {"change": "no. {change}"}}, "spec": {"paused": "{paused}"}}}`
	patchAt    = `{"operation": "Patch", "resourceVersion": "{version}", "template": {"spec": {"paused": true}}}`
	scaleUp    = `{"operation": "Scale", "uid": "{uid}", "replicas": "{replicas}"}`
	scaleAt    = `{"operation": "Scale", "resourceVersion": "{version}", "replicas": "3"}`
	remove     = `{"operation": "Delete", "uid": "{uid}"}`
	removeAt   = `{"operation": "Delete", "resourceVersion": "{version}"}`
	applyMap   = `{"operation": "Apply", "apiVersion": "v1", "kind": "ConfigMap", "template": {"data": {"limit": "{limit}"}}}`
	applyMapIf = `{"operation": "Apply", "apiVersion": "v1", "kind": "ConfigMap", "uid": "{uid}", "template": {"data": {"limit": "{limit}"}}}`
	applyMapAt = `{"operation": "Apply", "apiVersion": "v1", "kind": "ConfigMap", "resourceVersion": "{version}", "template": {"data": {"limit": "{limit}"}}}`
)

// executor makes one for Deployments named by the argument name, with these fields on top.
func (d *desk) executor(fields string) *kubeexec.Executor {
	GinkgoHelper()
	e, err := kubeexec.New(kubernetesSpec(fields), d.namespace)
	Expect(err).NotTo(HaveOccurred())
	return e
}

func kubernetesSpec(fields string) *v1alpha1.KubernetesExecutor {
	GinkgoHelper()
	all := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "{name}", "timeoutSeconds": 20}
	Expect(json.Unmarshal([]byte(fields), &all)).To(Succeed())
	data, err := json.Marshal(all)
	Expect(err).NotTo(HaveOccurred())
	spec := &v1alpha1.KubernetesExecutor{}
	Expect(json.Unmarshal(data, spec)).To(Succeed())
	return spec
}

// execute executes with these arguments beside the Deployment's name, uid and version.
func (d *desk) execute(ctx context.Context, fields string, arguments map[string]any) executors.Result {
	GinkgoHelper()
	all := map[string]any{
		"name": d.web.Name, "uid": string(d.web.UID), "version": d.web.ResourceVersion,
		"change": confidential, "paused": true, "replicas": 5, "limit": confidential,
	}
	for k, v := range arguments {
		all[k] = v
	}
	data, err := json.Marshal(all)
	Expect(err).NotTo(HaveOccurred())
	result := d.executor(fields).Execute(ctx, executors.Call{
		Namespace: d.namespace, ActionName: "a", ActionUID: "u", ActionType: "deploy.change", Arguments: data,
	}, d.config)
	Expect(result.Error).NotTo(ContainSubstring(confidential), "an error says what an action chose")
	Expect(d.writes.Load()).To(BeNumerically("<=", 1), "one execution, at most one write")
	return result
}

// now is the Deployment as it is.
func (d *desk) now(ctx context.Context) *appsv1.Deployment {
	GinkgoHelper()
	it := &appsv1.Deployment{}
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(d.web), it)).To(Succeed())
	return it
}

// touch changes the Deployment, so that it has another version.
func (d *desk) touch(ctx context.Context) {
	GinkgoHelper()
	it := d.now(ctx)
	it.Labels = map[string]string{"touched": "yes"}
	Expect(env.Admin().Update(ctx, it)).To(Succeed())
}

// replace deletes the Deployment and makes another of its name.
func (d *desk) replace(ctx context.Context) {
	GinkgoHelper()
	Expect(env.Admin().Delete(ctx, d.now(ctx))).To(Succeed())
	another := d.web.DeepCopy()
	another.ObjectMeta = metav1.ObjectMeta{Namespace: d.namespace, Name: d.web.Name}
	Expect(env.Admin().Create(ctx, another)).To(Succeed())
}

func output(r executors.Result) map[string]string {
	GinkgoHelper()
	Expect(r.State).To(Equal(effect.Committed), r.Error)
	out := map[string]string{}
	Expect(json.Unmarshal(r.Output, &out)).To(Succeed())
	return out
}

func beNotExecuted(why string) OmegaMatcher {
	return And(HaveField("State", effect.Failed), HaveField("Error", ContainSubstring(why)))
}

func beUnknown(why string) OmegaMatcher {
	return And(HaveField("State", effect.Ambiguous), HaveField("Error", ContainSubstring(why)))
}

var _ = Describe("The kubernetes executor", func() {
	var d *desk
	BeforeEach(func(ctx SpecContext) { d = newDesk(ctx) })

	Describe("writes", func() {
		It("a patch, and says what it wrote", func(ctx SpecContext) {
			out := output(d.execute(ctx, patchImage, nil))
			it := d.now(ctx)
			Expect(it.Spec.Paused).To(BeTrue())
			Expect(it.Annotations).To(HaveKeyWithValue("change", "no. "+confidential))
			Expect(out).To(Equal(map[string]string{
				"apiVersion": "apps/v1", "kind": "Deployment", "namespace": d.namespace, "name": d.web.Name,
				"uid": string(d.web.UID), "resourceVersion": it.ResourceVersion,
			}))
			Expect(it.ManagedFields).To(ContainElement(HaveField("Manager", "ctrlrun:"+d.namespace+"/deploy.change")))
		})

		It("a patch of a version", func(ctx SpecContext) {
			Expect(output(d.execute(ctx, patchAt, nil))).To(HaveKeyWithValue("uid", string(d.web.UID)))
			Expect(d.now(ctx).Spec.Paused).To(BeTrue())
		})

		It("a scale", func(ctx SpecContext) {
			out := output(d.execute(ctx, scaleUp, nil))
			it := d.now(ctx)
			Expect(*it.Spec.Replicas).To(BeEquivalentTo(5))
			Expect(out).To(And(HaveKeyWithValue("uid", string(d.web.UID)), HaveKeyWithValue("resourceVersion", it.ResourceVersion), HaveKeyWithValue("kind", "Deployment")))
		})

		It("a scale of a version to a number", func(ctx SpecContext) {
			output(d.execute(ctx, scaleAt, nil))
			Expect(*d.now(ctx).Spec.Replicas).To(BeEquivalentTo(3))
		})

		It("a deletion", func(ctx SpecContext) {
			out := output(d.execute(ctx, remove, nil))
			Expect(out).To(And(HaveKeyWithValue("uid", string(d.web.UID)), HaveKeyWithValue("resourceVersion", d.web.ResourceVersion)))
			Expect(apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(d.web), d.web.DeepCopy()))).To(BeTrue())
		})

		It("a deletion that a finalizer delays", func(ctx SpecContext) {
			it := d.now(ctx)
			it.Finalizers = []string{"example.com/wait"}
			Expect(env.Admin().Update(ctx, it)).To(Succeed())
			output(d.execute(ctx, remove, nil))
			Expect(d.now(ctx).DeletionTimestamp).NotTo(BeNil())
			d.writes.Store(0)
			Expect(d.execute(ctx, remove, nil)).To(beNotExecuted("being deleted already"))
			Expect(d.writes.Load()).To(BeZero())
		})

		It("an object that was not there, and the same again", func(ctx SpecContext) {
			first := output(d.execute(ctx, applyMap, nil))
			d.writes.Store(0)
			second := output(d.execute(ctx, applyMap, map[string]any{"limit": "2"}))
			Expect(second["uid"]).To(Equal(first["uid"]))
			Expect(second["resourceVersion"]).NotTo(Equal(first["resourceVersion"]))
			it := &corev1.ConfigMap{}
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(d.web), it)).To(Succeed())
			Expect(it.Data).To(Equal(map[string]string{"limit": "2"}))
			d.writes.Store(0)
			output(d.execute(ctx, applyMapIf, map[string]any{"uid": first["uid"], "limit": "3"}))
			d.writes.Store(0)
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(d.web), it)).To(Succeed())
			output(d.execute(ctx, applyMapAt, map[string]any{"version": it.ResourceVersion, "limit": "4"}))
		})

		It("a text as it was approved, also where YAML would end a line", func(ctx SpecContext) {
			const text = "a\u0085\u0085b\u2028c\x7f\ufeff"
			output(d.execute(ctx, applyMap, map[string]any{"limit": text}))
			it := &corev1.ConfigMap{}
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(d.web), it)).To(Succeed())
			Expect(it.Data).To(Equal(map[string]string{"limit": text}))
		})

		It("in another namespace, if RBAC lets it", func(ctx SpecContext) {
			other := env.Namespace(GinkgoT(), nil)
			there := `{"operation": "Apply", "apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + other + `", "template": {"data": {"limit": "{limit}"}}}`
			Expect(d.execute(ctx, there, nil)).To(beNotExecuted("Forbidden"))
			Expect(env.Allow(ctx, other, serviceAccount(d.namespace), rule("", "configmaps", "create", "patch"))).To(Succeed())
			d.writes.Store(0)
			Expect(output(d.execute(ctx, there, nil))).To(HaveKeyWithValue("namespace", other))
		})

		It("what is in no namespace, if RBAC lets it", func(ctx SpecContext) {
			ns := &corev1.Namespace{}
			Expect(env.Admin().Get(ctx, client.ObjectKey{Name: d.namespace}, ns)).To(Succeed())
			label := `{"operation": "Patch", "apiVersion": "v1", "kind": "Namespace", "uid": "{uid}", "template": {"metadata": {"labels": {"frozen": "{frozen}"}}}}`
			arguments := map[string]any{"name": ns.Name, "uid": string(ns.UID), "frozen": "yes"}
			Expect(d.execute(ctx, label, arguments)).To(beNotExecuted("Forbidden"))
			Expect(env.Allow(ctx, "", serviceAccount(d.namespace), rule("", "namespaces", "patch"))).To(Succeed())
			d.writes.Store(0)
			Expect(output(d.execute(ctx, label, arguments))).NotTo(HaveKey("namespace"))
			d.writes.Store(0)
			Expect(d.execute(ctx, strings.Replace(label, `"uid"`, `"namespace": "x", "uid"`, 1), arguments)).To(beNotExecuted("in no namespace"))
		})
	})

	Describe("proves that nothing was executed", func() {
		var before *appsv1.Deployment
		BeforeEach(func() { before = nil })
		AfterEach(func(ctx SpecContext) {
			if before != nil {
				Expect(d.now(ctx)).To(Equal(before), "it is said that nothing was executed")
			}
		})

		DescribeTable("by what the apiserver refuses", func(ctx SpecContext, change func(context.Context, *desk), fields string, arguments map[string]any, why string, sent int) {
			if change != nil {
				change(ctx, d)
			}
			before = d.now(ctx)
			Expect(d.execute(ctx, fields, arguments)).To(beNotExecuted(why))
			Expect(d.writes.Load()).To(BeEquivalentTo(sent))
		},
			Entry("a patch of another object of that name", replaced, patchImage, nil, "refused the Patch", 1),
			Entry("a patch of an older version", touched, patchAt, nil, "Conflict", 1),
			Entry("a patch of nothing", nil, patchImage, map[string]any{"name": "none-" + confidential}, "NotFound", 1),
			Entry("a patch that is invalid", nil, `{"operation": "Patch", "uid": "{uid}", "template": {"spec": {"replicas": "{n}"}}}`, map[string]any{"n": -4711}, "Invalid", 1),
			Entry("a patch of what does not change", nil, `{"operation": "Patch", "uid": "{uid}", "template": {"spec": {"selector": {"matchLabels": {"app": "{name}"}}}}}`, nil, "Invalid", 1),
			Entry("a patch of a field there is not", nil, `{"operation": "Patch", "uid": "{uid}", "template": {"spec": {"relicas": "{name}"}}}`, nil, "", 1),
			Entry("a patch of another type", nil, `{"operation": "Patch", "uid": "{uid}", "template": {"spec": {"replicas": "{name}"}}}`, nil, "", 1),
			Entry("a scale of another object of that name", replaced, scaleUp, nil, "its uid is not the action's", 0),
			Entry("a scale of an older version", touched, scaleAt, nil, "resourceVersion is not the action's", 0),
			Entry("a scale of nothing", nil, scaleUp, map[string]any{"name": "none-" + confidential}, "NotFound", 0),
			Entry("a deletion of another object of that name", replaced, remove, nil, "its uid is not the action's", 0),
			Entry("a deletion of an older version", touched, removeAt, nil, "resourceVersion is not the action's", 0),
			Entry("a deletion of nothing", nil, remove, map[string]any{"name": "none-" + confidential}, "NotFound", 0),
			Entry("an apply over fields of others", nil, `{"operation": "Apply", "template": {"spec": {"replicas": 7}}}`, nil, "Conflict", 1),
			Entry("an apply to another object of that name", replaced, `{"operation": "Apply", "uid": "{uid}", "template": {"metadata": {"labels": {"a": "b"}}}}`, nil, "refused the Apply", 1),
			Entry("an apply to an older version", touched, `{"operation": "Apply", "resourceVersion": "{version}", "template": {"metadata": {"labels": {"a": "b"}}}}`, nil, "Conflict", 1),
			Entry("an apply to an object that is gone, by uid", nil, applyMapIf, nil, "refused the Apply", 1),
			Entry("an apply of too little", nil, `{"operation": "Apply", "template": {"spec": {"replicas": 7}}}`, map[string]any{"name": "none-" + confidential}, "Invalid", 1),
			Entry("a kind there is not", nil, `{"operation": "Patch", "kind": "Deploiment", "uid": "{uid}", "template": {"spec": {}}}`, nil, "kind", 0),
			Entry("a version there is not", nil, `{"operation": "Patch", "apiVersion": "apps/v9", "uid": "{uid}", "template": {"spec": {}}}`, nil, "NotFound", 0),
			Entry("a kind that cannot be scaled", nil, `{"operation": "Scale", "apiVersion": "v1", "kind": "ConfigMap", "uid": "{uid}", "replicas": "1"}`, nil, "no Scale", 0),
			Entry("a kind that nobody can patch", nil, `{"operation": "Patch", "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "uid": "{uid}", "template": {"spec": {}}}`, nil, "no Patch", 0),
			Entry("no right to read", nil, `{"operation": "Delete", "apiVersion": "v1", "kind": "Secret", "uid": "{uid}"}`, nil, "Forbidden", 0),
			Entry("no right to write", nil, `{"operation": "Patch", "apiVersion": "v1", "kind": "Secret", "uid": "{uid}", "template": {"immutable": true}}`, nil, "Forbidden", 1),
			Entry("a template without its argument", nil, `{"operation": "Patch", "uid": "{uid}", "template": {"spec": {"paused": "{missing}"}}}`, nil, "missing", 0),
		)

		It("by a change between the read and the write of a scale", func(ctx SpecContext) {
			d.onWrite(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				d.touch(r.Context())
				before = d.now(r.Context())
				return next.RoundTrip(r)
			})
			Expect(d.execute(ctx, scaleUp, nil)).To(beNotExecuted("Conflict"))
			Expect(d.writes.Load()).To(BeEquivalentTo(1))
		})

		It("by a change between the read and the write of a deletion", func(ctx SpecContext) {
			d.onWrite(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				d.touch(r.Context())
				before = d.now(r.Context())
				return next.RoundTrip(r)
			})
			Expect(d.execute(ctx, remove, nil)).To(beNotExecuted("Conflict"))
		})

		It("by a token that is not valid", func(ctx SpecContext) {
			before = d.now(ctx)
			d.config.BearerToken += "x"
			Expect(d.execute(ctx, patchImage, nil)).To(beNotExecuted("Unauthorized"))
			Expect(d.writes.Load()).To(BeZero())
		})

		It("by a time that is over before", func(ctx SpecContext) {
			before = d.now(ctx)
			over, cancel := context.WithCancel(ctx)
			cancel()
			Expect(d.execute(over, patchImage, nil)).To(beNotExecuted("nothing was sent"))
			Expect(d.writes.Load()).To(BeZero())
		})
	})

	Describe("does not know", func() {
		It("what a lost answer said, though it was done", func(ctx SpecContext) {
			d.onWrite(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				Expect(err).NotTo(HaveOccurred())
				Expect(resp.Body.Close()).To(Succeed())
				return nil, io.ErrUnexpectedEOF
			})
			Expect(d.execute(ctx, scaleUp, nil)).To(beUnknown("there is no answer"))
			Expect(*d.now(ctx).Spec.Replicas).To(BeEquivalentTo(5))
			Expect(d.writes.Load()).To(BeEquivalentTo(1))
		})

		It("whether a request arrived that could not be sent", func(ctx SpecContext) {
			d.onWrite(func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, errors.New("broken") })
			Expect(d.execute(ctx, patchImage, nil)).To(beUnknown("there is no answer"))
		})

		It("what would have been answered later", func(ctx SpecContext) {
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			d.onWrite(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				cancel()
				return next.RoundTrip(r)
			})
			Expect(d.execute(short, patchImage, nil)).To(beUnknown("no answer in time"))
		})

		DescribeTable("what an answer means that proves nothing", func(ctx SpecContext, code int, body string) {
			d.onWrite(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: code, Header: http.Header{"Retry-After": {"0"}}, Request: r,
					Body: io.NopCloser(bytes.NewBufferString(body)),
				}, nil
			})
			Expect(d.execute(ctx, patchImage, nil)).To(beUnknown(strconv.Itoa(code)))
			Expect(d.writes.Load()).To(BeZero(), "the apiserver got nothing")
		},
			Entry("try later", 429, statusBody(429, "TooManyRequests")),
			Entry("an error inside", 500, statusBody(500, "InternalError")),
			Entry("not available", 503, statusBody(503, "ServiceUnavailable")),
			Entry("a timeout", 504, statusBody(504, "Timeout")),
			Entry("a timeout of the server", 500, statusBody(500, "ServerTimeout")),
			Entry("it exists already", 409, statusBody(409, "AlreadyExists")),
			Entry("a page of a proxy that forbids", 403, "<html>"),
			Entry("a redirect", 307, ""),
			Entry("done, without the object", 200, "{}"),
			Entry("done, with a Status", 200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`),
			Entry("done, with another object", 200, `{"metadata":{"name":"other","uid":"u"}}`),
			Entry("done, in half an answer", 200, `{"metadata":`),
		)

		It("whether a Pod was marked before its deletion met a conflict", func(ctx SpecContext) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "p"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}
			Expect(env.Admin().Create(ctx, pod)).To(Succeed())
			d.onWrite(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				pod.Labels = map[string]string{"touched": "yes"}
				Expect(env.Admin().Update(r.Context(), pod)).To(Succeed())
				return next.RoundTrip(r)
			})
			fields := `{"operation": "Delete", "apiVersion": "v1", "kind": "Pod", "uid": "{uid}"}`
			Expect(d.execute(ctx, fields, map[string]any{"name": "p", "uid": string(pod.UID)})).To(beUnknown("Conflict"))
		})
	})
})

func statusBody(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"code":%d}`, reason, code)
}

func replaced(ctx context.Context, d *desk) { d.replace(ctx) }
func touched(ctx context.Context, d *desk)  { d.touch(ctx) }
