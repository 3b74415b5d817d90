package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/migrations"
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

// trailStart is when the trail of fillAudit begins; it has a row every minute.
var trailStart = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// fillAudit writes 10^digits rows as somebody would who goes around the store. Half
// of them are by the program itself, a few are by people who came once.
func fillAudit(tb testing.TB, s *Store, digits int) {
	tb.Helper()
	dropGuards(tb, s)
	var sum, from []string
	factor := 1
	for i := range digits {
		sum = append(sum, fmt.Sprintf("%d * d%d.d", factor, i))
		from = append(from, fmt.Sprintf("(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4"+
			" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) d%d", i))
		factor *= 10
	}
	slices.Reverse(from) // the last digit turns fastest
	const insert = `INSERT INTO audit (seq, at, actor, action, target, reason, details, stream, number, prev, hash)
		SELECT 1 + i, %START% + 60000000 * i,
			CASE WHEN i % 2 = 0 THEN 'dispatch' WHEN i % 9973 = 1 THEN 'rare' ELSE CONCAT('person-', i * 7919 % 40) END,
			CASE WHEN i % 2 = 0 THEN 'renew' WHEN i % 9967 = 3 THEN 'swap' ELSE CONCAT('action-', i * 31 % 20) END,
			CONCAT('list-', i * 7 % 5000), 'because of a ticket', '{"before":{"state":"on","share":500},"after":{"state":"off","share":0}}',
			CASE WHEN i % 500 = 0 THEN 'edge' END, CASE WHEN i % 500 = 0 THEN i + 1 END, %HASH%, %HASH%
		FROM (SELECT %SUM% AS i FROM %FROM%) n ORDER BY i`
	restore := dropIndexes(tb, s)
	must(tb, rawSQL(s, fillIn(insert, "%START%", fmt.Sprint(micros(trailStart)), "%HASH%", "x'"+digest("x").String()+"'",
		"%SUM%", strings.Join(sum, " + "), "%FROM%", strings.Join(from, ", "))))
	restore()
	if s.dialect == migrations.MySQL {
		must(tb, rawSQL(s, "ANALYZE TABLE audit"))
	}
}

// dropIndexes lets many rows in quickly: an index over rows that are there is made
// in a fraction of the time.
func dropIndexes(tb testing.TB, s *Store) (restore func()) {
	tb.Helper()
	query, drop, add := "SELECT name, sql AS made FROM sqlite_master WHERE type = 'index' AND tbl_name = 'audit' AND sql IS NOT NULL", "DROP INDEX ", ""
	if s.dialect == migrations.MySQL {
		query, drop, add = `SELECT index_name AS name, CONCAT('ADD KEY ', index_name, ' (', GROUP_CONCAT(column_name ORDER BY seq_in_index), ')') AS made
			FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'audit' AND index_name <> 'PRIMARY'
			GROUP BY index_name`, "ALTER TABLE audit DROP KEY ", "ALTER TABLE audit "
	}
	var indexes []struct{ Name, Made string }
	must(tb, s.writer.Raw(query).Scan(&indexes).Error)
	for _, index := range indexes {
		must(tb, rawSQL(s, drop+index.Name))
	}
	return func() {
		for _, index := range indexes {
			must(tb, rawSQL(s, add+index.Made))
		}
	}
}

// searches are what people ask the trail of fillAudit, and the index that each needs.
func searches(digits int) []struct {
	name, index string
	filter      ledger.AuditFilter
} {
	rows := 1
	for range digits {
		rows *= 10
	}
	middle := trailStart.Add(time.Duration(rows/2) * time.Minute)
	return []struct {
		name, index string
		filter      ledger.AuditFilter
	}{
		{"all", "audit_at", ledger.AuditFilter{}},
		{"actor", "audit_actor", ledger.AuditFilter{Actor: "person-3"}},
		{"rare actor", "audit_actor", ledger.AuditFilter{Actor: "rare"}},
		{"action", "audit_action", ledger.AuditFilter{Action: "renew"}},
		{"target", "audit_target", ledger.AuditFilter{Target: "list-42"}},
		{"release", "audit_", ledger.AuditFilter{Stream: "edge", Release: uint64(rows/2 + 1)}},
		{"release of any stream", "audit_number", ledger.AuditFilter{Release: uint64(rows/2 + 1)}},
		{"stream", "audit_stream", ledger.AuditFilter{Stream: "edge", Until: middle}},
		{"day in the middle", "audit_at", ledger.AuditFilter{Since: middle, Until: middle.AddDate(0, 0, 1)}},
		{"actor up to the middle", "audit_actor", ledger.AuditFilter{Actor: "dispatch", Until: middle}},
		{"actor since the start", "audit_actor", ledger.AuditFilter{Actor: "person-3", Since: trailStart}},
		{"page in the middle", "audit_at", ledger.AuditFilter{Before: uint64(rows / 2)}},
		{"actor's page in the middle", "audit_actor", ledger.AuditFilter{Actor: "dispatch", Before: uint64(rows / 2)}},
		{"actor who never did it", "", ledger.AuditFilter{Actor: "dispatch", Action: "swap"}},
		{"action that nobody did to it", "", ledger.AuditFilter{Action: "renew", Target: "list-7", Since: trailStart}},
		{"all three", "", ledger.AuditFilter{Actor: "person-7", Action: "action-9", Target: "list-7"}},
	}
}

// BenchmarkAuditSearch searches 1,000,000 rows. The promise is 300 ms for a page of
// 100. The last metric is the slowest of all searches.
func BenchmarkAuditSearch(b *testing.B) {
	const digits = 6
	for _, kind := range []string{"sqlite", "mysql"} {
		b.Run(kind, func(b *testing.B) {
			s := openTest(b, newDSN(b, kind), testOptions())
			start := time.Now()
			fillAudit(b, s, digits)
			b.Logf("%s: 1,000,000 rows made in %v", kind, time.Since(start).Round(time.Second))
			for _, search := range searches(digits) {
				b.Run(search.name, func(b *testing.B) {
					var slowest time.Duration
					for b.Loop() {
						start := time.Now()
						if _, err := s.Audit(b.Context(), search.filter); err != nil {
							b.Fatal(err)
						}
						slowest = max(slowest, time.Since(start))
					}
					b.ReportMetric(float64(slowest.Microseconds())/1000, "ms/slowest")
				})
			}
		})
	}
}

// The promise of BenchmarkAuditSearch, held by what makes it true: each search reads
// an index that has all it asks for, in the order of the answer, and no row.
func TestAuditIsSearchedInAnIndex(t *testing.T) {
	const digits = 4
	each(t, func(t *testing.T, s *Store) {
		fillAudit(t, s, digits)
		for _, search := range searches(digits) {
			got := searchPlan(t, s, search.filter)
			if !strings.Contains(got, search.index) {
				t.Errorf("%s: plan = %s, want index %s", search.name, got, search.index)
			}
			if search.name == "release" {
				continue // a handful of rows, by either of two indexes
			}
			covering, sorted := "Using index", "filesort"
			if s.dialect == migrations.SQLite {
				covering, sorted = "COVERING INDEX", "TEMP B-TREE"
			}
			if !strings.Contains(got, covering) || strings.Contains(got, sorted) {
				t.Errorf("%s: plan = %s, want %q and no %q", search.name, got, covering, sorted)
			}
		}
	})
}

func searchPlan(t *testing.T, s *Store, f ledger.AuditFilter) string {
	t.Helper()
	found, err := searchAudit(f, s.reader)
	must(t, err)
	var seqs []int64
	dry := found.Session(&gorm.Session{DryRun: true}).Pluck("seq", &seqs).Statement
	return plan(t, s, dry.SQL.String(), dry.Vars...)
}

// A release list of 2,000 is shown, and what of it nobody reviewed, without reading
// them all.
func TestReleasesAreListedByAnIndex(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		const rows = 2000
		must(t, rawSQL(s, "DROP TRIGGER releases_insert"))
		for first := 1; first <= rows; first += 500 {
			var values []string
			for n := first; n < first+500; n++ {
				action := map[bool]string{true: "swap", false: "publish"}[n%100 == 0]
				values = append(values, fmt.Sprintf("('edge', %d, %d, %d, '%s', 'ada', '', x'%s', x'7b7d', '')", n, n-1, n, action, digest(fmt.Sprint(n))))
			}
			must(t, rawSQL(s, "INSERT INTO releases (stream, number, parent, created, action, actor, reason, digest, manifest, signature) VALUES "+
				strings.Join(values, ", ")))
		}
		if s.dialect == migrations.MySQL {
			must(t, rawSQL(s, "ANALYZE TABLE releases"))
		}
		start := time.Now()
		list, err := s.Releases(t.Context(), release.StreamEdge, 0, 1000)
		must(t, err)
		unreviewed, err := s.Unreviewed(t.Context(), release.StreamEdge, time.Time{}, []string{"swap"})
		must(t, err)
		t.Logf("2,000 releases: a page of 1,000 and what nobody reviewed took %v", time.Since(start).Round(time.Millisecond))
		if len(list) != 1000 || list[0].Number != rows || len(unreviewed) != rows/100 {
			t.Errorf("%d releases and %d unreviewed", len(list), len(unreviewed))
		}
		got := plan(t, s, "SELECT number FROM releases WHERE stream = 'edge' AND action IN ('swap') AND created >= 5 ORDER BY number DESC")
		if !strings.Contains(got, "releases_action") {
			t.Errorf("plan = %s, want index releases_action", got)
		}
	})
}
