package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// app is what every command shares: where it reads and writes, how it finds the cluster, which build it is.
type app struct {
	streams genericiooptions.IOStreams
	config  *genericclioptions.ConfigFlags
	version string
	// interactive reports whether there is somebody to ask.
	interactive func() bool
}

const rootLong = `ctrlrun is the last check before an agent does something the world will remember.

An agent proposes an action; policy says allow, approve or deny; a person approves the exact content; one process executes
it once; how it ended is recorded honestly and leaves a receipt.

Without a command this shows one screen: who you are, what waits for you, and what to do next.`

func newRoot(streams genericiooptions.IOStreams, version string) *cobra.Command {
	a := &app{
		streams:     streams,
		config:      genericclioptions.NewConfigFlags(true),
		version:     version,
		interactive: func() bool { return terminal(streams.In) },
	}
	root := &cobra.Command{
		Use:   "kubectl-ctrlrun",
		Short: "Propose, approve, execute once, and prove it",
		Long:  rootLong,
		// kubectl starts this binary, so help must say what the user types.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ctrlrun"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return a.status(cmd.Context())
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	a.config.AddFlags(root.PersistentFlags())
	root.CompletionOptions.DisableDefaultCmd = true
	addGroup(root, "agent", "For agents:", a.runCommand(), a.proposeCommand(), a.claimCommand(), a.reportCommand(), a.waitCommand())
	addGroup(root, "people", "For people:",
		a.pendingCommand(), a.approveCommand(), a.denyCommand(), a.resolveCommand(), a.delegateCommand(), a.revokeCommand(),
		a.whoCanCommand(), a.canICommand(), a.whoamiCommand(), a.ledgerCommand(), a.verifyCommand())
	addGroup(root, "read", "See what happened:",
		a.actionsCommand(), a.effectsCommand(), a.receiptsCommand(), a.inspectCommand(), a.statsCommand(), a.grantsCommand(),
		a.whyCommand())
	addGroup(root, "offline", "Without a cluster:",
		a.initCommand(), a.policyCommand(), a.lintAlias(), a.evaluateCommand(), a.hashCommand(), a.tokenCommand(), a.nameCommand(),
		a.patternCommand())
	root.AddCommand(a.versionCommand(), a.completionCommand(root), exitCodesTopic())
	return root
}

func addGroup(root *cobra.Command, id, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range cmds {
		cmd.GroupID = id
		root.AddCommand(cmd)
	}
}

const exitExceptions = `Except for:

  receipts verify   0 intact, 1 broken, 2 unreadable or nothing to verify, 3 intact but it ends before the head that was given
  can-i             0 yes, 9 no
  why, evaluate     0 whenever they print an answer, also for deny
  verify            0 all that is applicable passes, 1 something fails, 2 nothing to verify or no right to, 3 it could not be found out
  policy diff       0 whatever changes; with --exit-code 1 if anything does, and the comparison is on stdout then
  propose --wait    0 is also a decision that lets it be claimed or executed by the operator: that is not its end`

// exitCodesTopic is a help topic, not a command: `kubectl ctrlrun help exit-codes`.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What each exit code means",
		Long:  "Exit codes are the same for every command:\n\n  " + strings.Join(exit.Table(), "\n  ") + "\n\n" + exitExceptions,
	}
}

// println writes one line of an answer.
func (a *app) println(args ...any) {
	fmt.Fprintln(a.streams.Out, args...)
}

// note writes one line to stderr: progress and hints, never the answer.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.streams.ErrOut, format+"\n", args...)
}
