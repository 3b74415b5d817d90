package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

type paperRow struct {
	Kind    string `gorm:"column:kind;primaryKey"`
	ID      string `gorm:"column:id;primaryKey"`
	Rev     int64  `gorm:"column:rev"`
	State   string `gorm:"column:state"`
	By      string `gorm:"column:author"`
	Created int64  `gorm:"column:created"`
	Changed int64  `gorm:"column:changed"`
	Body    string `gorm:"column:body"`
}

// TableName is the table's name.
func (paperRow) TableName() string { return "papers" }

// Papers returns papers of a kind, the last changed first.
func (s *Store) Papers(ctx context.Context, kind string, f ledger.PaperFilter) ([]ledger.Paper, error) {
	var rows []paperRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		tx = tx.Where("kind = ?", kind)
		if len(f.States) > 0 {
			tx = tx.Where("state IN ?", f.States)
		}
		return tx.Order("changed DESC, id").Limit(limit(f.Limit)).Find(&rows).Error
	})
	list := make([]ledger.Paper, len(rows))
	for i, r := range rows {
		list[i] = r.paper()
	}
	return list, err
}

// Paper returns one paper.
func (s *Store) Paper(ctx context.Context, kind, id string) (ledger.Paper, error) {
	var p ledger.Paper
	err := s.view(ctx, func(tx *gorm.DB) error {
		found, err := takePaper(tx, kind, id)
		if err == nil && found == nil {
			err = notFound("unknown_"+kind, "no %s %q", kind, id)
		}
		if err == nil {
			p = *found
		}
		return err
	})
	return p, err
}

// SavePaper writes the paper with its audit row, and returns it as it is now. Rev
// is the one that the author saw; another one in the database is the conflict
// stale_paper, and a new paper whose id is taken paper_exists. Their Data is the
// paper as it is. By and Created are those of its beginning.
func (s *Store) SavePaper(ctx context.Context, p ledger.Paper, c ledger.Change) (ledger.Paper, error) {
	if err := checkPaper(p); err != nil {
		return ledger.Paper{}, err
	}
	if c.Action == "" {
		c.Action = p.Kind + "_save"
	}
	if c.Target == "" {
		c.Target = p.ID
	}
	e := entry{Change: c}
	err := s.change(ctx, &e, func(tx *gorm.DB) error {
		old, err := takePaper(tx, p.Kind, p.ID)
		if err != nil {
			return err
		}
		if err := staleness(p, old); err != nil {
			return err
		}
		now := s.now().UTC().Truncate(time.Microsecond)
		if p.By, p.Created = c.By, now; old != nil {
			p.By, p.Created = old.By, old.Created
		}
		row := paperRow{Kind: p.Kind, ID: p.ID, Rev: int64(p.Rev + 1), State: p.State, By: p.By,
			Created: micros(p.Created), Changed: micros(now), Body: string(p.Body)}
		p.Changed = now
		if old == nil {
			return tx.Create(&row).Error
		}
		return tx.Model(&paperRow{}).Where("kind = ? AND id = ? AND rev = ?", p.Kind, p.ID, p.Rev).
			Updates(map[string]any{"rev": row.Rev, "state": row.State, "changed": row.Changed, "body": row.Body}).Error
	})
	if err != nil {
		return ledger.Paper{}, err
	}
	p.Rev++
	return p, nil
}

// staleness compares what the author saw with what is there.
func staleness(p ledger.Paper, old *ledger.Paper) error {
	var e *fault.Error
	switch {
	case old == nil && p.Rev == 0, old != nil && old.Rev == p.Rev:
		return nil
	case old == nil:
		return notFound("unknown_"+p.Kind, "no %s %q", p.Kind, p.ID)
	case p.Rev == 0:
		e = fault.New(fault.Conflict, "paper_exists", "there is a %s %s already", p.Kind, p.ID).WithHint("change that one")
	default:
		e = fault.New(fault.Conflict, "stale_paper", "%s %s was changed since you looked: it is at revision %d, you saw %d", p.Kind, p.ID, old.Rev, p.Rev).
			WithHint("look at it again, then make the change")
	}
	e.Data = *old
	return e
}

// takePaper is nil when there is none.
func takePaper(tx *gorm.DB, kind, id string) (*ledger.Paper, error) {
	var rows []paperRow
	if err := tx.Where("kind = ? AND id = ?", kind, id).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind, id, err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	p := rows[0].paper()
	return &p, nil
}

func (r paperRow) paper() ledger.Paper {
	return ledger.Paper{Kind: r.Kind, ID: r.ID, Rev: uint64(r.Rev), State: r.State, By: r.By,
		Created: fromMicros(&r.Created), Changed: fromMicros(&r.Changed), Body: json.RawMessage(r.Body)}
}

func checkPaper(paper ledger.Paper) error {
	var p fault.Problems
	checkText(&p, "kind", paper.Kind, maxAction)
	checkText(&p, "id", paper.ID, maxName)
	checkText(&p, "state", paper.State, maxAction)
	switch {
	case !json.Valid(paper.Body) || !utf8.Valid(paper.Body):
		p.Addf("body", "not JSON")
	case len(paper.Body) > partSize:
		p.Addf("body", "%d bytes, over %d", len(paper.Body), partSize)
	}
	return p.Err("bad_paper", "this cannot be stored")
}
