package cli

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// typesResource is the virtual resource the right to approve and to resolve is given on. It has no objects: Roles name
// action types, or dotted prefixes of them, as resourceNames.
const typesResource = "actiontypes"

// maxPrefixes is how many prefixes of an action type admission looks at.
const maxPrefixes = 4

// candidates are the resourceNames that give a right for an action type: the type, then its dotted prefixes, the shortest
// first: stripe.refund.partial, stripe.*, stripe.refund.*.
func candidates(actionType string) []string {
	names := []string{actionType}
	segments := strings.Split(actionType, ".")
	for i := 1; i < len(segments) && i <= maxPrefixes; i++ {
		names = append(names, strings.Join(segments[:i], ".")+".*")
	}
	return names
}

// checkType refuses what names no action type: nothing, and the word that stands for one in runbooks and help texts. The cluster
// would answer for both, with whoever may do everything.
func checkType(actionType string) error {
	if actionType == "" || actionType == "TYPE" {
		return exit.Errorf(exit.Usage, "%q is no action type: name one, such as stripe.refund", actionType)
	}
	return nil
}

// may asks the apiserver whether we have a right. It asks for the session's namespace, if attributes name no other.
func (s *session) may(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	if attributes.Namespace == "" {
		attributes.Namespace = s.Namespace()
	}
	attributes.Group = v1alpha1.GroupVersion.Group
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}
	if err := s.kube.Create(ctx, review); err != nil {
		return false, explain(err)
	}
	return review.Status.Allowed, nil
}

// verdict is whether one may do something, and by what.
type verdict struct {
	allowed bool
	by      string // the resourceName that gives it
	missing string // the right that is missing, in words
}

func (v verdict) String() string {
	if v.allowed {
		if v.by == "" {
			return "yes"
		}
		return "yes, by " + v.by
	}
	return "no, you lack " + v.missing
}

// mayOn asks for everything a statement about an action type needs: create on the statement's kind, and for the verbs of
// people the verb on the type. `kubectl auth can-i` cannot be asked: it loses the group of a virtual resource.
func (s *session) mayOn(ctx context.Context, verb, actionType string) (verdict, error) {
	return s.mayOnIn(ctx, s.Namespace(), verb, actionType)
}

// mayOnIn is mayOn in another namespace than the session's.
func (s *session) mayOnIn(ctx context.Context, namespace, verb, actionType string) (verdict, error) {
	right := rights[verb]
	ok, err := s.may(ctx, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: right.statement})
	if err != nil {
		return verdict{}, err
	}
	if !ok {
		return verdict{missing: "create on " + right.statement}, nil
	}
	if right.verb == "" {
		return verdict{allowed: true}, nil
	}
	for _, name := range candidates(actionType) {
		ok, err := s.may(ctx, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: right.verb, Resource: typesResource, Name: name})
		if err != nil {
			return verdict{}, err
		}
		if ok {
			return verdict{allowed: true, by: right.verb + " on " + typesResource + "/" + name}, nil
		}
	}
	return verdict{missing: right.verb + " on " + typesResource + "/" + actionType}, nil
}

// right is what a verb of can-i needs.
type right struct {
	statement string // the resource that is created
	verb      string // on actiontypes; empty if create is all
}

var rights = map[string]right{
	"propose": {statement: "actions"},
	"claim":   {statement: "claims"},
	"report":  {statement: "outcomes"},
	"approve": {statement: "approvals", verb: "approve"},
	"deny":    {statement: "approvals", verb: "approve"},
	"resolve": {statement: "resolutions", verb: "resolve"},
}

var rightVerbs = []string{"propose", "claim", "report", "approve", "deny", "resolve"}
