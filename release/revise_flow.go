package release

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// flow is the text of the brackets e, in which y says have, when it says want.
func (r *reviser) flow(y *yaml.Node, e extent, have, want *node) string {
	if want.kind == isMapping {
		for _, p := range have.pairs {
			if !slices.ContainsFunc(y.Content, func(k *yaml.Node) bool { return k.Value == p.key }) && !valueOf(want.pairs, p.key).same(p.value) {
				return r.fail() // it is written in another way
			}
		}
	}
	slots := r.slots(y, e)
	if r.failed {
		return ""
	}
	texts, order := r.flowParts(y, slots, have, want)
	kept := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i < 0 })
	if len(kept) == 0 {
		return r.inline(want, nil)
	}
	places := slices.Sorted(slices.Values(kept))
	var out strings.Builder
	out.WriteString(r.cut(extent{e.from, slots[0].from}))
	if !slices.Equal(kept, places) && strings.Contains(r.gaps(slots), "#") {
		return r.fail() // the comment would stand by another part
	}
	var list []string // by place, with what is new behind it
	for n, i := range order {
		switch {
		case i >= 0:
			list = append(list, texts[n])
		case len(list) > 0:
			list[len(list)-1] += ", " + texts[n]
		default:
			out.WriteString(texts[n] + ", ")
		}
	}
	for n, text := range list {
		out.WriteString(text)
		i := places[n]
		gap := ""
		if i+1 < len(slots) {
			gap = r.cut(extent{slots[i].to, slots[i+1].from})
		}
		if n+1 < len(list) || strings.Contains(gap, "#") {
			out.WriteString(gap)
		}
	}
	out.WriteString(r.cut(extent{slots[len(slots)-1].to, e.to}))
	return out.String()
}

// flowParts are the new texts in their order, and which part of the text each was, -1
// for none. Maps keep the order that they are written in.
func (r *reviser) flowParts(y *yaml.Node, slots []extent, have, want *node) (texts []string, order []int) {
	if want.kind == isSequence {
		order = pairing(have, want)
		for n, i := range order {
			if i < 0 {
				texts = append(texts, r.inline(want.items[n], nil))
			} else {
				texts = append(texts, r.value(y.Content[i], slots[i], have.items[i], want.items[n]))
			}
		}
		return texts, order
	}
	var written []string
	for i, e := range slots {
		key, value := y.Content[2*i].Value, y.Content[2*i+1]
		written = append(written, key)
		was, is := valueOf(have.pairs, key), valueOf(want.pairs, key)
		switch at := r.offset(value); {
		case was.same(is):
			texts, order = append(texts, r.cut(e)), append(order, i)
		case is != nil:
			texts = append(texts, r.cut(extent{e.from, at})+r.value(value, extent{at, e.to}, was, is))
			order = append(order, i)
		}
	}
	for _, p := range want.pairs {
		if !slices.Contains(written, p.key) && !valueOf(have.pairs, p.key).same(p.value) {
			texts, order = append(texts, r.inline(&node{kind: isMapping, pairs: []pair{p}}, nil)), append(order, -1)
		}
	}
	for n := range texts {
		if order[n] < 0 {
			texts[n] = strings.TrimSuffix(strings.TrimPrefix(texts[n], "{"), "}")
		}
	}
	return texts, order
}

// slots are where the parts between brackets stand.
func (r *reviser) slots(y *yaml.Node, e extent) (slots []extent) {
	step := 1
	if y.Kind == yaml.MappingNode {
		step = 2
	}
	for i := 0; i < len(y.Content); i += step {
		from := r.offset(y.Content[i])
		to := r.scan(from, false)
		if from < e.from || to <= from || to >= e.to {
			r.fail()
			return nil
		}
		slots = append(slots, extent{from, to})
	}
	return slots
}

// gaps is what stands between the parts.
func (r *reviser) gaps(slots []extent) (text string) {
	for i := range len(slots) - 1 {
		text += r.cut(extent{slots[i].to, slots[i+1].from})
	}
	return text
}

// exact is where a scalar, or what stands in brackets, begins and ends; an empty
// extent if that cannot be seen.
func (r *reviser) exact(y *yaml.Node) extent {
	at := r.offset(y)
	if y.Kind != yaml.ScalarNode {
		return extent{at, r.scan(at, true)}
	}
	return extent{at, max(at, r.scalarEnd(y))}
}

// scalarEnd is where a scalar on lines ends, -1 if that cannot be seen.
func (r *reviser) scalarEnd(y *yaml.Node) int {
	at := r.offset(y)
	if c := r.text[at]; c == '"' || c == '\'' {
		return r.quoted(at)
	}
	end := at + len(y.Value)
	if y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || !strings.HasPrefix(r.text[at:], y.Value) {
		return -1
	}
	return end
}

// quoted is where the quoted text at the offset ends.
func (r *reviser) quoted(at int) int {
	quote := r.text[at]
	for i := at + 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '\\' && quote == '"':
			i++
		case c == quote && quote == '\'' && i+1 < len(r.text) && r.text[i+1] == '\'':
			i++
		case c == quote:
			return i + 1
		}
	}
	return -1
}

// scan finds where a part between brackets ends, at the comma or the bracket behind
// it; whole: it is a bracket that stands on lines, and ends with its own.
func (r *reviser) scan(at int, whole bool) (end int) {
	depth, fresh := 0, true // fresh: a quote here begins a quoted text
	for i := at; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '[' || c == '{':
			depth++
			fresh, end = true, i+1
		case depth == 0 && (c == ',' || c == ']' || c == '}'):
			return end
		case c == ']' || c == '}':
			depth--
			if end = i + 1; whole && depth == 0 {
				return end
			}
		case c == ',', c == ':':
			fresh, end = true, i+1
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if strings.HasPrefix(r.text[i+1:], "#") {
				i += max(strings.IndexByte(r.text[i+1:], '\n'), 0)
			}
		case fresh && (c == '"' || c == '\''):
			if end = r.quoted(i); end < 0 {
				return -1
			}
			i, fresh = end-1, false
		default:
			fresh, end = false, i+1
		}
	}
	return -1
}
