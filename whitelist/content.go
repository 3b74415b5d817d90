package whitelist

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"dispatch.example/dispatch/internal/fault"
)

// maxProblems is how many wrong ids or lines an error or report lists; the rest are counted.
const maxProblems = 100

// Blob is one chunk: its hashes, which edges fetch by digest, and its raw ids in
// the same order, one a line, which the store seals and nobody else sees.
type Blob struct {
	Digest [sha256.Size]byte
	Bytes  []byte
	Raw    []byte
}

// Content is all that a list holds, on the control side. It is immutable.
type Content struct {
	blob *IndexBlob
	ids  gather
	ends []int // of each chunk in ids.records
}

// Build makes the content of a list. The ids are in normal form, in any order;
// duplicates count once.
func Build(key Key, of Of, ids iter.Seq[string]) (*Content, error) {
	g := gather{key: key, of: of}
	var problems fault.Problems
	wrong, n := 0, 0
	for id := range ids {
		if why, ok := checkNormal(id); ok {
			g.add(id)
		} else if wrong++; wrong <= maxProblems {
			problems.Addf(fmt.Sprintf("ids[%d]", n), "%s", refusal(why))
		}
		n++
	}
	if wrong > 0 {
		return nil, problems.Err("bad_ids", fmt.Sprintf("%d of %d ids are wrong", wrong, n))
	}
	return g.content(-1), nil
}

// refusal says what is wrong with an id of a list, without repeating it.
func refusal(why Absence) string {
	switch why {
	case Missing, Blank:
		return "the id is blank"
	case Placeholder:
		return "the id is one that counts as absent"
	case TooLong:
		return fmt.Sprintf("the id has more than %d bytes", MaxID)
	case BadUTF8:
		return "the id is not UTF-8"
	case Control:
		return "the id holds a control character"
	default:
		return "the id is not in normal form"
	}
}

// Index is the blob that names the chunks.
func (c *Content) Index() *IndexBlob { return c.blob }

// Len is the number of distinct ids.
func (c *Content) Len() int { return len(c.ids.records) }

// Blobs are all chunks but empty ones.
func (c *Content) Blobs() iter.Seq[Blob] {
	return func(yield func(Blob) bool) {
		for n := range c.ends {
			if records := c.chunk(n); len(records) > 0 && !yield(c.ids.blob(records, c.blob.Digests[n])) {
				return
			}
		}
	}
}

// Chunk is the hashes of chunk n, as List.Chunk wants them.
func (c *Content) Chunk(n int) ([]byte, error) {
	if n < 0 || n >= len(c.ends) {
		return nil, fmt.Errorf("chunk %d of %d", n, len(c.ends))
	}
	return appendHashes(nil, c.chunk(n)), nil
}

func (c *Content) chunk(n int) []record {
	from := 0
	if n > 0 {
		from = c.ends[n-1]
	}
	return c.ids.records[from:c.ends[n]]
}

func (c *Content) has(hi, lo uint64) bool {
	_, found := slices.BinarySearchFunc(c.chunk(c.blob.chunkOf(hi)), record{hi: hi, lo: lo}, record.compare)
	return found
}

// record is one id: its hash and where its text stands.
type record struct {
	hi, lo uint64
	at     uint64 // offset << textBits | length
}

// textBits hold a length up to MaxID.
const textBits = 9

func (r record) compare(s record) int {
	switch {
	case r.hi < s.hi || r.hi == s.hi && r.lo < s.lo:
		return -1
	case r.hi == s.hi && r.lo == s.lo:
		return 0
	default:
		return 1
	}
}

// gather collects ids of one list: 24 bytes and the text for each, and nothing
// in it that the garbage collector must follow.
type gather struct {
	key     Key
	of      Of
	text    []byte
	records []record
}

func (g *gather) add(id string) {
	hi, lo := g.key.sum(g.of, id)
	// append alone would grow by a quarter each time, and copy five times as much.
	if len(g.records) == cap(g.records) {
		g.records = slices.Grow(g.records, max(chunkMean.target, len(g.records)))
	}
	g.records = append(g.records, record{hi, lo, uint64(len(g.text))<<textBits | uint64(len(id))})
	g.text = append(g.text, id...)
}

func (g *gather) id(r record) []byte {
	at := r.at >> textBits
	return g.text[at : at+r.at&(1<<textBits-1)]
}

// sort puts the records in order of their hashes and drops duplicates.
func (g *gather) sort() {
	if len(g.records) > radixFrom {
		g.records = scatter(g.records)
	} else {
		slices.SortFunc(g.records, record.compare)
	}
	g.records = slices.CompactFunc(g.records, func(a, b record) bool { return a.hi == b.hi && a.lo == b.lo })
}

// Above radixFrom records, one pass that deals them into 2^radixBits parts
// before these are sorted takes a third of the time: hashes are spread evenly.
const (
	radixBits = 12
	radixFrom = 1 << 16
)

func scatter(records []record) []record {
	var ends [1<<radixBits + 1]int
	for _, r := range records {
		ends[r.hi>>(64-radixBits)+1]++
	}
	for part := range 1 << radixBits {
		ends[part+1] += ends[part]
	}
	sorted := make([]record, len(records))
	for _, r := range records {
		part := r.hi >> (64 - radixBits)
		sorted[ends[part]] = r
		ends[part]++
	}
	from := 0
	for _, end := range ends[:1<<radixBits] {
		slices.SortFunc(sorted[from:end], record.compare)
		from = end
	}
	return sorted
}

// content splits what was gathered into chunks, by the given bits if they still fit.
func (g *gather) content(bits int) *Content {
	g.sort()
	count := len(g.records)
	bits = chunkMean.bits(count, bits)
	c := &Content{ids: *g, ends: make([]int, 1<<bits),
		blob: &IndexBlob{KeyID: g.key.ID, Bits: bits, Count: count, Digests: make([][sha256.Size]byte, 1<<bits)}}
	var hashes []byte
	at := 0
	for n := range c.ends {
		for at < count && c.blob.chunkOf(g.records[at].hi) == n {
			at++
		}
		c.ends[n] = at
		hashes = appendHashes(hashes[:0], c.chunk(n))
		c.blob.Digests[n] = sha256.Sum256(hashes)
	}
	return c
}

// blob is the chunk of these records.
func (g *gather) blob(records []record, digest [sha256.Size]byte) Blob {
	b := Blob{Digest: digest, Bytes: appendHashes(nil, records)}
	for i, r := range records {
		if i > 0 {
			b.Raw = append(b.Raw, '\n')
		}
		b.Raw = append(b.Raw, g.id(r)...)
	}
	return b
}

func appendHashes(dst []byte, records []record) []byte {
	dst = slices.Grow(dst, len(records)*hashSize)
	for _, r := range records {
		dst = binary.BigEndian.AppendUint64(dst, r.hi)
		dst = binary.BigEndian.AppendUint64(dst, r.lo)
	}
	return dst
}
