package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

func TestOnlyYesIsYes(t *testing.T) {
	for answer, want := range map[string]exit.Code{
		"yes\n":     exit.Done,
		" yes \r\n": exit.Done,
		"yes":       exit.Done,
		"y\n":       exit.Failure,
		"YES\n":     exit.Failure,
		"\n":        exit.Failure,
		"no\nyes":   exit.Failure,
		"":          exit.Failure,
	} {
		var asked bytes.Buffer
		a := &app{
			streams:     genericiooptions.IOStreams{In: strings.NewReader(answer), Out: &bytes.Buffer{}, ErrOut: &asked},
			interactive: func() bool { return true },
		}
		if got := exit.Of(a.confirm("Approve?", "--yes")); got != want {
			t.Errorf("answer %q: exit code %d, want %d", answer, got, want)
		}
		if !strings.HasPrefix(asked.String(), "Approve? ") {
			t.Errorf("asked %q", asked.String())
		}
	}
}

func TestAPipeIsNotAPerson(t *testing.T) {
	a := &app{
		streams:     genericiooptions.IOStreams{In: strings.NewReader("yes\n"), Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}},
		interactive: func() bool { return false },
	}
	if got := exit.Of(a.confirm("Approve?", "--yes")); got != exit.Usage {
		t.Errorf("exit code %d", got)
	}
	if terminal(strings.NewReader("yes")) {
		t.Error("a reader is taken for a terminal")
	}
}
