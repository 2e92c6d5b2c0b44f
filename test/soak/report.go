package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/chaos/judge"
)

// seconds is a duration that JSON has in seconds.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// report is what a soak found. Durations and rates are what was measured; none of them is a part of the criterion.
type report struct {
	// ExitCriterionMet: the positive control fired, something was done, no Ambiguous attempt is unexplained, and nothing was
	// duplicated, lost, wrongly Failed or broken in the chain.
	ExitCriterionMet bool `json:"exit_criterion_met"`
	// GoroutinesVerdict is the answer of the rule of growth.
	GoroutinesVerdict verdict `json:"goroutines_verdict"`

	Started time.Time `json:"started"`
	// Ended is when the last of what was begun was over, Load how long agents began actions.
	Ended  time.Time `json:"ended"`
	Load   seconds   `json:"load_seconds"`
	Agents int       `json:"agents"`
	Rate   int       `json:"rate"`
	Keep   seconds   `json:"keep_finished_seconds"`
	Seed   uint64    `json:"seed"`
	CPUs   int       `json:"cpus"`
	Go     string    `json:"go"`

	Control control       `json:"control"`
	Table   table         `json:"table"`
	Verdict judge.Verdict `json:"verdict"`

	WarmUp seconds `json:"warm_up_seconds"`
	// Before and After are the operator at rest.
	Before  sample           `json:"at_rest_before"`
	After   sample           `json:"at_rest_after"`
	Trends  map[string]trend `json:"trends"`
	Samples []sample         `json:"samples"`
}

// columns are what is looked at over time.
var columns = map[string]func(sample) float64{
	"resident":   func(s sample) float64 { return s.Resident },
	"heap":       func(s sample) float64 { return s.Heap },
	"next_gc":    func(s sample) float64 { return s.NextGC },
	"goroutines": func(s sample) float64 { return s.Goroutines },
}

// conclude fills in what follows from the rest.
func (r *report) conclude(v judge.Verdict, t table) {
	r.CPUs, r.Go = runtime.NumCPU(), runtime.Version()
	r.Verdict, r.Table = v, t
	for uid, c := range t.without {
		r.Verdict.Lost = append(r.Verdict.Lost, judge.Finding{
			Rule: "a proposed Action without a receipt", Detail: fmt.Sprintf("uid %s, %s", uid, c.kind),
		})
	}
	r.Trends = map[string]trend{}
	for name, column := range columns {
		r.Trends[name] = trendOf(points(r.Samples, column), time.Duration(r.WarmUp))
	}
	r.GoroutinesVerdict = growth(r.Trends["goroutines"])
	r.ExitCriterionMet = r.Control.Fired && r.Table.Actions > 0 && r.Verdict.OK()
}

// table counts Actions by what was done to them and how they ended, both as words.
type table struct {
	Ends map[kind]map[string]int `json:"ends"`
	// Attempts after the first of an effect, and Actions by the approve path.
	Repeated int `json:"repeated_attempts"`
	Approved int `json:"approved"`
	Actions  int `json:"actions"`
	// without are the Actions that were proposed and have no receipt.
	without map[types.UID]card
}

// foreign is the kind of an Action that no agent noted.
const foreign kind = "(nobody's)"

// tally reads from the receipts how every Action ended: finished Actions are deleted, receipts are not.
func tally(s judge.State, cards map[types.UID]card) table {
	t := table{Ends: map[kind]map[string]int{}, without: maps.Clone(cards)}
	for i := range s.Receipts {
		d, err := receipt.Parse(records.Entry(&s.Receipts[i]))
		if err != nil || d.Kind != receipt.KindAction {
			continue // what cannot be read is a break of the chain
		}
		c, ours := cards[types.UID(d.ActionUID)]
		if !ours {
			c.kind = foreign
		}
		delete(t.without, types.UID(d.ActionUID))
		t.Actions++
		if d.Attempt > 1 {
			t.Repeated++
		}
		if c.path == approved {
			t.Approved++
		}
		if t.Ends[c.kind] == nil {
			t.Ends[c.kind] = map[string]int{}
		}
		t.Ends[c.kind][endOf(d)]++
	}
	return t
}

// endOf is how an Action ended, in words: with the reason, where there are several.
func endOf(d receipt.Document) string {
	if d.Reason == "" {
		return string(d.Result)
	}
	return string(d.Result) + " " + string(d.Reason)
}

// print writes the report for people.
func (r report) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	took := time.Duration(r.Load)
	fmt.Fprintln(w, "ctrlrun soak")
	row("ran", "%s (%s to %s), %d agents, %d CPUs", took.Round(time.Millisecond*100), r.Started.UTC().Format(time.RFC3339), r.Ended.UTC().Format(time.RFC3339), r.Agents, r.CPUs)
	row("actions", "%d, %.1f a second (at most %d); %d by people's approval, %d further attempts of an effect", r.Table.Actions, float64(r.Table.Actions)/took.Seconds(), r.Rate, r.Table.Approved, r.Table.Repeated)
	if due := float64(r.Table.Actions) / took.Seconds() * time.Duration(r.Keep).Seconds(); due < float64(r.Table.Actions) {
		row("still there", "%d actions; at this rate %s are about %.0f", r.Verdict.Actions, time.Duration(r.Keep), due)
	}
	explained := r.Verdict.Ambiguous - len(r.Verdict.Unexplained)
	row("ambiguous", "%d (%d explained, %d unexplained)", r.Verdict.Ambiguous, explained, len(r.Verdict.Unexplained))
	fired := "NO"
	if r.Control.Fired {
		fired = "yes"
	}
	row("control fired", "%s", fired)
	row("duplicates", "%d", len(r.Verdict.Duplicates))
	row("lost", "%d", len(r.Verdict.Lost))
	row("wrong Failed", "%d", len(r.Verdict.WrongFailed))
	row("chain", "%d receipts, %d breaks", r.Verdict.Receipts, len(r.Verdict.Chain))
	fmt.Fprintln(w)
	r.Table.print(w)
	fmt.Fprintln(w)
	r.memory(w)
	fmt.Fprintln(w)
	fmt.Fprintf(w, "  goroutines: %s\n", r.GoroutinesVerdict)
	fmt.Fprintf(w, "  %s\n", r.conclusion())
	if err := w.Flush(); err != nil {
		return err
	}
	for _, f := range slices.Concat(r.Verdict.Findings(), r.Control.Others) {
		if _, err := fmt.Fprintf(to, "FOUND %s: action %q, effect %q attempt %d: %s\n", f.Rule, f.Action, f.EffectKey, f.Attempt, f.Detail); err != nil {
			return err
		}
	}
	return nil
}

func (r report) conclusion() string {
	switch {
	case !r.Control.Fired:
		return fmt.Sprintf("the control did not fire, so that this is no evidence: reported %q, expected %q, explained %d of 1", r.Control.Reported, r.Control.Expected, r.Control.Explained)
	case r.Table.Actions == 0:
		return "nothing was done, so that this is no evidence"
	case len(r.Verdict.Unexplained) > 0:
		return "UNEXPLAINED AMBIGUITY"
	case !r.Verdict.OK():
		return "a promise of the protocol is broken"
	}
	return "no unexplained ambiguity"
}

// print writes one row for each end and one column for each kind.
func (t table) print(w io.Writer) {
	all := kinds()
	if t.Ends[foreign] != nil {
		all = append(all, foreign)
	}
	ends := map[string]bool{}
	for _, k := range all {
		for end := range t.Ends[k] {
			ends[end] = true
		}
	}
	fmt.Fprintf(w, "  injected\t%s\n", strings.Join(words(all), "\t"))
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		fmt.Fprintf(w, "  %s", end)
		for _, k := range all {
			fmt.Fprintf(w, "\t%d", t.Ends[k][end])
		}
		fmt.Fprintln(w)
	}
}

func words(all []kind) []string {
	text := make([]string, len(all))
	for i, k := range all {
		text[i] = string(k)
	}
	return text
}

// memory writes what the operator held.
func (r report) memory(w io.Writer) {
	const mega = 1 << 20
	fmt.Fprintf(w, "  operator\tat rest before\tat rest after\tfirst quarter\tlast quarter\tmax\tan hour, with the interval of 95 %%\n")
	for _, c := range []struct {
		name, column, unit string
		scale              float64
	}{
		{"resident", "resident", "MB", mega}, {"heap", "heap", "MB", mega}, {"next collection at", "next_gc", "MB", mega}, {"goroutines", "goroutines", "", 1},
	} {
		t, of := r.Trends[c.column], columns[c.column]
		text := func(v float64) string { return strings.TrimSpace(fmt.Sprintf("%.1f %s", v/c.scale, c.unit)) }
		slope := "too little was measured"
		if t.Blocks >= minBlocks {
			slope = fmt.Sprintf("%+.1f (%+.1f to %+.1f) %s", t.PerHour/c.scale, t.PerHourLow/c.scale, t.PerHourHigh/c.scale, c.unit)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.name, text(of(r.Before)), text(of(r.After)), text(t.FirstQuarter), text(t.LastQuarter), text(t.Max), slope)
	}
	fmt.Fprintf(w, "  (without the first %s; finished actions are kept for %s)\n", time.Duration(r.WarmUp), time.Duration(r.Keep))
}
