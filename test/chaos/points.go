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

// writes are the named writes of the protocol. An operator is killed and stopped before and after each.
var writes = []string{
	proxy.PointPin, proxy.PointClaimable, proxy.PointWait, proxy.PointHold, proxy.PointAdmit, proxy.PointEnd, proxy.PointFinish, proxy.PointResolved,
	proxy.PointReserve, proxy.PointRenew, proxy.PointRelease, proxy.PointSettle, proxy.PointLost, proxy.PointNoteLate, proxy.PointResolve,
	proxy.PointLapse, proxy.PointAppend, proxy.PointAppendEvent,
}

// frequent are those that nearly every Action makes. The others are taken nearly as they come.
var frequent = []string{proxy.PointAdmit, proxy.PointFinish, proxy.PointReserve, proxy.PointSettle, proxy.PointAppend, proxy.PointPin, proxy.PointClaimable}

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

// crashes are what is still to be done to operators, and what was done.
type crashes struct {
	mu       sync.Mutex
	todo     []crash
	done     map[crash]int
	progress int // writes since the last one
}

func newCrashes(d dice) *crashes {
	c := &crashes{done: map[crash]int{}}
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
// nearly every Action makes leaves the turn to the others for longer, and what was done before for longer still.
const (
	progressForRare     = 3
	progressForFrequent = 12
	progressForAgain    = 40
)

// take is a crash for a write that an operator is about to make, if it is time for one: what was done least at this write.
func (c *crashes) take(point string) (crash, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, found := c.least(point)
	if !found {
		return crash{}, false
	}
	c.progress++
	need := progressForRare
	switch {
	case c.done[x] > 0:
		need = progressForAgain
	case slices.Contains(frequent, point):
		need = progressForFrequent
	}
	if c.progress < need {
		return crash{}, false
	}
	c.done[x]++
	c.progress = 0
	return x, true
}

// least is what was done least at a write.
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
	return slices.MinFunc(of, func(a, b crash) int { return cmp.Compare(c.done[a], c.done[b]) }), true
}

// Coverage is how often operators were killed and stopped at one write.
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

// total is how often an operator was killed or stopped there.
func (c Coverage) total() int { return c.KilledBefore + c.KilledAfter + c.StopBefore + c.StopAfter }

func printCoverage(to io.Writer, all []Coverage) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "write\tsent\tkilled before\tkilled after\tstopped before\tstopped after")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", c.Point, c.Made, c.KilledBefore, c.KilledAfter, c.StopBefore, c.StopAfter)
	}
	return w.Flush()
}
