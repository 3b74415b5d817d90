package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Limits in characters; the columns of migrations/mysql have the same.
const (
	maxName   = 200
	maxAction = 64
	maxTarget = 300
	maxReason = 2000
	maxStream = 100
	maxHost   = 253
)

// entry is a Change on its way to the audit chain, with the release that it makes or renews.
type entry struct {
	ledger.Change
	stream string
	number uint64
}

// change runs fn and writes the audit row, or does nothing. It first locks the
// end of the audit chain, so changes are serial in the whole cluster and fn sees
// the newest state. fn may run more than once and may set c.Target.
func (s *Store) change(ctx context.Context, c *entry, fn func(tx *gorm.DB) error) error {
	if len(c.Details) == 0 {
		c.Details = json.RawMessage("{}")
	}
	if err := c.check(); err != nil {
		return err
	}
	return s.write(ctx, func(tx *gorm.DB) error {
		head, err := lockAuditHead(tx)
		if err != nil {
			return err
		}
		if c.Once != nil {
			if err := s.remember(tx, c.By, *c.Once); err != nil {
				return err
			}
		}
		if err := fn(tx); err != nil {
			return err
		}
		return appendAudit(tx, head, c, s.now())
	})
}

func (c *entry) check() error {
	var p fault.Problems
	checkText(&p, "by", c.By, maxName)
	checkText(&p, "action", c.Action, maxAction)
	if utf8.RuneCountInString(c.Target) > maxTarget || !utf8.ValidString(c.Target) {
		p.Addf("target", "over %d characters or not UTF-8", maxTarget)
	}
	if utf8.RuneCountInString(c.Reason) > maxReason || !utf8.ValidString(c.Reason) {
		p.Addf("reason", "over %d characters or not UTF-8", maxReason)
	}
	if !json.Valid(c.Details) || !utf8.Valid(c.Details) {
		p.Addf("details", "not JSON")
	}
	if c.Once != nil {
		checkText(&p, "idempotency_key", c.Once.Key, maxName)
	}
	return p.Err("bad_change", "the change cannot be recorded")
}

// checkText accepts what is one value to both databases and to a reader: MySQL
// takes "a " and "a" for the same key, and people take them for the same name.
func checkText(p *fault.Problems, path, text string, limit int) {
	switch {
	case text == "":
		p.Addf(path, "empty")
	case utf8.RuneCountInString(text) > limit:
		p.Addf(path, "over %d characters", limit)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		p.Addf(path, "not UTF-8 or a control character in it")
	case strings.TrimSpace(text) != text:
		p.Addf(path, "space around it")
	}
}

// onceLife is how long an answer is remembered. Callers try again within
// minutes; a day covers a pipeline that is restarted by hand.
const onceLife = 24 * time.Hour

type onceRow struct {
	Actor    string `gorm:"column:actor"`
	Key      string `gorm:"column:idem_key"`
	Request  []byte `gorm:"column:request"`
	Status   int    `gorm:"column:status"`
	Response []byte `gorm:"column:response"`
	Created  int64  `gorm:"column:created"`
}

// TableName is the table's name.
func (onceRow) TableName() string { return "idempotency" }

// Once returns what was answered to the actor's write with this key.
func (s *Store) Once(ctx context.Context, actor, key string) (once ledger.Once, found bool, err error) {
	var rows []onceRow
	err = s.view(ctx, func(tx *gorm.DB) error {
		return tx.Where("actor = ? AND idem_key = ? AND created > ?", actor, key, micros(s.now().Add(-onceLife))).Find(&rows).Error
	})
	if err != nil || len(rows) == 0 {
		return ledger.Once{}, false, err
	}
	r := rows[0]
	return ledger.Once{Key: r.Key, Request: release.Digest(r.Request), Status: r.Status, Response: r.Response}, true, nil
}

// remember notes the answer, after it dropped what is too old.
func (s *Store) remember(tx *gorm.DB, actor string, o ledger.Once) error {
	now := s.now()
	if err := tx.Where("created <= ?", micros(now.Add(-onceLife))).Delete(&onceRow{}).Error; err != nil {
		return err
	}
	var n int64
	if err := tx.Model(&onceRow{}).Where("actor = ? AND idem_key = ?", actor, o.Key).Count(&n).Error; err != nil {
		return err
	}
	if n > 0 {
		return fault.New(fault.Conflict, "idempotency_key_used", "the idempotency key has been used")
	}
	response := o.Response
	if response == nil {
		response = []byte{}
	}
	return tx.Create(&onceRow{Actor: actor, Key: o.Key, Request: o.Request[:], Status: o.Status,
		Response: response, Created: micros(now)}).Error
}
