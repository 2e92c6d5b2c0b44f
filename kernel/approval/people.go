package approval

import (
	"slices"
	"strings"
)

// People says which user names belong to one person: somebody with a personal and an administrator's account does not become
// two. In the zero value, and in nil, every name is a person of its own.
type People struct {
	person map[string]string
	key    string
}

// NewPeople takes lists of names, each of one person. Lists that share a name are of the same person.
func NewPeople(aliases [][]string) *People {
	p := &People{person: map[string]string{}}
	for _, names := range aliases {
		for _, name := range names {
			p.unite(names[0], name)
		}
	}
	lines := make([]string, 0, len(p.person))
	for name := range p.person {
		p.person[name] = p.Person(name)
		lines = append(lines, p.person[name]+"\x00"+name)
	}
	slices.Sort(lines)
	p.key = strings.Join(lines, "\x01")
	return p
}

// unite makes one person of two; it is named by the first of its names, so that the order of the lists does not matter.
func (p *People) unite(a, b string) {
	a, b = p.Person(a), p.Person(b)
	first, other := min(a, b), max(a, b)
	p.person[first], p.person[other] = first, first
}

// Person is the one name that stands for whoever has that name.
func (p *People) Person(name string) string {
	if p == nil {
		return name
	}
	for {
		next, known := p.person[name]
		if !known || next == name {
			return name
		}
		name = next
	}
}

// Same reports whether two names belong to one person.
func (p *People) Same(a, b string) bool { return p.Person(a) == p.Person(b) }

// Key is the same for the same people, however they were written down.
func (p *People) Key() string {
	if p == nil {
		return ""
	}
	return p.key
}

// Aliases are the names of each person who has several, in one way of writing.
func (p *People) Aliases() [][]string {
	if p == nil {
		return nil
	}
	of := map[string][]string{}
	for name := range p.person {
		of[p.Person(name)] = append(of[p.Person(name)], name)
	}
	var out [][]string
	for _, names := range of {
		if len(names) > 1 {
			out = append(out, slices.Sorted(slices.Values(names)))
		}
	}
	slices.SortFunc(out, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return out
}
