package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/kernel/action"
)

const hashLong = `Print the hash of an action document: {name, arguments, principal: {agent, user}, resource, environment}.

The document is strict JSON. A left-out user or resource is null, a left-out environment is "production". This is the hash
an approval names; a policy that declares a resource template replaces the resource first (see evaluate).`

func (a *app) hashCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "hash -f FILE",
		Short:   "Print the hash of an action document",
		Long:    hashLong,
		Example: "  kubectl ctrlrun hash -f action.json\n  jq -n '{name:\"a.b\",arguments:{},principal:{agent:\"me\"}}' | kubectl ctrlrun hash -f -",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := a.readAction(file)
			if err != nil {
				return err
			}
			hash, err := p.Hash()
			if err != nil {
				return fmt.Errorf("%s: %w", inputName(file), err)
			}
			a.println(hash)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "the action document, or - for stdin")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

// readAction reads and validates an action document.
func (a *app) readAction(path string) (action.Proposal, error) {
	data, err := a.readInput(path)
	if err != nil {
		return action.Proposal{}, err
	}
	p, err := action.ParseDocument(data)
	if err != nil {
		return action.Proposal{}, fmt.Errorf("%s: %w", inputName(path), err)
	}
	return p, nil
}
