package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
)

// replicaKept is how long a replica that no longer asks is remembered. Whoever
// misses one looks within a week; after that it was removed on purpose.
const replicaKept = 7 * 24 * time.Hour

var _ fleet.Memory = (*Store)(nil)

type replicaRow struct {
	ID     string `gorm:"column:id;primaryKey"`
	First  int64  `gorm:"column:first_seen"`
	Last   int64  `gorm:"column:last_seen"`
	Report string `gorm:"column:report"`
}

// TableName is the table's name.
func (replicaRow) TableName() string { return "replicas" }

// SaveReplicas notes when replicas were seen and what they reported. Of two
// control nodes that saw the same one, who saw it last is believed. It is no
// change: there is no audit row, and it waits for none.
func (s *Store) SaveReplicas(ctx context.Context, members []fleet.Member) error {
	rows := make([]replicaRow, len(members))
	var p fault.Problems
	for i, m := range members {
		checkText(&p, fmt.Sprintf("members[%d].id", i), m.ID, maxName)
		m.Release = nil // a release is no part of what is known of a replica
		text, err := json.Marshal(m.Report)
		if err != nil {
			return fmt.Errorf("save replica %s: %w", m.ID, err)
		}
		rows[i] = replicaRow{ID: m.ID, First: micros(m.First), Last: micros(m.Seen), Report: string(text)}
	}
	if err := p.Err("bad_replica", "a replica cannot be stored"); err != nil {
		return err
	}
	return s.write(ctx, func(tx *gorm.DB) error {
		for _, r := range rows {
			if err := saveReplica(tx, r); err != nil {
				return fmt.Errorf("save replica %s: %w", r.ID, err)
			}
		}
		return tx.Where("last_seen < ?", micros(s.now().Add(-replicaKept))).Delete(&replicaRow{}).Error
	})
}

func saveReplica(tx *gorm.DB, r replicaRow) error {
	if err := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&r).Error; err != nil {
		return err
	}
	return tx.Model(&replicaRow{}).Where("id = ? AND last_seen < ?", r.ID, r.Last).
		Updates(map[string]any{"last_seen": r.Last, "report": r.Report}).Error
}

// Replicas returns the replicas that were seen in the last week, by id. Their
// State is not known here.
func (s *Store) Replicas(ctx context.Context) ([]fleet.Member, error) {
	var rows []replicaRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		return tx.Where("last_seen >= ?", micros(s.now().Add(-replicaKept))).Order("id").Find(&rows).Error
	})
	if err != nil {
		return nil, fmt.Errorf("read replicas: %w", err)
	}
	members := make([]fleet.Member, len(rows))
	for i, r := range rows {
		members[i] = fleet.Member{First: fromMicros(&r.First), Seen: fromMicros(&r.Last)}
		if err := json.Unmarshal([]byte(r.Report), &members[i].Report); err != nil {
			return nil, fmt.Errorf("read replica %s: %w", r.ID, err)
		}
	}
	return members, nil
}
