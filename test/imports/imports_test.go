// Package imports_test holds the product to its layers. Dependencies point down only, the kernel is pure, and there is no
// list of exceptions: code that needs one is in the wrong package.
package imports_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "ctrlrun.dev/operator"

// layer says what the packages of a directory may import. Paths are relative to the module and name a directory with
// everything below it.
type layer struct {
	dir string
	// own lists the directories of this module, besides dir itself.
	own []string
	// only lists the paths of other modules, with what is below them. Empty and not nil means none, nil means any.
	only []string
	// pure holds the package to the kernel's rules.
	pure bool
}

var (
	none       = []string{}
	vocabulary = []string{"kernel/canonical", "kernel/decision"}
	rules      = append([]string{"kernel/grammar", "kernel/action"}, vocabulary...)
	anything   = []string{"api", "kernel", "records", "config", "client", "controllers", "executors", "cmd", "hack", "test"}
)

// layers from the bottom up. The first whose directory holds a package is the package's. A package in none of them fails
// the test: whoever adds a directory says here where it belongs.
var layers = []layer{
	{dir: "kernel/canonical", pure: true, only: none},
	{dir: "kernel/decision", pure: true, only: none},
	{dir: "kernel/timeline", pure: true, own: []string{"kernel/decision"}, only: none},
	{dir: "kernel/action", pure: true, own: vocabulary, only: none},
	{dir: "kernel/grammar", pure: true, own: vocabulary, only: none},
	{dir: "kernel/policy", pure: true, own: rules, only: []string{"go.yaml.in/yaml/v3"}},
	{dir: "kernel/authority", pure: true, own: rules, only: none},
	{dir: "kernel/effect", pure: true, own: vocabulary, only: none},
	{dir: "kernel/approval", pure: true, own: vocabulary, only: none},
	{dir: "kernel/precondition", pure: true, own: vocabulary, only: none},
	{dir: "kernel/receipt", pure: true, own: vocabulary, only: none},
	{dir: "kernel/stats", pure: true, own: []string{"kernel/receipt", "kernel/decision"}, only: none},
	{dir: "kernel/contract", pure: true, own: vocabulary, only: none},
	{dir: "kernel/guarantees", pure: true, own: append([]string{"kernel/policy", "kernel/authority"}, rules...), only: none},
	{dir: "kernel/flow", pure: true, own: []string{"kernel"}, only: none},
	{dir: "kernel/explore", pure: true, own: []string{"kernel"}, only: none},

	// Whoever imports the types gets no client and no controller with them.
	{dir: "api", only: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver/pkg/apis"}},

	// Manifests that the operator carries with it, to compare with what is installed.
	{dir: "config", only: none},

	// What an object means to the kernel is said once, for whoever decides and for whoever shows.
	{dir: "records", own: []string{"api", "kernel"}},

	// Agents use it without the SDK, and the operator for what it executes itself.
	{dir: "client/transport", own: []string{"kernel/effect"}, only: none},
	{dir: "client", own: []string{"api", "kernel", "records"}},
	{dir: "controllers", own: []string{"api", "kernel", "records", "config"}},
	{dir: "executors", own: []string{"api", "kernel", "records", "client/transport"}},

	{dir: "cmd/ctrlrun-operator", own: []string{"api", "kernel", "records", "controllers", "executors", "client"}},
	// What runs at a person's desk decides nothing, so it holds no part of the operator.
	{dir: "cmd/kubectl-ctrlrun", own: []string{"api", "kernel", "records", "client"}},

	{dir: "hack", own: anything},
	{dir: "test", own: anything},
}

// pureStandard is what the kernel may use of the standard library: values and computations. Not in it are the clock, files,
// the network, randomness, locks, the environment and the log.
var pureStandard = []string{
	"bytes", "cmp", "crypto/sha256", "crypto/subtle", "encoding/base32", "encoding/hex", "encoding/json", "errors", "fmt", "io", "iter", "maps",
	"math", "math/big", "math/bits", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf16", "unicode/utf8",
}

// impure lists the functions of those packages that read the clock, wait, or read and write the process's own files.
var impure = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Local", "LoadLocation"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
}

func TestDependenciesPointDown(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	imports := map[string][]string{}
	var observed []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			// Another module has rules of its own.
			if _, err := os.Stat(filepath.Join(p, "go.mod")); p != root && err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		source, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		dir := path.Dir(rel)
		seen[dir] = true
		found, broken, err := check(rel, source)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(name, "_test.go") {
			imports[dir] = append(imports[dir], found...)
		}
		for _, b := range broken {
			t.Error(b)
		}
		if !strings.HasSuffix(name, "_test.go") && bytes.Contains(source, []byte(`"never_connected"`)) {
			observed = append(observed, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Were the walk to find nothing, the test would pass for the wrong reason.
	for _, dir := range []string{"kernel/canonical", "kernel/flow", "api/v1alpha1", "records", "client", "controllers", "cmd/ctrlrun-operator", "cmd/kubectl-ctrlrun"} {
		if !seen[dir] {
			t.Errorf("no Go file was found in %s", dir)
		}
	}
	// The rule of evidence is one: a second that agrees today is a defect.
	if len(observed) != 1 || observed[0] != "kernel/effect/observation.go" {
		t.Errorf("observations of a request are named in %v, want kernel/effect/observation.go alone", observed)
	}
	// The operator writes the chain; what judges it must not run in the process that is judged.
	for dir := range reachable(imports, "cmd/ctrlrun-operator") {
		if path.Base(dir) == "verify" {
			t.Errorf("cmd/ctrlrun-operator links %s", dir)
		}
	}
}

// TestRulesRefuse is the control of the test above: each rule, broken.
func TestRulesRefuse(t *testing.T) {
	for name, tt := range map[string]struct {
		file, source string
		want         string // part of the one complaint; empty: none
	}{
		"a package below":               {"kernel/policy/x.go", `import _ "ctrlrun.dev/operator/kernel/grammar"`, ""},
		"its own package below":         {"controllers/x.go", `import _ "ctrlrun.dev/operator/controllers/ledger"`, ""},
		"flow composes":                 {"kernel/flow/x.go", `import _ "ctrlrun.dev/operator/kernel/receipt"`, ""},
		"a package above":               {"kernel/policy/x.go", `import _ "ctrlrun.dev/operator/kernel/flow"`, "must not import kernel/flow"},
		"a package beside":              {"client/x.go", `import _ "ctrlrun.dev/operator/controllers"`, "must not import controllers"},
		"receipt imports policy":        {"kernel/receipt/x.go", `import _ "ctrlrun.dev/operator/kernel/policy"`, "must not import kernel/policy"},
		"receipt imports effect":        {"kernel/receipt/x.go", `import _ "ctrlrun.dev/operator/kernel/effect"`, "must not import kernel/effect"},
		"effect imports action":         {"kernel/effect/x.go", `import _ "ctrlrun.dev/operator/kernel/action"`, "must not import kernel/action"},
		"the kernel imports the API":    {"kernel/flow/x.go", `import _ "ctrlrun.dev/operator/api/v1alpha1"`, "must not import api"},
		"records import a controller":   {"records/x.go", `import _ "ctrlrun.dev/operator/controllers"`, "must not import controllers"},
		"the product imports a test":    {"controllers/x.go", `import _ "ctrlrun.dev/operator/test/testenv"`, "must not import test"},
		"transport imports the SDK":     {"client/transport/x.go", `import _ "ctrlrun.dev/operator/client"`, "must not import client"},
		"transport imports the API":     {"client/transport/x.go", `import _ "ctrlrun.dev/operator/api/v1alpha1"`, "must not import api"},
		"transport imports Kubernetes":  {"client/transport/x.go", `import _ "k8s.io/client-go/rest"`, "must not import k8s.io"},
		"an executor uses transport":    {"executors/http/x.go", `import _ "ctrlrun.dev/operator/client/transport"`, ""},
		"an executor uses the SDK":      {"executors/http/x.go", `import _ "ctrlrun.dev/operator/client"`, "must not import client"},
		"the plugin imports controller": {"cmd/kubectl-ctrlrun/x.go", `import _ "ctrlrun.dev/operator/controllers"`, "must not import controllers"},
		"a directory without a layer":   {"internal/x/x.go", ``, "no layer"},
		"a name that only begins so":    {"clientset/x.go", ``, "no layer"},
		"Kubernetes in the kernel":      {"kernel/action/x.go", `import _ "k8s.io/apimachinery/pkg/types"`, "must not import k8s.io"},
		"Kubernetes in a kernel test":   {"kernel/action/x_test.go", `import _ "sigs.k8s.io/yaml"`, "must not import sigs.k8s.io"},
		"YAML in policy":                {"kernel/policy/x.go", `import _ "go.yaml.in/yaml/v3"`, ""},
		"YAML in action":                {"kernel/action/x.go", `import _ "go.yaml.in/yaml/v3"`, "must not import go.yaml.in"},
		"a client in the API":           {"api/v1alpha1/x.go", `import _ "k8s.io/client-go/rest"`, "must not import k8s.io/client-go"},
		"files in the kernel":           {"kernel/action/x.go", `import _ "os"`, "must not import os"},
		"the network in the kernel":     {"kernel/action/x.go", `import _ "net/http"`, "must not import net/http"},
		"locks in the kernel":           {"kernel/action/x.go", `import _ "sync"`, "must not import sync"},
		"files in a kernel test":        {"kernel/action/x_test.go", `import _ "os"`, ""},
		"files in a controller":         {"controllers/x.go", `import _ "os"`, ""},
		"the clock":                     {"kernel/action/x.go", "import \"time\"\nvar x = time.Now()", "time.Now"},
		"the clock as a value":          {"kernel/action/x.go", "import \"time\"\nvar x = time.Since", "time.Since"},
		"the clock by another name":     {"kernel/action/x.go", "import t \"time\"\nvar x = t.Now()", "time.Now"},
		"the clock without a name":      {"kernel/action/x.go", "import . \"time\"\nvar x = Now()", "dot import"},
		"a method called Now":           {"kernel/action/x.go", "type c struct{}\nfunc (c) Now() int { return 0 }\nvar time c\nvar x = time.Now()", ""},
		"a time given as a value":       {"kernel/action/x.go", "import \"time\"\nfunc f(t time.Time) bool { return t.After(t) }", ""},
		"standard output":               {"kernel/action/x.go", "import \"fmt\"\nfunc f() { fmt.Println() }", "fmt.Println"},
		"a goroutine":                   {"kernel/action/x.go", "func f() { go f() }", "goroutine"},
		"init":                          {"client/x.go", "func init() {}", "init"},
		"a method called init":          {"client/x.go", "type c struct{}\nfunc (c) init() {}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, err := check(tt.file, []byte("package x\n"+tt.source))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want no complaint", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("got %q, want one complaint with %q", got, tt.want)
			}
		})
	}
}

// check returns what one file imports of this module, as directories, and the rules it breaks. Tests are held to the layers
// too, but may read files and the clock.
func check(file string, source []byte) (imports, broken []string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	complain := func(p token.Pos, format string, args ...any) {
		broken = append(broken, fmt.Sprintf("%s: %s", fset.Position(p), fmt.Sprintf(format, args...)))
	}
	dir := path.Dir(file)
	i := slices.IndexFunc(layers, func(l layer) bool { return within(dir, l.dir) })
	if i < 0 {
		complain(f.Package, "package %s is in no layer: add it to the list in test/imports", dir)
		return nil, broken, nil
	}
	l, test := layers[i], strings.HasSuffix(file, "_test.go")
	names := map[string]string{} // of impure packages, by the name they have in this file
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, nil, err
		}
		first, _, _ := strings.Cut(p, "/")
		switch own, isOwn := strings.CutPrefix(p, module+"/"); {
		case isOwn:
			imports = append(imports, own)
			if !within(own, append(l.own, l.dir)...) {
				complain(spec.Pos(), "%s must not import %s", l.dir, own)
			}
		case strings.Contains(first, "."):
			if l.only != nil && !within(p, l.only...) && !(test && l.pure && testOnly(p)) {
				complain(spec.Pos(), "%s must not import %s", l.dir, p)
			}
		case l.pure && !test && !slices.Contains(pureStandard, p):
			complain(spec.Pos(), "%s is pure and must not import %s", l.dir, p)
		}
		if _, ok := impure[p]; ok && l.pure && !test {
			name := path.Base(p)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			if name == "." {
				complain(spec.Pos(), "%s is pure: no dot import of %s", l.dir, p)
			}
			names[name] = p
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				if p := names[x.Name]; slices.Contains(impure[p], n.Sel.Name) {
					complain(n.Pos(), "%s is pure and must not use %s.%s", l.dir, p, n.Sel.Name)
				}
			}
		case *ast.GoStmt:
			if l.pure && !test {
				complain(n.Pos(), "%s is pure and must not start a goroutine", l.dir)
			}
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				complain(n.Pos(), "no init function: state that nobody asked for")
			}
		}
		return true
	})
	return imports, broken, nil
}

// testOnly reports whether a path is a module that only compares values, which tests of pure packages may use.
func testOnly(p string) bool { return within(p, "github.com/google/go-cmp") }

func within(p string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}

// reachable returns the packages of this module that from imports, directly or not.
func reachable(imports map[string][]string, from string) map[string]bool {
	found := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; {
		dir := todo[0]
		todo = todo[1:]
		if !found[dir] {
			found[dir] = true
			todo = append(todo, imports[dir]...)
		}
	}
	return found
}
