package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// row is a fault as docs/design.md lists it.
func (f fault) row() string {
	if f.test != "" {
		return fmt.Sprintf("| %s | `%s` of `%s` |", f.name, f.test, f.pkg)
	}
	return fmt.Sprintf("| %s | explorer, \"%s\": %s |", f.name, f.scenario, strings.Join(f.broken, ", "))
}

// The documentation lists every fault with what finds it, and no other.
func TestEveryFaultIsListed(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(source), "| Fault | Found by |\n|---|---|\n")
	table, _, ended := strings.Cut(after, "\n\n")
	if !found || !ended {
		t.Fatal("docs/design.md has no table of faults")
	}
	var want []string
	for _, f := range faults() {
		want = append(want, f.row())
	}
	if expected := strings.Join(want, "\n"); table != expected {
		t.Errorf("the table of faults in docs/design.md is to be:\n%s", expected)
	}
}
