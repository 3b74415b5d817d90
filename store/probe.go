package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// probesKept is how long a prober that says nothing more is believed to know something.
const probesKept = time.Hour

type probeRow struct {
	Host   string `gorm:"column:host;primaryKey"`
	Prober string `gorm:"column:prober;primaryKey"`
	Last   int64  `gorm:"column:last"`
	Body   string `gorm:"column:body"`
}

// TableName is the table's name.
func (probeRow) TableName() string { return "probes" }

// SaveProbes keeps the last knowledge of a prober. It is no change: there is no
// audit row, and it waits for none.
func (s *Store) SaveProbes(ctx context.Context, probes []ledger.Probe) error {
	var p fault.Problems
	rows := make([]probeRow, len(probes))
	for i, probe := range probes {
		checkText(&p, fmt.Sprintf("probes[%d].host", i), probe.Host, maxHost)
		checkText(&p, fmt.Sprintf("probes[%d].prober", i), probe.Prober, maxName)
		body, err := json.Marshal(probe)
		if err != nil {
			return fmt.Errorf("save probe of %s: %w", probe.Host, err)
		}
		rows[i] = probeRow{Host: probe.Host, Prober: probe.Prober, Last: micros(probe.Last), Body: string(body)}
	}
	if err := p.Err("bad_probe", "a probe cannot be stored"); err != nil {
		return err
	}
	// In the order of their keys: two that write then wait and never in a circle.
	slices.SortFunc(rows, func(a, b probeRow) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Prober, b.Prober))
	})
	return s.write(ctx, func(tx *gorm.DB) error {
		if len(rows) > 0 {
			newer := clause.OnConflict{Columns: []clause.Column{{Name: "host"}, {Name: "prober"}}, UpdateAll: true}
			if err := tx.Clauses(newer).CreateInBatches(&rows, countsBatch).Error; err != nil {
				return err
			}
		}
		return tx.Where("last < ?", micros(s.now().Add(-probesKept))).Delete(&probeRow{}).Error
	})
}

// Probes returns what every prober knows, of the last hour.
func (s *Store) Probes(ctx context.Context) ([]ledger.Probe, error) {
	var rows []probeRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		return tx.Where("last >= ?", micros(s.now().Add(-probesKept))).Order("host, prober").Find(&rows).Error
	})
	if err != nil {
		return nil, err
	}
	list := make([]ledger.Probe, len(rows))
	for i, r := range rows {
		if err := json.Unmarshal([]byte(r.Body), &list[i]); err != nil {
			return nil, fmt.Errorf("read probe of %s by %s: %w", r.Host, r.Prober, err)
		}
	}
	return list, nil
}
