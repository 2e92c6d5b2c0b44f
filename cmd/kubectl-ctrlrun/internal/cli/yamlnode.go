package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// member finds the value of a key in a mapping node, or nil.
func member(mapping *yaml.Node, key string) *yaml.Node {
	_, value := memberPair(mapping, key)
	return value
}

func memberPair(mapping *yaml.Node, key string) (*yaml.Node, *yaml.Node) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

// documentRoot is the top node of a YAML document.
func documentRoot(data []byte) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, fmt.Errorf("the document is empty")
	}
	return document.Content[0], nil
}

// actionsNode is the actions map of a policy document or of an ActionPolicy manifest.
func actionsNode(root *yaml.Node) *yaml.Node {
	if spec := member(root, "spec"); spec != nil {
		return member(spec, "actions")
	}
	return member(root, "actions")
}

// actionPosition is where an action is defined, for findings; line 1 if it cannot be found.
func actionPosition(data []byte, name string) (line, column int) {
	root, err := documentRoot(data)
	if err != nil {
		return 1, 1
	}
	key, _ := memberPair(actionsNode(root), name)
	if key == nil {
		return 1, 1
	}
	return key.Line, key.Column
}

var integerToken = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// jsonOf writes a YAML node as JSON, token for token: an integer of any size stays what it is, and whatever JSON has no
// exact word for is refused, so that a table tests the number that is written in it.
func jsonOf(node *yaml.Node) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := writeJSON(&b, node); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeJSON(b *bytes.Buffer, node *yaml.Node) error {
	switch node.Kind {
	case yaml.MappingNode:
		return writeJSONObject(b, node)
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range node.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case yaml.ScalarNode:
		return writeJSONScalar(b, node)
	}
	return fmt.Errorf("line %d: anchors and aliases are not taken here; write the value out", node.Line)
}

func writeJSONObject(b *bytes.Buffer, node *yaml.Node) error {
	b.WriteByte('{')
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			return fmt.Errorf("line %d: a key must be a string: quote %s", key.Line, key.Value)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeJSONScalar(b, key); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeJSON(b, node.Content[i+1]); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeJSONScalar(b *bytes.Buffer, node *yaml.Node) error {
	switch tag := node.ShortTag(); {
	case tag == "!!str":
		text, err := json.Marshal(node.Value)
		b.Write(text)
		return err
	case tag == "!!null":
		b.WriteString("null")
	case tag == "!!bool" && (node.Value == "true" || node.Value == "false"):
		b.WriteString(node.Value)
	case (tag == "!!int" || tag == "!!float") && integerToken.MatchString(node.Value):
		b.WriteString(node.Value)
	default:
		return fmt.Errorf("line %d: %s is not a string, an integer, true, false or null: quote it or write it plainly", node.Line, node.Value)
	}
	return nil
}
