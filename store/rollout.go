package store

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// The states of a rollout. Only a canary changes, once: a newer release supersedes
// it (a trigger does that), or Promote brings it everywhere.
const (
	asCanary   = "canary"
	everywhere = "everywhere"
)

type rolloutRow struct {
	Stream  string `gorm:"column:stream;primaryKey"`
	Number  int64  `gorm:"column:number;primaryKey;autoIncrement:false"`
	State   string `gorm:"column:state"`
	Canary  string `gorm:"column:canary"`
	Started int64  `gorm:"column:started"`
	Ended   *int64 `gorm:"column:ended"`
}

// TableName is the table's name.
func (rolloutRow) TableName() string { return "rollouts" }

func insertRollout(tx *gorm.DB, w ledger.Write, now int64) error {
	row := rolloutRow{Stream: w.Signed.Stream, Number: int64(w.Signed.Number), State: everywhere, Started: now, Ended: &now}
	if w.Canary != "" {
		row.State, row.Canary, row.Ended = asCanary, w.Canary, nil
	}
	return tx.Create(&row).Error
}

// Rollout says how far the newest release of the stream has come; zero when there
// is none.
func (s *Store) Rollout(ctx context.Context, stream string) (ledger.Rollout, error) {
	var r ledger.Rollout
	err := s.view(ctx, func(tx *gorm.DB) (err error) {
		r, err = readRollout(tx, stream)
		return err
	})
	return r, err
}

func readRollout(tx *gorm.DB, stream string) (ledger.Rollout, error) {
	head, err := streamHead(tx, stream)
	if err != nil {
		return ledger.Rollout{}, err
	}
	r := ledger.Rollout{Head: head, All: head}
	var rows []rolloutRow
	if err := tx.Where("stream = ? AND number = ? AND state <> ?", stream, head, everywhere).Find(&rows).Error; err != nil {
		return ledger.Rollout{}, fmt.Errorf("read rollout of %s/%d: %w", stream, head, err)
	}
	if len(rows) == 0 {
		return r, nil
	}
	r.Canary, r.Started = rows[0].Canary, fromMicros(&rows[0].Started)
	// A release of a node that knows no canaries has no row.
	const held = "NOT EXISTS (SELECT 1 FROM rollouts h WHERE h.stream = releases.stream AND h.number = releases.number AND h.state <> ?)"
	var all []uint64
	err = tx.Model(&releaseRow{}).Where("stream = ? AND "+held, stream, everywhere).
		Order("number DESC").Limit(1).Pluck("number", &all).Error
	if err != nil {
		return ledger.Rollout{}, fmt.Errorf("read rollout of %s: %w", stream, err)
	}
	r.All = 0
	if len(all) > 0 {
		r.All = all[0]
	}
	return r, nil
}

// Promote lets everybody serve the release whose canary is running. When that is
// over, because another node promoted it or a newer release superseded it, the
// answer is the conflict canary_over.
func (s *Store) Promote(ctx context.Context, stream string, number uint64, c ledger.Change) error {
	if c.Action == "" {
		c.Action = "promote"
	}
	return s.change(ctx, &entry{Change: c, stream: stream, number: number}, func(tx *gorm.DB) error {
		r, err := readRollout(tx, stream)
		if err != nil {
			return err
		}
		if r.Head != number || r.All == number {
			return fault.New(fault.Conflict, "canary_over", "release %s is no running canary: the newest release is %d, everybody may serve %d",
				releaseName(stream, number), r.Head, r.All).WithHint("GET /api/v1/fleet says what is being served")
		}
		return tx.Model(&rolloutRow{}).Where("stream = ? AND number = ?", stream, number).
			Updates(map[string]any{"state": everywhere, "ended": micros(s.now())}).Error
	})
}

// releaseName is how people write a release of a stream.
func releaseName(stream string, number uint64) string { return fmt.Sprintf("%s/%d", stream, number) }
