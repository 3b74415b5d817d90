package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// usedBy is how exactly is known when a view or a list was last used: writing that
// down with each batch would double its work.
const usedBy = 24 * time.Hour

type recordRow struct {
	ID      string `gorm:"column:id;primaryKey"`
	At      int64  `gorm:"column:at;primaryKey;autoIncrement:false"`
	Caller  string `gorm:"column:caller"`
	Service string `gorm:"column:service"`
	Reason  string `gorm:"column:reason"`
	Body    string `gorm:"column:body"`
	LaneKey []byte `gorm:"column:lane_key"`
}

// TableName is the table's name.
func (recordRow) TableName() string { return "inner_records" }

type viewRow struct {
	View   string `gorm:"column:view;primaryKey"`
	Digest string `gorm:"column:digest"`
	Used   int64  `gorm:"column:used"`
	Body   string `gorm:"column:body"`
}

// TableName is the table's name.
func (viewRow) TableName() string { return "inner_views" }

// SaveRecords keeps picks, and the views and lists that they name. What is there
// already stays, so a batch may come twice; what cannot be stored is left out. Lists go first and records last: no record
// names what is not there. It is no change and has no audit row. Once in a while it
// drops a batch of what is old.
func (m Inner) SaveRecords(ctx context.Context, b wire.Batch, lists map[string][]discovery.Instance) error {
	s := m.s
	b, problems := storable(b)
	if len(problems) > 0 {
		s.log.WarnContext(ctx, "records of picks are left out", "caller", b.Caller, "problems", len(problems), "first", problems[0].String())
	}
	services := map[string]string{}
	for _, v := range b.Views {
		if v.Digest != "" {
			services[v.Digest] = v.Service
		}
	}
	if err := s.saveLists(ctx, lists, services); err != nil {
		return err
	}
	views, err := s.viewRows(b.Views)
	if err != nil {
		return err
	}
	if err := insertNew(ctx, s, views); err != nil {
		return fmt.Errorf("save views: %w", err)
	}
	rows, err := s.recordRows(b.Records)
	if err != nil {
		return err
	}
	if err := insertNew(ctx, s, rows); err != nil {
		return fmt.Errorf("save records: %w", err)
	}
	if err := s.touch(ctx, b.Records); err != nil {
		return fmt.Errorf("note which views are used: %w", err)
	}
	s.dropInPassing(ctx)
	return nil
}

// insertNew adds rows in batches and leaves those that are there.
func insertNew[T any](ctx context.Context, s *Store, rows []T) error {
	for batch := range slices.Chunk(rows, countsBatch) {
		err := s.write(ctx, func(tx *gorm.DB) error {
			return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&batch).Error
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) viewRows(views []route.View) ([]viewRow, error) {
	rows := make([]viewRow, len(views))
	for i, v := range views {
		body, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("save view %s: %w", v.Key, err)
		}
		rows[i] = viewRow{View: v.Key, Digest: v.Digest, Used: micros(s.now()), Body: string(body)}
	}
	slices.SortFunc(rows, func(a, b viewRow) int { return cmp.Compare(a.View, b.View) })
	return rows, nil
}

// recordRows hold what callers sent. What keeps a call on its version may be the id of
// a person: it is sealed, or left out where there are no keys for that.
func (s *Store) recordRows(records []wire.Record) ([]recordRow, error) {
	rows, now := make([]recordRow, len(records)), micros(s.now())
	for i, r := range records {
		row := recordRow{ID: r.ID, Caller: r.Caller, Service: r.Service, Reason: string(r.Reason),
			At: min(micros(r.At), now)} // a clock that is ahead keeps nothing for longer
		if r.Lane.Key != "" && s.seal != nil {
			sealed, err := s.seal.seal(release.DigestOf([]byte(r.ID)), []byte(r.Lane.Key))
			if err != nil {
				return nil, fmt.Errorf("save record %s: %w", r.ID, err)
			}
			row.LaneKey = sealed
		}
		r.Lane.Key = ""
		body, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("save record %s: %w", r.ID, err)
		}
		row.Body = string(body)
		rows[i] = row
	}
	slices.SortFunc(rows, func(a, b recordRow) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.At, b.At)) })
	return rows, nil
}

// touch notes that the views of the records, and their lists, are in use.
func (s *Store) touch(ctx context.Context, records []wire.Record) error {
	var keys []string
	for _, r := range records {
		if r.View != "" {
			keys = append(keys, r.View)
		}
	}
	slices.Sort(keys)
	for batch := range slices.Chunk(slices.Compact(keys), countsBatch) {
		err := s.write(ctx, func(tx *gorm.DB) error {
			now, stale := micros(s.now()), micros(s.now().Add(-usedBy))
			var views []viewRow
			err := tx.Select("view", "digest").Where("view IN ? AND used < ?", batch, stale).Order("view").Find(&views).Error
			if err != nil || len(views) == 0 {
				return err
			}
			var names, digests []string
			for _, v := range views {
				names, digests = append(names, v.View), append(digests, v.Digest)
			}
			if err := tx.Model(&viewRow{}).Where("view IN ?", names).Update("used", now).Error; err != nil {
				return err
			}
			return tx.Model(&listRow{}).Where("digest IN ?", digests).Update("used", now).Error
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Pick returns what is kept of the decision with the id, in whatever case it is
// written; of two with one id the newer.
func (s *Store) Pick(ctx context.Context, id string) (ledger.Pick, error) {
	var pick ledger.Pick
	err := s.view(ctx, func(tx *gorm.DB) error {
		var rows []recordRow
		ids := []string{id, strings.ToLower(id), strings.ToUpper(id)}
		if err := tx.Where("id IN ?", ids).Order("at DESC").Limit(1).Find(&rows).Error; err != nil {
			return err
		}
		if len(rows) == 0 {
			return notFound("unknown_pick", "no record of the pick %q", id)
		}
		var err error
		pick, err = s.pickOf(tx, rows[0])
		return err
	})
	return pick, err
}

// pickOf reads what belongs to a record. Without the key of its lane the view is
// nothing to go by: another key may have another version.
func (s *Store) pickOf(tx *gorm.DB, row recordRow) (pick ledger.Pick, err error) {
	r := &pick.Record
	if err := json.Unmarshal([]byte(row.Body), r); err != nil {
		return pick, fmt.Errorf("read record %s: %w", row.ID, err)
	}
	if row.LaneKey != nil {
		key, err := s.seal.open(release.DigestOf([]byte(row.ID)), row.LaneKey)
		if err != nil {
			return pick, nil // sealed before the last but one key
		}
		r.Lane.Key = string(key)
	}
	var views []viewRow
	if err := tx.Where("view = ?", r.View).Find(&views).Error; err != nil || len(views) == 0 {
		return pick, err
	}
	pick.View = new(route.View)
	if err := json.Unmarshal([]byte(views[0].Body), pick.View); err != nil {
		return pick, fmt.Errorf("read view %s: %w", r.View, err)
	}
	if pick.View.Digest == "" {
		return pick, nil
	}
	if pick.List, err = readList(tx, pick.View.Digest); err != nil {
		return pick, fmt.Errorf("read list %s: %w", pick.View.Digest, err)
	}
	return pick, nil
}

// dropInPassing drops one batch of what is old. While there is more, the next
// SaveRecords drops one too, so that nobody waits for all of it.
func (s *Store) dropInPassing(ctx context.Context) {
	now := s.now()
	due := s.dropPicks.Load()
	if micros(now) < due || !s.dropPicks.CompareAndSwap(due, micros(now.Add(rollUpEvery))) {
		return
	}
	more, err := s.dropOld(ctx, now.Add(-s.picksKept))
	if err != nil { // what was added stays added
		s.log.WarnContext(ctx, "drop old records of picks", "err", err)
	}
	if more {
		s.dropPicks.Store(0)
	}
}

// dropOld drops a batch of records from before, of views that no younger record can
// name, and of lists of which the same is true. It says whether there may be more.
func (s *Store) dropOld(ctx context.Context, before time.Time) (more bool, err error) {
	unused := micros(before.Add(-2 * usedBy))
	err = s.write(ctx, func(tx *gorm.DB) error {
		more = false
		var old []int64
		if err := tx.Model(&recordRow{}).Where("at < ?", micros(before)).Order("at").Limit(countsBatch).Pluck("at", &old).Error; err != nil {
			return err
		}
		if len(old) > 0 {
			more = len(old) == countsBatch
			if err := tx.Where("at <= ?", old[len(old)-1]).Delete(&recordRow{}).Error; err != nil {
				return err
			}
		}
		var views, lists []string
		if err := tx.Model(&viewRow{}).Where("used < ?", unused).Order("used").Limit(countsBatch).Pluck("view", &views).Error; err != nil {
			return err
		}
		if err := tx.Where("view IN ? AND used < ?", views, unused).Delete(&viewRow{}).Error; err != nil {
			return err
		}
		// A whole list stays while a difference needs it.
		const needed = "NOT EXISTS (SELECT 1 FROM inner_lists AS later WHERE later.base = inner_lists.digest)"
		err := tx.Model(&listRow{}).Where("used < ?", unused).Where(needed).Order("used").Limit(countsBatch).Pluck("digest", &lists).Error
		if err != nil {
			return err
		}
		more = more || len(views) == countsBatch || len(lists) == countsBatch
		return tx.Where("digest IN ? AND used < ?", lists, unused).Delete(&listRow{}).Error
	})
	return more, err
}
