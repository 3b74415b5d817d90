package rules

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"dispatch.example/dispatch/internal/fault"
)

// Bounds of a folder of rules.
const (
	maxFiles    = 5_000
	maxFile     = 64 << 10 // bytes of one file
	maxFileName = 200      // bytes
	maxDepth    = 8        // levels of nesting; a group needs 5
	maxProblems = 1_000    // shown at once
)

// groupsFile is the file that holds the groups; all others hold a rule.
const groupsFile = "groups.yaml"

// File is one file of rules. Its name is relative to the folder: pay/pay-core.yaml.
type File struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Parse reads files: rules, and at most one groups.yaml. All mistakes of all files
// are listed, with file and line. *fault.Error invalid_rules.
func Parse(files []File) (Set, error) {
	p := &parser{set: Set{Rules: []Rule{}, lines: map[place]int{}}}
	if len(files) > maxFiles {
		return Set{}, fault.New(fault.TooLarge, "too_many_rules", "%d files are more than a region may have, %d", len(files), maxFiles)
	}
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	for i, f := range files {
		p.file, p.last, p.reported = f.Name, 1+strings.Count(strings.TrimSuffix(f.Text, "\n"), "\n"), map[string]bool{}
		first := len(p.problems)
		switch {
		case i > 0 && files[i-1].Name == f.Name:
			p.add(0, "", "", "there are two files of this name")
		case !p.isName(f.Name):
		default:
			p.one(f)
		}
		slices.SortStableFunc(p.problems[first:], func(a, b fault.Problem) int { return cmp.Compare(a.Line, b.Line) })
	}
	if p.unshown > 0 {
		p.problems = append(p.problems, fault.Problem{Detail: fmt.Sprintf("%d more problems are not shown", p.unshown)})
	}
	if err := p.problems.Err("invalid_rules", "the rules cannot be used"); err != nil {
		return Set{}, err
	}
	return p.set.sorted(), nil
}

// parser collects rules and mistakes of all files; file is the one that is read.
type parser struct {
	set      Set
	problems fault.Problems
	unshown  int

	file     string
	last     int             // line of the file
	reported map[string]bool // paths of the file with a problem, which need no second one
}

func (p *parser) add(line int, path, hint, format string, args ...any) {
	p.reported[path] = true
	if len(p.problems) == maxProblems {
		p.unshown++
		return
	}
	line = min(line, p.last) // YAML places some mistakes behind the end
	p.problems = append(p.problems, fault.Problem{File: p.file, Line: line, Path: path, Hint: hint, Detail: fmt.Sprintf(format, args...)})
}

// line is where a path of the file stands, or what it belongs to.
func (p *parser) line(at string) int {
	for ; at != ""; at = parent(at) {
		if line, ok := p.set.lines[place{p.file, at}]; ok {
			return line
		}
	}
	return max(p.set.lines[place{p.file, ""}], 1)
}

// isReported says whether a path, or what it belongs to, has a problem already.
func (p *parser) isReported(at string) bool {
	for ; at != ""; at = parent(at) {
		if p.reported[at] {
			return true
		}
	}
	return p.reported[""]
}

// parent is what a path belongs to.
func parent(at string) string { return at[:max(strings.LastIndexAny(at, ".["), 0)] }

// take adds findings about what was read, where nothing was reported yet.
func (p *parser) take(prefix string, found findings) {
	for _, f := range found {
		if at := prefix + f.path; !p.isReported(at) {
			p.add(p.line(at), at, f.hint, "%s", f.detail)
		}
	}
}

// isName refuses names that are no file below the folder.
func (p *parser) isName(name string) bool {
	switch {
	case name == "" || len(name) > maxFileName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		p.add(0, "", "", "the name of a file has 1 to %d bytes of plain text", maxFileName)
	case strings.Contains(name, `\`) || path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "../"):
		p.add(0, "", "write it relative to the folder, such as pay/pay-core.yaml", "the name leads out of the folder of rules")
	case path.Ext(name) != ".yaml":
		p.add(0, "", "name it "+strings.TrimSuffix(path.Base(name), path.Ext(name))+".yaml", "files of rules end in .yaml")
	case name != groupsFile && path.Base(name) == groupsFile:
		p.add(0, "", "put all groups into the one at the top", "groups.yaml stands at the top of the folder")
	default:
		return true
	}
	return false
}

// one reads a file.
func (p *parser) one(f File) {
	before := len(p.problems) + p.unshown
	root := p.root([]byte(f.Text))
	if root == nil {
		return
	}
	p.set.lines[place{p.file, ""}] = root.Line
	if f.Name == groupsFile {
		p.groups(root)
		return
	}
	if rule := p.rule(root); len(p.problems)+p.unshown == before {
		p.set.Rules = append(p.set.Rules, rule)
	}
}

// rule reads the one rule of a file.
func (p *parser) rule(root *yaml.Node) Rule {
	r := Rule{File: p.file, Strategy: Strategy{Weight: defaultWeight}}
	stated := false
	p.mapping(root, "", []field{
		{key: "service", required: true, read: p.text(&r.Service)},
		{key: "updated", required: true, read: p.instant(&r.Updated)},
		{key: "selector", required: true, read: func(n *yaml.Node, at string) {
			p.mapping(n, at, []field{
				{key: "cluster", required: true, read: p.text(&r.Selector.Cluster)},
				{key: "region", required: true, read: p.text(&r.Selector.Region)},
				{key: "env", required: true, read: p.text(&r.Selector.Env)},
			})
		}},
		{key: "strategy", required: true, read: func(n *yaml.Node, at string) {
			p.mapping(n, at, []field{
				{key: "version", required: true, read: p.text(&r.Strategy.Version)},
				{key: "weight", read: func(n *yaml.Node, at string) { stated = true; p.weight(&r.Strategy.Weight)(n, at) }},
			})
		}},
		{key: "fallback", read: func(n *yaml.Node, at string) {
			r.Fallback = &Fallback{}
			p.mapping(n, at, []field{
				{key: "version", required: true, read: p.text(&r.Fallback.Version)},
				{key: "weight", required: true, read: p.weight(&r.Fallback.Weight)},
				{key: "condition", read: p.condition(r.Fallback)},
			})
		}},
	})
	if r.Fallback != nil && !stated && !p.isReported("strategy.weight") {
		p.add(p.line("strategy"), "strategy.weight", "write both weights, such as 70 and 30", "is required beside a fallback: the two share the traffic")
	}
	p.take("", r.check())
	return r
}

// groups reads groups.yaml.
func (p *parser) groups(root *yaml.Node) {
	p.mapping(root, "", []field{{key: "groups", required: true, read: p.list(func(n *yaml.Node, at string) {
		var g Group
		p.mapping(n, at, []field{
			{key: "prefix", required: true, read: p.text(&g.Prefix)},
			{key: "owners", required: true, read: p.texts(&g.Owners)},
			{key: "key", read: p.texts(&g.Key)},
		})
		p.take(at+".", g.check())
		if slices.ContainsFunc(p.set.Groups, func(other Group) bool { return other.Prefix == g.Prefix }) {
			p.take(at+".", findings{{"prefix", fmt.Sprintf("there is a group %s already", g.Prefix), ""}})
		}
		p.set.Groups = append(p.set.Groups, g)
		p.set.lines[place{p.file, groupPath(g)}] = n.Line
	})}})
}

// groupPath names a group in problems of Lint, whatever its place in the file.
func groupPath(g Group) string { return "groups[" + g.Prefix + "]" }
