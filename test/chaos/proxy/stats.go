package proxy

import (
	"cmp"
	"slices"
	"sync"
)

// Count says how often something happened at a point.
type Count struct {
	// Kind of fault; empty for the requests themselves, with and without a fault.
	Kind  Kind
	Point string
	N     int
}

type stats struct {
	mu     sync.Mutex
	counts map[Count]int // by Count with N 0
	sent   map[sender]int
}

type sender struct{ client, point string }

func newStats() *stats { return &stats{counts: map[Count]int{}, sent: map[sender]int{}} }

func (s *stats) add(kind Kind, point string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[Count{Kind: kind, Point: point}]++
}

// number counts a request and says how many of its point the client has sent.
func (s *stats) number(r Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[Count{Point: r.Point}]++
	by := sender{r.Client, r.Point}
	s.sent[by]++
	return s.sent[by]
}

func (s *stats) all() []Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Count, 0, len(s.counts))
	for c, n := range s.counts {
		c.N = n
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Point, b.Point)) })
	return all
}
