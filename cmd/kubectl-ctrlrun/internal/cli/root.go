// Package cli is `kubectl ctrlrun`. One file holds one command or one concept; root.go puts them together.
//
// Commands return errors, and the exit package turns an error into the process's exit code. A refusal prints a message on
// stderr and nothing on stdout. What a policy decides, what a hash is and whether a chain is intact is computed by the
// kernel packages; this package only reads, asks and prints.
package cli

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// Run executes one command line and returns the exit code. version is the release, or empty for a build from source.
func Run(ctx context.Context, streams genericiooptions.IOStreams, version string, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := newRoot(streams, version)
	root.SetArgs(args)
	err := execute(ctx, root)
	if err != nil {
		fmt.Fprintf(streams.ErrOut, "error: %s\n", strings.TrimRight(display(err.Error()), "\n"))
	}
	return int(exit.Of(err))
}

// execute runs root. Whatever fails before a command's own code starts is a mistake in the command line: cobra gives such
// errors no type, so the start itself is what tells them apart.
func execute(ctx context.Context, root *cobra.Command) error {
	started := false
	markStart(root, &started)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !started {
		return exit.Errorf(exit.Usage, "%w\nrun %q for help", err, cmd.CommandPath()+" --help")
	}
	return err
}

func markStart(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		markStart(sub, started)
	}
}

// group makes a command that only has subcommands. Cobra would print help and exit 0 for a misspelt subcommand, and a
// script would take that for success.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Errorf(exit.Usage, "%s needs a subcommand: %s", cmd.CommandPath(), subcommandNames(cmd))
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

// suggestionDistance is how many typing errors a suggested command may be away; cobra's default, which it sets too late.
const suggestionDistance = 2

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = suggestionDistance
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return exit.Errorf(exit.Usage, "unknown command %q for %q: did you mean %s?", name, cmd.CommandPath(), strings.Join(near, " or "))
	}
	return exit.Errorf(exit.Usage, "unknown command %q for %q: it has %s", name, cmd.CommandPath(), subcommandNames(cmd))
}

func subcommandNames(cmd *cobra.Command) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return strings.Join(names, ", ")
}
