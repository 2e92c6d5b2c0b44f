package authority

import (
	"fmt"
	"slices"

	"ctrlrun.dev/operator/kernel/grammar"
)

// Contains reports whether child is within parent in every dimension, and if not, which is the first it is not within. What
// cannot be shown is not so. What parent limits, child limits too: nothing is inherited.
//
// Which agent the child is for is its own business; that is what delegating means. But it is one agent by its name, and
// if it names a user, one user.
func Contains(parent, child Grant) (Dimension, bool) {
	dimension, _ := uncontained(&parent, &child)
	return dimension, dimension == ""
}

// uncontained is the first dimension in which child is not within parent, and why, with what to do.
func uncontained(parent, child *Grant) (Dimension, string) {
	if why := subjectOutside(parent, child); why != "" {
		return DimensionSubject, why
	}
	if why := patternsOutside("action", parent.Actions, child.Actions); why != "" {
		return DimensionActions, why
	}
	if why := resourcesOutside(parent, child); why != "" {
		return DimensionResources, why
	}
	if why := constraintsOutside(parent, child); why != "" {
		return DimensionConstraints, why
	}
	if why := environmentsOutside(parent, child); why != "" {
		return DimensionEnvironments, why
	}
	if why := expirationOutside(parent, child); why != "" {
		return DimensionExpiration, why
	}
	return "", ""
}

func subjectOutside(parent, child *Grant) string {
	agent, user := child.Subject.Agent, child.Subject.User
	switch {
	case agent == nil:
		return "it names no agent; add subject.agent"
	case !agent.Literal():
		return fmt.Sprintf("subject.agent %s stands for several agents; name one", quoted(agent.String()))
	case user != nil && !user.Literal():
		return fmt.Sprintf("subject.user %s stands for several users; name one", quoted(user.String()))
	case parent.Subject.User == nil:
		return ""
	case user == nil:
		return "the parent is for certain users and the delegation for any; add a subject.user that the parent is for"
	case !parent.Subject.User.Match(user.String()):
		return fmt.Sprintf("the parent is not for the user %s; name one that it is for", quoted(user.String()))
	}
	return ""
}

func patternsOutside(what string, parent, child []grammar.Pattern) string {
	for _, c := range child {
		if !slices.ContainsFunc(parent, func(p grammar.Pattern) bool { return p.Contains(c) }) {
			return fmt.Sprintf("the %s pattern %s is within none of the parent's; narrow or remove it", what, quoted(c.String()))
		}
	}
	return ""
}

func resourcesOutside(parent, child *Grant) string {
	switch {
	case len(parent.Resources) == 0:
		return ""
	case len(child.Resources) == 0:
		return "the parent limits resources and the delegation does not; add resources that are within the parent's"
	}
	return patternsOutside("resource", parent.Resources, child.Resources)
}

func constraintsOutside(parent, child *Grant) string {
	limit, outside := parent.Constraints.Uncontained(child.Constraints)
	if !outside {
		return ""
	}
	for _, c := range child.Constraints.List() {
		if c.Key() == limit.Key() {
			return fmt.Sprintf("the constraint %s is not as strict as the parent's; make it so", quoted(limit.Key()))
		}
	}
	return fmt.Sprintf("the parent has the constraint %s and the delegation has not; repeat it, at least as strict", quoted(limit.Key()))
}

func environmentsOutside(parent, child *Grant) string {
	if len(parent.Environments) == 0 {
		return ""
	}
	if len(child.Environments) == 0 {
		return "the parent limits environments and the delegation does not; add environments that the parent has"
	}
	for _, e := range child.Environments {
		if !slices.Contains(parent.Environments, e) {
			return fmt.Sprintf("the parent is not for the environment %s; remove it", quoted(e))
		}
	}
	return ""
}

func expirationOutside(parent, child *Grant) string {
	switch {
	case parent.Expiration == nil:
		return ""
	case child.Expiration == nil:
		return "the parent expires and the delegation does not; add an expirationTime that is no later than the parent's"
	case child.Expiration.After(*parent.Expiration):
		return "it expires later than its parent; choose an expirationTime that is no later"
	}
	return ""
}
