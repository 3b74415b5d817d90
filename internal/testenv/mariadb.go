package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// startTimeout is how long a server may take until it answers. It is generous
// because CI machines share their disks.
const startTimeout = 60 * time.Second

// MariaDB returns the DSN of a new empty database, in the form of
// github.com/go-sql-driver/mysql. The database is dropped when the test ends.
// The server flushes every commit to disk, as it does in production.
func MariaDB(tb testing.TB) string {
	tb.Helper()
	s := shared()
	if !s.owned.Load() {
		tb.Fatal("nobody would stop the server\ntry: func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }")
	}
	server, err := s.mariadb()
	if err != nil {
		tb.Fatal(err)
	}
	name, err := server.create(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.exec(context.Background(), "DROP DATABASE "+name); err != nil {
			tb.Error(err)
		}
	})
	return server.dsn(name)
}

// mariaDB is one running server with its own data directory.
type mariaDB struct {
	dir, addr string
	proc      *process
	databases atomic.Int64 // made so far, for their names
}

// startMariaDB starts a server with the given options besides its own.
func startMariaDB(options ...string) (_ *mariaDB, err error) {
	// Not under the test's folder: a socket's path may have 107 bytes only.
	dir, err := os.MkdirTemp("", "dispatch-mariadb-")
	if err != nil {
		return nil, fmt.Errorf("start mariadb: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	args, err := prepareMariaDB(dir)
	if err != nil {
		return nil, err
	}
	for range 3 { // another process may take the free port first
		var db *mariaDB
		if db, err = launch(dir, append(args[:len(args):len(args)], options...)); err == nil {
			return db, nil
		}
	}
	return nil, err
}

// prepareMariaDB makes the data folder in dir and returns the command of its
// server, which still lacks a port.
func prepareMariaDB(dir string) (args []string, err error) {
	server, err := Lookup("mariadb")
	if err != nil {
		return nil, err
	}
	install, err := Lookup("mariadb-install")
	if err != nil {
		return nil, err
	}
	// A server that starts deletes the temporary tables that it finds: no two share a folder of them.
	tmp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, fmt.Errorf("prepare mariadb: %w", err)
	}
	data := []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--tmpdir=" + tmp}
	if os.Geteuid() == 0 {
		data = append(data, "--user=root") // the server refuses to be root unless told
	}
	setup := append(data[:len(data):len(data)], "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := exec.Command(install, setup...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("prepare mariadb: %w\n%s", err, out)
	}
	args = append([]string{server}, data...)
	return append(args, "--bind-address=127.0.0.1", "--socket="+filepath.Join(dir, "sock"), "--pid-file="+filepath.Join(dir, "pid"),
		"--skip-name-resolve", "--performance-schema=OFF", "--max-connections=300",
		"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=48M",
		"--key-buffer-size=1M", "--aria-pagecache-buffer-size=1M"), nil
}

func launch(dir string, args []string) (*mariaDB, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	logFile := filepath.Join(dir, "error.log")
	proc, err := run(exec.Command(args[0], append(args[1:len(args):len(args)], "--port="+port, "--log-error="+logFile)...))
	if err != nil {
		return nil, err
	}
	db := &mariaDB{dir: dir, addr: "127.0.0.1:" + port, proc: proc}
	if err := db.wait(); err != nil {
		text, _ := os.ReadFile(logFile) // a help for the reader only
		return nil, errors.Join(fmt.Errorf("start mariadb: %w\n%s", err, text), proc.stop(time.Second))
	}
	return db, nil
}

// wait returns when the server answers.
func (db *mariaDB) wait() error {
	return db.proc.wait("answer", func(ctx context.Context) bool { return db.exec(ctx, "DO 1") == nil })
}

func (db *mariaDB) create(ctx context.Context) (string, error) {
	name := fmt.Sprintf("test_%d", db.databases.Add(1))
	return name, db.exec(ctx, "CREATE DATABASE "+name)
}

// exec runs one statement on a connection of its own.
func (db *mariaDB) exec(ctx context.Context, query string) error {
	conn, err := sql.Open("mysql", db.dsn(""))
	if err != nil {
		return fmt.Errorf("mariadb: %w", err)
	}
	defer func() { _ = conn.Close() }() // the statement's own error says more
	if _, err := conn.ExecContext(ctx, query); err != nil {
		return fmt.Errorf("mariadb: %s: %w", query, err)
	}
	return nil
}

func (db *mariaDB) dsn(name string) string {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "tcp", db.addr, name
	cfg.Logger = &mysql.NopLogger{}
	return cfg.FormatDSN()
}

func (db *mariaDB) stop() error {
	return errors.Join(db.proc.stop(20*time.Second), os.RemoveAll(db.dir))
}
