package cli

import (
	"fmt"
	"io"
	"os"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// maxInputBytes bounds a document read whole. The largest document that can be stored is a receipt of 1 MiB; a policy is
// bounded by what etcd takes. Anything larger is a mistake, and is refused before it fills the memory.
const maxInputBytes = 8 << 20

// readInput reads a file, or stdin for "-".
func (a *app) readInput(path string) ([]byte, error) {
	in := a.streams.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxInputBytes+1))
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("read %s: %w", inputName(path), err))
	}
	if len(data) > maxInputBytes {
		return nil, exit.Errorf(exit.Usage, "%s is larger than %d MiB", inputName(path), maxInputBytes>>20)
	}
	return data, nil
}

func inputName(path string) string {
	if path == "-" {
		return "stdin"
	}
	return path
}

// onceStdin refuses "-" twice: the second reader would see an empty document.
func onceStdin(paths ...string) error {
	n := 0
	for _, path := range paths {
		if path == "-" {
			n++
		}
	}
	if n > 1 {
		return exit.Errorf(exit.Usage, "stdin (-) can be read once, but is named %d times", n)
	}
	return nil
}
