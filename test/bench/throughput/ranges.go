package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// ranges say between what the mean of each figure has to be, and where it is to come to.
type ranges struct {
	Figures []bounds `yaml:"figures"`
}

// bounds of one figure. What was recorded says how far they are from what is usual.
type bounds struct {
	Name string `yaml:"name"`
	// Means is for people.
	Means string `yaml:"means"`
	// Min and Max are limits: beyond them something became worse than it was.
	Min *float64 `yaml:"min,omitempty"`
	Max *float64 `yaml:"max,omitempty"`
	// Target is what is wanted, in the direction of the limit. A run says whether it is reached, and does not fail if it is not.
	Target   *float64 `yaml:"target,omitempty"`
	Recorded *spread  `yaml:"recorded,omitempty,flow"`
}

func readRanges(path string) (*ranges, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r ranges
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]bool{}
	for _, b := range r.Figures {
		switch {
		case b.Name == "" || b.Means == "":
			return nil, fmt.Errorf("%s: every figure needs name and means", path)
		case seen[b.Name]:
			return nil, fmt.Errorf("%s: %s is there twice", path, b.Name)
		case b.Min == nil && b.Max == nil:
			return nil, fmt.Errorf("%s: %s needs min or max, or it can never be wrong", path, b.Name)
		case b.Target == nil:
		case b.Min != nil && b.Max != nil:
			return nil, fmt.Errorf("%s: %s has a target, min and max: with both it is not clear on which side of the target it is reached", path, b.Name)
		case b.outside(*b.Target) != "":
			return nil, fmt.Errorf("%s: %s has a target that is %s: what reaches it would fail", path, b.Name, b.outside(*b.Target))
		}
		seen[b.Name] = true
	}
	return &r, nil
}

// outside is what is wrong with a mean, or "".
func (b bounds) outside(mean float64) string {
	switch {
	case b.Min != nil && mean < *b.Min:
		return fmt.Sprintf("below %g", *b.Min)
	case b.Max != nil && mean > *b.Max:
		return fmt.Sprintf("above %g", *b.Max)
	}
	return ""
}

// reached says whether a mean has come to the target, or "" if there is none.
func (b bounds) reached(mean float64) string {
	switch {
	case b.Target == nil:
		return ""
	case b.Min != nil && mean < *b.Target, b.Max != nil && mean > *b.Target:
		return "missed"
	}
	return "reached"
}

// check compares the figures of each operator with the ranges; only limits make it fail. Figures that a run did not measure are left out, and named.
func (r *ranges) check(out io.Writer, found *result) error {
	var errs []error
	for _, operator := range slices.Sorted(maps.Keys(found.Figures)) {
		figures := found.Figures[operator]
		fmt.Fprintf(out, "\nRanges, %s:\n\n", operator)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "figure\tmean\t+-\tlimit\trecorded\ttarget\t\t")
		missing := 0
		for _, b := range r.Figures {
			s, measured := figures[b.Name]
			if !measured {
				missing++
				continue
			}
			verdict := b.outside(s.Mean)
			fmt.Fprintf(t, "%s\t%.3g\t%.2g\t%s\t%s\t%s\t%s\n", b.Name, s.Mean, s.StdDev, b.text(), b.recorded(), b.target(s.Mean), verdict)
			if verdict != "" {
				errs = append(errs, fmt.Errorf("%s: %s is %.3g, %s: %s", operator, b.Name, s.Mean, verdict, b.Means))
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if missing > 0 {
			fmt.Fprintf(out, "%d figures have a range and were not measured.\n", missing)
		}
	}
	return errors.Join(errs...)
}

func (b bounds) text() string {
	switch {
	case b.Min == nil:
		return fmt.Sprintf("at most %g", *b.Max)
	case b.Max == nil:
		return fmt.Sprintf("at least %g", *b.Min)
	}
	return fmt.Sprintf("%g to %g", *b.Min, *b.Max)
}

func (b bounds) target(mean float64) string {
	if b.Target == nil {
		return ""
	}
	return fmt.Sprintf("%g %s", *b.Target, b.reached(mean))
}

func (b bounds) recorded() string {
	if b.Recorded == nil {
		return ""
	}
	return fmt.Sprintf("%.3g +- %.2g", b.Recorded.Mean, b.Recorded.StdDev)
}
