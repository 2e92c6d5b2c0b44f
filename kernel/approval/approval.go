// Package approval answers one question: does this answer of a person count for this action now?
//
// An approval names one action by uid, and binds to its type, its hash and its effect key. It is never presented with
// another action, so an admission, which happens at most once for an action, spends it.
package approval

import (
	"cmp"
	"slices"
	"time"
)

// Refusal is why an answer does not count; "" if it does. The words are those of the condition Accepted.
type Refusal string

const (
	Counts               Refusal = ""
	Mismatch             Refusal = "Mismatch"
	Expired              Refusal = "Expired"
	SelfApproval         Refusal = "SelfApproval"
	DuplicateApprover    Refusal = "DuplicateApprover"
	NotRequired          Refusal = "NotRequired"
	ActionFinished       Refusal = "ActionFinished"
	MadeWithoutAdmission Refusal = "MadeWithoutAdmission"
	NotEntitled          Refusal = "NotEntitled"
)

// Entitlement is whether an approver may approve that type of action, asked again when the approval is to be spent: the right
// may have been taken away since.
type Entitlement int

const (
	// Unchecked: nobody has asked since the approval was made.
	Unchecked Entitlement = iota
	// Entitled: the apiserver says yes, of the approver with the groups of that time.
	Entitled
	// Unentitled: it says no.
	Unentitled
)

// Answer is one person's yes or no.
type Answer struct {
	Name, UID  string
	ActionUID  string
	ActionType string
	Hash       string
	// Key is nil where the person was shown no effect key.
	Key      *string
	Approved bool
	Approver string
	Groups   []string
	Reason   string
	Created  time.Time
	// Entitlement is what the apiserver said of the approver in this pass.
	Entitlement Entitlement
	// RulesHash is of everything that decided in the namespace when the answer was accepted; "" if nobody has accepted it yet.
	RulesHash string
	// Accepted and Refused are the verdict it has, if it has one: that it counts, or the word why it does not.
	Accepted bool
	Refused  string
}

// Question is what people are asked about one action, as it is computed now.
type Question struct {
	ActionUID  string
	ActionType string
	Hash       string
	Key        *string
	// Agent and User asked; neither may answer.
	Agent string
	User  *string
	// Expiration is until when an answer counts; one given at that very moment still does.
	Expiration time.Time
	// AdmissionSince: whatever was created at that time or before may be forged.
	AdmissionSince time.Time
	Required       int
	// Groups are lists of groups; of each an approver is in one. Without any, whoever may approve is asked.
	Groups [][]string
	// People says which names are one person.
	People *People
}

// Judge says whether one answer counts by itself, whatever the others say.
func (q Question) Judge(a Answer) Refusal {
	switch {
	case a.ActionUID != q.ActionUID || a.ActionType != q.ActionType || a.Hash != q.Hash || !sameKey(a.Key, q.Key):
		return Mismatch
	case !a.Created.After(q.AdmissionSince):
		return MadeWithoutAdmission
	case a.Refused != "":
		return Refusal(a.Refused) // what somebody was told stands
	case a.Approver == "" || q.People.Same(a.Approver, q.Agent) || (q.User != nil && q.People.Same(a.Approver, *q.User)):
		return SelfApproval
	case a.Created.After(q.Expiration):
		return Expired
	case !q.asks(a.Groups), a.Entitlement == Unentitled:
		return NotEntitled
	}
	return Counts
}

// asks reports whether somebody in those groups is asked.
func (q Question) asks(groups []string) bool {
	for _, list := range q.Groups {
		if !slices.ContainsFunc(list, func(g string) bool { return slices.Contains(groups, g) }) {
			return false
		}
	}
	return true
}

// Tally is what the answers say together.
type Tally struct {
	// Denied is the first no that counts. One is enough.
	Denied *Answer
	// Approved are the answers that count, one per person, oldest first, at most as many as are required.
	Approved []Answer
	// Refusals are the verdicts by uid, of all answers.
	Refusals map[string]Refusal
}

// Sufficient reports whether the required number of different people said yes and nobody no.
func (t Tally) Sufficient(q Question) bool {
	return t.Denied == nil && len(t.Approved) >= max(q.Required, 1)
}

// Count judges all answers. Their order does not matter. One that was told that it counts comes before one that was not:
// times of creation have whole seconds, and nobody is to lose to somebody who came later in the same one.
func (q Question) Count(answers []Answer) Tally {
	told := func(a Answer) int {
		if a.Accepted {
			return 0
		}
		return 1
	}
	sorted := slices.SortedFunc(slices.Values(answers), func(a, b Answer) int {
		return cmp.Or(told(a)-told(b), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	t := Tally{Refusals: map[string]Refusal{}}
	seen := map[string]bool{}
	for _, a := range sorted {
		refusal := q.Judge(a)
		if refusal == Counts && a.Approved && seen[q.People.Person(a.Approver)] {
			refusal = DuplicateApprover
		}
		t.Refusals[a.UID] = refusal
		if refusal != Counts {
			continue
		}
		if !a.Approved {
			if t.Denied == nil {
				t.Denied = &a
			}
			continue
		}
		seen[q.People.Person(a.Approver)] = true
		if len(t.Approved) < max(q.Required, 1) {
			t.Approved = append(t.Approved, a)
		}
	}
	return t
}

func sameKey(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
