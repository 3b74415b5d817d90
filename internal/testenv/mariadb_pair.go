package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// semiSync holds back the answer to a commit until the replica has it on its disk.
const semiSync = "SET GLOBAL rpl_semi_sync_master_enabled = ON"

// pairDatabase and pairUser are the same on both servers.
const (
	pairDatabase = "dispatch"
	pairUser     = "dispatch"
	pairPassword = "pair"
)

// Pair is two MariaDB servers with semi-synchronous replication: a commit is
// acknowledged after the replica has it. The test acts as their operator.
type Pair struct {
	tb      testing.TB
	proxy   *Proxy // what programs connect to
	link    *Proxy // what the replica connects to
	primary *mariaDB
	replica *mariaDB
}

// MariaDBPair starts a pair with an empty database. Both servers end with the test.
func MariaDBPair(tb testing.TB) *Pair {
	tb.Helper()
	p := &Pair{tb: tb}
	common := []string{"--log-bin=bin", "--sync-binlog=1", "--log-slave-updates", "--log-bin-trust-function-creators=1",
		// An operator who would rather lose a change than wait sets a short time-out; we do not.
		"--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=86400000"}
	p.primary = p.start(append(common, "--server-id=1")...)
	p.replica = p.start(append(common, "--server-id=2", "--read-only", "--rpl-semi-sync-slave-enabled")...)
	p.link, p.proxy = p.listen(p.primary.addr), p.listen(p.primary.addr)
	p.do(p.primary, "CREATE USER repl@127.0.0.1 IDENTIFIED BY 'repl'")
	p.do(p.primary, "GRANT REPLICATION SLAVE ON *.* TO repl@127.0.0.1")
	p.do(p.primary, "CREATE DATABASE "+pairDatabase)
	// Not root: read_only does not bind it.
	p.do(p.primary, fmt.Sprintf("CREATE USER %s@127.0.0.1 IDENTIFIED BY '%s'", pairUser, pairPassword))
	p.do(p.primary, fmt.Sprintf("GRANT ALL ON %s.* TO %s@127.0.0.1", pairDatabase, pairUser))
	_, port, err := net.SplitHostPort(p.link.Addr())
	p.check(err)
	p.do(p.replica, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = "+port+
		", MASTER_USER = 'repl', MASTER_PASSWORD = 'repl', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos")
	p.do(p.replica, "START SLAVE")
	p.until("the replica is connected", func(ctx context.Context) bool {
		var name string
		var clients int
		err := p.query(ctx, p.primary, "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'", &name, &clients)
		return err == nil && clients == 1
	})
	p.do(p.primary, semiSync)
	p.catchUp()
	return p
}

// DSN is the one address of the pair, for an account that read_only binds.
func (p *Pair) DSN() string { return pairDSN(p.proxy.Addr()) }

// ReplicaDSN is the address of the replica alone.
func (p *Pair) ReplicaDSN() string { return pairDSN(p.replica.addr) }

// Kill ends the primary with SIGKILL.
func (p *Pair) Kill() {
	p.tb.Helper()
	p.check(p.primary.proc.cmd.Process.Kill())
	<-p.primary.proc.done
}

// Demote makes the primary refuse writes, as an operator does before a planned
// switch. Connections to it stay open.
func (p *Pair) Demote() {
	p.tb.Helper()
	p.do(p.primary, "SET GLOBAL read_only = ON")
}

// Lag lets the replica go on receiving changes, and applying none of them.
func (p *Pair) Lag() {
	p.tb.Helper()
	p.catchUp()
	p.do(p.replica, "STOP SLAVE SQL_THREAD")
}

// Cut separates the two servers: from now on the replica receives nothing.
func (p *Pair) Cut() { p.link.Cut() }

// Promote makes the replica the primary after it has applied everything that it
// received, and moves the address of the pair to it.
func (p *Pair) Promote() {
	p.tb.Helper()
	p.do(p.replica, "START SLAVE SQL_THREAD")
	p.do(p.replica, "STOP SLAVE IO_THREAD")
	p.catchUp()
	p.do(p.replica, "STOP SLAVE")
	p.do(p.replica, "RESET SLAVE ALL")
	p.do(p.replica, "SET GLOBAL read_only = OFF")
	p.proxy.Point(p.replica.addr)
}

// catchUp waits until the replica has applied what it received.
func (p *Pair) catchUp() {
	p.tb.Helper()
	p.until("the replica has applied what it received", func(ctx context.Context) bool {
		status, err := p.slaveStatus(ctx)
		return err == nil && status["Slave_SQL_Running"] == "Yes" &&
			strings.HasPrefix(status["Slave_SQL_Running_State"], "Slave has read all relay log")
	})
}

func (p *Pair) slaveStatus(ctx context.Context) (map[string]string, error) {
	db, err := sql.Open("mysql", p.replica.dsn(""))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // nothing was written
	rows, err := db.QueryContext(ctx, "SHOW SLAVE STATUS")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err says more
	names, err := rows.Columns()
	if err != nil || !rows.Next() {
		return nil, errors.Join(err, rows.Err(), errors.New("no status"))
	}
	values := make([]sql.NullString, len(names))
	into := make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	status := map[string]string{}
	for i, name := range names {
		status[name] = values[i].String
	}
	return status, nil
}

func (p *Pair) start(options ...string) *mariaDB {
	p.tb.Helper()
	db, err := startMariaDB(options...)
	p.check(err)
	p.tb.Cleanup(func() {
		if err := db.stop(); err != nil {
			p.tb.Error(err)
		}
	})
	return db
}

func (p *Pair) listen(to string) *Proxy {
	p.tb.Helper()
	proxy, err := NewProxy(to)
	p.check(err)
	p.tb.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			p.tb.Error(err)
		}
	})
	return proxy
}

func (p *Pair) query(ctx context.Context, db *mariaDB, query string, into ...any) error {
	conn, err := sql.Open("mysql", db.dsn(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was written
	return conn.QueryRowContext(ctx, query).Scan(into...)
}

// until asks ten times a second.
func (p *Pair) until(what string, ok func(context.Context) bool) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tb.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			status, err := p.slaveStatus(context.WithoutCancel(ctx))
			p.tb.Fatalf("%s: not within %s (%v, %v)", what, startTimeout, status, err)
		}
	}
}

func (p *Pair) do(db *mariaDB, query string) {
	p.tb.Helper()
	p.check(db.exec(p.tb.Context(), query))
}

func (p *Pair) check(err error) {
	p.tb.Helper()
	if err != nil {
		p.tb.Fatal(err)
	}
}

func pairDSN(addr string) string {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName = pairUser, pairPassword, "tcp", addr, pairDatabase
	cfg.Logger = &mysql.NopLogger{}
	return cfg.FormatDSN()
}
