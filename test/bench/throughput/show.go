package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

func (b block) line() string {
	text := fmt.Sprintf("%-8s %2d clients  %7.1f/s  p50 %7.1f ms  p99 %7.1f ms", b.Load, b.Clients, b.PerSecond, b.Whole.P50, b.Whole.P99)
	if b.Admitted != nil {
		text += fmt.Sprintf("  admitted p50 %7.1f  p99 %7.1f ms  to floor %.3f", b.Admitted.P50, b.Admitted.P99, b.ToFloor)
	}
	return fmt.Sprintf("[%s, %d existing, %d] %s", b.Operator, b.Existing, b.Repetition, text)
}

// group is the blocks of one kind.
type group struct {
	operator string
	existing int
	load     string
	clients  int
}

func groups(blocks []block) (order []group, all map[group][]block) {
	all = map[group][]block{}
	for _, b := range blocks {
		g := group{operator: b.Operator, existing: b.Existing, load: b.Load, clients: b.Clients}
		if all[g] == nil {
			order = append(order, g)
		}
		all[g] = append(all[g], b)
	}
	return order, all
}

func across(blocks []block, of func(block) float64) spread {
	values := make([]float64, len(blocks))
	for i, b := range blocks {
		values[i] = of(b)
	}
	return spreadOf(values)
}

// show prints a run for people.
func show(out io.Writer, r *result) {
	order, all := groups(r.Blocks)
	fmt.Fprintf(out, "\nLoad average before the run: %.2f on %d processors.\n", r.Machine.LoadBefore, r.Machine.Processors)
	if len(order) > 0 {
		showBlocks(out, order, all, r.ActionBytes)
		showProcessor(out, order, all)
		showRequests(out, order, all)
		showTurns(out, r, order, all)
	}
	showVisits(out, r.Visits)
	showRestarts(out, r.Restarts)
	for _, t := range r.Kernel {
		fmt.Fprintf(out, "\nThe kernel alone, %s: %d ns of a processor (%d ns passed), %d allocations, %d bytes.\n", t.Name, t.ProcessorNsPerOp, t.NsPerOp, t.AllocsPerOp, t.BytesPerOp)
	}
}

// numbersRight is a table whose columns are numbers.
func numbersRight(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func showBlocks(out io.Writer, order []group, all map[group][]block, size int) {
	fmt.Fprintf(out, "An action and a raw create have %d bytes.\n\n", size)
	t := numbersRight(out)
	fmt.Fprintln(t, "operator\texisting\tload\tclients\tper second\t+-\tto floor\t+-\tp50 ms\tp99 ms\tadmitted p50\tp99\tto floor\t")
	for _, g := range order {
		blocks := all[g]
		rate := across(blocks, func(b block) float64 { return b.PerSecond })
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%.1f\t%.1f\t", g.operator, g.existing, g.load, g.clients, rate.Mean, rate.StdDev)
		p50 := across(blocks, func(b block) float64 { return b.Whole.P50 })
		p99 := across(blocks, func(b block) float64 { return b.Whole.P99 })
		if g.load == floorLoad {
			fmt.Fprintf(t, "\t\t%.1f\t%.1f\t\t\t\t\n", p50.Mean, p99.Mean)
			continue
		}
		ratio := across(blocks, func(b block) float64 { return b.ToFloor })
		fmt.Fprintf(t, "%.3f\t%.3f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t\n", ratio.Mean, ratio.StdDev, p50.Mean, p99.Mean,
			across(blocks, func(b block) float64 { return b.Admitted.P50 }).Mean,
			across(blocks, func(b block) float64 { return b.Admitted.P99 }).Mean,
			across(blocks, func(b block) float64 { return b.AdmittedToFloor }).Mean)
	}
	t.Flush()
}

// showTurns compares every operator with the first one, block by block of the same repetition: what both have in common, the
// state of the machine at that time above all, is left out.
func showTurns(out io.Writer, r *result, order []group, all map[group][]block) {
	if len(r.Operators) < 2 {
		return
	}
	first := r.Operators[0].Name
	fmt.Fprintf(out, "\nBy those of %s in the same repetition; above 1 is more:\n\n", first)
	t := numbersRight(out)
	fmt.Fprintln(t, "operator\texisting\tload\tclients\tper second\t+-\tto floor\t+-\tp50\tadmitted p50\tprocessor\t")
	for _, g := range order {
		if g.operator == first || g.load == floorLoad {
			continue
		}
		other := all[group{operator: first, existing: g.existing, load: g.load, clients: g.clients}]
		by := func(of func(block) float64) spread {
			var ratios []float64
			for _, b := range all[g] {
				for _, o := range other {
					if o.Repetition == b.Repetition {
						ratios = append(ratios, of(b)/of(o))
					}
				}
			}
			return spreadOf(ratios)
		}
		rate, ratio := by(func(b block) float64 { return b.PerSecond }), by(func(b block) float64 { return b.ToFloor })
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", g.operator, g.existing, g.load, g.clients,
			rate.Mean, rate.StdDev, ratio.Mean, ratio.StdDev,
			by(func(b block) float64 { return b.Whole.P50 }).Mean,
			by(func(b block) float64 { return b.Admitted.P50 }).Mean,
			by(func(b block) float64 { return b.Cost.ofCluster() }).Mean)
	}
	t.Flush()
}

func showVisits(out io.Writer, visits []visit) {
	if len(visits) == 0 {
		return
	}
	fmt.Fprintf(out, "\nThe operator itself:\n\n")
	t := numbersRight(out)
	fmt.Fprintln(t, "operator\texisting\tready after s\tcalm after s\tprocessor s until then\tidle MB\tbusy MB\tpeak MB\t")
	for _, v := range visits {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t\n", v.Operator, v.Existing, v.ReadySeconds, v.CalmSeconds, v.CalmProcessorSeconds, v.Idle.Resident, v.Busy.Resident, v.Busy.Peak)
	}
	t.Flush()
}

func showRestarts(out io.Writer, restarts []restart) {
	if len(restarts) == 0 {
		return
	}
	fmt.Fprintf(out, "\nAdmitted actions that an operator takes up:\n\n")
	t := numbersRight(out)
	fmt.Fprintln(t, "operator\tin flight\treported\tready after s\treported within s\tsettled within s\tpeak MB\t")
	for _, x := range restarts {
		fmt.Fprintf(t, "%s\t%d\t%s the start\t%.1f\t%.1f\t%.1f\t%.0f\t\n", x.Operator, x.InFlight, x.Reported, x.ReadySeconds, x.ReportedSeconds, x.SettledSeconds, x.Memory.Peak)
	}
	t.Flush()
}

// showProcessor prints milliseconds of processor time an operation.
func showProcessor(out io.Writer, order []group, all map[group][]block) {
	fmt.Fprintf(out, "\nMilliseconds of processor time for each operation:\n\n")
	t := numbersRight(out)
	names := []string{"operator", "kube-apiserver", "etcd", "clients"}
	fmt.Fprintf(t, "operator\texisting\tload\tclients\t%s\tall\t\n", strings.Join(names, "\t"))
	for _, g := range order {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t", g.operator, g.existing, g.load, g.clients)
		sum := 0.0
		for _, name := range names {
			mean := across(all[g], func(b block) float64 { return b.Cost.Processor[name] }).Mean
			sum += mean
			fmt.Fprintf(t, "%.2f\t", mean)
		}
		fmt.Fprintf(t, "%.2f\t\n", sum)
	}
	t.Flush()
}

// showRequests prints requests for each action, one line for each kind of request and a column for each kind of block. What
// exists before makes no difference that is worth columns of its own; it is in the JSON.
func showRequests(out io.Writer, order []group, all map[group][]block) {
	for _, operator := range operatorsOf(order) {
		for _, who := range []string{others, "agents", "approver"} {
			columns := slices.DeleteFunc(slices.Clone(order), func(g group) bool {
				return g.operator != operator || g.load == floorLoad || g.existing != order[0].existing
			})
			kinds := map[string]bool{}
			for _, g := range columns {
				for _, b := range all[g] {
					for kind := range b.Cost.Requests[who] {
						kinds[kind] = true
					}
				}
			}
			fmt.Fprintf(out, "\nRequests of the %s for each action", who)
			if who == others {
				fmt.Fprintf(out, " (%s, and what the apiserver asks itself)", operator)
			}
			fmt.Fprintf(out, ":\n\n")
			t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprint(t, "\t")
			for _, g := range columns {
				fmt.Fprintf(t, "%s %d\t", g.load, g.clients)
			}
			fmt.Fprintln(t)
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				fmt.Fprintf(t, "%s\t", kind)
				for _, g := range columns {
					fmt.Fprintf(t, "%.2f\t", across(all[g], func(b block) float64 { return b.Cost.Requests[who][kind] }).Mean)
				}
				fmt.Fprintln(t)
			}
			t.Flush()
		}
	}
}

func operatorsOf(order []group) []string {
	var names []string
	for _, g := range order {
		if !slices.Contains(names, g.operator) {
			names = append(names, g.operator)
		}
	}
	return names
}
