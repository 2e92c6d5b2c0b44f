// Package policy turns policy documents into decisions.
//
// A policy says, for each action by its exact name, whether it is allowed, has to be approved by people, or is denied:
// by one decision, or by rules tried from top to bottom. It is read strictly, and everything it does not say is no: an
// unknown action, a proposal no rule matches, an entry defined differently twice, a policy with an error.
//
// There are three ways to write one, with the same map of actions: a document of schema ctrlrun.policy/v1, one of
// ctrlrun.policy/v2, which adds templates, and an ActionPolicy object, which adds a few keys of its own. Several
// policies form a Set, their union, and a Set evaluates proposals.
package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"ctrlrun.dev/operator/kernel/canonical"
)

// Schemas of policy documents.
const (
	SchemaV1 = "ctrlrun.policy/v1"
	SchemaV2 = "ctrlrun.policy/v2"
)

// The API version and kind of the object that carries the same map of actions.
const (
	APIVersion = "ctrlrun.dev/v1alpha1"
	Kind       = "ActionPolicy"
)

// MaxDocumentBytes bounds one document. The API stores no larger objects either.
const MaxDocumentBytes = 1 << 20

// Document is one valid policy.
type Document struct {
	// Schema is SchemaV1 or SchemaV2, or APIVersion for an ActionPolicy.
	Schema string
	// Name and Namespace are those of an ActionPolicy, as far as the manifest says.
	Name, Namespace string
	// Version is the free text an ActionPolicy carries.
	Version string
	// Actions are the entries by exact action name.
	Actions map[string]Entry
}

// ParseYAML reads one policy: a document of schema v1 or v2, or an ActionPolicy manifest, in YAML or in JSON. File is the
// name that findings carry.
//
// Whatever is wrong with the text is a Finding, syntax errors included, and a Document is returned only if no finding is an
// error. The error is for text that was not looked at, because it is too large.
//
// YAML is read by the core schema of YAML 1.2. What readers of YAML 1.1 understand differently (NO, 010, 1_000) is a
// warning; floats, dates, duplicate keys, keys that are not text, explicit tags and merge keys are errors. The text is
// exactly one YAML document: a policy behind a --- would be easy to overlook.
func ParseYAML(file string, data []byte) (Document, []Finding, error) {
	if len(data) > MaxDocumentBytes {
		return Document{}, nil, fmt.Errorf("%s has %d bytes, and %d are the limit of a policy; split it", file, len(data), MaxDocumentBytes)
	}
	r := &report{file: file, lines: map[string]position{"": {1, 1}}}
	doc := Document{}
	if tree, ok := readText(r, data); ok {
		doc = readDocument(r, tree)
	}
	findings := r.sorted()
	if HasErrors(findings) {
		return Document{}, findings, nil
	}
	return doc, findings, nil
}

// readText turns the text into a tree of canonical values, or reports why it is none.
func readText(r *report, data []byte) (any, bool) {
	if !utf8.Valid(data) {
		r.error("", "the text is not valid UTF-8; save the file as UTF-8")
		return nil, false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, next yaml.Node
	err := decoder.Decode(&node)
	switch {
	case errors.Is(err, io.EOF) || err == nil && empty(&node):
		r.error("", "the document is empty; write schema: %s and actions: {} for a policy that denies everything", SchemaV2)
		return nil, false
	case err != nil:
		// Not all JSON is YAML to this reader: surrogate escapes and tabs are not.
		if v, jsonErr := canonical.Parse(data); jsonErr == nil {
			return v, true
		}
		line, text := syntaxError(err)
		r.findings = append(r.findings, Finding{File: r.file, Line: line, Column: 1, Message: "this is not YAML: " + text})
		return nil, false
	}
	if err := decoder.Decode(&next); !errors.Is(err, io.EOF) {
		line := next.Line
		if err != nil {
			line, _ = syntaxError(err)
		}
		r.findings = append(r.findings, Finding{File: r.file, Line: max(line, 1), Column: 1,
			Message: "a second YAML document follows; keep one policy in a file, or give the documents one by one"})
		return nil, false
	}
	root := &node
	if node.Kind == yaml.DocumentNode {
		root = node.Content[0]
	}
	r.lines[""] = position{root.Line, root.Column}
	return (&reader{report: r}).value(root, "", 0, false), true
}

func empty(n *yaml.Node) bool {
	if n.Kind != yaml.DocumentNode {
		return n.Kind == 0
	}
	if len(n.Content) == 0 {
		return true
	}
	v, kind := plain(n.Content[0])
	return n.Content[0].Kind == yaml.ScalarNode && kind == kindNull && v == nil
}

// syntaxError is the line and the text of the YAML library's error.
func syntaxError(err error) (int, string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, message, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				return line, message
			}
		}
	}
	return 1, text
}

func readDocument(r *report, tree any) Document {
	m, ok := tree.(map[string]any)
	if !ok {
		if !isRefused(tree) {
			r.error("", "the document is %s; write a mapping with schema and actions", typeName(tree))
		}
		return Document{}
	}
	_, hasKind := m["kind"]
	_, hasVersion := m["apiVersion"]
	if hasKind || hasVersion {
		return readManifest(r, m)
	}
	return readPolicy(r, m)
}

func readPolicy(r *report, m map[string]any) Document {
	schema, present := m["schema"]
	name, _ := schema.(string)
	d, known := dialects()[name]
	switch {
	case isRefused(schema):
		return Document{}
	case !present:
		r.error("", "schema is missing, and none is assumed; add schema: %s", SchemaV2)
		return Document{}
	case !known:
		r.error("schema", "the schema is not one of %s and %s; write one of them", SchemaV1, SchemaV2)
		return Document{}
	}
	p := &parser{report: r, dialect: d}
	actions, present := m["actions"]
	p.keys(m, "", []string{"schema", "actions"}, func(string) string { return "" })
	if !present {
		r.error("", "actions is missing; add the mapping of actions, or actions: {} to deny everything")
		return Document{}
	}
	if actions == nil {
		return Document{}
	}
	doc := Document{Schema: name, Actions: p.actions(actions, "actions")}
	if !d.templates && slices.ContainsFunc(slices.Collect(maps.Values(doc.Actions)), func(e Entry) bool { return e.decides("allow", "approve") }) {
		r.warn("schema", "%s has no effect templates, so nothing keeps an action from running twice; raise the schema to %s and add effect to what writes", SchemaV1, SchemaV2)
	}
	return doc
}

func readManifest(r *report, m map[string]any) Document {
	if m["kind"] != Kind || m["apiVersion"] != APIVersion {
		r.error("", "this is a manifest of another kind; a policy has apiVersion: %s and kind: %s, or schema: %s", APIVersion, Kind, SchemaV2)
		return Document{}
	}
	p := &parser{report: r, dialect: objectDialect()}
	none := func(string) string { return "" }
	if _, schema := m["schema"]; schema {
		none = func(key string) string {
			if key == "schema" || key == "actions" {
				return key + " belongs to a policy document; an ActionPolicy has apiVersion, kind and its actions under spec"
			}
			return ""
		}
	}
	p.keys(m, "", []string{"apiVersion", "kind", "metadata", "spec", "status"}, none)
	doc := Document{Schema: APIVersion}
	metadata, ok := m["metadata"].(map[string]any)
	if ok {
		doc.Name, _ = metadata["name"].(string)
		doc.Namespace, _ = metadata["namespace"].(string)
		generate, _ := metadata["generateName"].(string)
		ok = doc.Name != "" || generate != ""
	}
	if !ok {
		r.error("metadata", "the manifest has no name; add metadata: {name: ...}")
	}
	spec, ok := m["spec"].(map[string]any)
	if !ok {
		if v, present := m["spec"]; !present || v != nil && !isRefused(v) {
			r.error("spec", "the manifest has no spec mapping; add spec with actions")
		}
		return doc
	}
	p.keys(spec, "spec", []string{"version", "actions"}, func(string) string { return "" })
	if v := spec["version"]; v != nil && !isRefused(v) {
		s, isText := v.(string)
		switch {
		case !isText:
			r.error("spec.version", "the version is %s; write text, in quotes", typeName(v))
		case utf8.RuneCountInString(s) > MaxVersionLength:
			r.error("spec.version", "the version has more than %d characters; shorten it", MaxVersionLength)
		}
		doc.Version = s
	}
	actions, present := spec["actions"]
	if !present {
		r.error("spec", "actions is missing; add the mapping of actions, or actions: {} to deny everything")
		return doc
	}
	if actions != nil {
		doc.Actions = p.actions(actions, "spec.actions")
	}
	return doc
}

// ParseActions reads the actions of an ActionPolicy object: spec.actions as canonical values, or as a JSON decoder left them.
// The map holds the entries without error. A finding that is no warning makes the whole policy invalid; NewSource
// draws that conclusion.
func ParseActions(actions any) (map[string]Entry, []Finding) {
	r := &report{}
	p := &parser{report: r, dialect: objectDialect()}
	out := p.actions(r.normal(actions, "actions", 0), "actions")
	return out, r.sorted()
}

// RulesHash is the hash of the actions of a policy, by which two clusters can be compared.
func RulesHash(actions any) (string, error) {
	h, err := canonical.Hash(actions)
	if err != nil {
		return "", fmt.Errorf("the actions have no hash: %w", err)
	}
	return h, nil
}

// actions is the map of entries as it was written.
func (d Document) actions() map[string]any {
	out := make(map[string]any, len(d.Actions))
	for name, e := range d.Actions {
		out[name] = e.canonical
	}
	return out
}
