package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// result is what a process would have shown.
type result struct {
	code   exit.Code
	stdout string
	stderr string
}

// run executes one command line in this process, as main does.
func run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut}
	code := Run(context.Background(), streams, "v0.0.0-test", args)
	return result{code: exit.Code(code), stdout: out.String(), stderr: errOut.String()}
}

// refused checks the promise about refusals: a code, a message on stderr, and no answer on stdout.
func (r result) refused(t *testing.T, code exit.Code) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; stderr: %s", r.code, code, r.stderr)
	}
	if r.stdout != "" {
		t.Errorf("a refusal printed an answer: %q", r.stdout)
	}
	if !strings.HasPrefix(r.stderr, "error: ") {
		t.Errorf("a refusal has no message: %q", r.stderr)
	}
}

func (r result) answered(t *testing.T, want string) {
	t.Helper()
	if r.code != exit.Done {
		t.Fatalf("exit code %d, stderr: %s", r.code, r.stderr)
	}
	if r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMistakesInTheCommandLineExitWithUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown command":                    {"aprove"},
		"unknown subcommand":                 {"policy", "lnit"},
		"group without subcommand":           {"pattern"},
		"unknown flag":                       {"hash", "--fille", "x"},
		"missing required flag":              {"hash"},
		"too many arguments":                 {"name", "a", "b"},
		"file that is not there":             {"hash", "-f", "/nonexistent/action.json"},
		"approve without looking":            {"approve", "x", "--yes"},
		"approve for somebody else":          {"approve", "x", "--approver", "eve"},
		"unknown dry run":                    {"approve", "x", "--dry-run=server"},
		"unknown output format":              {"version", "-o", "xml"},
		"unknown output format of objects":   {"pending", "-o", "xml"},
		"unknown state":                      {"effects", "--state", "lost"},
		"unknown state of actions":           {"actions", "--state", "lost"},
		"unknown kind of receipts":           {"receipts", "--kind", "lost"},
		"resolve without result":             {"resolve", "x", "--reason", "r"},
		"resolve with both results":          {"resolve", "x", "--reason", "r", "--committed", "--not-executed"},
		"not executed without evidence":      {"resolve", "x", "--reason", "r", "--not-executed"},
		"resolve without reason":             {"resolve", "x", "--committed"},
		"answers beside a file of them":      {"resolve", "-f", "x", "--reason", "r"},
		"unknown dry run of resolve":         {"resolve", "-f", "x", "--dry-run=server"},
		"unknown column of stats":            {"stats", "--by", "colour"},
		"run without command":                {"run", "a.b"},
		"run with a command that is missing": {"run", "a.b", "--", "/nonexistent/cmd"},
		"run without type":                   {"run", "--", "true"},
		"argument without value":             {"run", "a.b", "amount", "--", "true"},
		"fraction":                           {"run", "a.b", "amount:=1.5", "--", "true"},
		"number Kubernetes cannot store":     {"run", "a.b", "amount:=123456789012345678901234567890", "--", "true"},
		"argument given twice":               {"run", "a.b", "x=1", "x=2", "--", "true"},
		"zero as not executed":               {"run", "a.b", "--not-executed-exit", "0", "--", "true"},
		"lease too short":                    {"run", "a.b", "--lease", "5s", "--", "true"},
		"report without result":              {"report", "x", "--claim-id", "y"},
		"report with two results":            {"report", "x", "--claim-id", "y", "--committed", "--unknown"},
		"wait without a name":                {"wait"},
		"inspect without a name":             {"inspect"},
		"inspect with name and key":          {"inspect", "x", "--key", "y"},
		"verb that nobody has":               {"can-i", "eat", "a.b"},
		"who-can of another verb":            {"who-can", "propose", "a.b"},
		"who-can of no type":                 {"who-can", "approve", ""},
		"who-can of the placeholder":         {"who-can", "resolve", "TYPE"},
		"can-i of the placeholder":           {"can-i", "approve", "TYPE"},
		"head that is not one":               {"receipts", "verify", "-f", "x", "--head", "seven"},
		"ledger without reason":              {"ledger", "accept", "ns", "--head", "1:sha256:" + strings.Repeat("a", 64)},
		"stdin twice":                        {"evaluate", "--policy", "-", "--action", "-"},
		"unknown receipts subcommand":        {"receipts", "verfy"},
		"delegate without parent":            {"delegate", "-f", "x"},
		"delegate without terms":             {"delegate", "--parent", "x"},
		"parent of another kind":             {"delegate", "--parent", "Action/x", "-f", "-"},
		"parent without a name":              {"delegate", "--parent", "Grant/", "-f", "-"},
		"break glass without reason":         {"delegate", "--parent", "x", "-f", "-", "--break-glass"},
		"break glass of a delegation":        {"delegate", "--parent", "Delegation/x", "-f", "-", "--break-glass", "--reason", "r"},
		"unknown dry run of delegate":        {"delegate", "--parent", "x", "-f", "-", "--dry-run=server"},
		"terms that are not there":           {"delegate", "--parent", "x", "-f", "/nonexistent/terms.yaml"},
		"unknown output format of grants":    {"grants", "-o", "xml"},
		"argument of grants":                 {"grants", "x"},
		"why without type":                   {"why"},
		"why of the placeholder":             {"why", "TYPE"},
		"why with a fraction":                {"why", "a.b", "amount:=1.5"},
		"unknown output format of why":       {"why", "a.b", "-o", "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, "", args...).refused(t, exit.Usage)
		})
	}
}

// TestThePagesNameCommandsThatExist reads all documentation.
func TestThePagesNameCommandsThatExist(t *testing.T) {
	root := newRoot(genericiooptions.NewTestIOStreamsDiscard(), "")
	named := regexp.MustCompile("kubectl ctrlrun ([a-z][a-z-]*)")
	found := map[string]bool{}
	top := filepath.Join("..", "..", "..", "..")
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "config/*/*.md", "config/samples/*/*"} {
		pages, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(pages), err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				continue // a directory
			}
			for _, match := range named.FindAllStringSubmatch(string(text), -1) {
				found[match[1]] = true
				if cmd, _, err := root.Find([]string{match[1]}); err != nil || cmd == root {
					t.Errorf("%s names %q, which is no command", page, match[0])
				}
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("the pages name %d commands", len(found))
	}
}

func TestAMistakePointsToTheHelpOfItsCommand(t *testing.T) {
	for want, args := range map[string][]string{
		`"kubectl ctrlrun report --help"`:        {"report", "x"},
		`"kubectl ctrlrun ledger accept --help"`: {"ledger", "accept"},
		`"kubectl ctrlrun name --help"`:          {"name", "a", "b"},
	} {
		if r := run(t, "", args...); !strings.Contains(r.stderr, want) {
			t.Errorf("%v: %s does not name %s", args, r.stderr, want)
		}
	}
}

// Behind -- flags are the command's own.
func TestUsageShowsFlagsBeforeTheCommand(t *testing.T) {
	for _, name := range []string{"run", "claim"} {
		r := run(t, "", name, "--help")
		_, usage, _ := strings.Cut(r.stdout, "Usage:\n")
		line, _, _ := strings.Cut(usage, "\n")
		flags, command := strings.Index(line, "[flags]"), strings.Index(line, "-- CMD")
		if flags < 0 || command < flags || strings.Count(line, "[flags]") != 1 {
			t.Errorf("%s: %q", name, line)
		}
	}
}

func TestUnknownCommandsAreSuggested(t *testing.T) {
	r := run(t, "", "aprove")
	if !strings.Contains(r.stderr, "did you mean approve?") {
		t.Errorf("no suggestion: %s", r.stderr)
	}
}

func TestAClusterThatDoesNotAnswerIsAnError(t *testing.T) {
	r := run(t, "", "pending", "--server", "http://127.0.0.1:1", "--request-timeout", "2s")
	r.refused(t, exit.Failure)
	if !strings.Contains(r.stderr, "does not answer") {
		t.Errorf("the message does not say what to do: %s", r.stderr)
	}
}

func TestHelpOfEveryCommandExitsZero(t *testing.T) {
	root := newRoot(genericiooptions.NewTestIOStreamsDiscard(), "")
	seen := 0
	for _, cmd := range root.Commands() {
		seen++
		if cmd.Short == "" {
			t.Errorf("%s has no description", cmd.Name())
		}
		if r := run(t, "", cmd.Name(), "--help"); r.code != exit.Done || r.stdout == "" {
			t.Errorf("%s --help: exit code %d, output %q", cmd.Name(), r.code, r.stdout)
		}
	}
	if seen < 20 {
		t.Errorf("only %d commands", seen)
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell", "kubectl"} {
		if r := run(t, "", "completion", shell); r.code != exit.Done || !strings.Contains(r.stdout, "ctrlrun") {
			t.Errorf("completion %s: exit code %d, stderr %s", shell, r.code, r.stderr)
		}
	}
	if r := run(t, "", "__complete", "pattern", "match", "--kind", ""); !strings.Contains(r.stdout, "subject") {
		t.Errorf("the kinds of patterns are not completed: %q", r.stdout)
	}
}

func TestVersion(t *testing.T) {
	r := run(t, "", "version", "-o", "json")
	if r.code != exit.Done || !strings.Contains(r.stdout, `"version": "v0.0.0-test"`) {
		t.Errorf("got %+v", r)
	}
}
