package whitelist

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
	"strconv"
	"testing"
)

func testKey(tb testing.TB, id string) Key {
	tb.Helper()
	secret := sha256.Sum256([]byte("secret of " + id))
	key, err := NewKey(id, secret[:KeySize])
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func normalizer(tb testing.TB, fold bool) *Normalizer {
	tb.Helper()
	n, err := NewNormalizer(nil, fold)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func importOptions(tb testing.TB) ImportOptions {
	tb.Helper()
	return ImportOptions{Key: testKey(tb, "k1"), Of: Device, IDs: normalizer(tb, false)}
}

// numbered are n ids: the prefix and a number.
func numbered(prefix string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			if !yield(prefix + strconv.Itoa(i)) {
				return
			}
		}
	}
}

func contentOf(tb testing.TB, of Of, ids iter.Seq[string]) *Content {
	tb.Helper()
	c, err := Build(testKey(tb, "k1"), of, ids)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func listOf(tb testing.TB, key string, of Of, ids iter.Seq[string]) List {
	tb.Helper()
	c := contentOf(tb, of, ids)
	return List{Key: key, Of: of, Index: c.Index(), Chunk: c.Chunk}
}

// kept is the list with its chunks as bytes in memory, as a disk copy gives them.
func kept(tb testing.TB, l List) List {
	tb.Helper()
	chunks := make([][]byte, len(l.Index.Digests))
	for n := range chunks {
		var err error
		if chunks[n], err = l.Chunk(n); err != nil {
			tb.Fatal(err)
		}
	}
	l.Chunk = func(n int) ([]byte, error) { return chunks[n], nil }
	return l
}

// indexOf is the Index after x with exactly these lists.
func indexOf(tb testing.TB, x *Index, lists ...List) *Index {
	tb.Helper()
	next, err := x.With([]Key{testKey(tb, "k2"), testKey(tb, "k1")}, lists)
	if err != nil {
		tb.Fatal(err)
	}
	return next
}

// stored is a content as the store would give it back.
func stored(c *Content) *Stored {
	return &Stored{Key: c.ids.key, Of: c.ids.of, Index: c.Index(), Raw: func(n int) ([]byte, error) {
		return c.ids.blob(c.chunk(n), c.blob.Digests[n]).Raw, nil
	}}
}

// patched is the list after a patch, with its chunks.
func patched(tb testing.TB, l List, s *Stored, add, remove []string) List {
	tb.Helper()
	p, err := s.Patch(add, remove)
	if err != nil {
		tb.Fatal(err)
	}
	next := l
	next.Index = p.Index
	next.Chunk = func(n int) ([]byte, error) {
		for _, b := range p.Blobs {
			if b.Digest == p.Index.Digests[n] {
				return b.Bytes, nil
			}
		}
		if p.Index.Bits == l.Index.Bits && p.Index.Digests[n] == l.Index.Digests[n] {
			return l.Chunk(n)
		}
		return nil, fmt.Errorf("chunk %d is nowhere", n)
	}
	return next
}

func lines(ids iter.Seq[string]) *bytes.Buffer {
	var out bytes.Buffer
	for id := range ids {
		out.WriteString(id + "\n")
	}
	return &out
}
