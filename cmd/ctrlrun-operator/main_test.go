package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// TestArgumentsOfTracesNeedTraces: nobody is left to believe that there are traces, also if something else is exported.
func TestArgumentsOfTracesNeedTraces(t *testing.T) {
	for _, to := range [][]string{nil, {"stdout"}} {
		out := exporting{to: to, otlpArguments: true}
		if _, err := out.open(context.Background(), nil, logr.Discard()); err == nil || !strings.Contains(err.Error(), "none are exported") {
			t.Errorf("beside --export=%v: %v", to, err)
		}
	}
}

// TestFlagsAreDocumented: the table of docs/operator.md is what --help says.
func TestFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operator.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^ +(?:-\w, )?--([a-z-]+)(?: \w+)?   +(.*?)(?: \(default "?(.*?)"?\))?$`)
	var want strings.Builder
	want.WriteString("| Flag | Default | Meaning |\n|---|---|---|\n")
	rows := 0
	for line := range strings.Lines(command().Flags().FlagUsages()) {
		m := row.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			t.Fatalf("this line of --help is not read: %q", line)
		}
		def := ""
		if m[3] != "" {
			def = "`" + m[3] + "`"
		}
		fmt.Fprintf(&want, "| `--%s` | %s | %s |\n", m[1], def, m[2])
		rows++
	}
	// The rows are all in this one table, so one of a flag that is gone would be one too many.
	if got := strings.Count(string(page), "\n| `--"); got != rows || rows == 0 {
		t.Errorf("docs/operator.md has %d rows of flags, want %d", got, rows)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/operator.md must contain:\n%s", want.String())
	}
}
