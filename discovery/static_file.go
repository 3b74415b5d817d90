package discovery

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"dispatch.example/dispatch/internal/fault"
)

// parseFile reads a file of instances in YAML or JSON:
//
//	instances:
//	  - {service: order-core, address: "10.1.0.7:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.3.1}
//
// id, weight and labels may be added. One mistake refuses the whole file, and all
// mistakes are listed.
func parseFile(path string, text []byte) ([]Instance, error) {
	p := &fileParser{document: document{path: path}}
	if root := p.root(text, "to say that there is nobody, write instances: []"); root != nil {
		p.top(root)
	}
	if len(p.problems) > 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Code: "invalid_instances", Detail: path + " is not a list of instances", Problems: p.problems}
	}
	return p.instances, nil
}

type fileParser struct {
	document
	instances []Instance
}

func (p *fileParser) top(root *yaml.Node) {
	var list *yaml.Node
	p.mapping(root, "", fields{"instances": func(n *yaml.Node, _ string) { list = n }}.of)
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
	p.mapping(n, path, fields{
		"id":      p.text(&in.ID),
		"service": p.text(&in.Service),
		"cluster": p.text(&in.Cluster),
		"region":  p.text(&in.Region),
		"env":     p.text(&in.Env),
		"version": p.text(&in.Version),
		"address": p.address(&in.Address),
		"weight":  p.weight(&in),
		"labels":  p.texts(&in.Labels),
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

func (p *fileParser) address(to *Address) field {
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

func (p *fileParser) weight(in *Instance) field {
	return func(n *yaml.Node, path string) {
		weight, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil {
			p.add(n.Line, path, "must be a whole number")
			return
		}
		in.Weight = &weight
	}
}
