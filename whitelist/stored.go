package whitelist

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// ErrNoRaw is what Stored.Raw wraps when the ids of a chunk are kept nowhere: it
// came from the fleet, which has hashes alone.
var ErrNoRaw = errors.New("the raw ids are not stored")

// Stored is a list as the store keeps it, on the control side.
type Stored struct {
	Key   Key // that Index names
	Of    Of
	Index *IndexBlob
	Raw   func(n int) ([]byte, error) // opens the raw ids beside chunk n; never called for an empty chunk
}

// Patch is what a few added and removed ids make of a list.
type Patch struct {
	Index   *IndexBlob
	Blobs   []Blob // the chunks that are new
	Added   int
	Removed int
	Already int // to be added and in the list before
	Unknown int // to be removed and not in the list
}

// Patch adds and removes ids in normal form. It reads and writes the chunks of
// these ids alone, unless the list now needs more or fewer bits.
func (s *Stored) Patch(add, remove []string) (*Patch, error) {
	wanted, err := wantedIDs(add, remove)
	if err != nil {
		return nil, err
	}
	edits := map[int]map[string]bool{} // by chunk, what shall become of each id
	for id, in := range wanted {
		hi, _ := s.Key.sum(s.Of, id)
		n := s.Index.chunkOf(hi)
		if edits[n] == nil {
			edits[n] = map[string]bool{}
		}
		edits[n][id] = in
	}
	next := *s.Index
	next.Digests = slices.Clone(s.Index.Digests)
	p := &Patch{Index: &next}
	edited := map[int]*gather{}
	for _, n := range slices.Sorted(maps.Keys(edits)) {
		g, err := s.load(n)
		if err != nil {
			return nil, err
		}
		p.edit(g, edits[n])
		edited[n] = g
		blob := g.blob(g.records, sha256.Sum256(appendHashes(nil, g.records)))
		if blob.Digest == next.Digests[n] {
			continue
		}
		next.Digests[n] = blob.Digest
		if blob.Digest != emptyDigest {
			p.Blobs = append(p.Blobs, blob)
		}
	}
	next.Count += p.Added - p.Removed
	if chunkMean.bits(next.Count, next.Bits) == next.Bits {
		return p, nil
	}
	if err := s.resplit(p, edited); err != nil {
		return nil, err
	}
	return p, nil
}

// wantedIDs is what shall become of each id: in the list or not.
func wantedIDs(add, remove []string) (map[string]bool, error) {
	wanted := make(map[string]bool, len(add)+len(remove))
	var problems fault.Problems
	note := func(path string, i int, what string) {
		if len(problems) < maxProblems {
			problems.Addf(fmt.Sprintf("%s[%d]", path, i), "%s", what)
		}
	}
	for i, id := range add {
		if why, ok := checkNormal(id); !ok {
			note("add", i, refusal(why))
		}
		wanted[id] = true
	}
	for i, id := range remove {
		if why, ok := checkNormal(id); !ok {
			note("remove", i, refusal(why))
		}
		if wanted[id] {
			note("remove", i, "the id is also to be added")
		}
		wanted[id] = false
	}
	return wanted, problems.Err("bad_ids", "the ids to add and remove are wrong")
}

// edit applies the wanted ids to the ids of one chunk.
func (p *Patch) edit(g *gather, wanted map[string]bool) {
	g.records = slices.DeleteFunc(g.records, func(r record) bool {
		in, named := wanted[string(g.id(r))]
		if !named {
			return false
		}
		delete(wanted, string(g.id(r)))
		if in {
			p.Already++
			return false
		}
		p.Removed++
		return true
	})
	for id, in := range wanted {
		if !in {
			p.Unknown++
			continue
		}
		p.Added++
		g.add(id)
	}
	g.sort()
}

// resplit splits the whole list anew, chunks that were edited included.
func (s *Stored) resplit(p *Patch, edited map[int]*gather) error {
	all := gather{key: s.Key, of: s.Of}
	for n := range s.Index.Digests {
		g := edited[n]
		if g == nil {
			var err error
			if g, err = s.load(n); err != nil {
				return err
			}
		}
		for _, r := range g.records {
			all.add(string(g.id(r)))
		}
	}
	c := all.content(p.Index.Bits)
	p.Index, p.Blobs = c.Index(), slices.Collect(c.Blobs())
	return nil
}

// load reads the ids of chunk n and checks them against its digest.
func (s *Stored) load(n int) (*gather, error) {
	g := &gather{key: s.Key, of: s.Of}
	if s.Key.ID != s.Index.KeyID {
		return nil, fmt.Errorf("the list is hashed under the key %s, not %s", s.Index.KeyID, s.Key.ID)
	}
	if s.Index.Digests[n] == emptyDigest {
		return g, nil
	}
	raw, err := s.Raw(n)
	if err != nil {
		return nil, fmt.Errorf("raw ids of chunk %d: %w", n, err)
	}
	for id := range strings.SplitSeq(string(raw), "\n") {
		if why, ok := checkNormal(id); !ok {
			return nil, fmt.Errorf("raw ids of chunk %d: %s", n, refusal(why))
		}
		g.add(id)
	}
	if sha256.Sum256(appendHashes(nil, g.records)) != s.Index.Digests[n] {
		return nil, fmt.Errorf("raw ids of chunk %d are not those of its digest", n)
	}
	return g, nil
}

// All are the ids of the list, for export and search. An error ends them.
func (s *Stored) All() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for n := range s.Index.Digests {
			g, err := s.load(n)
			if err != nil {
				yield("", err)
				return
			}
			for _, r := range g.records {
				if !yield(string(g.id(r)), nil) {
					return
				}
			}
		}
	}
}

// Contains says whether the list holds the id, which is in normal form.
func (s *Stored) Contains(id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	hi, lo := s.Key.sum(s.Of, id)
	g, err := s.load(s.Index.chunkOf(hi))
	if err != nil {
		return false, err
	}
	_, found := slices.BinarySearchFunc(g.records, record{hi: hi, lo: lo}, record.compare)
	return found, nil
}

// Rehash is the content of the same ids under another key, for a rotation.
func (s *Stored) Rehash(key Key) (*Content, error) {
	g := gather{key: key, of: s.Of}
	for id, err := range s.All() {
		if err != nil {
			return nil, err
		}
		g.add(id)
	}
	return g.content(s.Index.Bits), nil
}

// shared is how many ids of the list c holds too. Where both have the same
// chunk, nothing is read. A chunk without raw ids counts as replaced.
func (s *Stored) shared(c *Content) (int, error) {
	sameBits := c.blob.Bits == s.Index.Bits
	count := 0
	for n, digest := range s.Index.Digests {
		if sameBits && c.blob.Digests[n] == digest {
			count += len(c.chunk(n))
			continue
		}
		g, err := s.load(n)
		if errors.Is(err, ErrNoRaw) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, r := range g.records {
			if hi, lo := c.ids.key.sum(c.ids.of, string(g.id(r))); c.has(hi, lo) {
				count++
			}
		}
	}
	return count, nil
}
