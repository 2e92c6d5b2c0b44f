package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/cli-runtime/pkg/printers"
)

// table aligns columns. Every cell goes through displayLine: cells hold what agents wrote.
type table struct{ w flusher }

type flusher interface {
	io.Writer
	Flush() error
}

// table starts a table with a header, as kubectl prints it.
func (a *app) table(header ...string) table { return a.tableOn(a.streams.Out, header...) }

func (a *app) tableOn(w io.Writer, header ...string) table {
	// It remembers how wide the columns were, so that what a watch adds stands below them.
	t := table{w: printers.GetNewTabWriter(w)}
	t.row(header...)
	return t
}

// lines aligns columns without a header.
func (a *app) lines() table { return table{w: tabwriter.NewWriter(a.streams.Out, 0, 4, 2, ' ', 0)} }

func (t table) row(cells ...string) {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = displayLine(cell)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(safe, "\t"), "\t"))
}

func (t table) flush() { _ = t.w.Flush() }

// fields prints "Label:  value" lines; a line whose value is empty is left out.
type fields struct{ w *tabwriter.Writer }

func (a *app) fields() fields { return a.fieldsOn(a.streams.Out) }

func (a *app) fieldsOn(w io.Writer) fields {
	return fields{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
}

func (f fields) row(label, value string) {
	if value == "" {
		return
	}
	if label != "" {
		label += ":"
	}
	for _, line := range strings.Split(value, "\n") {
		fmt.Fprintf(f.w, "%s\t%s\n", label, displayLine(line))
		label = ""
	}
}

// gap leaves a line empty.
func (f fields) gap() { fmt.Fprintln(f.w) }

func (f fields) flush() { _ = f.w.Flush() }

// orNone shows an absent value as kubectl does.
func orNone(s *string) string {
	if s == nil || *s == "" {
		return "<none>"
	}
	return *s
}
