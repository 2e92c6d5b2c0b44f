package proxy

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// Request is one request of a client, as its Injector sees it.
type Request struct {
	// Client is the name of the listener it came by.
	Client string
	// Verb is Kubernetes' own: get, list, watch, create, update, patch, delete or deletecollection. For a path that is no
	// resource it is the HTTP method in lower case.
	Verb string
	// Group, Resource, Subresource, Namespace and Name are those of the path; a create has no Name. A list or watch has one if
	// it selects a single object by it. Resource is empty for a path that is no resource.
	Group, Resource, Subresource, Namespace, Name string
	// DryRun: it asks and stores nothing.
	DryRun bool
	// Body as it was sent. It must not be changed.
	Body []byte
	// Point names the step of the protocol; see PointOf.
	Point string
	// N counts the requests of this Client at this Point, from 1.
	N int
}

// Write reports whether the request may store something.
func (r Request) Write() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !r.DryRun
	}
	return false
}

// parse reads what the method, the path and the query say.
func parse(r *http.Request) Request {
	group, rest, found := resourcePath(r.URL.Path)
	if !found {
		return Request{Verb: strings.ToLower(r.Method)}
	}
	request := Request{Group: group, DryRun: r.URL.Query().Get("dryRun") != ""}
	if len(rest) > 1 && rest[0] == "namespaces" {
		request.Namespace = rest[1]
		if len(rest) > 2 && !ofNamespace(rest[2]) {
			rest = rest[2:]
		}
	}
	request.Resource = rest[0]
	if len(rest) > 1 {
		request.Name = rest[1]
	}
	if len(rest) > 2 {
		request.Subresource = strings.Join(rest[2:], "/")
	}
	request.Verb = verb(r, request.Name)
	if request.Name == "" && (request.Verb == "list" || request.Verb == "watch") {
		request.Name = selectedName(r)
	}
	return request
}

// selectedName is the one name that a field selector lets through; empty if it lets several through.
func selectedName(r *http.Request) string {
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return "" // the apiserver refuses it
	}
	name, _ := selector.RequiresExactMatch("metadata.name")
	return name
}

// resourcePath splits /api/VERSION/... and /apis/GROUP/VERSION/... into the group and what follows the version.
func resourcePath(path string) (group string, rest []string, found bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		return "", parts[2:], true
	case len(parts) > 3 && parts[0] == "apis":
		return parts[1], parts[3:], true
	}
	return "", nil, false
}

// ofNamespace reports whether a word after the name of a namespace is a subresource of the namespace itself.
func ofNamespace(word string) bool { return word == "status" || word == "finalize" }

func verb(r *http.Request, name string) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	watch := r.URL.Query().Get("watch")
	switch {
	case watch == "true" || watch == "1":
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}
