// Package threats keeps docs/threat-model.md to what tests prove: every threat names tests, and every test it names exists.
package threats

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var (
	// proof is a file, followed by what it has: names of Go tests, and texts of Ginkgo or of tables.
	proof = regexp.MustCompile(`\x60([a-z0-9_/]+_test\.go)\x60((?:,? (?:"[^"]+"|\x60(?:Test|Fuzz)\w+\x60))+)`)
	named = regexp.MustCompile(`"([^"]+)"|\x60((?:Test|Fuzz)\w+)\x60`)
	// mention is any file of tests, named for a proof or not.
	mention = regexp.MustCompile(`[a-z0-9_/]+_test\.go`)
)

// section is where each row of a table is a threat.
const section = "## Threats"

func TestEveryThreatNamesTestsThatExist(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	problems, threats := check(string(data), read)
	for _, problem := range problems {
		t.Error(problem)
	}
	if threats < 40 {
		t.Errorf("%d threats were found in %q: is the table still read?", threats, section)
	}
}

// The check itself finds each mistake that can be made.
func TestEveryMistakeIsFound(t *testing.T) {
	files := map[string]*names{"kernel/a_test.go": {tests: []string{"TestA"}, texts: []string{"refuses it"}}}
	reader := func(path string) *names { return files[path] }
	const head = section + "\n\n| Threat | Stopped by | Proved by |\n|---|---|---|\n"
	for _, c := range []struct{ name, row, want string }{
		{"right", "| a | b | `kernel/a_test.go` `TestA`, \"refuses it\" |", ""},
		{"no test", "| a | b | by design |", "names no test"},
		{"no file", "| a | b | `kernel/b_test.go` `TestA` |", "there is no kernel/b_test.go"},
		{"another test", "| a | b | `kernel/a_test.go` `TestB` |", "has no test TestB"},
		{"another text", "| a | b | `kernel/a_test.go` \"refuses\" |", `has nothing called "refuses"`},
		{"a file alone", "| a | b | `kernel/a_test.go` |", "names no test"},
		{"a file beside", "| a | b | `kernel/a_test.go` `TestA`; `kernel/a_test.go` |", "is named without a test"},
	} {
		problems, threats := check(head+c.row+"\n\n## Other\n\n| x | y | z |\n", reader)
		if threats != 1 || (c.want == "") != (len(problems) == 0) || !strings.Contains(strings.Join(problems, "\n"), c.want) {
			t.Errorf("%s: %d threats, %q, want %q", c.name, threats, problems, c.want)
		}
	}
}

// check says what is wrong, and how many threats there are.
func check(document string, read func(path string) *names) (problems []string, threats int) {
	within, header := false, true
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			within = line == section
		case strings.HasPrefix(line, "|---"):
			header = false
		case !strings.HasPrefix(line, "|"):
			header = true
		case within && !header:
			threats++
			cells := strings.Split(strings.Trim(line, "|"), "|")
			if last := cells[len(cells)-1]; !proof.MatchString(last) {
				problems = append(problems, "names no test: "+line)
			}
		}
		proofs := proof.FindAllStringSubmatch(line, -1)
		if len(mention.FindAllString(line, -1)) != len(proofs) {
			problems = append(problems, "a file of tests is named without a test: "+line)
		}
		for _, p := range proofs {
			have := read(p[1])
			if have == nil {
				problems = append(problems, "there is no "+p[1])
				continue
			}
			for _, name := range named.FindAllStringSubmatch(p[2], -1) {
				switch {
				case name[1] != "" && !slices.Contains(have.texts, name[1]):
					problems = append(problems, p[1]+` has nothing called "`+name[1]+`"`)
				case name[2] != "" && !slices.Contains(have.tests, name[2]):
					problems = append(problems, p[1]+" has no test "+name[2])
				}
			}
		}
	}
	return problems, threats
}

// names are the tests of a file.
type names struct{ tests, texts []string }

// read gives what a file has; nil if there is none. Files of test/e2e are named from there.
func read(path string) *names {
	for _, dir := range []string{root, filepath.Join(root, "test", "e2e")} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, path), nil, parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		n := &names{}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				n.tests = append(n.tests, node.Name.Name)
			case *ast.CallExpr:
				if called, ok := node.Fun.(*ast.Ident); ok && len(node.Args) > 0 && slices.Contains(containers, called.Name) {
					n.texts = append(n.texts, text(node.Args[0]))
				}
			}
			return true
		})
		return n
	}
	return nil
}

var containers = []string{"Describe", "DescribeTable", "Context", "It", "Entry"}

// text is what a test is called; what is computed in it is "...".
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}
	return "..."
}
