package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/policy"
)

const lintLong = `Check policies before they reach a cluster. Findings are printed as "file:line: message".

It takes ctrlrun policy documents and ActionPolicy manifests, several documents in a file, several files, and stdin (-); -R
walks a directory and takes the policies in it. All of them are checked as the union they will be in one namespace. It also
warns of what another YAML reader would change without saying so: NO, on and y, 010, 1_000, 500.0, a key given twice.

Exit code 0: valid, warnings allowed. 1: invalid.`

func (a *app) policyCommand() *cobra.Command {
	return group("policy", "Check, convert, test and compare policies",
		a.lintCommand(), a.convertCommand(), a.policyTestCommand(), a.policyDiffCommand())
}

// lintAlias is `kubectl ctrlrun lint`.
func (a *app) lintAlias() *cobra.Command { return a.lintCommand() }

func (a *app) lintCommand() *cobra.Command {
	var paths []string
	var recursive bool
	cmd := &cobra.Command{
		Use:     "lint -f FILE...",
		Short:   "Check policies before they reach a cluster",
		Long:    lintLong,
		Example: "  kubectl ctrlrun lint -f payments.yaml\n  kubectl ctrlrun lint -R -f deploy/",
		RunE: func(_ *cobra.Command, args []string) error {
			paths = append(paths, args...)
			if len(paths) == 0 {
				return exit.Errorf(exit.Usage, "name a policy: -f FILE, or -f - for stdin")
			}
			walk := named
			if recursive {
				walk = below
			}
			return a.lint(paths, walk)
		},
	}
	cmd.Flags().StringArrayVarP(&paths, "filename", "f", nil, "a policy document or ActionPolicy manifest, or - for stdin; may be repeated")
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "walk directories and check the policies in them")
	return cmd
}

func (a *app) lint(paths []string, walk recursion) error {
	files, err := a.readPolicies(paths, walk)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return exit.Errorf(exit.Usage, "no policy found")
	}
	findings := conflicts(files)
	for _, file := range files {
		findings = append(findings, file.findings...)
	}
	sortFindings(findings)
	errors := 0
	for _, finding := range findings {
		a.println(oneLine(finding.String()))
		if !finding.Warning {
			errors++
		}
	}
	if errors > 0 {
		return exit.Errorf(exit.Failure, "%s in %s", count(errors, "error"), count(len(files), "policy"))
	}
	a.note("%s valid, %s", count(len(files), "policy"), count(len(findings), "warning"))
	return nil
}

// conflicts finds actions that two policies of one namespace define differently: every proposal of them would be denied.
func conflicts(files []policyFile) []policy.Finding {
	type place struct{ namespace, action string }
	first := map[place]policyFile{}
	var findings []policy.Finding
	for _, file := range files {
		for _, name := range sortedKeys(file.document.Actions) {
			at := place{file.document.Namespace, name}
			earlier, known := first[at]
			if !known {
				first[at] = file
				continue
			}
			if file.document.Actions[name].Equal(earlier.document.Actions[name]) {
				continue
			}
			line, column := actionPosition(file.data, name)
			findings = append(findings, policy.Finding{
				File: file.name, Line: line, Column: column, Path: fmt.Sprintf("actions[%q]", name),
				Message: fmt.Sprintf("%s defines this action differently, so every proposal of it would be denied (policy_conflict); keep one of them", earlier.label()),
			})
		}
	}
	return findings
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if noun == "policy" {
		return fmt.Sprintf("%d policies", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
