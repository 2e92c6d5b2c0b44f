package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/precondition"
)

const argumentsHelp = `k=v is a string, k:=json is JSON: amount:=500 paid:=true tags:='["a"]'. Numbers are integers: amounts go in minor units, or
as strings. -f reads the arguments as one JSON object.`

// proposing are the flags of propose and run.
type proposing struct {
	file     string
	resource string
	onBehalf string
	name     string
	lease    time.Duration
	notAfter string
	expires  string
	restsOn  []string
}

func (p *proposing) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.file, "filename", "f", "", "arguments as a JSON object, or - for stdin")
	cmd.Flags().StringVar(&p.resource, "resource", "", "the resource acted on, TYPE:ID; a template of the policy overrides it")
	cmd.Flags().StringVar(&p.onBehalf, "on-behalf-of", "", "the user you act for; needs the verb represent on users.ctrlrun.dev")
	cmd.Flags().StringVar(&p.name, "name", "", "name of the action (default: that of its effect)")
	cmd.Flags().DurationVar(&p.lease, "lease", 5*time.Minute, "how long the execution may take, from 30s")
	cmd.Flags().StringVar(&p.notAfter, "not-after", "", "do not act after this time (RFC 3339)")
	cmd.Flags().StringVar(&p.expires, "credential-expires", "", "when the credential you act by ends (RFC 3339); not admitted after it")
	cmd.Flags().StringArrayVar(&p.restsOn, "precondition", nil, "APIVERSION/KIND/NAME#POINTER, such as apps/v1/Deployment/web#/spec/replicas: refused if it is another when the effect is reserved than when people were asked; several times")
}

// request is what is proposed by TYPE and k=v arguments.
func (a *app) request(p *proposing, words []string) (client.Proposal, error) {
	if len(words) == 0 {
		return client.Proposal{}, exit.Errorf(exit.Usage, "name the action type, such as stripe.refund")
	}
	arguments, err := a.arguments(p.file, words[1:])
	if err != nil {
		return client.Proposal{}, err
	}
	req := client.Proposal{
		ActionType: words[0], Arguments: arguments, Resource: p.resource, User: p.onBehalf, Name: p.name, LeaseDuration: p.lease,
	}
	if p.lease < 30*time.Second || p.lease%time.Second != 0 {
		return req, exit.Errorf(exit.Usage, "--lease %s: a lease is whole seconds, at least 30s", p.lease)
	}
	if p.notAfter != "" {
		if req.NotAfter, err = time.Parse(time.RFC3339, p.notAfter); err != nil {
			return req, usage(fmt.Errorf("--not-after: %w", err))
		}
	}
	if p.expires != "" {
		if req.Expires, err = time.Parse(time.RFC3339, p.expires); err != nil {
			return req, usage(fmt.Errorf("--credential-expires: %w", err))
		}
	}
	for _, text := range p.restsOn {
		ref, err := precondition.ParseRef(text)
		if err != nil {
			return req, usage(fmt.Errorf("--precondition: %w", err))
		}
		req.Preconditions = append(req.Preconditions, v1alpha1.Precondition{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, Pointer: ref.Pointer})
	}
	_, err = client.CanonicalArguments(arguments)
	return req, usage(err)
}

func (a *app) arguments(file string, words []string) (map[string]any, error) {
	arguments := map[string]any{}
	if file != "" {
		data, err := a.readInput(file)
		if err != nil {
			return nil, err
		}
		value, err := canonical.Parse(data)
		if err != nil {
			return nil, usage(fmt.Errorf("%s: %w", inputName(file), err))
		}
		object, ok := value.(map[string]any)
		if !ok {
			return nil, exit.Errorf(exit.Usage, "%s: arguments are a JSON object", inputName(file))
		}
		arguments = object
	}
	for _, word := range words {
		key, value, err := parseArgument(word)
		if err != nil {
			return nil, usage(err)
		}
		if _, twice := arguments[key]; twice {
			return nil, exit.Errorf(exit.Usage, "argument %q is given twice", key)
		}
		arguments[key] = value
	}
	return arguments, nil
}

func parseArgument(word string) (string, any, error) {
	key, value, found := strings.Cut(word, "=")
	if !found {
		return "", nil, fmt.Errorf("%q is not an argument: write k=v for a string, k:=json for anything else", word)
	}
	key, isJSON := strings.CutSuffix(key, ":")
	if key == "" {
		return "", nil, fmt.Errorf("%q has no name before the =", word)
	}
	if !isJSON {
		return key, value, nil
	}
	parsed, err := canonical.Parse([]byte(value))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", word, err)
	}
	return key, parsed, nil
}
