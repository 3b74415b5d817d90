package store

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/migrations"
)

// walLimit is the size in bytes to which the write-ahead log is cut after a
// checkpoint. SQLite checkpoints at 4 MB; only a long reader lets it grow past that.
const walLimit = 64 << 20

// openSQLite opens one connection that writes and a few that read. Writers wait
// for each other in Go, not in SQLite, so none of them sees "database is locked".
func (s *Store) openSQLite(ctx context.Context, file string) error {
	s.dialect = migrations.SQLite
	if file == "" || strings.HasPrefix(file, ":memory:") || strings.HasPrefix(file, "file:") {
		return fault.New(fault.Invalid, "bad_dsn", "sqlite needs the path of a file, not %q", file).
			WithHint("--db sqlite:data/dispatch.db")
	}
	if err := makeFile(file); err != nil {
		return err
	}
	var err error
	if s.writer, err = s.connectSQLite(file, "_txlock=immediate", 1); err != nil {
		return err
	}
	if s.reader, err = s.connectSQLite(file, "_pragma=query_only(1)", 4); err != nil {
		return err
	}
	var mode string
	if err := s.writer.WithContext(ctx).Raw("PRAGMA journal_mode").Scan(&mode).Error; err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	if mode != "wal" {
		return fault.New(fault.Unavailable, "store_unavailable", "%s is in journal mode %s, not wal", file, mode).
			WithHint("use a local disk: network file systems lack the shared memory that wal needs")
	}
	return nil
}

func (s *Store) connectSQLite(file, more string, connections int) (*gorm.DB, error) {
	query := strings.Join([]string{
		"_pragma=busy_timeout(5000)",
		"_pragma=journal_mode(wal)",
		fmt.Sprintf("_pragma=journal_size_limit(%d)", walLimit),
		"_pragma=synchronous(full)", // a change that was acknowledged survives a power cut
		"_pragma=foreign_keys(1)",
		more,
	}, "&")
	path := (&url.URL{Path: filepath.ToSlash(file)}).EscapedPath()
	db, err := sql.Open(sqlite.DriverName, "file:"+path+"?"+query)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	g, err := gorm.Open(&sqlite.Dialector{Conn: db}, s.gormConfig())
	if err != nil {
		_ = db.Close() // the first error says why
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	return g, nil
}

// makeFile makes the file and its folder, readable by us alone; SQLite gives its
// other files the same mode.
func makeFile(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fault.New(fault.Unavailable, "store_unavailable", "cannot make the folder of %s", file).Because(err)
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fault.New(fault.Unavailable, "store_unavailable", "cannot open %s", file).Because(err)
	}
	return f.Close()
}
