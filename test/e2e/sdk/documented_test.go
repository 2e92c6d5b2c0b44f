package sdk

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// The example that runs here is the one that readers of the package and of its page see.
func TestTheExampleIsTheDocumentedOne(t *testing.T) {
	want := body(t, "example_test.go", "Example")
	want, _, _ = strings.Cut(want, "\t// Output:")
	want = strings.TrimRight(want, "\n")
	if got := strings.TrimRight(body(t, "../../../client/example_test.go", "ExampleClient_Protect"), "\n"); got != want {
		t.Errorf("package client shows\n%s\nand what runs is\n%s", got, want)
	}
	page, err := os.ReadFile("../../../docs/sdk.md")
	if err != nil {
		t.Fatal(err)
	}
	unindented := strings.ReplaceAll("\n"+want, "\n\t", "\n")
	if !strings.Contains(string(page), unindented) {
		t.Errorf("docs/sdk.md does not have the example as it runs:\n%s", unindented)
	}
}

// body is the text between the braces of a function.
func body(t *testing.T, path, name string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
			return strings.TrimPrefix(string(text[set.Position(f.Body.Lbrace).Offset+1:set.Position(f.Body.Rbrace).Offset]), "\n")
		}
	}
	t.Fatalf("%s has no function %s", path, name)
	return ""
}
