package store

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/migrations"
)

const (
	// maxConns per control node. Changes are serial and pages are few.
	maxConns = 16
	// connLife bounds how long a node keeps talking to a server that was demoted.
	connLife = 5 * time.Minute
	// connIdle closes what nobody uses before the server does, see waitTimeout.
	connIdle = 5 * time.Second
	// dialTimeout is for one connection; a caller's own deadline may be shorter.
	dialTimeout = 5 * time.Second
	// waitTimeout in seconds is when the server gives up a connection that says
	// nothing. A node that was cut off inside a change holds the end of the audit
	// chain for so long (the server's default is 8 hours).
	waitTimeout = "10"
	// lockTimeout in seconds is when the server gives up waiting for a lock whose
	// caller has long gone (the server's default is 50 s).
	lockTimeout = "3"
)

func (s *Store) openMySQL(ctx context.Context, dsn string) error {
	s.dialect = migrations.MySQL
	if s.fourEyesOff {
		return fault.New(fault.Invalid, "four_eyes", "four eyes can be off with SQLite only").
			WithHint("leave out --four-eyes off")
	}
	cfg, err := mysqlConfig(dsn, s.log)
	if err != nil {
		return err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return fault.New(fault.Invalid, "bad_dsn", "the MySQL DSN cannot be used").Because(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns / 2)
	db.SetConnMaxLifetime(connLife)
	db.SetConnMaxIdleTime(connIdle)
	g, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: db, SkipInitializeWithVersion: true}), s.gormConfig())
	if err != nil {
		_ = db.Close() // the first error says why
		return fmt.Errorf("open mysql: %w", err)
	}
	s.writer, s.reader = g, g
	// Under READ COMMITTED every statement sees what the lock on audit_head has
	// made final, and no gap is locked.
	s.writeTx = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	if err := db.PingContext(ctx); err != nil {
		return fault.New(fault.Unavailable, "store_unavailable", "mysql at %s cannot be used", cfg.Addr).Because(err).
			WithHint("is the server up, and are user, password and database of --db right?")
	}
	return nil
}

// mysqlConfig reads the DSN and sets what the store relies on. Errors do not
// repeat the DSN: it holds a password.
func mysqlConfig(dsn string, log *slog.Logger) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_dsn", "the MySQL DSN cannot be read").
			WithHint("mysql:USER:PASSWORD@tcp(HOST:3306)/DATABASE")
	}
	if cfg.DBName == "" {
		return nil, fault.New(fault.Invalid, "bad_dsn", "the MySQL DSN names no database").
			WithHint("mysql:USER:PASSWORD@tcp(HOST:3306)/DATABASE")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = dialTimeout
	}
	cfg.Collation = "utf8mb4_bin"
	cfg.ClientFoundRows = true  // count matched rows, as SQLite does
	cfg.RejectReadOnly = true   // after a failover, leave the server that was demoted
	cfg.MultiStatements = false // one text, one statement: nothing can be appended to it
	cfg.Logger = driverLog{log}
	params := map[string]string{"wait_timeout": waitTimeout, "innodb_lock_wait_timeout": lockTimeout}
	maps.Copy(params, cfg.Params)
	cfg.Params = params
	cfg.Params["sql_mode"] = "'TRADITIONAL'" // too long or out of range is an error, never cut
	return cfg, nil
}

// driverLog takes the driver's notes on broken connections, whose errors are
// returned as well.
type driverLog struct{ log *slog.Logger }

// Print logs at debug level.
func (l driverLog) Print(v ...any) { l.log.Debug("mysql driver", "note", fmt.Sprint(v...)) }
