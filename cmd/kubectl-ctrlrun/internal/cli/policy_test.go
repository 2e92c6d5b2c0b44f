package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

const refunds = `schema: ctrlrun.policy/v2
actions:
  stripe.refund:
    effect: "refund:{payment_id}"
    resource: "payment:{payment_id}"
    rules:
    - when: {amount_gte: 1, amount_lte: 500}
      decision: allow
    - when: {amount_gte: 1, amount_lte: 5000}
      decision: approve
    - decision: deny
`

const refundsManifest = `apiVersion: ctrlrun.dev/v1alpha1
kind: ActionPolicy
metadata: {name: other}
spec:
  actions:
    stripe.refund: {decision: deny}
`

const role = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r}
rules: []
`

func TestLint(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		code exit.Code
		want string // a part of stdout
	}{
		"valid":                    {text: refunds},
		"a manifest":               {text: refundsManifest},
		"a manifest beside a Role": {text: role + "---\n" + refundsManifest},
		"nothing but a Role":       {text: role, code: exit.Failure, want: ":1: "},
		"empty":                    {text: "", code: exit.Failure, want: ":1: "},
		"a misspelt key":           {text: strings.Replace(refunds, "effect:", "efect:", 1), code: exit.Failure, want: ":4: "},
		"the line in a second document": {
			text: role + "---\n" + strings.Replace(refunds, "decision: deny", "decision: maybe", 1), code: exit.Failure, want: ":16: "},
		"a warning is no error": {
			text: strings.Replace(refunds, "amount_gte: 1, amount_lte: 500}", "flag_eq: NO, amount_lte: 500}", 1), want: "warning"},
		"a key given twice": {text: refunds + "  stripe.refund: {decision: allow}\n", code: exit.Failure, want: ":12: "},
		"a conflict inside one file": {
			text: "# first\n---\n" + refundsManifest + "---\n" + strings.Replace(refundsManifest, "decision: deny", "decision: allow", 1),
			code: exit.Failure, want: "policy_conflict"},
		"no conflict between equal entries": {text: refundsManifest + "---\n" + refundsManifest},
		"no conflict between namespaces": {
			text: refundsManifest + "---\n" + strings.NewReplacer("name: other", "name: other, namespace: b", "decision: deny", "decision: allow").Replace(refundsManifest)},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "policy.yaml", test.text)
			fromFile, fromStdin, nested := run(t, "", "lint", "-f", path), run(t, test.text, "lint", "-f", "-"), run(t, "", "policy", "lint", path)
			if fromFile.code != test.code || fromStdin.code != test.code || nested.code != test.code {
				t.Fatalf("exit codes %d, %d, %d, want %d\n%s%s", fromFile.code, fromStdin.code, nested.code, test.code, fromFile.stdout, fromFile.stderr)
			}
			if !strings.Contains(fromFile.stdout, test.want) {
				t.Errorf("no %q in %q", test.want, fromFile.stdout)
			}
			if test.want != "" && !strings.HasPrefix(fromFile.stdout, path+":") {
				t.Errorf("a finding does not begin with its file: %q", fromFile.stdout)
			}
			if test.want != "" && !strings.HasPrefix(fromStdin.stdout, "stdin:") {
				t.Errorf("a finding does not begin with stdin: %q", fromStdin.stdout)
			}
		})
	}
}

func TestLintOfADirectoryTakesThePoliciesInIt(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/policy.yaml":   refunds,
		"a/role.yml":      role,
		"b/values.yaml":   "replicas: 3\n",
		"b/notes.txt":     "actions: nonsense",
		".git/broken.yml": "actions: {",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, "", "lint", "-R", "-f", dir)
	if r.code != exit.Done || !strings.Contains(r.stderr, "1 policy valid") {
		t.Fatalf("got %+v", r)
	}
	// Two documents that contradict each other in different files are found as the union they will be.
	if err := os.WriteFile(filepath.Join(dir, "b", "second.yaml"), []byte("schema: ctrlrun.policy/v1\nactions:\n  stripe.refund: {decision: allow}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = run(t, "", "lint", "-R", "-f", dir)
	if r.code != exit.Failure || !strings.Contains(r.stdout, filepath.Join("b", "second.yaml")+":3: ") {
		t.Errorf("got %+v", r)
	}
	// A file with actions and no schema is not passed over.
	if err := os.WriteFile(filepath.Join(dir, "b", "second.yaml"), []byte("actions: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r = run(t, "", "lint", "-R", "-f", dir); r.code != exit.Failure {
		t.Errorf("got %+v", r)
	}
}

func TestLintOfADirectoryWithoutPoliciesIsNotSuccess(t *testing.T) {
	run(t, "", "lint", "-R", "-f", t.TempDir()).refused(t, exit.Usage)
}

func TestConvert(t *testing.T) {
	path := write(t, "ctrlrun.yaml", refunds)
	r := run(t, "", "policy", "convert", "-f", path, "--name", "payments", "-n", "shop")
	if r.code != exit.Done {
		t.Fatal(r.stderr)
	}
	for _, line := range []string{"kind: ActionPolicy", `name: "payments"`, `namespace: "shop"`} {
		if !strings.Contains(r.stdout, line) {
			t.Errorf("no %q in\n%s", line, r.stdout)
		}
	}
	// The manifest says the same as the document.
	manifest := write(t, "manifest.yaml", r.stdout)
	document := `{"name":"stripe.refund","arguments":{"payment_id":"t","amount":700},"principal":{"agent":"x"}}`
	before := run(t, document, "evaluate", "--policy", path, "--action", "-", "-o", "json")
	after := run(t, document, "evaluate", "--policy", manifest, "--action", "-", "-o", "json")
	if before.code != exit.Done || before.stdout != after.stdout {
		t.Errorf("before %s after %s%s", before.stdout, after.stdout, after.stderr)
	}
	run(t, "schema: ctrlrun.policy/v1\nactions: []\n", "policy", "convert", "-f", "-").refused(t, exit.Failure)
}

func TestEvaluateForPeople(t *testing.T) {
	r := run(t, `{"name":"iam.grant","arguments":{},"principal":{"agent":"x"}}`, "evaluate", "--policy", write(t, "p.yaml", refunds), "--action", "-")
	if r.code != exit.Done || !strings.Contains(r.stdout, "unknown_action") || !strings.Contains(r.stdout, "deny") {
		t.Errorf("got %+v", r)
	}
}

func TestPolicyTestTable(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "refunds.yaml"), []byte(refunds), 0o600); err != nil {
		t.Fatal(err)
	}
	table := func(text string) string {
		path := filepath.Join(dir, "table.yaml")
		if err := os.WriteFile(path, []byte("schema: ctrlrun.policytest/v1\npolicies: [refunds.yaml]\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	passing := `tests:
- name: small
  action: stripe.refund
  arguments: {payment_id: txn_1, amount: 500}
  expect: allow
- name: large
  action: stripe.refund
  arguments: {payment_id: txn_1, amount: 501}
  agent: bot
  user: alice
  environment: staging
  expect: {decision: approve, reason: "rule[1]", effectKey: "refund:txn_1", resource: "payment:txn_1"}
- name: huge
  action: stripe.refund
  arguments: {payment_id: txn_1, amount: 123456789012345678901234567890}
  expect: deny
- name: unknown
  action: iam.grant
  expect: {decision: deny, reason: unknown_action, effectKey: null, resource: null}
- name: without a payment
  action: stripe.refund
  arguments: {amount: 1}
  expect: error
`
	r := run(t, "", "policy", "test", "-f", table(passing))
	if r.code != exit.Done || strings.Count(r.stdout, "ok ") != 5 || !strings.Contains(r.stderr, "5 tests passed") {
		t.Errorf("got %+v", r)
	}
	for name, test := range map[string]struct{ text, want string }{
		"another decision": {"- {action: stripe.refund, arguments: {payment_id: t, amount: 1}, expect: deny}", "decision: expected deny, got allow (rule[0])"},
		"another key":      {"- {action: stripe.refund, arguments: {payment_id: t, amount: 1}, expect: {decision: allow, effectKey: x}}", `effectKey: expected "x", got "refund:t"`},
		"a key, not none":  {"- {action: stripe.refund, arguments: {payment_id: t, amount: 1}, expect: {decision: allow, effectKey: null}}", `effectKey: expected null, got "refund:t"`},
		"another reason":   {"- {action: stripe.refund, arguments: {payment_id: t, amount: 1}, expect: {decision: allow, reason: 'rule[1]'}}", "reason: expected rule[1], got rule[0]"},
		"no error":         {"- {action: stripe.refund, arguments: {payment_id: t, amount: 1}, expect: error}", "expected an error, got allow"},
		"an error":         {"- {action: stripe.refund, arguments: {amount: 1}, expect: allow}", "no action can be built"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, "", "policy", "test", "-f", table("tests:\n"+test.text+"\n"))
			if r.code != exit.Failure || !strings.Contains(r.stdout, "FAIL ") || !strings.Contains(r.stdout, test.want) {
				t.Errorf("got %+v", r)
			}
		})
	}
	for name, text := range map[string]string{
		"no tests":               "tests: []",
		"a misspelt key":         "tests:\n- {action: a, argument: {}, expect: allow}",
		"a misspelt expectation": "tests:\n- {action: a, expect: {decision: allow, effect_key: x}}",
		"a key given twice":      "tests:\n- {action: a, action: b, expect: allow}",
		"no expectation":         "tests:\n- {action: a}",
		"an unknown decision":    "tests:\n- {action: a, expect: maybe}",
		"a fraction":             "tests:\n- {action: a, arguments: {x: 1.5}, expect: deny}",
		"an octal number":        "tests:\n- {action: a, arguments: {x: 010}, expect: deny}",
		"a date":                 "tests:\n- {action: a, arguments: {x: 2026-01-01}, expect: deny}",
		"no action":              "tests:\n- {expect: deny}",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, "", "policy", "test", "-f", table(text+"\n")).refused(t, exit.Failure)
		})
	}
}

func TestPolicyTestWarnsOfUntestedActions(t *testing.T) {
	table := write(t, "t.yaml", "schema: ctrlrun.policytest/v1\ntests:\n- {action: other, expect: deny}\n")
	r := run(t, "", "policy", "test", "-f", table, "--policy", write(t, "p.yaml", refunds))
	if r.code != exit.Done || !strings.Contains(r.stderr, "no test names stripe.refund") {
		t.Errorf("got %+v", r)
	}
}

func TestInitWritesAValidPolicyOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ctrlrun.yaml")
	if r := run(t, "", "init", "-f", path, "-n", "payments"); r.code != exit.Done {
		t.Fatalf("got %+v", r)
	}
	r := run(t, "", "lint", "-f", path)
	if r.code != exit.Done || r.stdout != "" {
		t.Errorf("the first policy has findings: %+v", r)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), "namespace: payments") != 3 || strings.Contains(string(text), "NAMESPACE") {
		t.Errorf("the namespace is not in every object:\n%s", text)
	}
	run(t, "", "init", "-f", path).refused(t, exit.Failure)
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(text) {
		t.Errorf("a second init changed the file: %v", err)
	}
}
