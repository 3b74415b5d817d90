package whitelist

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Index answers for all lists of a release at once. It is immutable. The zero
// value has no lists.
type Index struct {
	lists  []listed       // by number; a free number has no key
	number map[string]int // by list key
	device []Key          // that lists of devices are hashed under: one, or two during a rotation
	user   []Key
	bits   int // the partition of a hash is its top bits
	parts  []partition
	ids    int
}

// listed is one list of an Index.
type listed struct {
	key  string
	of   Of
	blob *IndexBlob
	lens []uint32 // hashes in each chunk
}

// Number is the number of the list with this key. A list keeps its number from
// one Index to the next for as long as it is there.
func (x *Index) Number(list string) (n int, ok bool) {
	n, ok = x.number[list]
	return n, ok
}

// Of is which kind of id list n holds.
func (x *Index) Of(n int) Of { return x.lists[n].of }

// Keys are the keys of all lists, sorted.
func (x *Index) Keys() []string {
	keys := make([]string, 0, len(x.number))
	for key := range x.number {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Count is how many ids the list with this key holds, 0 for no such list.
func (x *Index) Count(list string) int {
	if n, ok := x.number[list]; ok {
		return x.lists[n].blob.Count
	}
	return 0
}

// Len is how many distinct ids the lists hold together. An id of two lists
// counts once, unless a rotation has them under two keys.
func (x *Index) Len() int { return x.ids }

// Lookup finds all lists that hold the id, which is in normal form. An empty id
// is in none. It neither allocates nor locks.
func (x *Index) Lookup(of Of, id string) Lists {
	var s Search
	var found Lists
	x.Begin(&s, of, id)
	s.End(&found)
	return found
}

// Search is a look-up that has begun. The memory that End will read is on its
// way, which takes about 0.2 µs when no cache has it: time for other work. The
// zero value finds nothing. Both halves write where the caller keeps things: a
// result would be copied, and the copy would wait for the memory.
type Search struct {
	in     *Index
	keys   int // how many of the sums count
	hi, lo [2]uint64
}

// Begin begins the look-up of an id, as Lookup does, in s, which is zero.
func (x *Index) Begin(s *Search, of Of, id string) {
	keys := x.device
	if of != Device {
		keys = x.user
	}
	s.in = x
	if id == "" || len(x.parts) == 0 {
		return
	}
	for _, key := range keys {
		hi, lo := key.sum(of, id)
		s.hi[s.keys], s.lo[s.keys] = hi, lo
		s.keys++
		p := x.part(hi)
		if i, _, end := p.near(hi << uint(x.bits)); i < end {
			prefetch(&p.entries[i*entrySize])
		}
	}
}

// End finds all lists that hold the id, and leaves them in found, which is zero.
func (s *Search) End(found *Lists) {
	if s.keys > 0 {
		found.current = s.in.find(s.hi[0], s.lo[0])
	}
	if s.keys > 1 {
		found.other = s.in.find(s.hi[1], s.lo[1])
	}
}

// part is the partition of a hash. There is one.
func (x *Index) part(hi uint64) *partition { return &x.parts[hi>>uint(64-x.bits)] }

// find is the set of lists that hold the hash.
func (x *Index) find(hi, lo uint64) []uint16 {
	p := x.part(hi)
	if i, ok := p.search(hi, lo, hi<<uint(x.bits)); ok {
		return p.set(p.setOf(i))
	}
	return nil
}

// Lists is the set of lists that hold one id. The zero value is none.
type Lists struct{ current, other []uint16 } // sorted numbers, by the key that the id was hashed under

// Has says whether list number n (see Index.Number) holds the id.
func (l Lists) Has(n int) bool { return !l.Empty() && l.has(n) }

func (l Lists) has(n int) bool { return contains(l.current, n) || contains(l.other, n) }

// Empty says that no list holds the id.
func (l Lists) Empty() bool { return len(l.current) == 0 && len(l.other) == 0 }

func contains(set []uint16, n int) bool {
	for len(set) > 8 {
		if half := len(set) / 2; n < int(set[half]) {
			set = set[:half]
		} else {
			set = set[half:]
		}
	}
	for _, m := range set {
		if int(m) == n {
			return true
		}
	}
	return false
}

// partMean is how many entries a partition has on average. 16,384 (300 KB) are
// few enough to rebuild in 0.2 ms, and enough that the pages of 8 KiB it is
// rounded up to and its table of sets cost little.
var partMean = band{low: 8_192, target: 16_384, high: 32_768}

// partMax is the most entries of a partition, and the most lists: both are
// counted in 16 bits. Keyed hashes are spread so evenly that no partition comes
// near it.
const partMax = 1<<16 - 1

// slotSize is how many entries a slot of the directory covers on average. The
// directory of 5,000,000 ids is then 310 KB, which a cache of 512 KiB keeps, and
// interpolation in a slot is seldom off by more than six entries, so that a
// look-up waits for memory once.
const slotSize = 32

const entrySize = hashSize + 2

// partition is the entries of all hashes with the same top bits. It is
// immutable and knows nothing of its Index but the numbers of lists.
type partition struct {
	entries []byte   // sorted: hash, then the number of a set, little-endian
	dir     []uint16 // the first entry of each slot, then the number of entries
	starts  []uint32 // set s is members[starts[s]:starts[s+1]]
	members []uint16 // list numbers
	uses    []uint16 // how many entries have set s
}

func (p *partition) len() int { return len(p.entries) / entrySize }

// at is the hash of entry i.
func (p *partition) at(i int) (hi, lo uint64) {
	e := p.entries[i*entrySize:][:hashSize]
	return binary.BigEndian.Uint64(e), binary.BigEndian.Uint64(e[8:])
}

// setOf is the number of entry i's set.
func (p *partition) setOf(i int) uint16 {
	return binary.LittleEndian.Uint16(p.entries[i*entrySize+hashSize:])
}

func (p *partition) set(s uint16) []uint16 { return p.members[p.starts[s]:p.starts[s+1]] }

// near is where an entry would stand in its slot if hashes were spread exactly
// evenly, and the bounds of the slot; rest is the hash's bits below those of the
// partition. In an empty slot, i is end.
func (p *partition) near(rest uint64) (i, from, end int) {
	if len(p.dir) == 0 {
		return 0, 0, 0
	}
	slot, inSlot := bits.Mul64(rest, uint64(len(p.dir)-1))
	from, end = int(p.dir[slot]), int(p.dir[slot+1])
	ahead, _ := bits.Mul64(inSlot, uint64(end-from))
	return from + int(ahead), from, end
}

// search finds the entry of a hash.
func (p *partition) search(hi, lo, rest uint64) (i int, ok bool) {
	i, from, end := p.near(rest)
	for i < end && p.hiAt(i) < hi {
		i++
	}
	for i > from && p.hiAt(i-1) >= hi {
		i--
	}
	for ; i < end; i++ {
		if h, l := p.at(i); h != hi {
			break
		} else if l == lo {
			return i, true
		}
	}
	return 0, false
}

// lower is the first entry with at least this top half of a hash.
func (p *partition) lower(hi uint64) int {
	from, to := 0, p.len()
	for from < to {
		if mid := (from + to) / 2; p.hiAt(mid) < hi {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from
}

func (p *partition) hiAt(i int) uint64 {
	return binary.BigEndian.Uint64(p.entries[i*entrySize:])
}
