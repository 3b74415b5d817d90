package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/migrations"
)

const (
	// countsBatch rows are written or moved by one transaction: some 20 ms.
	countsBatch = 1000
	// countsAhead is how far a replica's clock may be before ours.
	countsAhead = time.Hour
	maxEndpoint = 300
)

// sumRow is what was counted from a minute on: in the table counter_hours in an hour, of all replicas together.
type sumRow struct {
	Minute   int64  `gorm:"column:minute;primaryKey;autoIncrement:false"`
	ID       []byte `gorm:"column:id;primaryKey"`
	App      string `gorm:"column:app"`
	Region   string `gorm:"column:region"`
	Endpoint string `gorm:"column:endpoint"`
	Policy   string `gorm:"column:policy"`
	Reason   string `gorm:"column:reason"`
	Number   int64  `gorm:"column:number"`
	N        int64  `gorm:"column:n"`
}

// TableName is the table's name.
func (sumRow) TableName() string { return "counter_hours" }

// counterRow is what one replica counted in a minute.
type counterRow struct {
	Replica string `gorm:"column:replica"`
	Boot    string `gorm:"column:boot"`
	Sum     sumRow `gorm:"embedded"`
}

// TableName is the table's name.
func (counterRow) TableName() string { return "counters" }

// AddCounts keeps what a replica counted; a minute that came before is replaced by
// the larger number. A minute whose hour is summed up already is dropped: it may be
// in the sum. Once in a while it moves a batch of old minutes on, see RollUpCounts.
func (s *Store) AddCounts(ctx context.Context, c ledger.Counts) error {
	rows, err := s.counterRows(c)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(rows, countsBatch) {
		if err := s.write(ctx, func(tx *gorm.DB) error { return s.addCounts(tx, batch) }); err != nil {
			return fmt.Errorf("add counts of %s: %w", c.Replica, err)
		}
	}
	s.rollUpInPassing(ctx)
	return nil
}

func (s *Store) addCounts(tx *gorm.DB, rows []counterRow) error {
	line, err := s.countsLine(tx, "LOCK IN SHARE MODE")
	if err != nil {
		return err
	}
	first, _ := slices.BinarySearchFunc(rows, line, func(r counterRow, line int64) int { return cmp.Compare(r.Sum.Minute, line) })
	if rows = rows[first:]; len(rows) == 0 {
		return nil
	}
	larger := map[migrations.Dialect]string{migrations.SQLite: "MAX(n, excluded.n)", migrations.MySQL: "GREATEST(n, VALUES(n))"}
	return tx.Clauses(s.addingTo(larger)).Create(&rows).Error
}

// counterRows are checked and in the order of their keys: two control nodes that
// write the same ones then wait for each other and never in a circle.
func (s *Store) counterRows(c ledger.Counts) ([]counterRow, error) {
	var p fault.Problems
	checkText(&p, "replica", c.Replica, maxName)
	checkText(&p, "boot", c.Boot, maxName)
	rows := make([]counterRow, len(c.Counts))
	latest := s.now().Add(countsAhead)
	for i, n := range c.Counts {
		if n.Minute.After(latest) {
			p.Addf(fmt.Sprintf("counts[%d].minute", i), "%s is in the future: is the replica's clock right?", n.Minute.UTC().Format(time.RFC3339))
		}
		for name, text := range map[string]string{"app": n.App, "region": n.Region, "policy": n.Policy, "reason": n.Reason} {
			if text != "" {
				checkText(&p, fmt.Sprintf("counts[%d].%s", i, name), text, maxName)
			}
		}
		if n.Endpoint != "" {
			checkText(&p, fmt.Sprintf("counts[%d].endpoint", i), n.Endpoint, maxEndpoint)
		}
		sum := sumRow{Minute: micros(n.Minute.Truncate(time.Minute)),
			App: n.App, Region: n.Region, Endpoint: n.Endpoint, Policy: n.Policy, Reason: n.Reason, Number: int64(n.Release), N: int64(n.N)}
		sum.ID = sum.key(c.Replica, c.Boot)
		rows[i] = counterRow{Replica: c.Replica, Boot: c.Boot, Sum: sum}
	}
	slices.SortFunc(rows, func(a, b counterRow) int {
		return cmp.Or(cmp.Compare(a.Sum.Minute, b.Sum.Minute), bytes.Compare(a.Sum.ID, b.Sum.ID))
	})
	return rows, p.Err("bad_counts", "the counts cannot be stored")
}

// key is a hash of all that two rows of one minute may differ in, each text with
// its length.
func (r sumRow) key(more ...string) []byte {
	h := sha256.New()
	for _, text := range append(more, r.App, r.Region, r.Endpoint, r.Policy, r.Reason) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		h.Write([]byte(text))
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(r.Number)))
	return h.Sum(nil)
}

// addingTo writes rows over those that are there, with n as the dialect's text says.
func (s *Store) addingTo(n map[migrations.Dialect]string) clause.OnConflict {
	return clause.OnConflict{Columns: []clause.Column{{Name: "minute"}, {Name: "id"}},
		DoUpdates: clause.Assignments(map[string]any{"n": gorm.Expr(n[s.dialect])})}
}

// countsLine reads the line between minutes and hours, and holds it until the
// transaction ends: shared, it does not move; for update, nobody adds minutes. In
// SQLite there is one writer at a time anyway.
func (s *Store) countsLine(tx *gorm.DB, lock string) (line int64, err error) {
	query := "SELECT minute FROM counter_line WHERE id = 1"
	if s.dialect == migrations.MySQL {
		query += " " + lock
	}
	if err := tx.Raw(query).Row().Scan(&line); err != nil {
		return 0, fmt.Errorf("lock counters: %w", err)
	}
	return line, nil
}

// columns of counters that a reader may ask for, by their names in ledger.CountFilter.
var columns = map[string]string{"app": "app", "region": "region", "endpoint": "endpoint", "policy": "policy",
	"reason": "reason", "release": "number"}

// Counts returns counters, summed as the filter says, the oldest first. Each Minute
// is the first of its time, with f.Every of 0 f.Since. What is older than
// ledger.CountsByMinute is known by the hour: it counts as of the hour's first minute.
func (s *Store) Counts(ctx context.Context, f ledger.CountFilter) ([]fleet.Count, error) {
	var p fault.Problems
	for i, name := range f.By {
		if columns[name] == "" {
			p.Addf(fmt.Sprintf("by[%d]", i), "%q is none of app, region, endpoint, policy, reason, release", name)
		}
	}
	if f.Every < 0 || f.Every%time.Minute != 0 {
		p.Addf("every", "%s is not a multiple of a minute", f.Every)
	}
	if err := p.Err("bad_count_filter", "counters cannot be read like this"); err != nil {
		return nil, err
	}
	start := "0"
	if f.Every > 0 {
		start = fmt.Sprintf("minute - minute %% %d", f.Every.Microseconds())
	}
	group := []string{"start"}
	for _, name := range f.By {
		group = append(group, columns[name])
	}
	by := strings.Join(slices.Compact(group), ", ")
	var rows []sumRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		const of = "minute, app, region, endpoint, policy, reason, number, n"
		both := tx.Raw("? UNION ALL ?", narrowCounts(f, tx.Model(&counterRow{}).Select(of)), narrowCounts(f, tx.Model(&sumRow{}).Select(of)))
		each := tx.Table("(?) AS counted", both).Select(start + " AS start, app, region, endpoint, policy, reason, number, n")
		return tx.Table("(?) AS started", each).Select("start AS minute, SUM(n) AS n, " + by).Group(by).Order(by).Find(&rows).Error
	})
	list := make([]fleet.Count, len(rows))
	for i, r := range rows {
		list[i] = fleet.Count{Minute: fromMicros(&r.Minute), App: r.App, Region: r.Region, Endpoint: r.Endpoint, Policy: r.Policy,
			Reason: r.Reason, Release: uint64(r.Number), N: uint64(r.N)}
		if f.Every == 0 {
			list[i].Minute = f.Since
		}
	}
	return list, err
}

func narrowCounts(f ledger.CountFilter, tx *gorm.DB) *gorm.DB {
	equal := map[string]any{}
	for column, value := range map[string]string{"app": f.App, "region": f.Region, "policy": f.Policy} {
		if value != "" {
			equal[column] = value
		}
	}
	if f.Release > 0 {
		equal["number"] = f.Release
	}
	if len(equal) > 0 {
		tx = tx.Where(equal)
	}
	if !f.Since.IsZero() {
		tx = tx.Where("minute >= ?", micros(f.Since))
	}
	if !f.Until.IsZero() {
		tx = tx.Where("minute < ?", micros(f.Until))
	}
	return tx
}

// rollUpEvery is how often AddCounts looks whether minutes are old enough.
const rollUpEvery = time.Hour

// rollUpInPassing moves one batch. While there are more, the next AddCounts moves
// one too, so that nobody waits for all of them.
func (s *Store) rollUpInPassing(ctx context.Context) {
	now := s.now()
	due := s.rollUp.Load()
	if micros(now) < due || !s.rollUp.CompareAndSwap(due, micros(now.Add(rollUpEvery))) {
		return
	}
	more, err := s.rollUpBatch(ctx, now)
	if err != nil { // what was added stays added
		s.log.WarnContext(ctx, "sum up old counters", "err", err)
	}
	if more {
		s.rollUp.Store(0)
	}
}

// RollUpCounts sums minutes older than ledger.CountsByMinute up to hours, over all
// replicas, and drops hours older than ledger.CountsKept. Each transaction moves a
// batch, and a row is in its hour or in its minute, never in both; so it may stop
// anywhere, and run again or twice at once. AddCounts does it in passing.
func (s *Store) RollUpCounts(ctx context.Context, now time.Time) error {
	for more := true; more; {
		var err error
		if more, err = s.rollUpBatch(ctx, now); err != nil {
			return fmt.Errorf("sum up counters: %w", err)
		}
	}
	return nil
}

// rollUpBatch says whether there may be more to do.
func (s *Store) rollUpBatch(ctx context.Context, now time.Time) (more bool, err error) {
	err = s.write(ctx, func(tx *gorm.DB) error {
		more = false
		line, newest, err := s.moveLine(tx, now)
		if err != nil {
			return err
		}
		var rows []counterRow
		if err := tx.Where("minute < ?", line).Order("minute, id").Limit(countsBatch).Find(&rows).Error; err != nil {
			return err
		}
		if len(rows) > 0 {
			if err := s.toHours(tx, rows); err != nil {
				return err
			}
		}
		dropped, err := dropHour(tx, newest.Add(-ledger.CountsKept))
		more = len(rows) == countsBatch || dropped
		return err
	})
	return more, err
}

// moveLine takes the line for this transaction alone and moves it to where minutes
// are old enough. Time is also what replicas say it is: one clock that is days
// ahead must not sum up what the others still count.
func (s *Store) moveLine(tx *gorm.DB, now time.Time) (line int64, newest time.Time, err error) {
	if line, err = s.countsLine(tx, "FOR UPDATE"); err != nil {
		return 0, time.Time{}, err
	}
	var last int64
	if err := tx.Model(&counterRow{}).Select("COALESCE(MAX(minute), 0)").Scan(&last).Error; err != nil {
		return 0, time.Time{}, err
	}
	newest = time.UnixMicro(min(last, micros(now)))
	if to := micros(newest.Add(-ledger.CountsByMinute).Truncate(time.Hour)); to > line {
		line = to
		err = tx.Exec("UPDATE counter_line SET minute = ? WHERE id = 1", line).Error
	}
	return line, newest, err
}

// toHours adds the rows, which are the oldest, to their hours and drops them.
func (s *Store) toHours(tx *gorm.DB, rows []counterRow) error {
	sums := map[string]sumRow{}
	for _, r := range rows {
		hour := r.Sum
		hour.Minute -= hour.Minute % time.Hour.Microseconds()
		hour.ID = hour.key()
		at := fmt.Sprint(hour.Minute, string(hour.ID))
		hour.N += sums[at].N
		sums[at] = hour
	}
	hours := make([]sumRow, 0, len(sums))
	for _, hour := range sums {
		hours = append(hours, hour)
	}
	added := map[migrations.Dialect]string{migrations.SQLite: "n + excluded.n", migrations.MySQL: "n + VALUES(n)"}
	if err := tx.Clauses(s.addingTo(added)).Create(&hours).Error; err != nil {
		return err
	}
	last := rows[len(rows)-1].Sum
	return tx.Where("minute < ? OR (minute = ? AND id <= ?)", last.Minute, last.Minute, last.ID).Delete(&counterRow{}).Error
}

// dropHour drops the oldest hour if it is older than that.
func dropHour(tx *gorm.DB, than time.Time) (bool, error) {
	var oldest *int64
	if err := tx.Model(&sumRow{}).Select("MIN(minute)").Scan(&oldest).Error; err != nil {
		return false, err
	}
	if oldest == nil || *oldest >= micros(than) {
		return false, nil
	}
	return true, tx.Where("minute = ?", *oldest).Delete(&sumRow{}).Error
}
