package judge

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Print writes the verdict as a table, and every finding below it.
func (v Verdict) Print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
	row("namespace", v.Namespace)
	row("actions", fmt.Sprintf("%d (%s)", v.Actions, counts(v.States)))
	row("effects, attempts", fmt.Sprintf("%d, %d", v.Effects, v.Attempts))
	row("receipts", v.Receipts)
	row("executions of the remote", v.Executions)
	row("injections on record", v.Injections)
	row("admitted by approval", v.Approved)
	row("ambiguous attempts", fmt.Sprintf("%d (%s)", v.Ambiguous, counts(v.Explained)))
	row("resolved by a person", v.Resolved)
	row("duplicates", len(v.Duplicates))
	row("lost", len(v.Lost))
	row("wrong Failed", len(v.WrongFailed))
	row("chain breaks", len(v.Chain))
	row("unexplained Ambiguous", len(v.Unexplained))
	if err := w.Flush(); err != nil {
		return err
	}
	for _, f := range v.Findings() {
		if _, err := fmt.Fprintf(to, "FOUND %s: action %q, effect %q attempt %d: %s\n", f.Rule, f.Action, f.EffectKey, f.Attempt, f.Detail); err != nil {
			return err
		}
	}
	return nil
}

// counts lists numbers by name: "Committed 3, Failed 1".
func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}
