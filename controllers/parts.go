package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-openapi/jsonpointer"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/precondition"
)

const (
	// partsTimeout bounds a look at all parts of an action. It is well within passLimit, so that who is slow is seen to be.
	partsTimeout = 5 * time.Second
	// awayFor is how long nobody asks an API that did not answer. Then one asks, and the others go on waiting.
	awayFor = 10 * time.Second
	// kindsKept is how long it is remembered what an API serves, and kindsRetried how long that it does not serve a kind.
	kindsKept    = 5 * time.Minute
	kindsRetried = 10 * time.Second
	// apisRemembered bounds what is remembered of APIs, whose names agents choose.
	apisRemembered = 256
)

// refusedPart says in a sentence why a part certainly cannot be read or hashed. Every other error says that nobody knows.
type refusedPart string

func (r refusedPart) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusedPart(fmt.Sprintf(format, args...)) }

// errAway says that an API did not answer just now.
var errAway = errors.New("it did not answer a moment ago, and is asked again soon")

// parts reads parts of any objects. It shares no mapper and no cache with the rest of the operator: an API that does not answer keeps
// nobody waiting but those who name it, and not many of those.
type parts struct {
	writer    client.Writer // asks who may
	discovery rest.Interface
	objects   dynamic.Interface
	now       func() time.Time

	kinds *cache.LRUExpireCache // schema.GroupVersion to servedKinds

	mu   sync.Mutex
	away *cache.LRUExpireCache // schema.GroupVersion to *absence
}

// servedKinds is what an API serves, by kind, and when that was found out.
type servedKinds struct {
	resources map[string]metav1.APIResource
	asked     time.Time
}

// absence is an API that did not answer.
type absence struct {
	until   time.Time
	probing bool // somebody asks whether it is back
}

func newParts(writer client.Writer, config *rest.Config, http *http.Client) (*parts, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	return &parts{
		writer: writer, discovery: d.RESTClient(), objects: objects, now: time.Now,
		kinds: cache.NewLRUExpireCache(apisRemembered), away: cache.NewLRUExpireCache(apisRemembered),
	}, nil
}

// read reads one part of one object of a namespace, or of a cluster-scoped one, for a principal that may get it.
func (p *parts) read(ctx context.Context, namespace string, principal v1alpha1.Principal, ref precondition.Ref) (precondition.Part, error) {
	api, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return precondition.Part{}, refuse("%q is no API version", ref.APIVersion)
	}
	if !p.ask(api) {
		return precondition.Part{}, errAway
	}
	part, err := p.readOf(ctx, api, namespace, principal, ref)
	refused := refusedPart("")
	p.answered(api, err == nil || errors.As(err, &refused))
	return part, err
}

func (p *parts) readOf(ctx context.Context, api schema.GroupVersion, namespace string, principal v1alpha1.Principal, ref precondition.Ref) (precondition.Part, error) {
	resource, err := p.resource(ctx, api, ref.Kind)
	if err != nil {
		return precondition.Part{}, err
	}
	if api.Group == "" && resource.Name == "secrets" {
		return precondition.Part{}, refuse("a Secret is no precondition: the fingerprint of a short secret can be guessed")
	}
	in := ""
	if resource.Namespaced {
		in = namespace
	}
	at := api.WithResource(resource.Name)
	if err := p.mayGet(ctx, principal, at, in, ref.Name); err != nil {
		return precondition.Part{}, err
	}
	o, err := p.objects.Resource(at).Namespace(in).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return precondition.Part{}, refuse("%s %q does not exist", ref.Kind, ref.Name)
	case apierrors.IsForbidden(err):
		return precondition.Part{}, refuse("the operator may not get %s %q; give its ServiceAccount a Role that lets it", at.GroupResource(), ref.Name)
	case err != nil && !mayPass(err):
		return precondition.Part{}, refuse("%s %q cannot be read", ref.Kind, ref.Name)
	case err != nil:
		return precondition.Part{}, err
	}
	pointer, err := jsonpointer.New(ref.Pointer)
	if err != nil {
		return precondition.Part{}, refuse("%q is no JSON pointer", ref.Pointer)
	}
	value, _, err := pointer.Get(o.Object)
	if err != nil {
		return precondition.Part{}, refuse("%s %q has nothing at %q", ref.Kind, ref.Name, ref.Pointer)
	}
	// What is found there is in no message: whoever reads the action need not have the right to read the object.
	if _, err := canonical.Encode(value); err != nil {
		return precondition.Part{}, refuse("%s %q at %q has no canonical form: it holds a number that is no 64-bit integer, or is nested too deep", ref.Kind, ref.Name, ref.Pointer)
	}
	return precondition.Part{Ref: ref, UID: string(o.GetUID()), Value: value}, nil
}

// mayPass reports whether an error says only that nobody knows: the same question may be answered later.
func mayPass(err error) bool {
	var network *url.Error
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err) || apierrors.IsUnauthorized(err)
}

// resource is what an API calls the objects of a kind.
func (p *parts) resource(ctx context.Context, api schema.GroupVersion, kind string) (metav1.APIResource, error) {
	if known, ok := p.kinds.Get(api); ok {
		served := known.(servedKinds)
		if resource, ok := served.resources[kind]; ok {
			return resource, nil
		}
		if p.now().Sub(served.asked) < kindsRetried {
			return metav1.APIResource{}, unknownKind(api, kind)
		}
	}
	list := &metav1.APIResourceList{}
	path := []string{"apis", api.Group, api.Version}
	if api.Group == "" {
		path = []string{"api", api.Version}
	}
	err := p.discovery.Get().AbsPath(path...).Do(ctx).Into(list)
	switch {
	case err == nil, apierrors.IsNotFound(err): // then it serves nothing
	case mayPass(err):
		return metav1.APIResource{}, err
	default:
		return metav1.APIResource{}, refuse("it cannot be found out what %s serves", api)
	}
	served := servedKinds{resources: map[string]metav1.APIResource{}, asked: p.now()}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") { // no subresource
			served.resources[r.Kind] = r
		}
	}
	p.kinds.Add(api, served, kindsKept)
	if resource, ok := served.resources[kind]; ok {
		return resource, nil
	}
	return metav1.APIResource{}, unknownKind(api, kind)
}

func unknownKind(api schema.GroupVersion, kind string) error {
	return refuse("the apiserver knows no kind %s of %s", kind, api)
}

// mayGet asks whether a principal may get an object: it must not learn through a fingerprint what it may not read.
func (p *parts) mayGet(ctx context.Context, principal v1alpha1.Principal, resource schema.GroupVersionResource, namespace, name string) error {
	attributes := &authorizationv1.ResourceAttributes{
		Namespace: namespace, Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Verb: "get", Name: name,
	}
	if resource.Group == "" && resource.Resource == "namespaces" {
		attributes.Namespace = name // as the apiserver asks of its own
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: principal.Agent, ResourceAttributes: attributes}}
	if c := principal.Claims; c != nil {
		review.Spec.Groups = c.Groups
	}
	if err := p.writer.Create(ctx, review); err != nil {
		return fmt.Errorf("ask whether %s may get it: %w", principal.Agent, err)
	}
	switch {
	case review.Status.Allowed:
		return nil
	case review.Status.EvaluationError != "":
		return fmt.Errorf("ask whether %s may get it: %s", principal.Agent, review.Status.EvaluationError)
	}
	return refuse("%s may not get %s %q, and an agent names only what it may read", principal.Agent, resource.GroupResource(), name)
}

// ask reports whether somebody may ask an API now. Of one that did not answer, one at a time finds out whether it is back; whoever may
// ask says afterwards whether it answered.
func (p *parts) ask(api schema.GroupVersion) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.away.Get(api)
	if !ok {
		return true
	}
	a := known.(*absence)
	if a.probing || p.now().Before(a.until) {
		return false
	}
	a.probing = true
	return true
}

func (p *parts) answered(api schema.GroupVersion, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if yes {
		p.away.Remove(api)
		return
	}
	p.away.Add(api, &absence{until: p.now().Add(awayFor)}, time.Hour)
}
