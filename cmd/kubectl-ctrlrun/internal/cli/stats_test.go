package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/stats"
)

// TestSinceForms proves which forms --since takes, and that every other one is refused by naming them.
func TestSinceForms(t *testing.T) {
	now := time.Date(2026, 3, 8, 12, 0, 0, 5, time.UTC)
	for text, want := range map[string]time.Time{
		"":                              {},
		"2026-03-01T00:00:00Z":          time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		"2026-03-01T02:00:00+02:00":     time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		"2026-03-01T00:00:00.123-01:00": time.Date(2026, 3, 1, 1, 0, 0, 123e6, time.UTC),
		"30m":                           now.Add(-30 * time.Minute),
		"12h":                           now.Add(-12 * time.Hour),
		"7d":                            now.Add(-7 * 24 * time.Hour),
	} {
		got, err := parseSince(text, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q is %s, want %s (%v)", text, got, want, err)
		}
	}
	if far, err := parseSince("999999999d", now); err != nil || far.After(now.AddDate(-2_000_000, 0, 0)) {
		t.Errorf("a long time ago is %s (%v)", far, err)
	}
	for _, text := range []string{
		"1w", "2mo", "5", "m", "-3h", "+3h", "1.5h", "1h30m", "3 d", "7D", "2026-03-01", "2026-03-01T00:00:00", "yesterday", "9999999999d", "٣d",
	} {
		r := run(t, "", "stats", "--since", text)
		r.refused(t, exit.Usage)
		if !strings.Contains(r.stderr, sinceForms) {
			t.Errorf("%q is refused without naming the accepted forms: %s", text, r.stderr)
		}
	}
}

// TestTheDocumentedMembersOfStatsAreAll proves that docs/cli.md names every member of the document, and no other.
func TestTheDocumentedMembersOfStatsAreAll(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Counting")
	section, _, _ := strings.Cut(rest, "\n## ")
	documented := map[string]bool{}
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for i, word := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				documented[word] = true
			}
		}
	}
	text, err := json.Marshal(statistics{Report: stats.New(stats.Options{}).Report()})
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	for member := range members {
		if !documented[member] {
			t.Errorf("%s is not documented", member)
		}
	}
	for member := range documented {
		if _, ok := members[member]; !ok {
			t.Errorf("%s is documented and not there", member)
		}
	}
}
