package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/explore"
)

// row is a fault as docs/assurance.md lists it.
func (f fault) row() string {
	if f.test != "" {
		return fmt.Sprintf("| %s | `%s` of `%s` |", f.name, f.test, f.pkg)
	}
	return fmt.Sprintf("| %s | explorer, \"%s\": %s |", f.name, f.scenario, strings.Join(f.broken, ", "))
}

// The documentation lists every fault with what finds it, and no other.
func TestEveryFaultIsListed(t *testing.T) {
	table := documented(t, "| Fault | Found by |\n|---|---|\n")
	var want []string
	for _, f := range faults() {
		want = append(want, f.row())
	}
	if expected := strings.Join(want, "\n"); table != expected {
		t.Errorf("the table of faults in docs/assurance.md is to be:\n%s", expected)
	}
}

// It lists every scenario likewise, and says of those without a bound, and of no other, that all their states are looked at.
func TestEveryScenarioIsListed(t *testing.T) {
	rows := strings.Split(documented(t, "| Scenario | What happens in it | States, depth in CI | with `make explore` |\n|---|---|---|---|\n"), "\n")
	scenarios := explore.Scenarios()
	if len(rows) != len(scenarios) {
		t.Fatalf("%d scenarios are listed, there are %d", len(rows), len(scenarios))
	}
	for i, s := range scenarios {
		cells := strings.Split(rows[i], " | ")
		if len(cells) != 4 || cells[0] != "| "+s.Name || cells[1] != s.About || strings.HasSuffix(cells[2], ", all") != (s.States == 0 && s.Depth == 0) {
			t.Errorf("%s: %s, bound %d, is listed as %s", s.Name, s.About, s.States, rows[i])
		}
	}
}

// documented is a table of docs/assurance.md.
func documented(t *testing.T, head string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "docs", "assurance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(source), head)
	table, _, ended := strings.Cut(after, "\n\n")
	if !found || !ended {
		t.Fatalf("docs/assurance.md has no table %q", head)
	}
	return table
}
