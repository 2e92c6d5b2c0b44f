package kubeexec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/executors/internal/apiserver"
	"ctrlrun.dev/operator/kernel/canonical"
)

// object is what an action is about: the spec with the arguments in it.
type object struct {
	name, uid, resourceVersion string
	replicas                   int64
	template                   map[string]any
}

// resource is how the cluster serves the kind.
type resource struct {
	gvr        schema.GroupVersionResource
	namespaced bool
	// local says that the kube-apiserver itself serves it, so that its refusals are known.
	local bool
}

// write is the request, ready to be sent, and what its answers mean.
type write struct {
	request apiserver.Request
	// refusable says that a refusal is proof that nothing was stored.
	refusable bool
	// uid and resourceVersion of the object before the write, as far as they are known.
	uid, resourceVersion string
}

// Execute makes the write for call. config is a connection as the ServiceAccount of the Executor. It takes at most the spec's
// timeout, and less if ctx ends before.
func (e *Executor) Execute(ctx context.Context, call executors.Call, config *rest.Config) executors.Result {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()

	o, err := e.object(call)
	if err != nil {
		return notSent(err)
	}
	reads := rest.CopyConfig(config)
	reads.UserAgent = apiserver.UserAgent
	// A warning can quote a value, and the default is to log it.
	reads.WarningHandler = rest.NoWarnings{}
	r, err := e.find(ctx, reads)
	if err != nil {
		return notSent(err)
	}
	namespace, err := e.namespaceOf(r)
	if err != nil {
		return notSent(err)
	}
	w, err := e.prepare(ctx, reads, call, o, r, namespace)
	if err != nil {
		return notSent(err)
	}
	writer, err := apiserver.NewWriter(config)
	if err != nil {
		return notSent(fmt.Errorf("the connection of the ServiceAccount cannot be used"))
	}
	if ctx.Err() != nil {
		return notSent(fmt.Errorf("the time was over"))
	}
	// Up to here nothing was written, whatever happens. From here on only the answer knows.
	answer, err := writer.Send(ctx, w.request)
	if err != nil {
		return executors.Unknown(fmt.Sprintf("the %s was sent, and there is no answer to it: %v", e.operation, err))
	}
	return e.judge(answer, w, o, namespace)
}

func notSent(err error) executors.Result {
	return executors.NotExecuted("nothing was sent: " + err.Error())
}

// object fills in the spec. Its errors name arguments and never what is in them.
func (e *Executor) object(call executors.Call) (object, error) {
	v, err := canonical.Parse(call.Arguments)
	arguments, ok := v.(map[string]any)
	if err != nil || !ok {
		return object{}, fmt.Errorf("the arguments are not an object in JSON")
	}
	var o object
	if o.name, err = text(e.name, arguments); err != nil {
		return object{}, fmt.Errorf("name: %w", err)
	}
	if len(content.IsPathSegmentName(o.name)) > 0 || len(o.name) > 253 {
		return object{}, fmt.Errorf("name: with the arguments in it, it is not the name of an object")
	}
	if o.uid, err = identifier("uid", e.uid, arguments); err != nil {
		return object{}, err
	}
	if o.resourceVersion, err = identifier("resourceVersion", e.resourceVersion, arguments); err != nil {
		return object{}, err
	}
	// 0 would mean any version.
	if o.resourceVersion != "" && !version.MatchString(o.resourceVersion) {
		return object{}, fmt.Errorf("resourceVersion: the argument is not the resourceVersion of an object")
	}
	if e.replicas != "" {
		v, err := fill(e.replicas, arguments)
		if err != nil {
			return object{}, fmt.Errorf("replicas: %w", err)
		}
		if o.replicas, err = replicas(v); err != nil {
			return object{}, err
		}
	}
	if e.template != nil {
		v, err := fill(e.template, arguments)
		if err != nil {
			return object{}, fmt.Errorf("template: %w", err)
		}
		o.template = v.(map[string]any)
	}
	return o, nil
}

var version = regexp.MustCompile(`^[1-9][0-9]*$`)

// identifier is the argument that the template is, a string that is not empty; "" if there is no template.
func identifier(field, template string, arguments map[string]any) (string, error) {
	if template == "" {
		return "", nil
	}
	name, _ := argumentOf(template)
	if s, ok := arguments[name].(string); ok && s != "" {
		return s, nil
	}
	return "", fmt.Errorf("%s: the argument %s is not a string that says it", field, name)
}

// find asks how the kind is served. It asks each time: a read costs little, and what was remembered could be another CRD's.
func (e *Executor) find(ctx context.Context, config *rest.Config) (resource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return resource{}, fmt.Errorf("the connection of the ServiceAccount cannot be used")
	}
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, e.gv.String())
	if err != nil {
		return resource{}, failure("asking for the resources of "+e.gv.String(), err)
	}
	var found []metav1.APIResource
	scale := map[string][]string{}
	for _, r := range list.APIResources {
		if name, sub, ok := strings.Cut(r.Name, "/"); ok {
			if sub == "scale" {
				scale[name] = r.Verbs
			}
			continue
		}
		if r.Kind == e.kind {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return resource{}, fmt.Errorf("%d resources of %s have the kind %s", len(found), e.gv, e.kind)
	}
	verbs, verb := []string(found[0].Verbs), "patch"
	switch e.operation {
	case v1alpha1.KubernetesScale:
		verbs, verb = scale[found[0].Name], "update"
	case v1alpha1.KubernetesDelete:
		verb = "delete"
	}
	if !slices.Contains(verbs, verb) {
		return resource{}, fmt.Errorf("the API has no %s for %s", e.operation, e.kind)
	}
	r := resource{gvr: e.gv.WithResource(found[0].Name), namespaced: found[0].Namespaced}
	r.local, err = e.served(ctx, config)
	return r, err
}

// served reports whether the kube-apiserver itself serves the group. It serves those of Kubernetes; of another, a CRD's or an
// aggregated server's, it says so in the APIService, if the ServiceAccount may read that.
func (e *Executor) served(ctx context.Context, config *rest.Config) (bool, error) {
	if scheme.Scheme.IsVersionRegistered(e.gv) {
		return true, nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("the connection of the ServiceAccount cannot be used")
	}
	service, err := client.Resource(apiServices).Get(ctx, e.gv.Version+"."+e.gv.Group, metav1.GetOptions{})
	if err != nil {
		return false, nil
	}
	_, remote, err := unstructured.NestedFieldNoCopy(service.Object, "spec", "service")
	return err == nil && !remote, nil
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// namespaceOf is the namespace of the object, "" if its kind is in none.
func (e *Executor) namespaceOf(r resource) (string, error) {
	switch {
	case !r.namespaced && e.namespace != "":
		return "", fmt.Errorf("a %s is in no namespace, and the Executor names one", e.kind)
	case !r.namespaced:
		return "", nil
	case e.namespace != "":
		return e.namespace, nil
	}
	return e.home, nil
}

// prepare makes the request, after the reads that it needs.
func (e *Executor) prepare(ctx context.Context, config *rest.Config, call executors.Call, o object, r resource, namespace string) (write, error) {
	w := write{refusable: r.local, uid: o.uid, resourceVersion: o.resourceVersion}
	w.request = apiserver.Request{Path: pathOf(r, namespace, o.name), Query: url.Values{}, ContentType: "application/json"}
	var body any
	switch e.operation {
	case v1alpha1.KubernetesApply, v1alpha1.KubernetesPatch:
		w.request.Method, w.request.ContentType = http.MethodPatch, string(types.MergePatchType)
		whole := e.withMetadata(o, namespace)
		if e.operation == v1alpha1.KubernetesApply {
			w.request.ContentType = string(types.ApplyYAMLPatchType)
			w.request.Query.Set("force", "false")
		}
		w.request.Query.Set("fieldManager", fieldManager(call))
		w.request.Query.Set("fieldValidation", metav1.FieldValidationStrict)
		body = whole

	case v1alpha1.KubernetesScale:
		scale, err := e.read(ctx, config, o, r, namespace, "scale")
		if err != nil {
			return write{}, err
		}
		w.uid, w.resourceVersion = string(scale.GetUID()), scale.GetResourceVersion()
		if err := unstructured.SetNestedField(scale.Object, o.replicas, "spec", "replicas"); err != nil {
			return write{}, fmt.Errorf("the scale of the object has no spec")
		}
		delete(scale.Object, "status")
		w.request.Method = http.MethodPut
		w.request.Path = append(w.request.Path, "scale")
		w.request.Query.Set("fieldManager", fieldManager(call))
		w.request.Query.Set("fieldValidation", metav1.FieldValidationStrict)
		body = scale.Object

	case v1alpha1.KubernetesDelete:
		it, err := e.read(ctx, config, o, r, namespace)
		if err != nil {
			return write{}, err
		}
		if it.GetDeletionTimestamp() != nil {
			return write{}, fmt.Errorf("the object is being deleted already")
		}
		uid, resourceVersion := it.GetUID(), it.GetResourceVersion()
		w.uid, w.resourceVersion = string(uid), resourceVersion
		// An apiserver deletes some objects in two steps: it stores that they are being deleted, or without a finalizer of the garbage
		// collector, and then removes them. A conflict in the second step is no proof that nothing was stored in the first.
		if r.gvr == corev1.SchemeGroupVersion.WithResource("pods") || slices.ContainsFunc(it.GetFinalizers(), collectors) {
			w.refusable = false
		}
		background := metav1.DeletePropagationBackground
		w.request.Method = http.MethodDelete
		body = metav1.DeleteOptions{
			TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
			PropagationPolicy: &background,
		}
	}
	var err error
	if w.request.Body, err = json.Marshal(body); err != nil {
		return write{}, fmt.Errorf("the object has no form in JSON")
	}
	if e.operation == v1alpha1.KubernetesApply {
		w.request.Body = forYAML(w.request.Body)
	}
	return w, nil
}

// forYAML is an object in JSON that YAML, which the body of an Apply is read as, takes for the same. YAML ends a line at U+0085 within
// a string as well, so that the text that was approved would become another one; some other characters it refuses.
func forYAML(body []byte) []byte {
	var out strings.Builder
	for _, r := range string(body) {
		if r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return []byte(out.String())
}

func collectors(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// withMetadata is the template with everything that the spec says elsewhere.
func (e *Executor) withMetadata(o object, namespace string) map[string]any {
	metadata, _ := o.template["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	set := func(key, value string) {
		if value != "" {
			metadata[key] = value
		}
	}
	set("uid", o.uid)
	set("resourceVersion", o.resourceVersion)
	if e.operation == v1alpha1.KubernetesApply {
		set("name", o.name)
		set("namespace", namespace)
		o.template["apiVersion"], o.template["kind"] = e.gv.String(), e.kind
	}
	o.template["metadata"] = metadata
	return o.template
}

// read reads the object, or a subresource of it, and compares it with what the action says of it.
func (e *Executor) read(ctx context.Context, config *rest.Config, o object, r resource, namespace string, subresources ...string) (*unstructured.Unstructured, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the connection of the ServiceAccount cannot be used")
	}
	it, err := client.Resource(r.gvr).Namespace(namespace).Get(ctx, o.name, metav1.GetOptions{}, subresources...)
	if err != nil {
		return nil, failure("reading the object", err)
	}
	switch {
	case it.GetUID() == "" || it.GetResourceVersion() == "":
		return nil, fmt.Errorf("the object has no uid or no resourceVersion, so that the write cannot be bound to it")
	case o.uid != "" && string(it.GetUID()) != o.uid:
		return nil, fmt.Errorf("another object has the name now: its uid is not the action's")
	case o.resourceVersion != "" && it.GetResourceVersion() != o.resourceVersion:
		return nil, fmt.Errorf("the object was changed: its resourceVersion is not the action's")
	}
	return it, nil
}

// failure says that a read failed. The apiserver's own words can quote arguments, its reasons cannot.
func failure(what string, err error) error {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return fmt.Errorf("%s: %s", what, reason)
	}
	return fmt.Errorf("%s: no answer", what)
}

// pathOf is where an object is below the root of the apiserver.
func pathOf(r resource, namespace, name string) []string {
	p := []string{"apis", r.gvr.Group, r.gvr.Version}
	if r.gvr.Group == "" {
		p = []string{"api", r.gvr.Version}
	}
	if namespace != "" {
		p = append(p, "namespaces", namespace)
	}
	return append(p, r.gvr.Resource, name)
}

// fieldManager is who owns the fields that are set. It is the same for every Executor that a type of a namespace ever has, so that a
// new one can go on where the last one ended; actions of two types that set one field differently conflict.
func fieldManager(call executors.Call) string {
	name := "ctrlrun:" + call.Namespace + "/" + call.ActionType
	const longest = 128
	if len(name) <= longest && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "ctrlrun:" + hex.EncodeToString(sum[:16])
}

// written is the output: the object as it is after the write, or was before it was deleted.
type written struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// judge says what an answer proves.
func (e *Executor) judge(a apiserver.Answer, w write, o object, namespace string) executors.Result {
	if reason, refused := a.Refusal(); refused {
		if w.refusable {
			return executors.NotExecuted(fmt.Sprintf("the apiserver refused the %s: %s", e.operation, reason))
		}
		return executors.Unknown(fmt.Sprintf("the %s was refused (%s), which for this object does not prove that nothing was done", e.operation, reason))
	}
	if !a.OK() {
		return executors.Unknown(fmt.Sprintf("the answer to the %s is HTTP %d, which does not prove that nothing was done", e.operation, a.Code))
	}
	out := written{APIVersion: e.gv.String(), Kind: e.kind, Namespace: namespace, Name: o.name, UID: w.uid, ResourceVersion: w.resourceVersion}
	if s, ok := a.Status(); ok {
		// The answer to a Delete that is complete.
		if e.operation != v1alpha1.KubernetesDelete || s.Status != metav1.StatusSuccess {
			return executors.Unknown(fmt.Sprintf("the answer to the %s is HTTP %d without the object", e.operation, a.Code))
		}
	} else {
		var it metav1.PartialObjectMetadata
		if json.Unmarshal(a.Body, &it) != nil || it.Name != o.name || it.Namespace != namespace || it.UID == "" || w.uid != "" && string(it.UID) != w.uid {
			return executors.Unknown(fmt.Sprintf("the answer to the %s is HTTP %d without the object", e.operation, a.Code))
		}
		out.UID, out.ResourceVersion = string(it.UID), it.ResourceVersion
	}
	output, err := json.Marshal(out)
	if err != nil {
		output = nil
	}
	return executors.Committed(output)
}
