package policy

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"sort"
)

// prefixSet is the prefixes of one address family, sorted by first address and
// then by length, so that a prefix stands before all that lie inside it. The
// prefix that an address falls on is the last one that begins at or before it;
// if that ends too early, the answer is among the prefixes around it, which are
// linked from inside to outside. A trie would wait for memory once a level.
//
// Nothing is kept beside the entries but a directory of at most 256 KiB: 12
// bytes an IPv4 prefix and 24 an IPv6 one, which are filled, sorted and linked in
// place, so that replacing a table takes little more than two of them.
type prefixSet[A address[A]] struct {
	blocks [][]prefixEntry[A] // of blockSize, the last one shorter: growing never copies
	tops   []A                // the first address of every topsEvery-th entry
	slots  []uint32           // IPv4: the last entry that begins at or before each slot, and the end
	shift  int                // IPv4: the slot of an address is what is left of it
}

// prefixEntry is one prefix.
type prefixEntry[A any] struct {
	first  A
	what   uint32 // index of the label, and in the low 8 bits the length
	around uint32 // the entry of the prefix around it, plus 1; 0: there is none. While reading: its line
}

func (e *prefixEntry[A]) bits() int     { return int(e.what & 255) }
func (e *prefixEntry[A]) label() uint32 { return e.what >> 8 }

// maxLabels is how many labels fit beside a length.
const maxLabels = 1 << 24

const (
	blockSize   = 1 << 12
	topsEvery   = 32
	maxSlotBits = 16 // how many of an address's bits name its slot at most
)

// address is a number that an address is.
type address[A any] interface {
	comparable
	compare(A) int
	// within says whether the address has the first n bits of another.
	within(first A, n int) bool
}

type ip4 uint32

func (a ip4) compare(b ip4) int               { return cmp.Compare(a, b) }
func (a ip4) within(first ip4, bits int) bool { return (a^first)>>(32-uint(bits)) == 0 }

func toIP4(addr netip.Addr) ip4 {
	b := addr.As4()
	return ip4(binary.BigEndian.Uint32(b[:]))
}

func (a ip4) prefix(bits int) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(a))
	return netip.PrefixFrom(netip.AddrFrom4(b), bits)
}

type ip6 struct{ hi, lo uint64 }

func (a ip6) compare(b ip6) int { return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo)) }

func (a ip6) within(first ip6, bits int) bool {
	if bits <= 64 {
		return (a.hi^first.hi)>>(64-uint(bits)) == 0
	}
	return a.hi == first.hi && (a.lo^first.lo)>>(128-uint(bits)) == 0
}

func toIP6(addr netip.Addr) ip6 {
	b := addr.As16()
	return ip6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a ip6) prefix(bits int) netip.Prefix {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return netip.PrefixFrom(netip.AddrFrom16(b), bits)
}

func (s *prefixSet[A]) at(i int) *prefixEntry[A] { return &s.blocks[i/blockSize][i%blockSize] }

// Len, Less and Swap sort the entries.
func (s *prefixSet[A]) Len() int {
	if len(s.blocks) == 0 {
		return 0
	}
	last := len(s.blocks) - 1
	return last*blockSize + len(s.blocks[last])
}

// Less says whether entry i belongs before entry j.
func (s *prefixSet[A]) Less(i, j int) bool {
	a, b := s.at(i), s.at(j)
	// Of equal prefixes the one that was read first is the first.
	return cmp.Or(a.first.compare(b.first), a.bits()-b.bits(), cmp.Compare(a.around, b.around)) < 0
}

// Swap exchanges two entries.
func (s *prefixSet[A]) Swap(i, j int) {
	a, b := s.at(i), s.at(j)
	*a, *b = *b, *a
}

func (s *prefixSet[A]) add(e prefixEntry[A]) {
	if last := len(s.blocks) - 1; last < 0 || len(s.blocks[last]) == blockSize {
		s.blocks = append(s.blocks, make([]prefixEntry[A], 0, blockSize))
	}
	last := &s.blocks[len(s.blocks)-1]
	*last = append(*last, e)
}

// finish sorts and links the entries. Of equal prefixes it keeps one; clash is
// called when their labels differ.
func (s *prefixSet[A]) finish(clash func(first, again prefixEntry[A])) {
	sort.Sort(s)
	n := 0
	for i := range s.Len() {
		e := *s.at(i)
		if n > 0 && s.at(n-1).first == e.first && s.at(n-1).bits() == e.bits() {
			if s.at(n-1).label() != e.label() {
				clash(*s.at(n - 1), e)
			}
			continue
		}
		*s.at(n) = e
		n++
	}
	s.cut(n)
	s.link()
	for i := 0; i < n; i += topsEvery {
		s.tops = append(s.tops, s.at(i).first)
	}
}

// cut forgets all but the first n entries.
func (s *prefixSet[A]) cut(n int) {
	s.blocks = s.blocks[:(n+blockSize-1)/blockSize]
	if n%blockSize != 0 {
		last := &s.blocks[len(s.blocks)-1]
		*last = append([]prefixEntry[A](nil), (*last)[:n%blockSize]...)
	}
}

// link gives every entry the nearest prefix around it.
func (s *prefixSet[A]) link() {
	around := uint32(0)
	for i := range s.Len() {
		e := s.at(i)
		for around != 0 && !s.holds(int(around-1), e.first) {
			around = s.at(int(around - 1)).around
		}
		e.around = around
		around = uint32(i + 1)
	}
}

func (s *prefixSet[A]) holds(i int, a A) bool {
	e := s.at(i)
	return a.within(e.first, e.bits())
}

// out is the most specific prefix around entry i, itself included, that holds a.
func (s *prefixSet[A]) out(i int, a A) (*prefixEntry[A], bool) {
	for {
		e := s.at(i)
		if a.within(e.first, e.bits()) {
			return e, true
		}
		if e.around == 0 {
			return nil, false
		}
		i = int(e.around - 1)
	}
}

// index4 makes the directory of an IPv4 set.
func index4(s *prefixSet[ip4]) {
	n := s.Len()
	slotBits := min(bits.Len(uint(n)), maxSlotBits)
	s.shift = 32 - slotBits
	s.slots = make([]uint32, 0, 1<<slotBits+1)
	at := 0
	for slot := range uint64(1) << slotBits {
		for at < n && uint64(s.at(at).first) < slot<<s.shift {
			at++
		}
		s.slots = append(s.slots, uint32(at))
	}
	s.slots = append(s.slots, uint32(n))
}

// find4 is the most specific prefix that holds an IPv4 address.
func find4(s *prefixSet[ip4], a ip4) (*prefixEntry[ip4], bool) {
	slot := uint64(a) >> s.shift
	from, to := int(s.slots[slot]), int(s.slots[slot+1]) // the first entry after a is in [from, to]
	for from < to {
		if middle := (from + to) / 2; s.at(middle).first <= a {
			from = middle + 1
		} else {
			to = middle
		}
	}
	if from == 0 {
		return nil, false
	}
	return s.out(from-1, a)
}

// find6 is the most specific prefix that holds an IPv6 address. A directory
// would not help: IPv6 prefixes crowd into a few high bits.
func find6(s *prefixSet[ip6], a ip6) (*prefixEntry[ip6], bool) {
	from, to := 0, len(s.tops)
	for from < to {
		if middle := (from + to) / 2; s.tops[middle].compare(a) <= 0 {
			from = middle + 1
		} else {
			to = middle
		}
	}
	if from == 0 {
		return nil, false
	}
	from, to = (from-1)*topsEvery, min(from*topsEvery, s.Len())
	for from < to {
		if middle := (from + to) / 2; s.at(middle).first.compare(a) <= 0 {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return s.out(from-1, a)
}
