package explore

import (
	"fmt"

	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// patience is how often a recovery may look at everything.
const patience = 60

// recover is I9: whatever is on its way is lost, no agent lives, admission is there, one operator reads everything anew, and
// the clock goes on as long as anybody waits for it. Then everything has to be at rest. It is done from every state; most
// have their recovery in common with others.
func (x *explorer) recover(s state) {
	s = x.calm(s)
	var way []digest
	for range patience {
		key := s.hash()
		if x.rests[key] {
			break
		}
		way = append(way, key)
		before, due := s, int32(0)
		for i, v := range s.actions {
			if v != 0 && s.fate[i] == present {
				s = x.freshly(s, int8(i+1), &due)
			}
		}
		for i, v := range s.effects {
			if v != 0 {
				s = x.freshly(s, -int8(i+1), &due)
			}
		}
		s = x.calm(s)
		if x.violation != nil {
			return
		}
		if s != before {
			continue
		}
		if due == 0 {
			x.checkAtRest(&s)
			if x.violation != nil {
				return
			}
			break
		}
		s.clock = due + 1000
	}
	if len(way) == patience {
		x.fail(invariantRest, "it goes on for ever")
		return
	}
	for _, key := range way {
		x.rests[key] = true
	}
}

// calm is the state in which nobody but one operator does anything, and of which no cache remembers an earlier one.
func (x *explorer) calm(s state) state {
	s.passes = [maxPasses]int32{}
	s.ticks = int32(len(x.Ticks))
	for i, did := range s.processes {
		if x.action(s.actions[i/perAction]) != nil {
			s.processes[i] = did | done
		}
	}
	for i, v := range s.actions {
		if v != 0 {
			s.actions[i] = x.versions.alone(v)
		}
	}
	for i, v := range s.effects {
		if v != 0 {
			s.effects[i] = x.versions.alone(v)
		}
	}
	if s.admission == away {
		s.admission, s.since, s.clock = back, s.clock, s.clock+1000
	}
	return s
}

// freshly runs a pass that sees everything as it is, and is answered.
func (x *explorer) freshly(s state, subject int8, due *int32) state {
	p := x.current(&s, subject)
	if p == nil {
		return s
	}
	for range longest {
		st := x.steps.get(x.next(&s, p))
		if st.broken != "" {
			x.fail(st.broken, "%s", st.detail)
		}
		if x.violation != nil {
			return s
		}
		switch st.kind {
		case waits:
			if st.until != 0 && (*due == 0 || st.until < *due) {
				*due = st.until
			}
			return s
		case reads:
			*p = x.read(&s, *p, &st)
		default:
			if !x.lands(&s, &st) {
				*p = x.refused(&s, *p, &st)
				continue
			}
			if x.recording {
				x.story = append(x.story, fmt.Sprintf("   %s  %s", at(s.clock).Format("15:04:05"), x.describe(p, &st)))
			}
			s = x.land(s, p, &st)
			*p = x.accepted(&s, *p, &st)
		}
		x.check(&s)
	}
	x.fail(invariantRest, "a pass over %d does not come to an end", subject)
	return s
}

// current is a pass that begins with everything as it is; nil if there is nothing to do.
func (x *explorer) current(s *state, subject int8) *pass {
	p := pass{subject: subject, rules: s.rules}
	if subject > 0 {
		i := int(subject - 1)
		a := x.action(s.actions[i])
		if a.Finished() {
			return nil
		}
		p.action, p.answered, p.claimed = seen{flow.Cached, s.actions[i]}, flow.Cached, flow.Cached
		for k, id := range s.answers {
			if id > 0 && x.answers.get(id).ActionUID == a.UID {
				p.answers[k] = id
			}
		}
		for k := range claimsOf {
			p.claims[k] = max(0, s.claims[i*claimsOf+k])
			p.withdrew[k] = p.claims[k] > 0 && k < perAction && s.outcomes[i*perAction+k] > 0
		}
		if l := x.lockOf(p); l >= 0 {
			if s.outcomes[l] > 0 {
				p.locked, p.lock = flow.Cached, s.outcomes[l]
			}
			p.late = max(0, s.lates[l])
		}
		if a.Effect != nil {
			place := x.place(a.Effect.Name)
			if v := s.effects[place-1]; v != 0 {
				p.record, p.effect = place, seen{flow.Cached, v}
			}
		}
	} else {
		p.record, p.effect = -subject, seen{flow.Cached, s.effects[-subject-1]}
		for k, id := range s.resolutions {
			if id > 0 {
				p.resolutions[k], p.judged[k], p.told[k] = id, min(1, s.judged[k]), s.told[k]
			}
		}
		if h := x.holderOf(p.effect.version); h != 0 {
			for k := range perAction {
				p.late = max(p.late, s.lates[int(h-1)*perAction+k])
			}
		}
	}
	if h := x.holderOf(p.effect.version); h != 0 && s.fate[h-1] == present && !x.action(s.actions[h-1]).Finished() {
		p.holder, p.held = seen{flow.Cached, s.actions[h-1]}, h
	}
	return &p
}

func (x *explorer) checkAtRest(s *state) {
	for i, v := range s.actions {
		if a := x.action(v); a != nil && s.fate[i] == present && !a.Finished() {
			x.fail(invariantRest, "%s stays %s (%s: %s)", a.Name, a.State, a.Reason, a.Message)
		}
	}
	for _, v := range s.effects {
		r := x.record(v)
		switch {
		case r == nil:
		case r.Status == nil:
			x.fail(invariantRest, "the record of %s stays without status", r.Key)
		case r.Status.State == effect.Reserved, r.Status.State == effect.Executing:
			x.fail(invariantRest, "%s stays %s, held by %s", r.Key, r.Status.State, r.Status.HolderName())
		case r.Status.Resolution != nil:
			id := receipt.Identity{Kind: receipt.KindResolution, SubjectUID: r.UID, Ordinal: r.Status.Attempt}
			c := x.chains.find(s.chain, id, 0)
			if c == 0 || x.chains.get(c).document.ResolutionUID != r.Status.Resolution.UID {
				x.fail(invariantRest, "the resolution %s of attempt %d of %s has no receipt", r.Status.Resolution.Name, r.Status.Attempt, r.Key)
			}
		}
	}
	for k, id := range s.resolutions {
		if id > 0 && s.judged[k] == 0 && (s.told[k] == 0 || x.settleable(s, k)) {
			x.fail(invariantRest, "%s has no verdict", x.resolutions.get(id).Name)
		}
	}
}

// settleable reports whether a resolution without a verdict is to have one: its effect is settled, or as many different people as
// have to say the same have said what it says, and none of them has taken it back.
func (x *explorer) settleable(s *state, k int) bool {
	r, back := x.resolutions.get(s.resolutions[k]), x.takenBack(s)
	for _, v := range s.effects {
		e := x.record(v)
		if e == nil || e.UID != r.EffectUID || e.Status == nil {
			continue
		}
		people := map[string]bool{}
		for l, id := range s.resolutions {
			if id > 0 && s.judged[l] != accepts && !back[l] && x.Resolutions[l].Wrong == "" {
				if other := x.resolutions.get(id); other.EffectUID == r.EffectUID && other.Attempt == r.Attempt && other.State == r.State {
					people[x.person(other.Resolver)] = true
				}
			}
		}
		need := max(1, e.Status.ResolutionsRequired, x.policies[s.rules].Resolutions)
		return e.Status.State != effect.Ambiguous || e.Status.Attempt != r.Attempt || len(people) >= need
	}
	return true
}
