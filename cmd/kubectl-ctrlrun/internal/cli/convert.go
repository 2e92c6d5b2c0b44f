package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

const convertLong = `Turn a ctrlrun policy document into an ActionPolicy manifest, or a manifest into a document.

The actions map is the same in both, key for key, so it is copied as it is written, comments and numbers included. Only what
is around it changes. The policy must be valid.`

const (
	toManifest = "ActionPolicy"
	toDocument = "document"
)

func (a *app) convertCommand() *cobra.Command {
	var file, name, to string
	cmd := &cobra.Command{
		Use:     "convert -f FILE",
		Short:   "Turn a policy document into an ActionPolicy, or back",
		Long:    convertLong,
		Example: "  kubectl ctrlrun policy convert -f ctrlrun.yaml --name payments -n payments | kubectl apply -f -",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			files, err := a.readPolicies([]string{file}, named)
			if err != nil {
				return err
			}
			if _, err := policySet(files); err != nil {
				return err
			}
			var documents []*yaml.Node
			for _, f := range files {
				node, err := a.convert(f, to, name, len(files))
				if err != nil {
					return fmt.Errorf("%s: %w", f.label(), err)
				}
				documents = append(documents, node)
			}
			return a.printDocuments(documents)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "the policy, or - for stdin")
	cmd.Flags().StringVar(&name, "name", "policy", "name of the ActionPolicy")
	cmd.Flags().StringVar(&to, "to", "", "what to write: ActionPolicy or document (default: the one it is not)")
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{toManifest, toDocument}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) convert(f policyFile, to, name string, of int) (*yaml.Node, error) {
	root, err := documentRoot(f.data)
	if err != nil {
		return nil, err
	}
	manifest := member(root, "spec") != nil
	if to == "" {
		to = toManifest
		if manifest {
			to = toDocument
		}
	}
	actions := actionsNode(root)
	blockStyle(actions)
	switch to {
	case toManifest:
		if of > 1 {
			name = fmt.Sprintf("%s-%d", name, f.line)
		}
		return a.manifestOf(f, name, actions), nil
	case toDocument:
		if ours := manifestOnlyKeys(actions); len(ours) > 0 {
			return nil, fmt.Errorf("a policy document has no place for %s; keep the manifest, or remove them", strings.Join(ours, ", "))
		}
		return mapping(scalar("schema"), scalar("ctrlrun.policy/v2"), scalar("actions"), actions), nil
	}
	return nil, exit.Errorf(exit.Usage, "--to is %s or %s, not %q", toManifest, toDocument, to)
}

func (a *app) manifestOf(f policyFile, name string, actions *yaml.Node) *yaml.Node {
	metadata := mapping(scalar("name"), scalar(name))
	if a.config.Namespace != nil && *a.config.Namespace != "" {
		metadata.Content = append(metadata.Content, scalar("namespace"), scalar(*a.config.Namespace))
	}
	spec := mapping()
	if f.document.Version != "" {
		spec.Content = append(spec.Content, scalar("version"), scalar(f.document.Version))
	}
	spec.Content = append(spec.Content, scalar("actions"), actions)
	return mapping(
		scalar("apiVersion"), scalar("ctrlrun.dev/v1alpha1"),
		scalar("kind"), scalar("ActionPolicy"),
		scalar("metadata"), metadata,
		scalar("spec"), spec)
}

// manifestOnlyKeys are the entry keys the custom resource adds. They are camelCase; a document has none of that form.
func manifestOnlyKeys(actions *yaml.Node) []string {
	var found []string
	for i := 0; i+1 < len(actions.Content); i += 2 {
		entry := actions.Content[i+1]
		for j := 0; j+1 < len(entry.Content); j += 2 {
			if key := entry.Content[j].Value; strings.ToLower(key) != key {
				found = append(found, fmt.Sprintf("%s of %s", key, actions.Content[i].Value))
			}
		}
	}
	return found
}

func (a *app) printDocuments(documents []*yaml.Node) error {
	for i, document := range documents {
		text, err := encodeYAML(document)
		if err != nil {
			return err
		}
		if i > 0 {
			a.println("---")
		}
		if _, err := a.streams.Out.Write(text); err != nil {
			return err
		}
	}
	return nil
}
