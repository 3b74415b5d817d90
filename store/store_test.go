package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/migrations"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

var fullFigures = flag.Bool("full", false, "the full figures of the promises, which take an hour")

// figure is how often a test does what it does: less often in make check.
func figure(check, all uint64) uint64 {
	if *fullFigures {
		return all
	}
	return check
}

func TestMain(m *testing.M) {
	if dsn := os.Getenv(publisherEnv); dsn != "" {
		publishUntilKilled(dsn)
	}
	os.Exit(testenv.Main(m))
}

// each runs the test on both databases, each time on an empty one.
func each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, openTest(t, newDSN(t, kind), testOptions()))
		})
	}
}

// newDSN is the address of a new database with the newest schema.
func newDSN(tb testing.TB, kind string) string {
	tb.Helper()
	dsn := "sqlite:" + filepath.Join(tb.TempDir(), "a b?%", "dispatch.db")
	if kind == "mysql" {
		dsn = "mysql:" + testenv.MariaDB(tb)
	}
	if _, err := Migrate(tb.Context(), dsn); err != nil {
		tb.Fatal(err)
	}
	return dsn
}

func testOptions() Options {
	// The time-out has a test of its own; a busy machine must not fail the others.
	return Options{Seal: SealKeys{Current: key('c'), Previous: key('p')}, Timeout: time.Minute}
}

func key(b byte) []byte { return []byte(strings.Repeat(string(b), sealKeySize)) }

func openTest(tb testing.TB, dsn string, opt Options) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), dsn, opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

var _ release.Blobs = (*Store)(nil)

// clock is a time that the test moves.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.micros.Store(time.Date(2026, 9, 1, 8, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time           { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *clock) advance(by time.Duration) { c.micros.Add(by.Microseconds()) }

func by(who string) ledger.Change { return ledger.Change{By: who, Reason: "because"} }

// next is release n of stream edge on base, with records.
func next(base, n uint64, hosts ...string) ledger.Write {
	manifest := fmt.Appendf(nil, `{"stream":"edge","number":%d,"note":"\u00e9 é 你好"}`, n)
	return ledger.Write{
		Base: base,
		Signed: release.Signed{Stream: release.StreamEdge, Number: n, Manifest: manifest, Signature: fmt.Sprintf("sig-%d", n),
			Records: release.RecordSet{Release: n, Seq: 1, Bytes: []byte(`{"r":1}`), Signature: "rsig"}},
		Hosts:  hosts,
		Change: ledger.Change{By: "ada", Reason: "test", Action: "publish", Details: json.RawMessage(`{"b":1, "a":2}`)},
	}
}

func approve(t *testing.T, s *Store, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		must(t, s.ProposeHost(t.Context(), h, by("ada")))
		must(t, s.ApproveHost(t.Context(), h, by("bob")))
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// want fails unless err has the kind and code.
func want(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Errorf("error = %v (code %s), want code %s", err, fault.CodeOf(err), code)
	}
}

func verify(t *testing.T, s *Store) ledger.AuditCheck {
	t.Helper()
	check, err := s.VerifyAudit(t.Context())
	must(t, err)
	if check.Bad != 0 {
		t.Errorf("audit chain: %s", check.Problem)
	}
	return check
}

// exec runs raw SQL, as somebody would who goes around the store.
func rawSQL(s *Store, query string, args ...any) error {
	db, err := s.writer.DB()
	if err != nil {
		return err
	}
	_, err = db.Exec(query, args...)
	return translate(err)
}

func blobs(list ...whitelist.Blob) iter.Seq[whitelist.Blob] { return slices.Values(list) }

func digest(text string) release.Digest { return sha256.Sum256([]byte(text)) }

func TestOpenRefusesWhatItCannotUse(t *testing.T) {
	mysqlDSN := newDSN(t, "mysql")
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte(strings.Repeat("no database ", 1000)), 0o600))
	tests := []struct {
		name, dsn string
		opt       Options
		kind      fault.Kind
		code      string
	}{
		{"unknown kind", "postgres://x", Options{}, fault.Invalid, "bad_dsn"},
		{"nothing", "", Options{}, fault.Invalid, "bad_dsn"},
		{"sqlite without a file", "sqlite:", Options{}, fault.Invalid, "bad_dsn"},
		{"sqlite in memory", "sqlite::memory:", Options{}, fault.Invalid, "bad_dsn"},
		{"sqlite under a file", "sqlite:" + file + "/x.db", Options{}, fault.Unavailable, "store_unavailable"},
		{"sqlite on another file", "sqlite:" + file, Options{}, fault.Unavailable, "store_unavailable"},
		{"mysql unreadable", "mysql:secret@@@tcp(", Options{}, fault.Invalid, "bad_dsn"},
		{"mysql without a database", "mysql:root:secret@tcp(127.0.0.1:1)/", Options{}, fault.Invalid, "bad_dsn"},
		{"mysql nobody answers", "mysql:root:secret@tcp(127.0.0.1:1)/x", Options{}, fault.Unavailable, "store_unavailable"},
		{"mysql schema behind", "mysql:" + testenv.MariaDB(t), Options{}, fault.Unavailable, "schema_behind"},
		{"four eyes off with mysql", mysqlDSN, Options{FourEyesOff: true}, fault.Invalid, "four_eyes"},
		{"short seal key", "sqlite:" + file, Options{Seal: SealKeys{Current: []byte("short")}}, fault.Invalid, "bad_seal_key"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := Open(t.Context(), test.dsn, test.opt)
			if err == nil {
				_ = s.Close()
			}
			want(t, err, test.kind, test.code)
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats the DSN: %v", err)
			}
		})
	}
}

func TestSQLiteFileIsOurs(t *testing.T) {
	dsn := newDSN(t, "sqlite")
	openTest(t, dsn, Options{})
	file := strings.TrimPrefix(dsn, "sqlite:")
	for path, mode := range map[string]os.FileMode{file: 0o600, file + "-wal": 0o600, filepath.Dir(file): 0o700} {
		info, err := os.Stat(path)
		must(t, err)
		if got := info.Mode().Perm(); got != mode {
			t.Errorf("%s has mode %o, want %o", path, got, mode)
		}
	}
}

func TestSQLiteRunsWithTheSettingsItPromises(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{})
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000", "journal_size_limit": "67108864",
	} {
		var got string
		must(t, s.writer.Raw("PRAGMA "+pragma).Scan(&got).Error)
		if got != want {
			t.Errorf("%s = %s, want %s", pragma, got, want)
		}
	}
	if err := s.reader.Exec("DELETE FROM tokens").Error; err == nil {
		t.Error("the reading connections can write")
	}
}

func TestMySQLRunsWithTheSettingsItPromises(t *testing.T) {
	dsn := newDSN(t, "mysql")
	for name, test := range map[string]struct{ dsn, wait string }{
		"ours":               {dsn, "10"},
		"the operator's own": {dsn + "?wait_timeout=77", "77"},
	} {
		s := openTest(t, test.dsn, Options{})
		for variable, want := range map[string]string{
			"wait_timeout": test.wait, "innodb_lock_wait_timeout": "3", "collation_connection": "utf8mb4_bin",
		} {
			var got string
			must(t, s.writer.Raw("SELECT @@session."+variable).Scan(&got).Error)
			if got != want {
				t.Errorf("%s: %s = %s, want %s", name, variable, got, want)
			}
		}
	}
}

func TestCallersDeadlineEndsAWrite(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		held := make(chan struct{})
		release := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- s.change(context.Background(), &entry{Change: ledger.Change{By: "ada", Action: "hold"}}, func(*gormDB) error {
				close(held)
				<-release
				return nil
			})
		}()
		<-held
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		want(t, s.Append(ctx, next(0, 1)), fault.Unavailable, "store_timeout")
		close(release)
		must(t, <-done)
		must(t, s.Append(t.Context(), next(0, 1)))
		verify(t, s)
	})
}

func TestCallersDeadlineEndsAStatement(t *testing.T) {
	slow := map[migrations.Dialect]string{
		migrations.SQLite: "CREATE TEMP TABLE slow AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
		migrations.MySQL:  "DO SLEEP(60)",
	}
	each(t, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := s.write(ctx, func(tx *gormDB) error { return tx.Exec(slow[s.dialect]).Error })
		want(t, err, fault.Unavailable, "store_timeout")
		must(t, s.Append(t.Context(), next(0, 1)))
	})
}

// P15 at the store: a full disk fails the write, and freed space is enough.
func TestFullDiskFailsTheWriteAndNothingElse(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), testOptions())
	must(t, s.Append(t.Context(), next(0, 1)))
	var pages int
	must(t, s.writer.Raw("PRAGMA page_count").Scan(&pages).Error)
	setMax := func(n int) {
		var now int
		must(t, s.writer.Raw(fmt.Sprintf("PRAGMA max_page_count(%d)", n)).Scan(&now).Error)
	}
	setMax(pages)
	w := next(1, 2)
	w.Signed.Records.Bytes = make([]byte, 100_000)
	want(t, s.Append(t.Context(), w), fault.Unavailable, "store_full")
	if got, err := s.Latest(t.Context(), release.StreamEdge); err != nil || got.Number != 1 {
		t.Errorf("latest = %d, %v, want 1", got.Number, err)
	}
	setMax(1 << 30)
	must(t, s.Append(t.Context(), w))
	verify(t, s)
}

func TestFailedChangeLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		boom := errors.New("boom")
		err := s.change(t.Context(), &entry{Change: ledger.Change{By: "ada", Action: "x", Once: &ledger.Once{Key: "k"}}}, func(tx *gormDB) error {
			must(t, tx.Create(&hostRow{Host: "a.example", Proposer: "ada"}).Error)
			return boom
		})
		if !errors.Is(err, boom) {
			t.Errorf("error = %v, want boom", err)
		}
		hosts, err := s.Hosts(t.Context())
		must(t, err)
		_, found, err := s.Once(t.Context(), "ada", "k")
		must(t, err)
		if check := verify(t, s); len(hosts) > 0 || found || check.Head.Seq != 0 {
			t.Errorf("after a failed change: hosts %v, answer %v, audit head %d", hosts, found, check.Head.Seq)
		}
	})
}

func TestChangeListsAllThatIsWrongWithIt(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{})
	err := s.Record(t.Context(), ledger.Change{By: " ada", Reason: strings.Repeat("x", maxReason+1), Target: "\xff",
		Details: json.RawMessage("{"), Once: &ledger.Once{Key: "a\nb"}})
	want(t, err, fault.Invalid, "bad_change")
	var e *fault.Error
	if errors.As(err, &e) && len(e.Problems) != 6 {
		t.Errorf("problems = %v, want 6", e.Problems)
	}
}

func TestAnswerIsRememberedForADay(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			change := ledger.Change{By: "ada", Action: "x", Once: &ledger.Once{Key: "k", Request: digest("r"), Status: 201, Response: []byte("body")}}
			must(t, s.Record(t.Context(), change))
			want(t, s.Record(t.Context(), change), fault.Conflict, "idempotency_key_used")
			got, found, err := s.Once(t.Context(), "ada", "k")
			must(t, err)
			if !found || got.Status != 201 || string(got.Response) != "body" || got.Request != digest("r") {
				t.Errorf("Once = %+v, %v", got, found)
			}
			if _, found, _ := s.Once(t.Context(), "bob", "k"); found {
				t.Error("another actor sees the answer")
			}
			clock.advance(onceLife)
			if _, found, _ := s.Once(t.Context(), "ada", "k"); found {
				t.Error("the answer is there after a day")
			}
			must(t, s.Record(t.Context(), change))
		})
	}
}
