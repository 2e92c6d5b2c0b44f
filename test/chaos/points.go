package chaos

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"ctrlrun.dev/operator/test/chaos/proxy"
)

// writes are the named writes of the protocol. An operator is killed and stopped before and after each.
var writes = []string{
	proxy.PointPin, proxy.PointClaimable, proxy.PointWait, proxy.PointHold, proxy.PointAdmit, proxy.PointEnd, proxy.PointFinish, proxy.PointResolved,
	proxy.PointReserve, proxy.PointRenew, proxy.PointRelease, proxy.PointSettle, proxy.PointLost, proxy.PointNoteLate, proxy.PointResolve,
	proxy.PointLapse, proxy.PointAppend, proxy.PointAppendEvent,
}

// frequent are those that nearly every Action makes. They wait for their turn; the others are taken as they come.
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
	mu   sync.Mutex
	todo []crash
	done map[crash]int
	next time.Time
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

// pace leaves an operator the time to get somewhere between two crashes: it is what a write that nearly every Action makes
// waits for, besides rarePace. What was done before waits for slowPace.
const (
	rarePace = 500 * time.Millisecond
	pace     = 1500 * time.Millisecond
	slowPace = 4 * time.Second
)

// take is a crash for a write that an operator is about to make, if it is time for one. What was never done comes first, and
// at a rare write it does not wait; what was done before has its turn again when nothing else that could be is left.
func (c *crashes) take(point string) (crash, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	x, found := c.least(point)
	if !found || now.Before(c.next) {
		return crash{}, false
	}
	wait, again := time.Duration(0), c.done[x] > 0
	switch {
	case again:
		wait = slowPace
	case slices.Contains(frequent, point):
		wait = pace
	}
	if now.Before(c.next.Add(wait)) || again && c.missing(frequent...) {
		return crash{}, false
	}
	c.done[x]++
	c.next = now.Add(rarePace)
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

// missing reports whether one of the ways to crash at these points has not happened.
func (c *crashes) missing(points ...string) bool {
	return slices.ContainsFunc(c.todo, func(x crash) bool { return c.done[x] == 0 && slices.Contains(points, x.Point) })
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
