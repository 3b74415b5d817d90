package whitelist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"dispatch.example/dispatch/internal/fault"
)

// List is one list of a release.
type List struct {
	Key   string
	Of    Of
	Index *IndexBlob
	// Chunk fetches chunk n. With calls it in rising order, for chunks that differ
	// from those of the Index before, and checks what it gets against the digest.
	Chunk func(n int) ([]byte, error)
}

// With is the Index of exactly these lists: those that are new are added, those
// that x has and lists has not are gone. Keys are the list keys of this replica,
// current first. An empty Index, new(Index), is the start.
//
// The cost is that of the partitions in which an id came or went. All others
// are shared with x, so a release without a change of lists costs nothing. An
// error leaves x as it was.
func (x *Index) With(keys []Key, lists []List) (*Index, error) {
	next := &Index{number: make(map[string]int, len(lists)), bits: x.bits}
	changes, err := next.enlist(x, lists)
	if err != nil {
		return nil, err
	}
	if next.device, next.user, err = keysOf(keys, lists); err != nil {
		return nil, err
	}
	// A guess, since lists may share ids; it is put right below.
	ids := x.ids
	for _, c := range changes {
		ids += c.list.Index.Count - c.had
	}
	if err := next.fill(x, partBits(ids, x), changes); err != nil {
		return nil, err
	}
	for _, c := range changes {
		if err := c.checkCount(); err != nil {
			return nil, err
		}
	}
	if bits := partBits(next.ids, next); bits != next.bits {
		guessed := *next
		if err := next.fill(&guessed, bits, nil); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// partBits is how many bits split count entries, those of x if they can stay.
func partBits(count int, x *Index) int {
	bits := x.bits
	if x.parts == nil {
		bits = -1
	}
	return partMean.bits(max(count, 0), bits)
}

// enlist gives every list its number and says what changed since x.
func (x *Index) enlist(old *Index, lists []List) ([]*change, error) {
	x.lists = make([]listed, len(old.lists), max(len(old.lists), len(lists)))
	for i, l := range lists {
		if l.Key == "" || !l.Of.Valid() || l.Index == nil || l.Chunk == nil {
			return nil, fmt.Errorf("list %q (number %d): its key, kind, index or chunks are missing", l.Key, i)
		}
		if _, twice := x.number[l.Key]; twice {
			return nil, fmt.Errorf("list %s is there twice", l.Key)
		}
		if err := l.Index.check(); err != nil {
			return nil, fmt.Errorf("list %s: %w", l.Key, err)
		}
		x.number[l.Key] = -1
		if n, ok := old.number[l.Key]; ok {
			x.number[l.Key] = n
			x.lists[n].key = l.Key
		}
	}
	var changes []*change
	for n, l := range old.lists {
		if l.key != "" && x.lists[n].key == "" {
			changes = append(changes, newChange(n, List{Key: l.key, Index: nothing}, l))
		}
	}
	for _, l := range lists {
		n := x.number[l.Key]
		if n < 0 {
			n = x.freeNumber(old)
			x.number[l.Key] = n
		}
		var was listed
		if n < len(old.lists) {
			was = old.lists[n]
		}
		c := newChange(n, l, was)
		x.lists[n] = listed{key: l.Key, of: l.Of, blob: l.Index, lens: c.lens}
		if c.dirty {
			changes = append(changes, c)
		}
	}
	if len(x.lists) > partMax {
		return nil, fmt.Errorf("%d lists are more than %d", len(x.lists), partMax)
	}
	slices.SortFunc(changes, func(a, b *change) int { return cmp.Compare(a.number, b.number) })
	return changes, nil
}

// freeNumber takes a number that neither this Index nor the old one uses, so
// that a table compiled for the old one never reads another list by mistake.
func (x *Index) freeNumber(old *Index) int {
	for n := range old.lists {
		if old.lists[n].key == "" && x.lists[n].key == "" {
			return n
		}
	}
	x.lists = append(x.lists, listed{})
	return len(x.lists) - 1
}

// keysOf are the keys that the lists of each kind are hashed under, current first.
func keysOf(keys []Key, lists []List) (device, user []Key, err error) {
	used := map[Of][]Key{}
	for _, key := range keys {
		for _, of := range []Of{Device, User} {
			if slices.ContainsFunc(lists, func(l List) bool { return l.Of == of && l.Index.KeyID == key.ID }) {
				used[of] = append(used[of], key)
			}
		}
	}
	for _, l := range lists {
		if !slices.ContainsFunc(keys, func(k Key) bool { return k.ID == l.Index.KeyID }) {
			return nil, nil, fault.New(fault.Invalid, "missing_key", "list %s is hashed under the list key %s, which is not here",
				l.Key, l.Index.KeyID).WithHint("add the key to the file that --list-key-file names")
		}
	}
	if len(used[Device]) > 2 || len(used[User]) > 2 {
		return nil, nil, errors.New("lists of one kind are hashed under more than two list keys")
	}
	return used[Device], used[User], nil
}

// nothing is the content of a list that is gone.
var nothing = &IndexBlob{Digests: [][32]byte{emptyDigest}}

// change is what becomes of one list. It reads the new chunks once, in order.
type change struct {
	number uint16
	list   List
	had    int    // ids before
	stale  []bool // by chunk of the new content: it differs from what the Index holds
	dirty  bool   // any of stale
	lens   []uint32

	loaded int   // number of chunk, -1 for none yet
	chunk  Chunk // what is left of it
}

func newChange(n int, l List, was listed) *change {
	c := &change{number: uint16(n), list: l, loaded: -1}
	if was.blob != nil {
		c.had = was.blob.Count
		if was.blob == l.Index {
			c.lens = was.lens
			return c
		}
	}
	c.stale = make([]bool, len(l.Index.Digests))
	c.lens = make([]uint32, len(l.Index.Digests))
	same := was.blob != nil && was.blob.Bits == l.Index.Bits
	for i, digest := range l.Index.Digests {
		if same && was.blob.Digests[i] == digest {
			c.lens[i] = was.lens[i]
			continue
		}
		c.stale[i], c.dirty = true, true
	}
	return c
}

// staleAt says whether what the Index before knows of this hash no longer counts.
func (c *change) staleAt(hi uint64) bool { return c.stale[c.list.Index.chunkOf(hi)] }

// staleIn says whether any chunk that reaches into partition p is stale.
func (c *change) staleIn(p, bits int) bool {
	first, last := c.chunksIn(p, bits)
	return slices.Contains(c.stale[first:last+1], true)
}

func (c *change) chunksIn(p, bits int) (first, last int) {
	if more := c.list.Index.Bits - bits; more > 0 {
		return p << more, (p+1)<<more - 1
	}
	n := p >> (bits - c.list.Index.Bits)
	return n, n
}

// take appends the hashes of stale chunks that fall into partition p.
func (c *change) take(dst []addition, p, bits int) ([]addition, error) {
	first, last := c.chunksIn(p, bits)
	for n := first; n <= last; n++ {
		if !c.stale[n] {
			continue
		}
		if err := c.load(n); err != nil {
			return nil, err
		}
		for c.chunk.Len() > 0 {
			hi, lo := c.chunk.at(0)
			if int(hi>>uint(64-bits)) != p {
				break
			}
			dst = append(dst, addition{hi, lo, c.number})
			c.chunk = c.chunk[hashSize:]
		}
	}
	return dst, nil
}

func (c *change) load(n int) error {
	if c.loaded == n {
		return nil
	}
	c.loaded, c.chunk = n, nil
	if c.list.Index.Digests[n] == emptyDigest {
		return nil
	}
	data, err := c.list.Chunk(n)
	if err != nil {
		return fmt.Errorf("list %s: chunk %d: %w", c.list.Key, n, err)
	}
	if c.chunk, err = ParseChunk(c.list.Index, n, data); err != nil {
		return fmt.Errorf("list %s: %w", c.list.Key, err)
	}
	c.lens[n] = uint32(c.chunk.Len())
	return nil
}

func (c *change) checkCount() error {
	sum := 0
	for _, n := range c.lens {
		sum += int(n)
	}
	if sum != c.list.Index.Count {
		return fmt.Errorf("list %s: its chunks hold %d ids, its index says %d", c.list.Key, sum, c.list.Index.Count)
	}
	return nil
}
