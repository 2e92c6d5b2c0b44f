package main

import "testing"

func TestDeckHoldsTheMix(t *testing.T) {
	d := newDeck(1)
	const decks = 3
	n := decks * len(d.cards)
	byKind, byPath, reached := map[kind]int{}, map[kind]int{}, map[kind]int{}
	for range n {
		c := d.deal()
		byKind[c.kind]++
		if c.path == approved {
			byPath[c.kind]++
		}
		if c.reaches {
			reached[c.kind]++
		}
	}
	total := 0
	for _, k := range kinds() {
		total += share[k]
		if got, want := byKind[k], n*share[k]/100; got != want {
			t.Errorf("%d of %d cards are %s, want %d", got, n, k, want)
		}
		if got, want := byPath[k], byKind[k]/5; got != want {
			t.Errorf("%d of %d %s go by the approve path, want %d", got, byKind[k], k, want)
		}
		if got := reached[k]; got < byKind[k]*2/5 || got > byKind[k]*3/5 {
			t.Errorf("the remote acts for %d of %d %s, want about half", got, byKind[k], k)
		}
	}
	if total != 100 {
		t.Errorf("the shares add up to %d", total)
	}
}

func TestDeckIsShuffledByItsSeed(t *testing.T) {
	first := func(seed uint64) (cards [100]card) {
		d := newDeck(seed)
		for i := range cards {
			cards[i] = d.deal()
		}
		return cards
	}
	if one, same := first(1), first(1); one != same {
		t.Error("one seed gives two orders")
	}
	if first(1) == first(2) {
		t.Error("two seeds give one order")
	}
}
