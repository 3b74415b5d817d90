package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

type auditRow struct {
	Seq     int64   `gorm:"column:seq;primaryKey;autoIncrement:false"`
	At      int64   `gorm:"column:at"`
	Actor   string  `gorm:"column:actor"`
	Action  string  `gorm:"column:action"`
	Target  string  `gorm:"column:target"`
	Reason  string  `gorm:"column:reason"`
	Details string  `gorm:"column:details"`
	Stream  *string `gorm:"column:stream"`
	Number  *int64  `gorm:"column:number"`
	Prev    []byte  `gorm:"column:prev"`
	Hash    []byte  `gorm:"column:hash"`
}

// TableName is the table's name.
func (auditRow) TableName() string { return "audit" }

type auditHeadRow struct {
	ID   int    `gorm:"column:id;primaryKey;autoIncrement:false"`
	Seq  int64  `gorm:"column:seq"`
	Hash []byte `gorm:"column:hash"`
}

// TableName is the table's name.
func (auditHeadRow) TableName() string { return "audit_head" }

// Record writes an audit row for what changes nothing here: a sign-in, an
// override on an edge, a look-up of a person's route.
func (s *Store) Record(ctx context.Context, c ledger.Change) error {
	return s.change(ctx, &entry{Change: c}, func(*gorm.DB) error { return nil })
}

// Audit returns rows, newest first: by their time, and rows of one time by seq. It
// finds their numbers in an index that has all the filter's columns, and looks at
// the rows that it shows only.
func (s *Store) Audit(ctx context.Context, f ledger.AuditFilter) ([]ledger.AuditEntry, error) {
	var rows []auditRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		rows = nil
		found, err := searchAudit(f, tx)
		if err != nil {
			return err
		}
		var seqs []int64
		if err := found.Pluck("seq", &seqs).Error; err != nil || len(seqs) == 0 {
			return err
		}
		return tx.Where("seq IN ?", seqs).Order("at DESC, seq DESC").Find(&rows).Error
	})
	entries := make([]ledger.AuditEntry, len(rows))
	for i, r := range rows {
		entries[i] = r.entry()
	}
	return entries, err
}

// searchAudit is the query for the numbers of the rows.
func searchAudit(f ledger.AuditFilter, tx *gorm.DB) (*gorm.DB, error) {
	equal := auditRow{Actor: f.Actor, Action: f.Action, Target: f.Target} // gorm leaves out what is empty
	if f.Stream != "" {
		equal.Stream = &f.Stream
	}
	if f.Release > 0 {
		number := int64(f.Release)
		equal.Number = &number
	}
	found := tx.Model(&auditRow{}).Where(&equal)
	if !f.Since.IsZero() {
		found = found.Where("at >= ?", micros(f.Since))
	}
	if !f.Until.IsZero() {
		found = found.Where("at < ?", micros(f.Until))
	}
	if f.Before > 0 {
		var at []int64
		if err := tx.Model(&auditRow{}).Where("seq = ?", f.Before).Pluck("at", &at).Error; err != nil {
			return nil, err
		}
		if len(at) > 0 {
			found = found.Where("at <= ? AND (at < ? OR seq < ?)", at[0], at[0], f.Before)
		}
	}
	return found.Order("at DESC, seq DESC").Limit(limit(f.Limit)), nil
}

// AuditHead returns the end of the chain.
func (s *Store) AuditHead(ctx context.Context) (ledger.AuditHead, error) {
	var row auditHeadRow
	err := s.view(ctx, func(tx *gorm.DB) error { return tx.Take(&row).Error })
	if err != nil {
		return ledger.AuditHead{}, err
	}
	return row.head(), nil
}

// verifyBatch rows are read at a time; a row with its details is about 1 KB.
const verifyBatch = 1000

// VerifyAudit walks the whole chain and names the first bad row. known are heads
// that were kept outside; only they can show that the tail was cut or that
// everything was rewritten. Each batch is a transaction of its own: rows that
// were read do not change, and no long reader makes SQLite's log grow.
func (s *Store) VerifyAudit(ctx context.Context, known ...ledger.AuditHead) (ledger.AuditCheck, error) {
	kept := make(map[uint64]release.Digest, len(known))
	for _, h := range known {
		kept[h.Seq] = h.Hash
	}
	delete(kept, 0) // nothing is before the first row
	var check ledger.AuditCheck
	for done := false; !done; {
		err := s.view(ctx, func(tx *gorm.DB) (err error) {
			done, err = verifyNext(tx, &check, kept)
			return err
		})
		if err != nil {
			return ledger.AuditCheck{}, err
		}
	}
	return check, nil
}

// verifyNext goes on behind check.Head, and says whether that was all.
func verifyNext(tx *gorm.DB, check *ledger.AuditCheck, kept map[uint64]release.Digest) (done bool, err error) {
	var rows []auditRow
	if err := tx.Where("seq > ?", check.Head.Seq).Order("seq").Limit(verifyBatch).Find(&rows).Error; err != nil {
		return false, err
	}
	for _, r := range rows {
		if check.Problem = verifyRow(r, check.Head, kept); check.Problem != "" {
			check.Bad = check.Head.Seq + 1
			return true, nil
		}
		check.Head = ledger.AuditHead{Seq: uint64(r.Seq), Hash: release.Digest(r.Hash)}
	}
	if len(rows) == verifyBatch {
		return false, nil
	}
	var end auditHeadRow
	if err := tx.Take(&end).Error; err != nil {
		return false, err
	}
	checkEnd(check, end.head(), kept)
	return true, nil
}

// verifyRow says what is wrong with the row that should follow head.
func verifyRow(r auditRow, head ledger.AuditHead, kept map[uint64]release.Digest) string {
	next := head.Seq + 1
	if uint64(r.Seq) != next {
		return fmt.Sprintf("row %d is missing", next)
	}
	if len(r.Hash) != sha256.Size || release.Digest(r.Hash) != r.sum(head.Hash) || string(r.Prev) != string(head.Hash[:]) {
		return fmt.Sprintf("row %d was edited or moved", next)
	}
	if hash, ok := kept[next]; ok && hash != release.Digest(r.Hash) {
		return fmt.Sprintf("row %d is not the one whose hash was kept outside: it or a row before it was rewritten", next)
	}
	return ""
}

// checkEnd compares the last row with the heads that should be there.
func checkEnd(c *ledger.AuditCheck, end ledger.AuditHead, kept map[uint64]release.Digest) {
	last := end.Seq
	for seq := range kept {
		last = max(last, seq)
	}
	switch {
	case last > c.Head.Seq:
		c.Bad, c.Problem = c.Head.Seq+1, fmt.Sprintf("rows %d to %d were cut off", c.Head.Seq+1, last)
	case end != c.Head:
		c.Bad, c.Problem = c.Head.Seq, "audit_head is not the end of the chain"
	}
}

// lockAuditHead makes this the only change until the transaction ends.
func lockAuditHead(tx *gorm.DB) (ledger.AuditHead, error) {
	var row auditHeadRow
	if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).Take(&row).Error; err != nil {
		return ledger.AuditHead{}, fmt.Errorf("lock audit head: %w", err)
	}
	return row.head(), nil
}

// appendAudit writes the row; a trigger moves the head.
func appendAudit(tx *gorm.DB, head ledger.AuditHead, c *entry, now time.Time) error {
	row := auditRow{Seq: int64(head.Seq + 1), At: micros(now), Actor: c.By, Action: c.Action, Target: c.Target,
		Reason: c.Reason, Details: string(c.Details), Prev: head.Hash[:]}
	if c.stream != "" {
		number := int64(c.number)
		row.Stream, row.Number = &c.stream, &number
	}
	sum := row.sum(head.Hash)
	row.Hash = sum[:]
	if err := tx.Create(&row).Error; err != nil {
		return fmt.Errorf("write audit row %d: %w", row.Seq, err)
	}
	return nil
}

// sum is the row's hash: SHA-256 over a tag, the hash before, and each field
// with its length, so that no two rows have the same bytes.
func (r auditRow) sum(prev release.Digest) release.Digest {
	var stream, number string
	if r.Stream != nil {
		stream = *r.Stream
	}
	if r.Number != nil {
		number = strconv.FormatInt(*r.Number, 10)
	}
	h := sha256.New()
	for _, field := range []string{"dispatch-audit-1", string(prev[:]), strconv.FormatInt(r.Seq, 10),
		strconv.FormatInt(r.At, 10), r.Actor, r.Action, r.Target, r.Reason, r.Details, stream, number} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(field)))
		h.Write(size[:])
		h.Write([]byte(field))
	}
	return release.Digest(h.Sum(nil))
}

func (r auditRow) entry() ledger.AuditEntry {
	e := ledger.AuditEntry{Seq: uint64(r.Seq), At: fromMicros(&r.At), Actor: r.Actor, Action: r.Action, Target: r.Target,
		Reason: r.Reason, Details: json.RawMessage(r.Details)}
	copy(e.Hash[:], r.Hash)
	if r.Stream != nil {
		e.Stream = *r.Stream
	}
	if r.Number != nil {
		e.Release = uint64(*r.Number)
	}
	return e
}

func (r auditHeadRow) head() ledger.AuditHead {
	h := ledger.AuditHead{Seq: uint64(r.Seq)}
	copy(h.Hash[:], r.Hash)
	return h
}

// limit is a page's size.
func limit(n int) int {
	if n <= 0 {
		return 100
	}
	return min(n, 1000)
}

func notFound(code, format string, args ...any) error {
	return fault.New(fault.NotFound, code, format, args...)
}
