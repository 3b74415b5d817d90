package testenv

import (
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	one, two := open(t, MariaDB(t)), open(t, MariaDB(t))
	if _, err := one.Exec("CREATE TABLE t (a INT)"); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Exec("INSERT INTO t VALUES (1)"); err == nil {
		t.Error("the second database has the first one's table")
	}
}

func TestServerListensOnLoopbackOnly(t *testing.T) {
	var addr string
	if err := open(t, MariaDB(t)).QueryRow("SELECT @@bind_address").Scan(&addr); err != nil {
		t.Fatal(err)
	}
	if addr != "127.0.0.1" {
		t.Errorf("bind_address = %q", addr)
	}
}

func TestStopEndsTheProcessAndItsFolder(t *testing.T) {
	db, err := startMariaDB()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.stop(); err != nil {
		t.Error(err)
	}
	if err := db.proc.cmd.Process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after stop: %v, want process done", err)
	}
	if _, err := os.Stat(db.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder after stop: %v, want none", err)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	cmd := exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do :; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := run(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the trap is set
		t.Error(err)
	}
	if err := p.stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "killed after") {
		t.Errorf("stop = %v, want killed", err)
	}
	select {
	case <-p.done:
	default:
		t.Error("the process still runs")
	}
}

func TestMissingProgramSaysHowToInstallIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := Program{Name: "x", Bins: []string{"no-such-server"}}
	if got := p.Find(); got != "" {
		t.Errorf("Find = %q", got)
	}
	if _, err := Lookup("no-such-name"); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("Lookup = %v", err)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
