// Package migrations holds the schema as numbered SQL, one folder per dialect,
// and applies it.
//
// Only dispatch migrate runs Up on MySQL, under a lock that dies with its
// connection; serve asks Pending and refuses. A SQLite file belongs to one
// control node, which migrates it when it opens it. Steps go forward only:
// a version adds columns with defaults, a later one drops what nobody reads.
// A step that fails is run again by the next Up; the MySQL ones are written so
// that this is safe, the SQLite ones roll back.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/pressly/goose/v3"
)

// Dialect is one of the two databases.
type Dialect string

// The dialects; each is the name of its folder.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
)

// table is where goose notes what was applied.
const table = "schema_migrations"

// lockWait is how long Up waits for another migration, in seconds. A step that
// needs longer is run by hand, outside office hours.
const lockWait = 60

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// Up applies what is pending and returns the names of the applied files.
func Up(ctx context.Context, db *sql.DB, dialect Dialect) ([]string, error) {
	p, err := provider(db, dialect)
	if err != nil {
		return nil, err
	}
	for {
		before, err := Pending(ctx, db, dialect)
		if err != nil || len(before) == 0 {
			return nil, err
		}
		results, err := p.Up(ctx)
		if err == nil {
			return applied(results), nil
		}
		// Two processes that open one new SQLite file race here. The loser's step
		// has rolled back; if the winner's is there, nothing is wrong.
		after, perr := Pending(ctx, db, dialect)
		if perr != nil || len(after) >= len(before) {
			return nil, fmt.Errorf("migrate %s: %w", dialect, err)
		}
	}
}

// Pending returns the names of the files that Up would apply. It only reads.
// A schema newer than this program has nothing pending.
func Pending(ctx context.Context, db *sql.DB, dialect Dialect) ([]string, error) {
	p, err := provider(db, dialect)
	if err != nil {
		return nil, err
	}
	version, err := current(ctx, db, dialect)
	if err != nil {
		return nil, fmt.Errorf("read schema version: %w", err)
	}
	var names []string
	for _, s := range p.ListSources() {
		if s.Version > version {
			names = append(names, path.Base(s.Path))
		}
	}
	return names, nil
}

func provider(db *sql.DB, dialect Dialect) (*goose.Provider, error) {
	folder, err := fs.Sub(files, string(dialect))
	if err != nil {
		return nil, fmt.Errorf("migrations for %q: %w", dialect, err)
	}
	opts := []goose.ProviderOption{
		goose.WithTableName(table),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()),
	}
	var kind goose.Dialect
	switch dialect {
	case MySQL:
		kind = goose.DialectMySQL
		opts = append(opts, goose.WithSessionLocker(namedLock{}))
	case SQLite:
		kind = goose.DialectSQLite3
	default:
		return nil, fmt.Errorf("migrations for %q: unknown dialect", dialect)
	}
	p, err := goose.NewProvider(kind, db, folder, opts...)
	if err != nil {
		return nil, fmt.Errorf("migrations for %s: %w", dialect, err)
	}
	return p, nil
}

// current is the highest applied version, 0 for an empty database.
func current(ctx context.Context, db *sql.DB, dialect Dialect) (int64, error) {
	exists := "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
	if dialect == MySQL {
		exists = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"
	}
	var n, version int64
	if err := db.QueryRowContext(ctx, exists, table).Scan(&n); err != nil || n == 0 {
		return 0, err
	}
	err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM "+table+" WHERE is_applied").Scan(&version)
	return version, err
}

func applied(results []*goose.MigrationResult) []string {
	var names []string
	for _, r := range results {
		names = append(names, path.Base(r.Source.Path))
	}
	return names
}

// namedLock is a lock of the MySQL server. It is named by the database, because
// lock names are shared by all databases of a server.
type namedLock struct{}

const lockName = "CONCAT('dispatch-migrate-', MD5(DATABASE()))"

// SessionLock waits for the lock.
func (namedLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, (lockWait+5)*time.Second)
	defer cancel()
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", ?)", lockWait).Scan(&got); err != nil {
		return fmt.Errorf("lock migrations: %w", err)
	}
	if got.Int64 != 1 {
		return fmt.Errorf("lock migrations: another migration has run for over %d s", lockWait)
	}
	return nil
}

// SessionUnlock gives the lock back.
func (namedLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")"); err != nil {
		return fmt.Errorf("unlock migrations: %w", err)
	}
	return nil
}
