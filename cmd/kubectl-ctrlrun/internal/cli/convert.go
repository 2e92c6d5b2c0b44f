package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/kernel/policy"
)

const convertLong = `Turn a ctrlrun policy document into an ActionPolicy manifest.

The actions map is the same in both, key for key. Everything that YAML readers could take for something else is quoted, so
that what kubectl sends is what the document says. The policy must be valid. Comments are not kept.`

func (a *app) convertCommand() *cobra.Command {
	var file, name string
	cmd := &cobra.Command{
		Use:     "convert -f FILE [--name NAME]",
		Short:   "Turn a policy document into an ActionPolicy manifest",
		Long:    convertLong,
		Example: "  kubectl ctrlrun policy convert -f ctrlrun.yaml --name payments -n payments | kubectl apply --server-side -f -",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			files, err := a.readPolicies([]string{file}, named)
			if err != nil {
				return err
			}
			if _, err := policySet(files); err != nil {
				return err
			}
			var manifests [][]byte
			for i, f := range files {
				manifest, err := a.convert(f, name, i)
				if err != nil {
					return fmt.Errorf("%s: %w", f.label(), err)
				}
				manifests = append(manifests, manifest)
			}
			for i, manifest := range manifests {
				if i > 0 {
					a.println("---")
				}
				if _, err := a.streams.Out.Write(manifest); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "the policy, or - for stdin")
	cmd.Flags().StringVar(&name, "name", "", "name of the ActionPolicy (default: the one it has, or \"policy\")")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

// convert writes one policy. Several of one file get several names, and the flags win over what a manifest says.
func (a *app) convert(f policyFile, name string, index int) ([]byte, error) {
	namespace := f.document.Namespace
	if a.config.Namespace != nil && *a.config.Namespace != "" {
		namespace = *a.config.Namespace
	}
	if name == "" && f.document.Name != "" {
		return policy.Convert(f.document, f.document.Name, namespace)
	}
	if name == "" {
		name = "policy"
	}
	if index > 0 {
		name = fmt.Sprintf("%s-%d", name, index+1)
	}
	return policy.Convert(f.document, name, namespace)
}
