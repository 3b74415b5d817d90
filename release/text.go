package release

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
)

// flowWidth is the longest part that Text writes on one line, in characters.
const flowWidth = 88

// Text is the document as a person would write it: YAML that Parse reads as an
// equal document. Ids of lists are left out, and what a publication adds to lists.
func Text(doc *Document) ([]byte, error) {
	written := *doc
	written.Lists = slices.Clone(doc.Lists)
	for i := range written.Lists {
		written.Lists[i].IDs, written.Lists[i].Digest, written.Lists[i].Count = nil, "", 0
	}
	return written.yaml()
}

// AsYAML is a text in which a document was sent: JSON becomes YAML in the order of
// the document's fields, all else stays as it was written. Both read as the same
// document, which brings no ids of lists.
func AsYAML(text []byte) ([]byte, error) {
	if !json.Valid(text) {
		return text, nil
	}
	doc, err := Parse("document.json", text)
	if err == nil {
		err = NoIDs(doc)
	}
	if err != nil {
		return nil, err
	}
	return doc.yaml()
}

func (d *Document) yaml() ([]byte, error) {
	root, err := Configuration{Document: d}.documentTree()
	if err != nil {
		return nil, err
	}
	text, err := dump(root.toYAML())
	return []byte(text), err
}

// dump is a part as text.
func dump(y *yaml.Node) (string, error) {
	text, err := yaml.Dump(y, yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err != nil {
		return "", fmt.Errorf("write document as YAML: %w", err)
	}
	return string(text), nil
}

// toYAML is a part as the library has it, short ones on one line.
func (n *node) toYAML() *yaml.Node {
	y := &yaml.Node{Kind: yaml.ScalarNode, Value: n.text}
	switch n.kind {
	case isMapping:
		y.Kind = yaml.MappingNode
		for _, p := range n.pairs {
			y.Content = append(y.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: p.key}, p.value.toYAML())
		}
	case isSequence:
		y.Kind = yaml.SequenceNode
		for _, item := range n.items {
			y.Content = append(y.Content, item.toYAML())
		}
	case isText:
		y.Tag = "!!str"
	case isNumber:
		y.Tag = "!!int"
	case isBoolean:
		y.Tag = "!!bool"
	default:
		y.Tag = "!!null"
	}
	if n.kind >= isSequence && n.depth() <= 3 && len([]rune(n.show())) <= flowWidth {
		y.Style = yaml.FlowStyle
	}
	return y
}

// depth is how many lists and maps stand in one another.
func (n *node) depth() int {
	deepest := 0
	for _, item := range n.items {
		deepest = max(deepest, item.depth())
	}
	for _, p := range n.pairs {
		deepest = max(deepest, p.value.depth())
	}
	if n.kind < isSequence {
		return 0
	}
	return deepest + 1
}
