package store

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

func TestSealedValueOpensOnlyWhole(t *testing.T) {
	s, err := newSealer(SealKeys{Current: key('c')})
	must(t, err)
	raw := []byte("d-1\nd-2")
	sealed, err := s.seal(digest("a"), raw)
	must(t, err)
	if got, err := s.open(digest("a"), sealed); err != nil || !bytes.Equal(got, raw) {
		t.Fatalf("open = %q, %v", got, err)
	}
	if _, err := s.open(digest("b"), sealed); err == nil {
		t.Error("opened under another digest")
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := s.open(digest("a"), bad); err == nil {
			t.Errorf("opened with byte %d changed", i)
		}
		if _, err := s.open(digest("a"), sealed[:i]); err == nil {
			t.Errorf("opened with %d bytes", i)
		}
	}
}

func TestSealKeyRotation(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			old := openTest(t, dsn, Options{Seal: SealKeys{Current: key('1')}})
			var list []whitelist.Blob
			for i := range 5 {
				b := fmt.Appendf(nil, "chunk %d", i)
				list = append(list, whitelist.Blob{Digest: digest(string(b)), Bytes: b, Raw: b})
			}
			must(t, old.PutBlobs(t.Context(), blobs(list...)))

			both := openTest(t, dsn, Options{Seal: SealKeys{Current: key('2'), Previous: key('1')}})
			for _, want := range []int{3, 2, 0} {
				if n, err := both.Reseal(t.Context(), 3); err != nil || n != want {
					t.Errorf("Reseal = %d, %v, want %d", n, err, want)
				}
			}
			fresh := openTest(t, dsn, Options{Seal: SealKeys{Current: key('2')}})
			for _, b := range list {
				if raw, err := fresh.Raw(t.Context(), b.Digest); err != nil || !bytes.Equal(raw, b.Raw) {
					t.Errorf("raw with the new key alone = %q, %v", raw, err)
				}
			}
			_, err := old.Raw(t.Context(), list[0].Digest)
			want(t, err, fault.Unavailable, "missing_seal_key")
		})
	}
}

// The order of DESIGN.md: while one process seals again, nodes with either key as
// the current one read and import, and nothing is ever unreadable to them.
func TestSealKeyRotationWhileServing(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			open := func(current, previous byte) *Store {
				return openTest(t, dsn, Options{Seal: SealKeys{Current: key(current), Previous: key(previous)}, Timeout: time.Minute})
			}
			nodes := []*Store{open('1', '2'), open('2', '1')}
			chunk := func(i int) whitelist.Blob {
				b := fmt.Appendf(nil, "chunk %d", i)
				return whitelist.Blob{Digest: digest(string(b)), Bytes: b, Raw: b}
			}
			for i := range 20 {
				must(t, nodes[0].PutBlobs(t.Context(), blobs(chunk(i))))
			}
			var group sync.WaitGroup
			for i, node := range nodes {
				group.Go(func() {
					for n := range 20 {
						if err := node.PutBlobs(t.Context(), blobs(chunk(100*(i+1)+n))); err != nil {
							t.Error(err)
						}
						if raw, err := node.Raw(t.Context(), chunk(n).Digest); err != nil || !bytes.Equal(raw, chunk(n).Raw) {
							t.Errorf("raw = %q, %v", raw, err)
						}
					}
				})
			}
			command := open('2', '1')
			for range 5 {
				if _, err := command.Reseal(t.Context(), 3); err != nil {
					t.Error(err)
				}
			}
			group.Wait()
			for again := true; again; {
				n, err := command.Reseal(t.Context(), 0)
				must(t, err)
				again = n > 0
			}
			fresh := openTest(t, dsn, Options{Seal: SealKeys{Current: key('2')}})
			for _, first := range []int{0, 100, 200} {
				for n := range 20 {
					if raw, err := fresh.Raw(t.Context(), chunk(first+n).Digest); err != nil || !bytes.Equal(raw, chunk(first+n).Raw) {
						t.Errorf("raw with the new key alone = %q, %v", raw, err)
					}
				}
			}
		})
	}
}

func TestRawIdsAreNotStoredWithoutAKey(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{})
	w := next(0, 1)
	w.Blobs = blobs(whitelist.Blob{Digest: digest("x"), Bytes: []byte("x"), Raw: []byte("d-1")})
	want(t, s.Append(t.Context(), w), fault.Unavailable, "missing_seal_key")
}
