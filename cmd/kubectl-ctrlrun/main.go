// Command kubectl-ctrlrun is the kubectl plugin `kubectl ctrlrun`: it proposes actions, answers them, resolves effects and
// reads the evidence. Everything but these lines is in internal/cli.
package main

import (
	"context"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli"
)

// version is set at link time: -ldflags "-X main.version=v0.1.0".
var version = ""

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Run(context.Background(), streams, version, os.Args[1:]))
}
