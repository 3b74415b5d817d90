package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"dispatch.example/dispatch/internal/fault"
)

// maxDepth of a file: document, instances, instance, labels and their texts.
const maxDepth = 8

// document reads a file of YAML or JSON that people write, and collects what is
// wrong with it. What a person would have to look up is refused.
type document struct {
	path     string
	problems fault.Problems
}

func (d *document) add(line int, path, format string, args ...any) {
	d.problems = append(d.problems, fault.Problem{File: d.path, Line: line, Path: path, Detail: fmt.Sprintf(format, args...)})
}

// root is the top of the only document, nil with a problem if there is none;
// nothing is what to write to say nothing.
func (d *document) root(text []byte, nothing string) *yaml.Node {
	trimmed := bytes.TrimSpace(text)
	lines := bytes.Count(text, []byte("\n"))
	if len(trimmed) == 0 {
		d.add(1, "", "the file is empty; %s", nothing)
		return nil
	}
	if trimmed[0] != '{' && text[len(text)-1] != '\n' {
		d.add(lines+1, "", "the last line does not end; the file may be half-written")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		d.add(1, "", "start the YAML reader: %s", err)
		return nil
	}
	var first, second yaml.Node
	if err := loader.Load(&first); err != nil && !errors.Is(err, io.EOF) {
		d.syntax(err)
		return nil
	}
	if len(first.Content) != 1 {
		d.add(1, "", "the file holds comments alone; %s", nothing)
		return nil
	}
	if err := loader.Load(&second); !errors.Is(err, io.EOF) {
		d.add(max(second.Line, 1), "", "there is more than one document")
		return nil
	}
	return first.Content[0]
}

func (d *document) syntax(err error) {
	line, detail := 1, err.Error()
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		line, detail = max(e.Mark.Line, 1), e.Message
	}
	d.add(line, "", "no YAML: %s", detail)
}

// field reads the value of a key; path is for problems.
type field func(n *yaml.Node, path string)

type fields map[string]field

func (t fields) of(key string) field { return t[key] }

// mapping calls the field of each key.
func (d *document) mapping(n *yaml.Node, path string, fields func(key string) field) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		d.add(n.Line, path, "must be keys with values, without anchors")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := path + "." + key.Value
		if path == "" {
			at = key.Value
		}
		read := fields(key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || read == nil:
			d.add(key.Line, at, "no such key")
		case seen[key.Value]:
			d.add(key.Line, at, "the key is written twice")
		case value.Kind == yaml.AliasNode || value.Anchor != "" || value.Style&yaml.TaggedStyle != 0:
			d.add(value.Line, at, "anchors, aliases and tags are not allowed")
		default:
			read(value, at)
		}
		seen[key.Value] = true
	}
}

// text wants quotes around what YAML takes for something else: 2.10 is a number
// and would be 2.1.
func (d *document) text(to *string) field {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			d.add(n.Line, path, "must be a text; quote it: %q", n.Value)
			return
		}
		*to = n.Value
	}
}

// texts reads keys with texts.
func (d *document) texts(to *map[string]string) field {
	return func(n *yaml.Node, path string) {
		*to = map[string]string{}
		d.mapping(n, path, func(key string) field {
			return func(n *yaml.Node, path string) {
				var value string
				d.text(&value)(n, path)
				(*to)[key] = value
			}
		})
	}
}
