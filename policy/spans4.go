package policy

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/gaissmai/bart"
)

// spans4 is the IPv4 part of an address table, cut into spans of one label each.
// A look-up in the trie waits for memory once a level, and in bart.Fast no less
// once a table and the lists compete for the cache; here it waits for a directory
// of at most 256 KiB and for one span. A span takes 8 bytes, and a prefix makes
// two at most. IPv6 stays with the trie: its prefixes crowd into a few high bits,
// which a directory cannot part.
type spans4 struct {
	shift int      // the slot of an address is what is left of it
	slots []uint32 // the span that each slot begins in, and at the end the last span
	spans []span4
}

// span4 begins at an address and ends where the next one begins.
type span4 struct {
	first uint32
	label uint32 // index + 1; 0: no prefix holds these addresses
}

// maxSlotBits is how many of an address's bits name its slot at most.
const maxSlotBits = 16

func newSpans4(table *bart.Table[uint32]) spans4 {
	s := spans4{spans: []span4{{}}}
	type open struct {
		end   uint64 // the first address after it
		label uint32
	}
	around := []open{{end: 1 << 32}} // the prefixes around the place, outermost first
	closeUpTo := func(place uint64) {
		for top := len(around) - 1; top > 0 && around[top].end <= place; top-- {
			end := around[top].end
			around = around[:top]
			s.begin(end, around[top-1].label)
		}
	}
	for prefix, number := range table.AllSorted4() {
		first := uint64(address4(prefix.Addr()))
		closeUpTo(first)
		s.begin(first, number+1)
		around = append(around, open{end: first + 1<<(32-prefix.Bits()), label: number + 1})
	}
	closeUpTo(1 << 32)
	s.index()
	return s
}

// begin ends the last span at first, if the label changes there.
func (s *spans4) begin(first uint64, label uint32) {
	last := &s.spans[len(s.spans)-1]
	switch {
	case first == 1<<32 || last.label == label:
	case uint64(last.first) == first:
		last.label = label
	default:
		s.spans = append(s.spans, span4{uint32(first), label})
	}
}

func (s *spans4) index() {
	slotBits := min(bits.Len(uint(len(s.spans))), maxSlotBits)
	s.shift = 32 - slotBits
	s.slots = make([]uint32, 0, 1<<slotBits+1)
	at := 0
	for slot := range uint64(1) << slotBits {
		for at+1 < len(s.spans) && uint64(s.spans[at+1].first) <= slot<<s.shift {
			at++
		}
		s.slots = append(s.slots, uint32(at))
	}
	s.slots = append(s.slots, uint32(len(s.spans)-1))
}

// label is the index of the label of an IPv4 address.
func (s *spans4) label(addr netip.Addr) (number uint32, ok bool) {
	a := address4(addr)
	slot := a >> s.shift
	from, to := s.slots[slot], s.slots[slot+1]
	for from < to {
		if middle := (from + to + 1) / 2; s.spans[middle].first <= a {
			from = middle
		} else {
			to = middle - 1
		}
	}
	label := s.spans[from].label
	return label - 1, label != 0
}

func address4(addr netip.Addr) uint32 {
	b := addr.As4()
	return binary.BigEndian.Uint32(b[:])
}
