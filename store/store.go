// Package store keeps releases, hosts, tokens, accounts, working papers, signatures
// and the audit chain in SQLite or MySQL. Only the control plane has one; nothing
// that answers a request waits for it.
//
// Store is the whole API; directories use it as an Inner. Each exported method is one
// transaction, except that Append puts blobs in first, in small ones of their own, and
// counters, reports and records of picks come in batches. A method that changes
// something takes a Change and writes its audit row in the same transaction; what
// replicas, probers, browsers' sessions, instances and callers leave here changes
// nothing and has none. Row types, gorm and SQL stay in this package; errors that a
// caller can act on are *fault.Error with a stable code.
//
// Failure: a transaction is whole or absent, also after kill -9. An I/O error or
// a full disk fails the write and changes no mode. A deadlock is retried a few
// times. A database that does not answer fails each transaction after
// Options.Timeout. A lost connection at commit is reported as an error although the change
// may be there: Change.Once tells the two apart when the caller tries again.
//
// The package starts no goroutine; database/sql has its own, which Close ends.
// See DESIGN.md for the guards, the audit chain and the rights that the
// database account needs.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/migrations"
)

// Options are all optional.
type Options struct {
	Log         *slog.Logger     // slow statements and last-used failures; default: discard
	Seal        SealKeys         // for raw ids of lists and second factors; without them none can be stored
	FourEyesOff bool             // one person may approve their own; SQLite only
	Now         func() time.Time // default time.Now
	Timeout     time.Duration    // of one transaction; default 2.5 s
	PicksKept   time.Duration    // how long callers' records can be explained; default ledger.PicksKept
}

// timeout leaves half a second of the 3 s in which an operator is told that the
// database does not answer. A transaction takes milliseconds, a batch of an
// import about 100 ms. The limit is here and not on an action, because an import
// of millions of ids is hundreds of transactions and rightly takes seconds.
const timeout = 2500 * time.Millisecond

// Store is an open database. It is safe for concurrent use.
type Store struct {
	dialect     migrations.Dialect
	writer      *gorm.DB // SQLite: one connection
	reader      *gorm.DB // MySQL: the same as writer
	writeTx     *sql.TxOptions
	log         *slog.Logger
	seal        *sealer
	fourEyesOff bool
	now         func() time.Time
	timeout     time.Duration
	rollUp      atomic.Int64 // when AddCounts shall look for old minutes again
	picksKept   time.Duration
	dropPicks   atomic.Int64 // when SaveRecords shall look for old ones again
}

// Open opens sqlite:FILE or mysql:DSN, where DSN is as in github.com/go-sql-driver/mysql.
// A SQLite file is made and migrated. A MySQL schema that is behind is refused;
// Migrate brings it up to date.
func Open(ctx context.Context, dsn string, opt Options) (*Store, error) {
	s, err := open(ctx, dsn, opt)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := s.ready(ctx); err != nil {
		return nil, fmt.Errorf("open store: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// Migrate brings the schema up to date and returns the names of the steps taken.
func Migrate(ctx context.Context, dsn string) ([]string, error) {
	s, err := open(ctx, dsn, Options{})
	if err != nil {
		return nil, fmt.Errorf("migrate store: %w", err)
	}
	steps, err := s.migrate(ctx)
	if err := errors.Join(err, s.Close()); err != nil {
		return steps, fmt.Errorf("migrate store: %w", err)
	}
	return steps, nil
}

// Pending returns the names of the steps that Migrate would take.
func (s *Store) Pending(ctx context.Context) ([]string, error) {
	db, err := s.writer.DB()
	if err != nil {
		return nil, err
	}
	steps, err := migrations.Pending(ctx, db, s.dialect)
	return steps, translate(err)
}

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	db, err := s.reader.DB()
	if err != nil {
		return err
	}
	return translate(db.PingContext(ctx))
}

// Close ends all connections.
func (s *Store) Close() error {
	var errs []error
	for _, g := range []*gorm.DB{s.reader, s.writer} {
		if g == nil {
			continue
		}
		db, err := g.DB()
		if err == nil {
			err = db.Close() // twice the same on MySQL, which is allowed
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func open(ctx context.Context, dsn string, opt Options) (*Store, error) {
	seal, err := newSealer(opt.Seal)
	if err != nil {
		return nil, err
	}
	s := &Store{log: opt.Log, seal: seal, fourEyesOff: opt.FourEyesOff, now: opt.Now, timeout: opt.Timeout, picksKept: opt.PicksKept}
	if s.picksKept <= 0 {
		s.picksKept = ledger.PicksKept
	}
	if s.timeout <= 0 {
		s.timeout = timeout
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	kind, rest, _ := strings.Cut(dsn, ":")
	switch migrations.Dialect(kind) {
	case migrations.SQLite:
		err = s.openSQLite(ctx, rest)
	case migrations.MySQL:
		err = s.openMySQL(ctx, rest)
	default:
		// The DSN may hold a password: it is not repeated.
		return nil, fault.New(fault.Invalid, "bad_dsn", "unknown kind of database").
			WithHint("--db sqlite:FILE or --db mysql:USER:PASSWORD@tcp(HOST:3306)/DATABASE")
	}
	if err != nil {
		return nil, errors.Join(translate(err), s.Close())
	}
	return s, nil
}

// ready migrates a SQLite file, and refuses a MySQL schema that is behind.
func (s *Store) ready(ctx context.Context) error {
	if s.dialect == migrations.SQLite {
		_, err := s.migrate(ctx)
		return err
	}
	pending, err := s.Pending(ctx)
	if err == nil && len(pending) > 0 {
		err = fault.New(fault.Unavailable, "schema_behind", "the schema lacks %s", strings.Join(pending, ", ")).
			WithHint("dispatch migrate with the same --db")
	}
	return err
}

func (s *Store) migrate(ctx context.Context) ([]string, error) {
	db, err := s.writer.DB()
	if err != nil {
		return nil, err
	}
	steps, err := migrations.Up(ctx, db, s.dialect)
	return steps, translate(err)
}

// maxTries bounds the retries of a transaction that the database ended to
// resolve a deadlock. Changes are serial (see audit_head), so one is rare and
// two in a row are rarer.
const maxTries = 5

// write runs fn in a transaction that may write. fn may run more than once.
func (s *Store) write(ctx context.Context, fn func(tx *gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for try := 1; ; try++ {
		err := s.writer.WithContext(ctx).Transaction(fn, s.writeTx)
		if err == nil || try == maxTries || !retryable(err) {
			return translate(ended(ctx, err))
		}
		wait := time.NewTimer(time.Duration(try)*5*time.Millisecond + rand.N(10*time.Millisecond))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return translate(ctx.Err())
		}
	}
}

// view runs fn in a transaction that only reads and sees one state.
func (s *Store) view(ctx context.Context, fn func(tx *gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.reader.WithContext(ctx).Transaction(fn, &sql.TxOptions{ReadOnly: s.dialect == migrations.MySQL})
	return translate(ended(ctx, err))
}

// ended adds that the caller's time was over: SQLite says only "interrupted".
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// micros is how times are stored: exact and without a zone in both databases.
func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(n *int64) time.Time {
	if n == nil {
		return time.Time{}
	}
	return time.UnixMicro(*n).UTC()
}
