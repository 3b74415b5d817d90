package policy

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"
)

// column is the index over one kind of condition, or one attr: for each value
// that a request can have of it, the set of rules all of whose conditions on it
// hold. A walk takes one row of each column and tries only the rules in all of them.
//
// Of texts, row 0 is for an absent one, row 1 for one that no rule names, the
// rest for those that rules name. Of versions, row 0 is for an unreadable one and
// the rest for the places on and between those that ranges name. Of times, each
// row is a place between the instants that rules name.
type column struct {
	kind     kind
	attr     string
	known    texts       // rows by text
	versions []Version   // in order
	instants []time.Time // in order
	words    int         // of a row
	rows     []uint64    // row after row; bit n of a row is rule n
}

// maxColumns bounds what a walk keeps on its stack. The first kinds use at most
// nine; attrs beyond the rest are tried one by one.
const maxColumns = 16

// index builds the columns, and parts the conditions of each rule into those
// that a column answers and the rest.
func (t *Table) index() {
	for _, use := range t.uses() {
		if len(t.columns) < maxColumns {
			t.columns = append(t.columns, t.column(use))
		}
	}
	for i := range t.rules {
		r := &t.rules[i]
		all := r.late
		r.late = nil
		for _, c := range all {
			if slices.ContainsFunc(t.columns, func(col column) bool { return col.answers(&c) }) {
				r.early = append(r.early, c)
			} else {
				r.late = append(r.late, c)
			}
		}
	}
}

// uses are the conditions of all rules that a column could answer, by column, in
// the order of kinds and names.
func (t *Table) uses() [][]*cond {
	var all []*cond
	for i := range t.rules {
		for j := range t.rules[i].late {
			if c := &t.rules[i].late[j]; c.kind < indexed {
				all = append(all, c)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *cond) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.attr, b.attr))
	})
	var parts [][]*cond
	for i, c := range all {
		if i == 0 || all[i-1].kind != c.kind || all[i-1].attr != c.attr {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], c)
	}
	return parts
}

func (col *column) answers(c *cond) bool { return col.kind == c.kind && col.attr == c.attr }

// column makes the column of these conditions.
func (t *Table) column(use []*cond) column {
	col := column{kind: use[0].kind, attr: use[0].attr, words: (len(t.rules) + 63) / 64}
	switch col.kind {
	case kindAppVersion:
		col.addVersions(t, use)
	case kindBetween:
		col.addInstants(t, use)
	default:
		col.addTexts(t, use)
	}
	return col
}

func (col *column) addTexts(t *Table, use []*cond) {
	named := 0
	for _, c := range use {
		named += len(c.values)
	}
	col.known = newTexts(col.kind.folding(), named)
	const unnamed = "\x00" // no rule names a zero byte
	for _, value := range []string{"", unnamed} {
		col.addRow(t, func(c *cond) verdict { return t.probe(c, value) })
	}
	for _, c := range use {
		for _, value := range c.values {
			if slot := col.known.slot(value); slot.number == 0 && len(value) <= maxIndexed {
				*slot = textSlot{text: value, number: int32(len(col.rows) / col.words)}
				col.addRow(t, func(c *cond) verdict { return t.probe(c, value) })
			}
		}
	}
}

// probe tries a condition on a request that has nothing but this text of its kind.
func (t *Table) probe(c *cond, text string) verdict {
	req := Request{Attrs: []Attr{{c.attr, text}}}
	switch c.kind {
	case kindHasDevice:
		req.Device = text
	case kindHasUser:
		req.User = text
	case kindPlatform:
		req.Platform = text
	case kindChannel:
		req.Channel = text
	case kindCarrier:
		req.Carrier = text
	case kindLocale:
		req.Locale = text
	}
	w := walker{t: t, req: &req}
	return w.try(c)
}

// addVersions adds the rows of places: before the first version that ranges
// name, on it, between it and the next, and so on. No range can tell two versions
// in one place apart.
func (col *column) addVersions(t *Table, use []*cond) {
	places := map[*bound]int{} // each is looked at for every row
	for _, c := range use {
		for _, bounds := range c.versions.any {
			for i := range bounds {
				places[&bounds[i]] = 0
				col.versions = append(col.versions, bounds[i].v)
			}
		}
	}
	slices.SortFunc(col.versions, Version.Compare)
	col.versions = slices.CompactFunc(col.versions, func(a, b Version) bool { return a.Compare(b) == 0 })
	for b := range places {
		places[b] = col.versionPlace(&b.v)
	}
	col.addRow(t, func(*cond) verdict { return unknown })
	for place := range 2*len(col.versions) + 1 {
		col.addRow(t, func(c *cond) verdict {
			return truth(c.versions.holds(func(b *bound) int { return place - places[b] }))
		})
	}
}

// versionPlace is 2n+1 on version n and 2n before it.
func (col *column) versionPlace(v *Version) int {
	low, high := 0, len(col.versions)
	for low < high {
		middle := (low + high) / 2
		switch c := v.compare(&col.versions[middle]); {
		case c == 0:
			return 2*middle + 1
		case c < 0:
			high = middle
		default:
			low = middle + 1
		}
	}
	return 2 * low
}

func (col *column) addInstants(t *Table, use []*cond) {
	for _, c := range use {
		col.instants = append(col.instants, c.from, c.to)
	}
	slices.SortFunc(col.instants, time.Time.Compare)
	for place := range len(col.instants) + 1 {
		var req Request
		if place == 0 {
			req.Now = col.instants[0].Add(-1)
		} else {
			req.Now = col.instants[place-1]
		}
		w := walker{t: t, req: &req}
		col.addRow(t, w.try)
	}
}

// instantPlace is how many instants are not after now.
func (col *column) instantPlace(now time.Time) int {
	return sort.Search(len(col.instants), func(i int) bool { return col.instants[i].After(now) })
}

// addRow adds the set of rules whose conditions of this column hold under find.
func (col *column) addRow(t *Table, find func(*cond) verdict) {
	row := make([]uint64, col.words)
	for i := range t.rules {
		row[i/64] |= 1 << (i % 64)
		for j := range t.rules[i].late {
			if c := &t.rules[i].late[j]; col.answers(c) && !c.holds(find(c)) {
				row[i/64] &^= 1 << (i % 64)
			}
		}
	}
	col.rows = append(col.rows, row...)
}

// row is the number of the request's row. What is absent or unreadable is noted.
func (w *walker) row(col *column) int {
	switch col.kind {
	case kindHasDevice:
		return int(truth(w.req.Device != ""))
	case kindHasUser:
		return int(truth(w.req.User != ""))
	case kindBetween:
		return col.instantPlace(w.req.Now)
	case kindAppVersion:
		v, ok := w.version()
		if !ok {
			w.notes |= BadVersion
			return 0
		}
		return 1 + col.versionPlace(v)
	}
	text, missing := w.text(col.kind, col.attr)
	if text == "" {
		w.notes |= missing
		return 0
	}
	return max(1, int(col.known.number(text)))
}

// candidates are the rules that the index leaves; next takes them out in order.
type candidates struct {
	t      *Table
	starts [maxColumns]int32 // of the request's row in each column
	word   int               // of 64 rules, the next to look at
	left   uint64            // of the word before it
}

func (c *candidates) begin(w *walker) {
	c.t = w.t
	for i := range w.t.columns {
		col := &w.t.columns[i]
		c.starts[i] = int32(w.row(col) * col.words)
	}
}

// next is the next rule in order, -1 after the last.
func (c *candidates) next() int32 {
	for c.left == 0 {
		rules := len(c.t.rules) - 64*c.word
		if rules <= 0 {
			return -1
		}
		c.left = ^uint64(0) >> max(0, 64-rules)
		for i := range c.t.columns {
			c.left &= c.t.columns[i].rows[int(c.starts[i])+c.word]
		}
		c.word++
	}
	n := 64*(c.word-1) + bits.TrailingZeros64(c.left)
	c.left &= c.left - 1
	return int32(n)
}
