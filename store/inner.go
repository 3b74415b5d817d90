package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Inner is what the directories of several control nodes share. Of all in it only
// verdicts are changes, with audit rows; those are written by SavePaper.
type Inner struct{ s *Store }

var _ directory.Memory = Inner{}

// Inner is the store as directories use it.
func (s *Store) Inner() Inner { return Inner{s} }

type reportRow struct {
	ID      []byte `gorm:"column:id;primaryKey"`
	Expires int64  `gorm:"column:expires"`
	Body    string `gorm:"column:body"`
}

// TableName is the table's name.
func (reportRow) TableName() string { return "inner_reports" }

// SaveReports keeps what instances said of themselves for directory.ReportLives. Two
// processes under one id are two reports: which of them is the ghost is the
// directory's to say.
func (m Inner) SaveReports(ctx context.Context, reports []wire.Report) error {
	rows := make([]reportRow, len(reports))
	expires := micros(m.s.now().Add(directory.ReportLives))
	for i, r := range reports {
		body, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("save report of %s: %w", r.ID, err)
		}
		rows[i] = reportRow{ID: reportKey(r), Expires: expires, Body: string(body)}
	}
	// In the order of their keys: two that write then wait and never in a circle.
	slices.SortFunc(rows, func(a, b reportRow) int { return bytes.Compare(a.ID, b.ID) })
	rows = slices.CompactFunc(rows, func(a, b reportRow) bool { return bytes.Equal(a.ID, b.ID) })
	for batch := range slices.Chunk(rows, countsBatch) {
		err := m.s.write(ctx, func(tx *gorm.DB) error {
			return tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, UpdateAll: true}).Create(&batch).Error
		})
		if err != nil {
			return fmt.Errorf("save reports: %w", err)
		}
	}
	return m.sweepReports(ctx)
}

func reportKey(r wire.Report) []byte {
	h := sha256.New()
	for _, text := range []string{r.Service, r.ID, r.Address.String()} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		h.Write([]byte(text))
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(micros(r.Started))))
	return h.Sum(nil)
}

// sweepReports drops some that have expired.
func (m Inner) sweepReports(ctx context.Context) error {
	return m.s.write(ctx, func(tx *gorm.DB) error {
		var old [][]byte
		over := micros(m.s.now())
		err := tx.Model(&reportRow{}).Where("expires <= ?", over).Order("expires").Limit(countsBatch).Pluck("id", &old).Error
		if err != nil || len(old) == 0 {
			return err
		}
		return tx.Where("id IN ? AND expires <= ?", old, over).Delete(&reportRow{}).Error
	})
}

// Reports are those that have not expired.
func (m Inner) Reports(ctx context.Context) ([]wire.Report, error) {
	var rows []reportRow
	err := m.s.view(ctx, func(tx *gorm.DB) error {
		return tx.Where("expires > ?", micros(m.s.now())).Order("id").Find(&rows).Error
	})
	if err != nil {
		return nil, fmt.Errorf("read reports: %w", err)
	}
	list := make([]wire.Report, len(rows))
	for i, r := range rows {
		if err := json.Unmarshal([]byte(r.Body), &list[i]); err != nil {
			return nil, fmt.Errorf("read report %x: %w", r.ID, err)
		}
	}
	return list, nil
}

// Verdicts are what people decided about instances and did not lift, by SERVICE/ID.
func (m Inner) Verdicts(ctx context.Context) ([]directory.Verdict, error) {
	var rows []paperRow
	err := m.s.view(ctx, func(tx *gorm.DB) error {
		return tx.Where("kind = ? AND state <> ?", ledger.Instance, ledger.Lifted).Order("id").Find(&rows).Error
	})
	if err != nil {
		return nil, fmt.Errorf("read verdicts: %w", err)
	}
	list := make([]directory.Verdict, len(rows))
	for i, r := range rows {
		if err := json.Unmarshal([]byte(r.Body), &list[i]); err != nil {
			return nil, fmt.Errorf("read verdict about %s: %w", r.ID, err)
		}
	}
	return list, nil
}

// storable leaves out what cannot be stored of a batch, and says why. One record that a
// caller made badly must not cost the others.
func storable(b wire.Batch) (wire.Batch, fault.Problems) {
	var p fault.Problems
	fine := func(check func()) bool {
		before := len(p)
		check()
		return len(p) == before
	}
	out := wire.Batch{Caller: b.Caller}
	for i, r := range b.Records {
		if fine(func() {
			checkText(&p, fmt.Sprintf("records[%d].id", i), r.ID, maxName)
			checkText(&p, fmt.Sprintf("records[%d].caller", i), r.Caller, maxName)
			checkText(&p, fmt.Sprintf("records[%d].service", i), r.Service, maxName)
			checkText(&p, fmt.Sprintf("records[%d].reason", i), string(r.Reason), maxAction)
		}) {
			out.Records = append(out.Records, r)
		}
	}
	for i, v := range b.Views {
		if fine(func() {
			checkText(&p, fmt.Sprintf("views[%d].key", i), v.Key, maxTarget)
			checkText(&p, fmt.Sprintf("views[%d].service", i), v.Service, maxName)
			if v.Digest != "" {
				checkText(&p, fmt.Sprintf("views[%d].digest", i), v.Digest, maxStream)
			}
		}) {
			out.Views = append(out.Views, v)
		}
	}
	return out, p
}
