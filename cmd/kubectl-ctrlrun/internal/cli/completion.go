package cli

import "github.com/spf13/cobra"

// kubectlCompletion is the script kubectl looks for on the PATH to complete a plugin.
const kubectlCompletion = `#!/bin/sh
# Save it as kubectl_complete-ctrlrun on your PATH and make it executable.
exec kubectl ctrlrun __complete "$@"
`

const completionLong = `Write a completion script. With kubectl 1.26 or later,

  kubectl ctrlrun completion kubectl > ~/bin/kubectl_complete-ctrlrun && chmod +x ~/bin/kubectl_complete-ctrlrun

makes kubectl's own completion know the plugin. The other scripts complete kubectl-ctrlrun called by its own name.`

func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	shell := func(name string, write func() error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: "Completion for " + name, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return write() },
		}
	}
	cmd := group("completion", "Write a shell completion script",
		shell("kubectl", func() error {
			_, err := a.streams.Out.Write([]byte(kubectlCompletion))
			return err
		}),
		shell("bash", func() error { return root.GenBashCompletionV2(a.streams.Out, true) }),
		shell("zsh", func() error { return root.GenZshCompletion(a.streams.Out) }),
		shell("fish", func() error { return root.GenFishCompletion(a.streams.Out, true) }),
		shell("powershell", func() error { return root.GenPowerShellCompletionWithDesc(a.streams.Out) }),
	)
	cmd.Long = completionLong
	return cmd
}
