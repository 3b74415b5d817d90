package whitelist

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

func TestContentIsTheSameForAnyOrderOfIDs(t *testing.T) {
	t.Parallel()
	ids := slices.Collect(numbered("d-", 100_000)) // above radixFrom
	want := contentOf(t, Device, slices.Values(ids)).Index().Bytes()
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = append(ids, ids[:5_000]...)
	if got := contentOf(t, Device, slices.Values(ids)).Index().Bytes(); !bytes.Equal(got, want) {
		t.Error("another order, or duplicates, make another content")
	}
	if bytes.Equal(contentOf(t, User, slices.Values(ids)).Index().Bytes(), want) {
		t.Error("the kind of id makes no difference")
	}
}

func TestBlobsHoldEachIDOnceBesideItsHash(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2_048, 2_049, 70_000} {
		c := contentOf(t, Device, numbered("用户-", n))
		index, key := c.Index(), testKey(t, "k1")
		if c.Len() != n || index.Count != n || index.KeyID != "k1" {
			t.Errorf("%d ids: counted %d and %d under %s", n, c.Len(), index.Count, index.KeyID)
		}
		seen := map[string]bool{}
		for b := range c.Blobs() {
			number := slices.Index(index.Digests, b.Digest)
			chunk, err := ParseChunk(index, number, b.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			ids := strings.Split(string(b.Raw), "\n")
			if len(ids) != chunk.Len() {
				t.Fatalf("chunk %d: %d hashes, %d ids", number, chunk.Len(), len(ids))
			}
			for i, id := range ids {
				if h := key.Hash(Device, id); !bytes.Equal(h[:], b.Bytes[i*16:i*16+16]) || seen[id] {
					t.Fatalf("chunk %d: id %d stands beside another's hash, or twice", number, i)
				}
				seen[id] = true
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d ids", len(seen), n)
		}
	}
}

func TestBitsFollowTheMeanOfAChunk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ count, bits, want int }{
		{0, -1, 0}, {1, -1, 0}, {2_048, -1, 0}, {2_049, -1, 1}, {1_000_000, -1, 9}, {5_000_000, -1, 12},
		{4_096, 0, 0}, {4_097, 0, 2}, // grows above a mean of 4,096
		{8_192, 1, 1}, {8_193, 1, 3},
		{1_024, 1, 1}, {1_023, 1, 0}, // shrinks below 512
		{512 << 9, 9, 9}, {512<<9 - 1, 9, 7},
		{0, 9, 0},
	} {
		if got := chunkMean.bits(c.count, c.bits); got != c.want {
			t.Errorf("%d ids, %d bits before: %d bits, want %d", c.count, c.bits, got, c.want)
		}
	}
}

func TestBuildRefusesWhatIsNoNormalForm(t *testing.T) {
	t.Parallel()
	bad := []string{"", " a", "a\nb", "u\u0308", "\xff", strings.Repeat("x", 257)}
	_, err := Build(testKey(t, "k1"), Device, slices.Values(append(bad, "fine")))
	if fault.CodeOf(err) != "bad_ids" || strings.Count(err.Error(), "\n") != len(bad) {
		t.Errorf("got %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "xxx") {
		t.Error("the error repeats an id")
	}
}

// A patched list is byte for byte what a new list of the same ids with the same
// bits is, whatever the edits; the counts are those of a plain set.
func TestPatchEqualsASet(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	set := map[string]bool{}
	store := newBlobStore(contentOf(t, Device, numbered("", 0)))
	bits := map[int]bool{}
	for step := range 40 {
		span, growing := []int{10, 1_000, 20_000}[step/4%3], step < 20
		var add, remove []string
		for range r.IntN(span) {
			id := fmt.Sprint("d-", r.IntN(40_000))
			if growing == (r.IntN(5) > 0) {
				add = append(add, id)
			} else {
				remove = append(remove, id)
			}
		}
		adding := setOf(add)
		remove = slices.DeleteFunc(remove, func(id string) bool { return adding[id] })
		if step == 39 {
			add, adding, remove = nil, nil, slices.Collect(maps.Keys(set))
		}
		want := Patch{}
		for id := range adding {
			if set[id] {
				want.Already++
			} else {
				want.Added++
			}
			set[id] = true
		}
		for id := range setOf(remove) {
			if set[id] {
				want.Removed++
			} else {
				want.Unknown++
			}
			delete(set, id)
		}
		got := store.patch(t, add, remove)
		if got.Added != want.Added || got.Removed != want.Removed || got.Already != want.Already || got.Unknown != want.Unknown {
			t.Fatalf("step %d: counts %d %d %d %d, want %d %d %d %d", step, got.Added, got.Removed, got.Already, got.Unknown,
				want.Added, want.Removed, want.Already, want.Unknown)
		}
		g := gather{key: testKey(t, "k1"), of: Device}
		for id := range set {
			g.add(id)
		}
		if fresh := g.content(got.Index.Bits); !bytes.Equal(fresh.Index().Bytes(), got.Index.Bytes()) {
			t.Fatalf("step %d: a new list of the same %d ids is another", step, len(set))
		}
		checkAll(t, store.stored(t), set)
		bits[got.Index.Bits] = true
	}
	if len(set) > 0 || len(bits) < 2 {
		t.Errorf("%d ids are left; the bits were only %v", len(set), bits)
	}
}

func checkAll(tb testing.TB, s *Stored, set map[string]bool) {
	tb.Helper()
	n := 0
	for id, err := range s.All() {
		if err != nil {
			tb.Fatal(err)
		}
		if n++; !set[id] {
			tb.Fatalf("%s is in the list", id)
		}
	}
	if n != len(set) || s.Index.Count != n {
		tb.Fatalf("%d ids, counted %d, want %d", n, s.Index.Count, len(set))
	}
}

func setOf(ids []string) map[string]bool {
	set := map[string]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// e29: 3 ids added and 1 removed move 4 chunks of a long list, and no more are read.
func TestPatchTouchesOnlyTheChunksOfItsIDs(t *testing.T) {
	t.Parallel()
	c := contentOf(t, Device, numbered("d-", 200_000))
	s := stored(c)
	read, raw := 0, s.Raw
	s.Raw = func(n int) ([]byte, error) { read++; return raw(n) }
	p, err := s.Patch([]string{"new-1", "new-2", "new-3", "d-7"}, []string{"d-5", "never-there"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Added != 3 || p.Removed != 1 || p.Already != 1 || p.Unknown != 1 || p.Index.Count != 200_002 {
		t.Errorf("counts %+v", p)
	}
	if len(p.Blobs) > 4 || read > 6 {
		t.Errorf("%d chunks are new, %d were read", len(p.Blobs), read)
	}
	same := 0
	for n := range p.Index.Digests {
		if p.Index.Digests[n] == c.Index().Digests[n] {
			same++
		}
	}
	if same != len(p.Index.Digests)-len(p.Blobs) {
		t.Errorf("%d of %d chunks stayed", same, len(p.Index.Digests))
	}
}

func TestPatchRefusesBadIDs(t *testing.T) {
	t.Parallel()
	s := stored(contentOf(t, Device, numbered("d-", 10)))
	for name, edit := range map[string][2][]string{
		"blank": {{""}, nil}, "line feed": {{"a\nb"}, nil}, "spaces": {nil, {" a "}}, "both": {{"a"}, {"a"}},
	} {
		if p, err := s.Patch(edit[0], edit[1]); fault.CodeOf(err) != "bad_ids" || p != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStoredRefusesRawIDsOfAnotherChunk(t *testing.T) {
	t.Parallel()
	good := stored(contentOf(t, Device, numbered("d-", 10)))
	lost := errors.New("lost")
	for name, raw := range map[string]func(int) ([]byte, error){
		"changed": func(int) ([]byte, error) { return []byte("d-1\nd-2"), nil },
		"empty":   func(int) ([]byte, error) { return nil, nil },
		"lost":    func(int) ([]byte, error) { return nil, lost },
	} {
		s := *good
		s.Raw = raw
		if _, err := s.Patch([]string{"x"}, nil); err == nil {
			t.Errorf("%s: patched", name)
		}
		if _, err := s.Contains("d-1"); err == nil {
			t.Errorf("%s: searched", name)
		}
		if _, err := s.Rehash(testKey(t, "k2")); err == nil {
			t.Errorf("%s: hashed again", name)
		}
		_, _, err := Import(lines(numbered("d-", 9)), ImportOptions{Key: good.Key, Of: Device, IDs: normalizer(t, false), Old: &s})
		if err == nil || name == "lost" && !errors.Is(err, lost) {
			t.Errorf("%s: compared, %v", name, err)
		}
	}
	other := *good
	other.Key = testKey(t, "k2")
	if _, err := other.Contains("d-1"); err == nil || !strings.Contains(err.Error(), "key k1, not k2") {
		t.Errorf("searched under another key: %v", err)
	}
}

func TestStoredContains(t *testing.T) {
	t.Parallel()
	s := stored(contentOf(t, User, numbered("u-", 9_000)))
	for id, want := range map[string]bool{"u-0": true, "u-8999": true, "u-9000": false, "": false, "U-0": false} {
		if got, err := s.Contains(id); got != want || err != nil {
			t.Errorf("%q: %v %v", id, got, err)
		}
	}
}

// A rotation hashes the same ids under the new key.
func TestRehashKeepsTheIDs(t *testing.T) {
	t.Parallel()
	old := stored(contentOf(t, Device, numbered("d-", 9_000)))
	c, err := old.Rehash(testKey(t, "k2"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Build(testKey(t, "k2"), Device, numbered("d-", 9_000))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.Index().Bytes(), want.Index().Bytes()) || c.Index().KeyID != "k2" {
		t.Error("the ids changed")
	}
}

// blobStore keeps chunks by digest, as the store does.
type blobStore struct {
	index *IndexBlob
	blobs map[[sha256.Size]byte]Blob
}

func newBlobStore(c *Content) *blobStore {
	s := &blobStore{index: c.Index(), blobs: map[[sha256.Size]byte]Blob{}}
	s.put(c.Blobs())
	return s
}

func (s *blobStore) put(blobs iter.Seq[Blob]) {
	for b := range blobs {
		s.blobs[b.Digest] = b
	}
}

func (s *blobStore) patch(tb testing.TB, add, remove []string) *Patch {
	tb.Helper()
	p, err := s.stored(tb).Patch(add, remove)
	if err != nil {
		tb.Fatal(err)
	}
	s.index = p.Index
	s.put(slices.Values(p.Blobs))
	return p
}

func (s *blobStore) stored(tb testing.TB) *Stored {
	tb.Helper()
	index := s.index
	return &Stored{Key: testKey(tb, "k1"), Of: Device, Index: index, Raw: func(n int) ([]byte, error) {
		b, ok := s.blobs[index.Digests[n]]
		if !ok {
			return nil, fmt.Errorf("chunk %d is nowhere", n)
		}
		return b.Raw, nil
	}}
}
