package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-openapi/jsonpointer"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// requestTimeout bounds each request of it. An API that needs longer counts as one that does not answer.
	requestTimeout = 2 * time.Second
	// partsAtOnce is how many actions are looked at like that at a time. The operator works on more, so that others go on.
	partsAtOnce = 4
	// turnPatience is how long an action waits for its turn to be.
	turnPatience = time.Second
	// awayFor is how long nobody asks an API that did not answer. Then one asks, and the others go on waiting.
	awayFor = 10 * time.Second
	// kindsKept is how long it is remembered what an API serves.
	kindsKept = 5 * time.Minute
	// apisRemembered bounds what is remembered of APIs, whose names agents choose.
	apisRemembered = 256
)

// refusedPart says in a sentence why a part certainly cannot be read or hashed. Every other error says that nobody knows.
type refusedPart string

func (r refusedPart) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusedPart(fmt.Sprintf(format, args...)) }

// errAway says that an API did not answer just now.
var errAway = errors.New("it did not answer a moment ago, and is asked again soon")

// contact is what a look at a part says of the API.
type contact int

const (
	notAsked contact = iota
	answered
	silent
)

// parts reads parts of any objects. It shares no mapper and no cache with the rest of the operator, and is asked by a few of its
// workers at a time: an API that does not answer keeps those waiting who name preconditions, and no others.
type parts struct {
	writer    client.Writer // asks who may
	discovery rest.Interface
	objects   dynamic.Interface
	now       func() time.Time
	turns     chan struct{}

	kinds *cache.LRUExpireCache // schema.GroupVersion to map[string]metav1.APIResource, by kind

	mu   sync.Mutex
	away *cache.LRUExpireCache // schema.GroupVersion to *absence
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
		writer: writer, discovery: d.RESTClient(), objects: objects, now: time.Now, turns: make(chan struct{}, partsAtOnce),
		kinds: cache.NewLRUExpireCache(apisRemembered), away: cache.NewLRUExpireCache(apisRemembered),
	}, nil
}

// turn waits until an action may be looked at, until done is called. It is not ok if there are too many.
func (p *parts) turn(ctx context.Context) (done func(), ok bool) {
	late := time.NewTimer(turnPatience)
	defer late.Stop()
	select {
	case p.turns <- struct{}{}:
		return func() { <-p.turns }, true
	case <-late.C:
	case <-ctx.Done():
	}
	return nil, false
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
	var heard contact
	defer func() { p.heard(api, heard) }()
	var part precondition.Part
	part, heard, err = p.readOf(ctx, api, namespace, principal, ref)
	return part, err
}

func (p *parts) readOf(ctx context.Context, api schema.GroupVersion, namespace string, principal v1alpha1.Principal, ref precondition.Ref) (part precondition.Part, heard contact, err error) {
	resource, remembered, heard, err := p.resource(ctx, api, ref.Kind)
	if err != nil {
		return precondition.Part{}, heard, err
	}
	o, said, err := p.get(ctx, api, resource, namespace, principal, ref)
	if remembered && apierrors.IsNotFound(err) {
		// A kind may have been made again under another name.
		p.kinds.Remove(api)
		if resource, _, heard, err = p.resource(ctx, api, ref.Kind); err != nil {
			return precondition.Part{}, heard, err
		}
		o, said, err = p.get(ctx, api, resource, namespace, principal, ref)
	}
	heard = max(heard, said)
	switch {
	case apierrors.IsNotFound(err):
		return precondition.Part{}, heard, refuse("%s %q does not exist", ref.Kind, ref.Name)
	case apierrors.IsForbidden(err):
		return precondition.Part{}, heard, refuse("the operator may not get %s %q; give its ServiceAccount a Role that lets it", api.WithResource(resource.Name).GroupResource(), ref.Name)
	case definite(err):
		return precondition.Part{}, heard, refuse("%s %q cannot be read", ref.Kind, ref.Name)
	case err != nil:
		return precondition.Part{}, heard, err
	}
	pointer, err := jsonpointer.New(ref.Pointer)
	if err != nil {
		return precondition.Part{}, heard, refuse("%q is no JSON pointer", ref.Pointer)
	}
	value, _, err := pointer.Get(o.Object)
	if err != nil {
		return precondition.Part{}, heard, refuse("%s %q has nothing at %q", ref.Kind, ref.Name, ref.Pointer)
	}
	// What is found there is in no message: whoever reads the action need not have the right to read the object.
	if _, err := canonical.Encode(value); err != nil {
		return precondition.Part{}, heard, refuse("%s %q at %q has no canonical form: it holds a number that is no 64-bit integer, or is nested too deep", ref.Kind, ref.Name, ref.Pointer)
	}
	return precondition.Part{Ref: ref, UID: string(o.GetUID()), Value: value}, heard, nil
}

// get reads an object for a principal that may get it.
func (p *parts) get(ctx context.Context, api schema.GroupVersion, resource metav1.APIResource, namespace string, principal v1alpha1.Principal, ref precondition.Ref) (*unstructured.Unstructured, contact, error) {
	if api.Group == "" && resource.Name == "secrets" {
		return nil, notAsked, refuse("a Secret is no precondition: the fingerprint of a short secret can be guessed")
	}
	in := ""
	if resource.Namespaced {
		in = namespace
	}
	at := api.WithResource(resource.Name)
	if err := p.mayGet(ctx, principal, at, in, ref.Name); err != nil {
		return nil, notAsked, err
	}
	var o *unstructured.Unstructured
	heard, err := request(ctx, func(ctx context.Context) (err error) {
		o, err = p.objects.Resource(at).Namespace(in).Get(ctx, ref.Name, metav1.GetOptions{})
		return err
	})
	return o, heard, err
}

// request sends one request, and says whether the API answered it. One that was cut off because the whole look was over proves nothing.
func request(ctx context.Context, send func(context.Context) error) (contact, error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := send(bounded)
	switch {
	case err == nil, definite(err):
		return answered, err
	case ctx.Err() != nil:
		return notAsked, err
	}
	return silent, err
}

// definite reports whether an error is an answer that stays as it is. All others say only that nobody knows.
func definite(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusGone, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// resource is what an API calls the objects of a kind, and whether that is only remembered. What it does not serve is asked for anew: it
// may have been made just now.
func (p *parts) resource(ctx context.Context, api schema.GroupVersion, kind string) (resource metav1.APIResource, remembered bool, heard contact, err error) {
	if known, ok := p.kinds.Get(api); ok {
		if resource, ok := known.(map[string]metav1.APIResource)[kind]; ok {
			return resource, true, notAsked, nil
		}
	}
	list := &metav1.APIResourceList{}
	path := []string{"apis", api.Group, api.Version}
	if api.Group == "" {
		path = []string{"api", api.Version}
	}
	heard, err = request(ctx, func(ctx context.Context) error { return p.discovery.Get().AbsPath(path...).Do(ctx).Into(list) })
	switch {
	case err == nil, apierrors.IsNotFound(err): // then it serves nothing
	case definite(err):
		return resource, false, heard, refuse("it cannot be found out what %s serves", api)
	default:
		return resource, false, heard, err
	}
	served := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") { // no subresource
			served[r.Kind] = r
		}
	}
	if len(served) > 0 {
		p.kinds.Add(api, served, kindsKept)
	}
	resource, ok := served[kind]
	if !ok {
		return resource, false, heard, refuse("the apiserver knows no kind %s of %s", kind, api)
	}
	return resource, false, heard, nil
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

// heard notes what a look said of an API. One that was not asked is as before, and somebody else may ask.
func (p *parts) heard(api schema.GroupVersion, c contact) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c {
	case answered:
		p.away.Remove(api)
	case silent:
		p.away.Add(api, &absence{until: p.now().Add(awayFor)}, time.Hour)
	default:
		if known, ok := p.away.Get(api); ok {
			known.(*absence).probing = false
		}
	}
}
