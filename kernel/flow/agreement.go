package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
)

// resolutionsOf is how many people have to say the same of an effect of that action, as the policies in force want it. Known is
// false where a policy that names it cannot be read, so that it may be more.
func resolutionsOf(w World, action string) (n int, known bool) {
	if w.Policies == nil {
		return 1, true
	}
	return w.Policies.Resolutions(action)
}

// resolutionsRequired is how many people have to say the same of an ambiguous record: as many as were pinned with its attempt, or
// as the policies in force want, whichever is more. To lower the number in the policy makes nothing easier that was attempted
// before. Known is false where the policy names a number that nobody can read: it may be more.
func resolutionsRequired(w World, status *effect.Status) (n int, known bool) {
	n, known = resolutionsOf(w, status.ActionType)
	return max(n, status.ResolutionsRequired), known
}

// standing is a resolution that counts by itself, whatever others say.
type standing struct {
	Resolution
	quotedSeq int64
}

// resolve settles an ambiguous record once as many different people as are required say the same of it. Until then it stays
// Ambiguous, and none of them has a verdict: each is told what is missing.
func resolve(s Snapshot, record effect.Record) Step {
	required, known := resolutionsRequired(s.World, record.Status)
	var all []standing
	for _, r := range sortedResolutions(s.Resolutions) {
		if r.Judged {
			continue
		}
		if r.Attempt < record.Status.Attempt {
			if step := settledEarlier(s, record, r); step != nil {
				return step
			}
		}
		reason, message := judge(s, record, r)
		quoted := s.quoted(r.QuotedName)
		if reason == "" && quoted == nil {
			return Read{Object: TheQuoted, Name: r.QuotedName}
		}
		if reason == "" {
			reason, message = judgeQuoted(s, record, r, quoted.Entry)
		}
		if reason == "" && r.State != effect.Committed && r.State != effect.Failed {
			reason, message = "Mismatch", fmt.Sprintf("A resolution does not say %q.", r.State)
		}
		if reason == "" {
			reason, message = peopleRequired(record, r, required)
			if reason != "" && record.Status.Cause != effect.StatusMissing && held(s, decision.CachesStale) {
				return Wait{Why: string(decision.CachesStale)} // one may be enough by now
			}
		}
		if reason != "" {
			return refuse(s, r, reason, message)
		}
		all = append(all, standing{r, quoted.Entry.Seq})
		if known && required == 1 {
			break // whoever was first settles it
		}
	}
	switch {
	case len(all) == 0:
		return Wait{Why: "resolution"}
	case held(s, decision.CachesStale):
		// How many people are needed, and who is one of them, may be otherwise by now.
		return Wait{Why: string(decision.CachesStale)}
	case !known:
		return tell(all, "PolicyInvalid", func(standing) string {
			return fmt.Sprintf("Nobody can say how many people have to say the same: a policy that names %s is invalid, and its number cannot be read. Correct the policy.", orAnAction(record.Status.ActionType))
		})
	case required > 1:
		if step := onePersonOneWord(s, all); step != nil {
			return step
		}
	}
	agreed := agreement(all, required)
	if agreed == nil {
		return tell(all, "MorePeopleRequired", func(one standing) string { return missing(all, one, required) })
	}
	if required > 1 && !s.ResolutionsListed {
		// What one of them has said since may not be in the cache yet, and they may have said otherwise.
		return Read{Object: TheResolutions, Name: record.Name}
	}
	last := agreed[len(agreed)-1]
	resolution := effect.Resolution{
		Name: last.Name, UID: last.UID, Resolver: last.Resolver, State: last.State,
		QuotedSeq: last.quotedSeq, QuotedHash: last.QuotedHash, Reason: last.Reason, Evidence: last.Evidence, Observer: last.Observer,
	}
	if len(agreed) > 1 {
		for _, one := range agreed {
			resolution.Agreed = append(resolution.Agreed, effect.Agreement{
				Name: one.Name, UID: one.UID, Resolver: one.Resolver,
				QuotedSeq: one.quotedSeq, QuotedHash: one.QuotedHash, Reason: one.Reason, Evidence: one.Evidence,
			})
		}
	}
	next, err := record.Status.Resolve(resolution, s.Now)
	if err != nil {
		return Read{Object: TheEffect, Name: record.Name}
	}
	// A compare-and-set: of two people, or two operators, one settles it. The receipt follows, made from the record, and then the
	// verdicts; a renewal waits for the receipt.
	return WriteEffect{Name: record.Name, Key: record.Key, Status: next, Why: WhyResolve}
}

// peopleRequired says why what a program saw settles nothing: people were asked, more than one, and a look is nobody's word; or the
// record was lost, and what the program looked for, by attempt and token, is a guess.
func peopleRequired(record effect.Record, r Resolution, required int) (reason, message string) {
	switch {
	case r.Observer == "":
		return "", ""
	case record.Status.Cause == effect.StatusMissing:
		return "PeopleRequired", fmt.Sprintf("The program %s looked, but the record of this effect was lost, so attempt %d and its token are a guess. A person has to say what happened.", r.Observer, record.Status.Attempt)
	case required > 1:
		return "PeopleRequired", fmt.Sprintf("The program %s looked, but %d different people have to say the same of this effect, and it is none of them.", r.Observer, required)
	}
	return "", ""
}

// quoted is what was read of the receipt of that name, nil if nobody looked.
func (s Snapshot) quoted(name string) *QuotedRead {
	for i := range s.Quoted {
		if s.Quoted[i].Name == name {
			return &s.Quoted[i]
		}
	}
	return nil
}

// onePersonOneWord refuses what one person has said beside the one word of theirs that stands. Whoever says the same twice has
// said it once, by whatever name. Whoever says otherwise has taken back what they said before.
func onePersonOneWord(s Snapshot, all []standing) Step {
	// First by each name of a person alone, where their tries are numbered: clocks of apiservers may differ. Then among those names.
	if step := oneWord(s, all, func(one standing) string { return one.Resolver }, byTry); step != nil {
		return step
	}
	return oneWord(s, all, func(one standing) string { return s.World.People.Person(one.Resolver) }, inTurn)
}

func oneWord(s Snapshot, all []standing, speaker func(standing) string, turn func(a, b standing) int) Step {
	words := map[string]standing{}
	for _, one := range slices.SortedFunc(slices.Values(all), turn) {
		before, spoke := words[speaker(one)]
		switch {
		case !spoke:
			words[speaker(one)] = one
		case before.State == one.State:
			return refuse(s, one.Resolution, "DuplicateResolver", fmt.Sprintf("%s said the same already, by %s, and counts once. Somebody else has to.", before.Resolver, before.Name))
		default:
			return refuse(s, before.Resolution, "Superseded", fmt.Sprintf("%s has said otherwise since, by %s.", one.Resolver, one.Name))
		}
	}
	return nil
}

// inTurn is the order in which statements were made. Times of creation have whole seconds; a further try has a longer name.
func inTurn(a, b standing) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(len(a.Name), len(b.Name)), strings.Compare(a.Name, b.Name))
}

// byTry is the order in which one speaker made statements, by the numbers in their names.
func byTry(a, b standing) int {
	return cmp.Or(cmp.Compare(tryOf(a.Name), tryOf(b.Name)), inTurn(a, b))
}

// tryOf is the number of a try, as effect.attempt.speaker.try names it. The first has none.
func tryOf(name string) int {
	if parts := strings.Split(name, "."); len(parts) == 4 {
		if n, err := strconv.Atoi(parts[3]); err == nil {
			return n
		}
	}
	return 1
}

// agreement are as many statements as are required that say the same, the oldest; nil: there are not that many. All of them are
// of different people by now.
func agreement(all []standing, required int) []standing {
	said := map[effect.State][]standing{}
	for _, one := range all {
		if said[one.State] = append(said[one.State], one); len(said[one.State]) == required {
			return said[one.State]
		}
	}
	return nil
}

// tell is the step that tells the first who does not know yet what is missing, or waits for whatever changes it: another
// statement, the policy, or who is one person.
func tell(all []standing, reason string, message func(standing) string) Step {
	for _, one := range all {
		if m := message(one); one.Told != m {
			return Judge{Name: one.Name, UID: one.UID, Open: true, Reason: reason, Message: m}
		}
	}
	return Wait{Why: "resolution"}
}

// missing says how many people have said what this one says, and how many more have to.
func missing(all []standing, one standing, required int) string {
	same, other := 0, 0
	for _, x := range all {
		if x.State == one.State {
			same++
		} else {
			other++
		}
	}
	more := "Somebody else has"
	if required-same > 1 {
		more = fmt.Sprintf("%d more people have", required-same)
	}
	against := ""
	switch {
	case other == 1:
		against = fmt.Sprintf(" 1 says %s.", stated(otherState(one.State)))
	case other > 1:
		against = fmt.Sprintf(" %d say %s.", other, stated(otherState(one.State)))
	}
	return fmt.Sprintf("%d of %d people say %s.%s %s to say %s too before it is settled; until then the effect stays Ambiguous.",
		same, required, stated(one.State), against, more, stated(one.State))
}

func otherState(state effect.State) effect.State {
	if state == effect.Committed {
		return effect.Failed
	}
	return effect.Committed
}

// stated is the word that a Resolution has for a state.
func stated(state effect.State) string {
	if state == effect.Failed {
		return "NotExecuted"
	}
	return string(state)
}

func orAnAction(kind string) string {
	if kind == "" {
		return "an action here"
	}
	return fmt.Sprintf("%q", kind)
}

// withOthers says with whom a resolution settled an attempt.
func withOthers(by *effect.Resolution, r Resolution) string {
	var others []string
	for _, a := range by.Agreed {
		if a.UID != r.UID {
			others = append(others, a.Resolver)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return ", together with " + listed(others)
}

// inShort names whoever settled an attempt where there is little room.
func inShort(by *effect.Resolution) string {
	const room = 256
	if names := listed(by.By()); len(names) <= room {
		return names
	}
	if len(by.Agreed) == 0 {
		return by.By()[0]
	}
	return fmt.Sprintf("%s and %d more", by.Resolver, len(by.Agreed)-1)
}

// listed is names, for people.
func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
