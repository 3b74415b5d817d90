package whitelist

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
)

func TestIndexBlobRoundTrip(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 5_000, 70_000} {
		want := contentOf(t, Device, numbered("d-", n)).Index()
		got, err := ParseIndexBlob(want.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got.KeyID != want.KeyID || got.Bits != want.Bits || got.Count != want.Count || !slices.Equal(got.Digests, want.Digests) {
			t.Errorf("%d ids: another blob came back", n)
		}
	}
}

func TestIndexBlobIsRefused(t *testing.T) {
	t.Parallel()
	good := string(contentOf(t, Device, numbered("d-", 5_000)).Index().Bytes())
	replace := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %s in %.60s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	digests := good[strings.Index(good, `"digests":"`)+len(`"digests":"`):]
	for name, data := range map[string]string{
		"nothing":           "",
		"null":              "null\n",
		"not JSON":          "hello",
		"cut off":           good[:len(good)/2],
		"no line end":       strings.TrimSpace(good),
		"more after it":     good + good,
		"spaces":            replace(`"bits":2`, `"bits": 2`),
		"unknown field":     replace(`"bits":2`, `"bits":2,"x":1`),
		"field twice":       replace(`"bits":2`, `"bits":2,"bits":2`),
		"upper-case field":  replace(`"bits":2`, `"Bits":2`),
		"no key":            replace(`"key":"k1"`, `"key":""`),
		"bits negative":     replace(`"bits":2`, `"bits":-2`),
		"bits huge":         replace(`"bits":2`, `"bits":64`),
		"bits do not fit":   replace(`"bits":2`, `"bits":1`),
		"count negative":    replace(`"count":5000`, `"count":-1`),
		"count too high":    replace(`"count":5000`, `"count":50000`),
		"count too low":     replace(`"count":5000`, `"count":5`),
		"count overflows":   replace(`"count":5000`, `"count":99999999999999999999`),
		"count as a float":  replace(`"count":5000`, `"count":5e3`),
		"digest missing":    replace(digests[:44], ""),
		"bits of a digest":  replace(digests[:4], ""),
		"digests no base64": replace(digests[:4], "!!!!"),
	} {
		if _, err := ParseIndexBlob([]byte(data)); err == nil {
			t.Errorf("%s was taken: %.80s", name, data)
		}
	}
}

func TestChunkIsRefused(t *testing.T) {
	t.Parallel()
	c := contentOf(t, Device, numbered("d-", 5_000))
	good, err := c.Chunk(1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Chunk(2)
	if err != nil {
		t.Fatal(err)
	}
	swapped := slices.Concat(good[16:32], good[:16], good[32:])
	for name, data := range map[string][]byte{
		"cut off":           good[:len(good)-1],
		"out of order":      swapped,
		"twice the same":    slices.Concat(good[:16], good),
		"of another prefix": other,
		"mixed prefixes":    slices.Concat(good, other),
		"longer than list":  bytes.Repeat(good, 5),
	} {
		x := *c.Index()
		x.Digests = slices.Clone(x.Digests)
		if _, err := ParseChunk(&x, 1, data); err == nil {
			t.Errorf("%s was taken against its digest", name)
		}
		x.Digests[1] = sha256.Sum256(data) // as if the publisher had signed it
		if _, err := ParseChunk(&x, 1, data); err == nil {
			t.Errorf("%s was taken with its digest", name)
		}
	}
	if _, err := ParseChunk(c.Index(), 1, good[16:]); err == nil || !strings.Contains(err.Error(), "is not") {
		t.Errorf("a chunk without its first hash: %v", err)
	}
	for _, n := range []int{-1, len(c.Index().Digests)} {
		if _, err := ParseChunk(c.Index(), n, good); err == nil {
			t.Errorf("chunk %d was taken", n)
		}
		if _, err := c.Chunk(n); err == nil {
			t.Errorf("chunk %d was given", n)
		}
	}
	if chunk, err := ParseChunk(c.Index(), 1, good); err != nil || chunk.Len() != len(good)/16 {
		t.Errorf("the right one: %v", err)
	}
}

func FuzzParseIndexBlob(f *testing.F) {
	for _, n := range []int{0, 10, 5_000} {
		f.Add(contentOf(f, Device, numbered("d-", n)).Index().Bytes())
	}
	f.Add([]byte(`{"key":"k","bits":0,"count":0,"digests":""}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ParseIndexBlob(data)
		if err == nil && (!bytes.Equal(x.Bytes(), data) || len(x.Digests) != 1<<x.Bits) {
			t.Errorf("%q has another encoding", data)
		}
	})
}

func FuzzParseChunk(f *testing.F) {
	c := contentOf(f, Device, numbered("d-", 3_000))
	for n := range c.Index().Digests {
		chunk, err := c.Chunk(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(n, chunk[:160])
	}
	f.Fuzz(func(t *testing.T, n int, data []byte) {
		x := &IndexBlob{KeyID: "k1", Bits: 1, Count: 3_000, Digests: make([][sha256.Size]byte, 2)}
		if n >= 0 && n < 2 {
			x.Digests[n] = sha256.Sum256(data)
		}
		chunk, err := ParseChunk(x, n, data)
		if err != nil {
			return
		}
		for i := range chunk.Len() {
			if int(chunk[i*16]>>7) != n || i > 0 && bytes.Compare(chunk[i*16-16:i*16], chunk[i*16:i*16+16]) >= 0 {
				t.Fatalf("hash %d of chunk %d stands wrong", i, n)
			}
		}
	})
}
