package policy

import (
	"math/bits"
	"slices"
	"sort"
)

// column is the index over one kind of condition: for each value that a request
// can have of it, the set of rules all of whose conditions of this kind hold. A
// walk takes one row of each column and tries only the rules in all of them.
//
// Row 0 is for an absent or unreadable value, row 1 for one that no rule names;
// the others are for the values that rules name or, of versions, for the places
// between and on those that ranges name.
type column struct {
	kind   kind
	known  map[string]int // rows by value, lowered
	points []Version      // that ranges name, in order
	rows   [][]uint64     // bit n is rule n
}

// maxIndexed is the longest value in bytes that is looked up in a column; a
// longer one counts as one that no rule names.
const maxIndexed = 64

// index builds a column for each kind of condition that rules use.
func (t *Table) index() {
	for i := range t.rules {
		conds := t.rules[i].conds
		t.rules[i].late = len(conds)
		if n := slices.IndexFunc(conds, func(c cond) bool { return c.kind >= indexed }); n >= 0 {
			t.rules[i].late = n
		}
	}
	for k := range indexed {
		if used := t.conditions(k); len(used) > 0 {
			t.columns = append(t.columns, t.column(k, used))
		}
	}
}

// conditions are those of one kind in all rules.
func (t *Table) conditions(k kind) []*cond {
	var used []*cond
	for i := range t.rules {
		for j := range t.rules[i].conds {
			if c := &t.rules[i].conds[j]; c.kind == k {
				used = append(used, c)
			}
		}
	}
	return used
}

func (t *Table) column(k kind, used []*cond) column {
	col := column{kind: k, known: map[string]int{}}
	col.add(t, func(c *cond) verdict { return t.probe(c, "") })
	if k == kindAppVersion {
		col.addVersions(t, used)
		return col
	}
	col.add(t, func(c *cond) verdict { return t.probe(c, "\x00") }) // no rule names a zero byte
	for _, c := range used {
		for _, value := range c.values {
			if _, done := col.known[value]; !done && len(value) <= maxIndexed {
				col.known[value] = len(col.rows)
				col.add(t, func(c *cond) verdict { return t.probe(c, value) })
			}
		}
	}
	return col
}

// probe tries a condition on a request that has nothing but this value of its kind.
func (t *Table) probe(c *cond, value string) verdict {
	var req Request
	switch c.kind {
	case kindHasDevice:
		req.Device = value
	case kindHasUser:
		req.User = value
	case kindPlatform:
		req.Platform = value
	case kindChannel:
		req.Channel = value
	case kindCarrier:
		req.Carrier = value
	case kindLocale:
		req.Locale = value
	}
	w := walker{t: t, req: &req}
	return w.try(c)
}

// addVersions adds a row for each place in the order of versions: before the
// first point, on it, between it and the next, and so on. No range can tell two
// versions in one place apart.
func (col *column) addVersions(t *Table, used []*cond) {
	for _, c := range used {
		for _, bounds := range c.versions.any {
			for _, b := range bounds {
				col.points = append(col.points, b.v)
			}
		}
	}
	slices.SortFunc(col.points, Version.Compare)
	col.points = slices.CompactFunc(col.points, func(a, b Version) bool { return a.Compare(b) == 0 })
	for place := range 2*len(col.points) + 1 {
		col.add(t, func(c *cond) verdict {
			return truth(c.versions.holds(func(b *bound) int { return place - col.place(&b.v) }))
		})
	}
}

// place is 2n+1 on point n and 2n before it.
func (col *column) place(v *Version) int {
	n := sort.Search(len(col.points), func(i int) bool { return col.points[i].compare(v) >= 0 })
	if n < len(col.points) && col.points[n].compare(v) == 0 {
		return 2*n + 1
	}
	return 2 * n
}

// add adds a row: the rules whose conditions of this kind hold under find.
func (col *column) add(t *Table, find func(*cond) verdict) {
	row := make([]uint64, (len(t.rules)+63)/64)
	for i := range t.rules {
		holds := true
		for j := range t.rules[i].conds {
			if c := &t.rules[i].conds[j]; c.kind == col.kind && !c.holds(find(c)) {
				holds = false
			}
		}
		if holds {
			row[i/64] |= 1 << (i % 64)
		}
	}
	col.rows = append(col.rows, row)
}

// row is the request's row. An absent or unreadable value is noted.
func (w *walker) row(col *column) []uint64 {
	switch col.kind {
	case kindHasDevice:
		return col.present(w.req.Device)
	case kindHasUser:
		return col.present(w.req.User)
	case kindAppVersion:
		v, ok := w.version()
		if !ok {
			w.notes |= BadVersion
			return col.rows[0]
		}
		return col.rows[1+col.place(v)]
	}
	c := cond{kind: col.kind}
	got, missing := w.text(&c)
	if got == "" {
		w.notes |= missing
		return col.rows[0]
	}
	return col.named(got)
}

func (col *column) present(id string) []uint64 {
	if id == "" {
		return col.rows[0]
	}
	return col.rows[1]
}

func (col *column) named(value string) []uint64 {
	if len(value) > maxIndexed {
		return col.rows[1]
	}
	var buf [maxIndexed]byte
	for i := range len(value) {
		buf[i] = lowerByte(value[i], col.kind == kindLocale)
	}
	if n, ok := col.known[string(buf[:len(value)])]; ok {
		return col.rows[n]
	}
	return col.rows[1]
}

// candidates are the rules that the index leaves, as a set that next takes apart.
type candidates struct {
	rows [indexed][]uint64
	used int
	all  int // rules
	word int // of 64 rules, that left is from
	left uint64
}

func (w *walker) candidates() candidates {
	c := candidates{all: len(w.t.rules), word: -1}
	for i := range w.t.columns {
		c.rows[i] = w.row(&w.t.columns[i])
		c.used++
	}
	return c
}

// next is the next rule in order, -1 after the last.
func (c *candidates) next() int32 {
	for c.left == 0 {
		c.word++
		first := c.word * 64
		if first >= c.all {
			return -1
		}
		c.left = ^uint64(0) >> max(0, 64-(c.all-first))
		for i := range c.used {
			c.left &= c.rows[i][c.word]
		}
	}
	n := c.word*64 + bits.TrailingZeros64(c.left)
	c.left &= c.left - 1
	return int32(n)
}
