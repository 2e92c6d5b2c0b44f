package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

// The messages are read by people on call who did not write the policy. Each says what was decided, why, and what to do now.

// maxMessage is how many characters a message has at most; status.message holds no more.
const maxMessage = 1024

const nothing = "Nothing was executed."

func bounded(s string) string {
	if utf8.RuneCountInString(s) <= maxMessage {
		return s
	}
	return string([]rune(s)[:maxMessage-1]) + "…"
}

func quoted(name string) string { return fmt.Sprintf("%q", clip(name)) }

func equal(a, b any) bool { return canonical.Equal(a, b) }

// place is where in the policy the deciding rule or decision stands.
func place(e Evaluation) string {
	if e.Reason == decision.PlainDecision {
		return "the decision of its entry"
	}
	return string(e.Reason)
}

func (s *Set) asks(e Evaluation) string {
	people := "One person"
	if n := e.Entry.ApprovalsRequired; n > 1 {
		people = fmt.Sprintf("%d different people", n)
	}
	groups := ""
	if names := e.Entry.ApproverGroups; len(names) > 0 {
		groups = " Whoever does has to be in one of the groups " + strings.Join(names, ", ") + "."
	}
	return bounded(fmt.Sprintf("Policy %s lets %s run only with approval: %s is approve. %s with the right to approve %s must say yes, and neither the agent nor its user counts. See kubectl ctrlrun pending.%s",
		quoted(e.Policy.Name), quoted(e.Proposal.Name), place(e), people, quoted(e.Proposal.Name), groups))
}

func (s *Set) denied(e Evaluation) string {
	if e.Reason == decision.PlainDecision {
		return fmt.Sprintf("Policy %s denies %s whatever its arguments. %s Only an edit of %s in that policy can change this.",
			quoted(e.Policy.Name), quoted(e.Proposal.Name), nothing, child("actions", clip(e.Proposal.Name)))
	}
	message := fmt.Sprintf("Policy %s denies %s: %s is the first rule that matches these arguments, and it is deny. %s Propose arguments that an earlier rule lets pass, or ask the owners of the policy to change its rules.",
		quoted(e.Policy.Name), quoted(e.Proposal.Name), e.Reason, nothing)
	if why := passedOver(e); why != "" {
		message += " " + why + "."
	}
	return message
}

// passedOver says why the rules before the deciding one, or all if none decided, do not match. The usual cause is an argument
// of another type than the author of the policy had in mind.
func passedOver(e Evaluation) string {
	const shown = 4
	rules := e.Entry.Rules
	for i := range rules {
		if decision.Rule(i) == e.Reason {
			rules = rules[:i]
			break
		}
	}
	var why []string
	for i, r := range rules {
		if i == shown && len(rules) > shown+1 {
			why = append(why, fmt.Sprintf("and %d more", len(rules)-shown))
			break
		}
		why = append(why, fmt.Sprintf("%s: %s", decision.Rule(i), clip(r.When.Explain(e.Proposal.Arguments))))
	}
	return strings.Join(why, "; ")
}

func (s *Set) unmatched(e Evaluation) string {
	return fmt.Sprintf("No rule of policy %s for %s matches these arguments, and what no rule matches is denied. %s Propose arguments that a rule matches, or ask the owners of the policy to add one. %s.",
		quoted(e.Policy.Name), quoted(e.Proposal.Name), nothing, passedOver(e))
}

func (s *Set) unresolved(p action.Proposal, found slot, err error) string {
	why, remedy := err.Error(), "propose it with other arguments"
	if r, ok := resolveError(err); ok {
		why, remedy = r.Problem, r.Remedy
		if r.Placeholder != "" {
			why = "{" + clip(r.Placeholder) + "} " + r.Problem
		}
	}
	return fmt.Sprintf("The effect key of %s cannot be computed, so that a duplicate could not be told: in %s of policy %s, %s. %s To go on, %s.",
		quoted(p.Name), quoted(found.entry.Effect.String()), quoted(found.ref.Name), why, nothing, remedy)
}

func (s *Set) unusable(p action.Proposal, found slot) string {
	if found.reason == decision.PolicyConflict {
		return fmt.Sprintf("No entry for %s counts: %s. %s Make the two entries equal, or remove one of them.", quoted(p.Name), found.explanation, nothing)
	}
	return fmt.Sprintf("Policy %s is invalid, and denies every action it names, %s among them. %s Correct it; kubectl ctrlrun lint shows every error before it is applied. The error: %s.",
		quoted(found.ref.Name), quoted(p.Name), nothing, found.explanation)
}

func (s *Set) tooLarge(p action.Proposal, err error) string {
	return fmt.Sprintf("The arguments of %s are too large: %v. %s", quoted(p.Name), err, nothing)
}

// unknown says what there is instead: the usual causes are a wrong namespace, a misspelt name, and no policy at all.
func (s *Set) unknown(p action.Proposal) string {
	where := "The policy"
	if s.sources != 1 {
		where = "No policy"
	}
	in := ""
	if s.namespace != "" {
		in = " of namespace " + quoted(s.namespace)
	}
	if s.sources == 0 {
		if in == "" {
			in = " here"
		}
		return fmt.Sprintf("There is no policy%s, and without one %s is denied. %s Create an ActionPolicy that names this action; kubectl ctrlrun init writes a first one.",
			strings.Replace(in, " of namespace", " in namespace", 1), quoted(p.Name), nothing)
	}
	verb := "names"
	if where == "The policy" {
		verb = "does not name"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s %s the action %s, and what no policy names is denied. %s ", where, in, verb, quoted(p.Name), nothing)
	if close := s.closest(p.Name); close != "" {
		fmt.Fprintf(&b, "Did you mean %s? ", quoted(close))
	}
	b.WriteString(s.inventory())
	b.WriteString(" Propose one of these names, or add this one to an ActionPolicy.")
	for _, message := range s.unnamed {
		b.WriteString(" " + message)
	}
	return b.String()
}

func (s *Set) closest(name string) string {
	for _, n := range s.names {
		if strings.EqualFold(n, name) || nearby(n, name) {
			return n
		}
	}
	return ""
}

func (s *Set) inventory() string {
	const shown = 8
	if len(s.names) == 0 {
		return "It names no action at all."
	}
	var list []string
	for i, n := range s.names {
		if i == shown && len(s.names) > shown+1 {
			list = append(list, fmt.Sprintf("and %d more", len(s.names)-shown))
			break
		}
		list = append(list, quoted(n))
	}
	return "It has " + strings.Join(list, ", ") + "."
}
