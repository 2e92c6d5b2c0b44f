package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// record writes what docs/benchmarks.md shows into a directory, and notes in the ranges what was found. The ranges themselves
// stay as a person wrote them.
func (r *result) record(dir, path string, spec *ranges) error {
	if len(r.Operators) != 1 {
		return errors.New("what is recorded is of one operator; this run measured several")
	}
	if err := r.write(filepath.Join(dir, "results.json")); err != nil {
		return err
	}
	if len(r.Blocks) > 0 {
		for name, c := range r.charts() {
			text, err := c.svg()
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name+".svg"), text, 0o644); err != nil {
				return err
			}
		}
	}
	if err := r.writeTables(filepath.Join(dir, "figures.md")); err != nil {
		return err
	}
	spec.note(r.Figures[r.Operators[0].Name])
	return spec.write(path)
}

// writeTables writes what a run prints as a page.
func (r *result) writeTables(path string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Figures\n\nWritten by `make bench ARGS=\"--record docs/benchmarks\"`; [benchmarks.md](../benchmarks.md) explains them.\n\n")
	fmt.Fprintf(&b, "%s, %s on %d processors (%s), %.0f MB of memory, Linux %s, %s.\n", r.Started.Format("2006-01-02 15:04 MST"), r.Ended.Sub(r.Started).Round(time.Second), r.Machine.Processors, r.Machine.Model, r.Machine.MemoryMB, r.Machine.Kernel, r.Machine.Go)
	fmt.Fprintf(&b, "What was measured, as flags: `%s`.\n", strings.Join(r.Flags, " "))
	operator := r.Operators[0]
	fmt.Fprintf(&b, "The operator: `%s`.\n\n```text\n", strings.Join(append([]string{operator.Path}, operator.Args...), " "))
	show(&b, r)
	b.WriteString("```\n")
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// note keeps what was found of each figure, and nothing of one that was not measured: all that is recorded is of one run.
func (r *ranges) note(figures map[string]spread) {
	for i, b := range r.Figures {
		r.Figures[i].Recorded = nil
		if s, measured := figures[b.Name]; measured {
			r.Figures[i].Recorded = s.rounded()
		}
	}
}

// rounded is fit to be read, and to be compared with a later one.
func (s spread) rounded() *spread {
	digits := func(v float64) float64 {
		var rounded float64
		_, _ = fmt.Sscanf(fmt.Sprintf("%.3g", v), "%g", &rounded) // what was printed can be read
		return rounded
	}
	return &spread{Mean: digits(s.Mean), StdDev: digits(s.StdDev), Min: digits(s.Min), Max: digits(s.Max), N: s.N}
}

const rangesHead = `# Figures of ` + "`make bench`" + `, which docs/benchmarks.md explains. It fails if the mean of a figure is below min or above max: these are
# limits with room around what is usual, and beyond them something became worse. It says whether a target is reached, and does not fail
# if not. A person writes all of these; recorded is what the run in figures.md found.
`

func (r *ranges) write(path string) error {
	text := bytes.NewBufferString(rangesHead)
	e := yaml.NewEncoder(text)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(r), e.Close()); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
