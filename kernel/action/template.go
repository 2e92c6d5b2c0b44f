package action

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxResolvedLength is how many characters a resolved template may have. Effect keys and resources are fields of Kubernetes
// objects, which are bounded: a longer one could be decided but never recorded.
const MaxResolvedLength = 4096

// Template is literal text with {name} placeholders, as the effect and resource of a policy entry are written. The zero
// Template means that none was declared.
type Template struct {
	text  string
	parts []part
}

// part is a piece of literal text, or a placeholder.
type part struct {
	literal     string
	placeholder string
}

// ParseTemplate reads a template. It is not empty; a placeholder is a letter or underscore followed by letters, digits and
// underscores, all ASCII, in braces. There is no escape: a brace is always part of a placeholder.
func ParseTemplate(s string) (Template, error) {
	if s == "" {
		return Template{}, fmt.Errorf("the template is empty; write text with {argument} placeholders, or leave the key out")
	}
	if !utf8.ValidString(s) {
		return Template{}, fmt.Errorf("the template %s is not valid UTF-8; save it as UTF-8", strconv.Quote(s))
	}
	refuse := func(format string, args ...any) (Template, error) {
		return Template{}, fmt.Errorf("in the template %s: %s", strconv.Quote(s), fmt.Sprintf(format, args...))
	}
	t := Template{text: s}
	for rest := s; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			t.parts = append(t.parts, part{literal: rest})
			break
		}
		if i > 0 {
			t.parts = append(t.parts, part{literal: rest[:i]})
		}
		if rest[i] == '}' {
			return refuse("a closing brace without an opening one; braces stand only around an argument name, and there is no escape for them")
		}
		rest = rest[i+1:]
		end := strings.IndexAny(rest, "{}")
		if end < 0 {
			return refuse("the brace before %s is never closed; write {argument}", strconv.Quote(rest))
		}
		name := rest[:end]
		switch {
		case rest[end] == '{':
			return refuse("a brace inside braces; write {argument} once, there is no {{ escape")
		case !placeholderName(name):
			return refuse("{%s} is not a placeholder; between the braces stands the name of a top-level argument: a letter or underscore, then letters, digits and underscores, all ASCII", name)
		}
		t.parts = append(t.parts, part{placeholder: name})
		rest = rest[end+1:]
	}
	return t, nil
}

func placeholderName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// String is the template as it was written.
func (t Template) String() string { return t.text }

// IsZero reports whether no template was declared.
func (t Template) IsZero() bool { return t.text == "" }

// Placeholders are the names in braces, each once, in the order of their first use.
func (t Template) Placeholders() []string {
	var names []string
	for _, p := range t.parts {
		if p.placeholder != "" && !slices.Contains(names, p.placeholder) {
			names = append(names, p.placeholder)
		}
	}
	return names
}

// ResolveError says why a template could not be filled in.
type ResolveError struct {
	// Template is the template as written.
	Template string
	// Placeholder is the name in braces that could not be filled in; "" if the result as a whole is at fault.
	Placeholder string
	// Problem is what is wrong with it.
	Problem string
	// Remedy is what to do about it.
	Remedy string
}

func (e *ResolveError) Error() string {
	if e.Placeholder == "" {
		return fmt.Sprintf("the template %s cannot be filled in: %s; %s", strconv.Quote(e.Template), e.Problem, e.Remedy)
	}
	return fmt.Sprintf("the template %s cannot be filled in: {%s} %s; %s", strconv.Quote(e.Template), e.Placeholder, e.Problem, e.Remedy)
}

// resourcePlaceholder is the one placeholder of an effect template that is not an argument.
const resourcePlaceholder = "resource"

// ResolveEffect fills the template in from the arguments of p, and {resource} from its resource. A placeholder stands for a
// non-empty string or an integer; anything else, or nothing, is a *ResolveError, because a key made of a missing part would
// name many effects at once. {resource} together with an argument of that name is one too: either could be meant.
func (t Template) ResolveEffect(p Proposal) (string, error) {
	return t.resolve(func(name string) (string, string, string) {
		argument, present := p.Arguments[name]
		if name != resourcePlaceholder {
			return lookup(argument, present)
		}
		switch {
		case present:
			return "", "could be the action's resource or the argument of that name", "rename the argument"
		case p.Resource == nil:
			return "", "is null: the action has no resource", "propose the action with a resource"
		}
		return *p.Resource, "", ""
	})
}

// ResolveResource fills the template in from arguments alone, before there is an action; {resource} is an argument like any
// other here. The rules for values are those of ResolveEffect.
func (t Template) ResolveResource(arguments map[string]any) (string, error) {
	return t.resolve(func(name string) (string, string, string) {
		argument, present := arguments[name]
		return lookup(argument, present)
	})
}

func lookup(argument any, present bool) (value, problem, remedy string) {
	if !present {
		return "", "names an argument that the action does not have", "propose the action with this argument"
	}
	switch x := argument.(type) {
	case string:
		if x != "" {
			return x, "", ""
		}
	case *big.Int:
		if x != nil {
			return x.String(), "", ""
		}
	case int:
		return strconv.Itoa(x), "", ""
	case int64:
		return strconv.FormatInt(x, 10), "", ""
	case uint64:
		return strconv.FormatUint(x, 10), "", ""
	}
	return "", "is " + describe(argument), "give this argument a non-empty string or an integer"
}

func (t Template) resolve(find func(name string) (value, problem, remedy string)) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.placeholder == "" {
			b.WriteString(p.literal)
			continue
		}
		value, problem, remedy := find(p.placeholder)
		if problem != "" {
			return "", &ResolveError{Template: t.text, Placeholder: p.placeholder, Problem: problem, Remedy: remedy}
		}
		b.WriteString(value)
	}
	out := b.String()
	if n := utf8.RuneCountInString(out); n > MaxResolvedLength {
		return "", &ResolveError{
			Template: t.text,
			Problem:  fmt.Sprintf("the result has %d characters, and %d are the limit", n, MaxResolvedLength),
			Remedy:   "use shorter identifiers",
		}
	}
	return out, nil
}
