package guarantees

import (
	"fmt"
	"slices"
	"strings"
)

// Catalogue names the list of guarantees. Adding one changes what "all pass" means, so it gives the list another name.
const Catalogue = "ctrlrun.dev/guarantees/v1alpha4"

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
	G8  ID = "G8"
	G9  ID = "G9"
	G10 ID = "G10"
	G11 ID = "G11"
	G12 ID = "G12"
	G13 ID = "G13"
	G14 ID = "G14"
	G15 ID = "G15"
	G16 ID = "G16"
	G17 ID = "G17"
	G18 ID = "G18"
	G19 ID = "G19"
	G20 ID = "G20"
	G21 ID = "G21"
)

// Guarantee is one promise, in words for people.
type Guarantee struct {
	ID ID
	// Title is how reports call it.
	Title string
	// Invariant is what holds.
	Invariant string
	// Control is what has to work for the refusals to mean anything. "": nothing of it can be driven from outside, and it is
	// never applicable.
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
		{G8, "expired authority refused", "a grant that has expired lets nobody propose", "until then it lets its subject propose"},
		{G9, "delegation cannot escalate", "nobody hands on more than they were granted", "a delegation that is narrower in everything is accepted, and its agent proposes by it"},
		{G10, "unknown exception is ambiguous", "only a stated \"not executed\" is a failure", "a stated \"not executed\" is one"},
		{G11, "altered receipt detected", "a receipt that was altered is found and named, and the API alters and deletes none", "the chain as it was written is intact"},
		{G12, "lost transport is ambiguous", "a request that was written and never answered is no failure", ""},
		{G13, "clock divergence is named", "a clock that is too far off decides nothing, and is named", ""},
		{G14, "token changes across renewal", "each attempt at an effect has a token of its own", "within one attempt it is read the same everywhere"},
		{G15, "renewal past ceiling refused", "an effect is attempted no more often than its policy says", "as often as that it is attempted"},
		{G16, "moved precondition refused", "nothing is executed when what people approved it on is not there any more", "while it is as it was, the action that was approved is executed"},
		{G17, "unentitled approver refused", "whoever may not approve, or not any more, is not counted", "somebody who may is counted"},
		{G18, "requester cannot approve", "nobody approves what they asked for", "another's yes is enough"},
		{G19, "same principal counts once", "one person is one approval, however often they say yes", "other people's yes is enough"},
		{G20, "revoked credential refused", "with a credential that was revoked nobody says anything", "until then what was said with it counts"},
		{G21, "unapproved policy change refused", "where policies change by proposals only, nobody changes them otherwise", "until the Settings say so, whoever may write a policy changes it"},
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
