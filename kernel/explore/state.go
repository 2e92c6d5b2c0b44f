package explore

const (
	maxActions     = 3
	maxEffects     = 2
	maxAnswers     = 5
	perAction      = 2 // processes of the proposer
	claimsOf       = 3 // those of the processes, and a rival's or a forger's
	maxResolutions = 3
	maxPasses      = 3
)

// gone is the number of a statement that was deleted. None was made: 0.
const gone = -1

// What a process did.
const (
	started int32 = 1 << iota
	acted
	done
)

// How an action went, beside its versions.
const (
	present int32 = iota
	retired       // by the operator, when its time was over
	removed       // by hand, in a time without admission
)

// Admission.
const (
	inForce int32 = iota
	away
	back
)

// The right to approve.
const (
	had int32 = iota
	taken
	given
)

// state is everything there is, by numbers.
type state struct {
	clock, ticks int32
	since        int32 // admission, in milliseconds; what was created then or before does not count
	admission    int32
	rules        int32
	dropped      int32
	deleted      int32
	unvouched    int32 // bit n: the n-th action was proposed without admission
	right        int32 // of whom the scenario calls unentitled

	actions   [maxActions]int32 // versions
	fate      [maxActions]int32
	effects   [maxEffects]int32 // versions
	chain     int32
	answers   [maxAnswers]int32
	claims    [maxActions * claimsOf]int32
	outcomes  [maxActions * perAction]int32 // those that hold a lock
	lates     [maxActions * perAction]int32
	processes [maxActions * perAction]int32
	workers   [2]int32

	resolutions [maxResolutions]int32
	judged      [maxResolutions]int32
	told        [maxResolutions]int32

	// passes are those under way, in no order: larger numbers first, then 0.
	passes [maxPasses]int32
}

// digest is the hash by which a state is remembered.
type digest [2]uint64

func (d *digest) add(v int32) {
	d[0] = (d[0] ^ uint64(uint32(v))) * 0x9E3779B97F4A7C15
	d[0] ^= d[0] >> 29
	d[1] = (d[1] + uint64(uint32(v)) + 0x632BE59BD9B4E019) * 0xD6E8FEB86659FD93
	d[1] ^= d[1] >> 32
}

func (d *digest) addAll(list []int32) {
	for _, v := range list {
		d.add(v)
	}
}

func (s *state) hash() digest {
	d := s.worldHash()
	d.addAll(s.processes[:])
	d.addAll(s.passes[:])
	d.add(s.ticks)
	d.add(s.workers[0])
	d.add(s.workers[1])
	return d
}

// worldHash is of all that an operator can see, and what has been done to it.
func (s *state) worldHash() digest {
	d := digest{0x243F6A8885A308D3, 0x13198A2E03707344}
	for _, v := range [...]int32{s.clock, s.since, s.admission, s.rules, s.dropped, s.deleted, s.unvouched, s.right, s.chain} {
		d.add(v)
	}
	d.addAll(s.actions[:])
	d.addAll(s.fate[:])
	d.addAll(s.effects[:])
	d.addAll(s.answers[:])
	d.addAll(s.claims[:])
	d.addAll(s.outcomes[:])
	d.addAll(s.lates[:])
	d.addAll(s.resolutions[:])
	d.addAll(s.judged[:])
	d.addAll(s.told[:])
	return d
}

// add puts a pass among those under way. It reports whether there was room.
func (s *state) add(pass int32) bool {
	if s.passes[maxPasses-1] != 0 {
		return false
	}
	i := maxPasses - 1
	for ; i > 0 && s.passes[i-1] < pass; i-- {
		s.passes[i] = s.passes[i-1]
	}
	s.passes[i] = pass
	return true
}

// without is the state with the i-th pass over.
func (s state) without(i int) state {
	copy(s.passes[i:], s.passes[i+1:])
	s.passes[maxPasses-1] = 0
	return s
}

func (s *state) underWay() int {
	n := 0
	for n < maxPasses && s.passes[n] != 0 {
		n++
	}
	return n
}
