package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"dispatch.example/dispatch/internal/fault"
)

// nodeKind is what a part of a document is before the schema is asked.
type nodeKind uint8

const (
	isNull    nodeKind = iota
	isRefused          // reported already; the schema is not asked
	isText
	isNumber
	isBoolean
	isSequence
	isMapping
)

// node is a part of a document, from YAML or JSON alike.
type node struct {
	kind  nodeKind
	line  int
	text  string // of a scalar, as written
	items []*node
	pairs []pair
}

type pair struct {
	key   string
	line  int
	value *node
}

// String says what a node is, for messages.
func (n *node) String() string {
	switch n.kind {
	case isText:
		return "the text " + quote(n.text)
	case isNumber:
		return "the number " + n.text
	case isBoolean:
		return n.text
	case isSequence:
		return "a list"
	case isMapping:
		return "a map"
	default:
		return "nothing"
	}
}

// Source says where the parts of a document stand in its text.
type Source struct {
	file string
	root *node
}

// Locate sets file and line of each problem that has a path and no line yet. A
// part that is not in the text gets the line of what it belongs to.
func (s *Source) Locate(problems []fault.Problem) {
	if s == nil {
		return
	}
	for i := range problems {
		if p := &problems[i]; p.Line == 0 {
			p.File, p.Line = s.file, s.root.find(p.Path)
		}
	}
}

// find is the line of the deepest part on path that is written down.
func (n *node) find(path string) int {
	line := n.line
	for path != "" {
		path = strings.TrimPrefix(path, ".")
		next, rest := n.step(path)
		if next == nil {
			return line
		}
		n, line, path = next.value, next.line, rest
	}
	return line
}

// step goes to [index] or to the longest key that path begins with: keys of maps may hold dots.
func (n *node) step(path string) (next *pair, rest string) {
	var index int
	if _, err := fmt.Sscanf(path, "[%d]", &index); err == nil {
		if index < 0 || index >= len(n.items) {
			return nil, ""
		}
		_, rest, _ = strings.Cut(path, "]")
		return &pair{line: n.items[index].line, value: n.items[index]}, rest
	}
	for i := range n.pairs {
		p := &n.pairs[i]
		after, ok := strings.CutPrefix(path, p.key)
		if ok && (after == "" || after[0] == '.' || after[0] == '[') && (next == nil || len(p.key) > len(next.key)) {
			next, rest = p, after
		}
	}
	return next, rest
}

// join is the path of a key below path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// readYAML reads exactly one YAML document. Anchors, aliases, merge keys and
// tags are refused: a reviewer must see what is written, and no alias can swell.
func (d *decoder) readYAML(data []byte) *node {
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		d.add(1, "", "", "start the YAML reader: %v", err)
		return nil
	}
	var first, second yaml.Node
	if err := loader.Load(&first); err != nil {
		if !errors.Is(err, io.EOF) {
			d.addYAML(data, err)
		}
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		d.add(second.Line, "", "keep one and remove its --- line", "a second YAML document begins here")
		return nil
	case !errors.Is(err, io.EOF):
		d.addYAML(data, err)
		return nil
	}
	if len(first.Content) != 1 {
		return nil
	}
	return d.fromYAML(first.Content[0], "")
}

func (d *decoder) fromYAML(y *yaml.Node, path string) *node {
	n := &node{line: y.Line, text: y.Value}
	if y.Anchor != "" || y.Kind == yaml.AliasNode {
		d.add(y.Line, path, "write the value out; a reviewer should see what is meant", "anchors and aliases are not allowed")
	}
	if y.Style&yaml.TaggedStyle != 0 {
		d.add(y.Line, path, "remove it; quotes make a text", "the tag %s is not allowed", quote(y.Tag))
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = isMapping
		for i := 0; i+1 < len(y.Content); i += 2 {
			d.addPairYAML(n, y.Content[i], y.Content[i+1], path)
		}
		d.refuseTwice(n, path)
	case yaml.SequenceNode:
		n.kind = isSequence
		for i, item := range y.Content {
			at := path
			if !plainScalar(item) { // of the ids in a list, only the unusual need a path
				at = fmt.Sprintf("%s[%d]", path, i)
			}
			n.items = append(n.items, d.fromYAML(item, at))
		}
	case yaml.AliasNode:
		n.kind = isRefused
	default:
		n.kind = yamlScalar(y)
	}
	return n
}

func (d *decoder) addPairYAML(n *node, key, value *yaml.Node, path string) {
	switch {
	case !plainScalar(key):
		d.add(key.Line, path, "", "a key must be a plain word")
	case key.ShortTag() == "!!merge":
		d.add(key.Line, path, "write the keys out; a reviewer should see what is meant", "merge keys are not allowed")
	default:
		n.pairs = append(n.pairs, pair{key.Value, key.Line, d.fromYAML(value, join(path, key.Value))})
	}
}

// refuseTwice reports keys that a mapping has twice: readers differ on which counts.
func (d *decoder) refuseTwice(n *node, path string) {
	first := make(map[string]int, len(n.pairs))
	for _, p := range n.pairs {
		if line, taken := first[p.key]; taken {
			d.add(p.line, join(path, p.key), "keep one", "the key is already written on line %d", line)
			continue
		}
		first[p.key] = p.line
	}
}

func plainScalar(y *yaml.Node) bool {
	return y.Kind == yaml.ScalarNode && y.Anchor == "" && y.Style&yaml.TaggedStyle == 0
}

func yamlScalar(y *yaml.Node) nodeKind {
	switch y.ShortTag() {
	case "!!null":
		return isNull
	case "!!bool":
		return isBoolean
	case "!!int", "!!float":
		return isNumber
	default:
		return isText
	}
}

// addYAML words a syntax error of the YAML reader.
func (d *decoder) addYAML(data []byte, err error) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		d.add(1, "", "", "not YAML: %v", err)
		return
	}
	line, detail := e.Mark.Line, e.Message
	if e.ContextMsg != "" {
		detail += " " + e.ContextMsg
	}
	if e.ContextMark.Line > 0 && e.ContextMark.Line != line {
		detail += fmt.Sprintf(" that begins on line %d", e.ContextMark.Line)
	}
	lines := strings.Split(string(data), "\n")
	line = min(max(line, 1), len(lines))
	d.add(line, "", yamlHint(e.Message, lines[line-1]), "not YAML: %s", detail)
}

// yamlHint is the next step after the mistakes that people make most.
func yamlHint(message, line string) string {
	switch {
	case strings.Contains(message, "exceeded max depth"):
		return fmt.Sprintf("at most %d levels of nesting are allowed", maxDepth)
	case strings.HasPrefix(strings.TrimLeft(line, " "), "\t"):
		return "indent with spaces, not tabs"
	case strings.Contains(line, ": >") || strings.Contains(line, ": |"):
		return `text that begins with > or | needs quotes, as in app_version: ">=10.2, <11"`
	case strings.Contains(message, "mapping values are not allowed"):
		return "text that holds a colon and a space needs quotes; else check the indentation"
	case strings.Contains(message, "cannot start any token"):
		return "text that begins with a special character needs quotes"
	default:
		return "check quotes, brackets and indentation near this line"
	}
}

// readJSON reads a JSON document through the same tree.
func (d *decoder) readJSON(data []byte) *node {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		line := 1
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			line += bytes.Count(data[:min(int(e.Offset), len(data))], []byte("\n"))
		}
		d.add(line, "", "check quotes, brackets and commas near this line", "not JSON: %v", err)
		return nil
	}
	r := &jsonReader{decoder: d, data: data, tokens: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.tokens.UseNumber()
	return r.node(r.next(), func() string { return "" }, 0)
}

// jsonReader builds a tree from valid JSON.
type jsonReader struct {
	*decoder
	data   []byte
	tokens *json.Decoder
	seen   int // bytes of data whose lines are counted
	line   int
	deep   bool // the depth limit was reported
}

// next is the next token; the text is valid, so there is one.
func (r *jsonReader) next() json.Token {
	token, _ := r.tokens.Token()
	end := int(r.tokens.InputOffset())
	r.line += bytes.Count(r.data[r.seen:end], []byte("\n"))
	r.seen = end
	return token
}

// node is the node that begins with token; path is asked only where it is needed.
func (r *jsonReader) node(token json.Token, path func() string, depth int) *node {
	n := &node{line: r.line}
	switch t := token.(type) {
	case json.Delim:
		r.inside(n, t, path(), depth+1)
	case string:
		n.kind, n.text = isText, t
	case json.Number:
		n.kind, n.text = isNumber, t.String()
	case bool:
		n.kind, n.text = isBoolean, fmt.Sprint(t)
	}
	return n
}

func (r *jsonReader) inside(n *node, open json.Delim, path string, depth int) {
	if depth > maxDepth {
		if !r.deep {
			r.deep = true
			r.add(r.line, path, "", "more than %d levels of nesting", maxDepth)
		}
		path = "" // reported; spares paths that grow with the depth
	}
	n.kind = isSequence
	if open == '{' {
		n.kind = isMapping
	}
	for i := 0; r.tokens.More(); i++ {
		if n.kind == isSequence {
			at := func() string { return fmt.Sprintf("%s[%d]", path, i) }
			n.items = append(n.items, r.node(r.next(), at, depth))
			continue
		}
		key, _ := r.next().(string)
		line := r.line
		at := func() string { return join(path, key) }
		n.pairs = append(n.pairs, pair{key, line, r.node(r.next(), at, depth)})
	}
	r.next() // the closing bracket
	r.refuseTwice(n, path)
}
