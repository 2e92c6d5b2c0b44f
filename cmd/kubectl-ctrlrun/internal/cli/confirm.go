package cli

import (
	"bufio"
	"fmt"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// confirm asks a person. A pipe is not a person: without a terminal it refuses and names the flags that say the same.
func (a *app) confirm(question, instead string) error {
	if !a.interactive() {
		return exit.Errorf(exit.Usage, "nobody can be asked: this is not a terminal; give %s", instead)
	}
	fmt.Fprintf(a.streams.ErrOut, "%s Type yes to go on: ", question)
	answer, err := bufio.NewReader(a.streams.In).ReadString('\n')
	if err != nil && answer == "" {
		return exit.Errorf(exit.Failure, "no answer; nothing was done")
	}
	if strings.TrimSpace(answer) != "yes" {
		return exit.Errorf(exit.Failure, "you did not type yes; nothing was done")
	}
	return nil
}

// terminal reports whether in is a terminal.
func terminal(in any) bool { return printers.IsTerminal(in) }
