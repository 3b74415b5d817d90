package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

type approvalRow struct {
	Kind        string `gorm:"column:kind;primaryKey"`
	ID          string `gorm:"column:id;primaryKey"`
	Digest      []byte `gorm:"column:digest;primaryKey"`
	Author      string `gorm:"column:author"`
	Approver    string `gorm:"column:approver;primaryKey"`
	At          int64  `gorm:"column:at"`
	Reason      string `gorm:"column:reason"`
	FourEyesOff bool   `gorm:"column:four_eyes_off"`
}

// TableName is the table's name.
func (approvalRow) TableName() string { return "approvals" }

// Approve keeps the signature of who makes the change. One by the author is
// refused, whatever the case of the names, unless Options.FourEyesOff; a second one
// by the same person is the conflict already_approved. The author of a release is
// the one in the database, whatever a says.
func (s *Store) Approve(ctx context.Context, a ledger.Approval, c ledger.Change) error {
	if c.Action == "" {
		c.Action = a.Kind + "_approve"
	}
	if c.Target == "" {
		c.Target = a.ID
	}
	if a.Reason == "" {
		a.Reason = c.Reason
	}
	e := entry{Change: c}
	return s.change(ctx, &e, func(tx *gorm.DB) error {
		if a.Kind == ledger.OfRelease {
			if err := ofRelease(tx, &a, &e); err != nil {
				return err
			}
		}
		if err := checkApproval(a); err != nil {
			return err
		}
		same := strings.EqualFold(a.Author, c.By)
		if same && !s.fourEyesOff {
			return fault.New(fault.Denied, "self_approval", "%s made %s %s; another person must approve it", c.By, a.Kind, a.ID).
				WithHint("ask someone with the role approver")
		}
		var signed []string
		err := tx.Model(&approvalRow{}).Where("kind = ? AND id = ? AND digest = ?", a.Kind, a.ID, a.Digest[:]).Pluck("approver", &signed).Error
		if err != nil {
			return err
		}
		for _, who := range signed {
			if strings.EqualFold(who, c.By) {
				return fault.New(fault.Conflict, "already_approved", "%s has approved %s %s", who, a.Kind, a.ID)
			}
		}
		return tx.Create(&approvalRow{Kind: a.Kind, ID: a.ID, Digest: a.Digest[:], Author: a.Author, Approver: c.By,
			At: micros(s.now()), Reason: a.Reason, FourEyesOff: same}).Error
	})
}

// ofRelease finds the release that is signed: its author, and its audit row's.
func ofRelease(tx *gorm.DB, a *ledger.Approval, e *entry) error {
	var rows []releaseRow
	err := tx.Select("stream", "number", "actor").Where("digest = ?", a.Digest[:]).Find(&rows).Error
	if err != nil {
		return err
	}
	if len(rows) == 0 || strconv.FormatInt(rows[0].Number, 10) != a.ID {
		return notFound("unknown_release", "no release %s has the manifest %s", a.ID, a.Digest)
	}
	a.Author, e.stream, e.number = rows[0].Actor, rows[0].Stream, uint64(rows[0].Number)
	return nil
}

// approvalsShown bounds what Approvals returns.
const approvalsShown = 1000

// Approvals returns the signatures of a kind, of the ids or all, newest first, at
// most 1000.
func (s *Store) Approvals(ctx context.Context, kind string, ids ...string) ([]ledger.Approval, error) {
	var rows []approvalRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		tx = tx.Where("kind = ?", kind)
		if len(ids) > 0 {
			tx = tx.Where("id IN ?", ids)
		}
		return tx.Order("at DESC, id, approver").Limit(approvalsShown).Find(&rows).Error
	})
	list := make([]ledger.Approval, len(rows))
	for i, r := range rows {
		list[i] = ledger.Approval{Kind: r.Kind, ID: r.ID, Digest: release.Digest(r.Digest), Author: r.Author, Approver: r.Approver,
			At: fromMicros(&r.At), Reason: r.Reason, FourEyesOff: r.FourEyesOff}
	}
	return list, err
}

// unsigned are releases without a signature. CAST AS CHAR is text to both databases.
const unsigned = `NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.kind = ?
	AND approvals.id = CAST(releases.number AS CHAR) AND approvals.digest = releases.digest)`

// Unreviewed returns the releases since then that one of the actions made and that
// nobody signed, newest first, at most 1000.
func (s *Store) Unreviewed(ctx context.Context, stream string, since time.Time, actions []string) ([]ledger.Summary, error) {
	var rows []releaseRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		return summaries(tx).Where("stream = ? AND action IN ? AND created >= ?", stream, actions, micros(since)).
			Where(unsigned, ledger.OfRelease).Order("number DESC").Limit(approvalsShown).Find(&rows).Error
	})
	return summarize(rows), err
}

func checkApproval(a ledger.Approval) error {
	var p fault.Problems
	checkText(&p, "kind", a.Kind, maxAction)
	checkText(&p, "id", a.ID, maxName)
	checkText(&p, "author", a.Author, maxName)
	if a.Digest == (release.Digest{}) {
		p.Addf("digest", "empty")
	}
	return p.Err("bad_approval", "the approval cannot be stored")
}
