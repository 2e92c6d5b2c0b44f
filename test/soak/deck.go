package main

import (
	"math/rand/v2"
	"sync"
)

// kind is what the harness does to one execution.
type kind string

// The kinds of the mix.
const (
	clean            kind = "clean"
	executorTimeout  kind = "executor timeout"
	unknownException kind = "unknown exception"
	notExecuted      kind = "not executed"
	leaseLapse       kind = "lease lapse"
)

// kinds in the order of the table.
func kinds() []kind {
	return []kind{clean, executorTimeout, unknownException, notExecuted, leaseLapse}
}

// path is how an action gets its decision.
type path string

const (
	allowed  path = "allow"
	approved path = "approve"
)

// card says what becomes of one action.
type card struct {
	kind kind
	path path
	// reaches says whether the remote does what it is asked before the execution goes wrong: nobody can tell from outside.
	reaches bool
}

// share is how many of a hundred executions are of each kind.
var share = map[kind]int{clean: 70, executorTimeout: 10, unknownException: 10, notExecuted: 8, leaseLapse: 2}

const (
	// copies is how many of each hundred a deck has: as many as the ways in which one kind is dealt.
	copies = 5
	// asked of these copies go by the approve path.
	asked = 1
)

// deck deals cards in an order of its seed. It holds the shares of the mix exactly, so that a short run has all of them, and is
// shuffled again whenever it is used up.
type deck struct {
	mu     sync.Mutex
	random *rand.Rand
	cards  []card
	next   int
}

func newDeck(seed uint64) *deck {
	d := &deck{random: rand.New(rand.NewPCG(seed, 0))}
	for _, k := range kinds() {
		for i := range share[k] * copies {
			c := card{kind: k, path: allowed, reaches: i%2 == 0}
			if i%copies < asked {
				c.path = approved
			}
			d.cards = append(d.cards, c)
		}
	}
	d.next = len(d.cards)
	return d
}

// deal gives the next card. It is safe for concurrent use.
func (d *deck) deal() card {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == len(d.cards) {
		d.random.Shuffle(len(d.cards), func(i, j int) { d.cards[i], d.cards[j] = d.cards[j], d.cards[i] })
		d.next = 0
	}
	c := d.cards[d.next]
	d.next++
	return c
}
