package testenv

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A harness that is no test starts its servers by these. Each keeps its files in
// dir and its address over a restart; none runs yet.

// ControlMariaDB prepares a server that has one empty database and keeps its
// data over a restart. dir must be short: a socket's path may have 107 bytes.
func ControlMariaDB(dir string) (c *Control, dsn string, err error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, "", err
	}
	args, err := prepareMariaDB(dir)
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.Logger = "root", "tcp", addr, &mysql.NopLogger{}
	server := cfg.FormatDSN()
	cfg.DBName = "dispatch"
	up := func(ctx context.Context) error {
		db, err := sql.Open("mysql", server)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }() // the statement's own error says more
		_, err = db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+cfg.DBName)
		return err
	}
	return &Control{Name: "mariadb", Args: append(args, "--port="+port), Log: filepath.Join(dir, "log"), Up: up}, cfg.FormatDSN(), nil
}

// ControlRedis prepares a server that forgets everything at its end.
func ControlRedis(dir string) (c *Control, addr string, err error) {
	server, err := Lookup("redis")
	if err != nil {
		return nil, "", err
	}
	if addr, err = FreeAddr(); err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", err
	}
	r := &Redis{Addr: addr}
	up := func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(limited, "tcp", addr)
		if err != nil { // the library would print it
			return err
		}
		_ = conn.Close() // nothing was sent
		_, err = r.Do(limited, "PING")
		return err
	}
	return &Control{Name: "redis", Args: []string{server, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"},
		Log: filepath.Join(dir, "log"), Up: up}, addr, nil
}

// ControlConsul prepares an agent that is a server of its own and forgets
// everything at its end.
func ControlConsul(dir string) (c *Control, addr string, err error) {
	a := &ConsulAgent{dir: dir}
	if a.binary, err = Lookup("consul"); err != nil {
		return nil, "", err
	}
	if err := a.configure(); err != nil {
		return nil, "", err
	}
	up := func(ctx context.Context) error {
		if !a.hasLeader(ctx) {
			return fmt.Errorf("agent %s has no leader", a.Addr)
		}
		return nil
	}
	return &Control{Name: "consul", Args: append([]string{a.binary}, a.args...), Log: filepath.Join(dir, "log"), Up: up, Rude: true}, a.Addr, nil
}

// Answers is an Up that wants a 200 from url.
func Answers(url string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(limited, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		transport := &http.Transport{DisableKeepAlives: true} // leaves no goroutine behind
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close() // only its status is asked for
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: status %d", url, resp.StatusCode)
		}
		return nil
	}
}
