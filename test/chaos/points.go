package chaos

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"

	"ctrlrun.dev/operator/test/chaos/proxy"
)

// writes are the named writes of the protocol. In a long run an operator is killed and stopped before and after each.
var writes = []string{
	proxy.PointPin, proxy.PointClaimable, proxy.PointWait, proxy.PointHold, proxy.PointAdmit, proxy.PointEnd, proxy.PointFinish, proxy.PointResolved,
	proxy.PointReserve, proxy.PointRenew, proxy.PointRelease, proxy.PointSettle, proxy.PointLost, proxy.PointNoteLate, proxy.PointResolve,
	proxy.PointLapse, proxy.PointAppend, proxy.PointAppendEvent,
}

// frequent are those that nearly every Action makes. The others are taken nearly as they come.
var frequent = []string{proxy.PointAdmit, proxy.PointFinish, proxy.PointReserve, proxy.PointSettle, proxy.PointAppend, proxy.PointPin, proxy.PointClaimable}

// required are those at which something is done to an operator in every run, however short.
var required = []string{proxy.PointReserve, proxy.PointAdmit, proxy.PointSettle, proxy.PointAppend}

// when is on which side of a write something is done to the operator that makes it.
type when string

const (
	beforeWrite when = "before"
	afterWrite  when = "after"
)

// how is what is done to it.
type how string

const (
	kill how = "kill"
	stop how = "stop"
)

// crash is one way in which an operator ends, or stands still, at a write.
type crash struct {
	Point string `json:"point"`
	When  when   `json:"when"`
	How   how    `json:"how"`
}

// crashes are what is to be done to operators, and what was done.
type crashes struct {
	mu       sync.Mutex
	todo     []crash
	taken    map[crash]int // carried out, or about to be
	done     map[crash]int // carried out
	progress int           // writes since the last one
}

func newCrashes(d dice) *crashes {
	c := &crashes{taken: map[crash]int{}, done: map[crash]int{}}
	for _, point := range writes {
		for _, w := range []when{beforeWrite, afterWrite} {
			for _, h := range []how{kill, stop} {
				c.todo = append(c.todo, crash{point, w, h})
			}
		}
	}
	r := d.of("crashes")
	r.Shuffle(len(c.todo), func(i, j int) { c.todo[i], c.todo[j] = c.todo[j], c.todo[i] })
	return c
}

// Between two crashes operators must have got somewhere: so many writes were made, however slow the machine is. A write that
// nearly every Action makes leaves the turn to the others for longer once something was done at it, and what was done before
// for longer still.
const (
	progressForRare     = 3
	progressForFrequent = 12
	progressForAgain    = 40
)

// take is a crash for a write that an operator is about to make, if it is time for one: what was done least at this write.
// Whoever takes it says with carriedOut or missed what became of it.
func (c *crashes) take(point string) (crash, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, found := c.least(point)
	if !found {
		return crash{}, false
	}
	c.progress++
	if c.progress < c.need(x) || c.mustLeave(point) {
		return crash{}, false
	}
	c.taken[x]++
	c.progress = 0
	return x, true
}

func (c *crashes) need(x crash) int {
	switch {
	case c.taken[x] > 0:
		return progressForAgain
	case c.at(x.Point) > 0 && slices.Contains(frequent, x.Point):
		return progressForFrequent
	}
	return progressForRare
}

// mustLeave reports whether the turn is with those writes that no run may leave out.
func (c *crashes) mustLeave(point string) bool {
	return !slices.Contains(required, point) && slices.ContainsFunc(required, func(r string) bool { return c.at(r) == 0 })
}

// at is how much was taken at a write.
func (c *crashes) at(point string) (n int) {
	for x, times := range c.taken {
		if x.Point == point {
			n += times
		}
	}
	return n
}

// carriedOut: it was done.
func (c *crashes) carriedOut(x crash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[x]++
}

// missed: there was nothing to do it to, or nothing to do it after. It is the turn of this one again.
func (c *crashes) missed(x crash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[x]--
}

// least is what was taken least at a write.
func (c *crashes) least(point string) (crash, bool) {
	var of []crash
	for _, x := range c.todo {
		if x.Point == point {
			of = append(of, x)
		}
	}
	if len(of) == 0 {
		return crash{}, false
	}
	return slices.MinFunc(of, func(a, b crash) int { return cmp.Compare(c.taken[a], c.taken[b]) }), true
}

// Coverage is how often operators were killed and stopped at one write. "After" is so only if the write was made.
type Coverage struct {
	Point string `json:"point"`
	// Made is how often it was sent.
	Made         int `json:"made"`
	KilledBefore int `json:"killedBefore"`
	KilledAfter  int `json:"killedAfter"`
	StopBefore   int `json:"stoppedBefore"`
	StopAfter    int `json:"stoppedAfter"`
}

// coverage is what was done to operators, and how often each write was sent in all.
func (c *crashes) coverage(sent []proxy.Count) []Coverage {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := map[string]int{}
	for _, s := range sent {
		if s.Kind == "" {
			made[s.Point] = s.N
		}
	}
	var all []Coverage
	for _, p := range writes {
		all = append(all, Coverage{
			Point: p, Made: made[p], KilledBefore: c.done[crash{p, beforeWrite, kill}], KilledAfter: c.done[crash{p, afterWrite, kill}],
			StopBefore: c.done[crash{p, beforeWrite, stop}], StopAfter: c.done[crash{p, afterWrite, stop}],
		})
	}
	return all
}

// missing are the ways in which nothing was done to an operator there.
func (c Coverage) missing() []string {
	var none []string
	for _, way := range []struct {
		name  string
		times int
	}{{"killed before", c.KilledBefore}, {"killed after", c.KilledAfter}, {"stopped before", c.StopBefore}, {"stopped after", c.StopAfter}} {
		if way.times == 0 {
			none = append(none, way.name)
		}
	}
	return none
}

// ways is how many ways there are.
const ways = 4

func printCoverage(to io.Writer, all []Coverage) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "write\tsent\tkilled before\tkilled after\tstopped before\tstopped after")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", c.Point, c.Made, c.KilledBefore, c.KilledAfter, c.StopBefore, c.StopAfter)
	}
	return w.Flush()
}
