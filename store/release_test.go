package store

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

type gormDB = gorm.DB

func TestAppendedReleaseComesBackByteForByte(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		approve(t, s, "a.example", "b.example")
		w := next(0, 1, "b.example", "a.example", "a.example")
		must(t, s.Append(t.Context(), w))
		for name, read := range map[string]func() (release.Signed, error){
			"Release": func() (release.Signed, error) { return s.Release(t.Context(), release.StreamEdge, 1) },
			"Latest":  func() (release.Signed, error) { return s.Latest(t.Context(), release.StreamEdge) },
		} {
			got, err := read()
			must(t, err)
			if !bytes.Equal(got.Manifest, w.Signed.Manifest) || got.Signature != w.Signed.Signature || got.Number != 1 ||
				got.Records.Seq != 1 || !bytes.Equal(got.Records.Bytes, w.Signed.Records.Bytes) || got.Records.Signature != "rsig" {
				t.Errorf("%s = %+v, want %+v", name, got, w.Signed)
			}
		}
		entries, err := s.Audit(t.Context(), ledger.AuditFilter{Stream: release.StreamEdge, Release: 1})
		must(t, err)
		if len(entries) != 1 || entries[0].Action != "publish" || string(entries[0].Details) != `{"b":1, "a":2}` {
			t.Errorf("audit of release 1 = %+v", entries)
		}
		verify(t, s)
	})
}

func TestStreamsHaveTheirOwnNumbers(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), next(0, 1)))
		w := ledger.Write{Change: ledger.Change{By: "ada", Action: "rules"}, Signed: release.Signed{Stream: "rules/sh", Number: 7,
			Manifest: []byte(`{"stream":"rules/sh","number":7}`)}}
		must(t, s.Append(t.Context(), w))
		for stream, want := range map[string]uint64{release.StreamEdge: 1, "rules/sh": 7, "rules/hf": 0, "RULES/SH": 0} {
			if head, err := s.Head(t.Context(), stream); err != nil || head != want {
				t.Errorf("Head(%s) = %d, %v, want %d", stream, head, err, want)
			}
		}
	})
}

func TestReadingWhatIsNotThere(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		_, err := s.Latest(t.Context(), release.StreamEdge)
		want(t, err, fault.NotFound, "no_release")
		_, err = s.Release(t.Context(), release.StreamEdge, 3)
		want(t, err, fault.NotFound, "unknown_release")
		_, err = s.Blob(t.Context(), digest("x"))
		want(t, err, fault.NotFound, "unknown_blob")
		_, err = s.Raw(t.Context(), digest("x"))
		want(t, err, fault.NotFound, "no_raw_ids")
	})
}

func TestAppendRefusesWithoutATrace(t *testing.T) {
	tests := []struct {
		name string
		edit func(*ledger.Write)
		kind fault.Kind
		code string
	}{
		{"stale base", func(w *ledger.Write) { w.Base = 3 }, fault.Conflict, "stale_base"},
		{"base above the head", func(w *ledger.Write) { *w = next(6, 7) }, fault.Conflict, "stale_base"},
		{"number not above the head", func(w *ledger.Write) { *w = next(5, 5) }, fault.Invalid, "bad_release"},
		{"number over 2^53", func(w *ledger.Write) { *w = next(5, 1<<53) }, fault.Invalid, "release_number"},
		{"number jumps", func(w *ledger.Write) { *w = next(5, 100_006) }, fault.Invalid, "number_jump"},
		{"manifest of another number", func(w *ledger.Write) { w.Signed.Manifest = next(5, 8).Signed.Manifest }, fault.Invalid, "bad_release"},
		{"manifest not JSON", func(w *ledger.Write) { w.Signed.Manifest = []byte("{") }, fault.Invalid, "bad_release"},
		{"records of another release", func(w *ledger.Write) { w.Signed.Records.Release = 5 }, fault.Invalid, "bad_release"},
		{"host never proposed", func(w *ledger.Write) { w.Hosts = []string{"evil.example"} }, fault.Denied, "unapproved_host"},
		{"host not approved", func(w *ledger.Write) { w.Hosts = []string{"good.example", "proposed.example"} }, fault.Denied, "unapproved_host"},
		{"nobody's change", func(w *ledger.Write) { w.Change.By = "" }, fault.Invalid, "bad_change"},
		{"blob under a wrong digest", func(w *ledger.Write) { w.Blobs = blobs(whitelist.Blob{Digest: digest("a"), Bytes: []byte("b")}) }, fault.Invalid, "blob_digest"},
	}
	each(t, func(t *testing.T, s *Store) {
		approve(t, s, "good.example")
		must(t, s.ProposeHost(t.Context(), "proposed.example", by("ada")))
		must(t, s.Append(t.Context(), next(0, 3)))
		must(t, s.Append(t.Context(), next(3, 5)))
		before := verify(t, s).Head
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				w := next(5, 6)
				test.edit(&w)
				want(t, s.Append(t.Context(), w), test.kind, test.code)
				if head, _ := s.Head(t.Context(), release.StreamEdge); head != 5 {
					t.Errorf("head = %d, want 5", head)
				}
				if after := verify(t, s).Head; after != before {
					t.Errorf("audit head moved from %d to %d", before.Seq, after.Seq)
				}
			})
		}
	})
}

func TestStaleBaseSaysTheHead(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), next(0, 1)))
		err := s.Append(t.Context(), next(0, 2))
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Data != (ledger.StaleBase{Base: 0, Head: 1}) {
			t.Errorf("error = %#v, want Data with head 1", err)
		}
	})
}

// A store that was restored from a backup takes the fleet's release, far ahead.
func TestAnEmptyStoreAdoptsAnyNumber(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), next(0, 3_000_000)))
		must(t, s.Append(t.Context(), next(3_000_000, 3_000_001)))
	})
}

func TestReleasesPageFromTheNewest(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for n := range uint64(5) {
			must(t, s.Append(t.Context(), next(n, n+1)))
		}
		var got []uint64
		for before := uint64(0); ; {
			page, err := s.Releases(t.Context(), release.StreamEdge, before, 2)
			must(t, err)
			if len(page) == 0 {
				break
			}
			for _, r := range page {
				got, before = append(got, r.Number), r.Number
				if r.Parent != r.Number-1 || r.By != "ada" || r.Action != "publish" || r.Created.IsZero() ||
					r.Digest != digest(string(next(0, r.Number).Signed.Manifest)) {
					t.Errorf("summary = %+v", r)
				}
			}
		}
		if !slices.Equal(got, []uint64{5, 4, 3, 2, 1}) {
			t.Errorf("numbers = %v", got)
		}
	})
}

func TestRenewalKeepsTheNumberAndRaisesSeq(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), next(0, 1)))
		for seq := uint64(2); seq <= 10; seq++ {
			r := release.RecordSet{Release: 1, Seq: seq, Bytes: fmt.Append(nil, seq), Signature: "s"}
			must(t, s.SaveRecords(t.Context(), release.StreamEdge, r, by("dispatch")))
			want(t, s.SaveRecords(t.Context(), release.StreamEdge, r, by("dispatch")), fault.Conflict, "stale_seq")
		}
		got, err := s.Latest(t.Context(), release.StreamEdge)
		must(t, err)
		if got.Number != 1 || got.Records.Seq != 10 || string(got.Records.Bytes) != "10" {
			t.Errorf("latest = %d with records %+v", got.Number, got.Records)
		}
		var kept int64
		must(t, s.reader.Model(&recordSetRow{}).Count(&kept).Error)
		if kept != recordSetsKept {
			t.Errorf("%d record sets are kept, want %d", kept, recordSetsKept)
		}
		err = s.SaveRecords(t.Context(), release.StreamEdge, release.RecordSet{Release: 9, Seq: 1, Bytes: []byte("x")}, by("dispatch"))
		want(t, err, fault.Invalid, "constraint")
		verify(t, s)
	})
}

func TestBlobsComeBackWhateverTheirSize(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		var list []whitelist.Blob
		for i, size := range []int{0, 1, partSize - 1, partSize, partSize + 1, 3*partSize + 5} {
			b := make([]byte, size)
			rand.Read(b)
			blob := whitelist.Blob{Digest: digest(string(b)), Bytes: b}
			if i%2 == 1 {
				blob.Raw = fmt.Appendf(nil, "id-%d\n你好", i)
			}
			list = append(list, blob, blob) // named twice in one write
		}
		list = append(list, whitelist.Blob{Digest: digest("raw is empty"), Bytes: []byte("raw is empty"), Raw: []byte{}})
		w := next(0, 1)
		w.Blobs = blobs(list...)
		must(t, s.Append(t.Context(), w))
		ask := []release.Digest{digest("absent")}
		for _, b := range list {
			ask = append(ask, b.Digest)
			got, err := s.Blob(t.Context(), b.Digest)
			must(t, err)
			if !bytes.Equal(got, b.Bytes) {
				t.Errorf("blob of %d bytes came back as %d bytes", len(b.Bytes), len(got))
			}
			raw, err := s.Raw(t.Context(), b.Digest)
			if b.Raw == nil {
				want(t, err, fault.NotFound, "no_raw_ids")
			} else if must(t, err); !bytes.Equal(raw, b.Raw) {
				t.Errorf("raw = %q, want %q", raw, b.Raw)
			}
		}
		missing, err := s.MissingBlobs(t.Context(), ask)
		must(t, err)
		if !slices.Equal(missing, ask[:1]) {
			t.Errorf("missing = %v, want the absent one only", missing)
		}
	})
}

// A chunk adopted from an edge has no raw ids; a later import brings them.
func TestRawIdsAreFilledInLater(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		b := whitelist.Blob{Digest: digest("chunk"), Bytes: []byte("chunk")}
		must(t, s.PutBlobs(t.Context(), blobs(b)))
		b.Raw = []byte("d-1")
		must(t, s.PutBlobs(t.Context(), blobs(b)))
		raw, err := s.Raw(t.Context(), b.Digest)
		if err != nil || string(raw) != "d-1" {
			t.Errorf("raw = %q, %v", raw, err)
		}
	})
}

func TestConcurrentStagingOfTheSameBlobs(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		var list []whitelist.Blob
		for i := range 300 {
			b := fmt.Appendf(nil, "chunk %d", i)
			list = append(list, whitelist.Blob{Digest: digest(string(b)), Bytes: b, Raw: b})
		}
		var group sync.WaitGroup
		for i := range 4 {
			mine := slices.Clone(list)
			if i%2 == 1 {
				slices.Reverse(mine)
			}
			group.Go(func() {
				if err := s.PutBlobs(t.Context(), blobs(mine...)); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for _, b := range list {
			if raw, err := s.Raw(t.Context(), b.Digest); err != nil || !bytes.Equal(raw, b.Raw) {
				t.Fatalf("raw = %q, %v", raw, err)
			}
		}
	})
}

// P17: exactly one of the concurrent publishes on one base wins, whichever
// control node they come from; the others are told the head.
func TestP17ConcurrentPublishesHaveOneWinner(t *testing.T) {
	rounds := figure(10, 1000)
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			nodes := []*Store{openTest(t, dsn, testOptions()), openTest(t, dsn, testOptions())}
			for round := range rounds {
				winners, losers := race(func(i int) error {
					return nodes[i%2].Append(t.Context(), next(round, round+1))
				})
				if winners != 1 {
					t.Errorf("round %d: %d winners, want 1", round, winners)
				}
				for _, err := range losers {
					e, ok := errors.AsType[*fault.Error](err)
					if !ok || e.Code != "stale_base" || e.Data != (ledger.StaleBase{Base: round, Head: round + 1}) {
						t.Errorf("loser's error = %v", err)
					}
				}
			}
			if head := verify(t, nodes[0]).Head.Seq; head != rounds {
				t.Errorf("%d audit rows, want %d", head, rounds)
			}
			// The same race without the comparison: a writer that makes whatever is
			// the head its base. This is what the test above must be able to see.
			winners, _ := race(func(i int) (err error) {
				for again := true; again; again = fault.CodeOf(err) == "stale_base" {
					var head uint64
					if head, err = nodes[i%2].Head(t.Context(), release.StreamEdge); err == nil {
						err = nodes[i%2].Append(t.Context(), next(head, head+1))
					}
				}
				return err
			})
			if winners < 2 {
				t.Errorf("without compare-and-set: %d winners, want several", winners)
			}
		})
	}
}

// race runs 50 writers at once.
func race(write func(i int) error) (winners int, losers []error) {
	var group sync.WaitGroup
	results := make([]error, 50)
	for i := range results {
		group.Go(func() { results[i] = write(i) })
	}
	group.Wait()
	for _, err := range results {
		if err == nil {
			winners++
		} else {
			losers = append(losers, err)
		}
	}
	return winners, losers
}
