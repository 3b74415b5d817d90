package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"dispatch.example/dispatch/internal/fault"
)

// maxDepth of a file: document, instances, instance, labels and their texts.
const maxDepth = 8

// parseFile reads a file of instances in YAML or JSON:
//
//	instances:
//	  - {service: order-core, address: "10.1.0.7:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.3.1}
//
// id, weight and labels may be added. One mistake refuses the whole file, and all
// mistakes are listed.
func parseFile(path string, text []byte) ([]Instance, error) {
	p := &fileParser{path: path}
	if root := p.root(text); root != nil {
		p.document(root)
	}
	if len(p.problems) > 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Code: "invalid_instances", Detail: path + " is not a list of instances", Problems: p.problems}
	}
	return p.instances, nil
}

type fileParser struct {
	path      string
	instances []Instance
	problems  fault.Problems
}

func (p *fileParser) add(line int, path, format string, args ...any) {
	p.problems = append(p.problems, fault.Problem{File: p.path, Line: line, Path: path, Detail: fmt.Sprintf(format, args...)})
}

// root is the top of the only document, nil with a problem if there is none.
func (p *fileParser) root(text []byte) *yaml.Node {
	trimmed := bytes.TrimSpace(text)
	lines := bytes.Count(text, []byte("\n"))
	if len(trimmed) == 0 {
		p.add(1, "", "the file is empty; to say that there is nobody, write instances: []")
		return nil
	}
	if trimmed[0] != '{' && text[len(text)-1] != '\n' {
		p.add(lines+1, "", "the last line does not end; the file may be half-written")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		p.add(1, "", "start the YAML reader: %s", err)
		return nil
	}
	var first, second yaml.Node
	if err := loader.Load(&first); err != nil && !errors.Is(err, io.EOF) {
		p.syntax(err)
		return nil
	}
	if len(first.Content) != 1 {
		p.add(1, "", "the file holds comments alone; to say that there is nobody, write instances: []")
		return nil
	}
	if err := loader.Load(&second); !errors.Is(err, io.EOF) {
		p.add(max(second.Line, 1), "", "there is more than one document")
		return nil
	}
	return first.Content[0]
}

func (p *fileParser) syntax(err error) {
	line, detail := 1, err.Error()
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		line, detail = max(e.Mark.Line, 1), e.Message
	}
	p.add(line, "", "no YAML: %s", detail)
}

// fileField reads the value of a key; path is for problems.
type fileField func(n *yaml.Node, path string)

type fileFields map[string]fileField

func (t fileFields) of(key string) fileField { return t[key] }

func (p *fileParser) document(root *yaml.Node) {
	var list *yaml.Node
	p.mapping(root, "", fileFields{"instances": func(n *yaml.Node, _ string) { list = n }}.of)
	switch {
	case list == nil && len(p.problems) == 0:
		p.add(root.Line, "instances", "is required")
	case list == nil:
	case list.Kind != yaml.SequenceNode:
		p.add(list.Line, "instances", "must be a list")
	default:
		seen := map[string]int{}
		for i, item := range list.Content {
			p.instance(item, fmt.Sprintf("instances[%d]", i), seen)
		}
	}
}

// instance reads one item; seen has the lines of those before it.
func (p *fileParser) instance(n *yaml.Node, path string, seen map[string]int) {
	in := Instance{Source: "static"}
	before := len(p.problems)
	p.mapping(n, path, fileFields{
		"id":      p.text(&in.ID),
		"service": p.text(&in.Service),
		"cluster": p.text(&in.Cluster),
		"region":  p.text(&in.Region),
		"env":     p.text(&in.Env),
		"version": p.text(&in.Version),
		"address": p.address(&in.Address),
		"weight":  p.weight(&in),
		"labels":  p.labels(&in),
	}.of)
	if len(p.problems) > before {
		return
	}
	in, err := in.filledFromFile()
	if e, ok := errors.AsType[*fault.Error](err); ok {
		for _, problem := range e.Problems {
			p.add(n.Line, path+"."+problem.Path, "%s", problem.Detail)
		}
		if len(e.Problems) == 0 {
			p.add(n.Line, path, "%s", e.Detail)
		}
		return
	}
	for _, key := range []string{in.Service + " has the id " + in.ID, in.Service + " is at " + in.Address.String()} {
		if line, taken := seen[key]; taken {
			p.add(n.Line, path, "%s on line %d already", key, line)
		}
		seen[key] = n.Line
	}
	p.instances = append(p.instances, in)
}

// filledFromFile is filled, but a file does not know when a process started.
func (in Instance) filledFromFile() (Instance, error) {
	in, err := in.filled("static")
	in.Started = time.Time{}
	return in, err
}

// mapping calls the field of each key. What a person would have to look up is refused.
func (p *fileParser) mapping(n *yaml.Node, path string, fields func(key string) fileField) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		p.add(n.Line, path, "must be keys with values, without anchors")
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
			p.add(key.Line, at, "no such key")
		case seen[key.Value]:
			p.add(key.Line, at, "the key is written twice")
		case value.Kind == yaml.AliasNode || value.Anchor != "" || value.Style&yaml.TaggedStyle != 0:
			p.add(value.Line, at, "anchors, aliases and tags are not allowed")
		default:
			read(value, at)
		}
		seen[key.Value] = true
	}
}

// text wants quotes around what YAML takes for something else: 2.10 is a number
// and would be 2.1.
func (p *fileParser) text(to *string) fileField {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			p.add(n.Line, path, "must be a text; quote it: %q", n.Value)
			return
		}
		*to = n.Value
	}
}

func (p *fileParser) address(to *Address) fileField {
	return func(n *yaml.Node, path string) {
		var text string
		before := len(p.problems)
		p.text(&text)(n, path)
		if len(p.problems) > before {
			return
		}
		address, err := ParseAddress(text)
		if err != nil {
			p.add(n.Line, path, "%s", err)
			return
		}
		*to = address
	}
}

func (p *fileParser) weight(in *Instance) fileField {
	return func(n *yaml.Node, path string) {
		weight, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil {
			p.add(n.Line, path, "must be a whole number")
			return
		}
		in.Weight = &weight
	}
}

func (p *fileParser) labels(in *Instance) fileField {
	return func(n *yaml.Node, path string) {
		in.Labels = map[string]string{}
		p.mapping(n, path, func(key string) fileField {
			return func(n *yaml.Node, path string) {
				var value string
				p.text(&value)(n, path)
				in.Labels[key] = value
			}
		})
	}
}
