package discovery

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"dispatch.example/dispatch/internal/fault"
)

// Dialect maps what one registry's teams write to coordinates. What it does not
// map is not guessed: the entry lacks a coordinate and goes to Rejected.
//
//	keys:   {environment: env, idc: region}
//	values: {env: {production: prod}, region: {hz: cn-hangzhou}}
//	absent: {cluster: production}
//	names:  ['(?P<service>.+)-(?P<version>v[0-9]+)']
//
// What several places state must agree: a version in the name and another in the
// metadata reject the entry. A registry is asked for a name as it spells it
// (order-core-v2); the instances found have the name that the dialect made of it.
type Dialect struct {
	// Keys map a key of the registry's metadata to cluster, region, env, version or
	// weight. Those five words are keys too, unless they are mapped to another.
	Keys map[string]string `yaml:"keys"`
	// Values map, for a coordinate, a value as written to ours. A coordinate that
	// has an entry here takes the values on both sides of it, and no others.
	Values map[string]map[string]string `yaml:"values"`
	// Absent is the value of a coordinate for entries that state it nowhere.
	Absent map[string]string `yaml:"absent"`
	// Names are regular expressions (RE2) for whole names, with a group service and
	// optionally version, env, cluster, region; the first that matches splits a name.
	Names []string `yaml:"names"`
}

// ReadDialect reads a file of YAML with the keys keys, values, absent and names.
// All mistakes are listed with their lines.
func ReadDialect(path string) (*Dialect, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read dialect: %w", err)
	}
	return parseDialect(path, text)
}

func parseDialect(path string, text []byte) (*Dialect, error) {
	p := &dialectParser{document: document{path: path}, lines: map[string]int{}}
	if root := p.root(text, "a registry without a dialect needs no file"); root != nil {
		p.mapping(root, "", p.noting(fields{
			"keys":   p.texts(&p.dialect.Keys),
			"values": p.values,
			"absent": p.texts(&p.dialect.Absent),
			"names":  p.names,
		}.of))
	}
	if len(p.problems) == 0 {
		_, problems := p.dialect.compile()
		for _, problem := range problems {
			problem.File, problem.Line = path, p.line(problem.Path)
			p.problems = append(p.problems, problem)
		}
	}
	if len(p.problems) > 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Code: "invalid_dialect", Detail: path + " is no dialect", Problems: p.problems}
	}
	return &p.dialect, nil
}

type dialectParser struct {
	document
	dialect Dialect
	lines   map[string]int // of what was read, by path
}

// noting remembers where values stand, for problems that show later.
func (p *dialectParser) noting(read func(key string) field) func(key string) field {
	return func(key string) field {
		f := read(key)
		if f == nil {
			return nil
		}
		return func(n *yaml.Node, path string) {
			p.note(n, path)
			f(n, path)
		}
	}
}

func (p *dialectParser) note(n *yaml.Node, path string) {
	p.lines[path] = n.Line
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		p.note(n.Content[i+1], path+"."+n.Content[i].Value)
	}
}

// line is where the value at path stands, or what it is in.
func (p *dialectParser) line(path string) int {
	for path != "" && p.lines[path] == 0 {
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return max(p.lines[path], 1)
}

func (p *dialectParser) values(n *yaml.Node, path string) {
	p.dialect.Values = map[string]map[string]string{}
	p.mapping(n, path, func(coordinate string) field {
		return func(n *yaml.Node, path string) {
			var table map[string]string
			p.texts(&table)(n, path)
			p.dialect.Values[coordinate] = table
		}
	})
}

func (p *dialectParser) names(n *yaml.Node, path string) {
	if n.Kind != yaml.SequenceNode {
		p.add(n.Line, path, "must be a list")
		return
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.lines[at] = item.Line
		var pattern string
		p.text(&pattern)(item, at)
		p.dialect.Names = append(p.dialect.Names, pattern)
	}
}

// translator is a Dialect that was checked. A nil one leaves everything as it is.
type translator struct {
	Dialect
	ours  map[string]map[string]bool // the right sides of Values
	names []*regexp.Regexp
}

// newTranslator is nil for no dialect.
func newTranslator(d *Dialect) (*translator, error) {
	if d == nil {
		return nil, nil
	}
	t, problems := d.compile()
	return t, problems.Err("invalid_dialect", "the dialect cannot be used")
}

// coordinate says whether a word is one of the four.
func coordinate(word string) bool {
	return word == keyCluster || word == keyRegion || word == keyEnv || word == keyVersion
}

const notCoordinate = "is none of cluster, region, env, version"

func (d *Dialect) compile() (*translator, fault.Problems) {
	t, p := &translator{Dialect: *d, ours: map[string]map[string]bool{}}, fault.Problems{}
	for _, key := range slices.Sorted(maps.Keys(d.Keys)) {
		if field := d.Keys[key]; !coordinate(field) && field != keyWeight {
			p.Addf("keys."+key, "%q is none of cluster, region, env, version, weight", field)
		}
		if strings.TrimSpace(key) == "" {
			p.Addf("keys."+key, "the key is blank")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Values)) {
		at, table := "values."+name, d.Values[name]
		if !coordinate(name) {
			p.Addf(at, notCoordinate)
		}
		if len(table) == 0 {
			p.Addf(at, "is empty, and would reject every entry")
		}
		t.ours[name] = map[string]bool{}
		for _, written := range slices.Sorted(maps.Keys(table)) {
			checkValue(&p, at+"."+written, table[written])
			if strings.TrimSpace(written) == "" {
				p.Addf(at+"."+written, "the value as written is blank; use absent for entries that do not state it")
			}
			t.ours[name][table[written]] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Absent)) {
		if !coordinate(name) {
			p.Addf("absent."+name, notCoordinate)
		}
		checkValue(&p, "absent."+name, d.Absent[name])
	}
	for i, pattern := range d.Names {
		t.names = append(t.names, checkPattern(&p, fmt.Sprintf("names[%d]", i), pattern))
	}
	return t, p
}

// checkValue wants what a coordinate may be.
func checkValue(p *fault.Problems, path, value string) {
	var found fault.Problems
	Coordinates{value, value, value, value}.check(&found)
	if len(found) > 0 {
		p.Addf(path, "%s", found[0].Detail)
	}
}

func checkPattern(p *fault.Problems, path, pattern string) *regexp.Regexp {
	re, err := regexp.Compile("^(?:" + pattern + ")$") // a part of a name would be a guess
	if err != nil {
		p.Addf(path, "%q is no regular expression: %s", pattern, err)
		return nil
	}
	if re.SubexpIndex("service") < 0 {
		p.Addf(path, "%q has no group (?P<service>…)", pattern)
	}
	for _, group := range re.SubexpNames() {
		if group != "" && group != "service" && !coordinate(group) {
			p.Addf(path, "the group %q is none of service, cluster, region, env, version", group)
		}
	}
	return re
}

// split returns the service that a name means, and the coordinates that it states.
func (t *translator) split(name string) (service string, stated map[string]string) {
	if t == nil {
		return name, nil
	}
	for _, re := range t.names {
		parts := re.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		stated = map[string]string{}
		for i, group := range re.SubexpNames() {
			if coordinate(group) && parts[i] != "" {
				stated[group] = parts[i]
			}
		}
		return parts[re.SubexpIndex("service")], stated
	}
	return name, nil
}

// field is what a key of the metadata states, empty if it is a label.
func (t *translator) field(key string) string {
	if field := t.Keys[key]; field != "" {
		return field
	}
	if coordinate(key) || key == keyWeight {
		return key
	}
	return ""
}

// value is ours for one as written.
func (t *translator) value(field, written string) (string, bool) {
	table, mapped := t.Values[field]
	if ours, found := table[written]; found {
		return ours, true
	}
	return written, !mapped || t.ours[field][written]
}

// translate returns the metadata of an entry in our keys and values; named are the
// coordinates that its name states.
func (t *translator) translate(written, named map[string]string) (map[string]string, error) {
	if t == nil {
		return written, nil
	}
	pairs, from := make(map[string]string, len(written)+len(t.Absent)), map[string]string{}
	var errs []error
	state := func(field, value, key string) {
		ours, known := t.value(field, value)
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("%s is %q, which the dialect maps to no %s", key, value, field))
		case from[field] != "" && pairs[field] != ours:
			errs = append(errs, fmt.Errorf("%s is %q by %s and %q by %s", field, pairs[field], from[field], ours, key))
		default:
			pairs[field], from[field] = ours, key
		}
	}
	for _, key := range slices.Sorted(maps.Keys(written)) {
		if field := t.field(key); field != "" {
			state(field, written[key], key)
		} else {
			pairs[key] = written[key]
		}
	}
	for _, field := range slices.Sorted(maps.Keys(named)) {
		state(field, named[field], "the name")
	}
	for field, value := range t.Absent {
		if _, stated := pairs[field]; !stated {
			pairs[field] = value
		}
	}
	return pairs, errors.Join(errs...)
}
