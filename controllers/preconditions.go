package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-openapi/jsonpointer"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/precondition"
)

// partsTimeout bounds a look at all parts of an action. What is served by an extension of the apiserver may take for ever, and an
// agent chooses what it names: no pass waits for it longer than this.
const partsTimeout = 5 * time.Second

// refusedPart says in a sentence why a part certainly cannot be read or hashed. Every other error says that nobody knows.
type refusedPart string

func (r refusedPart) Error() string { return string(r) }

// readPreconditions puts into the snapshot what the preconditions of the action name, as the apiserver holds it now. What is found
// there leaves this function as a hash only.
func (r *pass) readPreconditions(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, partsTimeout)
	defer cancel()
	read := flow.PreconditionsRead{Read: true}
	parts := make([]precondition.Part, 0, len(r.s.Action.Preconditions))
	for _, ref := range r.s.Action.Preconditions {
		part, err := r.part(bounded, ref)
		if err != nil {
			if refused := refusedPart(""); errors.As(err, &refused) {
				read.Refusal = string(refused)
			} else {
				read.Trouble = fmt.Sprintf("%s: %v", ref, err)
			}
			r.s.Preconditions = read
			return ctx.Err()
		}
		parts = append(parts, part)
	}
	var err error
	if read.Fingerprint, err = precondition.Fingerprint(parts); err != nil {
		read.Refusal = fmt.Sprintf("it has no canonical form: %v", err)
	}
	r.s.Preconditions = read
	return nil
}

// part reads one part of one object, for an agent that may get it.
func (r *pass) part(ctx context.Context, ref precondition.Ref) (precondition.Part, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return precondition.Part{}, refusedPart(fmt.Sprintf("%q is no API version", ref.APIVersion))
	}
	mapping, err := mappingOf(ctx, r.client.RESTMapper(), schema.GroupKind{Group: version.Group, Kind: ref.Kind}, version.Version)
	switch {
	case meta.IsNoMatchError(err):
		return precondition.Part{}, refusedPart(fmt.Sprintf("the apiserver knows no kind %s of %s", ref.Kind, ref.APIVersion))
	case err != nil:
		return precondition.Part{}, err
	}
	if mapping.Resource.Group == "" && mapping.Resource.Resource == "secrets" {
		return precondition.Part{}, refusedPart("a Secret is no precondition: the fingerprint of a short secret can be guessed")
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace = r.namespace
	}
	if err := r.mayGet(ctx, ref, mapping.Resource, namespace); err != nil {
		return precondition.Part{}, err
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	err = r.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, o)
	switch {
	case apierrors.IsNotFound(err):
		return precondition.Part{}, refusedPart(fmt.Sprintf("%s %s does not exist", ref.Kind, ref.Name))
	case apierrors.IsForbidden(err):
		return precondition.Part{}, refusedPart(fmt.Sprintf("the operator may not get %s %s; give its ServiceAccount a Role that lets it", mapping.Resource.GroupResource(), ref.Name))
	case err != nil:
		return precondition.Part{}, err
	}
	pointer, err := jsonpointer.New(ref.Pointer)
	if err != nil {
		return precondition.Part{}, refusedPart(fmt.Sprintf("%q is no JSON pointer", ref.Pointer))
	}
	value, _, err := pointer.Get(o.Object)
	if err != nil {
		return precondition.Part{}, refusedPart(fmt.Sprintf("%s %s has nothing at %s", ref.Kind, ref.Name, ref.Pointer))
	}
	// The value itself is in no message: whoever reads the action need not have the right to read the object.
	text, err := json.Marshal(value)
	if err != nil {
		return precondition.Part{}, refusedPart(fmt.Sprintf("%s has no canonical form", ref))
	}
	canonicalValue, err := canonical.Parse(text)
	if err != nil {
		return precondition.Part{}, refusedPart(fmt.Sprintf("%s has no canonical form: it holds a number that is no integer, or is nested too deep", ref))
	}
	return precondition.Part{Ref: ref, UID: string(o.GetUID()), Value: canonicalValue}, nil
}

// mappingOf asks a mapper, which may ask the apiserver and knows no end to that, for as long as the context lasts. A question that takes
// longer ends by itself, with the timeout of discovery.
func mappingOf(ctx context.Context, mapper meta.RESTMapper, kind schema.GroupKind, version string) (*meta.RESTMapping, error) {
	type answer struct {
		mapping *meta.RESTMapping
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		mapping, err := mapper.RESTMapping(kind, version)
		answered <- answer{mapping, err}
	}()
	select {
	case a := <-answered:
		return a.mapping, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("find out what kind %s is: %w", kind, ctx.Err())
	}
}

// mayGet asks whether the agent may get an object: it must not learn through a fingerprint what it may not read.
func (r *pass) mayGet(ctx context.Context, ref precondition.Ref, resource schema.GroupVersionResource, namespace string) error {
	principal := r.action.Spec.Principal
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: principal.Agent,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Verb: "get", Name: ref.Name,
		},
	}}
	if c := principal.Claims; c != nil {
		review.Spec.Groups = c.Groups
	}
	if err := r.client.Create(ctx, review); err != nil {
		return fmt.Errorf("ask whether %s may get it: %w", principal.Agent, err)
	}
	switch {
	case review.Status.Allowed:
		return nil
	case review.Status.EvaluationError != "":
		return fmt.Errorf("ask whether %s may get it: %s", principal.Agent, review.Status.EvaluationError)
	}
	return refusedPart(fmt.Sprintf("%s may not get %s %s, and an agent names only what it may read", principal.Agent, resource.GroupResource(), ref.Name))
}
