package release

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Revise writes into a person's text what doc says otherwise. Parts that say the
// same keep every byte, and so comments, order and layout; parts of lists are found
// by key. A change that has no place in the text is no error: anew says then that
// all of it is Text(doc). Both read as the same document.
func Revise(text []byte, doc *Document) (revised []byte, anew bool, err error) {
	fresh, err := Text(doc)
	if err != nil {
		return nil, false, err
	}
	want, err := Parse("text.yaml", fresh)
	if err != nil {
		return nil, false, fmt.Errorf("read document as written: %w", err)
	}
	if json.Valid(text) { // it has nothing to keep
		return fresh, false, nil
	}
	revised, err = revise(text, want)
	if err == nil {
		var got *Document
		if got, err = Parse("revised.yaml", revised); err == nil && !reflect.DeepEqual(got, want) {
			err = errNoPlace
		}
	}
	if err != nil { // no reader wants the reason: the other text says all of it
		return fresh, true, nil
	}
	return revised, false, nil
}

// errNoPlace is that a change finds no place in the text.
var errNoPlace = errors.New("the text has no place for the change")

func revise(text []byte, want *Document) ([]byte, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(slices.Clone(text), '\n')
	}
	have, err := Parse("text.yaml", text)
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Load(text, &root); err != nil || len(root.Content) != 1 {
		return nil, cmp.Or(err, errNoPlace)
	}
	var trees [2]*node
	for i, doc := range []*Document{have, want} {
		if trees[i], err = (Configuration{Document: doc}).documentTree(); err != nil {
			return nil, err
		}
	}
	r := &reviser{text: string(text)}
	for at := range r.text {
		if at == 0 || r.text[at-1] == '\n' {
			r.lines = append(r.lines, at)
		}
	}
	all := extent{0, len(r.text)}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode || top.Style&yaml.FlowStyle != 0 {
		all = r.exact(top)
	}
	out := r.text[:all.from] + r.value(top, all, trees[0], trees[1]) + r.text[all.to:]
	if r.failed {
		return nil, errNoPlace
	}
	return []byte(out), nil
}

// reviser rewrites a text by the nodes that were read from it. Nodes say where a
// part begins; where it ends follows from indentation, or within brackets from
// commas. Whatever it does not understand is a failure.
type reviser struct {
	text   string
	lines  []int // offsets at which they begin
	failed bool
}

// extent is a part of the text.
type extent struct{ from, to int }

func (r *reviser) fail() string {
	r.failed = true
	return ""
}

func (r *reviser) cut(e extent) string {
	if e.from < 0 || e.to < e.from || e.to > len(r.text) {
		return r.fail()
	}
	return r.text[e.from:e.to]
}

// offset is where a node begins; columns count characters.
func (r *reviser) offset(y *yaml.Node) int {
	at := r.lines[y.Line-1]
	for range y.Column - 1 {
		_, size := utf8.DecodeRuneInString(r.text[at:])
		at += size
	}
	return at
}

// value is the text of e, in which y says have, when it says want.
func (r *reviser) value(y *yaml.Node, e extent, have, want *node) string {
	switch {
	case have.same(want):
		return r.cut(e)
	case !fits(y, have) || have.kind != want.kind || have.kind < isSequence:
		return r.inline(want, y)
	case y.Style&yaml.FlowStyle != 0:
		return r.flow(y, e, have, want)
	default:
		return r.block(y, e, have, want)
	}
}

// fits says whether a node is written as the tree has it: some parts have short forms.
func fits(y *yaml.Node, n *node) bool {
	switch {
	case n == nil:
		return false
	case y.Kind == yaml.MappingNode:
		return n.kind == isMapping
	case y.Kind == yaml.SequenceNode:
		return n.kind == isSequence && len(y.Content) == len(n.items)
	default:
		return n.kind < isSequence
	}
}

// inline is a part on one line, quoted as old was.
func (r *reviser) inline(n *node, old *yaml.Node) string {
	y := n.toYAML()
	flat(y)
	if n.kind == isText && old != nil && old.Kind == yaml.ScalarNode {
		y.Style |= old.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)
	}
	text, err := dump(&yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: []*yaml.Node{y}})
	if err != nil || strings.Count(text, "\n") != 1 {
		return r.fail()
	}
	return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]\n")
}

// flat puts a part on one line.
func flat(y *yaml.Node) {
	if y.Kind != yaml.ScalarNode {
		y.Style = yaml.FlowStyle
	} else if strings.Contains(y.Value, "\n") {
		y.Style = yaml.DoubleQuotedStyle
	}
	for _, below := range y.Content {
		flat(below)
	}
}

// short says whether Text writes the part on one line.
func (n *node) short() bool {
	y := n.toYAML()
	return y.Kind == yaml.ScalarNode && !strings.Contains(y.Value, "\n") || y.Style == yaml.FlowStyle
}

// pairing says for each part of want which part of have it is, -1 for none. Those of
// a map are met by key, those of a list too if they have one, else by what they say, or by
// place if there are as many.
func pairing(have, want *node) []int {
	was, keyed := have.parts()
	is, keyedNow := want.parts()
	out := make([]int, 0, len(want.items)+len(want.pairs))
	if keyed && keyedNow && !twice(was) && !twice(is) {
		for _, p := range is {
			out = append(out, indexOf(was, p.key))
		}
		return out
	}
	a, b := have.items, want.items
	before := 0
	for before < min(len(a), len(b)) && a[before].same(b[before]) {
		before++
	}
	after := 0
	for after < min(len(a), len(b))-before && a[len(a)-1-after].same(b[len(b)-1-after]) {
		after++
	}
	next := before
	for i := range b {
		met := -1
		switch {
		case i < before || len(a) == len(b):
			met = i
		case i >= len(b)-after:
			met = i - len(b) + len(a)
		default:
			for j := next; j < len(a)-after && met < 0; j++ {
				if a[j].same(b[i]) {
					met, next = j, j+1
				}
			}
		}
		out = append(out, met)
	}
	return out
}

func twice(parts []pair) bool {
	keys := keysOf(parts)
	slices.Sort(keys)
	return len(slices.Compact(keys)) < len(parts)
}
