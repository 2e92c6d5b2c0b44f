package explore

import "testing"

// A set knows what was added, also after it grew, and the zero digest.
func TestSet(t *testing.T) {
	s := newSet()
	const n = 20000
	key := func(i int32) (d digest) {
		if i > 0 {
			d.add(i)
		}
		return d
	}
	for round := range 2 {
		for i := range int32(n) {
			if isNew := s.add(key(i)); isNew != (round == 0) {
				t.Fatalf("round %d: adding %d reports %t", round, i, isNew)
			}
		}
	}
	if s.n != n {
		t.Errorf("%d are in it, want %d", s.n, n)
	}
}

// Each field of a state is part of its hash, and so is its place.
func TestHashIsOfEveryField(t *testing.T) {
	base := origin()
	seen := map[digest]string{base.hash(): "nothing"}
	for name, change := range map[string]func(*state){
		"clock": func(s *state) { s.clock++ }, "ticks": func(s *state) { s.ticks++ }, "since": func(s *state) { s.since++ },
		"admission": func(s *state) { s.admission++ }, "rules": func(s *state) { s.rules++ }, "dropped": func(s *state) { s.dropped++ },
		"deleted": func(s *state) { s.deleted++ }, "unvouched": func(s *state) { s.unvouched++ }, "right": func(s *state) { s.right++ }, "chain": func(s *state) { s.chain++ },
		"first action": func(s *state) { s.actions[0]++ }, "last action": func(s *state) { s.actions[maxActions-1]++ },
		"fate": func(s *state) { s.fate[1]++ }, "effect": func(s *state) { s.effects[1]++ }, "answer": func(s *state) { s.answers[2]++ },
		"claim": func(s *state) { s.claims[3]++ }, "outcome": func(s *state) { s.outcomes[1]++ }, "late": func(s *state) { s.lates[1]++ },
		"process": func(s *state) { s.processes[1]++ }, "worker": func(s *state) { s.workers[0]++ }, "other worker": func(s *state) { s.workers[1]++ },
		"resolution": func(s *state) { s.resolutions[0]++ }, "verdict": func(s *state) { s.judged[0]++ }, "pass": func(s *state) { s.passes[0]++ },
	} {
		s := base
		change(&s)
		if other, ok := seen[s.hash()]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[s.hash()] = name
	}
}

// Passes are a set: in whatever order they are added, the state is the same.
func TestPassesHaveNoOrder(t *testing.T) {
	a, b := origin(), origin()
	for i := range int32(3) {
		a.add(i + 1)
		b.add(3 - i)
	}
	if a != b || a.add(4) {
		t.Errorf("%v and %v", a.passes, b.passes)
	}
	if a = a.without(1); a.passes != [maxPasses]int32{3, 1, 0} {
		t.Errorf("without the second: %v", a.passes)
	}
}

// An object that goes to and fro has finitely many versions, and a guarded write never lands on a value it had before but
// after something new.
func TestVersions(t *testing.T) {
	v := newVersions()
	first := v.next(0, 7)
	second := v.next(first, 8)
	third := v.next(second, 7)
	fourth := v.next(third, 8)
	if third == first || fourth == second {
		t.Error("a value that came again is taken for the first")
	}
	if fifth := v.next(fourth, 7); fifth != third {
		t.Error("it has ever new versions")
	}
	if got := v.seen(third); len(got) != 2 || got[0] != third || v.get(got[1]).value != 8 {
		t.Errorf("a cache may show %v", got)
	}
	if v.alone(third) != first {
		t.Error("alone, it is as it was first")
	}
}
