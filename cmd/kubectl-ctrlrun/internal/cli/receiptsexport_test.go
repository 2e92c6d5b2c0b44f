package cli

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

func TestAFileIsThereInFullOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.jsonl")
	if err := os.WriteFile(path, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the connection was lost")
	err := inPlace(path, func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != "earlier" {
			t.Errorf("while it is written a reader finds %q, %v", now, err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	content := func() string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 1 {
			t.Errorf("beside it is %v, %v", files, err)
		}
		return string(b)
	}
	if got := content(); got != "earlier" {
		t.Errorf("after a failure the file holds %q", got)
	}
	err = inPlace(path, func(w io.Writer) error {
		_, err := w.Write([]byte("all"))
		return err
	})
	if err != nil || content() != "all" {
		t.Errorf("the file holds %q, %v", content(), err)
	}
	if err := inPlace(filepath.Join(dir, "nowhere", "x"), func(io.Writer) error { return nil }); exit.Of(err) != exit.Usage {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestMistakesInReceiptsFlags(t *testing.T) {
	for name, args := range map[string][]string{
		"a negative seq":              {"receipts", "export", "--since-seq", "-1"},
		"the flag that was":           {"receipts", "export", "--from", "2"},
		"files and a cluster":         {"receipts", "verify", "-A", "-f", "x"},
		"a head twice":                {"receipts", "verify", "-f", "x", "--head", "1:" + hash(1), "--head", "2:" + hash(2)},
		"a named and another head":    {"receipts", "verify", "-f", "x", "--head", "n=1:" + hash(1), "--head", "2:" + hash(2)},
		"one name twice":              {"receipts", "verify", "-f", "x", "--head", "n=1:" + hash(1), "--head", "n=2:" + hash(2)},
		"a named head that is none":   {"receipts", "verify", "-f", "x", "--head", "n=1"},
		"an effect without a key":     {"receipts", "--effect", ""},
		"an effect and a kind":        {"receipts", "--effect", "k", "--kind", "action"},
		"an effect in an odd format":  {"receipts", "--effect", "k", "-o", "wide"},
		"a story of the last few":     {"receipts", "list", "--effect", "k", "--last", "3"},
		"a schema with too many args": {"receipts", "schema", "x"},
	} {
		t.Run(name, func(t *testing.T) { run(t, "", args...).refused(t, exit.Usage) })
	}
}

func TestReceiptsSchemaIsJSON(t *testing.T) {
	r := run(t, "", "receipts", "schema")
	if r.code != exit.Done || !json.Valid([]byte(r.stdout)) {
		t.Errorf("exit code %d, %.100q", r.code, r.stdout)
	}
}
