package migrations

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/glebarez/go-sqlite"
	_ "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// databases opens an empty database of each dialect; the function opens it once more.
func databases(t *testing.T) map[Dialect]func() *sql.DB {
	t.Helper()
	open := func(driver, dsn string) func() *sql.DB {
		return func() *sql.DB {
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return db
		}
	}
	file := filepath.Join(t.TempDir(), "test.db")
	return map[Dialect]func() *sql.DB{
		SQLite: open("sqlite", "file:"+file+"?_pragma=busy_timeout(20000)&_txlock=immediate"),
		MySQL:  open("mysql", testenv.MariaDB(t)),
	}
}

func TestUpAppliesWhatIsPendingOnce(t *testing.T) {
	for dialect, open := range databases(t) {
		t.Run(string(dialect), func(t *testing.T) {
			db := open()
			pending, err := Pending(t.Context(), db, dialect)
			if err != nil || !slices.Contains(pending, "0001_start.sql") {
				t.Fatalf("Pending of an empty database = %v, %v", pending, err)
			}
			applied, err := Up(t.Context(), db, dialect)
			if err != nil || !slices.Equal(applied, pending) {
				t.Fatalf("Up = %v, %v, want %v", applied, err, pending)
			}
			for range 2 {
				if applied, err := Up(t.Context(), db, dialect); err != nil || len(applied) != 0 {
					t.Errorf("Up again = %v, %v, want nothing", applied, err)
				}
			}
			if pending, err := Pending(t.Context(), db, dialect); err != nil || len(pending) != 0 {
				t.Errorf("Pending after Up = %v, %v, want nothing", pending, err)
			}
		})
	}
}

// Pending must not need the right to create a table: serve asks it with an
// account that has none.
func TestPendingWritesNothing(t *testing.T) {
	for dialect, open := range databases(t) {
		t.Run(string(dialect), func(t *testing.T) {
			db := open()
			if _, err := Pending(t.Context(), db, dialect); err != nil {
				t.Fatal(err)
			}
			count := "SELECT COUNT(*) FROM sqlite_master"
			if dialect == MySQL {
				count = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
			}
			var n int
			if err := db.QueryRow(count).Scan(&n); err != nil || n != 0 {
				t.Errorf("tables after Pending = %d, %v, want 0", n, err)
			}
		})
	}
}

func TestConcurrentUpsAllSucceed(t *testing.T) {
	for dialect, open := range databases(t) {
		t.Run(string(dialect), func(t *testing.T) {
			var group errgroup.Group
			for range 4 {
				db := open()
				group.Go(func() error { _, err := Up(t.Context(), db, dialect); return err })
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A MySQL run that died leaves the statements it had reached; the next one must
// be able to pass over them.
func TestMySQLStepsCanBeRunAgain(t *testing.T) {
	db := databases(t)[MySQL]()
	if _, err := Up(t.Context(), db, MySQL); err != nil {
		t.Fatal(err)
	}
	before := schema(t, db)
	if _, err := db.Exec("DELETE FROM " + table + " WHERE version_id > 0"); err != nil {
		t.Fatal(err)
	}
	if applied, err := Up(t.Context(), db, MySQL); err != nil || len(applied) == 0 {
		t.Fatalf("Up over an unrecorded schema = %v, %v", applied, err)
	}
	if after := schema(t, db); after != before {
		t.Errorf("schema after the second run:\n%s\nwant\n%s", after, before)
	}
}

func schema(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.Query(`SELECT CONCAT(table_name, '.', column_name, ' ', column_type, ' ', COALESCE(collation_name, '')) AS line
		FROM information_schema.columns WHERE table_schema = DATABASE()
		UNION ALL SELECT CONCAT(trigger_name, ' ', action_statement) FROM information_schema.triggers WHERE trigger_schema = DATABASE()
		UNION ALL SELECT CONCAT(table_name, '/', index_name, ' ', seq_in_index, ' ', column_name)
			FROM information_schema.statistics WHERE table_schema = DATABASE()
		ORDER BY line`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		b.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A database of the version before has releases; after the step each is everywhere.
func TestReleasesFromBeforeRolloutsAreEverywhere(t *testing.T) {
	for dialect, open := range databases(t) {
		t.Run(string(dialect), func(t *testing.T) {
			db := open()
			p, err := provider(db, dialect)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.UpTo(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			for n := range 3 {
				_, err := db.Exec(`INSERT INTO releases (stream, number, parent, created, action, actor, reason, digest, manifest, signature)
					VALUES ('edge', ?, ?, 5, 'publish', 'ada', '', ?, ?, '')`, n+1, n, make([]byte, 32), []byte("{}"))
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.Exec("INSERT INTO hosts (host, proposer, proposed, reason) VALUES ('a.example', 'ada', 1, '')"); err != nil {
				t.Fatal(err)
			}
			if _, err := Up(t.Context(), db, dialect); err != nil {
				t.Fatal(err)
			}
			for query, want := range map[string]int{
				"SELECT COUNT(*) FROM rollouts WHERE state = 'everywhere' AND canary = '' AND started = 5 AND ended = 5": 3,
				"SELECT COUNT(*) FROM hosts WHERE adopted_stream IS NULL AND adopted_number IS NULL":                     1,
			} {
				var n int
				if err := db.QueryRow(query).Scan(&n); err != nil || n != want {
					t.Errorf("%s = %d, %v, want %d", query, n, err, want)
				}
			}
			// A node of the version before goes on: it approves the host and adds a release.
			for _, query := range []string{
				"UPDATE hosts SET approver = 'bob', approved = 2 WHERE host = 'a.example'",
				"INSERT INTO releases SELECT stream, 4, 3, created, action, actor, reason, digest, manifest, signature FROM releases WHERE number = 3",
				"INSERT INTO release_hosts VALUES ('edge', 4, 'a.example')",
			} {
				if _, err := db.Exec(query); err != nil {
					t.Errorf("%s: %v", query, err)
				}
			}
		})
	}
}

// A database of the version before the console has releases, a host and an audit
// trail. They stay as they are, and a node of that version goes on.
func TestConsoleComesToADatabaseWithData(t *testing.T) {
	row := func(n int) string {
		return fmt.Sprintf(`INSERT INTO audit (seq, at, actor, action, target, reason, details, prev, hash)
			VALUES (%d, %d, 'ada', 'publish', 'é', '', '{"b":1, "a":2}', x'%064x', x'%064x')`, n, n, n-1, n)
	}
	const all = "SELECT COUNT(*), SUM(at), MAX(actor), MAX(target), MAX(details), MAX(hash) FROM audit WHERE seq <= 20"
	read := func(t *testing.T, db *sql.DB) string {
		t.Helper()
		var n, at int64
		var actor, target, details string
		var hash []byte
		if err := db.QueryRow(all).Scan(&n, &at, &actor, &target, &details, &hash); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(n, at, actor, target, details, hash)
	}
	for dialect, open := range databases(t) {
		t.Run(string(dialect), func(t *testing.T) {
			db := open()
			p, err := provider(db, dialect)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.UpTo(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			old := func(n int) []string {
				return []string{
					fmt.Sprintf(`INSERT INTO releases (stream, number, parent, created, action, actor, reason, digest, manifest, signature)
						VALUES ('edge', %d, %d, 5, 'publish', 'ada', '', x'%064x', x'7b7d', '')`, n, n-1, n),
					fmt.Sprintf("INSERT INTO rollouts (stream, number, state, canary, started, ended) VALUES ('edge', %d, 'everywhere', '', 5, 5)", n),
					fmt.Sprintf("INSERT INTO hosts (host, proposer, proposed, reason) VALUES ('h%d.example', 'ada', 1, '')", n),
					row(n),
				}
			}
			exec := func(statements []string) {
				t.Helper()
				for _, query := range statements {
					if _, err := db.Exec(query); err != nil {
						t.Fatalf("%s: %v", query, err)
					}
				}
			}
			for n := range 20 {
				exec(old(n + 1))
			}
			before := read(t, db)
			if steps, err := Up(t.Context(), db, dialect); err != nil || !slices.Contains(steps, "0003_console.sql") {
				t.Fatalf("Up = %v, %v", steps, err)
			}
			if after := read(t, db); after != before {
				t.Errorf("audit = %s, want %s", after, before)
			}
			exec(old(21))
			for query, want := range map[string]int{
				"SELECT COUNT(*) FROM releases":                                         21,
				"SELECT COUNT(*) FROM audit":                                            21,
				"SELECT COUNT(*) FROM accounts":                                         0,
				"SELECT COUNT(*) FROM counter_line WHERE id = 1 AND minute = 0":         1,
				"SELECT COUNT(*) FROM audit WHERE actor = 'ada' AND at BETWEEN 3 AND 5": 3,
			} {
				var n int
				if err := db.QueryRow(query).Scan(&n); err != nil || n != want {
					t.Errorf("%s = %d, %v, want %d", query, n, err, want)
				}
			}
			if _, err := db.Exec("UPDATE audit SET actor = 'eve'"); err == nil {
				t.Error("the trail can be edited after the step")
			}
		})
	}
}

// Keys of different case must be different rows.
func TestMySQLTextIsBinary(t *testing.T) {
	db := databases(t)[MySQL]()
	if _, err := Up(t.Context(), db, MySQL); err != nil {
		t.Fatal(err)
	}
	var column string
	err := db.QueryRow(`SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name <> ? AND collation_name <> 'utf8mb4_bin' LIMIT 1`, table).Scan(&column)
	if err != sql.ErrNoRows {
		t.Errorf("column %s is not utf8mb4_bin (%v)", column, err)
	}
}

// Both dialects must offer the store the same tables and columns, and each the
// same names of guards, which the store translates.
func TestDialectsHaveTheSameTablesAndColumns(t *testing.T) {
	columns := map[Dialect]string{
		SQLite: `SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'`,
		MySQL:  `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE()`,
	}
	got := map[Dialect][]string{}
	for dialect, open := range databases(t) {
		db := open()
		if _, err := Up(t.Context(), db, dialect); err != nil {
			t.Fatal(err)
		}
		rows, err := db.Query(columns[dialect])
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var tab, col string
			if err := rows.Scan(&tab, &col); err != nil {
				t.Fatal(err)
			}
			got[dialect] = append(got[dialect], tab+"."+col)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got[dialect])
	}
	if !slices.Equal(got[SQLite], got[MySQL]) {
		t.Errorf("columns differ:\nsqlite %v\nmysql  %v", got[SQLite], got[MySQL])
	}
}

func TestEveryNumberExistsInBothDialects(t *testing.T) {
	names := func(dialect Dialect) string {
		found, err := fs.Glob(files, string(dialect)+"/*.sql")
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(fmt.Sprint(found), string(dialect)+"/", "")
	}
	if a, b := names(SQLite), names(MySQL); a != b {
		t.Errorf("files differ:\nsqlite %s\nmysql  %s", a, b)
	}
}

func TestUnknownDialectIsAnError(t *testing.T) {
	if _, err := Up(t.Context(), nil, "postgres"); err == nil {
		t.Error("Up on an unknown dialect succeeded")
	}
}
