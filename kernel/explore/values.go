package explore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ctrlrun.dev/operator/kernel/receipt"
)

// start is when every scenario begins. States count milliseconds from there.
var start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func at(ms int32) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func since(t time.Time) int32 { return int32(t.Sub(start) / time.Millisecond) }

// table numbers values, from 1. They are never changed.
type table[T any] struct {
	ids map[digest]int32 // of its JSON
	all []*T
	// broken is told of a value that has no JSON. It gets a number of its own.
	broken func(error)
}

func newTable[T any](broken func(error)) table[T] {
	return table[T]{ids: map[digest]int32{}, broken: broken}
}

func (t *table[T]) id(v T) int32 {
	key, err := json.Marshal(v)
	if err != nil {
		t.broken(err)
		t.all = append(t.all, &v)
		return int32(len(t.all))
	}
	d := digest{0x452821E638D01377, 0xBE5466CF34E90C6C}
	for len(key) >= 4 {
		d.add(int32(key[0]) | int32(key[1])<<8 | int32(key[2])<<16 | int32(key[3])<<24)
		key = key[4:]
	}
	for _, b := range key {
		d.add(int32(b) | 1<<8)
	}
	if id, ok := t.ids[d]; ok {
		return id
	}
	t.all = append(t.all, &v)
	id := int32(len(t.all))
	t.ids[d] = id
	return id
}

func (t *table[T]) get(id int32) *T { return t.all[id-1] }

// index numbers comparable values, from 1.
type index[T comparable] struct {
	ids map[T]int32
	all []T
}

func newIndex[T comparable]() index[T] { return index[T]{ids: map[T]int32{}} }

func (t *index[T]) id(v T) int32 {
	if id, ok := t.ids[v]; ok {
		return id
	}
	t.all = append(t.all, v)
	id := int32(len(t.all))
	t.ids[v] = id
	return id
}

func (t *index[T]) get(id int32) T { return t.all[id-1] }

// version is the present value of an object, with the set of values it had before, which caches may still show. Its number
// is what a guarded write is guarded by. Where an object has the same value again and nothing new was between, it has the
// same number: a write lands there that the apiserver would refuse. That is more than can happen, never less, and keeps
// objects that go to and fro from having ever new histories.
type version struct{ earlier, value int32 }

// versions numbers versions, from 1; 0 is an object that never was.
type versions struct {
	index[version]
	sets  map[string]int32
	lists [][]int32 // ascending
}

func newVersions() versions {
	return versions{index: newIndex[version](), sets: map[string]int32{"": 0}, lists: [][]int32{nil}}
}

// next is the version after v, with that value.
func (t *versions) next(v, value int32) int32 {
	if v == 0 {
		return t.id(version{0, value})
	}
	now := t.get(v)
	at, known := slices.BinarySearch(t.lists[now.earlier], now.value)
	if known {
		return t.id(version{now.earlier, value})
	}
	list := slices.Insert(slices.Clone(t.lists[now.earlier]), at, now.value)
	key := fmt.Sprint(list)
	set, ok := t.sets[key]
	if !ok {
		t.lists = append(t.lists, list)
		set = int32(len(t.lists) - 1)
		t.sets[key] = set
	}
	return t.id(version{set, value})
}

// alone is the version without those before it.
func (t *versions) alone(v int32) int32 {
	if v == 0 {
		return 0
	}
	return t.id(version{0, t.get(v).value})
}

// seen are the versions that a cache may show: v, and every earlier value.
func (t *versions) seen(v int32) []int32 {
	out := []int32{v}
	now := t.get(v)
	for _, value := range t.lists[now.earlier] {
		if value != now.value {
			out = append(out, t.id(version{0, value}))
		}
	}
	return out
}

// chained is a chain that ends with this receipt.
type chained struct {
	before   int32
	entry    receipt.Entry
	document receipt.Document
}

// chains numbers chains, from 1; 0 is the empty one.
type chains struct {
	ids  map[string]int32 // by the document, which holds the hash of the one before
	link map[receipt.Link]int32
	all  []chained
}

func newChains() chains {
	return chains{ids: map[string]int32{}, link: map[receipt.Link]int32{receipt.Start(): 0}}
}

func (c *chains) get(id int32) *chained { return &c.all[id-1] }

func (c *chains) length(id int32) int64 {
	if id == 0 {
		return 0
	}
	return c.get(id).entry.Seq
}

func (c *chains) head(id int32) receipt.Link {
	if id == 0 {
		return receipt.Start()
	}
	return c.get(id).entry.Link()
}

func (c *chains) append(before int32, entry receipt.Entry, document receipt.Document) int32 {
	if id, ok := c.ids[entry.Document]; ok {
		return id
	}
	c.all = append(c.all, chained{before, entry, document})
	id := int32(len(c.all))
	c.ids[entry.Document], c.link[entry.Link()] = id, id
	return id
}

// find is the receipt of an identity after a floor, 0 if there is none.
func (c *chains) find(id int32, identity receipt.Identity, floor int64) (found int32) {
	for ; id != 0 && c.get(id).entry.Seq > floor; id = c.get(id).before {
		if c.get(id).document.Identity() == identity {
			found = id
		}
	}
	return found
}
