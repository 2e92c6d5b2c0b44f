package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/policy"
)

// policyFile is one policy: a file, or one of the YAML documents in it.
type policyFile struct {
	name string // what findings call it: the path, or "stdin"
	data []byte // preceded by as many empty lines as the document has before it, so that findings have the file's line
	line int    // where the document starts, from 1

	document policy.Document
	findings []policy.Finding
}

// label tells several documents of one file apart.
func (f policyFile) label() string {
	if f.line <= 1 {
		return f.name
	}
	return fmt.Sprintf("%s:%d", f.name, f.line)
}

// readPolicies reads every named file, and of a named directory, as far as recursive says, the YAML and JSON files. Of what a
// directory holds only policies are taken; a file named by the user must be one.
func (a *app) readPolicies(paths []string, recursive recursion) ([]policyFile, error) {
	if err := onceStdin(paths...); err != nil {
		return nil, err
	}
	var files []policyFile
	for _, path := range paths {
		if recursive == below && path != "-" || recursive == within && isDirectory(path) {
			found, err := a.readPoliciesBelow(path, recursive)
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
			continue
		}
		data, err := a.readInput(path)
		if err != nil {
			return nil, err
		}
		files = append(files, policiesIn(inputName(path), data)...)
	}
	for i := range files {
		if err := files[i].parse(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// recursion says what becomes of a named directory.
type recursion int

const (
	named  recursion = iota // it is a mistake
	within                  // the files in it are read
	below                   // and those of its directories
)

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (a *app) readPoliciesBelow(root string, recursive recursion) ([]policyFile, error) {
	var files []policyFile
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && (recursive == within || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".json":
		default:
			if path != root {
				return nil
			}
		}
		data, err := a.readInput(path)
		if err != nil {
			return err
		}
		for _, file := range splitPolicies(path, data) {
			if path == root || looksLikePolicy(file.data) {
				files = append(files, file)
			}
		}
		return nil
	})
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return files, nil
}

// policiesIn are the policies of a file the user named. Roles and other manifests may stand beside them; a file with nothing
// but those is taken as it is, so that the parser says what it is not.
func policiesIn(name string, data []byte) []policyFile {
	all := splitPolicies(name, data)
	var policies []policyFile
	for _, file := range all {
		if !otherManifest(file.data) {
			policies = append(policies, file)
		}
	}
	if len(policies) == 0 {
		return all
	}
	return policies
}

// otherManifest reports whether a document is certainly a Kubernetes manifest of another kind.
func otherManifest(data []byte) bool {
	var head struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
	}
	err := yaml.Unmarshal(data, &head)
	return err == nil && head.APIVersion != "" && head.Kind != "" && head.Kind != "ActionPolicy"
}

// looksLikePolicy tells a policy from the other manifests that live beside it. In doubt it says yes: what cannot be parsed,
// or has actions without saying which schema, is an error to report and not a file to skip.
func looksLikePolicy(data []byte) bool {
	var head struct {
		APIVersion string     `yaml:"apiVersion"`
		Kind       string     `yaml:"kind"`
		Schema     *yaml.Node `yaml:"schema"`
		Actions    *yaml.Node `yaml:"actions"`
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return bytes.Contains(data, []byte("ctrlrun"))
	}
	if head.Kind == "ActionPolicy" {
		return true
	}
	if head.APIVersion != "" && head.Kind != "" {
		return false
	}
	if head.Schema != nil && strings.HasPrefix(head.Schema.Value, "ctrlrun.policy/") {
		return true
	}
	return head.Actions != nil
}

// splitPolicies cuts a YAML stream at its document markers. A line that begins with "---" is a marker wherever it stands,
// also inside a block scalar, so cutting by line is exact. Documents without content are left out, unless nothing is left:
// an empty file is an error the parser reports.
func splitPolicies(name string, data []byte) []policyFile {
	var files []policyFile
	var current bytes.Buffer
	start, line, content := 1, 0, false
	flush := func() {
		if content {
			padded := append(bytes.Repeat([]byte("\n"), start-1), current.Bytes()...)
			files = append(files, policyFile{name: name, data: padded, line: start})
		}
		current.Reset()
		content = false
	}
	for rest := data; len(rest) > 0; {
		line++
		text := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			text = rest[:i+1]
		}
		rest = rest[len(text):]
		trimmed := bytes.TrimRight(text, " \t\r\n")
		if marker, ok := bytes.CutPrefix(trimmed, []byte("---")); ok && (len(marker) == 0 || marker[0] == ' ' || marker[0] == '\t') {
			flush()
			start = line
			// What follows the marker on its line belongs to the document; blanks keep its column.
			text = append([]byte("   "), text[3:]...)
			trimmed = marker
		}
		if t := bytes.TrimSpace(trimmed); len(t) > 0 && t[0] != '#' && t[0] != '%' {
			content = true
		}
		current.Write(text)
	}
	flush()
	if len(files) == 0 {
		return []policyFile{{name: name, data: data, line: 1}}
	}
	if len(files) == 1 && files[0].line == 1 {
		files[0].data = data
	}
	return files
}

func (f *policyFile) parse() error {
	document, findings, err := policy.ParseYAML(f.name, f.data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	f.document, f.findings = document, findings
	return nil
}

// policySet is the union of valid policies, ready to evaluate. Invalid ones are an error that lists every finding.
func policySet(files []policyFile) (*policy.Set, error) {
	var problems []string
	var sources []policy.Source
	for _, file := range files {
		for _, finding := range file.findings {
			if !finding.Warning {
				problems = append(problems, finding.String())
			}
		}
		sources = append(sources, file.document.Source(file.label()))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("the policy is not valid:\n%s", strings.Join(problems, "\n"))
	}
	return policy.NewSet(sources), nil
}

// sortFindings orders findings as a reader goes through the files.
func sortFindings(findings []policy.Finding) {
	sort.SliceStable(findings, func(i, j int) bool {
		x, y := findings[i], findings[j]
		if x.File != y.File {
			return x.File < y.File
		}
		if x.Line != y.Line {
			return x.Line < y.Line
		}
		return x.Column < y.Column
	})
}
