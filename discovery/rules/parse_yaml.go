package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// The next step for values that people often write in another form.
const (
	hintLayers    = "four layers: cluster, region, env, version"
	hintUpdated   = "write when the rule was changed, with its zone, such as 2026-11-30T09:00:00Z"
	hintWeight    = "a weight is a part of the traffic: 70 beside 30; 0 takes none"
	hintCondition = `write METRIC OPERATOR NUMBER, such as "target-load > 80"`
)

// root is the top of the only document of a file, nil after a problem.
func (p *parser) root(text []byte) *yaml.Node {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if len(text) > maxFile {
		p.add(0, "", "a file holds one rule", "%d bytes are more than a file may have, %d", len(text), maxFile)
		return nil
	}
	if !p.isText(text) {
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		p.add(1, "", "", "start the YAML reader: %v", err)
		return nil
	}
	var first, second yaml.Node
	if err := loader.Load(&first); err != nil && !errors.Is(err, io.EOF) {
		p.syntax(err)
		return nil
	}
	if len(first.Content) != 1 || first.Content[0].ShortTag() == "!!null" {
		p.add(1, "", "write a rule, or remove the file", "the file is empty")
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		p.add(second.Line, "", "give each rule a file of its own", "a second rule begins here")
		return nil
	case !errors.Is(err, io.EOF):
		p.syntax(err)
		return nil
	}
	return first.Content[0]
}

func (p *parser) syntax(err error) {
	line, detail := 1, err.Error()
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		line, detail = max(e.Mark.Line, 1), e.Message
	}
	p.add(line, "", "", "no YAML: %s", detail)
}

// isText refuses what is no text, and characters that hide in review: controls,
// and line breaks that YAML sees and editors do not.
func (p *parser) isText(text []byte) bool {
	line := 1
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			p.add(line, "", "save the file as UTF-8", "byte 0x%02x is not UTF-8", text[i])
			return false
		case r == '\n':
			line++
		case r == '\t', r == '\r' && bytes.HasPrefix(text[i:], []byte("\r\n")):
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			p.add(line, "", "remove it", "there is a control character, %U", r)
			return false
		}
		i += size
	}
	return true
}

// field is a key that a mapping may have.
type field struct {
	key      string
	required bool
	read     func(n *yaml.Node, at string)
}

// mapping reads each key with its field. What a reader would have to look up
// elsewhere is refused: anchors, aliases, merge keys and tags.
func (p *parser) mapping(n *yaml.Node, at string, fields []field) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		p.add(n.Line, at, knownHere(fields), "must be keys with values, without anchors and tags")
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := join(at, key.Value)
		index := slices.IndexFunc(fields, func(f field) bool { return f.key == key.Value })
		line, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" || key.Anchor != "":
			p.add(key.Line, at, "write the values out; a reviewer should see what is meant", "a key must be a plain word")
			continue
		case twice:
			p.add(key.Line, path, "", "the key is written on line %d already", line)
		case key.Value == "on_no_match":
			p.add(key.Line, path, "remove the key; a fallback in the same coordinates helps when a version is gone",
				"a rule that matches nothing is an error of each call; that cannot be changed")
		case index < 0:
			if meant := p.unknown(key, at, fields); meant != "" {
				p.reported[join(at, meant)] = true
			}
		case value.Kind == yaml.AliasNode || value.Anchor != "" || value.Style&yaml.TaggedStyle != 0:
			p.add(value.Line, path, "write the value out; a reviewer should see what is meant", "anchors, aliases and tags are not allowed")
		default:
			p.set.lines[place{p.file, path}] = key.Line
			fields[index].read(value, path)
		}
		first[key.Value] = key.Line
	}
	for _, f := range fields {
		if path := join(at, f.key); f.required && first[f.key] == 0 && !p.reported[path] {
			p.add(n.Line, path, "", "is required and missing")
		}
	}
}

// unknown reports a key, and returns the one that was probably meant.
func (p *parser) unknown(key *yaml.Node, at string, fields []field) (meant string) {
	hint := knownHere(fields) + "; "
	if meant = nearest(key.Value, keys(fields)); meant != "" {
		hint = "did you mean " + meant + "? "
	}
	if p.file != groupsFile {
		hint += hintLayers
	}
	hint = strings.TrimRight(hint, "; ")
	p.add(key.Line, join(at, key.Value), hint, "the key is unknown")
	return meant
}

func keys(fields []field) (known []string) {
	for _, f := range fields {
		known = append(known, f.key)
	}
	return known
}

func knownHere(fields []field) string { return "known here: " + strings.Join(keys(fields), ", ") }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// list reads each item of a list.
func (p *parser) list(read func(n *yaml.Node, at string)) func(*yaml.Node, string) {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.SequenceNode {
			p.add(n.Line, at, "", "must be a list")
			return
		}
		for i, item := range n.Content {
			path := fmt.Sprintf("%s[%d]", at, i)
			if item.Kind == yaml.AliasNode || item.Anchor != "" || item.Style&yaml.TaggedStyle != 0 {
				p.add(item.Line, path, "write the value out; a reviewer should see what is meant", "anchors, aliases and tags are not allowed")
				continue
			}
			p.set.lines[place{p.file, path}] = item.Line
			read(item, path)
		}
	}
}

func (p *parser) texts(to *[]string) func(*yaml.Node, string) {
	return p.list(func(n *yaml.Node, at string) {
		var text string
		p.text(&text)(n, at)
		*to = append(*to, text)
	})
}

// text wants quotes around what YAML, or the YAML of other programs, takes for
// something else: 2.10 is a number and would be 2.1, no is a boolean.
func (p *parser) text(to *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, at string) {
		*to = n.Value
		if n.Kind != yaml.ScalarNode {
			p.add(n.Line, at, "", "must be a text")
			return
		}
		if kind := notText(n); kind != "" && n.Value == "" {
			p.add(n.Line, at, "", "has no value")
		} else if kind != "" {
			p.add(n.Line, at, fmt.Sprintf("write %q", n.Value), "%s without quotes is %s to YAML", n.Value, kind)
		}
	}
}

// older is what YAML 1.1 takes for something else and 1.2 for a text. Programs of
// both kinds read these files.
var older = []struct {
	form *regexp.Regexp
	kind string
}{
	{regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$`), "a boolean"},
	{regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`), "a number"},           // in base 60
	{regexp.MustCompile(`^[-+]?(\.[0-9_]+|[0-9][0-9_.]*)([eE][-+]?[0-9]+)?$`), "a number"},       // too large for one, too
	{regexp.MustCompile(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9:. Zz+-]*)?$`), "a timestamp"}, // its parts without zeros
}

// notText says what an unquoted scalar is when it is no text.
func notText(n *yaml.Node) string {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		return ""
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "a timestamp"
	}
	for _, o := range older {
		if o.form.MatchString(n.Value) && strings.Count(n.Value, ".") < 2 {
			return o.kind
		}
	}
	return ""
}

// weight wants plain digits, so that one number has one spelling.
func (p *parser) weight(to *int) func(*yaml.Node, string) {
	return func(n *yaml.Node, at string) {
		weight, err := strconv.Atoi(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode || n.ShortTag() == "!!str" || n.ShortTag() == "!!null":
			p.add(n.Line, at, hintWeight, "must be a whole number, without quotes")
		case err != nil && !errors.Is(err, strconv.ErrRange) || err == nil && strconv.Itoa(weight) != n.Value:
			p.add(n.Line, at, hintWeight, "%s is no whole number in plain digits", n.Value)
		case err != nil:
			p.add(n.Line, at, hintWeight, "%s is not from 0 to %d", n.Value, maxWeight)
		}
		*to = weight
	}
}

func (p *parser) instant(to *time.Time) func(*yaml.Node, string) {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.ScalarNode || n.Value == "" {
			p.add(n.Line, at, hintUpdated, "must be an instant with a zone")
			return
		}
		read, err := time.Parse(time.RFC3339, n.Value)
		if err == nil {
			*to = read.UTC() // one form, whatever zone it was written in
			return
		}
		for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
			if _, err := time.Parse(layout, n.Value); err == nil {
				p.add(n.Line, at, hintUpdated, "%q has no time of day or no zone", n.Value)
				return
			}
		}
		p.add(n.Line, at, hintUpdated, "%q is no instant", n.Value)
	}
}

// conditionForm is METRIC OPERATOR NUMBER; which of them exist is checked after.
var conditionForm = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9_-]*)\s*([<>=!]+)\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*$`)

func (p *parser) condition(to *Fallback) func(*yaml.Node, string) {
	return func(n *yaml.Node, at string) {
		to.Condition = &Condition{}
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			p.add(n.Line, at, hintCondition, "must be a text")
			return
		}
		m := conditionForm.FindStringSubmatch(n.Value)
		switch {
		case m == nil && !strings.ContainsAny(n.Value, "<>=!"):
			p.add(n.Line, at, hintCondition, "%q has no operator", n.Value)
			return
		case m == nil:
			p.add(n.Line, at, hintCondition, "%q is no condition", n.Value)
			return
		}
		number, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			p.add(n.Line, at, hintCondition, "%s is no number", m[3])
			return
		}
		to.Condition = &Condition{Metric: m[1], Operator: m[2], Number: number}
	}
}
