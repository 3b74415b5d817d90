package release

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// placed is a pair of a map or an item of a list that stands on lines of its own: its
// head comments and what it says, then what separates it from the next one.
type placed struct {
	body, tail extent
	inside     bool // it begins within a line, behind the dash of a list
	column     int  // of the key or of the dash, from 0
	at         int  // where key or dash stands
}

// block is the text of e, in which the map or the list on lines y says have, when it
// says want.
func (r *reviser) block(y *yaml.Node, e extent, have, want *node) string {
	children := r.children(y, e)
	if r.failed || len(children) == 0 {
		return r.fail()
	}
	var out strings.Builder
	out.WriteString(r.cut(extent{e.from, children[0].body.from}))
	last := len(children) - 1
	if want.kind == isMapping {
		for i, text := range r.pairsOf(y, children, have, want) {
			out.WriteString(text)
			if tail := r.cut(children[i].tail); i != last && (text != "" || strings.Contains(tail, "#")) {
				out.WriteString(tail)
			}
		}
	} else {
		out.WriteString(r.itemsOf(y, children, have, want))
	}
	out.WriteString(r.cut(children[last].tail))
	return out.String()
}

// pairsOf is the new text of each pair, followed by the pairs that are new behind it.
func (r *reviser) pairsOf(y *yaml.Node, children []placed, have, want *node) []string {
	out := make([]string, len(children))
	keys := make([]string, len(children))
	for i, c := range children {
		key := y.Content[2*i].Value
		keys[i] = key
		was, is := valueOf(have.pairs, key), valueOf(want.pairs, key)
		switch {
		case was.same(is): // also a default that is written out
			out[i] = r.cut(c.body)
		case is != nil:
			out[i] = r.pair(y.Content[2*i:2*i+2], c, pair{key: key, value: is}, was)
		case c.inside:
			r.fail()
		}
	}
	behind := 0
	for _, p := range want.pairs {
		if i := slices.Index(keys, p.key); i >= 0 {
			behind = i
			continue
		}
		if valueOf(have.pairs, p.key).same(p.value) { // it is written in another way
			continue
		}
		out[behind] += r.lined(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{keyNode(p.key), p.value.toYAML()}}, children[0].column)
	}
	return out
}

func keyNode(key string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
}

// pair is the text of a pair whose value becomes another.
func (r *reviser) pair(y []*yaml.Node, c placed, is pair, was *node) string {
	key, value := y[0], y[1]
	colon := r.scalarEnd(key)
	if colon < 0 || !strings.HasPrefix(r.text[colon:], ":") {
		return r.fail()
	}
	onLines := value.Kind != yaml.ScalarNode && value.Style&yaml.FlowStyle == 0
	if empty := len(is.value.items)+len(is.value.pairs) == 0; onLines && !empty && fits(value, was) && was.kind == is.value.kind {
		return r.cut(extent{c.body.from, colon + 1}) + r.value(value, extent{colon + 1, c.body.to}, was, is.value)
	}
	if at := r.exact(value); !onLines && at.to > at.from && (is.value.short() || was != nil && was.kind == is.value.kind) {
		return r.cut(extent{c.body.from, at.from}) + r.value(value, at, was, is.value) + r.cut(extent{at.to, c.body.to})
	}
	whole := r.lined(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{keyNode(is.key), is.value.toYAML()}}, c.column)
	return r.cut(extent{c.body.from, c.at}) + strings.TrimLeft(whole, " ")
}

// itemsOf is the new text of a list but for what stands behind its last item. Items
// come in the order of want, each with what separates it from the next.
func (r *reviser) itemsOf(y *yaml.Node, children []placed, have, want *node) string {
	met := pairing(have, want)
	tails, left := r.tails(children, met)
	last := len(children) - 1
	between := ""
	if last > 0 {
		if tail := r.cut(children[0].tail); strings.TrimSpace(tail) == "" {
			between = tail
		}
	}
	var out strings.Builder
	out.WriteString(left)
	for n, i := range met {
		behind := between
		if i < 0 {
			out.WriteString(r.lined(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{want.items[n].toYAML()}}, children[0].column))
		} else {
			out.WriteString(r.item(y.Content[i], children[i], have.items[i], want.items[n]))
			if i != last {
				behind = tails[i]
			}
		}
		if n+1 < len(met) || strings.Contains(behind, "#") {
			out.WriteString(behind)
		}
	}
	return out.String()
}

// tails is what stands behind each item. A comment that stood by itself behind an
// item that goes stays, behind the one before, or left at the beginning.
func (r *reviser) tails(children []placed, met []int) (tails []string, left string) {
	tails = make([]string, len(children))
	before := -1
	for i, c := range children[:len(children)-1] {
		tail := r.cut(c.tail)
		stays := slices.Contains(met, i)
		switch {
		case stays:
			tails[i], before = tail, i
		case !strings.Contains(tail, "#"):
		case before < 0:
			left += tail
		default:
			tails[before] += tail
		}
	}
	return tails, left
}

// item is the text of an item that becomes another. One that begins with a key that
// goes is written whole.
func (r *reviser) item(y *yaml.Node, c placed, was, is *node) string {
	if was.same(is) {
		return r.cut(c.body)
	}
	onLines := y.Kind != yaml.ScalarNode && y.Style&yaml.FlowStyle == 0
	if at := r.exact(y); !onLines && at.to > at.from {
		return r.cut(extent{c.body.from, at.from}) + r.value(y, at, was, is) + r.cut(extent{at.to, c.body.to})
	}
	if onLines && fits(y, was) && was.kind == is.kind && (is.kind != isMapping || valueOf(is.pairs, y.Content[0].Value) != nil) {
		at := r.offset(y)
		return r.cut(extent{c.body.from, at}) + r.value(y, extent{at, c.body.to}, was, is)
	}
	whole := r.lined(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{is.toYAML()}}, c.column)
	return r.cut(extent{c.body.from, c.at}) + strings.TrimLeft(whole, " ")
}

// lined is a part on lines of its own, indented.
func (r *reviser) lined(y *yaml.Node, column int) string {
	text, err := dump(y)
	if err != nil {
		return r.fail()
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			out.WriteString(strings.Repeat(" ", column))
		}
		out.WriteString(line)
	}
	return out.String()
}

// children finds where the parts of a map or a list on lines begin and end.
func (r *reviser) children(y *yaml.Node, e extent) []placed {
	step := 1
	if y.Kind == yaml.MappingNode {
		step = 2
	}
	var out []placed
	for i := 0; i < len(y.Content); i += step {
		line := r.lines[y.Content[i].Line-1]
		c := placed{at: r.offset(y.Content[i])}
		if step == 1 {
			before := r.cut(extent{line, c.at})
			dash := strings.TrimRight(before, " ")
			if c.at -= len(before) - len(dash) + 1; !strings.HasSuffix(dash, "-") {
				r.fail()
				return nil
			}
		}
		c.column, c.inside = c.at-line, line < e.from
		if blank := strings.TrimSpace(r.text[max(line, e.from):c.at]); blank != "" || c.inside && (i > 0 || step == 1) {
			r.fail()
			return nil
		}
		c.body.from = max(line, e.from)
		if !c.inside {
			c.body.from = r.head(c, line, e.from)
		}
		out = append(out, c)
	}
	for i := range out {
		end := e.to
		if i+1 < len(out) {
			end = out[i+1].body.from
		}
		out[i].body.to = r.bodyEnd(out[i], end)
		out[i].tail = extent{out[i].body.to, end}
	}
	return out
}

// head is where the comments right above a child begin.
func (r *reviser) head(c placed, line, from int) int {
	n, _ := slices.BinarySearch(r.lines, line)
	for n > 0 && r.lines[n-1] >= from {
		above := r.text[r.lines[n-1]:r.lines[n]]
		if indent, comment := commentAt(above); !comment || indent != c.column {
			break
		}
		n--
	}
	return r.lines[n]
}

// bodyEnd is where a child ends: behind its last line, and behind the comments that
// are further in or follow at once.
func (r *reviser) bodyEnd(c placed, end int) int {
	to, gap := c.body.from, false
	for at := c.body.from; at < end; {
		next := at + strings.IndexByte(r.text[at:], '\n') + 1
		line := r.text[at:next]
		indent, comment := commentAt(line)
		switch {
		case strings.TrimSpace(line) == "":
			gap = true
		case !comment || indent > c.column || indent == c.column && !gap:
			to, gap = next, false
		}
		at = next
	}
	return to
}

// commentAt says how far a line is indented, and whether it is a comment.
func commentAt(line string) (indent int, comment bool) {
	bare := strings.TrimLeft(line, " ")
	return len(line) - len(bare), strings.HasPrefix(bare, "#")
}
