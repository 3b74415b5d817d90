package store

import (
	"fmt"
	"strings"
	"testing"

	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// BenchmarkImport1M is a list of 1,000,000 ids from text to disk: parsed,
// hashed, sealed, written and flushed. The promise is 10 s.
func BenchmarkImport1M(b *testing.B) {
	const ids = 1_000_000
	var text strings.Builder
	for i := range ids {
		fmt.Fprintf(&text, "device-%016x\n", uint64(i)*0x9e3779b97f4a7c15)
	}
	normal, err := whitelist.NewNormalizer(nil, false)
	must(b, err)
	for _, kind := range []string{"sqlite", "mysql"} {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				s := openTest(b, newDSN(b, kind), testOptions())
				listKey, err := whitelist.NewKey("k1", key('l')[:16])
				must(b, err)
				b.StartTimer()
				report, content, err := whitelist.Import(strings.NewReader(text.String()),
					whitelist.ImportOptions{Key: listKey, Of: whitelist.Device, IDs: normal})
				must(b, err)
				if report.IDs != ids {
					b.Fatalf("%d ids, want %d", report.IDs, ids)
				}
				w := next(0, 1)
				w.Blobs = content.Blobs()
				must(b, s.Append(b.Context(), w))
				for d := range content.Blobs() { // none of them is only in memory
					if _, err := s.Raw(b.Context(), release.Digest(d.Digest)); err != nil {
						b.Fatal(err)
					}
					break
				}
			}
			b.ReportMetric(float64(b.Elapsed().Seconds())/float64(b.N), "s/import")
		})
	}
}

// BenchmarkAppend is one swap: a release without new blobs.
func BenchmarkAppend(b *testing.B) {
	for _, kind := range []string{"sqlite", "mysql"} {
		b.Run(kind, func(b *testing.B) {
			s := openTest(b, newDSN(b, kind), testOptions())
			n := uint64(0)
			for b.Loop() {
				must(b, s.Append(b.Context(), next(n, n+1)))
				n++
			}
		})
	}
}
