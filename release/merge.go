package release

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// Merge lays what ours changes in base over theirs, which changed base too. Parts
// of lists are found by key; a part that both changed, to different things, is in
// conflicts, and merged then means nothing.
func Merge(base, ours, theirs *Document) (merged *Document, conflicts []string, err error) {
	var m merger
	merged, err = m.documents(base, ours, theirs)
	if len(m.conflicts) > 0 {
		return nil, m.conflicts, nil
	}
	return merged, nil, err
}

// Overwrite is Merge in which ours wins wherever both changed a part.
func Overwrite(base, ours, theirs *Document) (*Document, error) {
	m := merger{oursWins: true}
	return m.documents(base, ours, theirs)
}

// Writes is what to writes into from, part by part and uncut, unlike Diff, which
// is for people. Operational state is no part of it.
func Writes(from, to *Document) ([]Difference, error) {
	before, err := Configuration{Document: from}.documentTree()
	if err != nil {
		return nil, err
	}
	after, err := Configuration{Document: to}.documentTree()
	if err != nil {
		return nil, err
	}
	d := differ{whole: true}
	d.compare("", before, after)
	return d.found, nil
}

// Touches says whether a change of one path is one of the other, too: they are the
// same part, or one holds the other.
func Touches(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, within := strings.CutPrefix(b, a)
	return within && (rest == "" || a == "" || rest[0] == '.' || rest[0] == '[')
}

// documentTree is tree without the operational state.
func (c Configuration) documentTree() (*node, error) {
	root, err := c.tree()
	if err != nil {
		return nil, err
	}
	root.pairs = slices.DeleteFunc(root.pairs, func(p pair) bool { return p.key == "operational" })
	return root, nil
}

type merger struct {
	conflicts []string
	oursWins  bool
}

func (m *merger) documents(base, ours, theirs *Document) (*Document, error) {
	var trees [3]*node
	for i, doc := range []*Document{base, ours, theirs} {
		var err error
		if trees[i], err = (Configuration{Document: doc}).documentTree(); err != nil {
			return nil, err
		}
	}
	root := m.merge("", trees[0], trees[1], trees[2])
	d, doc := &decoder{file: "merged document"}, &Document{}
	d.value(root, reflect.ValueOf(doc).Elem(), place{})
	return doc, d.err()
}

// conflict is what becomes of a part that both changed.
func (m *merger) conflict(path string, ours, theirs *node) *node {
	if m.oursWins {
		return ours
	}
	m.conflicts = append(m.conflicts, path)
	return theirs
}

// merge gives what becomes of a part; nil stands for none.
func (m *merger) merge(path string, base, ours, theirs *node) *node {
	switch {
	case ours.same(theirs), theirs.same(base):
		return ours
	case ours.same(base):
		return theirs
	case base == nil || ours == nil || theirs == nil || ours.kind != base.kind || theirs.kind != base.kind:
		return m.conflict(path, ours, theirs)
	}
	was, keyed := base.parts()
	mine, keyedOurs := ours.parts()
	others, keyedTheirs := theirs.parts()
	if !keyed || !keyedOurs || !keyedTheirs {
		return m.conflict(path, ours, theirs)
	}
	merged := &node{kind: base.kind}
	for _, key := range m.order(path, was, mine, others) {
		below := join(path, key)
		if base.kind == isSequence {
			below = path + "[" + key + "]"
		}
		if part := m.merge(below, valueOf(was, key), valueOf(mine, key), valueOf(others, key)); part != nil {
			merged.items = append(merged.items, part)
			merged.pairs = append(merged.pairs, pair{key: key, value: part})
		}
	}
	if merged.kind == isMapping {
		merged.items = nil
	} else {
		merged.pairs = nil
	}
	return merged
}

// order is in which order the parts of all three come: as whoever changed the
// order of what was there has it, with the parts that only the other has behind
// those that they stood behind. Policies that both added are a conflict: which one
// comes first decides who meets the other.
func (m *merger) order(path string, base, ours, theirs []pair) []string {
	was, mine, others := keysOf(base), keysOf(ours), keysOf(theirs)
	first, second := mine, others
	if inOrder(was, mine) {
		first, second = others, mine
	} else if !inOrder(was, others) && !inOrder(mine, others) {
		m.conflict(path, nil, nil)
	}
	if strings.HasSuffix(path, "policies") && adds(was, mine) && adds(was, others) {
		m.conflict(path, nil, nil)
	}
	order := slices.Clone(first)
	for i, key := range second {
		if slices.Contains(order, key) {
			continue
		}
		at := 0
		if i > 0 {
			at = slices.Index(order, second[i-1]) + 1
		}
		order = slices.Insert(order, at, key)
	}
	return order
}

func adds(was, now []string) bool {
	return slices.ContainsFunc(now, func(key string) bool { return !slices.Contains(was, key) })
}

// inOrder says whether what both have comes in the same order.
func inOrder(a, b []string) bool {
	common := func(of, other []string) []string {
		return slices.DeleteFunc(slices.Clone(of), func(key string) bool { return !slices.Contains(other, key) })
	}
	return slices.Equal(common(a, b), common(b, a))
}

func keysOf(pairs []pair) []string {
	keys := make([]string, len(pairs))
	for i, p := range pairs {
		keys[i] = p.key
	}
	return keys
}

func valueOf(pairs []pair, key string) *node {
	if i := indexOf(pairs, key); i >= 0 {
		return pairs[i].value
	}
	return nil
}

// same says whether two parts, either of which may be absent, say the same.
func (n *node) same(other *node) bool {
	if n == nil || other == nil {
		return n == other
	}
	return n.kind == other.kind && n.show() == other.show()
}

// NoIDs refuses a document that brings the ids of lists: they belong into no place
// where the text of a document is kept.
func NoIDs(doc *Document) error {
	var p fault.Problems
	for i, l := range doc.Lists {
		if l.IDs != nil {
			p = append(p, fault.Problem{Path: fmt.Sprintf("lists[%d].ids", i), Detail: "a draft keeps no ids of people or devices",
				Hint: "leave ids out: the stored ones stay, and an import replaces them"})
		}
	}
	return p.Err("ids_in_draft", "the document brings the ids of lists")
}
