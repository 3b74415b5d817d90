package whitelist

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// chunkMean is how many hashes a chunk has on average. 2,048 (32 KiB) are few
// enough that a change of one id moves little, and enough that the digests of
// 5,000,000 ids fit into 128 KiB. Between low and high a list keeps its bits, so
// that one that grows and shrinks by a few ids does not move all its chunks each
// time.
var chunkMean = band{low: 512, target: 2_048, high: 4_096}

// maxBits bounds an index blob: 2^20 chunks are 2,000,000,000 ids.
const maxBits = 20

const hashSize = len(Hash{})

// emptyDigest names the chunk without hashes, which is neither stored nor fetched.
var emptyDigest = sha256.Sum256(nil)

// IndexBlob says what a list holds: how many ids under which key, and the
// digests of its 2^Bits chunks, by the top bits of the hashes in them.
type IndexBlob struct {
	KeyID   string
	Bits    int
	Count   int
	Digests [][sha256.Size]byte
}

type indexJSON struct {
	Key     string `json:"key"`
	Bits    int    `json:"bits"`
	Count   int    `json:"count"`
	Digests []byte `json:"digests"` // end to end
}

// Bytes is the blob as it is stored, signed and fetched. Equal blobs have equal bytes.
func (x *IndexBlob) Bytes() []byte {
	digests := make([]byte, 0, len(x.Digests)*sha256.Size)
	for _, d := range x.Digests {
		digests = append(digests, d[:]...)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	// Cannot fail: strings, numbers and bytes into memory.
	_ = enc.Encode(indexJSON{Key: x.KeyID, Bits: x.Bits, Count: x.Count, Digests: digests})
	return out.Bytes()
}

// ParseIndexBlob reads what Bytes wrote and refuses anything else, so that one
// content has one digest.
func ParseIndexBlob(data []byte) (*IndexBlob, error) {
	var in indexJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("list index: %w", err)
	}
	x := &IndexBlob{KeyID: in.Key, Bits: in.Bits, Count: in.Count}
	for d := in.Digests; len(d) >= sha256.Size; d = d[sha256.Size:] {
		x.Digests = append(x.Digests, [sha256.Size]byte(d))
	}
	if err := x.check(); err != nil {
		return nil, fmt.Errorf("list index: %w", err)
	}
	if !bytes.Equal(x.Bytes(), data) {
		return nil, errors.New("list index: not in its one encoding")
	}
	return x, nil
}

func (x *IndexBlob) check() error {
	switch {
	case x.KeyID == "":
		return errors.New("no key id")
	case x.Bits < 0 || x.Bits > maxBits:
		return fmt.Errorf("bits are 0 to %d, not %d", maxBits, x.Bits)
	case x.Count < 0 || chunkMean.bits(x.Count, x.Bits) != x.Bits:
		return fmt.Errorf("%d ids do not go into %d bits", x.Count, x.Bits)
	case len(x.Digests) != 1<<x.Bits:
		return fmt.Errorf("%d bits have %d digests, not %d", x.Bits, 1<<x.Bits, len(x.Digests))
	}
	return nil
}

// chunkOf is the number of the chunk that a hash belongs to.
func (x *IndexBlob) chunkOf(hi uint64) int { return int(hi >> (64 - x.Bits)) }

// band is the mean size that parts may have, and the one to aim at.
type band struct{ low, target, high int }

// bits is how many bits split count things: those they are split by now if the
// mean stays in the band, else as few as bring it to the target or below.
// Negative bits are none yet.
func (b band) bits(count, now int) int {
	if now >= 0 && count <= b.high<<now && (now == 0 || count >= b.low<<now) {
		return now
	}
	bits := 0
	for count > b.target<<bits {
		bits++
	}
	return bits
}

// Chunk is the sorted hashes of one chunk, end to end.
type Chunk []byte

// ParseChunk checks that data is chunk n of x: its digest, its order, and that
// its hashes belong there. It keeps data.
func ParseChunk(x *IndexBlob, n int, data []byte) (Chunk, error) {
	if n < 0 || n >= len(x.Digests) {
		return nil, fmt.Errorf("chunk %d of %d", n, len(x.Digests))
	}
	if sha256.Sum256(data) != x.Digests[n] {
		return nil, fmt.Errorf("chunk %d is not %s", n, hex.EncodeToString(x.Digests[n][:]))
	}
	c := Chunk(data)
	if len(c)%hashSize != 0 || c.Len() > x.Count {
		return nil, fmt.Errorf("chunk %d has %d bytes", n, len(c))
	}
	for i := range c.Len() {
		hi, lo := c.at(i)
		if x.chunkOf(hi) != n {
			return nil, fmt.Errorf("chunk %d holds a hash of chunk %d", n, x.chunkOf(hi))
		}
		if i == 0 {
			continue
		}
		if h, l := c.at(i - 1); hi < h || hi == h && lo <= l {
			return nil, fmt.Errorf("chunk %d is not in rising order", n)
		}
	}
	return c, nil
}

// Len is the number of hashes.
func (c Chunk) Len() int { return len(c) / hashSize }

func (c Chunk) at(i int) (hi, lo uint64) {
	return binary.BigEndian.Uint64(c[i*hashSize:]), binary.BigEndian.Uint64(c[i*hashSize+8:])
}
