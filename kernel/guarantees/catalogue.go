package guarantees

import (
	"fmt"
	"slices"
	"strings"
)

// Catalogue names the list of guarantees. Adding one changes what "all pass" means, so it gives the list another name.
const Catalogue = "ctrlrun.dev/guarantees/v1alpha1"

// ID names a guarantee for good: numbers are never used again.
type ID string

// The guarantees.
const (
	G1  ID = "G1"
	G2  ID = "G2"
	G3  ID = "G3"
	G4  ID = "G4"
	G5  ID = "G5"
	G6  ID = "G6"
	G7  ID = "G7"
	G10 ID = "G10"
	G11 ID = "G11"
)

// Guarantee is one promise, in words for people.
type Guarantee struct {
	ID ID
	// Title is how reports call it.
	Title string
	// Invariant is what holds.
	Invariant string
	// Control is what has to work for the refusals to mean anything.
	Control string
}

// All are the guarantees in the order in which they are checked and reported.
func All() []Guarantee {
	return []Guarantee{
		{G1, "mutated approval refused", "an approval of one content is never spent on another", "the action that was approved is executed"},
		{G2, "replayed approval refused", "an approval is spent once", "its first use is executed"},
		{G3, "duplicate effect refused", "an effect that is committed is not executed again", "its first attempt is committed"},
		{G4, "one winner under concurrency", "of many processes that ask for one effect at once, one executes it", "as many processes with a key each all commit"},
		{G5, "ambiguous blocks a blind retry", "while nobody knows whether an effect happened, it is not tried again", "after a stated \"not executed\" the retry is admitted and executed"},
		{G6, "unknown action refused", "what no policy names is denied", "an action that the policy names is not unknown"},
		{G7, "no principal refused", "nobody proposes in another's name, or in none", "the same proposal in the agent's own name is executed"},
		{G10, "unknown exception is ambiguous", "only a stated \"not executed\" is a failure", "a stated \"not executed\" is one"},
		{G11, "altered receipt detected", "a receipt that was altered is found and named, and the API alters and deletes none", "the chain as it was written is intact"},
	}
}

// Select are the guarantees that only names, or all of them if it names none. An unknown one is an error that lists those there
// are.
func Select(only []string) (map[ID]bool, error) {
	selected := map[ID]bool{}
	for _, name := range only {
		at := slices.IndexFunc(All(), func(g Guarantee) bool { return string(g.ID) == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no guarantee %q: the catalogue %s has %s", name, Catalogue, strings.Join(ids(), ", "))
		}
		selected[ID(name)] = true
	}
	if len(selected) == 0 {
		for _, g := range All() {
			selected[g.ID] = true
		}
	}
	return selected, nil
}

func ids() []string {
	var names []string
	for _, g := range All() {
		names = append(names, string(g.ID))
	}
	return names
}
