package cli

import (
	"bytes"
	"encoding/json"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// outputFlag is `-o` of the commands whose answer is not a Kubernetes object: text by default, json or yaml for programs.
type outputFlag struct{ format string }

func (o *outputFlag) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "output format: json or yaml (default: text for people)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses an unknown format before anything is done, so that a typing error never follows a write.
func (o *outputFlag) check() error {
	switch o.format {
	case "", "json", "yaml":
		return nil
	}
	return exit.Errorf(exit.Usage, "unknown output format %q: use json or yaml", o.format)
}

// print writes answer in the chosen format; text writes it for people.
func (o *outputFlag) print(a *app, answer any, text func()) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.format == "" {
		text()
		return nil
	}
	// Keys and names may hold < > and &, which Go would write as \u003c. Programs compare these strings.
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(answer); err != nil {
		return err
	}
	data := b.Bytes()
	if o.format == "yaml" {
		var err error
		if data, err = yaml.JSONToYAML(data); err != nil {
			return err
		}
	}
	_, err := a.streams.Out.Write(data)
	return err
}
