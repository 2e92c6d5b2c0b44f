package cli

import (
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

const samples = "../../../../config/samples"

// samplePolicies are the ActionPolicies of config/samples, by name.
func samplePolicies(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(samples, "policies", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range paths {
		switch name := strings.TrimSuffix(filepath.Base(path), ".yaml"); name {
		case "kustomization", "settings":
		default:
			out[name] = path
		}
	}
	return out
}

// There is a policy for each of the sectors, and a table for each policy.
func TestSamplesAreThere(t *testing.T) {
	policies := samplePolicies(t)
	for _, sector := range []string{"devops", "payment-operations", "e-commerce", "insurance", "healthcare", "legal", "security", "government", "hr"} {
		if policies[sector] == "" {
			t.Errorf("there is no sample for %s", sector)
		}
	}
	tables, err := filepath.Glob(filepath.Join(samples, "policytests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, strings.TrimSuffix(filepath.Base(table), ".yaml"))
	}
	if want := slices.Sorted(maps.Keys(policies)); !slices.Equal(names, want) {
		t.Errorf("tables are %v, policies %v", names, want)
	}
}

// Every sample is valid, no two share an action, and whatever lint warns of is explained in the comment before it.
func TestSamplesPassLint(t *testing.T) {
	r := run(t, "", "policy", "lint", "-R", "-f", filepath.Join(samples, "policies"))
	if r.code != exit.Done {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	seen := map[string]string{}
	for name, path := range samplePolicies(t) {
		document := parseSample(t, path)
		for action := range document.Actions {
			if other := seen[action]; other != "" {
				t.Errorf("%s is in the samples %s and %s", action, other, name)
			}
			seen[action] = name
		}
		lines := strings.Split(readSample(t, path), "\n")
		_, findings, err := policy.ParseYAML(path, []byte(readSample(t, path)))
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range findings {
			above := ""
			for i := finding.Line - 2; i >= 0 && strings.HasPrefix(strings.TrimSpace(lines[i]), "#"); i-- {
				above = lines[i] + above
			}
			if !strings.Contains(above, "# lint warns: ") && !strings.Contains(above, "Reading changes nothing, so it needs no effect.") {
				t.Errorf("nothing explains %s", finding)
			}
		}
	}
}

// Every table passes, has at least ten decisions, and comes to each decision that its policy can come to: what is changed in a
// policy, is changed in its table.
func TestSamplesDecideAsTheirTablesSay(t *testing.T) {
	for name, path := range samplePolicies(t) {
		t.Run(name, func(t *testing.T) {
			table := filepath.Join(samples, "policytests", name+".yaml")
			r := run(t, "", "policy", "test", "-f", table)
			if r.code != exit.Done || strings.Contains(r.stderr, "no test names") {
				t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
			}
			parsed, err := parsePolicyTests([]byte(readSample(t, table)))
			if err != nil {
				t.Fatal(err)
			}
			if len(parsed.tests) < 10 {
				t.Errorf("%d decisions are tested, want ten", len(parsed.tests))
			}
			document := parseSample(t, path)
			set := policy.NewSet([]policy.Source{document.Source(name)})
			reached := map[string]bool{}
			for _, test := range parsed.tests {
				if evaluation, err := set.Evaluate(test.proposal); err == nil {
					reached[place(test.proposal.Name, evaluation.Reason)] = true
				}
			}
			for action, entry := range document.Actions {
				reasons := []decision.Reason{decision.PlainDecision}
				if len(entry.Rules) > 0 {
					reasons = nil
				}
				for i := range entry.Rules {
					reasons = append(reasons, decision.Rule(i))
				}
				for _, reason := range reasons {
					if !reached[place(action, reason)] {
						t.Errorf("no test comes to %s", place(action, reason))
					}
				}
			}
		})
	}
}

// Every upper limit of what runs is pinned by its table, with a test at the limit and one just beyond it that comes to something
// else: a limit with a digit too many fails.
func TestSamplesPinTheirLimits(t *testing.T) {
	for name, path := range samplePolicies(t) {
		t.Run(name, func(t *testing.T) {
			parsed, err := parsePolicyTests([]byte(readSample(t, filepath.Join(samples, "policytests", name+".yaml"))))
			if err != nil {
				t.Fatal(err)
			}
			document := parseSample(t, path)
			set := policy.NewSet([]policy.Source{document.Source(name)})
			reasons := func(action, argument string, value *big.Int) map[decision.Reason]bool {
				out := map[decision.Reason]bool{}
				for _, test := range parsed.tests {
					n, ok := canonical.Integer(test.proposal.Arguments[argument])
					if test.proposal.Name != action || !ok || n.Cmp(value) != 0 {
						continue
					}
					if evaluation, err := set.Evaluate(test.proposal); err == nil {
						out[evaluation.Reason] = true
					}
				}
				return out
			}
			for action, entry := range document.Actions {
				for i, rule := range entry.Rules {
					if rule.Decision == decision.Deny {
						continue
					}
					for argument, bounds := range rule.When.Ranges() {
						if bounds.High == nil {
							continue
						}
						this := decision.Rule(i)
						beyond := reasons(action, argument, new(big.Int).Add(bounds.High, big.NewInt(1)))
						if !reasons(action, argument, bounds.High)[this] {
							t.Errorf("no test of %s is at %s %s", place(action, this), argument, bounds.High)
						}
						if len(beyond) == 0 || beyond[this] {
							t.Errorf("no test of %s is just beyond %s %s", place(action, this), argument, bounds.High)
						}
					}
				}
			}
		})
	}
}

// What a sample of a sector is for: it allows, asks, asks two, and refuses without a condition, and every action that can run
// and is not said to read has an effect key and a resource.
func TestSamplesShowEachDecision(t *testing.T) {
	for name, path := range samplePolicies(t) {
		if name == "payments" { // the short one of the demo
			continue
		}
		t.Run(name, func(t *testing.T) {
			found := map[string]bool{}
			reads := 0
			for action, entry := range parseSample(t, path).Actions {
				decisions := []decision.Decision{entry.Decision}
				for _, rule := range entry.Rules {
					decisions = append(decisions, rule.Decision)
				}
				runs := slices.Contains(decisions, decision.Allow) || slices.Contains(decisions, decision.Approve)
				found["allow"] = found["allow"] || slices.Contains(decisions, decision.Allow)
				found["approve"] = found["approve"] || slices.Contains(decisions, decision.Approve)
				found["approvalsRequired: 2"] = found["approvalsRequired: 2"] || entry.ApprovalsRequired >= 2
				found["maxAttempts"] = found["maxAttempts"] || entry.MaxAttempts > 0
				found["decision: deny"] = found["decision: deny"] || entry.Decision == decision.Deny
				if runs && entry.Resource.IsZero() {
					t.Errorf("%s has no resource", action)
				}
				if runs && entry.Effect.IsZero() {
					reads++
				}
			}
			for _, want := range []string{"allow", "approve", "approvalsRequired: 2", "maxAttempts", "decision: deny"} {
				if !found[want] {
					t.Errorf("nothing shows %s", want)
				}
			}
			text := readSample(t, path)
			if explained := strings.Count(text, "# lint warns: it reads"); reads != explained {
				t.Errorf("%d actions have no effect key, and %d are said to read", reads, explained)
			}
			if !strings.HasPrefix(text, "# A starting point for ") || !strings.Contains(text, "no claim to comply with anything") {
				t.Error("it does not say that it is a starting point")
			}
		})
	}
}

func place(action string, reason decision.Reason) string { return fmt.Sprintf("%s %s", action, reason) }

func readSample(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parseSample(t *testing.T, path string) policy.Document {
	t.Helper()
	document, findings, err := policy.ParseYAML(path, []byte(readSample(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range findings {
		if !finding.Warning {
			t.Fatal(finding)
		}
	}
	return document
}
