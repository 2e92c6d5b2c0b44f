package explore

// set is a set of digests: open addressing, 16 bytes for each place, at most three quarters of them taken.
type set struct {
	slots []digest
	n     int
}

func newSet() *set { return &set{slots: make([]digest, 1<<12)} }

// add reports whether d is new.
func (s *set) add(d digest) bool {
	if d == (digest{}) {
		d[0] = 1
	}
	if 4*s.n >= 3*len(s.slots) {
		old := s.slots
		s.slots, s.n = make([]digest, 2*len(old)), 0
		for _, d := range old {
			if d != (digest{}) {
				s.add(d)
			}
		}
	}
	mask := uint64(len(s.slots) - 1)
	for i := (d[0] ^ d[1]>>7) & mask; ; i = (i + 1) & mask {
		switch s.slots[i] {
		case d:
			return false
		case digest{}:
			s.slots[i], s.n = d, s.n+1
			return true
		}
	}
}
