// Package kubeexec executes an action by one write to one object of the Kubernetes API, as a ServiceAccount.
//
// # What is certain
//
// A read does nothing, so whatever fails before the write is sent is "not executed". The write is sent once. Of its answers
//
//   - success that names the object is committed;
//   - a refusal that a kube-apiserver gives before it stores anything (a conflict, an invalid object, no right, no such object) is
//     not executed, if the resource is one that the kube-apiserver itself serves;
//   - everything else is unknown: a timeout, 429, any 5xx, a connection that breaks, an answer that is no Status, and every refusal
//     by an aggregated API server, of which it is not known what it does before it refuses.
//
// A mutating webhook can have effects of its own before the object is refused. Those are not spoken of.
//
// # What is written
//
// Scale and Delete read the object first and are bound to the version they read, so a change in between is a conflict. Patch and
// Apply carry the uid and the resourceVersion that the action names. Apply never forces, and every template is validated strictly:
// a field that the API does not know is refused, not dropped.
package kubeexec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
)

// Executor makes the write that a spec describes. It keeps nothing between two executions, and can be used concurrently.
type Executor struct {
	operation v1alpha1.KubernetesOperation
	gv        schema.GroupVersion
	kind      string
	// namespace as the spec names it, or "".
	namespace string
	// home is the Executor's namespace: that of an object for which the spec names none.
	home string
	name string
	// uid, resourceVersion and replicas are templates, or "".
	uid, resourceVersion, replicas string
	template                       map[string]any
	timeout                        time.Duration
}

var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// New reads a spec of an Executor in namespace. An error says what in it cannot be executed, as far as that can be known without
// asking a cluster: whether the kind exists and the ServiceAccount may write it is found out when an action is executed.
func New(spec *v1alpha1.KubernetesExecutor, namespace string) (*Executor, error) {
	e := &Executor{
		operation: spec.Operation, kind: spec.Kind, home: namespace, name: spec.Name,
		uid: value(spec.UID), resourceVersion: value(spec.ResourceVersion), replicas: value(spec.Replicas),
		timeout: time.Duration(spec.TimeoutSeconds) * time.Second,
	}
	var err error
	if e.gv, err = groupVersion(spec.APIVersion); err != nil {
		return nil, err
	}
	if !kindName.MatchString(spec.Kind) {
		return nil, fmt.Errorf("kind: %q is not the name of a kind, such as Deployment", spec.Kind)
	}
	if spec.Namespace != nil {
		if problems := validation.IsDNS1123Label(*spec.Namespace); len(problems) > 0 {
			return nil, fmt.Errorf("namespace: %s", strings.Join(problems, "; "))
		}
		e.namespace = *spec.Namespace
	}
	if _, err := action.ParseTemplate(spec.Name); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	for _, f := range []struct{ field, value string }{{"uid", e.uid}, {"resourceVersion", e.resourceVersion}} {
		if _, ok := argumentOf(f.value); f.value != "" && !ok {
			return nil, fmt.Errorf("%s: write the argument that holds it, as {argument} and nothing else", f.field)
		}
	}
	if spec.TimeoutSeconds < 1 || spec.TimeoutSeconds > 60 {
		return nil, fmt.Errorf("timeoutSeconds: it is from 1 to 60")
	}
	if err := e.readTemplate(spec); err != nil {
		return nil, err
	}
	return e, e.check()
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func groupVersion(s string) (schema.GroupVersion, error) {
	gv, err := schema.ParseGroupVersion(s)
	if err != nil || len(validation.IsDNS1035Label(gv.Version)) > 0 || gv.Group != "" && len(validation.IsDNS1123Subdomain(gv.Group)) > 0 {
		return gv, fmt.Errorf("apiVersion: %q is not a group and a version, such as apps/v1", s)
	}
	// An approval, a report or a policy is made by whom it speaks of. An executor that wrote one would speak for others.
	if own := v1alpha1.GroupVersion.Group; gv.Group == own || strings.HasSuffix(gv.Group, "."+own) {
		return gv, fmt.Errorf("apiVersion: an Executor does not write objects of %s", own)
	}
	return gv, nil
}

// readTemplate reads the template and refuses in it what is said elsewhere in the spec or belongs to controllers.
func (e *Executor) readTemplate(spec *v1alpha1.KubernetesExecutor) error {
	if spec.Template == nil || len(spec.Template.Raw) == 0 {
		return nil
	}
	v, err := canonical.Parse(spec.Template.Raw)
	if err != nil {
		return fmt.Errorf("template: %w", err)
	}
	template, ok := v.(map[string]any)
	if !ok || len(template) == 0 {
		return fmt.Errorf("template: it is an object that sets something")
	}
	for _, key := range []string{"apiVersion", "kind", "status"} {
		if _, ok := template[key]; ok {
			return fmt.Errorf("template: leave %s out; apiVersion and kind are fields of the Executor, and a status belongs to a controller", key)
		}
	}
	if v, ok := template["metadata"]; ok {
		metadata, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("template: metadata is an object, written out")
		}
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if key != "labels" && key != "annotations" {
				return fmt.Errorf("template: of metadata only labels and annotations can be set, not %s", key)
			}
		}
	}
	if err := checkValue(template, ""); err != nil {
		return fmt.Errorf("template: %w", err)
	}
	e.template = template
	return nil
}

// check says whether the operation has what it needs and nothing it would ignore.
func (e *Executor) check() error {
	precondition := e.uid != "" || e.resourceVersion != ""
	switch e.operation {
	case v1alpha1.KubernetesApply:
		// Without precondition it makes the object if there is none.
	case v1alpha1.KubernetesPatch, v1alpha1.KubernetesScale, v1alpha1.KubernetesDelete:
		// A name alone is reused: what was approved is this object.
		if !precondition {
			return fmt.Errorf("%s needs uid or resourceVersion, so that it meets the object that was approved and no other of that name", e.operation)
		}
	default:
		return fmt.Errorf("operation: %q is none; write Apply, Patch, Scale or Delete", e.operation)
	}
	templated := e.operation == v1alpha1.KubernetesApply || e.operation == v1alpha1.KubernetesPatch
	switch {
	case templated && e.template == nil:
		return fmt.Errorf("%s needs a template", e.operation)
	case !templated && e.template != nil:
		return fmt.Errorf("%s has no use for a template", e.operation)
	}
	if e.operation != v1alpha1.KubernetesScale {
		if e.replicas != "" {
			return fmt.Errorf("%s has no use for replicas", e.operation)
		}
		return nil
	}
	if e.replicas == "" {
		return fmt.Errorf("%s needs replicas", e.operation)
	}
	if _, whole := argumentOf(e.replicas); whole {
		return nil
	}
	if _, err := replicas(e.replicas); err != nil {
		return fmt.Errorf("%w; write a number, or the argument that holds it, as {argument}", err)
	}
	return nil
}
