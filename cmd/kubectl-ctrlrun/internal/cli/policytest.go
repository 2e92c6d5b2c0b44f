package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

const policyTestLong = `Run a table of actions and the decisions you expect, without a cluster.

The table is YAML:

  schema: ctrlrun.policytest/v1
  policies: [payments.yaml]          # relative to the table; --policy replaces them
  tests:
  - name: small refunds need nobody
    action: stripe.refund
    arguments: {payment_id: txn_1, amount: 500}
    expect: allow
  - name: large refunds need a person
    action: stripe.refund
    arguments: {payment_id: txn_1, amount: 200000}
    agent: refund-bot                # optional, "test" if left out; also user, resource, environment
    expect:
      decision: approve
      reason: rule[1]                # optional: reason, effectKey, resource (null: there is none)
      effectKey: refund:txn_1
  - name: nobody can refund nothing
    action: stripe.refund
    arguments: {}
    expect: error                    # no action can be built: its resource cannot be resolved

Each test prints "ok" or "FAIL" and what differed. An action that a policy has and no test names is listed at the end.
Exit code 0: all tests pass. 1: one does not, or the table or a policy is not valid.`

const policyTestSchema = "ctrlrun.policytest/v1"

func (a *app) policyTestCommand() *cobra.Command {
	var file string
	var policies []string
	cmd := &cobra.Command{
		Use:     "test -f TABLE [--policy FILE...]",
		Short:   "Run a table of actions and expected decisions",
		Long:    policyTestLong,
		Example: "  kubectl ctrlrun policy test -f payments-test.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := onceStdin(append([]string{file}, policies...)...); err != nil {
				return err
			}
			return a.testPolicies(file, policies)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "the table, or - for stdin")
	cmd.Flags().StringArrayVar(&policies, "policy", nil, "a policy to test instead of those the table names; may be repeated")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

// policyTestTable is a parsed table.
type policyTestTable struct {
	policies []string
	tests    []policyTest
}

type policyTest struct {
	name     string
	line     int
	proposal action.Proposal
	expect   expectation
}

// expectation is what a test expects. A pointer that is nil is not compared; for key and resource a pointer to nil expects
// that there is none.
type expectation struct {
	buildError bool
	decision   decision.Decision
	reason     *string
	effectKey  **string
	resource   **string
}

func (a *app) testPolicies(file string, policies []string) error {
	data, err := a.readInput(file)
	if err != nil {
		return err
	}
	table, err := parsePolicyTests(data)
	if err != nil {
		return fmt.Errorf("%s: %w", inputName(file), err)
	}
	if len(policies) == 0 {
		for _, path := range table.policies {
			if !filepath.IsAbs(path) && file != "-" {
				path = filepath.Join(filepath.Dir(file), path)
			}
			policies = append(policies, path)
		}
	}
	if len(policies) == 0 {
		return exit.Errorf(exit.Usage, "%s names no policies: give policies: in the table, or --policy FILE", inputName(file))
	}
	files, err := a.readPolicies(policies, named)
	if err != nil {
		return err
	}
	set, err := policySet(files)
	if err != nil {
		return err
	}
	return a.runPolicyTests(inputName(file), set, table.tests)
}

func (a *app) runPolicyTests(file string, set *policy.Set, tests []policyTest) error {
	failed := 0
	tested := map[string]bool{}
	for _, test := range tests {
		tested[test.proposal.Name] = true
		differences := test.run(set)
		if len(differences) == 0 {
			a.println("ok   ", displayLine(test.name))
			continue
		}
		failed++
		a.println("FAIL ", displayLine(test.name), fmt.Sprintf("(%s:%d)", file, test.line))
		for _, difference := range differences {
			a.println("       " + oneLine(difference))
		}
	}
	for _, name := range set.Names() {
		if !tested[name] {
			a.note("no test names %s", displayLine(name))
		}
	}
	if failed > 0 {
		return exit.Errorf(exit.Failure, "%d of %s failed", failed, count(len(tests), "test"))
	}
	a.note("%s passed", count(len(tests), "test"))
	return nil
}

func (t policyTest) run(set *policy.Set) []string {
	got, err := set.Evaluate(t.proposal)
	if t.expect.buildError {
		if err == nil {
			return []string{fmt.Sprintf("expected an error, got %s (%s)", got.Decision, got.Reason)}
		}
		return nil
	}
	if err != nil {
		return []string{"no action can be built: " + err.Error()}
	}
	var differences []string
	differ := func(what, want, have string) {
		if want != have {
			differences = append(differences, fmt.Sprintf("%s: expected %s, got %s", what, want, have))
		}
	}
	differ("decision", string(t.expect.decision), string(got.Decision))
	if len(differences) > 0 {
		differences[0] += fmt.Sprintf(" (%s)", got.Reason)
	}
	if t.expect.reason != nil {
		differ("reason", *t.expect.reason, string(got.Reason))
	}
	if t.expect.effectKey != nil {
		differ("effectKey", quoteOrNull(*t.expect.effectKey), quoteOrNull(got.EffectKey))
	}
	if t.expect.resource != nil {
		differ("resource", quoteOrNull(*t.expect.resource), quoteOrNull(got.Proposal.Resource))
	}
	return differences
}

func quoteOrNull(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

// parsePolicyTests reads a table strictly: a misspelt key would silently test less.
func parsePolicyTests(data []byte) (policyTestTable, error) {
	root, err := documentRoot(data)
	if err != nil {
		return policyTestTable{}, err
	}
	if err := onlyKeys(root, "schema", "policies", "tests"); err != nil {
		return policyTestTable{}, err
	}
	if schema := member(root, "schema"); schema == nil || schema.Value != policyTestSchema {
		return policyTestTable{}, fmt.Errorf("line %d: a table begins with schema: %s", root.Line, policyTestSchema)
	}
	var table policyTestTable
	if node := member(root, "policies"); node != nil {
		if err := node.Decode(&table.policies); err != nil {
			return table, fmt.Errorf("line %d: policies is a list of files: %w", node.Line, err)
		}
	}
	tests := member(root, "tests")
	if tests == nil || tests.Kind != yaml.SequenceNode || len(tests.Content) == 0 {
		return table, fmt.Errorf("line %d: tests is a list with at least one test", root.Line)
	}
	for i, node := range tests.Content {
		test, err := parsePolicyTest(i, node)
		if err != nil {
			return table, err
		}
		table.tests = append(table.tests, test)
	}
	return table, nil
}

func parsePolicyTest(index int, node *yaml.Node) (policyTest, error) {
	if err := onlyKeys(node, "name", "action", "arguments", "agent", "user", "resource", "environment", "expect"); err != nil {
		return policyTest{}, err
	}
	test := policyTest{name: fmt.Sprintf("tests[%d]", index), line: node.Line}
	if name := member(node, "name"); name != nil {
		test.name = name.Value
	}
	document := map[string]json.RawMessage{"arguments": json.RawMessage("{}")}
	principal := map[string]json.RawMessage{"agent": json.RawMessage(`"test"`)}
	for key, target := range map[string]map[string]json.RawMessage{
		"action": document, "arguments": document, "resource": document, "environment": document, "agent": principal, "user": principal,
	} {
		value := member(node, key)
		if value == nil {
			continue
		}
		text, err := jsonOf(value)
		if err != nil {
			return test, err
		}
		if key == "action" {
			key = "name"
		}
		target[key] = text
	}
	var err error
	if document["principal"], err = json.Marshal(principal); err != nil {
		return test, err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return test, fmt.Errorf("line %d: %w", node.Line, err)
	}
	if test.proposal, err = action.ParseDocument(text); err != nil {
		return test, fmt.Errorf("line %d: %s: %w", node.Line, test.name, err)
	}
	if test.expect, err = parseExpectation(node, member(node, "expect")); err != nil {
		return test, err
	}
	return test, nil
}

func parseExpectation(test, node *yaml.Node) (expectation, error) {
	if node == nil {
		return expectation{}, fmt.Errorf("line %d: a test needs expect: allow, approve, deny or error", test.Line)
	}
	if node.Kind == yaml.ScalarNode {
		return parseExpectedDecision(node)
	}
	if err := onlyKeys(node, "decision", "reason", "effectKey", "resource"); err != nil {
		return expectation{}, err
	}
	word := member(node, "decision")
	if word == nil {
		return expectation{}, fmt.Errorf("line %d: expect needs decision: allow, approve or deny", node.Line)
	}
	e, err := parseExpectedDecision(word)
	if err != nil {
		return e, err
	}
	if reason := member(node, "reason"); reason != nil {
		e.reason = &reason.Value
	}
	if e.effectKey, err = optionalString(member(node, "effectKey")); err != nil {
		return e, err
	}
	e.resource, err = optionalString(member(node, "resource"))
	return e, err
}

func parseExpectedDecision(node *yaml.Node) (expectation, error) {
	if node.Value == "error" {
		return expectation{buildError: true}, nil
	}
	e := expectation{decision: decision.Decision(node.Value)}
	if !e.decision.Valid() {
		return e, fmt.Errorf("line %d: expect %q: use allow, approve, deny or error", node.Line, node.Value)
	}
	return e, nil
}

func optionalString(node *yaml.Node) (**string, error) {
	if node == nil {
		return nil, nil
	}
	var value *string
	switch {
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null":
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str":
		value = &node.Value
	default:
		return nil, fmt.Errorf("line %d: %s must be a string or null", node.Line, node.Value)
	}
	return &value, nil
}

// onlyKeys refuses keys outside the closed list, keys given twice, and anything that is not a mapping.
func onlyKeys(node *yaml.Node, allowed ...string) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: expected a mapping with the keys %s", node.Line, strings.Join(allowed, ", "))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		known := false
		for _, name := range allowed {
			known = known || key.Value == name
		}
		if !known {
			return fmt.Errorf("line %d: unknown key %q: use %s", key.Line, key.Value, strings.Join(allowed, ", "))
		}
		if seen[key.Value] {
			return fmt.Errorf("line %d: key %q is given twice", key.Line, key.Value)
		}
		seen[key.Value] = true
	}
	return nil
}
