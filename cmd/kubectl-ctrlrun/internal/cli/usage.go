package cli

import "ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"

// usage marks err as a mistake in the command line.
func usage(err error) error { return exit.With(exit.Usage, err) }
