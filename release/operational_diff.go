package release

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Configuration is what a release is about: a document and the operational
// state beside it.
type Configuration struct {
	Document    *Document   `json:"document"`
	Operational Operational `json:"operational"`
}

// DifferenceKind says what happened to a part.
type DifferenceKind string

// The kinds of difference.
const (
	Added     DifferenceKind = "added"
	Removed   DifferenceKind = "removed"
	Changed   DifferenceKind = "changed"
	Reordered DifferenceKind = "reordered" // From and To are the keys in order; order decides among policies
)

// Difference is one part that two configurations differ in. Parts of lists are
// named by key: apps[mobile].regions[sh].state.
type Difference struct {
	Path string         `json:"path"`
	Kind DifferenceKind `json:"kind"`
	From string         `json:"from,omitempty"`
	To   string         `json:"to,omitempty"`
}

// String is one line for people.
func (d Difference) String() string {
	switch d.Kind {
	case Added:
		return fmt.Sprintf("+ %s: %s", d.Path, d.To)
	case Removed:
		return fmt.Sprintf("- %s: %s", d.Path, d.From)
	case Reordered:
		return fmt.Sprintf("~ %s: order %s → %s", d.Path, d.From, d.To)
	default:
		return fmt.Sprintf("~ %s: %s → %s", d.Path, d.From, d.To)
	}
}

// Diff lists what to differs in from from, in the order of the document. A part
// that is new or gone is one entry. Ids of lists are counted, never shown.
func Diff(from, to Configuration) ([]Difference, error) {
	before, err := from.tree()
	if err != nil {
		return nil, err
	}
	after, err := to.tree()
	if err != nil {
		return nil, err
	}
	var d differ
	d.compare("", before, after)
	return d.found, nil
}

// tree is the configuration as a document has it, operational state below its own key.
func (c Configuration) tree() (*node, error) {
	doc := Document{}
	if c.Document != nil {
		doc = *c.Document
	}
	doc.Apps = slices.Concat([]App{}, doc.Apps)
	text, err := json.Marshal(struct {
		Document
		Operational Operational `json:"operational"`
	}{doc, c.Operational})
	if err != nil {
		return nil, fmt.Errorf("write configuration as JSON: %w", err)
	}
	root := new(decoder).readJSON(text)
	for _, list := range root.child("lists").items {
		for i := range list.pairs {
			if p := &list.pairs[i]; p.key == "ids" {
				p.value = &node{kind: isText, text: fmt.Sprintf("%d ids", len(p.value.items))}
			}
		}
	}
	return root, nil
}

// child is the value of a key, an empty node if there is none.
func (n *node) child(key string) *node {
	for i := range n.pairs {
		if n.pairs[i].key == key {
			return n.pairs[i].value
		}
	}
	return &node{}
}

type differ struct {
	found []Difference
	whole bool // nothing is cut
}

func (d *differ) add(path string, kind DifferenceKind, from, to string) {
	if !d.whole && (kind == Added || kind == Removed) {
		from, to = shorten(from), shorten(to)
	}
	d.found = append(d.found, Difference{path, kind, from, to})
}

func (d *differ) compare(path string, a, b *node) {
	before, keyedBefore := a.parts()
	after, keyedAfter := b.parts()
	if !keyedBefore || !keyedAfter || a.kind != b.kind {
		if from, to := a.show(), b.show(); from != to {
			d.add(path, Changed, from, to)
		}
		return
	}
	below := func(key string) string {
		if b.kind == isSequence {
			return path + "[" + key + "]"
		}
		return join(path, key)
	}
	var stayed, now []string
	for _, p := range before {
		if i := indexOf(after, p.key); i >= 0 {
			stayed = append(stayed, p.key)
			d.compare(below(p.key), p.value, after[i].value)
		} else {
			d.add(below(p.key), Removed, p.value.show(), "")
		}
	}
	for _, p := range after {
		if indexOf(before, p.key) >= 0 {
			now = append(now, p.key)
		} else {
			d.add(below(p.key), Added, "", p.value.show())
		}
	}
	if b.kind == isSequence && !slices.Equal(stayed, now) {
		d.add(path, Reordered, strings.Join(stayed, ", "), strings.Join(now, ", "))
	}
}

func indexOf(pairs []pair, key string) int {
	return slices.IndexFunc(pairs, func(p pair) bool { return p.key == key })
}

// parts are what can be compared one by one: the pairs of a map, or the items of
// a list that all have a key. An empty list is keyed.
func (n *node) parts() (parts []pair, keyed bool) {
	switch n.kind {
	case isMapping:
		return n.pairs, true
	case isSequence:
		for _, item := range n.items {
			key := item.child("key")
			if key.kind != isText {
				return nil, false
			}
			parts = append(parts, pair{key: key.text, value: item})
		}
		return parts, true
	}
	return nil, false
}

// show is a node on one line, as YAML flow style would have it.
func (n *node) show() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

func (n *node) write(b *strings.Builder) {
	switch n.kind {
	case isMapping:
		b.WriteByte('{')
		for i, p := range n.pairs {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(p.key + ": ")
			p.value.write(b)
		}
		b.WriteByte('}')
	case isSequence:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteString(", ")
			}
			item.write(b)
		}
		b.WriteByte(']')
	case isText:
		if n.text == "" || strings.ContainsAny(n.text, "{}[],:#\"\n") {
			fmt.Fprintf(b, "%q", n.text)
			return
		}
		b.WriteString(n.text)
	default:
		b.WriteString(n.text)
	}
}

// shorten keeps a whole app that is new from filling the screen.
func shorten(s string) string {
	const most = 240 // runes
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
