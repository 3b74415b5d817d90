package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"strings"

	"github.com/glebarez/go-sqlite"
	"github.com/go-sql-driver/mysql"

	"dispatch.example/dispatch/internal/fault"
)

// refusals are what the database itself refuses, by the name of the constraint
// or the message of the trigger in migrations. The methods check first and say
// more; these speak when a method is wrong or somebody went around it.
var refusals = []struct {
	in     string // found in the database's message
	kind   fault.Kind
	code   string
	detail string
}{
	{"stale_base", fault.Conflict, "stale_base", "the stream has moved on"},
	{"one_child", fault.Conflict, "stale_base", "the stream has moved on"},
	{"releases.parent", fault.Conflict, "stale_base", "the stream has moved on"},
	{"release_number", fault.Invalid, "release_number", "a release's number must be above its parent's and below 2^53"},
	{"number_jump", fault.Invalid, "number_jump", "a release's number is more than 100,000 above its parent's"},
	{"stale_seq", fault.Conflict, "stale_seq", "a record set with this or a higher seq is there"},
	{"unapproved_host", fault.Denied, "unapproved_host", "a host is not approved"},
	{"self_approval", fault.Denied, "self_approval", "nobody approves what they proposed"},
	{"four_eyes", fault.Denied, "self_approval", "nobody approves what they proposed"},
	{"host_approval", fault.Denied, "host_approval", "a host is proposed first, then approved once"},
	{"host_adoption", fault.Denied, "host_adoption", "a host is adopted with a release that is here"},
	{"rollout_step", fault.Denied, "rollout_step", "a release starts as a canary or everywhere; a canary becomes everywhere or superseded, once"},
	{"append_only", fault.Denied, "append_only", "history is not edited"},
	{"audit_chain", fault.Denied, "audit_chain", "an audit row must continue the chain"},
	{"account_goes_back", fault.Denied, "account_goes_back", "the step, revision and epoch of an account never fall"},
	{"one_login", fault.Conflict, "account_exists", "the login is taken"},
	{"accounts.folded", fault.Conflict, "account_exists", "the login is taken"},
	{"one_subject", fault.Conflict, "subject_taken", "the identity provider's subject has an account"},
	{"accounts.issuer", fault.Conflict, "subject_taken", "the identity provider's subject has an account"},
	{"idempotency", fault.Conflict, "idempotency_key_used", "the idempotency key has been used"},
}

// Error numbers of MySQL and MariaDB.
const (
	myDuplicate    = 1062
	myLockWait     = 1205
	myDeadlock     = 1213
	myParentRow    = 1451
	myChildRow     = 1452
	myTooLong      = 1406
	mySignal       = 1644
	myCheck        = 3819
	mariaCheck     = 4025
	myDiskFull     = 1021
	myTableFull    = 1114
	myTooManyConns = 1040
)

// Result codes of SQLite; an extended code has one of these in its low byte.
const (
	liteBusy       = 5
	liteLocked     = 6
	liteReadOnly   = 8
	liteIOErr      = 10
	liteCorrupt    = 11
	liteFull       = 13
	liteCantOpen   = 14
	liteConstraint = 19
	liteNotADB     = 26
)

// translate gives a driver's error the kind and code that a caller can act on.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Unavailable, "store_timeout", "the database did not answer in time").Because(err).
			WithHint("look at the database and its network, then try again; answers to apps go on")
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return translateMySQL(e, err)
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return translateSQLite(e, err)
	}
	_, network := errors.AsType[net.Error](err)
	if network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) {
		return unavailable(err)
	}
	return err
}

func translateMySQL(e *mysql.MySQLError, err error) error {
	switch e.Number {
	case myDuplicate, mySignal, myCheck, mariaCheck, myParentRow, myChildRow:
		return refused(e.Message, e.Number == myDuplicate, err)
	case myTooLong:
		return fault.New(fault.Invalid, "too_long", "a value is too long").Because(err)
	case myDeadlock, myLockWait:
		return fault.New(fault.Unavailable, "store_busy", "the database is busy with another change").Because(err).WithHint("try again")
	case myDiskFull, myTableFull:
		return full(err)
	case myTooManyConns:
		return unavailable(err)
	}
	return err
}

func translateSQLite(e *sqlite.Error, err error) error {
	switch e.Code() & 0xff {
	case liteConstraint:
		return refused(e.Error(), strings.Contains(e.Error(), "UNIQUE"), err)
	case liteBusy, liteLocked:
		return fault.New(fault.Unavailable, "store_busy", "the database is busy with another change").Because(err).WithHint("try again")
	case liteFull:
		return full(err)
	case liteReadOnly, liteIOErr, liteCantOpen, liteCorrupt, liteNotADB:
		return unavailable(err)
	}
	return err
}

func refused(message string, duplicate bool, err error) error {
	for _, r := range refusals {
		if strings.Contains(message, r.in) {
			return fault.New(r.kind, r.code, "%s", r.detail).Because(err)
		}
	}
	if duplicate {
		return fault.New(fault.Conflict, "duplicate", "this exists already").Because(err)
	}
	return fault.New(fault.Invalid, "constraint", "the database refused the value").Because(err)
}

func full(err error) error {
	return fault.New(fault.Unavailable, "store_full", "the database's disk is full").Because(err).
		WithHint("free space; nothing else has to be restarted")
}

func unavailable(err error) error {
	return fault.New(fault.Unavailable, "store_unavailable", "the database cannot be used now").Because(err).
		WithHint("bring it back, then try again; nothing else has to be restarted and answers to apps go on")
}

// retryable says whether the database undid the transaction to let another pass.
func retryable(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == myDeadlock || e.Number == myLockWait
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == liteBusy
}
