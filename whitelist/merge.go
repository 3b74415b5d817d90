package whitelist

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

// addition is a hash that list holds now.
type addition struct {
	hi, lo uint64
	list   uint16
}

// fill makes the partitions of x out of those of old and what changed.
func (x *Index) fill(old *Index, bits int, changes []*change) error {
	x.bits, x.ids = bits, old.ids
	if len(changes) == 0 && bits == old.bits {
		x.parts = old.parts
		return nil
	}
	m := newMerger(old, bits, changes, len(x.lists))
	x.parts, x.ids = make([]partition, 1<<bits), 0
	for p := range x.parts {
		var err error
		if x.parts[p], err = m.partition(p); err != nil {
			return err
		}
		x.ids += x.parts[p].len()
	}
	return nil
}

// merger makes one partition after the other; its memory serves for all of them.
type merger struct {
	old     *Index
	bits    int
	changes []*change
	changed []*change  // by list number
	adds    []addition // sorted runs, one of each list that changed
	ends    []int      // of the runs
	spare   []addition

	entries []byte
	starts  []uint32
	members []uint16
	uses    []uint16
	sets    map[string]uint16 // by members
	alone   []int32           // by list number: the set of that list alone, -1 for none yet
	carried []carried         // by set of the old partition
	union   []uint16
	name    []byte
}

// carried is what becomes of an old set here.
type carried struct {
	whole   int32 // the set with the same members, -1 for none yet
	changes bool  // one of its lists changed, so that entries may leave it
}

func newMerger(old *Index, bits int, changes []*change, lists int) *merger {
	lists = max(lists, len(old.lists))
	m := &merger{old: old, bits: bits, changes: changes, changed: make([]*change, lists),
		sets: map[string]uint16{}, alone: make([]int32, lists)}
	for _, c := range changes {
		m.changed[c.number] = c
	}
	return m
}

// partition is partition p, the old one itself if nothing in it changed.
func (m *merger) partition(p int) (partition, error) {
	m.adds, m.ends = m.adds[:0], m.ends[:0]
	same := m.old.parts != nil && m.old.bits == m.bits
	for _, c := range m.changes {
		if !c.staleIn(p, m.bits) {
			continue
		}
		from := len(m.adds)
		var err error
		if m.adds, err = c.take(m.adds, p, m.bits); err != nil {
			return partition{}, err
		}
		if len(m.adds) > from {
			m.ends = append(m.ends, len(m.adds))
		}
		same = same && c.list.Index.Bits <= m.bits && m.holds(&m.old.parts[p], c.number, m.adds[from:])
	}
	if same {
		return m.old.parts[p], nil
	}
	m.reset()
	if err := m.mergeAll(p, m.sorted()); err != nil {
		return partition{}, err
	}
	return m.finish(), nil
}

// sorted merges the runs of adds pair by pair until one is left.
func (m *merger) sorted() []addition {
	for len(m.ends) > 1 {
		m.spare = m.spare[:0]
		from, ends := 0, m.ends[:0]
		for i := 0; i < len(m.ends); i += 2 {
			mid, to := m.ends[i], m.ends[min(i+1, len(m.ends)-1)]
			m.spare = appendMerged(m.spare, m.adds[from:mid], m.adds[mid:to])
			ends = append(ends, to)
			from = to
		}
		m.ends = ends
		m.adds, m.spare = m.spare, m.adds
	}
	return m.adds
}

// appendMerged merges two sorted runs. Of equal hashes, those of a come first.
func appendMerged(dst, a, b []addition) []addition {
	for len(a) > 0 && len(b) > 0 {
		if b[0].hi < a[0].hi || b[0].hi == a[0].hi && b[0].lo < a[0].lo {
			dst, b = append(dst, b[0]), b[1:]
		} else {
			dst, a = append(dst, a[0]), a[1:]
		}
	}
	return append(append(dst, a...), b...)
}

// holds says whether the members of a list in a partition are exactly these. It
// keeps a change in a small list, whose one chunk covers all partitions, from
// rebuilding those in which none of its ids came or went.
func (m *merger) holds(p *partition, list uint16, hashes []addition) bool {
	count := 0
	for s, uses := range p.uses {
		if contains(p.set(uint16(s)), int(list)) {
			count += int(uses)
		}
	}
	if count != len(hashes) {
		return false
	}
	for _, h := range hashes {
		i, ok := p.search(h.hi, h.lo, h.hi<<uint(m.bits))
		if !ok || !contains(p.set(p.setOf(i)), int(list)) {
			return false
		}
	}
	return true
}

func (m *merger) reset() {
	m.entries, m.starts, m.members, m.uses = m.entries[:0], append(m.starts[:0], 0), m.members[:0], m.uses[:0]
	clear(m.sets)
	for i := range m.alone {
		m.alone[i] = -1
	}
}

// mergeAll merges what the old Index has in the range of partition p with adds.
func (m *merger) mergeAll(p int, adds []addition) error {
	more := m.old.bits - m.bits // the old Index split finer (> 0) or coarser
	switch {
	case m.old.parts == nil:
		return m.merge(&partition{}, 0, 0, adds)
	case more >= 0:
		for q := p << more; q < (p+1)<<more; q++ {
			n, _ := slices.BinarySearchFunc(adds, q, func(a addition, q int) int {
				return cmp.Compare(a.hi>>uint(64-m.old.bits), uint64(q)+1)
			})
			part := &m.old.parts[q]
			if err := m.merge(part, 0, part.len(), adds[:n]); err != nil {
				return err
			}
			adds = adds[n:]
		}
		return nil
	default:
		part := &m.old.parts[p>>-more]
		from, to := part.lower(uint64(p)<<uint(64-m.bits)), part.len()
		if end := uint64(p+1) << uint(64-m.bits); end != 0 {
			to = part.lower(end)
		}
		return m.merge(part, from, to, adds)
	}
}

var errSkewed = errors.New("the hashes of the lists are not spread evenly: they were not made by a list key")

// merge appends the entries from..to of an old partition, without the lists that
// they are no longer in, together with adds.
func (m *merger) merge(old *partition, from, to int, adds []addition) error {
	m.carried = m.carried[:0]
	for s := range old.uses {
		changes := slices.ContainsFunc(old.set(uint16(s)), func(list uint16) bool { return m.changed[list] != nil })
		m.carried = append(m.carried, carried{whole: -1, changes: changes})
	}
	m.entries = slices.Grow(m.entries, (to-from+len(adds))*entrySize)
	for from < to || len(adds) > 0 {
		var hi, lo uint64
		carry := from < to
		if carry {
			hi, lo = old.at(from)
		}
		if len(adds) > 0 && (!carry || adds[0].hi < hi || adds[0].hi == hi && adds[0].lo < lo) {
			hi, lo, carry = adds[0].hi, adds[0].lo, false
		}
		n := 0
		for n < len(adds) && adds[n].hi == hi && adds[n].lo == lo {
			n++
		}
		set := int32(-1)
		switch {
		case carry && n == 0:
			set = m.carry(old, old.setOf(from), hi)
		case !carry && n == 1:
			set = m.single(adds[0].list)
		default:
			set = m.join(old, from, carry, adds[:n])
		}
		adds = adds[n:]
		if carry {
			from++
		}
		if set < 0 {
			continue
		}
		if len(m.entries) == partMax*entrySize {
			return errSkewed
		}
		m.entries = binary.BigEndian.AppendUint64(m.entries, hi)
		m.entries = binary.BigEndian.AppendUint64(m.entries, lo)
		m.entries = binary.LittleEndian.AppendUint16(m.entries, uint16(set))
		m.uses[set]++
	}
	return nil
}

// carry is the set that an old entry has now, -1 for none.
func (m *merger) carry(old *partition, set uint16, hi uint64) int32 {
	c := &m.carried[set]
	if c.changes {
		if m.keep(old.set(set), hi); len(m.union) < len(old.set(set)) {
			if len(m.union) == 0 {
				return -1
			}
			return m.intern()
		}
	}
	if c.whole < 0 {
		m.union = append(m.union[:0], old.set(set)...)
		c.whole = m.intern()
	}
	return c.whole
}

// keep puts into union the lists of set that this hash is still in.
func (m *merger) keep(set []uint16, hi uint64) {
	m.union = m.union[:0]
	for _, list := range set {
		if c := m.changed[list]; c == nil || !c.staleAt(hi) {
			m.union = append(m.union, list)
		}
	}
}

func (m *merger) single(list uint16) int32 {
	if m.alone[list] < 0 {
		m.union = append(m.union[:0], list)
		m.alone[list] = m.intern()
	}
	return m.alone[list]
}

func (m *merger) join(old *partition, i int, carry bool, adds []addition) int32 {
	m.union = m.union[:0]
	if carry {
		m.keep(old.set(old.setOf(i)), adds[0].hi)
	}
	for _, a := range adds {
		m.union = append(m.union, a.list)
	}
	slices.Sort(m.union)
	return m.intern()
}

// intern is the number of the set that is in union.
func (m *merger) intern() int32 {
	m.name = m.name[:0]
	for _, list := range m.union {
		m.name = binary.LittleEndian.AppendUint16(m.name, list)
	}
	if set, ok := m.sets[string(m.name)]; ok {
		return int32(set)
	}
	set := uint16(len(m.uses))
	m.sets[string(m.name)] = set
	m.members = append(m.members, m.union...)
	m.starts = append(m.starts, uint32(len(m.members)))
	m.uses = append(m.uses, 0)
	return int32(set)
}

// finish copies the partition into memory of its exact size.
func (m *merger) finish() partition {
	if len(m.entries) == 0 {
		return partition{}
	}
	p := partition{entries: bytes.Clone(m.entries), starts: slices.Clone(m.starts),
		members: slices.Clone(m.members), uses: slices.Clone(m.uses)}
	slots := p.len()/slotSize + 1
	p.dir = make([]uint16, slots+1)
	next := 0
	for i := range p.len() {
		hi := p.hiAt(i)
		slot, _ := bits.Mul64(hi<<uint(m.bits), uint64(slots))
		for ; next <= int(slot); next++ {
			p.dir[next] = uint16(i)
		}
	}
	for ; next <= slots; next++ {
		p.dir[next] = uint16(p.len())
	}
	return p
}
