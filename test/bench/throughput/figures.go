package main

import (
	"fmt"
	"strings"
)

// conclude computes the figures that ranges are about. Most are ratios of two things measured in the same run: they say
// something on a machine that is faster or busier, too.
func (r *result) conclude() {
	r.Figures = map[string]map[string]spread{}
	for _, b := range r.Operators {
		r.Figures[b.Name] = r.figuresOf(b.Name)
	}
}

func (r *result) figuresOf(operator string) map[string]spread {
	values := map[string][]float64{}
	add := func(value float64, format string, args ...any) {
		name := fmt.Sprintf(format, args...)
		values[name] = append(values[name], value)
	}
	for _, b := range r.Blocks {
		if b.Operator != operator || b.Load == floorLoad {
			continue
		}
		if b.Existing > fresh {
			if empty, found := r.like(b, fresh); found {
				add(b.PerSecond/empty.PerSecond, "%s.to_fresh.%d.%d", b.Load, b.Existing, b.Clients)
			}
			continue
		}
		add(b.ToFloor, "%s.to_floor.%d", b.Load, b.Clients)
		add(b.AdmittedToFloor, "%s.admitted_to_floor.%d", b.Load, b.Clients)
		add(b.ProcessorToFloor, "%s.processor_to_floor.%d", b.Load, b.Clients)
		writes, reads, conflicts := b.Cost.ofOperator()
		add(writes, "%s.operator_writes.%d", b.Load, b.Clients)
		add(reads, "%s.operator_reads.%d", b.Load, b.Clients)
		add(conflicts, "%s.operator_conflicts.%d", b.Load, b.Clients)
	}
	for _, v := range r.Visits {
		if v.Operator == operator {
			add(v.Busy.Peak, "memory_mb.%d", v.Existing)
		}
	}
	for _, x := range r.Restarts {
		if x.Operator == operator {
			add(x.SettledSeconds, "restart_seconds.reported_%s.%d", x.Reported, x.InFlight)
		}
	}
	for _, t := range r.Kernel {
		add(float64(t.ProcessorNsPerOp)/1000, "kernel.%s_us", t.Name)
		add(float64(t.AllocsPerOp), "kernel.%s_allocs", t.Name)
	}
	figures := map[string]spread{}
	for name, all := range values {
		figures[name] = spreadOf(all)
	}
	return figures
}

func (r *result) leastExisting() int {
	if len(r.Blocks) == 0 {
		return 0
	}
	least := r.Blocks[0].Existing
	for _, b := range r.Blocks {
		least = min(least, b.Existing)
	}
	return least
}

// like is the block of the same repetition on another cluster.
func (r *result) like(b block, existing int) (block, bool) {
	for _, other := range r.Blocks {
		if other.Operator == b.Operator && other.Load == b.Load && other.Clients == b.Clients && other.Repetition == b.Repetition && other.Existing == existing {
			return other, true
		}
	}
	return block{}, false
}

// ofCluster is the processor time of everything but the clients.
func (c cost) ofCluster() float64 {
	return c.Processor["operator"] + c.Processor["kube-apiserver"] + c.Processor["etcd"]
}

// ofOperator counts the operator's requests about the objects of an action: writes that were stored, reads, and writes that
// were refused because somebody else's was faster (409). Refusals of other kinds are in the table of requests only. What it does by the clock has no part in it: rounds, leases, checkpoints.
func (c cost) ofOperator() (writes, reads, conflicts float64) {
	for text, n := range c.Requests[others] {
		words := strings.Fields(text)
		resource, _, _ := strings.Cut(words[1], "/")
		switch resource {
		case "actions", "effects", "approvals", "claims", "outcomes", "receipts", "events":
		default:
			continue
		}
		switch {
		case words[0] == "GET" || words[0] == "LIST":
			reads += n
		case words[0] == "WATCH":
		case len(words) == 2:
			writes += n
		case words[2] == "409":
			conflicts += n
		}
	}
	return writes, reads, conflicts
}
